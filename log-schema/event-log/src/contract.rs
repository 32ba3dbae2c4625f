//! The log's contract.
//!
//! A log holds **streams** ([`Stream`]): the intake, and for each partition of a domain its inputs
//! and its events. A stream is an ordered sequence of byte records.
//!
//! # Operations
//! - [`Log::append_inputs`]: anyone appends inputs to the intake or to a partition's inputs.
//! - [`Log::claim`]: takes a partition over and gives the one [`EventWriter`] that may append its
//!   events; whoever held it before is fenced.
//! - [`Log::read`]: reads a stream from a place on; [`Log::end`] and [`Log::changed`] tell where it
//!   ends and when it grows.
//!
//! # Guarantees
//! - **Acknowledged is kept.** When an append's [`Pending`] has come to `Ok`, the records survive
//!   what [`Description::survives`] says. They are then visible to every reader of this log. Before that, only a
//!   partition's writer may see its inputs, and only where its events cannot outlive them
//!   ([`EventWriter::accepted`]).
//! - **Order.** A stream has one order, the same for every reader and for ever. The records of one
//!   append stand next to each other, in the order given; all of them are there or none.
//! - **One writer.** Events of a partition are accepted from the newest claim only. An older
//!   [`EventWriter`] fails with [`LogError::Fenced`]; what it had in flight is there whole or not at
//!   all, and the next claim's [`Claim`] already counts it.
//! - **Checked.** An event append whose sequences do not follow on, or whose term is not the
//!   claim's, is refused with [`LogError::NotNext`] before anything is written.
//! - **Dense offsets are not promised**, only growing ones: identity is the event's sequence.
//! - **Nothing skipped.** Damage is a named error at a place ([`LogError::Damaged`]); reading never
//!   passes over it in silence.
//!
//! # Non-guarantees
//! - Inputs may be appended twice by a producer that lost its acknowledgement: the writer's dedup
//!   deals with it.
//! - No order between streams.
//! - An append whose `Pending` came to an error or to `None` may or may not be there.
//! - Old records of a lower term may stand after a newer term's first event (an old owner that was
//!   cut off on a log that cannot fence at once). They are no part of history: see [`crate::history`].
//!
//! # Failures
//! See [`LogError`]: each says what to conclude and, where there is one, the cure.

use gatelog_record::{ChainLink, Partition, SiteId, Stream};

use crate::history::Tail;
use crate::pending::Pending;

/// The largest record any log takes, in bytes: the largest body and room for what stands around it.
/// A log may take less; larger things are blobs.
pub const MAX_RECORD: u64 = 17 << 20;

/// The most bytes of records one append may carry.
pub const MAX_APPEND: u64 = 64 << 20;

/// A place in a stream: of the record that stands there, or will. Grows along the stream; not dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

/// A place in the log for people: which stream, which offset, and where that is on disk or broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stream, if it is known.
    pub stream: Option<Stream>,
    /// The offset, if it is known.
    pub offset: Option<Offset>,
    /// Where that is, such as `segment 00000003.log byte 4711`.
    pub physical: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(stream) = &self.stream {
            write!(f, "{stream} ")?;
        }
        if let Some(offset) = &self.offset {
            write!(f, "offset {} ", offset.0)?;
        }
        write!(f, "({})", self.physical)
    }
}

/// What an acknowledged record survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Nothing: it is in memory.
    Nothing,
    /// Loss of power, if the disk keeps what it says it keeps.
    PowerLoss,
    /// Loss of all but one of so many replicas.
    ReplicaLoss(u32),
}

/// What a log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The site.
    pub site: SiteId,
    /// The generation: raised when a restored or forked log is adopted.
    pub generation: u32,
    /// What an acknowledged record survives.
    pub survives: Survives,
    /// What it is, such as `embedded log in /var/lib/gatelog/log`.
    pub name: String,
    /// How many partitions each domain has.
    pub partitions: u32,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Another writer has claimed the partition.
    #[error("{partition}: another writer has taken over (term {term} is fenced)")]
    Fenced {
        /// The partition.
        partition: Partition,
        /// The term that is fenced.
        term: u64,
    },
    /// The records do not follow on from the newest event.
    #[error(
        "{partition}: an event with sequence {found} in term {term} cannot follow sequence {last} of term {last_term}"
    )]
    NotNext {
        /// The partition.
        partition: Partition,
        /// The newest event's sequence.
        last: u64,
        /// The claim's term.
        last_term: u64,
        /// What was to be appended.
        found: u64,
        /// In which term.
        term: u64,
    },
    /// Something on the log is not what was written.
    #[error("the log is damaged at {place}: {what}; restore it from a backup, or see `gatelog log verify`")]
    Damaged {
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
    },
    /// The log is shorter than what is known to have been on it.
    #[error(
        "{place}: the log ends here, but {knows}; an older log was put in place: restore the newer one or adopt this one with `gatelog log adopt`"
    )]
    Behind {
        /// Where it ends.
        place: Place,
        /// Who knows more, and of what.
        knows: String,
    },
    /// A record is too large.
    #[error("a record of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Another process holds the log.
    #[error("{path} is in use by another gatelog server (process {holder}): stop it, or use another --dir")]
    InUse {
        /// The directory.
        path: String,
        /// What is known of the process.
        holder: String,
    },
    /// The log was opened for reading only.
    #[error("this log is open for reading only")]
    ReadOnly,
    /// More is waiting to be written than the log takes.
    #[error("the log's queue is full ({waiting} bytes waiting): try again")]
    Busy {
        /// What waits, in bytes.
        waiting: u64,
    },
    /// The log can no longer be written: an earlier write failed, and what is on disk is not known.
    #[error("the log stopped after a failed write ({message}): restart gatelog once the cause is mended")]
    Stopped {
        /// What failed.
        message: String,
    },
    /// The system below failed.
    #[error("{what}: {message}")]
    System {
        /// What was tried, and where.
        what: String,
        /// What the system said.
        message: String,
    },
}

/// What stands in a partition's events when it is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The partition.
    pub partition: Partition,
    /// The newest event's sequence; 0 when there is none.
    pub last_sequence: u64,
    /// The newest term; 0 when there is none. The new writer's first event is `WriterStarted` with
    /// one more.
    pub last_term: u64,
    /// The newest event's link.
    pub last_link: ChainLink,
    /// The newest event's record bytes, if there is one: from it the writer knows its last input.
    pub last_record: Option<Vec<u8>>,
}

/// How much one read may bring.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// At most so many records.
    pub records: usize,
    /// At most so many bytes, but at least one record.
    pub bytes: usize,
}

impl Default for ReadLimit {
    fn default() -> Self {
        ReadLimit { records: 1_024, bytes: 4 << 20 }
    }
}

/// One record read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    /// Where it stands.
    pub offset: Offset,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What one read brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBatch {
    /// The records, in order.
    pub records: Vec<ReadRecord>,
    /// Where to read on.
    pub next: Offset,
}

/// A log.
pub trait Log: Send + Sync {
    /// What it says of itself.
    fn describe(&self) -> Description;

    /// Appends inputs (each an encoded [`gatelog_record::frame::InputFrame`]) to the intake or to a
    /// partition's inputs. Comes to the offsets, one for each record.
    ///
    /// # Errors
    /// `TooLarge`, `Busy`, `Stopped`, `ReadOnly`, `System`.
    fn append_inputs(&self, stream: Stream, records: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>>;

    /// Takes a partition over. Blocks until everything written before is known.
    ///
    /// # Errors
    /// `Damaged`, `ReadOnly`, `System`.
    fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError>;

    /// Reads on from a place; an empty batch at the end. Only acknowledged records are seen.
    ///
    /// # Errors
    /// `Damaged`, `System`.
    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError>;

    /// The place after the last acknowledged record.
    ///
    /// # Errors
    /// `System`.
    fn end(&self, stream: Stream) -> Result<Offset, LogError>;

    /// The place of the event with this sequence, or of the first one after it. For seeking; a
    /// linear search is allowed.
    ///
    /// # Errors
    /// `Damaged`, `System`.
    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError>;

    /// Completes when the stream's end lies beyond `beyond`, or (with `None`) when the log closes.
    fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()>;

    /// Every stream that has a record.
    ///
    /// # Errors
    /// `System`.
    fn streams(&self) -> Result<Vec<Stream>, LogError>;

    /// What the first event of a partition on this log follows: nothing, but for a slice, which begins late.
    fn begins(&self, _partition: Partition) -> Tail {
        Tail::GENESIS
    }
}

/// The one who may append a partition's events.
pub trait EventWriter: Send {
    /// Appends events (each an encoded [`gatelog_record::Envelope`] with its link), in order, whole
    /// or not at all. Appends may be in flight together; they keep their order, and when one fails
    /// all after it fail too. Comes to the offset of the last record.
    ///
    /// # Errors
    /// `NotNext`, `Fenced`, `TooLarge`, `Busy` (far beyond where inputs get it), `Stopped`, `System` (the
    /// bytes are no event, or its link does not follow).
    fn append(&mut self, records: Vec<Vec<u8>>) -> Pending<Result<Offset, LogError>>;

    /// Reads on among the partition's inputs that were accepted and are not acknowledged yet, where this log keeps one
    /// order over inputs and events: nothing that is appended here after it was read becomes durable without it, and
    /// when it is refused after all, every later append fails. So the two share a wait for the disk. Whoever acts
    /// outside the log must not see it before it is acknowledged. An empty batch where there is nothing of it, and on
    /// logs that show only what is acknowledged.
    ///
    /// # Errors
    /// `Fenced`, `Stopped`; `System` when something that was read here was refused.
    fn accepted(&mut self, from: Offset, _limit: ReadLimit) -> Result<ReadBatch, LogError> {
        Ok(ReadBatch { records: Vec::new(), next: from })
    }

    /// Completes when the end of the partition's inputs, with what [`EventWriter::accepted`] shows, lies beyond
    /// `beyond`, or (with `None`) when the log closes. Whoever waits has appended what it had to say of all before.
    /// `None` on logs that show only what is acknowledged: there [`Log::changed`] tells.
    ///
    /// # Errors
    /// As [`EventWriter::accepted`].
    fn awaits(&mut self, _beyond: Offset) -> Result<Option<Pending<()>>, LogError> {
        Ok(None)
    }
}
