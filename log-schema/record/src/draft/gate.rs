//! The gate's own words: tenants, changes, items, buildsets, builds, reports.

use serde::{Deserialize, Serialize};

use crate::draft::capacity::LeaseAsked;
use crate::id::{ActorId, BlobHash, BuildId, BuildsetId, ItemId, LeaseId, WorkId};
use crate::sealed::Sealed;
use crate::time::Timestamp;
use crate::value::Value;

// ---- what is gated ----

/// A change or a ref at one moment. For a change, `change` and `patchset` are set; for a ref that
/// moved (post, tag, timer) they are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// The connection.
    pub connection: String,
    /// The project's canonical name (`host/path`).
    pub project: String,
    /// The target branch, where there is one.
    pub branch: Option<String>,
    /// The full ref that can be fetched.
    pub git_ref: String,
    /// The change, by its id within the project.
    pub change: Option<String>,
    /// The patchset.
    pub patchset: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// For a ref that moved: where it was.
    pub old_commit: Option<String>,
    /// Where people look at it; what Depends-On names.
    pub url: String,
}

/// A change by name, whatever its patchset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangeKey {
    /// The project's canonical name.
    pub project: String,
    /// The change's id within the project.
    pub change: String,
}

impl Subject {
    /// The change's key, if this is a change.
    pub fn change_key(&self) -> Option<ChangeKey> {
        let change = self.change.clone()?;
        Some(ChangeKey { project: self.project.clone(), change })
    }
}

/// A branch of a project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProjectBranch {
    /// The connection.
    pub connection: String,
    /// The project's canonical name.
    pub project: String,
    /// The branch.
    pub branch: String,
}

/// What a code-review system says of a change, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeFacts {
    /// The change at its current patchset.
    pub subject: Subject,
    /// Whether it is open.
    pub open: bool,
    /// Whether it was merged.
    pub merged: bool,
    /// Whether its current patchset was approved.
    pub approved: bool,
    /// Votes and the like, in the driver's terms.
    pub approvals: Value,
    /// Whether the code-review system would let it merge, and if not why.
    pub cannot_merge: Option<String>,
    /// Its parent commits.
    pub parents: Vec<String>,
    /// The texts after `Depends-On:`, as written.
    pub depends_on: Vec<String>,
    /// The changes it needs: by Depends-On, by git, by topic; resolved by the driver.
    pub needs: Vec<ChangeKey>,
    /// Open changes known to need it.
    pub needed_by: Vec<ChangeKey>,
    /// The paths it changes; `None` when not known.
    pub files: Option<Vec<String>>,
    /// Its owner, opaque.
    pub owner: ActorId,
    /// The owner's name and address: under the person's seal.
    pub owner_identity: Option<Sealed>,
    /// The message: under the project's seal.
    pub text: Option<Sealed>,
    /// What only this driver knows.
    pub attributes: Value,
}

// ---- tenants and configuration ----

/// One project of a tenant, as routing and placement need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantProject {
    /// The connection.
    pub connection: String,
    /// The canonical name.
    pub project: String,
    /// Whether it is a config project (trusted).
    pub trusted: bool,
    /// Whether its configuration is read.
    pub reads_config: bool,
}

/// A tenant's settings. Also on the intake, in [`super::intake::TenantFile`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantLoaded {
    /// The tenant.
    pub tenant: String,
    /// The version of the tenant file it stands in.
    pub version: u64,
    /// All its settings, as a blob.
    pub settings: BlobHash,
    /// Where its page stands: the beginning of addresses in reports. May be empty.
    pub web_root: String,
    /// Its projects, in the order of the tenant file.
    pub projects: Vec<TenantProject>,
}

/// A tenant's settings came into force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantConfigured {
    /// What they are.
    pub tenant: TenantLoaded,
}

/// One configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Its path in the repository.
    pub path: String,
    /// Its content.
    pub blob: BlobHash,
}

/// The configuration files of one branch of one project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigFileSet {
    /// Connection, project and branch.
    pub at: ProjectBranch,
    /// Whether it is the project's default branch.
    pub default: bool,
    /// The commit they were read from.
    pub commit: String,
    /// The files; empty when there are none.
    pub files: Vec<ConfigFile>,
}

/// What `ConfigFileSet`s are to be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ConfigScope {
    /// Every branch of every project of the tenant that reads configuration.
    Tenant,
    /// All branches of these projects (canonical names).
    Projects(Vec<String>),
}

/// Work: read configuration files at the branches' tips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigReadWanted {
    /// The work.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// What to read.
    pub scope: ConfigScope,
    /// The tenant's projects to be read, resolved from the scope.
    pub projects: Vec<TenantProject>,
}

/// Input: the files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigFilesFound {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// Every branch that was found, with or without files, project by project.
    pub sets: Vec<ConfigFileSet>,
    /// Projects that could not be read, and why.
    pub failed: Vec<ProjectProblem>,
}

/// A project that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectProblem {
    /// The canonical name.
    pub project: String,
    /// A code: `vanished`, `damaged`, `unreachable`, …
    pub code: String,
    /// For people.
    pub message: String,
}

/// The files were read and replace what was known of those projects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigRead {
    /// What was found.
    pub found: ConfigFilesFound,
    /// The projects whose sets are replaced (canonical names).
    pub replaces: Vec<String>,
    /// Whether anything a layout is made of is different from before.
    pub changed: bool,
}

/// What a layout is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LayoutPurpose {
    /// To be the tenant's.
    Tenant,
    /// To test an item with.
    Use,
    /// To see whether an item's changes to config projects would be right. Nothing is tested with it.
    Validate,
}

/// Work: make a layout. A pure function of what stands here; replay recomputes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutWanted {
    /// The work.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// What for.
    pub purpose: LayoutPurpose,
    /// For whom: an item's speculative layout, or (if none) the tenant's.
    pub item: Option<ItemId>,
    /// The buildset, if for an item.
    pub buildset: Option<BuildsetId>,
    /// The tenant's settings.
    pub settings: BlobHash,
    /// All files, those of the prepared state in place of those they replace.
    pub files: Vec<ConfigFileSet>,
    /// The problems of the layout ahead: an item's errors count only where they are not there already.
    pub ahead: Option<BlobHash>,
}

/// Input: the layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutMade {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// The outcome.
    pub outcome: LayoutOutcome,
}

/// How making a layout ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LayoutOutcome {
    /// There is one.
    Made {
        /// The layout, a blob.
        layout: BlobHash,
        /// All problems, a blob.
        problems: BlobHash,
        /// How many of them are errors.
        errors: u32,
        /// For an item: the errors it introduces, for its report.
        introduced: Vec<String>,
        /// The version of the loader.
        loader: u32,
    },
    /// There is none; `code` says why (`blob-missing`, …).
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
}

/// A layout was made for an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutReady {
    /// What was made.
    pub made: LayoutMade,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// What it was made for.
    pub purpose: LayoutPurpose,
    /// What is reported when the item's configuration is wrong.
    pub problem: Option<String>,
}

/// A tenant's layout came into force, or could not be made (then the old one stays).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutActivated {
    /// What was made.
    pub made: LayoutMade,
    /// How many layouts the tenant has had, with this one.
    pub generation: u64,
}

// ---- triggers and facts ----

/// Input: an outside event, routed to a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerReceived {
    /// The tenant.
    pub tenant: String,
    /// The tenant file by which it was routed.
    pub table_version: u64,
    /// The event.
    pub event: super::intake::ForgeEvent,
}

/// Input: an outside event that no tenant takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRouted {
    /// The connection.
    pub connection: String,
    /// The project.
    pub project: String,
    /// The event's name.
    pub event: String,
    /// The tenant file by which it was not routed.
    pub table_version: u64,
}

/// An outside event that concerns no tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unrouted {
    /// What came.
    pub what: NotRouted,
    /// A code: `project-in-no-tenant`, `no-tenant-file`.
    pub reason: String,
}

/// Why facts are wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FactsPurpose {
    /// A trigger waits for them.
    Trigger {
        /// The input sequence of the trigger.
        trigger: u64,
    },
    /// An item's report that merges asks again.
    BeforeSubmit {
        /// The item.
        item: ItemId,
    },
    /// A change ahead was merged or changed and those behind are looked at again.
    Refresh,
}

/// Work: ask the code-review system for changes and the closure of what they need and who needs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesWanted {
    /// The work.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// The connection to ask.
    pub connection: String,
    /// The changes.
    pub changes: Vec<ChangeKey>,
    /// Whether the changes that need them are wanted too.
    pub with_needed_by: bool,
    /// Among which projects (canonical names).
    pub among: Vec<String>,
    /// Why.
    pub purpose: FactsPurpose,
}

/// Input: the facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesFound {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// The changes found: the whole closure asked for.
    pub changes: Vec<ChangeFacts>,
    /// Changes that do not exist.
    pub missing: Vec<ChangeKey>,
    /// Set when the answer is a failure: a code and a text.
    pub failed: Option<(String, String)>,
}

/// Facts about changes were observed; `changes` rows are as of this event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesObserved {
    /// What was found.
    pub found: ChangesFound,
}

/// What set a trigger off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TriggerCause {
    /// An event of a code-review system.
    Forge(TriggerReceived),
    /// Somebody asked.
    Asked(EnqueueAsked),
}

/// A trigger waits: for facts, for the configuration, or for another of its project and branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerWaiting {
    /// The input sequence of the trigger.
    pub trigger: u64,
    /// The tenant.
    pub tenant: String,
    /// What came.
    pub cause: TriggerCause,
    /// Whether it needs facts about its change that are newer than itself.
    pub needs_facts: bool,
}

/// Nothing live refers to these changes any more; what was known of them is dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesForgotten {
    /// The tenant.
    pub tenant: String,
    /// The changes.
    pub changes: Vec<ChangeKey>,
}

/// What became of a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerSettled {
    /// The input sequence of the trigger.
    pub trigger: u64,
    /// The tenant.
    pub tenant: String,
    /// For each pipeline considered: what became of it, as a code (`enqueued`, `no-match`,
    /// `already-in-pipeline`, `requirements`, `refused`, …) and a sentence.
    pub verdicts: Vec<PipelineVerdict>,
}

/// What one pipeline made of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineVerdict {
    /// The pipeline; empty where the trigger concerns none.
    pub pipeline: String,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// A change was not let into a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnqueueRefused {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The change.
    pub subject: Subject,
    /// A code: `needs-unapproved`, `needs-other-queue`, `needs-missing`, `dependency-cycle`,
    /// `cannot-merge`, `limit`, …
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// A branch's tip moved: by gatelog's own merge or by somebody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchMoved {
    /// The tenant.
    pub tenant: String,
    /// The branch.
    pub at: ProjectBranch,
    /// Where it was; `None` for a new branch.
    pub old: Option<String>,
    /// Where it is; `None` for a deleted branch.
    pub new: Option<String>,
    /// The item whose merge this is, if it is one of ours.
    pub by: Option<ItemId>,
}

/// Input: somebody asks to enqueue a change, past the requirements of the pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnqueueAsked {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The connection.
    pub connection: String,
    /// The change.
    pub change: ChangeKey,
    /// Why, in their words.
    pub reason: String,
}

/// Input: somebody asks to dequeue a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DequeueAsked {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The change.
    pub change: ChangeKey,
    /// Why, in their words.
    pub reason: String,
}

// ---- items, buildsets ----

/// An item entered a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemEnqueued {
    /// The item.
    pub item: ItemId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue within the pipeline: its name is the unit of order.
    pub queue: String,
    /// What it holds; several only for a cycle.
    pub subjects: Vec<Subject>,
    /// Whether it runs jobs and reports. An item that is not live only stands for what a live one
    /// behind it needs.
    pub live: bool,
    /// The item ahead in the queue at this moment.
    pub ahead: Option<ItemId>,
    /// The trigger's input sequence; `None` when it was pulled in by another.
    pub trigger: Option<u64>,
    /// Why it is here, as a code: `trigger`, `needed-by`, `needs`, `admin`, `cycle`.
    pub reason: String,
    /// The queue's window when the item is the first of a new queue.
    pub window: Option<u32>,
}

/// A buildset was begun for an item, on top of what is ahead of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildsetOpened {
    /// The buildset.
    pub buildset: BuildsetId,
    /// The item.
    pub item: ItemId,
    /// The items it stands on, oldest first.
    pub ahead: Vec<ItemId>,
}

/// One merge of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeStep {
    /// The item it belongs to.
    pub item: ItemId,
    /// The change.
    pub subject: Subject,
    /// Zuul's merge mode: `merge`, `merge-resolve`, `cherry-pick`, `squash-merge`, `rebase`, …
    pub mode: String,
}

/// Where a branch stood or stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BasePin {
    /// The branch.
    pub at: ProjectBranch,
    /// The commit.
    pub commit: String,
}

/// Work: prepare a speculative state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareRequested {
    /// The work.
    pub work: WorkId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The chain, oldest first; the item's own changes last.
    pub steps: Vec<MergeStep>,
    /// Bases that are fixed already; other branches are read at their tips.
    pub bases: Vec<BasePin>,
    /// Date of the commits made, so that they come out the same everywhere.
    pub dated: Timestamp,
}

/// A branch in a prepared state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedBranch {
    /// The branch.
    pub at: ProjectBranch,
    /// What it was prepared on: the tip of the branch in the repository.
    pub base: String,
    /// What the item's own changes were put on: with everything ahead merged.
    pub ahead: String,
    /// With everything merged, the item's own changes too.
    pub commit: String,
    /// Its tree.
    pub tree: String,
}

/// A speculative state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreparedState {
    /// Every branch the chain touches.
    pub branches: Vec<PreparedBranch>,
    /// The paths the item's own changes change; `None` when there are too many to say.
    pub files: Option<Vec<String>>,
    /// The configuration files of each branch the chain touches, at the prepared commit.
    pub config: Vec<ConfigFileSet>,
    /// Whether any step of the chain touches configuration.
    pub touches_config: bool,
    /// Whether the item's own changes do.
    pub item_touches_config: bool,
}

/// How preparing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PrepareOutcome {
    /// It is there.
    Merged(PreparedState),
    /// A change does not merge with what is ahead of it.
    Conflict {
        /// The change that does not merge.
        subject: Subject,
        /// The paths in conflict.
        paths: Vec<String>,
        /// For people.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code: `repository-vanished`, `ref-missing`, …
        code: String,
        /// For people.
        message: String,
        /// Whether trying again may help.
        again: bool,
    },
}

/// Input: how preparing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// How it ended.
    pub outcome: PrepareOutcome,
}

/// A speculative state was prepared, or could not be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// How it ended.
    pub done: PrepareDone,
}

/// Work: freeze the jobs of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezeWanted {
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
    /// The layout it is tested with.
    pub layout: BlobHash,
    /// The layout ahead: jobs whose configuration the item changes run whatever their file matchers say.
    pub layout_ahead: Option<BlobHash>,
    /// The chain, oldest first; the item's own changes last.
    pub steps: Vec<MergeStep>,
    /// The prepared state.
    pub state: PreparedState,
    /// The tenant's projects, for required projects and roles.
    pub projects: Vec<TenantProject>,
}

/// What the gate must know of a frozen job; everything else is in its spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrozenJob {
    /// The job's name.
    pub name: String,
    /// Everything a worker must know: a blob.
    pub spec: BlobHash,
    /// Whether its result counts.
    pub voting: bool,
    /// How many attempts it has.
    pub attempts: u32,
    /// Jobs it waits for; the second says whether softly.
    pub dependencies: Vec<(String, bool)>,
    /// Semaphores of the tenant it holds while it runs, with how many may hold each.
    pub semaphores: Vec<super::capacity::SemaphoreWanted>,
    /// The nodes it runs on.
    pub nodes: Vec<super::capacity::NodeWanted>,
    /// Whether it is done without a worker (`noop`).
    pub noop: bool,
    /// What is said instead of SUCCESS, if anything.
    pub success_message: Option<String>,
    /// What is said instead of FAILURE, if anything.
    pub failure_message: Option<String>,
}

/// How freezing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FreezeOutcome {
    /// These jobs run.
    Frozen {
        /// The job graph: a blob.
        graph: BlobHash,
        /// Why these jobs and why thus: a blob.
        trace: BlobHash,
        /// The jobs, in the order of the graph.
        jobs: Vec<FrozenJob>,
        /// Projects outside the prepared state that jobs use, at the commits all of them will see.
        repo_state: Vec<BasePin>,
    },
    /// No job runs: none matches, or (`in_pipeline` false) the project is not in the pipeline.
    NoJobs {
        /// Why: a blob.
        trace: BlobHash,
        /// Whether the project is in the pipeline at all.
        in_pipeline: bool,
    },
    /// The configuration is wrong for this item.
    Refused {
        /// Why: a blob.
        trace: BlobHash,
        /// What is reported.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
        /// Whether trying again may help.
        again: bool,
    },
}

/// Input: how freezing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezeDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// How it ended.
    pub outcome: FreezeOutcome,
}

/// Jobs were frozen. Each job has its build from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frozen {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// How it ended.
    pub done: FreezeDone,
    /// The build of each job, in the order of the graph.
    pub builds: Vec<BuildId>,
}

// ---- builds ----

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
}

impl BuildResult {
    /// Zuul's word.
    pub fn word(self) -> &'static str {
        match self {
            BuildResult::Success => "SUCCESS",
            BuildResult::Failure => "FAILURE",
            BuildResult::PostFailure => "POST_FAILURE",
            BuildResult::TimedOut => "TIMED_OUT",
            BuildResult::Retry => "RETRY",
            BuildResult::RetryLimit => "RETRY_LIMIT",
            BuildResult::NodeFailure => "NODE_FAILURE",
            BuildResult::MergeConflict => "MERGE_CONFLICT",
            BuildResult::Skipped => "SKIPPED",
            BuildResult::Canceled => "CANCELED",
            BuildResult::Aborted => "ABORTED",
            BuildResult::DiskFull => "DISK_FULL",
            BuildResult::Error => "ERROR",
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
    /// What is asked.
    pub ask: LeaseAsked,
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
    /// What the job returned.
    pub data: Value,
    /// What it returned under seal.
    pub secret_data: Option<Sealed>,
    /// What it left behind.
    pub artifacts: Vec<Artifact>,
    /// Where its log is, once archived.
    pub log_url: Option<String>,
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
}

/// Input: capacity lost a lease or refused it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseLost {
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

// ---- the queue's life ----

/// An item is failing, or no longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemFailing {
    /// The item.
    pub item: ItemId,
    /// Why; empty when it is failing no longer.
    pub reasons: Vec<String>,
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

// ---- merging for real, reporting, leaving ----

/// One branch to move: exactly from the base that was tested to the commit that was tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitTarget {
    /// The change.
    pub subject: Subject,
    /// The branch.
    pub at: ProjectBranch,
    /// The tip it was tested on.
    pub tested_base: String,
    /// What was tested.
    pub tested_commit: String,
    /// Its tree.
    pub tested_tree: String,
}

/// Work: merge what was tested, by compare-and-swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmitRequested {
    /// The work.
    pub work: WorkId,
    /// The item.
    pub item: ItemId,
    /// The tenant.
    pub tenant: String,
    /// What is to be merged.
    pub targets: Vec<SubmitTarget>,
}

/// How merging ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SubmitOutcome {
    /// The branches name the tested commits.
    Merged,
    /// A branch was not where it was when the state was tested.
    BaseMoved {
        /// The branch.
        at: ProjectBranch,
        /// Where it was expected.
        expected: String,
        /// Where it is; `None` when it is gone.
        found: Option<String>,
    },
    /// The code-review system says no.
    Refused {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
        /// Whether trying again may help.
        again: bool,
    },
}

/// Input: how merging ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmitDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// How it ended.
    pub outcome: SubmitOutcome,
}

/// How merging ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// The item.
    pub item: ItemId,
    /// How it ended.
    pub done: SubmitDone,
}

/// Which of a pipeline's reporters speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReportAction {
    /// `enqueue`
    Enqueue,
    /// `start`
    Start,
    /// `success`
    Success,
    /// `failure`
    Failure,
    /// `merge-conflict`
    MergeConflict,
    /// `config-error`
    ConfigError,
    /// `no-jobs`
    NoJobs,
    /// `dequeue`
    Dequeue,
}

impl ReportAction {
    /// Zuul's name of the reporter list.
    pub fn word(self) -> &'static str {
        match self {
            ReportAction::Enqueue => "enqueue",
            ReportAction::Start => "start",
            ReportAction::Success => "success",
            ReportAction::Failure => "failure",
            ReportAction::MergeConflict => "merge-conflict",
            ReportAction::ConfigError => "config-error",
            ReportAction::NoJobs => "no-jobs",
            ReportAction::Dequeue => "dequeue",
        }
    }
}

/// Work: deliver a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportRequested {
    /// The work; also the report's id, by which a repeat is known where it is delivered.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// The item; none for a change that was refused before it became one.
    pub item: Option<ItemId>,
    /// The pipeline.
    pub pipeline: String,
    /// Which reporters.
    pub action: ReportAction,
    /// To whom: connection and what the reporter was configured with.
    pub reporters: Vec<(String, Value)>,
    /// About what.
    pub subjects: Vec<Subject>,
    /// The whole message.
    pub message: String,
    /// When it was decided: its date where it is delivered, the same at every sending.
    pub requested_at: Timestamp,
}

/// Input: how reporting ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// Set when it could not be delivered: code, text, and whether trying again may help.
    pub failed: Option<(String, String, bool)>,
}

/// A report was delivered, or could not be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportDelivered {
    /// The item.
    pub item: Option<ItemId>,
    /// How it ended.
    pub done: ReportDone,
}

/// How an item ended, in Zuul's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemResult {
    /// `SUCCESS`
    Success,
    /// `FAILURE`
    Failure,
    /// `MERGE_CONFLICT`
    MergeConflict,
    /// `MERGE_FAILURE`
    MergeFailure,
    /// `CONFIG_ERROR`
    ConfigError,
    /// `NO_JOBS`
    NoJobs,
    /// `DEQUEUED`
    Dequeued,
    /// `ERROR`
    Error,
}

impl ItemResult {
    /// Zuul's word.
    pub fn word(self) -> &'static str {
        match self {
            ItemResult::Success => "SUCCESS",
            ItemResult::Failure => "FAILURE",
            ItemResult::MergeConflict => "MERGE_CONFLICT",
            ItemResult::MergeFailure => "MERGE_FAILURE",
            ItemResult::ConfigError => "CONFIG_ERROR",
            ItemResult::NoJobs => "NO_JOBS",
            ItemResult::Dequeued => "DEQUEUED",
            ItemResult::Error => "ERROR",
        }
    }
}

/// An item left its pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemDequeued {
    /// The item.
    pub item: ItemId,
    /// How it ended.
    pub result: ItemResult,
    /// A code: `merged`, `reported`, `new-patchset`, `abandoned`, `admin`, `needs-gone`, `superseded`, …
    pub code: String,
    /// A sentence.
    pub detail: String,
    /// Whether gatelog merged it: then what was tested behind it goes on as it is.
    pub merged: bool,
}

/// Short work is sent out once more: its deadline passed, or trying again may help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkResent {
    /// The work.
    pub work: WorkId,
    /// Which sending this is, from 1.
    pub attempt: u32,
    /// Not before this moment.
    pub not_before: Timestamp,
}
