//! The suite that every log, every blob store and every presence passes, whatever it is made of.
//!
//! An implementation gives a [`Harness`] (or [`BlobHarness`], [`PresenceHarness`]) and writes in its tests
//! `gatelog_event_log::log_conformance!(make)`: one ordinary test for each case. What a harness cannot
//! do (damage a broker's disk, say) it answers with [`Injected::Unsupported`]; the case then says
//! [`Outcome::Skipped`] with the reason, which the test prints.
//!
//! The cases speak of what the contract promises and of nothing else: an implementation may do
//! better, never worse.
#![expect(clippy::expect_used, clippy::panic, reason = "a test suite: a broken promise is a panic that names it")]

mod accepted;
mod blobs;
mod presence;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use gatelog_record::{ChainLink, Domain, Partition, Stream};

use crate::contract::{Claim, EventWriter, Log, LogError, Offset, ReadLimit, ReadRecord};
use crate::history::{self, Broken, HistoryReader, Step, Tail, VerifyError};

use accepted::{no_event_outlives_the_input_it_follows, the_writer_may_see_what_is_accepted};
pub use blobs::{BLOB_CASES, BlobCase, BlobHarness, run_blobs};
pub use presence::{PRESENCE_CASES, PresenceCase, PresenceHarness, run_presence};
pub use tools::{Scribe, arrived, event_record, input, read_all};

/// How long a case waits for anything before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that goes wrong below a log.
#[derive(Clone, Debug)]
pub enum Injection {
    /// A record stands at the end of the stream that no writer of today put there.
    Insert {
        /// The stream.
        stream: Stream,
        /// Its bytes.
        record: Vec<u8>,
    },
    /// A bit of this record flips on disk, after all later records were acknowledged.
    Damage {
        /// The stream.
        stream: Stream,
        /// The record.
        offset: Offset,
    },
    /// Power is lost in the middle of writing this append: some of its bytes are there.
    Torn {
        /// The stream.
        stream: Stream,
        /// The records of the append.
        records: Vec<Vec<u8>>,
    },
}

/// What came of an injection. The log has been opened again, if it had to be closed for it.
#[derive(Clone, Debug)]
pub enum Injected {
    /// It is done.
    Done,
    /// It is done, and the log now refuses to open with this error.
    Refused(LogError),
    /// This harness cannot do it.
    Unsupported,
}

/// One log under test. A fresh one for each case.
pub trait Harness {
    /// The log as it is open now.
    fn log(&self) -> Arc<dyn Log>;
    /// Closes it cleanly and opens it again. Everything got from [`Harness::log`] before is dead.
    fn reopen(&mut self);
    /// Drops it without a clean close, as a killed process would, and opens it again.
    fn crash(&mut self);
    /// A second reader beside the writer, as another process would have it.
    fn reader(&mut self) -> Option<Arc<dyn Log>>;
    /// Makes something go wrong.
    fn inject(&mut self, injection: Injection) -> Injected;
    /// Runs these at the same time, each on a thread of its own, and waits for all.
    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>);
    /// The largest record and the largest append it takes, in bytes.
    fn limits(&self) -> (u64, u64);
}

/// How a case ended, if it did not panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The promise holds.
    Passed,
    /// It could not be tried, and why.
    Skipped(&'static str),
}

/// One promise.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Tries it.
    pub run: fn(&mut dyn Harness) -> Outcome,
}

macro_rules! cases {
    ($($name:ident,)*) => {
        /// Every case of the log's suite.
        pub const CASES: &[Case] = &[$(Case { name: stringify!($name), run: $name }),*];
    };
}

cases! {
    what_is_appended_is_read_in_order,
    an_append_stands_together,
    concurrent_producers_lose_nothing,
    streams_do_not_mix,
    reading_keeps_its_limits,
    what_is_acknowledged_survives_reopening,
    what_is_acknowledged_survives_a_crash,
    a_new_partition_is_claimed_empty,
    a_claim_says_where_the_history_stands,
    a_claim_counts_what_was_in_flight,
    a_second_claim_fences_the_first,
    an_event_out_of_sequence_is_refused,
    an_event_of_another_term_is_refused,
    after_a_failure_all_later_appends_fail,
    events_pipeline_in_order,
    seeking_finds_the_event,
    the_writer_may_see_what_is_accepted,
    no_event_outlives_the_input_it_follows,
    change_is_told,
    an_abandoned_wait_is_forgotten,
    what_is_too_large_is_refused,
    events_cannot_be_appended_as_inputs,
    a_second_reader_sees_what_is_acknowledged,
    a_stale_term_is_no_part_of_history,
    a_repeated_event_is_named,
    a_torn_append_is_there_whole_or_not_at_all,
    a_damaged_record_is_named,
}

/// Runs one case by its name; for [`crate::log_conformance`].
pub fn run(name: &str, harness: &mut dyn Harness) -> Outcome {
    let case = CASES.iter().find(|case| case.name == name).expect("a case of the suite");
    (case.run)(harness)
}

/// One test for each case of the log's suite. The argument is an expression that gives a fresh
/// `impl Harness` each time it is called; after `where there is one:`, an `Option` of that: for `None` the case is
/// skipped, and whoever gives it has said why.
#[macro_export]
macro_rules! log_conformance {
    ($make:expr) => {
        $crate::log_conformance!(where there is one: || Some(($make)()));
    };
    (where there is one: $make:expr) => {
        $crate::log_conformance!(@each $make;
            what_is_appended_is_read_in_order
            an_append_stands_together
            concurrent_producers_lose_nothing
            streams_do_not_mix
            reading_keeps_its_limits
            what_is_acknowledged_survives_reopening
            what_is_acknowledged_survives_a_crash
            a_new_partition_is_claimed_empty
            a_claim_says_where_the_history_stands
            a_claim_counts_what_was_in_flight
            a_second_claim_fences_the_first
            an_event_out_of_sequence_is_refused
            an_event_of_another_term_is_refused
            after_a_failure_all_later_appends_fail
            events_pipeline_in_order
            seeking_finds_the_event
            the_writer_may_see_what_is_accepted
            no_event_outlives_the_input_it_follows
            change_is_told
            an_abandoned_wait_is_forgotten
            what_is_too_large_is_refused
            events_cannot_be_appended_as_inputs
            a_second_reader_sees_what_is_acknowledged
            a_stale_term_is_no_part_of_history
            a_repeated_event_is_named
            a_torn_append_is_there_whole_or_not_at_all
            a_damaged_record_is_named
        );
    };
    (@each $make:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let Some(mut harness) = ($make)() else { return };
                match $crate::conformance::run(stringify!($name), &mut harness) {
                    $crate::conformance::Outcome::Passed => {}
                    $crate::conformance::Outcome::Skipped(why) => {
                        println!("SKIPPED {}: {why}", stringify!($name));
                    }
                }
            }
        )*

        #[test]
        fn every_case_of_the_suite_is_a_test_here() {
            let here = [$(stringify!($name)),*];
            let all: Vec<&str> = $crate::conformance::CASES.iter().map(|case| case.name).collect();
            assert_eq!(all, here);
        }
    };
}

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
const INPUTS: Stream = Stream::Inputs(GATE);
const EVENTS: Stream = Stream::Events(GATE);

#[track_caller]
fn bytes_of(log: &dyn Log, stream: Stream) -> Vec<Vec<u8>> {
    let records = read_all(log, stream).map_err(|(_, error)| error).expect("the stream can be read");
    assert!(records.is_sorted_by(|one, other| one.offset < other.offset), "offsets of {stream} must grow");
    let end = log.end(stream).expect("the end is known");
    assert!(records.last().is_none_or(|last| last.offset < end), "the end lies after the last record");
    records.into_iter().map(|record| record.bytes).collect()
}

#[track_caller]
fn claim(log: &dyn Log, partition: Partition) -> (Scribe, Box<dyn EventWriter>, Claim) {
    let (claim, writer) = log.claim(partition).expect("the partition can be claimed");
    (Scribe::of(&claim), writer, claim)
}

#[track_caller]
fn put(log: &dyn Log, stream: Stream, records: &[Vec<u8>]) -> Vec<Offset> {
    arrived(log.append_inputs(stream, records.to_vec())).expect("inputs can be appended")
}

fn what_is_appended_is_read_in_order(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    assert_eq!(bytes_of(&*log, INPUTS), Vec::<Vec<u8>>::new());
    let wanted: Vec<Vec<u8>> = (0..40).map(|index| input(&format!("input {index}"))).collect();
    let mut offsets = Vec::new();
    for record in &wanted {
        offsets.extend(put(&*log, INPUTS, std::slice::from_ref(record)));
    }
    assert_eq!(bytes_of(&*log, INPUTS), wanted);
    for (offset, record) in offsets.iter().zip(&wanted) {
        let batch = log.read(INPUTS, *offset, ReadLimit { records: 1, bytes: 1 }).expect("it can be read");
        assert_eq!(batch.records, [ReadRecord { offset: *offset, bytes: record.clone() }]);
    }
    assert_eq!(history::verify_inputs(&*log, INPUTS).records, 40);
    Outcome::Passed
}

fn an_append_stands_together(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let work: Vec<Box<dyn FnOnce() + Send>> = (0..4)
        .map(|producer| {
            let log = Arc::clone(&log);
            Box::new(move || {
                for round in 0..10 {
                    let records: Vec<_> = (0..5).map(|part| input(&format!("{producer}/{round}/{part}"))).collect();
                    let offsets = put(&*log, INPUTS, &records);
                    assert_eq!(offsets.len(), 5);
                    assert!(offsets.is_sorted_by(|one, other| one < other));
                }
            }) as Box<dyn FnOnce() + Send>
        })
        .collect();
    harness.at_once(work);
    let found = bytes_of(&*log, INPUTS);
    assert_eq!(found.len(), 4 * 10 * 5);
    let mut expected: Vec<Vec<Vec<u8>>> = (0..4)
        .flat_map(|producer| {
            (0..10).map(move |round| (0..5).map(|part| input(&format!("{producer}/{round}/{part}"))).collect())
        })
        .collect();
    for appended in found.chunks(5) {
        let at = expected.iter().position(|records| records == appended);
        expected.remove(at.expect("the records of one append stand next to each other"));
    }
    assert!(put(&*log, INPUTS, &[]).is_empty(), "appending nothing is no error");
    Outcome::Passed
}

fn concurrent_producers_lose_nothing(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let events = scribe.several(50);
    let kept = events.clone();
    let mut work: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(move || {
        let pending: Vec<_> = kept.into_iter().map(|record| writer.append(vec![record])).collect();
        for result in pending {
            arrived(result).expect("the event is appended");
        }
    })];
    for producer in 0..6 {
        let log = Arc::clone(&log);
        work.push(Box::new(move || {
            let mut last = None;
            for round in 0..50 {
                let offset = put(&*log, INPUTS, &[input(&format!("{producer}/{round}"))])[0];
                assert!(Some(offset) > last, "a producer's own inputs keep their order");
                last = Some(offset);
            }
        }));
    }
    harness.at_once(work);
    let mut found = bytes_of(&*log, INPUTS);
    found.sort();
    let mut wanted: Vec<Vec<u8>> =
        (0..6).flat_map(|producer| (0..50).map(move |round| input(&format!("{producer}/{round}")))).collect();
    wanted.sort();
    assert_eq!(found, wanted);
    assert_eq!(bytes_of(&*log, EVENTS), events);
    Outcome::Passed
}

fn streams_do_not_mix(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    assert_eq!(log.streams(), Ok(vec![]));
    let (mut gate, mut gate_writer, _) = claim(&*log, GATE);
    let (mut capacity, mut capacity_writer, _) = claim(&*log, CAPACITY);
    for round in 0..5 {
        put(&*log, INPUTS, &[input(&format!("gate {round}"))]);
        put(&*log, Stream::Intake(0), &[input(&format!("intake {round}"))]);
        arrived(gate_writer.append(vec![gate.next("g")])).expect("appended");
        arrived(capacity_writer.append(vec![capacity.next("c")])).expect("appended");
    }
    let mut streams = log.streams().expect("streams are known");
    streams.sort();
    assert_eq!(streams, [Stream::Intake(0), INPUTS, EVENTS, Stream::Events(CAPACITY)]);
    for stream in streams {
        assert_eq!(bytes_of(&*log, stream).len(), 5, "{stream}");
    }
    assert_eq!(history::verify(&*log, GATE).tail, gate.tail);
    assert_eq!(history::verify(&*log, CAPACITY).tail, capacity.tail);
    assert!(bytes_of(&*log, Stream::Inputs(CAPACITY)).is_empty());
    Outcome::Passed
}

fn reading_keeps_its_limits(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let records: Vec<_> = (0..20).map(|index| input(&format!("{index:03}"))).collect();
    put(&*log, INPUTS, &records);
    let read = |from, records, bytes| log.read(INPUTS, from, ReadLimit { records, bytes }).expect("it can be read");
    assert_eq!(read(Offset(0), 3, 1 << 20).records.len(), 3);
    assert_eq!(read(Offset(0), 100, 1).records.len(), 1, "at least one record");
    assert_eq!(read(Offset(0), 100, records[0].len() * 2).records.len(), 2);
    let all = read(Offset(0), 100, 1 << 20);
    assert_eq!(all.records.len(), 20);
    let after = read(all.next, 100, 1 << 20);
    assert!(after.records.is_empty());
    assert_eq!(after.next, all.next, "at the end one goes on from where one is");
    assert_eq!(all.next, log.end(INPUTS).expect("the end is known"));
    let beyond = read(Offset(all.next.0 + 1_000), 1, 1);
    assert!(beyond.records.is_empty(), "beyond the end there is nothing");
    Outcome::Passed
}

fn some_of_everything(harness: &mut dyn Harness) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Tail) {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let inputs: Vec<_> = (0..12).map(|index| input(&format!("kept {index}"))).collect();
    let events = scribe.several(12);
    for (one, event) in inputs.iter().zip(&events) {
        put(&*log, INPUTS, std::slice::from_ref(one));
        arrived(writer.append(vec![event.clone()])).expect("appended");
    }
    (inputs, events, scribe.tail)
}

fn still_there(harness: &mut dyn Harness, what: &(Vec<Vec<u8>>, Vec<Vec<u8>>, Tail)) {
    let log = harness.log();
    assert_eq!(bytes_of(&*log, INPUTS), what.0);
    assert_eq!(bytes_of(&*log, EVENTS), what.1);
    let (scribe, mut writer, claim) = claim(&*log, GATE);
    assert_eq!(scribe.tail, what.2);
    assert_eq!(claim.last_record.as_ref(), what.1.last());
    let mut scribe = scribe;
    arrived(writer.append(scribe.several(2))).expect("the history goes on");
    put(&*log, INPUTS, &[input("after")]);
    let report = history::verify(&*log, GATE);
    assert_eq!((report.error, report.tail, report.terms), (None, scribe.tail, 2));
    assert_eq!(bytes_of(&*log, INPUTS).len(), what.0.len() + 1);
}

fn what_is_acknowledged_survives_reopening(harness: &mut dyn Harness) -> Outcome {
    let what = some_of_everything(harness);
    let before = harness.log().describe();
    harness.reopen();
    assert_eq!(harness.log().describe(), before);
    still_there(harness, &what);
    Outcome::Passed
}

fn what_is_acknowledged_survives_a_crash(harness: &mut dyn Harness) -> Outcome {
    let what = some_of_everything(harness);
    harness.crash();
    still_there(harness, &what);
    Outcome::Passed
}

fn a_new_partition_is_claimed_empty(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (_, _, claim) = claim(&*log, GATE);
    let expected =
        Claim { partition: GATE, last_sequence: 0, last_term: 0, last_link: ChainLink::GENESIS, last_record: None };
    assert_eq!(claim, expected);
    assert_eq!(log.end(EVENTS), Ok(Offset(0)));
    assert_eq!(log.seek(GATE, 1), Ok(Offset(0)));
    Outcome::Passed
}

fn a_claim_says_where_the_history_stands(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let mut last = Tail::GENESIS;
    for term in 1..=3 {
        let (mut scribe, mut writer, claim) = claim(&*log, GATE);
        assert_eq!(scribe.tail, last);
        assert_eq!(scribe.term, term);
        let records = scribe.several(3);
        arrived(writer.append(records.clone())).expect("appended");
        last = scribe.tail;
        assert_eq!(claim.last_record.is_some(), term > 1);
        let newest = log.claim(GATE).expect("it can be claimed").0.last_record;
        assert_eq!(newest.as_ref(), records.last());
    }
    assert_eq!(history::verify(&*log, GATE).terms, 3);
    Outcome::Passed
}

fn a_claim_counts_what_was_in_flight(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let in_flight: Vec<_> = (0..20).map(|index| writer.append(vec![scribe.next(&format!("{index}"))])).collect();
    let (next, _, _) = claim(&*log, GATE);
    let there = bytes_of(&*log, EVENTS).len() as u64;
    assert_eq!(next.tail.sequence, there, "the claim counts exactly what is there");
    for (index, result) in in_flight.into_iter().enumerate() {
        match arrived(result) {
            Ok(_) => assert!((index as u64) < there, "what was acknowledged is counted"),
            Err(LogError::Fenced { .. }) => {}
            Err(other) => panic!("an append in flight ends in Ok or Fenced, not in {other}"),
        }
    }
    assert_eq!(bytes_of(&*log, EVENTS).len() as u64, there, "nothing arrives after the claim");
    Outcome::Passed
}

fn a_second_claim_fences_the_first(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut old, mut old_writer, _) = claim(&*log, GATE);
    arrived(old_writer.append(old.several(2))).expect("appended");
    let (mut new, mut new_writer, _) = claim(&*log, GATE);
    let (_, mut other_partition, _) = claim(&*log, CAPACITY);
    let refused = arrived(old_writer.append(vec![old.next("too late")]));
    assert_eq!(refused, Err(LogError::Fenced { partition: GATE, term: 1 }));
    arrived(new_writer.append(new.several(2))).expect("the new one writes");
    let mut capacity = Scribe { tail: Tail::GENESIS, term: 1 };
    arrived(other_partition.append(capacity.several(1))).expect("other partitions are not touched");
    let report = history::verify(&*log, GATE);
    assert_eq!((report.error, report.tail, report.records), (None, new.tail, 4));
    // Two claims in a row without an event between them: the older one is fenced all the same.
    let (mut first, mut first_writer, _) = claim(&*log, GATE);
    let (mut second, mut second_writer, _) = claim(&*log, GATE);
    let refused = arrived(first_writer.append(first.several(1)));
    assert_eq!(refused, Err(LogError::Fenced { partition: GATE, term: 3 }));
    arrived(second_writer.append(second.several(1))).expect("the newest claim writes");
    Outcome::Passed
}

fn an_event_out_of_sequence_is_refused(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    for skip in [0_u64, 2] {
        let (mut scribe, mut writer, _) = claim(&*log, GATE);
        arrived(writer.append(scribe.several(2))).expect("appended");
        let last = scribe.tail.sequence;
        scribe.tail.sequence = scribe.tail.sequence - 1 + skip;
        let found = scribe.tail.sequence + 1;
        let term = scribe.term;
        let refused = arrived(writer.append(vec![scribe.next("out of place")]));
        assert_eq!(refused, Err(LogError::NotNext { partition: GATE, last, last_term: term, found, term }));
        assert_eq!(history::verify(&*log, GATE).tail.sequence, last, "nothing was written");
    }
    Outcome::Passed
}

fn an_event_of_another_term_is_refused(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    arrived(writer.append(scribe.several(2))).expect("appended");
    for wrong in [1_u64, 3] {
        let (scribe, mut writer, _) = claim(&*log, GATE);
        let mut liar = Scribe { term: wrong, ..scribe };
        let refused = arrived(writer.append(vec![liar.next("of another term")]));
        let expected = LogError::NotNext { partition: GATE, last: 2, last_term: 2, found: 3, term: wrong };
        assert_eq!(refused, Err(expected));
    }
    // A link that does not follow would break the chain for ever: it is refused as well.
    let (scribe, mut writer, _) = claim(&*log, GATE);
    let mut forger = scribe;
    forger.tail.link = ChainLink([9; 32]);
    assert!(arrived(writer.append(vec![forger.next("from another chain")])).is_err());
    let (_, mut writer, _) = claim(&*log, GATE);
    assert!(arrived(writer.append(vec![b"no event at all".to_vec()])).is_err());
    assert_eq!(bytes_of(&*log, EVENTS).len(), 2);
    Outcome::Passed
}

fn after_a_failure_all_later_appends_fail(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let good = scribe.several(2);
    let mut ahead = scribe.clone();
    ahead.tail.sequence += 5;
    arrived(writer.append(good)).expect("appended");
    assert!(arrived(writer.append(vec![ahead.next("skips some")])).is_err());
    assert!(arrived(writer.append(vec![scribe.next("would have been right")])).is_err());
    assert_eq!(bytes_of(&*log, EVENTS).len(), 2);
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    arrived(writer.append(scribe.several(1))).expect("a new claim writes again");
    Outcome::Passed
}

fn events_pipeline_in_order(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let mut wanted = Vec::new();
    let mut results = Vec::new();
    for round in 0..30 {
        let records = scribe.several(1 + round % 3);
        wanted.extend(records.clone());
        results.push(writer.append(records));
    }
    let offsets: Vec<Offset> = results.into_iter().map(|result| arrived(result).expect("appended")).collect();
    assert!(offsets.is_sorted_by(|one, other| one < other), "each comes to the offset of its last record");
    assert_eq!(bytes_of(&*log, EVENTS), wanted);
    let records = read_all(&*log, EVENTS).expect("it can be read");
    assert_eq!(records.last().map(|record| record.offset), offsets.last().copied());
    Outcome::Passed
}

fn seeking_finds_the_event(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    for round in 0..25 {
        put(&*log, INPUTS, &[input(&format!("between {round}"))]);
        arrived(writer.append(scribe.several(4))).expect("appended");
    }
    harness.reopen();
    let log = harness.log();
    for sequence in [1_u64, 2, 37, 99, 100] {
        let offset = log.seek(GATE, sequence).expect("it can be sought");
        let batch = log.read(EVENTS, offset, ReadLimit { records: 1, bytes: 1 }).expect("it can be read");
        let (envelope, _) = gatelog_record::Envelope::decode(&batch.records[0].bytes).expect("it is an event");
        assert_eq!(envelope.sequence, sequence);
    }
    assert_eq!(log.seek(GATE, 0), log.seek(GATE, 1));
    assert_eq!(log.seek(GATE, 101).expect("it can be sought"), log.end(EVENTS).expect("the end is known"));
    Outcome::Passed
}

fn change_is_told(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    put(&*log, INPUTS, &[input("one")]);
    let end = log.end(INPUTS).expect("the end is known");
    arrived(log.changed(INPUTS, Offset(0)));
    let waiting = log.changed(INPUTS, end);
    let other = log.changed(Stream::Intake(0), Offset(0));
    put(&*log, INPUTS, &[input("two")]);
    arrived(waiting);
    assert!(log.end(INPUTS).expect("the end is known") > end);
    assert!(other.wait_for(Duration::from_millis(1)).is_err(), "another stream's end has not moved");
    // Whoever waits when the log closes is told so.
    let waiting = log.changed(Stream::Intake(0), Offset(0));
    drop(log);
    harness.reopen();
    assert_eq!(waiting.wait_for(PATIENCE).ok(), Some(None));
    Outcome::Passed
}

fn an_abandoned_wait_is_forgotten(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    for _ in 0..10_000 {
        drop(log.changed(INPUTS, Offset(0)));
    }
    let waiting = log.changed(INPUTS, Offset(0));
    put(&*log, INPUTS, &[input("one")]);
    arrived(waiting);
    Outcome::Passed
}

fn what_is_too_large_is_refused(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (max_record, max_append) = harness.limits();
    let huge = vec![0; max_record as usize + 1];
    let refused = arrived(log.append_inputs(INPUTS, vec![input("fits"), huge.clone()]));
    assert_eq!(refused, Err(LogError::TooLarge { size: max_record + 1, limit: max_record }));
    let fits = vec![0; max_record as usize];
    let count = max_append / max_record + 1;
    let refused = arrived(log.append_inputs(INPUTS, vec![fits.clone(); count as usize]));
    assert_eq!(refused, Err(LogError::TooLarge { size: max_record * count, limit: max_append }));
    let (_, mut writer, _) = claim(&*log, GATE);
    let refused = arrived(writer.append(vec![huge]));
    assert_eq!(refused, Err(LogError::TooLarge { size: max_record + 1, limit: max_record }));
    assert!(bytes_of(&*log, INPUTS).is_empty(), "of what is refused nothing is written");
    assert!(bytes_of(&*log, EVENTS).is_empty(), "of what is refused nothing is written");
    put(&*log, INPUTS, std::slice::from_ref(&fits));
    assert!(bytes_of(&*log, INPUTS) == [fits], "what is as large as may be is taken");
    Outcome::Passed
}

fn events_cannot_be_appended_as_inputs(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let mut scribe = Scribe { tail: Tail::GENESIS, term: 1 };
    assert!(arrived(log.append_inputs(EVENTS, scribe.several(1))).is_err());
    assert!(bytes_of(&*log, EVENTS).is_empty());
    Outcome::Passed
}

fn a_second_reader_sees_what_is_acknowledged(harness: &mut dyn Harness) -> Outcome {
    let Some(reader) = harness.reader() else { return Outcome::Skipped("no second reader can be opened") };
    let log = harness.log();
    assert_eq!(reader.describe().site, log.describe().site);
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let waiting = reader.changed(EVENTS, Offset(0));
    let mut wanted = Vec::new();
    for round in 0..10 {
        let events = scribe.several(2);
        wanted.extend(events.clone());
        put(&*log, INPUTS, &[input(&format!("{round}"))]);
        arrived(writer.append(events)).expect("appended");
        assert_eq!(bytes_of(&*reader, EVENTS), wanted, "what is acknowledged is seen");
        assert_eq!(bytes_of(&*reader, INPUTS).len(), round + 1);
    }
    arrived(waiting);
    assert_eq!(reader.seek(GATE, 7), log.seek(GATE, 7));
    assert_eq!(reader.streams(), log.streams());
    // A reader that is the log itself (memory) may also write.
    match reader.claim(GATE) {
        Err(LogError::ReadOnly) => {
            let refused = arrived(reader.append_inputs(INPUTS, vec![input("no")]));
            assert_eq!(refused, Err(LogError::ReadOnly));
        }
        Ok(_) => {}
        Err(other) => panic!("a reader refuses to write with ReadOnly, not with {other}"),
    }
    Outcome::Passed
}

fn a_stale_term_is_no_part_of_history(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut old, mut old_writer, _) = claim(&*log, GATE);
    arrived(old_writer.append(old.several(3))).expect("appended");
    let (mut new, mut new_writer, _) = claim(&*log, GATE);
    arrived(new_writer.append(new.several(3))).expect("appended");
    drop((log, old_writer, new_writer));
    // The old owner, cut off and unaware, writes on: a sequence the new one has used, and one it has not.
    let late = old.several(5);
    for record in [&late[0], &late[4]] {
        match harness.inject(Injection::Insert { stream: EVENTS, record: record.clone() }) {
            Injected::Done => {}
            Injected::Refused(error) => panic!("a stale term is no damage, but: {error}"),
            Injected::Unsupported => return Outcome::Skipped("records cannot be inserted past the checks"),
        }
    }
    let log = harness.log();
    let report = history::verify(&*log, GATE);
    assert_eq!((report.error, report.stale, report.records, report.tail), (None, 2, 8, new.tail));
    assert_eq!(report.first_stale.map(|stale| (stale.sequence, stale.term, stale.newest_term)), Some((4, 1, 2)));
    let (mut third, mut writer, _) = claim(&*log, GATE);
    assert_eq!((third.tail, third.term), (new.tail, 3), "the claim does not count it");
    arrived(writer.append(third.several(2))).expect("the history goes on");
    let report = history::verify(&*log, GATE);
    assert_eq!((report.error, report.stale, report.tail, report.terms), (None, 2, third.tail, 3));
    let event_at = |sequence| {
        let offset = log.seek(GATE, sequence).expect("it can be sought");
        log.read(EVENTS, offset, ReadLimit { records: 1, bytes: 1 }).expect("it can be read")
    };
    for sequence in 1..=8 {
        let batch = event_at(sequence);
        let (envelope, _) = gatelog_record::Envelope::decode(&batch.records[0].bytes).expect("it is an event");
        assert_eq!(envelope.sequence, sequence);
        assert_eq!(envelope.term, if sequence <= 3 { 1 } else { 2 + (sequence - 1) / 6 }, "and not the stale one");
    }
    let batch = event_at(7);
    let mut reader = HistoryReader::after(GATE, new.tail);
    let step = reader.next(&batch.records[0]).expect("it follows");
    assert!(matches!(step, Step::Event(event, _) if event.sequence == 7 && event.term == 3));
    Outcome::Passed
}

fn a_repeated_event_is_named(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    let events = scribe.several(4);
    arrived(writer.append(events.clone())).expect("appended");
    drop((log, writer));
    match harness.inject(Injection::Insert { stream: EVENTS, record: events[3].clone() }) {
        Injected::Done => {}
        Injected::Refused(LogError::Damaged { place, .. }) => {
            assert_eq!(place.stream, Some(EVENTS));
            return Outcome::Passed;
        }
        Injected::Refused(other) => panic!("a repeat is Damaged, not {other}"),
        Injected::Unsupported => return Outcome::Skipped("records cannot be inserted past the checks"),
    }
    let log = harness.log();
    let report = history::verify(&*log, GATE);
    let Some(VerifyError::History(error)) = report.error else { panic!("the repeat must be named: {report:?}") };
    assert_eq!(error.what, Broken::Repeat { expected: 5, found: 4 });
    assert_eq!(report.tail, scribe.tail, "up to there it is history");
    let Err(LogError::Damaged { place, .. }) = log.claim(GATE).map(|_| ()) else {
        panic!("a broken history cannot be claimed")
    };
    assert_eq!(place.offset, Some(error.offset));
    claim(&*log, CAPACITY);
    Outcome::Passed
}

fn a_torn_append_is_there_whole_or_not_at_all(harness: &mut dyn Harness) -> Outcome {
    let what = some_of_everything(harness);
    let torn: Vec<_> = (0..3).map(|index| input(&format!("torn {index}"))).collect();
    match harness.inject(Injection::Torn { stream: INPUTS, records: torn.clone() }) {
        Injected::Done => {}
        Injected::Refused(error) => panic!("a torn append that was not acknowledged is no damage, but: {error}"),
        Injected::Unsupported => return Outcome::Skipped("an append cannot be torn"),
    }
    let log = harness.log();
    let found = bytes_of(&*log, INPUTS);
    let mut whole = what.0.clone();
    whole.extend(torn);
    assert!(found == what.0 || found == whole, "all records of the append are there or none");
    assert_eq!(bytes_of(&*log, EVENTS), what.1);
    put(&*log, INPUTS, &[input("goes on")]);
    assert_eq!(bytes_of(&*log, INPUTS).len(), found.len() + 1);
    Outcome::Passed
}

fn a_damaged_record_is_named(harness: &mut dyn Harness) -> Outcome {
    let what = some_of_everything(harness);
    let log = harness.log();
    let offset = read_all(&*log, EVENTS).expect("it can be read")[6].offset;
    drop(log);
    match harness.inject(Injection::Damage { stream: EVENTS, offset }) {
        Injected::Done => {}
        Injected::Refused(LogError::Damaged { place, .. }) => {
            assert!(!place.physical.is_empty(), "the place is named");
            return Outcome::Passed;
        }
        Injected::Refused(other) => panic!("damage is Damaged, not {other}"),
        Injected::Unsupported => return Outcome::Skipped("records cannot be damaged"),
    }
    let log = harness.log();
    match read_all(&*log, EVENTS) {
        Err((before, LogError::Damaged { place, .. })) => {
            assert!(before.len() <= 6, "nothing damaged and nothing after it is given");
            let before: Vec<_> = before.into_iter().map(|record| record.bytes).collect();
            assert_eq!(before, what.1[..before.len()]);
            assert!(!place.physical.is_empty(), "the place is named");
        }
        Err((_, other)) => panic!("damage is Damaged, not {other}"),
        // A log that keeps no checksum of its own: then the history must notice.
        Ok(_) => {
            let error = history::verify(&*log, GATE).error;
            let Some(VerifyError::History(error)) = error else { panic!("the damage must be named: {error:?}") };
            assert_eq!(error.offset, offset);
        }
    }
    Outcome::Passed
}
