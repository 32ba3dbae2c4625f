//! `git rebase`: each commit of a change copied, in order.

use std::collections::BTreeSet;

use git2::{Oid, Repository, Sort};

use crate::line::Paths;
use crate::pick::{Maker, Picked};
use crate::program;

pub(crate) fn rebase(maker: &Maker<'_>, ours: Oid, theirs: Oid) -> Result<Picked, git2::Error> {
    let repo = maker.repo;
    // What a request put on the branch before is not walked again: it is known.
    let known = maker.line.stand_in(repo, ours, theirs)?;
    let Some(commits) = only_in(repo, theirs, known, maker.commits_max)? else {
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
    let commits = match only_in(repo, known, theirs, maker.commits_max)? {
        Some(news) if is_linear && news.is_empty() && known == ours => return Ok(Picked::Commit(theirs)),
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

/// Whether any of the commits may have the same change as any of the others, or as what was put on the
/// branch: it would have to change the same paths.
fn may_have_got(maker: &Maker<'_>, news: &[Oid], commits: &[Oid]) -> Result<bool, git2::Error> {
    let mut own: BTreeSet<Paths> = BTreeSet::new();
    for id in commits {
        own.extend(maker.line.paths(maker.repo, *id)?);
    }
    for id in news {
        if maker.line.paths(maker.repo, *id)?.is_some_and(|paths| own.contains(&paths)) {
            return Ok(true);
        }
    }
    maker.line.has_changed(maker.repo, &own)
}
