//! Free-form values, as Python would take them.

use std::fmt::Write as _;

use serde_json::Value;

use crate::fault::Fault;

/// Whether a value counts as true: nothing, zero and what is empty do not.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(it) => *it,
        Value::Number(number) => !is_zero(number),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

fn is_zero(number: &serde_json::Number) -> bool {
    let text = number.to_string();
    text.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-'))
}

/// A number as text that is the same for 1, 1.0 and true.
fn numeric(value: &Value) -> Option<String> {
    match value {
        Value::Bool(it) => Some(i32::from(*it).to_string()),
        Value::Number(number) => {
            let text = number.to_string();
            let text = text.strip_suffix(".0").unwrap_or(&text);
            Some(if text == "-0" { "0".to_owned() } else { text.to_owned() })
        }
        _ => None,
    }
}

/// Whether two values are equal: `1 == true`, `"1" != 1`.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => match (numeric(a), numeric(b)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => a == b,
            _ => false,
        },
    }
}

/// Whether `needle in haystack`.
///
/// # Errors
/// [`Fault::Kind`] if the haystack holds nothing, or a text is searched for what is no text.
pub fn contains(haystack: &Value, needle: &Value) -> Result<bool, Fault> {
    match (haystack, needle) {
        (Value::Array(items), _) => Ok(items.iter().any(|item| equal(item, needle))),
        (Value::Object(entries), Value::String(key)) => Ok(entries.contains_key(key)),
        (Value::Object(_), Value::Array(_) | Value::Object(_)) => Err(Fault::Kind("a list is no key".to_owned())),
        (Value::Object(_), _) => Ok(false),
        (Value::String(text), Value::String(part)) => Ok(text.contains(part.as_str())),
        (Value::String(_), _) => Err(Fault::Kind("'in <string>' requires a string on its left".to_owned())),
        _ => Err(Fault::Kind(format!("{} holds nothing that could be in it", python(haystack)))),
    }
}

/// A value as Python prints it.
pub fn python(value: &Value) -> String {
    let mut text = String::new();
    write_python(&mut text, value);
    text
}

fn write_python(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Value::String(text) => quote(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_python(out, item);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, item)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                quote(out, key);
                out.push_str(": ");
                write_python(out, item);
            }
            out.push('}');
        }
    }
}

fn quote(out: &mut String, text: &str) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other if other == mark => {
                out.push('\\');
                out.push(other);
            }
            other => out.push(other),
        }
    }
    out.push(mark);
}

/// The texts of a list, or the letters of a text.
///
/// Fuel walks whatever stands there, so a text is read letter by letter.
///
/// # Errors
/// [`Fault::Kind`] for what cannot be walked, and for items that cannot be names.
pub fn names(value: &Value) -> Result<Vec<String>, Fault> {
    match value {
        Value::Array(items) => items.iter().map(name).collect(),
        Value::String(text) => Ok(text.chars().map(String::from).collect()),
        Value::Object(entries) => Ok(entries.keys().cloned().collect()),
        other => Err(Fault::Kind(format!("{} is not a list of names", python(other)))),
    }
}

/// A name, or a number or truth value as one.
///
/// # Errors
/// [`Fault::Kind`] for lists and maps.
pub fn name(value: &Value) -> Result<String, Fault> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) | Value::Object(_) => Err(Fault::Kind(format!("{} is not a name", python(value)))),
        other => Ok(python(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_compare_as_in_python() {
        assert!(equal(&json!(1), &json!(true)) && equal(&json!(0), &json!(false)) && equal(&json!(1.0), &json!(1)));
        assert!(!equal(&json!("1"), &json!(1)) && !equal(&json!(null), &json!(false)));
        assert!(equal(&json!([1, {"a": true}]), &json!([true, {"a": 1}])));
        assert!(contains(&json!("ceph-osd"), &json!("ceph")).unwrap());
        assert!(contains(&json!({"a": 1}), &json!("a")).unwrap() && contains(&json!(2), &json!("a")).is_err());
    }

    #[test]
    fn values_print_as_in_python() {
        assert_eq!(python(&json!(["a", null, true, "it's", {"k": 1}])), "['a', None, True, \"it's\", {'k': 1}]");
    }
}
