//! Where checkpoints go. A directory is the first such place; a git repository or an object store can be another: all
//! that is asked of one is to keep a small text under a name, and to give it back.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use gatelog_audit::checkpoint::LONGEST;

/// Why a text could not be published or had.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The place cannot be used.
    #[error("{place}: {why}; see to it that gatelog can write there, or name another [audit] checkpoint-directory")]
    Place {
        /// Where.
        place: String,
        /// What the system said.
        why: std::io::Error,
    },
    /// Something else stands under the name.
    #[error("{place} holds something else than what was published there: somebody changed it")]
    Changed {
        /// Where.
        place: String,
    },
}

/// A place outside of the site.
pub trait Publisher: Send + Sync {
    /// Keeps a text under a name, durable when this returns; gives where that is, for people. The same again does
    /// nothing.
    ///
    /// # Errors
    /// [`PublishError`]
    fn publish(&self, name: &str, text: &[u8]) -> Result<String, PublishError>;

    /// The names in a folder, without it, in order.
    ///
    /// # Errors
    /// [`PublishError`]
    fn list(&self, folder: &str) -> Result<Vec<String>, PublishError>;

    /// What stands under a name; at most so much that a longer one is seen to be none.
    ///
    /// # Errors
    /// [`PublishError`]
    fn read(&self, name: &str) -> Result<Vec<u8>, PublishError>;
}

/// A directory.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// This one. It is made when something is published.
    pub fn new(path: impl Into<PathBuf>) -> Directory {
        Directory(path.into())
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> PublishError {
    let place = path.display().to_string();
    move |why| PublishError::Place { place, why }
}

fn read_at_most(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Publisher for Directory {
    fn publish(&self, name: &str, text: &[u8]) -> Result<String, PublishError> {
        let path = self.0.join(name);
        let place = path.display().to_string();
        match read_at_most(&path) {
            Ok(there) if there == text => return Ok(place),
            Ok(_) => return Err(PublishError::Changed { place }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(at(&path)(error)),
        }
        let folder = path.parent().unwrap_or(&self.0);
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = File::create(&part)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(at(&path))?;
        Ok(place)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, PublishError> {
        let path = self.0.join(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&path)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.map_err(at(&path))?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, PublishError> {
        let path = self.0.join(name);
        read_at_most(&path).map_err(at(&path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_kept_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let outside = Directory::new(dir.path().join("witness"));
        assert_eq!(outside.list("a/b").unwrap(), Vec::<String>::new());
        let place = outside.publish("a/b/2.checkpoint", b"two").unwrap();
        assert!(place.ends_with("witness/a/b/2.checkpoint"), "{place}");
        outside.publish("a/b/1.checkpoint", b"one").unwrap();
        outside.publish("a/b/2.checkpoint", b"two").unwrap();
        assert_eq!(outside.list("a/b").unwrap(), ["1.checkpoint", "2.checkpoint"]);
        assert_eq!(outside.read("a/b/2.checkpoint").unwrap(), b"two");
        let error = outside.publish("a/b/2.checkpoint", b"three").unwrap_err().to_string();
        assert!(error.contains("2.checkpoint holds something else"), "{error}");
        assert_eq!(outside.read("a/b/2.checkpoint").unwrap(), b"two");
        let error = outside.read("a/b/3.checkpoint").unwrap_err().to_string();
        assert!(error.contains("3.checkpoint") && error.contains("checkpoint-directory"), "{error}");
    }
}
