//! What a worker must know of a job: the spec, a canonical blob.
//!
//! It is complete together with the repositories: every checkout is pinned to a commit when jobs
//! are frozen, so that all builds of a buildset see one state however late they start (Zuul: global
//! repo state). What differs between attempts (build, nodes, returned data) comes with the lease.

use std::collections::BTreeMap;

use gatelog_executing::BuildSpec;
use gatelog_executing::spec::{
    Checkout, Connection, GroupSpec, JobSpec as ExecutedJob, NodeSpec, Nodeset, Phase, PipelineSpec, PlaybookSpec,
    ProjectName, RefSpec, SshIdentity, Timeouts, Variables, WorkspaceProject, WorkspaceScheme,
};
use gatelog_record::codec::{self, CodecError};
use gatelog_record::draft::capacity::NodeGrant;
use gatelog_record::draft::gate::MergeStep;
use gatelog_record::{BlobHash, BuildId, BuildsetId, Value};
use gatelog_rules_config::{FrozenJob, Phase as FrozenPhase};
use serde::{Deserialize, Serialize};

use crate::secrets::FrozenSecret;

/// The version of this shape; the first field of the blob.
pub const VERSION: u16 = 4;

/// The project a job is run for, by its name on its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProject {
    /// The connection.
    pub connection: String,
    /// The name on that connection.
    pub name: String,
}

/// A repository of a build, pinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedCheckout {
    /// The connection.
    pub connection: String,
    /// The host of its canonical name.
    pub host: String,
    /// The name on that host.
    pub name: String,
    /// The branch to stand on.
    pub branch: String,
    /// The commit under test.
    pub commit: String,
    /// The commit before the change under test.
    pub previous: String,
    /// Other branches that the chain of changes moved.
    pub branches: BTreeMap<String, String>,
    /// Whether the job asked for it in `required-projects`.
    pub required: bool,
    /// Why this branch.
    pub description: String,
}

/// Everything a worker must know of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// [`VERSION`].
    pub version: u16,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// Whether the pipeline runs reviewed code only.
    pub post_review: bool,
    /// The frozen job.
    pub job: FrozenJob,
    /// Jobs of the graph that wait for this one.
    pub child_jobs: Vec<String>,
    /// The chain under test, oldest first, as the gate named it.
    pub steps: Vec<SpecStep>,
    /// The repositories of the workspace.
    pub workspace: Vec<PinnedCheckout>,
    /// For each playbook of the job, in order, the repository it is taken from.
    pub playbooks: Vec<PinnedCheckout>,
    /// The secrets its playbooks name, encrypted as they stand in repositories.
    pub secrets: BTreeMap<String, FrozenSecret>,
    /// The project of the change or ref that the job is run for: where several are tested as one, of the one that
    /// brought the job. It is the one whose SSH key a build gets after review. Before version 3 nobody said.
    pub project: Option<JobProject>,
    /// By canonical name, all branches and tags of each repository above, as they were when the jobs of the buildset were
    /// frozen: a blob each, as [`gatelog_merging::RefState`]. Before version 4 a job saw those of its own time.
    pub refs: BTreeMap<String, BlobHash>,
}

impl PinnedCheckout {
    /// The canonical name of the repository.
    pub fn canonical_name(&self) -> String {
        ProjectName::new(&self.host, &self.name).canonical_name()
    }
}

/// One change of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecStep {
    /// The item it belongs to, in hex.
    pub item: String,
    /// Connection, project and so on.
    pub subject: gatelog_record::draft::gate::Subject,
    /// The host part of the project's name.
    pub host: String,
}

impl SpecStep {
    /// A step of the gate's, its host told apart.
    pub fn new(step: &MergeStep, host: &str) -> SpecStep {
        SpecStep { item: step.item.to_string(), subject: step.subject.clone(), host: host.to_owned() }
    }
}

/// What comes with one attempt.
pub struct Attempt {
    /// The build.
    pub build: BuildId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The nodes granted, and the directory of each on this host.
    pub nodes: Vec<(NodeGrant, String)>,
    /// The message of each step's change, where it could be read.
    pub messages: Vec<Option<String>>,
    /// What parents returned.
    pub parent_data: BTreeMap<String, Value>,
    /// What parents returned under seal, opened.
    pub parent_secret_data: BTreeMap<String, Value>,
    /// What parents left behind.
    pub artifacts: Vec<Value>,
    /// The job's secrets, opened, by their names in the layout.
    pub secrets: BTreeMap<String, Value>,
    /// What the build's SSH agent holds.
    pub ssh_keys: Vec<SshIdentity>,
}

impl JobSpec {
    /// A spec from its blob.
    ///
    /// # Errors
    /// It is none, or of a version that is not known here.
    pub fn read(bytes: &[u8]) -> Result<JobSpec, CodecError> {
        // Version 3 lacks the last field and version 2 the last two: with a nothing behind for each, it is one of version 4.
        let older = |version: u16, nothings: &[u8]| {
            codec::decode_older(bytes, nothings, |spec: JobSpec| (spec.version == version).then_some(spec))
        };
        older(3, &[0]).or_else(|error| older(2, &[0, 0]).map_err(|_| error))
    }

    /// What the executor runs.
    pub fn build(&self, attempt: Attempt) -> BuildSpec {
        let refs: Vec<RefSpec> = self
            .steps
            .iter()
            .zip(attempt.messages.into_iter().chain(std::iter::repeat(None)))
            .map(|(step, message)| ref_spec(step, message))
            .collect();
        let playbooks = self
            .job
            .playbooks
            .iter()
            .zip(&self.playbooks)
            .map(|(playbook, pinned)| PlaybookSpec {
                phase: match playbook.phase {
                    FrozenPhase::Pre => Phase::Pre,
                    FrozenPhase::Run => Phase::Run,
                    FrozenPhase::Post => Phase::Post,
                    FrozenPhase::Cleanup => Phase::Cleanup,
                },
                checkout: checkout(pinned),
                path: playbook.path.clone(),
                trusted: playbook.trusted,
                nesting_level: playbook.nesting_level,
                secrets: playbook
                    .secrets
                    .iter()
                    .filter_map(|used| Some((used.name.clone(), attempt.secrets.get(&used.secret)?.clone())))
                    .collect(),
            })
            .collect();
        let groups = self.job.nodeset().map(|nodeset| groups(&nodeset.shape)).unwrap_or_default();
        BuildSpec {
            build: attempt.build,
            attempt: attempt.attempt,
            max_attempts: u32::try_from(self.job.attempts).unwrap_or(1).max(1),
            buildset: attempt.buildset,
            event_id: attempt.buildset.to_string(),
            tenant: self.tenant.clone(),
            pipeline: PipelineSpec { name: self.pipeline.clone(), post_review: self.post_review },
            job: ExecutedJob {
                name: self.job.name.clone(),
                voting: self.job.voting,
                tags: self.job.tags.iter().cloned().collect(),
                inheritance_path: self
                    .job
                    .inheritance_path
                    .iter()
                    .map(|applied| format!("<Job {} at {}>", applied.job, applied.place))
                    .collect(),
                child_jobs: self.child_jobs.clone(),
                override_checkout: self.job.override_checkout.clone().or_else(|| self.job.override_branch.clone()),
                workspace_scheme: match self.job.workspace_scheme.as_str() {
                    "flat" => WorkspaceScheme::Flat,
                    "unique" => WorkspaceScheme::Unique,
                    _ => WorkspaceScheme::Golang,
                },
                timeouts: Timeouts {
                    run: seconds(self.job.timeout),
                    pre: seconds(self.job.pre_timeout),
                    post: seconds(self.job.post_timeout),
                },
                failure_output: self
                    .job
                    .failure_output
                    .iter()
                    .map(|pattern| (pattern.regex().to_owned(), pattern.negate()))
                    .collect(),
            },
            item: refs.last().cloned().unwrap_or_default(),
            items: refs,
            projects: self
                .workspace
                .iter()
                .map(|pinned| WorkspaceProject {
                    checkout: checkout(pinned),
                    required: pinned.required,
                    checkout_description: pinned.description.clone(),
                })
                .collect(),
            playbooks,
            nodeset: Nodeset {
                nodes: attempt.nodes.into_iter().map(|(grant, dir)| node(grant, dir)).collect(),
                groups,
            },
            variables: Variables {
                parent_secret_data: attempt.parent_secret_data.into(),
                parent_data: attempt.parent_data,
                vars: self.job.vars.clone(),
                group_vars: nested(&self.job.group_vars),
                host_vars: nested(&self.job.host_vars),
                extra_vars: self.job.extra_vars.clone(),
            },
            artifacts: attempt.artifacts,
            ssh_keys: attempt.ssh_keys,
        }
    }
}

fn seconds(seconds: Option<i64>) -> Option<u32> {
    seconds.and_then(|seconds| u32::try_from(seconds).ok())
}

fn nested(vars: &BTreeMap<String, Value>) -> BTreeMap<String, BTreeMap<String, Value>> {
    vars.iter().filter_map(|(name, value)| Some((name.clone(), value.as_map()?.clone()))).collect()
}

fn groups(shape: &gatelog_rules_config::objects::nodeset::NodesetShape) -> Vec<GroupSpec> {
    shape.groups.iter().map(|group| GroupSpec { name: group.name.clone(), nodes: group.nodes.clone() }).collect()
}

fn node(grant: NodeGrant, dir: String) -> NodeSpec {
    let mut names = grant.wanted.names.into_iter();
    NodeSpec {
        name: names.next().unwrap_or_default(),
        aliases: names.collect(),
        label: grant.wanted.label,
        connection: Connection::Local { dir },
        properties: BTreeMap::from([("host_id".to_owned(), Value::Str(grant.node.to_string()))]),
    }
}

fn checkout(pinned: &PinnedCheckout) -> Checkout {
    Checkout {
        project: ProjectName::new(&pinned.host, &pinned.name),
        name: pinned.branch.clone(),
        commit: pinned.commit.clone(),
        previous: Some(pinned.previous.clone()),
        branches: pinned.branches.clone(),
    }
}

fn ref_spec(step: &SpecStep, message: Option<String>) -> RefSpec {
    let subject = &step.subject;
    let name = subject.project.strip_prefix(&step.host).map(|rest| rest.trim_start_matches('/'));
    let is_change = subject.change.is_some();
    RefSpec {
        project: ProjectName::new(&step.host, name.unwrap_or(&subject.project)),
        ref_name: subject.git_ref.clone(),
        branch: subject.branch.clone(),
        tag: subject.git_ref.strip_prefix("refs/tags/").map(str::to_owned),
        change: subject.change.clone(),
        patchset: subject.patchset.clone(),
        change_url: (!subject.url.is_empty()).then(|| subject.url.clone()),
        message,
        topic: None,
        old_commit: subject.old_commit.clone(),
        new_commit: if is_change { None } else { subject.commit.clone() },
        commit_id: subject.commit.clone(),
        bundle_id: None,
    }
}
