//! Causes across partitions, and cuts that keep them.

use gatelog_event_log::MemoryLog;
use gatelog_record::{Domain, EventRef, InputId, InputRecord, Partition, Source, Stream, Timestamp};
use gatelog_replay::cut::{beside, cut_before};
use gatelog_replay::{CauseStep, Cut, ReplayError, causes, cut_at};

use crate::desk::Desk;

const ONE: Partition = Partition { domain: Domain::Deployments, index: 0 };
const TWO: Partition = Partition { domain: Domain::Deployments, index: 1 };
const INTAKE: Partition = Partition { domain: Domain::Intake, index: 0 };

/// An input that another partition's event sent.
fn sent(desk: &mut Desk, verb: &str, book: &str, count: u64, partition: Partition, sequence: u64) -> InputRecord {
    let mut input = desk.input(verb, book, count);
    input.source = Some(Source { partition, sequence, ordinal: 0 });
    input
}

fn told(steps: &[CauseStep]) -> Vec<String> {
    steps
        .iter()
        .map(|step| match step {
            CauseStep::Event { partition, record } => format!("{partition} event {}", record.sequence),
            CauseStep::Input { stream, offset, record } => format!("{stream} offset {offset}: {}", record.input_id),
            CauseStep::Writer { partition } => format!("{partition} writer"),
        })
        .collect()
}

#[test]
fn an_event_is_traced_back_across_partitions_to_what_came_from_outside() {
    let log = MemoryLog::default();
    let (mut one, mut two) = (Desk::open(&log, ONE), Desk::open(&log, TWO));
    one.ask("buy", "emma", 1);
    // Somebody pushes: the intake has it, the first desk is told.
    let mut push = one.input("buy", "dune", 3);
    push.input_id = InputId::new("the push");
    let offset = log.insert(Stream::Intake(0), push.close().unwrap().encode());
    let routed = sent(&mut one, "order", "dune", 3, INTAKE, offset.0 + 1);
    let ordered = one.put(&routed);
    // The first desk asks the second, which reports back about its own work.
    two.ask("buy", "momo", 1);
    let forwarded = sent(&mut two, "buy", "ilias", 3, ONE, ordered);
    let bought = two.put(&forwarded);
    let mut report = one.input("buy", "report", 1);
    report.caused_by = Some(EventRef { partition: TWO, sequence: bought });
    let reported = one.put(&report);

    let found = causes(&log, EventRef { partition: ONE, sequence: reported }).unwrap();
    assert_eq!(
        told(&found),
        [
            "deployments/0 event 6",
            "deployments.inputs/0 offset 2: deployments/0 4",
            "deployments/1 event 3",
            "deployments.inputs/1 offset 1: deployments/1 2",
            // The last of three events of one decision: the header stands on the first.
            "deployments/0 event 5",
            "deployments.inputs/0 offset 1: deployments/0 3",
            "intake/0 offset 0: the push",
        ]
    );
    assert!(found.iter().all(|step| step.to_json().is_object()));

    let own = causes(&log, EventRef { partition: ONE, sequence: 2 }).unwrap();
    assert_eq!(told(&own), ["deployments/0 event 2", "deployments.inputs/0 offset 0: deployments/0 1"]);
    let start = causes(&log, EventRef { partition: ONE, sequence: 1 }).unwrap();
    assert_eq!(told(&start), ["deployments/0 event 1", "deployments/0 writer"]);
    let error = causes(&log, EventRef { partition: ONE, sequence: 99 }).unwrap_err();
    assert!(matches!(error, ReplayError::NoEvent(_)), "{error}");
}

#[test]
fn a_cut_never_shows_an_effect_without_its_cause() {
    let log = MemoryLog::default();
    let begin = Timestamp(1_700_000_000_000_000);
    let (mut one, mut two) = (Desk::open(&log, ONE), Desk::open(&log, TWO));
    // The second desk's clock is 30 s behind: by it, effects come before their causes.
    one.wall = begin.plus_seconds(60);
    two.wall = begin.plus_seconds(30);
    let mut sent_by = Vec::new();
    for number in 0..40_u64 {
        let cause = one.ask("buy", &format!("book {number}"), 1);
        let forwarded = sent(&mut two, "buy", &format!("copy {number}"), 1, ONE, cause);
        let effect = two.put(&forwarded);
        sent_by.push((cause, effect));
        if number % 3 == 0 {
            // And one goes back as a report.
            let mut report = one.input("look", "", 0);
            report.caused_by = Some(EventRef { partition: TWO, sequence: effect });
            one.put(&report);
        }
        one.wall = one.wall.plus_seconds(1);
        two.wall = two.wall.plus_seconds(1);
    }
    let all = [ONE, TWO];
    let mut moved = 0;
    for second in 0..120 {
        let at = begin.plus_seconds(second);
        let cut = cut_at(&log, &all, at).unwrap();
        let plain: Cut = all
            .iter()
            .map(|partition| {
                let timeline = gatelog_replay::Timeline::<crate::lending::Lending>::new(
                    std::sync::Arc::new(log.clone()),
                    *partition,
                    None,
                );
                (*partition, timeline.sequence_at_time(at).unwrap())
            })
            .collect();
        moved += usize::from(cut != plain);
        for (cause, effect) in &sent_by {
            assert!(*effect > cut[&TWO] || *cause <= cut[&ONE], "{effect} without {cause} at second {second}");
        }
        // As late as it can be: the next event of the second desk has its cause outside, or was
        // recorded later.
        let next = cut[&TWO] + 1;
        let cause = sent_by.iter().find(|(_, effect)| *effect == next).map(|(cause, _)| *cause);
        assert!(next > plain[&TWO] || cause.is_some_and(|cause| cause > cut[&ONE]), "second {second}: {cut:?}");
        assert_eq!(cut_before(&log, &cut).unwrap(), cut, "a consistent cut stays as it is");
    }
    assert!(moved > 10, "the clocks lie apart, so cuts must move: {moved}");
    // Where the other one stood at each event: with every cause of what is shown, without any effect of what came after.
    for sequence in 1..=sent_by.iter().map(|(_, effect)| *effect).max().unwrap() {
        let one = beside(&log, EventRef { partition: TWO, sequence }, ONE).unwrap();
        for (cause, _) in sent_by.iter().filter(|(_, effect)| *effect <= sequence) {
            assert!(*cause <= one, "event {sequence} of the second desk without {cause}");
        }
    }
    for sequence in 1..=sent_by.iter().map(|(cause, _)| *cause).max().unwrap() {
        let two = beside(&log, EventRef { partition: ONE, sequence }, TWO).unwrap();
        for (cause, effect) in sent_by.iter().filter(|(_, effect)| *effect <= two) {
            assert!(*cause <= sequence, "{effect}, the effect of {cause}, beside event {sequence} of the first desk");
        }
    }
}
