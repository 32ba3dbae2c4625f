//! Free-form data as an explicit shape.
//!
//! bincode is not self-describing, so nothing on the log may be "whatever JSON somebody sent":
//! job variables, returned data and driver attributes are a [`Value`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One free-form value. Maps are ordered by key, so equal values have equal bytes.
///
/// There is no floating point number on the log: a fraction is kept as the text it was written as,
/// so that it reads back exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

    #[test]
    fn json_round_trip_keeps_fractions_as_text() {
        let json: serde_json::Value = serde_json::json!({"b": 9.5, "a": [1, null, true, "x"]});
        let value = Value::from_json(&json);
        assert_eq!(value.as_map().unwrap()["b"], Value::Number("9.5".into()));
        assert_eq!(value.to_json(), json);
    }
}
