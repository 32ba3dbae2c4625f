//! Nodesets: the machines of a job.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute, texts_of};
use crate::yaml::{Mark, Node};

/// Attributes of a nodeset.
pub const TABLE: &[Attribute] = &[
    attribute("name", Kind::Text),
    attribute("nodes", Kind::Special),
    attribute("groups", Kind::Special),
    attribute("alternatives", Kind::Special),
];

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its names in the inventory; usually one.
    pub names: Vec<String>,
    /// What kind of machine.
    pub label: String,
}

/// A group of the inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeGroup {
    /// Its name.
    pub name: String,
    /// Names of its nodes.
    pub nodes: Vec<String>,
}

/// Nodes and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodesetShape {
    /// The machines.
    pub nodes: Vec<NodeSpec>,
    /// The groups.
    pub groups: Vec<NodeGroup>,
}

impl NodesetShape {
    /// The machines in one line: `NAME=LABEL`, several names of one machine joined by `+`.
    pub fn tell(&self) -> String {
        let nodes = self.nodes.iter().map(|node| format!("{}={}", node.names.join("+"), node.label));
        nodes.collect::<Vec<_>>().join(" ")
    }
}

/// One of several nodesets that would do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Alternative {
    /// A nodeset by name.
    Named(String),
    /// Spelt out.
    Inline(NodesetShape),
}

/// What a nodeset offers: one shape, or alternatives in order of preference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodesetContent {
    /// Nodes and groups.
    Shape(NodesetShape),
    /// Alternatives.
    Alternatives(Vec<Alternative>),
}

/// A nodeset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Nodeset {
    /// Its name; empty when it stands inside a job.
    pub name: String,
    /// What it offers.
    pub content: NodesetContent,
    /// Where it is defined.
    pub place: Place,
}

impl Nodeset {
    /// The shapes it spells out itself.
    pub fn shapes(&self) -> Vec<&NodesetShape> {
        match &self.content {
            NodesetContent::Shape(shape) => vec![shape],
            NodesetContent::Alternatives(all) => all
                .iter()
                .filter_map(|alternative| match alternative {
                    Alternative::Inline(shape) => Some(shape),
                    Alternative::Named(_) => None,
                })
                .collect(),
        }
    }
}

/// Reads a nodeset; inside a job it has no name.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark, inline: bool) -> Option<Nodeset> {
    let mut stanza = Stanza::open(sink, "nodeset", node, mark, &[TABLE])?;
    if inline && let Some(entry) = stanza.entry("name") {
        let message = "`name` is not an attribute of a nodeset inside a job";
        stanza.fail(
            "unknown-attribute",
            entry.mark,
            Some("name"),
            message,
            "remove it, or define the nodeset by itself",
        );
    }
    if !inline && stanza.entry("name").is_none() {
        stanza.fail("missing-attribute", mark, Some("name"), "this nodeset needs the attribute `name`", "add `name:`");
    }
    let content = match stanza.entry("alternatives") {
        Some(entry) => {
            if let Some(other) = stanza.entry("nodes").or_else(|| stanza.entry("groups")) {
                let message = format!("{} has both `alternatives` and `{}`", stanza.title(), other.key);
                let cure = "put the nodes into the list of alternatives";
                stanza.fail("exclusive-attributes", other.mark, Some(&other.key), message, cure);
            }
            let mut alternatives = Vec::new();
            if entry.value.as_sequence().is_none() {
                let message = format!("`alternatives` of {} must be a list", stanza.title());
                stanza.fail("wrong-type", entry.value.start, Some("alternatives"), message, "begin each with a dash");
            }
            for item in entry.value.items() {
                match item.as_str() {
                    Some(name) => alternatives.push(Alternative::Named(name.to_owned())),
                    None => alternatives.push(Alternative::Inline(shape(&mut stanza, item))),
                }
            }
            NodesetContent::Alternatives(alternatives)
        }
        None => {
            if stanza.entry("nodes").is_none() {
                let cure = "add `nodes:` with a list, which may be empty, or `alternatives:`";
                let message = format!("{} has no nodes", stanza.title());
                stanza.fail("missing-attribute", mark, Some("nodes"), message, cure);
            }
            NodesetContent::Shape(shape(&mut stanza, node))
        }
    };
    let nodeset = Nodeset { name: stanza.name.clone(), content, place: stanza.place() };
    stanza.finish(nodeset)
}

fn shape(stanza: &mut Stanza<'_, '_, '_>, node: &Node) -> NodesetShape {
    let mut nodes = Vec::new();
    let mut groups = Vec::new();
    let mut names = BTreeSet::new();
    let items = |key: &str| node.get(key).map_or(&[][..], |entry| entry.value.items());
    if node.as_mapping().is_none() {
        let message = format!("an alternative of {} is {}", stanza.title(), node.kind_name());
        let cure = "name a nodeset, or give `nodes` and `groups`";
        stanza.fail("wrong-type", node.start, Some("alternatives"), message, cure);
    }
    for (key, known) in [("nodes", ["name", "label"]), ("groups", ["name", "nodes"])] {
        if node.get(key).is_some_and(|entry| entry.value.is_null()) {
            let message = format!("`{key}` of {} is empty", stanza.title());
            stanza.fail("wrong-type", node.start, Some(key), message, "write `[]` for an empty list");
        }
        for entry in items(key).iter().flat_map(|item| item.as_mapping().unwrap_or(&[])) {
            if !known.contains(&entry.key.as_str()) {
                let message = format!("`{}` is not an attribute in `{key}` of {}", entry.key, stanza.title());
                stanza.fail(
                    "unknown-attribute",
                    entry.mark,
                    Some(key),
                    message,
                    format!("known are: {}", known.join(", ")),
                );
            }
        }
    }
    for item in items("nodes") {
        let label = item.get("label").and_then(|entry| entry.value.as_str());
        let own = item.get("name").map(|entry| texts_of(&entry.value)).unwrap_or_default();
        let (Some(label), false) = (label, own.is_empty()) else {
            let message = format!("a node of {} needs `name` and `label`", stanza.title());
            stanza.fail("wrong-type", item.start, Some("nodes"), message, "write `- name: NAME` and `label: LABEL`");
            continue;
        };
        if own.iter().any(|name| name == "localhost") {
            localhost(stanza, item.start);
        }
        for name in &own {
            if names.contains(name) {
                let message = format!("the node \"{name}\" appears twice in {}", stanza.title());
                let cure = "names in a nodeset must be unique";
                stanza.fail_as("duplicate-node", "Duplicate Node", item.start, Some("nodes"), message, cure);
            }
        }
        // Zuul: only names of earlier nodes count, not those of the same one.
        names.extend(own.iter().cloned());
        nodes.push(NodeSpec { names: own, label: label.to_owned() });
    }
    let mut group_names = BTreeSet::new();
    for item in items("groups") {
        let name = item.get("name").and_then(|entry| entry.value.as_str());
        let (Some(name), Some(members)) = (name, item.get("nodes")) else {
            let message = format!("a group of {} needs `name` and `nodes`", stanza.title());
            stanza.fail("wrong-type", item.start, Some("groups"), message, "write `- name: NAME` and `nodes: [NODE]`");
            continue;
        };
        let members = texts_of(&members.value);
        // Zuul: anywhere in the name of a group.
        if name.contains("localhost") {
            localhost(stanza, item.start);
        }
        for member in members.iter().filter(|member| !names.contains(*member)) {
            let message =
                format!("the group \"{name}\" of {} names the node \"{member}\", which is not there", stanza.title());
            let cure = match crate::problem::did_you_mean(member, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "add the node, or remove it from the group".to_owned(),
            };
            let label = "Node From Group Not Found";
            stanza.fail_as("group-node-not-found", label, item.start, Some("groups"), message, cure);
        }
        if !group_names.insert(name.to_owned()) {
            let message = format!("the group \"{name}\" appears twice in {}", stanza.title());
            let cure = "names of groups must be unique";
            stanza.fail_as("duplicate-group", "Duplicate Nodeset Group", item.start, Some("groups"), message, cure);
        }
        groups.push(NodeGroup { name: name.to_owned(), nodes: members });
    }
    NodesetShape { nodes, groups }
}

fn localhost(stanza: &mut Stanza<'_, '_, '_>, mark: Mark) {
    let message = format!("{} names a node or group \"localhost\"", stanza.title());
    let cure = "that name is the machine the playbooks run from: choose another";
    stanza.fail("reserved-name", mark, Some("nodes"), message, cure);
}
