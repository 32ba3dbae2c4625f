//! Mirrors that stay open between requests.
//!
//! To open a repository costs little, but everything read through it begins anew: the indexes of its packs are mapped
//! and searched, and the commits on the way to a merge base unpacked. One that stays open has these in memory. In a
//! large history that is most of what a single merge costs.
//!
//! What libgit2 keeps of a repository stays true while others work on it: objects never change, a look-up that finds
//! nothing looks at the disk again, refs are read from it each time. Two things do not: a mirror that was discarded and
//! made anew, and packs that were put together (or pruned, by somebody's `git gc`), whose files a long open repository
//! would go on using. So who takes one that is open compares the mark of the mirror and the list of its packs with those
//! of when it was opened, and opens it again when they differ. Nothing of this is on disk: a crash leaves nothing behind.

use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use git2::Repository;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

/// A repository of more packs than this does not stay open: each may hold a file open.
const PACKS_MAX: usize = 24;

/// Mirrors that are open, at most so many.
pub(crate) struct Kept {
    places: Vec<Mutex<Option<Place>>>,
    turn: AtomicU64,
    opened: AtomicU64,
    reused: AtomicU64,
}

struct Place {
    path: PathBuf,
    seen: Seen,
    /// When it was last taken; the oldest makes room.
    turn: u64,
    repository: Repository,
}

/// What must be as it was for an open mirror to be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Device, inode and change time of the mark: of one made anew they differ.
    mark: (u64, u64, i64, i64),
    /// The names in the directory of packs, sorted.
    packs: Vec<OsString>,
}

impl Seen {
    /// As it is now; `None`: it is not there, or not fit to stay open.
    fn of(path: &Path, mark: &str) -> Option<Seen> {
        let found = fs::metadata(path.join(mark)).ok()?;
        let mut packs = Vec::new();
        for entry in fs::read_dir(path.join("objects/pack")).ok()? {
            packs.push(entry.ok()?.file_name());
        }
        packs.sort();
        let indexes = packs.iter().filter(|name| Path::new(name).extension().is_some_and(|end| end == "idx")).count();
        let mark = (found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
        (indexes <= PACKS_MAX).then_some(Seen { mark, packs })
    }
}

/// An open mirror: one that stays open, or one of the holder's own.
pub(crate) enum Open<'a> {
    /// Taken for as long as this lives.
    Kept(MappedMutexGuard<'a, Repository>),
    /// Closed afterwards.
    Own(Repository),
}

impl Deref for Open<'_> {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        match self {
            Open::Kept(repository) => repository,
            Open::Own(repository) => repository,
        }
    }
}

impl Kept {
    /// None is open yet.
    pub(crate) fn new(max: usize) -> Kept {
        Kept {
            places: (0..max).map(|_| Mutex::new(None)).collect(),
            turn: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
        }
    }

    /// How often a mirror was opened, and how often one was open already.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.opened.load(Ordering::Relaxed), self.reused.load(Ordering::Relaxed))
    }

    /// Takes a mirror that is open and that nobody else has, or opens it. `mark` is the name of the file that says that it
    /// is whole. Never waits for anybody.
    pub(crate) fn take<E>(
        &self,
        path: &Path,
        mark: &str,
        open: impl FnOnce() -> Result<Repository, E>,
    ) -> Result<Open<'_>, E> {
        // Looked at before it is opened: what comes meanwhile makes a difference next time.
        let seen = Seen::of(path, mark);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut room: Option<MutexGuard<'_, Option<Place>>> = None;
        for place in &self.places {
            let Some(mut place) = place.try_lock() else { continue };
            match &mut *place {
                Some(known) if known.path == path && Some(&known.seen) == seen.as_ref() => {
                    known.turn = turn;
                    if let Ok(repository) =
                        MutexGuard::try_map(place, |place| place.as_mut().map(|place| &mut place.repository))
                    {
                        self.reused.fetch_add(1, Ordering::Relaxed);
                        return Ok(Open::Kept(repository));
                    }
                    continue;
                }
                Some(known) if known.path == path => *place = None,
                _ => {}
            }
            let age = |place: &Option<Place>| place.as_ref().map(|place| place.turn);
            if room.as_ref().is_none_or(|room| age(&place) < age(room)) {
                room = Some(place);
            }
        }
        let repository = open()?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (Some(room), Some(seen)) = (room, seen) else { return Ok(Open::Own(repository)) };
        let place = Place { path: path.to_owned(), seen, turn, repository };
        Ok(Open::Kept(MutexGuard::map(room, |room| &mut room.insert(place).repository)))
    }

    /// Closes a mirror, unless somebody has it.
    pub(crate) fn forget(&self, path: &Path) {
        for place in &self.places {
            if let Some(mut place) = place.try_lock()
                && place.as_ref().is_some_and(|place| place.path == path)
            {
                *place = None;
            }
        }
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (opened, reused) = self.counts();
        f.debug_struct("Kept").field("opened", &opened).field("reused", &reused).finish_non_exhaustive()
    }
}
