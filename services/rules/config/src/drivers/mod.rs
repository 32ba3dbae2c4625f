//! What a pipeline may say to the drivers of its connections: triggers, requirements, reporters.

use std::collections::BTreeMap;

use gatelog_driver_schema::{DriverSchema, Schemas, Shape};
use gatelog_record::Value;

use crate::cache::Patterns;
use crate::findings::Findings;
use crate::objects::Pipeline;
use crate::objects::pipeline::{ACTIONS, Manager};
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean};
use crate::regexes::{Anchor, Pattern, Verdict};
use crate::shared::Shared;
use crate::tenant::TenantSettings;

mod fits;
mod zuul;

pub(crate) use fits::fields_fit;
use fits::fits;
use zuul::github_wrong;

/// Connections that exist in every tenant, which are called like their drivers.
pub const BUILT_IN: &[&str] = &["timer", "zuul"];

/// What a driver understands: one that the site has, or one of Zuul's; none for one we do not know.
pub(crate) fn driver(schemas: Schemas, name: &str) -> Option<&'static DriverSchema> {
    schemas.find(name).or_else(|| zuul::ALL.iter().find(|schema| schema.name == name))
}

/// The drivers whose connections have projects, sorted.
pub(crate) fn with_projects(schemas: Schemas) -> Vec<&'static str> {
    let all = schemas.0.iter().copied().chain(zuul::ALL).filter(|schema| schema.has_projects);
    let mut names: Vec<&str> = all.map(|schema| schema.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Checks what a pipeline says to its connections.
pub(crate) fn check(tenant: &TenantSettings, pipeline: &Pipeline, patterns: &mut Patterns, findings: &mut Findings) {
    let before = findings.len();
    let mut checker = Checker { tenant, pipeline, patterns, findings };
    for (attribute, connections) in [("require", &pipeline.require), ("reject", &pipeline.reject)] {
        checker.part(attribute, connections.iter());
    }
    let triggers: BTreeMap<String, Value> = pipeline
        .triggers
        .iter()
        .map(|(name, filters)| (name.clone(), Value::List(filters.iter().cloned().map(Value::Map).collect())))
        .collect();
    checker.part("trigger", triggers.iter());
    for action in ACTIONS {
        // Those that were filled in from `failure` are checked there.
        if let Some(connections) = pipeline.actions.get(*action) {
            checker.part(action, connections.iter());
        }
    }
    if checker.findings.failed_since(before) {
        return;
    }
    for connections in [&pipeline.require, &pipeline.reject] {
        for (name, state) in connections {
            if checker.driver_of(name) == Some("gerrit") {
                checker.gerrit_state(state);
            }
        }
    }
    for (name, filters) in &pipeline.triggers {
        for filter in filters {
            checker.filter(name, filter);
        }
    }
}

/// The pipeline with what a driver takes for granted where it would merge: to say nothing of it is to say no. Zuul: the
/// reporters' `submit` and `merge` are false. Where nobody knows the driver, or the forge is one of ours, on which the
/// gate merges, it stays as it is written.
pub(crate) fn said_in_full(tenant: &TenantSettings, pipeline: &Shared<Pipeline>) -> Shared<Pipeline> {
    let key = |connection: &String| driver(tenant.schemas, tenant.drivers.get(connection)?)?.merges_by;
    let silent = |connection: &String, said: &Value| {
        key(connection).filter(|key| match said {
            Value::Null => true,
            Value::Map(map) => !map.contains_key(*key),
            _ => false,
        })
    };
    let success = pipeline.reporters("success");
    let no = Value::Bool(false);
    let filled: Vec<(String, Value)> = success
        .iter()
        .filter(|_| pipeline.manager == Manager::Dependent)
        .filter_map(|(connection, said)| {
            let mut map = said.as_map().cloned().unwrap_or_default();
            map.insert(silent(connection, said)?.to_owned(), no.clone());
            Some((connection.clone(), Value::Map(map)))
        })
        .collect();
    if filled.is_empty() {
        return pipeline.clone();
    }
    let mut full = Pipeline::clone(pipeline);
    full.actions.entry("success".to_owned()).or_default().extend(filled);
    Shared::new(full)
}

struct Checker<'a> {
    tenant: &'a TenantSettings,
    pipeline: &'a Pipeline,
    patterns: &'a mut Patterns,
    findings: &'a mut Findings,
}

impl<'a> Checker<'a> {
    fn driver_of(&self, connection: &str) -> Option<&'a str> {
        match BUILT_IN.iter().find(|name| **name == connection) {
            Some(name) => Some(name),
            None => self.tenant.drivers.get(connection).map(String::as_str),
        }
    }

    fn error(&mut self, code: &str, attribute: &str, message: String, cure: impl Into<String>) {
        let problem = Problem::error(code, UNKNOWN, self.pipeline.place.clone(), message);
        self.findings.push(problem.about(attribute).cure(cure));
    }

    fn warn(&mut self, code: &str, name: &str, attribute: &str, message: String, cure: &str) {
        let problem = Problem::new(Severity::Warning, code, name, self.pipeline.place.clone(), message);
        self.findings.push(problem.about(attribute).cure(cure));
    }

    /// One of `trigger`, `require`, `reject` and the actions.
    fn part<'b>(&mut self, attribute: &str, connections: impl Iterator<Item = (&'b String, &'b Value)>) {
        for (connection, value) in connections {
            let known =
                self.tenant.connections.iter().any(|name| name == connection) || self.driver_of(connection).is_some();
            // Nobody has said which connections there are, or this one's driver is not known here.
            if !known && !self.tenant.connections.is_empty() {
                let message = format!(
                    "`{attribute}` of the pipeline \"{}\" names the connection \"{connection}\", which is unknown",
                    self.pipeline.name
                );
                let names = self.tenant.connections.iter().map(String::as_str).chain(BUILT_IN.iter().copied());
                let cure = match did_you_mean(connection, names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "check the site's connections".to_owned(),
                };
                self.error("unknown-connection", attribute, message, cure);
                continue;
            }
            let Some(name) = self.driver_of(connection) else { continue };
            let Some(driver) = driver(self.tenant.schemas, name) else { continue };
            let listed;
            let shapes: Option<&[Shape]> = match attribute {
                "trigger" | "require" | "reject" => {
                    let fields = match attribute {
                        "trigger" => driver.trigger,
                        "require" => driver.require,
                        _ => driver.reject,
                    };
                    listed = fields.map(|fields| [Shape::ListedFields(fields)]);
                    listed.as_ref().map(<[Shape; 1]>::as_slice)
                }
                _ => driver.reporter,
            };
            let wrong = match shapes {
                None => Some(format!("the driver {name} has none")),
                Some(shapes) => shapes.iter().map(|shape| fits(*shape, value)).min_by_key(Option::is_some).flatten(),
            };
            if let Some(why) = wrong {
                let message = format!(
                    "`{attribute}` of the pipeline \"{}\" does not fit the connection \"{connection}\": {why}",
                    self.pipeline.name
                );
                self.error("driver-syntax", attribute, message, format!("see the reference of the driver {name}"));
            }
        }
    }

    /// Regular expressions under one key.
    fn regexes(&mut self, map: &BTreeMap<String, Value>, key: &str) {
        let Some(value) = map.get(key) else { return };
        let items = match value {
            Value::List(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        for item in items {
            let regex = match item {
                Value::Map(map) => map.get("regex").and_then(Value::as_str),
                other => other.as_str(),
            };
            let Some(regex) = regex.filter(|regex| !regex.is_empty()) else { continue };
            match self.patterns.look(Pattern::new(regex, false, Anchor::Start)).1 {
                Verdict::Good => {}
                Verdict::Deprecated(why) => self.warn(
                    "regex-deprecation",
                    "Regex Deprecation",
                    key,
                    format!("the regular expression `{regex}` is not valid RE2: {why}"),
                    "write it without look-around; `{regex: ..., negate: true}` matches what an expression does not",
                ),
                Verdict::Invalid(why) => {
                    let message = format!("`{regex}` is not a regular expression: {why}");
                    self.error("regex-invalid", key, message, "mend it; the syntax is that of RE2");
                }
            }
        }
    }

    fn gerrit_state(&mut self, state: &Value) {
        if let Value::Map(map) = state {
            self.regexes(map, "hashtags");
            self.ages(map, "approval");
        }
    }

    /// `older-than` and `newer-than` of approvals.
    fn ages(&mut self, map: &BTreeMap<String, Value>, key: &str) {
        let approvals = match map.get(key) {
            Some(Value::List(items)) => items.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        for approval in approvals.iter().filter_map(Value::as_map) {
            self.regexes(approval, "username");
            self.regexes(approval, "email");
            for name in ["older-than", "newer-than"] {
                let Some(age) = approval.get(name).and_then(Value::as_str) else { continue };
                let number = age.strip_suffix(['s', 'm', 'h', 'd', 'w']);
                if number.is_none_or(|number| number.trim().parse::<i64>().is_err()) {
                    let message = format!("`{name}: {age}` is no length of time");
                    self.error("age-invalid", key, message, "write a number and one of s, m, h, d, w");
                }
            }
        }
    }

    fn filter(&mut self, connection: &str, filter: &BTreeMap<String, Value>) {
        let schemas = self.tenant.schemas;
        let known = |name: &str| driver(schemas, name).map_or(&[] as &[&str], |driver| driver.regexes);
        let keys: &[&str] = match self.driver_of(connection) {
            Some("gerrit") => {
                for key in ["comment", "email", "username"] {
                    let old = format!("{key}_filter");
                    self.regexes(filter, if filter.contains_key(key) { key } else { &old });
                }
                for key in ["event", "branch", "ref", "added", "removed"] {
                    self.regexes(filter, key);
                }
                for (key, modern) in [("require-approval", "require"), ("reject-approval", "reject")] {
                    if filter.contains_key(key) {
                        let name = format!("Gerrit {key} Deprecation");
                        let message = format!("the trigger attribute `{key}` is deprecated");
                        let cure = format!("write `{modern}: {{approval: ...}}`");
                        self.warn(&format!("gerrit-{key}"), &name, key, message, &cure);
                    }
                }
                for key in ["require-approval", "reject-approval"] {
                    self.ages(filter, key);
                }
                for key in ["require", "reject"] {
                    if let Some(state) = filter.get(key) {
                        self.gerrit_state(state);
                    }
                }
                return;
            }
            Some("github") => {
                self.github(filter);
                known("github")
            }
            Some(name) => known(name),
            None => &[],
        };
        for key in keys {
            self.regexes(filter, key);
        }
        if self.driver_of(connection) == Some("github")
            && filter.get("action").and_then(Value::as_str) == Some("requested")
        {
            let message = "the action `requested` is deprecated".to_owned();
            let cure = "write `rerequested`";
            self.warn("github-requested", "Github requested action Deprecation", "action", message, cure);
        }
    }

    /// Older forms of GitHub triggers.
    fn github(&mut self, filter: &BTreeMap<String, Value>) {
        let mut old = |key: &str, present: bool, name: &str, cure: &str| {
            if present {
                let message = format!("the trigger attribute `{key}` in this form is deprecated");
                self.warn(&format!("github-{key}"), name, key, message, cure);
            }
        };
        old(
            "require-status",
            filter.contains_key("require-status"),
            "Github require-status Deprecation",
            "write `require: {status: ...}`",
        );
        old("unlabel", filter.contains_key("unlabel"), "Github unlabel Deprecation", "write `label`");
        let listed = matches!(filter.get("event"), Some(Value::List(_)));
        old("event", listed, "Github event list Deprecation", "write one filter for each event");
        if let Some(why) = github_wrong(filter) {
            let message = format!("a trigger of the pipeline \"{}\" has an error: {why}", self.pipeline.name);
            let cure = "it has no effect today, and will be refused one day: mend it";
            self.warn("github-trigger", "Github Trigger Configuration Warning", "trigger", message, cure);
        }
    }
}
