//! What a worker must know of a job: the spec, a canonical blob.
//!
//! It is complete together with the repositories: every checkout is pinned to a commit when jobs
//! are frozen, so that all builds of a buildset see one state however late they start (Zuul: global
//! repo state). What differs between attempts (build, nodes, returned data) comes with the lease.

use std::collections::BTreeMap;

use gatelog_executing::BuildSpec;
use gatelog_executing::spec::{
    Checkout, GroupSpec, JobSpec as ExecutedJob, NodeSpec, Nodeset, OutputPattern, Phase, PipelineSpec, PlaybookSpec,
    ProjectName, RefSpec, RoleSpec, SecretExposure, SshIdentity, Timeouts, Variables, VarsFile, WorkspaceCheckout,
    WorkspaceProject, WorkspaceScheme,
};
use gatelog_record::codec::{self, CodecError};
use gatelog_record::draft::gate::MergeStep;
use gatelog_record::{BlobHash, BuildId, BuildsetId, Value};
use gatelog_rules_config::freeze::graph::FrozenRole;
use gatelog_rules_config::regexes::{Anchor, Pattern};
use gatelog_rules_config::{FrozenJob, Phase as FrozenPhase, Shared};
use serde::{Deserialize, Serialize};

use crate::secrets::FrozenSecret;

/// The version of this shape; the first field of the blob.
pub const VERSION: u16 = 5;

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

/// A file of variables, its repository pinned; what else is to be known of it is in the frozen job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedVars {
    /// The repository.
    pub checkout: PinnedCheckout,
    /// Whether it is a config project.
    pub trusted: bool,
    /// The default branch of the project.
    pub default_branch: String,
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
    /// Repositories with roles, each state once. Before version 5 a playbook had the roles of its own repository alone.
    pub role_repositories: Vec<PinnedCheckout>,
    /// For each playbook of the job, in order, and each of its roles, which of these it is taken from; a number that none
    /// has: the role is left out.
    pub roles: Vec<Vec<u32>>,
    /// For each file of variables of the job, in order, the repository it is taken from. Before version 5 none was read.
    pub include_vars: Vec<PinnedVars>,
    /// Which of the item's changes it is for, counted from 0; empty stands for all of them.
    pub changes: Vec<u32>,
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
    /// The event that put the item into the pipeline.
    pub event_id: Option<String>,
    /// The hosts.
    pub nodes: Vec<NodeSpec>,
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
    /// What of those was encrypted.
    pub sensitive: Vec<String>,
    /// What the build's SSH agent holds.
    pub ssh_keys: Vec<SshIdentity>,
}

impl JobSpec {
    /// A spec from its blob.
    ///
    /// # Errors
    /// It is none, or of a version that is not known here.
    pub fn read(bytes: &[u8]) -> Result<JobSpec, CodecError> {
        // Version 4 lacks the last four fields, 3 one more and 2 another: with a nothing behind for each, it is one of
        // version 5.
        let older = |version: u16, nothings: &[u8]| {
            codec::decode_older(bytes, nothings, |spec: JobSpec| (spec.version == version).then_some(spec))
        };
        older(4, &[0; 4]).or_else(|error| older(3, &[0; 5]).or_else(|_| older(2, &[0; 6])).map_err(|_| error))
    }

    /// The positions of the item's own refs in the chain, and of these, those that the build is for.
    fn own_refs(&self) -> (Vec<usize>, Vec<usize>) {
        let item = self.steps.last().map(|step| step.item.as_str());
        let own: Vec<usize> = (0..self.steps.len())
            .filter(|at| self.steps.get(*at).is_some_and(|step| Some(step.item.as_str()) == item))
            .collect();
        let of_build: Vec<usize> =
            self.changes.iter().filter_map(|change| own.get(*change as usize).copied()).collect();
        let of_build = if of_build.is_empty() { own.clone() } else { of_build };
        (own, of_build)
    }

    /// The repositories with roles of one playbook.
    fn roles_of(&self, at: usize, pinned: &PinnedCheckout) -> Vec<RoleSpec> {
        let known = self.job.playbooks.get(at).zip(self.roles.get(at));
        let Some((playbook, repositories)) = known else {
            // Frozen before roles were: those beside the playbook.
            let checkout = checkout(pinned);
            let target_name = checkout.project.short_name().to_owned();
            let checkout_description = "playbook branch".to_owned();
            return vec![RoleSpec { checkout, checkout_description, target_name, implicit: true }];
        };
        let roles = playbook.roles.iter().zip(repositories);
        let role = |(role, at): (&Shared<FrozenRole>, &u32)| {
            let repository = self.role_repositories.get(*at as usize)?;
            Some(RoleSpec {
                checkout: checkout(repository),
                checkout_description: repository.description.clone(),
                target_name: role.target_name.clone(),
                implicit: role.implicit,
            })
        };
        roles.filter_map(role).collect()
    }

    fn vars_files(&self) -> Vec<VarsFile> {
        let files = self.job.include_vars.iter().zip(&self.include_vars);
        files
            .map(|(file, pinned)| VarsFile {
                path: file.name.clone(),
                connection: pinned.checkout.connection.clone(),
                checkout: checkout(&pinned.checkout),
                default_branch: pinned.default_branch.clone(),
                trusted: pinned.trusted,
                required: file.required,
                use_ref: file.use_ref,
            })
            .collect()
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
            .enumerate()
            .map(|(at, (playbook, pinned))| PlaybookSpec {
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
                tokens: playbook
                    .secrets
                    .iter()
                    .filter(|used| self.secrets.get(&used.secret).is_some_and(FrozenSecret::is_token))
                    .map(|used| (used.name.clone(), used.secret.clone()))
                    .collect(),
                roles: self.roles_of(at, pinned),
                cleanup: playbook.cleanup,
            })
            .collect();
        let (own, of_build) = self.own_refs();
        let chosen = |places: &[usize]| places.iter().filter_map(|at| refs.get(*at)).cloned().collect::<Vec<_>>();
        let groups = self.job.nodeset().map(|nodeset| groups(&nodeset.shape)).unwrap_or_default();
        BuildSpec {
            build: attempt.build,
            attempt: attempt.attempt,
            max_attempts: u32::try_from(self.job.attempts).unwrap_or(1).max(1),
            buildset: attempt.buildset,
            event_id: attempt.event_id,
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
                override_checkout: self.job.override_checkout.clone(),
                ansible_version: self.job.ansible_version.clone(),
                deduplicate: self.job.deduplicate,
                workspace_checkout: match self.job.workspace_checkout {
                    Some(true) => WorkspaceCheckout::Always,
                    Some(false) => WorkspaceCheckout::Never,
                    None => WorkspaceCheckout::Auto,
                },
                image_build_name: self.job.image_build_name.clone(),
                preserve_home_paths: self.job.preserve_home_paths.clone(),
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
                secret_exposure: match self.job.secret_exposure.as_str() {
                    "fail" => SecretExposure::Fail,
                    "redact" => SecretExposure::Redact,
                    _ => SecretExposure::Ignore,
                },
                failure_output: self.job.failure_output.iter().map(output_pattern).collect(),
                split_streams: self.job.ansible_split_streams.unwrap_or_default(),
            },
            // Zuul: the first of the refs that the job is for.
            item: of_build.first().and_then(|at| refs.get(*at)).cloned().unwrap_or_default(),
            build_refs: chosen(&of_build),
            buildset_refs: chosen(&own),
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
            nodeset: Nodeset { nodes: attempt.nodes, groups },
            variables: Variables {
                parent_secret_data: attempt.parent_secret_data.into(),
                parent_data: attempt.parent_data,
                included: BTreeMap::new(),
                vars: self.job.vars.clone(),
                group_vars: nested(&self.job.group_vars),
                host_vars: nested(&self.job.host_vars),
                extra_vars: self.job.extra_vars.clone(),
            },
            include_vars: self.vars_files(),
            artifacts: attempt.artifacts,
            ssh_keys: attempt.ssh_keys,
            sensitive: attempt.sensitive.into_iter().collect(),
        }
    }
}

/// A pattern of `failure-output`, as the executor wants it. Zuul: matches from the beginning of a line.
fn output_pattern(frozen: &Pattern) -> OutputPattern {
    let pattern = Pattern::new(frozen.regex(), frozen.negate(), Anchor::Start);
    OutputPattern::new(frozen.describe(), move |line| pattern.matches(line))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_output_is_in_the_language_of_re2_and_matches_from_the_beginning_of_a_line() {
        // As the loader keeps them.
        let pattern = |regex: &str| output_pattern(&Pattern::new(regex, false, Anchor::Anywhere));
        let severe = pattern(r"SEVERE[[:space:]]\pL+");
        assert_eq!(severe.text(), r"SEVERE[[:space:]]\pL+");
        assert!(severe.matches("SEVERE Löss") && severe.matches("SEVERE loss of data"));
        assert!(!severe.matches("a SEVERE loss") && !severe.matches("SEVERE 1"));
        assert!(pattern(r".*\bFAILED\b").matches("test x FAILED in 3 s"));
    }
}
