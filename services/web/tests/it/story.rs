//! Three changes in the gate: one merges, one fails, one does not merge with what is ahead of it.

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::draft::capacity::{LeaseAsked, NodeWanted};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::gate::described;
use gatelog_record::draft::gate::*;
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, BuildId, BuildsetId, ItemId, LeaseId, Timestamp, Value, WorkId, codec};
use gatelog_rules_config::load::{ConfigFile, LoadInput, load};
use gatelog_rules_config::parse_tenant_file;
use gatelog_rules_config::tenant::ProjectFacts;

use crate::site::{BEGAN, open_settings};

pub const WEIRD: &str = "we/ird \"tenant\" ü";
pub const EVIL: &str = "</script><script>alert(\"1\")</script>\u{1b}[2J\u{202e}\0\n\r\n\ndata: forged";

pub const A: ItemId = ItemId([0xa0; 16]);
pub const B: ItemId = ItemId([0xb0; 16]);
pub const C: ItemId = ItemId([0xc0; 16]);
pub const SET_A: BuildsetId = BuildsetId([0xa1; 16]);
pub const SET_B: BuildsetId = BuildsetId([0xb1; 16]);
pub const SET_C: BuildsetId = BuildsetId([0xc1; 16]);
pub const SET_C2: BuildsetId = BuildsetId([0xc2; 16]);
pub const UNIT_A: BuildId = BuildId([0xa4; 16]);
pub const LINT_A: BuildId = BuildId([0xa5; 16]);
pub const UNIT_B: BuildId = BuildId([0xb4; 16]);
pub const UNIT_C: BuildId = BuildId([0xc4; 16]);

const CONFIG: &str = r#"
- pipeline:
    name: check
    manager: independent
    description: "Every proposed change, by itself."
    trigger:
      forge:
        - event: change-proposed
- pipeline:
    name: gate
    manager: dependent
    trigger:
      forge:
        - event: change-approved
    success:
      forge: {}
- job:
    name: base
    parent: null
    description: "What every job is built on."
- job:
    name: unit
- job:
    name: lint
    voting: false
- job:
    name: broken
    parent: nowhere-to-be-found
- project:
    name: library
    gate:
      jobs: [unit, lint, not-there]
"#;

fn at(sequence: i64) -> Timestamp {
    Timestamp((BEGAN + sequence) * 1_000_000)
}

fn work(number: u8) -> WorkId {
    WorkId([number; 16])
}

pub fn subject(project: &str, change: &str) -> Subject {
    Subject {
        connection: "forge".into(),
        project: format!("forge.example/{project}"),
        branch: Some("master".into()),
        git_ref: format!("refs/for/master/{change}"),
        change: Some(format!("master/{change}")),
        patchset: Some("1".into()),
        commit: Some(format!("c0ffee{}", change.len())),
        old_commit: None,
        url: format!("forge:{project}/master/{change}"),
    }
}

/// The blobs of the story.
pub fn blobs() -> (MemoryBlobs, BlobHash, BlobHash) {
    let tenants = "- tenant:\n    name: demo\n    source:\n      forge:\n        config-projects: [config]\n        untrusted-projects: [library, app]\n";
    let (specs, _) = parse_tenant_file(tenants);
    let facts = |_: &str, name: &str| {
        Some(ProjectFacts {
            canonical_name: format!("forge.example/{name}"),
            default_branch: "master".into(),
            branches: vec!["master".into()],
        })
    };
    let (tenant, _) = specs[0].resolve(facts);
    let file = ConfigFile {
        project: "forge.example/config".into(),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        text: CONFIG.into(),
    };
    let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
    assert_eq!(layout.pipeline_order, ["check", "gate"], "{problems:#?}");
    assert!(!problems.is_empty());
    let blobs = MemoryBlobs::new();
    blobs.put(&open_settings(&["demo", WEIRD])).unwrap();
    let layout = blobs.put(&codec::encode(&layout).unwrap()).unwrap();
    let problems = blobs.put(&codec::encode(&problems).unwrap()).unwrap();
    (blobs, layout, problems)
}

fn project(name: &str, trusted: bool) -> TenantProject {
    TenantProject { connection: "forge".into(), project: format!("forge.example/{name}"), trusted, reads_config: true }
}

fn tenant(name: &str) -> GateEvent {
    GateEvent::TenantConfigured(TenantConfigured {
        tenant: TenantLoaded {
            tenant: name.into(),
            version: 1,
            settings: BlobHash::of(&open_settings(&["demo", WEIRD])),
            projects: vec![project("library", false), project("app", false), project("config", true)],
            web_root: String::new(),
        },
    })
}

fn wait(subject: WaitSubject, code: WaitCode, detail: &str, since: i64) -> GateEvent {
    GateEvent::WaitChanged(WaitChanged {
        subject,
        code: Some(code),
        detail: detail.into(),
        since: at(since),
        unblocks: format!("the end of {}", code.word()),
    })
}

fn enqueued(item: ItemId, of: Subject, ahead: Option<ItemId>, trigger: Option<u64>) -> GateEvent {
    GateEvent::ItemEnqueued(ItemEnqueued {
        item,
        tenant: "demo".into(),
        pipeline: "gate".into(),
        queue: "main".into(),
        subjects: vec![of],
        live: true,
        ahead,
        trigger,
        reason: "trigger".into(),
        window: Some(20),
        parameters: std::collections::BTreeMap::new(),
    })
}

fn opened(item: ItemId, buildset: BuildsetId, ahead: &[ItemId]) -> GateEvent {
    GateEvent::BuildsetOpened(BuildsetOpened { buildset, item, ahead: ahead.to_vec() })
}

fn state(project: &str) -> PreparedState {
    let branch = PreparedBranch {
        at: ProjectBranch {
            connection: "forge".into(),
            project: format!("forge.example/{project}"),
            branch: "master".into(),
        },
        base: "ba5e".into(),
        ahead: "a4ead".into(),
        commit: "c0".into(),
        tree: "7ee".into(),
    };
    PreparedState {
        branches: vec![branch],
        files: None,
        config: vec![],
        touches_config: false,
        item_touches_config: false,
        containing_branches: Vec::new(),
    }
}

fn prepare(number: u8, item: ItemId, buildset: BuildsetId, outcome: PrepareOutcome) -> [GateEvent; 2] {
    [
        GateEvent::PrepareRequested(PrepareRequested {
            work: work(number),
            item,
            buildset,
            steps: Vec::new().into(),
            bases: vec![],
            dated: at(0),
        }),
        GateEvent::Prepared(Prepared {
            item,
            buildset,
            done: PrepareDone { work: work(number), attempt: 1, tenant: "demo".into(), outcome },
        }),
    ]
}

fn freeze(
    number: u8,
    item: ItemId,
    buildset: BuildsetId,
    layout: BlobHash,
    jobs: &[(&str, BuildId)],
) -> [GateEvent; 2] {
    let frozen = |name: &str| FrozenJob {
        name: name.into(),
        spec: BlobHash::of(name.as_bytes()),
        voting: name != "lint",
        attempts: 3,
        dependencies: if name == "lint" { vec![("unit".into(), true)] } else { vec![] },
        semaphores: vec![],
        nodes: vec![NodeWanted { names: vec!["host".into()], label: "debian".into() }],
        noop: false,
        success_message: None,
        failure_message: None,
        traits: Default::default(),
    };
    let outcome = FreezeOutcome::Frozen {
        graph: BlobHash::of(b"graph"),
        trace: BlobHash::of(b"trace"),
        jobs: jobs.iter().map(|(name, _)| frozen(name)).collect(),
        repo_state: vec![],
    };
    [
        GateEvent::FreezeWanted(FreezeWanted {
            work: work(number),
            item,
            buildset,
            tenant: "demo".into(),
            pipeline: "gate".into(),
            layout,
            layout_ahead: None,
            steps: Vec::new().into(),
            state: state("library"),
            projects: vec![],
            parameters: std::collections::BTreeMap::new(),
            own_files: Vec::new(),
        }),
        GateEvent::Frozen(Frozen {
            item,
            buildset,
            done: FreezeDone { work: work(number), attempt: 1, tenant: "demo".into(), outcome },
            builds: jobs.iter().map(|(_, build)| *build).collect(),
        }),
    ]
}

fn lease(item: ItemId, buildset: BuildsetId, build: BuildId, job: &str, attempt: u32) -> GateEvent {
    GateEvent::LeaseWanted(LeaseWanted {
        item,
        buildset,
        build,
        attempt,
        ask: LeaseAsked {
            owner: build_owner("demo", build, attempt),
            share: "demo".into(),
            description: described("demo", "gate", job),
            spec: BlobHash::of(b"spec"),
            nodes: vec![],
            semaphores: vec![],
            priority: 200,
            or_others: false,
        },
        taken: Some(Vec::new()),
    })
}

fn started(item: ItemId, buildset: BuildsetId, build: BuildId, attempt: u32, when: i64) -> GateEvent {
    let started = AttemptStarted {
        tenant: "demo".into(),
        build,
        attempt,
        lease: LeaseId([attempt as u8; 16]),
        worker: "worker-1".into(),
        started_at: at(when),
    };
    GateEvent::BuildStarted(BuildStarted { started, item, buildset, taken: Some(Vec::new()) })
}

fn ended(
    item: ItemId,
    buildset: BuildsetId,
    (build, attempt): (BuildId, u32),
    result: BuildResult,
    (from, to): (i64, i64),
) -> [GateEvent; 2] {
    let retry = result == BuildResult::Retry;
    let artifact = Artifact { name: "docs".into(), url: "docs/".into(), metadata: Value::Str(EVIL.into()) };
    let finished = AttemptFinished {
        tenant: "demo".into(),
        build,
        attempt,
        worker: "worker-1".into(),
        result,
        started_at: at(from),
        finished_at: at(to),
        detail: (result != BuildResult::Success).then(|| EVIL.into()),
        data: Value::Null,
        secret_data: None,
        artifacts: vec![artifact],
        log_url: Some(format!("logs/{build}/{attempt}")),
        kept: Default::default(),
    };
    [
        GateEvent::BuildFinished(BuildFinished {
            finished,
            item,
            buildset,
            retry,
            result: (!retry).then_some(result),
            freed: Some(Vec::new()),
        }),
        GateEvent::LeaseEndWanted(LeaseEndWanted { build, attempt, reason: "finished".into() }),
    ]
}

fn report(number: u8, item: ItemId, action: ReportAction, message: &str) -> [GateEvent; 2] {
    [
        GateEvent::ReportRequested(ReportRequested {
            work: work(number),
            tenant: "demo".into(),
            item: Some(item),
            pipeline: "gate".into(),
            action,
            reporters: vec![("forge".into(), Value::Null)],
            subjects: vec![],
            message: message.into(),
            remarks: Vec::new(),
            requested_at: at(0),
        }),
        GateEvent::ReportDelivered(ReportDelivered {
            item: Some(item),
            done: ReportDone { work: work(number), attempt: 1, tenant: "demo".into(), failed: None },
        }),
    ]
}

fn left(item: ItemId, result: ItemResult, code: &str, merged: bool) -> GateEvent {
    GateEvent::ItemDequeued(ItemDequeued { item, result, code: code.into(), detail: EVIL.into(), merged })
}

/// A tenant's first layout is asked for.
pub fn layout_wanted(tenant: &str) -> GateEvent {
    GateEvent::LayoutWanted(LayoutWanted {
        work: work(1),
        tenant: tenant.into(),
        purpose: LayoutPurpose::Tenant,
        item: None,
        buildset: None,
        settings: BlobHash::of(b"settings"),
        files: vec![],
        ahead: None,
        changed: vec![],
        base: None,
    })
}

/// It is in force, with one error.
pub fn layout_activated(tenant: &str, layout: BlobHash, problems: BlobHash) -> GateEvent {
    GateEvent::LayoutActivated(LayoutActivated {
        made: LayoutMade {
            work: work(1),
            attempt: 1,
            tenant: tenant.into(),
            outcome: LayoutOutcome::Made {
                layout,
                problems,
                errors: 1,
                introduced: vec![],
                loader: 1,
                secrets: vec![],
                warnings: Vec::new(),
            },
        },
        generation: 1,
        begun: None,
    })
}

/// The events after the writer's first one, in order.
pub fn events(layout: BlobHash, problems: BlobHash) -> Vec<GateEvent> {
    let mut told = vec![tenant("demo"), tenant(WEIRD)];
    let mut say = |events: &[GateEvent]| told.extend_from_slice(events);
    say(&[
        wait(WaitSubject::Tenant("demo".into()), WaitCode::Layout, "the configuration is read", 2),
        layout_wanted("demo"),
        layout_activated("demo", layout, problems),
        GateEvent::WaitChanged(WaitChanged {
            subject: WaitSubject::Tenant("demo".into()),
            code: None,
            detail: String::new(),
            since: at(5),
            unblocks: String::new(),
        }),
        GateEvent::TriggerWaiting(TriggerWaiting {
            trigger: 7,
            tenant: "demo".into(),
            cause: TriggerCause::Forge(TriggerReceived {
                tenant: "demo".into(),
                table_version: 1,
                event: ForgeEvent {
                    connection: "forge".into(),
                    project: "forge.example/library".into(),
                    event: "change-approved".into(),
                    branch: Some("master".into()),
                    git_ref: "refs/approved/master/add-miles".into(),
                    change: Some("master/add-miles".into()),
                    patchset: Some("1".into()),
                    commit: None,
                    old_commit: None,
                    attributes: Value::Null,
                    delivery: "1".into(),
                    raw: None,
                },
            }),
            needs_facts: true,
        }),
        enqueued(A, subject("library", "add-miles"), None, Some(7)),
        GateEvent::TriggerSettled(TriggerSettled { trigger: 7, tenant: "demo".into(), verdicts: vec![] }),
        opened(A, SET_A, &[]),
        wait(WaitSubject::Item(A), WaitCode::Prepare, "merging 1 change", 11),
    ]);
    say(&prepare(2, A, SET_A, PrepareOutcome::Merged(state("library"))));
    say(&freeze(3, A, SET_A, layout, &[("unit", UNIT_A), ("lint", LINT_A)]));
    say(&[wait(WaitSubject::Item(A), WaitCode::Jobs, "2 jobs", 16)]);
    say(&[enqueued(B, subject("app", "show-miles"), Some(A), None), opened(B, SET_B, &[A])]);
    say(&prepare(4, B, SET_B, PrepareOutcome::Merged(state("app"))));
    say(&freeze(5, B, SET_B, layout, &[("unit", UNIT_B)]));
    say(&[enqueued(C, subject("library", "again"), Some(B), None), opened(C, SET_C, &[A, B])]);
    say(&prepare(6, C, SET_C, PrepareOutcome::Merged(state("library"))));
    say(&freeze(7, C, SET_C, layout, &[("unit", UNIT_C)]));
    // The first attempt of A's unit is tried again.
    say(&[
        lease(A, SET_A, UNIT_A, "unit", 1),
        wait(WaitSubject::Build(UNIT_A), WaitCode::Lease, EVIL, 29),
        started(A, SET_A, UNIT_A, 1, 30),
        wait(WaitSubject::Build(UNIT_A), WaitCode::Running, "worker-1 runs it", 30),
    ]);
    say(&ended(A, SET_A, (UNIT_A, 1), BuildResult::Retry, (30, 33)));
    say(&[lease(A, SET_A, UNIT_A, "unit", 2), started(A, SET_A, UNIT_A, 2, 35)]);
    say(&[lease(B, SET_B, UNIT_B, "unit", 1), started(B, SET_B, UNIT_B, 1, 36)]);
    say(&ended(A, SET_A, (UNIT_A, 2), BuildResult::Success, (35, 45)));
    say(&ended(B, SET_B, (UNIT_B, 1), BuildResult::Failure, (36, 41)));
    say(&[
        GateEvent::ItemFailing(ItemFailing { item: B, reasons: vec!["unit failed".into()] }),
        GateEvent::BuildSettled(BuildSettled {
            build: UNIT_C,
            item: C,
            buildset: SET_C,
            result: BuildResult::Canceled,
            code: "reset".into(),
            detail: "the change ahead failed".into(),
            freed: Some(Vec::new()),
        }),
        GateEvent::ItemReset(ItemReset {
            item: C,
            ahead: Some(A),
            code: "ahead-failing".into(),
            detail: "app master/show-miles failed".into(),
        }),
        opened(C, SET_C2, &[A]),
    ]);
    say(&prepare(
        8,
        C,
        SET_C2,
        PrepareOutcome::Conflict {
            subject: subject("library", "again"),
            paths: vec!["src/miles.rs".into()],
            message: "it does not merge with library master/add-miles".into(),
        },
    ));
    say(&[GateEvent::BuildSettled(BuildSettled {
        build: LINT_A,
        item: A,
        buildset: SET_A,
        result: BuildResult::Skipped,
        code: "dependency-failed".into(),
        detail: String::new(),
        freed: Some(Vec::new()),
    })]);
    let targets = vec![SubmitTarget {
        subject: subject("library", "add-miles"),
        at: state("library").branches[0].at.clone(),
        tested_base: "ba5e".into(),
        tested_commit: "c0".into(),
        tested_tree: "7ee".into(),
    }];
    say(&[
        GateEvent::SubmitRequested(SubmitRequested { work: work(9), item: A, tenant: "demo".into(), targets }),
        GateEvent::Submitted(Submitted {
            item: A,
            done: SubmitDone { work: work(9), attempt: 1, tenant: "demo".into(), outcome: SubmitOutcome::Merged },
        }),
    ]);
    say(&report(10, A, ReportAction::Success, "Build succeeded."));
    say(&[left(A, ItemResult::Success, "merged", true)]);
    say(&report(11, B, ReportAction::Failure, "Build failed."));
    say(&[left(B, ItemResult::Failure, "reported", false)]);
    say(&report(12, C, ReportAction::MergeConflict, "Merge conflict."));
    say(&[left(C, ItemResult::MergeConflict, "reported", false)]);
    told
}
