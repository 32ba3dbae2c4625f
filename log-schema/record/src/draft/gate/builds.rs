//! Builds and their attempts.

use serde::{Deserialize, Serialize};

use super::returned::ReturnedKept;
use crate::draft::capacity::LeaseAsked;
use crate::id::{BuildId, BuildsetId, ItemId, LeaseId};
use crate::sealed::Sealed;
use crate::time::Timestamp;
use crate::value::Value;

/// How a build or an attempt ended, in Zuul's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BuildResult {
    /// `SUCCESS`
    Success,
    /// `FAILURE`
    Failure,
    /// `POST_FAILURE`
    PostFailure,
    /// `TIMED_OUT`
    TimedOut,
    /// `RETRY`: this attempt does not count; there is another.
    Retry,
    /// `RETRY_LIMIT`
    RetryLimit,
    /// `NODE_FAILURE`
    NodeFailure,
    /// `MERGE_CONFLICT`
    MergeConflict,
    /// `SKIPPED`
    Skipped,
    /// `CANCELED`
    Canceled,
    /// `ABORTED`: the worker died or was stopped.
    Aborted,
    /// `DISK_FULL`
    DiskFull,
    /// `ERROR`
    Error,
    /// As `Retry`, because a node could not be reached: the next attempt asks for the next of the job's nodesets.
    Unreachable,
    /// `SECRET_EXPOSURE`: it wrote a secret, which its job does not allow.
    SecretExposure,
}

impl BuildResult {
    /// Zuul's word.
    pub fn word(self) -> &'static str {
        match self {
            BuildResult::Success => "SUCCESS",
            BuildResult::Failure => "FAILURE",
            BuildResult::PostFailure => "POST_FAILURE",
            BuildResult::TimedOut => "TIMED_OUT",
            BuildResult::Retry | BuildResult::Unreachable => "RETRY",
            BuildResult::RetryLimit => "RETRY_LIMIT",
            BuildResult::NodeFailure => "NODE_FAILURE",
            BuildResult::MergeConflict => "MERGE_CONFLICT",
            BuildResult::Skipped => "SKIPPED",
            BuildResult::Canceled => "CANCELED",
            BuildResult::Aborted => "ABORTED",
            BuildResult::DiskFull => "DISK_FULL",
            BuildResult::Error => "ERROR",
            BuildResult::SecretExposure => "SECRET_EXPOSURE",
        }
    }
}

/// An attempt of a build asks for its lease. Goes to capacity by the outbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseWanted {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The build.
    pub build: BuildId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What is asked.
    pub ask: LeaseAsked,
    /// The semaphores it takes with this. `None` in events that did not say: all but those that it takes only with its
    /// nodes.
    pub taken: Option<Vec<String>>,
}

/// An attempt of a build no longer needs its lease. Goes to capacity by the outbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseEndWanted {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// A code: `finished`, `canceled`, …
    pub reason: String,
}

/// A paused attempt needs its worker's slot no longer, and keeps its nodes. Goes to capacity by the outbox. Zuul: an
/// executor does not count what is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasePauseWanted {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
}

/// A paused attempt goes on: its worker is told by capacity. Goes there by the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseResumeWanted {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
}

/// Input: a worker began an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptStarted {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The lease it runs under.
    pub lease: LeaseId,
    /// The worker.
    pub worker: String,
    /// When, by the worker's clock.
    pub started_at: Timestamp,
}

/// A worker began an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildStarted {
    /// What the worker said.
    pub started: AttemptStarted,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The semaphores it takes with this. `None` in events that did not say: those that it takes only with its nodes.
    pub taken: Option<Vec<String>>,
}

/// A secret or key that a build was given. Never what is in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Given {
    /// A secret, deciphered for those of the job's playbooks that name it.
    Secret {
        /// Its name.
        name: String,
        /// The connection of the project whose key opened it.
        connection: String,
        /// That project's name on the connection.
        project: String,
    },
    /// The SSH key of the tenant, in the build's agent.
    TenantSshKey,
    /// The SSH key of a project, in the build's agent.
    ProjectSshKey {
        /// The connection.
        connection: String,
        /// The project's name on the connection.
        project: String,
    },
}

/// Input: a worker has opened what an attempt is given, and hands it over next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretsOpened {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// What; never empty.
    pub given: Vec<Given>,
}

/// An attempt was given secrets or keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecretsGiven {
    /// What the worker said.
    pub opened: SecretsOpened,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

/// A worker has the nodes of an attempt, and a semaphore that is taken only with them is not free: the worker waits until
/// the attempt is begun. Zuul: `resources-first`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildReady {
    /// What the worker said.
    pub started: AttemptStarted,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The semaphores that become free while it waits: it has all it needs, or none. `None` in events that did not say:
    /// it kept what it had.
    pub freed: Option<Vec<SemaphoreFreed>>,
}

/// Input: an attempt succeeded so far and waits for the jobs that need it. Zuul: `zuul.pause`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptPaused {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// What the job returned so far; what decisions read of it, where all of it is in `kept`.
    pub data: Value,
    /// What it returned so far under seal; `None`, too, where that is in `kept`.
    pub secret_data: Option<Sealed>,
    /// What it left behind so far; the first of it, where all of it is in `kept`.
    pub artifacts: Vec<Artifact>,
    /// Where the rest of that is. Nowhere in events that did not say.
    pub kept: ReturnedKept,
}

/// An attempt waits for the jobs that need it; they may run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildPaused {
    /// What the worker said.
    pub paused: AttemptPaused,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

/// Every job that needs a paused build is done: it may go on to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildResumed {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

/// Input: something happened in a running attempt by which it will fail, whatever comes after. Zuul: `pre_fail`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailing {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// What happened, for people: the task that failed, the line that matched.
    pub detail: String,
}

/// A running attempt will fail: its build counts as failed from here on, and nothing undoes that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildFailing {
    /// What the worker said.
    pub failing: AttemptFailing,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
}

/// What became of the artifacts that an item's jobs make, when the item left: jobs of changes that need
/// these may ask later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactsNoted {
    /// The item.
    pub item: ItemId,
    /// Each artifact by its name, and whether it is there.
    pub artifacts: Vec<(String, bool)>,
}

/// Something a build left behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// What the job says of it.
    pub metadata: Value,
}

/// Input: a worker ended an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFinished {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// How it ended. `Retry` when the attempt should not count (pre-run failed, unreachable).
    pub result: BuildResult,
    /// When it began, by the worker's clock.
    pub started_at: Timestamp,
    /// When it ended, by the worker's clock.
    pub finished_at: Timestamp,
    /// For people: the first failing task, the missing file, the limit. Nothing secret.
    pub detail: Option<String>,
    /// What the job returned; what decisions read of it, where all of it is in `kept`.
    pub data: Value,
    /// What it returned under seal; `None`, too, where that is in `kept`.
    pub secret_data: Option<Sealed>,
    /// What it left behind; the first of it, where all of it is in `kept`.
    pub artifacts: Vec<Artifact>,
    /// Where its log is, once archived.
    pub log_url: Option<String>,
    /// Where the rest of what it returned is. Nowhere in events that did not say.
    pub kept: ReturnedKept,
}

/// A build no longer holds a slot of a semaphore of its tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SemaphoreFreed {
    /// The semaphore.
    pub semaphore: String,
    /// The build that held it: the one that is over, or another that stood for the same slot.
    pub build: BuildId,
}

/// An attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildFinished {
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
    /// Who lets go of which semaphore with that; `None` in version 1, which left it to whoever folds it.
    pub freed: Option<Vec<SemaphoreFreed>>,
}

/// The next attempt of a build asks for other nodes: those it had, or was to have, could not be had or reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodesetChanged {
    /// The build.
    pub build: BuildId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// Which of the job's nodesets, counted from 0.
    pub nodeset: u32,
    /// Whether the attempt before it does not count, because it never began.
    pub uncounted: bool,
    /// A code: `node-failure`, `unreachable`.
    pub code: String,
}

/// A build got its result without a worker: skipped, canceled, noop, refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildSettled {
    /// The build.
    pub build: BuildId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The result.
    pub result: BuildResult,
    /// A code: `dependency-failed`, `reset`, `dequeued`, `noop`, `lease-refused`, …
    pub code: String,
    /// A sentence.
    pub detail: String,
    /// Who lets go of which semaphore with that; `None` in version 1, which left it to whoever folds it.
    pub freed: Option<Vec<SemaphoreFreed>>,
}

/// Input: capacity lost a lease or refused it, as logs have it that are older than the answer of any partition's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildLeaseLost {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// Whether it was refused for good (then there is no other attempt).
    pub refused: bool,
    /// A code: `worker-lost`, `unknown-label`, …
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// An outcome that came too late, or twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeIgnored {
    /// What it was about: `build 3f… attempt 1`, `prepare 77…`.
    pub subject: String,
    /// A code: `old-attempt`, `already-had`, `gone`.
    pub code: String,
}
