//! `git rebase`: each commit of a change copied, in order.

use std::collections::BTreeSet;
use std::rc::Rc;

use git2::{Oid, Repository, Sort};

use crate::pick::{Maker, Paths, Picked, tree_before};
use crate::{program, trees};

pub(crate) fn rebase(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let repo = maker.repo;
    let Some(commits) = only_in(repo, theirs, ours, maker.commits_max)? else {
        let text = format!("more than {} commits to rebase: use another merge mode", maker.commits_max);
        return Err(git2::Error::from_str(&text));
    };
    if commits.is_empty() {
        return Ok(Picked::Commit(ours));
    }
    let mut is_linear = true;
    for id in &commits {
        is_linear &= repo.find_commit(*id)?.parent_count() == 1;
    }
    // What the branch has got in another commit already is not applied again: it might conflict
    // with what was built on it since.
    let commits = match only_in(repo, ours, theirs, maker.commits_max)? {
        Some(news) if is_linear && news.is_empty() => return Ok(Picked::Commit(theirs)),
        Some(news) if is_linear && !may_have_got(maker, &news, &commits)? => commits,
        _ => program::commits_to_rebase(repo, ours, theirs)?,
    };
    let mut state = ours;
    for id in commits {
        let commit = repo.find_commit(id)?;
        if commit.parent_count() == 1 && commit.parent_id(0)? == state {
            state = id;
            continue;
        }
        match maker.copy(state, id)? {
            Picked::Commit(next) => state = next,
            Picked::Conflict { paths, message } => {
                return Ok(Picked::Conflict { paths, message: format!("{message}, when commit {id} is rebased") });
            }
        }
    }
    Ok(Picked::Commit(state))
}

/// The commits of one history that are not in another, parents first; `None` if they are too many.
fn only_in(repo: &Repository, tip: Oid, other: Oid, limit: usize) -> Result<Option<Vec<Oid>>, git2::Error> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(tip)?;
    walk.hide(other)?;
    let found = walk.take(limit.saturating_add(1)).collect::<Result<Vec<_>, _>>()?;
    Ok((found.len() <= limit).then_some(found))
}

/// Whether any of the commits may have the same change as any of the others: it would have to change
/// the same paths.
fn may_have_got(maker: &Maker<'_>, news: &[Oid], commits: &[Oid]) -> Result<bool, git2::Error> {
    let mut known = BTreeSet::new();
    for id in news {
        known.extend(paths(maker, *id)?);
    }
    for id in commits {
        if paths(maker, *id)?.is_some_and(|paths| known.contains(&paths)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The paths that a commit changes; none for merges and for commits that change nothing.
fn paths(maker: &Maker<'_>, id: Oid) -> Result<Option<Paths>, git2::Error> {
    if let Some(known) = maker.line.paths.borrow().get(&id) {
        return Ok(known.clone());
    }
    let repo = maker.repo;
    let commit = repo.find_commit(id)?;
    let mut paths = BTreeSet::new();
    if commit.parent_count() < 2 {
        paths = trees::differing(repo, tree_before(repo, &commit)?.id(), commit.tree_id())?;
    }
    let paths = (!paths.is_empty()).then(|| Rc::new(paths));
    maker.line.paths.borrow_mut().insert(id, paths.clone());
    Ok(paths)
}
