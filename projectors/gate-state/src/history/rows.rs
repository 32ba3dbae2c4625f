//! What the temporal tables keep.

use std::collections::BTreeMap;

use gatelog_record::draft::capacity::{NodeWanted, SemaphoreWanted};
use gatelog_record::draft::gate::{
    Artifact, BuildResult, FrozenRefs, ItemResult, PipelineVerdict, PreparedBranch, ProjectProblem, ReportAction,
    ReturnedKept, Subject, SubmitOutcome, SubmitTarget, TenantLoaded, TriggerCause, WaitCode,
};
use gatelog_record::{
    ActorId, BlobHash, BuildId, BuildsetId, Cause, ItemId, LeaseId, Sealed, Timestamp, Value, WorkId,
};
use gatelog_tables::TableDef;
use gatelog_tables::table::Life;
use serde::{Deserialize, Serialize};

use super::held::Held;
use crate::live::WaitKey;

macro_rules! temporal {
    ($($(#[$doc:meta])* $name:ident $id:literal $text:literal: $key:ty => $row:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;
        impl TableDef for $name {
            const ID: u16 = $id;
            const NAME: &'static str = $text;
            const LIFE: Life = Life::Temporal;
            // Every key ends in the event that put it (a build's, in its place in that event's list).
            const GROWS: bool = $id < 109;
            type Key = $key;
            type Row = $row;
        }
    )*};
}

temporal! {
    /// Items, for ever.
    ItemHistory 100 "item-history": (ItemId, u64) => Held<ItemEntry>;
    /// Buildsets, for ever.
    BuildsetHistory 101 "buildset-history": (BuildsetId, u64) => Held<BuildsetEntry>;
    /// Builds, with every attempt.
    BuildHistory 102 "build-history": (BuildId, u64) => Held<BuildEntry>;
    /// Reports.
    ReportHistory 103 "report-history": (WorkId, u64) => Held<ReportEntry>;
    /// What things waited for.
    WaitHistory 104 "wait-history": (WaitKey, u64) => Held<WaitEntry>;
    /// Layouts in force, by tenant.
    LayoutHistory 105 "layout-history": (String, u64) => Held<LayoutEntry>;
    /// Tenants' settings in force.
    TenantHistory 106 "tenant-history": (String, u64) => Held<TenantEntry>;
    /// Projects whose configuration cannot be read, by tenant and canonical name.
    UnreadHistory 107 "unread-history": ((String, String), u64) => Held<ProjectProblem>;
    /// Triggers, by their input sequence.
    TriggerHistory 108 "trigger-history": (u64, u64) => Held<TriggerEntry>;
    /// Changes that were not let into a pipeline: tenant, the event.
    RefusedHistory 109 "refused-history": (String, u64) => RefusedEntry;
    /// Every event: when it was and what it was about.
    Moments 110 "moments": u64 => Moment;
    /// The newest event of each moment.
    SequenceAt 111 "sequence-at": Timestamp => u64;
    /// Items in the order they were enqueued: tenant, the event.
    ItemsOfTenant 120 "items-of-tenant": (String, u64) => ItemId;
    /// Buildsets in the order they were opened: tenant, the event.
    BuildsetsOfTenant 121 "buildsets-of-tenant": (String, u64) => BuildsetId;
    /// The same by project (canonical name).
    BuildsetsOfProject 122 "buildsets-of-project": (String, String, u64) => BuildsetId;
    /// The same by change.
    BuildsetsOfChange 123 "buildsets-of-change": (String, String, u64) => BuildsetId;
    /// The same by pipeline.
    BuildsetsOfPipeline 124 "buildsets-of-pipeline": (String, String, u64) => BuildsetId;
    /// Buildsets of an item.
    BuildsetsOfItem 125 "buildsets-of-item": (ItemId, u64) => BuildsetId;
    /// Builds in the order they were frozen: tenant, the event, their place in the graph.
    BuildsOfTenant 126 "builds-of-tenant": (String, u64, u32) => BuildId;
    /// The same by job.
    BuildsOfJob 127 "builds-of-job": (String, String, u64, u32) => BuildId;
    /// The same by project (canonical name).
    BuildsOfProject 128 "builds-of-project": (String, String, u64, u32) => BuildId;
    /// The same by change.
    BuildsOfChange 129 "builds-of-change": (String, String, u64, u32) => BuildId;
    /// How long successful builds of a job took, in milliseconds: tenant, job, the event.
    DurationsOfJob 130 "durations-of-job": (String, String, u64) => u64;
    /// Reports of an item: the item, the event that asked for them.
    ReportsOfItem 131 "reports-of-item": (ItemId, u64) => WorkId;
    /// Items a trigger brought in: its input sequence, the event.
    ItemsOfTrigger 132 "items-of-trigger": (u64, u64) => ItemId;
}

/// What is kept of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemEntry {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// What it holds.
    pub subjects: Vec<Subject>,
    /// Whether it ran jobs and reported.
    pub live: bool,
    /// The item it was put behind: when it entered, or by its last reset.
    pub ahead: Option<ItemId>,
    /// The trigger's input sequence.
    pub trigger: Option<u64>,
    /// Why it entered, as a code.
    pub reason: String,
    /// The event by which it entered.
    pub enqueued: u64,
    /// When it entered.
    pub enqueued_at: Timestamp,
    /// Its buildset.
    pub buildset: Option<BuildsetId>,
    /// Why it was failing; empty when it was not.
    pub failing: Vec<String>,
    /// Its resets, oldest first.
    pub resets: Vec<ResetEntry>,
    /// Its merges for real, oldest first.
    pub submits: Vec<SubmitEntry>,
    /// How it ended, once it has.
    pub end: Option<EndEntry>,
    /// What whoever enqueued it gave for the parameters its project declares.
    pub parameters: BTreeMap<String, Value>,
}

/// Builds were given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetEntry {
    /// When.
    pub at: Timestamp,
    /// The event.
    pub sequence: u64,
    /// The buildset that was given up, if there was one.
    pub buildset: Option<BuildsetId>,
    /// The item it stands behind from then on.
    pub ahead: Option<ItemId>,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// A merge for real.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubmitEntry {
    /// The work.
    pub work: WorkId,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// What was to be merged.
    pub targets: Vec<SubmitTarget>,
    /// When it ended.
    pub done_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<SubmitOutcome>,
}

/// How an item ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndEntry {
    /// When.
    pub at: Timestamp,
    /// Its result.
    pub result: ItemResult,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
    /// Whether gatelog merged it.
    pub merged: bool,
}

/// How preparing ended, without the files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PreparedEntry {
    /// The state is there.
    Merged {
        /// The branches, with the commits prepared.
        branches: Vec<PreparedBranch>,
    },
    /// A change did not merge.
    Conflict {
        /// The change.
        subject: Subject,
        /// The paths.
        paths: Vec<String>,
        /// For people.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
}

/// How freezing ended, without the jobs: those are builds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FrozenEntry {
    /// Jobs run.
    Frozen {
        /// The job graph, a blob.
        graph: BlobHash,
        /// Why these jobs, a blob.
        trace: BlobHash,
        /// Every repository that jobs use, as all of them see it.
        repo_state: Vec<FrozenRefs>,
    },
    /// No job runs.
    NoJobs {
        /// Why, a blob.
        trace: BlobHash,
        /// Whether the project is in the pipeline at all.
        in_pipeline: bool,
    },
    /// The configuration was wrong for this item.
    Refused {
        /// Why, a blob.
        trace: BlobHash,
        /// What was reported.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
}

/// What is kept of a buildset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildsetEntry {
    /// The item.
    pub item: ItemId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The event that opened it.
    pub opened: u64,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// The items it stood on, oldest first.
    pub ahead: Vec<ItemId>,
    /// How preparing ended.
    pub prepared: Option<PreparedEntry>,
    /// The speculative layout made for it.
    pub layout: Option<BlobHash>,
    /// The problems of that layout, a blob.
    pub problems: Option<BlobHash>,
    /// What was reported when the item's configuration was wrong.
    pub config_problem: Option<String>,
    /// How freezing ended.
    pub frozen: Option<FrozenEntry>,
    /// Its builds, in the order of the graph.
    pub builds: Vec<BuildId>,
    /// When its first build began.
    pub first_start: Option<Timestamp>,
    /// When its last build so far ended.
    pub last_end: Option<Timestamp>,
    /// What was reported for it at its end.
    pub message: Option<String>,
    /// The item's result, once it has one.
    pub result: Option<ItemResult>,
    /// When it was over: given up or its item gone.
    pub finished_at: Option<Timestamp>,
    /// Set when it was given up for another: a code and a sentence.
    pub reset: Option<(String, String)>,
}

/// What is kept of a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildEntry {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The job.
    pub job: String,
    /// Everything a worker was told: a blob.
    pub spec: BlobHash,
    /// Whether its result counts.
    pub voting: bool,
    /// How many attempts it had.
    pub attempts_allowed: u32,
    /// Jobs it waited for; the second says whether softly.
    pub dependencies: Vec<(String, bool)>,
    /// Semaphores of the tenant it held while it ran.
    pub semaphores: Vec<SemaphoreWanted>,
    /// The nodes it ran on.
    pub nodes: Vec<NodeWanted>,
    /// The event that froze it.
    pub frozen: u64,
    /// Its place in the graph, from 0.
    pub ordinal: u32,
    /// When it was frozen.
    pub frozen_at: Timestamp,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptEntry>,
    /// Its result, once it has one.
    pub result: Option<BuildResult>,
    /// Without a worker: why it has its result, a code.
    pub settled: Option<String>,
    /// Why it has its result, for people.
    pub detail: Option<String>,
    /// When it got its result or was given up.
    pub finished_at: Option<Timestamp>,
    /// Whether its nodes were kept when it failed; still said when they are kept no longer, as by Zuul.
    pub held: bool,
    /// Since when what its attempts returned is gone, as far as it was in blobs of its own.
    pub returned_gone: Option<Timestamp>,
}

impl BuildEntry {
    /// Whether its buildset was given up before it had a result.
    pub fn given_up(&self) -> bool {
        self.result.is_none() && self.finished_at.is_some()
    }

    /// The newest attempt.
    pub fn attempt(&self) -> Option<&AttemptEntry> {
        self.attempts.last()
    }

    /// When the newest attempt began, by the worker's clock.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.attempt().and_then(|attempt| attempt.started_at)
    }

    /// When it ended: its newest attempt, or, without a worker, the build.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.result.and(self.attempt().and_then(|attempt| attempt.finished_at).or(self.finished_at))
    }
}

/// One attempt of a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptEntry {
    /// Which, from 1.
    pub attempt: u32,
    /// When its lease was asked for.
    pub requested_at: Timestamp,
    /// Its lease, once it ran.
    pub lease: Option<LeaseId>,
    /// Its worker, once it ran.
    pub worker: Option<String>,
    /// When it began, by the worker's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended, by the worker's clock.
    pub finished_at: Option<Timestamp>,
    /// How it ended; `None` while it runs, and for ever when it was given up or its worker lost.
    pub result: Option<BuildResult>,
    /// For people.
    pub detail: Option<String>,
    /// What the job returned.
    pub data: Value,
    /// What it returned under seal.
    pub secret_data: Option<Sealed>,
    /// What it left behind.
    pub artifacts: Vec<Artifact>,
    /// Where the rest of what it returned is, and all of its data and artifacts.
    pub kept: ReturnedKept,
    /// Where its log is.
    pub log_url: Option<String>,
    /// Why its lease was to end: a code and when.
    pub let_go: Option<(String, Timestamp)>,
}

/// What is kept of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportEntry {
    /// The tenant.
    pub tenant: String,
    /// The item, if it was for one.
    pub item: Option<ItemId>,
    /// The pipeline.
    pub pipeline: String,
    /// Which reporters.
    pub action: ReportAction,
    /// The connections it went to.
    pub connections: Vec<String>,
    /// About what.
    pub subjects: Vec<Subject>,
    /// The whole message.
    pub message: String,
    /// When it was decided.
    pub requested_at: Timestamp,
    /// When it was answered.
    pub answered_at: Option<Timestamp>,
    /// Set when it could not be delivered: code and text.
    pub failed: Option<(String, String)>,
}

/// What something waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitEntry {
    /// For what.
    pub code: WaitCode,
    /// A sentence.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// What would unblock it.
    pub unblocks: String,
}

/// A tenant's layout in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayoutEntry {
    /// The layout, a blob; `None` when none could be made yet.
    pub layout: Option<BlobHash>,
    /// Its problems, a blob.
    pub problems: Option<BlobHash>,
    /// How many of them are errors.
    pub errors: u32,
    /// The version of the loader.
    pub loader: u32,
    /// How many layouts the tenant has had.
    pub generation: u64,
    /// When it came into force.
    pub activated_at: Timestamp,
    /// Why a newer one could not be made: code and text.
    pub failed: Option<(String, String)>,
}

/// A tenant's settings in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantEntry {
    /// What they are.
    pub loaded: TenantLoaded,
    /// When they came into force.
    pub configured_at: Timestamp,
}

/// What is kept of a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerEntry {
    /// The tenant.
    pub tenant: String,
    /// What came.
    pub cause: TriggerCause,
    /// When it came.
    pub received_at: Timestamp,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
    /// What each pipeline made of it.
    pub verdicts: Vec<PipelineVerdict>,
    /// Who asked, opaque.
    pub actor: ActorId,
}

/// A change that was not let into a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedEntry {
    /// When.
    pub at: Timestamp,
    /// The pipeline.
    pub pipeline: String,
    /// The change.
    pub subject: Subject,
    /// A code.
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// What an event was about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// When it was decided.
    pub at: Timestamp,
    /// Its kind.
    pub kind: u16,
    /// The partition's key: for most, the tenant.
    pub key: String,
    /// What led to it.
    pub cause: Cause,
    /// On the first event of a decision: the sequence of the input.
    pub input: Option<u64>,
    /// The item it is about.
    pub item: Option<ItemId>,
    /// The build it is about.
    pub build: Option<BuildId>,
    /// Who asked, opaque.
    pub actor: ActorId,
}
