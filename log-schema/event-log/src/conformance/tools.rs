//! What tests of logs are written with: records that follow each other, results that must come.

use gatelog_record::draft::partition::{InputTaken, TimerDue, WriterStarted};
use gatelog_record::event::{Event, PartitionEvent};
use gatelog_record::input::PartitionInput;
use gatelog_record::{ActorId, Cause, ChainLink, EventId, EventRecord, InputId, InputRecord, Stream, Timestamp};

use super::PATIENCE;
use crate::contract::{Claim, Log, LogError, Offset, ReadLimit, ReadRecord};
use crate::history::Tail;
use crate::pending::Pending;

/// The bytes of an input with this id.
pub fn input(id: &str) -> Vec<u8> {
    let due = PartitionInput::TimerDue(TimerDue { timer: id.to_owned(), due_at: Timestamp::ZERO });
    let record = InputRecord::new(InputId::new(id), "demo", Timestamp::ZERO, due);
    record.close().expect("an input can be encoded").encode()
}

/// Makes event records that follow each other, as a writer would.
#[derive(Clone, Debug)]
pub struct Scribe {
    /// Where it stands.
    pub tail: Tail,
    /// The term it writes in.
    pub term: u64,
}

impl Scribe {
    /// One that goes on where a claim stands, in the term after.
    pub fn of(claim: &Claim) -> Scribe {
        let tail = Tail { sequence: claim.last_sequence, term: claim.last_term, link: claim.last_link };
        Scribe { tail, term: claim.last_term + 1 }
    }

    /// The next record; the first of a term is `WriterStarted`.
    pub fn next(&mut self, note: &str) -> Vec<u8> {
        let event = if self.tail.term < self.term {
            PartitionEvent::WriterStarted(WriterStarted {
                term: self.term,
                build: note.to_owned(),
                registry: [0; 32],
                site: Default::default(),
                generation: 1,
            })
        } else {
            PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: note.to_owned() })
        };
        let (bytes, link) = event_record(self.tail.sequence + 1, self.term, event, &self.tail.link);
        self.tail = Tail { sequence: self.tail.sequence + 1, term: self.term, link };
        bytes
    }

    /// The next `count` records.
    pub fn several(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|index| self.next(&format!("note {index}"))).collect()
    }
}

/// The bytes of an event and its link.
pub fn event_record(sequence: u64, term: u64, event: PartitionEvent, previous: &ChainLink) -> (Vec<u8>, ChainLink) {
    let record = EventRecord {
        sequence,
        term,
        recorded_at: Timestamp(sequence as i64),
        wall_at: Timestamp(sequence as i64),
        id: EventId::default(),
        cause: Cause::Start,
        actor: ActorId::SYSTEM,
        key: "demo".to_owned(),
        traceparent: String::new(),
        decision: None,
        event: Event::Partition(event),
    };
    record.close().expect("an event can be encoded").encode(previous)
}

/// Waits for a result that must come.
#[track_caller]
pub fn arrived<T>(result: Pending<T>) -> T {
    match result.wait_for(PATIENCE) {
        Ok(Some(value)) => value,
        Ok(None) => panic!("whoever owed the result is gone"),
        Err(_) => panic!("no result within {PATIENCE:?}"),
    }
}

/// Reads a stream to its end in small steps.
///
/// # Errors
/// Whatever reading gives, with what was read before.
pub fn read_all(log: &dyn Log, stream: Stream) -> Result<Vec<ReadRecord>, (Vec<ReadRecord>, LogError)> {
    let mut records: Vec<ReadRecord> = Vec::new();
    let mut from = Offset::default();
    loop {
        let batch = match log.read(stream, from, ReadLimit { records: 7, bytes: 1 << 20 }) {
            Ok(batch) => batch,
            Err(error) => return Err((records, error)),
        };
        if batch.records.is_empty() {
            return Ok(records);
        }
        assert!(batch.next > from, "{stream}: reading does not come on from offset {}", from.0);
        from = batch.next;
        records.extend(batch.records);
    }
}
