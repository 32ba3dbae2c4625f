//! Older versions of drafts, brought up: their events fold as they did.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::builds::{
    AttemptFinished, AttemptStarted, BuildFinished, BuildReady, BuildResult, BuildSettled, BuildStarted, LeaseWanted,
};
use super::configuration::{LayoutActivated, LayoutMade, TenantProject};
use super::preparing::{FreezeWanted, MergeSteps, PreparedState};
use crate::draft::capacity::LeaseAsked;
use crate::id::{BlobHash, BuildId, BuildsetId, ItemId, WorkId};
use crate::value::Value;

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

/// `gate.lease-wanted` version 1: it did not say which semaphores the build takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseWanted1 {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// What is asked.
    pub ask: LeaseAsked,
}

impl From<LeaseWanted1> for LeaseWanted {
    fn from(old: LeaseWanted1) -> LeaseWanted {
        let LeaseWanted1 { item, buildset, ask } = old;
        LeaseWanted { item, buildset, ask, taken: None }
    }
}

/// `gate.build-started` version 1: it did not say which semaphores the build takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildStarted1 {
    /// What the worker said.
    pub started: AttemptStarted,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

impl From<BuildStarted1> for BuildStarted {
    fn from(old: BuildStarted1) -> BuildStarted {
        let BuildStarted1 { started, item, buildset } = old;
        BuildStarted { started, item, buildset, taken: None }
    }
}

/// `gate.build-ready` version 1: it did not say which semaphores become free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildReady1 {
    /// What the worker said.
    pub started: AttemptStarted,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

impl From<BuildReady1> for BuildReady {
    fn from(old: BuildReady1) -> BuildReady {
        let BuildReady1 { started, item, buildset } = old;
        BuildReady { started, item, buildset, freed: None }
    }
}

/// `gate.freeze-wanted` version 1: it did not say which of several changes touches which files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezeWanted1 {
    /// The work.
    pub work: WorkId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The layout.
    pub layout: BlobHash,
    /// The layout ahead.
    pub layout_ahead: Option<BlobHash>,
    /// The chain.
    pub steps: MergeSteps,
    /// The prepared state.
    pub state: PreparedState,
    /// The tenant's projects.
    pub projects: Vec<TenantProject>,
    /// The item's parameters.
    pub parameters: BTreeMap<String, Value>,
}

impl From<FreezeWanted1> for FreezeWanted {
    fn from(old: FreezeWanted1) -> FreezeWanted {
        let FreezeWanted1 {
            work,
            item,
            buildset,
            tenant,
            pipeline,
            layout,
            layout_ahead,
            steps,
            state,
            projects,
            parameters,
        } = old;
        FreezeWanted {
            work,
            item,
            buildset,
            tenant,
            pipeline,
            layout,
            layout_ahead,
            steps,
            state,
            projects,
            parameters,
            own_files: Vec::new(),
        }
    }
}
