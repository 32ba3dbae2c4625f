//! The site as a whole.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::Coded;
use crate::what_if::Question;

/// Why there is no answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Failure {
    /// For programs.
    pub(crate) error: String,
    /// For people: one sentence.
    pub(crate) description: String,
    /// Where they can log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) realm: Option<String>,
}

/// How the site is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `well`, `yellow` or `stopped`.
    pub(crate) state: String,
    pub(crate) version: String,
    /// Where the fold of each partition stands.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub(crate) positions: Map<String, Json>,
    pub(crate) parts: Vec<Part>,
}

/// Whether this process answers reads as of now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ready {
    pub(crate) ready: bool,
    /// Why not.
    pub(crate) reason: Option<String>,
    pub(crate) parts: Vec<Part>,
}

/// Whether this process answers at all.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Live {
    pub(crate) live: bool,
}

/// How a part of the site is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Part {
    pub(crate) part: String,
    pub(crate) well: bool,
    /// What it is doing, a word.
    pub(crate) state: String,
    /// What is wrong, and the cure; empty when nothing is.
    pub(crate) detail: String,
}

/// A connection.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) driver: String,
}

/// A process under one of its roles. Zuul: `hostname`, `state`, `version`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Component {
    pub(crate) hostname: String,
    pub(crate) state: String,
    /// Null of one that gives no sign.
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) silent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) roles: Option<Vec<String>>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_ms: Option<i64>,
    /// Milliseconds ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_sign_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    /// Why it takes no builds now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<Vec<Coded>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// How many builds it takes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<Vec<String>>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) joined_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<Pause>,
}

/// Why a component takes nothing new.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pause {
    pub(crate) reason: String,
    /// Who asked, where that is known.
    pub(crate) by: Option<String>,
    /// Milliseconds since 1970.
    pub(crate) since_ms: i64,
}

/// What everything waits for, the worst first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Waits {
    #[schemars(with = "BTreeMap<String, u64>")]
    pub(crate) positions: Map<String, Json>,
    /// What stretches are counted up to: milliseconds since 1970.
    pub(crate) now_ms: i64,
    /// What has waited for less is told with `all=true` only.
    pub(crate) told_after_ms: i64,
    /// Whether something does not go on by itself.
    pub(crate) held_up: bool,
    pub(crate) waits: Vec<WaitTold>,
    /// How many more there are.
    pub(crate) left_off: usize,
}

/// What one thing waits for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitTold {
    pub(crate) subject: WaitSubject,
    pub(crate) tenant: Option<String>,
    /// A code.
    pub(crate) reason: String,
    /// `held-up`, `waiting` or `working`.
    pub(crate) standing: String,
    pub(crate) means: String,
    pub(crate) detail: String,
    pub(crate) since: String,
    /// Milliseconds since 1970.
    pub(crate) since_ms: i64,
    pub(crate) waited_ms: i64,
    pub(crate) ends_when: String,
    pub(crate) cure: Option<String>,
}

/// What waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitSubject {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) name: String,
}

/// An event of the gate, as `events` tells of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventTold {
    pub(crate) position: String,
    pub(crate) sequence: u64,
    /// Milliseconds since 1970.
    pub(crate) at_ms: i64,
    pub(crate) kind: Option<String>,
    pub(crate) tenant: String,
    pub(crate) item: Option<String>,
    pub(crate) build: Option<String>,
}

/// A what-if.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Case {
    pub(crate) id: String,
    /// `waiting`, `running`, `answered`, `failed` or `cancelled`.
    pub(crate) state: String,
    pub(crate) question: Question,
    /// Who asked; empty where nobody needs to say so.
    pub(crate) by: String,
    /// Milliseconds since 1970.
    pub(crate) asked_ms: i64,
    /// Where people read it.
    pub(crate) page: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Json>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A what-if that was taken.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CaseAsked {
    pub(crate) id: String,
    pub(crate) page: String,
}

/// Who issues tokens of jobs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Issuer {
    pub(crate) issuer: String,
    pub(crate) jwks_uri: String,
    pub(crate) claims_supported: Vec<String>,
    pub(crate) response_types_supported: Vec<String>,
    pub(crate) id_token_signing_alg_values_supported: Vec<String>,
    pub(crate) subject_types_supported: Vec<String>,
}
