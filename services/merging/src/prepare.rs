//! Preparing: a chain of changes, one on top of the other.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatelog_event_log::failpoint;
use git2::{Oid, Repository, Signature, Time};
use parking_lot::Mutex;

use crate::error::MergeError;
use crate::files::{self, FileFilter, SourceFile};
use crate::kept::Open;
use crate::known::Made;
use crate::line::Line;
use crate::mirrors::{Limits, Mirrors, PREPARED, tip};
use crate::names::{BranchKey, ProjectKey, commit_id, full_ref, work_id};
use crate::pick::{self, Maker, MergeMode, Picked};

/// One change of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeItem {
    /// The project.
    pub project: ProjectKey,
    /// The branch the change is for, without `refs/heads/`.
    pub branch: String,
    /// A ref that holds the change. Fetched when the commit is not in the mirror; when no commit
    /// is given, fetched always, and what it names is taken.
    pub ref_name: Option<String>,
    /// The change's commit. Best given: a ref may have moved on to another patchset.
    pub commit: Option<String>,
    /// How it is put on top.
    pub mode: MergeMode,
    /// The date of the commits made, in seconds since 1970. Zuul: the item's configured time, so
    /// that everybody who repeats the merge gets the same commit ids.
    pub date_s: i64,
    /// The message of a merge or squash commit; without one, Zuul's `Merge '<ref>'`.
    pub message: Option<String>,
}

/// The commit a branch was at when it was first looked at: what the whole buildset stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenBase {
    /// The branch.
    pub branch: BranchKey,
    /// The commit id.
    pub commit: String,
}

/// A chain to prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareRequest {
    /// The work id: the commits are kept under this name until [`Mirrors::release`].
    pub id: String,
    /// The changes, the one at the head of the queue first.
    pub items: Vec<MergeItem>,
    /// What is known of the branches. For a branch that is not listed the tip is read now and
    /// reported, so that it can be listed next time.
    pub bases: Vec<FrozenBase>,
    /// Which files to read of each touched branch, at its final state.
    pub files: FileFilter,
}

/// What came of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrepareOutcome {
    /// All changes fit.
    Merged(Prepared),
    /// One does not.
    Conflict(Conflict),
}

/// A chain whose changes all fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The branches touched, in the order of first use.
    pub branches: Vec<PreparedBranch>,
    /// For each item, in order, what it came to.
    pub items: Vec<PreparedItem>,
}

/// A branch as the whole chain leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedBranch {
    /// The branch.
    pub branch: BranchKey,
    /// The commit it stood at before the chain: given, or read now. What the branch must still be
    /// at when the chain is merged for real.
    pub base: String,
    /// The commit it stands at after the chain.
    pub commit: String,
    /// The tree of that commit.
    pub tree: String,
    /// The files that were asked for, at that commit, sorted by path.
    pub files: Vec<SourceFile>,
}

/// A list of paths, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedFiles {
    /// The paths.
    pub paths: Vec<String>,
    /// Whether the list was longer than the limit; then any file must be taken as changed.
    pub truncated: bool,
}

/// One item, put on top of what is ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedItem {
    /// The change's own commit.
    pub change_commit: String,
    /// The branch's commit before this item.
    pub ahead: String,
    /// The branch's commit after this item.
    pub commit: String,
    /// The tree of that commit.
    pub tree: String,
    /// The files in which the two differ.
    pub files: ChangedFiles,
}

/// A change that does not fit on top of what is ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Which item, counted from 0.
    pub item: usize,
    /// The files in conflict, sorted; none when there is no common history.
    pub paths: Vec<String>,
    /// One line for people.
    pub message: String,
    /// The bases used so far, in the order of first use.
    pub bases: Vec<FrozenBase>,
}

struct Branch {
    key: BranchKey,
    base: Oid,
    state: Oid,
    /// Where `state` comes from, as far as somebody asked.
    line: Option<Line>,
    /// Changes whose merges are known from before and the commits made for them: the line has not got them yet.
    passed: Vec<(Oid, Arc<[Oid]>)>,
}

/// What one request has opened and fetched so far.
struct Chain<'a> {
    mirrors: &'a Mirrors,
    repositories: BTreeMap<ProjectKey, Open<'a>>,
    /// Projects whose branches were read during this request: all from one moment.
    fetched: BTreeMap<ProjectKey, BTreeMap<String, String>>,
    branches: Vec<Branch>,
}

impl Mirrors {
    /// Puts a chain of changes on top of the branches they are for. Repeating a request gives the
    /// same commits as long as the same bases are given.
    ///
    /// # Errors
    /// All of [`MergeError`]: no verdict on any change. A change that does not fit is an outcome.
    pub fn prepare(&self, request: &PrepareRequest) -> Result<PrepareOutcome, MergeError> {
        let id = work_id(&request.id)?;
        check_count(request, &self.config.limits)?;
        let mut bases = BTreeMap::new();
        for frozen in &request.bases {
            bases.insert(&frozen.branch, commit_id(&frozen.commit)?);
        }
        let turn = self.turn(request);
        let held = turn.as_ref().map(|turn| turn.lock());
        let mut chain =
            Chain { mirrors: self, repositories: BTreeMap::new(), fetched: BTreeMap::new(), branches: Vec::new() };
        let mut items = Vec::new();
        for (index, item) in request.items.iter().enumerate() {
            let key = BranchKey::new(item.project.clone(), item.branch.clone());
            let change = chain.change(item)?;
            let ahead = chain.branch(&key, bases.get(&key).copied())?;
            if let Some(made) = chain.known(item, &key, ahead, change)? {
                items.push(made);
                continue;
            }
            let mut line = chain.line(&key, ahead);
            let repo = chain.repository(&item.project)?;
            let wrap = |e| MergeError::git(&item.project, "cannot put a change on top of its branch", e);
            let (picked, made) = put_on_top(self, repo, item, &line, ahead, change).map_err(wrap)?;
            match picked {
                Picked::Conflict { paths, message } => {
                    let bases =
                        chain.branches.iter().map(|b| FrozenBase { branch: b.key.clone(), commit: b.base.to_string() });
                    let bases = bases.collect();
                    return Ok(PrepareOutcome::Conflict(Conflict { item: index, paths, message, bases }));
                }
                Picked::Commit(commit) => {
                    let files = files::changed(repo, ahead, commit, self.config.limits.changed_files).map_err(wrap)?;
                    let prepared = PreparedItem {
                        change_commit: change.to_string(),
                        ahead: ahead.to_string(),
                        commit: commit.to_string(),
                        tree: tree_of(repo, commit).map_err(wrap)?,
                        files,
                    };
                    let made: Arc<[Oid]> = made.into();
                    line.grow(change, Arc::clone(&made));
                    let merge = Made { message: message_of(item, change), item: prepared.clone(), commit, made };
                    self.known.lock().note(&item.project, (ahead, change, item.mode, item.date_s), merge);
                    items.push(prepared);
                    chain.set_state(&key, commit, line);
                }
            }
        }
        drop(held);
        let branches = chain.finish(id, &request.files)?;
        for project in request.items.iter().map(|item| &item.project).collect::<BTreeSet<_>>() {
            self.tidy(project);
        }
        Ok(PrepareOutcome::Merged(Prepared { branches, items }))
    }
}

/// The commit's message.
fn message_of(item: &MergeItem, change: Oid) -> String {
    let mut message = match (&item.message, &item.ref_name) {
        (Some(message), _) => message.clone(),
        (None, Some(name)) => format!("Merge '{name}'"),
        (None, None) => format!("Merge '{change}'"),
    };
    // git ends a message in a line feed, and takes none with a NUL inside.
    message.retain(|c| c != '\0');
    if !message.ends_with('\n') {
        message.push('\n');
    }
    message
}

fn check_count(request: &PrepareRequest, limits: &Limits) -> Result<(), MergeError> {
    if request.items.len() > limits.items || request.bases.len() > 10 * limits.items {
        let limit = u64::try_from(limits.items).unwrap_or(u64::MAX);
        return Err(MergeError::TooMany { what: "items", subject: request.id.clone(), limit });
    }
    Ok(())
}

impl Mirrors {
    /// Who makes a chain in a project waits for the one before it, which makes most of the same.
    fn turn(&self, request: &PrepareRequest) -> Option<Arc<Mutex<()>>> {
        let [first, _, ..] = request.items.as_slice() else { return None };
        Some(Arc::clone(self.chains.lock().entry(first.project.clone()).or_default()))
    }
}

fn tree_of(repo: &Repository, commit: Oid) -> Result<String, git2::Error> {
    Ok(repo.find_commit(commit)?.tree_id().to_string())
}

/// What came of it, and the commits made for it.
fn put_on_top(
    mirrors: &Mirrors,
    repo: &Repository,
    item: &MergeItem,
    line: &Line,
    ahead: Oid,
    change: Oid,
) -> Result<(Picked, Vec<Oid>), git2::Error> {
    let (identity, limits) = (&mirrors.config.identity, &mirrors.config.limits);
    // A zone of its own would make the ids depend on where the merger runs.
    let signature = Signature::new(&identity.name, &identity.email, &Time::new(item.date_s, 0))?;
    let message = message_of(item, change);
    let (tally, made) = (Cell::default(), RefCell::default());
    let maker = Maker { repo, signature, message, commits_max: limits.commits, tally: &tally, line, made: &made };
    let picked = pick::pick(&maker, item.mode, ahead, change);
    mirrors.count(tally.get());
    drop(maker);
    Ok((picked?, made.take()))
}

impl Chain<'_> {
    fn repository(&mut self, project: &ProjectKey) -> Result<&Repository, MergeError> {
        if !self.repositories.contains_key(project) {
            let repo = self.mirrors.repository(project)?;
            self.repositories.insert(project.clone(), repo);
        }
        let open = self.repositories.get(project).map(|open| &**open);
        open.ok_or_else(|| MergeError::UnknownProject { project: project.clone() })
    }

    /// Reads all branches of a project, at most once for each request.
    fn fetch_branches(&mut self, project: &ProjectKey) -> Result<&BTreeMap<String, String>, MergeError> {
        if !self.fetched.contains_key(project) {
            let fetched = self.mirrors.fetch(project, &[])?;
            self.fetched.insert(project.clone(), fetched.branches);
        }
        self.fetched.get(project).ok_or_else(|| MergeError::UnknownProject { project: project.clone() })
    }

    /// The change's commit, brought into the mirror if need be.
    fn change(&mut self, item: &MergeItem) -> Result<Oid, MergeError> {
        let project = &item.project;
        let given = item.commit.as_deref().map(commit_id).transpose()?;
        if let Some(id) = given
            && self.repository(project)?.find_commit(id).is_ok()
        {
            return Ok(id);
        }
        let missing = |commit: String| MergeError::MissingCommit { project: project.clone(), commit };
        let mut named = None;
        if let Some(name) = &item.ref_name {
            let name = full_ref(name)?;
            let fetched = self.mirrors.fetch(project, &[&name])?;
            named = fetched.refs.get(&name).map(|id| commit_id(id)).transpose()?;
            self.fetched.entry(project.clone()).or_insert(fetched.branches);
        } else {
            self.fetch_branches(project)?;
        }
        let id = given.or(named).ok_or_else(|| missing("(neither a ref nor a commit was given)".to_owned()))?;
        // A tag stands for the commit it names.
        let repo = self.repository(project)?;
        repo.find_object(id, None).and_then(|o| o.peel_to_commit()).map(|c| c.id()).map_err(|e| match e.code() {
            git2::ErrorCode::NotFound | git2::ErrorCode::Peel | git2::ErrorCode::InvalidSpec => missing(id.to_string()),
            _ => MergeError::git(project, "cannot read a change", e),
        })
    }

    /// The state of a branch; it is listed at its base when it is new.
    fn branch(&mut self, key: &BranchKey, frozen: Option<Oid>) -> Result<Oid, MergeError> {
        if let Some(branch) = self.branches.iter().find(|b| b.key == *key) {
            return Ok(branch.state);
        }
        let project = &key.project;
        let base = match frozen {
            Some(base) => {
                if self.repository(project)?.find_commit(base).is_err() {
                    self.fetch_branches(project)?;
                }
                files::find_commit(self.repository(project)?, project, &base.to_string())?
            }
            None => {
                let found = self.fetch_branches(project)?.get(&key.branch).cloned();
                match found {
                    Some(id) => commit_id(&id)?,
                    // Asked only for its error: a bad name is told from a branch that is not there.
                    None => tip(self.repository(project)?, project, &key.branch)?,
                }
            }
        };
        self.branches.push(Branch { key: key.clone(), base, state: base, line: None, passed: Vec::new() });
        Ok(base)
    }

    /// The same merge, when it was made before and its commit is still there.
    fn known(
        &mut self,
        item: &MergeItem,
        key: &BranchKey,
        ahead: Oid,
        change: Oid,
    ) -> Result<Option<PreparedItem>, MergeError> {
        let cause = (ahead, change, item.mode, item.date_s);
        let known = self.mirrors.known.lock().merge(&item.project, &cause, &message_of(item, change));
        let Some(known) = known else { return Ok(None) };
        if self.repository(&item.project)?.find_commit(known.commit).is_err() {
            return Ok(None);
        }
        if let Some(branch) = self.branches.iter_mut().find(|b| b.key == *key) {
            branch.state = known.commit;
            branch.passed.push((change, Arc::clone(&known.made)));
        }
        Ok(Some(known.item.clone()))
    }

    /// Takes what is known of where a branch's state comes from: from this request, or from one that had this state.
    fn line(&mut self, key: &BranchKey, state: Oid) -> Line {
        let Some(branch) = self.branches.iter_mut().find(|b| b.key == *key) else { return Line::new(state) };
        let passed = std::mem::take(&mut branch.passed);
        if !passed.is_empty()
            && let Some(line) = self.mirrors.known.lock().line(&key.project, state)
        {
            return line;
        }
        let mut line = branch.line.take().unwrap_or_else(|| Line::new(branch.base));
        passed.into_iter().for_each(|(change, made)| line.grow(change, made));
        line
    }

    fn set_state(&mut self, key: &BranchKey, commit: Oid, line: Line) {
        if let Some(branch) = self.branches.iter_mut().find(|b| b.key == *key) {
            (branch.state, branch.line) = (commit, Some(line));
        }
    }

    /// Keeps the final commits and reads the files.
    fn finish(mut self, id: &str, filter: &FileFilter) -> Result<Vec<PreparedBranch>, MergeError> {
        let mut done = Vec::new();
        for (at, branch) in std::mem::take(&mut self.branches).into_iter().enumerate() {
            let project = branch.key.project.clone();
            let mirrors = self.mirrors;
            let repo = self.repository(&project)?;
            let wrap = |e| MergeError::git(&project, "cannot keep a prepared commit", e);
            failpoint::pass("merge/merged");
            let lock = mirrors.lock(&project)?;
            let name = format!("{PREPARED}/{id}/{at}");
            let keep = || repo.reference(&name, branch.state, true, "gatelog: prepared").map(drop);
            lock.write_refs(repo, keep).map_err(wrap)?;
            drop(lock);
            failpoint::pass("merge/kept");
            if let Some(line) = branch.line.filter(|_| branch.passed.is_empty()) {
                mirrors.known.lock().note_line(&project, branch.state, line);
            }
            let files = files::read(repo, &project, branch.state, &branch.key.to_string(), filter)?;
            done.push(PreparedBranch {
                base: branch.base.to_string(),
                commit: branch.state.to_string(),
                tree: tree_of(repo, branch.state).map_err(wrap)?,
                branch: branch.key,
                files,
            });
        }
        Ok(done)
    }
}
