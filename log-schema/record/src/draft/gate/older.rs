//! Older versions of drafts, brought up: their events fold as they did.

use serde::{Deserialize, Serialize};

use super::builds::{AttemptFinished, BuildFinished, BuildResult, BuildSettled};
use super::configuration::{LayoutActivated, LayoutMade};
use crate::id::{BuildId, BuildsetId, ItemId};

/// `gate.build-finished` version 1: it did not say which semaphores become free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildFinished1 {
    /// What the worker said.
    pub finished: AttemptFinished,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// Whether there is another attempt.
    pub retry: bool,
    /// The build's result if there is none.
    pub result: Option<BuildResult>,
}

impl From<BuildFinished1> for BuildFinished {
    fn from(old: BuildFinished1) -> BuildFinished {
        let BuildFinished1 { finished, item, buildset, retry, result } = old;
        BuildFinished { finished, item, buildset, retry, result, freed: None }
    }
}

/// `gate.build-settled` version 1: it did not say which semaphores become free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildSettled1 {
    /// The build.
    pub build: BuildId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The result.
    pub result: BuildResult,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
}

impl From<BuildSettled1> for BuildSettled {
    fn from(old: BuildSettled1) -> BuildSettled {
        let BuildSettled1 { build, item, buildset, result, code, detail } = old;
        BuildSettled { build, item, buildset, result, code, detail, freed: None }
    }
}

/// `gate.layout-activated` version 1: it did not say which queues count as begun anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutActivated1 {
    /// What was made.
    pub made: LayoutMade,
    /// How many layouts the tenant has had, with this one.
    pub generation: u64,
}

impl From<LayoutActivated1> for LayoutActivated {
    fn from(old: LayoutActivated1) -> LayoutActivated {
        let LayoutActivated1 { made, generation } = old;
        LayoutActivated { made, generation, begun: None }
    }
}
