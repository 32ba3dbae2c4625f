//! The plain-git forges of a site, as everybody who opens one has to see them: the server, the commands, the demo.

use std::path::Path;

use gatelog_driver_git::{Forge, ForgeConfig, ForgeError, HookProgram};

use crate::config::ConnectionConfig;
use crate::server::notify_dir;

/// The forge of a connection. Hooks it writes ask this binary.
///
/// # Errors
/// As [`Forge::open`].
pub fn open(site: &Path, name: &str, connection: &ConnectionConfig) -> Result<Forge, ForgeError> {
    let ConnectionConfig::Git { root, canonical_hostname, .. } = connection;
    // Hooks run in the repository: what they are told has to be a whole path.
    let site = std::fs::canonicalize(site).unwrap_or_else(|_| site.to_owned());
    let mut config = ForgeConfig::new(site.join(root), canonical_hostname.clone());
    config.notify = Some(notify_dir(&site, name));
    config.hooks = std::env::current_exe().ok().map(|program| HookProgram {
        program,
        site: site.clone(),
        connection: name.to_owned(),
    });
    Forge::open(config)
}
