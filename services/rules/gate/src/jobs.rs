//! An item's builds: which may run, their attempts, their results.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{BuildRow, BuildState};
use gatelog_record::draft::capacity::{LeaseAsked, LeaseLost, SemaphoreWanted};
use gatelog_record::draft::gate::{
    AttemptFailing, AttemptFinished, AttemptPaused, AttemptStarted, BuildFailing, BuildFinished, BuildPaused,
    BuildReady, BuildResult, BuildResumed, BuildSettled, BuildStarted, ItemDequeued, ItemResult, LeaseEndWanted,
    LeasePauseWanted, LeaseResumeWanted, LeaseWanted, NodesetChanged, ReportAction, SecretsGiven, SecretsOpened,
    SemaphoreFreed, build_owner, described,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, BuildsetId, ItemId, Value};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Precedence;

use crate::decision::Decision;
use crate::queue_pass::Walk;

/// A build whose worker dies is tried again however often its job allows. This ends a job that kills
/// every worker it meets.
const MAX_ATTEMPTS: u32 = 50;

/// What keeps a build from asking for its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A job it waits for has no result yet.
    Job(String),
    /// A semaphore is taken.
    Semaphore(String),
    /// A job of an item ahead must succeed first.
    Following(String),
    /// An artifact of a change ahead is not there yet.
    Artifact(String),
    /// Its item is outside of the window by now.
    Window,
}

/// What is next for a build that has neither lease nor result.
enum Next {
    /// It asks for its lease.
    Run,
    /// It waits.
    Wait,
    /// It will never run.
    Skip { code: &'static str, detail: String },
    /// It failed without running.
    Fail { code: &'static str, detail: String },
    /// It is done without a worker.
    Noop,
}

/// The builds of a buildset.
pub(crate) type Builds<'b> = Vec<(BuildId, &'b BuildRow)>;

/// Whether two jobs of an item are for a change in common.
fn together(one: &BuildRow, two: &BuildRow) -> bool {
    let (one, two) = (&one.job.traits.changes, &two.job.traits.changes);
    one.is_empty() || two.is_empty() || one.iter().any(|change| two.contains(change))
}

/// The builds of the job of this name that a build waits for: in a circle there may be several.
fn named<'b>(builds: &Builds<'b>, name: &str, row: &BuildRow) -> Vec<&'b BuildRow> {
    let fits = |other: &&BuildRow| other.job.name == name && together(other, row);
    builds.iter().map(|(_, other)| *other).filter(fits).collect()
}

/// Whether a build takes a semaphore only once it has its nodes. Who needs none has them at once, and keeps no worker
/// from others while it waits for a semaphore.
fn takes_with_nodes(row: &BuildRow, semaphore: &String) -> bool {
    !row.nodes().is_empty() && row.job.traits.resources_first.contains(semaphore)
}

impl Decision<'_> {
    /// Brings every build of an item as far as it can go. Zuul: of what fell out of the window, which is not `active`,
    /// nothing more begins.
    pub(crate) fn run_jobs(
        &mut self,
        walk: &Walk<'_>,
        item: ItemId,
        buildset: BuildsetId,
        active: bool,
    ) -> Result<(), Refusal> {
        let Some(set) = self.buildset(buildset) else { return Ok(()) };
        let builds = self.tests_of(&set.builds);
        if set.problem.is_some() {
            return self.skip_all(item, buildset, &builds);
        }
        if active {
            self.report_start(walk.tenant, walk.pipeline, item)?;
        }
        // Only what has yet to ask for its lease may be held up by an item ahead: others need not look at all of these.
        let waits = |build: &BuildId| self.build(*build).is_some_and(|row| row.state == BuildState::Waiting);
        let with_nodes = |build: &BuildId| self.build(*build).is_some_and(|row| row.ready.is_some());
        if builds.iter().any(waits) {
            let held = self.holds_all(&walk.chain, active);
            self.run_some(walk, (item, buildset), &builds, held.as_ref())?;
        } else if builds.iter().any(with_nodes) {
            let held = (!active).then_some(Hold::Window);
            self.run_some(walk, (item, buildset), &builds, held.as_ref())?;
        }
        // Zuul: what waited for the one that failed goes on before all is given up.
        self.resume_paused(item, buildset)?;
        if self.fails_fast(&builds) {
            let detail = "A voting job failed, and the project wants to know that at once.";
            return self.give_up_builds(item, "fail-fast", detail);
        }
        Ok(())
    }

    fn run_some(
        &mut self,
        walk: &Walk<'_>,
        of: (ItemId, BuildsetId),
        builds: &[BuildId],
        held: Option<&Hold>,
    ) -> Result<(), Refusal> {
        // A build that is skipped or done at once may decide about others: a round for each at most.
        for _ in 0..=builds.len() {
            let before = self.deciding.events().len();
            // Zuul: who takes its semaphores before its nodes comes before those who have theirs, or need none.
            let comes_later = |build: &BuildId| {
                self.build(*build).is_some_and(|row| {
                    row.ready.is_some() || row.nodes().is_empty() && !row.job.traits.resources_first.is_empty()
                })
            };
            let (later, first): (Vec<BuildId>, Vec<BuildId>) = builds.iter().copied().partition(comes_later);
            for build in first.into_iter().chain(later) {
                self.run_job(walk, of, build, held)?;
            }
            if self.deciding.events().len() == before {
                break;
            }
        }
        Ok(())
    }

    /// The item was reported: its reporter jobs run, then it leaves. Says whether it did. Zuul: when one of them
    /// fails, what was tested on top of it is tested again.
    pub(crate) fn run_reporters(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<bool, Refusal> {
        let merged = self.item(item).and_then(|row| row.reporting).unwrap_or(false);
        let builds = self.buildset_of(item).map(|(id, set)| (id, self.reporters_of(&set.builds)));
        let mut failed = false;
        if let Some((buildset, builds)) = builds {
            self.run_some(walk, (item, buildset), &builds, None)?;
            if !self.are_done(&builds) {
                return Ok(false);
            }
            failed = builds.iter().filter_map(|build| self.build(*build)).any(|row| row.job.voting && row.fails());
        }
        let (result, code) =
            if failed { (ItemResult::Failure, "reporter-failed") } else { (ItemResult::Success, "reported") };
        if failed {
            for behind in walk.items.get(index + 1..).unwrap_or_default() {
                if self.item(*behind).is_some_and(|row| row.buildset.is_some()) {
                    self.reset_behind(*behind, None, code, "A reporter job of the item ahead failed.")?;
                }
            }
        }
        let detail = if failed { "A reporter job failed." } else { "" };
        self.emit(GateEvent::ItemDequeued(ItemDequeued {
            item,
            result,
            code: code.into(),
            detail: detail.into(),
            merged,
        }))?;
        Ok(true)
    }

    pub(crate) fn reporters_of(&self, builds: &[BuildId]) -> Vec<BuildId> {
        let reports = |build: &&BuildId| self.build(**build).is_some_and(|row| row.job.traits.reporter);
        builds.iter().filter(reports).copied().collect()
    }

    /// Nothing runs of an item that does not merge.
    fn skip_all(&mut self, item: ItemId, buildset: BuildsetId, builds: &[BuildId]) -> Result<(), Refusal> {
        for build in builds {
            if self.build(*build).is_some_and(|row| row.state == BuildState::Waiting) {
                self.emit(GateEvent::BuildSettled(BuildSettled {
                    build: *build,
                    item,
                    buildset,
                    result: BuildResult::Skipped,
                    code: "merge-conflict".into(),
                    detail: "Skipped because the change does not merge".into(),
                    freed: self.freed(*build),
                }))?;
            }
        }
        Ok(())
    }

    /// Zuul: `fail-fast`. The first voting job that failed ends the others.
    fn fails_fast(&self, builds: &[BuildId]) -> bool {
        let failed = |build: &BuildId| {
            self.build(*build).is_some_and(|row| {
                row.job.traits.fail_fast
                    && row.job.voting
                    && row.result.is_some_and(|result| !matches!(result, BuildResult::Success | BuildResult::Skipped))
            })
        };
        builds.iter().any(failed)
    }

    /// Lets paused builds go on once all jobs that need them are done.
    fn resume_paused(&mut self, item: ItemId, buildset: BuildsetId) -> Result<(), Refusal> {
        let builds = self.builds_of(buildset);
        if !builds.iter().any(|(_, row)| row.paused) {
            return Ok(());
        }
        let mut resumed = Vec::new();
        for (id, row) in builds.iter().filter(|(_, row)| row.paused) {
            let needs = |other: &BuildRow| {
                let mut seen = BTreeSet::new();
                let mut todo = vec![other];
                while let Some(next) = todo.pop() {
                    if !seen.insert(next.job.name.as_str()) {
                        continue;
                    }
                    for (name, _) in &next.job.dependencies {
                        if *name == row.job.name && together(next, row) {
                            return true;
                        }
                        todo.extend(named(&builds, name, next));
                    }
                }
                false
            };
            if builds.iter().all(|(_, other)| other.result.is_some() || !needs(other)) {
                resumed.push((*id, row.attempt));
            }
        }
        for (build, attempt) in resumed {
            self.emit(GateEvent::BuildResumed(BuildResumed { build, attempt, item, buildset }))?;
            self.emit(GateEvent::LeaseResumeWanted(LeaseResumeWanted { build, attempt }))?;
        }
        Ok(())
    }

    /// Zuul: the start is reported once, whatever is reset later.
    fn report_start(&mut self, tenant: &str, pipeline: &Pipeline, item: ItemId) -> Result<(), Refusal> {
        let Some(row) = self.item(item) else { return Ok(()) };
        // Where nobody is to be told it is never noted as told: the message is not made each time.
        let nobody = pipeline.reporters(ReportAction::Start.word()).is_empty();
        if row.start_reported || nobody || self.is_disabled(tenant, pipeline) {
            return Ok(());
        }
        let row = row.clone();
        let message = self.result_message(item, &row, pipeline, ReportAction::Start, "");
        self.report_to(tenant, pipeline, Some(item), ReportAction::Start, &row.subjects, message)
    }

    fn run_job(
        &mut self,
        walk: &Walk<'_>,
        (item, buildset): (ItemId, BuildsetId),
        build: BuildId,
        held: Option<&Hold>,
    ) -> Result<(), Refusal> {
        let Some(row) = self.build(build) else { return Ok(()) };
        let starts = |row: &BuildRow| held != Some(&Hold::Window) && self.taken_from_ready(row).is_none();
        if let Some(started) = row.ready.clone().filter(|_| starts(row)) {
            // Zuul: it gave back what it had, and takes all it needs.
            let taken = Some(row.job.semaphores.iter().map(|semaphore| semaphore.name.clone()).collect());
            return self.emit(GateEvent::BuildStarted(BuildStarted { started, item, buildset, taken }));
        }
        if row.state != BuildState::Waiting {
            return Ok(());
        }
        let freed = self.freed(build);
        let settle = |result, code: &str, detail: String| {
            GateEvent::BuildSettled(BuildSettled { build, item, buildset, result, code: code.into(), detail, freed })
        };
        match self.next(walk, buildset, row, held) {
            Next::Wait => Ok(()),
            Next::Skip { code, detail } => self.emit(settle(BuildResult::Skipped, code, detail)),
            Next::Fail { code, detail } => self.emit(settle(BuildResult::Failure, code, detail)),
            Next::Noop => self.emit(settle(BuildResult::Success, "noop", String::new())),
            // What fails fast starts nothing more.
            Next::Run if self.buildset(buildset).is_some_and(|set| self.fails_fast(&set.builds)) => Ok(()),
            Next::Run => {
                let ask = self.lease(walk, build, row);
                let taken = row.job.semaphores.iter().filter(|semaphore| !takes_with_nodes(row, &semaphore.name));
                let taken = Some(taken.map(|semaphore| semaphore.name.clone()).collect());
                let attempt = ask.owner.subject.attempt;
                self.emit(GateEvent::LeaseWanted(LeaseWanted { item, buildset, build, attempt, ask, taken }))
            }
        }
    }

    fn lease(&self, walk: &Walk<'_>, build: BuildId, row: &BuildRow) -> LeaseAsked {
        LeaseAsked {
            owner: build_owner(walk.tenant, build, row.attempt.saturating_add(1)),
            share: walk.tenant.to_owned(),
            description: described(walk.tenant, &walk.pipeline.name, &row.job.name),
            spec: row.spec(),
            nodes: row.nodes().to_vec(),
            // A tenant's own semaphores are held here; only global ones are capacity's.
            semaphores: Vec::new(),
            priority: match walk.pipeline.precedence {
                Precedence::High => 100,
                Precedence::Normal => 200,
                Precedence::Low => 300,
            },
            or_others: row.has_others(),
        }
    }

    /// The builds of a buildset, in the order of the graph.
    pub(crate) fn builds_of(&self, buildset: BuildsetId) -> Builds<'_> {
        let builds = self.buildset(buildset).map(|set| set.builds.as_slice()).unwrap_or_default();
        builds.iter().filter_map(|build| Some((*build, self.build(*build)?))).collect()
    }

    fn next(&self, walk: &Walk<'_>, buildset: BuildsetId, row: &BuildRow, held: Option<&Hold>) -> Next {
        let builds = self.builds_of(buildset);
        if let Some((code, detail)) = skipped(&builds, row) {
            return Next::Skip { code, detail };
        }
        match self.hold(&builds, &walk.chain, held, row) {
            Some(_) => Next::Wait,
            None if row.job.noop => Next::Noop,
            None => match self.lost_artifact(walk, row) {
                Some(detail) => Next::Fail { code: "artifact-missing", detail },
                None => Next::Run,
            },
        }
    }

    /// What keeps all builds of an item from beginning: the window, or a job of an item ahead.
    pub(crate) fn holds_all(&self, ahead: &[ItemId], active: bool) -> Option<Hold> {
        match active {
            true => self.holds_following(ahead).map(Hold::Following),
            false => Some(Hold::Window),
        }
    }

    /// What keeps a build from asking for its lease. `ahead` is what its item stands on, `held` what keeps all
    /// builds of the item.
    pub(crate) fn hold(
        &self,
        builds: &Builds<'_>,
        ahead: &[ItemId],
        held: Option<&Hold>,
        row: &BuildRow,
    ) -> Option<Hold> {
        for (name, _) in &row.job.dependencies {
            // Zuul: jobs may run while one they need is paused.
            if named(builds, name, row).iter().any(|other| other.result.is_none() && !other.paused) {
                return Some(Hold::Job(name.clone()));
            }
        }
        if let Some(held) = held {
            return Some(held.clone());
        }
        if let Some(artifact) = self.awaited_artifact(ahead, row) {
            return Some(Hold::Artifact(artifact));
        }
        if row.job.noop {
            return None;
        }
        self.taken_semaphore(row, false).map(Hold::Semaphore)
    }

    /// A semaphore that a build must hold and cannot: one that may be taken once it has its nodes, or one that it takes
    /// before. Zuul: all of these or none.
    pub(crate) fn taken_semaphore(&self, row: &BuildRow, with_nodes: bool) -> Option<String> {
        // Zuul: semaphores are never speculative: how many may hold one is what the tenant's layout in force
        // says, not what the layout the job was frozen with says.
        let in_force = self.layout(&row.tenant).ok().flatten();
        let room = |semaphore: &SemaphoreWanted| match &in_force {
            Some(layout) => layout.semaphore_max(&semaphore.name),
            None => u64::from(semaphore.max.max(1)),
        };
        // Zuul: a job's name stands for it in its buildset, so those of one name in a circle hold one together.
        let holder = |build: &BuildId| self.build(*build).map(|row| (row.buildset, row.job.name.as_str()));
        let taken = |semaphore: &&SemaphoreWanted| {
            let key = |id: [u8; 16]| (row.tenant.clone(), semaphore.name.clone(), BuildId(id));
            let (from, to) = (key([0; 16]), key([255; 16]));
            let rows = self.gate().semaphores.rows(std::ops::Bound::Included(&from), std::ops::Bound::Included(&to));
            let mut holders: BTreeSet<_> = rows.filter_map(|((_, _, build), ())| holder(build)).collect();
            holders.remove(&(row.buildset, row.job.name.as_str()));
            holders.len() as u64 >= room(semaphore)
        };
        let now = |semaphore: &&SemaphoreWanted| match with_nodes {
            true => row.job.traits.resources_first.contains(&semaphore.name),
            false => !takes_with_nodes(row, &semaphore.name),
        };
        row.job.semaphores.iter().filter(now).find(taken).map(|semaphore| semaphore.name.clone())
    }

    /// A semaphore that a build which waits with its nodes cannot have. Zuul: it gave back all it held, so it needs
    /// every one of them.
    pub(crate) fn taken_from_ready(&self, row: &BuildRow) -> Option<String> {
        self.taken_semaphore(row, true).or_else(|| self.taken_semaphore(row, false))
    }

    /// What lets go of which semaphore when a build's attempt is over. Zuul: a job's name stands for it in its buildset,
    /// so those of one name in a circle hold one slot together, and whichever ends first lets go of it.
    pub(crate) fn freed(&self, build: BuildId) -> Option<Vec<SemaphoreFreed>> {
        let row = self.build(build)?;
        let stands_for_it = |other: &BuildId| {
            self.build(*other).is_some_and(|other| other.buildset == row.buildset && other.job.name == row.job.name)
        };
        let mut freed = Vec::new();
        for semaphore in &row.job.semaphores {
            let key = |id: [u8; 16]| (row.tenant.clone(), semaphore.name.clone(), BuildId(id));
            let (from, to) = (key([0; 16]), key([255; 16]));
            let rows = self.gate().semaphores.rows(std::ops::Bound::Included(&from), std::ops::Bound::Included(&to));
            let held = rows.map(|((_, _, build), ())| *build).filter(stands_for_it);
            freed.extend(held.map(|build| SemaphoreFreed { semaphore: semaphore.name.clone(), build }));
        }
        // A job may name a semaphore twice.
        freed.sort_unstable();
        freed.dedup();
        Some(freed)
    }

    // ---- what workers and capacity say ----

    /// A worker began an attempt.
    pub(crate) fn attempt_started(&mut self, started: &AttemptStarted) -> Result<(), Refusal> {
        let subject = format!("start of build {} attempt {}", started.build, started.attempt);
        let Some(row) = self.build(started.build) else { return self.ignore(subject, "gone") };
        if row.attempt != started.attempt {
            return self.ignore(subject, "old-attempt");
        }
        if row.state != BuildState::Leased || row.ready.is_some() {
            return self.ignore(subject, "already-had");
        }
        let (item, buildset) = (row.item, row.buildset);
        let held = |semaphore: &String| {
            self.gate().semaphores.row(&(row.tenant.clone(), semaphore.clone(), started.build)).is_some()
        };
        let taken: Vec<String> = row.job.traits.resources_first.iter().filter(|one| !held(one)).cloned().collect();
        if !taken.is_empty() && self.taken_semaphore(row, true).is_some() {
            // Zuul: all of a job's semaphores or none.
            let (started, freed) = (started.clone(), self.freed(started.build));
            return self.emit(GateEvent::BuildReady(BuildReady { started, item, buildset, freed }));
        }
        let (started, taken) = (started.clone(), Some(taken));
        self.emit(GateEvent::BuildStarted(BuildStarted { started, item, buildset, taken }))
    }

    /// A worker says what an attempt is given.
    pub(crate) fn secrets_opened(&mut self, opened: &SecretsOpened) -> Result<(), Refusal> {
        let subject = format!("secrets of build {} attempt {}", opened.build, opened.attempt);
        let Some(row) = self.current_attempt(opened.build, opened.attempt, &subject)? else { return Ok(()) };
        let (item, buildset) = (row.item, row.buildset);
        self.emit(GateEvent::SecretsGiven(SecretsGiven { opened: opened.clone(), item, buildset }))
    }

    /// A worker says that a job waits for those that need it.
    pub(crate) fn attempt_paused(&mut self, paused: &AttemptPaused) -> Result<(), Refusal> {
        let subject = format!("pause of build {} attempt {}", paused.build, paused.attempt);
        let Some(row) = self.current_attempt(paused.build, paused.attempt, &subject)? else {
            return self.returned_late(paused.build, &paused.kept);
        };
        if row.paused {
            self.ignore(subject, "already-had")?;
            return self.returned_late(paused.build, &paused.kept);
        }
        let (item, buildset, build, attempt) = (row.item, row.buildset, paused.build, paused.attempt);
        if row.state == BuildState::Running {
            self.emit(GateEvent::BuildPaused(BuildPaused { paused: paused.clone(), item, buildset }))?;
            return self.emit(GateEvent::LeasePauseWanted(LeasePauseWanted { build, attempt }));
        }
        // Heard of before its start was: nobody knows yet that it runs, so nobody is let run beside it. Its worker must
        // not wait for ever.
        self.returned_late(build, &paused.kept)?;
        self.emit(GateEvent::LeasePauseWanted(LeasePauseWanted { build, attempt }))?;
        self.emit(GateEvent::LeaseResumeWanted(LeaseResumeWanted { build, attempt }))
    }

    /// A worker says that an attempt will fail. Zuul: `pre_fail`.
    pub(crate) fn attempt_failing(&mut self, failing: &AttemptFailing) -> Result<(), Refusal> {
        let subject = format!("early failure of build {} attempt {}", failing.build, failing.attempt);
        let Some(row) = self.current_attempt(failing.build, failing.attempt, &subject)? else { return Ok(()) };
        if row.state != BuildState::Running || row.pre_fail {
            return self.ignore(subject, "already-had");
        }
        let (item, buildset) = (row.item, row.buildset);
        self.emit(GateEvent::BuildFailing(BuildFailing { failing: failing.clone(), item, buildset }))
    }

    /// A worker ended an attempt.
    pub(crate) fn attempt_finished(&mut self, finished: &AttemptFinished) -> Result<(), Refusal> {
        let subject = format!("build {} attempt {}", finished.build, finished.attempt);
        let Some(row) = self.current_attempt(finished.build, finished.attempt, &subject)? else {
            return self.returned_late(finished.build, &finished.kept);
        };
        self.end_attempt(&row, finished)?;
        if self.hold_nodes(finished.build, finished.attempt)? {
            return Ok(());
        }
        self.emit(GateEvent::LeaseEndWanted(LeaseEndWanted {
            build: finished.build,
            attempt: finished.attempt,
            reason: "finished".into(),
        }))
    }

    fn current_attempt(&mut self, build: BuildId, attempt: u32, subject: &str) -> Result<Option<BuildRow>, Refusal> {
        let code = match self.build(build) {
            None => "gone",
            Some(row) if row.attempt != attempt => "old-attempt",
            Some(row) if !row.holds_lease() => "already-had",
            Some(row) => return Ok(Some(row.clone())),
        };
        self.ignore(subject.to_owned(), code)?;
        Ok(None)
    }

    fn end_attempt(&mut self, row: &BuildRow, finished: &AttemptFinished) -> Result<(), Refusal> {
        let attempts = row.job.attempts.max(1);
        // Zuul: what never began is no attempt.
        let left = row.attempt.saturating_sub(row.uncounted) < attempts;
        let result = match finished.result {
            // Zuul: a build that was known to fail does not succeed after all.
            BuildResult::Success if row.pre_fail => Some(BuildResult::Failure),
            // Nor is it repeated: the items behind it do without it already. In the last attempt a post-run playbook may
            // fail early after pre-run failed; that stays RETRY_LIMIT, as in Zuul.
            BuildResult::Retry | BuildResult::Unreachable if row.pre_fail && left => Some(BuildResult::Failure),
            // Zuul: a build whose worker died is tried again whatever the count says.
            BuildResult::Aborted if row.attempt < MAX_ATTEMPTS => None,
            // Zuul: nodes that cannot be had are no failure as long as there are others.
            BuildResult::NodeFailure if row.has_others() => None,
            BuildResult::Retry | BuildResult::Unreachable | BuildResult::MergeConflict if left => None,
            BuildResult::Retry | BuildResult::Unreachable | BuildResult::Aborted => Some(BuildResult::RetryLimit),
            result => Some(result),
        };
        let (build, item, buildset) = (finished.build, row.item, row.buildset);
        let retry = result.is_none();
        self.emit(GateEvent::BuildFinished(BuildFinished {
            finished: finished.clone(),
            item,
            buildset,
            retry,
            result,
            freed: self.freed(build),
        }))?;
        let code = match finished.result {
            BuildResult::NodeFailure => "node-failure",
            BuildResult::Unreachable => "unreachable",
            _ => return Ok(()),
        };
        // Zuul: the last of them is asked for again.
        if !retry || !row.has_others() {
            return Ok(());
        }
        let uncounted = finished.result == BuildResult::NodeFailure;
        let nodeset = row.nodeset.saturating_add(1);
        self.emit(GateEvent::NodesetChanged(NodesetChanged {
            build,
            item,
            buildset,
            nodeset,
            uncounted,
            code: code.into(),
        }))
    }

    /// Capacity lost a lease, or will never grant it.
    pub(crate) fn lease_lost(&mut self, lost: &LeaseLost) -> Result<(), Refusal> {
        let subject = format!("lease of {}", lost.owner.subject);
        let Some((build, attempt)) = lost.owner.build() else { return self.ignore(subject, "not-ours") };
        if self.hold_lost(lost, (build, attempt))? {
            return Ok(());
        }
        let Some(row) = self.current_attempt(build, attempt, &subject)? else { return Ok(()) };
        if lost.refused && !row.has_others() {
            return self.emit(GateEvent::BuildSettled(BuildSettled {
                build,
                item: row.item,
                buildset: row.buildset,
                result: BuildResult::NodeFailure,
                code: "lease-refused".into(),
                detail: lost.message.clone(),
                freed: self.freed(build),
            }));
        }
        let now = self.now();
        let finished = AttemptFinished {
            tenant: lost.owner.key.clone(),
            build,
            attempt,
            worker: row.worker.clone().unwrap_or_default(),
            result: if lost.refused { BuildResult::NodeFailure } else { BuildResult::Aborted },
            started_at: row.started_at.unwrap_or(now),
            finished_at: now,
            detail: Some(lost.message.clone()),
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        self.end_attempt(&row, &finished)
    }
}

/// Whether a build will never run because of the jobs it waits for: a code and a sentence.
fn skipped(builds: &Builds<'_>, row: &BuildRow) -> Option<(&'static str, String)> {
    for (name, soft) in &row.job.dependencies {
        for other in named(builds, name, row) {
            let result = match other.result {
                // What it returned so far counts while it is paused.
                None if other.paused => BuildResult::Success,
                None => continue,
                Some(result) => result,
            };
            match result {
                BuildResult::Success => {
                    let kept = other.child_jobs.as_ref().is_none_or(|kept| kept.contains(&row.job.name));
                    if !kept {
                        return Some(("child-jobs", format!("Skipped by job {name}")));
                    }
                }
                BuildResult::Skipped if *soft => {}
                BuildResult::Skipped => {
                    let hidden = matches!(other.settled.as_deref(), Some("child-jobs" | "dependency-skipped"));
                    let code = if hidden { "dependency-skipped" } else { "dependency-failed" };
                    return Some((code, format!("Skipped due to skipped job {name}")));
                }
                _ => return Some(("dependency-failed", format!("Skipped due to failed job {name}"))),
            }
        }
    }
    // Zuul: a soft dependency forgives that a job is not there, not that something before it failed.
    failed_before(builds, row).map(|name| ("dependency-failed", format!("Skipped due to failed job {name}")))
}

/// A job that failed, anywhere before this one.
fn failed_before(builds: &Builds<'_>, row: &BuildRow) -> Option<String> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut todo: Vec<&str> = row.job.dependencies.iter().map(|(name, _)| name.as_str()).collect();
    while let Some(name) = todo.pop() {
        if !seen.insert(name) {
            continue;
        }
        for other in named(builds, name, row) {
            if other.result.is_some_and(|result| !matches!(result, BuildResult::Success | BuildResult::Skipped)) {
                return Some(name.to_owned());
            }
            todo.extend(other.job.dependencies.iter().map(|(name, _)| name.as_str()));
        }
    }
    None
}
