//! Freezing: which jobs a change gets in a pipeline, exactly how each is, and why.
//!
//! Zuul: `Layout.createJobGraph`. Inheritance is late bound: for each job of the project's list all
//! matching definitions are collected depth first up the parents, and applied in that order.

mod apply;
mod collect;
pub mod explain;
pub mod fold;
pub mod graph;
pub mod matchers;
pub mod story;
mod tell;
pub mod together;
pub mod trace;

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::objects::{JobDefinition, Pipeline};
use crate::place::Place;
use crate::problem::{Problem, UNKNOWN};
use crate::shared::Shared;
use apply::Builder;
use collect::{Collector, Overrides, PipelineConfig};
use graph::{Candidate, FrozenJob, JobGraph};
use matchers::{definition_matcher, files_match};
use trace::{DefinitionLook, Definitions, FileLook, FreezeTrace, JobFate, JobTrace};

/// What jobs are frozen for: a change, or a ref.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeSubject {
    /// Canonical name of the project.
    pub project: String,
    /// The branch; none for a tag or another ref without a branch.
    pub branch: Option<String>,
    /// The full ref (`refs/changes/...`, `refs/tags/...`); matched when there is no branch.
    pub reference: String,
    /// For a tag: the branches that contain it.
    pub containing_branches: Vec<String>,
    /// The files it touches; none when nobody knows, which lets every file matcher pass.
    pub files: Option<Vec<String>>,
    /// Whether it changes configuration: then a job whose definition changes runs whatever its file
    /// matchers say.
    pub updates_config: bool,
    /// What whoever enqueued it gave for parameters. Zuul: of a branch or tag alone.
    pub parameters: BTreeMap<String, Value>,
}

/// How to freeze.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreezeOptions<'a> {
    /// The layout ahead, to tell whether the subject changes a job. None (there is none, or it is
    /// broken) forces no job.
    pub ahead: Option<&'a Layout>,
    /// Whether file matchers are left out of consideration.
    pub skip_file_matchers: bool,
}

/// What freezing came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FreezeOutcome {
    /// These jobs are to run.
    Frozen {
        /// The jobs.
        graph: JobGraph,
        /// Why.
        trace: FreezeTrace,
    },
    /// The project is in the pipeline, but no job is to run.
    NoJobs {
        /// Why.
        trace: FreezeTrace,
    },
    /// No stanza of the project speaks of the pipeline for this branch.
    NotInPipeline {
        /// What was looked at.
        trace: FreezeTrace,
    },
    /// Zuul: "Unable to freeze job graph".
    Refused {
        /// What is wrong.
        problem: Problem,
        /// How far it came.
        trace: FreezeTrace,
    },
}

impl FreezeOutcome {
    /// The trace, whatever came of it.
    pub fn trace(&self) -> &FreezeTrace {
        match self {
            FreezeOutcome::Frozen { trace, .. }
            | FreezeOutcome::NoJobs { trace }
            | FreezeOutcome::NotInPipeline { trace }
            | FreezeOutcome::Refused { trace, .. } => trace,
        }
    }

    /// The graph, if there is one.
    pub fn graph(&self) -> Option<&JobGraph> {
        match self {
            FreezeOutcome::Frozen { graph, .. } => Some(graph),
            _ => None,
        }
    }
}

/// Why a graph cannot be frozen; boxed, for it travels through many results.
#[derive(Debug)]
pub(crate) struct Refusal(pub Box<Problem>);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Refusal(Box::new(problem))
    }
}

/// Freezes the jobs of a subject in a pipeline.
pub fn freeze(layout: &Layout, subject: &FreezeSubject, pipeline: &str, options: FreezeOptions<'_>) -> FreezeOutcome {
    let half = Half::gather(layout, subject, pipeline, options);
    let fail_fast = half.config.as_ref().and_then(|config| config.fail_fast);
    half.close(layout, fail_fast, |_| false)
}

/// The jobs a subject may have, before it is settled which of them run.
pub(crate) struct Half<'a> {
    pub subject: &'a FreezeSubject,
    pub trace: FreezeTrace,
    pub settings: Option<&'a Pipeline>,
    pub config: Option<PipelineConfig>,
    pub candidates: Vec<Candidate>,
    pub refused: Option<Refusal>,
}

impl<'a> Half<'a> {
    fn gather(layout: &'a Layout, subject: &'a FreezeSubject, pipeline: &str, options: FreezeOptions<'_>) -> Half<'a> {
        let trace = FreezeTrace {
            project: subject.project.clone(),
            branch: subject.branch.clone().unwrap_or_else(|| subject.reference.clone()),
            is_ref: subject.branch.is_none(),
            pipeline: pipeline.to_owned(),
            ..FreezeTrace::default()
        };
        let settings = layout.pipelines.get(pipeline).map(|settings| &**settings);
        let mut half = Half { subject, trace, settings, config: None, candidates: Vec::new(), refused: None };
        match collect::pipeline_config(layout, subject, pipeline, &mut half.trace.stanzas) {
            Ok(config) => half.config = config,
            Err(refusal) => half.refused = Some(refusal),
        }
        if let (Some(settings), Some(config)) = (half.settings, &half.config) {
            let trace = &mut half.trace;
            trace.vars.clone_from(&config.vars);
            trace.parameters.clone_from(&config.parameters);
            let mut definitions = Definitions::default();
            let candidates = &mut half.candidates;
            let made = freeze_all(layout, subject, settings, config, options, trace, &mut definitions, candidates);
            trace.definitions = definitions.0;
            half.refused = made.and_then(|()| graph::prepare(candidates, trace)).err();
        }
        half
    }
}

#[expect(clippy::too_many_arguments, reason = "the three last are what it fills")]
fn freeze_all(
    layout: &Layout,
    subject: &FreezeSubject,
    pipeline: &Pipeline,
    config: &PipelineConfig,
    options: FreezeOptions<'_>,
    trace: &mut FreezeTrace,
    definitions: &mut Definitions,
    candidates: &mut Vec<Candidate>,
) -> Result<(), Refusal> {
    for name in &config.order {
        let mut job_trace = JobTrace::new(name);
        let made = freeze_one(layout, subject, config, name, definitions, &mut job_trace);
        match made {
            Ok(Some(job)) => {
                let wanted =
                    options.skip_file_matchers || wanted(layout, subject, pipeline, &job, options, &mut job_trace);
                let place = job_trace.place.clone();
                candidates.push(Candidate { job, wanted, place, at: trace.jobs.len() });
            }
            Ok(None) => {}
            Err(refusal) => {
                job_trace.settle(JobFate::Refused, &refusal.0.code, refusal.0.message.clone());
                trace.jobs.push(job_trace);
                return Err(refusal);
            }
        }
        trace.jobs.push(job_trace);
    }
    Ok(())
}

/// One job; none when it does not run.
fn freeze_one(
    layout: &Layout,
    subject: &FreezeSubject,
    config: &PipelineConfig,
    name: &str,
    definitions: &mut Definitions,
    trace: &mut JobTrace,
) -> Result<Option<FrozenJob>, Refusal> {
    let variants = config.variants.get(name).map_or(&[][..], Vec::as_slice);
    if !layout.jobs.contains_key(name) {
        trace.settle(JobFate::Absent, "job-not-found", "no job of that name is defined");
        return Ok(None);
    }
    let overrides = Overrides::of_variants(layout, subject, variants);
    let mut collector = Collector::new(layout, subject);
    if let Some(missing) = collector.collect(name, &mut Vec::new(), &overrides, trace)? {
        // Zuul: silently, even when the child itself matches.
        let (code, reason) = match missing == name {
            true => ("no-matching-definition", format!("no definition of {name} is for this branch")),
            false => ("no-matching-parent", format!("no definition of its ancestor {missing} is for this branch")),
        };
        trace.settle(JobFate::Absent, code, reason);
        return Ok(None);
    }
    let mut builder = Builder::new(layout);
    for definition in &collector.found {
        builder.apply(definition, definitions, trace)?;
    }
    builder.project_vars(&config.vars, trace);
    let mut listed = false;
    let listed_name = Shared::new(name.to_owned());
    for variant in variants {
        let matcher = definition_matcher(layout, &variant.place, variant.branches.as_deref(), &variant.pragma, true);
        let matched = matcher.matches(subject, None);
        let (job, place) = (listed_name.clone(), variant.place.clone());
        trace.looks.push(DefinitionLook { job, place, depth: 0, matcher, instead: None, matched });
        if matched {
            listed = true;
            builder.apply(variant, definitions, trace)?;
            attached(layout, builder.job(), variant)?;
        }
    }
    if !listed {
        let reason = "no entry of the project's list is for this branch";
        trace.settle(JobFate::Absent, "no-matching-entry", reason);
        return Ok(None);
    }
    builder.imply_playbook(trace);
    Ok(Some(builder.finish(trace)))
}

/// Whether the project that lists a job may list such a job.
fn attached(layout: &Layout, job: &FrozenJob, variant: &JobDefinition) -> Result<(), Refusal> {
    let from = &variant.place.context.project;
    let refuse = |code: &str, label: &str, message: String, cure: &str| -> Result<(), Refusal> {
        Err(Problem::error(code, label, variant.place.clone(), message).cure(cure).into())
    };
    let may_report = from.is_empty() || layout.projects.get(from).is_some_and(|project| project.allow_reporter_jobs);
    if job.job_type == "reporter" && !may_report {
        let message = format!("the project {from} may not list the reporter job {}", variant.name);
        let cure = "list it in a config project, or let the tenant file say `allow-reporter-jobs`";
        return refuse("reporter-job-not-permitted", "Reporter Job Not Permitted", message, cure);
    }
    let Some(name) = &job.image_build_name else { return Ok(()) };
    let Some(image) = layout.named.get("image").and_then(|images| images.get(name)) else {
        let message = format!("the job {} builds the image \"{name}\", which was not found", variant.name);
        return refuse("image-not-found", UNKNOWN, message, "define the image first");
    };
    let owner = &image.place.context.project;
    if owner != from {
        let message =
            format!("the job {} builds the image \"{name}\" of {owner}, and is listed in {from}", variant.name);
        return refuse("image-not-own", UNKNOWN, message, "list the job in the project that defines the image");
    }
    Ok(())
}

/// Whether the changed files, or a change of its own configuration, call for a job.
fn wanted(
    layout: &Layout,
    subject: &FreezeSubject,
    pipeline: &Pipeline,
    job: &FrozenJob,
    options: FreezeOptions<'_>,
    trace: &mut JobTrace,
) -> bool {
    let answer = files_match(subject.files.as_deref(), job.files.as_deref(), job.irrelevant_files.as_deref());
    let matched = answer.matched();
    if !matched {
        trace.settle(JobFate::Absent, answer.code(), answer.words());
    }
    trace.files.push(FileLook::Matchers(answer));
    if matched {
        return true;
    }
    if job.match_on_config_updates {
        if let Some(path) = touched_file(layout, subject, job) {
            trace.settle(JobFate::Runs, "job-file-changed", format!("the change touches {path}, which the job uses"));
            trace.files.push(FileLook::JobFileChanged(path));
            return true;
        }
        if let (true, Some(ahead)) = (subject.updates_config, options.ahead)
            && differs(ahead, subject, pipeline, job)
        {
            trace.settle(JobFate::Runs, "job-changed", "the change alters the definition of the job");
            trace.files.push(FileLook::JobChanged);
            return true;
        }
    }
    false
}

/// A playbook or file of variables of the job that the change touches.
fn touched_file(layout: &Layout, subject: &FreezeSubject, job: &FrozenJob) -> Option<String> {
    let files: BTreeSet<&str> = subject.files.as_deref().unwrap_or(&[]).iter().map(String::as_str).collect();
    let playbooks = job
        .playbooks
        .iter()
        .filter(|playbook| playbook.project == subject.project)
        .map(|playbook| playbook.path.as_str());
    let includes = job
        .include_vars
        .iter()
        .filter(|file| file.zuul_project || file.project.as_deref() == Some(subject.project.as_str()))
        .map(|file| file.name.as_str());
    // The built-in job lies in no project.
    let known = layout.projects.contains_key(&subject.project);
    playbooks.chain(includes).find(|path| known && files.contains(path)).map(str::to_owned)
}

/// Whether the job is another one in the layout ahead. Zuul: places, descriptions and file matchers
/// do not count.
fn differs(ahead: &Layout, subject: &FreezeSubject, pipeline: &Pipeline, job: &FrozenJob) -> bool {
    let essence = |job: &FrozenJob| FrozenJob {
        description: None,
        files: None,
        irrelevant_files: None,
        inheritance_path: Vec::new(),
        ..job.clone()
    };
    let Ok(config) = collect::pipeline_config(ahead, subject, &pipeline.name, &mut Vec::new()) else { return false };
    let before = config.filter(|config| config.variants.contains_key(&job.name)).map(|config| {
        let (mut definitions, mut trace) = (Definitions::default(), JobTrace::new(&job.name));
        freeze_one(ahead, subject, &config, &job.name, &mut definitions, &mut trace)
    });
    match before {
        Some(Ok(Some(before))) => essence(&before) != essence(job),
        // A new job counts; one that could not be frozen before does not.
        Some(Ok(None)) | None => true,
        Some(Err(_)) => false,
    }
}

/// What only matters for a job that really runs.
fn check(
    layout: &Layout,
    subject: &FreezeSubject,
    pipeline: &Pipeline,
    job: &FrozenJob,
    place: &Place,
) -> Result<(), Refusal> {
    let refuse = |code: &str, message: String, cure: &str| -> Result<(), Refusal> {
        Err(Problem::error(code, UNKNOWN, place.clone(), message).cure(cure).into())
    };
    let name = &job.name;
    if job.is_abstract {
        let cure = "list a job that inherits from it";
        return refuse("job-abstract", format!("Job {name} is abstract and may not be directly run"), cure);
    }
    if let Some(allowed) = job.allowed_projects.as_ref().filter(|_| !job.ignore_allowed_projects) {
        let short = layout.projects.get(&subject.project).map_or(subject.project.as_str(), |project| &project.name);
        if !allowed.contains(short) {
            let message = format!("Project {short} is not allowed to run job {name}");
            return refuse(
                "project-not-allowed",
                message,
                "remove it from the list, or add the project to allowed-projects",
            );
        }
    }
    if job.post_review && !pipeline.post_review {
        let message = format!("Pre-review pipeline {} does not allow post-review job {name}", pipeline.name);
        return refuse("post-review", message, "list it in a pipeline with `post-review: true`");
    }
    if pipeline.allow_secrets == Some(false) && job.playbooks.iter().any(|playbook| !playbook.secrets.is_empty()) {
        let message = format!("Pipeline {} does not allow secrets, and job {name} uses some", pipeline.name);
        return refuse("secrets-not-allowed", message, "list it in a pipeline with `allow-secrets: true`");
    }
    if job.playbooks.iter().any(|playbook| playbook.project.is_empty()) {
        let message = format!("Job {name} stands beside the tenant file, and no repository has its playbooks");
        let cure = "add a repository called zuul-playbooks, or a config project, to the tenant";
        return refuse("no-playbook-repository", message, cure);
    }
    if job.name != JobDefinition::NOOP && job.phase(graph::Phase::Run).next().is_none() {
        let message = format!("Job {name} does not specify a run playbook");
        return refuse("no-run-playbook", message, "add `run:` with the path of a playbook");
    }
    Ok(())
}
