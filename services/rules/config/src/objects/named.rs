//! Images, flavors, labels, sections and providers: kept whole under their names.
//!
//! What they say to each other and to a cloud is read where images and nodes are made.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use crate::dialect::{Spelling, nodes};
use crate::place::Place;
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::yaml::tree::mapping_value;
use crate::yaml::{Mark, Node};

/// An object known by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedObject {
    /// `image`, `flavor`, `label`, `section` or `provider`.
    pub class: String,
    /// Its name.
    pub name: String,
    /// All its attributes as given.
    pub attributes: BTreeMap<String, Value>,
    /// Where it is defined.
    pub place: Place,
    /// Whether it is written as "Nodepool in Zuul" has it; then its providers are put together as it says.
    pub older: bool,
}

impl NamedObject {
    /// The texts of an attribute that is a text or a list of them.
    pub fn texts(&self, attribute: &str) -> Vec<&str> {
        super::pipeline::texts(&self.attributes, attribute)
    }
}

pub(crate) const NAME: Attribute = attribute("name", Kind::Text).required();
pub(crate) const DESCRIPTION: Attribute = attribute("description", Kind::Text);
const NUMBER: Kind = Kind::Int { min: i64::MIN };

/// Attributes of an image.
pub const IMAGE_TABLE: &[Attribute] = &[
    NAME,
    attribute("type", Kind::Choice(&["zuul", "cloud"])).required(),
    DESCRIPTION,
    // Zuul: taken here, but without effect; only those of sections and providers count.
    attribute("retain-count", Kind::Int { min: 1 }),
    attribute("max-retain-count", Kind::Int { min: 1 }),
];

/// Attributes of a flavor.
pub const FLAVOR_TABLE: &[Attribute] = &[NAME, DESCRIPTION];

/// Attributes of a label.
pub const LABEL_TABLE: &[Attribute] = &[
    NAME,
    attribute("image", Kind::Text).required(),
    attribute("flavor", Kind::Text).required(),
    DESCRIPTION,
    attribute("min-ready", NUMBER),
    attribute("max-ready-age", NUMBER),
    attribute("max-age", NUMBER),
    attribute("min-retention-time", NUMBER),
    attribute("max-nodes", NUMBER),
    attribute("aliases", Kind::Texts),
];

/// Attributes of a section; those of its driver come in addition.
pub const SECTION_TABLE: &[Attribute] = &[
    NAME,
    attribute("parent", Kind::Text),
    attribute("abstract", Kind::Bool),
    attribute("connection", Kind::Text),
    DESCRIPTION,
    attribute("images", Kind::Special),
    attribute("flavors", Kind::Special),
    attribute("labels", Kind::Special),
];

/// Attributes of a provider; those of its driver come in addition.
pub const PROVIDER_TABLE: &[Attribute] = &[
    NAME,
    attribute("section", Kind::Text).required(),
    DESCRIPTION,
    attribute("images", Kind::Special),
    attribute("labels", Kind::Special),
];

/// Reads an object of a kind.
pub fn read(sink: &mut Sink<'_>, class: &'static str, node: &Node, mark: Mark) -> Option<NamedObject> {
    let (table, free) = match class {
        "image" => (IMAGE_TABLE, false),
        "flavor" => (FLAVOR_TABLE, false),
        "label" => (LABEL_TABLE, false),
        "section" => (SECTION_TABLE, true),
        _ => (PROVIDER_TABLE, true),
    };
    let older = sink.spelling == Spelling::Older && nodes::is_older(class, node);
    if older {
        nodes::notices(sink, class, node, mark);
    }
    let mut stanza = Stanza::open_free(sink, class, node, mark)?;
    match class {
        "label" if older => stanza.check(&[nodes::LABEL, nodes::MACHINE], |_| false),
        "image" | "flavor" if older => stanza.check(&[table, nodes::MACHINE], |_| false),
        "section" if older => stanza.check(&[nodes::CONNECTION, table], |_| true),
        _ => stanza.check(&[table], |_| free),
    }
    for key in table.iter().filter(|row| row.kind == Kind::Special).map(|row| row.name) {
        let Some(entry) = stanza.entry(key) else { continue };
        let items = entry.value.as_sequence();
        if !items.is_some_and(|items| items.iter().all(|item| item.as_str().is_some() || item.as_mapping().is_some())) {
            let message = format!("`{key}` of {} must be a list of names or dictionaries", stanza.title());
            stanza.fail("wrong-type", entry.value.start, Some(key), message, "begin each with a dash");
        }
    }
    if class == "provider"
        && let Some(entry) = stanza.entry("flavors")
    {
        let message = format!("{} has `flavors`", stanza.title());
        stanza.fail(
            "flavors-in-provider",
            entry.mark,
            Some("flavors"),
            message,
            "only sections have flavors: move them",
        );
    }
    let object = NamedObject {
        class: class.to_owned(),
        name: stanza.name.clone(),
        attributes: mapping_value(stanza.entries()),
        place: stanza.place(),
        older,
    };
    stanza.finish(object)
}
