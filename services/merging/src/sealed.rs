//! Repositories that know their own configuration and nobody else's.
//!
//! libgit2 reads what the machine and whoever runs gatelog have configured for git: names of merge drivers, limits on
//! renames, ends of lines and attributes of files. Two mergers would then make different commits of the same changes,
//! and jobs would find other bytes in their workspaces than in the commits. The git program is asked without these, too.

use std::fs;
use std::io;
use std::path::Path;

use git2::{Config, ConfigLevel, Repository};

/// In the directory of mirrors: what is said in place of the user's configuration.
const NAME: &str = "gitconfig";
/// Without a name for it, libgit2 looks for a file of attributes in the user's home.
const TEXT: &str = "[core]\n\tattributesFile = /dev/null\n";

/// Writes what stands in place of the user's configuration, unless it is there.
pub(crate) fn write(root: &Path) -> io::Result<()> {
    let path = root.join(NAME);
    match fs::read_to_string(&path) {
        Ok(text) if text == TEXT => Ok(()),
        // Others may read it meanwhile.
        _ => {
            let beside = root.join(format!("{NAME}.{}", std::process::id()));
            fs::write(&beside, TEXT).and_then(|()| fs::rename(&beside, &path))
        }
    }
}

/// Takes the machine's and the user's configuration away from an open repository.
pub(crate) fn seal(root: &Path, repository: Repository) -> Result<Repository, git2::Error> {
    let mut config = Config::new()?;
    config.add_file(&root.join(NAME), ConfigLevel::Global, false)?;
    config.add_file(&repository.commondir().join("config"), ConfigLevel::Local, false)?;
    repository.set_config(&config)?;
    Ok(repository)
}
