//! Events of older versions fold as they did when they were the newest.

use std::path::PathBuf;

use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::{BuildRow, BuildState};
use gatelog_record::draft::capacity::SemaphoreWanted;
use gatelog_record::draft::gate::older::LayoutActivated1;
use gatelog_record::draft::gate::{
    BuildStarted, FrozenJob, ItemDequeued, ItemEnqueued, ItemResult, JobTraits, LayoutActivated, LayoutMade,
    LayoutOutcome, LayoutPurpose, LayoutWanted, LeaseWanted, QueueBegun, SemaphoreFreed, Subject, TenantConfigured,
    TenantLoaded,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{
    ActorId, BlobHash, BuildId, BuildsetId, Cause, Envelope, Event, EventId, EventRecord, ItemId, KindVersion,
    Timestamp, WorkId, codec,
};
use gatelog_tables::{LiveTables, Maps, Table};

const OTHER: BuildId = BuildId([0x77; 16]);
const STRANGER: BuildId = BuildId([0x88; 16]);

fn record(sequence: u64, event: impl Into<Event>) -> EventRecord {
    EventRecord {
        sequence,
        term: 1,
        recorded_at: Timestamp(5),
        wall_at: Timestamp(5),
        id: EventId::default(),
        cause: Cause::Start,
        actor: ActorId::SYSTEM,
        key: "acme".into(),
        traceparent: String::new(),
        decision: None,
        event: event.into(),
    }
}

/// The first golden record of a kind's version 1, as a gatelog wrote it that knew no other.
#[expect(clippy::disallowed_methods, reason = "goldens are files")]
fn golden(kind: &str) -> GateEvent {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join(format!("../../log-schema/record/tests/goldens/{kind}.v1.bin"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
    let (envelope, _) = Envelope::decode(&rest[..u32::from_le_bytes(*length) as usize]).unwrap();
    assert_eq!(envelope.kind_version.version, 1);
    let Event::Gate(event) = envelope.open().unwrap().event else { panic!("{kind} is not the gate's") };
    event
}

fn build(buildset: BuildsetId, job: &str, attempt: u32) -> BuildRow {
    BuildRow {
        tenant: "acme".into(),
        item: ItemId([1; 16]),
        buildset,
        job: FrozenJob {
            name: job.into(),
            spec: BlobHash::default(),
            voting: true,
            attempts: 3,
            dependencies: Vec::new(),
            semaphores: vec![SemaphoreWanted { name: "rig".into(), max: 1 }],
            nodes: Vec::new(),
            noop: false,
            success_message: None,
            failure_message: None,
            traits: JobTraits::default(),
        },
        state: BuildState::Running,
        attempt,
        result: None,
        lease: None,
        worker: None,
        started_at: None,
        finished_at: None,
        log_url: None,
        detail: None,
        settled: None,
        child_jobs: None,
        paused: false,
        pre_fail: false,
        nodeset: 0,
        ready: None,
        uncounted: 0,
    }
}

/// Three builds hold a semaphore: the one an event is about, one of the same name in its buildset, and a stranger.
fn with_builds(own: BuildId, buildset: BuildsetId, attempt: u32) -> GateLive<Maps> {
    let mut live = GateLive::<Maps>::in_memory();
    let rows = [
        (own, build(buildset, "tests", attempt)),
        (OTHER, build(buildset, "tests", 1)),
        (STRANGER, build(BuildsetId([9; 16]), "tests", 1)),
    ];
    for (id, row) in rows {
        live.gate.builds.put(id, row).unwrap();
        live.gate.semaphores.put(("acme".into(), "rig".into(), id), ()).unwrap();
    }
    live
}

fn holders(live: &GateLive<Maps>) -> Vec<BuildId> {
    live.gate.semaphores.rows.keys().map(|(_, _, build)| *build).collect()
}

#[test]
fn an_end_that_does_not_say_what_becomes_free_lets_go_by_the_name_of_the_job() {
    let settled = golden("gate.build-settled");
    let GateEvent::BuildSettled(told) = &settled else { panic!("{}", settled.name()) };
    assert_eq!(told.freed, None);
    let mut live = with_builds(told.build, told.buildset, 1);
    live.apply(&record(1, settled.clone())).unwrap();
    assert_eq!(holders(&live), [STRANGER]);

    let finished = golden("gate.build-finished");
    let GateEvent::BuildFinished(told) = &finished else { panic!("{}", finished.name()) };
    assert_eq!(told.freed, None);
    let mut told = told.clone();
    // Any value is a sample; this one is to fit.
    told.result = (!told.retry).then_some(told.finished.result);
    let mut live = with_builds(told.finished.build, told.buildset, told.finished.attempt);
    live.apply(&record(1, GateEvent::BuildFinished(told))).unwrap();
    assert_eq!(holders(&live), [STRANGER]);
}

#[test]
fn an_end_that_says_what_becomes_free_is_believed() {
    let GateEvent::BuildSettled(mut told) = golden("gate.build-settled") else { panic!("it is another kind") };
    let freed = |build| SemaphoreFreed { semaphore: "rig".into(), build };
    told.freed = Some(vec![freed(told.build)]);
    let mut live = with_builds(told.build, told.buildset, 1);
    live.apply(&record(1, GateEvent::BuildSettled(told.clone()))).unwrap();
    assert_eq!(holders(&live), [OTHER, STRANGER]);

    told.freed = Some(vec![freed(BuildId([0xee; 16]))]);
    let mut live = with_builds(told.build, told.buildset, 1);
    let refused = live.apply(&record(1, GateEvent::BuildSettled(told))).expect_err("nobody holds that");
    assert!(refused.to_string().contains("has no row"), "{refused}");
}

fn subject(project: &str) -> Subject {
    Subject {
        connection: "forge".into(),
        project: project.into(),
        branch: Some("master".into()),
        git_ref: format!("refs/changes/{project}"),
        change: Some(project.into()),
        patchset: Some("1".into()),
        commit: Some("c0ffee".into()),
        old_commit: None,
        url: String::new(),
    }
}

/// A queue whose first item has left: what is first in it now is of another project.
fn with_queue(activated: impl FnOnce(LayoutMade) -> GateEvent) -> GateLive<Maps> {
    let item = |number: u8| ItemId([number; 16]);
    let work = WorkId([4; 16]);
    let enqueued = |number: u8, ahead| ItemEnqueued {
        item: item(number),
        tenant: "acme".into(),
        pipeline: "gate".into(),
        queue: "both".into(),
        subjects: vec![subject(if number == 1 { "lib" } else { "app" })],
        live: true,
        ahead,
        trigger: None,
        reason: "trigger".into(),
        window: Some(20),
        parameters: Default::default(),
    };
    let tenant = TenantLoaded {
        tenant: "acme".into(),
        version: 1,
        settings: BlobHash::default(),
        web_root: String::new(),
        projects: Vec::new(),
    };
    let wanted = LayoutWanted {
        work,
        tenant: "acme".into(),
        purpose: LayoutPurpose::Tenant,
        item: None,
        buildset: None,
        settings: BlobHash::default(),
        files: Vec::new(),
        ahead: None,
        changed: Vec::new(),
        base: None,
    };
    let outcome = LayoutOutcome::Made {
        layout: BlobHash::default(),
        problems: BlobHash::default(),
        errors: 0,
        introduced: Vec::new(),
        loader: 1,
        secrets: Vec::new(),
        warnings: Vec::new(),
    };
    let (code, detail) = ("reported".into(), String::new());
    let left = ItemDequeued { item: item(1), result: ItemResult::Success, code, detail, merged: false };
    let events: Vec<GateEvent> = vec![
        TenantConfigured { tenant }.into(),
        enqueued(1, None).into(),
        enqueued(2, Some(item(1))).into(),
        left.into(),
        wanted.into(),
        activated(LayoutMade { work, attempt: 1, tenant: "acme".into(), outcome }),
    ];
    let mut live = GateLive::<Maps>::in_memory();
    for (sequence, event) in (1..).zip(events) {
        live.apply(&record(sequence, event)).unwrap();
    }
    live
}

fn first(live: &GateLive<Maps>) -> Option<String> {
    let row = &live.gate.queues.rows[&("acme".into(), "gate".into(), "both".into())];
    row.first.as_ref().map(|(project, _)| project.clone())
}

#[test]
fn a_layout_that_does_not_say_which_queues_begin_anew_begins_them_all() {
    let older = |made| {
        let bytes = codec::encode(&LayoutActivated1 { made, generation: 1 }).unwrap();
        let event = GateEvent::decode_body(KindVersion { kind: 0x0106, version: 1 }, &bytes).unwrap();
        let GateEvent::LayoutActivated(told) = &event else { panic!("{}", event.name()) };
        assert_eq!(told.begun, None);
        event
    };
    assert_eq!(first(&with_queue(older)).as_deref(), Some("app"));
    let GateEvent::LayoutActivated(golden) = golden("gate.layout-activated") else { panic!("it is another kind") };
    assert_eq!(golden.begun, None);
}

#[test]
fn a_layout_that_says_which_queues_begin_anew_is_believed() {
    let none = |made| LayoutActivated { made, generation: 1, begun: Some(Vec::new()) }.into();
    assert_eq!(first(&with_queue(none)).as_deref(), Some("lib"));
    let begun = QueueBegun {
        pipeline: "gate".into(),
        queue: "both".into(),
        first: Some(("app".into(), Some("master".into()))),
    };
    let this = |made| LayoutActivated { made, generation: 1, begun: Some(vec![begun]) }.into();
    assert_eq!(first(&with_queue(this)).as_deref(), Some("app"));
}

/// A build that holds a semaphore and is to take another once it has its nodes.
fn with_leased(own: BuildId, buildset: BuildsetId, attempt: u32) -> GateLive<Maps> {
    let mut live = with_builds(own, buildset, attempt);
    let mut row = build(buildset, "tests", attempt);
    row.state = BuildState::Leased;
    row.job.semaphores.push(SemaphoreWanted { name: "lab".into(), max: 1 });
    row.job.traits.resources_first = vec!["lab".into()];
    live.gate.builds.put(own, row).unwrap();
    live
}

fn held(live: &GateLive<Maps>, build: BuildId) -> Vec<&str> {
    live.gate.semaphores.rows.keys().filter(|key| key.2 == build).map(|key| key.1.as_str()).collect()
}

#[test]
fn what_does_not_say_what_it_frees_or_takes_keeps_what_it_has_and_takes_what_comes_with_its_nodes() {
    let GateEvent::BuildReady(told) = golden("gate.build-ready") else { panic!("it is another kind") };
    assert_eq!(told.freed, None);
    let own = told.started.build;
    let mut live = with_leased(own, told.buildset, told.started.attempt);
    live.apply(&record(1, GateEvent::BuildReady(told))).unwrap();
    assert_eq!(held(&live, own), ["rig"]);

    let GateEvent::BuildStarted(told) = golden("gate.build-started") else { panic!("it is another kind") };
    assert_eq!(told.taken, None);
    let own = told.started.build;
    let mut live = with_leased(own, told.buildset, told.started.attempt);
    live.apply(&record(1, GateEvent::BuildStarted(told))).unwrap();
    assert_eq!(held(&live, own), ["lab", "rig"]);
}

#[test]
fn a_lease_that_does_not_say_what_is_taken_takes_all_but_what_comes_with_the_nodes() {
    let GateEvent::LeaseWanted(told) = golden("gate.lease-wanted") else { panic!("it is another kind") };
    assert_eq!(told.taken, None);
    let own = told.build;
    let waiting = || {
        let mut live = with_leased(own, told.buildset, told.attempt - 1);
        let row = live.gate.builds.rows[&own].clone();
        live.gate.builds.put(own, BuildRow { state: BuildState::Waiting, ..row }).unwrap();
        live.gate.semaphores.rows.clear();
        live
    };
    let mut live = waiting();
    live.apply(&record(1, GateEvent::LeaseWanted(told.clone()))).unwrap();
    assert_eq!(held(&live, own), ["rig"]);

    let mut live = waiting();
    let taken = Some(vec!["lab".into()]);
    live.apply(&record(1, GateEvent::LeaseWanted(LeaseWanted { taken, ..told.clone() }))).unwrap();
    assert_eq!(held(&live, own), ["lab"]);
}

#[test]
fn what_says_what_it_frees_and_takes_is_believed() {
    let GateEvent::BuildReady(mut told) = golden("gate.build-ready") else { panic!("it is another kind") };
    let own = told.started.build;
    told.freed = Some(vec![SemaphoreFreed { semaphore: "rig".into(), build: own }]);
    let mut live = with_leased(own, told.buildset, told.started.attempt);
    let (started, item, buildset) = (told.started.clone(), told.item, told.buildset);
    live.apply(&record(1, GateEvent::BuildReady(told))).unwrap();
    assert_eq!(held(&live, own), [""; 0]);
    assert_eq!(holders(&live), [OTHER, STRANGER]);
    let taken = Some(vec!["rig".into()]);
    live.apply(&record(2, GateEvent::BuildStarted(BuildStarted { started, item, buildset, taken }))).unwrap();
    assert_eq!(held(&live, own), ["rig"]);
}
