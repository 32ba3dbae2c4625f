//! An item's story, put together from everything that names it.

use std::collections::BTreeMap;

use gatelog_record::draft::capacity::LeaseOwner;
use gatelog_record::draft::gate::{FreezeOutcome, PrepareOutcome, WaitSubject};
use gatelog_record::event::{CapacityEvent, GateEvent};
use gatelog_record::{ActorId, BuildId, BuildsetId, Event, EventRecord, EventRef, ItemId, LeaseId, Timestamp};

use super::outcomes::{frozen, prepared};
use super::say::{after_colon, layout, subject, without};
use super::shapes::{
    AttemptStory, BuildStory, BuildsetStory, ItemStory, Left, Merge, Note, PreparedOn, Report, Spot, Wait,
};
use super::{ExplainError, Explainer};

impl Explainer<'_> {
    /// The story of an item.
    pub(crate) fn item(&self, item: ItemId) -> Result<ItemStory, ExplainError> {
        let unknown = || ExplainError::Unknown { what: item.to_string(), did_you_mean: None };
        let note = self.index.items.get(&item).ok_or_else(unknown)?;
        let mut places: Vec<EventRef> =
            note.events.iter().map(|sequence| EventRef { partition: note.partition, sequence: *sequence }).collect();
        for build in &note.builds {
            places.extend(self.index.builds.get(build).map(|build| build.leases.clone()).unwrap_or_default());
        }
        let mut records = Vec::with_capacity(places.len());
        for at in places {
            records.push((at, self.record(at)?));
        }
        // Both domains by time; the gate first where they agree: it asks, capacity answers.
        records.sort_by_key(|(at, record)| (record.recorded_at, at.partition, at.sequence));
        let name = self.index.say_item(item);
        let mut telling =
            Telling { explainer: self, name, story: None, waits: BTreeMap::new(), leases: BTreeMap::new() };
        for (at, record) in &records {
            telling.tell(*at, record);
        }
        let mut story = telling.story.ok_or_else(unknown)?;
        story.way = self.way_of(item, &records)?;
        if story.actor.is_none() && story.reason == "admin" {
            // Facts were asked for first: what put it there is not what was asked.
            story.actor = story.way.iter().find_map(|step| step.actor);
        }
        story.by = self.name_of(story.actor);
        Ok(story)
    }
}

/// Where a wait is kept while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    Item,
    Build(BuildId),
    Lease(LeaseId),
}

struct Telling<'e, 'a> {
    explainer: &'e Explainer<'a>,
    /// The item in a few words.
    name: String,
    story: Option<ItemStory>,
    /// Waits that last.
    waits: BTreeMap<Waiter, Wait>,
    /// Build and attempt of each lease.
    leases: BTreeMap<LeaseId, (BuildId, u32)>,
}

impl Telling<'_, '_> {
    fn tell(&mut self, at: EventRef, record: &EventRecord) {
        let spot = Spot::of(&at, record.recorded_at);
        match &record.event {
            Event::Gate(GateEvent::ItemEnqueued(enqueued)) => {
                self.story = Some(ItemStory {
                    item: enqueued.item,
                    tenant: enqueued.tenant.clone(),
                    pipeline: enqueued.pipeline.clone(),
                    queue: enqueued.queue.clone(),
                    subjects: enqueued.subjects.iter().map(subject).collect(),
                    live: enqueued.live,
                    enqueued: spot,
                    reason: enqueued.reason.clone(),
                    actor: Some(record.actor).filter(|actor| *actor != ActorId::SYSTEM),
                    by: None,
                    ahead: enqueued.ahead.map(|ahead| self.explainer.index.say_item(ahead)),
                    waits: Vec::new(),
                    buildsets: Vec::new(),
                    notes: Vec::new(),
                    merges: Vec::new(),
                    reports: Vec::new(),
                    left: None,
                    way: Vec::new(),
                });
            }
            Event::Gate(event) => self.gate(at, record, event, spot),
            Event::Capacity(event) => self.capacity(at, record, event, spot),
            _ => {}
        }
    }

    fn note(&self, at: EventRef, record: &EventRecord) -> Note {
        let note = self.explainer.note(record, &at);
        Note { text: without(&note.text, &self.name), ..note }
    }

    fn gate(&mut self, at: EventRef, record: &EventRecord, event: &GateEvent, spot: Spot) {
        let note = self.note(at, record);
        let now = record.recorded_at;
        match event {
            GateEvent::BuildsetOpened(opened) => {
                let ahead = opened.ahead.iter().map(|item| self.explainer.index.say_item(*item)).collect();
                let begun = BuildsetStory {
                    buildset: opened.buildset,
                    opened: spot,
                    ahead,
                    prepared: None,
                    on: Vec::new(),
                    layout: None,
                    frozen: None,
                    builds: Vec::new(),
                    reset: None,
                };
                self.each(|story| story.buildsets.push(begun));
            }
            GateEvent::Prepared(done) => self.buildset(done.buildset, |buildset| {
                buildset.prepared = Some(Note { text: prepared(&done.done.outcome), ..note });
                if let PrepareOutcome::Merged(state) = &done.done.outcome {
                    let branches = state.branches.iter().map(|branch| PreparedOn {
                        project: branch.at.project.clone(),
                        branch: branch.at.branch.clone(),
                        base: branch.base.clone(),
                        ahead: branch.ahead.clone(),
                        commit: branch.commit.clone(),
                        tree: branch.tree.clone(),
                    });
                    buildset.on = branches.collect();
                }
            }),
            GateEvent::LayoutReady(ready) => self.buildset(ready.buildset, |buildset| {
                buildset.layout = Some(Note { text: layout(&ready.made), ..note });
            }),
            GateEvent::Frozen(done) => self.buildset(done.buildset, |buildset| {
                buildset.frozen = Some(Note { text: frozen(&done.done.outcome), ..note });
                if let FreezeOutcome::Frozen { jobs, .. } = &done.done.outcome {
                    let builds = done.builds.iter().zip(jobs).map(|(build, job)| BuildStory {
                        build: *build,
                        job: job.name.clone(),
                        voting: job.voting,
                        waits: Vec::new(),
                        attempts: Vec::new(),
                        result: None,
                        settled: None,
                    });
                    buildset.builds = builds.collect();
                }
            }),
            GateEvent::LeaseWanted(wanted) => {
                self.build(wanted.build, |build| build.attempts.push(attempt(wanted.attempt, spot)));
            }
            GateEvent::BuildStarted(started) => {
                self.attempt(started.started.build, started.started.attempt, |attempt| {
                    attempt.started = Some(spot);
                    attempt.worker = Some(started.started.worker.clone());
                    attempt.lease = Some(started.started.lease);
                })
            }
            GateEvent::BuildFinished(done) => {
                let finished = &done.finished;
                self.attempt(finished.build, finished.attempt, |attempt| {
                    attempt.finished = Some(spot);
                    attempt.worker = Some(finished.worker.clone());
                    attempt.result = Some(finished.result.word().to_owned());
                    attempt.ran_millis = Some(finished.finished_at.millis_since(finished.started_at));
                    attempt.detail.clone_from(&finished.detail);
                    attempt.log_url.clone_from(&finished.log_url);
                });
                self.build(finished.build, |build| build.result = done.result.map(|result| result.word().to_owned()));
                self.ends(Waiter::Build(finished.build), now);
            }
            GateEvent::BuildSettled(settled) => {
                self.build(settled.build, |build| {
                    build.result = Some(settled.result.word().to_owned());
                    build.settled = Some(Note { text: format!("{} [{}]", settled.detail, settled.code), ..note });
                });
                self.ends(Waiter::Build(settled.build), now);
            }
            GateEvent::WaitChanged(changed) => {
                let who = match &changed.subject {
                    WaitSubject::Build(build) => Waiter::Build(*build),
                    _ => Waiter::Item,
                };
                self.ends(who, now);
                if let Some(code) = changed.code {
                    let wait = Wait {
                        spot,
                        code: code.word().to_owned(),
                        detail: changed.detail.clone(),
                        unblocks: changed.unblocks.clone(),
                        since: changed.since,
                        millis: None,
                    };
                    self.begins(who, wait);
                }
            }
            GateEvent::ItemReset(reset) => {
                let why = Note { text: format!("{} [{}]", reset.detail, reset.code), spot: note.spot.clone() };
                self.each(|story| {
                    if let Some(buildset) = story.buildsets.last_mut() {
                        buildset.reset = Some(why);
                    }
                    story.notes.push(note);
                });
            }
            GateEvent::ItemFailing(_) | GateEvent::BranchMoved(_) | GateEvent::QueueReordered(_) => {
                self.each(|story| story.notes.push(note))
            }
            GateEvent::SubmitRequested(_) => self.each(|story| story.merges.push(Merge { asked: note, ended: None })),
            GateEvent::Submitted(_) => self.each(|story| {
                if let Some(merge) = story.merges.last_mut() {
                    merge.ended = Some(note);
                }
            }),
            GateEvent::ReportRequested(wanted) => {
                let report = Report {
                    action: wanted.action.word().to_owned(),
                    to: wanted.reporters.iter().map(|(connection, _)| connection.clone()).collect(),
                    asked: spot,
                    ended: None,
                    work: wanted.work,
                };
                self.each(|story| story.reports.push(report));
            }
            GateEvent::ReportDelivered(delivered) => self.each(|story| {
                let asked = story.reports.iter_mut().find(|report| report.work == delivered.done.work);
                if let Some(report) = asked {
                    report.ended = Some(note);
                }
            }),
            GateEvent::ItemDequeued(left) => {
                let left = Left {
                    spot,
                    result: left.result.word().to_owned(),
                    code: left.code.clone(),
                    detail: left.detail.clone(),
                    by: self.explainer.who(record.actor),
                };
                self.each(|story| story.left = Some(left));
                for who in self.waits.keys().copied().collect::<Vec<_>>() {
                    if !matches!(who, Waiter::Lease(_)) {
                        self.ends(who, now);
                    }
                }
            }
            _ => {}
        }
    }

    /// The attempt a lease is for, if it is for one of a build.
    fn attempt_of(&mut self, owner: &LeaseOwner, change: impl FnOnce(&mut AttemptStory)) {
        if let Some((build, number)) = owner.build() {
            self.attempt(build, number, change);
        }
    }

    fn capacity(&mut self, at: EventRef, record: &EventRecord, event: &CapacityEvent, spot: Spot) {
        let note = self.note(at, record);
        let now = record.recorded_at;
        match event {
            CapacityEvent::LeaseQueued(queued) => {
                let Some((build, number)) = queued.ask.owner.build() else { return };
                self.leases.insert(queued.lease, (build, number));
                self.attempt(build, number, |attempt| {
                    attempt.queued = Some(spot);
                    attempt.lease = Some(queued.lease);
                });
            }
            CapacityEvent::WaitChanged(changed) => {
                let who = Waiter::Lease(changed.lease);
                self.ends(who, now);
                let wait = Wait {
                    spot,
                    code: changed.code.clone(),
                    detail: changed.detail.clone(),
                    unblocks: String::new(),
                    since: changed.since,
                    millis: None,
                };
                self.begins(who, wait);
            }
            CapacityEvent::LeaseGranted(granted) => {
                self.ends(Waiter::Lease(granted.lease), now);
                self.attempt_of(&granted.owner, |attempt| {
                    attempt.granted = Some(spot);
                    attempt.waited_millis = Some(granted.waited_ms);
                    attempt.worker = Some(granted.worker.clone());
                });
            }
            CapacityEvent::LeaseRefused(refused) => {
                let note = Note { text: format!("no lease: {} [{}]", refused.message, refused.code), ..note };
                self.attempt_of(&refused.ask.owner, |attempt| attempt.ended.push(note));
            }
            CapacityEvent::LeaseRevoked(revoked) => {
                self.ends(Waiter::Lease(revoked.lease), now);
                let note = Note { text: format!("lease taken back [{}]", revoked.reason), ..note };
                self.attempt_of(&revoked.owner, |attempt| attempt.ended.push(note));
            }
            CapacityEvent::LeaseEnded(ended) => {
                self.ends(Waiter::Lease(ended.lease), now);
                let note =
                    Note { text: format!("lease over{} [{}]", after_colon(&ended.message), ended.reason), ..note };
                if let Some((build, number)) = self.leases.get(&ended.lease).copied() {
                    self.attempt(build, number, |attempt| attempt.ended.push(note));
                }
            }
            CapacityEvent::LeaseHeld(held) => {
                let note = Note { text: "its nodes are kept".to_owned(), ..note };
                self.attempt_of(&held.hold.owner, |attempt| attempt.ended.push(note));
            }
            CapacityEvent::LeasePaused(_) | CapacityEvent::LeaseResumed(_) => {}
            CapacityEvent::ReleaseNoted(_)
            | CapacityEvent::WorkerJoined(_)
            | CapacityEvent::WorkerLost(_)
            | CapacityEvent::PauseChanged(_) => {}
        }
    }

    fn each(&mut self, change: impl FnOnce(&mut ItemStory)) {
        if let Some(story) = &mut self.story {
            change(story);
        }
    }

    fn buildset(&mut self, id: BuildsetId, change: impl FnOnce(&mut BuildsetStory)) {
        self.each(|story| {
            if let Some(buildset) = story.buildsets.iter_mut().find(|buildset| buildset.buildset == id) {
                change(buildset);
            }
        });
    }

    fn build(&mut self, id: BuildId, change: impl FnOnce(&mut BuildStory)) {
        self.each(|story| {
            let mut builds = story.buildsets.iter_mut().flat_map(|buildset| &mut buildset.builds);
            if let Some(build) = builds.find(|build| build.build == id) {
                change(build);
            }
        });
    }

    fn attempt(&mut self, id: BuildId, number: u32, change: impl FnOnce(&mut AttemptStory)) {
        self.build(id, |build| {
            if let Some(attempt) = build.attempts.iter_mut().find(|attempt| attempt.attempt == number) {
                change(attempt);
            }
        });
    }

    /// A wait begins: it is told at once, and its length when it ends.
    fn begins(&mut self, who: Waiter, wait: Wait) {
        self.waits.insert(who, wait.clone());
        self.waits_of(who, |waits| waits.push(wait));
    }

    fn ends(&mut self, who: Waiter, now: Timestamp) {
        let Some(wait) = self.waits.remove(&who) else { return };
        self.waits_of(who, |waits| {
            if let Some(told) = waits.iter_mut().find(|told| told.spot == wait.spot) {
                told.millis = Some(now.millis_since(wait.since).max(0));
            }
        });
    }

    fn waits_of(&mut self, who: Waiter, change: impl FnOnce(&mut Vec<Wait>)) {
        match who {
            Waiter::Item => self.each(|story| change(&mut story.waits)),
            Waiter::Build(build) => self.build(build, |build| change(&mut build.waits)),
            Waiter::Lease(lease) => {
                if let Some((build, number)) = self.leases.get(&lease).copied() {
                    self.attempt(build, number, |attempt| change(&mut attempt.waits));
                }
            }
        }
    }
}

fn attempt(number: u32, asked: Spot) -> AttemptStory {
    AttemptStory {
        attempt: number,
        asked,
        lease: None,
        queued: None,
        waits: Vec::new(),
        granted: None,
        waited_millis: None,
        worker: None,
        started: None,
        finished: None,
        ran_millis: None,
        result: None,
        detail: None,
        log_url: None,
        ended: Vec::new(),
    }
}
