//! What the record says of the world outside: how each piece of work and each attempt ended, and how long it took.
//! Asked by what is to be done, not by id: ids are others once something is otherwise.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_event_log::{Log, Tail};
use gatelog_gate_state::Work;
use gatelog_record::draft::gate::{
    BuildResult, ChangeFacts, ChangeKey, ChangesWanted, ConfigReadWanted, FactsPurpose, FreezeOutcome, FreezeWanted,
    LayoutOutcome, MergeStep, PrepareOutcome, ProjectBranch, SecretVerdict, SubmitOutcome, SubmitRequested,
};
use gatelog_record::event::{CapacityEvent, GateEvent};
use gatelog_record::{BuildId, BuildsetId, Event, EventRecord, EventRef, ItemId, Partition, Timestamp, WorkId};

use super::merging::{Below, Landed, Preparations, land, own_words};
use super::tally::subject_words;
use crate::cut::Cut;
use crate::error::ReplayError;
use crate::reading::read_history;

/// A recorded outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// When it was asked for.
    pub asked: Timestamp,
    /// The event that has the outcome.
    pub at: EventRef,
    /// How long it took, in milliseconds.
    pub took: i64,
}

/// A recorded attempt that ended by itself.
#[derive(Clone, Debug)]
pub(crate) struct AttemptTold {
    /// What its item stood on.
    pub chain: String,
    /// The event that has its end.
    pub at: EventRef,
    /// From the grant to the start, in milliseconds.
    pub began: i64,
    /// From the start to the end, in milliseconds.
    pub ran: i64,
    /// From the start to where it was known that it fails, in milliseconds, and the event that tells so.
    pub failing: Option<(i64, EventRef)>,
}

/// How a job ended and how long it took, over all its attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobTold {
    pub results: BTreeMap<BuildResult, u64>,
    pub ran: Vec<i64>,
}

/// The most durations kept of one job.
const MAX_DURATIONS: usize = 4_096;

impl JobTold {
    /// The most frequent result; of several as frequent ones the first in Zuul's order.
    pub fn result(&self) -> Option<BuildResult> {
        let most = self.results.values().max()?;
        self.results.iter().find(|(_, count)| *count == most).map(|(result, _)| *result)
    }

    /// The middle of the durations.
    pub fn median(&self) -> Option<i64> {
        let mut ran = self.ran.clone();
        ran.sort_unstable();
        ran.get(ran.len() / 2).copied()
    }

    fn note(&mut self, result: BuildResult, ran: i64) {
        *self.results.entry(result).or_default() += 1;
        if self.ran.len() < MAX_DURATIONS {
            self.ran.push(ran);
        }
    }
}

/// What is told of secrets: since when, what, and by which version of the loader.
pub(crate) type Verdicts = (Timestamp, Vec<SecretVerdict>, u32);

/// What the record says of the world outside.
#[derive(Default)]
pub(crate) struct Book {
    pub outcomes: BTreeMap<String, Vec<Told>>,
    /// When a piece of work was asked for, and when its outcome was recorded.
    pub answered: BTreeMap<WorkId, (Timestamp, Timestamp)>,
    /// What was no longer wanted before there was an outcome: by key, when it was asked for and until when it was open.
    dropped: BTreeMap<String, Vec<(Timestamp, Timestamp)>>,
    took: BTreeMap<&'static str, (i64, i64)>,
    pub attempts: BTreeMap<(String, String, u32), Vec<AttemptTold>>,
    pub jobs: BTreeMap<(String, String), JobTold>,
    pub any_job: JobTold,
    pub verdicts: BTreeMap<String, Vec<Verdicts>>,
    pub facts: BTreeMap<ChangeKey, Vec<(Timestamp, ChangeFacts)>>,
    /// By project, when its configuration was read, and the event that has it.
    pub config: BTreeMap<String, Vec<(Timestamp, EventRef)>>,
    /// Where an item's own changes were last prepared.
    pub own: BTreeMap<String, EventRef>,
    /// Which changes merged with which.
    pub preparations: Preparations,
    /// What gatelog merged in the record, and when.
    pub merged: BTreeMap<ChangeKey, Timestamp>,
    /// Commits that gatelog put on branches in the record, by project, branch and commit.
    pub commits: BTreeMap<(String, String, String), ChangeKey>,
    /// When each merge was, and into which branch.
    landings: Vec<(Timestamp, String)>,
    /// When the record ends.
    pub end: Timestamp,
}

/// What is known of a build while the book is written.
struct Build {
    item: ItemId,
    job: String,
    chain: String,
}

/// What is open while the book is written.
#[derive(Default)]
struct Open {
    work: BTreeMap<WorkId, (&'static str, String, Timestamp)>,
    own: BTreeMap<WorkId, (String, Below)>,
    /// What is prepared and frozen for an item.
    of_item: BTreeMap<ItemId, Vec<WorkId>>,
    targets: BTreeMap<WorkId, SubmitRequested>,
    items: BTreeMap<ItemId, (String, String, String)>,
    chains: BTreeMap<BuildsetId, String>,
    builds: BTreeMap<BuildId, Build>,
    granted: BTreeMap<(BuildId, u32), Timestamp>,
    started: BTreeMap<(BuildId, u32), Timestamp>,
    failing: BTreeMap<(BuildId, u32), (Timestamp, EventRef)>,
}

impl Book {
    /// Reads every partition up to a cut.
    pub(crate) fn read(log: &dyn Log, cut: &Cut) -> Result<Book, ReplayError> {
        let (mut book, mut open) = (Book::default(), Open::default());
        // Capacity first: when attempts were granted is known before the gate tells how they ended.
        for (partition, last) in cut.iter().rev().filter(|(_, last)| **last > 0) {
            read_history(log, *partition, Tail::GENESIS, |record, _, _| {
                book.end = book.end.max(record.recorded_at);
                book.note(&mut open, *partition, &record);
                Ok(record.sequence < *last)
            })?;
        }
        Ok(book)
    }

    /// How long this kind of work takes on the whole, in milliseconds.
    pub(crate) fn usual(&self, kind: &str) -> i64 {
        self.took.get(kind).map_or(100, |(sum, count)| sum / (*count).max(1))
    }

    /// How long this took in the record, in milliseconds, where it was asked for nearest in time: longer than it was
    /// wanted, if it had no outcome then.
    pub(crate) fn took(&self, key: &str, now: Timestamp) -> Option<i64> {
        let apart = |asked: Timestamp| asked.millis_since(now).abs();
        let told = self.nearest(key, now);
        let dropped = self.dropped.get(key).into_iter().flatten().min_by_key(|(asked, _)| apart(*asked));
        match (told, dropped) {
            (Some(told), Some((asked, _))) if apart(told.asked) <= apart(*asked) => Some(told.took),
            (_, Some((asked, until))) => Some(until.millis_since(*asked).max(0) + 1),
            (told, None) => told.map(|told| told.took),
        }
    }

    /// The outcome recorded for this, the one asked for nearest in time.
    pub(crate) fn nearest(&self, key: &str, now: Timestamp) -> Option<Told> {
        self.outcomes.get(key)?.iter().min_by_key(|told| told.asked.millis_since(now).abs()).copied()
    }

    /// What gatelog had merged before a moment.
    pub(crate) fn landed_before(&self, now: Timestamp) -> Landed {
        let mut landed = Landed::new();
        for (_, branch) in self.landings.iter().filter(|(at, _)| *at < now) {
            let known = landed.entry(branch.clone()).or_default();
            let next = self.preparations.landed.get(branch).and_then(|all| all.get(known.len()));
            known.extend(next.cloned());
        }
        landed
    }

    fn asked(open: &mut Open, work: WorkId, kind: &'static str, key: String, now: Timestamp) {
        open.work.insert(work, (kind, key, now));
    }

    /// What was asked for an item is wanted no more.
    fn drop_work(&mut self, open: &mut Open, item: ItemId, now: Timestamp) {
        let Some(works) = open.of_item.remove(&item) else { return };
        for work in works {
            let Some((_, key, asked)) = open.work.remove(&work) else { continue };
            self.answered.insert(work, (asked, now.plus_millis(1)));
            self.dropped.entry(key).or_default().push((asked, now));
        }
    }

    fn ended(&mut self, open: &mut Open, work: WorkId, at: EventRef, now: Timestamp, lasting: bool) {
        let Some((kind, key, asked)) = open.work.remove(&work) else { return };
        self.answered.insert(work, (asked, now));
        let took = now.millis_since(asked).max(0);
        let (sum, count) = self.took.entry(kind).or_default();
        (*sum, *count) = (*sum + took, *count + 1);
        // What failed for a reason that passes is no answer to the question.
        if lasting {
            self.outcomes.entry(key).or_default().push(Told { asked, at, took });
        }
    }

    fn note(&mut self, open: &mut Open, partition: Partition, record: &EventRecord) {
        let (now, at) = (record.recorded_at, EventRef { partition, sequence: record.sequence });
        match &record.event {
            Event::Capacity(CapacityEvent::LeaseGranted(granted)) => {
                if let Some(attempt) = granted.owner.build() {
                    open.granted.insert(attempt, now);
                }
            }
            Event::Gate(event) => self.gate(open, at, now, event),
            _ => {}
        }
    }

    fn gate(&mut self, open: &mut Open, at: EventRef, now: Timestamp, event: &GateEvent) {
        match event {
            GateEvent::ConfigReadWanted(wanted) => {
                Book::asked(open, wanted.work, "config-read", config_read_key(wanted), now);
            }
            GateEvent::ConfigRead(read) => {
                let projects: BTreeSet<&String> = read.found.sets.iter().map(|set| &set.at.project).collect();
                for project in projects {
                    self.config.entry(project.clone()).or_default().push((now, at));
                }
                self.ended(open, read.found.work, at, now, true);
            }
            GateEvent::LayoutWanted(wanted) => {
                Book::asked(open, wanted.work, "layout", format!("layout {}", wanted.tenant), now);
            }
            GateEvent::LayoutReady(ready) => {
                self.layout(&ready.made.tenant, &ready.made.outcome, now);
                self.ended(open, ready.made.work, at, now, false);
            }
            GateEvent::LayoutActivated(active) => {
                self.layout(&active.made.tenant, &active.made.outcome, now);
                self.ended(open, active.made.work, at, now, false);
            }
            GateEvent::ChangesWanted(wanted) => Book::asked(open, wanted.work, "changes", changes_key(wanted), now),
            GateEvent::ChangesObserved(observed) => {
                let found = &observed.found;
                for facts in &found.changes {
                    if let Some(key) = facts.subject.change_key() {
                        self.facts.entry(key).or_default().push((now, facts.clone()));
                    }
                }
                self.ended(open, found.work, at, now, found.failed.is_none());
            }
            GateEvent::PrepareRequested(wanted) => {
                let below = Below::of(wanted, &self.preparations.landed);
                open.of_item.entry(wanted.item).or_default().push(wanted.work);
                open.own.insert(wanted.work, (own_words(&wanted.steps, wanted.item), below));
                Book::asked(open, wanted.work, "prepare", prepare_key(&wanted.steps), now);
            }
            GateEvent::Prepared(prepared) => {
                let lasting = !matches!(prepared.done.outcome, PrepareOutcome::Failed { .. });
                if let Some((own, below)) = open.own.remove(&prepared.done.work).filter(|_| lasting) {
                    let conflict = !matches!(prepared.done.outcome, PrepareOutcome::Merged(_));
                    if !conflict {
                        self.own.insert(own.clone(), at);
                    }
                    let asked = open.work.get(&prepared.done.work).map_or(now, |(.., asked)| *asked);
                    self.preparations.note(own, below, asked, at, conflict);
                }
                self.ended(open, prepared.done.work, at, now, lasting);
            }
            GateEvent::FreezeWanted(wanted) => {
                open.of_item.entry(wanted.item).or_default().push(wanted.work);
                Book::asked(open, wanted.work, "freeze", freeze_key(wanted), now);
            }
            GateEvent::Frozen(frozen) => {
                let lasting = !matches!(frozen.done.outcome, FreezeOutcome::Failed { .. });
                if let FreezeOutcome::Frozen { jobs, .. } = &frozen.done.outcome {
                    let chain = open.chains.get(&frozen.buildset).cloned().unwrap_or_default();
                    for (build, job) in frozen.builds.iter().zip(jobs) {
                        let (item, job, chain) = (frozen.item, job.name.clone(), chain.clone());
                        open.builds.insert(*build, Build { item, job, chain });
                    }
                }
                self.ended(open, frozen.done.work, at, now, lasting);
            }
            GateEvent::SubmitRequested(wanted) => {
                Book::asked(open, wanted.work, "submit", submit_key(wanted), now);
                open.targets.insert(wanted.work, wanted.clone());
            }
            GateEvent::Submitted(submitted) => {
                if let (SubmitOutcome::Merged, Some(wanted)) =
                    (&submitted.done.outcome, open.targets.remove(&submitted.done.work))
                {
                    for target in wanted.targets {
                        self.landings.push((now, land(&mut self.preparations.landed, &target)));
                        let Some(key) = target.subject.change_key() else { continue };
                        let ProjectBranch { project, branch, .. } = target.at;
                        self.commits.insert((project, branch, target.tested_commit), key.clone());
                        self.merged.insert(key, now);
                    }
                }
                let lasting = matches!(submitted.done.outcome, SubmitOutcome::Refused { .. });
                self.ended(open, submitted.done.work, at, now, lasting);
            }
            GateEvent::ReportRequested(wanted) => Book::asked(open, wanted.work, "report", String::new(), now),
            GateEvent::ReportDelivered(delivered) => self.ended(open, delivered.done.work, at, now, false),
            GateEvent::ItemEnqueued(enqueued) => {
                let words = subject_words(&enqueued.subjects);
                let key = item_key(&enqueued.tenant, &enqueued.pipeline, &words);
                open.items.insert(enqueued.item, (key, enqueued.pipeline.clone(), words));
            }
            GateEvent::BuildsetOpened(opened) => {
                self.drop_work(open, opened.item, now);
                let words =
                    opened.ahead.iter().filter_map(|item| open.items.get(item)).map(|(_, _, words)| words.as_str());
                let chain = words.collect::<Vec<_>>().join("; ");
                open.chains.insert(opened.buildset, chain);
            }
            GateEvent::BuildStarted(started) => {
                open.started.insert((started.started.build, started.started.attempt), now);
            }
            GateEvent::BuildFailing(told) => {
                open.failing.insert((told.failing.build, told.failing.attempt), (now, at));
            }
            GateEvent::BuildFinished(done) => self.attempt(open, at, now, &done.finished),
            GateEvent::ItemDequeued(left) => {
                self.drop_work(open, left.item, now);
                open.builds.retain(|_, build| build.item != left.item);
            }
            _ => {}
        }
    }

    fn layout(&mut self, tenant: &str, outcome: &LayoutOutcome, now: Timestamp) {
        if let LayoutOutcome::Made { secrets, loader, .. } = outcome {
            let known = self.verdicts.entry(tenant.to_owned()).or_default();
            // Only what changed is kept.
            if known.last().is_none_or(|(_, last, by)| last != secrets || by != loader) {
                known.push((now, secrets.clone(), *loader));
            }
        }
    }

    fn attempt(
        &mut self,
        open: &Open,
        at: EventRef,
        now: Timestamp,
        finished: &gatelog_record::draft::gate::AttemptFinished,
    ) {
        // An attempt that was stopped says nothing of how it would have ended.
        if matches!(finished.result, BuildResult::Aborted | BuildResult::Canceled) {
            return;
        }
        let Some(build) = open.builds.get(&finished.build) else { return };
        let Some((item, pipeline, _)) = open.items.get(&build.item) else { return };
        let attempt = (finished.build, finished.attempt);
        let granted = open.granted.get(&attempt).copied().unwrap_or(now);
        let started = open.started.get(&attempt).copied().unwrap_or(granted);
        let told = AttemptTold {
            chain: build.chain.clone(),
            at,
            began: started.millis_since(granted).max(0),
            ran: now.millis_since(started).max(0),
            failing: open.failing.get(&attempt).map(|(told, at)| (told.millis_since(started).max(0), *at)),
        };
        self.jobs.entry((pipeline.clone(), build.job.clone())).or_default().note(finished.result, told.ran);
        self.any_job.note(finished.result, told.ran);
        let key = (item.clone(), build.job.clone(), finished.attempt);
        self.attempts.entry(key).or_default().push(told);
    }

    /// Where the configuration of a project was read nearest to a moment.
    pub(crate) fn config_near(&self, project: &str, asked: Timestamp) -> Option<EventRef> {
        let read = self.config.get(project)?.iter();
        read.min_by_key(|(at, _)| at.0.abs_diff(asked.0)).map(|(_, event)| *event)
    }

    /// The attempt recorded for the same job of the same item: on the same chain, else on any.
    pub(crate) fn attempt_of(&self, item: &str, job: &str, attempt: u32, chain: &str) -> Option<(&AttemptTold, bool)> {
        let told = self.attempts.get(&(item.to_owned(), job.to_owned(), attempt))?;
        let same = told.iter().rev().find(|told| told.chain == chain);
        same.map(|told| (told, true)).or_else(|| told.last().map(|told| (told, false)))
    }
}

pub(crate) fn item_key(tenant: &str, pipeline: &str, words: &str) -> String {
    format!("{tenant} {pipeline} {words}")
}

/// What of the record a piece of work is looked up by. `None` for kinds that are never the same twice.
pub(crate) fn work_key(work: &Work) -> Option<String> {
    match work {
        Work::ConfigRead(wanted) => Some(config_read_key(wanted)),
        Work::Changes(wanted) => Some(changes_key(wanted)),
        Work::Prepare(wanted) => Some(prepare_key(&wanted.steps)),
        Work::Freeze(wanted) => Some(freeze_key(wanted)),
        Work::Submit(wanted) => Some(submit_key(wanted)),
        Work::Layout(_) | Work::Report(_) => None,
    }
}

pub(crate) fn config_read_key(wanted: &ConfigReadWanted) -> String {
    let projects: Vec<&str> = wanted.projects.iter().map(|project| project.project.as_str()).collect();
    format!("config-read {} {}", wanted.tenant, projects.join(","))
}

pub(crate) fn changes_key(wanted: &ChangesWanted) -> String {
    let changes: Vec<String> = wanted.changes.iter().map(|key| format!("{} {}", key.project, key.change)).collect();
    let open_of = match &wanted.purpose {
        FactsPurpose::ProjectMerged { project } => format!(" all of {project}"),
        _ => String::new(),
    };
    format!("changes {} {} {}{open_of}", wanted.tenant, wanted.with_needed_by, changes.join(","))
}

pub(super) fn steps_words(steps: &[MergeStep]) -> String {
    let words: Vec<String> = steps
        .iter()
        .map(|step| {
            let branch = step.subject.branch.as_deref().unwrap_or_default();
            format!("{}@{branch}/{}", crate::explain::subject(&step.subject), step.mode)
        })
        .collect();
    words.join("; ")
}

pub(crate) fn prepare_key(steps: &[MergeStep]) -> String {
    format!("prepare {}", steps_words(steps))
}

pub(crate) fn freeze_key(wanted: &FreezeWanted) -> String {
    let files = wanted.state.files.as_ref().map(|files| files.join(",")).unwrap_or_default();
    let ahead = wanted.layout_ahead.map(|hash| hash.to_string()).unwrap_or_default();
    format!("freeze {} {} {ahead} {} {files}", wanted.layout, wanted.pipeline, steps_words(&wanted.steps))
}

pub(crate) fn submit_key(wanted: &SubmitRequested) -> String {
    let targets: Vec<String> = wanted.targets.iter().map(|target| crate::explain::subject(&target.subject)).collect();
    format!("submit {}", targets.join(","))
}
