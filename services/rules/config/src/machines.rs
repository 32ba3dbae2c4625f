//! What a provider's labels come to: images, flavors, labels, sections and the provider put together.
//!
//! There are two orders. Zuul 14's holds for objects written as today; that of "Nodepool in Zuul" for a
//! provider in whose making an object in that document's spelling has a part. Both are told side by side
//! in `docs/older-spellings.md`.

use std::collections::BTreeMap;

use gatelog_record::Value;

use crate::dialect::nodes::modern_key;
use crate::layout::Layout;
use crate::objects::NamedObject;
use crate::objects::pipeline::texts;

/// Attributes of a machine, or of a layer of what makes one.
pub type Attributes = BTreeMap<String, Value>;

/// Sections in one chain; more is a circle.
const MAX_SECTIONS: usize = 100;

/// Which order of merging made a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of Zuul 14.
    Zuul,
    /// That of "Nodepool in Zuul".
    Document,
}

/// A label as one provider offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The label.
    pub label: String,
    /// Its image, where it has one.
    pub image: Option<String>,
    /// Its flavor, where it has one.
    pub flavor: Option<String>,
    /// The connection; none for static nodes of a section without one.
    pub connection: Option<String>,
    /// Everything said about it.
    pub attributes: Attributes,
    /// Static nodes of its sections that bear the label, as they were given.
    pub nodes: Vec<Value>,
    /// Which order made it.
    pub order: Order,
}

/// Keys that say how objects hang together, and nothing about a machine.
const STRUCTURE: &[&str] = &[
    "name",
    "description",
    "type",
    "image",
    "flavor",
    "images",
    "flavors",
    "labels",
    "parent",
    "abstract",
    "section",
    "connection",
    "nodes",
    "aliases",
    "final",
    "image-defaults",
    "flavor-defaults",
    "label-defaults",
];

/// The labels of a provider, in the order in which it lists them; none when there is no such provider.
/// What it names and nobody defines is left out: loading has told of it.
pub fn of_provider(layout: &Layout, provider: &str) -> Option<Vec<Machine>> {
    let provider = layout.named.get("provider")?.get(provider)?;
    let mut chain: Vec<&NamedObject> = vec![provider];
    let mut next = text(provider, "section");
    while let Some(section) = next.and_then(|name| layout.named.get("section")?.get(name)) {
        if chain.len() > MAX_SECTIONS {
            break;
        }
        chain.push(section);
        next = text(section, "parent");
    }
    chain.reverse();
    let connection = chain.iter().filter_map(|layer| text(layer, "connection")).next_back();
    let mut names: Vec<&str> = Vec::new();
    for entry in chain.iter().flat_map(|layer| listed(layer, "labels")) {
        if !names.contains(&entry.0) {
            names.push(entry.0);
        }
    }
    let machine = |name: &str| {
        let label = layout.named.get("label")?.get(name)?;
        let part = |class: &str, name: &str| layout.named.get(class)?.get(name).map(|object| &**object);
        // Older spellings: a label that names no image has that of its own name, if there is one.
        let image = part("image", text(label, "image").unwrap_or(name));
        let flavor = text(label, "flavor").and_then(|flavor| part("flavor", flavor));
        let parts = Parts { image, flavor, label };
        let objects = [parts.image, parts.flavor, Some(parts.label)];
        let older = objects.into_iter().flatten().chain(chain.iter().copied()).any(|object| object.older);
        let (order, attributes) = match older {
            true => (Order::Document, document(&parts, &chain)),
            false => (Order::Zuul, zuul(&parts, &chain)),
        };
        Some(Machine {
            label: name.to_owned(),
            image: parts.image.map(|image| image.name.clone()),
            flavor: parts.flavor.map(|flavor| flavor.name.clone()),
            connection: connection.map(str::to_owned),
            attributes,
            nodes: static_nodes(&chain, name),
            order,
        })
    };
    Some(names.into_iter().filter_map(machine).collect())
}

fn static_nodes(chain: &[&NamedObject], label: &str) -> Vec<Value> {
    let nodes = chain.iter().filter_map(|layer| match layer.attributes.get("nodes") {
        Some(Value::List(nodes)) => Some(nodes),
        _ => None,
    });
    let bears = |node: &&Value| {
        let Some(node) = node.as_map() else { return false };
        ["label", "labels", "aliases"].iter().any(|key| texts(node, key).contains(&label))
    };
    nodes.flatten().filter(bears).cloned().collect()
}

struct Parts<'a> {
    image: Option<&'a NamedObject>,
    flavor: Option<&'a NamedObject>,
    label: &'a NamedObject,
}

impl Parts<'_> {
    fn named(&self, class: &str) -> Option<&NamedObject> {
        match class {
            "image" => self.image,
            "flavor" => self.flavor,
            _ => Some(self.label),
        }
    }
}

fn text<'a>(object: &'a NamedObject, name: &str) -> Option<&'a str> {
    object.attributes.get(name).and_then(Value::as_str)
}

/// The entries of `images`, `flavors` or `labels`: names, and what is said with each.
fn listed<'a>(layer: &'a NamedObject, key: &str) -> Vec<(&'a str, Option<&'a Attributes>)> {
    let Some(Value::List(items)) = layer.attributes.get(key) else { return Vec::new() };
    let entry = |item: &'a Value| match item {
        Value::Str(name) => Some((name.as_str(), None)),
        Value::Map(map) => Some((map.get("name").and_then(Value::as_str)?, Some(map))),
        _ => None,
    };
    items.iter().filter_map(entry).collect()
}

/// Scalars override, dictionaries merge, lists are put one after the other.
fn merge(into: &mut Attributes, from: &Attributes) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Map(below)), Value::Map(added)) => merge(below, added),
            (Some(Value::List(below)), Value::List(added)) => below.extend(added.iter().cloned()),
            (Some(slot), _) => *slot = value.clone(),
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// What a layer says about machines, under today's names.
fn said(attributes: &Attributes) -> Attributes {
    let about = attributes.iter().filter(|(key, _)| !STRUCTURE.contains(&key.as_str()));
    about.map(|(key, value)| (modern_key(key).to_owned(), value.clone())).collect()
}

/// "Nodepool in Zuul": image, flavor, label, sections, images and flavors in sections, the provider, its
/// images, its labels; later ones override.
fn document(parts: &Parts<'_>, chain: &[&NamedObject]) -> Attributes {
    let mut made = Attributes::new();
    for object in [parts.image, parts.flavor, Some(parts.label)].into_iter().flatten() {
        merge(&mut made, &said(&object.attributes));
    }
    let Some((provider, sections)) = chain.split_last() else { return made };
    for section in sections {
        merge(&mut made, &said(&section.attributes));
    }
    let within = |made: &mut Attributes, layer: &NamedObject, class: &str| {
        let Some(object) = parts.named(class) else { return };
        for (name, entry) in listed(layer, &format!("{class}s")) {
            if let Some(entry) = entry.filter(|_| name == object.name) {
                merge(made, &said(entry));
            }
        }
    };
    for class in ["image", "flavor"] {
        sections.iter().for_each(|section| within(&mut made, section, class));
    }
    merge(&mut made, &said(&provider.attributes));
    for class in ["image", "flavor", "label"] {
        within(&mut made, provider, class);
    }
    made
}

/// Zuul 14: what is said at the top of sections and provider merges downwards; of images, flavors and
/// labels the lowest entry counts alone, what it leaves open is taken from the object of that name, then
/// from the defaults; `tags` merge.
fn zuul(parts: &Parts<'_>, chain: &[&NamedObject]) -> Attributes {
    let mut made = Attributes::new();
    for layer in chain {
        merge(&mut made, &said(&layer.attributes));
    }
    for class in ["image", "flavor", "label"] {
        let Some(object) = parts.named(class) else { continue };
        let mut defaults = Attributes::new();
        let mut entry: Option<Attributes> = None;
        for layer in chain {
            if let Some(Value::Map(given)) = layer.attributes.get(&format!("{class}-defaults")) {
                merge(&mut defaults, given);
            }
            for (_, given) in listed(layer, &format!("{class}s")).into_iter().filter(|(name, _)| *name == object.name) {
                let mut given = given.cloned().unwrap_or_default();
                // A final entry is completed where it stands; what comes below does not reach it.
                if given.get("final").is_some_and(|closed| *closed != Value::Bool(false)) {
                    complete(&mut given, &object.attributes);
                    complete(&mut given, &defaults);
                }
                entry = Some(given);
            }
        }
        let mut entry = entry.unwrap_or_default();
        if entry.get("final").is_none_or(|closed| *closed == Value::Bool(false)) {
            complete(&mut entry, &object.attributes);
            complete(&mut entry, &defaults);
        }
        let tags = made.remove("tags");
        made.extend(said(&entry));
        if let Some(tags) = tags {
            complete(&mut made, &Attributes::from([("tags".to_owned(), tags)]));
        }
    }
    made
}

/// Adds what is missing; of `tags`, key by key.
fn complete(entry: &mut Attributes, from: &Attributes) {
    for (key, value) in from {
        match (entry.get_mut(key), value) {
            (None, _) => {
                entry.insert(key.clone(), value.clone());
            }
            (Some(Value::Map(tags)), Value::Map(more)) if key == "tags" => {
                for (key, value) in more {
                    tags.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            _ => {}
        }
    }
}
