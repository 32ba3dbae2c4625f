//! Changing refs: always from an expected value, in one step, with a reflog entry that names
//! gatelog.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use git2::{ErrorCode, Oid, Repository, Signature};

use crate::error::ForgeError;

/// How long to wait while another program holds a ref's lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// A lock file that stands for longer than this was left by a program that died: git holds one for milliseconds.
const LOCK_STALE: Duration = Duration::from_secs(3);

/// What became of a change of a ref.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// It was done.
    Done,
    /// The ref had another value, and was left alone.
    Moved(Option<Oid>),
}

/// What tells one lock from another: its inode, and when that changed.
type Lock = (u64, i64, i64);

/// The value of a ref.
pub(crate) fn read(repo: &Repository, project: &str, name: &str) -> Result<Option<Oid>, ForgeError> {
    match repo.refname_to_id(name) {
        Ok(id) => Ok(Some(id)),
        Err(e) if matches!(e.code(), ErrorCode::NotFound | ErrorCode::InvalidSpec) => Ok(None),
        Err(e) => Err(ForgeError::git(project, "cannot read a ref")(e)),
    }
}

/// Gives a ref a new value (`None` deletes it) if it has the expected one (`None`: if it is not
/// there). git's own pushes take the same lock, so of two only one succeeds.
pub(crate) fn compare_and_swap(
    repo: &Repository,
    project: &str,
    name: &str,
    expected: Option<Oid>,
    new: Option<Oid>,
    who: &Signature<'_>,
    message: &str,
) -> Result<Swap, ForgeError> {
    let wrap = ForgeError::git(project, "cannot update a ref");
    let mut transaction = repo.transaction().map_err(&wrap)?;
    let path = repo.path().join(format!("{name}.lock"));
    let deadline = Instant::now() + LOCK_WAIT;
    let mut seen: Option<(Lock, Instant)> = None;
    loop {
        match transaction.lock_ref(name) {
            Ok(()) => break,
            Err(e) if e.code() == ErrorCode::Locked && Instant::now() < deadline => {
                let lock = std::fs::metadata(&path).ok().map(|file| (file.ino(), file.ctime(), file.ctime_nsec()));
                // Watched, not dated: by the machine's clock, which may be set, it could be taken for old at once or never.
                match (lock, seen) {
                    (Some(lock), Some((before, _))) if lock == before => {}
                    (lock, _) => seen = lock.map(|lock| (lock, Instant::now())),
                }
                if seen.is_some_and(|(_, since)| since.elapsed() > LOCK_STALE) {
                    tracing::warn!(path = %path.display(), "a lock left by a process that died is removed");
                    let _ = std::fs::remove_file(&path);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) if e.code() == ErrorCode::Locked => {
                return Err(ForgeError::Locked { project: project.to_owned(), name: name.to_owned(), path });
            }
            Err(e) => return Err(wrap(e)),
        }
    }
    // Read under the lock: nobody can move it between here and the commit.
    let found = read(repo, project, name)?;
    if found != expected {
        return Ok(Swap::Moved(found));
    }
    match new {
        Some(new) => {
            let message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            transaction.set_target(name, new, Some(who), &message).map_err(&wrap)?;
        }
        None if found.is_none() => return Ok(Swap::Done),
        None => transaction.remove(name).map_err(&wrap)?,
    }
    transaction.commit().map_err(&wrap)?;
    Ok(Swap::Done)
}
