//! The queue's life: failing, resets, windows, waits.

use serde::{Deserialize, Serialize};

use super::subjects::Subject;
use crate::id::{BuildId, ItemId};
use crate::time::Timestamp;

/// An item is failing, or no longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemFailing {
    /// The item.
    pub item: ItemId,
    /// Why; empty when it is failing no longer.
    pub reasons: Vec<String>,
}

/// An item was reported as a success, and merged if its pipeline merges; it stays until its reporter jobs are done.
/// Zuul: nothing else happens in its queue meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportersStarted {
    /// The item.
    pub item: ItemId,
    /// Whether gatelog merged it.
    pub merged: bool,
}

/// An item's builds were given up; it starts again on another base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemReset {
    /// The item.
    pub item: ItemId,
    /// The item it now stands behind.
    pub ahead: Option<ItemId>,
    /// A code: `ahead-failing`, `ahead-left`, `base-moved`, `needs-failing`, …
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// A queue's window grew or shrank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowChanged {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// The new window, in items; 0 means without limit.
    pub window: u32,
    /// A code: `success`, `failure`, `reconfigured`.
    pub code: String,
}

/// A queue's items were put into another order. Those that have to begin anew are reset beside it. The queue is looked at
/// before the others of its pipeline from here on, also where its own order stays as it was. Zuul: so it is promoted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueReordered {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// All its items in their new order.
    pub items: Vec<ItemId>,
    /// Items whose start is not reported any more, whether it was or not. Zuul: what is promoted begins
    /// again quietly.
    pub quiet: Vec<ItemId>,
    /// A code: `promoted`.
    pub code: String,
    /// Why, in the words of whoever asked.
    pub detail: String,
    /// Items whose changes stand in another order from here on. Zuul: the first of a circle becomes the last.
    pub turned: Vec<(ItemId, Vec<Subject>)>,
}

/// An item went to the end of another queue of its pipeline: with a new layout its project belongs there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemMoved {
    /// The item.
    pub item: ItemId,
    /// The queue it is in now.
    pub queue: String,
    /// The window of that queue, if it is new and has one.
    pub window: Option<u32>,
}

/// Somebody looked for a queue that was not there yet, and nothing entered it: it is there from here on, and keeps its
/// place among the others. Zuul: a queue begins with the first change that is asked about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueAsked {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// Project and branch of the change.
    pub first: (String, Option<String>),
    /// Its window.
    pub window: u32,
}

/// What failed in a row in a pipeline was counted. Zuul: `disable-after-consecutive-failures`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailuresCounted {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// How many items failed in a row by now.
    pub failures: u32,
    /// Whether the pipeline tells nobody but its `disabled` reporters from here on.
    pub disabled: bool,
}

/// What can wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WaitSubject {
    /// A tenant, for its configuration.
    Tenant(String),
    /// A trigger, by its input sequence.
    Trigger(u64),
    /// An item.
    Item(ItemId),
    /// A build.
    Build(BuildId),
}

/// What is waited for: a closed list. The same words stand in events, API, command line and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WaitCode {
    /// The code-review system is asked about changes.
    ChangeFacts,
    /// Another trigger of the same branch goes first.
    TriggerAhead,
    /// Configuration files are read.
    ConfigFiles,
    /// A layout is made.
    Layout,
    /// The queue's window is full.
    Window,
    /// The speculative state is prepared.
    Prepare,
    /// Jobs are frozen.
    Freeze,
    /// Jobs run.
    Jobs,
    /// The item ahead must leave first.
    ItemAhead,
    /// A change this one needs is failing.
    NeededFailing,
    /// Another job must end first.
    JobDependency,
    /// A semaphore of the tenant is taken.
    Semaphore,
    /// Nodes and a worker are asked for.
    Lease,
    /// A worker runs it.
    Running,
    /// It is being merged.
    Submit,
    /// It is being reported.
    Report,
    /// It runs nothing itself: it stands for what an item behind it needs.
    NotLive,
    /// A job of an item ahead must succeed first.
    HoldFollowing,
    /// An artifact of a change ahead is not there yet.
    Artifact,
    /// It has succeeded so far and waits for the jobs that need it.
    Paused,
}

impl WaitCode {
    /// The word used everywhere.
    pub fn word(self) -> &'static str {
        match self {
            WaitCode::ChangeFacts => "change-facts",
            WaitCode::TriggerAhead => "trigger-ahead",
            WaitCode::ConfigFiles => "config-files",
            WaitCode::Layout => "layout",
            WaitCode::Window => "window",
            WaitCode::Prepare => "prepare",
            WaitCode::Freeze => "freeze",
            WaitCode::Jobs => "jobs",
            WaitCode::ItemAhead => "item-ahead",
            WaitCode::NeededFailing => "needed-failing",
            WaitCode::JobDependency => "job-dependency",
            WaitCode::Semaphore => "semaphore",
            WaitCode::Lease => "lease",
            WaitCode::Running => "running",
            WaitCode::Submit => "submit",
            WaitCode::Report => "report",
            WaitCode::NotLive => "not-live",
            WaitCode::HoldFollowing => "hold-following",
            WaitCode::Artifact => "artifact",
            WaitCode::Paused => "paused",
        }
    }
}

/// What something waits for changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitChanged {
    /// Who waits.
    pub subject: WaitSubject,
    /// For what; `None` when it waits no longer.
    pub code: Option<WaitCode>,
    /// A sentence: which change, which semaphore, which item.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// What would unblock it.
    pub unblocks: String,
}
