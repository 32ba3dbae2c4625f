//! What would have been.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use gatelog_event_log::MemoryBlobs;
use gatelog_record::event::GateEvent;
use gatelog_record::input::{GateInput, IntakeInput};
use gatelog_record::{Event, Input, InputFrame, Stream};
use gatelog_replay::ReplayError;
use gatelog_replay::layouts::{Loader, verify_layouts};
use gatelog_replay::what_if::{Answer, Changes, Outcome, inputs_near, what_if};

use crate::world::{Day, GATE, day};

fn loader(version: u32) -> Loader {
    Loader { version, ..Loader::default() }
}

fn ask(changes: &Changes) -> Answer {
    let day = day();
    what_if(&day.log, &day.blobs, changes, None).unwrap()
}

/// The inputs of a stream, by offset.
fn inputs(day: &Day, stream: Stream) -> Vec<(u64, Input)> {
    let mut found = Vec::new();
    let mut from = gatelog_event_log::Offset::default();
    loop {
        let batch = day.log.read(stream, from, gatelog_event_log::ReadLimit::default()).unwrap();
        if batch.records.is_empty() {
            return found;
        }
        for record in &batch.records {
            let opened = InputFrame::decode(&record.bytes).unwrap().open().unwrap();
            found.push((record.offset.0, opened.input));
        }
        from = batch.next;
    }
}

/// The record, with nothing otherwise.
fn as_it_was() -> &'static Answer {
    static ANSWER: OnceLock<Answer> = OnceLock::new();
    ANSWER.get_or_init(|| ask(&Changes::default()))
}

/// The last change that the gate merged, and where the intake has what was told of it before.
fn a_merged_change(day: &Day) -> (String, BTreeSet<(Stream, u64)>) {
    let last = as_it_was().recorded.merges.iter().rev().find(|item| item.contains(" gate ")).unwrap();
    let change = last.rsplit_once(' ').unwrap().1.split(',').next().unwrap().to_owned();
    let told = inputs(day, Stream::Intake(0)).into_iter().filter_map(|(offset, input)| match input {
        Input::Intake(IntakeInput::ForgeEvent(event)) if event.change.as_ref() == Some(&change) => {
            Some((Stream::Intake(0), offset))
        }
        _ => None,
    });
    (change.clone(), told.collect())
}

#[test]
fn what_came_from_outside_near_a_moment_is_listed_as_it_is_asked_about() {
    let day = day();
    let last = day.gate.last().unwrap().sequence;
    let near = |sequence, most| inputs_near(&*day.log, crate::world::at(GATE, sequence), most).unwrap();
    let all = near(last, 10_000);
    let places: BTreeSet<&str> = all.iter().map(|input| input.place.as_str()).collect();
    let (change, told) = a_merged_change(day);
    for (stream, offset) in told {
        assert!(places.contains(format!("{stream}:{offset}").as_str()), "{stream} {offset} of {change}: {places:?}");
    }
    assert!(all.iter().any(|input| input.kind == "attempt-finished" && input.says.contains("SUCCESS")), "{all:?}");
    assert!(all.windows(2).all(|pair| pair[0].sequence >= pair[1].sequence), "the newest first");
    assert!(near(last / 2, 10_000).iter().all(|input| input.sequence <= last / 2));
    assert_eq!(near(last, 3), all[..3]);
    assert_eq!(near(0, 3), []);
}

#[test]
fn with_nothing_otherwise_everything_comes_out_the_same() {
    let answer = as_it_was();
    assert!(answer.is_same() && answer.difference.is_same(), "{answer:?}");
    assert!(answer.same_decisions > 100 && !answer.recorded.merges.is_empty(), "{:?}", answer.recorded);
    assert_eq!(answer.recorded, answer.now);
    assert!(answer.recorded.node_ms > 0 && answer.recorded.leases > 0);
}

#[test]
fn a_change_of_which_nobody_ever_told_is_not_merged_and_others_are() {
    let day = day();
    let (change, without) = a_merged_change(day);
    let changes = Changes { without, ..Changes::default() };
    let answer = ask(&changes);
    let divergence = answer.divergence.as_ref().unwrap();
    assert_eq!((divergence.why.as_str(), divergence.partition.as_str()), ("without", "gate/0"));
    assert!(divergence.what.starts_with("left out: ") && divergence.what.contains(&change), "{}", divergence.what);
    assert!(!divergence.recorded.is_empty() && answer.same_decisions > 0);
    let of_it = |names: &[String]| names.iter().any(|item| item.contains(&format!("{change},")));
    assert!(of_it(&answer.recorded.merges), "it was merged");
    assert!(!of_it(&answer.now.merges), "it would not have been: {:?}", answer.now.merges);
    assert!(of_it(&answer.difference.merges.only_recorded), "{:?}", answer.difference);
    assert!(!answer.now.merges.is_empty(), "others are merged as before");
    assert!(!answer.difference.is_same());
    assert!(!answer.rules.is_empty(), "the model is stated");
    // The same asked twice is the same answer.
    assert_eq!(ask(&changes), answer);
}

#[test]
fn an_input_that_changes_nothing_leaves_the_outcome_nearly_as_it_was() {
    let day = day();
    // The tenant file, come once more with the same settings, or a forge event that nobody waits for: what is left
    // out had no consequence, so items, jobs and merges are those of the record.
    let idle = day.gate.iter().find(|record| {
        let Event::Partition(gatelog_record::event::PartitionEvent::InputTaken(taken)) = &record.event else {
            return false;
        };
        taken.duplicate_of.is_none() && record.decision.as_ref().is_some_and(|header| header.source.is_none())
    });
    let Some(idle) = idle else { return };
    let offset = idle.decision.as_ref().unwrap().input_offset;
    let answer = ask(&Changes { without: [(Stream::Inputs(GATE), offset)].into(), ..Changes::default() });
    assert!(!answer.is_same(), "a decision is missing");
    // The model is near the record: of ten items at most one enters or stays away for the model's times alone.
    let apart = answer.difference.items_gone.len() + answer.difference.items_come.len();
    assert!(apart * 10 <= answer.recorded.items.len(), "{:?}", answer.difference);
    assert!(!answer.now.merges.is_empty());
}

#[test]
fn a_changed_input_is_decided_as_it_would_have_been() {
    let day = day();
    let (offset, mut event) = inputs(day, Stream::Inputs(GATE))
        .into_iter()
        .find_map(|(offset, input)| match input {
            Input::Gate(GateInput::TriggerReceived(received)) if received.event.event.contains("approved") => {
                Some((offset, received))
            }
            _ => None,
        })
        .unwrap();
    event.event.event = "comment-added-that-nobody-listens-to".into();
    let changed = BTreeMap::from([((Stream::Inputs(GATE), offset), GateInput::TriggerReceived(event).into())]);
    let answer = ask(&Changes { changed, ..Changes::default() });
    let divergence = answer.divergence.unwrap();
    assert_eq!((divergence.why.as_str(), divergence.input_offset), ("changed", offset));
    assert!(!divergence.now.is_empty(), "what is decided in its place is told");
    assert_ne!(divergence.now, divergence.recorded);
}

#[test]
fn other_configuration_gives_other_jobs() {
    let day = day();
    // Every project's configuration without the jobs of its pipelines.
    let mut config: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut cut = 0;
    for record in &day.gate {
        let Event::Gate(GateEvent::ConfigRead(read)) = &record.event else { continue };
        for set in &read.found.sets {
            let files = config.entry(set.at.project.clone()).or_default();
            for file in &set.files {
                let text = String::from_utf8(gatelog_event_log::Blobs::get(&day.blobs, &file.blob).unwrap()).unwrap();
                let without = text.replace("deep", "shallow");
                cut += usize::from(without != text);
                files.insert(file.path.clone(), without);
            }
        }
    }
    assert!(cut > 0, "there is a job of that name");
    let answer = ask(&Changes { config, ..Changes::default() });
    let divergence = answer.divergence.unwrap();
    assert_eq!(divergence.why, "config");
    assert!(
        !divergence.now.is_empty() && divergence.now != divergence.recorded,
        "what is decided in its place is told"
    );
    let jobs = |items: &BTreeMap<String, gatelog_replay::what_if::ItemOutcome>| -> Vec<String> {
        items.values().flat_map(|item| item.jobs.keys().cloned()).collect()
    };
    assert!(jobs(&answer.recorded.items).iter().any(|job| job == "deep"), "{:?}", jobs(&answer.recorded.items));
    assert!(jobs(&answer.now.items).iter().all(|job| job != "deep"), "{:?}", jobs(&answer.now.items));
    assert!(answer.difference.jobs.iter().any(|job| job.job == "shallow"), "{:?}", answer.difference.jobs);
}

#[test]
fn another_tenant_file_is_taken_for_those_that_were_loaded() {
    let file = |tenant: &str, others: &str| {
        Some(format!(
            "- tenant: {{name: {tenant}, source: {{git: {{config-projects: [config-{tenant}], untrusted-projects: {others}}}}}}}\n"
        ))
    };
    // A project that was never in the tenant has nothing there; the other tenant goes on as it did.
    let answer = ask(&Changes { tenants: file("acme", "[lib]"), ..Changes::default() });
    let divergence = answer.divergence.unwrap();
    assert_eq!((divergence.why.as_str(), divergence.input.as_str()), ("tenants", "gate.in.tenant-loaded"));
    assert!(divergence.what.starts_with("another tenant file: ") && !divergence.recorded.is_empty());
    assert!(
        divergence.now.iter().any(|record| record.to_string().contains("tenant-configured")),
        "{:?}",
        divergence.now
    );
    let ran = |items: &BTreeMap<String, gatelog_replay::what_if::ItemOutcome>, tenant: &str, project: &str| {
        let of = |item: &str| item.starts_with(tenant) && item.contains(&format!("/{project} "));
        items.iter().filter(|(item, outcome)| of(item) && !outcome.jobs.is_empty()).count()
    };
    let (recorded, now) = (&answer.recorded.items, &answer.now.items);
    assert!(ran(recorded, "acme ", "app") > 0 && ran(now, "acme ", "app") == 0, "{now:?}");
    assert!(ran(now, "acme ", "lib") > 0 && ran(now, "beta ", "far") > 0, "{now:?}");
    // What others need of it is looked at, and is not the tenant's.
    let of_app = now.iter().filter(|(item, _)| item.starts_with("acme ") && item.contains("/app "));
    assert!(of_app.clone().all(|(_, outcome)| outcome.code == "project-gone"), "{now:?}");
    // What makes no sense with the record is named.
    for (tenants, why) in [
        (file("acme", "{lib"), "not valid YAML"),
        (file("nowhere", "[lib]"), "the record has none of its tenants (nowhere)"),
        (Some("- tenant: {name: acme, source: {elsewhere: {untrusted-projects: [x]}}}".into()), "elsewhere"),
        (Some(String::new()), "the tenant file is empty"),
    ] {
        let error = what_if(&day().log, &day().blobs, &Changes { tenants, ..Changes::default() }, None).unwrap_err();
        assert!(matches!(&error, ReplayError::TenantFile { message } if message.contains(why)), "{why}: {error}");
    }
}

#[test]
fn an_input_that_was_never_decided_is_named() {
    let changes = Changes { without: [(Stream::Inputs(GATE), 9_999_999)].into(), ..Changes::default() };
    let error = what_if(&day().log, &day().blobs, &changes, None).unwrap_err();
    assert!(matches!(error, ReplayError::NoSuchInput { offset: 9_999_999, .. }), "{error}");
}

#[test]
fn nothing_leaves_a_what_if() {
    let day = day();
    let before = {
        let mut names = gatelog_event_log::Blobs::list(&day.blobs).unwrap();
        names.sort();
        names
    };
    let sockets = || {
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        open.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|to| to.to_string_lossy().contains("socket"))
            .count()
    };
    let open = sockets();
    let (_, without) = a_merged_change(day);
    ask(&Changes { without, ..Changes::default() });
    assert_eq!(sockets(), open, "no socket is opened");
    let mut after = gatelog_event_log::Blobs::list(&day.blobs).unwrap();
    after.sort();
    assert_eq!(before, after);
}

#[test]
fn layouts_and_graphs_come_out_the_same_and_a_lost_file_is_named() {
    let day = day();
    let done = verify_layouts(&*day.log, &day.blobs, GATE, loader(1)).unwrap();
    assert_eq!(done.difference, None);
    assert!(done.layouts > 0 && done.graphs > 0, "{done:?}");
    let error = verify_layouts(&*day.log, &MemoryBlobs::new(), GATE, loader(1)).unwrap_err();
    assert!(matches!(error, ReplayError::NoBlob { .. }), "{error}");
    // Another version of the loader may make other layouts: they are not compared.
    let other = verify_layouts(&*day.log, &day.blobs, GATE, loader(2)).unwrap();
    assert_eq!((other.layouts, other.of_other_loaders), (0, done.layouts));
}

#[test]
fn a_change_that_was_never_in_the_gate_left_out_leaves_the_others_as_they_were() {
    let day = day();
    let mut told: BTreeMap<String, BTreeSet<(Stream, u64)>> = BTreeMap::new();
    let mut needed = BTreeSet::new();
    for (offset, input) in inputs(day, Stream::Intake(0)) {
        if let Input::Intake(IntakeInput::ForgeEvent(event)) = input
            && let Some(change) = event.change
        {
            told.entry(change).or_default().insert((Stream::Intake(0), offset));
        }
    }
    for record in &day.gate {
        if let Event::Gate(GateEvent::ChangesObserved(observed)) = &record.event {
            needed.extend(observed.found.changes.iter().flat_map(|facts| &facts.needs).map(|key| key.change.clone()));
        }
    }
    let of = |change: &str, name: &str| name.contains(&format!(" {change},"));
    let in_gate =
        |change: &str| as_it_was().recorded.items.keys().any(|name| name.contains(" gate ") && of(change, name));
    let apart: Vec<_> = told.into_iter().filter(|(change, _)| !needed.contains(change) && !in_gate(change)).collect();
    assert!(apart.len() > 2, "there are such changes: {apart:?}");
    let all = apart.len();
    let mut exact = 0;
    for (change, without) in apart {
        let answer = ask(&Changes { without, ..Changes::default() });
        let others = |outcome: &Outcome| {
            // Workers have more time for the others: these may come in another order, and be merged by other commits,
            // after which `post` names what it tests.
            let items = outcome.items.iter().filter(|(name, _)| !of(&change, name) && !name.contains(" post "));
            let told = items.map(|(name, item)| (name.clone(), (item.result.clone(), item.code.clone(), item.merged)));
            told.collect::<BTreeMap<_, _>>()
        };
        let (now, recorded) = (others(&answer.now), others(&answer.recorded));
        let merged = |outcome: &Outcome| outcome.merges.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(merged(&answer.now), merged(&answer.recorded), "without {change}: {:#?}", answer.difference);
        let names: BTreeSet<&String> = now.keys().chain(recorded.keys()).collect();
        let otherwise: Vec<&String> = names.into_iter().filter(|name| now.get(*name) != recorded.get(*name)).collect();
        // One item at most whose approval is taken back in the very moment may be further by then than it was; one that
        // is approved once more in the moment in which it leaves may find itself still there, and not enter again: then
        // that came to what it had come to before.
        let again = |name: &&String| match (now.get(*name), recorded.get(*name)) {
            (Some(_), Some(_)) => true,
            (one, other) => name.split_once(" (time ").is_some_and(|(first, _)| {
                let before = now.get(first);
                before.is_some() && before == recorded.get(first) && before == one.or(other)
            }),
        };
        let told = otherwise.len() <= 1 && otherwise.iter().all(again);
        assert!(told, "without {change}: {otherwise:?} {:#?}", answer.difference);
        exact += usize::from(otherwise.is_empty());
    }
    assert!(exact * 4 >= all * 3, "{exact} of {all} leave every other item just as it was");
}
