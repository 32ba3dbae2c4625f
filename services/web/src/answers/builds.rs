//! Builds and buildsets, and what is kept of them.

use gatelog_log_files::Digest;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::Coded;

/// Zuul's `REF`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GitRef {
    pub(crate) project: String,
    pub(crate) project_canonical: String,
    pub(crate) branch: Option<String>,
    pub(crate) change: Option<String>,
    pub(crate) patchset: Option<String>,
    #[serde(rename = "ref")]
    pub(crate) git_ref: String,
    pub(crate) oldrev: Option<String>,
    /// Of a ref that moved; a change has none.
    pub(crate) newrev: Option<String>,
    pub(crate) ref_url: String,
    pub(crate) commit: Option<String>,
}

/// What something waited for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitHeld {
    /// For programs.
    pub(crate) code: String,
    /// For people.
    pub(crate) detail: String,
    /// Milliseconds since 1970.
    pub(crate) since_ms: i64,
    /// Milliseconds since 1970; null while it goes on.
    pub(crate) until_ms: Option<i64>,
    /// What ends it.
    pub(crate) unblocks: String,
    /// The event from which it holds.
    pub(crate) from: u64,
}

/// A file or page that a build left.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Artifact {
    pub(crate) name: String,
    pub(crate) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Json>,
}

/// An attempt of a build. Times are milliseconds since 1970.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Attempt {
    pub(crate) attempt: u32,
    pub(crate) requested_ms: i64,
    pub(crate) started_ms: Option<i64>,
    pub(crate) finished_ms: Option<i64>,
    pub(crate) result: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) lease: Option<String>,
    pub(crate) log_url: Option<String>,
    /// Why and when it was given up before it ended.
    pub(crate) let_go: Option<LetGo>,
}

/// An attempt was given up.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LetGo {
    pub(crate) reason: String,
    /// Milliseconds since 1970.
    pub(crate) at_ms: i64,
}

/// Zuul's `BUILD`, with its attempts. Within its buildset it has neither pipeline nor buildset; by itself it has the
/// changes of its buildset, what it returned, its dependencies and waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Build {
    /// Grows with every build.
    #[serde(rename = "_id")]
    pub(crate) index: u64,
    pub(crate) uuid: String,
    pub(crate) job_name: String,
    pub(crate) result: Option<String>,
    pub(crate) held: bool,
    pub(crate) execute_time: Option<String>,
    pub(crate) start_time: Option<String>,
    pub(crate) end_time: Option<String>,
    /// Seconds.
    pub(crate) duration: Option<f64>,
    pub(crate) voting: bool,
    pub(crate) log_url: Option<String>,
    /// The labels of its nodes.
    pub(crate) nodeset: Option<String>,
    pub(crate) error_detail: Option<String>,
    /// Always true: attempts are in `attempts`.
    #[serde(rename = "final")]
    pub(crate) last: bool,
    pub(crate) artifacts: Vec<Artifact>,
    /// Always empty.
    pub(crate) provides: Vec<Json>,
    #[serde(rename = "ref")]
    pub(crate) git_ref: Option<GitRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pipeline: Option<String>,
    /// What triggered its item.
    pub(crate) event_id: Option<String>,
    pub(crate) event_timestamp: String,
    pub(crate) queue_item_uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) buildset: Option<BuildsetOfBuild>,
    /// Milliseconds since 1970.
    pub(crate) started_ms: Option<i64>,
    /// Milliseconds since 1970.
    pub(crate) finished_ms: Option<i64>,
    /// How it was settled without running.
    pub(crate) settled: Option<String>,
    pub(crate) attempts: Vec<Attempt>,
    /// What it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_kept: Option<KeptBlob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret_data_kept: Option<KeptBlob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dependencies: Option<Vec<Dependency>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<Vec<WaitHeld>>,
}

/// The buildset of a build.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BuildsetOfBuild {
    pub(crate) uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refs: Option<Vec<GitRef>>,
}

/// What a build returned, in a blob of its own.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeptBlob {
    pub(crate) blob: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Since when it is not kept any more.
    pub(crate) gone_since: Option<String>,
    /// Why it cannot be read.
    pub(crate) problem: Option<String>,
}

/// A job that another waits for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) soft: bool,
}

/// Zuul's `BUILDSET`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Buildset {
    /// The event that opened it.
    #[serde(rename = "_id")]
    pub(crate) index: u64,
    pub(crate) uuid: String,
    pub(crate) result: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) pipeline: String,
    pub(crate) event_id: Option<String>,
    pub(crate) event_timestamp: String,
    pub(crate) queue_item_uuid: String,
    pub(crate) first_build_start_time: Option<String>,
    pub(crate) last_build_end_time: Option<String>,
    /// Always null.
    pub(crate) user_id: Option<String>,
    /// What was given for parameters; null where nothing was.
    pub(crate) parameters: Option<Map<String, Json>>,
    pub(crate) refs: Vec<GitRef>,
    /// Milliseconds since 1970.
    pub(crate) started_ms: i64,
    /// Milliseconds since 1970.
    pub(crate) finished_ms: Option<i64>,
    /// Why it was given up for another.
    pub(crate) reset: Option<Reason>,
    /// How its item ended.
    pub(crate) end: Option<Ended>,
}

/// A code with words for people.
pub(crate) type Reason = Coded;

/// How an item ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ended {
    pub(crate) code: String,
    pub(crate) detail: String,
    /// Whether gatelog merged it.
    pub(crate) merged: bool,
}

/// A buildset by itself.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BuildsetWhole {
    #[serde(flatten)]
    pub(crate) buildset: Buildset,
    pub(crate) builds: Vec<Build>,
    pub(crate) events: Vec<BuildsetEvent>,
    /// What its item waited for.
    pub(crate) waits: Vec<WaitHeld>,
    pub(crate) prepared: Option<Prepared>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) config_problem: Option<String>,
    /// The blob of its layout, where it has one of its own.
    pub(crate) layout: Option<String>,
    /// The items it stands on.
    pub(crate) ahead: Vec<String>,
}

/// What befell the item of a buildset.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BuildsetEvent {
    pub(crate) event_time: String,
    pub(crate) event_type: String,
    pub(crate) description: String,
    /// Milliseconds since 1970.
    pub(crate) event_ms: i64,
}

/// What merging speculatively came to.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Prepared {
    /// The state is there.
    Merged { branches: Vec<PreparedBranch> },
    /// A change did not merge.
    Conflict {
        #[serde(rename = "ref")]
        git_ref: Box<GitRef>,
        paths: Vec<String>,
        message: String,
    },
    /// It could not be tried.
    Failed { code: String, message: String },
}

/// A branch as it was prepared.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PreparedBranch {
    pub(crate) project: String,
    pub(crate) project_canonical: String,
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) ahead: String,
    pub(crate) commit: String,
    pub(crate) tree: String,
}

/// What choosing jobs came to. Graph and trace are blobs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Frozen {
    /// Jobs run.
    #[serde(rename = "frozen")]
    Jobs { graph: String, trace: String },
    /// No job runs.
    NoJobs { trace: String, in_pipeline: bool },
    /// The configuration was wrong for this item.
    Refused { trace: String, message: String },
    /// It could not be tried.
    Failed { code: String, message: String },
}

/// What an attempt got from capacity. Times are milliseconds since 1970.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Lease {
    pub(crate) lease: String,
    pub(crate) attempt: u32,
    /// How far it is, a word.
    pub(crate) phase: String,
    pub(crate) asked_ms: i64,
    pub(crate) granted_ms: Option<i64>,
    pub(crate) ended_ms: Option<i64>,
    pub(crate) worker: Option<String>,
    /// Why it waits or ended, for programs.
    pub(crate) code: String,
    /// For people.
    pub(crate) detail: String,
}

/// The files that an attempt left.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Logs {
    pub(crate) build: String,
    pub(crate) attempt: u32,
    pub(crate) worker: String,
    /// Whether no more will come.
    pub(crate) complete: bool,
    pub(crate) bytes: u64,
    pub(crate) files: Vec<LogFile>,
    pub(crate) left_out: Vec<LeftOutFile>,
    /// How many more were left out.
    pub(crate) left_out_more: u64,
    /// Milliseconds since 1970; null while the attempt runs, or for as long as there is room.
    pub(crate) kept_until_ms: Option<i64>,
}

/// A file that is kept.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LogFile {
    pub(crate) path: String,
    /// Bytes.
    pub(crate) size: u64,
    #[schemars(with = "Option<String>")]
    pub(crate) sha256: Option<Digest>,
    pub(crate) mime: String,
    pub(crate) url: String,
}

/// A file that is not kept.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LeftOutFile {
    pub(crate) path: String,
    pub(crate) why: String,
}

/// Lines of a console.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Lines {
    /// Null before the first.
    pub(crate) attempt: Option<u32>,
    pub(crate) lines: Vec<Line>,
    /// The line to go on from.
    pub(crate) next: u64,
    /// How many lines are known.
    pub(crate) known_lines: u64,
    /// How many bytes they have.
    pub(crate) known_bytes: u64,
    /// Whether those are all there are yet.
    pub(crate) complete: bool,
    /// Whether nothing will ever come after them.
    pub(crate) ended: bool,
    /// The first line that tells of a failure.
    pub(crate) first_failure: Option<u64>,
}

/// A line of a console.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Line {
    pub(crate) line: u64,
    /// Where it begins, in bytes.
    pub(crate) offset: u64,
    /// How long it is, in bytes; null while it has no end.
    pub(crate) bytes: Option<u64>,
    /// Whether `text` is only its beginning.
    pub(crate) cut: bool,
    pub(crate) text: String,
}

/// Lines in which something stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Hits {
    /// Null before the first.
    pub(crate) attempt: Option<u32>,
    pub(crate) hits: Vec<Hit>,
    /// The line to look on from.
    pub(crate) next: Option<u64>,
    /// The byte to look on from, where a line is too long for one answer.
    pub(crate) next_offset: Option<u64>,
}

/// A line in which it stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Hit {
    pub(crate) line: u64,
    pub(crate) before: String,
    #[serde(rename = "match")]
    pub(crate) itself: String,
    pub(crate) after: String,
}
