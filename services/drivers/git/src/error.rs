//! What can go wrong, by what to conclude from it.

use std::path::PathBuf;

use crate::change::ChangeKey;

/// Why the forge could not answer or act. A merge that lost its race is not an error but a
/// [`crate::SubmitOutcome`].
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// A name or id that cannot be used.
    #[error("{what} {text:?} is not usable: {why}")]
    BadName {
        /// What it should have been.
        what: &'static str,
        /// What was given, shortened.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The forge has no such project.
    #[error("the forge has no project {project}: create it, or restore {path}", path = path.display())]
    NoProject {
        /// The project.
        project: String,
        /// Where its repository should be.
        path: PathBuf,
    },
    /// No change of this name was ever proposed.
    #[error("change {change} was never proposed: push it to refs/for/{branch}/{name}",
        branch = change.branch, name = change.name)]
    NoChange {
        /// The change.
        change: ChangeKey,
    },
    /// A commit is in neither repository.
    #[error("commit {commit} is not in {project}: prepare it again")]
    MissingCommit {
        /// The project.
        project: String,
        /// The commit id.
        commit: String,
    },
    /// Another program holds the lock of a ref for too long.
    #[error("ref {name} of {project} stays locked: look for a hanging git process, or remove {path}", path = path.display())]
    Locked {
        /// The project.
        project: String,
        /// The ref.
        name: String,
        /// The lock file.
        path: PathBuf,
    },
    /// Others kept changing a ref while gatelog tried to.
    #[error("ref {name} of {project} changed {attempts} times while it was being updated: try again later")]
    Busy {
        /// The project.
        project: String,
        /// The ref.
        name: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// More than a limit allows.
    #[error("{what} of {subject}: more than the limit of {limit}; raise the limit if this is meant to be")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// Of which project or change.
        subject: String,
        /// The limit.
        limit: usize,
    },
    /// A ref is nested so deeply that libgit2 does not read those beside it.
    #[error("the refs of {project} cannot be read, because some are nested too deeply: remove what is in {path}", path = path.display())]
    TooDeep {
        /// The project.
        project: String,
        /// The directory that is too deep.
        path: PathBuf,
    },
    /// A hook that gatelog did not write is in the way.
    #[error(
        "{path} was not written by gatelog, and {own} is there already: put what you need of the two into {own}, which \
         gatelog's hook runs, and remove {path}", path = path.display(), own = own.display()
    )]
    ForeignHook {
        /// The hook.
        path: PathBuf,
        /// Where the user's own hook is kept.
        own: PathBuf,
    },
    /// git is told to look for hooks in another directory.
    #[error(
        "core.hooksPath in the repository of {project} is {path}: git would not run gatelog's hooks; run `git config \
         --unset core.hooksPath` there, and put your own hooks into its hooks/"
    )]
    HooksElsewhere {
        /// The project.
        project: String,
        /// What the configuration says.
        path: String,
    },
    /// A file could not be read or written.
    #[error("{what} {path}", path = path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// libgit2 refuses; the repository may be damaged.
    #[error("{what} in the repository of {project}: if it persists, run git fsck there")]
    Git {
        /// The project.
        project: String,
        /// What was being done.
        what: &'static str,
        /// What libgit2 says.
        #[source]
        source: git2::Error,
    },
}

impl ForgeError {
    pub(crate) fn git(project: &str, what: &'static str) -> impl Fn(git2::Error) -> ForgeError {
        let project = project.to_owned();
        move |source| ForgeError::Git { project: project.clone(), what, source }
    }

    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> ForgeError {
        ForgeError::Io { what, path: path.into(), source }
    }
}
