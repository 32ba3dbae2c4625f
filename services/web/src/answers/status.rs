//! A tenant's status, and what of it stands elsewhere too.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// The live queues of a tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    /// The version of gatelog.
    pub(crate) zuul_version: String,
    /// The event this is as of, such as `gate/0:120`.
    #[schemars(with = "String")]
    pub(crate) position: Option<String>,
    /// When that event was recorded: milliseconds since 1970.
    #[schemars(with = "i64")]
    pub(crate) position_ms: Option<i64>,
    /// Triggers that wait for the facts they need.
    pub(crate) trigger_event_queue: QueueLength,
    /// Always 0.
    pub(crate) management_event_queue: QueueLength,
    /// Always empty: what comes from connections is on the log at once.
    pub(crate) connection_event_queues: BTreeMap<String, QueueLength>,
    /// Whether outside events wait.
    pub(crate) state: TenantState,
    /// When the configuration in force came into force: milliseconds since 1970.
    pub(crate) last_reconfigured: Option<i64>,
    /// What the tenant itself waits for.
    pub(crate) wait: Option<Wait>,
    /// In the order of the configuration.
    pub(crate) pipelines: Vec<PipelineStatus>,
}

/// How much waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueLength {
    pub(crate) length: u64,
}

/// Zuul: a tenant's state.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantState {
    /// Whether events from outside are dropped.
    pub(crate) trigger_queue_discarding: bool,
    /// Whether they wait.
    pub(crate) trigger_queue_paused: bool,
    /// Always false: results are never held up.
    pub(crate) result_queue_paused: bool,
    /// Why, in an operator's words.
    pub(crate) reason: Option<String>,
    /// Always null.
    pub(crate) info: Option<String>,
}

/// What something waits for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Wait {
    /// For programs.
    pub(crate) code: String,
    /// For people.
    pub(crate) detail: String,
    /// Milliseconds since 1970.
    pub(crate) since_ms: i64,
    /// What ends it.
    pub(crate) unblocks: String,
}

/// A pipeline and its queues.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PipelineStatus {
    pub(crate) name: String,
    /// Null where it is no longer configured.
    pub(crate) description: Option<String>,
    /// Always `normal`.
    pub(crate) state: String,
    /// Null where it is no longer configured.
    pub(crate) manager: Option<String>,
    pub(crate) triggers: Vec<Trigger>,
    /// Always 0.
    pub(crate) trigger_events: u64,
    /// Always 0.
    pub(crate) result_events: u64,
    /// Always 0.
    pub(crate) management_events: u64,
    pub(crate) change_queues: Vec<QueueStatus>,
}

/// What a pipeline is triggered by.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Trigger {
    pub(crate) driver: String,
}

/// A queue.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueStatus {
    pub(crate) name: Option<String>,
    /// Always null.
    pub(crate) branch: Option<String>,
    /// How many items are worked on at once; 0 is all.
    pub(crate) window: u32,
    /// An item that stands behind nothing begins a row of its own.
    pub(crate) heads: Vec<Vec<ItemStatus>>,
}

/// An item of a queue.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ItemStatus {
    pub(crate) id: String,
    /// The same as `id`.
    pub(crate) uuid: String,
    /// Whether it is within the window.
    pub(crate) active: bool,
    /// Whether it is there for itself, not only for what a live one needs.
    pub(crate) live: bool,
    pub(crate) refs: Vec<RefStatus>,
    pub(crate) item_ahead: Option<String>,
    pub(crate) items_behind: Vec<String>,
    pub(crate) failing_reasons: Vec<String>,
    pub(crate) zuul_ref: Option<String>,
    pub(crate) buildset: Option<String>,
    /// Milliseconds since 1970.
    pub(crate) enqueue_time: i64,
    /// The longest way through its jobs, in milliseconds.
    pub(crate) remaining_time: Option<i64>,
    pub(crate) result: Option<String>,
    pub(crate) problem: Option<Problem>,
    /// Why it was enqueued.
    pub(crate) reason: String,
    /// How often it was begun anew.
    pub(crate) resets: u32,
    pub(crate) wait: Option<Wait>,
    pub(crate) jobs: Vec<JobStatus>,
}

/// Why an item runs no jobs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What an item holds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RefStatus {
    /// The change and its patchset, or the commit of a ref that moved.
    pub(crate) id: String,
    pub(crate) url: String,
    #[serde(rename = "ref")]
    pub(crate) git_ref: String,
    pub(crate) project: String,
    pub(crate) project_canonical: String,
    /// An opaque id: names of persons are under seal.
    pub(crate) owner: Option<String>,
    pub(crate) branch: Option<String>,
    pub(crate) change: Option<String>,
    pub(crate) patchset: Option<String>,
    pub(crate) oldrev: Option<String>,
    pub(crate) newrev: Option<String>,
    pub(crate) ref_url: String,
    pub(crate) commit: Option<String>,
}

/// A job of an item.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobStatus {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<String>,
    /// How long it runs or ran, in milliseconds.
    pub(crate) elapsed_time: Option<i64>,
    /// How much longer it is thought to take, in milliseconds.
    pub(crate) remaining_time: Option<i64>,
    pub(crate) url: Option<String>,
    pub(crate) report_url: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) voting: bool,
    pub(crate) uuid: String,
    /// Seconds since 1970.
    pub(crate) execute_time: Option<f64>,
    /// Seconds since 1970.
    pub(crate) start_time: Option<f64>,
    /// Seconds since 1970.
    pub(crate) end_time: Option<f64>,
    pub(crate) estimate: Option<Estimated>,
    /// Seconds.
    pub(crate) estimated_time: Option<i64>,
    pub(crate) pipeline: String,
    pub(crate) canceled: bool,
    pub(crate) paused: bool,
    pub(crate) pre_fail: bool,
    pub(crate) retry: bool,
    /// Always false.
    pub(crate) snapshotting: bool,
    pub(crate) tries: u32,
    pub(crate) queued: bool,
    pub(crate) waiting_status: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) detail: Option<String>,
    /// How it was settled without running.
    pub(crate) settled: Option<String>,
    pub(crate) wait: Option<Wait>,
}

/// How long a job is thought to take, in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Estimated {
    pub(crate) mean_ms: i64,
    pub(crate) least_ms: i64,
    pub(crate) most_ms: i64,
    /// By how many successful builds.
    pub(crate) runs: usize,
}
