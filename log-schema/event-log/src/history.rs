//! What a partition's history is, and the one reader that enforces it.
//!
//! A log keeps bytes in order; this module says which of them are history. From the records of a
//! partition's events, in the log's order:
//!
//! - a record whose term is lower than the newest term before it is **no part of history**: an old
//!   owner wrote it after it had been cut off. It is passed over, counted and shown
//!   ([`StaleWriter`]), and takes no part in sequence and chain;
//! - of all others, the first of each term is `WriterStarted`, terms rise by one, sequences are
//!   dense, checksums fit, and each link is SHA-256 over the link before it and the record;
//! - anything else is a [`HistoryError`] at a place. It is never passed over: the reader gives the
//!   same error again until it is put aside.
//!
//! A reader starts at the beginning of history or after any [`Tail`] that is known (a projection's,
//! a rung's, a checkpoint's).

use gatelog_record::event::PartitionEvent;
use gatelog_record::level::{self, GATELOG};
use gatelog_record::{BodyError, ChainLink, Envelope, Event, EventRecord, FrameError, InputFrame, Partition, Stream};

use crate::contract::{Log, LogError, Offset, ReadLimit, ReadRecord};

mod newer;

/// The kind of `WriterStarted`, the one event the reader knows by name.
pub const WRITER_STARTED: u16 = 0x0001;

/// Where a history stands: what the next event must follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The newest event's sequence; 0 before the first.
    pub sequence: u64,
    /// The newest event's term; 0 before the first.
    pub term: u64,
    /// The newest event's link.
    pub link: ChainLink,
}

/// What is wrong with a record that should have followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Events are missing.
    #[error("events are missing: sequence {expected} was expected, {found} was found")]
    Gap {
        /// The sequence that should have stood here.
        expected: u64,
        /// The sequence that stands here.
        found: u64,
    },
    /// An event stands there a second time.
    #[error("an event is repeated: sequence {expected} was expected, {found} was found")]
    Repeat {
        /// The sequence that should have stood here.
        expected: u64,
        /// The sequence that stands here.
        found: u64,
    },
    /// The link is not that of a record that follows the one before it.
    #[error(
        "the chain is broken at sequence {sequence}: the record's link is {found}, what stands before it gives {computed}"
    )]
    BrokenLink {
        /// The event's sequence.
        sequence: u64,
        /// The link in the record.
        found: ChainLink,
        /// The link it must have.
        computed: ChainLink,
    },
    /// The bytes are no event.
    #[error("{0}")]
    Frame(FrameError),
    /// The event's body cannot be read.
    #[error("event {sequence}: {why}")]
    Body {
        /// The event's sequence.
        sequence: u64,
        /// What is wrong.
        why: BodyError,
    },
    /// A writer began a term that had begun before.
    #[error("event {sequence} begins term {term} a second time")]
    TermRepeated {
        /// The event's sequence.
        sequence: u64,
        /// The term.
        term: u64,
    },
    /// A writer began a term that does not follow on.
    #[error("event {sequence} begins term {found}, but {expected} is next")]
    TermGap {
        /// The event's sequence.
        sequence: u64,
        /// The term that should have begun.
        expected: u64,
        /// The term found.
        found: u64,
    },
    /// A new term appears without the event that begins it.
    #[error("event {sequence} is of term {found}, which no writer has begun (the newest is {newest})")]
    TermNotBegun {
        /// The event's sequence.
        sequence: u64,
        /// The term found.
        found: u64,
        /// The newest term begun.
        newest: u64,
    },
    /// From here on the log may hold kinds that this gatelog does not know.
    #[error(
        "event {sequence} raises the log's level to {level}, and this gatelog ({GATELOG}) knows records up to level \
         {}: read on with gatelog {gatelog} or a later one",
        level::newest_read()
    )]
    Level {
        /// The event's sequence.
        sequence: u64,
        /// The new level.
        level: u32,
        /// A gatelog that knows it.
        gatelog: String,
    },
    /// A record that a newer gatelog wrote.
    #[error(
        "event {sequence} is {what}, which this gatelog ({GATELOG}) does not know: read on with {build}, which wrote it, \
         or a later one"
    )]
    Newer {
        /// The event's sequence.
        sequence: u64,
        /// What is not known: a kind, or a version of one.
        what: String,
        /// The build that wrote it.
        build: String,
    },
    /// Envelope and body of a `WriterStarted` name different terms.
    #[error("event {sequence} begins term {body} by its body, {envelope} by its envelope")]
    TermUnclear {
        /// The event's sequence.
        sequence: u64,
        /// The envelope's term.
        envelope: u64,
        /// The body's term.
        body: u64,
    },
}

/// A history is broken here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("history of {partition} {} offset {}: {what}{}", self.how().0, offset.0, self.how().1)]
pub struct HistoryError {
    /// The partition.
    pub partition: Partition,
    /// The offset of the record in the partition's events.
    pub offset: Offset,
    /// What is wrong.
    pub what: Broken,
}

impl HistoryError {
    /// What there is to say around the fault: a newer log is not a broken one.
    fn how(&self) -> (&'static str, &'static str) {
        match self.what {
            Broken::Level { .. } | Broken::Newer { .. } => ("cannot be read from", ""),
            _ => (
                "is broken at",
                "; nothing after this place is read: see `gatelog log verify`, or restore the log from a backup",
            ),
        }
    }
}

/// A record an old owner wrote after it had been cut off. No part of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleWriter {
    /// Where it stands.
    pub offset: Offset,
    /// The sequence it claims.
    pub sequence: u64,
    /// Its term.
    pub term: u64,
    /// The newest term at that place.
    pub newest_term: u64,
}

/// What a record is to a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The next event.
    Event {
        /// It, its body closed.
        envelope: Box<Envelope>,
        /// Where the history stands after it.
        tail: Tail,
    },
    /// No part of history: its term is older than the tail's.
    Stale {
        /// The sequence it claims.
        sequence: u64,
        /// Its term.
        term: u64,
    },
}

impl Tail {
    /// Before the first event.
    pub const GENESIS: Tail = Tail { sequence: 0, term: 0, link: ChainLink::GENESIS };

    /// What this record is after this tail: checksum, term, sequence and link are checked. Whether a
    /// new term is properly begun and whether the body can be read is [`HistoryReader`]'s to say.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn follow(&self, bytes: &[u8]) -> Result<Followed, Broken> {
        let (envelope, found) = Envelope::decode(bytes).map_err(Broken::Frame)?;
        if envelope.term < self.term {
            return Ok(Followed::Stale { sequence: envelope.sequence, term: envelope.term });
        }
        let expected = self.sequence.saturating_add(1);
        if envelope.sequence > expected {
            return Err(Broken::Gap { expected, found: envelope.sequence });
        }
        if envelope.sequence < expected {
            return Err(Broken::Repeat { expected, found: envelope.sequence });
        }
        let computed = Envelope::link_after(bytes, &self.link).unwrap_or_default();
        if found != computed {
            return Err(Broken::BrokenLink { sequence: envelope.sequence, found, computed });
        }
        let tail = Tail { sequence: envelope.sequence, term: envelope.term, link: found };
        Ok(Followed::Event { envelope: Box::new(envelope), tail })
    }
}

/// A record of a partition's events, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The next event of the history, and its link.
    Event(Box<EventRecord>, ChainLink),
    /// A record that is no part of history. To be counted and shown.
    StaleWriter(StaleWriter),
}

/// Reads one partition's events in the log's order and gives what is history.
#[derive(Clone, Debug)]
pub struct HistoryReader {
    partition: Partition,
    tail: Tail,
    stale: u64,
    broken: Option<HistoryError>,
}

impl HistoryReader {
    /// A reader from the first event on.
    pub fn from_genesis(partition: Partition) -> HistoryReader {
        HistoryReader::after(partition, Tail::GENESIS)
    }

    /// A reader from the first event on that this log has.
    pub fn from_the_beginning(log: &dyn Log, partition: Partition) -> HistoryReader {
        HistoryReader::after(partition, log.begins(partition))
    }

    /// A reader of what follows this tail. The record given first must be the one after it (see
    /// [`Log::seek`]), or older records of a lower term.
    pub fn after(partition: Partition, tail: Tail) -> HistoryReader {
        HistoryReader { partition, tail, stale: 0, broken: None }
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// Where the history stands.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// How many records were no part of history.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Takes the next record of the stream.
    ///
    /// # Errors
    /// [`HistoryError`], and the same one for every record after it.
    pub fn next(&mut self, record: &ReadRecord) -> Result<Step, HistoryError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        self.step(record).map_err(|what| {
            let error = HistoryError { partition: self.partition, offset: record.offset, what };
            self.broken = Some(error.clone());
            error
        })
    }

    fn step(&mut self, record: &ReadRecord) -> Result<Step, Broken> {
        let (envelope, tail) = match self.tail.follow(&record.bytes)? {
            Followed::Event { envelope, tail } => (envelope, tail),
            Followed::Stale { sequence, term } => {
                self.stale += 1;
                let newest_term = self.tail.term;
                return Ok(Step::StaleWriter(StaleWriter { offset: record.offset, sequence, term, newest_term }));
            }
        };
        let sequence = envelope.sequence;
        self.check_term(&envelope)?;
        let opened = envelope.open().map_err(|why| Broken::Body { sequence, why })?;
        match &opened.event {
            Event::Partition(PartitionEvent::WriterStarted(started)) if started.term != opened.term => {
                return Err(Broken::TermUnclear { sequence, envelope: opened.term, body: started.term });
            }
            Event::Partition(PartitionEvent::LevelRaised(raised)) if !level::known(raised.level) => {
                return Err(Broken::Level { sequence, level: raised.level, gatelog: raised.gatelog.clone() });
            }
            _ => {}
        }
        self.tail = tail;
        Ok(Step::Event(Box::new(opened), tail.link))
    }

    fn check_term(&self, envelope: &Envelope) -> Result<(), Broken> {
        let Envelope { sequence, term, .. } = *envelope;
        let newest = self.tail.term;
        match (envelope.kind_version.kind == WRITER_STARTED, term == newest) {
            (true, true) => Err(Broken::TermRepeated { sequence, term }),
            (true, false) if term != newest.saturating_add(1) => {
                Err(Broken::TermGap { sequence, expected: newest.saturating_add(1), found: term })
            }
            (false, false) => Err(Broken::TermNotBegun { sequence, found: term, newest }),
            _ => Ok(()),
        }
    }
}

/// What stopped a verification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The log gives its records, but they are no history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The log itself cannot give them.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An input cannot be read.
    #[error("{stream} offset {}: {why}", offset.0)]
    Input {
        /// The stream.
        stream: Stream,
        /// Where it stands.
        offset: Offset,
        /// What is wrong.
        why: FrameError,
    },
}

/// What a verification of one stream found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The stream.
    pub stream: Stream,
    /// How many records were read, those that are no part of history among them.
    pub records: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// Where the history stands at the end, or before the first error. Of inputs: untouched.
    pub tail: Tail,
    /// How many terms begin in what was read.
    pub terms: u64,
    /// How many records are no part of history.
    pub stale: u64,
    /// The first of them.
    pub first_stale: Option<StaleWriter>,
    /// What stopped it before the end, if anything did.
    pub error: Option<VerifyError>,
}

/// Reads a whole stream of events from the beginning and checks every record.
pub fn verify(log: &dyn Log, partition: Partition) -> Report {
    let mut reader = HistoryReader::from_the_beginning(log, partition);
    verify_stream(log, Stream::Events(partition), |report, record| {
        let step = reader.next(record).map_err(|error| error.with_writer(log))?;
        report.tail = reader.tail();
        match step {
            Step::Event(event, _) if event.event.kind_version().kind == WRITER_STARTED => report.terms += 1,
            Step::Event(..) => {}
            Step::StaleWriter(stale) => {
                report.stale += 1;
                report.first_stale.get_or_insert(stale);
            }
        }
        Ok(())
    })
}

/// Reads a whole stream of inputs from the beginning and checks every frame. An input whose kind is
/// not known is no error here: the partition's writer refuses it by name.
pub fn verify_inputs(log: &dyn Log, stream: Stream) -> Report {
    verify_stream(log, stream, |_, record| {
        InputFrame::decode(&record.bytes).map(|_| ()).map_err(|why| VerifyError::Input {
            stream,
            offset: record.offset,
            why,
        })
    })
}

fn verify_stream(
    log: &dyn Log,
    stream: Stream,
    mut each: impl FnMut(&mut Report, &ReadRecord) -> Result<(), VerifyError>,
) -> Report {
    let mut report = Report {
        stream,
        records: 0,
        bytes: 0,
        tail: Tail::GENESIS,
        terms: 0,
        stale: 0,
        first_stale: None,
        error: None,
    };
    let mut from = Offset::default();
    loop {
        let batch = match log.read(stream, from, ReadLimit::default()) {
            Ok(batch) => batch,
            Err(error) => {
                report.error = Some(error.into());
                return report;
            }
        };
        if batch.records.is_empty() {
            return report;
        }
        for record in &batch.records {
            report.records += 1;
            report.bytes += record.bytes.len() as u64;
            if let Err(error) = each(&mut report, record) {
                report.error = Some(error);
                return report;
            }
        }
        from = batch.next;
    }
}

#[cfg(test)]
mod tests;
