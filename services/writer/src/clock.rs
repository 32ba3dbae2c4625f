//! The clock, handed in: only shells read one, and tests hold it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gatelog_record::Timestamp;

use crate::signal::Signal;

/// What tells the time.
pub trait Clock: Send + Sync {
    /// What the machine's clock says. It may jump.
    fn now(&self) -> Timestamp;
    /// Time since some moment; never jumps. Waits are measured by it.
    fn monotonic(&self) -> Duration;
    /// Asks that this signal be raised whenever time is moved by hand. A clock that runs by itself
    /// has nothing to do.
    fn watch(&self, signal: &Arc<Signal>);
}

/// The two times of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// What the machine's clock says.
    pub wall: Timestamp,
    /// The log's time, which rules see as `now`: never less than `wall`, and never less than that of the event before.
    pub log: Timestamp,
}

impl From<Timestamp> for Times {
    /// Where the machine's clock is all there is to go by.
    fn from(wall: Timestamp) -> Times {
        Times { wall, log: wall }
    }
}

/// Keeps the log's time: the machine's clock, but once that was set back the log's time goes on by the monotonic clock.
/// If it stood still instead, nothing would come due for as long as the clock was set back.
#[derive(Clone, Copy, Debug)]
pub struct LogTime {
    log: Timestamp,
    monotonic: Duration,
}

impl LogTime {
    /// Where a writer takes over after an event recorded at `recorded_at`.
    pub fn new(recorded_at: Timestamp, monotonic: Duration) -> LogTime {
        LogTime { log: recorded_at, monotonic }
    }

    /// The times now, by what both clocks say.
    pub fn read(&mut self, wall: Timestamp, monotonic: Duration) -> Times {
        let passed = i64::try_from(monotonic.saturating_sub(self.monotonic).as_micros()).unwrap_or(i64::MAX);
        let log = wall.max(Timestamp(self.log.0.saturating_add(passed)));
        *self = LogTime { log, monotonic };
        Times { wall, log }
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
        };
        Timestamp(micros)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn watch(&self, _: &Arc<Signal>) {}
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock {
    inner: Mutex<Manual>,
}

#[derive(Debug)]
struct Manual {
    now: Timestamp,
    monotonic: Duration,
    watching: Vec<Weak<Signal>>,
}

impl ManualClock {
    /// A clock that stands at this moment.
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock { inner: Mutex::new(Manual { now, monotonic: Duration::ZERO, watching: Vec::new() }) }
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.change(|manual| {
            manual.now = Timestamp(manual.now.0.saturating_add(micros));
            manual.monotonic = manual.monotonic.saturating_add(by);
        });
    }

    /// Sets what the machine's clock says, as when somebody sets it: no time passes.
    pub fn jump_to(&self, now: Timestamp) {
        self.change(|manual| manual.now = now);
    }

    fn change(&self, change: impl FnOnce(&mut Manual)) {
        let mut manual = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut manual);
        manual.watching.retain(|watching| watching.strong_count() > 0);
        let watching: Vec<_> = manual.watching.iter().filter_map(Weak::upgrade).collect();
        drop(manual);
        watching.iter().for_each(|signal| signal.raise());
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    fn monotonic(&self) -> Duration {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).monotonic
    }

    fn watch(&self, signal: &Arc<Signal>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).watching.push(Arc::downgrade(signal));
    }
}
