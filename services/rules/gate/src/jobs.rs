//! An item's builds: which may run, their attempts, their results.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{BuildRow, BuildState};
use gatelog_record::draft::capacity::{LeaseAsked, SemaphoreWanted};
use gatelog_record::draft::gate::{
    AttemptFinished, AttemptStarted, BuildFinished, BuildResult, BuildSettled, BuildStarted, LeaseEndWanted, LeaseLost,
    LeaseWanted, ReportAction,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, BuildsetId, Domain, ItemId, Partition, Value};
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
}

/// What is next for a build that has neither lease nor result.
enum Next {
    /// It asks for its lease.
    Run,
    /// It waits.
    Wait,
    /// It will never run.
    Skip { code: &'static str, detail: String },
    /// It is done without a worker.
    Noop,
}

/// The builds of a buildset by their jobs' names.
pub(crate) type ByName<'b> = BTreeMap<&'b str, &'b BuildRow>;

impl Decision<'_> {
    /// Brings every build of an item as far as it can go.
    pub(crate) fn run_jobs(&mut self, walk: &Walk<'_>, item: ItemId, buildset: BuildsetId) -> Result<(), Refusal> {
        let Some(set) = self.buildset(buildset) else { return Ok(()) };
        let builds = set.builds.clone();
        self.report_start(walk.tenant, walk.pipeline, item)?;
        // A build that is skipped or done at once may decide about others: a round for each at most.
        for _ in 0..=builds.len() {
            let before = self.deciding.events().len();
            for build in &builds {
                self.run_job(walk, item, buildset, *build)?;
            }
            if self.deciding.events().len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Zuul: the start is reported once, whatever is reset later.
    fn report_start(&mut self, tenant: &str, pipeline: &Pipeline, item: ItemId) -> Result<(), Refusal> {
        let Some(row) = self.item(item) else { return Ok(()) };
        if row.start_reported {
            return Ok(());
        }
        let row = row.clone();
        let message = self.result_message(item, &row, pipeline, ReportAction::Start, "");
        self.report_to(tenant, pipeline, Some(item), ReportAction::Start, &row.subjects, message)
    }

    fn run_job(&mut self, walk: &Walk<'_>, item: ItemId, buildset: BuildsetId, build: BuildId) -> Result<(), Refusal> {
        let Some(row) = self.build(build).filter(|row| row.state == BuildState::Waiting) else { return Ok(()) };
        let settle = |result, code: &str, detail: String| {
            GateEvent::BuildSettled(BuildSettled { build, item, buildset, result, code: code.into(), detail })
        };
        match self.next(buildset, build, row) {
            Next::Wait => Ok(()),
            Next::Skip { code, detail } => self.emit(settle(BuildResult::Skipped, code, detail)),
            Next::Noop => self.emit(settle(BuildResult::Success, "noop", String::new())),
            Next::Run => {
                let ask = self.lease(walk, build, row);
                self.emit(GateEvent::LeaseWanted(LeaseWanted { item, buildset, ask }))
            }
        }
    }

    fn lease(&self, walk: &Walk<'_>, build: BuildId, row: &BuildRow) -> LeaseAsked {
        LeaseAsked {
            owner: Partition::of_key(Domain::Gate, walk.tenant, 1),
            owner_key: walk.tenant.to_owned(),
            build,
            attempt: row.attempt.saturating_add(1),
            tenant: walk.tenant.to_owned(),
            pipeline: walk.pipeline.name.clone(),
            job: row.job.name.clone(),
            spec: row.job.spec,
            nodes: row.job.nodes.clone(),
            // A tenant's own semaphores are held here; only global ones are capacity's.
            semaphores: Vec::new(),
            priority: match walk.pipeline.precedence {
                Precedence::High => 100,
                Precedence::Normal => 200,
                Precedence::Low => 300,
            },
        }
    }

    /// The builds of a buildset by name.
    pub(crate) fn by_name(&self, buildset: BuildsetId) -> ByName<'_> {
        let builds = self.buildset(buildset).map(|set| set.builds.as_slice()).unwrap_or_default();
        builds.iter().filter_map(|build| self.build(*build)).map(|row| (row.job.name.as_str(), row)).collect()
    }

    fn next(&self, buildset: BuildsetId, build: BuildId, row: &BuildRow) -> Next {
        let by_name = self.by_name(buildset);
        if let Some((code, detail)) = skipped(&by_name, row) {
            return Next::Skip { code, detail };
        }
        match self.hold(&by_name, build, row) {
            Some(_) => Next::Wait,
            None if row.job.noop => Next::Noop,
            None => Next::Run,
        }
    }

    /// What keeps a build from asking for its lease.
    pub(crate) fn hold(&self, by_name: &ByName<'_>, build: BuildId, row: &BuildRow) -> Option<Hold> {
        for (name, _) in &row.job.dependencies {
            if by_name.get(name.as_str()).is_some_and(|other| other.result.is_none()) {
                return Some(Hold::Job(name.clone()));
            }
        }
        if row.job.noop {
            return None;
        }
        // Zuul: all of them or none.
        let taken = |semaphore: &&SemaphoreWanted| {
            let key = |id: [u8; 16]| (row.tenant.clone(), semaphore.name.clone(), BuildId(id));
            let (from, to) = (key([0; 16]), key([255; 16]));
            let holders = self
                .gate()
                .semaphores
                .rows(std::ops::Bound::Included(&from), std::ops::Bound::Included(&to))
                .filter(|((_, _, holder), ())| *holder != build)
                .count();
            holders as u64 >= u64::from(semaphore.max.max(1))
        };
        row.job.semaphores.iter().find(taken).map(|semaphore| Hold::Semaphore(semaphore.name.clone()))
    }

    // ---- what workers and capacity say ----

    /// A worker began an attempt.
    pub(crate) fn attempt_started(&mut self, started: &AttemptStarted) -> Result<(), Refusal> {
        let subject = format!("start of build {} attempt {}", started.build, started.attempt);
        let Some(row) = self.build(started.build) else { return self.ignore(subject, "gone") };
        if row.attempt != started.attempt {
            return self.ignore(subject, "old-attempt");
        }
        if row.state != BuildState::Leased {
            return self.ignore(subject, "already-had");
        }
        let (item, buildset) = (row.item, row.buildset);
        self.emit(GateEvent::BuildStarted(BuildStarted { started: started.clone(), item, buildset }))
    }

    /// A worker ended an attempt.
    pub(crate) fn attempt_finished(&mut self, finished: &AttemptFinished) -> Result<(), Refusal> {
        let subject = format!("build {} attempt {}", finished.build, finished.attempt);
        let Some(row) = self.current_attempt(finished.build, finished.attempt, &subject)? else { return Ok(()) };
        self.end_attempt(&row, finished)?;
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
        let left = row.attempt < attempts;
        let result = match finished.result {
            // Zuul: a build whose worker died is tried again whatever the count says.
            BuildResult::Aborted if row.attempt < MAX_ATTEMPTS => None,
            BuildResult::Retry | BuildResult::MergeConflict if left => None,
            BuildResult::Retry | BuildResult::Aborted => Some(BuildResult::RetryLimit),
            result => Some(result),
        };
        self.emit(GateEvent::BuildFinished(BuildFinished {
            finished: finished.clone(),
            item: row.item,
            buildset: row.buildset,
            retry: result.is_none(),
            result,
        }))
    }

    /// Capacity lost a lease, or will never grant it.
    pub(crate) fn lease_lost(&mut self, lost: &LeaseLost) -> Result<(), Refusal> {
        let subject = format!("lease of build {} attempt {}", lost.build, lost.attempt);
        let Some(row) = self.current_attempt(lost.build, lost.attempt, &subject)? else { return Ok(()) };
        if lost.refused {
            return self.emit(GateEvent::BuildSettled(BuildSettled {
                build: lost.build,
                item: row.item,
                buildset: row.buildset,
                result: BuildResult::NodeFailure,
                code: "lease-refused".into(),
                detail: lost.message.clone(),
            }));
        }
        let now = self.now();
        let finished = AttemptFinished {
            tenant: lost.tenant.clone(),
            build: lost.build,
            attempt: lost.attempt,
            worker: row.worker.clone().unwrap_or_default(),
            result: BuildResult::Aborted,
            started_at: row.started_at.unwrap_or(now),
            finished_at: now,
            detail: Some(lost.message.clone()),
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
        };
        self.end_attempt(&row, &finished)
    }
}

/// Whether a build will never run because of the jobs it waits for: a code and a sentence.
fn skipped(by_name: &ByName<'_>, row: &BuildRow) -> Option<(&'static str, String)> {
    for (name, soft) in &row.job.dependencies {
        let Some(other) = by_name.get(name.as_str()) else { continue };
        let Some(result) = other.result else { continue };
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
    // Zuul: a soft dependency forgives that a job is not there, not that something before it failed.
    failed_before(by_name, row).map(|name| ("dependency-failed", format!("Skipped due to failed job {name}")))
}

/// A job that failed, anywhere before this one.
fn failed_before(by_name: &ByName<'_>, row: &BuildRow) -> Option<String> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut todo: Vec<&str> = row.job.dependencies.iter().map(|(name, _)| name.as_str()).collect();
    while let Some(name) = todo.pop() {
        let Some(other) = by_name.get(name) else { continue };
        if !seen.insert(name) {
            continue;
        }
        if other.result.is_some_and(|result| !matches!(result, BuildResult::Success | BuildResult::Skipped)) {
            return Some(name.to_owned());
        }
        todo.extend(other.job.dependencies.iter().map(|(name, _)| name.as_str()));
    }
    None
}
