//! Triggers, facts about changes, and what became of both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::subjects::{ChangeFacts, ChangeKey, ProjectBranch, Subject};
use super::timers::TimerTicked;
use crate::id::{ItemId, WorkId};
use crate::value::Value;

/// Input: an outside event, routed to a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerReceived {
    /// The tenant.
    pub tenant: String,
    /// The tenant file by which it was routed.
    pub table_version: u64,
    /// The event.
    pub event: crate::draft::intake::ForgeEvent,
}

/// Input: an outside event that no tenant takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRouted {
    /// The connection.
    pub connection: String,
    /// The project.
    pub project: String,
    /// The event's name.
    pub event: String,
    /// The tenant file by which it was not routed.
    pub table_version: u64,
}

/// An outside event that concerns no tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unrouted {
    /// What came.
    pub what: NotRouted,
    /// A code: `project-in-no-tenant`, `no-tenant-file`.
    pub reason: String,
}

/// Why facts are wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FactsPurpose {
    /// A trigger waits for them.
    Trigger {
        /// The input sequence of the trigger.
        trigger: u64,
    },
    /// An item's report that merges asks again.
    BeforeSubmit {
        /// The item.
        item: ItemId,
    },
    /// A change ahead was merged or changed and those behind are looked at again.
    Refresh,
    /// A change was merged, and pipelines are told of every open change of its project: these are asked for, and none
    /// by name. Zuul: `project-change-merged`.
    ProjectMerged {
        /// The canonical name of the project.
        project: String,
    },
}

/// Work: ask the code-review system for changes and the closure of what they need and who needs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesWanted {
    /// The work.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// The connection to ask.
    pub connection: String,
    /// The changes; none where the purpose says which are meant.
    pub changes: Vec<ChangeKey>,
    /// Whether the changes that need them are wanted too.
    pub with_needed_by: bool,
    /// Among which projects (canonical names).
    pub among: Vec<String>,
    /// Why.
    pub purpose: FactsPurpose,
}

/// Input: the facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesFound {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// The changes found: the whole closure asked for.
    pub changes: Vec<ChangeFacts>,
    /// Changes that do not exist.
    pub missing: Vec<ChangeKey>,
    /// Set when the answer is a failure: a code and a text.
    pub failed: Option<(String, String)>,
}

/// Facts about changes were observed; `changes` rows are as of this event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesObserved {
    /// What was found.
    pub found: ChangesFound,
}

/// What set a trigger off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TriggerCause {
    /// An event of a code-review system.
    Forge(TriggerReceived),
    /// Somebody asked.
    Asked(EnqueueAsked),
    /// A timer came due.
    Timer(TimerTicked),
}

/// A trigger waits: for facts, for the configuration, or for another of its project and branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerWaiting {
    /// The input sequence of the trigger.
    pub trigger: u64,
    /// The tenant.
    pub tenant: String,
    /// What came.
    pub cause: TriggerCause,
    /// Whether it needs facts about its change that are newer than itself.
    pub needs_facts: bool,
}

/// Nothing live refers to these changes any more; what was known of them is dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesForgotten {
    /// The tenant.
    pub tenant: String,
    /// The changes.
    pub changes: Vec<ChangeKey>,
}

/// What became of a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerSettled {
    /// The input sequence of the trigger.
    pub trigger: u64,
    /// The tenant.
    pub tenant: String,
    /// For each pipeline considered: what became of it, as a code (`enqueued`, `no-match`,
    /// `already-in-pipeline`, `requirements`, `refused`, …) and a sentence.
    pub verdicts: Vec<PipelineVerdict>,
}

/// What one pipeline made of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineVerdict {
    /// The pipeline; empty where the trigger concerns none.
    pub pipeline: String,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// A change was not let into a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnqueueRefused {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The change.
    pub subject: Subject,
    /// A code: `needs-unapproved`, `needs-other-queue`, `needs-missing`, `dependency-cycle`,
    /// `cannot-merge`, `limit`, …
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// A branch's tip moved: by gatelog's own merge or by somebody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchMoved {
    /// The tenant.
    pub tenant: String,
    /// The branch.
    pub at: ProjectBranch,
    /// Where it was; `None` for a new branch.
    pub old: Option<String>,
    /// Where it is; `None` for a deleted branch.
    pub new: Option<String>,
    /// The item whose merge this is, if it is one of ours.
    pub by: Option<ItemId>,
}

/// Input: somebody asks to enqueue a change, past the requirements of the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnqueueAsked {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The connection.
    pub connection: String,
    /// The change; or a ref, by its full name.
    pub change: ChangeKey,
    /// Why, in their words.
    pub reason: String,
    /// Of a ref: where it was before. Zuul: `oldrev`.
    pub old_commit: Option<String>,
    /// Of a ref: where it is; of a branch it may be left out. Zuul: `newrev`.
    pub new_commit: Option<String>,
    /// Of a branch or tag: values for the parameters that its project declares for the pipeline, as they were sent.
    pub parameters: BTreeMap<String, Value>,
}

impl EnqueueAsked {
    /// Whether what is asked for can have parameters. Zuul: branches and tags alone.
    pub fn takes_parameters(&self) -> bool {
        let name = &self.change.change;
        name.starts_with("refs/heads/") || name.starts_with("refs/tags/")
    }
}

/// Input: somebody asks to dequeue a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DequeueAsked {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The change.
    pub change: ChangeKey,
    /// Why, in their words.
    pub reason: String,
}

/// Input: somebody asks that changes go to the head of their queues, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromoteAsked {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The changes, the one to go first first.
    pub changes: Vec<ChangeKey>,
    /// Why, in their words.
    pub reason: String,
}

/// What becomes of outside events of a tenant for the time being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TriggerIntake {
    /// They are dealt with as they come.
    #[default]
    Open,
    /// They wait.
    Paused,
    /// They are dropped; those that wait go on waiting.
    Discarding,
}

/// Input: somebody asks that outside events of a tenant wait, or are dropped, or are dealt with again. Zuul: the
/// state of a tenant's trigger queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntakeAsked {
    /// The tenant.
    pub tenant: String,
    /// What is to become of them.
    pub triggers: TriggerIntake,
    /// Why, in their words.
    pub reason: String,
}

/// Outside events of a tenant wait from here on, or are dropped, or are dealt with again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntakeChanged {
    /// What was asked.
    pub asked: IntakeAsked,
}
