//! Putting one change on top of one state, in memory.
//!
//! Zuul's merger runs git in a work tree. Here trees are merged in memory ([`crate::trees`]), where the
//! answer is certain to be git's; where it is not, the git program is asked ([`crate::program`]), and
//! its verdict and its tree are taken. So verdict and tree are always git's. `tests/differential.rs`
//! compares both on generated histories, `tests/public.rs` on those of public repositories;
//! docs/merging.md says how often which of the two answers.
//!
//! Like `git merge` without `--no-ff`, `merge` and `merge-resolve` fast-forward when they can; histories
//! without a common commit are a conflict.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use git2::{Commit, Oid, Repository, Signature, Tree};

use crate::line::Line;
use crate::program::{self, Verdict};
use crate::rebase;
use crate::trees::{self, Strategy, Sum};

/// How a change is put on top of a branch. Zuul: `merge-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MergeMode {
    /// `git merge`: a merge commit, or the change itself when it can be fast-forwarded.
    #[default]
    Merge,
    /// `git merge -s resolve`: as `merge`, without looking for renamed files. Zuul: the default
    /// for Gerrit.
    MergeResolve,
    /// `git cherry-pick`: the change's tip commit alone, copied; a merge commit is merged as
    /// `merge-resolve` does. A commit whose content is there already adds nothing.
    CherryPick,
    /// `git merge --squash`: everything the change brings as one commit, even if that is nothing.
    SquashMerge,
    /// `git rebase`: each commit of the change copied in order, without merge commits and without
    /// those whose content is there already.
    Rebase,
    /// As `rebase`; but a merge commit is made again with the branch as its first parent, its other
    /// parents and its message as they were.
    RebaseFirstParent,
}

impl MergeMode {
    /// The mode's name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            MergeMode::Merge => "merge",
            MergeMode::MergeResolve => "merge-resolve",
            MergeMode::CherryPick => "cherry-pick",
            MergeMode::SquashMerge => "squash-merge",
            MergeMode::Rebase => "rebase",
            MergeMode::RebaseFirstParent => "rebase-first-parent",
        }
    }

    /// All modes.
    pub const ALL: [MergeMode; 6] = [
        MergeMode::Merge,
        MergeMode::MergeResolve,
        MergeMode::CherryPick,
        MergeMode::SquashMerge,
        MergeMode::Rebase,
        MergeMode::RebaseFirstParent,
    ];

    /// The mode of this name. Zuul: drivers also name `merge-ort` and `merge-recursive`, which for
    /// git are one strategy today, the default one.
    pub fn from_name(name: &str) -> Option<MergeMode> {
        match name {
            "merge-ort" | "merge-recursive" => Some(MergeMode::Merge),
            name => MergeMode::ALL.into_iter().find(|mode| mode.name() == name),
        }
    }
}

/// The most paths named in a conflict.
const CONFLICT_PATHS_MAX: usize = 200;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// The new state.
    Commit(Oid),
    /// They do not fit.
    Conflict { paths: Vec<String>, message: String },
}

impl Picked {
    fn conflict(paths: &BTreeSet<Vec<u8>>) -> Picked {
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        let named: Vec<String> = paths.iter().take(CONFLICT_PATHS_MAX).map(text).collect();
        let message = match (named.get(..5), named.is_empty()) {
            (_, true) => "git cannot merge the two".to_owned(),
            (Some(first), _) if paths.len() > 5 => {
                format!("merge conflict in {} and {} more", first.join(", "), paths.len() - 5)
            }
            _ => format!("merge conflict in {}", named.join(", ")),
        };
        Picked::Conflict { paths: named, message }
    }

    fn unrelated(ours: Oid, theirs: Oid) -> Picked {
        Picked::Conflict { paths: Vec::new(), message: format!("{ours} and {theirs} have no commit in common") }
    }
}

/// Who answered how often: for the note on how often git has to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Merges of three trees that were certain in memory.
    pub in_memory: u64,
    /// Those that git was asked for.
    pub asked: u64,
}

/// What every commit made here needs.
pub(crate) struct Maker<'a> {
    pub repo: &'a Repository,
    /// Author and committer, with the date of the request.
    pub signature: Signature<'a>,
    pub message: String,
    /// The most commits of a rebase.
    pub commits_max: usize,
    /// Counts.
    pub tally: &'a Cell<Tally>,
    /// What is known of where `ours` comes from.
    pub line: &'a Line,
    /// The commits made.
    pub made: &'a RefCell<Vec<Oid>>,
}

/// Puts `theirs` on top of `ours`.
pub(crate) fn pick(maker: &Maker<'_>, mode: MergeMode, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let is_merge = || Ok::<_, git2::Error>(maker.repo.find_commit(theirs)?.parent_count() > 1);
    match mode {
        MergeMode::Merge => merge(maker, Strategy::Ort, ours, theirs),
        MergeMode::MergeResolve => merge(maker, Strategy::Resolve, ours, theirs),
        MergeMode::SquashMerge => squash(maker, ours, theirs),
        MergeMode::CherryPick if is_merge()? => merge(maker, Strategy::Resolve, ours, theirs),
        MergeMode::CherryPick => maker.copy(ours, theirs),
        MergeMode::RebaseFirstParent if is_merge()? => merge_again(maker, ours, theirs),
        MergeMode::Rebase | MergeMode::RebaseFirstParent => rebase::rebase(maker, ours, theirs),
    }
}

/// How two histories stand to each other.
enum Relation {
    /// Ours holds theirs.
    UpToDate,
    /// Theirs holds ours.
    Ahead,
    /// These are the newest commits that both hold.
    Forked(Vec<Oid>),
    Unrelated,
}

fn relation(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Relation, git2::Error> {
    let stand_in = maker.line.stand_in(maker.repo, ours, theirs)?;
    match maker.repo.merge_bases(stand_in, theirs) {
        Ok(bases) if bases.contains(&theirs) => Ok(Relation::UpToDate),
        Ok(bases) if bases.contains(&ours) => Ok(Relation::Ahead),
        Ok(bases) => Ok(Relation::Forked(bases.to_vec())),
        Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(Relation::Unrelated),
        Err(error) => Err(error),
    }
}

fn merge(maker: &Maker<'_>, strategy: Strategy, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let bases = match relation(maker, ours, theirs)? {
        Relation::UpToDate => return Ok(Picked::Commit(ours)),
        Relation::Ahead => return Ok(Picked::Commit(theirs)),
        Relation::Unrelated => return Ok(Picked::unrelated(ours, theirs)),
        Relation::Forked(bases) => bases,
    };
    let (one, two) = (maker.repo.find_commit(ours)?, maker.repo.find_commit(theirs)?);
    match maker.merge_commits(strategy, &bases, &one, &two)? {
        Verdict::Conflict(paths) => Ok(Picked::conflict(&paths)),
        Verdict::Tree(tree) => maker.commit(&maker.signature, &maker.message, tree, &[&one, &two]),
    }
}

/// The tree of both, and what to say when there is none.
fn merged_tree(maker: &Maker<'_>, one: &Commit<'_>, two: &Commit<'_>) -> Result<Result<Oid, Picked>, git2::Error> {
    Ok(match relation(maker, one.id(), two.id())? {
        Relation::UpToDate => Ok(one.tree_id()),
        Relation::Ahead => Ok(two.tree_id()),
        Relation::Unrelated => Err(Picked::unrelated(one.id(), two.id())),
        Relation::Forked(bases) => match maker.merge_commits(Strategy::Ort, &bases, one, two)? {
            Verdict::Conflict(paths) => Err(Picked::conflict(&paths)),
            Verdict::Tree(tree) => Ok(tree),
        },
    })
}

fn squash(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let (one, two) = (maker.repo.find_commit(ours)?, maker.repo.find_commit(theirs)?);
    match merged_tree(maker, &one, &two)? {
        Err(conflict) => Ok(conflict),
        Ok(tree) => maker.commit(&maker.signature, &maker.message, tree, &[&one]),
    }
}

/// A merge commit whose first parent becomes `ours`.
fn merge_again(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let (one, two) = (maker.repo.find_commit(ours)?, maker.repo.find_commit(theirs)?);
    let tree = match merged_tree(maker, &one, &two)? {
        Err(conflict) => return Ok(conflict),
        Ok(tree) => tree,
    };
    let others = two.parents().skip(1).collect::<Vec<_>>();
    let parents: Vec<&Commit<'_>> = std::iter::once(&one).chain(&others).collect();
    let mut message = String::from_utf8_lossy(two.message_raw_bytes()).into_owned();
    if !message.is_empty() && !message.ends_with('\n') {
        message.push('\n');
    }
    maker.commit(&maker.signature, &message, tree, &parents)
}

impl Maker<'_> {
    fn count(&self, asked: bool) {
        let mut tally = self.tally.get();
        *(if asked { &mut tally.asked } else { &mut tally.in_memory }) += 1;
        self.tally.set(tally);
    }

    /// Merges three trees where that is certain; `None`: git has to be asked.
    fn in_memory(&self, strategy: Strategy, base: Oid, ours: Oid, theirs: Oid) -> Result<Option<Verdict>, git2::Error> {
        let verdict = match trees::merge(self.repo, strategy, base, ours, theirs)? {
            Sum::Tree(tree) => Verdict::Tree(tree),
            Sum::Conflict(paths) => Verdict::Conflict(paths),
            Sum::Unsure(why) => {
                tracing::debug!(%base, %ours, %theirs, why, "git is asked");
                return Ok(None);
            }
        };
        self.count(false);
        Ok(Some(verdict))
    }

    fn merge_commits(
        &self,
        strategy: Strategy,
        bases: &[Oid],
        one: &Commit<'_>,
        two: &Commit<'_>,
    ) -> Result<Verdict, git2::Error> {
        let repo = self.repo;
        let mut base = None;
        if let [only] = bases {
            let tree = repo.find_commit(*only)?.tree_id();
            base = Some(tree);
            if let Some(verdict) = self.in_memory(strategy, tree, one.tree_id(), two.tree_id())? {
                return Ok(verdict);
            }
        }
        self.count(true);
        match strategy {
            Strategy::Resolve => program::resolve(repo, bases, one.id(), two.id()),
            Strategy::Ort => {
                // With several bases git merges those first; any of them may differ anywhere.
                let base = base.map_or_else(|| empty_tree(repo), Ok)?;
                let attributes = trees::attributes(repo, base, one.tree_id(), two.tree_id())?;
                program::merge_tree(repo, one.id(), two.id(), &attributes)
            }
        }
    }

    /// Merges three trees as a copied commit is merged.
    fn merge_trees(&self, base: Oid, ours: Oid, theirs: Oid) -> Result<Verdict, git2::Error> {
        let repo = self.repo;
        if let Some(verdict) = self.in_memory(Strategy::Ort, base, ours, theirs)? {
            return Ok(verdict);
        }
        self.count(true);
        // git merges commits; so these three become some, which nobody refers to.
        let commit = |tree: Oid, parents: &[&Commit<'_>]| {
            let tree = repo.find_tree(tree)?;
            let id = repo.commit(None, &self.signature, &self.signature, "a side\n", &tree, parents)?;
            repo.find_commit(id)
        };
        let from = commit(base, &[])?;
        let (one, two) = (commit(ours, &[&from])?, commit(theirs, &[&from])?);
        let attributes = trees::attributes(repo, base, ours, theirs)?;
        program::merge_tree(repo, one.id(), two.id(), &attributes)
    }

    fn commit(
        &self,
        author: &Signature<'_>,
        message: &str,
        tree: Oid,
        parents: &[&Commit<'_>],
    ) -> Result<Picked, git2::Error> {
        let tree = self.repo.find_tree(tree)?;
        let id = self.repo.commit(None, author, &self.signature, message, &tree, parents)?;
        self.made.borrow_mut().push(id);
        Ok(Picked::Commit(id))
    }

    /// Copies one commit: its author and message stay, its committer is gatelog. A commit that brings
    /// something which is there already is left out, one that never brought anything is kept.
    pub(crate) fn copy(&self, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
        let repo = self.repo;
        let (one, two) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
        let (before, base) = (tree_before(repo, &two)?.id(), one.tree_id());
        let tree = match self.merge_trees(before, base, two.tree_id())? {
            Verdict::Conflict(paths) => return Ok(Picked::conflict(&paths)),
            Verdict::Tree(tree) => tree,
        };
        if tree == base && before != two.tree_id() {
            return Ok(Picked::Commit(ours));
        }
        // Texts in other encodings than UTF-8 lose what cannot be shown; git would keep the bytes.
        let message = String::from_utf8_lossy(two.message_raw_bytes()).into_owned();
        self.commit(&two.author(), &message, tree, &[&one])
    }
}

fn empty_tree(repo: &Repository) -> Result<Oid, git2::Error> {
    repo.treebuilder(None)?.write()
}

/// The tree before a commit: of its first parent, or the empty one.
pub(crate) fn tree_before<'a>(repo: &'a Repository, commit: &Commit<'a>) -> Result<Tree<'a>, git2::Error> {
    if commit.parent_count() == 0 { repo.find_tree(empty_tree(repo)?) } else { commit.parent(0)?.tree() }
}

#[cfg(test)]
mod tests {
    use super::MergeMode;

    #[test]
    fn modes_are_known_by_their_name() {
        for name in ["merge", "merge-resolve", "cherry-pick", "squash-merge", "rebase", "rebase-first-parent"] {
            assert_eq!(MergeMode::from_name(name).map(MergeMode::name), Some(name));
        }
        assert_eq!(MergeMode::from_name("merge-ort"), Some(MergeMode::Merge));
        assert_eq!(MergeMode::from_name("octopus"), None);
    }
}
