//! What a pipeline may say to the drivers of its connections: triggers, requirements, reporters.

use std::collections::BTreeMap;

use gatelog_record::Value;

use crate::cache::Patterns;
use crate::findings::Findings;
use crate::objects::Pipeline;
use crate::objects::pipeline::{ACTIONS, Manager};
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean};
use crate::regexes::{Anchor, Pattern, Verdict};
use crate::shared::Shared;
use crate::tenant::TenantSettings;

/// Connections that exist in every tenant, which are called like their drivers.
pub const BUILT_IN: &[&str] = &["timer", "zuul"];

/// What a value has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Anything,
    Nothing,
    Text,
    Bool,
    Int,
    /// A text or a list of texts.
    Texts,
    /// A regular expression or a list of them.
    Regexes,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or a list of them.
    Words(&'static [&'static str]),
    /// A dictionary of anything, or a list of such.
    Maps,
    /// A dictionary of these fields.
    Fields(&'static [Field]),
    /// A dictionary of these fields and others, or a list of such.
    OpenFields(&'static [Field]),
    /// A dictionary of these fields, or a list of such.
    ListedFields(&'static [Field]),
    /// A dictionary with exactly one of these fields.
    OneField(&'static [Field]),
    /// A list of such.
    ListOf(&'static Shape),
    /// A dictionary of anything.
    Map,
    /// A dictionary of texts.
    TextMap,
    /// A whole number from 1.
    Positive,
    /// One of these words, or null.
    WordOrNothing(&'static [&'static str]),
    /// `true`, `false` or `allow-override`.
    Final,
}

/// A key of a dictionary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    name: &'static str,
    shape: Shape,
    required: bool,
}

pub(crate) const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

pub(crate) const fn needed(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

/// What a driver understands; a part it has none of is refused.
#[derive(Clone, Copy, Debug, Default)]
struct Driver {
    trigger: Option<&'static [Field]>,
    require: Option<&'static [Field]>,
    reject: Option<&'static [Field]>,
    reporter: Option<&'static [Shape]>,
}

const APPROVAL: &[Field] = &[
    field("username", Shape::Text),
    field("email", Shape::Text),
    field("older-than", Shape::Text),
    field("newer-than", Shape::Text),
];

const GERRIT_STATE: &[Field] = &[
    field("approval", Shape::OpenFields(APPROVAL)),
    field("open", Shape::Bool),
    field("current-patchset", Shape::Bool),
    field("wip", Shape::Bool),
    field("hashtags", Shape::Regexes),
    field("status", Shape::Texts),
];

const GERRIT_TRIGGER: &[Field] = &[
    needed(
        "event",
        Shape::Words(&[
            "patchset-created",
            "draft-published",
            "change-abandoned",
            "change-restored",
            "change-merged",
            "comment-added",
            "ref-updated",
            "pending-check",
            "vote-deleted",
            "hashtags-changed",
            "wip-state-changed",
        ]),
    ),
    field("uuid", Shape::Text),
    field("scheme", Shape::Text),
    field("comment_filter", Shape::Texts),
    field("comment", Shape::Regexes),
    field("email_filter", Shape::Texts),
    field("email", Shape::Regexes),
    field("username_filter", Shape::Texts),
    field("username", Shape::Regexes),
    field("branch", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("ignore-deletes", Shape::Bool),
    field("approval", Shape::Maps),
    field("approval-change", Shape::Maps),
    field("require-approval", Shape::OpenFields(APPROVAL)),
    field("reject-approval", Shape::OpenFields(APPROVAL)),
    field("added", Shape::Regexes),
    field("removed", Shape::Regexes),
    field("require", Shape::Fields(GERRIT_STATE)),
    field("reject", Shape::Fields(GERRIT_STATE)),
    field("debug", Shape::Bool),
];

const PERMISSION: Shape = Shape::Word(&["read", "write", "admin"]);

const REVIEW: &[Field] = &[
    field("username", Shape::Text),
    field("email", Shape::Text),
    field("older-than", Shape::Text),
    field("newer-than", Shape::Text),
    field("type", Shape::Text),
    field("permission", PERMISSION),
];

const GITHUB_STATE: &[Field] = &[
    field("status", Shape::Texts),
    field("review", Shape::ListedFields(REVIEW)),
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("current-patchset", Shape::Bool),
    field("draft", Shape::Bool),
    field("label", Shape::Texts),
];

const GITHUB_EVENTS: &[&str] = &["pull_request", "pull_request_review", "push", "check_run"];

const GITHUB_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(GITHUB_EVENTS)),
    field("action", Shape::Texts),
    field("branch", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("comment", Shape::Regexes),
    field("label", Shape::Texts),
    field("unlabel", Shape::Texts),
    field("permission", PERMISSION),
    field("state", Shape::Texts),
    field("require-status", Shape::Texts),
    field("require", Shape::Fields(GITHUB_STATE)),
    field("reject", Shape::Fields(GITHUB_STATE)),
    field("status", Shape::Texts),
    field("check", Shape::Texts),
    field("debug", Shape::Bool),
];

/// What any trigger of GitHub has in the form that is asked for today.
const GITHUB_COMMON: &[Field] = &[
    needed("event", Shape::Word(GITHUB_EVENTS)),
    field("require", Shape::Fields(GITHUB_STATE)),
    field("reject", Shape::Fields(GITHUB_STATE)),
    field("debug", Shape::Bool),
];

const GITHUB_REPORTER: &[Field] = &[
    field("status", Shape::Word(&["pending", "success", "failure"])),
    field("comment", Shape::Bool),
    field("merge", Shape::Bool),
    field("label", Shape::Texts),
    field("unlabel", Shape::Texts),
    field("review", Shape::Word(&["approve", "request-changes", "comment"])),
    field("review-body", Shape::Text),
    field("check", Shape::Word(&["queued", "in_progress", "success", "failure", "cancelled", "skipped", "neutral"])),
];

const GITLAB_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(&["gl_merge_request", "gl_push"])),
    field("action", Shape::Texts),
    field("branch", Shape::Regexes),
    field("comment", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("labels", Shape::Texts),
    field("unlabels", Shape::Texts),
    field("debug", Shape::Bool),
];

const GITLAB_STATE: &[Field] = &[
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("approved", Shape::Bool),
    field("labels", Shape::Texts),
];

const GITLAB_REPORTER: &[Field] = &[
    field("comment", Shape::Bool),
    field("approval", Shape::Bool),
    field("merge", Shape::Bool),
    field("label", Shape::Texts),
    field("unlabel", Shape::Texts),
];

const PAGURE_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(&["pg_pull_request", "pg_pull_request_review", "pg_push"])),
    field("action", Shape::Texts),
    field("ref", Shape::Regexes),
    field("comment", Shape::Regexes),
    field("status", Shape::Texts),
    field("tag", Shape::Texts),
    field("debug", Shape::Bool),
];

const PAGURE_STATE: &[Field] = &[
    field("score", Shape::Int),
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("status", Shape::Text),
    field("tags", Shape::Texts),
];

const PAGURE_REPORTER: &[Field] = &[
    field("status", Shape::Word(&["pending", "success", "failure"])),
    field("comment", Shape::Bool),
    field("merge", Shape::Bool),
];

const GIT_TRIGGER: &[Field] = &[
    needed("event", Shape::Words(&["ref-updated"])),
    field("ref", Shape::Regexes),
    field("ignore-deletes", Shape::Bool),
    field("debug", Shape::Bool),
];

/// What gatelog's own driver for plain Git repositories understands; `git` is Zuul's, which only watches.
const PLAIN_GIT_TRIGGER: &[Field] = &[
    needed(
        "event",
        Shape::Words(&[
            "change-proposed",
            "change-approved",
            "approval-withdrawn",
            "change-abandoned",
            "change-merged",
            "ref-updated",
        ]),
    ),
    field("branch", Shape::Regexes),
    field("ref", Shape::Regexes),
    field("username", Shape::Regexes),
    field("email", Shape::Regexes),
    field("ignore-deletes", Shape::Bool),
];

/// A success of a pipeline that merges says `merge: true`.
const PLAIN_GIT_REPORTER: &[Field] = &[field("merge", Shape::Bool)];

const PLAIN_GIT_STATE: &[Field] = &[
    field("approved", Shape::Bool),
    field("open", Shape::Bool),
    field("merged", Shape::Bool),
    field("current-patchset", Shape::Bool),
];

const TIMER_TRIGGER: &[Field] =
    &[needed("time", Shape::Text), field("dereference", Shape::Bool), field("debug", Shape::Bool)];

const ZUUL_TRIGGER: &[Field] = &[
    needed(
        "event",
        Shape::Words(&["parent-change-enqueued", "project-change-merged", "image-build", "image-validate"]),
    ),
    field("pipeline", Shape::Regexes),
    field("debug", Shape::Bool),
];

const ZUUL_REPORTER: &[Field] = &[field("image-built", Shape::Bool), field("image-validated", Shape::Bool)];

const SMTP_REPORTER: &[Field] = &[field("to", Shape::Text), field("from", Shape::Text), field("subject", Shape::Text)];

const MQTT_REPORTER: &[Field] =
    &[needed("topic", Shape::Text), field("qos", Shape::Int), field("include-returned-data", Shape::Bool)];

const ELASTICSEARCH_REPORTER: &[Field] =
    &[field("index", Shape::Text), field("index-vars", Shape::Bool), field("index-returned-vars", Shape::Bool)];

/// What a driver understands; none for one we do not know.
fn driver(name: &str) -> Option<Driver> {
    const fn reporter(shapes: &'static [Shape]) -> Driver {
        Driver { trigger: None, require: None, reject: None, reporter: Some(shapes) }
    }
    Some(match name {
        "gerrit" => Driver {
            trigger: Some(GERRIT_TRIGGER),
            require: Some(GERRIT_STATE),
            reject: Some(GERRIT_STATE),
            reporter: Some(&[Shape::Text, Shape::Maps]),
        },
        "github" => Driver {
            trigger: Some(GITHUB_TRIGGER),
            require: Some(GITHUB_STATE),
            reject: Some(GITHUB_STATE),
            reporter: Some(&[Shape::ListedFields(GITHUB_REPORTER)]),
        },
        "gitlab" => Driver {
            trigger: Some(GITLAB_TRIGGER),
            require: Some(GITLAB_STATE),
            reject: Some(GITLAB_STATE),
            reporter: Some(&[Shape::ListedFields(GITLAB_REPORTER)]),
        },
        "pagure" => Driver {
            trigger: Some(PAGURE_TRIGGER),
            require: Some(PAGURE_STATE),
            reject: Some(&[]),
            reporter: Some(&[Shape::ListedFields(PAGURE_REPORTER)]),
        },
        "plain-git" => Driver {
            trigger: Some(PLAIN_GIT_TRIGGER),
            require: Some(PLAIN_GIT_STATE),
            reject: Some(PLAIN_GIT_STATE),
            reporter: Some(&[Shape::Nothing, Shape::Fields(PLAIN_GIT_REPORTER)]),
        },
        "git" => Driver { trigger: Some(GIT_TRIGGER), ..Driver::default() },
        "timer" => Driver { trigger: Some(TIMER_TRIGGER), ..Driver::default() },
        "zuul" => Driver { trigger: Some(ZUUL_TRIGGER), ..reporter(&[Shape::ListedFields(ZUUL_REPORTER)]) },
        "smtp" => reporter(&[Shape::ListedFields(SMTP_REPORTER)]),
        "mqtt" => reporter(&[Shape::ListedFields(MQTT_REPORTER)]),
        "sql" => reporter(&[Shape::Nothing]),
        "elasticsearch" => reporter(&[Shape::Nothing, Shape::ListedFields(ELASTICSEARCH_REPORTER)]),
        "aws" | "azure" | "openstack" | "static" | "kubernetes" => Driver::default(),
        _ => return None,
    })
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
    let key = |connection: &String| match tenant.drivers.get(connection).map(String::as_str) {
        Some("gerrit") => Some("submit"),
        Some("github" | "gitlab" | "pagure") => Some("merge"),
        _ => None,
    };
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
            let Some(driver) = driver(name) else { continue };
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
                &["event", "branch", "ref", "comment"]
            }
            Some("gitlab") => &["event", "branch", "ref", "comment"],
            Some("pagure") => &["event", "ref", "comment"],
            Some("git") => &["ref"],
            Some("plain-git") => &["branch", "ref", "username", "email"],
            Some("zuul") => &["event", "pipeline"],
            _ => &[],
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

/// What is wrong with a trigger of GitHub in the form asked for today.
fn github_wrong(filter: &BTreeMap<String, Value>) -> Option<String> {
    const ACTION: &str = "action";
    const STATES: &[&str] = &["approved", "commented", "changes_requested", "dismissed", "pending"];
    let event = filter.get("event").and_then(Value::as_str)?;
    if let Some(why) = fields_fit(GITHUB_COMMON, filter, true) {
        return Some(why);
    }
    let action = filter.get(ACTION).and_then(Value::as_str).unwrap_or("");
    let own: &[Field] = match (event, action) {
        ("pull_request", "comment") => &[field(ACTION, Shape::Anything), field("comment", Shape::Regexes)],
        ("pull_request", "labeled" | "unlabeled") => &[field(ACTION, Shape::Anything), field("label", Shape::Texts)],
        ("pull_request", "status") => &[field(ACTION, Shape::Anything), field("status", Shape::Texts)],
        ("pull_request", _) => &[field(
            ACTION,
            Shape::Words(&["opened", "changed", "closed", "reopened", "converted_to_draft", "ready_for_review"]),
        )],
        ("pull_request_review", _) => {
            &[field(ACTION, Shape::Words(&["submitted", "dismissed"])), field("state", Shape::Words(STATES))]
        }
        ("push", _) => &[field("ref", Shape::Regexes)],
        _ => &[field(ACTION, Shape::Words(&["rerequested", "completed"])), field("check", Shape::Texts)],
    };
    let further: &[Field] = match event {
        "pull_request" => &[field("branch", Shape::Regexes), field("permission", PERMISSION)],
        "pull_request_review" => &[field("branch", Shape::Regexes)],
        _ => &[],
    };
    fields_fit(&[GITHUB_COMMON, own, further].concat(), filter, false)
}

/// What is wrong with a value; none when it fits.
fn fits(shape: Shape, value: &Value) -> Option<String> {
    let no = |wanted: &str| Some(format!("{value} is not {wanted}"));
    let each = |inner: &dyn Fn(&Value) -> Option<String>| match value {
        Value::List(items) => items.iter().find_map(inner),
        one => inner(one),
    };
    match shape {
        Shape::Anything => None,
        Shape::Nothing if *value == Value::Null => None,
        Shape::Nothing => no("nothing"),
        Shape::Text => value.as_str().map_or_else(|| no("text"), |_| None),
        Shape::Bool => value.as_bool().map_or_else(|| no("true or false"), |_| None),
        Shape::Int => match value {
            Value::Int(_) | Value::Bool(_) => None,
            _ => no("a whole number"),
        },
        Shape::Texts => each(&|item| fits(Shape::Text, item)),
        Shape::Regexes => each(&|item| match item {
            Value::Str(_) => None,
            Value::Map(map) => fields_fit(REGEX, map, false),
            other => Some(format!("{other} is not a regular expression")),
        }),
        Shape::Word(words) => match value.as_str() {
            Some(word) if words.contains(&word) => None,
            _ => no(&format!("one of: {}", words.join(", "))),
        },
        Shape::Words(words) => each(&|item| fits(Shape::Word(words), item)),
        Shape::Maps => {
            each(&|item| item.as_map().map_or_else(|| Some(format!("{item} is not a dictionary")), |_| None))
        }
        Shape::Fields(fields) => match value {
            Value::Map(map) => fields_fit(fields, map, false),
            _ => no("a dictionary"),
        },
        Shape::OneField(fields) => match value {
            Value::Map(map) if map.len() == 1 => fields_fit(fields, map, false),
            _ => no("a dictionary with one key"),
        },
        Shape::ListOf(shape) => match value {
            Value::List(items) => items.iter().find_map(|item| fits(*shape, item)),
            _ => no("a list"),
        },
        Shape::Map => value.as_map().map_or_else(|| no("a dictionary"), |_| None),
        Shape::TextMap => match value {
            Value::Map(map) => map.values().find_map(|value| fits(Shape::Text, value)),
            _ => no("a dictionary"),
        },
        Shape::Positive => match value {
            Value::Int(1..) | Value::Bool(true) => None,
            _ => no("a whole number from 1"),
        },
        Shape::WordOrNothing(_) if *value == Value::Null => None,
        Shape::WordOrNothing(words) => fits(Shape::Word(words), value),
        Shape::Final => match value {
            Value::Bool(_) => None,
            other => fits(Shape::Word(&["allow-override"]), other),
        },
        Shape::OpenFields(fields) | Shape::ListedFields(fields) => each(&|item| match item {
            Value::Map(map) => fields_fit(fields, map, matches!(shape, Shape::OpenFields(_))),
            other => Some(format!("{other} is not a dictionary")),
        }),
    }
}

const REGEX: &[Field] = &[needed("regex", Shape::Text), field("negate", Shape::Bool)];

/// What is wrong with a dictionary of fields; none when it fits. An open one may have others, too.
pub(crate) fn fields_fit(fields: &[Field], map: &BTreeMap<String, Value>, open: bool) -> Option<String> {
    for (key, value) in map {
        match fields.iter().find(|field| field.name == key) {
            Some(field) => {
                if let Some(why) = fits(field.shape, value) {
                    return Some(format!("`{key}`: {why}"));
                }
            }
            None if open => {}
            None => {
                let near = did_you_mean(key, fields.iter().map(|field| field.name));
                let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
                return Some(format!("`{key}` is not known{hint}"));
            }
        }
    }
    let missing = fields.iter().find(|field| field.required && !map.contains_key(field.name))?;
    Some(format!("`{}` is missing", missing.name))
}
