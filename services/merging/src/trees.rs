//! Merging three trees in memory, as far as the answer is certain to be git's.
//!
//! Only directories in which the sides differ are opened, so a merge costs what was changed and not
//! what is there. Where git's answer would depend on more than the three states of one path (renamed
//! files, its own way of matching lines, attributes, odd modes), the answer is [`Sum::Unsure`] and
//! git is asked.
//!
//! # Why the certain cases are certain
//!
//! A path that one side left alone is as the other side has it, in every strategy: unless that other
//! side renamed it, or the directory it lies in, and the first side changed something below the old
//! name. Whoever renames deletes; so git's search for renames can change nothing where
//!
//! - no path that one side deleted was changed by the other,
//! - no path was deleted by both, and
//! - no directory that one side removed was changed by the other at all.
//!
//! These three cases are never decided here for a strategy that looks for renames.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use git2::{FileMode, MergeFileInput, MergeFileOptions, ObjectType, Oid, Repository, Tree, TreeEntry};

use crate::program::Attributes;

/// How deep directories may be nested; deeper ones are left to git.
const DEPTH_MAX: usize = 200;
/// A file that is larger is left to git.
const FILE_MAX: usize = 32 << 20;
/// Paths are not followed any longer than this, in bytes.
const PATH_MAX: usize = 4096;
/// The name of the files in which a repository says how its files are treated.
const ATTRIBUTES: &[u8] = b".gitattributes";

/// Which of git's ways is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// The default one. It looks for renames.
    Ort,
    /// `-s resolve`: path by path.
    Resolve,
}

/// What the merge of three trees comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// This tree, without doubt.
    Tree(Oid),
    /// The sides changed these paths in ways that do not fit, without doubt.
    Conflict(BTreeSet<Vec<u8>>),
    /// To be asked of git, for this reason.
    Unsure(&'static str),
}

/// Merges two trees that come from one.
pub(crate) fn merge(
    repo: &Repository,
    strategy: Strategy,
    base: Oid,
    ours: Oid,
    theirs: Oid,
) -> Result<Sum, git2::Error> {
    let mut walker = Walker { repo, strategy, conflicts: BTreeSet::new() };
    if base == ours {
        return Ok(Sum::Tree(theirs));
    }
    if base == theirs || ours == theirs {
        return Ok(Sum::Tree(ours));
    }
    match walker.directory([Some(base), Some(ours), Some(theirs)], &mut Vec::new(), Place::default()) {
        Err(Stop::Git(error)) => Err(error),
        Err(Stop::Unsure(why)) => Ok(Sum::Unsure(why)),
        Ok(_) if !walker.conflicts.is_empty() => Ok(Sum::Conflict(walker.conflicts)),
        Ok(Some(tree)) => Ok(Sum::Tree(tree)),
        Ok(None) => Ok(Sum::Tree(repo.treebuilder(None)?.write()?)),
    }
}

/// The attribute files of one side that may matter where three trees are merged: those in
/// directories that are not the same in all three, and above.
pub(crate) fn attributes(repo: &Repository, base: Oid, ours: Oid, theirs: Oid) -> Result<Attributes, git2::Error> {
    let mut found = Attributes::new();
    let mut rest = vec![([Some(base), Some(ours), Some(theirs)], Vec::new())];
    while let Some((ids, path)) = rest.pop() {
        let trees = open(repo, ids)?;
        let Some(our) = &trees[1] else { continue };
        for entry in our {
            let name = entry.name_bytes();
            let mut path = path.clone();
            path.push(name.to_vec());
            match entry.kind() {
                Some(ObjectType::Blob) if name == ATTRIBUTES && entry.filemode_raw() != i32::from(FileMode::Link) => {
                    found.insert(path, entry.id());
                }
                Some(ObjectType::Tree) if path.len() < DEPTH_MAX => {
                    let other = |tree: &Option<Tree<'_>>| {
                        let entry = tree.as_ref()?.get_name_bytes(name)?;
                        (entry.kind() == Some(ObjectType::Tree)).then(|| entry.id())
                    };
                    let ids = [other(&trees[0]), Some(entry.id()), other(&trees[2])];
                    if ids[0] != ids[1] || ids[1] != ids[2] {
                        rest.push((ids, path));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// The paths in which two trees differ, of files that became others and of those that came or went.
/// Directories that are the same are not opened.
pub(crate) fn differing(repo: &Repository, one: Oid, two: Oid) -> Result<BTreeSet<Vec<u8>>, git2::Error> {
    let mut found = BTreeSet::new();
    let mut rest = vec![([Some(one), Some(two)], Vec::new())];
    while let Some((ids, above)) = rest.pop() {
        if ids.first() == ids.last() {
            continue;
        }
        let [one, two] = ids.map(|id| id.map(|id| repo.find_tree(id)).transpose());
        let trees = [one?, two?];
        let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
        for (tree, other) in [(&trees[0], &trees[1]), (&trees[1], &trees[0])] {
            for entry in tree.iter().flat_map(Tree::iter) {
                let same = other.as_ref().and_then(|other| other.get_name_bytes(entry.name_bytes()));
                if same.is_none_or(|same| same.id() != entry.id() || same.filemode_raw() != entry.filemode_raw()) {
                    names.insert(entry.name_bytes().to_vec());
                }
            }
        }
        for name in names {
            let mut path = above.clone();
            if !above.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let entries = trees.each_ref().map(|tree| tree.as_ref()?.get_name_bytes(&name));
            let below = entries.each_ref().map(|entry| {
                let entry = entry.as_ref()?;
                (entry.filemode_raw() == TREE).then(|| entry.id())
            });
            if entries.iter().flatten().any(|entry| entry.filemode_raw() != TREE) {
                found.insert(path.clone());
            }
            if below.iter().any(Option::is_some) && above.len() < PATH_MAX {
                rest.push((below, path));
            }
        }
    }
    Ok(found)
}

enum Stop {
    Unsure(&'static str),
    Git(git2::Error),
}

impl From<git2::Error> for Stop {
    fn from(error: git2::Error) -> Stop {
        Stop::Git(error)
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    mode: i32,
    id: Oid,
}

const TREE: i32 = 0o040_000;
const FILE: i32 = 0o100_644;
const PROGRAM: i32 = 0o100_755;
const LINK: i32 = 0o120_000;
const SUBMODULE: i32 = 0o160_000;

impl Entry {
    fn of(entry: &TreeEntry<'_>) -> Result<Entry, Stop> {
        match entry.filemode_raw() {
            mode @ (TREE | FILE | PROGRAM | LINK | SUBMODULE) => Ok(Entry { mode, id: entry.id() }),
            _ => Err(Stop::Unsure("a mode that git has not written for many years")),
        }
    }

    fn is_tree(&self) -> bool {
        self.mode == TREE
    }

    fn is_file(&self) -> bool {
        matches!(self.mode, FILE | PROGRAM)
    }
}

/// Where a directory is.
#[derive(Clone, Copy, Default)]
struct Place {
    depth: usize,
    /// Whether here or above is a file that says how files are treated.
    has_attributes: bool,
}

impl Place {
    fn below(self, has_attributes: bool) -> Result<Place, Stop> {
        if self.depth >= DEPTH_MAX {
            return Err(Stop::Unsure("directories are nested too deep"));
        }
        Ok(Place { depth: self.depth + 1, has_attributes: self.has_attributes || has_attributes })
    }
}

struct Walker<'a> {
    repo: &'a Repository,
    strategy: Strategy,
    conflicts: BTreeSet<Vec<u8>>,
}

fn open(repo: &Repository, ids: [Option<Oid>; 3]) -> Result<[Option<Tree<'_>>; 3], git2::Error> {
    let [one, two, three] = ids.map(|id| id.map(|id| repo.find_tree(id)).transpose());
    Ok([one?, two?, three?])
}

/// The order in which git keeps the entries of a tree: directories as if they ended in a slash.
fn order(one: &TreeEntry<'_>, two: &TreeEntry<'_>) -> Ordering {
    let bytes = |entry: &TreeEntry<'_>| {
        let slash: &[u8] = if entry.filemode_raw() == TREE { b"/" } else { b"" };
        [entry.name_bytes(), slash].concat()
    };
    let (a, b) = (one.name_bytes(), two.name_bytes());
    let common = a.len().min(b.len());
    match a.get(..common).cmp(&b.get(..common)) {
        Ordering::Equal => bytes(one).cmp(&bytes(two)),
        other => other,
    }
}

impl Walker<'_> {
    /// Merges the entries of one directory. `None`: nothing is left in it.
    fn directory(&mut self, ids: [Option<Oid>; 3], path: &mut Vec<u8>, place: Place) -> Result<Option<Oid>, Stop> {
        let repo = self.repo;
        let trees = open(repo, ids)?;
        let has_attributes = trees.iter().flatten().any(|tree| tree.get_name_bytes(ATTRIBUTES).is_some());
        let place = place.below(has_attributes)?;
        let mut at = [0usize; 3];
        let mut edits: Vec<(Vec<u8>, Option<Entry>)> = Vec::new();
        loop {
            let next: [Option<TreeEntry<'_>>; 3] =
                std::array::from_fn(|side| trees.get(side)?.as_ref()?.get(*at.get(side)?));
            let Some(first) = next.iter().flatten().min_by(|one, two| order(one, two)) else { break };
            let mut entries = [None; 3];
            let mut here = [false; 3];
            for (side, entry) in next.iter().enumerate() {
                if let (Some(entry), Some(slot), Some(at), Some(here)) =
                    (entry, entries.get_mut(side), at.get_mut(side), here.get_mut(side))
                    && order(entry, first) == Ordering::Equal
                {
                    *slot = Some((entry.filemode_raw(), entry.id()));
                    *at += 1;
                    *here = true;
                }
            }
            let [b, o, t] = entries;
            if b == o && o == t {
                continue;
            }
            // Only now: most entries are the same in all three.
            let name = first.name_bytes();
            if here.contains(&false) {
                self.refuse_other_kind(&trees, name, first.filemode_raw() == TREE)?;
            }
            let mut entries = [None; 3];
            for ((slot, entry), here) in entries.iter_mut().zip(&next).zip(here) {
                *slot = entry.as_ref().filter(|_| here).map(Entry::of).transpose()?;
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let sum = self.entry(entries, path, place);
            path.truncate(length);
            let sum = sum?;
            if sum != entries[1] {
                edits.push((name.to_vec(), sum));
            }
        }
        if edits.is_empty() || !self.conflicts.is_empty() {
            return Ok(ids[1]);
        }
        if let Some(ours) = &trees[1] {
            for entry in ours {
                Entry::of(&entry)?;
            }
        }
        let mut builder = repo.treebuilder(trees[1].as_ref())?;
        for (name, entry) in edits {
            match entry {
                Some(entry) => {
                    let done = builder.insert(name.as_slice(), entry.id, entry.mode).map(drop);
                    done.map_err(|_| Stop::Unsure("a name that libgit2 does not write"))?;
                }
                None => builder.remove(name.as_slice())?,
            }
        }
        if builder.is_empty() { Ok(None) } else { Ok(Some(builder.write()?)) }
    }

    /// A name that is a directory for one side and something else for another.
    fn refuse_other_kind(&self, trees: &[Option<Tree<'_>>; 3], name: &[u8], is_tree: bool) -> Result<(), Stop> {
        for tree in trees.iter().flatten() {
            if tree.get_name_bytes(name).is_some_and(|entry| (entry.filemode_raw() == TREE) != is_tree) {
                return Err(Stop::Unsure("a directory in the place of something else"));
            }
        }
        Ok(())
    }

    /// Merges what one name stands for. All that are there are directories, or none is.
    fn entry(&mut self, entries: [Option<Entry>; 3], path: &mut Vec<u8>, place: Place) -> Result<Option<Entry>, Stop> {
        let looks_for_renames = self.strategy == Strategy::Ort;
        match entries {
            [b, o, t] if o == t => {
                if looks_for_renames && self.is_less(b, o, place)? {
                    return Err(Stop::Unsure("a path that both sides deleted"));
                }
                Ok(o)
            }
            [b, o, t] if b == o => Ok(t),
            [b, o, t] if b == t => Ok(o),
            [b, Some(o), Some(t)] if o.is_tree() => {
                let sum = self.directory([b.map(|b| b.id), Some(o.id), Some(t.id)], path, place)?;
                Ok(sum.map(|id| Entry { mode: TREE, id }))
            }
            [Some(b), Some(o), Some(t)] if b.is_file() && o.is_file() && t.is_file() => self.file(b, o, t, path, place),
            [Some(_), Some(o), Some(t)] if !looks_for_renames && o.is_file() && t.is_file() => {
                Err(Stop::Unsure("a file that was something else"))
            }
            [_, Some(o), Some(t)] if !looks_for_renames && !o.is_tree() && !t.is_tree() => {
                self.conflicts.insert(path.clone());
                Ok(Some(o))
            }
            [Some(b), one, two] if !looks_for_renames && !b.is_tree() => {
                self.conflicts.insert(path.clone());
                Ok(one.or(two))
            }
            [_, Some(_), Some(_)] => Err(Stop::Unsure("a path that both sides added or changed in kind")),
            _ => Err(Stop::Unsure("a path that one side deleted and the other changed")),
        }
    }

    /// Whether something is gone that was there.
    fn is_less(&self, before: Option<Entry>, after: Option<Entry>, place: Place) -> Result<bool, Stop> {
        match (before, after) {
            (None, _) => Ok(false),
            (Some(_), None) => Ok(true),
            (Some(before), Some(after)) if before.is_tree() && after.is_tree() => {
                let place = place.below(false)?;
                let (old, new) = (self.repo.find_tree(before.id)?, self.repo.find_tree(after.id)?);
                for entry in &old {
                    let kept = new.get_name_bytes(entry.name_bytes()).map(|entry| Entry::of(&entry)).transpose()?;
                    let entry = Entry::of(&entry)?;
                    if Some(entry) != kept && self.is_less(Some(entry), kept, place)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Some(before), Some(after)) => Ok(before.is_tree() != after.is_tree()),
        }
    }

    /// Merges a file that is there in all three, and in each another one.
    fn file(&mut self, b: Entry, o: Entry, t: Entry, path: &[u8], place: Place) -> Result<Option<Entry>, Stop> {
        if self.strategy == Strategy::Resolve && o.mode != t.mode {
            // git merges no such file, not even one whose content is the same.
            self.conflicts.insert(path.to_vec());
            return Ok(Some(o));
        }
        let mode = if o.mode == b.mode { t.mode } else { o.mode };
        let id = match (b.id, o.id, t.id) {
            (_, one, two) if one == two => one,
            (base, one, two) if base == one => two,
            (base, one, two) if base == two => one,
            // The default strategy matches lines by histogram, which libgit2 does not know.
            _ if self.strategy == Strategy::Ort => return Err(Stop::Unsure("a file that both sides changed")),
            _ if place.has_attributes => return Err(Stop::Unsure("a file with attributes that both sides changed")),
            (base, one, two) => match self.lines(base, one, two)? {
                Some(id) => id,
                None => {
                    self.conflicts.insert(path.to_vec());
                    one
                }
            },
        };
        Ok(Some(Entry { mode, id }))
    }

    /// The lines of both, as `git merge-file` does it.
    fn lines(&self, base: Oid, ours: Oid, theirs: Oid) -> Result<Option<Oid>, Stop> {
        /// Where git looks for a NUL, which makes a file binary.
        const HEAD: usize = 8000;
        let repo = self.repo;
        let blobs = [repo.find_blob(base)?, repo.find_blob(ours)?, repo.find_blob(theirs)?];
        if blobs.iter().any(|blob| blob.size() > FILE_MAX) {
            return Err(Stop::Unsure("a large file that both sides changed"));
        }
        let is_binary = |text: &[u8]| text.iter().take(HEAD).any(|byte| *byte == 0);
        if blobs.iter().any(|blob| is_binary(blob.content())) {
            return Ok(None);
        }
        let inputs: [MergeFileInput<'_>; 3] = std::array::from_fn(|at| {
            let mut input = MergeFileInput::new();
            input.content(blobs.get(at).map_or(&[], |blob| blob.content()));
            input
        });
        let merged = git2::merge_file(&inputs[0], &inputs[1], &inputs[2], Some(&mut MergeFileOptions::new()))?;
        if !merged.is_automergeable() {
            return Ok(None);
        }
        Ok(Some(repo.blob(merged.content())?))
    }
}
