//! `gatelog.toml`: what a site is made of. Unknown keys are errors that name the place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The file's name in a site's directory.
pub const FILE: &str = "gatelog.toml";

/// A site's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteConfig {
    /// The tenant file (Zuul's language), relative to the site's directory.
    #[serde(default = "default_tenant_file")]
    pub tenant_file: PathBuf,
    /// Connections to code-review systems, by the name pipelines know them under.
    #[serde(default)]
    pub connection: BTreeMap<String, ConnectionConfig>,
    /// The API.
    #[serde(default)]
    pub web: WebConfig,
    /// Where builds run.
    #[serde(default)]
    pub executor: ExecutorSection,
    /// The log.
    #[serde(default)]
    pub log: LogSection,
}

fn default_tenant_file() -> PathBuf {
    "tenants.yaml".into()
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "kebab-case", tag = "driver")]
pub enum ConnectionConfig {
    /// The built-in plain-git forge: bare repositories in one directory.
    Git {
        /// The directory, relative to the site's.
        #[serde(default = "default_forge")]
        root: PathBuf,
        /// The host part of canonical project names.
        canonical_hostname: String,
        /// How often refs are looked at when no hook says anything, in milliseconds.
        #[serde(default = "default_poll")]
        poll_ms: u64,
    },
}

fn default_forge() -> PathBuf {
    "forge".into()
}

fn default_poll() -> u64 {
    1_000
}

/// The API.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WebConfig {
    /// The address it listens on. Port 0 takes a free one; `server.json` says which.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// How people reach it, for links in reports; the address it listens on if not set.
    #[serde(default)]
    pub root: Option<String>,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9000))
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig { listen: default_listen(), root: None }
    }
}

/// Where builds run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExecutorSection {
    /// How many builds run at once.
    #[serde(default = "default_slots")]
    pub slots: u32,
    /// `ansible-playbook`; found on PATH or by `GATELOG_ANSIBLE_PLAYBOOK` if not set.
    #[serde(default)]
    pub ansible_playbook: Option<PathBuf>,
    /// The labels of nodes its local cloud makes.
    #[serde(default = "default_labels")]
    pub labels: Vec<String>,
    /// Run builds without bubblewrap. Only for hosts where nothing runs that is not trusted.
    #[serde(default)]
    pub unsandboxed: bool,
}

fn default_labels() -> Vec<String> {
    vec!["sandbox".into()]
}

fn default_slots() -> u32 {
    2
}

impl Default for ExecutorSection {
    fn default() -> Self {
        ExecutorSection { slots: default_slots(), ansible_playbook: None, labels: default_labels(), unsandboxed: false }
    }
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogSection {
    /// A rung for time travel every so many events; 0 for none.
    #[serde(default = "default_rungs")]
    pub rung_every: u64,
}

fn default_rungs() -> u64 {
    10_000
}

impl Default for LogSection {
    fn default() -> Self {
        LogSection { rung_every: default_rungs() }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "{path}: {source}; a site's directory holds a {FILE}: `gatelog demo --keep --dir DIR` makes one to start from"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not right.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line, column and snippet.
        message: String,
    },
}

impl SiteConfig {
    /// Reads a site's configuration.
    pub fn read(site: &Path) -> Result<SiteConfig, ConfigError> {
        let path = site.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        toml::from_str(&text).map_err(|error| ConfigError::Parse { path, message: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_enough_and_a_misspelt_key_is_named() {
        let config: SiteConfig =
            toml::from_str("[connection.forge]\ndriver = \"git\"\ncanonical-hostname = \"git.demo\"\n").unwrap();
        assert_eq!(config.executor.slots, 2);
        let error = toml::from_str::<SiteConfig>("[executor]\nslot = 3\n").unwrap_err().to_string();
        assert!(error.contains("slot") && error.contains("line 2"), "{error}");
    }
}
