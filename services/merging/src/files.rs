//! Reading files and lists of files at any state, without a work tree.

use std::collections::BTreeSet;

use git2::{ObjectType, Oid, Repository, Tree};

use crate::error::MergeError;
use crate::mirrors::{Mirrors, tip};
use crate::names::{ProjectKey, commit_id};
use crate::prepare::ChangedFiles;
use crate::{program, trees};

/// How deep directories may be nested.
const DEPTH_MAX: usize = 100;

/// A directory that holds a file of this name is left out. Zuul: `.zuul.ignore`.
const IGNORE: &str = ".zuul.ignore";

/// Which files are wanted, and how large they may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFilter {
    /// Files by their path.
    pub files: BTreeSet<String>,
    /// Directories (without a slash at the end), with all below them that ends in `.yaml`, except
    /// directories that hold a `.zuul.ignore`.
    pub directories: BTreeSet<String>,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// The most bytes for one branch of one project.
    pub total_bytes_max: u64,
    /// The most files for one branch of one project.
    pub files_max: usize,
}

impl FileFilter {
    /// No files at all.
    pub fn none() -> FileFilter {
        FileFilter {
            files: BTreeSet::new(),
            directories: BTreeSet::new(),
            file_bytes_max: 4 << 20,
            total_bytes_max: 64 << 20,
            files_max: 10_000,
        }
    }

    /// These files and no others.
    pub fn exactly<'a>(paths: impl IntoIterator<Item = &'a str>) -> FileFilter {
        FileFilter { files: paths.into_iter().map(str::to_owned).collect(), ..FileFilter::none() }
    }

    /// Where Zuul looks for configuration: `zuul.yaml`, `zuul.d/`, `.zuul.yaml`, `.zuul.d/`, and
    /// the extra paths, of which those ending in a slash are directories (Zuul:
    /// `extra-config-paths`).
    pub fn zuul<'a>(extra: impl IntoIterator<Item = &'a str>) -> FileFilter {
        let mut filter = FileFilter::exactly(["zuul.yaml", ".zuul.yaml"]);
        filter.directories = ["zuul.d", ".zuul.d"].map(str::to_owned).into();
        for path in extra {
            match path.strip_suffix('/') {
                Some(directory) => filter.directories.insert(directory.to_owned()),
                None => filter.files.insert(path.to_owned()),
            };
        }
        filter
    }

    /// Whether a change to this path may change what the filter gives.
    pub fn concerns(&self, path: &str) -> bool {
        let file = path.rsplit('/').next().unwrap_or(path);
        let below = |d: &String| path.strip_prefix(d.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.files.contains(path) || ((file.ends_with(".yaml") || file == IGNORE) && self.directories.iter().any(below))
    }
}

/// A file at some state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path from the top of the repository.
    pub path: String,
    /// Its content. For a symbolic link, where it points, as git stores it.
    pub content: Vec<u8>,
}

/// A state of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The tip of a branch, as of the last fetch.
    Branch(String),
    /// A commit, by its whole id.
    Commit(String),
}

impl Mirrors {
    /// The message of a commit, cut to the limit of a file. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// [`MergeError::MissingCommit`], [`MergeError::Damaged`]; as [`Mirrors::fetch`] when there is no
    /// mirror yet.
    pub fn message(&self, project: &ProjectKey, commit: &str) -> Result<String, MergeError> {
        /// Longer messages no job needs whole.
        const LONGEST: usize = 64 << 10;
        let repo = self.repository(project)?;
        let id = find_commit(&repo, project, commit)?;
        let found = repo.find_commit(id).map_err(|e| MergeError::git(project, "cannot read a commit", e))?;
        let bytes = found.message_bytes();
        Ok(String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned())
    }

    /// The files at a state that the filter wants, sorted by path. Files that are not there are
    /// not an error. Zuul: the merger's `cat` job.
    ///
    /// # Errors
    /// [`MergeError::MissingBranch`], [`MergeError::MissingCommit`], [`MergeError::FileTooLarge`],
    /// [`MergeError::TooMany`], [`MergeError::Damaged`]; as [`Mirrors::fetch`] when there is no
    /// mirror yet.
    pub fn read_files(
        &self,
        project: &ProjectKey,
        state: &State,
        filter: &FileFilter,
    ) -> Result<Vec<SourceFile>, MergeError> {
        let repo = self.repository(project)?;
        let (id, label) = match state {
            State::Branch(branch) => (tip(&repo, project, branch)?, branch.clone()),
            State::Commit(commit) => (find_commit(&repo, project, commit)?, commit.clone()),
        };
        read(&repo, project, id, &format!("{label} of {project}"), filter)
    }

    /// The files in which two commits differ. Renamed files count with both names.
    ///
    /// # Errors
    /// [`MergeError::MissingCommit`]; as [`Mirrors::fetch`] when there is no mirror yet.
    pub fn changed_files(&self, project: &ProjectKey, base: &str, tip: &str) -> Result<ChangedFiles, MergeError> {
        let repo = self.repository(project)?;
        let (base, tip) = (find_commit(&repo, project, base)?, find_commit(&repo, project, tip)?);
        changed(&repo, base, tip, self.config.limits.changed_files)
            .map_err(|e| MergeError::git(project, "cannot compare two commits", e))
    }

    /// The commit that an id stands for: itself, or what the tag of this id names.
    ///
    /// # Errors
    /// [`MergeError::BadName`], [`MergeError::MissingCommit`]; as [`Mirrors::fetch`] when there is no mirror yet.
    pub fn commit_of(&self, project: &ProjectKey, id: &str) -> Result<String, MergeError> {
        let repo = self.repository(project)?;
        let found = repo.find_object(commit_id(id)?, None).and_then(|object| object.peel_to_commit());
        let missing = |_| MergeError::MissingCommit { project: project.clone(), commit: id.to_owned() };
        found.map(|commit| commit.id().to_string()).map_err(missing)
    }

    /// The branches whose history holds a commit, sorted. The commit may be named by a tag's own id,
    /// and one that is not in the mirror is in no branch. Zuul: `item_in_branches`, from which a tag
    /// gets its jobs.
    ///
    /// # Errors
    /// [`MergeError::BadName`], [`MergeError::Git`]; as [`Mirrors::fetch`] when there is no mirror
    /// yet.
    pub fn branches_containing(&self, project: &ProjectKey, commit: &str) -> Result<Vec<String>, MergeError> {
        let id = commit_id(commit)?;
        let repo = self.repository(project)?;
        let Ok(found) = repo.find_object(id, None).and_then(|object| object.peel_to_commit()) else {
            return Ok(Vec::new());
        };
        let refs = program::branches_with(&repo, found.id())
            .map_err(|e| MergeError::git(project, "cannot look for the branches that hold a commit", e))?;
        let mut branches: Vec<String> =
            refs.into_iter().filter_map(|name| Some(name.strip_prefix("refs/heads/")?.to_owned())).collect();
        branches.sort();
        Ok(branches)
    }
}

pub(crate) fn find_commit(repo: &Repository, project: &ProjectKey, commit: &str) -> Result<Oid, MergeError> {
    let id = commit_id(commit)?;
    match repo.find_commit(id) {
        Ok(_) => Ok(id),
        Err(e) if e.code() == git2::ErrorCode::NotFound => {
            Err(MergeError::MissingCommit { project: project.clone(), commit: commit.to_owned() })
        }
        Err(e) => Err(MergeError::git(project, "cannot read a commit", e)),
    }
}

pub(crate) fn changed(repo: &Repository, base: Oid, tip: Oid, limit: usize) -> Result<ChangedFiles, git2::Error> {
    let paths = trees::differing(repo, repo.find_commit(base)?.tree_id(), repo.find_commit(tip)?.tree_id())?;
    // Sorted as texts, which what is not UTF-8 becomes first.
    let paths: BTreeSet<String> = paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let truncated = paths.len() > limit;
    Ok(ChangedFiles { paths: paths.into_iter().take(limit).collect(), truncated })
}

/// What is being read, for the limits and the errors.
struct Reading<'a> {
    repo: &'a Repository,
    project: &'a ProjectKey,
    label: &'a str,
    filter: &'a FileFilter,
    bytes: u64,
    found: Vec<SourceFile>,
}

pub(crate) fn read(
    repo: &Repository,
    project: &ProjectKey,
    commit: Oid,
    label: &str,
    filter: &FileFilter,
) -> Result<Vec<SourceFile>, MergeError> {
    let wrap = |e| MergeError::git(project, "cannot read files", e);
    let root = repo.find_commit(commit).and_then(|c| c.tree()).map_err(wrap)?;
    let mut reading = Reading { repo, project, label, filter, bytes: 0, found: Vec::new() };
    for path in &filter.files {
        if let Some((id, ObjectType::Blob)) = entry(repo, &root, path).map_err(wrap)? {
            reading.take(path.clone(), id)?;
        }
    }
    for path in &filter.directories {
        if let Some((id, ObjectType::Tree)) = entry(repo, &root, path).map_err(wrap)? {
            reading.directory(path, id, 0)?;
        }
    }
    reading.found.sort_by(|a, b| a.path.cmp(&b.path));
    reading.found.dedup_by(|a, b| a.path == b.path);
    Ok(reading.found)
}

/// Finds a path step by step. libgit2's own look-up takes a system path; this one takes any text.
fn entry(repo: &Repository, root: &Tree<'_>, path: &str) -> Result<Option<(Oid, ObjectType)>, git2::Error> {
    let mut current = (root.id(), ObjectType::Tree);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if current.1 != ObjectType::Tree {
            return Ok(None);
        }
        let tree = repo.find_tree(current.0)?;
        let next = tree.get_name_bytes(part.as_bytes()).and_then(|e| Some((e.id(), e.kind()?)));
        match next {
            Some(next) => current = next,
            None => return Ok(None),
        }
    }
    Ok(Some(current))
}

impl Reading<'_> {
    fn directory(&mut self, path: &str, id: Oid, depth: usize) -> Result<(), MergeError> {
        if depth > DEPTH_MAX {
            return Err(self.too_many("nested directories", DEPTH_MAX));
        }
        let wrap = |e| MergeError::git(self.project, "cannot read a directory", e);
        let tree = self.repo.find_tree(id).map_err(wrap)?;
        if tree.get_name_bytes(IGNORE.as_bytes()).is_some() {
            return Ok(());
        }
        for entry in &tree {
            let name = String::from_utf8_lossy(entry.name_bytes());
            let below = format!("{path}/{name}");
            match entry.kind() {
                Some(ObjectType::Tree) => self.directory(&below, entry.id(), depth + 1)?,
                Some(ObjectType::Blob) if name.ends_with(".yaml") => self.take(below, entry.id())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, path: String, id: Oid) -> Result<(), MergeError> {
        let wrap = |e| MergeError::git(self.project, "cannot read a file", e);
        // The size is looked up first, so that a huge file is never in memory.
        let (size, _) = self.repo.odb().and_then(|odb| odb.read_header(id)).map_err(wrap)?;
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let limit = self.filter.file_bytes_max;
        if size > limit {
            return Err(MergeError::FileTooLarge { branch: self.label.to_owned(), path, size, limit });
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.filter.total_bytes_max {
            let limit = self.filter.total_bytes_max;
            return Err(MergeError::TooMany { what: "bytes in files", subject: self.label.to_owned(), limit });
        }
        if self.found.len() >= self.filter.files_max {
            return Err(self.too_many("files", self.filter.files_max));
        }
        let content = self.repo.find_blob(id).map_err(wrap)?.content().to_vec();
        self.found.push(SourceFile { path, content });
        Ok(())
    }

    fn too_many(&self, what: &'static str, limit: usize) -> MergeError {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        MergeError::TooMany { what, subject: self.label.to_owned(), limit }
    }
}

#[cfg(test)]
mod tests {
    use super::FileFilter;

    #[test]
    fn a_filter_knows_which_paths_concern_it() {
        let filter = FileFilter::zuul(["extra.yaml", "more/"]);
        for path in
            ["zuul.yaml", ".zuul.yaml", "zuul.d/a/b.yaml", ".zuul.d/x/.zuul.ignore", "extra.yaml", "more/x.yaml"]
        {
            assert!(filter.concerns(path), "{path}");
        }
        for path in ["README", "zuul.d/readme.md", "a/zuul.yaml", "zuul.dx/a.yaml", "more", "zuul.yml"] {
            assert!(!filter.concerns(path), "{path}");
        }
    }
}
