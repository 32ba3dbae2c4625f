//! What operators are answered, and what they send.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

/// What somebody may do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rights {
    pub(crate) zuul: RightsOf,
}

/// Zuul: with role mappings a tenant's answer has no `admin`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RightsOf {
    #[schemars(with = "BTreeMap<String, bool>")]
    pub(crate) permissions: Map<String, Json>,
    /// The tenant, `<root>`, or `*`.
    pub(crate) scope: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin: Option<bool>,
}

/// Zuul's `HOLD`: a request to keep the nodes of builds that fail.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Autohold {
    /// Ten digits.
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) project: String,
    pub(crate) job: String,
    /// A regular expression.
    pub(crate) ref_filter: String,
    pub(crate) max_count: u32,
    pub(crate) current_count: u32,
    pub(crate) reason: String,
    /// Seconds; 0 for ever.
    pub(crate) node_expiration: u64,
    /// Always null.
    pub(crate) expired: Option<f64>,
    pub(crate) nodes: Vec<HeldNodes>,
    /// Milliseconds since 1970.
    pub(crate) asked_ms: i64,
}

/// The nodes of a build that are kept.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HeldNodes {
    pub(crate) build: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) lease: Option<String>,
    pub(crate) worker: Option<String>,
    /// Milliseconds since 1970.
    pub(crate) since_ms: i64,
    /// Milliseconds since 1970.
    pub(crate) until_ms: Option<i64>,
}

/// Up to which level records may be written, and which level is known by who is there.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Level {
    pub(crate) version: String,
    /// The newest level that this process knows.
    pub(crate) knows: u32,
    pub(crate) partitions: Vec<LevelPartition>,
    pub(crate) components: Vec<LevelComponent>,
}

/// The level of a partition.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LevelPartition {
    pub(crate) partition: String,
    pub(crate) level: u32,
    pub(crate) position: String,
}

/// What a process knows.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LevelComponent {
    pub(crate) hostname: String,
    pub(crate) roles: Vec<String>,
    pub(crate) version: String,
    pub(crate) level: u32,
    pub(crate) silent: bool,
    pub(crate) last_sign_ms: u64,
}

/// The level was raised.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LevelRaised {
    pub(crate) level: u32,
    pub(crate) partitions: Vec<Raised>,
}

/// What a partition made of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Raised {
    pub(crate) partition: String,
    /// Null while it is not decided.
    pub(crate) raised: Option<bool>,
    pub(crate) event: Option<u64>,
}

/// A component was paused, or goes on.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Paused {
    pub(crate) role: String,
    pub(crate) hostname: String,
    /// Null while it is not decided.
    pub(crate) paused: Option<bool>,
}

/// What is sent to enqueue: a change, or a ref.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "only its schema is used: bodies are read by `operators::body`, which names what is wrong"
)]
pub(crate) struct EnqueueBody {
    pipeline: String,
    change: Option<String>,
    #[schemars(rename = "ref")]
    git_ref: Option<String>,
    oldrev: Option<String>,
    newrev: Option<String>,
    parameters: Option<BTreeMap<String, Json>>,
    reason: Option<String>,
}

/// What is sent to dequeue: a change, or a ref.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct DequeueBody {
    pipeline: String,
    change: Option<String>,
    #[schemars(rename = "ref")]
    git_ref: Option<String>,
    reason: Option<String>,
}

/// What is sent to promote.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct PromoteBody {
    pipeline: String,
    changes: Vec<PromotedChange>,
    reason: Option<String>,
}

/// A change by its id, or with its project.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum PromotedChange {
    /// Such as `1234,5`.
    Id(String),
    /// Of a project.
    Of {
        /// Its name, short or canonical.
        project: String,
        /// Such as `1234,5`.
        change: String,
    },
}

/// What is sent to set a tenant's state. What is left out stays as it is.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct TenantStateBody {
    trigger_queue_discarding: Option<bool>,
    trigger_queue_paused: Option<bool>,
    /// Not true.
    result_queue_paused: Option<bool>,
    reason: Option<String>,
    /// Empty.
    info: Option<String>,
}

/// What is sent to keep nodes: of a change, a ref, or (neither) whatever fails.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct AutoholdBody {
    job: String,
    count: Option<u32>,
    change: Option<String>,
    #[schemars(rename = "ref")]
    git_ref: Option<String>,
    reason: Option<String>,
    /// Seconds.
    node_hold_expiration: Option<u64>,
}

/// What is sent to raise the level.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct LevelBody {
    level: Option<u32>,
    reason: Option<String>,
}

/// Why.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ReasonBody {
    reason: Option<String>,
}
