//! Leases: nodes, semaphores and a worker slot for one attempt at something, granted together or not at all. Any domain may
//! own one ([`LeaseOwner`]).

pub mod older;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{BlobHash, LeaseId, NodeId, SubjectId};
use crate::time::Timestamp;
use crate::topic::Partition;

/// A worker is there: sent when it starts, when its offer changes, and again whenever it finds that capacity does not
/// know this start of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerSeen {
    /// Its name, the same over restarts.
    pub worker: String,
    /// Drawn anew at each start: leases of an older incarnation are lost.
    pub incarnation: String,
    /// When that start was, by the worker's own clock; the same whenever this start announces itself. Of two starts the
    /// later one counts.
    pub started_at: Timestamp,
    /// Where its console and files can be had.
    pub address: String,
    /// How many attempts it runs at once.
    pub slots: u32,
    /// The labels of nodes it can make; empty means any.
    pub labels: Vec<String>,
}

/// Nothing has been heard of a worker for too long; or, with a silence of 0, it says itself that it has stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerSilent {
    /// The worker.
    pub worker: String,
    /// Which start of it.
    pub incarnation: String,
    /// For how long, in milliseconds.
    pub silent_ms: i64,
}

/// A node asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeWanted {
    /// Its names in the inventory; one machine may have several.
    pub names: Vec<String>,
    /// Its label.
    pub label: String,
}

/// A slot of a semaphore asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SemaphoreWanted {
    /// Its name.
    pub name: String,
    /// How many may hold it at once.
    pub max: u32,
}

/// What a lease is for, in its owner's own counting. Nobody but the owner knows what it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseSubject {
    /// What sort of thing it is, such as `build`; one word of the owner's.
    pub kind: String,
    /// Which one.
    pub id: SubjectId,
    /// Which attempt at it, from 1.
    pub attempt: u32,
}

impl fmt::Display for LeaseSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} attempt {}", self.kind, self.id, self.attempt)
    }
}

/// Whose a lease is. Any domain may own one: what becomes of it is told to the partition, under the key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseOwner {
    /// The owner's partition: answers go there.
    pub partition: Partition,
    /// The key under which they come.
    pub key: String,
    /// What the lease is for.
    pub subject: LeaseSubject,
}

/// What people read of what a lease is for: its owner says it, and nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseDescription {
    /// In a few words, such as the name of a job.
    pub title: String,
    /// More of it, name and value, in the order in which it is read.
    pub facts: Vec<(String, String)>,
}

impl LeaseDescription {
    /// A fact by its name; empty where there is none.
    pub fn fact(&self, name: &str) -> &str {
        self.facts.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// An owner asks for a lease for one attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseAsked {
    /// Whose it will be; answers go there.
    pub owner: LeaseOwner,
    /// Who gets their share: leases are given in turn to those of each share, such as a tenant.
    pub share: String,
    /// What people read of it.
    pub description: LeaseDescription,
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

/// An owner no longer needs a lease, or never will.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseEndAsked {
    /// Whose lease.
    pub owner: LeaseOwner,
    /// A code: `finished`, `canceled`, …
    pub reason: String,
}

/// An owner asks that a lease's nodes be kept although its attempt is over; its end is asked for later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHoldAsked {
    /// Whose lease.
    pub owner: LeaseOwner,
    /// Until when, for people; `None` means until somebody lets it go.
    pub until: Option<Timestamp>,
    /// For whom: the number of the owner's request.
    pub request: u64,
    /// Why, in the words of whoever asked.
    pub reason: String,
}

/// An owner's attempt waits for others: it keeps its nodes and needs no slot. Zuul: an executor does not count what is
/// paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasePauseAsked {
    /// Whose lease.
    pub owner: LeaseOwner,
}

/// An owner's attempt that waited goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseResumeAsked {
    /// Whose lease.
    pub owner: LeaseOwner,
}

/// Input of the owner: its lease ended before it asked for that, or is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLost {
    /// Whose it was.
    pub owner: LeaseOwner,
    /// Whether it is refused for good: asking again as it was asked is in vain.
    pub refused: bool,
    /// A code: `worker-lost`, `over-limit`, …
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// A worker has let go of everything a lease gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseReleased {
    /// The lease.
    pub lease: LeaseId,
    /// The worker.
    pub worker: String,
    /// Which start of it.
    pub incarnation: String,
}

/// What may be paused. Zuul: `pause` of its executors and mergers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pausable {
    /// An executor: it gets no leases, and what it runs goes on.
    Executor,
    /// A merger: the others do its part, and what it has begun it ends.
    Merger,
}

impl Pausable {
    /// Its name, as roles have it.
    pub const fn word(self) -> &'static str {
        match self {
            Pausable::Executor => "executor",
            Pausable::Merger => "merger",
        }
    }
}

/// Somebody asks that a component take nothing new, or take it again. Who asks is the record's actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseAsked {
    /// In which of its roles.
    pub role: Pausable,
    /// Its name, the same over restarts.
    pub component: String,
    /// Whether it is to take nothing new.
    pub paused: bool,
    /// Why, in the words of whoever asks.
    pub reason: String,
}

/// A component takes nothing new, or takes it again. That is a matter of its name: it outlasts its restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseChanged {
    /// What was asked.
    pub asked: PauseAsked,
}

/// A worker offers slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerJoined {
    /// What it offers.
    pub offer: WorkerSeen,
}

/// A worker is gone; its leases are over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerLost {
    /// The worker.
    pub worker: String,
    /// Which start of it.
    pub incarnation: String,
    /// A code: `silent`, `restarted`, `left`.
    pub reason: String,
}

/// A lease was asked for and waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseQueued {
    /// The lease.
    pub lease: LeaseId,
    /// What was asked.
    pub ask: LeaseAsked,
}

/// A node granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGrant {
    /// The node; a machine in a cloud is named after it.
    pub node: NodeId,
    /// What was asked.
    pub wanted: NodeWanted,
}

/// A lease was granted, whole. The worker starts the attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseGranted {
    /// The lease.
    pub lease: LeaseId,
    /// Whose it is.
    pub owner: LeaseOwner,
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

/// A lease was taken back: the worker stops the attempt and releases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRevoked {
    /// The lease.
    pub lease: LeaseId,
    /// Whose it is.
    pub owner: LeaseOwner,
    /// The worker that holds it.
    pub worker: String,
    /// A code, from the owner: `finished`, `canceled`, …
    pub reason: String,
}

/// A lease's nodes are kept although its attempt is over: the worker leaves them as they are. Its slot and its
/// semaphores are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHeld {
    /// The lease.
    pub lease: LeaseId,
    /// The worker that has the nodes.
    pub worker: String,
    /// What was asked.
    pub hold: LeaseHoldAsked,
}

/// A lease's attempt waits for other jobs: its worker's slot is free, its nodes and semaphores stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasePaused {
    /// The lease.
    pub lease: LeaseId,
}

/// A lease's attempt goes on; its worker may have more at work than it offers slots until something there ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseResumed {
    /// The lease.
    pub lease: LeaseId,
}

/// A lease is over and what it held is free.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseEnded {
    /// The lease.
    pub lease: LeaseId,
    /// A code: `finished`, `canceled`, `worker-lost`, …
    pub reason: String,
    /// Whether the owner must be told that it lost the lease before it asked for its end.
    pub tell_owner: bool,
    /// A sentence, for the owner and for people.
    pub message: String,
}

/// A worker let go of a lease whose owner has not asked for its end yet: it ends when that comes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleaseNoted {
    /// What the worker said.
    pub released: LeaseReleased,
}

/// A lease can never be granted as things are; its owner is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRefused {
    /// What was asked.
    pub ask: LeaseAsked,
    /// A code: `over-limit`, `no-worker`.
    pub code: String,
    /// For people: what is missing and what would cure it.
    pub message: String,
}

/// What a queued lease waits for changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseWaitChanged {
    /// The lease.
    pub lease: LeaseId,
    /// A code: `no-worker`, `paused`, `no-slot`, `semaphore`, `fair-share`.
    pub code: String,
    /// What it waits for, as far as a change of it is news: a label, a semaphore; or empty.
    pub subject: String,
    /// For people: who or what holds it up.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
}
