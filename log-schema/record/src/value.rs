//! Free-form data as an explicit shape.
//!
//! bincode is not self-describing, so nothing on the log may be "whatever JSON somebody sent":
//! job variables, returned data and driver attributes are a [`Value`].

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::{Deserialize, Serialize};

/// How deep a value that is read may be nested. What gatelog takes in is less deep by far: 128 levels of JSON, 60 of
/// YAML. Bytes on the log may say anything, and every level of theirs costs a piece of the reader's stack.
pub const MAX_DEPTH: usize = 256;

/// One free-form value. Maps are ordered by key, so equal values have equal bytes.
///
/// There is no floating point number on the log: a fraction is kept as the text it was written as,
/// so that it reads back exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Value {
    /// Nothing (`null`, `~`).
    #[default]
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number that is not a 64-bit whole number, as the shortest text that reads back to it.
    Number(String),
    /// Text.
    Str(String),
    /// A list.
    List(Vec<Value>),
    /// A map from text to values.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// The text, if this is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The map, if this is a map.
    pub fn as_map(&self) -> Option<&BTreeMap<String, Value>> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The list, if this is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The same value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Null => Json::Null,
            Value::Bool(truth) => Json::Bool(*truth),
            Value::Int(number) => Json::from(*number),
            Value::Number(text) => serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.clone())),
            Value::Str(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Value::to_json).collect()),
            Value::Map(map) => Json::Object(map.iter().map(|(key, value)| (key.clone(), value.to_json())).collect()),
        }
    }

    /// The value a JSON document stands for. Object keys are sorted; of a repeated key JSON's
    /// parser has already kept the last.
    pub fn from_json(json: &serde_json::Value) -> Value {
        use serde_json::Value as Json;
        match json {
            Json::Null => Value::Null,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Value::Int(whole),
                None => Value::Number(number.to_string()),
            },
            Json::String(text) => Value::Str(text.clone()),
            Json::Array(items) => Value::List(items.iter().map(Value::from_json).collect()),
            Json::Object(map) => {
                Value::Map(map.iter().map(|(key, value)| (key.clone(), Value::from_json(value))).collect())
            }
        }
    }
}

/// The variants, in their order on the log.
#[derive(Deserialize)]
#[serde(variant_identifier)]
enum Variant {
    Null,
    Bool,
    Int,
    Number,
    Str,
    List,
    Map,
}

const VARIANTS: &[&str] = &["Null", "Bool", "Int", "Number", "Str", "List", "Map"];

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        Nested(0).deserialize(deserializer)
    }
}

/// Reads a value that is so many levels down: as derived code would, but not deeper than [`MAX_DEPTH`].
#[derive(Clone, Copy)]
struct Nested(usize);

impl Nested {
    fn below<E: de::Error>(self) -> Result<Nested, E> {
        let refused = || E::custom(format!("a value is nested more than {MAX_DEPTH} levels deep"));
        (self.0 < MAX_DEPTH).then_some(Nested(self.0 + 1)).ok_or_else(refused)
    }
}

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_enum("Value", VARIANTS, self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a free-form value")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Value, A::Error> {
        let (variant, content) = data.variant()?;
        Ok(match variant {
            Variant::Null => {
                content.unit_variant()?;
                Value::Null
            }
            Variant::Bool => Value::Bool(content.newtype_variant()?),
            Variant::Int => Value::Int(content.newtype_variant()?),
            Variant::Number => Value::Number(content.newtype_variant()?),
            Variant::Str => Value::Str(content.newtype_variant()?),
            Variant::List => Value::List(content.newtype_variant_seed(Items(self.below()?))?),
            Variant::Map => Value::Map(content.newtype_variant_seed(Entries(self.below()?))?),
        })
    }
}

/// Reads a list whose items are so many levels down.
struct Items(Nested);

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Value>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<Value>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.0)? {
            items.push(item);
        }
        Ok(items)
    }
}

/// Reads a map whose values are so many levels down.
struct Entries(Nested);

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = BTreeMap<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries {
    type Value = BTreeMap<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = access.next_key()? {
            entries.insert(key, access.next_value_seed(self.0)?);
        }
        Ok(entries)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Str(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Str(text)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Int(7), |value, level| match level % 2 {
            0 => Value::List(vec![value, Value::Null]),
            _ => Value::Map([("k".to_owned(), value)].into()),
        })
    }

    #[test]
    fn a_value_reads_back_unless_it_is_nested_too_deep() {
        for levels in [0, 1, 128, MAX_DEPTH] {
            let bytes = crate::codec::encode(&nested(levels)).unwrap();
            assert_eq!(crate::codec::decode(&bytes), Ok(nested(levels)), "{levels} levels");
        }
        let bytes = crate::codec::encode(&nested(MAX_DEPTH + 1)).unwrap();
        let error = crate::codec::decode::<Value>(&bytes).unwrap_err().to_string();
        assert!(error.contains("nested more than 256 levels deep"), "{error}");
        // Two bytes a level: a list of one list. Read by derived code, this ends the process.
        let bytes = [5, 1].repeat(4 << 20);
        let error = crate::codec::decode::<Value>(&bytes).unwrap_err().to_string();
        assert!(error.contains("nested more than 256 levels deep"), "{error}");
    }

    #[test]
    fn json_round_trip_keeps_fractions_as_text() {
        let json: serde_json::Value = serde_json::json!({"b": 9.5, "a": [1, null, true, "x"]});
        let value = Value::from_json(&json);
        assert_eq!(value.as_map().unwrap()["b"], Value::Number("9.5".into()));
        assert_eq!(value.to_json(), json);
    }
}
