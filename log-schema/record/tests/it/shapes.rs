//! The shape of each kind, as text in its golden, and what a shape may not be made of.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use serde_reflection::{Registry, Samples, Tracer, TracerConfig};

use crate::{crate_file, records};

fn registry() -> Registry {
    let mut tracer = Tracer::new(TracerConfig::default().is_human_readable(false));
    let mut samples = Samples::new();
    for event in records::events().iter().flat_map(|kind| &kind.samples) {
        tracer.trace_value(&mut samples, event).unwrap();
    }
    for input in records::inputs().iter().flat_map(|kind| &kind.samples) {
        tracer.trace_value(&mut samples, input).unwrap();
    }
    tracer.registry().unwrap()
}

/// The names of containers anywhere in a shape.
fn named(shape: &Value, names: &mut Vec<String>) {
    match shape {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(name) if key == "TYPENAME" => names.push(name.clone()),
                    _ => named(value, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named(item, names)),
        _ => {}
    }
}

/// A format in a few characters: `Name`, `u32`, `str?` (may be missing), `[u8]`, `[u8; 16]`, `{str: Value}`, `(u64, u32)`.
fn brief(format: &Value) -> String {
    let of = |format: &Value, name: &str| brief(&format[name]);
    match format {
        Value::String(primitive) => primitive.to_lowercase(),
        Value::Array(items) => format!("({})", items.iter().map(brief).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => match map.iter().next().map(|(kind, of)| (kind.as_str(), of)) {
            Some(("TYPENAME", name)) => name.as_str().unwrap().to_owned(),
            Some(("OPTION", inner)) => brief(inner) + "?",
            Some(("SEQ", inner)) => format!("[{}]", brief(inner)),
            Some(("MAP", inner)) => format!("{{{}: {}}}", of(inner, "KEY"), of(inner, "VALUE")),
            Some(("TUPLE", items)) => brief(items),
            Some(("TUPLEARRAY", inner)) => format!("[{}; {}]", of(inner, "CONTENT"), inner["SIZE"]),
            other => panic!("a format this test does not know: {other:?}"),
        },
        other => panic!("a format this test does not know: {other}"),
    }
}

/// A struct's fields in order.
fn fields(fields: &Value) -> Value {
    let fields = fields.as_array().unwrap().iter().flat_map(|field| field.as_object().unwrap());
    Value::Object(fields.map(|(name, format)| (name.clone(), brief(format).into())).collect())
}

/// A struct's fields or an enum's variants, each with its number.
fn container(shape: &Value) -> Value {
    let shape = shape.as_object().and_then(|map| map.iter().next());
    match shape.map(|(kind, of)| (kind.as_str(), of)) {
        None => "()".into(),
        Some(("NEWTYPESTRUCT" | "TUPLESTRUCT", inner)) => brief(inner).into(),
        Some(("STRUCT", of)) => fields(of),
        Some(("ENUM", variants)) => {
            let variants = variants.as_object().unwrap().iter().flat_map(|(number, variant)| {
                let named = variant.as_object().unwrap().iter();
                named.map(move |(name, format)| (format!("{number} {name}"), variant_shape(format)))
            });
            Value::Object(variants.collect())
        }
        Some((other, _)) => panic!("a container this test does not know: {other}"),
    }
}

fn variant_shape(format: &Value) -> Value {
    match format.as_object().and_then(|map| map.iter().next()).map(|(kind, of)| (kind.as_str(), of)) {
        None => "()".into(),
        Some(("STRUCT", of)) => fields(of),
        Some((_, of)) => brief(of).into(),
    }
}

/// A shape and all it is made of.
fn closure(registry: &BTreeMap<String, Value>, start: &Value) -> Value {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let mut ahead = Vec::new();
    named(start, &mut ahead);
    let body = ahead.first().cloned().unwrap_or_default();
    while let Some(name) = ahead.pop() {
        let shape = &registry[&name];
        if found.insert(name, container(shape)).is_none() {
            named(shape, &mut ahead);
        }
    }
    let mut of: Map<String, Value> = Map::new();
    of.insert("body".to_owned(), body.into());
    of.extend(found);
    Value::Object(of)
}

/// For each kind's name, its shape.
pub fn by_kind() -> BTreeMap<&'static str, Value> {
    let registry: BTreeMap<String, Value> =
        registry().into_iter().map(|(name, shape)| (name, serde_json::to_value(shape).unwrap())).collect();
    let member = |root: &str, path: [usize; 2]| {
        let variant = |of: &str, index: usize| registry[of]["ENUM"][index.to_string()].clone();
        let mut family = Vec::new();
        named(&variant(root, path[0]), &mut family);
        closure(&registry, &variant(&family[0], path[1]))
    };
    let events = records::events().into_iter().map(|kind| (kind.info.name, member("Event", kind.path)));
    let inputs: Vec<_> =
        records::inputs().into_iter().map(|kind| (kind.info.name, member("Input", kind.path))).collect();
    events.chain(inputs).collect()
}

/// serde features that need bytes that describe themselves, or leave some of them out.
const FEATURES: &[&str] = &[
    "flatten",
    "untagged",
    "tag",
    "content",
    "skip",
    "skip_serializing",
    "skip_deserializing",
    "skip_serializing_if",
    "default",
    "other",
    "with",
    "serialize_with",
    "deserialize_with",
];

/// Types that are not the same everywhere, have no exact bytes or no order.
const TYPES: &[&str] = &[
    "f32",
    "f64",
    "usize",
    "isize",
    "HashMap",
    "HashSet",
    "serde_json::Value",
    "PathBuf",
    "OsString",
    "Instant",
    "SystemTime",
    "Duration",
    "char",
];

/// What of a source may not be on the log: line and what.
fn faults(source: &str, with_types: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    for (number, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if let Some((_, attribute)) = code.split_once("serde(") {
            for word in attribute.split(|letter| !is_word(letter)).filter(|word| FEATURES.contains(word)) {
                faults.push(format!("{}: serde's {word} cannot be carried by bincode", number + 1));
            }
        }
        for name in TYPES.iter().filter(|_| with_types) {
            let alone = |(at, _): (usize, &str)| {
                !code[..at].ends_with(is_word) && !code[at + name.len()..].starts_with(is_word)
            };
            if code.match_indices(name).any(alone) {
                faults.push(format!("{}: {name} may not be on the log", number + 1));
            }
        }
    }
    faults
}

/// Every source under a folder of this crate.
fn sources(folder: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![crate_file(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.display().to_string(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn shapes_are_made_of_what_bincode_can_carry() {
    let mut wrong = Vec::new();
    for (folder, with_types) in [("src", false), ("src/draft", true), ("src/frozen", true)] {
        let sources = sources(folder);
        assert!(!sources.is_empty(), "{folder} is empty");
        for (file, source) in sources {
            wrong.extend(faults(&source, with_types).into_iter().map(|fault| format!("{file}:{fault}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn what_bincode_cannot_carry_is_named_with_its_line() {
    let source = "struct A {\n    #[serde(flatten)]\n    a: B,\n    // f64 in a comment\n    b: Option<f64>,\n    \
        #[serde(rename = \"x\", skip_serializing_if = \"Option::is_none\")]\n    c: serde_json::Value,\n    \
        d: HashMap<String, usize>,\n    my_usize: u8,\n}\n#[serde(tag = \"kind\", content = \"body\")]\nenum E {}\n\
        #[serde(untagged)]\nenum U {}\n";
    assert_eq!(
        faults(source, true),
        [
            "2: serde's flatten cannot be carried by bincode",
            "5: f64 may not be on the log",
            "6: serde's skip_serializing_if cannot be carried by bincode",
            "7: serde_json::Value may not be on the log",
            "8: usize may not be on the log",
            "8: HashMap may not be on the log",
            "11: serde's tag cannot be carried by bincode",
            "11: serde's content cannot be carried by bincode",
            "13: serde's untagged cannot be carried by bincode",
        ]
    );
}

#[test]
fn the_shape_of_a_kind_names_all_it_is_made_of() {
    let shape = &by_kind()["sample"];
    assert_eq!(
        shape,
        &serde_json::json!({
            "body": "Sample",
            "Sample": { "name": "str", "count": "u64", "note": "str?" }
        })
    );
}
