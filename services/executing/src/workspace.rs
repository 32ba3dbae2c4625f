//! Where repositories come from: a contract, so that the executor knows neither mirrors nor merges.

use std::collections::BTreeMap;
use std::path::Path;

use gatelog_record::Value;

use crate::control::BuildControl;
use crate::spec::Checkout;

/// Why a repository could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The repository or the state asked for is not there: trying again will not help.
    #[error("repository {project} at {commit} is not available: {reason}")]
    Missing {
        /// Its canonical name.
        project: String,
        /// The commit asked for.
        commit: String,
        /// What was found instead.
        reason: String,
    },
    /// It did not work this time: another attempt may.
    #[error("repository {project} could not be prepared: {reason}")]
    Failed {
        /// Its canonical name.
        project: String,
        /// What went wrong.
        reason: String,
    },
    /// What is there cannot be used: trying again will not help.
    #[error("{path} of project {project} on branch {branch} {reason}")]
    Unusable {
        /// Its canonical name.
        project: String,
        /// The branch.
        branch: String,
        /// The file.
        path: String,
        /// What is wrong with it, and the cure.
        reason: String,
    },
    /// A token could not be issued: another attempt may bring it.
    #[error("the token of secret {secret:?} could not be issued: {reason}")]
    Token {
        /// The secret.
        secret: String,
        /// Why.
        reason: String,
    },
    /// The build was aborted in the meantime.
    #[error("preparing the workspace was aborted")]
    Aborted,
}

/// What a repository in a build's directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The job may do there what it likes: nothing there may be shared with anything else.
    Work,
    /// The same without a work tree: `HEAD` and all refs are there, and git takes the files for left out on purpose.
    /// Zuul: `workspace-checkout: false`.
    WorkWithoutFiles,
    /// Playbooks come from it, and no process of the build can write there: its files may be the
    /// same as somebody else's.
    Playbooks,
}

/// Puts repositories into a build's directory.
pub trait Workspace: Send + Sync + 'static {
    /// Makes `destination` (its parent exists, it does not) a repository with a work tree at
    /// `checkout`: branch or tag `checkout.name` at `checkout.commit`, `origin/<name>` at
    /// `checkout.previous`, the other branches as named, and an origin that leads nowhere
    /// (Zuul: `file:///dev/null`). Afterwards the repository must not need any other directory of
    /// this host: the sandbox sees nothing else.
    ///
    /// Called on a blocking thread. A long run should look at [`BuildControl::is_aborted`] now and
    /// then and give up with [`WorkspaceError::Aborted`].
    fn materialize(
        &self,
        checkout: &Checkout,
        destination: &Path,
        purpose: Purpose,
        control: &BuildControl,
    ) -> Result<(), WorkspaceError>;

    /// What a YAML file with variables holds in this state of a repository; `None`: there is no such file. Called on a
    /// blocking thread.
    fn variables(&self, checkout: &Checkout, path: &str) -> Result<Option<BTreeMap<String, Value>>, WorkspaceError>;

    /// A signed token for a playbook that is about to run: `secret` says what is in it, `playbook` is the canonical name of
    /// its project with its path there. Called on a blocking thread.
    ///
    /// # Errors
    /// Why there is none; where nobody issues tokens, that.
    fn token(&self, secret: &str, playbook: &str) -> Result<String, WorkspaceError> {
        let reason = format!("nobody here issues tokens, such as {playbook} is to be given");
        Err(WorkspaceError::Token { secret: secret.to_owned(), reason })
    }
}
