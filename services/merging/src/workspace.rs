//! Work trees for an executor.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use git2::build::CheckoutBuilder;
use git2::{IndexEntry, IndexEntryExtendedFlag, IndexEntryFlag, Oid, Repository};

use crate::error::MergeError;
use crate::files::find_commit;
use crate::mirrors::Mirrors;
use crate::names::{ProjectKey, branch_ref, commit_id, full_ref};
use crate::place::Skeleton;
use crate::sealed;
use crate::state::RefState;
use crate::store::{self, GatherError, Listing};

/// How a workspace gets its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectSharing {
    /// Its own copies (which cost nothing on file systems that share blocks). For jobs that may
    /// not be trusted: whoever owns a linked file can change it, here and in the mirror.
    #[default]
    Copy,
    /// Hard links where the file system allows. For what gatelog alone touches.
    Link,
}

/// A branch of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchState {
    /// What the local branch is at.
    pub commit: String,
    /// What `origin/<branch>` is at: the state ahead of the change, so that
    /// `git log origin/<branch>..<branch>` shows the change under test.
    pub origin: String,
}

/// A workspace to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRequest {
    /// The project.
    pub project: ProjectKey,
    /// Where: a directory that does not exist, or is empty.
    pub destination: PathBuf,
    /// The branch to check out; `None` checks `commit` out without a branch (for a tag).
    pub branch: Option<String>,
    /// The commit to check out. When a branch is named, that branch will be at it.
    pub commit: String,
    /// The states of branches: of the checked-out one, which origin to show; of others, what they
    /// were when the buildset was frozen, or what other changes of the chain made of them. A
    /// branch not listed here is at its tip as of the last fetch.
    pub branches: BTreeMap<String, BranchState>,
    /// How to get the objects.
    pub sharing: ObjectSharing,
    /// Whether the files are written; without, git takes all of them for left out on purpose.
    pub files: bool,
}

impl Mirrors {
    /// Makes an ordinary repository with a work tree: all branches and tags, the one asked for
    /// checked out, and an origin that leads nowhere. Zuul: the executor's `src/` directories.
    ///
    /// What was written is removed again when it fails.
    ///
    /// # Errors
    /// [`MergeError::DestinationTaken`], [`MergeError::MissingCommit`], [`MergeError::Io`],
    /// [`MergeError::Damaged`], [`MergeError::Git`]; as [`Mirrors::fetch`] when there is no mirror
    /// yet.
    pub fn clone_workspace(&self, request: &WorkspaceRequest) -> Result<(), MergeError> {
        let mirror = self.repository(&request.project)?;
        find_commit(&mirror, &request.project, &request.commit)?;
        take_destination(&request.destination)?;
        self.fill_workspace(&mirror, request, None).inspect_err(|_| drop(fs::remove_dir_all(&request.destination)))
    }

    /// As [`Mirrors::clone_workspace`], with branches and tags as they were when a buildset was frozen,
    /// whatever was pushed, moved or deleted since: all jobs of a buildset see the same, even those
    /// that start days later. What the request says of a branch goes before. Zuul: restoring the repo
    /// state.
    ///
    /// # Errors
    /// As [`Mirrors::clone_workspace`]; [`MergeError::MissingCommit`] for a ref whose object is not in
    /// the mirror any more.
    pub fn clone_frozen_workspace(&self, request: &WorkspaceRequest, refs: &RefState) -> Result<(), MergeError> {
        let mirror = self.repository(&request.project)?;
        find_commit(&mirror, &request.project, &request.commit)?;
        let mut frozen = BTreeMap::new();
        for (name, id) in refs {
            let name = full_ref(name)?;
            let missing = || MergeError::MissingCommit { project: request.project.clone(), commit: id.clone() };
            let id = commit_id(id)?;
            mirror.find_object(id, None).map_err(|_| missing())?;
            frozen.insert(name, id);
        }
        take_destination(&request.destination)?;
        self.fill_workspace(&mirror, request, Some(&frozen))
            .inspect_err(|_| drop(fs::remove_dir_all(&request.destination)))
    }

    /// Writes the files of a commit into a directory, without a repository: for trusted playbooks
    /// and roles, which nobody needs the history of.
    ///
    /// # Errors
    /// As [`Mirrors::clone_workspace`].
    pub fn materialize(&self, project: &ProjectKey, commit: &str, destination: &Path) -> Result<(), MergeError> {
        let mirror = self.repository(project)?;
        let id = find_commit(&mirror, project, commit)?;
        take_destination(destination)?;
        let mut checkout = CheckoutBuilder::new();
        checkout.force().target_dir(destination).update_index(false).recreate_missing(true).refresh(false);
        let result = mirror.find_object(id, None).and_then(|o| mirror.checkout_tree(&o, Some(&mut checkout)));
        result.map_err(|e| MergeError::git(project, "cannot write the files of a commit", e)).inspect_err(|_| {
            drop(fs::remove_dir_all(destination));
        })
    }

    fn fill_workspace(
        &self,
        mirror: &Repository,
        request: &WorkspaceRequest,
        frozen: Option<&BTreeMap<String, Oid>>,
    ) -> Result<(), MergeError> {
        let project = &request.project;
        let destination = &request.destination;
        let wrap = |e| MergeError::git(project, "cannot make a workspace", e);
        let refs = self.workspace_refs(mirror, request, frozen)?;
        let upstream = request.branch.as_deref().map(|branch| Ok((branch, branch_ref(branch)?))).transpose()?;
        let skeleton = Skeleton {
            identity: &self.config.identity,
            upstream: upstream.as_ref().map(|(branch, merge)| (*branch, merge.as_str())),
            head: &request.commit,
            refs: &refs,
        };
        skeleton.write(destination).map_err(|(path, e)| MergeError::io("cannot write", path, e))?;
        let objects = mirror.path().join("objects");
        let link = request.sharing == ObjectSharing::Link;
        store::copy_files(&objects, &destination.join(".git/objects"), link, |listing| {
            listing.is_scattered() && self.gather(mirror, project)
        })
        .map_err(|e| MergeError::io("cannot copy objects to", destination, e))?;
        let repo =
            Repository::open(destination).and_then(|repo| sealed::seal(&self.config.root, repo)).map_err(wrap)?;
        let commit = find_commit(&repo, project, &request.commit)?;
        if !request.files {
            return leave_files_out(&repo, commit).map_err(wrap);
        }
        let tree = repo.find_object(commit, None).map_err(wrap)?;
        repo.checkout_tree(&tree, Some(CheckoutBuilder::new().force())).map_err(wrap)
    }

    /// Gathers a mirror's objects into packs, unless somebody works on it; whether it did.
    fn gather(&self, mirror: &Repository, project: &ProjectKey) -> bool {
        let Ok(Some(_lock)) = self.lock_if_free(project) else { return false };
        // What was there before the lock was had may have been gathered meanwhile.
        let gathered = Listing::of(&mirror.path().join("objects"))
            .map_err(GatherError::from)
            .and_then(|now| if now.is_scattered() { store::gather(mirror, &now) } else { Ok(()) });
        match gathered {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%project, %error, "loose objects of a mirror could not be gathered: run git fsck there");
                false
            }
        }
    }

    /// The refs of a workspace, all of whose commits are there.
    fn workspace_refs(
        &self,
        mirror: &Repository,
        request: &WorkspaceRequest,
        frozen: Option<&BTreeMap<String, Oid>>,
    ) -> Result<BTreeMap<String, Oid>, MergeError> {
        let project = &request.project;
        let wrap = |e| MergeError::git(project, "cannot read the refs", e);
        let mut refs = match frozen {
            Some(frozen) => frozen.clone(),
            None => branches_and_tags(mirror).map_err(wrap)?,
        };
        let origins: Vec<(String, Oid)> = refs
            .iter()
            .filter_map(|(name, id)| Some((format!("refs/remotes/origin/{}", name.strip_prefix("refs/heads/")?), *id)))
            .collect();
        refs.extend(origins);
        for (branch, state) in &request.branches {
            let name = branch_ref(branch)?;
            refs.insert(name, find_commit(mirror, project, &state.commit)?);
            refs.insert(format!("refs/remotes/origin/{branch}"), find_commit(mirror, project, &state.origin)?);
        }
        if let Some(branch) = &request.branch {
            let name = branch_ref(branch)?;
            let commit = find_commit(mirror, project, &request.commit)?;
            let origin = format!("refs/remotes/origin/{branch}");
            // A branch that the repository lost since has no other origin than itself.
            refs.entry(origin).or_insert(commit);
            refs.insert(name, commit);
        }
        Ok(refs)
    }
}

/// An index that has all files of a commit and says of each that the work tree is without it, as a sparse checkout does.
fn leave_files_out(repo: &Repository, commit: Oid) -> Result<(), git2::Error> {
    let mut index = repo.index()?;
    index.read_tree(&repo.find_commit(commit)?.tree()?)?;
    let entries: Vec<IndexEntry> = index.iter().collect();
    for mut entry in entries {
        entry.flags |= IndexEntryFlag::EXTENDED.bits();
        entry.flags_extended |= IndexEntryExtendedFlag::SKIP_WORKTREE.bits();
        index.add(&entry)?;
    }
    index.write()
}

/// Branches and tags by their whole names. Not `refs/*`: a mirror keeps a ref for each commit it ever
/// prepared, a file each.
pub(crate) fn branches_and_tags(mirror: &Repository) -> Result<BTreeMap<String, Oid>, git2::Error> {
    let mut refs = BTreeMap::new();
    for glob in ["refs/heads/*", "refs/tags/*"] {
        for reference in mirror.references_glob(glob)? {
            let reference = reference?;
            let (Ok(name), Some(id)) = (reference.name(), reference.target()) else { continue };
            refs.insert(name.to_owned(), id);
        }
    }
    Ok(refs)
}

fn take_destination(path: &Path) -> Result<(), MergeError> {
    let wrap = |e| MergeError::io("cannot make the directory", path, e);
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(MergeError::DestinationTaken { path: path.to_owned() }),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => fs::create_dir_all(path).map_err(wrap),
        Err(e) => Err(wrap(e)),
    }
}
