//! Merging for real, reporting, leaving.

use serde::{Deserialize, Serialize};

use super::configuration::ConfigRemark;
use super::subjects::{ProjectBranch, Subject};
use crate::id::{ItemId, WorkId};
use crate::time::Timestamp;
use crate::value::Value;

/// One branch to move: exactly from the base that was tested to the commit that was tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitTarget {
    /// The change.
    pub subject: Subject,
    /// The branch.
    pub at: ProjectBranch,
    /// The tip it was tested on.
    pub tested_base: String,
    /// What was tested.
    pub tested_commit: String,
    /// Its tree.
    pub tested_tree: String,
}

/// Work: merge what was tested, by compare-and-swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmitRequested {
    /// The work.
    pub work: WorkId,
    /// The item.
    pub item: ItemId,
    /// The tenant.
    pub tenant: String,
    /// What is to be merged.
    pub targets: Vec<SubmitTarget>,
}

/// How merging ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SubmitOutcome {
    /// The branches name the tested commits.
    Merged,
    /// A branch was not where it was when the state was tested.
    BaseMoved {
        /// The branch.
        at: ProjectBranch,
        /// Where it was expected.
        expected: String,
        /// Where it is; `None` when it is gone.
        found: Option<String>,
    },
    /// The code-review system says no.
    Refused {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
        /// Whether trying again may help.
        again: bool,
    },
}

/// Input: how merging ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmitDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// How it ended.
    pub outcome: SubmitOutcome,
}

/// How merging ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// The item.
    pub item: ItemId,
    /// How it ended.
    pub done: SubmitDone,
}

/// Which of a pipeline's reporters speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReportAction {
    /// `enqueue`
    Enqueue,
    /// `start`
    Start,
    /// `success`
    Success,
    /// `failure`
    Failure,
    /// `merge-conflict`
    MergeConflict,
    /// `config-error`
    ConfigError,
    /// `no-jobs`
    NoJobs,
    /// `dequeue`
    Dequeue,
    /// `disabled`: instead of any other, once a pipeline failed too often in a row.
    Disabled,
}

impl ReportAction {
    /// Zuul's name of the reporter list.
    pub fn word(self) -> &'static str {
        match self {
            ReportAction::Enqueue => "enqueue",
            ReportAction::Start => "start",
            ReportAction::Success => "success",
            ReportAction::Failure => "failure",
            ReportAction::MergeConflict => "merge-conflict",
            ReportAction::ConfigError => "config-error",
            ReportAction::NoJobs => "no-jobs",
            ReportAction::Dequeue => "dequeue",
            ReportAction::Disabled => "disabled",
        }
    }
}

/// Work: deliver a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportRequested {
    /// The work; also the report's id, by which a repeat is known where it is delivered.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// The item; none for a change that was refused before it became one.
    pub item: Option<ItemId>,
    /// The pipeline.
    pub pipeline: String,
    /// Which reporters.
    pub action: ReportAction,
    /// To whom: connection and what the reporter was configured with.
    pub reporters: Vec<(String, Value)>,
    /// About what.
    pub subjects: Vec<Subject>,
    /// The whole message.
    pub message: String,
    /// What is said to single lines of the change, where the code-review system can show that; it stands in
    /// the message, too.
    pub remarks: Vec<ConfigRemark>,
    /// When it was decided: its date where it is delivered, the same at every sending.
    pub requested_at: Timestamp,
}

/// Input: how reporting ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// Set when it could not be delivered: code, text, and whether trying again may help.
    pub failed: Option<(String, String, bool)>,
}

/// A report was delivered, or could not be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportDelivered {
    /// The item.
    pub item: Option<ItemId>,
    /// How it ended.
    pub done: ReportDone,
}

/// How an item ended, in Zuul's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemResult {
    /// `SUCCESS`
    Success,
    /// `FAILURE`
    Failure,
    /// `MERGE_CONFLICT`
    MergeConflict,
    /// `MERGE_FAILURE`
    MergeFailure,
    /// `CONFIG_ERROR`
    ConfigError,
    /// `NO_JOBS`
    NoJobs,
    /// `DEQUEUED`
    Dequeued,
    /// `ERROR`
    Error,
}

impl ItemResult {
    /// Zuul's word.
    pub fn word(self) -> &'static str {
        match self {
            ItemResult::Success => "SUCCESS",
            ItemResult::Failure => "FAILURE",
            ItemResult::MergeConflict => "MERGE_CONFLICT",
            ItemResult::MergeFailure => "MERGE_FAILURE",
            ItemResult::ConfigError => "CONFIG_ERROR",
            ItemResult::NoJobs => "NO_JOBS",
            ItemResult::Dequeued => "DEQUEUED",
            ItemResult::Error => "ERROR",
        }
    }
}

/// An item left its pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemDequeued {
    /// The item.
    pub item: ItemId,
    /// How it ended.
    pub result: ItemResult,
    /// A code: `merged`, `reported`, `new-patchset`, `abandoned`, `admin`, `needs-gone`, `superseded`, …
    pub code: String,
    /// A sentence.
    pub detail: String,
    /// Whether gatelog merged it: then what was tested behind it goes on as it is.
    pub merged: bool,
}
