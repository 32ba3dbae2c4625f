//! Freezing: which jobs an item runs.

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::Work;
use gatelog_record::draft::gate::{FreezeDone, FreezeOutcome, FreezeWanted, Frozen};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildsetId, ItemId};

use crate::decision::Decision;
use crate::queue_pass::Walk;

/// The most jobs an item may have.
const MAX_JOBS: usize = 1_000;

impl Decision<'_> {
    /// Asks for the jobs of an item whose layout is known.
    pub(crate) fn want_freeze(&mut self, walk: &Walk<'_>, item: ItemId, buildset: BuildsetId) -> Result<(), Refusal> {
        let Some((layout, layout_ahead)) = self.layouts_for(walk, buildset) else { return Ok(()) };
        let Some(set) = self.buildset(buildset) else { return Ok(()) };
        let Some(state) = set.state.clone() else { return Ok(()) };
        let steps = set.steps.clone();
        let projects = self.tenant(walk.tenant).map(|row| row.loaded.projects.clone()).unwrap_or_default();
        let work = self.deciding.id();
        self.emit(GateEvent::FreezeWanted(FreezeWanted {
            work,
            item,
            buildset,
            tenant: walk.tenant.to_owned(),
            pipeline: walk.pipeline.name.clone(),
            layout,
            layout_ahead,
            steps,
            state,
            projects,
        }))
    }

    /// Jobs were frozen, or could not be.
    pub(crate) fn freeze_done(&mut self, done: &FreezeDone) -> Result<(), Refusal> {
        let failed = matches!(done.outcome, FreezeOutcome::Failed { .. });
        let is_freeze = |work: &Work| matches!(work, Work::Freeze(_));
        let Some(row) = self.outcome(done.work, done.attempt, failed, is_freeze)? else { return Ok(()) };
        if matches!(done.outcome, FreezeOutcome::Failed { again: true, .. }) && self.send_again(done.work, &row)? {
            return Ok(());
        }
        let Work::Freeze(wanted) = &row.work else { return Ok(()) };
        let (item, buildset) = (wanted.item, wanted.buildset);
        let mut done = done.clone();
        let count = match &done.outcome {
            FreezeOutcome::Frozen { jobs, .. } => jobs.len(),
            _ => 0,
        };
        if let FreezeOutcome::Frozen { trace, jobs, .. } = &done.outcome
            && jobs.is_empty()
        {
            done.outcome = FreezeOutcome::NoJobs { trace: *trace, in_pipeline: true };
        }
        if count > MAX_JOBS {
            let message = format!("the change has {count} jobs, more than {MAX_JOBS}");
            done.outcome = FreezeOutcome::Failed { code: "too-many-jobs".into(), message, again: false };
        }
        let builds = match &done.outcome {
            FreezeOutcome::Frozen { jobs, .. } => jobs.iter().map(|_| self.deciding.id()).collect(),
            _ => Vec::new(),
        };
        self.emit(GateEvent::Frozen(Frozen { item, buildset, done, builds }))
    }
}
