//! How the executor is set up, and what can be wrong with that.

use std::path::PathBuf;
use std::time::Duration;

use gatelog_log_files::{KeepLimits, LogStore};
use gatelog_record::BuildId;
use serde::Deserialize;

use crate::cgroup::{CgroupSetting, NoCgroup};

/// How the executor is set up.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Directory for what builds need while they run; made if it does not exist.
    pub root: PathBuf,
    /// Directory where consoles are written and kept: `<build id>/<attempt>/…` below it.
    pub logs_root: PathBuf,
    /// `ansible-playbook` for versions of Ansible that no managed environment serves; `None` looks on `PATH`.
    pub ansible_playbook: Option<PathBuf>,
    /// Where managed environments lie (see [`crate::environments`]); `None`: there are none. Zuul: `ansible_root`.
    pub ansible_root: Option<PathBuf>,
    /// Whether `ansible_playbook` also runs jobs that ask for a version it is not. Their builds carry a warning.
    pub ansible_any_version: bool,
    /// A YAML or JSON file of variables that every playbook is given (`-e @FILE`), stronger than a job's, weaker than
    /// `zuul`. Zuul: `variables`.
    pub variables: Option<PathBuf>,
    /// A private SSH key without a passphrase that every build's agent holds, before those of tenant and project.
    /// Zuul: `private_key_file`.
    pub private_key_file: Option<PathBuf>,
    /// How builds are kept apart from this host.
    pub sandbox: SandboxMode,
    /// Whether playbooks are run by children of a process that has Ansible loaded, where there is a sandbox.
    pub fork_server: bool,
    /// The network that sandboxes have.
    pub network: Network,
    /// Whether sandboxes run programs of the older processor of this one's kind (32-bit ones), of whose system calls
    /// fewer can be refused.
    pub foreign_abi: bool,
    /// How many builds run here at once: they share what the kernel counts by user.
    pub slots: u32,
    /// This host's name, as jobs see it in `zuul.executor.hostname`.
    pub hostname: String,
    /// Zuul: `default_username`, the user for nodes that name none.
    pub default_username: String,
    /// The TCP port on which the console of a node is read. Zuul: `log_console_port`.
    pub console_port: u16,
    /// Directories in which jobs find commands (`PATH`).
    pub search_path: Vec<PathBuf>,
    /// Further paths for trusted playbooks.
    pub trusted_paths: ExtraPaths,
    /// Further paths for untrusted playbooks.
    pub untrusted_paths: ExtraPaths,
    /// Limits.
    pub limits: Limits,
    /// Where the kernel's own limits come from.
    pub cgroup: CgroupSetting,
    /// Where what jobs leave in their log directories is kept; `None` keeps nothing of it.
    pub log_store: Option<LogStore>,
    /// Limits on that, for each attempt.
    pub keep_limits: KeepLimits,
    /// Whether a sweep keeps the console of a build that an earlier process left unfinished.
    pub keep_unfinished_consoles: bool,
    /// Whether directories of finished builds stay until the next sweep, for looking into them.
    pub keep_job_dirs: bool,
}

impl ExecutorConfig {
    /// The usual set-up, with everything below the two directories.
    pub fn new(root: impl Into<PathBuf>, logs_root: impl Into<PathBuf>) -> ExecutorConfig {
        ExecutorConfig {
            root: root.into(),
            logs_root: logs_root.into(),
            ansible_playbook: None,
            ansible_root: None,
            ansible_any_version: false,
            variables: None,
            private_key_file: None,
            sandbox: SandboxMode::Bubblewrap { bwrap: None },
            fork_server: true,
            network: Network::Host,
            foreign_abi: false,
            slots: 2,
            hostname: "localhost".into(),
            default_username: "zuul".into(),
            console_port: 19885,
            search_path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"]
                .map(PathBuf::from)
                .to_vec(),
            trusted_paths: ExtraPaths::default(),
            untrusted_paths: ExtraPaths::default(),
            limits: Limits::default(),
            cgroup: CgroupSetting::Auto,
            log_store: None,
            keep_limits: KeepLimits::default(),
            keep_unfinished_consoles: true,
            keep_job_dirs: false,
        }
    }
}

/// How builds are kept apart from this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// In bubblewrap.
    Bubblewrap {
        /// `bwrap`; `None` looks on `PATH`.
        bwrap: Option<PathBuf>,
    },
    /// Not at all: a job can read and write whatever this process can. Only for jobs that are all
    /// trusted, on hosts where bubblewrap cannot work.
    Unsandboxed,
}

/// The network that a sandbox has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// That of this host, its loopback and abstract sockets included, as in Zuul.
    #[default]
    Host,
    /// A loopback of its own, and a way out over IPv4 by `slirp4netns`, which does not reach this host's loopback.
    Private,
    /// A loopback of its own and nothing else. Jobs can have local nodes only.
    None,
}

/// Paths of this host that a sandbox shows besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraPaths {
    /// Read-only.
    pub ro: Vec<PathBuf>,
    /// Writable.
    pub rw: Vec<PathBuf>,
}

/// Limits of one build. `None` is no limit.
///
/// Memory and processes are limited by the kernel where a cgroup can be had (see
/// [`crate::cgroup`]), and otherwise by a watch that ends the build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory of all processes of the build together.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the build.
    pub processes: Option<u64>,
    /// Bytes on disk in the build's directory and its local nodes, and of any one file. Every file
    /// counts as one block at least, so this limits their number too. Zuul: `disk_limit_per_job`.
    pub disk_bytes: Option<u64>,
    /// Bytes in each of `/tmp`, `/var/tmp`, `/run` and `/dev/shm`, which lie in memory: a write
    /// that does not fit fails.
    pub tmp_bytes: Option<u64>,
    /// Files that one process may have open.
    pub open_files: u64,
    /// Bytes of console; a build that writes more fails. Post-run playbooks get a quarter more.
    /// Zuul: `output_max_bytes`.
    pub console_bytes: u64,
    /// Bytes of console a second. A job that writes faster waits, so that its console does not take
    /// the disk from the log.
    pub console_rate: u64,
    /// Bytes of one line of console; the rest of a longer line is counted and left out.
    pub console_line_bytes: usize,
    /// Preparing workspace, playbooks and inventory.
    pub setup: Duration,
    /// Reaching every host before the first playbook. Zuul: `setup_timeout`.
    pub reach: Duration,
    /// Pre-run and run, when the job says nothing or more.
    pub run: Duration,
    /// One post-run playbook, when the job says nothing or more.
    pub post: Duration,
    /// One cleanup playbook.
    pub cleanup: Duration,
    /// Between asking a build's processes to end and killing them.
    pub kill_grace: Duration,
    /// Bytes a job may return with `zuul_return`.
    pub returned_bytes: u64,
    /// Values in what a job returns: small ones take more memory than bytes.
    pub returned_values: usize,
    /// Bytes of one playbook's entry in `job-output.json`; a larger one is left out with a note.
    pub json_bytes: u64,
    /// Repositories prepared at the same time.
    pub parallel_checkouts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: Some(4 << 30),
            processes: Some(4096),
            disk_bytes: Some(10 << 30),
            tmp_bytes: Some(1 << 30),
            open_files: 65_536,
            console_bytes: 1 << 30,
            console_rate: 32 << 20,
            console_line_bytes: 64 << 10,
            setup: Duration::from_secs(600),
            reach: Duration::from_secs(60),
            run: Duration::from_secs(3 * 3600),
            post: Duration::from_secs(1800),
            cleanup: Duration::from_secs(300),
            kill_grace: Duration::from_secs(3),
            returned_bytes: 4 << 20,
            returned_values: 100_000,
            json_bytes: 64 << 20,
            parallel_checkouts: 4,
        }
    }
}

impl Limits {
    /// The default memory of a build on a host with `total` bytes on which `slots` builds run at
    /// once: three quarters of the host divided among them, and no less than 512 MiB.
    pub fn memory_share(total: u64, slots: u32) -> u64 {
        (total / 4 * 3 / u64::from(slots.max(1))).max(512 << 20)
    }
}

/// Why the executor cannot run, or cannot take a build.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// A playbook cannot be given the token it asks for.
    #[error(transparent)]
    Token(#[from] crate::workspace::WorkspaceError),
    /// There is no Ansible.
    #[error(
        "no Ansible is installed, and no ansible-playbook is on PATH: run `gatelog ansible install`, or name an ansible-playbook in the executor's settings"
    )]
    NoAnsible,
    /// A setting names a file or directory that cannot be used.
    #[error("{key} = {path:?} under [executor] cannot be used ({reason}): {cure}")]
    BadSetting {
        /// The key in `gatelog.toml`.
        key: &'static str,
        /// What it names.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What to do about it.
        cure: String,
    },
    /// Builds are to have networks of their own, and nothing makes them.
    #[error(
        "network = \"private\" under [executor] needs slirp4netns, and there is none on PATH: install it (Debian, Ubuntu and \
         Fedora: the package slirp4netns), or choose another network"
    )]
    NoPrivateNetwork,
    /// What was named as ansible-playbook does not work.
    #[error("{path} does not work as ansible-playbook ({reason}): name a working one in the executor's settings")]
    BadAnsible {
        /// What was tried.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// There is no bubblewrap.
    #[error(
        "no bwrap found on PATH: install bubblewrap, or configure the executor as unsandboxed if every job is trusted"
    )]
    NoBubblewrap,
    /// Bubblewrap cannot make a sandbox here.
    #[error(
        "{path} cannot make a sandbox here ({reason}): allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap); in a chroot it never can, and a container must be allowed to; `gatelog doctor` looks closer; or configure the executor as unsandboxed if every job is trusted"
    )]
    BadBubblewrap {
        /// What was tried.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The control group that was named cannot be used.
    #[error("{path} cannot hold groups for builds: {reason}")]
    BadCgroup {
        /// What was named.
        path: PathBuf,
        /// What is the matter.
        reason: NoCgroup,
    },
    /// A file or directory of the executor's own.
    #[error("cannot {action} {path}: {why}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it did not work.
        why: std::io::Error,
    },
    /// The same attempt of the same build is running.
    #[error("attempt {attempt} of build {build} is running already")]
    AlreadyRunning {
        /// The build.
        build: BuildId,
        /// The attempt.
        attempt: u32,
    },
}

impl ExecutorError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ExecutorError {
        let path = path.into();
        move |why| ExecutorError::Io { action, path, why }
    }
}
