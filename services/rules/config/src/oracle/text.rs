//! JSON as Python's `json.dumps` writes it.

use std::fmt::Write as _;

use gatelog_record::BlobHash;
use serde_json::Value as Json;

/// One line, keys sorted, no blanks, everything beyond ASCII as it is.
pub(super) fn compact(value: &Json) -> String {
    let mut out = String::new();
    write(&mut out, value, (",", ":"), false);
    out
}

/// The first 16 digits of the SHA-256 of the usual form: blanks after commas and colons, ASCII only.
pub(super) fn hash(value: &Json) -> String {
    let mut out = String::new();
    write(&mut out, value, (", ", ": "), true);
    BlobHash::of(out.as_bytes()).to_string().chars().take(16).collect()
}

fn write(out: &mut String, value: &Json, marks: (&str, &str), ascii: bool) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        // Writing to a String does not fail.
        Json::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Json::String(text) => write_text(out, text, ascii),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(marks.0);
                }
                write(out, item, marks, ascii);
            }
            out.push(']');
        }
        Json::Object(map) => {
            let mut entries: Vec<(&String, &Json)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push_str(marks.0);
                }
                write_text(out, key, ascii);
                out.push_str(marks.1);
                write(out, item, marks, ascii);
            }
            out.push('}');
        }
    }
}

fn write_text(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_written_as_python_does() {
        let value = serde_json::json!({"b": [1, null, true, 9.5], "a": "x\n\u{1}\u{e9}\u{1f600}"});
        assert_eq!(compact(&value), "{\"a\":\"x\\n\\u0001\u{e9}\u{1f600}\",\"b\":[1,null,true,9.5]}");
        // printf '{"a": "\\u00e9"}' | sha256sum
        assert_eq!(hash(&serde_json::json!({"a": "\u{e9}"})), "1bb044a097f285c5");
    }
}
