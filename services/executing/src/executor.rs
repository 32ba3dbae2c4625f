//! The executor: what all builds of this process share, and what an earlier process left behind.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_log_files::manifest::{CONSOLE, RESULTS};
use gatelog_record::BuildId;
use gatelog_room::Lack;

use crate::agent::{self, Agent};
use crate::ansible;
use crate::build::Build;
use crate::cgroup::{CgroupSetting, Delegated, NoCgroup};
use crate::config::{ExecutorConfig, ExecutorError, Limits};
use crate::console::{Console, ConsoleReader, now, stamp};
use crate::control::{AbortReason, BuildControl};
use crate::forkserver::ForkServers;
use crate::git_traps::Repositories;
use crate::group::{self, Group};
use crate::homes::Homes;
use crate::jobdir::{JobDir, Owner, make_dir, remove_tree};
use crate::keeping::{self, KeptAttempt};
use crate::mask::{self, Mask};
use crate::network;
use crate::outcome::BuildResult;
use crate::process::{ProcessIdentity, kill_marked};
use crate::results::ResultsReader;
use crate::sandbox::Features;
use crate::seccomp;
use crate::setup::Stopped;
use crate::spec::BuildSpec;
use crate::toolchain::{Toolchain, find_bubblewrap, on_path};
use crate::versions::{Choice, Versions};
use crate::wall::{self, NoWall, Wall};
use crate::watch::Watch;
use crate::workspace::Workspace;

/// How long processes of a leftover are hunted.
const HUNT: Duration = Duration::from_secs(10);
/// Stands in a log directory while its build runs.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// Runs builds. Clones are the same executor.
#[derive(Clone)]
pub struct Executor {
    inner: Arc<Inner>,
}

/// What all builds share.
pub(crate) struct Inner {
    pub(crate) config: ExecutorConfig,
    versions: Versions,
    /// `None`: without a sandbox.
    pub(crate) bwrap: Option<(PathBuf, Features)>,
    /// `None`: builds have no SSH agent.
    pub(crate) ssh_agent: Option<PathBuf>,
    /// What makes networks for sandboxes; `None`: they need none.
    pub(crate) slirp: Option<PathBuf>,
    /// `None`: hosts with a fingerprint cannot be asked for their keys.
    pub(crate) ssh_keyscan: Option<PathBuf>,
    /// Where groups for builds are made; or why none are.
    pub(crate) delegated: Result<Delegated, NoCgroup>,
    /// Who refuses a build more processes than it may have; or why nobody does.
    pub(crate) wall: Result<Wall, NoWall>,
    /// The system calls that sandboxes refuse; `None`: this machine has no such filter.
    pub(crate) filter: Option<String>,
    /// Ends builds that go over their limits.
    pub(crate) watch: Watch,
    /// Where gatelog's own plugins for Ansible lie.
    pub(crate) plugins: PathBuf,
    /// Processes that have Ansible loaded.
    pub(crate) fork_servers: ForkServers,
    running: Mutex<BTreeMap<(BuildId, u32), (ConsoleReader, BuildControl)>>,
    told_unbounded: AtomicBool,
}

/// The executor as one build sees it: what all builds share, and the Ansible of this one.
pub(crate) struct Assigned {
    shared: Arc<Inner>,
    /// Where there is none for the build, any: nothing of it is run.
    pub(crate) toolchain: Arc<Toolchain>,
    /// What the console says of the Ansible, and what the result; or why there is none.
    ansible: Result<(String, Option<String>), String>,
}

impl Assigned {
    /// Whose fork server playbooks may use; `None`: none, for what it forks has to enter a sandbox.
    pub(crate) fn fork_server(&self) -> Option<(Arc<Inner>, Arc<Toolchain>)> {
        let wanted = self.shared.bwrap.is_some() && self.shared.config.fork_server;
        wanted.then(|| (self.shared.clone(), self.toolchain.clone()))
    }
}

impl Deref for Assigned {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.shared
    }
}

/// A build's place among those that run; given up when it is dropped.
pub(crate) struct Registration {
    executor: Arc<Inner>,
    key: (BuildId, u32),
    log_dir: PathBuf,
}

impl Registration {
    /// The console is complete.
    pub(crate) fn finished(&self) {
        // If it stays, the next sweep takes the build for unfinished and adds a line: no harm.
        let _ = fs::remove_file(self.log_dir.join(UNFINISHED));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.executor.running().remove(&self.key);
    }
}

/// Who keeps the limits on memory and processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The kernel, in groups below this one.
    Kernel(Delegated),
    /// A watch in this process that ends builds, because there are no such groups.
    Watch(NoCgroup),
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Attempts that an earlier process left unfinished; their directories are gone.
    pub removed: Vec<(BuildId, u32)>,
    /// Processes that were still running although they should not, and were killed or could not be.
    pub stray_processes: usize,
    /// Control groups of builds of processes that are no more.
    pub removed_groups: usize,
    /// Attempts that belong to another process that is alive; left alone.
    pub of_others: usize,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// What parents returned in secret.
fn secret_texts(spec: &BuildSpec) -> Vec<String> {
    spec.variables.parent_secret_data.values().flat_map(mask::texts).collect()
}

impl Executor {
    /// Finds Ansible and bubblewrap, tries them, and makes the directories. Nothing that was left
    /// behind is touched: call [`sweep`](Self::sweep) next.
    pub async fn open(mut config: ExecutorConfig) -> Result<Executor, ExecutorError> {
        for place in [&mut config.root, &mut config.logs_root] {
            make_dir(place)?;
            // Real paths: a process is recognised by them, and bubblewrap follows no link.
            *place = fs::canonicalize(&place).map_err(ExecutorError::io("find", &*place))?;
        }
        make_dir(&JobDir::folder(&config.root))?;
        let versions = Versions::open(&config).await?;
        check_files(&mut config, &versions).await?;
        let bwrap = find_bubblewrap(&config).await?;
        let slirp = network::find(&config)?.filter(|_| bwrap.is_some());
        let ssh_agent = on_path("ssh-agent");
        if ssh_agent.is_none() {
            tracing::warn!("there is no ssh-agent on PATH, so builds have none: install openssh-client");
        }
        let ssh_keyscan = on_path("ssh-keyscan");
        let delegated = Delegated::take(&config.cgroup);
        if let (CgroupSetting::At(path), Err(reason)) = (&config.cgroup, &delegated) {
            return Err(ExecutorError::BadCgroup { path: path.clone(), reason: reason.clone() });
        }
        let (limited, groups, sandbox) = (config.limits.processes.is_some(), delegated.clone(), bwrap.clone());
        let look = tokio::task::spawn_blocking(move || wall::look(limited, &groups, sandbox.as_ref()));
        let wall = look
            .await
            .unwrap_or_else(|panic| Err(NoWall { reason: panic.to_string(), cure: "run `gatelog doctor`".into() }));
        if let Err(reason) = &wall {
            tracing::warn!(%reason, "only a watch stands between a fork bomb and this host");
        }
        let filter = seccomp::filter(config.foreign_abi);
        if bwrap.is_some() && filter.is_none() {
            tracing::warn!(
                "no system call is refused to jobs: this kernel has no seccomp filter, or this processor none of gatelog's"
            );
        }
        let watch = Watch::start().map_err(ExecutorError::io("start threads for", &config.root))?;
        let plugins = ansible::install_plugins(&config.root)?;
        let inner = Inner {
            fork_servers: ForkServers::new(&config.root, &plugins),
            config,
            versions,
            bwrap,
            ssh_agent,
            slirp,
            ssh_keyscan,
            delegated,
            wall,
            filter,
            watch,
            plugins,
            running: Mutex::default(),
            told_unbounded: AtomicBool::new(false),
        };
        Ok(Executor { inner: Arc::new(inner) })
    }

    /// Who keeps the limits on memory and processes of a build: the kernel, or a watch in this
    /// process; and then why.
    pub fn keeper(&self) -> Keeper {
        match &self.inner.delegated {
            Ok(delegated) => Keeper::Kernel(delegated.clone()),
            Err(reason) => Keeper::Watch(reason.clone()),
        }
    }

    /// Who refuses a build more processes than it may have.
    ///
    /// # Errors
    /// Nobody does, and why; a watch in this process ends a build that has too many.
    pub fn wall(&self) -> Result<Wall, NoWall> {
        self.inner.wall.clone()
    }

    /// The limits of each build.
    pub fn limits(&self) -> &Limits {
        &self.inner.config.limits
    }

    /// Whether builds are kept apart from this host.
    pub fn is_sandboxed(&self) -> bool {
        self.inner.bwrap.is_some()
    }

    /// Takes a build. Its console exists from now on.
    ///
    /// An earlier process's leftovers of the same attempt are swept away first.
    pub async fn prepare(&self, spec: BuildSpec, workspace: Arc<dyn Workspace>) -> Result<Build, ExecutorError> {
        let inner = &self.inner;
        let key = (spec.build, spec.attempt);
        let job_dir = JobDir::at(&inner.config.root, spec.build, spec.attempt);
        if job_dir.root().exists() && !inner.sweep_one(job_dir.root(), &mut SweepReport::default()).await {
            return Err(ExecutorError::AlreadyRunning { build: spec.build, attempt: spec.attempt });
        }
        let log_dir = inner.log_dir(spec.build, spec.attempt);
        let control = BuildControl::new();
        let mask = Arc::new(Mask::new(spec.sensitive.iter().cloned().chain(secret_texts(&spec))));
        let console = {
            let mut running = inner.running();
            if running.contains_key(&key) {
                return Err(ExecutorError::AlreadyRunning { build: spec.build, attempt: spec.attempt });
            }
            remove_tree(&log_dir).map_err(ExecutorError::io("remove", &log_dir))?;
            make_dir(&log_dir)?;
            let marker = log_dir.join(UNFINISHED);
            fs::write(&marker, b"").map_err(ExecutorError::io("write", &marker))?;
            let path = log_dir.join(CONSOLE);
            let console = Console::create(&path, inner.config.limits.console_bytes, mask.clone());
            let console = Arc::new(console.map_err(ExecutorError::io("write", &path))?);
            running.insert(key, (console.reader(), control.clone()));
            console
        };
        let registration = Registration { executor: inner.clone(), key, log_dir: log_dir.clone() };
        let owner = Owner { process: ProcessIdentity::own(), build: spec.build, attempt: spec.attempt };
        let job_dir = JobDir::create(&inner.config.root, &owner)?;
        let group = inner.group(&owner)?.map(Arc::new);
        let executor = inner.assign(&spec.job.ansible_version).await?;
        let agent = None;
        let homes = Mutex::new(Homes::new(job_dir.home(), job_dir.homes()));
        let repositories = Repositories::default();
        Ok(Build {
            homes,
            repositories,
            executor,
            spec,
            workspace,
            job_dir,
            group,
            agent,
            console,
            control,
            log_dir,
            registration,
            mask,
            until_set_up: None,
        })
    }

    /// The console of an attempt that runs here, or is kept here. `None`: there is none.
    pub fn console(&self, build: BuildId, attempt: u32) -> Option<ConsoleReader> {
        if let Some((reader, _)) = self.inner.running().get(&(build, attempt)) {
            return Some(reader.clone());
        }
        ConsoleReader::open(&self.inner.log_dir(build, attempt).join(CONSOLE)).ok()
    }

    /// The results of the tasks of an attempt that runs here, or is kept here. `None`: there are none yet, or any more.
    /// May wait a moment.
    pub fn results(&self, build: BuildId, attempt: u32) -> Option<ResultsReader> {
        let path = self.inner.log_dir(build, attempt).join(RESULTS);
        ResultsReader::open(&path, self.is_running(build, attempt)).ok()
    }

    /// Whether an attempt runs here.
    pub fn is_running(&self, build: BuildId, attempt: u32) -> bool {
        self.inner.running().contains_key(&(build, attempt))
    }

    /// The attempts whose console is kept here, those that are not finished left out.
    ///
    /// # Errors
    /// The directory of consoles cannot be read.
    pub fn kept(&self) -> std::io::Result<Vec<KeptAttempt>> {
        keeping::kept(&self.inner.config.logs_root, |build, attempt| self.is_running(build, attempt))
    }

    /// Removes the console, and whatever else is kept here, of an attempt that does not run.
    ///
    /// # Errors
    /// It runs, or cannot be removed.
    pub fn forget(&self, build: BuildId, attempt: u32) -> std::io::Result<()> {
        if self.is_running(build, attempt) {
            return Err(std::io::Error::other("it runs"));
        }
        let log_dir = self.inner.log_dir(build, attempt);
        remove_tree(&log_dir)?;
        // The build's, once that is empty.
        log_dir.parent().map_or(Ok(()), |parent| match fs::remove_dir(parent) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => Err(error),
            _ => Ok(()),
        })
    }

    /// What this host lacks now of what builds are made with: room where their directories and consoles are, and file
    /// descriptors.
    pub fn lack(&self) -> Option<Lack> {
        self.inner.lack()
    }

    /// Where builds write: their directories, and their consoles.
    pub fn places(&self) -> [&Path; 2] {
        self.inner.places()
    }

    /// The attempts that run here.
    pub fn running(&self) -> Vec<(BuildId, u32)> {
        self.inner.running().keys().copied().collect()
    }

    /// Stops an attempt that runs here; `false`: it does not.
    pub fn abort(&self, build: BuildId, attempt: u32, reason: AbortReason) -> bool {
        let running = self.inner.running();
        let found = running.get(&(build, attempt));
        if let Some((_, control)) = found {
            control.abort(reason);
        }
        found.is_some()
    }

    /// Where console and inventory of an attempt are kept.
    pub fn log_dir(&self, build: BuildId, attempt: u32) -> PathBuf {
        self.inner.log_dir(build, attempt)
    }

    /// Removes what processes that are no more left behind: their builds' processes, directories
    /// and, unless they are to be kept, unfinished consoles. Builds that run are left alone.
    pub async fn sweep(&self) -> Result<SweepReport, ExecutorError> {
        let folder = JobDir::folder(&self.inner.config.root);
        let mut report = SweepReport::default();
        if let Ok(delegated) = &self.inner.delegated {
            let delegated = delegated.clone();
            report.removed_groups = tokio::task::spawn_blocking(move || delegated.sweep()).await.unwrap_or_default();
        }
        let entries = fs::read_dir(&folder).map_err(ExecutorError::io("read", &folder))?;
        for entry in entries {
            let path = entry.map_err(ExecutorError::io("read", &folder))?.path();
            self.inner.sweep_one(&path, &mut report).await;
        }
        Ok(report)
    }
}

impl Build {
    /// Says which Ansible the build runs with and starts its agent; what the result is to say of the former is added to
    /// `warnings`. Without the Ansible its job asks for, the build ends.
    pub(crate) async fn begin(&self, warnings: &mut Vec<String>) -> Result<Option<Agent>, Box<Stopped>> {
        match &self.executor.ansible {
            Ok((line, warning)) => {
                self.console.say(line);
                warnings.extend(warning.clone());
                self.start_agent().await
            }
            Err(reason) => Err(Box::new((BuildResult::Error(reason.clone()), reason.clone()))),
        }
    }
}

/// Sees that the files the settings name can be used, and makes their paths absolute.
async fn check_files(config: &mut ExecutorConfig, versions: &Versions) -> Result<(), ExecutorError> {
    for place in [&mut config.variables, &mut config.private_key_file].into_iter().flatten() {
        // If it is not there, the checks below say so.
        *place = fs::canonicalize(&place).unwrap_or_else(|_| place.clone());
    }
    if let (Some(file), Some(toolchain)) = (&config.variables, versions.any().await)
        && let Err(reason) = toolchain.check_variables(file).await
    {
        let cure = "name a YAML or JSON file with a mapping of names to values".to_owned();
        return Err(ExecutorError::BadSetting { key: "variables", path: file.clone(), reason, cure });
    }
    if let Some(file) = &config.private_key_file
        && let Err(reason) = agent::check_key(file).await
    {
        let cure = "name a private SSH key of OpenSSH without a passphrase, readable by this user alone".to_owned();
        return Err(ExecutorError::BadSetting { key: "private-key-file", path: file.clone(), reason, cure });
    }
    Ok(())
}

impl Inner {
    /// Itself for a build whose job asks for this version of Ansible.
    async fn assign(self: &Arc<Self>, version: &str) -> Result<Assigned, ExecutorError> {
        let shared = self.clone();
        match self.versions.choose(version).await {
            Ok(Choice { toolchain, line, warning }) => Ok(Assigned { shared, toolchain, ansible: Ok((line, warning)) }),
            Err(reason) => {
                // The executor was opened with one; if that is gone, there is none for any build.
                let toolchain = self.versions.any().await.ok_or(ExecutorError::NoAnsible)?;
                Ok(Assigned { shared, toolchain, ansible: Err(reason) })
            }
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<(BuildId, u32), (ConsoleReader, BuildControl)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn places(&self) -> [&Path; 2] {
        [&self.config.root, &self.config.logs_root]
    }

    /// See [`Executor::lack`].
    pub(crate) fn lack(&self) -> Option<Lack> {
        Lack::now(self.places())
    }

    /// What is lacking by the words of an error of this executor's own.
    pub(crate) fn lack_told(&self, text: &str) -> Option<Lack> {
        Lack::of_text(text).map(|lack| lack.told_apart(self.places()))
    }

    fn log_dir(&self, build: BuildId, attempt: u32) -> PathBuf {
        self.config.logs_root.join(build.to_string()).join(attempt.to_string())
    }

    /// Says once that sandboxes share what the kernel counts with all of this user.
    pub(crate) fn tell_unbounded(&self, refused: &[String]) {
        if !self.told_unbounded.swap(true, Ordering::Relaxed) {
            let refused = refused.join(", ");
            tracing::warn!(%refused, "this kernel keeps no limits of a sandbox's own for these: one build may take them all");
        }
    }

    /// A control group for a build, where there can be one.
    fn group(&self, owner: &Owner) -> Result<Option<Group>, ExecutorError> {
        let Ok(delegated) = &self.delegated else { return Ok(None) };
        let limits = &self.config.limits;
        let settings = group::settings(delegated, limits.memory_bytes, limits.processes);
        let name = format!("{}-{}", owner.build, owner.attempt);
        // Not without it: what was promised is kept, or the build does not start.
        let group = Group::create(delegated, &name, &settings);
        group.map(Some).map_err(ExecutorError::io("make a control group in", &delegated.directory))
    }

    /// Sweeps one directory; whether it is gone.
    async fn sweep_one(&self, path: &Path, report: &mut SweepReport) -> bool {
        let owner = JobDir::owner(path);
        if let Some(owner) = &owner {
            let own = owner.process == ProcessIdentity::own();
            let runs_here = own && self.running().contains_key(&(owner.build, owner.attempt));
            let discarded = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if runs_here || (own && discarded) {
                return false;
            }
            if !own && owner.process.is_alive() {
                report.of_others += 1;
                return false;
            }
        }
        let found = crate::process::marked(path).len();
        report.stray_processes += found;
        if found > 0 {
            kill_marked(path, HUNT).await;
        }
        let gone = path.to_owned();
        let removed = tokio::task::spawn_blocking(move || remove_tree(&gone)).await;
        if let Some(error) =
            removed.map_or_else(|panic| Some(panic.to_string()), |done| done.err().map(|e| e.to_string()))
        {
            report.failed.push(format!("cannot remove {}: {error}", path.display()));
            return false;
        }
        if let Some(owner) = owner {
            let log_dir = self.log_dir(owner.build, owner.attempt);
            if log_dir.join(UNFINISHED).exists() {
                report.removed.push((owner.build, owner.attempt));
                if let Err(error) = self.close_console(&log_dir) {
                    report.failed.push(format!("cannot close the console in {}: {error}", log_dir.display()));
                }
            }
        }
        true
    }

    /// The console of a build that nobody will finish.
    fn close_console(&self, log_dir: &Path) -> std::io::Result<()> {
        if !self.config.keep_unfinished_consoles {
            return remove_tree(log_dir);
        }
        let mut file = fs::OpenOptions::new().append(true).open(log_dir.join(CONSOLE))?;
        // The last line may have been cut off in the middle.
        writeln!(file, "\n{} | Build ends: ABORTED (the executor was stopped)", stamp(now()))?;
        fs::remove_file(log_dir.join(UNFINISHED))
    }

    /// Removes the directory of a build that is over, without anybody waiting for it.
    pub(crate) fn discard(&self, job_dir: &JobDir) {
        let Some(name) = job_dir.root().file_name() else { return };
        let old = job_dir.root().with_file_name(format!(".old-{}", name.to_string_lossy()));
        // An older one of that name is in the way only if its removal failed; then it goes now.
        let renamed = fs::rename(job_dir.root(), &old).or_else(|_| {
            remove_tree(&old)?;
            fs::rename(job_dir.root(), &old)
        });
        if let Err(error) = renamed {
            tracing::warn!(directory = %job_dir.root().display(), %error, "cannot remove a build's directory");
            return;
        }
        tokio::task::spawn_blocking(move || {
            if let Err(error) = remove_tree(&old) {
                tracing::warn!(directory = %old.display(), %error, "cannot remove a build's directory");
            }
        });
    }
}
