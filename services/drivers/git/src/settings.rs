//! The forge's section of `gatelog.toml`, and what is opened by it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gatelog_driver_contract::{Connection, Driver, Lack, Looked, Opening, Settings, Trouble, chain};
use serde::Deserialize;

use crate::connection::{GitConnection, trouble};
use crate::error::ForgeError;
use crate::forge::{Forge, ForgeConfig};
use crate::schema::SCHEMA;
use crate::setup::HookProgram;

/// The forge in the list of drivers.
pub const DRIVER: Driver = Driver {
    name: "git",
    schema: &SCHEMA,
    read: |section| {
        let settings: GitSettings = section.try_into()?;
        Ok(Arc::new(settings))
    },
};

/// The least time between two looks at all refs.
const POLL_LEAST: Duration = Duration::from_millis(50);

/// `[connection.NAME]` with `driver = "git"`: bare repositories in one directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GitSettings {
    /// The directory, relative to the site's.
    #[serde(default = "default_root")]
    pub root: PathBuf,
    /// The host part of canonical project names.
    pub canonical_hostname: String,
    /// How often refs are looked at when no hook says anything, in milliseconds.
    #[serde(default = "default_poll")]
    pub poll_ms: u64,
}

fn default_root() -> PathBuf {
    "forge".into()
}

fn default_poll() -> u64 {
    1_000
}

impl GitSettings {
    /// The forge as everybody has to see it who opens it for a site: the server, the commands, the demo. Hooks it writes
    /// run `program`, and leave word of pushes in the site's directory.
    pub fn forge(&self, site: &Path, connection: &str, program: Option<PathBuf>) -> ForgeConfig {
        // Hooks run in the repository: what they are told has to be a whole path.
        let site = std::fs::canonicalize(site).unwrap_or_else(|_| site.to_owned());
        let mut config = ForgeConfig::new(site.join(&self.root), self.canonical_hostname.clone());
        config.notify = Some(site.join("notify").join(connection));
        config.hooks = program.map(|program| HookProgram { program, site, connection: connection.to_owned() });
        config
    }

    /// How often all refs are looked at.
    pub fn poll_every(&self) -> Duration {
        Duration::from_millis(self.poll_ms).max(POLL_LEAST)
    }

    fn connection(&self, opening: &Opening<'_>, forge: Forge) -> Connection {
        let keyring = Arc::clone(&opening.keyring);
        let forge = GitConnection::new(opening.name, forge, keyring).looking_every(self.poll_every());
        let forge = Arc::new(forge);
        Connection::new(opening.name, &SCHEMA)
            .with_review(Arc::clone(&forge) as _)
            .with_reporter(Arc::clone(&forge) as _)
            .with_intake(forge)
    }
}

impl Settings for GitSettings {
    fn canonical_hostname(&self) -> Option<&str> {
        Some(&self.canonical_hostname)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Connection, Trouble> {
        let config = self.forge(opening.site, opening.name, opening.program.clone());
        let forge = Forge::open(config).map_err(|error| trouble(&error))?;
        Ok(self.connection(opening, forge))
    }

    fn look(&self, opening: &Opening<'_>) -> Looked {
        let name = opening.name;
        let place = opening.site.join(&self.root);
        let lack = |what: String, cure: String| Lack { what, cure };
        let nothing = |lack| Looked { connection: None, found: Err(lack) };
        if !place.is_dir() {
            let cure = format!("set root under [connection.{name}] to the directory of bare repositories, or make it");
            return nothing(lack(format!("{} is not there", place.display()), cure));
        }
        // Without hooks and without a directory for their words: nothing is written.
        let forge = match Forge::open(ForgeConfig::new(&place, self.canonical_hostname.clone())) {
            Ok(forge) => forge,
            Err(error) => return nothing(lack(chain(&error), format!("correct [connection.{name}]"))),
        };
        let found = match forge.projects() {
            Ok(all) => Ok(format!("{} in {}", all.len(), place.display())),
            Err(error) => Err(lack(chain(&error), "let the user of gatelog read the directory".to_owned())),
        };
        Looked { connection: Some(self.connection(opening, forge)), found }
    }
}

impl Forge {
    /// As [`Forge::open`], of a directory that has to be there.
    ///
    /// # Errors
    /// [`ForgeError::Io`] where it is not.
    pub fn open_existing(config: ForgeConfig) -> Result<Forge, ForgeError> {
        match std::fs::read_dir(&config.directory) {
            Ok(_) => Forge::open(config),
            Err(source) => Err(ForgeError::io("cannot list", config.directory, source)),
        }
    }
}
