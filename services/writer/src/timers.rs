//! The timer service of a partition: appends `TimerDue` when a timer of its state comes due.
//!
//! Waits are measured by the monotonic clock from the decision that set the timer on, so that setting
//! the machine's clock moves none of them. What came due while nobody was there is due at once, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_event_log::{Log, failpoint};
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::input::PartitionInput;
use gatelog_record::{InputId, InputRecord, Stream};

use crate::clock::Clock;
use crate::inputs::{Sent, send};
use crate::published::{News, Published, TimerEntry};
use crate::signal::Signal;

/// At most so many timers are told in one append.
const BATCH: usize = 256;
/// How long to wait after an append that failed.
const RETRY: Duration = Duration::from_millis(500);

/// The timer service, on its own thread. Dropping it stops it.
pub struct TimerService {
    signal: Arc<Signal>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Armed {
    entry: TimerEntry,
    told: bool,
}

impl TimerService {
    /// Starts it for a partition.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(log: Arc<dyn Log>, clock: Arc<dyn Clock>, published: Arc<Published>) -> std::io::Result<TimerService> {
        let (signal, stop) = (Signal::new(), Arc::new(AtomicBool::new(false)));
        published.watch(News::Timers, &signal);
        clock.watch(&signal);
        let name = format!("timers {}", published.partition());
        let mut service =
            Service { log, clock, published, armed: BTreeMap::new(), version: None, stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name(name).spawn({
            let signal = Arc::clone(&signal);
            move || {
                while !service.stop.load(Ordering::Acquire) {
                    let wait = service.step();
                    signal.wait(wait);
                }
            }
        })?;
        Ok(TimerService { signal, stop, thread: Some(thread) })
    }

    /// Stops it.
    pub fn stop(self) {}
}

impl Drop for TimerService {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.signal.raise();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the timer service's thread died");
        }
    }
}

struct Service {
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    published: Arc<Published>,
    armed: BTreeMap<String, Armed>,
    version: Option<u64>,
    stop: Arc<AtomicBool>,
}

impl Service {
    /// Tells of all that is due; gives how long there is nothing to do.
    fn step(&mut self) -> Option<Duration> {
        if let Some((version, timers)) = self.published.timers(self.version) {
            self.version = Some(version);
            self.arm(timers);
        }
        let monotonic = self.clock.monotonic();
        let due: Vec<&String> = self
            .armed
            .iter()
            .filter(|(_, armed)| !armed.told && armed.entry.deadline <= monotonic)
            .map(|(name, _)| name)
            .take(BATCH)
            .collect();
        if !due.is_empty() {
            let inputs = due.iter().filter_map(|name| self.armed.get(*name).map(|armed| self.input(name, armed)));
            failpoint::pass("timer/due");
            let sent = send(self.log.as_ref(), Stream::Inputs(self.published.partition()), inputs, &self.stop);
            failpoint::pass("timer/told");
            match sent {
                Sent::Kept => {
                    let due: Vec<String> = due.into_iter().cloned().collect();
                    for name in due {
                        if let Some(armed) = self.armed.get_mut(&name) {
                            armed.told = true;
                        }
                    }
                    return Some(Duration::ZERO);
                }
                Sent::Failed(error) => {
                    tracing::warn!(partition = %self.published.partition(), error, "timers could not be told");
                    return Some(RETRY);
                }
                Sent::Stopping => return Some(Duration::ZERO),
            }
        }
        let next = self.armed.values().filter(|armed| !armed.told).map(|armed| armed.entry.deadline).min();
        next.map(|deadline| deadline.saturating_sub(monotonic))
    }

    fn arm(&mut self, timers: BTreeMap<String, TimerEntry>) {
        let mut before = std::mem::take(&mut self.armed);
        for (name, entry) in timers {
            let armed = match before.remove(&name) {
                Some(armed) if armed.entry == entry => armed,
                _ => Armed { entry, told: false },
            };
            self.armed.insert(name, armed);
        }
    }

    fn input(&self, name: &str, armed: &Armed) -> InputRecord {
        let due_at = armed.entry.due_at;
        InputRecord::new(
            InputId::new(format!("timer:{name}@{}", due_at.0)),
            armed.entry.key.clone(),
            self.clock.now(),
            PartitionInput::TimerDue(TimerDue { timer: name.to_owned(), due_at }),
        )
    }
}
