//! Bare repositories of the code review, in a directory of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use git2::{ErrorCode, MergeOptions, Oid, Repository, Signature, Time, Tree, build::TreeUpdateBuilder};

use crate::file::Files;

/// Trouble with git, in one line.
pub fn trouble(error: git2::Error) -> String {
    format!("git: {}", error.message())
}

/// One bare repository.
pub struct Bare {
    repository: Repository,
    /// Where it is.
    pub path: PathBuf,
    clock: i64,
}

fn updated<'r>(
    repository: &'r Repository,
    base: &Tree<'_>,
    files: &BTreeMap<String, Option<String>>,
) -> Result<Tree<'r>, String> {
    let mut builder = TreeUpdateBuilder::new();
    for (path, text) in files {
        match text {
            Some(text) => {
                let blob = repository.blob(text.as_bytes()).map_err(trouble)?;
                builder.upsert(path, blob, git2::FileMode::Blob);
            }
            None if base.get_path(Path::new(path)).is_ok() => {
                builder.remove(path);
            }
            None => {}
        }
    }
    let tree = builder.create_updated(repository, base).map_err(trouble)?;
    repository.find_tree(tree).map_err(trouble)
}

impl Bare {
    /// Makes an empty one.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn create(path: PathBuf) -> Result<Bare, String> {
        let mut options = git2::RepositoryInitOptions::new();
        options.bare(true).initial_head("master");
        let repository = Repository::init_opts(&path, &options).map_err(trouble)?;
        Ok(Bare { repository, path, clock: 1_600_000_000 })
    }

    fn signature(&mut self) -> Result<Signature<'static>, String> {
        self.clock += 1;
        Signature::new("Ann", "ann@example.org", &Time::new(self.clock, 0)).map_err(trouble)
    }

    /// A first commit of a branch.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn first_commit(&mut self, branch: &str, files: &Files) -> Result<String, String> {
        let signature = self.signature()?;
        let empty = self.repository.treebuilder(None).and_then(|one| one.write()).map_err(trouble)?;
        let files = files.iter().map(|(path, text)| (path.clone(), Some(text.clone()))).collect();
        let parent = match self.tip("master") {
            Some(tip) => Some(self.repository.find_commit(oid(&tip)?).map_err(trouble)?),
            None => None,
        };
        let empty = self.repository.find_tree(empty).map_err(trouble)?;
        let tree = updated(&self.repository, &empty, &files)?;
        let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
        let message = format!("branch {branch}\n");
        let commit =
            self.repository.commit(None, &signature, &signature, &message, &tree, &parents).map_err(trouble)?;
        self.set_ref(&format!("refs/heads/{branch}"), &commit.to_string())?;
        Ok(commit.to_string())
    }

    /// A commit on top of another.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn commit(
        &mut self,
        parent: &str,
        files: &BTreeMap<String, Option<String>>,
        message: &str,
    ) -> Result<String, String> {
        let signature = self.signature()?;
        let parent = self.repository.find_commit(oid(parent)?).map_err(trouble)?;
        let tree = updated(&self.repository, &parent.tree().map_err(trouble)?, files)?;
        let commit = self.repository.commit(None, &signature, &signature, message, &tree, &[&parent]);
        commit.map(|commit| commit.to_string()).map_err(trouble)
    }

    /// Merges a commit into another, as the code review does: `None` when they conflict.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn merge(&mut self, onto: &str, commit: &str) -> Result<Option<String>, String> {
        let (ours, theirs) = (oid(onto)?, oid(commit)?);
        let signature = self.signature()?;
        let repository = &self.repository;
        let before = |one: Oid, two: Oid| one == two || repository.graph_descendant_of(two, one).unwrap_or(false);
        if before(theirs, ours) {
            return Ok(Some(onto.to_owned()));
        }
        if before(ours, theirs) {
            return Ok(Some(commit.to_owned()));
        }
        let (one, two) =
            (repository.find_commit(ours).map_err(trouble)?, repository.find_commit(theirs).map_err(trouble)?);
        let mut options = MergeOptions::new();
        options.no_recursive(true).find_renames(false);
        let mut index = repository.merge_commits(&one, &two, Some(&options)).map_err(trouble)?;
        if index.has_conflicts() {
            return Ok(None);
        }
        let tree = index.write_tree_to(repository).map_err(trouble)?;
        let tree = repository.find_tree(tree).map_err(trouble)?;
        let merged = repository.commit(None, &signature, &signature, "Merge\n", &tree, &[&one, &two]);
        merged.map(|commit| Some(commit.to_string())).map_err(trouble)
    }

    /// Whether a commit is there.
    pub fn has(&self, commit: &str) -> bool {
        oid(commit).is_ok_and(|id| self.repository.find_commit(id).is_ok())
    }

    /// Brings a commit with its history from a mirror.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn fetch(&self, from: &Path, commit: &str) -> Result<(), String> {
        let other = Repository::open_bare(from).map_err(trouble)?;
        let mut remote = other.find_commit(oid(commit)?).map_err(trouble)?;
        // Objects are few: they are copied one by one.
        let mut todo = vec![remote.id()];
        while let Some(id) = todo.pop() {
            if self.repository.find_commit(id).is_ok() {
                continue;
            }
            remote = other.find_commit(id).map_err(trouble)?;
            todo.extend(remote.parent_ids());
            let tree = remote.tree().map_err(trouble)?;
            self.copy(&other, tree.id())?;
            let mut failure = None;
            tree.walk(git2::TreeWalkMode::PreOrder, |_, entry| {
                failure = self.copy(&other, entry.id()).err();
                if failure.is_some() { git2::TreeWalkResult::Abort } else { git2::TreeWalkResult::Ok }
            })
            .map_err(trouble)?;
            if let Some(failure) = failure {
                return Err(failure);
            }
            self.copy(&other, id)?;
        }
        Ok(())
    }

    fn copy(&self, other: &Repository, id: Oid) -> Result<(), String> {
        let (from, to) = (other.odb().map_err(trouble)?, self.repository.odb().map_err(trouble)?);
        if to.exists(id) {
            return Ok(());
        }
        let object = from.read(id).map_err(trouble)?;
        to.write(object.kind(), object.data()).map(|_| ()).map_err(trouble)
    }

    /// Where a branch is.
    pub fn tip(&self, branch: &str) -> Option<String> {
        self.repository.refname_to_id(&format!("refs/heads/{branch}")).ok().map(|id| id.to_string())
    }

    /// Its branches.
    pub fn branches(&self) -> Vec<String> {
        let mut names: Vec<String> = match self.repository.references_glob("refs/heads/*") {
            Ok(mut all) => {
                all.names().filter_map(|name| Some(name.ok()?.strip_prefix("refs/heads/")?.to_owned())).collect()
            }
            Err(_) => Vec::new(),
        };
        names.sort();
        names
    }

    /// Puts a ref somewhere.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn set_ref(&self, name: &str, commit: &str) -> Result<(), String> {
        self.repository.reference(name, oid(commit)?, true, "").map(|_| ()).map_err(trouble)
    }

    /// Takes a ref away.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn drop_ref(&self, name: &str) -> Result<(), String> {
        match self.repository.find_reference(name) {
            Ok(mut reference) => reference.delete().map_err(trouble),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(trouble(error)),
        }
    }

    /// The paths and contents at a commit.
    ///
    /// # Errors
    /// Trouble with git.
    pub fn files(&self, commit: &str, wanted: impl Fn(&str) -> bool) -> Result<Files, String> {
        let tree = self.repository.find_commit(oid(commit)?).and_then(|commit| commit.tree()).map_err(trouble)?;
        let mut files = Files::new();
        tree.walk(git2::TreeWalkMode::PreOrder, |folder, entry| {
            let path = format!("{folder}{}", entry.name().unwrap_or_default());
            if entry.kind() == Some(git2::ObjectType::Blob)
                && wanted(&path)
                && let Ok(blob) = self.repository.find_blob(entry.id())
            {
                files.insert(path, String::from_utf8_lossy(blob.content()).into_owned());
            }
            git2::TreeWalkResult::Ok
        })
        .map_err(trouble)?;
        Ok(files)
    }

    /// The branches that contain a commit.
    pub fn containing(&self, commit: &str) -> Vec<String> {
        let Ok(id) = oid(commit) else { return Vec::new() };
        let contains = |branch: &String| {
            let tip = self.tip(branch).and_then(|tip| oid(&tip).ok());
            tip.is_some_and(|tip| tip == id || self.repository.graph_descendant_of(tip, id).unwrap_or(false))
        };
        self.branches().into_iter().filter(contains).collect()
    }
}

fn oid(text: &str) -> Result<Oid, String> {
    Oid::from_str(text).map_err(trouble)
}
