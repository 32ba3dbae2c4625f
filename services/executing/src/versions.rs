//! Which Ansible a build runs with: the one of the version its job asks for, or none.
//!
//! 1. The managed environment of that version, where it is installed.
//! 2. The `ansible-playbook` that the settings name (or `PATH` has), where its ansible-core is the one of that version.
//! 3. The same where it is another, if the settings allow that; each such build then carries a warning.
//!
//! Otherwise the build ends ERROR with the cure. Environments are looked up when a build is prepared: one that is
//! installed, replaced or removed while the executor runs counts from the next build on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::config::{ExecutorConfig, ExecutorError};
use crate::environments::{self, DEFAULT_RELEASE, Environment, RELEASES, Release};
use crate::toolchain::Toolchain;

/// All that this host has of Ansible.
pub(crate) struct Versions {
    root: Option<PathBuf>,
    named: Option<Arc<Toolchain>>,
    any_version: bool,
    /// Environments that were started once, by their directories.
    known: Mutex<BTreeMap<PathBuf, Arc<Toolchain>>>,
}

/// The Ansible of one build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) toolchain: Arc<Toolchain>,
    /// What the console says of it at the beginning.
    pub(crate) line: String,
    /// What the build's result says of it, where it is not what the job asked for.
    pub(crate) warning: Option<String>,
}

/// What serves a version of Ansible on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A managed environment, which starts: the version of the community package, and its toolchain.
    Environment(String, Toolchain),
    /// The named `ansible-playbook`, whose ansible-core is the version's.
    Named,
    /// The named `ansible-playbook`, whose ansible-core is another, because the settings allow it.
    Substitute,
    /// Nothing. `None`: none is installed; else why the one that is installed cannot be used.
    Nothing(Option<String>),
}

impl Versions {
    /// Looks at what is there. A broken environment is only a warning: other versions may be fine.
    pub(crate) async fn open(config: &ExecutorConfig) -> Result<Versions, ExecutorError> {
        let named = Toolchain::find(config).await;
        let versions = Versions {
            root: config.ansible_root.clone(),
            any_version: config.ansible_any_version,
            known: Mutex::default(),
            named: None,
        };
        let mut usable = false;
        for release in &RELEASES {
            match versions.environment(release.version).await {
                Ok(found) => usable |= found.is_some(),
                Err(reason) => tracing::warn!("{reason}: run `gatelog ansible install {}`", release.version),
            }
        }
        match named {
            Ok(toolchain) => Ok(Versions { named: Some(Arc::new(toolchain)), ..versions }),
            // One that was named must work; one that was only looked for need not be there.
            Err(error) if config.ansible_playbook.is_some() || !usable => Err(error),
            Err(_) => Ok(versions),
        }
    }

    /// The Ansible for a job that asks for `version`.
    ///
    /// # Errors
    /// There is none; the sentence says what to do.
    pub(crate) async fn choose(&self, version: &str) -> Result<Choice, String> {
        let version = if version.is_empty() { DEFAULT_RELEASE } else { version };
        let broken = match self.environment(version).await {
            Ok(Some((environment, toolchain))) => {
                let marker = &environment.marker;
                let line = format!("Ansible {} (ansible-core {})", marker.ansible, toolchain.version);
                return Ok(Choice { toolchain, line, warning: None });
            }
            Ok(None) => None,
            Err(reason) => Some(reason),
        };
        let cure = format!("run `gatelog ansible install {version}` on the executor's host");
        if let Some(reason) = broken {
            return Err(format!("{reason}: {cure}"));
        }
        let Some(toolchain) = self.named.clone() else {
            return Err(format!("the job asks for Ansible {version}, which is not installed on this executor: {cure}"));
        };
        let (core, path) = (&toolchain.version, toolchain.ansible_playbook.display());
        if Release::named(version).is_some_and(|release| release.has_core(core)) {
            let line = match &toolchain.community {
                Some(ansible) => format!("Ansible {ansible} (ansible-core {core}), {path}"),
                None => format!("ansible-core {core} for Ansible {version}, without its collections, {path}"),
            };
            return Ok(Choice { toolchain, line, warning: None });
        }
        if self.any_version {
            let warning = format!("the job asks for Ansible {version}, and ansible-core {core} ran it: {cure}");
            let line = format!("ansible-core {core} in place of Ansible {version}, {path}");
            return Ok(Choice { toolchain, line, warning: Some(warning) });
        }
        Err(format!(
            "the job asks for Ansible {version}, which is not installed on this executor (its ansible-playbook is \
             ansible-core {core}): {cure}"
        ))
    }

    /// Some Ansible, for what is no job's: checks at start.
    pub(crate) async fn any(&self) -> Option<Arc<Toolchain>> {
        match &self.named {
            Some(named) => Some(named.clone()),
            None => self.known.lock().await.values().next().cloned(),
        }
    }

    /// The managed environment of a version, and how it is started.
    async fn environment(&self, version: &str) -> Result<Option<(Environment, Arc<Toolchain>)>, String> {
        let Some(root) = &self.root else { return Ok(None) };
        let Some(environment) = environments::find(root, version).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut known = self.known.lock().await;
        if let Some(toolchain) = known.get(&environment.directory) {
            return Ok(Some((environment, toolchain.clone())));
        }
        let toolchain = Arc::new(start(&environment).await?);
        known.insert(environment.directory.clone(), toolchain.clone());
        Ok(Some((environment, toolchain)))
    }
}

/// Starts an environment once and sees that it is what its marker says.
///
/// # Errors
/// It is not; the sentence names the environment.
pub async fn start(environment: &Environment) -> Result<Toolchain, String> {
    let marker = &environment.marker;
    let broken = |reason: String| {
        format!("Ansible {} in {} cannot be used: {reason}", marker.release, environment.directory.display())
    };
    let toolchain = Toolchain::at(&environment.program("ansible-playbook")).await.map_err(|error| {
        // The usual cause, and pip's own message would not name it.
        match &error {
            ExecutorError::BadAnsible { reason, .. } => broken(format!(
                "{reason}; it was made with Python {}, and fails so after that Python was replaced or removed",
                marker.python
            )),
            other => broken(other.to_string()),
        }
    })?;
    if toolchain.version != marker.ansible_core {
        return Err(broken(format!(
            "ansible-core {} was installed, and {} starts",
            marker.ansible_core, toolchain.version
        )));
    }
    Ok(toolchain)
}

/// What serves each version on a host with these settings. `named` is what came of looking for `ansible-playbook`.
pub(crate) async fn served(
    config: &ExecutorConfig,
    named: &Result<Toolchain, ExecutorError>,
) -> Vec<(&'static Release, Served)> {
    let mut all = Vec::new();
    for release in &RELEASES {
        let found = match &config.ansible_root {
            Some(root) => environments::find(root, release.version).map_err(|error| error.to_string()),
            None => Ok(None),
        };
        let started = match found {
            Ok(Some(environment)) => start(&environment).await.map(|toolchain| Some((environment, toolchain))),
            Ok(None) => Ok(None),
            Err(reason) => Err(reason),
        };
        let served = match (started, named) {
            (Ok(Some((environment, toolchain))), _) => Served::Environment(environment.marker.ansible, toolchain),
            (Err(reason), _) => Served::Nothing(Some(reason)),
            (Ok(None), Ok(named)) if release.has_core(&named.version) => Served::Named,
            (Ok(None), Ok(_)) if config.ansible_any_version => Served::Substitute,
            (Ok(None), _) => Served::Nothing(None),
        };
        all.push((release, served));
    }
    all
}
