//! An event that does not fit the state is a named error, never a silent no-op, and never a panic.

use gatelog_gate_state::GateLive;
use gatelog_record::draft::capacity::LeaseAsked;
use gatelog_record::draft::gate::{
    AttemptFinished, AttemptStarted, BuildFinished, BuildResult, BuildSettled, BuildStarted, BuildsetOpened, ChangeKey,
    ChangesForgotten, ChangesFound, ChangesObserved, ChangesWanted, ConfigFilesFound, ConfigRead, ConfigReadWanted,
    ConfigScope, FactsPurpose, FreezeDone, FreezeOutcome, Frozen, ItemDequeued, ItemEnqueued, ItemFailing, ItemReset,
    ItemResult, LayoutActivated, LayoutMade, LayoutOutcome, LeaseWanted, PrepareDone, PrepareOutcome, PrepareRequested,
    Prepared, ReportDelivered, ReportDone, ReturnedBlob, ReturnedChange, ReturnedChanged, SubmitDone, SubmitOutcome,
    SubmitRequested, Submitted, TriggerSettled, WaitChanged, WaitSubject, WindowChanged, build_owner, described,
};
use gatelog_record::draft::partition::WorkResent;
use gatelog_record::event::GateEvent;
use gatelog_record::{
    ActorId, BlobHash, BuildId, BuildsetId, Cause, Event, EventId, EventRecord, ItemId, LeaseId, Timestamp, Value,
    WorkId,
};
use gatelog_tables::{LiveTables, Maps};

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

const ITEM: ItemId = ItemId([1; 16]);
const SET: BuildsetId = BuildsetId([2; 16]);
const BUILD: BuildId = BuildId([3; 16]);
const WORK: WorkId = WorkId([4; 16]);

fn text(text: &str) -> String {
    text.to_owned()
}

/// Events that speak of what is not there.
fn strangers() -> Vec<GateEvent> {
    let tenant = || text("acme");
    let (work, attempt) = (WORK, 1);
    let failed = |code: &str| (text(code), text("it rains"));
    let (code, message) = failed("weather");
    let finished = AttemptFinished {
        tenant: tenant(),
        build: BUILD,
        attempt,
        worker: text("w"),
        result: BuildResult::Success,
        started_at: Timestamp(0),
        finished_at: Timestamp(1),
        detail: None,
        data: Value::Null,
        secret_data: None,
        artifacts: Vec::new(),
        log_url: None,
        kept: Default::default(),
    };
    let ask = LeaseAsked {
        owner: build_owner(&tenant(), BUILD, attempt),
        share: tenant(),
        description: described(&tenant(), "check", "tests"),
        spec: BlobHash::default(),
        nodes: Vec::new(),
        semaphores: Vec::new(),
        priority: 200,
        or_others: false,
    };
    let started = AttemptStarted {
        tenant: tenant(),
        build: BUILD,
        attempt,
        lease: LeaseId::default(),
        worker: text("w"),
        started_at: Timestamp(0),
    };
    vec![
        ConfigReadWanted { work, tenant: tenant(), scope: ConfigScope::Tenant, projects: Vec::new() }.into(),
        ConfigRead {
            found: ConfigFilesFound { work, attempt, tenant: tenant(), sets: Vec::new(), failed: Vec::new() },
            replaces: Vec::new(),
            changed: false,
        }
        .into(),
        LayoutActivated {
            made: LayoutMade {
                work,
                attempt,
                tenant: tenant(),
                outcome: LayoutOutcome::Failed { code: code.clone(), message: message.clone() },
            },
            generation: 1,
            begun: None,
        }
        .into(),
        ChangesWanted {
            work,
            tenant: tenant(),
            connection: text("git"),
            changes: Vec::new(),
            with_needed_by: false,
            among: Vec::new(),
            purpose: FactsPurpose::Trigger { trigger: 7 },
        }
        .into(),
        ChangesObserved {
            found: ChangesFound {
                work,
                attempt,
                tenant: tenant(),
                changes: Vec::new(),
                missing: Vec::new(),
                failed: None,
            },
        }
        .into(),
        ChangesForgotten { tenant: tenant(), changes: vec![ChangeKey { project: text("p"), change: text("c") }] }
            .into(),
        TriggerSettled { trigger: 7, tenant: tenant(), verdicts: Vec::new() }.into(),
        WaitChanged {
            subject: WaitSubject::Item(ITEM),
            code: None,
            detail: text(""),
            since: Timestamp(0),
            unblocks: text(""),
        }
        .into(),
        WorkResent { work, attempt: 2, not_before: Timestamp(0) }.into(),
        ItemEnqueued {
            item: ITEM,
            tenant: tenant(),
            pipeline: text("check"),
            queue: text("q"),
            subjects: Vec::new(),
            live: true,
            ahead: Some(ItemId([9; 16])),
            trigger: None,
            reason: text("trigger"),
            window: None,
            parameters: std::collections::BTreeMap::new(),
        }
        .into(),
        BuildsetOpened { buildset: SET, item: ITEM, ahead: Vec::new() }.into(),
        PrepareRequested {
            work,
            item: ITEM,
            buildset: SET,
            steps: Vec::new().into(),
            bases: Vec::new(),
            dated: Timestamp(0),
        }
        .into(),
        Prepared {
            item: ITEM,
            buildset: SET,
            done: PrepareDone {
                work,
                attempt,
                tenant: tenant(),
                outcome: PrepareOutcome::Failed { code: code.clone(), message: message.clone(), again: false },
            },
        }
        .into(),
        Frozen {
            item: ITEM,
            buildset: SET,
            done: FreezeDone {
                work,
                attempt,
                tenant: tenant(),
                outcome: FreezeOutcome::Failed { code, message, again: false },
            },
            builds: Vec::new(),
        }
        .into(),
        ItemFailing { item: ITEM, reasons: Vec::new() }.into(),
        ItemReset { item: ITEM, ahead: None, code: text("x"), detail: text("") }.into(),
        WindowChanged { tenant: tenant(), pipeline: text("gate"), queue: text("q"), window: 3, code: text("success") }
            .into(),
        SubmitRequested { work, item: ITEM, tenant: tenant(), targets: Vec::new() }.into(),
        Submitted { item: ITEM, done: SubmitDone { work, attempt, tenant: tenant(), outcome: SubmitOutcome::Merged } }
            .into(),
        ReportDelivered { item: None, done: ReportDone { work, attempt, tenant: tenant(), failed: None } }.into(),
        ItemDequeued { item: ITEM, result: ItemResult::Success, code: text("x"), detail: text(""), merged: true }
            .into(),
        LeaseWanted { item: ITEM, buildset: SET, build: BUILD, attempt, ask, taken: Some(Vec::new()) }.into(),
        BuildStarted { started, item: ITEM, buildset: SET, taken: Some(Vec::new()) }.into(),
        BuildFinished {
            finished,
            item: ITEM,
            buildset: SET,
            retry: false,
            result: Some(BuildResult::Success),
            freed: Some(Vec::new()),
        }
        .into(),
        BuildSettled {
            build: BUILD,
            item: ITEM,
            buildset: SET,
            result: BuildResult::Skipped,
            code: text("x"),
            detail: text(""),
            freed: Some(Vec::new()),
        }
        .into(),
        ReturnedChanged { build: BUILD, change: dropped(1, Timestamp(0)) }.into(),
        ReturnedChanged { build: BUILD, change: ReturnedChange::Removed }.into(),
    ]
}

fn dropped(blob: u8, unused_since: Timestamp) -> ReturnedChange {
    ReturnedChange::Dropped { blobs: returned(blob), unused_since, keep_days: 90 }
}

fn returned(blob: u8) -> Vec<ReturnedBlob> {
    vec![ReturnedBlob { blob: BlobHash([blob; 32]), size: 70_000 }]
}

#[test]
fn events_about_what_is_not_there_are_refused_by_name() {
    for event in strangers() {
        let mut live = GateLive::<Maps>::in_memory();
        let name = event.name();
        let refused = live.apply(&record(1, event)).expect_err(name).to_string();
        assert!(refused.contains("has no row") || refused.contains("does not"), "{name}: {refused}");
    }
}

#[test]
fn events_of_another_domain_and_out_of_order_are_refused() {
    let mut live = GateLive::<Maps>::in_memory();
    let done = ReportDone { work: WORK, attempt: 1, tenant: text("acme"), failed: None };
    let later = live.apply(&record(2, GateEvent::from(ReportDelivered { item: None, done })));
    assert_eq!(later.expect_err("a gap").to_string(), "event 2 cannot follow event 0");
    let lost =
        gatelog_record::draft::capacity::WorkerLost { worker: text("w"), incarnation: text("1"), reason: text("left") };
    let other = live.apply(&record(1, gatelog_record::event::CapacityEvent::from(lost)));
    assert_eq!(other.expect_err("not ours").to_string(), "capacity.worker-lost is not an event of the gate");
}

#[test]
fn what_a_build_returned_is_dropped_as_it_is_and_removed_after_that() {
    let mut live = GateLive::<Maps>::in_memory();
    let said = |change| GateEvent::from(ReturnedChanged { build: BUILD, change });
    let at = Timestamp(5);
    live.apply(&record(1, said(ReturnedChange::Late { blobs: returned(1) }))).unwrap();
    for wrong in [dropped(2, at), dropped(1, Timestamp(4)), ReturnedChange::Removed] {
        let before = live.gate.returned.rows.get(&BUILD).cloned();
        let refused = live.overlay().apply(&record(2, said(wrong))).unwrap_err().to_string();
        assert!(refused.contains("is dropped while it is") || refused.contains("is removed while it is"), "{refused}");
        assert_eq!(live.gate.returned.rows.get(&BUILD), before.as_ref());
    }
    live.apply(&record(2, said(dropped(1, at)))).unwrap();
    live.apply(&record(3, said(ReturnedChange::Removed))).unwrap();
    assert_eq!(live.gate.returned.rows.len(), 0);
}
