//! Bringing a prepared commit from a mirror into the forge's repository.

use std::path::Path;

use git2::{Commit, ObjectType, Odb, OdbLookupFlags, Oid, Repository, Sort, Tree};

/// The most commits one submit may bring.
const COMMITS_MAX: usize = 10_000;

/// How deep directories may be nested.
const DEPTH_MAX: usize = 500;

/// A repository of which only objects are read. Its refs and configuration concern nobody here.
pub(crate) fn open(path: &Path) -> Result<Repository, git2::Error> {
    let objects = path.join("objects");
    match objects.to_str().filter(|_| objects.is_dir() && path.join("HEAD").is_file()) {
        Some(objects) => {
            let odb = Odb::new()?;
            odb.add_disk_alternate(objects)?;
            Repository::from_odb(odb)
        }
        None => Repository::open(path),
    }
}

/// Copies a commit with all that is not there yet. Parents before children and files before
/// commits, so a commit that is there is there with everything, whenever the process dies.
pub(crate) fn copy_missing(from: &Repository, to: &Repository, commit: Oid) -> Result<(), git2::Error> {
    let (source, target) = (from.odb()?, to.odb()?);
    target.refresh()?;
    let copying = Copying { from, source, target };
    if copying.target.exists(commit) {
        return Ok(());
    }
    let mut walk = from.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(commit)?;
    // What somebody packs meanwhile is looked for again: the history must not be taken for missing.
    let mut present = |id: Oid| copying.target.exists(id);
    let commits: Vec<Oid> =
        walk.with_hide_callback(&mut present)?.take(COMMITS_MAX + 1).collect::<Result<_, git2::Error>>()?;
    if commits.len() > COMMITS_MAX {
        return Err(git2::Error::from_str(&format!("more than {COMMITS_MAX} commits to bring")));
    }
    for id in commits {
        let commit = from.find_commit(id)?;
        // Parents are there by now, with everything: what a tree shares with theirs is.
        let known = commit.parents().map(|parent: Commit<'_>| parent.tree()).collect::<Result<Vec<_>, _>>()?;
        copying.tree(commit.tree_id(), &known, 0)?;
        copying.object(id)?;
    }
    Ok(())
}

struct Copying<'a> {
    from: &'a Repository,
    source: Odb<'a>,
    target: Odb<'a>,
}

impl Copying<'_> {
    /// As far as was known when the copying began; what is copied although it is there by now is the same.
    fn is_there(&self, id: Oid) -> bool {
        self.target.exists_ext(id, OdbLookupFlags::NO_REFRESH)
    }

    fn object(&self, id: Oid) -> Result<(), git2::Error> {
        let object = self.source.read(id)?;
        self.target.write(object.kind(), object.data()).map(|_| ())
    }

    /// Copies a tree; all that is in `known` is there.
    fn tree(&self, tree: Oid, known: &[Tree<'_>], depth: usize) -> Result<(), git2::Error> {
        if self.is_there(tree) {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            return Err(git2::Error::from_str("directories are nested too deep"));
        }
        for entry in self.from.find_tree(tree)?.iter() {
            let beside = known.iter().filter_map(|tree| tree.get_name_bytes(entry.name_bytes()));
            let beside: Vec<_> = beside.collect();
            if beside.iter().any(|known| known.id() == entry.id()) {
                continue;
            }
            match entry.kind() {
                Some(ObjectType::Tree) => {
                    let trees = beside.iter().filter(|known| known.kind() == Some(ObjectType::Tree));
                    let known = trees.map(|known| self.from.find_tree(known.id())).collect::<Result<Vec<_>, _>>()?;
                    self.tree(entry.id(), &known, depth + 1)?;
                }
                Some(ObjectType::Blob) if !self.is_there(entry.id()) => self.object(entry.id())?,
                // A commit here is a submodule: it lives in another repository.
                _ => {}
            }
        }
        self.object(tree)
    }
}
