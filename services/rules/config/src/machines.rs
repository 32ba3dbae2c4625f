//! What a provider's labels come to: images, flavors, labels, sections and the provider put together.
//!
//! There are two orders. Zuul 14's holds for objects written as today; that of "Nodepool in Zuul" for a
//! provider in whose making an object in that document's spelling has a part. Both are told side by side
//! in `docs/older-spellings.md`.

use gatelog_record::Value;

use crate::dialect::nodes::modern_key;
use crate::layout::Layout;
use crate::objects::NamedObject;
use crate::objects::pipeline::texts;
use crate::providers::merge::{Attributes, MergedProvider, chain, listed, merge};

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
    let merged = layout.merged_provider(provider)?;
    let chain = chain(layout, layout.named.get("provider")?.get(provider)?);
    let mut names: Vec<&str> = Vec::new();
    for entry in chain.iter().flat_map(|layer| listed(layer, "label")) {
        if !names.contains(&entry.0) {
            names.push(entry.0);
        }
    }
    let machine = |name: &str| {
        let label = layout.named.get("label")?.get(name)?;
        let part = |class: &str, name: &str| layout.named.get(class)?.get(name).map(|object| &**object);
        let entry = merged.entry("label", name);
        let named = |key: &str| entry.and_then(|entry| entry.get(key)?.as_str()).or(text(label, key));
        // Older spellings: a label that names no image has that of its own name, if there is one.
        let image = part("image", named("image").unwrap_or(name));
        let flavor = named("flavor").and_then(|flavor| part("flavor", flavor));
        let parts = Parts { image, flavor, label };
        let objects = [parts.image, parts.flavor, Some(parts.label)];
        let older = objects.into_iter().flatten().chain(chain.iter().copied()).any(|object| object.older);
        let (order, attributes) = match older {
            true => (Order::Document, document(&parts, &chain)),
            false => (Order::Zuul, zuul(layout, &parts, &merged)),
        };
        Some(Machine {
            label: name.to_owned(),
            image: parts.image.map(|image| image.name.clone()),
            flavor: parts.flavor.map(|flavor| flavor.name.clone()),
            connection: merged.connection.clone(),
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
        for (name, entry) in listed(layer, class) {
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

/// Zuul 14: what is said at the top of sections and provider, and the completed entries of image, flavor and label;
/// `tags` merge.
fn zuul(layout: &Layout, parts: &Parts<'_>, merged: &MergedProvider) -> Attributes {
    let mut made = said(&merged.attributes);
    for class in ["image", "flavor", "label"] {
        let Some(object) = parts.named(class) else { continue };
        let entry = merged.entry(class, &object.name).cloned().unwrap_or_else(|| {
            // The provider does not list it: then there is what it says itself.
            let mut entry = Attributes::from([("name".to_owned(), Value::Str(object.name.clone()))]);
            layout.complete(class, &mut entry, &Attributes::new());
            entry
        });
        let mut entry = said(&entry);
        if let (Some(Value::Map(below)), Some(Value::Map(tags))) = (made.get("tags"), entry.get_mut("tags")) {
            let mut below = below.clone();
            merge(&mut below, tags);
            *tags = below;
        }
        made.extend(entry);
    }
    made
}
