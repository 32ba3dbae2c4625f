//! The machine's clock, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use gatelog_record::Timestamp;

/// Now, by the machine's clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
