//! Repositories that know their own configuration and nobody else's.
//!
//! libgit2 reads what the machine and whoever runs gatelog have configured for git: names of merge drivers, limits on
//! renames, ends of lines and attributes of files. Two mergers would then make different commits of the same changes,
//! and jobs would find other bytes in their workspaces than in the commits. The git program is asked without these, too.
//!
//! One thing is left: the attributes of the whole machine (`/etc/gitattributes`), which libgit2 looks at when it writes
//! files. Only an unsafe call would keep it from that.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use git2::{Config, ConfigLevel, Repository};

/// In the directory of mirrors: what is said in place of the user's configuration.
const NAME: &str = "gitconfig";
/// Without a name for it, libgit2 looks for a file of attributes in the user's home.
const TEXT: &str = "[core]\n\tattributesFile = /dev/null\n";

/// Numbers what this process writes.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Writes what stands in place of the user's configuration, unless it is there. Others may read it meanwhile, and write
/// it too.
pub(crate) fn write(root: &Path) -> io::Result<()> {
    let path = root.join(NAME);
    let is_there = || fs::read_to_string(&path).is_ok_and(|text| text == TEXT);
    if is_there() {
        return Ok(());
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = root.join(format!("{NAME}.{}.{number}", std::process::id()));
    let written = fs::write(&beside, TEXT).and_then(|()| fs::rename(&beside, &path));
    // A process of another host may have the same number, and be first.
    written.or_else(|error| if is_there() { Ok(()) } else { Err(error) })
}

/// Takes the machine's and the user's configuration away from an open repository.
pub(crate) fn seal(root: &Path, repository: Repository) -> Result<Repository, git2::Error> {
    let mut config = Config::new()?;
    config.add_file(&root.join(NAME), ConfigLevel::Global, false)?;
    config.add_file(&repository.commondir().join("config"), ConfigLevel::Local, false)?;
    repository.set_config(&config)?;
    Ok(repository)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_write_it_at_once_and_it_is_whole_for_each() {
        let root = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    write(root.path()).unwrap();
                    assert_eq!(fs::read_to_string(root.path().join(NAME)).unwrap(), TEXT);
                });
            }
        });
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        fs::write(root.path().join(NAME), "[core]\n").unwrap();
        write(root.path()).unwrap();
        assert_eq!(fs::read_to_string(root.path().join(NAME)).unwrap(), TEXT);
        assert!(write(&root.path().join("nowhere")).is_err());
    }
}
