//! Project stanzas: which jobs a project runs in which pipeline.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::job::{self, JobDefinition};
use super::pragma::Pragma;
use crate::place::Place;
use crate::problem::{Severity, UNKNOWN};
use crate::regexes::{Anchor, Pattern};
use crate::schema::{Attribute, Kind, Merge, Sink, Stanza, attribute};
use crate::shared::Shared;
use crate::yaml::{Mark, Node};

/// Attributes of a project; every other key is a pipeline.
pub const TABLE: &[Attribute] = &[
    attribute("name", Kind::Text).default("the project of the file"),
    attribute("description", Kind::Text),
    attribute("branches", Kind::Patterns(Anchor::Start)),
    attribute("templates", Kind::TextList).default("[]"),
    attribute(
        "merge-mode",
        Kind::Choice(&["merge", "merge-resolve", "cherry-pick", "squash-merge", "rebase", "rebase-first-parent"]),
    ),
    attribute("default-branch", Kind::Text),
    attribute("queue", Kind::Text),
    attribute("vars", Kind::Map).merge(Merge::Deep),
];

/// Attributes of a project's entry for one pipeline.
pub const PIPELINE_TABLE: &[Attribute] = &[
    attribute("jobs", Kind::Special).default("[]"),
    attribute("debug", Kind::Bool).default("false"),
    attribute("fail-fast", Kind::Bool),
    attribute("parameters", Kind::Special),
];

/// What a project or template says for one pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProjectPipeline {
    /// The jobs in order; each is an anonymous variant, often an empty one.
    pub jobs: Vec<Shared<JobDefinition>>,
    /// Whether reports say how jobs were chosen.
    pub debug: bool,
    /// Whether the first failure ends the rest.
    pub fail_fast: Option<bool>,
    /// Parameters one may give when enqueueing, as they were written.
    pub parameters: Vec<Value>,
    /// Where the entry stands.
    pub place: Place,
}

/// A project stanza.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectStanza {
    /// The name given: short, canonical, or a regular expression that starts with `^`; none means
    /// the project of the file.
    pub name: Option<String>,
    /// For people.
    pub description: String,
    /// The branches it is for.
    pub branches: Option<Vec<Pattern>>,
    /// Names of templates, in order.
    pub templates: Vec<String>,
    /// How changes are merged.
    pub merge_mode: Option<String>,
    /// The default branch.
    pub default_branch: Option<String>,
    /// The queue it shares with others.
    pub queue: Option<String>,
    /// Variables of all its jobs.
    pub vars: BTreeMap<String, Value>,
    /// What it says for each pipeline.
    pub pipelines: BTreeMap<String, ProjectPipeline>,
    /// Names of those pipelines, in the order written.
    pub pipeline_order: Vec<String>,
    /// How the file wants to be read.
    pub pragma: Pragma,
    /// Where it stands.
    pub place: Place,
}

/// Reads a project stanza.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark, pragma: &Pragma) -> Option<ProjectStanza> {
    let mut stanza = Stanza::open_free(sink, "project", node, mark)?;
    check_keys(&mut stanza, TABLE);
    let (pipeline_order, pipelines) = pipelines(&mut stanza, TABLE, pragma);
    let vars = vars(&mut stanza);
    let project = ProjectStanza {
        name: stanza.text("name"),
        description: stanza.text_or("description", ""),
        // Zuul: an empty list of branches counts for none.
        branches: stanza.patterns("branches", Anchor::Start).filter(|patterns| !patterns.is_empty()),
        templates: unique(stanza.texts("templates").unwrap_or_default()),
        merge_mode: stanza.text("merge-mode"),
        default_branch: stanza.text("default-branch"),
        queue: stanza.text("queue"),
        vars,
        pipelines,
        pipeline_order,
        pragma: pragma.clone(),
        place: stanza.place(),
    };
    stanza.finish(project)
}

fn unique(names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

impl ProjectStanza {
    /// What it says for each pipeline, in the order written.
    pub fn in_order(&self) -> impl Iterator<Item = (&String, &ProjectPipeline)> + Clone {
        self.pipeline_order.iter().filter_map(|name| self.pipelines.get_key_value(name))
    }
}

/// Checks the fixed keys; a key that is none of them and holds a dictionary is a pipeline.
pub fn check_keys(stanza: &mut Stanza<'_, '_, '_>, table: &'static [Attribute]) {
    let entries = stanza.entries();
    stanza.check(&[table], |key| entries.iter().any(|entry| entry.key == key && entry.value.as_mapping().is_some()));
}

/// Variables, with their names checked. Zuul: fewer names are reserved here than in a job.
pub fn vars(stanza: &mut Stanza<'_, '_, '_>) -> BTreeMap<String, Value> {
    if let Some(entry) = stanza.entry("vars") {
        job::check_variable_names(stanza, "vars", &entry.value, job::RESERVED);
    }
    stanza.map("vars").unwrap_or_default()
}

/// The entries for pipelines.
pub fn pipelines(
    stanza: &mut Stanza<'_, '_, '_>,
    table: &'static [Attribute],
    pragma: &Pragma,
) -> (Vec<String>, BTreeMap<String, ProjectPipeline>) {
    let line = stanza.mark.line;
    let mut order = Vec::new();
    let mut all = BTreeMap::new();
    for entry in stanza.entries() {
        if table.iter().any(|row| row.name == entry.key) || entry.value.as_mapping().is_none() {
            continue;
        }
        let (read, failed) = {
            let Some(mut inner) =
                Stanza::open(&mut *stanza.sink, "project pipeline", &entry.value, entry.mark, &[PIPELINE_TABLE])
            else {
                continue;
            };
            inner.name.clone_from(&entry.key);
            let mut jobs = Vec::new();
            let listed = inner.entry("jobs").map(|entry| &entry.value);
            if let Some(node) = listed.filter(|node| node.as_sequence().is_none() || node.tag.is_some()) {
                let message = format!("`jobs` of {} must be a list, not {}", inner.title(), node.kind_name());
                let cure = "begin each job with a dash, as in `- JOB`";
                inner.fail("wrong-type", node.start, Some("jobs"), message, cure);
            }
            for item in listed.and_then(Node::as_sequence).unwrap_or(&[]) {
                if let Some(mut job) = one_job(&mut inner, item, pragma) {
                    job.stanza_line = line;
                    jobs.push(Shared::new(job));
                }
            }
            parameters(&mut inner);
            let parameters = inner
                .entry("parameters")
                .map_or(Vec::new(), |entry| entry.value.items().iter().map(Node::to_value).collect());
            let pipeline = ProjectPipeline {
                jobs,
                debug: inner.bool("debug").unwrap_or(false),
                fail_fast: inner.bool("fail-fast"),
                parameters,
                place: inner.place(),
            };
            (pipeline, inner.failed())
        };
        if failed {
            stanza.spoil();
        }
        order.push(entry.key.clone());
        all.insert(entry.key.clone(), read);
    }
    (order, all)
}

/// Attributes of a parameter.
const PARAMETER_TABLE: &[Attribute] = &[
    attribute("name", Kind::Text).required(),
    attribute("type", Kind::Choice(&["string", "selection", "multiple-selection", "bool"])).required(),
    attribute("description", Kind::Text),
    attribute("values", Kind::Special),
    attribute("default", Kind::Special),
    attribute("required", Kind::Bool).default("false"),
];

/// Checks the parameters of an entry.
fn parameters(inner: &mut Stanza<'_, '_, '_>) {
    let Some(entry) = inner.entry("parameters") else { return };
    if entry.value.as_sequence().is_none() {
        let message = format!("`parameters` of {} must be a list, not {}", inner.title(), entry.value.kind_name());
        inner.fail("wrong-type", entry.value.start, Some("parameters"), message, "begin each with a dash");
        return;
    }
    for item in entry.value.items() {
        let failed = {
            let Some(mut parameter) = Stanza::open(&mut *inner.sink, "parameter", item, item.start, &[PARAMETER_TABLE])
            else {
                inner.spoil();
                continue;
            };
            if !parameter.name.is_empty() && !job::is_variable_shape(&parameter.name) {
                let message = format!("`{}` is not a name for a variable", parameter.name);
                let cure = "use letters, digits and underscores, with a letter first";
                parameter.fail("wrong-type", item.start, Some("name"), message, cure);
            }
            parameter.failed()
        };
        if failed {
            inner.spoil();
        }
    }
}

/// A job in a list: its name, or its name with attributes.
fn one_job(stanza: &mut Stanza<'_, '_, '_>, item: &Node, pragma: &Pragma) -> Option<JobDefinition> {
    if let Some(name) = item.as_str() {
        let place = stanza.sink.place(item.start);
        return Some(JobDefinition::bare(name, place, pragma.clone()));
    }
    match item.as_mapping() {
        // Zuul: of several keys the first is the job, and the others are checked and left out.
        Some([entry, rest @ ..]) => {
            for other in rest {
                let checked = job::read_variant(&mut *stanza.sink, &other.key, &other.value, other.mark, pragma);
                match checked {
                    Some(_) => {
                        let message =
                            format!("`{}` stands beside the job \"{}\" and has no effect", other.key, entry.key);
                        let cure = "indent it below the job, or begin it with a dash of its own";
                        stanza.sink.add(Severity::Notice, "job-beside-job", UNKNOWN, other.mark, message).cure =
                            cure.to_owned();
                    }
                    None => stanza.spoil(),
                }
            }
            let read = job::read_variant(&mut *stanza.sink, &entry.key, &entry.value, entry.mark, pragma);
            if read.is_none() {
                stanza.spoil();
            }
            read
        }
        _ => {
            let message = format!("a job of {} must be a name, or one name with attributes", stanza.title());
            let cure = "write `- JOB`, or `- JOB:` with the attributes indented below it";
            stanza.fail("wrong-type", item.start, Some("jobs"), message, cure);
            None
        }
    }
}
