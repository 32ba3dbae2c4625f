//! A cloud's driver: a value in the list of a site's clouds.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use gatelog_record::Timestamp;

use crate::cloud::Cloud;
use crate::refusal::Trouble;

/// A cloud's driver.
#[derive(Clone, Copy)]
pub struct CloudDriver {
    /// What it is called in `gatelog.toml`.
    pub name: &'static str,
    /// Reads its own settings. Keys it does not know are errors; secrets are in files that keys name. Touches nothing.
    pub read: fn(toml::Table) -> Result<Arc<dyn CloudSettings>, SettingsError>,
}

impl fmt::Debug for CloudDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudDriver({})", self.name)
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

/// What a cloud is opened with.
#[derive(Clone, Debug)]
pub struct Opening<'a> {
    /// The name of its connection.
    pub name: &'a str,
    /// The site's directory: paths in settings are relative to it.
    pub site: &'a Path,
    /// The site's id, as it stands in whatever is made; `None` where all that the cloud can hold is this site's.
    pub site_id: Option<&'a str>,
    /// The machine's time.
    pub now: fn() -> Timestamp,
}

/// The settings of one cloud.
pub trait CloudSettings: Any + fmt::Debug + Send + Sync {
    /// Opens the cloud. What was cut short in the making is removed; asks nobody over a network.
    ///
    /// # Errors
    /// Settings that cannot work.
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, Trouble>;
}

/// A cloud, opened: the parts it has.
#[derive(Clone)]
pub struct Opened {
    /// Its nodes.
    pub nodes: Arc<dyn Cloud>,
}
