//! YAML as Zuul reads it: YAML 1.1 scalars as PyYAML resolves them, marks on every node, merge
//! keys, three tags of Zuul's own, duplicate keys refused.

pub mod parse;
pub mod scalar;
pub mod tree;

pub use parse::{Parsed, YamlError, parse, parse_as};
pub use tree::{Entry, Mark, Node, NodeKind, Tag};
