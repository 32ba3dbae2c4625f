//! Autoholds: nodes of builds that fail are kept for people to look at.

use serde::{Deserialize, Serialize};

use crate::draft::capacity::LeaseHoldAsked;
use crate::id::{BuildId, BuildsetId, ItemId};

/// Input: somebody asks that nodes of builds of a job be kept when they fail. Who asks is the input's actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoholdAsked {
    /// The tenant.
    pub tenant: String,
    /// The project's canonical name.
    pub project: String,
    /// The job.
    pub job: String,
    /// A regular expression that the ref must match from its beginning. Zuul: `.*` stands for every ref,
    /// `refs/changes/45/12345/.*` for every patchset of a change, anything else for that ref alone; of several requests
    /// that match, the one that says most counts.
    pub ref_filter: String,
    /// For how many builds.
    pub count: u32,
    /// For how long the nodes of each are kept, in seconds; 0 means until the request is deleted.
    pub node_expiration: u64,
    /// Why, in their words.
    pub reason: String,
}

/// Input: somebody asks that a request to keep nodes be deleted, and what it keeps be let go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoholdDeleteAsked {
    /// The tenant.
    pub tenant: String,
    /// The request, by its number.
    pub request: u64,
    /// Why, in their words.
    pub reason: String,
}

/// A request to keep nodes is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoholdSet {
    /// Its number: the sequence of the input that asked for it.
    pub request: u64,
    /// What was asked.
    pub asked: AutoholdAsked,
}

/// A build failed and its nodes are kept. Goes to capacity by the outbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodesHeld {
    /// The tenant.
    pub tenant: String,
    /// The request.
    pub request: u64,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// What capacity is asked: whose nodes, until when, why.
    pub hold: LeaseHoldAsked,
    /// For how many builds the request has kept nodes by now, with this one.
    pub count: u32,
}

/// Nodes of a build are no longer kept. Where capacity has them still it is told, by the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldEnded {
    /// The tenant.
    pub tenant: String,
    /// The request.
    pub request: u64,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// A code: `hold-expired`, `hold-deleted`, or what capacity said of its end (`worker-lost`, …).
    pub code: String,
    /// Whether capacity has yet to be told.
    pub tell: bool,
}

/// A request to keep nodes is in force no longer, and keeps nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoholdEnded {
    /// The tenant.
    pub tenant: String,
    /// The request.
    pub request: u64,
    /// A code: `used-up` once the nodes of as many builds as asked for were kept and let go, `deleted`.
    pub code: String,
    /// A sentence, or the words of whoever asked.
    pub detail: String,
}
