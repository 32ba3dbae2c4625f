//! What a table of pending work makes of events, for work that nobody has heard of.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic and explains itself")]

use gatelog_partition_state::work::{Duty, PendingWork, Terms, Work, WorkTable, has_none};
use gatelog_record::draft::partition::{InputTaken, WorkResent};
use gatelog_record::event::PartitionEvent;
use gatelog_record::{ActorId, Cause, Event, EventId, EventRecord, Timestamp, WorkId};
use gatelog_tables::{FoldRefused, MapTable};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Errand(String);

const ERRAND: Terms =
    Terms { kind: "errand", duty: Duty::Compute, deadline_ms: 5_000, attempts_max: 2, steps: ["", "", ""] };

impl Work for Errand {
    fn terms(&self) -> &'static Terms {
        &ERRAND
    }
}

const ID: WorkId = WorkId([7; 16]);

fn asked(sequence: u64) -> EventRecord {
    EventRecord {
        sequence,
        term: 1,
        recorded_at: Timestamp(1_000),
        wall_at: Timestamp(1_000),
        id: EventId::default(),
        cause: Cause::Start,
        actor: ActorId::SYSTEM,
        key: String::new(),
        traceparent: String::new(),
        decision: None,
        event: PartitionEvent::from(InputTaken { duplicate_of: None, reason: String::new() }).into(),
    }
}

fn resent(attempt: u32) -> PartitionEvent {
    WorkResent { work: ID, attempt, not_before: Timestamp(9_000) }.into()
}

#[test]
fn work_is_there_from_when_it_is_asked_for_until_its_first_outcome() {
    let mut table = MapTable::<PendingWork<Errand>>::default();
    table.ask(&asked(4), ID, "shop", Errand("milk".into())).unwrap();
    assert!(matches!(table.ask(&asked(5), ID, "shop", Errand("milk".into())), Err(FoldRefused::Exists { .. })));
    let row = table.close(ID).unwrap();
    assert_eq!((row.key.as_str(), row.attempt, row.requested), ("shop", 1, 4));
    assert_eq!(row.deadline(), Timestamp(1_000).plus_millis(5_000));
    assert!(matches!(table.close(ID), Err(FoldRefused::Missing { .. })));
}

#[test]
fn work_is_sent_again_and_never_less_often_than_before() {
    let mut table = MapTable::<PendingWork<Errand>>::default();
    assert!(matches!(table.apply(&resent(2)), Err(FoldRefused::Missing { .. })));
    table.ask(&asked(4), ID, "shop", Errand("milk".into())).unwrap();
    // Whoever does it goes on trying: the same sending, and its deadline begins anew.
    table.apply(&resent(1)).unwrap();
    let row = table.rows.get(&ID).unwrap();
    assert_eq!((row.attempt, row.not_before, row.is_last_attempt()), (1, Timestamp(9_000), false));
    table.apply(&resent(2)).unwrap();
    assert!(table.rows.get(&ID).unwrap().is_last_attempt());
    assert!(matches!(table.apply(&resent(1)), Err(FoldRefused::Illegal(_))));
}

#[test]
fn where_there_is_no_work_none_is_sent_again() {
    assert!(matches!(has_none(&Event::Partition(resent(2))), Err(FoldRefused::Illegal(_))));
    assert_eq!(has_none(&asked(1).event), Ok(()));
}
