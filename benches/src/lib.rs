//! What the benchmarks share: histories to work on, measuring, and tables that put each figure beside its limit.

pub mod corpus;
pub mod measure;
pub mod opendev;
pub mod repository;
pub mod server;
pub mod site;
pub mod table;

use gatelog_record::draft::gate::Subject;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::draft::partition::InputTaken;
use gatelog_record::event::PartitionEvent;
use gatelog_record::{ActorId, Cause, Event, EventId, EventRecord, Timestamp, Value};

/// What goes wrong in a benchmark ends it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An event as a writer appends it most often: small, and with no decision header.
pub fn small_event(sequence: u64) -> EventRecord {
    EventRecord {
        sequence,
        term: 3,
        recorded_at: Timestamp(1_790_000_000_000_000),
        wall_at: Timestamp(1_790_000_000_000_000),
        id: EventId([7; 16]),
        cause: Cause::Input { offset: sequence },
        actor: ActorId::SYSTEM,
        key: "example".to_owned(),
        traceparent: String::new(),
        decision: None,
        event: Event::Partition(PartitionEvent::InputTaken(InputTaken {
            duplicate_of: None,
            reason: "nothing-to-do".to_owned(),
        })),
    }
}

/// What a code-review system tells of a change.
pub fn told_of(subject: Subject, connection: &str, event: &str, attributes: Value, delivery: String) -> ForgeEvent {
    ForgeEvent {
        connection: connection.into(),
        project: subject.project,
        event: event.into(),
        branch: subject.branch,
        git_ref: subject.git_ref,
        change: subject.change,
        patchset: subject.patchset,
        commit: subject.commit,
        old_commit: None,
        attributes,
        delivery,
        raw: None,
    }
}
