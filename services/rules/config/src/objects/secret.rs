//! Secrets: data only the playbooks of one project may see.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::yaml::{Mark, Node, NodeKind, Tag};

/// Attributes of a secret.
pub const TABLE: &[Attribute] =
    &[attribute("name", Kind::Text).required(), attribute("data", Kind::Map), attribute("oidc", Kind::Special)];

/// A part of a secret's data, encrypted parts as they were given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretValue {
    /// Not secret.
    Plain(Value),
    /// Base64 chunks, each encrypted with the project's key; their plain texts are joined.
    Encrypted(Vec<String>),
    /// A list with encrypted parts in it.
    List(Vec<SecretValue>),
    /// A map with encrypted parts in it.
    Map(BTreeMap<String, SecretValue>),
}

impl SecretValue {
    /// The encrypted texts in it, each a list of chunks.
    pub fn encrypted(&self) -> Vec<&[String]> {
        let mut found = Vec::new();
        self.gather(&mut found);
        found
    }

    fn gather<'s>(&'s self, found: &mut Vec<&'s [String]>) {
        match self {
            SecretValue::Plain(_) => {}
            SecretValue::Encrypted(chunks) => found.push(chunks),
            SecretValue::List(items) => items.iter().for_each(|item| item.gather(found)),
            SecretValue::Map(map) => map.values().for_each(|item| item.gather(found)),
        }
    }
}

/// Where a secret's content comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretSource {
    /// It stands in the file.
    Data(SecretValue),
    /// A token is issued for each build, with these settings.
    Oidc(Value),
}

impl SecretSource {
    /// How many encrypted chunks it holds: each is an operation for whoever deciphers it.
    pub fn chunks(&self) -> usize {
        match self {
            SecretSource::Data(data) => data.encrypted().iter().map(|chunks| chunks.len()).sum(),
            SecretSource::Oidc(_) => 0,
        }
    }
}

/// A secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// Its content, still encrypted.
    pub source: SecretSource,
    /// Where it is defined.
    pub place: Place,
}

/// Reads a secret.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark) -> Option<Secret> {
    let mut stanza = Stanza::open(sink, "secret", node, mark, &[TABLE])?;
    let title = stanza.title();
    let source = match (stanza.entry("data"), stanza.entry("oidc")) {
        (Some(data), None) => SecretSource::Data(value(&mut stanza, &data.value)),
        (None, Some(oidc)) => {
            token(&mut stanza, &oidc.value);
            if oidc.value.as_mapping().is_none() && !oidc.value.is_null() {
                let message = format!("`oidc` of {title} must be a dictionary or null, not {}", oidc.value.kind_name());
                stanza.fail("wrong-type", oidc.value.start, Some("oidc"), message, "");
            }
            SecretSource::Oidc(oidc.value.to_value())
        }
        (Some(_), Some(oidc)) => {
            let message = format!("{title} has both `data` and `oidc`");
            stanza.fail("exclusive-attributes", oidc.mark, Some("oidc"), message, "make two secrets of it");
            return None;
        }
        (None, None) => {
            stanza.fail("missing-attribute", mark, None, format!("{title} has no content"), "add `data:` or `oidc:`");
            return None;
        }
    };
    let secret = Secret { name: stanza.name.clone(), source, place: stanza.place() };
    stanza.finish(secret)
}

/// What a token may be signed with.
const ALGORITHMS: &[&str] = &["RS256"];

/// Checks the settings of a token.
fn token(stanza: &mut Stanza<'_, '_, '_>, node: &Node) {
    for entry in node.as_mapping().unwrap_or(&[]) {
        let scalar = entry.value.as_scalar();
        let fits = match entry.key.as_str() {
            "algorithm" | "iss" => entry.value.as_str().is_some(),
            "ttl" => matches!(scalar, Some(Value::Int(_) | Value::Bool(_))),
            "claims" => entry.value.as_mapping().is_some(),
            _ => {
                let message = format!("`{}` is not known in `oidc` of {}", entry.key, stanza.title());
                let cure = "known are: algorithm, ttl, iss, claims";
                stanza.fail("unknown-attribute", entry.mark, Some("oidc"), message, cure);
                continue;
            }
        };
        if !fits {
            let message =
                format!("`{}` in `oidc` of {} cannot be {}", entry.key, stanza.title(), entry.value.kind_name());
            stanza.fail("wrong-type", entry.value.start, Some("oidc"), message, "");
        }
    }
    let algorithm = node.get("algorithm").and_then(|entry| entry.value.as_str()).unwrap_or("");
    if !algorithm.is_empty() && !ALGORITHMS.contains(&algorithm) {
        let message = format!("the algorithm \"{algorithm}\" of {} is not supported", stanza.title());
        let cure = format!("choose one of: {}", ALGORITHMS.join(", "));
        stanza.fail("algorithm", node.start, Some("oidc"), message, cure);
    }
}

fn value(stanza: &mut Stanza<'_, '_, '_>, node: &Node) -> SecretValue {
    match (&node.kind, node.tag) {
        (NodeKind::Scalar { text, .. }, Some(Tag::Encrypted)) => SecretValue::Encrypted(vec![text.clone()]),
        (NodeKind::Sequence(items), Some(Tag::Encrypted)) => {
            let mut chunks = Vec::new();
            for item in items {
                match item.as_str() {
                    Some(chunk) => chunks.push(chunk.to_owned()),
                    None => {
                        let message = format!("an encrypted part of {} holds {}", stanza.title(), item.kind_name());
                        let cure = "an encrypted list holds base64 texts";
                        stanza.fail("wrong-type", item.start, Some("data"), message, cure);
                    }
                }
            }
            SecretValue::Encrypted(chunks)
        }
        (_, Some(tag @ (Tag::Override | Tag::Inherit))) => {
            let message = format!("the tag {} does not go with {}", tag.as_str(), stanza.title());
            stanza.fail("misplaced-tag", node.start, Some("data"), message, "secrets do not inherit: remove the tag");
            SecretValue::Plain(Value::Null)
        }
        _ if node.tag_below().is_none() => SecretValue::Plain(node.to_value()),
        (NodeKind::Sequence(items), _) => SecretValue::List(items.iter().map(|item| value(stanza, item)).collect()),
        (NodeKind::Mapping(entries), _) => {
            SecretValue::Map(entries.iter().map(|entry| (entry.key.clone(), value(stanza, &entry.value))).collect())
        }
        (NodeKind::Scalar { value, .. }, _) => SecretValue::Plain(value.clone()),
    }
}
