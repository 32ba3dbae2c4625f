//! One sentence for each record, and names for what records mean by an id.

use std::collections::BTreeMap;

use gatelog_record::draft::capacity::{LeaseDescription, LeaseSubject};
use gatelog_record::draft::gate::{
    AccessTold, ChangesWanted, ConfigScope, EnqueueAsked, FactsPurpose, FreezeOutcome, Frozen, Given, ItemEnqueued,
    LayoutMade, LayoutOutcome, Prepared, ReturnedChange, ReturnedStep, Subject, Submitted, TriggerCause, TriggerIntake,
    WaitChanged, WaitSubject,
};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::event::{CapacityEvent, GateEvent, PartitionEvent};
use gatelog_record::input::{GateInput, IntakeInput, PartitionInput};
use gatelog_record::{BuildId, BuildsetId, Event, Input, ItemId, LeaseId, Value};

use crate::domains::Domains;

use super::outcomes::{frozen, prepared, submitted};
use super::timers;

/// How many names are kept of each kind; the oldest ids go first. Without a name an id is shown.
const MAX_NAMES: usize = 200_000;

/// What ids mean, learnt from the events that made them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    domains: Domains,
    items: BTreeMap<ItemId, String>,
    buildsets: BTreeMap<BuildsetId, ItemId>,
    builds: BTreeMap<BuildId, (String, ItemId)>,
    leases: BTreeMap<LeaseId, (LeaseSubject, LeaseDescription)>,
}

/// The beginning of an id: enough for people, and for `gatelog explain`.
pub fn short(id: &impl std::fmt::Display) -> String {
    id.to_string().chars().take(8).collect()
}

/// A change or ref in a few words: `git.demo/library master/add-miles,1`.
pub fn subject(subject: &Subject) -> String {
    match (&subject.change, &subject.patchset) {
        (Some(change), Some(patchset)) => format!("{} {change},{patchset}", subject.project),
        (Some(change), None) => format!("{} {change}", subject.project),
        _ => {
            let at = subject.branch.as_deref().unwrap_or(&subject.git_ref);
            match &subject.commit {
                Some(commit) => format!("{} {at} at {}", subject.project, commit_name(commit)),
                None => format!("{} {at}", subject.project),
            }
        }
    }
}

/// The beginning of a commit.
pub fn commit_name(commit: &str) -> String {
    commit.chars().take(8).collect()
}

/// A span for people.
pub fn span(millis: i64) -> String {
    match millis.max(0) {
        ms @ ..100 => format!("{ms}ms"),
        ms @ 100..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        ms @ 60_000..3_600_000 => format!("{}m {:02}s", ms / 60_000, ms / 1000 % 60),
        ms => format!("{}h {:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

pub(super) fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(", ")
}

pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

impl Names {
    /// None yet; records are told in the words of these domains.
    pub fn of(domains: Domains) -> Names {
        Names { domains, ..Names::default() }
    }

    /// In whose words records are told.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Learns from an event.
    pub fn learn(&mut self, event: &Event) {
        fn put<K: Ord + Copy, V>(map: &mut BTreeMap<K, V>, key: K, value: V) {
            if map.len() >= MAX_NAMES {
                map.pop_first();
            }
            map.insert(key, value);
        }
        match event {
            Event::Gate(GateEvent::ItemEnqueued(enqueued)) => {
                put(&mut self.items, enqueued.item, subjects(enqueued));
            }
            Event::Gate(GateEvent::BuildsetOpened(opened)) => put(&mut self.buildsets, opened.buildset, opened.item),
            Event::Gate(GateEvent::Frozen(frozen)) => {
                if let FreezeOutcome::Frozen { jobs, .. } = &frozen.done.outcome {
                    for (build, job) in frozen.builds.iter().zip(jobs) {
                        put(&mut self.builds, *build, (job.name.clone(), frozen.item));
                    }
                }
            }
            Event::Capacity(CapacityEvent::LeaseQueued(queued)) => {
                let ask = &queued.ask;
                put(&mut self.leases, queued.lease, (ask.owner.subject.clone(), ask.description.clone()));
            }
            _ => {}
        }
    }

    /// An item by what it holds.
    pub fn item(&self, item: ItemId) -> String {
        self.items.get(&item).cloned().unwrap_or_else(|| format!("item {}", short(&item)))
    }

    /// A build by its job and item.
    pub fn build(&self, build: BuildId) -> String {
        match self.builds.get(&build) {
            Some((job, item)) => format!("{job} of {}", self.item(*item)),
            None => format!("build {}", short(&build)),
        }
    }

    /// A lease by the attempt it is of.
    pub(crate) fn lease(&self, lease: LeaseId) -> String {
        match self.leases.get(&lease) {
            Some((subject, description)) => self.described(subject, description),
            None => format!("lease {}", short(&lease)),
        }
    }

    /// What a lease is for, with what its owner says of it.
    pub(crate) fn described(&self, subject: &LeaseSubject, description: &LeaseDescription) -> String {
        match subject.build().filter(|(build, _)| self.builds.contains_key(build)) {
            Some((build, attempt)) => format!("attempt {attempt} of {}", self.build(build)),
            None => format!(
                "attempt {} of {} ({} {})",
                subject.attempt,
                if subject.build().is_some() { description.fact("job") } else { &description.title },
                subject.kind,
                short(&subject.id)
            ),
        }
    }

    /// What a lease is for.
    pub(crate) fn subject(&self, subject: &LeaseSubject) -> String {
        match subject.build() {
            Some((build, attempt)) => format!("attempt {attempt} of {}", self.build(build)),
            None => format!("attempt {} of {} {}", subject.attempt, subject.kind, short(&subject.id)),
        }
    }

    fn wait_subject(&self, subject: &WaitSubject) -> String {
        match subject {
            WaitSubject::Tenant(tenant) => format!("tenant {tenant}"),
            WaitSubject::Trigger(trigger) => format!("trigger {trigger}"),
            WaitSubject::Item(item) => self.item(*item),
            WaitSubject::Build(build) => self.build(*build),
        }
    }

    /// An event in one sentence.
    pub fn event(&self, event: &Event) -> String {
        match event {
            Event::Partition(event) => partition_event(event),
            other => {
                let domain = other.domain().and_then(|domain| self.domains.of(domain));
                let said = domain.and_then(|domain| domain.words().event(other, self));
                // Nobody here has words for it.
                said.unwrap_or_else(|| other.name().to_owned())
            }
        }
    }

    pub(crate) fn gate_event(&self, event: &GateEvent) -> String {
        match event {
            GateEvent::TenantConfigured(configured) => {
                let tenant = &configured.tenant;
                let projects = count(tenant.projects.len(), "project");
                format!("tenant {} has {projects} by tenant file version {}", tenant.tenant, tenant.version)
            }
            GateEvent::ConfigReadWanted(wanted) => match &wanted.scope {
                ConfigScope::Tenant => format!("all configuration of tenant {} is to be read", wanted.tenant),
                ConfigScope::Projects(projects) => {
                    format!("configuration of {} is to be read", list(projects.iter().map(String::as_str)))
                }
            },
            GateEvent::ConfigRead(read) => {
                let files: usize = read.found.sets.iter().map(|set| set.files.len()).sum();
                let failed = match read.found.failed.as_slice() {
                    [] => String::new(),
                    failed => format!("; not read: {}", list(failed.iter().map(|one| one.project.as_str()))),
                };
                let branches = if read.found.sets.len() == 1 { "branch" } else { "branches" };
                format!("{} on {} {branches} were read{failed}", count(files, "file"), read.found.sets.len())
            }
            GateEvent::LayoutWanted(wanted) => match wanted.item {
                Some(item) => format!("a layout is to be made for {}", self.item(item)),
                None => format!("the layout of tenant {} is to be made", wanted.tenant),
            },
            GateEvent::LayoutReady(ready) => format!("{}: {}", self.item(ready.item), layout(&ready.made)),
            GateEvent::LayoutActivated(activated) => {
                let made = &activated.made;
                format!("tenant {}, layout {}: {}", made.tenant, activated.generation, layout(made))
            }
            GateEvent::ChangesWanted(wanted) => self.changes_wanted(wanted),
            GateEvent::ChangesObserved(observed) => match &observed.found.failed {
                Some((code, message)) => format!("facts about changes could not be had: {message} [{code}]"),
                None => {
                    let names = observed.found.changes.iter().map(|facts| subject(&facts.subject)).collect::<Vec<_>>();
                    let missing = match observed.found.missing.as_slice() {
                        [] => String::new(),
                        missing => format!("; missing: {}", list(missing.iter().map(|key| key.change.as_str()))),
                    };
                    format!("facts about {}: {}{missing}", count(names.len(), "change"), names.join(", "))
                }
            },
            GateEvent::TriggerWaiting(waiting) => {
                let what = match &waiting.cause {
                    TriggerCause::Forge(received) => forge_event(&received.event),
                    TriggerCause::Asked(asked) => enqueue_asked(asked),
                    TriggerCause::Timer(ticked) => timers::ticked(ticked),
                };
                match waiting.needs_facts {
                    true => format!("{what}; it waits for facts about its change"),
                    false => format!("{what}; it waits its turn"),
                }
            }
            GateEvent::ChangesForgotten(forgotten) => {
                let changes = list(forgotten.changes.iter().map(|key| key.change.as_str()));
                format!("nothing refers to {changes} any more")
            }
            GateEvent::TriggerSettled(settled) => {
                let verdicts = settled.verdicts.iter().map(|verdict| match verdict.pipeline.as_str() {
                    "" => format!("{}{}", verdict.code, in_brackets(&verdict.detail)),
                    pipeline => format!("{pipeline}: {}{}", verdict.code, in_brackets(&verdict.detail)),
                });
                let verdicts = verdicts.collect::<Vec<_>>().join("; ");
                format!("trigger {} was dealt with: {}", settled.trigger, or(&verdicts, "no pipeline concerned"))
            }
            GateEvent::Unrouted(unrouted) => {
                let what = &unrouted.what;
                format!(
                    "{} of {} from {} concerns no tenant [{}]",
                    what.event, what.project, what.connection, unrouted.reason
                )
            }
            GateEvent::EnqueueRefused(refused) => format!(
                "{} was not let into {}: {} [{}]",
                subject(&refused.subject),
                refused.pipeline,
                refused.detail,
                refused.code
            ),
            GateEvent::BranchMoved(moved) => {
                let from = moved.old.as_deref().map_or("nothing".to_owned(), commit_name);
                let to = moved.new.as_deref().map_or("nothing".to_owned(), commit_name);
                let by = moved.by.map(|item| format!(" by the merge of {}", self.item(item))).unwrap_or_default();
                format!("{} of {} moved from {from} to {to}{by}", moved.at.branch, moved.at.project)
            }
            GateEvent::ItemEnqueued(enqueued) => {
                let behind = enqueued
                    .ahead
                    .map_or("first in its queue".to_owned(), |ahead| format!("behind {}", self.item(ahead)));
                let live = if enqueued.live { "" } else { ", not live" };
                let ItemEnqueued { queue, pipeline, reason, .. } = enqueued;
                let given = parameters(&enqueued.parameters);
                format!("{} entered queue {queue} of {pipeline}, {behind}{live}{given} [{reason}]", subjects(enqueued))
            }
            GateEvent::BuildsetOpened(opened) => {
                let on = match opened.ahead.as_slice() {
                    [] => "its branch alone".to_owned(),
                    ahead => ahead.iter().map(|item| self.item(*item)).collect::<Vec<_>>().join(", "),
                };
                format!("{}: a buildset on top of {on}", self.item(opened.item))
            }
            GateEvent::PrepareRequested(wanted) => {
                let steps = count(wanted.steps.len(), "change");
                format!("{}: merging {steps} is to be prepared", self.item(wanted.item))
            }
            GateEvent::Prepared(Prepared { item, done, .. }) => {
                format!("{}: {}", self.item(*item), prepared(&done.outcome))
            }
            GateEvent::FreezeWanted(wanted) => format!("{}: jobs are to be frozen", self.item(wanted.item)),
            GateEvent::Frozen(Frozen { item, done, .. }) => {
                format!("{}: {}", self.item(*item), frozen(&done.outcome))
            }
            GateEvent::LeaseWanted(wanted) => {
                let ask = &wanted.ask;
                let nodes = list(ask.nodes.iter().map(|node| node.label.as_str()));
                format!(
                    "{} of {} asks for a worker (attempt {}; nodes: {})",
                    ask.description.fact("job"),
                    self.item(wanted.item),
                    wanted.attempt,
                    or(&nodes, "none")
                )
            }
            GateEvent::LeaseEndWanted(wanted) => {
                format!(
                    "{} no longer needs its worker (attempt {}) [{}]",
                    self.build(wanted.build),
                    wanted.attempt,
                    wanted.reason
                )
            }
            GateEvent::BuildStarted(started) => {
                let started = &started.started;
                format!("{} runs on {} (attempt {})", self.build(started.build), started.worker, started.attempt)
            }
            GateEvent::BuildFinished(done) => {
                let finished = &done.finished;
                let detail = finished.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
                let again = if done.retry { "; it is tried again" } else { "" };
                let took = span(finished.finished_at.millis_since(finished.started_at));
                let (build, result) = (self.build(finished.build), finished.result.word());
                format!("{build} ended {result} after {took} (attempt {}){detail}{again}", finished.attempt)
            }
            GateEvent::BuildSettled(settled) => {
                let (build, result) = (self.build(settled.build), settled.result.word());
                format!("{build} is {result}: {} [{}]", settled.detail, settled.code)
            }
            GateEvent::OutcomeIgnored(ignored) => {
                format!("an outcome of {} was ignored [{}]", ignored.subject, ignored.code)
            }
            GateEvent::ItemFailing(failing) => match failing.reasons.as_slice() {
                [] => format!("{} is failing no longer", self.item(failing.item)),
                reasons => format!("{} is failing: {}", self.item(failing.item), reasons.join("; ")),
            },
            GateEvent::ItemReset(reset) => {
                let behind = reset.ahead.map(|ahead| format!(", now behind {}", self.item(ahead))).unwrap_or_default();
                format!("{} starts again{behind}: {} [{}]", self.item(reset.item), reset.detail, reset.code)
            }
            GateEvent::WindowChanged(changed) => {
                let window = if changed.window == 0 { "without limit".to_owned() } else { changed.window.to_string() };
                format!("the window of queue {} of {} is {window} [{}]", changed.queue, changed.pipeline, changed.code)
            }
            GateEvent::QueueReordered(order) => {
                // Where nothing begins again only its place among the others is new.
                let how = if order.quiet.is_empty() { "goes before the others" } else { "is in another order" };
                format!("queue {} of {} {how}: {} [{}]", order.queue, order.pipeline, order.detail, order.code)
            }
            GateEvent::QueueAsked(asked) => {
                format!("queue {} of {} was asked for by {} and is empty", asked.queue, asked.pipeline, asked.first.0)
            }
            GateEvent::FailuresCounted(counted) => {
                let (pipeline, failures) = (&counted.pipeline, counted.failures);
                let disabled = if counted.disabled { ", so it is disabled" } else { "" };
                format!("{failures} in a row failed in {pipeline}{disabled}")
            }
            GateEvent::BuildReady(ready) => {
                let started = &ready.started;
                format!("{} has its nodes on {} and waits for a semaphore", self.build(started.build), started.worker)
            }
            GateEvent::BuildPaused(paused) => {
                format!("{} waits for the jobs that need it", self.build(paused.paused.build))
            }
            GateEvent::LeasePauseWanted(wanted) => {
                format!("{} needs no slot while it waits (attempt {})", self.build(wanted.build), wanted.attempt)
            }
            GateEvent::LeaseResumeWanted(wanted) => {
                format!("{} needs its slot again (attempt {})", self.build(wanted.build), wanted.attempt)
            }
            GateEvent::ArtifactsNoted(noted) => {
                let names = noted
                    .artifacts
                    .iter()
                    .map(|(name, made)| format!("{name}{}", if *made { "" } else { " (not made)" }));
                format!("artifacts of {}: {}", self.item(noted.item), names.collect::<Vec<_>>().join(", "))
            }
            GateEvent::NodesetChanged(changed) => {
                format!(
                    "{} asks for its nodeset {} next [{}]",
                    self.build(changed.build),
                    changed.nodeset,
                    changed.code
                )
            }
            GateEvent::AutoholdSet(set) => {
                let asked = &set.asked;
                format!(
                    "request {}: nodes of {} of {} are kept when it fails, {} times",
                    set.request, asked.job, asked.project, asked.count
                )
            }
            GateEvent::NodesHeld(held) => {
                let until = held.hold.until.map(|until| format!(" until {until}")).unwrap_or_default();
                format!("the nodes of {} are kept{until} by request {}", self.build(held.build), held.request)
            }
            GateEvent::HoldEnded(ended) => {
                format!("the nodes of {} are no longer kept [{}]", self.build(ended.build), ended.code)
            }
            GateEvent::AutoholdEnded(ended) => {
                format!("request {} to keep nodes is over: {} [{}]", ended.request, ended.detail, ended.code)
            }
            GateEvent::ItemMoved(event) => format!("{} is in queue {} now", self.item(event.item), event.queue),
            GateEvent::ReportersStarted(event) => {
                format!("{} was reported; its reporter jobs run before it leaves", self.item(event.item))
            }
            GateEvent::IntakeChanged(event) => {
                let (tenant, reason) = (&event.asked.tenant, &event.asked.reason);
                format!("outside events of {tenant} {} from here on: {reason}", fate(event.asked.triggers))
            }
            GateEvent::BuildFailing(event) => {
                format!("{} will fail: {}", self.build(event.failing.build), event.failing.detail)
            }
            GateEvent::SecretsGiven(event) => {
                let opened = &event.opened;
                format!("attempt {} of {} is given {}", opened.attempt, self.build(opened.build), given(&opened.given))
            }
            GateEvent::Accessed(event) => access(&event.told),
            GateEvent::TimersChanged(event) => timers::changed(event),
            GateEvent::ReturnedChanged(event) => returned(&self.build(event.build), &event.change),
            GateEvent::BuildResumed(resumed) => format!("{} goes on", self.build(resumed.build)),
            GateEvent::WaitChanged(changed) => self.wait(changed),
            GateEvent::SubmitRequested(wanted) => {
                let targets = wanted.targets.iter().map(|target| {
                    let (base, commit) = (commit_name(&target.tested_base), commit_name(&target.tested_commit));
                    format!("{} of {} from {base} to {commit}", target.at.branch, target.at.project)
                });
                let targets = targets.collect::<Vec<_>>().join(", ");
                format!("{} is to be merged as it was tested: {targets}", self.item(wanted.item))
            }
            GateEvent::Submitted(Submitted { item, done }) => {
                format!("{} {}", self.item(*item), submitted(&done.outcome))
            }
            GateEvent::ReportRequested(wanted) => {
                let about = wanted.subjects.iter().map(subject).collect::<Vec<_>>().join(", ");
                format!("{} of {} is to be reported on {about}", wanted.action.word(), wanted.pipeline)
            }
            GateEvent::ReportDelivered(delivered) => {
                let about = delivered.item.map_or("a refused change".to_owned(), |item| self.item(item));
                match &delivered.done.failed {
                    None => format!("the report on {about} was delivered"),
                    Some((code, message, _)) => {
                        format!("the report on {about} could not be delivered: {message} [{code}]")
                    }
                }
            }
            GateEvent::ItemDequeued(left) => {
                format!(
                    "{} left: {}{} [{}]",
                    self.item(left.item),
                    left.result.word(),
                    after_colon(&left.detail),
                    left.code
                )
            }
            GateEvent::WorkResent(resent) => {
                format!("work {} is sent again (attempt {})", short(&resent.work), resent.attempt)
            }
        }
    }

    fn changes_wanted(&self, wanted: &ChangesWanted) -> String {
        let changes = list(wanted.changes.iter().map(|key| key.change.as_str()));
        let why = match &wanted.purpose {
            FactsPurpose::Trigger { trigger } => format!("for trigger {trigger}"),
            FactsPurpose::BeforeSubmit { item } => format!("before {} merges", self.item(*item)),
            FactsPurpose::Refresh => "to look at them again".to_owned(),
            FactsPurpose::ProjectMerged { project } => {
                return format!(
                    "{} is asked about all open changes of {project}, of which one merged",
                    wanted.connection
                );
            }
        };
        format!("{} is asked about {changes} {why}", wanted.connection)
    }

    fn wait(&self, changed: &WaitChanged) -> String {
        let who = self.wait_subject(&changed.subject);
        match changed.code {
            None => format!("{who} waits no longer"),
            Some(code) => format!("{who} waits for {}: {}", code.word(), changed.detail),
        }
    }

    /// An input in one sentence.
    pub fn input(&self, input: &Input) -> String {
        match input {
            Input::Partition(PartitionInput::TimerDue(due)) => format!("timer {} came due", due.timer),
            Input::Partition(PartitionInput::OutboxDelivered(told)) => {
                format!("{} took what it was sent up to event {}", told.to, told.up_to.0)
            }
            Input::Partition(PartitionInput::LeaseLost(lost)) => {
                format!("{} lost its lease: {} [{}]", self.subject(&lost.owner.subject), lost.message, lost.code)
            }
            Input::Partition(PartitionInput::LevelRaiseAsked(asked)) => {
                let reason = after_colon(&asked.reason);
                format!("somebody asked that records up to level {} may be written{reason}", asked.level)
            }
            Input::Intake(IntakeInput::ForgeEvent(event)) => forge_event(event),
            Input::Intake(IntakeInput::TenantFile(file)) => {
                format!(
                    "tenant file version {} with {}",
                    file.version,
                    list(file.tenants.iter().map(|one| one.tenant.as_str()))
                )
            }
            other => {
                let domain = other.domain().and_then(|domain| self.domains.of(domain));
                let said = domain.and_then(|domain| domain.words().input(other, self));
                said.unwrap_or_else(|| other.name().to_owned())
            }
        }
    }

    pub(crate) fn gate_input(&self, input: &GateInput) -> String {
        match input {
            GateInput::TenantLoaded(loaded) => {
                format!("tenant {} of tenant file version {}", loaded.tenant, loaded.version)
            }
            GateInput::TriggerReceived(received) => forge_event(&received.event),
            GateInput::NotRouted(what) => {
                format!("{} of {} from {}, which no tenant takes", what.event, what.project, what.connection)
            }
            GateInput::ChangesFound(found) => match &found.failed {
                Some((code, message)) => format!("facts about changes could not be had: {message} [{code}]"),
                None => format!("facts about {}", count(found.changes.len(), "change")),
            },
            GateInput::ConfigFilesFound(found) => {
                format!("configuration files of {} project branches", found.sets.len())
            }
            GateInput::LayoutMade(made) => layout(made),
            GateInput::PrepareDone(done) => prepared(&done.outcome),
            GateInput::FreezeDone(done) => frozen(&done.outcome),
            GateInput::AttemptStarted(started) => {
                format!("worker {} began attempt {} of {}", started.worker, started.attempt, self.build(started.build))
            }
            GateInput::AttemptFinished(done) => {
                let (build, result) = (self.build(done.build), done.result.word());
                format!("worker {} ended attempt {} of {build}: {result}", done.worker, done.attempt)
            }
            GateInput::LeaseLost(lost) => {
                format!(
                    "attempt {} of {} lost its lease: {} [{}]",
                    lost.attempt,
                    self.build(lost.build),
                    lost.message,
                    lost.code
                )
            }
            GateInput::SubmitDone(done) => submitted(&done.outcome),
            GateInput::ReportDone(done) => match &done.failed {
                None => "a report was delivered".to_owned(),
                Some((code, message, _)) => format!("a report could not be delivered: {message} [{code}]"),
            },
            GateInput::EnqueueAsked(asked) => enqueue_asked(asked),
            GateInput::PromoteAsked(asked) => {
                let changes: Vec<&str> = asked.changes.iter().map(|key| key.change.as_str()).collect();
                format!("{} is asked to the head of {}: {}", changes.join(", "), asked.pipeline, asked.reason)
            }
            GateInput::AttemptPaused(paused) => {
                format!("attempt {} of {} waits for the jobs that need it", paused.attempt, self.build(paused.build))
            }
            GateInput::IntakeAsked(asked) => {
                format!(
                    "it is asked that outside events of {} {}: {}",
                    asked.tenant,
                    fate(asked.triggers),
                    asked.reason
                )
            }
            GateInput::AutoholdAsked(asked) => {
                format!("nodes of {} of {} are to be kept when it fails: {}", asked.job, asked.project, asked.reason)
            }
            GateInput::AutoholdDeleteAsked(asked) => {
                format!("request {} to keep nodes is asked to end: {}", asked.request, asked.reason)
            }
            GateInput::ReconfigureAsked(asked) => {
                format!("it is asked that tenant {} is configured anew: {}", asked.tenant, asked.reason)
            }
            GateInput::AccessTold(told) => access(told),
            GateInput::TimerTicked(ticked) => timers::ticked(ticked),
            GateInput::ReturnedTold(told) => {
                let build = self.build(told.build);
                match told.step {
                    ReturnedStep::Due { keep_days } => {
                        format!("what {build} returned is kept no longer than {}", count(keep_days as usize, "day"))
                    }
                    ReturnedStep::Removed => format!("what {build} returned was removed"),
                }
            }
            GateInput::SecretsOpened(opened) => {
                let (worker, build) = (&opened.worker, self.build(opened.build));
                format!("worker {worker} opened for attempt {} of {build} {}", opened.attempt, given(&opened.given))
            }
            GateInput::AttemptFailing(failing) => {
                let build = self.build(failing.build);
                format!("attempt {} of {build} will fail: {}", failing.attempt, failing.detail)
            }
            GateInput::DequeueAsked(asked) => {
                format!("{} is asked out of {}: {}", asked.change.change, asked.pipeline, asked.reason)
            }
        }
    }
}

/// `: detail`, where there is one.
pub(crate) fn after_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

fn in_brackets(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

/// A sentence about an item where it is plain which item is meant.
pub(crate) fn without(sentence: &str, item: &str) -> String {
    let rest = sentence.strip_prefix(item).map(|rest| rest.trim_start_matches(": ").trim_start());
    rest.unwrap_or(sentence).replace(&format!(" of {item}"), "").replace(&format!(" on {item}"), "")
}

pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// What an item holds.
pub(crate) fn subjects(enqueued: &ItemEnqueued) -> String {
    enqueued.subjects.iter().map(subject).collect::<Vec<_>>().join(" + ")
}

/// Secrets and keys by name.
fn given(given: &[Given]) -> String {
    let each = given.iter().map(|one| match one {
        Given::Secret { name, project, .. } => format!("secret {name} of {project}"),
        Given::TenantSshKey => "the tenant's SSH key".to_owned(),
        Given::ProjectSshKey { project, .. } => format!("the SSH key of {project}"),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn fate(triggers: TriggerIntake) -> &'static str {
    match triggers {
        TriggerIntake::Open => "are dealt with",
        TriggerIntake::Paused => "wait",
        TriggerIntake::Discarding => "are dropped",
    }
}

fn enqueue_asked(asked: &EnqueueAsked) -> String {
    let given = parameters(&asked.parameters);
    format!("{} is asked into {}{given}: {}", asked.change.change, asked.pipeline, asked.reason)
}

/// What was given for parameters.
fn parameters(given: &BTreeMap<String, Value>) -> String {
    let told: Vec<String> = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if told.is_empty() { String::new() } else { format!(", with {}", told.join(", ")) }
}

fn forge_event(event: &ForgeEvent) -> String {
    let what = match (&event.change, &event.patchset) {
        (Some(change), Some(patchset)) => format!("{} {change},{patchset}", event.project),
        (Some(change), None) => format!("{} {change}", event.project),
        _ => format!("{} {}", event.project, event.git_ref),
    };
    format!("{} from {}: {what}", event.event, event.connection)
}

pub(crate) fn layout(made: &LayoutMade) -> String {
    match &made.outcome {
        LayoutOutcome::Made { errors: 0, .. } => "a layout was made".to_owned(),
        LayoutOutcome::Made { errors, introduced, .. } if introduced.is_empty() => {
            format!("a layout was made; {}", count(*errors as usize, "error"))
        }
        LayoutOutcome::Made { introduced, .. } => {
            // What is wrong stands in the first line; the lines of the file come after it.
            let said: Vec<&str> = introduced.iter().filter_map(|remark| remark.text.lines().next()).collect();
            format!("a layout was made; it brings {}: {}", count(introduced.len(), "new error"), said.join("; "))
        }
        LayoutOutcome::Failed { code, message } => format!("no layout could be made: {message} [{code}]"),
    }
}

fn partition_event(event: &PartitionEvent) -> String {
    match event {
        PartitionEvent::WriterStarted(started) => format!("term {} began, by gatelog {}", started.term, started.build),
        PartitionEvent::InputTaken(taken) => match taken.duplicate_of {
            Some(sequence) => format!("an input was taken before, by event {sequence}"),
            None => format!("an input led to nothing [{}]", taken.reason),
        },
        PartitionEvent::InputRefused(refused) => {
            let kind = refused.kind.as_deref().unwrap_or("an input");
            format!("{kind} could not be decided: {} [{}]", refused.message, refused.code)
        }
        PartitionEvent::ClockStepped(stepped) => format!("the clock went from {} to {}", stepped.before, stepped.now),
        PartitionEvent::LogRestored(restored) => {
            format!("generation {} began: {}", restored.generation, restored.reason)
        }
        PartitionEvent::LevelRaised(raised) => {
            format!("records up to level {} may be written; gatelog {} reads them", raised.level, raised.gatelog)
        }
        PartitionEvent::TimerSet(set) => format!("timer {} is due at {}", set.timer, set.due_at),
        PartitionEvent::TimerCleared(cleared) => {
            let how = if cleared.fired { "came due" } else { "was given up" };
            format!("timer {} {how}", cleared.timer)
        }
        PartitionEvent::OutboxCleared(cleared) => {
            format!("{} has what it was sent up to event {}", cleared.to, cleared.up_to.0)
        }
        PartitionEvent::WorkResent(resent) => {
            format!("work {} is sent again (attempt {})", short(&resent.work), resent.attempt)
        }
        PartitionEvent::Sample(_) | PartitionEvent::SampleBegun(_) => "a sample".to_owned(),
        PartitionEvent::SampleNoted(_) | PartitionEvent::SampleEnded(_) => "more of a sample".to_owned(),
    }
}

/// What became of the blobs with what a build returned.
fn returned(build: &str, change: &ReturnedChange) -> String {
    match change {
        ReturnedChange::Late { blobs } => {
            format!("an outcome of {build} that does not count names {}", count(blobs.len(), "blob"))
        }
        ReturnedChange::Dropped { blobs, unused_since, keep_days } => {
            let bytes: u64 = blobs.iter().map(|blob| blob.size).sum();
            let kept = count(*keep_days as usize, "day");
            format!(
                "what {build} returned ({bytes} bytes in {}) is gone from here on: nobody needed it since \
                 {unused_since}, and it is kept {kept}",
                count(blobs.len(), "blob")
            )
        }
        ReturnedChange::Removed => format!("what {build} returned is removed from the blob store"),
    }
}

/// What left the site, or was made unreadable.
fn access(told: &AccessTold) -> String {
    let subject = if told.subject.is_empty() { "the site" } else { &told.subject };
    let what = match told.what.as_str() {
        "audit-exported" => "an export for auditors was made of",
        "log-exported" => "a slice of the log was exported of",
        "key-shown" => "a key was shown of",
        "key-forgotten" => "the key was forgotten of",
        "site-backed-up" => "a backup was made of",
        "log-adopted" => "the log was adopted as",
        other => other,
    };
    if told.detail.is_empty() { format!("{what} {subject}") } else { format!("{what} {subject}: {}", told.detail) }
}
