//! Putting one change on top of one state, in memory.
//!
//! # Where this differs from the git program
//!
//! Zuul's merger runs git in a work tree; here libgit2 works on trees. Verdict and tree are the
//! same in all but these cases (`tests/differential.rs` compares them on generated histories):
//!
//! - **Directories that were renamed.** git moves files that the other side adds in the old
//!   directory into the new one; libgit2 leaves them where they were added.
//! - **Renames.** Both find renamed files by similarity of 50 % or more, but they measure it
//!   differently, and libgit2 gives up when there are more than 1000 candidates. A file that was
//!   renamed alike on both sides and edited on both is a conflict here and none for git. In the
//!   generated histories this is 2 cases of 400; libgit2 is the stricter one in both.
//! - **Line matching.** git's default strategy compares lines with the histogram algorithm, libgit2
//!   with Myers'. Where lines repeat, one of the two may see a conflict that the other does not.
//! - **Attributes.** `merge=` in a `.gitattributes` file inside the repository is not honoured, nor are merge
//!   drivers and filters.
//! - **`merge-resolve`** with several merge bases: git tries them together, here the best one is
//!   taken. (`git merge -s resolve` looks for no renames and refuses a file that both sides changed
//!   when its permissions differ in the end; so does this.)
//!
//! What is the same on purpose: `merge` and `merge-resolve` fast-forward when they can (Zuul runs
//! `git merge` without `--no-ff`); histories without a common commit are a conflict.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Commit, Delta, DiffOptions, FileMode, Index, MergeOptions, Oid, Repository, Signature, Sort, Tree};

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
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<MergeMode> {
        use MergeMode::{CherryPick, Merge, MergeResolve, Rebase, SquashMerge};
        [Merge, MergeResolve, CherryPick, SquashMerge, Rebase].into_iter().find(|mode| mode.name() == name)
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

/// What every commit made here needs.
pub(crate) struct Maker<'a> {
    pub repo: &'a Repository,
    /// Author and committer, with the date of the request.
    pub signature: Signature<'a>,
    pub message: String,
    /// The most commits of a rebase.
    pub commits_max: usize,
}

enum Merged<'a> {
    Tree(Tree<'a>),
    Conflict { paths: Vec<String>, message: String },
}

/// Puts `theirs` on top of `ours`.
pub(crate) fn pick(maker: &Maker<'_>, mode: MergeMode, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    match mode {
        MergeMode::Merge | MergeMode::MergeResolve => merge(maker, mode, ours, theirs),
        MergeMode::SquashMerge => squash(maker, ours, theirs),
        MergeMode::CherryPick if maker.repo.find_commit(theirs)?.parent_count() > 1 => {
            merge(maker, MergeMode::MergeResolve, ours, theirs)
        }
        MergeMode::CherryPick => copy(maker, ours, theirs),
        MergeMode::Rebase => rebase(maker, ours, theirs),
    }
}

fn options(mode: MergeMode) -> MergeOptions {
    let mut options = MergeOptions::new();
    let resolve = mode == MergeMode::MergeResolve;
    options.find_renames(!resolve).no_recursive(resolve).rename_threshold(50).target_limit(1000);
    options
}

fn is_ancestor(repo: &Repository, ancestor: Oid, of: Oid) -> Result<bool, git2::Error> {
    Ok(ancestor == of || repo.graph_descendant_of(of, ancestor)?)
}

fn merge(maker: &Maker<'_>, mode: MergeMode, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let repo = maker.repo;
    if is_ancestor(repo, theirs, ours)? {
        return Ok(Picked::Commit(ours));
    }
    if is_ancestor(repo, ours, theirs)? {
        return Ok(Picked::Commit(theirs));
    }
    let (one, two) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
    match merge_tree(repo, mode, &one, &two)? {
        Merged::Conflict { paths, message } => Ok(Picked::Conflict { paths, message }),
        Merged::Tree(tree) => commit(maker, &maker.signature, &maker.message, &tree, &[&one, &two]),
    }
}

fn squash(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let repo = maker.repo;
    let (one, two) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
    let tree = if is_ancestor(repo, theirs, ours)? {
        one.tree()?
    } else if is_ancestor(repo, ours, theirs)? {
        two.tree()?
    } else {
        match merge_tree(repo, MergeMode::Merge, &one, &two)? {
            Merged::Conflict { paths, message } => return Ok(Picked::Conflict { paths, message }),
            Merged::Tree(tree) => tree,
        }
    };
    commit(maker, &maker.signature, &maker.message, &tree, &[&one])
}

fn merge_tree<'a>(
    repo: &'a Repository,
    mode: MergeMode,
    ours: &Commit<'_>,
    theirs: &Commit<'_>,
) -> Result<Merged<'a>, git2::Error> {
    match repo.merge_base(ours.id(), theirs.id()) {
        Ok(_) => {}
        Err(e) if e.code() == git2::ErrorCode::NotFound => {
            let message = format!("{} and {} have no commit in common", ours.id(), theirs.id());
            return Ok(Merged::Conflict { paths: Vec::new(), message });
        }
        Err(e) => return Err(e),
    }
    if mode == MergeMode::MergeResolve
        && let Some(path) = permissions_conflict(repo, ours, theirs)?
    {
        let message = format!("merge conflict in {path}: both sides changed it, and its permissions differ");
        return Ok(Merged::Conflict { paths: vec![path], message });
    }
    let index = repo.merge_commits(ours, theirs, Some(&options(mode)))?;
    finish(repo, index)
}

/// A file that both sides changed in different ways, with different permissions in the end: the
/// resolve strategy merges no such file.
fn permissions_conflict(
    repo: &Repository,
    ours: &Commit<'_>,
    theirs: &Commit<'_>,
) -> Result<Option<String>, git2::Error> {
    let base = repo.find_commit(repo.merge_base(ours.id(), theirs.id())?)?.tree()?;
    // Where a path is in the end, by its bytes: content and permissions.
    let changes = |side: &Commit<'_>| -> Result<BTreeMap<Vec<u8>, (Oid, FileMode)>, git2::Error> {
        let mut options = DiffOptions::new();
        options.skip_binary_check(true);
        let diff = repo.diff_tree_to_tree(Some(&base), Some(&side.tree()?), Some(&mut options))?;
        let kept = diff.deltas().filter(|delta| delta.status() == Delta::Modified);
        Ok(kept
            .filter_map(|d| Some((d.new_file().path_bytes()?.to_vec(), (d.new_file().id(), d.new_file().mode()))))
            .collect())
    };
    let (ours, theirs) = (changes(ours)?, changes(theirs)?);
    let differs = ours.iter().find(|(path, one)| theirs.get(*path).is_some_and(|two| two.1 != one.1));
    Ok(differs.map(|(path, _)| String::from_utf8_lossy(path).into_owned()))
}

fn finish(repo: &Repository, mut index: Index) -> Result<Merged<'_>, git2::Error> {
    if !index.has_conflicts() {
        let id = index.write_tree_to(repo)?;
        return Ok(Merged::Tree(repo.find_tree(id)?));
    }
    let mut paths = BTreeSet::new();
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        for side in [conflict.ancestor, conflict.our, conflict.their].into_iter().flatten() {
            paths.insert(String::from_utf8_lossy(&side.path).into_owned());
        }
    }
    let total = paths.len();
    let paths: Vec<String> = paths.into_iter().take(CONFLICT_PATHS_MAX).collect();
    let mut message = format!("merge conflict in {}", paths.iter().take(5).cloned().collect::<Vec<_>>().join(", "));
    if total > 5 {
        message.push_str(&format!(" and {} more", total - 5));
    }
    Ok(Merged::Conflict { paths, message })
}

fn commit(
    maker: &Maker<'_>,
    author: &Signature<'_>,
    message: &str,
    tree: &Tree<'_>,
    parents: &[&Commit<'_>],
) -> Result<Picked, git2::Error> {
    maker.repo.commit(None, author, &maker.signature, message, tree, parents).map(Picked::Commit)
}

fn empty_tree(repo: &Repository) -> Result<Tree<'_>, git2::Error> {
    repo.find_tree(repo.treebuilder(None)?.write()?)
}

/// The tree before a commit: of its first parent, or the empty one.
fn tree_before<'a>(repo: &'a Repository, commit: &Commit<'a>) -> Result<Tree<'a>, git2::Error> {
    if commit.parent_count() == 0 { empty_tree(repo) } else { commit.parent(0)?.tree() }
}

/// Copies one commit: its author and message stay, its committer is gatelog. A commit that brings
/// something which is there already is left out, one that never brought anything is kept.
fn copy(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let repo = maker.repo;
    let (one, two) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
    let (before, base, after) = (tree_before(repo, &two)?, one.tree()?, two.tree()?);
    let index = repo.merge_trees(&before, &base, &after, Some(&options(MergeMode::Merge)))?;
    let tree = match finish(repo, index)? {
        Merged::Conflict { paths, message } => return Ok(Picked::Conflict { paths, message }),
        Merged::Tree(tree) => tree,
    };
    if tree.id() == base.id() && before.id() != after.id() {
        return Ok(Picked::Commit(ours));
    }
    // Texts in other encodings than UTF-8 lose what cannot be shown; git would keep the bytes.
    let message = String::from_utf8_lossy(two.message_raw_bytes()).into_owned();
    let author = two.author();
    commit(maker, &author, &message, &tree, &[&one])
}

fn rebase(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let repo = maker.repo;
    if is_ancestor(repo, theirs, ours)? {
        return Ok(Picked::Commit(ours));
    }
    let commits = only_in(repo, theirs, ours, maker.commits_max)?;
    let mut is_linear = true;
    for id in &commits {
        is_linear &= repo.find_commit(*id)?.parent_count() == 1;
    }
    if is_linear && is_ancestor(repo, ours, theirs)? {
        return Ok(Picked::Commit(theirs));
    }
    // What the branch has got in another commit already is not applied again: it might conflict
    // with what was built on it since.
    let mut known = BTreeSet::new();
    for id in only_in(repo, ours, theirs, maker.commits_max)? {
        known.extend(patch_id(repo, id)?);
    }
    let mut state = ours;
    for id in commits {
        if repo.find_commit(id)?.parent_count() > 1 {
            continue;
        }
        if !known.is_empty() && patch_id(repo, id)?.is_some_and(|patch| known.contains(&patch)) {
            continue;
        }
        match copy(maker, state, id)? {
            Picked::Commit(next) => state = next,
            Picked::Conflict { paths, message } => {
                return Ok(Picked::Conflict { paths, message: format!("{message}, when commit {id} is rebased") });
            }
        }
    }
    Ok(Picked::Commit(state))
}

/// The commits of one history that are not in another, parents first.
fn only_in(repo: &Repository, tip: Oid, other: Oid, limit: usize) -> Result<Vec<Oid>, git2::Error> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(tip)?;
    walk.hide(other)?;
    let found = walk.take(limit + 1).collect::<Result<Vec<_>, _>>()?;
    if found.len() > limit {
        return Err(git2::Error::from_str(&format!("more than {limit} commits to rebase: use another merge mode")));
    }
    Ok(found)
}

/// What a commit changes, independent of where; none for merges and for commits that change nothing.
fn patch_id(repo: &Repository, id: Oid) -> Result<Option<Oid>, git2::Error> {
    let commit = repo.find_commit(id)?;
    if commit.parent_count() > 1 {
        return Ok(None);
    }
    let diff = repo.diff_tree_to_tree(Some(&tree_before(repo, &commit)?), Some(&commit.tree()?), None)?;
    if diff.deltas().len() == 0 { Ok(None) } else { diff.patchid(None).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::MergeMode;

    #[test]
    fn modes_are_known_by_their_name() {
        for name in ["merge", "merge-resolve", "cherry-pick", "squash-merge", "rebase"] {
            assert_eq!(MergeMode::from_name(name).map(MergeMode::name), Some(name));
        }
        assert_eq!(MergeMode::from_name("octopus"), None);
    }
}
