//! YAML as Zuul reads it: libyaml's grammar, YAML 1.1 scalars as PyYAML resolves them, marks on every node, merge
//! keys, three tags of Zuul's own, duplicate keys refused.

pub mod error;
pub mod parse;
pub mod scalar;
pub mod tree;

pub use error::YamlError;
pub use parse::{Parsed, parse, parse_as, parse_lenient};
pub use tree::{Entry, Mark, Node, NodeKind, Tag, mapping_value};
