//! The tree a file becomes.

use std::collections::BTreeMap;

use gatelog_record::Value;

/// A position in a file: line and column (in characters), both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A tag with a meaning in Zuul's language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `!override`: this value replaces what was inherited.
    Override,
    /// `!inherit`: this value adds to what was inherited.
    Inherit,
    /// `!encrypted/pkcs1-oaep`: text encrypted with the project's key.
    Encrypted,
}

impl Tag {
    /// The tag as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Tag::Override => "!override",
            Tag::Inherit => "!inherit",
            Tag::Encrypted => "!encrypted/pkcs1-oaep",
        }
    }
}

/// A key and its value in a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key as text; a key that is a number or truth value is written as in JSON.
    pub key: String,
    /// What the key resolves to.
    pub resolved: Value,
    /// Where the key stands.
    pub mark: Mark,
    /// The value.
    pub value: Node,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// A scalar: what it resolves to, and the text it was written as.
    Scalar {
        /// The resolved value; never a list or map.
        value: Value,
        /// The text.
        text: String,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// A map, in the order written, merge keys resolved.
    Mapping(Vec<Entry>),
}

/// One node with its marks.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Its tag, if it has one with a meaning in Zuul's language.
    pub tag: Option<Tag>,
    /// Where it starts.
    pub start: Mark,
    /// Where it ends.
    pub end: Mark,
}

impl Node {
    /// The text, if the node is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar { value: Value::Str(text), .. } => Some(text),
            _ => None,
        }
    }

    /// The resolved scalar, if the node is one.
    pub fn as_scalar(&self) -> Option<&Value> {
        match &self.kind {
            NodeKind::Scalar { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The items, if the node is a list.
    pub fn as_sequence(&self) -> Option<&[Node]> {
        match &self.kind {
            NodeKind::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The entries, if the node is a map.
    pub fn as_mapping(&self) -> Option<&[Entry]> {
        match &self.kind {
            NodeKind::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// Whether the node is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.as_scalar(), Some(Value::Null))
    }

    /// The entry of a map.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.as_mapping()?.iter().find(|entry| entry.key == key)
    }

    /// The items of a list, or the node itself as a list of one; `null` is the empty list.
    ///
    /// Zuul: a string is accepted nearly everywhere a list is expected.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::Sequence(items) => items,
            _ if self.is_null() => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// The node as free-form data. Tags are dropped: whoever cares looks for them first.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar { value, .. } => value.clone(),
            NodeKind::Sequence(items) => Value::List(items.iter().map(Node::to_value).collect()),
            NodeKind::Mapping(entries) => Value::Map(mapping_value(entries)),
        }
    }

    /// The first node below this one (itself left out) that bears a tag.
    pub fn tag_below(&self) -> Option<&Node> {
        let find = |node: &'_ Node| node.tag.is_some();
        match &self.kind {
            NodeKind::Scalar { .. } => None,
            NodeKind::Sequence(items) => {
                items.iter().find_map(|item| if find(item) { Some(item) } else { item.tag_below() })
            }
            NodeKind::Mapping(entries) => {
                entries.iter().map(|e| &e.value).find_map(|item| if find(item) { Some(item) } else { item.tag_below() })
            }
        }
    }

    /// What the node is, in a word, for messages.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            NodeKind::Sequence(_) => "a list",
            NodeKind::Mapping(_) => "a dictionary",
            NodeKind::Scalar { value, .. } => match value {
                Value::Null => "nothing",
                Value::Bool(_) => "a truth value",
                Value::Int(_) => "a whole number",
                Value::Number(_) => "a number",
                _ => "a string",
            },
        }
    }
}

/// A map's entries as free-form data.
pub fn mapping_value(entries: &[Entry]) -> BTreeMap<String, Value> {
    entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect()
}
