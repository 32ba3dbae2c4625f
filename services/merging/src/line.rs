//! Where the state of a branch comes from: its base, and what a request put on top of it.
//!
//! A chain of changes is long and its base is one commit. How a change stands to the state follows from how it stands to
//! the base, as long as it holds nothing that was put on top; so nothing here or in [`crate::rebase`] walks the
//! chain again for each change. What was put on top is looked at when the next change asks: after the last one nobody
//! does, and a request often has one only.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::{Oid, Repository};

use crate::pick::tree_before;
use crate::trees;

/// Paths, by their bytes.
pub(crate) type Paths = Arc<BTreeSet<Vec<u8>>>;

/// Commits that a change holds and the base does not; `None` when they are too many.
type News = Option<Arc<BTreeSet<Oid>>>;

/// A longer change is worth no shortcut.
const NEWS_MAX: usize = 1000;

/// One that is longer is not carried along from request to request.
const LONG: usize = 2000;

/// A branch's base and what was put on top.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    base: Oid,
    /// Changes put on top, with the commits made for each, that nobody asked after yet.
    grown: RefCell<Vec<(Oid, Arc<[Oid]>)>>,
    added: RefCell<Added>,
    /// What the change that was looked at last brings: it is the one that is put on top next.
    last: RefCell<Option<(Oid, News)>>,
    /// Which paths a commit changes, of those that were looked at.
    paths: RefCell<BTreeMap<Oid, Option<Paths>>>,
}

/// What was put on top of the base.
#[derive(Clone, Debug, Default)]
struct Added {
    /// At least every commit that the state holds and the base does not.
    commits: BTreeSet<Oid>,
    /// There are more: nothing is known.
    is_too_much: bool,
    /// Those whose paths nobody looked at.
    unread: Vec<Oid>,
    /// The paths of the others.
    paths: BTreeSet<Paths>,
}

impl Line {
    /// A branch that nothing was put on yet.
    pub(crate) fn new(base: Oid) -> Line {
        Line {
            base,
            grown: RefCell::default(),
            added: RefCell::default(),
            last: RefCell::default(),
            paths: RefCell::default(),
        }
    }

    /// Notes that a change was put on top, for which these commits were made.
    pub(crate) fn grow(&mut self, change: Oid, made: Arc<[Oid]>) {
        self.grown.get_mut().push((change, made));
    }

    /// Whether so much was put on top that it is better to begin anew.
    pub(crate) fn is_long(&self) -> bool {
        let added = self.added.borrow();
        added.is_too_much || added.commits.len() + self.grown.borrow().len() > LONG
    }

    /// A commit that stands to the change as the state does: the base, as long as the change holds nothing that was put
    /// on top of it; else the state itself.
    pub(crate) fn stand_in(&self, repo: &Repository, ours: Oid, change: Oid) -> Result<Oid, git2::Error> {
        self.settle(repo)?;
        let added = self.added.borrow();
        if added.is_too_much || added.commits.is_empty() || added.commits.contains(&change) {
            return Ok(ours);
        }
        let is_apart = self.news(repo, change)?.is_some_and(|news| news.is_disjoint(&added.commits));
        Ok(if is_apart { self.base } else { ours })
    }

    /// Whether any of these is what some commit put on top changes.
    pub(crate) fn has_changed(&self, repo: &Repository, these: &BTreeSet<Paths>) -> Result<bool, git2::Error> {
        self.settle(repo)?;
        let unread = std::mem::take(&mut self.added.borrow_mut().unread);
        for id in unread {
            let paths = self.paths(repo, id)?;
            self.added.borrow_mut().paths.extend(paths);
        }
        let added = self.added.borrow();
        Ok(these.iter().any(|paths| added.paths.contains(paths)))
    }

    /// The paths that a commit changes; none for merges and for commits that change nothing.
    pub(crate) fn paths(&self, repo: &Repository, id: Oid) -> Result<Option<Paths>, git2::Error> {
        if let Some(known) = self.paths.borrow().get(&id) {
            return Ok(known.clone());
        }
        let commit = repo.find_commit(id)?;
        let mut paths = BTreeSet::new();
        if commit.parent_count() < 2 {
            paths = trees::differing(repo, tree_before(repo, &commit)?.id(), commit.tree_id())?;
        }
        let paths = (!paths.is_empty()).then(|| Arc::new(paths));
        self.paths.borrow_mut().insert(id, paths.clone());
        Ok(paths)
    }

    /// Takes in what was put on top.
    fn settle(&self, repo: &Repository) -> Result<(), git2::Error> {
        for (change, made) in self.grown.take() {
            if self.added.borrow().is_too_much {
                continue;
            }
            let news = self.news(repo, change)?;
            let mut added = self.added.borrow_mut();
            added.is_too_much = news.is_none();
            for id in news.iter().flat_map(|news| news.iter()).copied().chain(made.iter().copied()) {
                if added.commits.insert(id) {
                    added.unread.push(id);
                }
            }
        }
        Ok(())
    }

    fn news(&self, repo: &Repository, change: Oid) -> Result<News, git2::Error> {
        if let Some((of, news)) = &*self.last.borrow()
            && *of == change
        {
            return Ok(news.clone());
        }
        let mut walk = repo.revwalk()?;
        walk.push(change)?;
        walk.hide(self.base)?;
        let news = walk.take(NEWS_MAX + 1).collect::<Result<BTreeSet<Oid>, _>>()?;
        let news = (news.len() <= NEWS_MAX).then(|| Arc::new(news));
        *self.last.borrow_mut() = Some((change, news.clone()));
        Ok(news)
    }
}
