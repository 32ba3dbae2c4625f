//! A deployment while it runs: what may start next, given what has ended.
//!
//! Two machines, one for each way of ordering. [`roles::RoleRun`] goes through the numbers of a [`crate::Plan`]: hooks,
//! waves of nodes, hooks. [`tasks::TaskRun`] goes through tasks on nodes that wait for each other. Both are plain values:
//! whoever keeps them feeds them with what happened, in order, and gets the same answers for the same story. Neither
//! waits, and neither can get stuck: what can no longer run is settled at once.

pub mod board;
pub mod report;
pub mod roles;
pub mod tasks;

use serde::{Deserialize, Serialize};

/// How a task ended on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Well.
    Done,
    /// Not well; why.
    Failed(String),
    /// It took longer than it may.
    TimedOut,
    /// The node does not answer.
    Lost,
}

/// How often a task is tried, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Patience {
    /// Tries after the first.
    pub retries: u32,
    /// Seconds between two tries.
    pub interval: u64,
    /// Seconds that one try may take.
    pub timeout: Option<u64>,
}

impl Patience {
    /// Once, as long as it takes.
    pub const ONCE: Patience = Patience { retries: 0, interval: 0, timeout: None };
}

/// What follows from an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The same again: which try, and after how many seconds.
    Again {
        /// The number of the try, from 2.
        attempt: u32,
        /// Seconds to wait before it.
        after: u64,
    },
    /// It is over for this task.
    Settled,
}

/// How a deployment ended. With failed nodes it is never simply done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Everything that was to run did.
    Done,
    /// It went to its end; these nodes failed, which was borne.
    DoneWithFailures(Vec<String>),
    /// It was broken off.
    Failed {
        /// Why.
        why: String,
        /// The nodes that failed.
        nodes: Vec<String>,
    },
    /// Somebody stopped it; it can be resumed.
    Stopped,
}

/// An end was told of something that does not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not run now")]
pub struct NotRunning(pub String);
