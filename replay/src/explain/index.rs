//! What can be explained, and where the events that tell of it stand: one pass over the history.
//!
//! Only names and places are kept; records are read again when they are told.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_event_log::{Log, Tail};
use gatelog_record::draft::capacity::Pausable;
use gatelog_record::draft::gate::{FactsPurpose, FreezeOutcome, Subject, TriggerCause, WaitSubject};
use gatelog_record::event::{CapacityEvent, GateEvent};
use gatelog_record::{
    BuildId, BuildsetId, Event, EventRecord, EventRef, ItemId, LeaseId, NodeId, Partition, Stream, Timestamp,
};

use super::find::Found;
use super::say::{Names, subject};
use crate::domains::Domains;
use crate::error::ReplayError;
use crate::reading::read_history;
use crate::timeline::Moment;

/// An item in the index.
#[derive(Clone, Debug)]
pub(crate) struct ItemNote {
    pub tenant: String,
    pub pipeline: String,
    /// The partition it lives in.
    pub partition: Partition,
    /// Everything said of it, its buildsets and builds; by sequence.
    pub events: Vec<u64>,
    pub builds: Vec<BuildId>,
}

/// A build in the index.
#[derive(Clone, Debug)]
pub(crate) struct BuildNote {
    pub item: ItemId,
    pub buildset: BuildsetId,
    pub job: String,
    /// What the gate says of it.
    pub told: Vec<EventRef>,
    /// What capacity says of its leases.
    pub leases: Vec<EventRef>,
}

/// A change as people may name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeName {
    pub tenant: String,
    pub project: String,
    /// The change, or the ref if it is none.
    pub change: String,
}

/// What happened to a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeNote {
    pub url: String,
    pub items: Vec<ItemId>,
    /// Triggers and refusals, by where they stand.
    pub events: Vec<EventRef>,
}

/// Everything that can be named, up to a moment.
#[derive(Default)]
pub(crate) struct Index {
    pub items: BTreeMap<ItemId, ItemNote>,
    pub buildsets: BTreeMap<BuildsetId, ItemId>,
    pub builds: BTreeMap<BuildId, BuildNote>,
    pub leases: BTreeMap<LeaseId, BuildId>,
    /// Where each node was given out.
    pub nodes: BTreeMap<NodeId, LeaseId>,
    /// What is said of each lease.
    pub lease_events: BTreeMap<LeaseId, Vec<EventRef>>,
    /// What is said of each worker, and what it was given.
    pub workers: BTreeMap<String, Vec<EventRef>>,
    /// Where each lease was granted.
    pub granted: BTreeMap<LeaseId, EventRef>,
    /// Where each attempt began.
    pub started: BTreeMap<(BuildId, u32), EventRef>,
    pub changes: BTreeMap<ChangeName, ChangeNote>,
    /// Each trigger's change, by partition and the trigger's number.
    triggers: BTreeMap<(Partition, u64), ChangeName>,
    pub tenants: BTreeSet<String>,
    /// The newest sequence of each partition inside.
    pub newest: BTreeMap<Partition, u64>,
    pub names: Names,
}

impl Index {
    /// Reads the history of every partition up to a moment. A sequence is one of the first gate partition; the others
    /// are read up to the time of that event.
    pub fn read(domains: &Domains, log: &dyn Log, until: Moment) -> Result<Index, ReplayError> {
        let mut index = Index { names: Names::of(domains.clone()), ..Index::default() };
        let mut partitions: Vec<Partition> = log
            .streams()?
            .into_iter()
            .filter_map(|stream| match stream {
                Stream::Events(partition) => Some(partition),
                _ => None,
            })
            .collect();
        // The gate first: capacity's events are of its builds.
        partitions.sort_by_key(|partition| domains.order(*partition));
        let mut until = until;
        for partition in partitions {
            let mut last = Timestamp::ZERO;
            read_history(log, partition, Tail::GENESIS, |record, _, _| {
                let inside = match until {
                    Moment::Newest => true,
                    Moment::Sequence(sequence) => record.sequence <= sequence,
                    Moment::Time(time) => record.recorded_at <= time,
                };
                if inside {
                    last = record.recorded_at;
                    index.note(partition, &record);
                }
                Ok(inside)
            })?;
            let newest = index.newest.get(&partition).copied().unwrap_or_default();
            if let Moment::Sequence(wanted) = until {
                if wanted > newest {
                    return Err(ReplayError::NotYet { partition, wanted, newest });
                }
                until = Moment::Time(last);
            }
        }
        Ok(index)
    }

    fn note(&mut self, partition: Partition, record: &EventRecord) {
        self.newest.insert(partition, record.sequence);
        self.names.learn(&record.event);
        match &record.event {
            Event::Gate(event) => self.gate(partition, record.sequence, event),
            Event::Capacity(event) => self.capacity(EventRef { partition, sequence: record.sequence }, event),
            // What other domains say is told event by event.
            _ => {}
        }
    }

    fn gate(&mut self, partition: Partition, sequence: u64, event: &GateEvent) {
        let at = EventRef { partition, sequence };
        match event {
            GateEvent::TenantConfigured(configured) => {
                self.tenants.insert(configured.tenant.tenant.clone());
            }
            GateEvent::TriggerWaiting(waiting) => {
                let (project, change) = match &waiting.cause {
                    TriggerCause::Forge(received) => {
                        let event = &received.event;
                        (event.project.clone(), event.change.clone().unwrap_or_else(|| event.git_ref.clone()))
                    }
                    TriggerCause::Asked(asked) => (asked.change.project.clone(), asked.change.change.clone()),
                    TriggerCause::Timer(ticked) => (ticked.timer.project.clone(), ticked.timer.branch.clone()),
                };
                let name = ChangeName { tenant: waiting.tenant.clone(), project, change };
                self.changes.entry(name.clone()).or_default().events.push(at);
                self.triggers.insert((partition, waiting.trigger), name);
            }
            GateEvent::TriggerSettled(settled) => {
                if let Some(name) = self.triggers.get(&(partition, settled.trigger)) {
                    self.changes.entry(name.clone()).or_default().events.push(at);
                }
            }
            GateEvent::EnqueueRefused(refused) => {
                let name = change_name(&refused.tenant, &refused.subject);
                let change = self.changes.entry(name).or_default();
                change.url.clone_from(&refused.subject.url);
                change.events.push(at);
            }
            GateEvent::ItemEnqueued(enqueued) => {
                for subject in &enqueued.subjects {
                    let change = self.changes.entry(change_name(&enqueued.tenant, subject)).or_default();
                    change.url.clone_from(&subject.url);
                    change.items.push(enqueued.item);
                }
                let note = ItemNote {
                    tenant: enqueued.tenant.clone(),
                    pipeline: enqueued.pipeline.clone(),
                    partition,
                    events: Vec::new(),
                    builds: Vec::new(),
                };
                self.items.insert(enqueued.item, note);
            }
            GateEvent::BuildsetOpened(opened) => {
                self.buildsets.insert(opened.buildset, opened.item);
            }
            GateEvent::Frozen(frozen) => {
                if let FreezeOutcome::Frozen { jobs, .. } = &frozen.done.outcome {
                    for (build, job) in frozen.builds.iter().zip(jobs) {
                        let note = BuildNote {
                            item: frozen.item,
                            buildset: frozen.buildset,
                            job: job.name.clone(),
                            told: vec![at],
                            leases: Vec::new(),
                        };
                        self.builds.insert(*build, note);
                        if let Some(item) = self.items.get_mut(&frozen.item) {
                            item.builds.push(*build);
                        }
                    }
                }
            }
            GateEvent::BuildStarted(started) => {
                self.started.insert((started.started.build, started.started.attempt), at);
            }
            // Who begins again in another order is told so; a queue that goes first as it stands says it itself.
            GateEvent::QueueReordered(order) if order.quiet.is_empty() => {
                for item in &order.items {
                    if let Some(note) = self.items.get_mut(item) {
                        note.events.push(sequence);
                    }
                }
            }
            _ => {}
        }
        if let Some(item) = self.item_of(event)
            && let Some(note) = self.items.get_mut(&item)
        {
            note.events.push(sequence);
        }
        if let Some(note) = build_of(event).and_then(|build| self.builds.get_mut(&build)) {
            note.told.push(at);
        }
    }

    fn capacity(&mut self, at: EventRef, event: &CapacityEvent) {
        match event {
            CapacityEvent::LeaseQueued(queued) => {
                if let Some((build, _)) = queued.ask.owner.build() {
                    self.leases.insert(queued.lease, build);
                }
            }
            CapacityEvent::LeaseGranted(granted) => {
                self.granted.insert(granted.lease, at);
                for node in &granted.nodes {
                    self.nodes.insert(node.node, granted.lease);
                }
                self.workers.entry(granted.worker.clone()).or_default().push(at);
            }
            CapacityEvent::WorkerJoined(joined) => {
                self.workers.entry(joined.offer.worker.clone()).or_default().push(at);
            }
            CapacityEvent::WorkerLost(lost) => self.workers.entry(lost.worker.clone()).or_default().push(at),
            CapacityEvent::PauseChanged(changed) if changed.asked.role == Pausable::Executor => {
                self.workers.entry(changed.asked.component.clone()).or_default().push(at);
            }
            _ => {}
        }
        if let Some(lease) = lease_of(event) {
            self.lease_events.entry(lease).or_default().push(at);
        }
        let build = self.build_of_capacity(event);
        if let Some(note) = build.and_then(|build| self.builds.get_mut(&build)) {
            note.leases.push(at);
        }
    }

    /// The build an event of capacity is about.
    pub fn build_of_capacity(&self, event: &CapacityEvent) -> Option<BuildId> {
        let owner = match event {
            CapacityEvent::LeaseQueued(queued) => &queued.ask.owner,
            CapacityEvent::LeaseGranted(granted) => &granted.owner,
            CapacityEvent::LeaseRevoked(revoked) => &revoked.owner,
            CapacityEvent::LeaseRefused(refused) => &refused.ask.owner,
            other => return self.leases.get(&lease_of(other)?).copied(),
        };
        owner.build().map(|(build, _)| build)
    }

    /// Every event that tells of what was found, in the order of the log; `None` when nothing is known of it.
    pub fn events_of(&self, found: &Found) -> Option<Vec<EventRef>> {
        let of_item = |item: &ItemId| {
            let note = self.items.get(item)?;
            let own = note.events.iter().map(|sequence| EventRef { partition: note.partition, sequence: *sequence });
            let leases = note.builds.iter().filter_map(|build| self.builds.get(build)).flat_map(|build| &build.leases);
            Some(own.chain(leases.copied()).collect::<Vec<_>>())
        };
        let mut events = match found {
            Found::Item(item) => of_item(item)?,
            Found::Buildset(buildset) => of_item(self.buildsets.get(buildset)?)?,
            Found::Build(build) => self.builds.get(build).map(|note| [&note.told[..], &note.leases[..]].concat())?,
            Found::Lease(lease) => self.lease_events.get(lease)?.clone(),
            Found::Node(node) => self.lease_events.get(self.nodes.get(node)?)?.clone(),
            Found::Worker(worker) => self.workers.get(worker)?.clone(),
            Found::Event(event) => vec![*event],
            Found::Change { tenant, project, change } => {
                let name = ChangeName { tenant: tenant.clone(), project: project.clone(), change: change.clone() };
                let note = self.changes.get(&name)?;
                note.events.iter().copied().chain(note.items.iter().filter_map(of_item).flatten()).collect()
            }
        };
        events.sort();
        events.dedup();
        Some(events)
    }

    /// The item an event is about.
    pub fn item_of(&self, event: &GateEvent) -> Option<ItemId> {
        let of_build = |build: &BuildId| self.builds.get(build).map(|note| note.item);
        match event {
            GateEvent::LayoutWanted(wanted) => wanted.item,
            GateEvent::LayoutReady(ready) => Some(ready.item),
            GateEvent::ChangesWanted(wanted) => match &wanted.purpose {
                FactsPurpose::BeforeSubmit { item } => Some(*item),
                _ => None,
            },
            GateEvent::ItemEnqueued(enqueued) => Some(enqueued.item),
            GateEvent::BuildsetOpened(opened) => Some(opened.item),
            GateEvent::PrepareRequested(wanted) => Some(wanted.item),
            GateEvent::Prepared(prepared) => Some(prepared.item),
            GateEvent::FreezeWanted(wanted) => Some(wanted.item),
            GateEvent::Frozen(frozen) => Some(frozen.item),
            GateEvent::LeaseWanted(wanted) => Some(wanted.item),
            GateEvent::LeaseEndWanted(wanted) => of_build(&wanted.build),
            GateEvent::LeasePauseWanted(wanted) => of_build(&wanted.build),
            GateEvent::LeaseResumeWanted(wanted) => of_build(&wanted.build),
            GateEvent::BuildStarted(started) => Some(started.item),
            GateEvent::BuildFinished(finished) => Some(finished.item),
            GateEvent::SecretsGiven(given) => Some(given.item),
            GateEvent::BuildSettled(settled) => Some(settled.item),
            GateEvent::NodesetChanged(changed) => Some(changed.item),
            GateEvent::BuildReady(ready) => Some(ready.item),
            GateEvent::NodesHeld(held) => Some(held.item),
            GateEvent::HoldEnded(ended) => of_build(&ended.build),
            GateEvent::ReturnedChanged(changed) => of_build(&changed.build),
            GateEvent::ItemFailing(failing) => Some(failing.item),
            GateEvent::ItemReset(reset) => Some(reset.item),
            GateEvent::WaitChanged(changed) => match &changed.subject {
                WaitSubject::Item(item) => Some(*item),
                WaitSubject::Build(build) => of_build(build),
                _ => None,
            },
            GateEvent::SubmitRequested(wanted) => Some(wanted.item),
            GateEvent::Submitted(submitted) => Some(submitted.item),
            GateEvent::ReportRequested(wanted) => wanted.item,
            GateEvent::ReportDelivered(delivered) => delivered.item,
            GateEvent::ItemDequeued(left) => Some(left.item),
            GateEvent::BranchMoved(moved) => moved.by,
            _ => None,
        }
    }

    /// An item in a few words.
    pub fn say_item(&self, item: ItemId) -> String {
        self.names.item(item)
    }
}

fn change_name(tenant: &str, of: &Subject) -> ChangeName {
    let change = of.change.clone().unwrap_or_else(|| of.branch.clone().unwrap_or_else(|| subject(of)));
    ChangeName { tenant: tenant.to_owned(), project: of.project.clone(), change }
}

/// The lease an event is about.
fn lease_of(event: &CapacityEvent) -> Option<LeaseId> {
    match event {
        CapacityEvent::LeaseQueued(queued) => Some(queued.lease),
        CapacityEvent::LeaseGranted(granted) => Some(granted.lease),
        CapacityEvent::LeaseRevoked(revoked) => Some(revoked.lease),
        CapacityEvent::LeaseEnded(ended) => Some(ended.lease),
        CapacityEvent::WaitChanged(changed) => Some(changed.lease),
        CapacityEvent::LeaseHeld(held) => Some(held.lease),
        CapacityEvent::LeasePaused(paused) => Some(paused.lease),
        CapacityEvent::LeaseResumed(resumed) => Some(resumed.lease),
        CapacityEvent::ReleaseNoted(noted) => Some(noted.released.lease),
        CapacityEvent::LeaseRefused(_)
        | CapacityEvent::WorkerJoined(_)
        | CapacityEvent::WorkerLost(_)
        | CapacityEvent::PauseChanged(_) => None,
    }
}

/// The build an event of the gate is about, if it is about one.
pub(crate) fn build_of(event: &GateEvent) -> Option<BuildId> {
    match event {
        GateEvent::LeaseWanted(wanted) => Some(wanted.build),
        GateEvent::LeaseEndWanted(wanted) => Some(wanted.build),
        GateEvent::BuildStarted(started) => Some(started.started.build),
        GateEvent::BuildFinished(finished) => Some(finished.finished.build),
        GateEvent::SecretsGiven(given) => Some(given.opened.build),
        GateEvent::BuildSettled(settled) => Some(settled.build),
        GateEvent::NodesetChanged(changed) => Some(changed.build),
        GateEvent::BuildReady(ready) => Some(ready.started.build),
        GateEvent::BuildPaused(paused) => Some(paused.paused.build),
        GateEvent::BuildResumed(resumed) => Some(resumed.build),
        GateEvent::BuildFailing(failing) => Some(failing.failing.build),
        GateEvent::HoldEnded(ended) => Some(ended.build),
        GateEvent::ReturnedChanged(changed) => Some(changed.build),
        GateEvent::WaitChanged(changed) => match &changed.subject {
            WaitSubject::Build(build) => Some(*build),
            _ => None,
        },
        _ => None,
    }
}
