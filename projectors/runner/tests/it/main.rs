//! The fold, fed from a log in memory, driven by the small library of the store's tests.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic and explains itself")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "files and threads are what this is about")]

mod ahead;
mod flips;
mod follow;
#[path = "../../../store/tests/it/lending.rs"]
#[allow(dead_code, reason = "shared with the store's tests")]
mod lending;
mod log;

use std::path::Path;
use std::sync::Arc;

use gatelog_event_log::{MemoryLog, ReadLimit};
use gatelog_record::Stream;
use gatelog_runner::{Ahead, RunnerConfig};
use lending::{PARTITION, Story};

pub const EVENTS: Stream = Stream::Events(PARTITION);

/// A log with these events of a story on it.
pub fn log_of(story: &Story, count: usize) -> (MemoryLog, Arc<dyn gatelog_event_log::Log>) {
    let log = MemoryLog::default();
    append(&log, story, 0, count);
    (log.clone(), Arc::new(log))
}

pub fn append(log: &MemoryLog, story: &Story, from: usize, to: usize) {
    for bytes in &story.bytes[from..to] {
        log.insert(EVENTS, bytes.clone());
    }
}

/// Small steps, so that tests see many of them, each of them stored.
pub fn config(root: &Path) -> RunnerConfig {
    RunnerConfig {
        rung_every: 10,
        checkpoint_every: 25,
        batch: ReadLimit { records: 8, bytes: 1 << 20 },
        ahead: Ahead { after_batches: 0, ..Ahead::default() },
        ..RunnerConfig::new(root)
    }
}
