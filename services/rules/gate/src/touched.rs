//! Where a decision looks again: only what its events touch can have more to do or wait for something else.
//!
//! Between two inputs every queue of a tenant is at rest, so a decision need not walk over all of them. What an event
//! can set off is written down here once, as the event is emitted; whoever adds a rule that reads something of other
//! items says here which events change it. [`GateRules::left_undone`](crate::GateRules::left_undone) finds what was
//! forgotten.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_gate_state::live::{BuildRow, BuildState, BuildsetRow, Phase, Work};
use gatelog_record::draft::gate::{ChangeKey, FactsPurpose, FreezeOutcome, PrepareOutcome, Subject};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, ItemId, WorkId};

use crate::changes::{change_of, held_by, named};
use crate::decision::Decision;
use crate::dependencies::{has_topic, of_topic};

/// A queue: tenant, pipeline, name.
pub(crate) type QueueKey = (String, String, String);

/// Where in a queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touch {
    /// Everywhere.
    pub whole: bool,
    /// At these items and all behind them.
    pub from: BTreeSet<ItemId>,
    /// At these items; behind them only if something comes of it.
    pub alone: BTreeSet<ItemId>,
}

impl Touch {
    pub(crate) fn merge(&mut self, other: &Touch) {
        self.whole |= other.whole;
        self.from.extend(&other.from);
        self.alone.extend(&other.alone);
    }

    /// Whether an item is to be looked at for itself.
    pub(crate) fn names(&self, item: ItemId) -> bool {
        self.alone.contains(&item) || self.from.contains(&item)
    }

    /// Whether it goes on to the end of the queue.
    pub(crate) fn is_open(&self) -> bool {
        self.whole || !self.from.is_empty()
    }

    /// The places in a queue to look at: from where on, and up to where at least. Nothing if none of the items is
    /// there any more.
    pub(crate) fn places(&self, items: &[ItemId]) -> Option<(usize, usize)> {
        let end = items.len();
        if self.whole {
            return Some((0, end));
        }
        let place = |item: &ItemId| items.iter().position(|other| other == item);
        let from = self.from.iter().filter_map(place).min();
        let alone: Vec<usize> = self.alone.iter().filter_map(place).collect();
        let first = from.into_iter().chain(alone.iter().copied()).min()?;
        let until = if from.is_some() { end } else { alone.iter().max().map_or(end, |last| last + 1) };
        Some((first, until))
    }
}

/// Where in a tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// Everywhere.
    pub all: bool,
    /// Everywhere, also at what nothing can have touched.
    pub everything: bool,
    /// In these queues.
    pub queues: BTreeMap<QueueKey, Touch>,
    /// Whether it changed what waiting triggers wait for.
    pub triggers: bool,
    /// Changes that something let go of, so that what is known of them may be forgotten.
    pub let_go: BTreeSet<ChangeKey>,
    /// Short work that was asked for or sent again.
    pub asked: Vec<WorkId>,
}

impl Touched {
    pub(crate) fn merge(&mut self, other: &Touched) {
        self.all |= other.all;
        self.everything |= other.everything;
        self.triggers |= other.triggers;
        self.let_go.extend(other.let_go.iter().cloned());
        self.asked.extend(&other.asked);
        for (key, touch) in &other.queues {
            self.queues.entry(key.clone()).or_default().merge(touch);
        }
    }
}

impl Decision<'_> {
    /// Notes what an event touches, before it is folded.
    pub(crate) fn touch(&mut self, event: &GateEvent) {
        match event {
            GateEvent::TenantConfigured(_)
            | GateEvent::ConfigReadWanted(_)
            | GateEvent::ConfigRead(_)
            | GateEvent::LayoutActivated(_) => self.touched.all = true,
            GateEvent::LayoutWanted(event) => {
                self.touched.asked.push(event.work);
                match event.item {
                    Some(item) => self.touch_from(item),
                    None => self.touched.all = true,
                }
            }
            GateEvent::WorkResent(event) => self.touch_resent(event.work),
            GateEvent::ChangesObserved(event) => {
                self.touched.triggers = true;
                let found = &event.found;
                if let Some(item) = self.asked_for(found.work) {
                    self.touch_progress(item, true);
                }
                let known = found.changes.iter().filter_map(|facts| facts.subject.change_key());
                let mut changes: BTreeSet<ChangeKey> = known.chain(found.missing.iter().cloned()).collect();
                self.let_go(&found.tenant, &changes);
                // Of what is open and as it was nobody learns anything.
                for facts in found.changes.iter().filter(|facts| facts.open) {
                    if let Some(key) = facts.subject.change_key()
                        && self.change(&found.tenant, &key).is_some_and(|row| row.facts == *facts)
                    {
                        changes.remove(&key);
                    }
                }
                self.touch_changes(&found.tenant, changes);
            }
            GateEvent::ChangesWanted(event) => {
                self.touched.asked.push(event.work);
                if let FactsPurpose::BeforeSubmit { item } = event.purpose {
                    self.touch_progress(item, true);
                }
            }
            GateEvent::TriggerSettled(event) => {
                self.touched.triggers = true;
                let row = self.gate().triggers.row(&(event.tenant.clone(), event.trigger));
                let change = row.and_then(|row| change_of(&row.cause));
                self.touched.let_go.extend(change);
            }
            GateEvent::TriggerWaiting(_) | GateEvent::IntakeChanged(_) => self.touched.triggers = true,
            GateEvent::ItemEnqueued(event) => {
                let key = (event.tenant.clone(), event.pipeline.clone(), event.queue.clone());
                self.touched.queues.entry(key).or_default().from.insert(event.item);
                self.touch_others(event.item, &event.tenant, &event.pipeline, &event.subjects);
            }
            GateEvent::WindowChanged(event) => {
                self.touch_queue((event.tenant.clone(), event.pipeline.clone(), event.queue.clone()));
            }
            GateEvent::QueueReordered(event) => {
                self.touch_queue((event.tenant.clone(), event.pipeline.clone(), event.queue.clone()));
            }
            GateEvent::BuildsetOpened(event) => self.touch_progress(event.item, false),
            GateEvent::PrepareRequested(event) => {
                self.touched.asked.push(event.work);
                self.touch_progress(event.item, false);
            }
            GateEvent::Prepared(event) => match event.done.outcome {
                PrepareOutcome::Merged(_) => self.touch_progress(event.item, false),
                PrepareOutcome::Conflict { .. } | PrepareOutcome::Failed { .. } => self.touch_from(event.item),
            },
            GateEvent::LayoutReady(event) => match event.problem {
                None => self.touch_progress(event.item, false),
                Some(_) => self.touch_from(event.item),
            },
            GateEvent::FreezeWanted(event) => {
                self.touched.asked.push(event.work);
                self.touch_progress(event.item, false);
            }
            GateEvent::Frozen(event) => match event.done.outcome {
                FreezeOutcome::Frozen { .. } => self.touch_progress(event.item, false),
                FreezeOutcome::NoJobs { .. } | FreezeOutcome::Refused { .. } | FreezeOutcome::Failed { .. } => {
                    self.touch_from(event.item);
                }
            },
            GateEvent::ItemFailing(event) => self.touch_from(event.item),
            GateEvent::ItemReset(event) => self.touch_from(event.item),
            GateEvent::ReportersStarted(event) => self.touch_from(event.item),
            // With a new layout, which touches everything.
            GateEvent::ItemMoved(_) => self.touched.all = true,
            GateEvent::SubmitRequested(event) => {
                self.touched.asked.push(event.work);
                self.touch_progress(event.item, true);
            }
            GateEvent::ReportRequested(event) => self.touched.asked.push(event.work),
            GateEvent::Submitted(event) => {
                self.touch_from(event.item);
                if let Some((tenant, changes)) = self.item(event.item).map(|row| (row.tenant.clone(), keys(&row.subjects))) {
                    self.touch_changes(&tenant, changes);
                }
            }
            GateEvent::ItemDequeued(event) => {
                if let Some(row) = self.item(event.item).cloned() {
                    self.touched.let_go.extend(row.subjects.iter().filter_map(Subject::change_key));
                    self.touch_others(event.item, &row.tenant, &row.pipeline, &row.subjects);
                    self.touch_queue((row.tenant, row.pipeline, row.queue));
                }
            }
            GateEvent::LeaseWanted(event) => self.touch_build(event.build),
            GateEvent::BuildReady(event) => {
                // What it took before its nodes it gives back.
                let before = |row: &BuildRow| {
                    row.job.semaphores.iter().any(|one| !row.job.traits.resources_first.contains(&one.name))
                };
                match self.build(event.started.build).is_some_and(before) {
                    true => self.touch_ended(event.started.build),
                    false => self.touch_alone(event.item),
                }
            }
            GateEvent::BuildStarted(event) => {
                let first = |row: &BuildRow| !row.job.traits.resources_first.is_empty();
                match self.build(event.started.build).is_some_and(first) {
                    true => self.touch_build(event.started.build),
                    false => self.touch_alone(event.item),
                }
            }
            GateEvent::BuildResumed(event) => self.touch_alone(event.item),
            GateEvent::BuildFailing(event) => self.touch_alone(event.item),
            GateEvent::BuildPaused(event) => self.touch_build(event.paused.build),
            GateEvent::BuildFinished(event) => self.touch_ended(event.finished.build),
            GateEvent::BuildSettled(event) => self.touch_ended(event.build),
            GateEvent::NodesetChanged(event) => self.touch_alone(event.item),
            GateEvent::BranchMoved(_)
            | GateEvent::ChangesForgotten(_)
            | GateEvent::WaitChanged(_)
            | GateEvent::Unrouted(_)
            | GateEvent::EnqueueRefused(_)
            | GateEvent::OutcomeIgnored(_)
            | GateEvent::QueueAsked(_)
            | GateEvent::FailuresCounted(_)
            | GateEvent::ReportDelivered(_)
            | GateEvent::LeaseEndWanted(_)
            | GateEvent::LeasePauseWanted(_)
            | GateEvent::LeaseResumeWanted(_)
            | GateEvent::AutoholdSet(_)
            | GateEvent::NodesHeld(_)
            | GateEvent::HoldEnded(_)
            | GateEvent::AutoholdEnded(_)
            | GateEvent::SecretsGiven(_)
            | GateEvent::Accessed(_)
            | GateEvent::ReturnedChanged(_)
            | GateEvent::TimersChanged(_)
            // The item leaves next.
            | GateEvent::ArtifactsNoted(_) => {}
        }
    }

    /// Notes what is touched by work that is sent again: whether the configuration is waited for depends on how often it
    /// was asked for.
    pub(crate) fn touch_resent(&mut self, work: WorkId) {
        self.touched.asked.push(work);
        self.touched.all |= self.pending(work).is_some_and(|row| row.work.is_of_configuration());
    }

    /// The item for which facts were asked for before it is merged.
    fn asked_for(&self, work: WorkId) -> Option<ItemId> {
        match &self.pending(work)?.work {
            Work::Changes(wanted) => match wanted.purpose {
                FactsPurpose::BeforeSubmit { item } => Some(item),
                FactsPurpose::Trigger { .. } | FactsPurpose::Refresh | FactsPurpose::ProjectMerged { .. } => None,
            },
            _ => None,
        }
    }

    fn touch_queue(&mut self, key: QueueKey) {
        self.touched.queues.entry(key).or_default().whole = true;
    }

    fn touch_alone(&mut self, item: ItemId) {
        let Some(row) = self.item(item) else { return };
        let key = (row.tenant.clone(), row.pipeline.clone(), row.queue.clone());
        self.touched.queues.entry(key).or_default().alone.insert(item);
    }

    fn touch_from(&mut self, item: ItemId) {
        let Some(row) = self.item(item) else { return };
        let key = (row.tenant.clone(), row.pipeline.clone(), row.queue.clone());
        let others = self.others(item, &row.tenant, &row.pipeline, &row.subjects);
        others.into_iter().for_each(|key| self.touch_queue(key));
        self.touched.queues.entry(key).or_default().from.insert(item);
    }

    /// An item came further, or is on its way into the branch (`leaves`): behind it that concerns only who waits for what
    /// is ahead, with its layout or with a build; and of those of which no state was asked for the next, who may begin.
    fn touch_progress(&mut self, item: ItemId, leaves: bool) {
        let Some(row) = self.item(item) else { return };
        let key = (row.tenant.clone(), row.pipeline.clone(), row.queue.clone());
        let others = self.others(item, &row.tenant, &row.pipeline, &row.subjects);
        let items = self.gate().queues.row(&key).map(|row| row.items.as_slice()).unwrap_or_default();
        let mut alone = vec![item];
        let mut next = true;
        for behind in items.iter().skip_while(|other| **other != item).skip(1) {
            let Some(row) = self.item(*behind) else { continue };
            let set = row.buildset.and_then(|buildset| self.buildset(buildset));
            let concerned = match set.filter(|set| set.phase != Phase::Opened) {
                Some(set) => self.waits_for_those_ahead(set),
                None => {
                    // What comes behind one that is not in the chain, or has nothing to prepare, may begin before it.
                    let passed = !row.failing.is_empty() || !row.live;
                    let first = std::mem::replace(&mut next, false);
                    next = first && passed;
                    first || passed || leaves
                }
            };
            if concerned {
                alone.push(*behind);
            }
        }
        others.into_iter().for_each(|key| self.touch_queue(key));
        self.touched.queues.entry(key).or_default().alone.extend(alone);
    }

    /// Whether a buildset waits for a layout, or a build of it for what may be an item ahead.
    fn waits_for_those_ahead(&self, set: &BuildsetRow) -> bool {
        let waits = |row: &BuildRow| row.state == BuildState::Waiting || row.ready.is_some();
        matches!(set.phase, Phase::Prepared | Phase::LayoutReady)
            || set.phase == Phase::Ended && set.layout.is_none()
            || set.builds.iter().any(|build| self.build(*build).is_some_and(waits))
    }

    /// Items of other queues of the pipeline that hold the same: one that is not live has the artifacts of the one
    /// that is.
    fn touch_others(&mut self, item: ItemId, tenant: &str, pipeline: &str, subjects: &[Subject]) {
        let others = self.others(item, tenant, pipeline, subjects);
        others.into_iter().for_each(|key| self.touch_queue(key));
    }

    fn others(&self, item: ItemId, tenant: &str, pipeline: &str, subjects: &[Subject]) -> BTreeSet<QueueKey> {
        let mut queues: BTreeSet<QueueKey> = BTreeSet::new();
        for subject in subjects {
            let others = self.items_in(tenant, pipeline, subject);
            let rows = others.into_iter().filter(|other| *other != item).filter_map(|other| self.item(other));
            queues.extend(rows.map(|row| (row.tenant.clone(), row.pipeline.clone(), row.queue.clone())));
        }
        queues
    }

    /// What is known of changes is about to be replaced: nothing may hold them, nor what they stood by so far.
    fn let_go(&mut self, tenant: &str, changes: &BTreeSet<ChangeKey>) {
        for change in changes {
            let facts = self.change(tenant, change).map(|row| &row.facts);
            let held: Vec<ChangeKey> =
                facts.into_iter().flat_map(held_by).map(|(project, change)| named(project, change)).collect();
            self.touched.let_go.extend(held);
            self.touched.let_go.insert(change.clone());
        }
    }

    /// A build's state changed: that concerns others only by what it holds and makes.
    fn touch_build(&mut self, build: BuildId) {
        let Some(row) = self.build(build) else { return };
        let (item, traits) = (row.item, &row.job.traits);
        if !row.job.semaphores.is_empty() {
            self.touched.all = true;
        } else if traits.hold_following_changes || !traits.provides.is_empty() {
            self.touch_from(item);
        } else {
            self.touch_alone(item);
        }
    }

    /// A build is over. What it held goes to its own pipeline first.
    fn touch_ended(&mut self, build: BuildId) {
        let holds = self.build(build).filter(|row| row.holds_lease() && !row.job.semaphores.is_empty());
        let pipeline = holds.and_then(|row| self.item(row.item)).map(|row| row.pipeline.clone());
        self.freed_in = self.freed_in.take().or(pipeline);
        self.touch_build(build);
    }

    /// What is known of changes is new: that concerns the items that hold them, or something that needs them.
    fn touch_changes(&mut self, tenant: &str, mut changes: BTreeSet<ChangeKey>) {
        loop {
            let needs = |needed: &ChangeKey| changes.contains(needed);
            let more: Vec<ChangeKey> = self
                .known_changes(tenant)
                .filter(|(_, row)| {
                    row.facts.needs.iter().any(needs) || has_topic(&row.facts) && of_topic(&row.facts).iter().any(needs)
                })
                .map(|((project, change), _)| named(project, change))
                .filter(|key| !changes.contains(key))
                .collect();
            if more.is_empty() {
                break;
            }
            changes.extend(more);
        }
        let mut queues: BTreeSet<QueueKey> = BTreeSet::new();
        for change in &changes {
            let rows = self.items_of(tenant, change).into_iter().filter_map(|item| self.item(item));
            queues.extend(rows.map(|row| (row.tenant.clone(), row.pipeline.clone(), row.queue.clone())));
        }
        for key in queues {
            self.touch_queue(key);
        }
    }
}

fn keys(subjects: &[Subject]) -> BTreeSet<ChangeKey> {
    subjects.iter().filter_map(Subject::change_key).collect()
}
