//! A moment and how much time has passed since, whatever becomes of the machine's clock.

use std::time::Instant;

use gatelog_record::Timestamp;

/// Measures by the monotonic clock from a moment on.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// The moment it was started at.
    pub started: Timestamp,
    since: Instant,
}

impl Stopwatch {
    /// Starts one; it is `now`.
    pub fn start(now: Timestamp) -> Stopwatch {
        Stopwatch { started: now, since: Instant::now() }
    }

    /// The moment it was started at and the time that has passed: never before it, however the clock was set since.
    pub fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.since.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp(self.started.0.saturating_add(passed))
    }
}
