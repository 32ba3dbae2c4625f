//! Gerrit's section of `gatelog.toml`, in Zuul's key names, and what is opened by it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gatelog_driver_contract::{Connection, Driver, Lack, Looked, Opening, Settings, Trouble};
use serde::Deserialize;
use url::Url;

use crate::client::Gerrit;
use crate::config::{GerritConfig, Limits, SshConfig};
use crate::connection::{GerritConnection, trouble};
use crate::error::GerritError;
use crate::git::Git;
use crate::schema::SCHEMA;
use crate::submit::Mode;

/// Gerrit in the list of drivers.
pub const DRIVER: Driver = Driver {
    name: "gerrit",
    schema: &SCHEMA,
    read: |section| {
        let settings: GerritSettings = section.try_into()?;
        Ok(Arc::new(settings))
    },
};

/// How changes are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubmitBy {
    /// Gerrit merges.
    #[default]
    Gerrit,
    /// The tested commit is pushed.
    Push,
}

/// `[connection.NAME]` with `driver = "gerrit"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GerritSettings {
    /// The host, for SSH and, where `baseurl` is missing, for HTTPS.
    pub server: String,
    /// The host part of canonical project names; `server` where it is missing.
    pub canonical_hostname: Option<String>,
    /// Where Gerrit's web server answers.
    pub baseurl: Option<String>,
    /// The account.
    #[serde(default = "default_user")]
    pub user: String,
    /// The file with its HTTP password, relative to the site's directory.
    pub password_file: PathBuf,
    /// The SSH server's port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// The file of the SSH key, relative to the site's directory.
    pub sshkey: PathBuf,
    /// The file with the host's SSH key, relative to the site's directory.
    pub known_hosts: PathBuf,
    /// After how many seconds of silence the stream is probed.
    #[serde(default = "default_keepalive")]
    pub keepalive: u64,
    /// Whether git goes over SSH.
    #[serde(default)]
    pub git_over_ssh: bool,
    /// How many seconds a merge may take to be seen on every server of the site.
    #[serde(default)]
    pub replication_delay: u64,
    /// How many changes may hang together.
    pub max_dependencies: Option<usize>,
    /// Who merges.
    #[serde(default)]
    pub submit_by: SubmitBy,
}

fn default_user() -> String {
    "zuul".to_owned()
}

fn default_port() -> u16 {
    29_418
}

fn default_keepalive() -> u64 {
    60
}

impl GerritSettings {
    fn config(&self, opening: &Opening<'_>) -> Result<GerritConfig, GerritError> {
        let address = self.baseurl.clone().unwrap_or_else(|| format!("https://{}/", self.server));
        let base_url = Url::parse(&address)
            .map_err(|error| GerritError::BadSetting { setting: "baseurl", why: format!("{address:?}: {error}") })?;
        let limits = Limits::default();
        Ok(GerritConfig {
            base_url,
            canonical_hostname: self.canonical_hostname.clone().unwrap_or_else(|| self.server.clone()),
            user: self.user.clone(),
            password_file: opening.site.join(&self.password_file),
            ssh: SshConfig {
                host: self.server.clone(),
                port: self.port,
                key: opening.site.join(&self.sshkey),
                known_hosts: opening.site.join(&self.known_hosts),
                keepalive_s: self.keepalive,
            },
            git_over_ssh: self.git_over_ssh,
            replication_delay: Duration::from_secs(self.replication_delay),
            limits: Limits { closure: self.max_dependencies.unwrap_or(limits.closure), ..limits },
        })
    }

    fn connection(&self, opening: &Opening<'_>) -> Result<GerritConnection, GerritError> {
        let config = self.config(opening)?;
        let mode = match self.submit_by {
            SubmitBy::Gerrit => Mode::ByGerrit,
            SubmitBy::Push => Mode::Exact,
        };
        let (gerrit, git) = (Gerrit::new(config.clone())?, Git::new(config)?);
        Ok(GerritConnection::new(opening.name, gerrit, git, mode, Arc::clone(&opening.keyring), opening.now))
    }
}

fn whole(opening: &Opening<'_>, connection: GerritConnection) -> Connection {
    let connection = Arc::new(connection);
    Connection::new(opening.name, &SCHEMA)
        .with_review(Arc::clone(&connection) as _)
        .with_reporter(Arc::clone(&connection) as _)
        .with_intake(connection)
}

impl Settings for GerritSettings {
    fn canonical_hostname(&self) -> Option<&str> {
        Some(self.canonical_hostname.as_ref().unwrap_or(&self.server))
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Connection, Trouble> {
        for (key, file) in [("sshkey", &self.sshkey), ("known_hosts", &self.known_hosts)] {
            let file = opening.site.join(file);
            if !file.is_file() {
                let message =
                    format!("{key} of [connection.{}] is {}, which is not there", opening.name, file.display());
                return Err(Trouble::new("bad-setting", message));
            }
        }
        let connection = self.connection(opening).map_err(|error| trouble(&error, opening.now))?;
        Ok(whole(opening, connection))
    }

    fn look(&self, opening: &Opening<'_>) -> Looked {
        let lack = |error: &GerritError| Lack { what: error.to_string(), cure: cure(error, opening.name) };
        let connection = match self.connection(opening) {
            Ok(connection) => connection,
            Err(error) => return Looked { connection: None, found: Err(lack(&error)) },
        };
        let found = match connection.look() {
            Err(error) => Err(lack(&error)),
            Ok((version, streams)) if streams => Ok(format!("Gerrit {version}, as {}", self.user)),
            Ok(_) => Err(Lack {
                what: format!("account {} may not stream events", self.user),
                cure: "put it into the group Service Users, or give it the global capability Stream Events".to_owned(),
            }),
        };
        Looked { connection: Some(whole(opening, connection)), found }
    }
}

fn cure(error: &GerritError, name: &str) -> String {
    match error {
        GerritError::Unauthorized { .. } => "make a new HTTP password for the account".to_owned(),
        GerritError::Unreachable { .. } => {
            format!("see whether Gerrit runs, and whether baseurl of [connection.{name}] is right")
        }
        GerritError::Forbidden { .. } => "give the account the rights of docs/gerrit.md".to_owned(),
        _ => format!("correct [connection.{name}]"),
    }
}
