//! A story told twice: written onto a memory log record by record, and explained from it.

use gatelog_event_log::{EventWriter, MemoryBlobs, MemoryLog};
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseEnded, LeaseGranted, LeaseQueued, LeaseWaitChanged, NodeGrant, NodeWanted,
};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::gate::described;
use gatelog_record::draft::gate::*;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::draft::partition::WriterStarted;
use gatelog_record::event::{CapacityEvent, GateEvent, PartitionEvent};
use gatelog_record::input::{CapacityInput, GateInput, IntakeInput};
use gatelog_record::*;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeSubject, FreezeTrace, LoadInput, TenantProject, TenantSettings, freeze, load,
};

use super::*;

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
const ITEM: ItemId = ItemId([0xa1; 16]);
const AHEAD: ItemId = ItemId([0xb2; 16]);
const BEGAN: i64 = 1_709_164_800_000_000;

struct Lane {
    partition: Partition,
    writer: Box<dyn EventWriter>,
    sequence: u64,
    link: ChainLink,
    inputs: u64,
}

/// Writes records as the shells would.
struct Script {
    log: MemoryLog,
    blobs: MemoryBlobs,
    lanes: Vec<Lane>,
    now: Timestamp,
}

impl Script {
    fn new() -> Script {
        let log = MemoryLog::default();
        let mut script = Script { log, blobs: MemoryBlobs::default(), lanes: Vec::new(), now: Timestamp(BEGAN) };
        for partition in [GATE, CAPACITY] {
            let (_, writer) = script.log.claim(partition).unwrap();
            script.lanes.push(Lane { partition, writer, sequence: 0, link: ChainLink::GENESIS, inputs: 0 });
            let started = WriterStarted {
                term: 1,
                build: "0.1.0".into(),
                registry: [0; 32],
                site: SiteId([1; 16]),
                generation: 1,
            };
            script.write(partition, Cause::Start, None, vec![PartitionEvent::from(started).into()]);
        }
        script
    }

    fn after(&mut self, millis: i64) -> &mut Script {
        self.now = self.now.plus_millis(millis);
        self
    }

    fn write(&mut self, partition: Partition, cause: Cause, header: Option<DecisionHeader>, events: Vec<Event>) -> u64 {
        let now = self.now;
        let lane = self.lanes.iter_mut().find(|lane| lane.partition == partition).unwrap();
        let first = lane.sequence + 1;
        let mut header = header;
        for event in events {
            lane.sequence += 1;
            let record = EventRecord {
                sequence: lane.sequence,
                term: 1,
                recorded_at: now,
                wall_at: now,
                id: EventId([lane.sequence as u8; 16]),
                cause,
                actor: ActorId::SYSTEM,
                key: "demo".into(),
                traceparent: String::new(),
                decision: header.take(),
                event,
            };
            let (bytes, link) = record.close().unwrap().encode(&lane.link);
            lane.link = link;
            lane.writer.append(vec![bytes]).wait().unwrap().unwrap();
        }
        first
    }

    fn intake(&mut self, event: ForgeEvent) -> u64 {
        let record = InputRecord::new(InputId::new("d"), "demo", self.now, IntakeInput::ForgeEvent(event));
        let bytes = record.close().unwrap().encode();
        self.log.append_inputs(Stream::Intake(0), vec![bytes]).wait().unwrap().unwrap()[0].0
    }

    /// One decision: an input, where it came from, and what was decided. Gives the first event's sequence.
    fn decide(
        &mut self,
        partition: Partition,
        input: impl Into<Input>,
        source: Option<Source>,
        caused_by: Option<EventRef>,
        events: Vec<Event>,
    ) -> u64 {
        let lane = self.lanes.iter_mut().find(|lane| lane.partition == partition).unwrap();
        lane.inputs += 1;
        let input_sequence = lane.inputs;
        let mut record = InputRecord::new(InputId::new(format!("i{input_sequence}")), "demo", self.now, input);
        record.source = source;
        record.caused_by = caused_by;
        let bytes = record.close().unwrap().encode();
        let input_digest = InputFrame::digest(&bytes);
        let input_offset = self.log.append_inputs(Stream::Inputs(partition), vec![bytes]).wait().unwrap().unwrap()[0].0;
        let header = DecisionHeader {
            input_sequence,
            input_offset,
            input_digest,
            now: self.now,
            input_id: record.input_id.clone(),
            source,
            caused_by,
        };
        self.write(partition, Cause::Input { offset: input_offset }, Some(header), events)
    }

    fn explainer(&self, until: Moment) -> Result<Explainer<'_>, ExplainError> {
        Explainer::read(&crate::domains(), &self.log, &self.blobs, until)
    }

    fn told(&self, what: &str, job: Option<&str>) -> String {
        let explainer = self.explainer(Moment::Newest).unwrap();
        let explanation = explainer.explain(&explainer.find(what, None).unwrap(), job).unwrap();
        explanation.render().iter().map(|line| format!("{}\n", line.text)).collect()
    }
}

fn subject(change: &str) -> Subject {
    Subject {
        connection: "forge".into(),
        project: "git.demo/library".into(),
        branch: Some("master".into()),
        git_ref: format!("refs/for/master/{change}"),
        change: Some(format!("master/{change}")),
        patchset: Some("1".into()),
        commit: Some("c0ffee00".repeat(5)),
        old_commit: None,
        url: format!("https://git.demo/library/+/master/{change}"),
    }
}

fn gate(event: impl Into<GateEvent>) -> Event {
    event.into().into()
}

fn capacity(event: impl Into<CapacityEvent>) -> Event {
    event.into().into()
}

fn caused(partition: Partition, sequence: u64) -> Option<EventRef> {
    Some(EventRef { partition, sequence })
}

fn waits(subject: WaitSubject, code: Option<WaitCode>, detail: &str, since: Timestamp) -> Event {
    gate(WaitChanged { subject, code, detail: detail.into(), since, unblocks: "that".into() })
}

fn enqueued(item: ItemId, change: &str, ahead: Option<ItemId>, trigger: u64) -> Event {
    gate(ItemEnqueued {
        item,
        tenant: "demo".into(),
        pipeline: "gate".into(),
        queue: "demo".into(),
        subjects: vec![subject(change)],
        live: true,
        ahead,
        trigger: Some(trigger),
        reason: "trigger".into(),
        window: None,
        parameters: std::collections::BTreeMap::new(),
    })
}

/// The jobs of `git.demo/library` in the gate: `tests`, and `docs`, which is for another branch.
fn frozen() -> FreezeTrace {
    let text = "
- pipeline: {name: gate, manager: dependent}
- job: {name: tests, parent: null, run: tests.yaml}
- job: {name: docs, parent: null, run: docs.yaml, branches: stable/x}
- project: {name: library, gate: {jobs: [tests, docs]}}
";
    let project = |name: &str, trusted| TenantProject {
        canonical_name: format!("git.demo/{name}"),
        branches: vec!["master".into()],
        ..TenantProject::new("forge", name, trusted)
    };
    let (project, branch) = (vec![project("config", true), project("library", false)], "master".to_owned());
    let file = ConfigFile {
        project: "git.demo/config".into(),
        branch: branch.clone(),
        path: "zuul.yaml".into(),
        text: text.into(),
    };
    let tenant = TenantSettings { projects: project, ..TenantSettings::default() };
    let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
    assert!(problems.is_empty(), "{problems:?}");
    let subject =
        FreezeSubject { project: "git.demo/library".into(), branch: Some(branch), ..FreezeSubject::default() };
    freeze(&layout, &subject, "gate", FreezeOptions::default()).trace().clone()
}

/// A change is approved, tested behind another, reset, tested again and merged.
fn story() -> Script {
    let mut script = Script::new();
    let gates = |number: u8| BuildsetId([number; 16]);
    let trace = frozen();
    let trace = script.blobs.put(&codec::encode(&trace).unwrap()).unwrap();

    let forge_event = ForgeEvent {
        connection: "forge".into(),
        project: "git.demo/library".into(),
        event: "change-approved".into(),
        branch: Some("master".into()),
        git_ref: "refs/approved/master/add-miles".into(),
        change: Some("master/add-miles".into()),
        patchset: Some("1".into()),
        commit: None,
        old_commit: None,
        attributes: Value::Null,
        delivery: "d1".into(),
        raw: None,
    };
    // Another event comes first, so that a place off by one shows.
    script.intake(ForgeEvent { delivery: "d0".into(), event: "change-proposed".into(), ..forge_event.clone() });
    let offset = script.intake(forge_event.clone());
    let received = TriggerReceived { tenant: "demo".into(), table_version: 1, event: forge_event };
    let routed = Source { partition: Partition { domain: Domain::Intake, index: 0 }, sequence: offset + 1, ordinal: 0 };
    let wanted = ChangesWanted {
        work: WorkId([1; 16]),
        tenant: "demo".into(),
        connection: "forge".into(),
        changes: vec![subject("add-miles").change_key().unwrap()],
        with_needed_by: false,
        among: Vec::new(),
        purpose: FactsPurpose::Trigger { trigger: 1 },
    };
    let cause = TriggerCause::Forge(received.clone());
    let waiting = TriggerWaiting { trigger: 1, tenant: "demo".into(), cause, needs_facts: true };
    script.after(1).decide(
        GATE,
        GateInput::TriggerReceived(received),
        Some(routed),
        None,
        vec![gate(waiting), gate(wanted)],
    );
    let found = ChangesFound {
        work: WorkId([1; 16]),
        attempt: 1,
        tenant: "demo".into(),
        changes: Vec::new(),
        missing: Vec::new(),
        failed: None,
    };
    let now = script.after(10).now;
    script.decide(
        GATE,
        GateInput::ChangesFound(found),
        None,
        caused(GATE, 3),
        vec![
            enqueued(AHEAD, "faster", None, 1),
            enqueued(ITEM, "add-miles", Some(AHEAD), 1),
            gate(BuildsetOpened { buildset: gates(0xc1), item: ITEM, ahead: vec![AHEAD] }),
            waits(WaitSubject::Item(ITEM), Some(WaitCode::Prepare), "its state is prepared", now),
        ],
    );
    test_once(&mut script, gates(0xc1), BuildId([0xd1; 16]), LeaseId([0xe1; 16]), trace, None);
    // The item ahead fails: everything begins anew.
    let now = script.after(500).now;
    let canceled = BuildSettled {
        build: BuildId([0xd1; 16]),
        item: ITEM,
        buildset: gates(0xc1),
        result: BuildResult::Canceled,
        code: "reset".into(),
        detail: "master/faster ahead of it is failing".into(),
        freed: Some(Vec::new()),
    };
    let reset = ItemReset {
        item: ITEM,
        ahead: None,
        code: "ahead-failing".into(),
        detail: "master/faster ahead of it is failing".into(),
    };
    script.decide(
        GATE,
        GateInput::AttemptStarted(started(BuildId([7; 16]), LeaseId([7; 16]))),
        None,
        None,
        vec![
            gate(canceled),
            gate(reset),
            gate(BuildsetOpened { buildset: gates(0xc2), item: ITEM, ahead: Vec::new() }),
            waits(WaitSubject::Item(ITEM), Some(WaitCode::Prepare), "its state is prepared", now),
        ],
    );
    let result = Some(BuildResult::Success);
    test_once(&mut script, gates(0xc2), BuildId([0xd2; 16]), LeaseId([0xe2; 16]), trace, result);
    let asked = PromoteAsked {
        tenant: "demo".into(),
        pipeline: "gate".into(),
        changes: vec![subject("add-miles").change_key().unwrap()],
        reason: "for the release".into(),
    };
    let first = QueueReordered {
        tenant: "demo".into(),
        pipeline: "gate".into(),
        queue: "demo".into(),
        items: vec![ITEM],
        quiet: Vec::new(),
        code: "promoted".into(),
        detail: "for the release".into(),
        turned: Vec::new(),
    };
    script.decide(GATE, GateInput::PromoteAsked(asked), None, None, vec![gate(first)]);
    merge(&mut script);
    script
}

fn started(build: BuildId, lease: LeaseId) -> AttemptStarted {
    let started_at = Timestamp(BEGAN);
    AttemptStarted { tenant: "demo".into(), build, attempt: 1, lease, worker: "local".into(), started_at }
}

/// Prepared, frozen, leased, run; with a result it also ends.
fn test_once(
    script: &mut Script,
    buildset: BuildsetId,
    build: BuildId,
    lease: LeaseId,
    trace: BlobHash,
    result: Option<BuildResult>,
) {
    let branch = PreparedBranch {
        at: ProjectBranch { connection: "forge".into(), project: "git.demo/library".into(), branch: "master".into() },
        base: "ba5e0000".repeat(5),
        ahead: "ba5e0000".repeat(5),
        commit: "c0441700".repeat(5),
        tree: "74ee0000".repeat(5),
    };
    let state = PreparedState {
        branches: vec![branch],
        files: None,
        config: Vec::new(),
        touches_config: false,
        item_touches_config: false,
        containing_branches: Vec::new(),
    };
    let outcome = PrepareOutcome::Merged(state);
    let done = PrepareDone { work: WorkId([2; 16]), attempt: 1, tenant: "demo".into(), outcome };
    let prepared = Prepared { item: ITEM, buildset, done: done.clone() };
    script.after(20).decide(GATE, GateInput::PrepareDone(done), None, None, vec![gate(prepared)]);
    let job = FrozenJob {
        name: "tests".into(),
        spec: BlobHash([9; 32]),
        voting: true,
        attempts: 3,
        dependencies: Vec::new(),
        semaphores: Vec::new(),
        nodes: Vec::new(),
        noop: false,
        success_message: None,
        failure_message: None,
        traits: Default::default(),
    };
    let outcome = FreezeOutcome::Frozen { graph: BlobHash([8; 32]), trace, jobs: vec![job], repo_state: Vec::new() };
    let done = FreezeDone { work: WorkId([3; 16]), attempt: 1, tenant: "demo".into(), outcome };
    let frozen = Frozen { item: ITEM, buildset, done: done.clone(), builds: vec![build] };
    let node = NodeWanted { names: vec!["worker".into()], label: "sandbox".into() };
    let ask = LeaseAsked {
        owner: build_owner("demo", build, 1),
        share: "demo".into(),
        description: described("demo", "gate", "tests"),
        spec: BlobHash([9; 32]),
        nodes: vec![node.clone()],
        semaphores: Vec::new(),
        priority: 100,
        or_others: false,
    };
    let now = script.after(30).now;
    let first = script.decide(
        GATE,
        GateInput::FreezeDone(done),
        None,
        None,
        vec![
            gate(frozen),
            gate(LeaseWanted { item: ITEM, buildset, build, attempt: 1, ask: ask.clone(), taken: Some(Vec::new()) }),
            waits(WaitSubject::Item(ITEM), Some(WaitCode::Jobs), "its jobs run", now),
            waits(WaitSubject::Build(build), Some(WaitCode::Lease), "nodes and a worker are asked for", now),
        ],
    );
    let source = Some(Source { partition: GATE, sequence: first + 1, ordinal: 0 });
    let now = script.after(2).now;
    let wait = LeaseWaitChanged {
        lease,
        code: "no-slot".into(),
        subject: String::new(),
        detail: "all 2 slots are taken".into(),
        since: now,
    };
    script.decide(
        CAPACITY,
        CapacityInput::LeaseAsked(ask.clone()),
        source,
        caused(GATE, first + 1),
        vec![capacity(LeaseQueued { lease, ask }), capacity(wait)],
    );
    let granted = LeaseGranted {
        lease,
        owner: build_owner("demo", build, 1),
        spec: BlobHash([9; 32]),
        nodes: vec![NodeGrant { node: NodeId([4; 16]), wanted: node }],
        worker: "local".into(),
        incarnation: "1".into(),
        waited_ms: 2_500,
    };
    let released = gatelog_record::draft::capacity::LeaseReleased {
        lease: LeaseId([6; 16]),
        worker: "local".into(),
        incarnation: "1".into(),
    };
    script.after(2_500).decide(CAPACITY, CapacityInput::LeaseReleased(released), None, None, vec![capacity(granted)]);
    let now = script.after(3).now;
    let began = started(build, lease);
    script.decide(
        GATE,
        GateInput::AttemptStarted(began.clone()),
        None,
        None,
        vec![
            gate(BuildStarted { started: began, item: ITEM, buildset, taken: Some(Vec::new()) }),
            waits(WaitSubject::Build(build), Some(WaitCode::Running), "local runs it", now),
        ],
    );
    let Some(result) = result else { return };
    let finished = AttemptFinished {
        tenant: "demo".into(),
        build,
        attempt: 1,
        worker: "local".into(),
        result,
        started_at: Timestamp(BEGAN),
        finished_at: Timestamp(BEGAN).plus_millis(1_800),
        detail: Some("ok=3".into()),
        data: Value::Null,
        secret_data: None,
        artifacts: Vec::new(),
        log_url: Some("http://log/1".into()),
        kept: Default::default(),
    };
    let done = BuildFinished {
        finished: finished.clone(),
        item: ITEM,
        buildset,
        retry: false,
        result: Some(result),
        freed: Some(Vec::new()),
    };
    let input = GateInput::AttemptFinished(finished);
    script.after(1_800).decide(GATE, input, None, None, vec![gate(done)]);
    let ended = LeaseEnded { lease, reason: "finished".into(), tell_owner: false, message: String::new() };
    let asked = gatelog_record::draft::capacity::LeaseEndAsked {
        owner: build_owner("demo", build, 1),
        reason: "finished".into(),
    };
    script.after(1).decide(CAPACITY, CapacityInput::LeaseEndAsked(asked), None, None, vec![capacity(ended)]);
}

fn merge(script: &mut Script) {
    let target = SubmitTarget {
        subject: subject("add-miles"),
        at: ProjectBranch { connection: "forge".into(), project: "git.demo/library".into(), branch: "master".into() },
        tested_base: "ba5e0000".repeat(5),
        tested_commit: "c0441700".repeat(5),
        tested_tree: "74ee0000".repeat(5),
    };
    let wanted = SubmitRequested { work: WorkId([5; 16]), item: ITEM, tenant: "demo".into(), targets: vec![target] };
    let found = ChangesFound {
        work: WorkId([4; 16]),
        attempt: 1,
        tenant: "demo".into(),
        changes: Vec::new(),
        missing: Vec::new(),
        failed: None,
    };
    let asked = script.after(5).decide(GATE, GateInput::ChangesFound(found), None, None, vec![gate(wanted)]);
    let done = SubmitDone { work: WorkId([5; 16]), attempt: 1, tenant: "demo".into(), outcome: SubmitOutcome::Merged };
    let report = ReportRequested {
        work: WorkId([6; 16]),
        tenant: "demo".into(),
        item: Some(ITEM),
        pipeline: "gate".into(),
        action: ReportAction::Success,
        reporters: vec![("forge".into(), Value::Null)],
        subjects: vec![subject("add-miles")],
        message: "SUCCESS".into(),
        remarks: Vec::new(),
        requested_at: script.now,
    };
    let left = ItemDequeued {
        item: ITEM,
        result: ItemResult::Success,
        code: "merged".into(),
        detail: String::new(),
        merged: true,
    };
    let reported = script.after(6).decide(
        GATE,
        GateInput::SubmitDone(done.clone()),
        None,
        caused(GATE, asked),
        vec![gate(Submitted { item: ITEM, done }), gate(report), gate(left)],
    );
    let done = ReportDone { work: WorkId([6; 16]), attempt: 1, tenant: "demo".into(), failed: None };
    script.after(4).decide(
        GATE,
        GateInput::ReportDone(done.clone()),
        None,
        caused(GATE, reported + 1),
        vec![gate(ReportDelivered { item: Some(ITEM), done })],
    );
}

/// Compares with a file; `GATELOG_UPDATE_GOLDENS=1` writes it anew.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explain/goldens").join(name);
    if std::env::var_os("GATELOG_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} reads otherwise now:\n{text}");
}

#[test]
fn a_change_is_told_from_its_approval_to_its_merge() {
    golden("change.txt", &story().told("add-miles", None));
}

#[test]
fn a_job_says_why_it_runs_and_why_it_does_not() {
    let script = story();
    golden("job.txt", &script.told("add-miles", Some("tests")));
    let absent = script.told("add-miles", Some("docs"));
    assert!(absent.contains("job docs does not run for git.demo/library master/add-miles,1"), "{absent}");
    assert!(absent.contains("branch master does not match `branches`: stable/x [branch-differs]"), "{absent}");
    let explainer = script.explainer(Moment::Newest).unwrap();
    let error = explainer.explain(&Found::Item(ITEM), Some("tets")).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean tests?"));
    let error = explainer.explain(&Found::Item(AHEAD), Some("tests")).unwrap_err();
    assert!(matches!(error, ExplainError::NothingFrozen { .. }), "{error}");
}

#[test]
fn a_worker_s_word_is_followed_across_domains_to_the_outside() {
    let script = story();
    let explainer = script.explainer(Moment::Newest).unwrap();
    let started = explainer.index.started[&(BuildId([0xd1; 16]), 1)];
    let steps: Vec<String> = explainer.way_to(started).unwrap().into_iter().map(|step| step.step).collect();
    // What a worker says is followed to its grant, and a grant to the worker that freed the slot.
    assert_eq!(
        steps,
        ["capacity.in.lease-released", "capacity.lease-granted", "gate.in.attempt-started", "gate.build-started"]
    );
    let queued = script.told("capacity:2", None);
    assert!(queued.contains("gate.lease-wanted"), "{queued}");
    let enqueued = explainer.way_to(EventRef { partition: GATE, sequence: 5 }).unwrap();
    let places: Vec<String> =
        enqueued.iter().map(|step| format!("{} {} {}", step.step, step.spot.stream, step.spot.sequence)).collect();
    assert_eq!(
        places,
        [
            "intake.forge-event intake/0 1",
            "gate.in.trigger-received gate.inputs/0 0",
            "gate.changes-wanted gate.events/0 3",
            "gate.in.changes-found gate.inputs/0 1",
            "gate.item-enqueued gate.events/0 5",
        ]
    );
}

#[test]
fn names_are_understood_as_people_give_them() {
    let script = story();
    let explainer = script.explainer(Moment::Newest).unwrap();
    let change = explainer.find("add-miles", None).unwrap();
    for name in [
        "master/add-miles",
        "master/add-miles,1",
        "git.demo/library master/add-miles",
        "https://git.demo/library/+/master/add-miles",
    ] {
        assert_eq!(explainer.find(name, None).unwrap(), change, "{name}");
    }
    assert_eq!(explainer.find("a1a1", None).unwrap(), Found::Item(ITEM));
    assert_eq!(explainer.find("c2C2c2-c2", None).unwrap(), Found::Buildset(BuildsetId([0xc2; 16])));
    assert_eq!(explainer.find("d1d1d1d1", None).unwrap(), Found::Build(BuildId([0xd1; 16])));
    assert_eq!(explainer.find("5", None).unwrap(), Found::Event(EventRef { partition: GATE, sequence: 5 }));
    let error = explainer.find("ad-miles", None).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean add-miles?"));
    assert!(matches!(explainer.find("gate:999", None).unwrap_err(), ExplainError::NoEvent { newest: 31.., .. }));
    assert!(matches!(explainer.find("a1a", None).unwrap_err(), ExplainError::Unknown { .. }));
    assert!(matches!(explainer.find("add-miles", Some("other")).unwrap_err(), ExplainError::NoTenant { .. }));
}

#[test]
fn as_of_a_moment_nothing_later_is_known() {
    let script = story();
    let explainer = script.explainer(Moment::Sequence(7)).unwrap();
    let Explanation::Item(story) = explainer.explain(&Found::Item(ITEM), None).unwrap() else { panic!() };
    assert!(story.left.is_none() && story.merges.is_empty() && story.buildsets[0].prepared.is_none());
    let text: Vec<String> = Explanation::Item(story).render().into_iter().map(|line| line.text).collect();
    assert!(
        text.iter().any(|line| line.contains("waits for prepare since 00:00:00.011: its state is prepared")),
        "{text:?}"
    );
    let error = script.explainer(Moment::Sequence(999)).err().unwrap();
    assert!(error.to_string().contains("has no event 999 yet"), "{error}");
}

#[test]
fn json_has_the_same_structure_with_ids_in_hex() {
    let script = story();
    let explainer = script.explainer(Moment::Newest).unwrap();
    let json = explainer.explain(&Found::Item(ITEM), None).unwrap().to_json();
    let item = &json["item"];
    assert_eq!(item["item"], ITEM.to_string());
    assert_eq!(item["enqueued"]["time"], "2024-02-29T00:00:00.011000Z");
    assert_eq!(item["buildsets"][1]["builds"][0]["attempts"][0]["waited_millis"], 2_500);
    assert_eq!(item["buildsets"][0]["reset"]["text"], "master/faster ahead of it is failing [ahead-failing]");
    assert_eq!(item["left"]["result"], "SUCCESS");
    let codes: Vec<&str> =
        item["waits"].as_array().unwrap().iter().map(|wait| wait["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["prepare", "jobs", "prepare", "jobs"]);
}
