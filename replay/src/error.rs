//! Why a question to the past cannot be answered.

use gatelog_event_log::{BlobError, HistoryError, LogError};
use gatelog_record::{BodyError, EventRef, FrameError, Partition, Stream, Timestamp};
use gatelog_store::StoreError;
use gatelog_tables::{FoldRefused, TableError};
use gatelog_writer::ShellError;

/// Why a question to the past cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What stands on the log is no history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// Rungs.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Blobs.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Tables in memory.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The position lies after the newest event.
    #[error("{partition} has no event {wanted} yet: its newest is event {newest}")]
    NotYet {
        /// The partition.
        partition: Partition,
        /// What was asked for.
        wanted: u64,
        /// The newest event's sequence.
        newest: u64,
    },
    /// This is a slice of a log, and what was asked for lies before it.
    #[error(
        "this is a slice of a log: {partition} begins after event {begins}, and what came before cannot be told from it; ask          the site it is of"
    )]
    Slice {
        /// The partition.
        partition: Partition,
        /// The newest event that is not there.
        begins: u64,
    },
    /// An event does not fit the state.
    #[error(
        "{partition}: event {sequence} ({kind}) does not fit the state: {refused}; this is a fault in gatelog, see `gatelog log cat --from {sequence}`"
    )]
    FoldRefused {
        /// The partition.
        partition: Partition,
        /// The event's sequence.
        sequence: u64,
        /// Its kind.
        kind: &'static str,
        /// Why it does not fit.
        refused: FoldRefused,
    },
    /// A rung is not what folding gives.
    #[error(
        "the rung at event {sequence} has digest {found}, folding gives {computed}: delete it, and report this: a fold is not repeatable or the rung was made by another gatelog"
    )]
    RungDiffers {
        /// Its sequence.
        sequence: u64,
        /// The rung's digest, in hex.
        found: String,
        /// What folding gives, in hex.
        computed: String,
    },
    /// There is no event at a place another event names.
    #[error("there is no event {} in {}", .0.sequence, .0.partition)]
    NoEvent(EventRef),
    /// An event names an input that is not on the log.
    #[error("{stream} has no record at offset {offset}: the log is not complete")]
    NoInput {
        /// The stream.
        stream: Stream,
        /// The offset.
        offset: u64,
    },
    /// A blob that a recorded decision stands on is missing or damaged: it cannot be made again.
    #[error("{partition} event {sequence} cannot be decided again: {message}")]
    NoBlob {
        /// The partition.
        partition: Partition,
        /// The decision's first event.
        sequence: u64,
        /// Which blob, and what is wrong with it.
        message: String,
    },
    /// An input is not the one that was decided.
    #[error(
        "the input at {stream} offset {offset} is not the one that was decided: its digest differs from the one in event {sequence}; see `gatelog log verify`"
    )]
    InputChanged {
        /// The stream.
        stream: Stream,
        /// The offset.
        offset: u64,
        /// The event that decided it.
        sequence: u64,
    },
    /// An input is named that was never decided.
    #[error("no decision stands on the input at {stream} offset {offset}: see `gatelog log cat {stream}`")]
    NoSuchInput {
        /// The stream.
        stream: Stream,
        /// The offset.
        offset: u64,
    },
    /// A tenant file that would have been in place of the recorded ones makes no sense with the record.
    #[error("the tenant file cannot stand in place of the recorded ones: {message}")]
    TenantFile {
        /// What is wrong with it.
        message: String,
    },
    /// What a model says cannot be written down.
    #[error("an input of the model cannot be written: {message}")]
    NotWritable {
        /// Why not.
        message: String,
    },
    /// A record cannot be read.
    #[error("{stream} offset {offset}: {why}")]
    Frame {
        /// The stream.
        stream: Stream,
        /// The offset.
        offset: u64,
        /// What is wrong.
        why: FrameError,
    },
    /// A record's body cannot be read.
    #[error("{stream} offset {offset}: {why}")]
    Body {
        /// The stream.
        stream: Stream,
        /// The offset.
        offset: u64,
        /// What is wrong.
        why: BodyError,
    },
    /// The shell around the rules cannot go on.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// Causes go on for longer than any chain can.
    #[error("the causes of event {} in {} go on for more than {limit} steps: this is a fault in gatelog", of.sequence, of.partition)]
    TooManyCauses {
        /// Where the chain began.
        of: EventRef,
        /// The limit.
        limit: usize,
    },
    /// There was nothing yet.
    #[error("nothing had happened in {partition} at {at}: its first event is of {first}")]
    BeforeGenesis {
        /// The partition.
        partition: Partition,
        /// What was asked for.
        at: Timestamp,
        /// The first event's time.
        first: Timestamp,
    },
}
