//! The directory of mirrors: where they are, who may write, how one comes to be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gatelog_event_log::failpoint;
use git2::{ObjectType, Odb, Oid, Repository, RepositoryInitOptions};
use parking_lot::Mutex;

use crate::error::MergeError;
use crate::kept::{Kept, Open};
use crate::known::Known;
use crate::names::{ProjectKey, branch_ref, commit_id, directory_name, work_id};
use crate::pick::Tally;
use crate::remote::Access;
use crate::sealed;
use crate::seen::Seen;

/// The file that says a mirror was finished; a directory without it is a half-made clone.
const COMPLETE: &str = "gatelog-mirror";

/// Where the commits of a piece of work are kept from being collected.
pub(crate) const PREPARED: &str = "refs/gatelog/prepared";

/// How often old work of a project is looked for, and how much of it is let go at once, for a request waits for it.
const TIDY_EVERY: Duration = Duration::from_secs(3600);
const TIDY_MOST: usize = 500;

/// The name on the commits that gatelog makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of author and committer.
    pub name: String,
    /// The mail address of author and committer.
    pub email: String,
}

impl Default for Identity {
    fn default() -> Self {
        Identity { name: "gatelog".to_owned(), email: "gatelog@localhost".to_owned() }
    }
}

/// Limits on what one request may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most refs a repository may have.
    pub refs: usize,
    /// The most items in one chain.
    pub items: usize,
    /// The most commits one change may bring when it is rebased, and the most commits of the branch
    /// that are compared with them.
    pub commits: usize,
    /// The most paths in a list of changed files; a longer list is cut and marked so.
    pub changed_files: usize,
    /// The most mirrors that stay open between requests; each may hold some dozen files open.
    pub open_mirrors: usize,
    /// How long to wait for a mirror's lock. Zuul: `git_timeout`, 300 s.
    pub lock_timeout: Duration,
    /// How long refs keep what was prepared. Who needs it later makes it again, with the same commit ids.
    pub prepared_kept: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            refs: 200_000,
            items: 1000,
            commits: 1000,
            changed_files: 100_000,
            open_mirrors: 16,
            lock_timeout: Duration::from_secs(300),
            prepared_kept: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// How to keep mirrors.
#[derive(Clone, Debug)]
pub struct MirrorsConfig {
    /// The directory that holds them; made when it does not exist.
    pub root: PathBuf,
    /// The name on commits made here. All mergers of a site must have the same.
    pub identity: Identity,
    /// The limits.
    pub limits: Limits,
    /// The time by which what is kept grows old.
    pub aging: Aging,
}

/// The time by which what is kept in mirrors grows old. The machine's clock is one, as long as nobody sets it ahead.
#[derive(Clone)]
pub struct Aging(pub Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Default for Aging {
    fn default() -> Aging {
        Aging(Arc::new(SystemTime::now))
    }
}

impl fmt::Debug for Aging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aging")
    }
}

impl MirrorsConfig {
    /// The defaults, in this directory.
    pub fn new(root: impl Into<PathBuf>) -> MirrorsConfig {
        MirrorsConfig {
            root: root.into(),
            identity: Identity::default(),
            limits: Limits::default(),
            aging: Aging::default(),
        }
    }
}

/// How often mirrors were opened, since [`Mirrors::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Openings {
    /// Opened: for the first time, or because it had changed since.
    pub opened: u64,
    /// It was open already.
    pub open_already: u64,
}

/// Bare mirrors of repositories, one lock for each. May be used from many threads and by several
/// processes on one machine at once.
#[derive(Debug)]
pub struct Mirrors {
    pub(crate) config: MirrorsConfig,
    sources: Mutex<BTreeMap<ProjectKey, String>>,
    /// What repositories of other hosts are fetched with.
    accesses: Mutex<BTreeMap<ProjectKey, Access>>,
    tally: Mutex<Tally>,
    pub(crate) kept: Kept,
    pub(crate) known: Mutex<Known>,
    /// What was read of sources.
    pub(crate) seen: Mutex<Seen>,
    /// Whose chains are being made: what one request makes the next one need not.
    pub(crate) chains: Mutex<BTreeMap<ProjectKey, Arc<Mutex<()>>>>,
    /// Projects whose lock was had since this was opened.
    locked: Mutex<BTreeSet<ProjectKey>>,
    /// When old work of a project was last let go.
    tidied: Mutex<BTreeMap<ProjectKey, Instant>>,
}

/// The proof that the holder alone may change a mirror. The lock belongs to the open file, so it
/// keeps threads apart as well as processes, and falls when the process dies.
///
/// As long as it is held, the file has a byte: whoever finds one there follows somebody who died.
pub(crate) struct Locked {
    file: File,
}

impl Locked {
    /// Writes refs of the mirror. A lock file of git's in the way was left by somebody who died: only the holder of this
    /// lock writes refs here. It is removed, and they are written again.
    pub(crate) fn write_refs(
        &self,
        mirror: &Repository,
        write: impl Fn() -> Result<(), git2::Error>,
    ) -> Result<(), git2::Error> {
        match write() {
            Err(error) if error.code() == git2::ErrorCode::Locked => {
                remove_stale_ref_locks(mirror.path()).map_err(|error| git2::Error::from_str(&error.to_string()))?;
                write()
            }
            done => done,
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Where this fails, the next one looks for leftovers that are not there.
        let _ = self.file.set_len(0);
    }
}

impl Mirrors {
    /// Opens (or makes) the directory.
    ///
    /// # Errors
    /// [`MergeError::Io`] when it cannot be made.
    pub fn open(config: MirrorsConfig) -> Result<Mirrors, MergeError> {
        fs::create_dir_all(&config.root)
            .map_err(|e| MergeError::io("cannot make the directory of mirrors", &config.root, e))?;
        sealed::write(&config.root).map_err(|e| MergeError::io("cannot write into", &config.root, e))?;
        let kept = Kept::new(config.limits.open_mirrors);
        Ok(Mirrors {
            config,
            sources: Mutex::default(),
            accesses: Mutex::default(),
            tally: Mutex::default(),
            kept,
            known: Mutex::default(),
            seen: Mutex::default(),
            chains: Mutex::default(),
            locked: Mutex::default(),
            tidied: Mutex::default(),
        })
    }

    /// How often a mirror was opened to answer something, and how often it was open already.
    pub fn openings(&self) -> Openings {
        let (opened, open_already) = self.kept.counts();
        Openings { opened, open_already }
    }

    /// How often a merge was certain in memory and how often git was asked, since this was opened.
    pub fn tally(&self) -> Tally {
        *self.tally.lock()
    }

    pub(crate) fn count(&self, more: Tally) {
        let mut tally = self.tally.lock();
        tally.in_memory = tally.in_memory.saturating_add(more.in_memory);
        tally.asked = tally.asked.saturating_add(more.asked);
    }

    /// Says where a project's repository is: a local path, a `file://` address, or an address of another host without
    /// credentials. Cheap; may be repeated and changed at any time.
    ///
    /// # Errors
    /// [`MergeError::BadName`] for a name that cannot be a project's.
    pub fn set_source(&self, project: &ProjectKey, url: &str) -> Result<(), MergeError> {
        project.check()?;
        let before = self.sources.lock().insert(project.clone(), url.to_owned());
        if before.is_some_and(|before| before != url) {
            self.seen.lock().forget(project);
        }
        Ok(())
    }

    /// Says what a project's repository is fetched with. Kept in memory alone.
    pub fn set_access(&self, project: &ProjectKey, access: Option<Access>) {
        let mut accesses = self.accesses.lock();
        match access {
            Some(access) => accesses.insert(project.clone(), access),
            None => accesses.remove(project),
        };
    }

    pub(crate) fn access(&self, project: &ProjectKey) -> Option<Access> {
        self.accesses.lock().get(project).cloned()
    }

    /// Where a project's repository is, as far as it was said since the process started, or before,
    /// when the mirror was made.
    ///
    /// # Errors
    /// [`MergeError::UnknownProject`].
    pub fn source(&self, project: &ProjectKey) -> Result<String, MergeError> {
        project.check()?;
        if let Some(url) = self.sources.lock().get(project) {
            return Ok(url.clone());
        }
        match fs::read_to_string(self.path(project)?.join(COMPLETE)) {
            Ok(url) if !url.is_empty() => Ok(url),
            _ => Err(MergeError::UnknownProject { project: project.clone() }),
        }
    }

    /// The directory of a project's mirror, whether it is there yet or not. It is a bare
    /// repository that git itself can read and fetch from.
    ///
    /// # Errors
    /// [`MergeError::BadName`].
    pub fn path(&self, project: &ProjectKey) -> Result<PathBuf, MergeError> {
        project.check()?;
        let connection = self.config.root.join(directory_name(&project.connection));
        Ok(connection.join(format!("{}.git", directory_name(&project.name))))
    }

    /// The directory that holds the mirrors.
    pub fn root(&self) -> &Path {
        &self.config.root
    }

    /// Removes a mirror, so that the next fetch makes a new one: the cure for a damaged one. The
    /// commits prepared in it are lost; preparing again gives the same ids.
    ///
    /// # Errors
    /// [`MergeError::Locked`], [`MergeError::Io`].
    pub fn discard(&self, project: &ProjectKey) -> Result<(), MergeError> {
        let _lock = self.lock(project)?;
        let path = self.path(project)?;
        self.seen.lock().forget(project);
        // The mark goes first: a removal that is cut short is then a half-made clone.
        remove(&path.join(COMPLETE), |p| fs::remove_file(p))?;
        self.kept.forget(&path);
        remove(&path, |p| fs::remove_dir_all(p))
    }

    /// The branches of a mirror and their tips, as of the last fetch.
    ///
    /// # Errors
    /// As [`Mirrors::fetch`] when there is no mirror yet.
    pub fn branches(&self, project: &ProjectKey) -> Result<BTreeMap<String, String>, MergeError> {
        self.refs_under(project, "refs/heads/")
    }

    /// The tags of a mirror and the commits they name, as of the last fetch. Tags of other things
    /// than commits are left out.
    ///
    /// # Errors
    /// As [`Mirrors::fetch`] when there is no mirror yet.
    pub fn tags(&self, project: &ProjectKey) -> Result<BTreeMap<String, String>, MergeError> {
        self.refs_under(project, "refs/tags/")
    }

    fn refs_under(&self, project: &ProjectKey, prefix: &str) -> Result<BTreeMap<String, String>, MergeError> {
        let repo = self.repository(project)?;
        let wrap = |e| MergeError::git(project, "cannot read the refs", e);
        let mut found = BTreeMap::new();
        for reference in repo.references_glob(&format!("{prefix}*")).map_err(wrap)? {
            let reference = reference.map_err(wrap)?;
            let Ok(name) = reference.name() else { continue };
            let Some(name) = name.strip_prefix(prefix) else { continue };
            if let Ok(commit) = reference.peel_to_commit() {
                found.insert(name.to_owned(), commit.id().to_string());
            }
        }
        Ok(found)
    }

    /// The branch that HEAD of the repository names, if it exists, as of the last fetch.
    ///
    /// # Errors
    /// As [`Mirrors::fetch`] when there is no mirror yet.
    pub fn default_branch(&self, project: &ProjectKey) -> Result<Option<String>, MergeError> {
        let repo = self.repository(project)?;
        let Ok(head) = repo.find_reference("HEAD") else { return Ok(None) };
        let Ok(Some(target)) = head.symbolic_target() else { return Ok(None) };
        if repo.refname_to_id(target).is_err() {
            return Ok(None);
        }
        Ok(target.strip_prefix("refs/heads/").map(str::to_owned))
    }

    /// The tip of a branch, as of the last fetch.
    ///
    /// # Errors
    /// [`MergeError::MissingBranch`]; as [`Mirrors::fetch`] when there is no mirror yet.
    pub fn branch_tip(&self, project: &ProjectKey, branch: &str) -> Result<String, MergeError> {
        let repo = self.repository(project)?;
        tip(&repo, project, branch).map(|id| id.to_string())
    }

    /// Whether a commit is in the mirror.
    ///
    /// # Errors
    /// [`MergeError::BadName`]; as [`Mirrors::fetch`] when there is no mirror yet.
    pub fn has_commit(&self, project: &ProjectKey, commit: &str) -> Result<bool, MergeError> {
        let id = commit_id(commit)?;
        // One that stays open remembers objects that somebody may have pruned since.
        drop(self.repository(project)?);
        let objects = self.path(project)?.join("objects");
        let wrap = |e| MergeError::git(project, "cannot look for a commit", e);
        let odb = Odb::new().map_err(wrap)?;
        odb.add_disk_alternate(&objects.to_string_lossy()).map_err(wrap)?;
        Ok(odb.read_header(id).is_ok_and(|(_, kind)| kind == ObjectType::Commit))
    }

    /// Lets the commits of a piece of work go. To be called when nobody will submit or check out
    /// what it prepared; doing it twice is harmless.
    ///
    /// # Errors
    /// [`MergeError::BadName`], [`MergeError::Git`].
    pub fn release(&self, project: &ProjectKey, id: &str) -> Result<(), MergeError> {
        let id = work_id(id)?;
        let path = self.path(project)?;
        if !path.exists() {
            return Ok(());
        }
        let lock = self.lock(project)?;
        if !self.is_complete(&path) {
            return Ok(());
        }
        let repo = self.repository(project)?;
        lock.write_refs(&repo, || {
            for reference in repo.references_glob(&format!("{PREPARED}/{id}/*"))? {
                reference?.delete()?;
            }
            Ok(())
        })
        .map_err(|e| MergeError::git(project, "cannot drop the refs of prepared commits", e))?;
        // What nothing keeps any more may be pruned: whoever has the mirror open must not go by what it remembers.
        let mark = path.join(COMPLETE);
        File::options()
            .append(true)
            .open(&mark)
            .and_then(|file| file.set_modified(SystemTime::now()))
            .map_err(|e| MergeError::io("cannot touch", &mark, e))
    }

    /// The work ids whose commits a mirror keeps: for cleaning up after a restart.
    ///
    /// # Errors
    /// As [`Mirrors::fetch`] when there is no mirror yet.
    pub fn prepared_ids(&self, project: &ProjectKey) -> Result<Vec<String>, MergeError> {
        let found = self.refs_under(project, &format!("{PREPARED}/"))?;
        let mut ids: Vec<String> = found.keys().filter_map(|name| Some(name.rsplit_once('/')?.0.to_owned())).collect();
        ids.dedup();
        Ok(ids)
    }

    /// Lets go what was prepared longer than `age` before `now`, `most` pieces of work at most; gives how many. What
    /// somebody still needs of it can be made again: the same chain gives the same commits. The age is that of the refs;
    /// of those that somebody packed, that of their commits.
    ///
    /// # Errors
    /// As [`Mirrors::release`].
    pub fn release_older(
        &self,
        project: &ProjectKey,
        age: Duration,
        now: SystemTime,
        most: usize,
    ) -> Result<usize, MergeError> {
        let path = self.path(project)?;
        if !self.is_complete(&path) {
            return Ok(0);
        }
        let mut made: BTreeMap<String, SystemTime> = BTreeMap::new();
        let found = self.refs_under(project, &format!("{PREPARED}/"))?;
        let repo = self.repository(project)?;
        for (name, commit) in found {
            let Some((id, _)) = name.rsplit_once('/') else { continue };
            let written = fs::metadata(path.join(PREPARED).join(&name)).and_then(|file| file.modified()).ok();
            let committed = || {
                let seconds = repo.find_commit(Oid::from_str(&commit).ok()?).ok()?.time().seconds();
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
            };
            let moment = written.or_else(committed).unwrap_or(SystemTime::UNIX_EPOCH);
            let known = made.entry(id.to_owned()).or_insert(moment);
            *known = (*known).max(moment);
        }
        drop(repo);
        let is_old = |moment: &SystemTime| now.duration_since(*moment).is_ok_and(|since| since > age);
        let old: Vec<&String> = made.iter().filter(|(_, moment)| is_old(moment)).map(|(id, _)| id).take(most).collect();
        for id in &old {
            self.release(project, id)?;
        }
        Ok(old.len())
    }

    /// Lets old work of a project go, once in a while; what cannot be done now is done another time.
    pub(crate) fn tidy(&self, project: &ProjectKey) {
        let now = Instant::now();
        let mut tidied = self.tidied.lock();
        if tidied.get(project).is_some_and(|last| now.duration_since(*last) < TIDY_EVERY) {
            return;
        }
        tidied.insert(project.clone(), now);
        drop(tidied);
        match self.release_older(project, self.config.limits.prepared_kept, (self.config.aging.0)(), TIDY_MOST) {
            Ok(0) => {}
            Ok(count) => tracing::info!(%project, count, "old prepared work was let go"),
            Err(error) => tracing::warn!(%project, %error, "old prepared work could not be let go"),
        }
    }

    /// An open mirror; one that is not there yet, or only half, is made first.
    pub(crate) fn repository(&self, project: &ProjectKey) -> Result<Open<'_>, MergeError> {
        let path = self.path(project)?;
        if !self.is_complete(&path) {
            self.fetch(project, &[])?;
        }
        self.kept.take(&path, COMPLETE, || self.open_mirror(project, &path))
    }

    /// Opens a mirror, whatever is open already.
    pub(crate) fn open_mirror(&self, project: &ProjectKey, path: &Path) -> Result<Repository, MergeError> {
        let what = "cannot open the mirror";
        Repository::open_bare(path)
            .and_then(|mirror| sealed::seal(&self.config.root, mirror))
            .map_err(|source| MergeError::Damaged { project: project.clone(), what, source })
    }

    pub(crate) fn is_complete(&self, path: &Path) -> bool {
        path.join(COMPLETE).is_file()
    }

    /// Makes a mirror in a directory beside its place, fills it and moves it there in one step.
    pub(crate) fn create(
        &self,
        _proof: &Locked,
        project: &ProjectKey,
        url: &str,
        fill: impl FnOnce(&Repository) -> Result<(), MergeError>,
    ) -> Result<(), MergeError> {
        let path = self.path(project)?;
        let mut staging = path.clone().into_os_string();
        staging.push(".new");
        let staging = PathBuf::from(staging);
        for leftover in [&path, &staging] {
            if leftover.exists() {
                tracing::warn!(path = %leftover.display(), "a half-made clone is removed and made again");
                remove(leftover, |p| fs::remove_dir_all(p))?;
            }
        }
        let mut options = RepositoryInitOptions::new();
        options.bare(true).external_template(false).mkpath(true);
        let repo = Repository::init_opts(&staging, &options)
            .map_err(|e| MergeError::git(project, "cannot make the mirror", e))?;
        fill(&repo)?;
        failpoint::pass("mirror/filled");
        let mark = staging.join(COMPLETE);
        fs::write(&mark, url).map_err(|e| MergeError::io("cannot write", &mark, e))?;
        failpoint::pass("mirror/marked");
        fs::rename(&staging, &path).map_err(|e| MergeError::io("cannot move the new mirror to", &path, e))
    }

    /// Waits for a project's lock, among threads and among processes.
    pub(crate) fn lock(&self, project: &ProjectKey) -> Result<Locked, MergeError> {
        let timeout = self.config.limits.lock_timeout;
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(locked) = self.lock_if_free(project)? {
                return Ok(locked);
            }
            if Instant::now() >= deadline {
                return Err(MergeError::Locked { project: project.clone(), seconds: timeout.as_secs() });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A project's lock, unless somebody has it.
    pub(crate) fn lock_if_free(&self, project: &ProjectKey) -> Result<Option<Locked>, MergeError> {
        let path = self.path(project)?.with_extension("lock");
        let wrap = |e| MergeError::io("cannot lock", &path, e);
        let open = || File::options().create(true).append(true).open(&path);
        let file = match (open(), path.parent()) {
            (Err(error), Some(directory)) if error.kind() == std::io::ErrorKind::NotFound => {
                fs::create_dir_all(directory).map_err(wrap)?;
                open()
            }
            (opened, _) => opened,
        };
        let file = file.map_err(wrap)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(wrap(error)),
            Err(TryLockError::WouldBlock) => return Ok(None),
        }
        // Whoever left a ref's lock file behind died: only the holder of this lock writes refs here. A mirror has a ref for
        // each commit it keeps, so they are looked through only when somebody may have died.
        let is_left = file.metadata().map_err(wrap)?.len() > 0;
        if is_left || self.locked.lock().insert(project.clone()) {
            remove_stale_ref_locks(&self.path(project)?)?;
        }
        file.set_len(1).map_err(wrap)?;
        Ok(Some(Locked { file }))
    }
}

/// The tip of a branch in an open mirror.
pub(crate) fn tip(repo: &Repository, project: &ProjectKey, branch: &str) -> Result<Oid, MergeError> {
    let name = branch_ref(branch)?;
    let missing =
        || MergeError::MissingBranch { branch: crate::names::BranchKey::new(project.clone(), branch.to_owned()) };
    let reference = repo.find_reference(&name).map_err(|e| match e.code() {
        git2::ErrorCode::NotFound => missing(),
        _ => MergeError::git(project, "cannot read the branch", e),
    })?;
    reference.target().ok_or_else(missing)
}

fn remove(path: &Path, how: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), MergeError> {
    match how(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(MergeError::io("cannot remove", path, e)),
        _ => Ok(()),
    }
}

pub(crate) fn remove_stale_ref_locks(mirror: &Path) -> Result<(), MergeError> {
    let mut directories = vec![mirror.join("refs")];
    for name in ["HEAD.lock", "packed-refs.lock", "config.lock"] {
        remove(&mirror.join(name), |p| fs::remove_file(p))?;
    }
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let is_directory = entry.file_type().is_ok_and(|t| t.is_dir());
            if is_directory {
                directories.push(entry.path());
            } else if entry.file_name().to_string_lossy().ends_with(".lock") {
                tracing::warn!(path = %entry.path().display(), "a lock left by a process that died is removed");
                remove(&entry.path(), |p| fs::remove_file(p))?;
            }
        }
    }
    Ok(())
}
