//! The shape of each kind, as text in its golden, and what a shape may not be made of.

use std::collections::BTreeMap;

use gatelog_record::{Event, Input};
use serde_json::{Map, Value};
use serde_reflection::{ContainerFormat, Registry, Samples, Tracer, TracerConfig};

use crate::{crate_file, records};

fn registry() -> Registry {
    let mut tracer = Tracer::new(TracerConfig::default().is_human_readable(false));
    let mut samples = Samples::new();
    // The types tell which variants there are, the samples bring them all; one that is missing fails here.
    tracer.trace_type::<Event>(&samples).unwrap();
    tracer.trace_type::<Input>(&samples).unwrap();
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

/// A shape and all it is made of.
fn closure(registry: &BTreeMap<String, Value>, start: &Value) -> Value {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let mut ahead = Vec::new();
    named(start, &mut ahead);
    let body = ahead.first().cloned().unwrap_or_default();
    while let Some(name) = ahead.pop() {
        if !found.contains_key(&name) {
            let shape = registry[&name].clone();
            named(&shape, &mut ahead);
            found.insert(name, shape);
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
    let inputs: Vec<_> = records::inputs().into_iter().map(|kind| (kind.info.name, member("Input", kind.path))).collect();
    events.chain(inputs).collect()
}

/// The variants of every enum on the log.
pub fn enums() -> BTreeMap<String, Vec<String>> {
    let variants = |shape| match shape {
        ContainerFormat::Enum(variants) => Some(variants.into_values().map(|variant| variant.name).collect()),
        _ => None,
    };
    registry().into_iter().filter_map(|(name, shape)| Some((name, variants(shape)?))).collect()
}

/// serde features that need bytes that describe themselves, or leave some of them out.
const FEATURES: &[&str] = &[
    "flatten", "untagged", "tag", "content", "skip", "skip_serializing", "skip_deserializing", "skip_serializing_if",
    "default", "other", "with", "serialize_with", "deserialize_with",
];

/// Types that are not the same everywhere, have no exact bytes or no order.
const TYPES: &[&str] = &[
    "f32", "f64", "usize", "isize", "HashMap", "HashSet", "serde_json::Value", "PathBuf", "OsString", "Instant",
    "SystemTime", "Duration", "char",
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
            "Sample": { "STRUCT": [{ "name": "STR" }, { "count": "U64" }, { "note": { "OPTION": "STR" } }] }
        })
    );
}
