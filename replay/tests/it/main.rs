//! Replay, on the small library of the store's tests.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic and explains itself")]

mod desk;
mod diffs;
mod explained;
#[path = "../../../projectors/store/tests/it/lending.rs"]
#[allow(dead_code, reason = "shared with the store's tests")]
mod lending;
mod origins;
mod past;
mod redecided;
mod steps;
mod what_ifs;
mod world;

use std::sync::Arc;

use gatelog_event_log::MemoryLog;
use gatelog_record::Stream;
use lending::{PARTITION, Story};

/// A log with a whole story on it.
pub fn log_of(story: &Story) -> Arc<MemoryLog> {
    let log = MemoryLog::default();
    for bytes in &story.bytes {
        log.insert(Stream::Events(PARTITION), bytes.clone());
    }
    Arc::new(log)
}
