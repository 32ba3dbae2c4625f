//! Semaphores: how many builds may hold a thing at once.

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::yaml::{Mark, Node};

/// Attributes of a semaphore.
pub const TABLE: &[Attribute] =
    &[attribute("name", Kind::Text).required(), attribute("max", Kind::Int { min: i64::MIN }).default("1")];

/// A semaphore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphore {
    /// Its name.
    pub name: String,
    /// How many may hold it.
    pub max: i64,
    /// Where it is defined.
    pub place: Place,
}

/// Reads a semaphore.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark) -> Option<Semaphore> {
    let stanza = Stanza::open(sink, "semaphore", node, mark, &[TABLE])?;
    let semaphore = Semaphore { name: stanza.name.clone(), max: stanza.int("max").unwrap_or(1), place: stanza.place() };
    stanza.finish(semaphore)
}
