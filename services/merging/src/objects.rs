//! Bringing objects from one repository on this machine into another.

use std::collections::BTreeSet;
use std::io::Write;

use git2::{ObjectType, Oid, Repository, Sort};

/// Up to this many commits are written as loose objects; more become one pack, because thousands of
/// small packs would make every later look-up slow.
const LOOSE_COMMITS_MAX: usize = 100;

/// Copies what is reachable from `wants` and not yet in `to`. Parents before children and files
/// before commits, so a commit that is there is there with everything, whenever the process dies.
pub(crate) fn copy_missing(from: &Repository, to: &Repository, wants: &BTreeSet<Oid>) -> Result<(), git2::Error> {
    let target = to.odb()?;
    // What another process wrote must be seen, or it would be copied again.
    target.refresh()?;
    let mut walk = from.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    let mut tags = Vec::new();
    let mut others = Vec::new();
    for &want in wants {
        if target.exists(want) {
            continue;
        }
        let mut id = want;
        // A tag may name a tag; git allows any depth, nobody uses more than two.
        for _ in 0..16 {
            match from.find_object(id, None)?.kind() {
                Some(ObjectType::Tag) => {
                    tags.push(id);
                    id = from.find_tag(id)?.target_id();
                }
                Some(ObjectType::Commit) => {
                    walk.push(id)?;
                    break;
                }
                _ => {
                    others.push(id);
                    break;
                }
            }
        }
    }
    let mut present = |id: Oid| target.exists(id);
    let commits = walk.with_hide_callback(&mut present)?.collect::<Result<Vec<Oid>, _>>()?;
    if commits.len() <= LOOSE_COMMITS_MAX {
        let source = from.odb()?;
        let copy = |id: Oid| -> Result<(), git2::Error> {
            let object = source.read(id)?;
            target.write(object.kind(), object.data()).map(|_| ())
        };
        for commit in commits {
            if !target.exists(commit) {
                copy_tree(from, &target, from.find_commit(commit)?.tree_id(), &copy, 0)?;
                copy(commit)?;
            }
        }
        for id in others {
            match from.find_object(id, None)?.kind() {
                Some(ObjectType::Tree) => copy_tree(from, &target, id, &copy, 0)?,
                _ => copy(id)?,
            }
        }
        for tag in tags.into_iter().rev() {
            copy(tag)?;
        }
        return Ok(());
    }
    let mut pack = from.packbuilder()?;
    for commit in &commits {
        pack.insert_commit(*commit)?;
    }
    for id in others {
        pack.insert_recursive(id, None)?;
    }
    for tag in tags {
        pack.insert_object(tag, None)?;
    }
    let mut writer = target.packwriter()?;
    let mut failed = None;
    pack.foreach(|bytes| match writer.write_all(bytes) {
        Ok(()) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    })
    .map_err(|error| failed.take().map_or(error, |e| git2::Error::from_str(&format!("writing a pack: {e}"))))?;
    writer.commit()?;
    Ok(())
}

fn copy_tree(
    from: &Repository,
    target: &git2::Odb<'_>,
    tree: Oid,
    copy: &impl Fn(Oid) -> Result<(), git2::Error>,
    depth: usize,
) -> Result<(), git2::Error> {
    if target.exists(tree) {
        return Ok(());
    }
    if depth > 500 {
        return Err(git2::Error::from_str("directories are nested deeper than 500"));
    }
    for entry in from.find_tree(tree)?.iter() {
        match entry.kind() {
            Some(ObjectType::Tree) => copy_tree(from, target, entry.id(), copy, depth + 1)?,
            Some(ObjectType::Blob) if !target.exists(entry.id()) => copy(entry.id())?,
            // A commit here is a submodule: it lives in another repository.
            _ => {}
        }
    }
    copy(tree)
}
