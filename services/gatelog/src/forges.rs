//! The plain-git forges of a site, as everybody who opens one has to see them: the commands, the demo. Other connections
//! have no such commands.

use std::any::Any;
use std::path::Path;

use gatelog_driver_git::{Forge, ForgeConfig, ForgeError, GitSettings};

use crate::config::ConnectionConfig;

/// The settings of a connection that is such a forge.
pub fn settings(connection: &ConnectionConfig) -> Option<&GitSettings> {
    let settings: &dyn Any = &*connection.settings;
    settings.downcast_ref()
}

/// The forge of a connection; its directory is made if need be. Hooks it writes ask this binary.
///
/// # Errors
/// As [`Forge::open`].
pub fn open(site: &Path, name: &str, settings: &GitSettings) -> Result<Forge, ForgeError> {
    Forge::open(config(site, name, settings))
}

/// The same, whose directory has to be there.
///
/// # Errors
/// [`ForgeError::Io`] where it is not.
pub fn existing(site: &Path, name: &str, settings: &GitSettings) -> Result<Forge, ForgeError> {
    Forge::open_existing(config(site, name, settings))
}

fn config(site: &Path, name: &str, settings: &GitSettings) -> ForgeConfig {
    settings.forge(site, name, std::env::current_exe().ok())
}
