//! Older versions of drafts of leases, brought up: only builds of the gate owned any.

use serde::{Deserialize, Serialize};

use super::{
    LeaseAsked, LeaseEndAsked, LeaseGranted, LeaseHeld, LeaseHoldAsked, LeaseOwner, LeasePauseAsked, LeaseQueued,
    LeaseRefused, LeaseResumeAsked, LeaseRevoked, NodeGrant, NodeWanted, SemaphoreWanted,
};
use crate::draft::gate::{build_owner, described, owner_of};
use crate::id::{BlobHash, BuildId, LeaseId};
use crate::time::Timestamp;
use crate::topic::Partition;

/// The owner where a shape named the build alone. Its key was not said; nothing is looked up by it.
fn unkeyed(build: BuildId, attempt: u32) -> LeaseOwner {
    build_owner("", build, attempt)
}

/// `capacity.in.lease-asked` version 1: it was for a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseAsked1 {
    /// Whose build it is; answers go there.
    pub owner: Partition,
    /// The owner's key, for answers.
    pub owner_key: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The tenant: fairness is between tenants.
    pub tenant: String,
    /// The pipeline, for people.
    pub pipeline: String,
    /// The job, for people.
    pub job: String,
    /// What is to be run.
    pub spec: BlobHash,
    /// The nodes, together.
    pub nodes: Vec<NodeWanted>,
    /// Global semaphores, together with the nodes.
    pub semaphores: Vec<SemaphoreWanted>,
    /// Lower goes first: Zuul's 100 high, 200 normal, 300 low.
    pub priority: u32,
    /// Whether the owner has other nodes in mind: where there are workers, but none that makes these, it is refused at
    /// once and does not wait for one.
    pub or_others: bool,
}

impl From<LeaseAsked1> for LeaseAsked {
    fn from(old: LeaseAsked1) -> LeaseAsked {
        LeaseAsked {
            owner: owner_of(old.owner, &old.owner_key, old.build, old.attempt),
            description: described(&old.tenant, &old.pipeline, &old.job),
            share: old.tenant,
            spec: old.spec,
            nodes: old.nodes,
            semaphores: old.semaphores,
            priority: old.priority,
            or_others: old.or_others,
        }
    }
}

/// `capacity.in.lease-end-asked` version 1: it named a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseEndAsked1 {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// A code: `finished`, `canceled`, …
    pub reason: String,
}

impl From<LeaseEndAsked1> for LeaseEndAsked {
    fn from(old: LeaseEndAsked1) -> LeaseEndAsked {
        LeaseEndAsked { owner: unkeyed(old.build, old.attempt), reason: old.reason }
    }
}

/// `capacity.in.lease-hold-asked` version 1: it named a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseHoldAsked1 {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// Until when, for people; `None` means until somebody lets it go.
    pub until: Option<Timestamp>,
    /// For whom: the number of the owner's request.
    pub request: u64,
    /// Why, in the words of whoever asked.
    pub reason: String,
}

impl From<LeaseHoldAsked1> for LeaseHoldAsked {
    fn from(old: LeaseHoldAsked1) -> LeaseHoldAsked {
        let LeaseHoldAsked1 { build, attempt, until, request, reason } = old;
        LeaseHoldAsked { owner: unkeyed(build, attempt), until, request, reason }
    }
}

/// `capacity.in.lease-pause-asked` version 1: it named a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeasePauseAsked1 {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
}

impl From<LeasePauseAsked1> for LeasePauseAsked {
    fn from(old: LeasePauseAsked1) -> LeasePauseAsked {
        LeasePauseAsked { owner: unkeyed(old.build, old.attempt) }
    }
}

/// `capacity.in.lease-resume-asked` version 1: it named a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseResumeAsked1 {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
}

impl From<LeaseResumeAsked1> for LeaseResumeAsked {
    fn from(old: LeaseResumeAsked1) -> LeaseResumeAsked {
        LeaseResumeAsked { owner: unkeyed(old.build, old.attempt) }
    }
}

/// `capacity.lease-queued` version 1: it was for a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseQueued1 {
    /// The lease.
    pub lease: LeaseId,
    /// What was asked.
    pub ask: LeaseAsked1,
}

impl From<LeaseQueued1> for LeaseQueued {
    fn from(old: LeaseQueued1) -> LeaseQueued {
        LeaseQueued { lease: old.lease, ask: old.ask.into() }
    }
}

/// `capacity.lease-granted` version 1: it was for a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseGranted1 {
    /// The lease.
    pub lease: LeaseId,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// Whose build it is.
    pub owner: Partition,
    /// The owner's key.
    pub owner_key: String,
    /// What is to be run.
    pub spec: BlobHash,
    /// The nodes.
    pub nodes: Vec<NodeGrant>,
    /// The worker.
    pub worker: String,
    /// Which start of it.
    pub incarnation: String,
    /// How long it waited, in milliseconds.
    pub waited_ms: i64,
}

impl From<LeaseGranted1> for LeaseGranted {
    fn from(old: LeaseGranted1) -> LeaseGranted {
        LeaseGranted {
            lease: old.lease,
            owner: owner_of(old.owner, &old.owner_key, old.build, old.attempt),
            spec: old.spec,
            nodes: old.nodes,
            worker: old.worker,
            incarnation: old.incarnation,
            waited_ms: old.waited_ms,
        }
    }
}

/// `capacity.lease-revoked` version 1: it named a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRevoked1 {
    /// The lease.
    pub lease: LeaseId,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker that holds it.
    pub worker: String,
    /// A code, from the owner: `finished`, `canceled`, …
    pub reason: String,
}

impl From<LeaseRevoked1> for LeaseRevoked {
    fn from(old: LeaseRevoked1) -> LeaseRevoked {
        let LeaseRevoked1 { lease, build, attempt, worker, reason } = old;
        LeaseRevoked { lease, owner: unkeyed(build, attempt), worker, reason }
    }
}

/// `capacity.lease-refused` version 1: it was for a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRefused1 {
    /// What was asked.
    pub ask: LeaseAsked1,
    /// A code: `over-limit`, `no-worker`.
    pub code: String,
    /// For people: what is missing and what would cure it.
    pub message: String,
}

impl From<LeaseRefused1> for LeaseRefused {
    fn from(old: LeaseRefused1) -> LeaseRefused {
        LeaseRefused { ask: old.ask.into(), code: old.code, message: old.message }
    }
}

/// `capacity.lease-held` version 1: it named a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseHeld1 {
    /// The lease.
    pub lease: LeaseId,
    /// The worker that has the nodes.
    pub worker: String,
    /// What was asked.
    pub hold: LeaseHoldAsked1,
}

impl From<LeaseHeld1> for LeaseHeld {
    fn from(old: LeaseHeld1) -> LeaseHeld {
        LeaseHeld { lease: old.lease, worker: old.worker, hold: old.hold.into() }
    }
}
