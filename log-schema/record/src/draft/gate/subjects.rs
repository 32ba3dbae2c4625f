//! What is gated: changes, refs, and what a code-review system says of them.

use serde::{Deserialize, Serialize};

use crate::id::ActorId;
use crate::sealed::Sealed;
use crate::value::Value;

/// A change or a ref at one moment. For a change, `change` and `patchset` are set; for a ref that
/// moved (post, tag, timer) they are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// The connection.
    pub connection: String,
    /// The project's canonical name (`host/path`).
    pub project: String,
    /// The target branch, where there is one.
    pub branch: Option<String>,
    /// The full ref that can be fetched.
    pub git_ref: String,
    /// The change, by its id within the project.
    pub change: Option<String>,
    /// The patchset.
    pub patchset: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// For a ref that moved: where it was.
    pub old_commit: Option<String>,
    /// Where people look at it; what Depends-On names.
    pub url: String,
}

/// A change by name, whatever its patchset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangeKey {
    /// The project's canonical name.
    pub project: String,
    /// The change's id within the project.
    pub change: String,
}

impl Subject {
    /// The change's key, if this is a change.
    pub fn change_key(&self) -> Option<ChangeKey> {
        let change = self.change.clone()?;
        Some(ChangeKey { project: self.project.clone(), change })
    }
}

/// A branch of a project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProjectBranch {
    /// The connection.
    pub connection: String,
    /// The project's canonical name.
    pub project: String,
    /// The branch.
    pub branch: String,
}

/// What a code-review system says of a change, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeFacts {
    /// The change at its current patchset.
    pub subject: Subject,
    /// Whether it is open.
    pub open: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether its current patchset was approved.
    pub approved: bool,
    /// Votes and the like, in the driver's terms.
    pub approvals: Value,
    /// Whether the code-review system would let it merge, and if not why.
    pub cannot_merge: Option<String>,
    /// Its parent commits.
    pub parents: Vec<String>,
    /// The texts after `Depends-On:`, as written.
    pub depends_on: Vec<String>,
    /// The changes it needs: by Depends-On, by git, by topic; resolved by the driver.
    pub needs: Vec<ChangeKey>,
    /// Open changes known to need it.
    pub needed_by: Vec<ChangeKey>,
    /// The paths it changes; `None` when not known.
    pub files: Option<Vec<String>>,
    /// Its owner, opaque.
    pub owner: ActorId,
    /// The owner's name and address: under the person's seal.
    pub owner_identity: Option<Sealed>,
    /// The message: under the project's seal.
    pub text: Option<Sealed>,
    /// What only this driver knows.
    pub attributes: Value,
}
