//! Work: freeze an item's jobs, and pin every repository they use.
//!
//! The graph and its trace are a pure function of layout and item (`rules/config`); which commits
//! the repositories outside the prepared state stand at is read from the mirrors and recorded.

use gatelog_record::draft::gate::{FreezeOutcome, FreezeWanted, FrozenJob, JobTraits, NodesetAlternative, Subject};
use gatelog_record::{BlobHash, codec};
use gatelog_rules_config::freeze::graph::FrozenNodeset;
use gatelog_rules_config::{
    CombinedJob, FreezeOptions, FreezeOutcome as Outcome, FreezeSubject, FrozenJob as Job, JobGraph, Layout, Shared,
    combine, freeze, freeze_item,
};
use gatelog_rules_gate::{freeze_subjects, frozen_job, own_changes, wanted_nodes};

use crate::checkouts::{self, Checkouts};
use crate::connection::Trouble;
use crate::git::Repositories;
use crate::layout::read_layout;
use crate::pins::Pins;
use crate::secrets;
use crate::spec::{JobProject, JobSpec, SpecStep, VERSION};

/// Freezes; trouble becomes an outcome too.
pub fn run(repositories: &Repositories, wanted: &FreezeWanted) -> FreezeOutcome {
    match try_run(repositories, wanted) {
        Ok(outcome) => outcome,
        Err(Trouble { code, message, again, .. }) => FreezeOutcome::Failed { code, message, again },
    }
}

fn try_run(repositories: &Repositories, wanted: &FreezeWanted) -> Result<FreezeOutcome, Trouble> {
    let blobs = &repositories.blobs;
    let layout = read_layout(&**blobs, &wanted.layout)?;
    let ahead = wanted.layout_ahead.as_ref().map(|hash| read_layout(&**blobs, hash)).transpose()?;
    let options = FreezeOptions { ahead: ahead.as_deref(), ..FreezeOptions::default() };
    let (changes, subjects) = (own_changes(wanted), freeze_subjects(wanted));
    let (own, subject) = match (changes.as_slice(), subjects.as_slice()) {
        ([own], [subject]) => (*own, subject),
        ([], _) | (_, []) => {
            return Err(Trouble::new("internal", "the item to be frozen is not part of its own chain"));
        }
        _ => return circle(Pins::new(repositories, wanted, &layout), options, &changes, &subjects),
    };
    let put = |bytes| keep(repositories, bytes);
    match freeze(&layout, subject, &wanted.pipeline, options) {
        Outcome::NotInPipeline { trace } => {
            Ok(FreezeOutcome::NoJobs { trace: put(codec::encode(&trace))?, in_pipeline: false })
        }
        Outcome::NoJobs { trace } => {
            Ok(FreezeOutcome::NoJobs { trace: put(codec::encode(&trace))?, in_pipeline: true })
        }
        Outcome::Refused { problem, trace } => {
            Ok(FreezeOutcome::Refused { trace: put(codec::encode(&trace))?, message: problem.to_string() })
        }
        Outcome::Frozen { graph, trace } => {
            let mut pins = Pins::new(repositories, wanted, &layout);
            let mut jobs = Vec::with_capacity(graph.jobs.len());
            for job in &graph.jobs {
                let spec = spec(&mut pins, own, &[], &graph, job)?;
                let alternatives = alternatives(&spec, put)?;
                jobs.push(known(&layout, &graph, job, Vec::new(), put(codec::encode(&spec))?, alternatives));
            }
            let repo_state = pins.repo_state();
            Ok(FreezeOutcome::Frozen {
                graph: put(codec::encode(&graph))?,
                trace: put(codec::encode(&trace))?,
                jobs,
                repo_state,
            })
        }
    }
}

pub(crate) fn keep(
    repositories: &Repositories,
    bytes: Result<Vec<u8>, codec::CodecError>,
) -> Result<BlobHash, Trouble> {
    let bytes = bytes.map_err(|error| Trouble::lasting("too-large", &error))?;
    repositories.blobs.put(&bytes).map_err(|error| Trouble::passing("blob-store", &error))
}

/// Freezes the jobs of changes that are tested as one: those of each, and one in place of several that are
/// the same. The trace kept is that of the change that set the item off, which stands last.
fn circle(
    mut pins: Pins<'_>,
    options: FreezeOptions<'_>,
    own: &[&Subject],
    subjects: &[FreezeSubject],
) -> Result<FreezeOutcome, Trouble> {
    let Pins { repositories, wanted, layout, .. } = pins;
    let put = |bytes| keep(repositories, bytes);
    let (mut graphs, mut in_pipeline, mut last) = (Vec::with_capacity(own.len()), false, BlobHash::default());
    for (change, outcome) in own.iter().zip(freeze_item(layout, subjects, &wanted.pipeline, options)) {
        last = put(codec::encode(outcome.trace()))?;
        in_pipeline |= !matches!(outcome, Outcome::NotInPipeline { .. });
        let graph = match outcome {
            Outcome::Frozen { graph, .. } => graph,
            Outcome::NoJobs { .. } | Outcome::NotInPipeline { .. } => JobGraph::default(),
            Outcome::Refused { problem, .. } => {
                return Ok(FreezeOutcome::Refused { trace: last, message: problem.to_string() });
            }
        };
        graphs.push((change.project.clone(), graph));
    }
    let (mut jobs, mut together) = (Vec::new(), JobGraph::default());
    for CombinedJob { graph, job, changes } in combine(&graphs) {
        let first = changes
            .first()
            .and_then(|at| own.get(*at as usize))
            .ok_or_else(|| Trouble::new("internal", format!("job {} is for none of the item's changes", job.name)))?;
        let spec = spec(&mut pins, first, &changes, graph, &job)?;
        let alternatives = alternatives(&spec, put)?;
        jobs.push(known(layout, graph, &job, changes, put(codec::encode(&spec))?, alternatives));
        together.jobs.push(job);
    }
    if jobs.is_empty() {
        return Ok(FreezeOutcome::NoJobs { trace: last, in_pipeline });
    }
    let repo_state = pins.repo_state();
    Ok(FreezeOutcome::Frozen { graph: put(codec::encode(&together))?, trace: last, jobs, repo_state })
}

/// A job on each of its further nodesets: what a worker must know differs in nothing but that.
fn alternatives(
    spec: &JobSpec,
    put: impl Fn(Result<Vec<u8>, codec::CodecError>) -> Result<BlobHash, Trouble>,
) -> Result<Vec<NodesetAlternative>, Trouble> {
    let one = |nodeset: &FrozenNodeset| {
        let job = Job { nodesets: Shared::new(vec![nodeset.clone()]), ..spec.job.clone() };
        let spec = put(codec::encode(&JobSpec { job, ..spec.clone() }))?;
        Ok(NodesetAlternative { spec, nodes: wanted_nodes(nodeset) })
    };
    spec.job.nodesets.iter().skip(1).map(one).collect()
}

/// A frozen job on all its nodesets, as the gate knows it.
fn known(
    layout: &Layout,
    graph: &JobGraph,
    job: &Job,
    changes: Vec<u32>,
    spec: BlobHash,
    alternatives: Vec<NodesetAlternative>,
) -> FrozenJob {
    let first = frozen_job(layout, graph, job, changes, spec);
    FrozenJob { traits: JobTraits { alternatives, ..first.traits }, ..first }
}

fn spec(pins: &mut Pins<'_>, own: &Subject, changes: &[u32], graph: &JobGraph, job: &Job) -> Result<JobSpec, Trouble> {
    let wanted = pins.wanted;
    let Checkouts { workspace, playbooks, role_repositories, roles, include_vars } = checkouts::pin(pins, own, job)?;
    let steps = wanted
        .steps
        .iter()
        .map(|step| {
            let host = pins.repositories.connections.review(&step.subject.connection)?.canonical_hostname();
            Ok(SpecStep::new(step, host))
        })
        .collect::<Result<_, Trouble>>()?;
    let name = pins.repositories.connections.local_name(&own.connection, &own.project)?.to_owned();
    let files = include_vars.iter().map(|file| &file.checkout);
    let refs = pins.refs_of(workspace.iter().chain(&playbooks).chain(&role_repositories).chain(files));
    Ok(JobSpec {
        version: VERSION,
        tenant: wanted.tenant.clone(),
        pipeline: wanted.pipeline.clone(),
        post_review: pins.layout.pipelines.get(&wanted.pipeline).is_some_and(|pipeline| pipeline.post_review),
        child_jobs: graph
            .jobs
            .iter()
            .filter(|other| other.dependencies.iter().any(|dependency| dependency.name == job.name))
            .map(|other| other.name.clone())
            .collect(),
        job: job.clone(),
        steps,
        workspace,
        playbooks,
        secrets: secrets::frozen(pins.layout, job),
        project: Some(JobProject { connection: own.connection.clone(), name }),
        refs,
        role_repositories,
        roles,
        include_vars,
        changes: changes.to_vec(),
    })
}
