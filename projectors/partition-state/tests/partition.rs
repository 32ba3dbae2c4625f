//! What every partition's tables make of its events.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic and explains itself")]

use gatelog_partition_state::{DEDUP_ROWS, PartitionTables};
use gatelog_record::draft::partition::{
    InputTaken, LevelRaised, LogRestored, OutboxCleared, OutboxDelivered, TimerCleared, TimerSet, WriterStarted,
};
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::PartitionInput;
use gatelog_record::{
    ActorId, Cause, DecisionHeader, Domain, EventId, EventRecord, InputId, Partition, SiteId, Source, Timestamp,
};
use gatelog_tables::{FoldRefused, Maps};

const OTHER: Partition = Partition { domain: Domain::Capacity, index: 0 };
const THIRD: Partition = Partition { domain: Domain::Gate, index: 2 };

struct Told {
    tables: PartitionTables<Maps>,
    sequence: u64,
    inputs: u64,
}

impl Told {
    fn begin() -> Told {
        let mut told = Told { tables: PartitionTables::in_memory(), sequence: 0, inputs: 0 };
        told.event(started(1)).unwrap();
        told
    }

    fn record(&self, event: impl Into<PartitionEvent>) -> EventRecord {
        let at = Timestamp(self.sequence as i64 * 1_000_000);
        EventRecord {
            sequence: self.sequence + 1,
            term: 1,
            recorded_at: at,
            wall_at: at,
            id: EventId::default(),
            cause: Cause::Start,
            actor: ActorId::SYSTEM,
            key: "demo".to_owned(),
            traceparent: String::new(),
            decision: None,
            event: event.into().into(),
        }
    }

    fn event(&mut self, event: impl Into<PartitionEvent>) -> Result<(), FoldRefused> {
        let record = self.record(event);
        self.tables.apply(&record)?;
        self.sequence += 1;
        Ok(())
    }

    fn input(&mut self, id: &str, source: Option<Source>) {
        let mut record = self.record(InputTaken { duplicate_of: None, reason: "nothing-to-do".to_owned() });
        self.inputs += 1;
        record.decision = Some(DecisionHeader {
            input_sequence: self.inputs,
            input_offset: self.inputs * 10,
            input_digest: [0; 32],
            now: record.recorded_at,
            input_id: InputId::new(id),
            source,
            caused_by: None,
        });
        self.tables.apply(&record).unwrap();
        self.sequence += 1;
    }
}

fn started(term: u64) -> WriterStarted {
    WriterStarted { term, build: format!("build {term}"), registry: [0; 32], site: SiteId([7; 16]), generation: 1 }
}

#[test]
fn the_writers_place_follows_the_events() {
    let mut told = Told::begin();
    told.input("push 1", None);
    told.input("push 2", None);
    told.event(started(2)).unwrap();
    told.event(LogRestored { generation: 3, reason: "restored".to_owned() }).unwrap();
    told.event(LevelRaised { level: 5, gatelog: "5.0.0".to_owned(), present: Vec::new() }).unwrap();
    let place = told.tables.place().unwrap();
    assert_eq!((place.sequence, place.term, place.generation, place.level), (6, 2, 3, 5));
    assert_eq!((place.input_sequence, place.last_input_offset), (2, Some(20)));
    assert_eq!((place.site, place.build.as_str()), (SiteId([7; 16]), "build 2"));
    assert_eq!(place.recorded_at, Timestamp(5_000_000));
}

#[test]
fn a_gap_a_repeat_and_an_old_term_are_refused() {
    let mut told = Told::begin();
    told.sequence = 2;
    let gap = told.event(started(2)).unwrap_err();
    assert_eq!(gap.to_string(), "event 3 cannot follow event 1");
    told.sequence = 0;
    assert!(told.event(started(2)).is_err());
    told.sequence = 1;
    let old = told.event(started(1)).unwrap_err();
    assert_eq!(old.to_string(), "term 1 cannot follow term 1");
}

#[test]
fn a_repeated_input_is_known_by_its_first_taking() {
    let mut told = Told::begin();
    told.input("push", None);
    told.input("other", None);
    told.input("push", None);
    assert_eq!(told.tables.dedup.rows["push"].sequence, 2);
    let ages: Vec<_> = told.tables.dedup_age.rows.iter().map(|(age, id)| (*age, id.as_str())).collect();
    assert_eq!(ages, [(1, "push"), (2, "other")]);
}

#[test]
fn the_oldest_input_ids_are_forgotten_and_no_more() {
    let mut told = Told::begin();
    for number in 1..=DEDUP_ROWS + 50 {
        // Every tenth is a repeat of the one before.
        told.input(&format!("input {}", number - u64::from(number % 10 == 0)), None);
    }
    let (ids, ages) = (&told.tables.dedup.rows, &told.tables.dedup_age.rows);
    assert_eq!(ids.len(), ages.len());
    assert!(ids.len() as u64 <= DEDUP_ROWS);
    assert!(!ids.contains_key("input 49"));
    assert!(ids.contains_key("input 51"));
    assert_eq!(ages.keys().next(), Some(&51));
}

#[test]
fn the_mark_of_a_sender_only_rises() {
    let mut told = Told::begin();
    let from = |partition, sequence, ordinal| Some(Source { partition, sequence, ordinal });
    told.input("a", from(OTHER, 5, 1));
    told.input("b", from(THIRD, 2, 0));
    assert_eq!(told.tables.marks.rows[&(OTHER.domain as u8, 0)], (5, 1));
    told.input("c", from(OTHER, 7, 0));
    // One that could not be read came a second time: what was taken after it stays taken.
    told.input("d", from(OTHER, 5, 2));
    assert_eq!(told.tables.marks.rows[&(OTHER.domain as u8, 0)], (7, 0));
    assert_eq!(told.tables.marks.rows[&(THIRD.domain as u8, 2)], (2, 0));
}

#[test]
fn timers_are_set_replaced_and_cleared_once() {
    let mut told = Told::begin();
    let set = |seconds| TimerSet { timer: "resend".to_owned(), due_at: Timestamp(seconds) };
    let cleared = || TimerCleared { timer: "resend".to_owned(), fired: true };
    told.event(set(10)).unwrap();
    told.event(set(20)).unwrap();
    let row = &told.tables.timers.rows["resend"];
    assert_eq!((row.due_at, row.key.as_str()), (Timestamp(20), "demo"));
    told.event(cleared()).unwrap();
    assert!(told.tables.timers.rows.is_empty());
    let error = told.event(cleared()).unwrap_err();
    assert_eq!(error, FoldRefused::Missing { table: "timers", key: "\"resend\"".to_owned() });
}

#[test]
fn messages_wait_in_the_outbox_until_the_receiver_has_taken_them() {
    let mut told = Told::begin();
    let message = PartitionInput::OutboxDelivered(OutboxDelivered { to: OTHER, up_to: (1, 0) });
    for _ in 0..3 {
        let record = told.record(LevelRaised { level: 1, gatelog: String::new(), present: Vec::new() });
        told.tables.apply(&record).unwrap();
        told.sequence += 1;
        for (ordinal, to) in [(0, OTHER), (1, OTHER), (2, THIRD)] {
            told.tables.send(&record, ordinal, to, "main", message.clone()).unwrap();
        }
        let again = told.tables.send(&record, 0, OTHER, "main", message.clone()).unwrap_err();
        assert!(matches!(again, FoldRefused::Exists { table: "outbox", .. }));
    }
    told.event(OutboxCleared { to: OTHER, up_to: (3, 0) }).unwrap();
    let left: Vec<_> = told.tables.outbox.rows.keys().copied().collect();
    let (gate, capacity) = (Domain::Gate as u8, Domain::Capacity as u8);
    assert_eq!(
        left,
        [
            (gate, 2, 2, 2),
            (gate, 2, 3, 2),
            (gate, 2, 4, 2),
            (capacity, 0, 3, 1),
            (capacity, 0, 4, 0),
            (capacity, 0, 4, 1)
        ]
    );
    let error = told.event(OutboxCleared { to: OTHER, up_to: (3, 0) }).unwrap_err();
    assert!(matches!(error, FoldRefused::Missing { table: "outbox", .. }), "{error}");
}
