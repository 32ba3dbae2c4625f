//! Writing YAML for Ansible: block style, strings quoted so that nothing is read as anything else,
//! and `!unsafe` on text from outside so that it is never taken as a template.

use std::collections::BTreeMap;

use gatelog_record::Value;

/// A node of a YAML document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Yaml {
    /// A plain value.
    Value(Value),
    /// Text that must never be taken as a template.
    Unsafe(String),
    /// A map in the order given.
    Map(Vec<(String, Yaml)>),
    /// A list.
    List(Vec<Yaml>),
}

impl Yaml {
    /// Text.
    pub(crate) fn text(text: impl Into<String>) -> Yaml {
        Yaml::Value(Value::Str(text.into()))
    }

    /// A list of text.
    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Yaml {
        Yaml::List(texts.into_iter().map(Yaml::text).collect())
    }

    /// A map of plain values.
    pub(crate) fn values(map: &BTreeMap<String, Value>) -> Yaml {
        Yaml::Map(map.iter().map(|(key, value)| (key.clone(), Yaml::Value(value.clone()))).collect())
    }

    /// A value in which no text is ever taken as a template.
    pub(crate) fn literal(value: &Value) -> Yaml {
        match value {
            Value::Str(text) => Yaml::Unsafe(text.clone()),
            Value::List(items) => Yaml::List(items.iter().map(Yaml::literal).collect()),
            Value::Map(map) => Yaml::Map(map.iter().map(|(key, value)| (key.clone(), Yaml::literal(value))).collect()),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Number(_) => Yaml::Value(value.clone()),
        }
    }

    /// A whole document.
    pub(crate) fn document(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0, false);
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out
    }

    /// The same with all marks left out: for people and for readers that do not know them.
    pub(crate) fn without_marks(&self) -> Yaml {
        match self {
            Yaml::Value(value) => Yaml::Value(value.clone()),
            Yaml::Unsafe(text) => Yaml::text(text),
            Yaml::Map(map) => Yaml::Map(map.iter().map(|(key, value)| (key.clone(), value.without_marks())).collect()),
            Yaml::List(list) => Yaml::List(list.iter().map(Yaml::without_marks).collect()),
        }
    }

    fn write(&self, out: &mut String, indent: usize, inline: bool) {
        match self {
            Yaml::Value(value) => write_value(value, out, indent, inline),
            Yaml::Unsafe(text) => {
                out.push_str("!unsafe ");
                quote(text, out);
            }
            Yaml::Map(map) => {
                write_map(map.iter().map(|(key, value)| (key.as_str(), value)), out, indent, inline, Yaml::write);
            }
            Yaml::List(list) => write_list(list, out, indent, inline, Yaml::write),
        }
    }
}

fn write_value(value: &Value, out: &mut String, indent: usize, inline: bool) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        // A number whose text is not a number after all stays text.
        Value::Number(text) => match serde_json::from_str::<serde_json::Number>(text) {
            Ok(_) => out.push_str(text),
            Err(_) => quote(text, out),
        },
        Value::Str(text) => quote(text, out),
        Value::List(list) => write_list(list, out, indent, inline, write_value),
        Value::Map(map) => {
            write_map(map.iter().map(|(key, value)| (key.as_str(), value)), out, indent, inline, write_value);
        }
    }
}

/// `inline`: the cursor stands behind `- `, so the first line needs no indentation.
fn write_map<'a, T: 'a>(
    map: impl ExactSizeIterator<Item = (&'a str, &'a T)>,
    out: &mut String,
    indent: usize,
    inline: bool,
    write: fn(&T, &mut String, usize, bool),
) {
    if map.len() == 0 {
        out.push_str("{}");
        return;
    }
    if !inline {
        begin_block(out);
    }
    for (position, (key, value)) in map.enumerate() {
        if !(position == 0 && inline) {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        write_key(key, out);
        out.push_str(": ");
        write(value, out, indent + 2, false);
        end_line(out);
    }
}

fn write_list<T>(list: &[T], out: &mut String, indent: usize, inline: bool, write: fn(&T, &mut String, usize, bool)) {
    if list.is_empty() {
        out.push_str("[]");
        return;
    }
    if !inline {
        begin_block(out);
    }
    for (position, value) in list.iter().enumerate() {
        if !(position == 0 && inline) {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        out.push_str("- ");
        write(value, out, indent + 2, true);
        end_line(out);
    }
}

/// The block starts on a line of its own, without a space left behind `key:`.
fn begin_block(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    if !out.is_empty() {
        out.push('\n');
    }
}

fn end_line(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

/// Keys that need no quotes: names that no YAML reader takes for a truth value or a number.
fn write_key(key: &str, out: &mut String) {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"];
    let plain = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        && !WORDS.contains(&key.to_ascii_lowercase().as_str());
    if plain { out.push_str(key) } else { quote(key, out) }
}

/// A double-quoted scalar on one line.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' => out.push(c),
            '\u{ff00}'..='\u{fffd}' | '\u{10000}'.. => out.push(c),
            _ => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_as_anything_else() {
        let json = serde_json::json!({
            "yes": "no", "list": [1, [2, []], {"a": {"b": null}, "c": []}, {}], "text": "a\n\"b\"\u{7f}: {{ x }}",
            "half": 0.5, "empty": {}, "9": true
        });
        let yaml = Yaml::Map(vec![
            ("plain".into(), Yaml::Value(Value::from_json(&json))),
            ("message".into(), Yaml::Unsafe("{{ lookup('env', 'HOME') }}".into())),
            ("names".into(), Yaml::texts(["a", "b"])),
        ]);
        let expected = r#"plain:
  "9": true
  empty: {}
  half: 0.5
  list:
    - 1
    - - 2
      - []
    - a:
        b: null
      c: []
    - {}
  text: "a\n\"b\"\u007f: {{ x }}"
  "yes": "no"
message: !unsafe "{{ lookup('env', 'HOME') }}"
names:
  - "a"
  - "b"
"#;
        assert_eq!(yaml.document(), expected);
    }
}
