//! Tenants and their configuration.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

/// Something that has a name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Named {
    pub(crate) name: String,
}

/// What a page needs to know before anybody has logged in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Info {
    pub(crate) info: InfoOf,
}

/// Of the site, or of a tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InfoOf {
    pub(crate) capabilities: Capabilities,
    /// Where clients reach websockets, if not where they reach the API.
    pub(crate) websocket_url: Option<String>,
    /// Always null.
    pub(crate) stats: Option<Json>,
    pub(crate) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
}

/// What the site can do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Capabilities {
    /// Always true.
    pub(crate) job_history: bool,
    pub(crate) auth: Auth,
}

/// How people log in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Auth {
    /// By their names.
    #[schemars(with = "std::collections::BTreeMap<String, Realm>")]
    pub(crate) realms: Map<String, Json>,
    pub(crate) default_realm: Option<String>,
    /// Whether it takes a token to look.
    pub(crate) read_protected: bool,
    /// Always false.
    pub(crate) auth_log_file_requests: bool,
}

/// Where people log in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Realm {
    pub(crate) authority: String,
    pub(crate) client_id: String,
    /// Always `JWT`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_user_info: Option<bool>,
}

/// A project of a tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) connection_name: String,
    pub(crate) canonical_name: String,
    /// `config` or `untrusted`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

/// A pipeline of a tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pipeline {
    pub(crate) name: String,
    pub(crate) triggers: Vec<NamedTrigger>,
}

/// What a pipeline is triggered by.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NamedTrigger {
    /// The connection.
    pub(crate) name: String,
    pub(crate) driver: String,
}

/// A job of a tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Job {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    pub(crate) variants: Vec<JobVariant>,
}

/// A variant of a job.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobVariant {
    pub(crate) parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) branches: Option<Vec<String>>,
}

/// What is wrong with a configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigError {
    pub(crate) source_context: SourceContext,
    /// All of it.
    pub(crate) error: String,
    pub(crate) short_error: String,
    /// `error` or `warning`.
    pub(crate) severity: String,
    pub(crate) name: String,
    pub(crate) code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cure: Option<String>,
}

/// Where in the configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SourceContext {
    pub(crate) project: Option<String>,
    pub(crate) branch: Option<String>,
    pub(crate) path: Option<String>,
}

/// How much is wrong with a tenant's configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantStatus {
    pub(crate) config_error_count: u64,
}

/// A semaphore.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Semaphore {
    pub(crate) name: String,
    /// Always false.
    pub(crate) global: bool,
    pub(crate) max: i64,
    pub(crate) holders: Holders,
}

/// Who holds a semaphore.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Holders {
    pub(crate) count: usize,
    /// Always 0.
    pub(crate) other_tenants: u64,
    pub(crate) this_tenant: Vec<SemaphoreHolder>,
}

/// A job that holds a semaphore.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SemaphoreHolder {
    pub(crate) buildset_uuid: String,
    pub(crate) job_name: String,
}

/// A `time` of a pipeline's timer. Times are milliseconds since 1970.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Timer {
    pub(crate) pipeline: String,
    pub(crate) time: String,
    pub(crate) time_zone: String,
    pub(crate) dereference: bool,
    /// Seconds.
    pub(crate) jitter: u32,
    pub(crate) next_ms: Option<i64>,
    pub(crate) last_ms: Option<i64>,
    pub(crate) branches: Vec<TimerBranch>,
}

/// A branch that a timer enqueues.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TimerBranch {
    pub(crate) project: String,
    pub(crate) branch: String,
    pub(crate) next_ms: Option<i64>,
    pub(crate) last_ms: Option<i64>,
    pub(crate) since_ms: i64,
    /// How often it was due.
    pub(crate) ticks: u64,
}
