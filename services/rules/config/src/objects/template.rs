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
    attribute("name", Kind::Text),
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
    /// Names of those pipelines, in the order written.
    pub pipeline_order: Vec<String>,
    /// How the file wants to be read.
    pub pragma: Pragma,
    /// Where it is defined.
    pub place: Place,
}

impl ProjectTemplate {
    /// What it says for each pipeline, in the order written.
    pub fn in_order(&self) -> impl Iterator<Item = (&String, &ProjectPipeline)> + Clone {
        self.pipeline_order.iter().filter_map(|name| self.pipelines.get_key_value(name))
    }
}

/// Reads a project template.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark, pragma: &Pragma) -> Option<ProjectTemplate> {
    let mut stanza = Stanza::open_free(sink, "project-template", node, mark)?;
    project::check_keys(&mut stanza, TABLE);
    let (pipeline_order, pipelines) = project::pipelines(&mut stanza, TABLE, pragma);
    let vars = project::vars(&mut stanza);
    let template = ProjectTemplate {
        name: stanza.name.clone(),
        description: stanza.text_or("description", ""),
        queue: stanza.text("queue"),
        vars,
        pipelines,
        pipeline_order,
        pragma: pragma.clone(),
        place: stanza.place(),
    };
    stanza.finish(template)
}
