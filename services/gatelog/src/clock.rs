//! The machine's clock, read in one place, and the site's time.

use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gatelog_record::Timestamp;

/// The newest time of the log that this process knows, and when it came to know it.
static NEWEST: Mutex<Option<(Timestamp, Instant)>> = Mutex::new(None);

/// Now, by the machine's clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Now, by the site's time, in which moments that go onto the log are told: the machine's clock, but never behind the
/// log's time, which goes on when that clock is set back. Spans between them are true then, whoever told them.
pub fn site_now() -> Timestamp {
    no_earlier_than_the_log(now())
}

/// A moment of the machine's clock in the site's time, if it is now.
pub fn no_earlier_than_the_log(wall: Timestamp) -> Timestamp {
    let known = *NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    known.map_or(wall, |(newest, since)| wall.max(later(newest, since.elapsed().as_micros())))
}

/// The log has come to this time.
pub fn log_is_at(newest: Timestamp) {
    let mut known = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none_or(|(before, _)| before < newest) {
        *known = Some((newest, Instant::now()));
    }
}

/// A moment, and so many microseconds after it.
pub fn later(moment: Timestamp, micros: u128) -> Timestamp {
    Timestamp(moment.0.saturating_add(i64::try_from(micros).unwrap_or(i64::MAX)))
}
