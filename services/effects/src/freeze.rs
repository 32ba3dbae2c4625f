//! Work: freeze an item's jobs, and pin every repository they use.
//!
//! The graph and its trace are a pure function of layout and item (`rules/config`); which commits
//! the repositories outside the prepared state stand at is read from the mirrors and recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gatelog_merging::RefState;
use gatelog_record::draft::gate::{
    FreezeOutcome, FreezeWanted, FrozenJob, FrozenRefs, JobTraits, NodesetAlternative, Subject, TenantProject,
};
use gatelog_record::{BlobHash, codec};
use gatelog_rules_config::freeze::graph::FrozenNodeset;
use gatelog_rules_config::{
    CombinedJob, FreezeOptions, FreezeOutcome as Outcome, FreezeSubject, FrozenJob as Job, JobGraph, Layout, Playbook,
    Shared, combine, freeze, freeze_item,
};
use gatelog_rules_gate::{freeze_subjects, frozen_job, own_changes, wanted_nodes};

use crate::connection::Trouble;
use crate::git::{Repositories, trouble};
use crate::layout::read_layout;
use crate::secrets;
use crate::spec::{JobProject, JobSpec, PinnedCheckout, SpecStep, VERSION};

/// Freezes; trouble becomes an outcome too.
pub fn run(repositories: &Repositories, wanted: &FreezeWanted) -> FreezeOutcome {
    match try_run(repositories, wanted) {
        Ok(outcome) => outcome,
        Err(Trouble { code, message, again }) => FreezeOutcome::Failed { code, message, again },
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
            return Err(Trouble {
                code: "internal".into(),
                message: "the item to be frozen is not part of its own chain".into(),
                again: false,
            });
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
                let spec = spec(&mut pins, own, &graph, job)?;
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

fn keep(repositories: &Repositories, bytes: Result<Vec<u8>, codec::CodecError>) -> Result<BlobHash, Trouble> {
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
        let first = changes.first().and_then(|at| own.get(*at as usize)).ok_or_else(|| Trouble {
            code: "internal".into(),
            message: format!("job {} is for none of the item's changes", job.name),
            again: false,
        })?;
        let spec = spec(&mut pins, first, graph, &job)?;
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

/// Repositories as all jobs of the buildset see them, each read once.
struct Pins<'a> {
    repositories: &'a Repositories,
    wanted: &'a FreezeWanted,
    layout: &'a Layout,
    frozen: BTreeMap<(String, String), Frozen>,
}

/// A repository at one moment.
#[derive(Clone)]
struct Frozen {
    /// All branches and tags.
    refs: Rc<RefState>,
    /// The same as a blob.
    blob: BlobHash,
}

impl Frozen {
    fn branch(&self, name: &str) -> Option<&String> {
        self.refs.get(&format!("refs/heads/{name}"))
    }

    fn tag(&self, name: &str) -> Option<&String> {
        self.refs.get(&format!("refs/tags/{name}"))
    }
}

impl<'a> Pins<'a> {
    fn new(repositories: &'a Repositories, wanted: &'a FreezeWanted, layout: &'a Layout) -> Pins<'a> {
        Pins { repositories, wanted, layout, frozen: BTreeMap::new() }
    }
}

impl Pins<'_> {
    /// Everything that was pinned.
    fn repo_state(self) -> Vec<FrozenRefs> {
        let pins = self.frozen.into_iter();
        pins.map(|((connection, project), frozen)| FrozenRefs { connection, project, refs: frozen.blob }).collect()
    }

    /// What was frozen of the repositories of these checkouts.
    fn refs_of<'b>(&self, checkouts: impl Iterator<Item = &'b PinnedCheckout>) -> BTreeMap<String, BlobHash> {
        let used: BTreeSet<String> = checkouts.map(PinnedCheckout::canonical_name).collect();
        let frozen = self.frozen.iter().map(|((_, project), frozen)| (project.clone(), frozen.blob));
        frozen.filter(|(project, _)| used.contains(project)).collect()
    }

    fn project(&self, canonical: &str) -> Result<&TenantProject, Trouble> {
        self.wanted.projects.iter().find(|project| project.project == canonical).ok_or_else(|| Trouble {
            code: "unknown-project".into(),
            message: format!("project {canonical} is not in tenant {}", self.wanted.tenant),
            again: false,
        })
    }

    /// The branches and tags of a project as merged.
    fn merged(&mut self, project: &TenantProject) -> Result<Frozen, Trouble> {
        let at = (project.connection.clone(), project.project.clone());
        if let Some(frozen) = self.frozen.get(&at) {
            return Ok(frozen.clone());
        }
        let key = self.repositories.key(&project.connection, &project.project)?;
        let mirrors = &self.repositories.mirrors;
        // What was read for the merge, or for another item since, tells as much.
        let began = self.repositories.begun.of(self.wanted.buildset).unwrap_or_else(|| mirrors.moment());
        let mut refs: RefState = mirrors.refs_since(&key, began).map_err(|error| trouble(&error))?;
        // A branch of the prepared state stands where the whole buildset was prepared on.
        for prepared in &self.wanted.state.branches {
            if prepared.at.project == project.project && prepared.at.connection == project.connection {
                refs.insert(format!("refs/heads/{}", prepared.at.branch), prepared.base.clone());
            }
        }
        let blob = keep(self.repositories, codec::encode(&refs))?;
        let frozen = Frozen { refs: Rc::new(refs), blob };
        self.frozen.insert(at, frozen.clone());
        Ok(frozen)
    }

    /// A project on a branch. `speculative` takes the chain of changes in; otherwise only what is
    /// merged counts (playbooks of config projects).
    fn pin(
        &mut self,
        project: &TenantProject,
        branch: &str,
        speculative: bool,
        required: bool,
        description: String,
    ) -> Result<PinnedCheckout, Trouble> {
        let merged = self.merged(project)?;
        let host = self.repositories.connections.get(&project.connection)?.canonical_hostname().to_owned();
        let name = self.repositories.connections.local_name(&project.connection, &project.project)?.to_owned();
        let mut state = merged.branch(branch).map(|commit| (commit.clone(), commit.clone()));
        let mut moved = BTreeMap::new();
        for prepared in &self.wanted.state.branches {
            if speculative && prepared.at.project == project.project && prepared.at.connection == project.connection {
                if prepared.at.branch == branch {
                    state = Some((prepared.commit.clone(), prepared.ahead.clone()));
                } else {
                    moved.insert(prepared.at.branch.clone(), prepared.commit.clone());
                }
            }
        }
        if state.is_none()
            && let Some(id) = merged.tag(branch)
        {
            let key = self.repositories.key(&project.connection, &project.project)?;
            let commit = self.repositories.mirrors.commit_of(&key, id).map_err(|error| trouble(&error))?;
            state = Some((commit.clone(), commit));
        }
        let (commit, previous) = state.ok_or_else(|| Trouble {
            code: "branch-missing".into(),
            message: format!("project {} has no branch or tag {branch}", project.project),
            again: false,
        })?;
        Ok(PinnedCheckout {
            connection: project.connection.clone(),
            host,
            name,
            branch: branch.to_owned(),
            commit,
            previous,
            branches: moved,
            required,
            description,
        })
    }

    /// The project of a tag, where the tag is; `None` for anything else. Zuul: `zuul tag`.
    fn pin_tag(
        &mut self,
        project: &TenantProject,
        own: &Subject,
        required: bool,
    ) -> Result<Option<PinnedCheckout>, Trouble> {
        let tag = own.git_ref.strip_prefix("refs/tags/").filter(|_| own.project == project.project);
        let (Some(tag), None, None, Some(commit)) = (tag, &own.change, &own.branch, &own.commit) else {
            return Ok(None);
        };
        if self.merged(project)?.tag(tag).is_none() {
            // It was deleted, or that is what the event says.
            return Ok(None);
        }
        let key = self.repositories.key(&project.connection, &project.project)?;
        let commit = self.repositories.mirrors.commit_of(&key, commit).map_err(|error| trouble(&error))?;
        Ok(Some(PinnedCheckout {
            connection: project.connection.clone(),
            host: self.repositories.connections.get(&project.connection)?.canonical_hostname().to_owned(),
            name: self.repositories.connections.local_name(&project.connection, &project.project)?.to_owned(),
            branch: tag.to_owned(),
            previous: commit.clone(),
            commit,
            branches: BTreeMap::new(),
            required,
            description: "zuul tag".to_owned(),
        }))
    }

    /// Which branch (or, where a checkout is set, tag) of a project a build stands on, and why. Zuul: `resolveBranch`,
    /// first hit.
    fn choose(
        &mut self,
        project: &TenantProject,
        own: &Subject,
        of_project: Option<&str>,
        of_job: Option<&str>,
    ) -> Result<(String, String), Trouble> {
        let merged = self.merged(project)?;
        let default = self.layout.projects.get(&project.project).map(|known| known.default_branch.clone());
        let candidates = [
            (of_project, true, "project override ref"),
            (of_job, true, "job override ref"),
            (own.branch.as_deref(), false, "zuul branch"),
            (default.as_deref(), false, "project default branch"),
        ];
        for (branch, may_be_tag, why) in candidates {
            if let Some(branch) = branch
                && (merged.branch(branch).is_some() || may_be_tag && merged.tag(branch).is_some())
            {
                return Ok((branch.to_owned(), why.to_owned()));
            }
        }
        Err(Trouble {
            code: "branch-missing".into(),
            message: format!(
                "project {} does not have the default branch {}",
                project.project,
                default.unwrap_or_default()
            ),
            again: false,
        })
    }
}

fn spec(pins: &mut Pins<'_>, own: &Subject, graph: &JobGraph, job: &Job) -> Result<JobSpec, Trouble> {
    let wanted = pins.wanted;
    let of_job = job.override_checkout.as_deref().or(job.override_branch.as_deref());
    // Zuul: the projects of the item and of everything ahead of it, and those the job requires.
    let mut names: Vec<(String, Option<String>, bool)> = Vec::new();
    for step in &wanted.steps {
        if !names.iter().any(|(name, ..)| *name == step.subject.project) {
            names.push((step.subject.project.clone(), None, false));
        }
    }
    for required in &job.required_projects {
        let checkout = required.override_checkout.clone().or_else(|| required.override_branch.clone());
        match names.iter_mut().find(|(name, ..)| *name == required.project) {
            Some(known) => *known = (known.0.clone(), checkout, true),
            None => names.push((required.project.clone(), checkout, true)),
        }
    }
    let mut workspace = Vec::with_capacity(names.len());
    for (name, of_project, required) in names {
        let project = pins.project(&name)?.clone();
        if let Some(pinned) = pins.pin_tag(&project, own, required)? {
            workspace.push(pinned);
            continue;
        }
        let (branch, why) = pins.choose(&project, own, of_project.as_deref(), of_job)?;
        workspace.push(pins.pin(&project, &branch, true, required, why)?);
    }
    let mut playbooks = Vec::with_capacity(job.playbooks.len());
    for playbook in &job.playbooks {
        playbooks.push(pin_playbook(pins, own, playbook)?);
    }
    let steps = wanted
        .steps
        .iter()
        .map(|step| {
            let host = pins.repositories.connections.get(&step.subject.connection)?.canonical_hostname();
            Ok(SpecStep::new(step, host))
        })
        .collect::<Result<_, Trouble>>()?;
    let name = pins.repositories.connections.local_name(&own.connection, &own.project)?.to_owned();
    let refs = pins.refs_of(workspace.iter().chain(&playbooks));
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
    })
}

/// Zuul: a playbook comes from the branch its job was defined on; of a config project always as
/// merged, of any other with the changes under test.
fn pin_playbook(pins: &mut Pins<'_>, own: &Subject, playbook: &Playbook) -> Result<PinnedCheckout, Trouble> {
    let project = pins.project(&playbook.project)?.clone();
    let branch =
        if playbook.branch.is_empty() { pins.choose(&project, own, None, None)?.0 } else { playbook.branch.clone() };
    pins.pin(&project, &branch, !playbook.trusted, false, "playbook branch".to_owned())
}
