//! Project templates: pipeline settings many projects share.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::pragma::Pragma;
use super::project::{self, ProjectPipeline};
use crate::place::Place;
use crate::schema::{Attribute, Kind, Merge, Sink, Stanza, attribute};
use crate::yaml::{Mark, Node};

/// Attributes of a project template; every other key is a pipeline.
pub const TABLE: &[Attribute] = &[
    attribute("name", Kind::Text).required(),
    attribute("description", Kind::Text),
    attribute("queue", Kind::Text),
    attribute("vars", Kind::Map).merge(Merge::Deep),
];

/// A project template, or a variant of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectTemplate {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// The queue its projects share.
    pub queue: Option<String>,
    /// Variables of all its jobs.
    pub vars: BTreeMap<String, Value>,
    /// What it says for each pipeline.
    pub pipelines: BTreeMap<String, ProjectPipeline>,
    /// How the file wants to be read.
    pub pragma: Pragma,
    /// Where it is defined.
    pub place: Place,
}

/// Reads a project template.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark, pragma: &Pragma) -> Option<ProjectTemplate> {
    let mut stanza = Stanza::open_free(sink, "project-template", node, mark)?;
    project::check_keys(&mut stanza, TABLE);
    let pipelines = project::pipelines(&mut stanza, TABLE, pragma);
    let vars = project::vars(&mut stanza);
    let template = ProjectTemplate {
        name: stanza.name.clone(),
        description: stanza.text_or("description", ""),
        queue: stanza.text("queue"),
        vars,
        pipelines,
        pragma: pragma.clone(),
        place: stanza.place(),
    };
    stanza.finish(template)
}
