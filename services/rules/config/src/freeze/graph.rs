//! The shapes of a frozen job graph, and its making from frozen jobs.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::Refusal;
use super::fold::wait;
use super::trace::{Effect, FileLook, FreezeTrace, JobFate, Step};
use crate::layout::Layout;
use crate::objects::JobAttribute;
use crate::objects::job_parts::{Dependency, IncludeVars, ProjectFilter, SemaphoreUse};
use crate::objects::nodeset::NodesetShape;
use crate::place::Place;
use crate::problem::{Problem, UNKNOWN};
use crate::regexes::Pattern;
use crate::shared::Shared;

/// When a playbook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Before; a failure is tried again.
    Pre,
    /// The job itself.
    Run,
    /// After, whatever the result.
    Post,
    /// At the very end, even when the build is cancelled; its result does not count.
    Cleanup,
}

/// A repository with roles for a playbook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrozenRole {
    /// Canonical name of the project.
    pub project: String,
    /// Its connection.
    pub connection: String,
    /// The name of the role, when the repository is a bare role.
    pub target_name: String,
    /// Whether it is there because the playbook is.
    pub implicit: bool,
}

/// A secret a playbook may see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlaybookSecret {
    /// The variable.
    pub name: String,
    /// The secret, to be found in the layout.
    pub secret: String,
}

/// A playbook of a frozen job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Playbook {
    /// When it runs.
    pub phase: Phase,
    /// Canonical name of the project it lies in.
    pub project: String,
    /// The branch it is taken from.
    pub branch: String,
    /// Its path.
    pub path: String,
    /// Whether that is a config project: then it is always taken as merged, never as proposed.
    pub trusted: bool,
    /// Whether it runs whatever happens, its result ignored.
    pub cleanup: bool,
    /// Roles, as accumulated up to its definition.
    pub roles: Shared<Vec<Shared<FrozenRole>>>,
    /// Its secrets.
    pub secrets: Vec<PlaybookSecret>,
    /// Semaphores held while it runs.
    pub semaphores: Vec<String>,
    /// How many definitions were applied before the one it stands in.
    pub nesting_level: u32,
}

/// A further repository in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiredProject {
    /// Canonical name.
    pub project: String,
    /// The name at its connection.
    pub name: String,
    /// What to check out there.
    pub override_checkout: Option<String>,
    /// An older way to name a branch; looked at when override-checkout names nothing that exists.
    pub override_branch: Option<String>,
}

/// Machines of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenNodeset {
    /// Its name; empty when it was spelt out in the job.
    pub name: String,
    /// Nodes and groups.
    pub shape: NodesetShape,
}

/// What `auth` of an older spelling says beside secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// The job that says it.
    pub job: String,
    /// Whether jobs that inherit from that one have its credentials; otherwise none may.
    pub inherit: bool,
    /// Containers of an object store the job may write to, as they were given.
    pub swift: Vec<Value>,
}

/// A definition that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The job it defines.
    pub job: String,
    /// Where it stands.
    pub place: Place,
    /// Whether it stands in a project's list.
    pub project_pipeline: bool,
}

/// A job as it will run: everything an executor needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenJob {
    /// Its name.
    pub name: String,
    /// For people. Zuul: that of the first definition applied, for a description is not inherited.
    pub description: Option<String>,
    /// `regular`, `initializer` or `reporter`.
    pub job_type: String,
    /// Whether its result counts.
    pub voting: bool,
    /// Whether changes behind wait for it.
    pub hold_following_changes: bool,
    /// Reported when it succeeds.
    pub success_message: Option<String>,
    /// Reported when it fails.
    pub failure_message: Option<String>,
    /// How often it is tried.
    pub attempts: i64,
    /// Seconds for the playbooks before.
    pub pre_timeout: Option<i64>,
    /// Seconds for the playbooks before and the job.
    pub timeout: Option<i64>,
    /// Seconds for each playbook after.
    pub post_timeout: Option<i64>,
    /// Its machines, alternatives in order of preference; never empty.
    pub nodesets: Shared<Vec<FrozenNodeset>>,
    /// Jobs it declares to wait for.
    pub declared_dependencies: Vec<Dependency>,
    /// Jobs of the graph it waits for.
    pub dependencies: Vec<Dependency>,
    /// What it must hold to run, by name.
    pub semaphores: Vec<SemaphoreUse>,
    /// Further repositories, by canonical name.
    pub required_projects: Vec<Shared<RequiredProject>>,
    /// Of these projects' changes only.
    pub include_projects: Option<Vec<ProjectFilter>>,
    /// Of these projects' changes not.
    pub exclude_projects: Option<Vec<ProjectFilter>>,
    /// What to check out instead of the branch of the change.
    pub override_checkout: Option<String>,
    /// An older way to name a branch; looked at when override-checkout names nothing that exists.
    pub override_branch: Option<String>,
    /// Variables.
    pub vars: BTreeMap<String, Value>,
    /// Variables that win over all others.
    pub extra_vars: BTreeMap<String, Value>,
    /// Variables of single hosts.
    pub host_vars: BTreeMap<String, Value>,
    /// Variables of groups.
    pub group_vars: BTreeMap<String, Value>,
    /// Files with variables.
    pub include_vars: Vec<IncludeVars>,
    /// Playbooks in the order of execution.
    pub playbooks: Vec<Playbook>,
    /// Free words.
    pub tags: BTreeSet<String>,
    /// Artifacts it makes.
    pub provides: BTreeSet<String>,
    /// Artifacts it needs.
    pub requires: BTreeSet<String>,
    /// Changed files it runs for.
    pub files: Option<Vec<Pattern>>,
    /// Changed files it does not run for.
    pub irrelevant_files: Option<Vec<Pattern>>,
    /// Whether a change of its own configuration makes it run.
    pub match_on_config_updates: bool,
    /// Whether one build serves several changes of a cycle; none is `auto`.
    pub deduplicate: Option<bool>,
    /// Whether it may not run itself.
    pub is_abstract: bool,
    /// Whether only abstract jobs may inherit from it.
    pub intermediate: bool,
    /// Whether others may not change it.
    pub is_final: bool,
    /// The project that protects it.
    pub protected_by: Option<String>,
    /// Whether it runs after review only.
    pub post_review: bool,
    /// Short names of the projects it may run for.
    pub allowed_projects: Option<BTreeSet<String>>,
    /// Whether a config project's list lifts that.
    pub ignore_allowed_projects: bool,
    /// What happens when a secret shows up in logs.
    pub secret_exposure: String,
    /// Which Ansible runs it.
    pub ansible_version: String,
    /// Whether standard error is kept apart.
    pub ansible_split_streams: Option<bool>,
    /// Output that means failure, sorted.
    pub failure_output: Vec<Pattern>,
    /// The image it builds.
    pub image_build_name: Option<String>,
    /// `golang`, `flat` or `unique`.
    pub workspace_scheme: String,
    /// Whether a work tree is checked out; none is `auto`: only without machines.
    pub workspace_checkout: Option<bool>,
    /// Paths in the home directory playbooks may see.
    pub preserve_home_paths: BTreeSet<String>,
    /// Where repositories lie, where an older spelling says.
    pub workspace: Option<String>,
    /// The machine it runs on instead of nodes, where an older spelling says.
    pub host: Option<String>,
    /// The key that machine must show.
    pub fingerprint: Option<String>,
    /// Credentials in an older spelling.
    pub auth: Option<Auth>,
    /// Definitions that made it, in the order of applying.
    pub inheritance_path: Vec<Applied>,
}

impl FrozenJob {
    /// The machines preferred.
    pub fn nodeset(&self) -> Option<&FrozenNodeset> {
        self.nodesets.first()
    }

    /// The playbooks of a phase, in order.
    pub fn phase(&self, phase: Phase) -> impl Iterator<Item = &Playbook> {
        self.playbooks.iter().filter(move |playbook| playbook.phase == phase)
    }
}

/// The jobs of a change in a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGraph {
    /// The jobs in order.
    pub jobs: Vec<FrozenJob>,
    /// Whether the first failure ends the rest.
    pub fail_fast: Option<bool>,
    /// Whether reports say how jobs were chosen.
    pub debug: bool,
}

impl JobGraph {
    /// A job by its name.
    pub fn job(&self, name: &str) -> Option<&FrozenJob> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

/// A frozen job, and whether the file matchers want it.
pub(crate) struct Candidate {
    pub job: FrozenJob,
    pub wanted: bool,
    pub place: Place,
    /// Where its trace stands.
    pub at: usize,
}

impl Candidate {
    /// Writes a rule about whom it waits for down, and takes it.
    fn rule(&mut self, trace: &mut FreezeTrace, effect: Effect, place: Option<Place>, reason: String) {
        wait(&mut self.job.dependencies, &effect);
        if let Some(job) = trace.jobs.get_mut(self.at) {
            job.steps.push(Step::Rule { attribute: JobAttribute::Dependencies, place, effect, reason });
        }
    }

    /// Says that it is refused.
    fn refused(&self, trace: &mut FreezeTrace, code: &str, message: &str) {
        if let Some(job) = trace.jobs.get_mut(self.at) {
            job.settle(JobFate::Refused, code, message);
        }
    }
}

/// Lets jobs wait for initializers, and looks whether everyone's dependencies can be had. Zuul: they are looked at
/// before the jobs nobody wants are dropped.
pub(crate) fn prepare(candidates: &mut [Candidate], trace: &mut FreezeTrace) -> Result<(), Refusal> {
    initializers(candidates, trace);
    present(None, candidates, trace)?;
    acyclic(candidates)
}

/// Drops jobs nobody wants, and freezes who waits for whom. Zuul: what only matters for jobs that run (`check`) comes
/// last.
pub(crate) fn finish(
    layout: &Layout,
    mut candidates: Vec<Candidate>,
    trace: &mut FreezeTrace,
    check: impl Fn(&Candidate) -> Result<(), Refusal>,
) -> Result<Vec<FrozenJob>, Refusal> {
    candidates.retain(|candidate| candidate.wanted);
    present(Some(layout), &mut candidates, trace)?;
    for candidate in &candidates {
        if let Err(refusal) = check(candidate) {
            candidate.refused(trace, &refusal.0.code, &refusal.0.message);
            return Err(refusal);
        }
    }
    for candidate in &candidates {
        if let Some(job) = trace.jobs.get_mut(candidate.at).filter(|job| job.fate == JobFate::Absent) {
            job.settle(JobFate::Runs, "runs", "a definition matches, and so do the files");
        }
    }
    Ok(candidates.into_iter().map(|candidate| candidate.job).collect())
}

/// Refuses a hard dependency on a job that is not there; with a layout, also a soft one on a job
/// nobody defines, and then forgets soft ones that are not there.
fn present(layout: Option<&Layout>, candidates: &mut [Candidate], trace: &mut FreezeTrace) -> Result<(), Refusal> {
    if candidates.iter().all(|candidate| candidate.job.dependencies.is_empty()) {
        return Ok(());
    }
    let names: BTreeSet<String> = candidates.iter().map(|candidate| candidate.job.name.clone()).collect();
    for candidate in candidates.iter_mut() {
        let job = &candidate.job;
        let absent: Vec<Dependency> =
            job.dependencies.iter().filter(|dependency| !names.contains(&dependency.name)).cloned().collect();
        for dependency in absent {
            let name = &dependency.name;
            let (code, message, cure) = match (dependency.soft, layout) {
                (false, _) => (
                    "dependency-not-run",
                    format!("Job {} depends on {name} which was not run.", candidate.job.name),
                    "let the project run that job too, or make the dependency soft",
                ),
                (true, Some(layout)) if !layout.jobs.contains_key(name) => (
                    "dependency-not-defined",
                    format!("Job {} depends on {name} which is not defined.", candidate.job.name),
                    "define that job, or remove the dependency",
                ),
                (true, Some(_)) => {
                    let reason = format!("the soft dependency {name} does not run");
                    candidate.rule(trace, Effect::Forget(dependency.name), None, reason);
                    continue;
                }
                (true, None) => continue,
            };
            candidate.refused(trace, code, &message);
            let problem = Problem::error(code, UNKNOWN, candidate.place.clone(), message);
            return Err(problem.about("dependencies").cure(cure).into());
        }
    }
    Ok(())
}

/// Zuul: every regular job waits softly for every initializer, even where it said otherwise.
fn initializers(candidates: &mut [Candidate], trace: &mut FreezeTrace) {
    let first: Vec<(String, Place)> = candidates
        .iter()
        .filter(|candidate| candidate.job.job_type == "initializer")
        .map(|candidate| (candidate.job.name.clone(), candidate.place.clone()))
        .collect();
    for candidate in candidates.iter_mut().filter(|candidate| candidate.job.job_type == "regular") {
        for (name, place) in &first {
            let reason = "every regular job waits for initializers".to_owned();
            candidate.rule(trace, Effect::WaitFor(name.clone()), Some(place.clone()), reason);
        }
    }
}

/// Zuul: a job the files do not call for runs all the same when one that runs depends on it.
pub(crate) fn force(candidates: &mut [Candidate], trace: &mut FreezeTrace) {
    if candidates.iter().all(|candidate| candidate.wanted) {
        return;
    }
    let mut open: Vec<(String, String)> = candidates
        .iter()
        .filter(|candidate| candidate.wanted)
        .flat_map(|candidate| hard_dependencies(&candidate.job))
        .collect();
    while let Some((name, dependent)) = open.pop() {
        let Some(candidate) = candidates.iter_mut().find(|candidate| candidate.job.name == name && !candidate.wanted)
        else {
            continue;
        };
        candidate.wanted = true;
        open.extend(hard_dependencies(&candidate.job));
        if let Some(job) = trace.jobs.get_mut(candidate.at) {
            let reason = format!("job {dependent} depends on it, which overrules its file matchers");
            job.files.push(FileLook::Forced { by: dependent });
            job.settle(JobFate::Runs, "forced-by-dependent", reason);
        }
    }
}

fn hard_dependencies(job: &FrozenJob) -> Vec<(String, String)> {
    let hard = job.dependencies.iter().filter(|dependency| !dependency.soft);
    hard.map(|dependency| (dependency.name.clone(), job.name.clone())).collect()
}

fn acyclic(candidates: &[Candidate]) -> Result<(), Refusal> {
    if candidates.iter().all(|candidate| candidate.job.dependencies.is_empty()) {
        return Ok(());
    }
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> = candidates
        .iter()
        .map(|candidate| {
            // A soft dependency on a job that is not there waits for nothing.
            let names = candidate.job.dependencies.iter().map(|dependency| dependency.name.as_str());
            let names = names.filter(|name| candidates.iter().any(|other| other.job.name == **name));
            (candidate.job.name.as_str(), names.collect())
        })
        .collect();
    loop {
        let free: Vec<&str> = waiting.iter().filter(|(_, on)| on.is_empty()).map(|(name, _)| *name).collect();
        if free.is_empty() {
            break;
        }
        for name in &free {
            waiting.remove(name);
        }
        for on in waiting.values_mut() {
            on.retain(|name| !free.contains(name));
        }
    }
    let Some((start, _)) = waiting.iter().next() else { return Ok(()) };
    // Every job left waits for another one left: following one of them must come round.
    let mut path: Vec<&str> = vec![start];
    while let Some(next) = path.last().and_then(|last| waiting.get(last)).and_then(|on| on.iter().next()) {
        if let Some(from) = path.iter().position(|name| name == next) {
            path = path.split_off(from);
            path.push(next);
            break;
        }
        path.push(next);
    }
    let place = candidates
        .iter()
        .find(|candidate| path.first() == Some(&candidate.job.name.as_str()))
        .map(|candidate| candidate.place.clone())
        .unwrap_or_default();
    let message = format!("Dependency cycle detected in job {}", path.join(" -> "));
    let problem = Problem::error("dependency-cycle", UNKNOWN, place, message);
    Err(problem.about("dependencies").cure("remove one of these dependencies").into())
}
