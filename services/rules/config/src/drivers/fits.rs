//! Whether a value has the shape that a schema asks for.

use std::collections::BTreeMap;

use gatelog_driver_schema::{Field, Shape, field, needed};
use gatelog_record::Value;

use crate::problem::did_you_mean;

/// What is wrong with a value; none when it fits.
pub(super) fn fits(shape: Shape, value: &Value) -> Option<String> {
    let no = |wanted: &str| Some(format!("{value} is not {wanted}"));
    let each = |inner: &dyn Fn(&Value) -> Option<String>| match value {
        Value::List(items) => items.iter().find_map(inner),
        one => inner(one),
    };
    match shape {
        Shape::Anything => None,
        Shape::Nothing if *value == Value::Null => None,
        Shape::Nothing => no("nothing"),
        Shape::Text => value.as_str().map_or_else(|| no("text"), |_| None),
        Shape::Bool => value.as_bool().map_or_else(|| no("true or false"), |_| None),
        Shape::Int => match value {
            Value::Int(_) | Value::Bool(_) => None,
            _ => no("a whole number"),
        },
        Shape::Texts => each(&|item| fits(Shape::Text, item)),
        Shape::Regexes => each(&|item| match item {
            Value::Str(_) => None,
            Value::Map(map) => fields_fit(REGEX, map, false),
            other => Some(format!("{other} is not a regular expression")),
        }),
        Shape::Word(words) => match value.as_str() {
            Some(word) if words.contains(&word) => None,
            _ => no(&format!("one of: {}", words.join(", "))),
        },
        Shape::Words(words) => each(&|item| fits(Shape::Word(words), item)),
        Shape::Maps => {
            each(&|item| item.as_map().map_or_else(|| Some(format!("{item} is not a dictionary")), |_| None))
        }
        Shape::Fields(fields) => match value {
            Value::Map(map) => fields_fit(fields, map, false),
            _ => no("a dictionary"),
        },
        Shape::OneField(fields) => match value {
            Value::Map(map) if map.len() == 1 => fields_fit(fields, map, false),
            _ => no("a dictionary with one key"),
        },
        Shape::ListOf(shape) => match value {
            Value::List(items) => items.iter().find_map(|item| fits(*shape, item)),
            _ => no("a list"),
        },
        Shape::Map => value.as_map().map_or_else(|| no("a dictionary"), |_| None),
        Shape::TextMap => match value {
            Value::Map(map) => map.values().find_map(|value| fits(Shape::Text, value)),
            _ => no("a dictionary"),
        },
        Shape::Positive => match value {
            Value::Int(1..) | Value::Bool(true) => None,
            _ => no("a whole number from 1"),
        },
        Shape::WordOrNothing(_) if *value == Value::Null => None,
        Shape::WordOrNothing(words) => fits(Shape::Word(words), value),
        Shape::Final => match value {
            Value::Bool(_) => None,
            other => fits(Shape::Word(&["allow-override"]), other),
        },
        Shape::OpenFields(fields) | Shape::ListedFields(fields) => each(&|item| match item {
            Value::Map(map) => fields_fit(fields, map, matches!(shape, Shape::OpenFields(_))),
            other => Some(format!("{other} is not a dictionary")),
        }),
    }
}

const REGEX: &[Field] = &[needed("regex", Shape::Text), field("negate", Shape::Bool)];

/// What is wrong with a dictionary of fields; none when it fits. An open one may have others, too.
pub(crate) fn fields_fit(fields: &[Field], map: &BTreeMap<String, Value>, open: bool) -> Option<String> {
    for (key, value) in map {
        match fields.iter().find(|field| field.name == key) {
            Some(field) => {
                if let Some(why) = fits(field.shape, value) {
                    return Some(format!("`{key}`: {why}"));
                }
            }
            None if open => {}
            None => {
                let near = did_you_mean(key, fields.iter().map(|field| field.name));
                let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
                return Some(format!("`{key}` is not known{hint}"));
            }
        }
    }
    let missing = fields.iter().find(|field| field.required && !map.contains_key(field.name))?;
    Some(format!("`{}` is missing", missing.name))
}
