//! What a writer is shown of its inputs before they are durable, of a log that shows anything.

use super::tools::{arrived, input};
use super::{EVENTS, GATE, Harness, INPUTS, Outcome, PATIENCE, bytes_of, claim, put};
use crate::contract::{LogError, ReadLimit};

pub(super) fn the_writer_may_see_what_is_accepted(harness: &mut dyn Harness) -> Outcome {
    let log = harness.log();
    let (mut scribe, mut writer, _) = claim(&*log, GATE);
    put(&*log, INPUTS, &[input("before")]);
    for round in 0..50 {
        let end = log.end(INPUTS).expect("the end is known");
        let waiting = writer.awaits(end).expect("the writer may wait");
        let records = [input(&format!("{round} one")), input(&format!("{round} two"))];
        let coming = log.append_inputs(INPUTS, records.to_vec());
        if let Some(waiting) = waiting {
            arrived(waiting);
        }
        let early = writer.accepted(end, ReadLimit::default()).expect("the writer may ask");
        let event = writer.append(scribe.several(1));
        let offsets = arrived(coming).expect("appended");
        arrived(event).expect("appended");
        // All of it or nothing, and just as it stands there for everybody afterwards.
        if !early.records.is_empty() {
            let found: Vec<_> = early.records.iter().map(|record| (record.offset, record.bytes.clone())).collect();
            assert_eq!(found, offsets.into_iter().zip(records).collect::<Vec<_>>());
            let after = log.read(INPUTS, end, ReadLimit::default()).expect("it can be read");
            assert_eq!(after.records, early.records);
        } else {
            assert_eq!(early.next, end);
        }
        let end = log.end(INPUTS).expect("the end is known");
        let nothing = writer.accepted(end, ReadLimit::default()).expect("the writer may ask");
        assert_eq!((nothing.records.len(), nothing.next), (0, end), "what is there is read, not shown");
    }
    // Who is fenced is shown nothing more.
    let (_, mut newer, _) = claim(&*log, GATE);
    let end = log.end(INPUTS).expect("the end is known");
    match writer.accepted(end, ReadLimit::default()) {
        Ok(batch) => assert!(batch.records.is_empty()),
        Err(error) => assert_eq!(error, LogError::Fenced { partition: GATE, term: 1 }),
    }
    assert_eq!(newer.accepted(end, ReadLimit::default()).expect("the newest may ask").next, end);
    Outcome::Passed
}

pub(super) fn no_event_outlives_the_input_it_follows(harness: &mut dyn Harness) -> Outcome {
    for round in 0..20 {
        let log = harness.log();
        let (mut scribe, mut writer, _) = claim(&*log, GATE);
        let before = bytes_of(&*log, EVENTS).len();
        let end = log.end(INPUTS).expect("the end is known");
        let record = input(&format!("round {round}"));
        let coming = log.append_inputs(INPUTS, vec![record.clone()]);
        let early = writer.accepted(end, ReadLimit::default()).expect("the writer may ask");
        let decided = (!early.records.is_empty()).then(|| writer.append(scribe.several(1)));
        drop((log, writer));
        harness.crash();
        let log = harness.log();
        let there = bytes_of(&*log, INPUTS).contains(&record);
        if decided.is_some() && bytes_of(&*log, EVENTS).len() > before {
            assert!(there, "an event of round {round} is there without its input");
        }
        if coming.wait_for(PATIENCE).ok().flatten().is_some_and(|result| result.is_ok()) {
            assert!(there, "what was acknowledged is kept");
        }
    }
    Outcome::Passed
}
