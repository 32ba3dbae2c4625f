//! The forwarder of a partition: carries the messages of its outbox to the inputs of other partitions,
//! in order for each receiver, outside any transaction.
//!
//! Each message is an input named after the event that put it there, with that place as its source.
//! The receiver drops what is at or below its mark for the sender, so sending again is harmless; that
//! mark, as the receiver's acknowledged events have it, says what was taken, and the sender is told
//! with `OutboxDelivered`, not for every single message. After a start, sending begins at the mark.
//! A receiver that is slow or gone holds up nobody else's messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_event_log::{Log, failpoint};
use gatelog_partition_state::OutboxRow;
use gatelog_record::draft::partition::OutboxDelivered;
use gatelog_record::input::PartitionInput;
use gatelog_record::{EventRef, InputId, InputRecord, Partition, Source, Stream};

use crate::clock::Clock;
use crate::inputs::{Sent, send};
use crate::published::{News, OutboxKey, Published, YellowReason};
use crate::receivers::{Directory, Receiver};
use crate::signal::Signal;

/// At most so many messages in one append.
const BATCH: usize = 256;
/// At most so many messages sent ahead of the receiver's mark.
const AHEAD: usize = 4_096;
/// So many messages taken are told at once, without waiting for [`TELL_EVERY`].
const TELL_COUNT: usize = 256;
/// Fewer are told this often.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long to wait after an append that failed; doubled each time up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How often to look for a receiver that is not known yet.
const LOOK: Duration = Duration::from_millis(200);

/// The forwarder, on its own thread. Dropping it stops it.
pub struct Forwarder {
    signal: Arc<Signal>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts it for a sending partition; `directory` is where it finds its receivers' marks.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        published: Arc<Published>,
        directory: Arc<Directory>,
    ) -> std::io::Result<Forwarder> {
        let (signal, stop) = (Signal::new(), Arc::new(AtomicBool::new(false)));
        published.watch(News::Outbox, &signal);
        clock.watch(&signal);
        let name = format!("forwarder {}", published.partition());
        let mut forwarding = Forwarding {
            log,
            clock,
            published,
            directory,
            lanes: BTreeMap::new(),
            signal: Arc::clone(&signal),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            while !forwarding.stop.load(Ordering::Acquire) {
                let wait = forwarding.step();
                forwarding.signal.wait(wait);
            }
        })?;
        Ok(Forwarder { signal, stop, thread: Some(thread) })
    }

    /// Stops it.
    pub fn stop(self) {}
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.signal.raise();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the forwarder's thread died");
        }
    }
}

/// What is known of one receiver.
struct Lane {
    receiver: Arc<dyn Receiver>,
    /// Up to where messages were sent.
    sent: (u64, u32),
    /// Up to where the sender was told, and when.
    told: (u64, u32),
    told_at: Option<Duration>,
    /// Until when to wait after a failure, and how long the next wait is.
    retry_at: Option<Duration>,
    retry: Duration,
}

struct Forwarding {
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    published: Arc<Published>,
    directory: Arc<Directory>,
    lanes: BTreeMap<Partition, Lane>,
    signal: Arc<Signal>,
    stop: Arc<AtomicBool>,
}

impl Forwarding {
    /// Serves every receiver once; gives how long there is nothing to do.
    fn step(&mut self) -> Option<Duration> {
        let receivers = self.published.receivers();
        receivers.into_iter().filter_map(|receiver| self.serve(receiver)).min()
    }

    fn serve(&mut self, to: Partition) -> Option<Duration> {
        let sender = self.published.partition();
        let Some(known) = self.directory.get(to) else { return Some(LOOK) };
        let Some(mark) = known.mark(sender) else {
            self.meet(to, &known, None);
            return Some(LOOK);
        };
        self.meet(to, &known, Some(mark));
        let monotonic = self.clock.monotonic();
        let Some(lane) = self.lanes.get_mut(&to) else { return Some(LOOK) };
        lane.sent = lane.sent.max(mark);
        if let Some(retry_at) = lane.retry_at
            && retry_at > monotonic
        {
            return Some(retry_at.saturating_sub(monotonic));
        }
        let sent = lane.sent;
        let taken = self.published.outbox_count(to, lane.told, mark, TELL_COUNT);
        let due = lane.told_at.map_or(Duration::ZERO, |told_at| told_at.saturating_add(TELL_EVERY));
        let untold = taken > 0;
        if untold && (taken >= TELL_COUNT || due <= monotonic) {
            let told = InputRecord::new(
                InputId::new(format!("outbox:{to}/{}.{}", mark.0, mark.1)),
                "",
                self.clock.now(),
                PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to: mark }),
            );
            failpoint::pass("outbox/taken");
            let answer = send(self.log.as_ref(), Stream::Inputs(sender), std::iter::once(told), &self.stop);
            failpoint::pass("outbox/told");
            return self.after(to, answer, |lane| {
                lane.told = mark;
                lane.told_at = Some(monotonic);
            });
        }
        let ahead = self.published.outbox_count(to, mark, sent, AHEAD);
        let messages = self.published.outbox_after(to, sent, BATCH.min(AHEAD - ahead));
        if let Some(&((_, _, sequence, ordinal), _)) = messages.last() {
            let inputs = messages.iter().map(|(key, row)| self.input(sender, *key, row));
            failpoint::pass("outbox/found");
            let answer = send(self.log.as_ref(), Stream::Inputs(to), inputs, &self.stop);
            failpoint::pass("outbox/sent");
            return self.after(to, answer, |lane| lane.sent = (sequence, ordinal));
        }
        untold.then(|| due.saturating_sub(monotonic))
    }

    /// Makes a lane for a receiver, or a new one when another writer took its place.
    fn meet(&mut self, to: Partition, known: &Arc<dyn Receiver>, mark: Option<(u64, u32)>) {
        match self.lanes.get(&to) {
            Some(lane) if Arc::ptr_eq(&lane.receiver, known) => {}
            _ => {
                known.watch(&self.signal);
                let sent = mark.unwrap_or_default();
                let lane = Lane {
                    receiver: Arc::clone(known),
                    sent,
                    told: (0, 0),
                    told_at: None,
                    retry_at: None,
                    retry: RETRY,
                };
                self.lanes.insert(to, lane);
            }
        }
    }

    fn after(&mut self, to: Partition, answer: Sent, kept: impl FnOnce(&mut Lane)) -> Option<Duration> {
        let lane = self.lanes.get_mut(&to)?;
        match answer {
            Sent::Kept => {
                kept(lane);
                lane.retry_at = None;
                lane.retry = RETRY;
                Some(Duration::ZERO)
            }
            Sent::Stopping => Some(Duration::ZERO),
            Sent::Failed(error) => {
                let wait = lane.retry;
                lane.retry_at = Some(self.clock.monotonic().saturating_add(wait));
                lane.retry = wait.saturating_mul(2).min(RETRY_MAX);
                tracing::warn!(from = %self.published.partition(), %to, error, "messages could not be forwarded");
                if lane.retry == RETRY_MAX && wait < RETRY_MAX {
                    self.published.yellow(YellowReason {
                        code: "outbox".to_owned(),
                        sequence: 0,
                        input_offset: None,
                        message: format!("messages to {to} cannot be forwarded: {error}"),
                        at: self.clock.now(),
                    });
                }
                Some(wait)
            }
        }
    }

    fn input(&self, sender: Partition, key: OutboxKey, row: &OutboxRow) -> InputRecord {
        let (_, _, sequence, ordinal) = key;
        let site = self.log.describe().site;
        let id = InputId::new(format!("{site}/{sender}/{sequence}.{ordinal}"));
        let mut input = InputRecord::new(id, row.key.clone(), self.clock.now(), row.input.clone());
        input.source = Some(Source { partition: sender, sequence, ordinal });
        input.caused_by(EventRef { partition: sender, sequence })
    }
}
