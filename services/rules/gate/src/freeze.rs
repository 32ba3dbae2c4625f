//! Freezing: which jobs an item runs.

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::Work;
use gatelog_record::draft::capacity::{NodeWanted, SemaphoreWanted};
use gatelog_record::draft::gate::{
    FreezeDone, FreezeOutcome, FreezeWanted, Frozen, FrozenJob as Known, JobTraits, PreparedState, Subject,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, BuildsetId, ItemId};
use gatelog_rules_config::freeze::graph::FrozenNodeset;
use gatelog_rules_config::{FreezeSubject, FrozenJob, JobGraph, Layout};

use crate::decision::Decision;
use crate::queue_pass::Walk;

/// The most jobs an item may have.
const MAX_JOBS: usize = 1_000;

/// What is asked of a layout about an item's own changes, each with its own files: by whoever freezes, and by whoever
/// does it again.
pub fn freeze_subjects(wanted: &FreezeWanted) -> Vec<FreezeSubject> {
    let own = own_changes(wanted).into_iter().enumerate();
    own.map(|(index, change)| FreezeSubject {
        project: change.project.clone(),
        branch: change.branch.clone(),
        reference: change.git_ref.clone(),
        containing_branches: wanted.state.containing_branches.clone(),
        // Zuul: where one change of an item touches configuration, all of them are looked at for changed jobs.
        updates_config: wanted.state.item_touches_config,
        files: wanted.own_files.get(index).unwrap_or(&wanted.state.files).clone(),
        parameters: wanted.parameters.clone(),
    })
    .collect()
}

/// The item's own changes, the one that set it off last.
pub fn own_changes(wanted: &FreezeWanted) -> Vec<&Subject> {
    wanted.steps.iter().filter(|step| step.item == wanted.item).map(|step| &step.subject).collect()
}

/// The nodes of a nodeset as they are asked for.
pub fn wanted_nodes(nodeset: &FrozenNodeset) -> Vec<NodeWanted> {
    let wanted = nodeset.shape.nodes.iter();
    wanted.map(|node| NodeWanted { names: node.names.clone(), label: node.label.clone() }).collect()
}

/// A frozen job as the gate knows it, on its first nodeset; what there is for the others is in its traits, and whoever
/// froze it says so there. `spec` names what its worker is told, `changes` are those of the item's changes that it is
/// for, counted from 0; empty where the item has but one.
pub fn frozen_job(layout: &Layout, graph: &JobGraph, job: &FrozenJob, changes: Vec<u32>, spec: BlobHash) -> Known {
    let at_least_one = |number: i64| u32::try_from(number).unwrap_or(1).max(1);
    let semaphore =
        |name: &String| SemaphoreWanted { name: name.clone(), max: at_least_one(layout.semaphore_max(name)) };
    Known {
        name: job.name.clone(),
        spec,
        voting: job.voting,
        attempts: at_least_one(job.attempts),
        dependencies: job.dependencies.iter().map(|one| (one.name.clone(), one.soft)).collect(),
        semaphores: job.semaphores.iter().map(|one| semaphore(&one.name)).collect(),
        nodes: job.nodeset().map(wanted_nodes).unwrap_or_default(),
        noop: job.name == "noop",
        success_message: job.success_message.clone(),
        failure_message: job.failure_message.clone(),
        traits: job_traits(graph, job, changes),
    }
}

/// What the gate must know of a frozen job beyond how it runs.
fn job_traits(graph: &JobGraph, job: &FrozenJob, changes: Vec<u32>) -> JobTraits {
    JobTraits {
        hold_following_changes: job.hold_following_changes,
        fail_fast: graph.fail_fast == Some(true),
        provides: job.provides.iter().cloned().collect(),
        requires: job.requires.iter().cloned().collect(),
        changes,
        reporter: job.job_type == "reporter",
        alternatives: Vec::new(),
        resources_first: job
            .semaphores
            .iter()
            .filter(|semaphore| semaphore.resources_first)
            .map(|semaphore| semaphore.name.clone())
            .collect(),
    }
}

impl Decision<'_> {
    /// Asks for the jobs of an item whose layout is known.
    pub(crate) fn want_freeze(&mut self, walk: &Walk<'_>, item: ItemId, buildset: BuildsetId) -> Result<(), Refusal> {
        let Some((layout, layout_ahead)) = self.layouts_for(walk, buildset) else { return Ok(()) };
        let Some(set) = self.buildset(buildset) else { return Ok(()) };
        let known = self.unmerged(walk, item);
        let state = match &set.state {
            // Zuul: what a code-review system says a change touches counts, also where merging it changes
            // nothing any more.
            Some(state) => PreparedState { files: known.files.or_else(|| state.files.clone()), ..state.clone() },
            None => known,
        };
        let steps = self.gate().chains.row(&buildset).cloned().unwrap_or_default();
        let parameters = self.item(item).map(|row| row.parameters.clone()).unwrap_or_default();
        let own_files = self.own_files(walk, item, &state);
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
            parameters,
            own_files,
        }))
    }

    /// The files of each change of an item that has several. Of a change whose files nobody knows those of all count.
    fn own_files(&self, walk: &Walk<'_>, item: ItemId, state: &PreparedState) -> Vec<Option<Vec<String>>> {
        let keys = self.keys_of(item);
        if keys.len() < 2 {
            return Vec::new();
        }
        let of_change = |key| self.change(walk.tenant, key).and_then(|row| row.facts.files.clone());
        keys.iter().map(|key| of_change(key).or_else(|| state.files.clone())).collect()
    }

    /// What is known of an item that does not merge: the files its changes touch.
    fn unmerged(&self, walk: &Walk<'_>, item: ItemId) -> PreparedState {
        let keys = self.keys_of(item);
        let mut files = (!keys.is_empty()).then(Vec::new);
        for key in keys {
            let of_change = self.change(walk.tenant, &key).and_then(|row| row.facts.files.clone());
            files = files.zip(of_change).map(|(mut all, more)| {
                all.extend(more);
                all
            });
        }
        let (touches_config, item_touches_config) = (false, false);
        PreparedState {
            branches: Vec::new(),
            files,
            config: Vec::new(),
            touches_config,
            item_touches_config,
            containing_branches: Vec::new(),
        }
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
