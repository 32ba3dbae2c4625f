//! Recorded inputs through the rules again.

use gatelog_event_log::{Blobs, MemoryBlobs, MemoryLog};
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::input::PartitionInput;
use gatelog_record::{InputId, InputRecord, Source, Stream};
use gatelog_replay::{Redecided, ReplayError, redecide};

use crate::desk::{Desk, rules, tables};
use crate::lending::PARTITION;

/// A day at the desk with everything in it that a writer can meet.
fn day() -> (MemoryLog, Desk) {
    let log = MemoryLog::default();
    let mut desk = Desk::open(&log, PARTITION);
    desk.ask("buy", "dune", 2);
    desk.ask("order", "emma", 3);
    desk.ask("look", "dune", 0);
    desk.ask("lend", "dune", 7);
    // The same again, by id and by source.
    let twice = desk.input("lend", "dune", 8);
    desk.put(&twice);
    desk.put(&twice);
    let mut forwarded = desk.input("return", "dune", 7);
    forwarded.source = Some(Source { partition: PARTITION, sequence: 3, ordinal: 1 });
    desk.put(&forwarded);
    forwarded.input_id = InputId::new("sent again under another name");
    desk.put(&forwarded);
    // What does not fit, what panics, what cannot be read.
    desk.ask("lend", "nobody wrote this", 1);
    desk.ask("fall", "dune", 0);
    desk.ask("remind", "return dune", 30);
    let mut desk = desk.reopen();
    desk.clock_jumps(4_000);
    let timers = desk.wall;
    let due = tables_of(&desk);
    let fired = PartitionInput::TimerDue(TimerDue { timer: "return dune".to_owned(), due_at: due });
    desk.put(&InputRecord::new(InputId::new("timer"), "library", timers, fired.clone()));
    desk.put(&InputRecord::new(InputId::new("timer, late"), "library", timers, fired));
    desk.ask("order", "ilias", 2);
    let desk = desk.reopen();
    let mut desk = desk.reopen();
    desk.ask("buy", "momo", 5);
    desk.ask("order", "momo", 1);
    (log, desk)
}

fn tables_of(desk: &Desk) -> gatelog_record::Timestamp {
    let timeline = gatelog_replay::Timeline::<crate::lending::Lending>::new(
        std::sync::Arc::new(desk.log.clone()),
        PARTITION,
        None,
    );
    let live = timeline.state_at(gatelog_replay::Moment::Newest).unwrap().live;
    live.partition.timers.rows.values().next().unwrap().due_at
}

fn again(log: &MemoryLog, generous: bool) -> Result<Redecided, ReplayError> {
    redecide(log, &MemoryBlobs::new(), PARTITION, rules(generous), tables)
}

#[test]
fn the_same_rules_decide_the_same_bytes() {
    let (log, desk) = day();
    let done = again(&log, false).unwrap();
    assert_eq!(done.difference, None);
    let inputs = log.records(Stream::Inputs(PARTITION)).len() as u64;
    assert_eq!(done.decisions, inputs, "every input was decided again");
    assert_eq!(done.sequence, log.records(Stream::Events(PARTITION)).len() as u64);
    drop(desk);
}

#[test]
fn other_rules_are_found_at_the_first_event_that_differs() {
    let (log, _) = day();
    let difference = again(&log, true).unwrap().difference.unwrap();
    let recorded: u64 = difference.recorded[0]["body"]["count"].as_u64().unwrap();
    let decided: u64 = difference.decided[0]["body"]["count"].as_u64().unwrap();
    assert_eq!((recorded, decided), (5, 6));
    assert_eq!(difference.what, format!("event {} (sample) has other content", difference.sequence));
    assert_eq!(difference.input, "gate.in.not-routed");
    assert_eq!(difference.recorded[0]["sequence"], difference.sequence);
}

#[test]
fn what_was_refused_for_a_blob_that_was_away_stays_refused_when_it_is_back() {
    let log = MemoryLog::default();
    let mut desk = Desk::open(&log, PARTITION);
    let (away, back) = (MemoryBlobs::new(), MemoryBlobs::new());
    back.put(b"ulysses").unwrap();
    for blobs in [&away, &back] {
        desk.blobs = blobs.clone();
        desk.ask("read", "ulysses", 1);
    }
    desk.ask("buy", "momo", 5);
    let done = redecide(&log, &back, PARTITION, rules(false), tables).unwrap();
    assert_eq!((done.difference, done.decisions, done.as_recorded), (None, 3, 1));
    // What was read then cannot be read now: a blob that a decision stands on must be there.
    let error = redecide(&log, &away, PARTITION, rules(false), tables).unwrap_err();
    assert!(matches!(error, ReplayError::NoBlob { sequence: 3, .. }), "{error}");
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn an_input_that_is_not_the_one_decided_is_named() {
    let (log, _) = day();
    let place = log.records(Stream::Inputs(PARTITION))[3].offset;
    assert!(log.tamper(Stream::Inputs(PARTITION), place, 40));
    let error = again(&log, false).unwrap_err();
    assert!(matches!(error, ReplayError::InputChanged { offset, .. } if offset == place.0), "{error}");
}

#[test]
fn an_empty_partition_has_nothing_to_decide() {
    let done = again(&MemoryLog::default(), false).unwrap();
    assert_eq!(done, Redecided { decisions: 0, events: 0, as_recorded: 0, sequence: 0, difference: None });
}
