//! Images, flavors, labels, sections and providers: kept whole under their names.
//!
//! What they say to each other and to a cloud is read where images and nodes are made.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::schema::{Sink, Stanza};
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
}

/// Reads an object of a kind.
pub fn read(sink: &mut Sink<'_>, class: &'static str, node: &Node, mark: Mark) -> Option<NamedObject> {
    let mut stanza = Stanza::open_free(sink, class, node, mark)?;
    if stanza.name.is_empty() {
        let message = format!("this {class} needs the attribute `name`");
        stanza.fail("missing-attribute", mark, Some("name"), message, "add `name:`");
    }
    let object = NamedObject {
        class: class.to_owned(),
        name: stanza.name.clone(),
        attributes: mapping_value(stanza.entries()),
        place: stanza.place(),
    };
    stanza.finish(object)
}
