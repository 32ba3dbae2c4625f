//! Older versions of drafts, brought up: their events fold as they did.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::builds::{
    Artifact, AttemptFinished, AttemptPaused, AttemptStarted, BuildFinished, BuildPaused, BuildReady, BuildResult,
    BuildSettled, BuildStarted, LeaseWanted, SemaphoreFreed,
};
use super::configuration::{LayoutActivated, LayoutMade, TenantProject};
use super::holds::NodesHeld;
use super::preparing::{FreezeWanted, MergeSteps, PreparedState};
use super::returned::ReturnedKept;
use crate::draft::capacity::older::{LeaseAsked1, LeaseHoldAsked1};
use crate::id::{BlobHash, BuildId, BuildsetId, ItemId, WorkId};
use crate::sealed::Sealed;
use crate::time::Timestamp;
use crate::value::Value;

/// `gate.in.attempt-finished` version 1: all that a job returned stood in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFinished1 {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// How it ended.
    pub result: BuildResult,
    /// When it began, by the worker's clock.
    pub started_at: Timestamp,
    /// When it ended, by the worker's clock.
    pub finished_at: Timestamp,
    /// For people.
    pub detail: Option<String>,
    /// What the job returned.
    pub data: Value,
    /// What it returned under seal.
    pub secret_data: Option<Sealed>,
    /// What it left behind.
    pub artifacts: Vec<Artifact>,
    /// Where its log is, once archived.
    pub log_url: Option<String>,
}

impl From<AttemptFinished1> for AttemptFinished {
    fn from(old: AttemptFinished1) -> AttemptFinished {
        let AttemptFinished1 { tenant, build, attempt, worker, result, started_at, finished_at, .. } = old;
        let AttemptFinished1 { detail, data, secret_data, artifacts, log_url, .. } = old;
        AttemptFinished {
            tenant,
            build,
            attempt,
            worker,
            result,
            started_at,
            finished_at,
            detail,
            data,
            secret_data,
            artifacts,
            log_url,
            kept: ReturnedKept::default(),
        }
    }
}

/// `gate.in.attempt-paused` version 1: all that a job returned stood in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptPaused1 {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// What the job returned so far.
    pub data: Value,
    /// What it returned so far under seal.
    pub secret_data: Option<Sealed>,
    /// What it left behind so far.
    pub artifacts: Vec<Artifact>,
}

impl From<AttemptPaused1> for AttemptPaused {
    fn from(old: AttemptPaused1) -> AttemptPaused {
        let AttemptPaused1 { tenant, build, attempt, worker, data, secret_data, artifacts } = old;
        let kept = ReturnedKept::default();
        AttemptPaused { tenant, build, attempt, worker, data, secret_data, artifacts, kept }
    }
}

/// `gate.build-paused` version 1: all that the job returned stood in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildPaused1 {
    /// What the worker said.
    pub paused: AttemptPaused1,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

impl From<BuildPaused1> for BuildPaused {
    fn from(old: BuildPaused1) -> BuildPaused {
        let BuildPaused1 { paused, item, buildset } = old;
        BuildPaused { paused: paused.into(), item, buildset }
    }
}

/// `gate.build-finished` version 1: it did not say which semaphores become free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildFinished1 {
    /// What the worker said.
    pub finished: AttemptFinished1,
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
        BuildFinished { finished: finished.into(), item, buildset, retry, result, freed: None }
    }
}

/// `gate.build-finished` version 2: all that the job returned stood in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildFinished2 {
    /// What the worker said.
    pub finished: AttemptFinished1,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// Whether there is another attempt.
    pub retry: bool,
    /// The build's result if there is none.
    pub result: Option<BuildResult>,
    /// Who lets go of which semaphore with that.
    pub freed: Option<Vec<SemaphoreFreed>>,
}

impl From<BuildFinished2> for BuildFinished {
    fn from(old: BuildFinished2) -> BuildFinished {
        let BuildFinished2 { finished, item, buildset, retry, result, freed } = old;
        BuildFinished { finished: finished.into(), item, buildset, retry, result, freed }
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
    pub ask: LeaseAsked1,
}

impl From<LeaseWanted1> for LeaseWanted {
    fn from(old: LeaseWanted1) -> LeaseWanted {
        let LeaseWanted1 { item, buildset, ask } = old;
        LeaseWanted2 { item, buildset, ask, taken: None }.into()
    }
}

/// `gate.lease-wanted` version 2: capacity was asked in words of the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseWanted2 {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// What is asked.
    pub ask: LeaseAsked1,
    /// The semaphores it takes with this.
    pub taken: Option<Vec<String>>,
}

impl From<LeaseWanted2> for LeaseWanted {
    fn from(old: LeaseWanted2) -> LeaseWanted {
        let LeaseWanted2 { item, buildset, ask, taken } = old;
        LeaseWanted { item, buildset, build: ask.build, attempt: ask.attempt, ask: ask.into(), taken }
    }
}

/// `gate.nodes-held` version 1: capacity was asked in words of the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodesHeld1 {
    /// The tenant.
    pub tenant: String,
    /// The request.
    pub request: u64,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// What capacity is asked: which attempt's nodes, until when, why.
    pub hold: LeaseHoldAsked1,
    /// For how many builds the request has kept nodes by now, with this one.
    pub count: u32,
}

impl From<NodesHeld1> for NodesHeld {
    fn from(old: NodesHeld1) -> NodesHeld {
        let NodesHeld1 { tenant, request, item, buildset, hold, count } = old;
        let (build, attempt) = (hold.build, hold.attempt);
        NodesHeld { tenant, request, item, buildset, build, attempt, hold: hold.into(), count }
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
