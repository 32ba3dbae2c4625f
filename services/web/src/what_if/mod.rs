//! What would have been: questions, answered one after the other, whose answers are kept for a while.
//!
//! - this file: what a question is, who answers, who may ask;
//! - `desk`: the questions there are, and what became of them; `api`: asking and reading as JSON.
//!
//! An answer tells of every tenant. So who may not look at all of them sees none, and who asks must be permitted to in
//! each: where there are authenticators that takes an operator who may do everything, without any it takes nothing more.

pub(crate) mod api;
pub(crate) mod desk;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use gatelog_record::Stream;
use gatelog_replay::what_if::{Answer, InputNear};
use gatelog_rules_config::authorization::{ADMIN, Asked};
use gatelog_rules_config::is_config_path;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::ApiError;
use crate::reading::App;

/// What it takes: no role of Zuul's permits this alone.
pub(crate) const PERMISSION: &str = ADMIN;
/// The largest body of a question, in bytes.
pub(crate) const MAX_QUESTION: usize = 4 << 20;
/// The most inputs of one question.
const MAX_INPUTS: usize = 1_000;
/// The most files of one question.
const MAX_FILES: usize = 1_000;

/// What is otherwise, and up to where. As JSON it is what is sent and told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Question {
    /// Inputs that never came: `intake:41`, or an offset of `gate.inputs`.
    pub without: Vec<String>,
    /// By input, what its body said instead; what is left out stays as it was.
    pub change: BTreeMap<String, Json>,
    /// By project, without its host, and path, configuration files in place of all of its.
    pub config: BTreeMap<String, BTreeMap<String, String>>,
    /// The text of a tenant file in place of each that was loaded.
    pub tenants: Option<String>,
    /// The moment up to which is looked: an event of the gate; none for all there is.
    pub at: Option<u64>,
}

/// Who answers. Not called where it would hold anybody up.
pub trait WhatIfs: Send + Sync {
    /// What came from outside up to an event of the gate, the newest first, at most so much.
    ///
    /// # Errors
    /// Why it cannot be told, a sentence.
    fn inputs_near(&self, gate: u64, most: usize) -> Result<Vec<InputNear>, String>;

    /// The answer to a question that was checked; ends early once `cancelled` says so.
    ///
    /// # Errors
    /// Why there is none, a sentence.
    fn answer(&self, question: &Question, cancelled: &dyn Fn() -> bool) -> Result<Answer, String>;
}

/// Nobody answers: for a site that is only looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWhatIfs;

impl WhatIfs for NoWhatIfs {
    fn inputs_near(&self, _: u64, _: usize) -> Result<Vec<InputNear>, String> {
        Ok(Vec::new())
    }

    fn answer(&self, _: &Question, _: &dyn Fn() -> bool) -> Result<Answer, String> {
        Err("this site is only looked at".into())
    }
}

fn bad(message: String) -> ApiError {
    ApiError::BadRequest(message)
}

impl Question {
    /// The same with every place written out; an error that names what makes no sense.
    pub(crate) fn checked(mut self) -> Result<Question, ApiError> {
        if self.without.len() + self.change.len() > MAX_INPUTS {
            return Err(bad(format!("a what-if names at most {MAX_INPUTS} inputs")));
        }
        if self.config.values().map(BTreeMap::len).sum::<usize>() > MAX_FILES {
            return Err(bad(format!("a what-if takes at most {MAX_FILES} configuration files")));
        }
        self.without = self.without.iter().map(|place| input(place)).collect::<Result<_, _>>()?;
        self.without.sort();
        self.without.dedup();
        let change = std::mem::take(&mut self.change);
        for (place, said) in change {
            if !said.is_object() {
                return Err(bad(format!("what input {place} said instead must be a JSON object")));
            }
            self.change.insert(input(&place)?, said);
        }
        let config = std::mem::take(&mut self.config);
        for (project, files) in config {
            let name = project_name(&project)?;
            if let Some(path) = files.keys().find(|path| !is_config_path(path, &[]) || !plain(path)) {
                return Err(bad(format!(
                    "{path:?} of {project} is no configuration file: it must be zuul.yaml, .zuul.yaml, or a .yaml file in \
                     zuul.d or .zuul.d"
                )));
            }
            self.config.entry(name).or_default().extend(files);
        }
        if self.without.is_empty() && self.change.is_empty() && self.config.is_empty() && self.tenants.is_none() {
            return Err(bad("nothing is to be otherwise: name inputs, configuration, or a tenant file".into()));
        }
        Ok(self)
    }

    /// In a few words.
    pub(crate) fn words(&self) -> String {
        let mut words = Vec::new();
        if !self.without.is_empty() {
            words.push(format!("without {}", self.without.join(", ")));
        }
        if !self.change.is_empty() {
            words.push(format!("with {} changed", self.change.keys().cloned().collect::<Vec<_>>().join(", ")));
        }
        if !self.config.is_empty() {
            let projects = self.config.keys().cloned().collect::<Vec<_>>().join(", ");
            words.push(format!("with other configuration of {projects}"));
        }
        if self.tenants.is_some() {
            words.push("with another tenant file".to_owned());
        }
        words.join("; ")
    }
}

/// Whether a path leads down and nowhere else.
fn plain(path: &str) -> bool {
    path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// A project's name without its host.
fn project_name(name: &str) -> Result<String, ApiError> {
    let short = match name.split_once('/') {
        Some((host, rest)) if host.contains('.') => rest,
        _ => name,
    };
    let fine = plain(name) && !short.contains(|c: char| c.is_control() || c == '\\') && short.len() <= 500;
    if fine { Ok(short.to_owned()) } else { Err(bad(format!("{name:?} is no project's name"))) }
}

/// Where an input stands, written out.
fn input(place: &str) -> Result<String, ApiError> {
    let no = |why: &str| bad(format!("{place:?} names no input: {why}"));
    let (stream, offset) = place.rsplit_once(':').unwrap_or(("gate.inputs", place));
    let stream: Stream = stream.parse().map_err(|error| no(&format!("{error}")))?;
    if let Stream::Events(_) = stream {
        return Err(no("events are decided; inputs stand in intake and <domain>.inputs"));
    }
    let offset: u64 =
        offset.parse().map_err(|_| no("expected an offset, such as 7, intake:41 or capacity.inputs:3"))?;
    Ok(format!("{stream}:{offset}"))
}

/// Who asks, where they may.
pub(crate) async fn permitted(app: &Arc<App>, headers: &HeaderMap) -> Result<String, ApiError> {
    if app.site.authenticators.is_empty() && !app.site.authenticators.claims_to_be_local(headers) {
        return Ok(String::new());
    }
    let all = app.authorizations().await?;
    let (tenant, rules) = all.first().map_or((None, None), |(tenant, rules)| (tenant.as_deref(), Some(&**rules)));
    let person = app.person(headers, rules, tenant).await?;
    let asked = Asked { permission: Some(PERMISSION), project: None, reference: None };
    for (tenant, rules) in all.iter().filter(|(tenant, _)| tenant.is_some()) {
        if !rules.decide(tenant.as_deref(), &person.claims, &asked).admin {
            let tenant = tenant.as_deref().unwrap_or_default();
            let what =
                format!("{} may not ask for a what-if in tenant {tenant}, of which its answer tells", person.uid);
            return Err(ApiError::Forbidden { realm: app.realm(Some(rules), Some(tenant)), what });
        }
    }
    Ok(person.uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_are_written_out_and_what_makes_no_sense_is_refused_by_name() {
        let read = |json: Json| serde_json::from_value::<Question>(json).unwrap().checked();
        let fine = read(json!({
            "without": ["intake:41", "7", "7"],
            "change": { "9": { "result": "Failure" } },
            "config": { "forge.example/org/app": { ".zuul.yaml": "[]" } },
            "at": 120,
        }));
        let fine = fine.unwrap();
        assert_eq!(fine.without, ["gate.inputs/0:7", "intake/0:41"]);
        assert_eq!(fine.change.keys().collect::<Vec<_>>(), ["gate.inputs/0:9"]);
        assert_eq!(fine.config.keys().collect::<Vec<_>>(), ["org/app"]);
        for (wrong, says) in [
            (json!({}), "nothing is to be otherwise"),
            (json!({ "without": ["gate.events:7"] }), "gate.events:7"),
            (json!({ "without": ["x"] }), "\"x\""),
            (json!({ "change": { "7": "no" } }), "JSON object"),
            (json!({ "config": { "app": { "../zuul.yaml": "" } } }), "../zuul.yaml"),
            (json!({ "config": { "app": { "zuul.d/../../x.yaml": "" } } }), "zuul.d/../../x.yaml"),
            (json!({ "config": { "../app": { "zuul.yaml": "" } } }), "../app"),
            (json!({ "config": { "app": { "README": "" } } }), "README"),
        ] {
            let error = read(wrong.clone()).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
        assert!(serde_json::from_value::<Question>(json!({ "wihtout": [] })).is_err());
    }
}
