//! The plain-git forges of a site, as everybody who opens one has to see them: the server, the commands, the demo.

use std::path::Path;

use gatelog_driver_git::{Forge, ForgeConfig, ForgeError, HookProgram};

use crate::config::ConnectionConfig;
use crate::server::notify_dir;

/// The forge of a connection; its directory is made if need be. Hooks it writes ask this binary.
///
/// # Errors
/// As [`Forge::open`].
pub fn open(site: &Path, name: &str, connection: &ConnectionConfig) -> Result<Forge, ForgeError> {
    Forge::open(config(site, name, connection))
}

/// The same, whose directory has to be there.
///
/// # Errors
/// [`ForgeError::Io`] where it is not.
pub fn existing(site: &Path, name: &str, connection: &ConnectionConfig) -> Result<Forge, ForgeError> {
    let config = config(site, name, connection);
    match std::fs::read_dir(&config.directory) {
        Ok(_) => Forge::open(config),
        Err(source) => Err(ForgeError::Io { what: "cannot list", path: config.directory, source }),
    }
}

fn config(site: &Path, name: &str, connection: &ConnectionConfig) -> ForgeConfig {
    let ConnectionConfig::Git { root, canonical_hostname, .. } = connection;
    // Hooks run in the repository: what they are told has to be a whole path.
    let site = std::fs::canonicalize(site).unwrap_or_else(|_| site.to_owned());
    let mut config = ForgeConfig::new(site.join(root), canonical_hostname.clone());
    config.notify = Some(notify_dir(&site, name));
    let program = std::env::current_exe().ok();
    config.hooks = program.map(|program| HookProgram { program, site, connection: name.to_owned() });
    config
}
