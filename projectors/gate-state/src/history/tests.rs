//! Whatever the gate decided up to an event is what reading as of that event shows.

use std::collections::BTreeMap;

use gatelog_record::draft::capacity::LeaseAsked;
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::gate::described;
use gatelog_record::draft::gate::*;
use gatelog_record::event::{GateEvent, PartitionEvent};
use gatelog_record::{
    ActorId, BlobHash, BuildId, BuildsetId, Cause, Event, EventId, EventRecord, ItemId, LeaseId, SiteId, Timestamp,
    Value, WorkId,
};
use gatelog_tables::{FoldRefused, LiveTables, Maps, TableExt};
use proptest::prelude::*;

use super::{GateRead, List};
use crate::live::GateLive;

fn id(kind: u8, number: u64) -> [u8; 16] {
    let mut bytes = [kind; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn subject(project: &str, change: &str) -> Subject {
    Subject {
        connection: "git".into(),
        project: format!("forge.example/{project}"),
        branch: Some("master".into()),
        git_ref: format!("refs/for/master/{change}"),
        change: Some(format!("master/{change}")),
        patchset: Some("1".into()),
        commit: Some("c0ffee".into()),
        old_commit: None,
        url: format!("git:{project}/master/{change}"),
    }
}

fn state() -> PreparedState {
    PreparedState {
        branches: Vec::new(),
        files: Some(vec!["a".into()]),
        config: Vec::new(),
        touches_config: false,
        item_touches_config: false,
        containing_branches: Vec::new(),
    }
}

/// Whether a build of the walk is waiting, leased or running, and its attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Waits,
    Leased,
    Runs,
    Done,
}

struct WalkBuild {
    id: BuildId,
    doing: Doing,
    attempt: u32,
    waits: bool,
}

struct WalkItem {
    id: ItemId,
    buildset: Option<BuildsetId>,
    work: Option<WorkId>,
    prepared: bool,
    frozen: bool,
    builds: Vec<WalkBuild>,
    submitting: bool,
    waits: bool,
}

/// A gate that decides at random, but only what can be decided.
struct Walk {
    events: Vec<EventRecord>,
    next: u64,
    items: Vec<WalkItem>,
}

impl Walk {
    fn new() -> Walk {
        let mut walk = Walk { events: Vec::new(), next: 0, items: Vec::new() };
        let started = gatelog_record::draft::partition::WriterStarted {
            term: 1,
            build: "test".into(),
            registry: [0; 32],
            site: SiteId([7; 16]),
            generation: 1,
        };
        walk.push(Event::Partition(PartitionEvent::WriterStarted(started)));
        walk.say(GateEvent::TenantConfigured(TenantConfigured {
            tenant: TenantLoaded {
                tenant: "demo".into(),
                version: 1,
                settings: BlobHash::of(b"settings"),
                projects: Vec::new(),
                web_root: String::new(),
            },
        }));
        walk
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn say(&mut self, event: GateEvent) {
        self.push(Event::Gate(event));
    }

    fn push(&mut self, event: Event) {
        let sequence = self.events.len() as u64 + 1;
        // Two events share each moment.
        let at = Timestamp(1_000_000 * (sequence as i64 / 2 + 1));
        self.events.push(EventRecord {
            sequence,
            term: 1,
            recorded_at: at,
            wall_at: at,
            id: EventId(id(9, sequence)),
            cause: Cause::Start,
            actor: ActorId::SYSTEM,
            key: "demo".into(),
            traceparent: String::new(),
            decision: None,
            event,
        });
    }

    fn enqueue(&mut self, dice: u8) {
        let item = ItemId(id(1, self.fresh()));
        let ahead = self.items.last().map(|item| item.id);
        self.items.push(WalkItem {
            id: item,
            buildset: None,
            work: None,
            prepared: false,
            frozen: false,
            builds: Vec::new(),
            submitting: false,
            waits: false,
        });
        self.say(GateEvent::ItemEnqueued(ItemEnqueued {
            item,
            tenant: "demo".into(),
            pipeline: "gate".into(),
            queue: "main".into(),
            subjects: vec![subject(if dice.is_multiple_of(2) { "library" } else { "app" }, &format!("c{}", dice % 5))],
            live: dice % 4 != 1,
            ahead,
            trigger: None,
            reason: "trigger".into(),
            window: Some(20),
            parameters: std::collections::BTreeMap::new(),
        }));
    }

    fn wait(subject: WaitSubject, code: Option<WaitCode>, at: i64) -> GateEvent {
        GateEvent::WaitChanged(WaitChanged {
            subject,
            code,
            detail: "a reason".into(),
            since: Timestamp(at),
            unblocks: "patience".into(),
        })
    }

    /// One step, chosen by two dice.
    fn step(&mut self, which: u8, dice: u8) {
        if self.items.is_empty() || (which.is_multiple_of(7) && self.items.len() < 5) {
            return self.enqueue(dice);
        }
        let number = usize::from(which) % self.items.len();
        let fresh = self.fresh();
        let mut item = self.items.remove(number);
        let mut gone = false;
        match (item.buildset, item.work) {
            _ if dice % 11 == 10 => {
                let code = (!item.waits || dice.is_multiple_of(2)).then_some(WaitCode::Jobs);
                item.waits = code.is_some();
                self.say(Self::wait(WaitSubject::Item(item.id), code, i64::from(dice)));
            }
            (None, _) => {
                let buildset = BuildsetId(id(2, fresh));
                item.buildset = Some(buildset);
                self.say(GateEvent::BuildsetOpened(BuildsetOpened { buildset, item: item.id, ahead: Vec::new() }));
            }
            (Some(buildset), None) if !item.prepared => {
                let work = WorkId(id(4, fresh));
                item.work = Some(work);
                self.say(GateEvent::PrepareRequested(PrepareRequested {
                    work,
                    item: item.id,
                    buildset,
                    steps: Vec::new().into(),
                    bases: Vec::new(),
                    dated: Timestamp(1),
                }));
            }
            (Some(buildset), Some(work)) if !item.prepared => {
                item.work = None;
                item.prepared = true;
                let outcome = PrepareOutcome::Merged(state());
                let done = PrepareDone { work, attempt: 1, tenant: "demo".into(), outcome };
                self.say(GateEvent::Prepared(Prepared { item: item.id, buildset, done }));
            }
            (Some(buildset), None) if !item.frozen => {
                let work = WorkId(id(4, fresh));
                item.work = Some(work);
                self.say(GateEvent::FreezeWanted(FreezeWanted {
                    work,
                    item: item.id,
                    buildset,
                    tenant: "demo".into(),
                    pipeline: "gate".into(),
                    layout: BlobHash::of(b"layout"),
                    layout_ahead: None,
                    steps: Vec::new().into(),
                    state: state(),
                    projects: Vec::new(),
                    parameters: std::collections::BTreeMap::new(),
                    own_files: Vec::new(),
                }));
            }
            (Some(buildset), Some(work)) if !item.frozen => {
                item.work = None;
                item.frozen = true;
                let jobs: Vec<FrozenJob> = (0..dice % 4).map(|number| job(&format!("job-{number}"))).collect();
                for number in 0..jobs.len() as u64 {
                    let id = BuildId(id(3, fresh * 16 + number));
                    item.builds.push(WalkBuild { id, doing: Doing::Waits, attempt: 0, waits: false });
                }
                let outcome = FreezeOutcome::Frozen {
                    graph: BlobHash::of(b"graph"),
                    trace: BlobHash::of(b"trace"),
                    jobs,
                    repo_state: Vec::new(),
                };
                let builds = item.builds.iter().map(|build| build.id).collect();
                let done = FreezeDone { work, attempt: 1, tenant: "demo".into(), outcome };
                self.say(GateEvent::Frozen(Frozen { item: item.id, buildset, done, builds }));
            }
            (Some(buildset), work) => gone = self.step_frozen(&mut item, buildset, work, fresh, dice),
        }
        if !gone {
            self.items.insert(number, item);
        }
    }

    fn step_frozen(
        &mut self,
        item: &mut WalkItem,
        buildset: BuildsetId,
        work: Option<WorkId>,
        fresh: u64,
        dice: u8,
    ) -> bool {
        let free = !item.builds.iter().any(|build| matches!(build.doing, Doing::Leased | Doing::Runs));
        if free && work.is_none() && dice % 13 == 12 {
            item.buildset = None;
            (item.prepared, item.frozen) = (false, false);
            item.builds.clear();
            self.say(GateEvent::ItemReset(ItemReset {
                item: item.id,
                ahead: None,
                code: "ahead-failing".into(),
                detail: "the change ahead failed".into(),
            }));
            return false;
        }
        let open = item.builds.iter_mut().find(|build| build.doing != Doing::Done);
        let Some(build) = open else { return self.step_done(item, work, fresh, dice) };
        let started = || AttemptStarted {
            tenant: "demo".into(),
            build: build.id,
            attempt: build.attempt,
            lease: LeaseId(id(5, fresh)),
            worker: "worker-1".into(),
            started_at: Timestamp(fresh as i64 * 1_000),
        };
        if dice % 17 == 16 && !build.waits {
            build.waits = true;
            let subject = WaitSubject::Build(build.id);
            self.say(Self::wait(subject, Some(WaitCode::Lease), i64::from(dice)));
            return false;
        }
        match build.doing {
            Doing::Waits if dice % 5 == 4 => {
                build.doing = Doing::Done;
                self.say(GateEvent::BuildSettled(BuildSettled {
                    build: build.id,
                    item: item.id,
                    buildset,
                    result: BuildResult::Skipped,
                    code: "dependency-failed".into(),
                    detail: "a job it needs failed".into(),
                    freed: Some(Vec::new()),
                }));
            }
            Doing::Waits => {
                build.doing = Doing::Leased;
                build.attempt += 1;
                let ask = LeaseAsked {
                    owner: build_owner("demo", build.id, build.attempt),
                    share: "demo".into(),
                    description: described("demo", "gate", "job"),
                    spec: BlobHash::of(b"spec"),
                    nodes: Vec::new(),
                    semaphores: Vec::new(),
                    priority: 200,
                    or_others: false,
                };
                self.say(GateEvent::LeaseWanted(LeaseWanted {
                    item: item.id,
                    buildset,
                    build: build.id,
                    attempt: build.attempt,
                    ask,
                    taken: Some(Vec::new()),
                }));
            }
            Doing::Leased => {
                let started = started();
                build.doing = Doing::Runs;
                self.say(GateEvent::BuildStarted(BuildStarted {
                    started,
                    item: item.id,
                    buildset,
                    taken: Some(Vec::new()),
                }));
            }
            Doing::Runs => {
                let retry = dice.is_multiple_of(3);
                let began = started();
                let result = if dice.is_multiple_of(2) { BuildResult::Success } else { BuildResult::Failure };
                build.doing = if retry { Doing::Waits } else { Doing::Done };
                if !retry {
                    build.waits = false;
                }
                let finished = AttemptFinished {
                    tenant: "demo".into(),
                    build: build.id,
                    attempt: build.attempt,
                    worker: "worker-1".into(),
                    result: if retry { BuildResult::Retry } else { result },
                    started_at: began.started_at,
                    finished_at: Timestamp(began.started_at.0 + 5_000),
                    detail: Some("done".into()),
                    data: Value::Null,
                    secret_data: None,
                    artifacts: Vec::new(),
                    log_url: Some("file:log".into()),
                    kept: Default::default(),
                };
                let (number, build) = (build.attempt, build.id);
                self.say(GateEvent::BuildFinished(BuildFinished {
                    finished,
                    item: item.id,
                    buildset,
                    retry,
                    result: (!retry).then_some(result),
                    freed: Some(Vec::new()),
                }));
                self.say(GateEvent::LeaseEndWanted(LeaseEndWanted {
                    build,
                    attempt: number,
                    reason: "finished".into(),
                }));
            }
            Doing::Done => {}
        }
        false
    }

    fn step_done(&mut self, item: &mut WalkItem, work: Option<WorkId>, fresh: u64, dice: u8) -> bool {
        match work {
            None if !item.submitting => {
                let work = WorkId(id(4, fresh));
                item.work = Some(work);
                item.submitting = true;
                let tenant = "demo".to_owned();
                self.say(GateEvent::SubmitRequested(SubmitRequested { work, item: item.id, tenant, targets: vec![] }));
                false
            }
            Some(work) => {
                item.work = None;
                let done = SubmitDone { work, attempt: 1, tenant: "demo".into(), outcome: SubmitOutcome::Merged };
                self.say(GateEvent::Submitted(Submitted { item: item.id, done }));
                false
            }
            None => {
                let work = WorkId(id(6, fresh));
                let result = if dice.is_multiple_of(2) { ItemResult::Success } else { ItemResult::Failure };
                self.say(GateEvent::ReportRequested(ReportRequested {
                    work,
                    tenant: "demo".into(),
                    item: Some(item.id),
                    pipeline: "gate".into(),
                    action: ReportAction::Success,
                    reporters: vec![("git".into(), Value::Null)],
                    subjects: vec![subject("library", "c")],
                    message: "Build succeeded.".into(),
                    remarks: Vec::new(),
                    requested_at: Timestamp(9),
                }));
                self.say(GateEvent::ItemDequeued(ItemDequeued {
                    item: item.id,
                    result,
                    code: "merged".into(),
                    detail: "its branch names it".into(),
                    merged: result == ItemResult::Success,
                }));
                let done = ReportDone { work, attempt: 1, tenant: "demo".into(), failed: None };
                self.say(GateEvent::ReportDelivered(ReportDelivered { item: Some(item.id), done }));
                true
            }
        }
    }
}

fn job(name: &str) -> FrozenJob {
    FrozenJob {
        name: name.into(),
        spec: BlobHash::of(name.as_bytes()),
        voting: true,
        attempts: 3,
        dependencies: Vec::new(),
        semaphores: Vec::new(),
        nodes: Vec::new(),
        noop: false,
        success_message: None,
        failure_message: None,
        traits: Default::default(),
    }
}

/// Everything that can be asked, as of an event.
fn dump(read: &GateRead<Maps>, at: u64) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    let mut tell = |name: String, what: String| assert!(told.insert(name.clone(), what).is_none(), "{name} twice");
    let items: Vec<_> = read.newest_items("demo", at).unwrap().map(Result::unwrap).collect();
    for item in &items {
        tell(format!("{item:?}"), format!("{:?}", read.item(*item, at).unwrap().unwrap()));
        tell(format!("wait {item:?}"), format!("{:?}", read.wait(&WaitSubject::Item(*item), at).unwrap()));
        tell(format!("reports {item:?}"), format!("{:?}", read.reports_of(*item, at).unwrap().collect::<Vec<_>>()));
        for report in read.reports_of(*item, at).unwrap().map(Result::unwrap) {
            tell(format!("report {report:?}"), format!("{:?}", read.report(report, at).unwrap().unwrap()));
        }
    }
    for list in [
        List::Tenant,
        List::Project("forge.example/app"),
        List::Change("master/c1"),
        List::Pipeline("gate"),
        List::Job("job-1"),
    ] {
        let buildsets: Vec<_> = read.newest_buildsets("demo", list, at).unwrap().map(Result::unwrap).collect();
        tell(format!("buildsets {list:?}"), format!("{buildsets:?}"));
        let builds: Vec<_> = read.newest_builds("demo", list, at).unwrap().map(Result::unwrap).collect();
        tell(format!("builds {list:?}"), format!("{builds:?}"));
        if list == List::Tenant {
            for one in buildsets {
                tell(format!("{one:?}"), format!("{:?}", read.buildset(one, at).unwrap().unwrap()));
            }
            for one in builds {
                tell(format!("{one:?}"), format!("{:?}", read.build(one, at).unwrap().unwrap()));
                tell(format!("wait {one:?}"), format!("{:?}", read.wait(&WaitSubject::Build(one), at).unwrap()));
            }
        }
    }
    for job in ["job-0", "job-1", "job-2"] {
        tell(format!("durations {job}"), format!("{:?}", read.durations("demo", job, at, 10).unwrap()));
    }
    tell("tenants".into(), format!("{:?} {:?}", read.tenant_names(at).unwrap(), read.tenant("demo", at).unwrap()));
    tell("unread".into(), format!("{:?}", read.unread("demo", at).unwrap()));
    told
}

fn walk(steps: &[(u8, u8)]) -> Vec<EventRecord> {
    let mut walk = Walk::new();
    for (which, dice) in steps {
        walk.step(*which, *dice);
    }
    walk.events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn reading_as_of_an_event_is_what_a_fold_up_to_it_shows(
        steps in proptest::collection::vec(any::<(u8, u8)>(), 20..160),
    ) {
        let events = walk(&steps);
        let mut whole = GateRead::in_memory();
        let mut live = GateLive::in_memory();
        let mut then = Vec::new();
        for record in &events {
            // What the live tables take, the temporal tables take.
            live.apply(record).unwrap();
            whole.fold(record).unwrap();
            // As of now is as of any later event that has not come yet.
            prop_assert_eq!(dump(&whole, record.sequence), dump(&whole, u64::MAX));
            then.push(dump(&whole, u64::MAX));
            agree(&live, &whole);
        }
        for (record, shown) in events.iter().zip(then) {
            prop_assert_eq!(dump(&whole, record.sequence), shown);
            let newest = events.iter().rfind(|other| other.recorded_at == record.recorded_at);
            prop_assert_eq!(whole.sequence_at(record.recorded_at).unwrap(), newest.unwrap().sequence);
        }
    }

    #[test]
    fn events_that_do_not_fit_are_refused_and_never_a_panic(
        steps in proptest::collection::vec(any::<(u8, u8)>(), 20..120),
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 20..120),
    ) {
        let events = walk(&steps);
        let mut read = GateRead::in_memory();
        let mut told = std::collections::BTreeSet::new();
        for (number, index) in (1..).zip(&order) {
            let mut record = index.get(&events).clone();
            let already = told.contains(&record.id);
            record.sequence = number;
            let folded = read.fold(&record);
            if folded.is_ok() {
                told.insert(record.id);
            }
            if already && matches!(record.event, Event::Gate(GateEvent::ItemEnqueued(_))) {
                prop_assert!(matches!(folded, Err(FoldRefused::Exists { .. })), "{:?}", folded);
            }
        }
    }
}

/// What is live is what history says is not over.
fn agree(live: &GateLive<Maps>, read: &GateRead<Maps>) {
    for (item, row) in &live.gate.items.rows {
        let kept = read.item(*item, u64::MAX).unwrap().unwrap();
        assert_eq!((kept.buildset, &kept.failing, kept.end), (row.buildset, &row.failing, None));
    }
    for (build, row) in &live.gate.builds.rows {
        let kept = read.build(*build, u64::MAX).unwrap().unwrap();
        assert_eq!((kept.result, kept.started_at()), (row.result, row.started_at.or(kept.started_at())));
    }
    for (key, row) in &live.gate.waits.rows {
        let kept = read.wait(&key.0, u64::MAX).unwrap().unwrap();
        assert_eq!((kept.code, &kept.detail), (row.code, &row.detail));
    }
    // What only stands for those who need it was not built: no list has it, its item does.
    let listed: Vec<BuildsetId> = read.buildsets_of_tenant.all().unwrap().map(|entry| *entry.unwrap().1).collect();
    for entry in read.buildsets_of_item.all().unwrap() {
        let ((item, _), buildset) = entry.unwrap();
        assert_eq!(listed.contains(&*buildset), read.item(item, u64::MAX).unwrap().unwrap().live);
    }
    let open = read.waits.all().unwrap().filter(|entry| entry.as_ref().unwrap().1.until.is_none()).count();
    assert_eq!(open, live.gate.waits.rows.len());
}

fn finished(events: &[EventRecord]) -> Option<(ItemId, u64)> {
    events.iter().find_map(|record| match &record.event {
        Event::Gate(GateEvent::ItemDequeued(event)) => Some((event.item, record.sequence)),
        _ => None,
    })
}

#[test]
fn an_item_that_left_is_shown_with_its_result_from_then_on_and_without_before() {
    let steps: Vec<(u8, u8)> = (0..200).map(|number| (1, (number * 3 + 1) as u8)).collect();
    let events = walk(&steps);
    let (item, sequence) = finished(&events).expect("the walk brings an item to its end");
    let mut read = GateRead::in_memory();
    for record in &events {
        read.fold(record).unwrap();
    }
    let before = read.item(item, sequence - 1).unwrap().unwrap();
    let after = read.item(item, sequence).unwrap().unwrap();
    assert_eq!(before.end, None);
    let end = after.end.clone().unwrap();
    let buildset = read.buildset(after.buildset.unwrap(), sequence).unwrap().unwrap();
    assert_eq!(buildset.result, Some(end.result));
    assert_eq!(buildset.message.as_deref(), Some("Build succeeded."));
    assert_eq!(read.buildset(after.buildset.unwrap(), sequence - 1).unwrap().unwrap().result, None);
    assert_eq!(read.item(item, 2).unwrap(), None, "before it was enqueued there is no item");
}

#[test]
fn a_project_that_vanished_is_named_until_it_is_read_again() {
    let mut walk = Walk::new();
    let read_config = |failed: bool| {
        let problem = ProjectProblem {
            project: "forge.example/library".into(),
            code: "vanished".into(),
            message: "its directory is gone".into(),
        };
        let found = ConfigFilesFound {
            work: WorkId([1; 16]),
            attempt: 1,
            tenant: "demo".into(),
            sets: Vec::new(),
            failed: if failed { vec![problem] } else { Vec::new() },
        };
        let replaces = if failed { vec![] } else { vec!["forge.example/library".to_owned()] };
        GateEvent::ConfigRead(ConfigRead { found, replaces, changed: false })
    };
    walk.say(read_config(true));
    walk.say(read_config(true));
    walk.say(read_config(false));
    let mut read = GateRead::in_memory();
    for record in &walk.events {
        read.fold(record).unwrap();
    }
    let unread = |at| read.unread("demo", at).unwrap().len();
    assert_eq!([unread(2), unread(3), unread(4), unread(5)], [0, 1, 1, 0]);
    assert_eq!(read.unread.all().unwrap().count(), 1, "that it failed again the same way is no news");
}

#[test]
fn an_event_about_what_is_not_there_or_is_over_is_refused_by_name() {
    let steps: Vec<(u8, u8)> = (0..200).map(|number| (1, (number * 3 + 1) as u8)).collect();
    let events = walk(&steps);
    let (item, _) = finished(&events).expect("the walk brings an item to its end");
    let mut read = GateRead::in_memory();
    for record in &events {
        read.fold(record).unwrap();
    }
    let mut build = read.newest_builds("demo", List::Tenant, u64::MAX).unwrap().map(Result::unwrap);
    let done = build.find(|id| read.build(*id, u64::MAX).unwrap().is_some_and(|build| build.result.is_some())).unwrap();
    drop(build);
    let settled = |build| {
        GateEvent::BuildSettled(BuildSettled {
            build,
            item,
            buildset: BuildsetId([0; 16]),
            result: BuildResult::Canceled,
            code: "dequeued".into(),
            detail: String::new(),
            freed: Some(Vec::new()),
        })
    };
    let lease_end = GateEvent::LeaseEndWanted(LeaseEndWanted { build: done, attempt: 99, reason: "finished".into() });
    let waits_no_longer = Walk::wait(WaitSubject::Trigger(77), None, 1);
    let reset = GateEvent::ItemReset(ItemReset { item, ahead: None, code: "x".into(), detail: String::new() });
    for (event, says) in [
        (settled(BuildId([0xee; 16])), "table build-history has no row"),
        (settled(done), "already"),
        (lease_end, "no attempt 99"),
        (waits_no_longer, "table wait-history has no row"),
        (reset, "has left its pipeline"),
    ] {
        let name = event.name();
        let record = EventRecord { sequence: 10_000, event: Event::Gate(event), ..events[0].clone() };
        let refused = read.fold(&record).expect_err(name).to_string();
        assert!(refused.contains(says), "{name}: {refused}");
    }
}
