//! Whatever is asked for, the export holds exactly that, and shows it.

use std::collections::BTreeSet;

use gatelog_audit::{Bound, Fault, Found, Selection, Verifier};
use gatelog_event_log::Log;
use gatelog_record::draft::partition::InputTaken;
use gatelog_record::event::PartitionEvent;
use gatelog_record::{Event, Timestamp};

use crate::desk::*;

/// The notes of all events in an export, as an auditor reads them.
fn notes(text: &[u8]) -> Vec<String> {
    let mut verifier = Verifier::new(&check, None, Vec::new());
    let mut notes = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Found::Event(envelope) = verifier.feed(line).unwrap()
            && let Event::Partition(PartitionEvent::InputTaken(InputTaken { reason, .. })) =
                envelope.open().unwrap().event
        {
            notes.push(reason);
        }
    }
    verifier.finish().unwrap();
    notes
}

#[test]
fn a_whole_log_is_exported_and_verified_without_it() {
    let log = log(&story(40));
    let text = exported(&log, &all(), &[]);
    let verified = verified(&text, &[]).unwrap();
    assert_eq!((verified.site, verified.generation, verified.key.id()), (SITE, 1, KEY.public().id()));
    let of: Vec<_> = verified.sections.iter().map(|section| (section.partition, section.events, section.of)).collect();
    assert_eq!(of, [(GATE, 40, 40), (CAPACITY, 5, 5)]);
    assert_eq!(notes(&text).len(), 39 + 4);
    assert_eq!(exported(&log, &all(), &[]), text, "the same log gives the same bytes");
}

#[test]
fn a_tenant_gets_its_own_events_and_learns_nothing_of_what_others_said() {
    let log = log(&story(40));
    let text = exported(&log, &of_tenant("tools"), &[]);
    let verified = verified(&text, &[]).unwrap();
    assert_eq!(verified.sections.len(), 1, "tenants are the gate's");
    let wanted: Vec<String> =
        story(40).into_iter().filter(|(tenant, ..)| *tenant == "tools").map(|(_, _, note)| note).collect();
    assert_eq!(notes(&text), wanted);
    assert_eq!(verified.sections[0].events, wanted.len() as u64);
    assert_eq!(verified.sections[0].in_range, 40);
    // Only what Ann asked for in it.
    let text = exported(&log, &Selection { actor: Some(ANN), ..of_tenant("tools") }, &[]);
    let wanted: Vec<String> = story(40)
        .into_iter()
        .filter(|(tenant, actor, _)| *tenant == "tools" && *actor == ANN)
        .map(|(_, _, note)| note)
        .collect();
    assert!(!wanted.is_empty());
    assert_eq!(notes(&text), wanted);
}

#[test]
fn every_range_by_sequence_and_by_time_is_shown_to_be_whole() {
    let log = log(&story(9));
    for published_at in [None, Some(5)] {
        let published: Vec<_> = published_at.map(|at| published(&log, at)).into_iter().collect();
        for from in 0..12 {
            for to in from..12 {
                let text = exported(&log, &events(from, to), &published);
                let verified = verified(&text, &published).unwrap_or_else(|wrong| panic!("{from} to {to}: {wrong}"));
                let expected = (1..=9).filter(|sequence| (from..=to).contains(sequence)).count() as u64;
                assert_eq!(verified.sections[0].events, expected, "{from} to {to}");
                assert_eq!(verified.outside, published.len() as u64);
            }
        }
        for from in 0..5 {
            for to in from..5 {
                let (from, to) = (time(from * 3), time(to * 3));
                let selection = Selection { from: Bound::Time(from), to: Bound::Time(to), ..of_tenant("demo") };
                let verified = verified(&exported(&log, &selection, &published), &published).unwrap();
                let expected = (1..=9).filter(|sequence| (from..=to).contains(&time(*sequence))).count() as u64;
                assert_eq!(verified.sections[0].in_range, expected, "{from} to {to}");
            }
        }
    }
}

#[test]
fn a_long_log_is_left_out_by_few_lines() {
    let log = log(&story(2_000));
    let text = exported(&log, &events(900, 910), &[]);
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines < 60, "{lines} lines for 11 events of 2000");
    assert!(verified(&text, &[]).is_ok());
}

#[test]
fn checkpoints_of_any_moment_agree_and_one_that_is_not_shown_says_what_to_do() {
    let log = log(&story(40));
    let all_published: Vec<_> = (1..=40).step_by(3).map(|sequence| published(&log, sequence)).collect();
    // Where every event has its line, any checkpoint can be held against it, known or not.
    let text = exported(&log, &of_tenant("tools"), &[]);
    assert_eq!(verified(&text, &all_published).unwrap().outside, 14);
    // In a range one that lies outside cannot, but with it at hand an export can be made that shows it.
    let text = exported(&log, &events(20, 25), &[]);
    let wrong = verified(&text, &all_published[3..4]).unwrap_err();
    assert_eq!(wrong.fault, Fault::NotShown { sequence: 10 });
    assert!(wrong.fault.undecided() && wrong.to_string().contains("--checkpoint"), "{wrong}");
    let text = exported(&log, &events(20, 25), &all_published[3..4]);
    assert_eq!(verified(&text, &all_published[3..4]).unwrap().outside, 1);
    let of_capacity = published_by(&KEY, &log, CAPACITY, 3);
    let wrong = verified(&exported(&log, &of_tenant("demo"), &[]), &[of_capacity]).unwrap_err();
    assert_eq!(wrong.fault, Fault::NoPartition(CAPACITY));
}

#[test]
fn a_log_that_is_not_what_was_signed_gives_no_export() {
    let mut changed = story(20);
    changed[6].2 = "something else".into();
    let (log, other) = (log(&story(20)), log(&changed));
    let sound = published(&log, 12);
    assert!(exported_by(&KEY, &log, &all(), std::slice::from_ref(&sound)).is_ok());
    let error = exported_by(&KEY, &other, &all(), &[sound]).unwrap_err();
    assert!(error.to_string().contains("gate/0 at event 12 that was published says otherwise"), "{error}");
    let later = published(&self::log(&story(30)), 30);
    let error = exported_by(&KEY, &log, &all(), &[later]).unwrap_err();
    assert!(error.to_string().contains("has only 20 events: its tail was cut off"), "{error}");
    assert_eq!(log.streams().unwrap().len(), 2);
}

#[test]
fn names_that_would_break_lines_are_refused() {
    let log = log(&story(3));
    let error = exported_by(&KEY, &log, &of_tenant("a\nproject b"), &[]).unwrap_err();
    assert!(error.to_string().contains("has characters that no name has"), "{error}");
}

#[test]
fn bounds_read_back() {
    let log = log(&story(12));
    for (from, to) in [
        (Bound::Open, Bound::Sequence(3)),
        (Bound::Time(time(1)), Bound::Open),
        (Bound::Time(Timestamp(-5)), Bound::Time(Timestamp(i64::MAX))),
    ] {
        let selection = Selection { from, to, ..all() };
        assert_eq!(verified(&exported(&log, &selection, &[]), &[]).unwrap().selection, selection);
    }
    let kinds: BTreeSet<&str> = ["skip", "leaf", "event"].into();
    let text = String::from_utf8(exported(&log, &events(3, 4), &[])).unwrap();
    let found: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split(' ').next()).filter(|word| kinds.contains(word)).collect();
    assert_eq!(found, kinds);
}
