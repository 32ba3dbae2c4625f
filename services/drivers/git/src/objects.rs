//! Bringing a prepared commit from a mirror into the forge's repository.

use git2::{ObjectType, Odb, Oid, Repository, Sort};

/// The most commits one submit may bring.
const COMMITS_MAX: usize = 10_000;

/// How deep directories may be nested.
const DEPTH_MAX: usize = 500;

/// Copies a commit with all that is not there yet. Parents before children and files before
/// commits, so a commit that is there is there with everything, whenever the process dies.
pub(crate) fn copy_missing(from: &Repository, to: &Repository, commit: Oid) -> Result<(), git2::Error> {
    let (source, target) = (from.odb()?, to.odb()?);
    target.refresh()?;
    if target.exists(commit) {
        return Ok(());
    }
    let mut walk = from.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(commit)?;
    let mut present = |id: Oid| target.exists(id);
    let commits: Vec<Oid> =
        walk.with_hide_callback(&mut present)?.take(COMMITS_MAX + 1).collect::<Result<_, git2::Error>>()?;
    if commits.len() > COMMITS_MAX {
        return Err(git2::Error::from_str(&format!("more than {COMMITS_MAX} commits to bring")));
    }
    for id in commits {
        copy_tree(from, &source, &target, from.find_commit(id)?.tree_id(), 0)?;
        copy(&source, &target, id)?;
    }
    Ok(())
}

fn copy(source: &Odb<'_>, target: &Odb<'_>, id: Oid) -> Result<(), git2::Error> {
    let object = source.read(id)?;
    target.write(object.kind(), object.data()).map(|_| ())
}

fn copy_tree(
    from: &Repository,
    source: &Odb<'_>,
    target: &Odb<'_>,
    tree: Oid,
    depth: usize,
) -> Result<(), git2::Error> {
    if target.exists(tree) {
        return Ok(());
    }
    if depth > DEPTH_MAX {
        return Err(git2::Error::from_str("directories are nested too deep"));
    }
    for entry in from.find_tree(tree)?.iter() {
        match entry.kind() {
            Some(ObjectType::Tree) => copy_tree(from, source, target, entry.id(), depth + 1)?,
            Some(ObjectType::Blob) if !target.exists(entry.id()) => copy(source, target, entry.id())?,
            // A commit here is a submodule: it lives in another repository.
            _ => {}
        }
    }
    copy(source, target, tree)
}
