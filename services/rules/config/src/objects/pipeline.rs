//! Pipelines: what triggers them, how changes move through them, who is told.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::yaml::{Mark, Node};

/// What may be reported, in the order of the reference.
pub const ACTIONS: &[&str] =
    &["enqueue", "start", "success", "failure", "merge-conflict", "config-error", "no-jobs", "disabled", "dequeue"];

const MERGE_CONFLICT: &str = "This change or one of its cross-repo dependencies cannot be merged with the current \
     state of its repository. Rebase it and upload a new patchset.";

/// Attributes of a pipeline.
pub const TABLE: &[Attribute] = &[
    attribute("name", Kind::Text).required(),
    attribute("manager", Kind::Choice(&["independent", "dependent", "serial", "supercedent"])).required(),
    attribute("description", Kind::Text),
    attribute("post-review", Kind::Bool).default("false"),
    attribute("allow-secrets", Kind::Bool).older("post-review"),
    attribute("precedence", Kind::Choice(&["high", "normal", "low"])).default("normal"),
    attribute("supercedes", Kind::Texts).default("[]"),
    attribute("allow-other-connections", Kind::Bool).default("true"),
    attribute("allow-parameters", Kind::Bool).default("false"),
    attribute("dequeue-on-new-patchset", Kind::Bool).default("true"),
    attribute("ignore-dependencies", Kind::Bool).default("false"),
    attribute("disable-after-consecutive-failures", Kind::Int { min: 1 }),
    attribute("success-message", Kind::Text).default("Build succeeded."),
    attribute("failure-message", Kind::Text).default("Build failed."),
    attribute("start-message", Kind::Text).default("Starting {pipeline.name} jobs."),
    attribute("enqueue-message", Kind::Text).default(""),
    attribute("merge-conflict-message", Kind::Text).default(MERGE_CONFLICT),
    attribute("no-jobs-message", Kind::Text).default(""),
    attribute("dequeue-message", Kind::Text).default("Build canceled."),
    attribute("footer-message", Kind::Text).default(""),
    attribute("window", Kind::Int { min: 0 }).default("20"),
    attribute("window-floor", Kind::Int { min: 1 }).default("3"),
    attribute("window-ceiling", Kind::IntOrNull { min: 1 }).default("null"),
    attribute("window-increase-type", Kind::Choice(&["linear", "exponential"])).default("linear"),
    attribute("window-increase-factor", Kind::Int { min: 1 }).default("1"),
    attribute("window-decrease-type", Kind::Choice(&["linear", "exponential"])).default("exponential"),
    attribute("window-decrease-factor", Kind::Int { min: 1 }).default("2"),
    attribute("trigger", Kind::Map),
    attribute("require", Kind::Map),
    attribute("reject", Kind::Map),
    attribute("enqueue", Kind::Map),
    attribute("start", Kind::Map),
    attribute("success", Kind::Map),
    attribute("failure", Kind::Map),
    attribute("merge-conflict", Kind::Map).default("as failure"),
    attribute("config-error", Kind::Map).default("as failure"),
    attribute("no-jobs", Kind::Map),
    attribute("disabled", Kind::Map),
    attribute("dequeue", Kind::Map),
];

/// How changes move through a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manager {
    /// Each item on its own.
    Independent,
    /// Items of one queue are tested on top of each other and merge in order.
    Dependent,
    /// As dependent, one at a time, merging nothing.
    Serial,
    /// The running and the newest item of a ref.
    Supercedent,
}

/// Which pipeline goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Precedence {
    /// Before all others.
    High,
    /// The usual.
    Normal,
    /// After all others.
    Low,
}

/// How a window grows or shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// By adding or subtracting the factor.
    Linear,
    /// By multiplying with or dividing by the factor.
    Exponential,
}

/// How many items of a queue are worked on at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// At first; 0 means without limit.
    pub size: u32,
    /// Never fewer.
    pub floor: u32,
    /// Never more.
    pub ceiling: Option<u32>,
    /// How it grows on success.
    pub increase: Step,
    /// By how much.
    pub increase_factor: u32,
    /// How it shrinks on failure.
    pub decrease: Step,
    /// By how much.
    pub decrease_factor: u32,
}

/// The texts a pipeline reports with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// All jobs succeeded.
    pub success: String,
    /// A job failed.
    pub failure: String,
    /// Jobs start; `{pipeline.name}` and `{item_url}` are filled in.
    pub start: String,
    /// An item came in; filled in as `start`.
    pub enqueue: String,
    /// The change cannot be merged.
    pub merge_conflict: String,
    /// No job is to run; filled in as `start`.
    pub no_jobs: String,
    /// The item was removed.
    pub dequeue: String,
    /// At the end of each report.
    pub footer: String,
}

/// A pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// How changes move through it.
    pub manager: Manager,
    /// For people.
    pub description: String,
    /// Whether its changes are reviewed, so that jobs with secrets may run.
    pub post_review: bool,
    /// Whether jobs with secrets may run at all, where an older spelling says so; true is as `post_review`.
    pub allow_secrets: Option<bool>,
    /// Which pipeline goes first.
    pub precedence: Precedence,
    /// Pipelines a change leaves when it enters this one.
    pub supercedes: Vec<String>,
    /// Whether changes of connections without a trigger or reporter here may be dependencies.
    pub allow_other_connections: bool,
    /// Whether projects may declare parameters.
    pub allow_parameters: bool,
    /// Whether a new patchset replaces the old one.
    pub dequeue_on_new_patchset: bool,
    /// Whether dependencies are left out of consideration.
    pub ignore_dependencies: bool,
    /// After how many failures in a row the pipeline reports as disabled.
    pub disable_after_consecutive_failures: Option<u32>,
    /// Its texts.
    pub messages: Messages,
    /// How many items are worked on at once.
    pub window: Window,
    /// Event filters of each connection; an event that fits any of them triggers.
    pub triggers: BTreeMap<String, Vec<BTreeMap<String, Value>>>,
    /// What a change must have, by connection.
    pub require: BTreeMap<String, Value>,
    /// What a change must not have, by connection.
    pub reject: BTreeMap<String, Value>,
    /// What is done by each action, by connection; `merge-conflict` and `config-error` are filled
    /// in from `failure` when they are not set.
    pub actions: BTreeMap<String, BTreeMap<String, Value>>,
    /// Where it is defined.
    pub place: Place,
}

static NOBODY: BTreeMap<String, Value> = BTreeMap::new();

impl Pipeline {
    /// What is done on an action (`success`, `merge-conflict`, ...), by connection.
    pub fn reporters(&self, action: &str) -> &BTreeMap<String, Value> {
        self.actions.get(action).unwrap_or(&NOBODY)
    }

    /// The event filters of a connection.
    pub fn filters(&self, connection: &str) -> &[BTreeMap<String, Value>] {
        self.triggers.get(connection).map_or(&[], Vec::as_slice)
    }

    /// All connections the pipeline speaks of.
    pub fn connections(&self) -> std::collections::BTreeSet<&str> {
        let maps = self.actions.values().chain([&self.require, &self.reject]);
        maps.flat_map(BTreeMap::keys).chain(self.triggers.keys()).map(String::as_str).collect()
    }

    /// The events a filter of any driver names (`event`, a text or a list).
    pub fn events(filter: &BTreeMap<String, Value>) -> Vec<&str> {
        texts(filter, "event")
    }
}

/// The texts under a key of a filter: a text, or a list of texts.
pub fn texts<'a>(filter: &'a BTreeMap<String, Value>, key: &str) -> Vec<&'a str> {
    match filter.get(key) {
        Some(Value::Str(text)) => vec![text],
        Some(Value::List(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn row_default(name: &str) -> &'static str {
    TABLE.iter().find(|row| row.name == name).map_or("", |row| row.default)
}

/// Reads a pipeline.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark) -> Option<Pipeline> {
    let mut stanza = Stanza::open(sink, "pipeline", node, mark, &[TABLE])?;
    let number = |name: &str| {
        let default = row_default(name).parse().ok();
        stanza.int(name).or(default).and_then(|number| u32::try_from(number).ok())
    };
    let window = Window {
        size: number("window").unwrap_or(u32::MAX),
        floor: number("window-floor").unwrap_or(u32::MAX),
        ceiling: number("window-ceiling"),
        increase: step(&stanza, "window-increase-type"),
        increase_factor: number("window-increase-factor").unwrap_or(u32::MAX),
        decrease: step(&stanza, "window-decrease-type"),
        decrease_factor: number("window-decrease-factor").unwrap_or(u32::MAX),
    };
    let disable_after = number("disable-after-consecutive-failures");
    if let (Some(ceiling), Some(entry)) = (window.ceiling, stanza.entry("window-ceiling"))
        && ceiling < window.floor
    {
        let message =
            format!("{} has a window-ceiling of {ceiling}, below its floor of {}", stanza.title(), window.floor);
        stanza.fail("window-ceiling", entry.mark, Some("window-ceiling"), message, "raise it, or lower window-floor");
    }
    let text = |name: &str| stanza.text_or(name, row_default(name));
    let map = |name: &str| stanza.map(name).unwrap_or_default();
    let mut actions: BTreeMap<String, BTreeMap<String, Value>> = ACTIONS
        .iter()
        .filter(|action| stanza.entry(action).is_some())
        .map(|action| ((*action).to_owned(), map(action)))
        .collect();
    for action in ["merge-conflict", "config-error"] {
        // Zuul: an empty one counts for none.
        if actions.get(action).is_none_or(BTreeMap::is_empty)
            && let Some(failure) = actions.get("failure").cloned()
        {
            actions.insert(action.to_owned(), failure);
        }
    }
    let pipeline = Pipeline {
        name: stanza.name.clone(),
        manager: match stanza.text("manager").as_deref() {
            Some("dependent") => Manager::Dependent,
            Some("serial") => Manager::Serial,
            Some("supercedent") => Manager::Supercedent,
            _ => Manager::Independent,
        },
        description: text("description"),
        post_review: stanza.bool("post-review").or(stanza.bool("allow-secrets")).unwrap_or(false),
        allow_secrets: stanza.bool("allow-secrets"),
        precedence: match stanza.text("precedence").as_deref() {
            Some("high") => Precedence::High,
            Some("low") => Precedence::Low,
            _ => Precedence::Normal,
        },
        supercedes: stanza.texts("supercedes").unwrap_or_default(),
        allow_other_connections: stanza.bool("allow-other-connections").unwrap_or(true),
        allow_parameters: stanza.bool("allow-parameters").unwrap_or(false),
        dequeue_on_new_patchset: stanza.bool("dequeue-on-new-patchset").unwrap_or(true),
        ignore_dependencies: stanza.bool("ignore-dependencies").unwrap_or(false),
        disable_after_consecutive_failures: disable_after,
        messages: Messages {
            success: text("success-message"),
            failure: text("failure-message"),
            start: text("start-message"),
            enqueue: text("enqueue-message"),
            merge_conflict: text("merge-conflict-message"),
            no_jobs: text("no-jobs-message"),
            dequeue: text("dequeue-message"),
            footer: text("footer-message"),
        },
        window,
        triggers: BTreeMap::new(),
        require: map("require"),
        reject: map("reject"),
        actions,
        place: stanza.place(),
    };
    let triggers = triggers(&mut stanza);
    stanza.finish(Pipeline { triggers, ..pipeline })
}

fn step(stanza: &Stanza<'_, '_, '_>, name: &str) -> Step {
    match stanza.text(name).as_deref().unwrap_or_else(|| row_default(name)) {
        "exponential" => Step::Exponential,
        _ => Step::Linear,
    }
}

fn triggers(stanza: &mut Stanza<'_, '_, '_>) -> BTreeMap<String, Vec<BTreeMap<String, Value>>> {
    let mut all = BTreeMap::new();
    let entries = stanza.entry("trigger").and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]);
    for entry in entries {
        let mut filters = Vec::new();
        for item in entry.value.items() {
            match item.to_value() {
                Value::Map(filter) => filters.push(filter),
                _ => {
                    let message = format!("a trigger of {} for {} is {}", stanza.title(), entry.key, item.kind_name());
                    let cure = "write a list of dictionaries, each with an `event`";
                    stanza.fail("wrong-type", item.start, Some("trigger"), message, cure);
                }
            }
        }
        all.insert(entry.key.clone(), filters);
    }
    all
}
