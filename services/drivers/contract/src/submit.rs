//! Merging for real: what is handed over, and what became of it.

use std::path::PathBuf;

use gatelog_record::draft::gate::SubmitTarget;

use crate::trouble::Trouble;

/// A branch to move.
#[derive(Clone, Debug, PartialEq)]
pub struct Target<'a> {
    /// What was tested, and on what.
    pub wanted: &'a SubmitTarget,
    /// A repository on this host that holds the tested commit and all it is built on.
    pub objects: PathBuf,
}

/// Where a branch is after merging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchNow {
    /// Its tip.
    pub commit: String,
    /// The tree of that.
    pub tree: String,
}

/// What became of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landing {
    /// What was tested is in the branch: as that very commit, or as another with the tested tree. Also where it was
    /// merged before, by an earlier call for the same work.
    Merged(BranchNow),
    /// The other side merged something, and its tree is not the one that was tested.
    MergedUntested(BranchNow),
    /// The branch was not where it was when the state was tested, and was left alone.
    BaseMoved {
        /// Where it is; `None` when it is gone.
        found: Option<String>,
    },
    /// The other side says no, and would again.
    Refused {
        /// A code.
        code: String,
        /// For people, in the other side's words.
        message: String,
    },
    /// Nothing was done to it because of what became of another target of the same call.
    HeldBack,
    /// It could not be tried, or it is not known whether it was done; asked again, it comes out.
    Failed(Trouble),
}

impl Landing {
    /// Whether what was tested is in the branch.
    pub fn is_merged(&self) -> bool {
        matches!(self, Landing::Merged(_))
    }
}
