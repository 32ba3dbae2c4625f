//! What a history is, told record by record.

use super::*;
use crate::conformance::{Scribe, event_record};
use crate::memory::MemoryLog;
use gatelog_record::Domain;
use gatelog_record::Event;
use gatelog_record::draft::partition::{InputTaken, WriterStarted};
use gatelog_record::event::PartitionEvent;
use proptest::prelude::*;

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };

fn started(term: u64) -> PartitionEvent {
    let started =
        WriterStarted { term, build: String::new(), registry: [0; 32], site: Default::default(), generation: 1 };
    PartitionEvent::WriterStarted(started)
}

fn taken() -> PartitionEvent {
    PartitionEvent::InputTaken(InputTaken { duplicate_of: None, reason: "nothing-to-do".into() })
}

/// Reads a story: each word is one record, `sequence/term` or `sequence/term*` for one that begins
/// its term; `!` after it breaks its link. Gives what the reader says of each.
fn told(story: &str) -> Vec<String> {
    let mut reader = HistoryReader::from_genesis(GATE);
    let mut previous = ChainLink::GENESIS;
    story
        .split_whitespace()
        .enumerate()
        .map(|(index, word)| {
            let (sequence, term) = word.trim_end_matches(['*', '!']).split_once('/').unwrap();
            let (sequence, term) = (sequence.parse().unwrap(), term.parse().unwrap());
            let event = if word.contains('*') { started(term) } else { taken() };
            let before = if word.contains('!') { ChainLink([1; 32]) } else { previous };
            let (bytes, link) = event_record(sequence, term, event, &before);
            match reader.next(&ReadRecord { offset: Offset(index as u64), bytes }) {
                Ok(Step::Event(event, given)) => {
                    assert_eq!(given, link);
                    previous = link;
                    format!("{}", event.sequence)
                }
                Ok(Step::StaleWriter(stale)) => {
                    format!("stale {}/{}<{}", stale.sequence, stale.term, stale.newest_term)
                }
                Err(HistoryError { offset, what, .. }) => {
                    let what = format!("{what:?}");
                    let name = what.split([' ', '(', '{']).next().unwrap();
                    format!("{name}@{}", offset.0)
                }
            }
        })
        .collect()
}

#[test]
fn a_history_is_dense_and_its_terms_rise_by_one() {
    for (story, expected) in [
        ("1/1* 2/1 3/1 4/2* 5/2", "1, 2, 3, 4, 5"),
        // What an old owner wrote after the new term began is passed over, whatever it claims.
        ("1/1* 2/1 3/2* 3/1 4/1! 4/2", "1, 2, 3, stale 3/1<2, stale 4/1<2, 4"),
        ("1/1* 2/2* 9/1* 3/2", "1, 2, stale 9/1<2, 3"),
        ("1/1* 3/1 2/1", "1, Gap@1, Gap@1"),
        ("2/1*", "Gap@0"),
        ("1/1* 2/1 2/1", "1, 2, Repeat@2"),
        ("1/1* 2/1!", "1, BrokenLink@1"),
        ("1/1* 2/1*", "1, TermRepeated@1"),
        ("1/1* 2/3*", "1, TermGap@1"),
        ("1/1* 2/2", "1, TermNotBegun@1"),
        ("1/1", "TermNotBegun@0"),
        ("1/0*", "TermRepeated@0"),
    ] {
        assert_eq!(told(story).join(", "), expected, "{story}");
    }
}

#[test]
fn the_start_of_a_term_names_the_same_term_inside_and_outside() {
    let (bytes, _) = event_record(1, 1, started(2), &ChainLink::GENESIS);
    let error = HistoryReader::from_genesis(GATE).next(&ReadRecord { offset: Offset(7), bytes }).unwrap_err();
    assert_eq!(error.what, Broken::TermUnclear { sequence: 1, envelope: 1, body: 2 });
    assert_eq!(
        error.to_string(),
        "history of gate/0 is broken at offset 7: event 1 begins term 2 by its body, 1 by its envelope; nothing \
         after this place is read: see `gatelog log verify`, or restore the log from a backup"
    );
}

#[test]
fn the_kind_that_begins_a_term_is_the_registrys() {
    assert_eq!(Event::Partition(started(1)).kind_version().kind, WRITER_STARTED);
}

#[test]
fn an_unknown_kind_is_named_and_not_passed_over() {
    let (bytes, link) = event_record(1, 1, started(1), &ChainLink::GENESIS);
    let mut reader = HistoryReader::from_genesis(GATE);
    reader.next(&ReadRecord { offset: Offset(0), bytes }).unwrap();
    let (bytes, _) = event_record(2, 1, taken(), &link);
    let (mut envelope, _) = Envelope::decode(&bytes).unwrap();
    envelope.kind_version.kind = 0x7ffe;
    let (bytes, _) = envelope.encode(&link);
    let error = reader.next(&ReadRecord { offset: Offset(1), bytes }).unwrap_err();
    assert!(matches!(error.what, Broken::Body { sequence: 2, why: BodyError::UnknownKind(_) }), "{error}");
    assert_eq!(reader.tail().sequence, 1);
}

#[test]
fn what_a_newer_gatelog_wrote_is_refused_with_its_name_wherever_reading_begins() {
    let log = MemoryLog::default();
    let stream = Stream::Events(GATE);
    let started_by = |term, build: &str| match started(term) {
        PartitionEvent::WriterStarted(started) => {
            PartitionEvent::WriterStarted(WriterStarted { build: build.to_owned(), ..started })
        }
        other => other,
    };
    let mut link = ChainLink::GENESIS;
    let mut tails = Vec::new();
    for (sequence, term, event) in [
        (1, 1, started_by(1, "gatelog 0.1.0")),
        (2, 1, taken()),
        (3, 2, started_by(2, "gatelog 0.2.0")),
        (4, 2, taken()),
        (5, 2, taken()),
        (6, 3, started_by(3, "gatelog 0.3.0")),
    ] {
        let (mut bytes, mut next) = event_record(sequence, term, event, &link);
        if sequence == 5 {
            let (mut envelope, _) = Envelope::decode(&bytes).unwrap();
            envelope.kind_version.kind = 0x7ffe;
            (bytes, next) = envelope.encode(&link);
        }
        log.insert(stream, bytes);
        link = next;
        tails.push(Tail { sequence, term, link });
    }
    let told = format!(
        "history of gate/0 cannot be read from offset 4: event 5 is of kind 0x7ffe version 1, which this gatelog \
         ({GATELOG}) does not know: read on with gatelog 0.2.0, which wrote it, or a later one"
    );
    for after in [Tail::GENESIS, tails[2], tails[3]] {
        let mut reader = HistoryReader::after(GATE, after);
        let batch = log.read(stream, Offset(after.sequence), ReadLimit::default()).unwrap();
        let error = batch.records.iter().find_map(|record| reader.next(record).err()).unwrap();
        assert_eq!(error.with_writer(&log).to_string(), told);
    }
    let report = verify(&log, GATE);
    assert_eq!(report.error.unwrap().to_string(), told);
}

#[test]
fn a_reader_can_start_in_the_middle() {
    let mut scribe = Scribe { tail: Tail::GENESIS, term: 1 };
    let records = scribe.several(3);
    let middle = scribe.tail;
    let next = scribe.next("and on");
    let mut reader = HistoryReader::after(GATE, middle);
    assert!(matches!(reader.next(&ReadRecord { offset: Offset(3), bytes: next }), Ok(Step::Event(..))));
    let mut wrong = HistoryReader::after(GATE, middle);
    let error = wrong.next(&ReadRecord { offset: Offset(2), bytes: records[2].clone() }).unwrap_err();
    assert_eq!(error.what, Broken::Repeat { expected: 4, found: 3 });
}

#[test]
fn a_verification_counts_what_it_read_and_stops_at_the_first_error() {
    let log = MemoryLog::default();
    let stream = Stream::Events(GATE);
    let mut scribe = Scribe { tail: Tail::GENESIS, term: 1 };
    let records = scribe.several(4);
    for record in &records {
        log.insert(stream, record.clone());
    }
    let report = verify(&log, GATE);
    assert_eq!((report.records, report.terms, report.tail, report.error), (4, 1, scribe.tail, None));
    log.tamper(stream, Offset(2), 40);
    let report = verify(&log, GATE);
    assert_eq!((report.records, report.tail.sequence), (3, 2));
    let Some(VerifyError::History(error)) = report.error else { panic!("{report:?}") };
    assert_eq!(error.offset, Offset(2));
    assert!(matches!(error.what, Broken::Frame(FrameError::Checksum { .. })));
    log.damage(stream, Offset(1));
    assert!(matches!(verify(&log, GATE).error, Some(VerifyError::Log(LogError::Damaged { .. }))));
    let inputs = Stream::Inputs(GATE);
    log.insert(inputs, crate::conformance::input("good"));
    log.insert(inputs, b"bad".to_vec());
    let report = verify_inputs(&log, inputs);
    assert!(matches!(report.error, Some(VerifyError::Input { offset: Offset(1), .. })), "{report:?}");
}

proptest! {
    /// One byte changed anywhere in any record of a history is noticed at that record, or, where it
    /// turns the record into one of an older term, by the gap after it.
    #[test]
    fn no_changed_byte_goes_unnoticed(count in 2_usize..6, at in 0_usize..6, byte in 0_usize..200, bit in 0_u8..8) {
        let mut scribe = Scribe { tail: Tail::GENESIS, term: 1 };
        let mut records = scribe.several(count);
        let at = at % count;
        let length = records[at].len();
        records[at][byte % length] ^= 1 << bit;
        let mut reader = HistoryReader::from_genesis(GATE);
        let mut noticed = None;
        for (index, bytes) in records.into_iter().enumerate() {
            if reader.next(&ReadRecord { offset: Offset(index as u64), bytes }).is_err() {
                noticed = Some(index);
                break;
            }
        }
        prop_assert_eq!(noticed, Some(at));
    }

    /// Bytes that are no record never panic.
    #[test]
    fn any_bytes_are_refused_by_name(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut reader = HistoryReader::from_genesis(GATE);
        let refused = reader.next(&ReadRecord { offset: Offset(0), bytes }).is_err();
        prop_assert!(refused);
    }
}
