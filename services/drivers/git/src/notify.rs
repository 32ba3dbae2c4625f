//! Word of a push, from the hook to the server: an empty file for each project that was pushed to.
//!
//! A directory and not a socket, because a shell script can only write files, and because it must
//! neither wait nor fail when no server runs. The number of files is bounded by that of projects.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::ForgeError;
use crate::forge::Forge;

/// How often the directory is looked at. A glance costs a few microseconds.
const GLANCE: Duration = Duration::from_millis(20);

/// The server's end.
#[derive(Debug)]
pub struct Notifier {
    directory: PathBuf,
}

impl Notifier {
    /// Opens (or makes) the directory that [`crate::ForgeConfig::notify`] names.
    ///
    /// # Errors
    /// [`ForgeError::Io`].
    pub fn open(directory: impl Into<PathBuf>) -> Result<Notifier, ForgeError> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(|e| ForgeError::io("cannot make", &directory, e))?;
        Ok(Notifier { directory })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until somebody pushes, at most this long, and says to which projects; none when
    /// nobody did. To be polled after it was named here: a push that comes meanwhile is named
    /// again.
    ///
    /// # Errors
    /// [`ForgeError::Io`].
    pub fn wait(&self, at_most: Duration) -> Result<Vec<String>, ForgeError> {
        let deadline = Instant::now() + at_most;
        loop {
            let found = self.take()?;
            let now = Instant::now();
            if !found.is_empty() || now >= deadline {
                return Ok(found);
            }
            std::thread::sleep(GLANCE.min(deadline - now));
        }
    }

    fn take(&self) -> Result<Vec<String>, ForgeError> {
        let mut found = Vec::new();
        let wrap = |e| ForgeError::io("cannot read", &self.directory, e);
        for entry in fs::read_dir(&self.directory).map_err(wrap)? {
            let entry = entry.map_err(wrap)?;
            // Removed before the caller looks: what is pushed after that leaves a new file.
            if fs::remove_file(entry.path()).is_ok()
                && let Some(project) = entry.file_name().to_str().and_then(project_of)
            {
                found.push(project);
            }
        }
        found.sort();
        Ok(found)
    }
}

impl Forge {
    /// Leaves word of what was merged or made here, as a hook does of a push. Without it, it is found when refs are
    /// looked at the next time.
    pub fn leave_word(&self, project: &str) {
        if let Some(directory) = &self.config.notify
            && let Err(error) = fs::write(directory.join(spool_name(project)), [])
        {
            tracing::debug!(project, %error, "no word is left of what was done");
        }
    }
}

/// A project's name as a file name.
pub(crate) fn spool_name(project: &str) -> String {
    project.replace('%', "%25").replace('/', "%2F")
}

fn project_of(name: &str) -> Option<String> {
    let project = name.replace("%2F", "/").replace("%25", "%");
    crate::change::check_project(&project).is_ok().then_some(project)
}
