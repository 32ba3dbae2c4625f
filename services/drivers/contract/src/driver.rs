//! A driver: a value in the list of a site's drivers.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_driver_schema::DriverSchema;
use gatelog_record::Timestamp;
use gatelog_secrets::Keyring;

use crate::connection::Connection;
use crate::trouble::Trouble;

/// A driver.
#[derive(Clone, Copy)]
pub struct Driver {
    /// What `driver = "…"` of a connection in `gatelog.toml` says.
    pub name: &'static str,
    /// What pipelines may say to its connections, and what it is called there and in the API.
    pub schema: &'static DriverSchema,
    /// Reads its own section of `gatelog.toml`, without the key `driver`. Keys it does not know are errors; secrets are in
    /// files that keys name. Touches nothing.
    pub read: fn(toml::Table) -> Result<Arc<dyn Settings>, SettingsError>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({})", self.name)
    }
}

/// What is wrong with a section, in the words of the reader of `gatelog.toml`: of a key that is none, it names the known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

impl From<toml::de::Error> for SettingsError {
    fn from(error: toml::de::Error) -> SettingsError {
        SettingsError(error.message().to_owned())
    }
}

/// What a connection is opened with.
#[derive(Clone, Debug)]
pub struct Opening<'a> {
    /// The connection's name.
    pub name: &'a str,
    /// The site's directory: paths in settings are relative to it.
    pub site: &'a Path,
    /// Seals what may have to disappear, and makes ids of accounts.
    pub keyring: Arc<Keyring>,
    /// The machine's time.
    pub now: fn() -> Timestamp,
    /// The gatelog that programs the driver leaves behind (hooks) may run; `None` where there is none.
    pub program: Option<PathBuf>,
}

/// The settings of one connection.
pub trait Settings: Any + fmt::Debug + Send + Sync {
    /// The host part of its projects' canonical names, where it has projects.
    fn canonical_hostname(&self) -> Option<&str>;

    /// Opens the connection. May make what is its own on this host (directories); asks nobody over a network, so that a
    /// site starts while the other side is away.
    ///
    /// # Errors
    /// What keeps it from ever working: files that are not there, settings that contradict each other.
    fn open(&self, opening: &Opening<'_>) -> Result<Connection, Trouble>;

    /// Looks whether an opening would go well and the other side can be reached, and changes nothing anywhere.
    fn look(&self, opening: &Opening<'_>) -> Looked;
}

/// A connection that was looked at.
pub struct Looked {
    /// It, as far as it can be read from.
    pub connection: Option<Connection>,
    /// What was found, in a few words; or what is missing.
    pub found: Result<String, Lack>,
}

/// What a connection lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {cure}")]
pub struct Lack {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub cure: String,
}
