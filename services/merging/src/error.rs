//! What can go wrong, by what to conclude from it.

use std::path::PathBuf;

use crate::names::{BranchKey, ProjectKey};

/// Why a mirror could not answer. None of these says that a change is bad; a change that cannot be
/// merged is [`crate::PrepareOutcome::Conflict`].
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A name, id or commit id that no repository can have.
    #[error("{what} {text:?} is not usable: {why}")]
    BadName {
        /// What it should have been.
        what: &'static str,
        /// What was given, shortened.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// Nobody said where this project's repository is.
    #[error("no source is known for project {project}: add it to its connection before asking for it")]
    UnknownProject {
        /// The project.
        project: ProjectKey,
    },
    /// The repository is not where it was.
    #[error("the repository of {project} at {url} has vanished ({detail}): restore it or remove the project")]
    Vanished {
        /// The project.
        project: ProjectKey,
        /// Where it was looked for.
        url: String,
        /// What was found instead.
        detail: String,
    },
    /// A kind of address that this release cannot fetch from.
    #[error(
        "the repository of {project} is at {url}, which cannot be fetched: use a path, or an address that begins with \
             file://, https://, http://, ssh:// or git://"
    )]
    UnsupportedUrl {
        /// The project.
        project: ProjectKey,
        /// The address.
        url: String,
    },
    /// The repository has no such ref.
    #[error("the repository of {project} has no ref {name}: it was deleted, or never pushed")]
    MissingRef {
        /// The project.
        project: ProjectKey,
        /// The whole ref name.
        name: String,
    },
    /// The repository has no such branch.
    #[error("there is no branch {branch}: create it or correct the configuration")]
    MissingBranch {
        /// The project and branch.
        branch: BranchKey,
    },
    /// A commit that was named is not in the repository.
    #[error("commit {commit} is not in the repository of {project}: fetch the ref that holds it, or prepare it again")]
    MissingCommit {
        /// The project.
        project: ProjectKey,
        /// The commit id.
        commit: String,
    },
    /// Objects are missing or do not have the content their name says.
    #[error("the repository of {project} is damaged ({what}): run git fsck there, or discard its mirror")]
    Damaged {
        /// The project.
        project: ProjectKey,
        /// What was being done.
        what: &'static str,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
    /// A file that was asked for is larger than the limit.
    #[error("{path} on {branch} has {size} bytes, the limit is {limit}: split it or raise the limit")]
    FileTooLarge {
        /// The project and branch, or project and commit.
        branch: String,
        /// The file.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// More files, bytes, refs, items or commits than the limit allows.
    #[error("{what} of {subject}: more than the limit of {limit}; raise the limit if this is meant to be")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// Of which project or request.
        subject: String,
        /// The limit.
        limit: u64,
    },
    /// Somebody else holds the repository's lock for too long.
    #[error("the mirror of {project} has been locked for {seconds} s: another gatelog works on it, or hangs")]
    Locked {
        /// The project.
        project: ProjectKey,
        /// How long was waited.
        seconds: u64,
    },
    /// The place for a workspace is taken.
    #[error("{path} exists and is not empty: name a new directory for the workspace")]
    DestinationTaken {
        /// The directory.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{what} {path}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// libgit2 refuses for another reason.
    #[error("{what} in the repository of {project}")]
    Git {
        /// The project.
        project: ProjectKey,
        /// What was being done.
        what: &'static str,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
}

impl MergeError {
    /// Sorts an error of libgit2: damage is told from all the rest by its class, because what
    /// helps is different.
    pub(crate) fn git(project: &ProjectKey, what: &'static str, source: git2::Error) -> MergeError {
        use git2::ErrorClass::{Indexer, Object, Odb, Zlib};
        let project = project.clone();
        if matches!(source.class(), Odb | Zlib | Object | Indexer) {
            MergeError::Damaged { project, what, source }
        } else {
            MergeError::Git { project, what, source }
        }
    }

    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> MergeError {
        MergeError::Io { what, path: path.into(), source }
    }
}
