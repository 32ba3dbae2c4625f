//! Timers: branches that enter pipelines by the calendar.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A timer of a tenant: one branch of one project enters one pipeline at certain times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimerName {
    /// The pipeline.
    pub pipeline: String,
    /// The canonical name of the project.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// The `time` of the trigger as it is written.
    pub time: String,
    /// Whether the newest commit of the branch is part of the event. Zuul: `dereference`.
    pub dereference: bool,
}

/// The timers of a tenant are others than before: its layout came into force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimersChanged {
    /// The tenant.
    pub tenant: String,
    /// Timers that are new; due from now on.
    pub added: Vec<TimerName>,
    /// Timers that are gone.
    pub removed: Vec<TimerName>,
}

/// Input: a timer came due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerTicked {
    /// The tenant.
    pub tenant: String,
    /// The timer.
    pub timer: TimerName,
    /// How often it had ticked before: of several that say the same, the first is taken.
    pub count: u64,
    /// The moment that its `time` names.
    pub tick: Timestamp,
    /// `tick` and the jitter that was drawn for this branch.
    pub due: Timestamp,
    /// How many earlier ticks nobody told, for which this one stands too.
    pub missed: u32,
}
