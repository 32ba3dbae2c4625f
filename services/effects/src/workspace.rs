//! The repositories of a build, from the mirrors.

use std::collections::BTreeMap;
use std::path::Path;

use gatelog_executing::spec::Checkout;
use gatelog_executing::{BuildControl, Purpose, Workspace, WorkspaceError};
use gatelog_merging::{
    BranchState, FileFilter, MergeError, ObjectSharing, ProjectKey, RefState, State, WorkspaceRequest,
};
use gatelog_record::{BlobHash, Value, codec};

use crate::connection::chain;
use crate::git::Repositories;
use crate::tokens::Issuer;
use crate::vars_file;

/// Workspaces from the mirrors, with branches and tags as they were when the jobs of the buildset were frozen.
pub struct MirrorWorkspace {
    repositories: Repositories,
    refs: BTreeMap<String, BlobHash>,
    issuer: Option<Issuer>,
}

impl MirrorWorkspace {
    /// Of one build; `refs` is what its spec says of all branches and tags, by the canonical name of the project. Of a
    /// project that is not there, those of now are taken.
    pub fn new(repositories: Repositories, refs: BTreeMap<String, BlobHash>) -> MirrorWorkspace {
        MirrorWorkspace { repositories, refs, issuer: None }
    }

    /// The same, with who issues the tokens that the build's playbooks are given.
    pub fn with_issuer(self, issuer: Issuer) -> MirrorWorkspace {
        MirrorWorkspace { issuer: Some(issuer), ..self }
    }

    fn key(&self, checkout: &Checkout) -> Result<ProjectKey, WorkspaceError> {
        let (project, host) = (checkout.project.canonical_name(), &checkout.project.canonical_hostname);
        let missing = |reason: String| WorkspaceError::Missing {
            project: project.clone(),
            commit: checkout.commit.clone(),
            reason,
        };
        let connections = &self.repositories.connections;
        let connection = connections
            .by_host(host)
            .find(|(_, review)| review.canonical_hostname() == *host)
            .map(|(connection, _)| connection.name.clone())
            .ok_or_else(|| missing(format!("no connection has host {host}")))?;
        self.repositories.key(&connection, &project).map_err(|trouble| missing(trouble.to_string()))
    }

    fn frozen(&self, project: &str) -> Result<Option<RefState>, WorkspaceError> {
        let Some(hash) = self.refs.get(project) else { return Ok(None) };
        let failed = |reason: String| WorkspaceError::Failed { project: project.to_owned(), reason };
        let bytes = self.repositories.blobs.get(hash).map_err(|error| failed(chain(&error)))?;
        codec::decode(&bytes).map(Some).map_err(|error| failed(chain(&error)))
    }

    /// Makes it. What another process's merger pinned may be newer than this mirror: then it is fetched first.
    fn make(&self, key: &ProjectKey, request: &WorkspaceRequest, frozen: Option<RefState>) -> Result<(), MergeError> {
        let mirrors = &self.repositories.mirrors;
        let mut frozen = frozen;
        let mut was_fetched = false;
        loop {
            let made = match &frozen {
                Some(refs) => mirrors.clone_frozen_workspace(request, refs),
                None => mirrors.clone_workspace(request),
            };
            let Err(MergeError::MissingCommit { commit, .. }) = &made else { return made };
            if !was_fetched {
                was_fetched = true;
                if let Err(error) = mirrors.fetch(key, &[]) {
                    tracing::warn!(project = %key, error = %chain(&error), "a repository could not be fetched for a build");
                }
                continue;
            }
            // A branch or tag beside what is tested, whose commit no repository has any more: the build can do without.
            let before = frozen.as_ref().map_or(0, BTreeMap::len);
            if let Some(refs) = &mut frozen {
                refs.retain(|_, id| id != commit);
            }
            let left = frozen.as_ref().map_or(0, BTreeMap::len);
            if left == before {
                return made;
            }
            tracing::warn!(project = %key, commit, refs = before - left, "what refs named is gone: a build is without");
        }
    }
}

impl Workspace for MirrorWorkspace {
    fn materialize(
        &self,
        checkout: &Checkout,
        destination: &Path,
        purpose: Purpose,
        control: &BuildControl,
    ) -> Result<(), WorkspaceError> {
        if control.is_aborted() {
            return Err(WorkspaceError::Aborted);
        }
        let project = checkout.project.canonical_name();
        let key = self.key(checkout)?;
        let frozen = self.frozen(&project)?;
        let mut branches: BTreeMap<String, BranchState> = checkout
            .branches
            .iter()
            .map(|(branch, commit)| (branch.clone(), BranchState { commit: commit.clone(), origin: commit.clone() }))
            .collect();
        // A tag is checked out as one.
        let has =
            |kind: &str| frozen.as_ref().is_some_and(|refs| refs.contains_key(&format!("{kind}/{}", checkout.name)));
        let is_branch = has("refs/heads") || !has("refs/tags");
        if is_branch {
            let origin = checkout.previous.clone().unwrap_or_else(|| checkout.commit.clone());
            branches.insert(checkout.name.clone(), BranchState { commit: checkout.commit.clone(), origin });
        }
        let request = WorkspaceRequest {
            project: key.clone(),
            destination: destination.to_path_buf(),
            branch: is_branch.then(|| checkout.name.clone()),
            commit: checkout.commit.clone(),
            branches,
            sharing: match purpose {
                Purpose::Work | Purpose::WorkWithoutFiles => ObjectSharing::Copy,
                Purpose::Playbooks => ObjectSharing::Link,
            },
            files: purpose != Purpose::WorkWithoutFiles,
        };
        self.make(&key, &request, frozen).map_err(|error| refused(checkout, &error))
    }

    fn variables(&self, checkout: &Checkout, path: &str) -> Result<Option<BTreeMap<String, Value>>, WorkspaceError> {
        let key = self.key(checkout)?;
        let filter = FileFilter { file_bytes_max: vars_file::MOST_BYTES, ..FileFilter::exactly([path]) };
        let state = State::Commit(checkout.commit.clone());
        let mirrors = &self.repositories.mirrors;
        let mut files = mirrors.read_files(&key, &state, &filter);
        if let Err(MergeError::MissingCommit { .. }) = &files {
            // What another process's merger pinned may be newer than this mirror.
            if let Err(error) = mirrors.fetch(&key, &[]) {
                tracing::warn!(project = %key, error = %chain(&error), "a repository could not be fetched for a build");
            }
            files = mirrors.read_files(&key, &state, &filter);
        }
        let unusable = |reason: String| WorkspaceError::Unusable {
            project: checkout.project.canonical_name(),
            branch: checkout.name.clone(),
            path: path.to_owned(),
            reason,
        };
        let mut files = match files {
            Err(MergeError::FileTooLarge { .. }) => {
                return Err(unusable(format!("has more than {} bytes: make it smaller", vars_file::MOST_BYTES)));
            }
            files => files.map_err(|error| refused(checkout, &error))?,
        };
        let Some(file) = files.pop() else { return Ok(None) };
        vars_file::read(&file.content).map(Some).map_err(unusable)
    }

    fn token(&self, secret: &str, playbook: &str) -> Result<String, WorkspaceError> {
        let failed = |reason: String| WorkspaceError::Token { secret: secret.to_owned(), reason };
        let issuer = self.issuer.as_ref().ok_or_else(|| failed("nobody here issues any".to_owned()))?;
        issuer.issue(secret, playbook).map_err(failed)
    }
}

/// What an error of the mirrors means to a build.
fn refused(checkout: &Checkout, error: &MergeError) -> WorkspaceError {
    let (project, reason) = (checkout.project.canonical_name(), chain(error));
    match error {
        MergeError::MissingCommit { .. } | MergeError::Vanished { .. } | MergeError::BadName { .. } => {
            WorkspaceError::Missing { project, commit: checkout.commit.clone(), reason }
        }
        _ => WorkspaceError::Failed { project, reason },
    }
}
