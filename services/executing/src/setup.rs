//! What comes before the first playbook: repositories, playbooks, variables, inventory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gatelog_log_files::manifest::CONSOLE;
use gatelog_record::Value;
use gatelog_room::Lack;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ansible;
use crate::build::Build;
use crate::config::{ExecutorError, Network};
use crate::control::{AbortReason, BuildControl};
use crate::frozen::Frozen;
use crate::identity;
use crate::inventory::{Surroundings, inventory};
use crate::jobdir::{make_dir, write};
use crate::network;
use crate::outcome::{BuildResult, RetryCause};
use crate::playbooks::{self, PlaybookInPlace};
use crate::spec::{Checkout, WorkspaceCheckout};
use crate::ssh;
use crate::variables::{self, HostVars, deep_merge, squash};
use crate::workspace::{Purpose, WorkspaceError};
use crate::yaml::Yaml;
use crate::zuul_vars::{Executing, zuul};

/// How long repositories in the making are waited for once they are not wanted any more.
const LAST_CHECKOUTS: Duration = Duration::from_secs(10);

/// Connection plugins for hosts over a network. Zuul: `connection-type`.
const PLUGINS: [&str; 3] = ["ssh", "winrm", "network_cli"];

/// A build whose first playbook can start.
pub(crate) struct Ready {
    pub(crate) playbooks: Vec<PlaybookInPlace>,
    /// The `zuul` variable for inventories that are used.
    pub(crate) zuul: Yaml,
    /// The variables of playbooks that are trusted or hold secrets.
    pub(crate) frozen: Frozen,
}

/// Why the first playbook cannot start: a verdict and a sentence.
pub(crate) type Stopped = (BuildResult, String);

impl From<ExecutorError> for Box<Stopped> {
    fn from(error: ExecutorError) -> Self {
        failed(error.to_string())
    }
}

/// Something of this executor's own failed, with these words.
pub(crate) fn failed(reason: String) -> Box<Stopped> {
    let cause = Lack::of_text(&reason).map(|lack| RetryCause::NoRoom { lack, begun: false });
    Box::new((BuildResult::Retry(cause.unwrap_or(RetryCause::SetupFailed)), reason))
}

fn error(reason: String) -> Box<Stopped> {
    Box::new((BuildResult::Error(reason.clone()), reason))
}

impl Build {
    /// Everything before the first playbook.
    pub(crate) async fn set_up(&mut self) -> Result<Ready, Box<Stopped>> {
        self.spec.variables.included = self.included_variables().await?;
        self.check()?;
        identity::write_files(&self.spec, &self.job_dir)?;
        if self.executor.slirp.is_some() {
            let host = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            write(&self.job_dir.resolv_conf(), network::resolv_conf(&host).as_bytes())?;
        }
        self.prove_hosts().await?;
        let places = playbooks::repositories(&self.spec, &self.job_dir);
        let has_files = match self.spec.job.workspace_checkout {
            WorkspaceCheckout::Always => true,
            WorkspaceCheckout::Never => false,
            WorkspaceCheckout::Auto => self.spec.nodeset.nodes.is_empty(),
        };
        let purpose = if has_files { Purpose::Work } else { Purpose::WorkWithoutFiles };
        let mut checkouts: Vec<(Checkout, PathBuf, Purpose)> = self
            .spec
            .projects
            .iter()
            .map(|project| {
                let src_dir = project.checkout.project.src_dir(self.spec.job.workspace_scheme);
                (project.checkout.clone(), self.job_dir.work().join(src_dir), purpose)
            })
            .collect();
        // Only a sandbox keeps a job from writing there.
        let purpose = if self.executor.bwrap.is_some() { Purpose::Playbooks } else { Purpose::Work };
        checkouts.extend(places.iter().map(|((_, checkout), place)| (checkout.clone(), place.clone(), purpose)));
        let mut seen = BTreeSet::new();
        if let Some((checkout, place, _)) = checkouts.iter().find(|(_, place, _)| !seen.insert(place.clone())) {
            return Err(error(format!(
                "two projects share the place {} in the workspace, {} among them: use workspace-scheme golang",
                place.strip_prefix(self.job_dir.root()).unwrap_or(place).display(),
                checkout.project.canonical_name()
            )));
        }
        let under_test: Vec<PathBuf> =
            checkouts.iter().take(self.spec.projects.len()).map(|one| one.1.clone()).collect();
        self.materialize(checkouts).await?;
        let learned = self.repositories.learn(under_test.into_iter());
        learned.map_err(ExecutorError::io("remove hooks in", &self.job_dir.work()))?;
        let playbooks = playbooks::find(&self.spec, &self.job_dir, &places).map_err(error)?;
        let copy = self.job_dir.logs().join(CONSOLE);
        self.console.copy_to(&copy).map_err(ExecutorError::io("write", &copy))?;
        let hostname = &self.executor.config.hostname;
        let executing = Executing { job_dir: &self.job_dir, hostname, playbooks: &playbooks, places: &places };
        let zuul = zuul(&self.spec, executing);
        let variables = Yaml::Map(vec![("zuul".into(), zuul.clone())]);
        write(&self.job_dir.zuul_vars(), variables.document().as_bytes())?;
        let whole = self.inventory(&zuul, &BTreeSet::new(), None);
        write(&self.job_dir.inventory(), whole.document().as_bytes())?;
        let kept = self.log_dir.join("zuul-info");
        make_dir(&kept)?;
        write(&kept.join("inventory.yaml"), whole.without_marks().document().as_bytes())?;
        self.tell_the_time()?;
        Box::pin(self.reach_hosts(&zuul)).await?;
        let frozen = Box::pin(self.freeze(&zuul, &playbooks)).await?;
        Ok(Ready { playbooks, zuul, frozen })
    }

    /// What can be wrong with a spec before anything is done.
    fn check(&self) -> Result<(), Box<Stopped>> {
        variables::check(&self.spec.variables).map_err(error)?;
        for playbook in &self.spec.playbooks {
            variables::check_secrets(playbook.secrets.keys().chain(playbook.tokens.keys())).map_err(error)?;
        }
        let playbook_projects = self.spec.playbooks.iter().flat_map(|playbook| {
            let roles = playbook.roles.iter().map(|role| &role.checkout.project);
            std::iter::once(&playbook.checkout.project).chain(roles)
        });
        let mut projects = self.spec.projects.iter().map(|project| &project.checkout.project).chain(playbook_projects);
        if let Some(project) = projects.find(|project| !project.is_safe()) {
            return Err(error(format!("project {:?} cannot have a place in a workspace", project.canonical_name())));
        }
        let mut names = BTreeSet::new();
        let all = self.spec.nodeset.nodes.iter().flat_map(|node| std::iter::once(&node.name).chain(&node.aliases));
        if let Some(name) = all.into_iter().find(|name| !names.insert(name.as_str())) {
            return Err(error(format!("two nodes of the nodeset are called {name:?}: give each a name of its own")));
        }
        for remote in ssh::remotes(&self.spec) {
            if !ssh::is_host(&remote.host) {
                return Err(error(format!("{:?} is no host: give an address or a name", remote.host)));
            }
            if self.executor.bwrap.is_some() && self.executor.config.network == Network::None {
                return Err(error(format!(
                    "host {} cannot be reached: builds of this executor have no network (network = \"none\" under \
                     [executor]); let another executor have the job, or give it local nodes",
                    remote.host
                )));
            }
            if !PLUGINS.contains(&remote.plugin.as_str()) {
                let (plugin, host) = (&remote.plugin, &remote.host);
                let known = PLUGINS.join(", ");
                return Err(error(format!("host {host} has connection {plugin:?}, which is not known here: {known}")));
            }
        }
        for group in &self.spec.nodeset.groups {
            if let Some(node) = group.nodes.iter().find(|node| !names.contains(node.as_str())) {
                return Err(error(format!("group {:?} names node {node:?}, which the nodeset has not", group.name)));
            }
        }
        Ok(())
    }

    /// What stands in the files of variables, merged: a later file is stronger. Zuul: `include-vars`.
    async fn included_variables(&self) -> Result<HostVars, Box<Stopped>> {
        if self.spec.include_vars.is_empty() {
            return Ok(HostVars::new());
        }
        let (workspace, files) = (self.workspace.clone(), self.spec.include_vars.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut all = HostVars::new();
            for file in &files {
                match workspace.variables(&file.checkout, &file.path)? {
                    Some(variables) => deep_merge(&mut all, &variables),
                    None if file.required => {
                        return Err(WorkspaceError::Unusable {
                            project: file.checkout.project.canonical_name(),
                            branch: file.checkout.name.clone(),
                            path: file.path.clone(),
                            reason: "does not exist: add it to that branch, correct its name in include-vars, or say \
                                     `required: false` there"
                                .into(),
                        });
                    }
                    None => {}
                }
            }
            Ok(all)
        });
        let limit = self.executor.config.limits.setup;
        tokio::select! {
            read = read => match read {
                Ok(Ok(variables)) => Ok(variables),
                Ok(Err(reason @ (WorkspaceError::Missing { .. } | WorkspaceError::Unusable { .. }))) => {
                    Err(error(reason.to_string()))
                }
                Ok(Err(reason)) => Err(failed(reason.to_string())),
                Err(panic) => Err(Box::new((BuildResult::Retry(RetryCause::SetupFailed), panic.to_string()))),
            },
            _ = self.control.wait() => {
                Err(Box::new((BuildResult::Aborted, "stopped while files of variables were read".into())))
            }
            () = tokio::time::sleep(limit) => Err(Box::new((
                BuildResult::Retry(RetryCause::SetupFailed),
                format!("reading files of variables took longer than {} s", limit.as_secs()),
            ))),
        }
    }

    /// Puts all repositories in their places, several at a time.
    async fn materialize(&self, checkouts: Vec<(Checkout, PathBuf, Purpose)>) -> Result<(), Box<Stopped>> {
        let limits = &self.executor.config.limits;
        // A control of its own: also a timeout tells the work to stop.
        let control = BuildControl::new();
        let at_once = Arc::new(Semaphore::new(limits.parallel_checkouts.max(1)));
        let mut tasks = JoinSet::new();
        for (checkout, place, purpose) in checkouts {
            if let Some(parent) = place.parent() {
                make_dir(parent)?;
            }
            let (workspace, control, at_once) = (self.workspace.clone(), control.clone(), at_once.clone());
            tasks.spawn(async move {
                let Ok(_turn) = at_once.acquire_owned().await else { return Err(WorkspaceError::Aborted) };
                let project = checkout.project.canonical_name();
                let work = tokio::task::spawn_blocking(move || match control.is_aborted() {
                    true => Err(WorkspaceError::Aborted),
                    false => workspace.materialize(&checkout, &place, purpose, &control),
                });
                work.await.unwrap_or_else(|panic| Err(WorkspaceError::Failed { project, reason: panic.to_string() }))
            });
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                done.unwrap_or(Err(WorkspaceError::Aborted))?;
            }
            Ok(())
        };
        let stopped = tokio::select! {
            result = all => match result {
                Ok(()) => return Ok(()),
                Err(reason @ (WorkspaceError::Missing { .. } | WorkspaceError::Unusable { .. })) => error(reason.to_string()),
                Err(reason) => failed(reason.to_string()),
            },
            _ = self.control.wait() => Box::new((BuildResult::Aborted, "stopped while the workspace was prepared".into())),
            () = tokio::time::sleep(limits.setup) => Box::new((
                BuildResult::Retry(RetryCause::SetupFailed),
                format!("preparing the workspace took longer than {} s", limits.setup.as_secs()),
            )),
        };
        control.abort(AbortReason::Cancelled);
        let rest = async { while tasks.join_next().await.is_some() {} };
        // What does not stop in time is left to itself; its directory is removed under it.
        let _ = tokio::time::timeout(LAST_CHECKOUTS, rest).await;
        Err(stopped)
    }

    pub(crate) fn inventory(&self, zuul: &Yaml, hidden: &BTreeSet<&str>, frozen: Option<&Frozen>) -> Yaml {
        let around = Surroundings {
            python: &self.executor.toolchain.python,
            local_tmp: &self.job_dir.ansible_state().join("tmp"),
            default_username: &self.executor.config.default_username,
            work: &self.job_dir.work(),
            pinned_hosts: &self.job_dir.pinned_hosts(),
        };
        inventory(&self.spec, &around, zuul, hidden, frozen)
    }

    /// Configuration and inventory of one playbook, just before it runs.
    pub(crate) fn prepare_playbook(&self, playbook: &PlaybookInPlace, ready: &Ready) -> Result<PathBuf, ExecutorError> {
        make_dir(&playbook.directory)?;
        let hidden = playbook.spec.secrets.keys().chain(playbook.spec.tokens.keys()).map(String::as_str).collect();
        let frozen = self.is_guarded(playbook).then_some(&ready.frozen);
        let file = playbook.directory.join("inventory.yaml");
        write(&file, self.inventory(&ready.zuul, &hidden, frozen).document().as_bytes())?;
        let (plugins, sandboxed) = (&self.executor.plugins, self.executor.bwrap.is_some());
        let configuration = ansible::configuration(plugins, &self.job_dir, &file, playbook, sandboxed);
        write(&playbook.directory.join("ansible.cfg"), configuration.as_bytes())?;
        Ok(file)
    }

    /// The tokens of a playbook that is about to run: their time counts from now. Nothing shows them from now on.
    pub(crate) async fn issue_tokens(
        &self,
        playbook: &PlaybookInPlace,
    ) -> Result<BTreeMap<String, Value>, ExecutorError> {
        if playbook.spec.tokens.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (workspace, tokens) = (self.workspace.clone(), playbook.spec.tokens.clone());
        let path = playbook.spec.canonical_path();
        let issue = move || -> Result<BTreeMap<String, String>, WorkspaceError> {
            tokens.iter().map(|(name, secret)| Ok((name.clone(), workspace.token(secret, &path)?))).collect()
        };
        let panicked = |panic: tokio::task::JoinError| WorkspaceError::Token {
            secret: playbook.spec.tokens.values().next().cloned().unwrap_or_default(),
            reason: panic.to_string(),
        };
        let issued = tokio::task::spawn_blocking(issue).await.map_err(panicked)??;
        self.mask.add(issued.values().cloned());
        Ok(issued.into_iter().map(|(name, token)| (name, Value::Str(token))).collect())
    }

    /// Whether a playbook is given secrets.
    pub(crate) fn has_secrets(&self, playbook: &PlaybookInPlace) -> bool {
        !self.secrets(playbook).is_empty() || !playbook.spec.tokens.is_empty()
    }

    /// The secrets one playbook sees: what parents returned as secret where nothing else has that
    /// name, and above it the playbook's own. Tokens are not among them: they are issued when the playbook begins.
    pub(crate) fn secrets(&self, playbook: &PlaybookInPlace) -> BTreeMap<String, Value> {
        let known = squash(&self.spec.variables, &self.spec.nodeset, "localhost");
        let mut secrets = variables::usable(&self.spec.variables.parent_secret_data);
        secrets.retain(|name, _| !known.contains_key(name));
        secrets.extend(playbook.spec.secrets.iter().map(|(name, value)| (name.clone(), value.clone())));
        secrets
    }

    /// The secrets and tokens of a playbook as YAML; `None`: it has none. Zuul: what is secret is never a template.
    pub(crate) fn secrets_text(&self, playbook: &PlaybookInPlace, tokens: BTreeMap<String, Value>) -> Option<String> {
        let mut secrets = self.secrets(playbook);
        secrets.extend(tokens);
        let literal = secrets.iter().map(|(name, value)| (name.clone(), Yaml::literal(value))).collect();
        (!secrets.is_empty()).then(|| Yaml::Map(literal).document())
    }
}
