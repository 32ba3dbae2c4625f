//! What to run: one attempt of one build, complete, as plain data.
//!
//! A [`BuildSpec`] is everything the executor is told. It names no file of this host and needs no
//! look-up: whoever froze the job has already decided every checkout, playbook and variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use gatelog_record::{BuildId, BuildsetId, Value};
use serde::{Deserialize, Serialize};

/// Variables that must not be seen, by name, in clear. `Debug` tells their names alone, and nothing that holds them can
/// be written down.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretVars(BTreeMap<String, Value>);

impl fmt::Debug for SecretVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Deref for SecretVars {
    type Target = BTreeMap<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<BTreeMap<String, Value>> for SecretVars {
    fn from(variables: BTreeMap<String, Value>) -> Self {
        SecretVars(variables)
    }
}

impl FromIterator<(String, Value)> for SecretVars {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(variables: I) -> Self {
        SecretVars(variables.into_iter().collect())
    }
}

/// Texts that are hidden wherever a build writes them. `Debug` tells how many there are, and nothing that holds them can be
/// written down.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sensitive(Vec<String>);

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} texts", self.0.len())
    }
}

impl Deref for Sensitive {
    type Target = [String];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<String> for Sensitive {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        Sensitive(texts.into_iter().collect())
    }
}

/// An SSH key for a build's agent: the agent protocol's message that brings it, without the length before it. Wiped
/// when it is dropped; `Debug` tells nothing of it, and nothing that holds it can be written down.
#[derive(Clone, PartialEq, Eq)]
pub struct SshIdentity(Vec<u8>);

impl SshIdentity {
    /// A key from its message.
    pub fn new(message: &[u8]) -> SshIdentity {
        SshIdentity(message.to_vec())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SshIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SshIdentity(…)")
    }
}

impl Drop for SshIdentity {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&mut self.0);
    }
}

/// One pattern of `failure-output`: its text for people, and what it matches. Whoever froze the job compiled it, so that
/// it means here what it meant when it was loaded.
#[derive(Clone)]
pub struct OutputPattern {
    text: String,
    matches: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl OutputPattern {
    /// A pattern; `matches` is asked for each line of output and must not be slow.
    pub fn new(text: impl Into<String>, matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> OutputPattern {
        OutputPattern { text: text.into(), matches: Arc::new(matches) }
    }

    /// The pattern as people know it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a line of output, without its end, is one that means failure.
    pub fn matches(&self, line: &str) -> bool {
        (self.matches)(line)
    }
}

impl fmt::Debug for OutputPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputPattern").field(&self.text).finish()
    }
}

impl PartialEq for OutputPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for OutputPattern {}

/// One attempt of one build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildSpec {
    /// The build, over all its attempts.
    pub build: BuildId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// How many attempts the job may have; a post playbook is told whether another will follow.
    pub max_attempts: u32,
    /// The buildset the build belongs to.
    pub buildset: BuildsetId,
    /// The id of the event that put the item into the pipeline; `zuul.event_id`. `None`: no event did, such as where a
    /// change that others need was brought in.
    pub event_id: Option<String>,
    /// The tenant's name.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: PipelineSpec,
    /// The frozen job, as far as the executor needs it.
    pub job: JobSpec,
    /// What is being tested.
    pub item: RefSpec,
    /// What is being tested and all that is ahead of it, oldest first; `zuul.items`.
    pub items: Vec<RefSpec>,
    /// What the build counts for: of the item's refs, those whose job it is; `zuul.build_refs`.
    pub build_refs: Vec<RefSpec>,
    /// All refs of the item; `zuul.buildset_refs`.
    pub buildset_refs: Vec<RefSpec>,
    /// The repositories of the workspace, each in the state to test.
    pub projects: Vec<WorkspaceProject>,
    /// All playbooks; those of one phase run in the order given.
    pub playbooks: Vec<PlaybookSpec>,
    /// The nodes to run on. Without one a playbook has `localhost` alone, inside the sandbox, and `hosts: all` is nobody.
    pub nodeset: Nodeset,
    /// The job's variables, by where they come from.
    pub variables: Variables,
    /// Files with further variables, weakest first; read before anything runs.
    pub include_vars: Vec<VarsFile>,
    /// Artifacts of the builds this one depends on; `zuul.artifacts`.
    pub artifacts: Vec<Value>,
    /// What the build's SSH agent holds from the beginning.
    pub ssh_keys: Vec<SshIdentity>,
    /// What was encrypted in the secrets of its playbooks. What stands there in clear in the repository is not hidden.
    pub sensitive: Sensitive,
}

/// A file with variables. Zuul: `include-vars`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VarsFile {
    /// Its path in the repository.
    pub path: String,
    /// The connection of the repository.
    pub connection: String,
    /// The repository, and which state of it.
    pub checkout: Checkout,
    /// The repository's default branch.
    pub default_branch: String,
    /// Whether it is a config project: then it is taken as merged, never as proposed.
    pub trusted: bool,
    /// Whether its absence is an error.
    pub required: bool,
    /// Whether the ref under test is used, where the file lies in the project under test.
    pub use_ref: bool,
}

/// What becomes of a build that writes a secret. The secret is hidden in any case. Zuul: `secret-exposure`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretExposure {
    /// Nothing.
    #[default]
    Ignore,
    /// It has a warning.
    Redact,
    /// It ends at once.
    Fail,
}

/// The pipeline a build runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSpec {
    /// Its name.
    pub name: String,
    /// Zuul: `post-review`, whether the pipeline only runs reviewed code.
    pub post_review: bool,
}

/// The frozen job, as far as the executor needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// Whether its result counts.
    pub voting: bool,
    /// Its tags; `zuul.jobtags`.
    pub tags: Vec<String>,
    /// The variants that made it, as text; `zuul._inheritance_path`.
    pub inheritance_path: Vec<String>,
    /// Jobs that depend on this one; `zuul.child_jobs`.
    pub child_jobs: Vec<String>,
    /// The job's `override-checkout`.
    pub override_checkout: Option<String>,
    /// Zuul: `deduplicate`; `None` is `auto`.
    pub deduplicate: Option<bool>,
    /// Whether repositories have work trees.
    pub workspace_checkout: WorkspaceCheckout,
    /// The image it builds.
    pub image_build_name: Option<String>,
    /// Files that playbooks may leave in the home directory without a warning.
    pub preserve_home_paths: BTreeSet<String>,
    /// Where repositories lie below `src/`.
    pub workspace_scheme: WorkspaceScheme,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// What becomes of a build that writes a secret.
    pub secret_exposure: SecretExposure,
    /// Zuul: `failure-output`. A line of a command's output that one of these matches means that the job fails.
    pub failure_output: Vec<OutputPattern>,
    /// Zuul: `ansible-split-streams`, whether standard output and error of commands are kept apart. Else they are one
    /// stream, in the order written, and `stderr` of results is empty.
    pub split_streams: bool,
    /// The version of Ansible it asks for, such as `11`; empty: the default one. `zuul.ansible_version`.
    pub ansible_version: String,
}

/// Zuul: `workspace-checkout`, whether the repositories of the workspace have work trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkspaceCheckout {
    /// They have.
    #[default]
    Always,
    /// They have not: whoever uses them asks git for what is in them.
    Never,
    /// They have where the job runs without nodes, and so works on them in place.
    Auto,
}

/// Limits of time, in seconds; `None` means the executor's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// Zuul: `timeout`, over pre-run and run together, from the first pre-run playbook.
    pub run: Option<u32>,
    /// Zuul: `pre-timeout`, over all pre-run playbooks.
    pub pre: Option<u32>,
    /// Zuul: `post-timeout`, for each post-run playbook.
    pub post: Option<u32>,
}

impl Timeouts {
    pub(crate) fn or(seconds: Option<u32>, limit: Duration) -> Duration {
        seconds.map_or(limit, |seconds| Duration::from_secs(u64::from(seconds)).min(limit))
    }
}

/// Zuul: `workspace-scheme`, where a repository lies below `src/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkspaceScheme {
    /// `src/<host>/<organisation>/<name>`.
    #[default]
    Golang,
    /// `src/<last part of the name>`.
    Flat,
    /// `src/<host>/<organisation>/<organisation>%2F<name>`.
    Unique,
}

/// Which project.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProjectName {
    /// The host part of the canonical name, such as `git.example.org`.
    pub canonical_hostname: String,
    /// The name on that host, such as `org/project`.
    pub name: String,
}

impl ProjectName {
    /// A project by host and name.
    pub fn new(canonical_hostname: impl Into<String>, name: impl Into<String>) -> ProjectName {
        ProjectName { canonical_hostname: canonical_hostname.into(), name: name.into() }
    }

    /// `<host>/<name>`.
    pub fn canonical_name(&self) -> String {
        format!("{}/{}", self.canonical_hostname, self.name)
    }

    /// The last part of the name.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// Where the repository lies, relative to `work/`, such as `src/git.example.org/org/project`.
    pub fn src_dir(&self, scheme: WorkspaceScheme) -> String {
        match scheme {
            WorkspaceScheme::Golang => format!("src/{}", self.canonical_name()),
            WorkspaceScheme::Flat => format!("src/{}", self.short_name()),
            WorkspaceScheme::Unique => {
                let folder = self.name.rsplit_once('/').map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
                format!("src/{}/{folder}{}", self.canonical_hostname, self.name.replace('/', "%2F"))
            }
        }
    }

    /// Whether host and name can be used as a path below a folder without leaving it.
    pub(crate) fn is_safe(&self) -> bool {
        let safe = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\\']);
        !self.canonical_hostname.contains('/')
            && safe(&self.canonical_hostname)
            && self.name.split('/').all(safe)
            && self.name.split('/').all(|part| part != ".git")
    }
}

/// A change, branch, tag or other ref: what an item stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefSpec {
    /// Whose.
    pub project: ProjectName,
    /// The ref's full name; `zuul.ref`.
    pub ref_name: String,
    /// The branch it is proposed for, or is.
    pub branch: Option<String>,
    /// The tag it is.
    pub tag: Option<String>,
    /// The change's number or name.
    pub change: Option<String>,
    /// The change's patchset or commit.
    pub patchset: Option<String>,
    /// Where a person can look at it.
    pub change_url: Option<String>,
    /// The change's message. Comes from outside: it is never taken as a template.
    pub message: Option<String>,
    /// The change's topic. Comes from outside: it is never taken as a template.
    pub topic: Option<String>,
    /// The commit of the ref before the event (items without a change).
    pub old_commit: Option<String>,
    /// The commit of the ref after the event (items without a change).
    pub new_commit: Option<String>,
    /// The change's own commit.
    pub commit_id: Option<String>,
    /// What all changes of one dependency cycle share.
    pub bundle_id: Option<String>,
}

/// One repository of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceProject {
    /// Which state of which repository.
    pub checkout: Checkout,
    /// Whether the job named it in `required-projects`.
    pub required: bool,
    /// Why this checkout was chosen; `zuul.projects[].checkout_description`.
    pub checkout_description: String,
}

/// One state of one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkout {
    /// Whose repository.
    pub project: ProjectName,
    /// The branch or tag to stand on.
    pub name: String,
    /// The commit that `name` shall point at: the state to test. As hex digits.
    pub commit: String,
    /// The commit that `origin/<name>` shall point at: the state before the change under test, so
    /// that `origin/<name>..<name>` is the change. `None`: the same as `commit`.
    pub previous: Option<String>,
    /// Other branches and the commits they shall point at.
    pub branches: BTreeMap<String, String>,
}

/// When a playbook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Before the job's own work; a failure is a reason to try again.
    Pre,
    /// The job's own work: its result is the build's.
    Run,
    /// Afterwards, always.
    Post,
    /// At the very end, also after an abort; its result counts for nothing.
    Cleanup,
}

impl Phase {
    /// The phase's name as jobs know it (`zuul_execution_phase`, `job-output.json`).
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pre => "pre",
            Phase::Run => "run",
            Phase::Post => "post",
            Phase::Cleanup => "cleanup",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Phase::Pre => "PRE-RUN",
            Phase::Run => "RUN",
            Phase::Post => "POST-RUN",
            Phase::Cleanup => "CLEANUP-RUN",
        }
    }
}

/// One playbook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaybookSpec {
    /// When it runs.
    pub phase: Phase,
    /// The repository it is in, and which state of it.
    pub checkout: Checkout,
    /// Its path there; an ending of `.yaml` or `.yml` may be left out.
    pub path: String,
    /// Whether it comes from a config project.
    pub trusted: bool,
    /// Zuul: how many variants had been applied before the one that brought it. When a pre-run
    /// playbook fails, only post-run playbooks of its own level or below it are run.
    pub nesting_level: u32,
    /// Secrets by the name the playbook knows them under, in clear. Only this playbook sees them.
    pub secrets: SecretVars,
    /// Tokens by the name the playbook knows them under, each with the secret that says what is in it. One is issued just
    /// before the playbook runs ([`crate::Workspace::token`]), and only this playbook sees it.
    pub tokens: BTreeMap<String, String>,
    /// Repositories with roles, in the order in which a role is looked for.
    pub roles: Vec<RoleSpec>,
    /// Zuul: `cleanup` of a post-run playbook. It runs also when the build was cancelled.
    pub cleanup: bool,
}

impl PlaybookSpec {
    /// Its project's canonical name and its path there, as tokens name it.
    pub(crate) fn canonical_path(&self) -> String {
        format!("{}/{}", self.checkout.project.canonical_name(), self.path)
    }

    /// Whether it runs although the build was cancelled.
    pub(crate) fn tidies_up(&self) -> bool {
        self.cleanup || self.phase == Phase::Cleanup
    }
}

/// A repository with roles for a playbook. It is checked out in the context of the playbook, trusted or not (Zuul).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSpec {
    /// The repository, and which state of it.
    pub checkout: Checkout,
    /// Why this checkout was chosen; `zuul.playbook_context`.
    pub checkout_description: String,
    /// What the role is called, where the repository is one role (Zuul: a bare role).
    pub target_name: String,
    /// Whether it is there because the playbook is: then it may be without roles.
    pub implicit: bool,
}

/// The nodes of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodeset {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The groups.
    pub groups: Vec<GroupSpec>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name in the inventory.
    pub name: String,
    /// Further names for the same node.
    pub aliases: Vec<String>,
    /// The label it was asked for under.
    pub label: String,
    /// How Ansible reaches it.
    pub connection: Connection,
    /// What the inventory says about it below `nodepool` (`cloud`, `region`, `az`, `interface_ip`,
    /// `host_id`, `node_properties`, …).
    pub properties: BTreeMap<String, Value>,
}

/// How Ansible reaches a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connection {
    /// On this host, inside the build's sandbox, with a directory of its own.
    Local {
        /// The node's directory; writable in the sandbox, and the node's home.
        dir: String,
    },
    /// Over a network.
    Remote(Remote),
}

/// A node that is reached over a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Ansible's connection plugin: `ssh`, `winrm` or `network_cli`.
    pub plugin: String,
    /// Address or name.
    pub host: String,
    /// Port, if not the plugin's own.
    pub port: Option<u16>,
    /// User; `None` is the executor's default.
    pub user: Option<String>,
    /// Python on the node; `None` lets Ansible look.
    pub python: Option<String>,
    /// Zuul: `shell-type`, such as `cmd` or `powershell`; `None` is Ansible's own.
    pub shell: Option<String>,
    /// How the host shows that it is the host that is meant.
    pub host_keys: HostKeys,
}

/// How a host that is reached over SSH shows that it is the host that is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostKeys {
    /// Its keys are known, each as `<type> <base64>`.
    Known(Vec<String>),
    /// The fingerprint of its key is known (MD5 in hex digits or `SHA256:…`): the key is asked for before the first
    /// playbook, and nothing is sent to a host that has no key with this fingerprint.
    Fingerprint(String),
    /// Nothing is known; every key is taken. Zuul: `StrictHostKeyChecking=false` where the cloud tells no key.
    #[default]
    Any,
}

impl Connection {
    /// How a node over a network is reached; `None` for a local one.
    pub fn remote(&self) -> Option<&Remote> {
        match self {
            Connection::Remote(remote) => Some(remote),
            Connection::Local { .. } => None,
        }
    }
}

impl Default for Connection {
    fn default() -> Self {
        Connection::Local { dir: String::new() }
    }
}

/// A group of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Its name.
    pub name: String,
    /// Names of its nodes.
    pub nodes: Vec<String>,
}

/// Variables by where they come from, weakest first. What parents returned, files and `vars` are merged at every depth;
/// of the others, a stronger one replaces a weaker one with its whole value (Zuul).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// `secret_data` that parent jobs returned: the weakest of all. Never in an inventory that is
    /// kept, never on the console.
    pub parent_secret_data: SecretVars,
    /// `data` that parent jobs returned, without its `zuul` key.
    pub parent_data: BTreeMap<String, Value>,
    /// What stands in the files of [`BuildSpec::include_vars`], once they were read.
    pub included: BTreeMap<String, Value>,
    /// The job's `vars`.
    pub vars: BTreeMap<String, Value>,
    /// The job's `group-vars`: group, then variables.
    pub group_vars: BTreeMap<String, BTreeMap<String, Value>>,
    /// The job's `host-vars`: node, then variables.
    pub host_vars: BTreeMap<String, BTreeMap<String, Value>>,
    /// The job's `extra-vars`: the strongest.
    pub extra_vars: BTreeMap<String, Value>,
}
