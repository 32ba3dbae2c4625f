//! How a log is opened, and what it counts.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use gatelog_event_log::{MAX_APPEND, MAX_RECORD};
use gatelog_record::{ChainLink, Partition};

use crate::medium::{Medium, MediumFactory, Room, SegmentFile, file_medium};

/// Something that was derived from this log and says how far the log must at least go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Who knows, for people: `the projection in /var/lib/gatelog/state/gate.0`.
    pub who: String,
    /// The partition.
    pub partition: Partition,
    /// The newest event it knows; 0 knows nothing.
    pub sequence: u64,
    /// That event's link.
    pub link: ChainLink,
}

/// How a log is opened for writing.
#[derive(Clone)]
pub struct Options {
    /// How many partitions each domain has. Counts when the log is created; afterwards the log's own
    /// number stands.
    pub partitions: u32,
    /// A segment that has reached so many bytes is sealed.
    pub segment_bytes: u64,
    /// The largest record taken, in bytes.
    pub max_record: u64,
    /// The most bytes one append may carry.
    pub max_append: u64,
    /// The most bytes that may wait to be written before inputs are refused with `Busy`. Events are
    /// refused at four times that: a partition's writer bounds what it has in flight itself.
    pub queue_bytes: u64,
    /// The most bytes of records one commit takes, unless a single append has more.
    pub group_bytes: u64,
    /// How long a commit waits for more after one that a few appends shared (PostgreSQL: `commit_delay` with
    /// `commit_siblings`), and at most for what a partition's writer decides of the inputs in it; who appends alone,
    /// and no writer attends, never waits.
    pub linger: Duration,
    /// How many bytes of the newest records are kept in memory for readers at the tail.
    pub hot_bytes: u64,
    /// How many bytes of a segment are made ready ahead of what is written, so that a commit waits for its own bytes
    /// alone; 0 for none. They are given back when the segment is sealed and when the log is closed.
    pub room_bytes: u64,
    /// What is known to have been on this log.
    pub known: Vec<Known>,
    pub(crate) medium: MediumFactory,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            partitions: 1,
            segment_bytes: 64 << 20,
            max_record: MAX_RECORD,
            max_append: MAX_APPEND,
            queue_bytes: 64 << 20,
            group_bytes: 1 << 20,
            linger: Duration::from_micros(500),
            hot_bytes: 16 << 20,
            room_bytes: 1 << 20,
            known: Vec::new(),
            medium: Arc::new(file_medium),
        }
    }
}

impl Options {
    /// What a segment is written to whose file has this length.
    pub(crate) fn segment_file(&self, file: File, length: u64) -> Box<dyn Medium> {
        let room = Room { step: self.room_bytes, until: self.segment_bytes };
        (self.medium)(SegmentFile::new(file, length, room))
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("partitions", &self.partitions)
            .field("segment_bytes", &self.segment_bytes)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// How a log is opened for reading beside its writer.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// How often to look for more while somebody waits for it.
    pub poll: Duration,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        ReaderOptions { poll: Duration::from_millis(20) }
    }
}

/// What a log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of `fdatasync` for commits and footers.
    pub syncs: u64,
    /// Frames written: one for each commit.
    pub frames: u64,
    /// Appends committed.
    pub appends: u64,
    /// Records committed.
    pub records: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Segments sealed.
    pub sealed: u64,
    /// Bytes of an unfinished frame cut off when the log was opened, without zeros at their end.
    pub cut_off: u64,
}
