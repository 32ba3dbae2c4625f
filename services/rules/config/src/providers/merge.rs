//! A provider and its sections put together.
//!
//! Zuul: `ProviderConfig.flattenConfig`. From the root section down everything merges (dictionaries key by key, lists one
//! after the other, the rest by the lower value), but for images, flavors and labels: there an entry takes the place of one
//! of the same name above it. What an entry leaves open comes from the image, flavor or label itself, and last from
//! `image-defaults`, `flavor-defaults` or `label-defaults`.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::MAX_SECTIONS;
use crate::layout::Layout;
use crate::objects::NamedObject;

/// Attributes of an entry, or of a provider.
pub type Attributes = BTreeMap<String, Value>;

/// Classes of objects that entries of sections and providers are about.
pub(crate) const CLASSES: [&str; 3] = ["image", "flavor", "label"];

/// What of the object itself counts in a provider. Zuul: what an image says of retention does not, and how many nodes of a
/// label there may be is the label's alone.
const OF_OBJECT: &[&str] =
    &["name", "type", "description", "image", "flavor", "max-ready-age", "max-age", "min-retention-time", "aliases"];
/// Defaults that only images that Zuul makes take.
const OF_ZUUL_IMAGES: &[&str] = &[
    "upload-methods",
    "tags",
    "retain-count",
    "max-retain-count",
    "import-method",
    "image-format",
    "imds-support",
    "architecture",
    "ena-support",
    "config-drive",
];
const OF_LABEL_ALONE: &[&str] = &["min-ready", "max-nodes"];

/// A provider with everything its sections say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedProvider {
    /// Its name.
    pub name: String,
    /// Its connection; none where no section of the chain has one.
    pub connection: Option<String>,
    /// What stands at the top of the provider and its sections, images, flavors and labels left out.
    pub attributes: Attributes,
    /// Images it offers, completed, in the order of their first mention; each has a `name`.
    pub images: Vec<Attributes>,
    /// Flavors it offers, likewise.
    pub flavors: Vec<Attributes>,
    /// Labels it offers, likewise.
    pub labels: Vec<Attributes>,
}

impl MergedProvider {
    /// The entry of an `image`, `flavor` or `label`.
    pub fn entry(&self, class: &str, name: &str) -> Option<&Attributes> {
        let entries = match class {
            "image" => &self.images,
            "flavor" => &self.flavors,
            _ => &self.labels,
        };
        entries.iter().find(|entry| name_of(entry) == name)
    }

    fn entries(&mut self, class: &str) -> &mut Vec<Attributes> {
        match class {
            "image" => &mut self.images,
            "flavor" => &mut self.flavors,
            _ => &mut self.labels,
        }
    }

    fn defaults(&self, class: &str) -> Attributes {
        self.attributes.get(&format!("{class}-defaults")).and_then(Value::as_map).cloned().unwrap_or_default()
    }

    /// How many nodes it may have at once, if it says.
    fn instances(&self) -> Option<i64> {
        match self.attributes.get("resource-limits")?.as_map()?.get("instances")? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

fn name_of(entry: &Attributes) -> &str {
    entry.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The provider with its sections, the root first. What is named and not there ends the chain: loading has told of it.
pub(crate) fn chain<'l>(layout: &'l Layout, provider: &'l NamedObject) -> Vec<&'l NamedObject> {
    let text = |object: &'l NamedObject, name: &str| object.attributes.get(name).and_then(Value::as_str);
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
    chain
}

/// The entries of `images`, `flavors` or `labels`: names, and what is said with each.
pub(crate) fn listed<'a>(layer: &'a NamedObject, class: &str) -> Vec<(&'a str, Option<&'a Attributes>)> {
    let Some(Value::List(items)) = layer.attributes.get(&format!("{class}s")) else { return Vec::new() };
    let entry = |item: &'a Value| match item {
        Value::Str(name) => Some((name.as_str(), None)),
        Value::Map(map) => Some((map.get("name").and_then(Value::as_str)?, Some(map))),
        _ => None,
    };
    items.iter().filter_map(entry).collect()
}

/// Scalars override, dictionaries merge, lists are put one after the other.
pub(crate) fn merge(into: &mut Attributes, from: &Attributes) {
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

impl Layout {
    /// A provider with everything its sections say; none when there is no such provider.
    pub fn merged_provider(&self, name: &str) -> Option<MergedProvider> {
        let provider = self.named.get("provider")?.get(name)?;
        let chain = chain(self, provider);
        let connection = chain.iter().rev().find_map(|layer| layer.attributes.get("connection")?.as_str());
        let mut made = MergedProvider {
            name: name.to_owned(),
            connection: connection.map(str::to_owned),
            ..MergedProvider::default()
        };
        for layer in &chain {
            let own =
                layer.attributes.iter().filter(|(key, _)| !["images", "flavors", "labels"].contains(&key.as_str()));
            merge(&mut made.attributes, &own.map(|(key, value)| (key.clone(), value.clone())).collect());
            for class in CLASSES {
                let defaults = made.defaults(class);
                for (name, given) in listed(layer, class) {
                    let mut entry = given.cloned().unwrap_or_default();
                    entry.insert("name".to_owned(), Value::Str(name.to_owned()));
                    // What is final is complete where it stands: what comes below does not reach it.
                    if is_final(&entry) || is_final(&defaults) {
                        self.complete(class, &mut entry, &defaults);
                    }
                    match made.entries(class).iter_mut().find(|known| name_of(known) == name) {
                        Some(known) => *known = entry,
                        None => made.entries(class).push(entry),
                    }
                }
            }
        }
        for class in CLASSES {
            let defaults = made.defaults(class);
            for entry in made.entries(class).iter_mut() {
                if !is_final(entry) {
                    self.complete(class, entry, &defaults);
                }
                let object = self.named.get(class).and_then(|all| all.get(name_of(entry)));
                for key in OF_LABEL_ALONE.iter().filter(|_| class == "label") {
                    let own = object.and_then(|object| object.attributes.get(*key)).cloned();
                    match own {
                        Some(own) => entry.insert((*key).to_owned(), own),
                        None => entry.remove(*key),
                    };
                }
            }
        }
        Some(made)
    }

    /// Adds to an entry what it leaves open: from the object of its name, then from the defaults.
    pub(crate) fn complete(&self, class: &str, entry: &mut Attributes, defaults: &Attributes) {
        if let Some(object) = self.named.get(class).and_then(|all| all.get(name_of(entry))) {
            let own = object.attributes.iter().filter(|(key, _)| OF_OBJECT.contains(&key.as_str()));
            let mut below: Attributes = own.map(|(key, value)| (key.clone(), value.clone())).collect();
            merge(&mut below, entry);
            *entry = below;
        }
        // Zuul: what is about making images is nothing to those that are there already.
        let made_elsewhere = class == "image" && entry.get("type").and_then(Value::as_str) == Some("cloud");
        for (key, value) in
            defaults.iter().filter(|(key, _)| !made_elsewhere || !OF_ZUUL_IMAGES.contains(&key.as_str()))
        {
            match (entry.get_mut(key), value) {
                (None, _) => {
                    entry.insert(key.clone(), value.clone());
                }
                // Of tags alone the defaults are merged below what is there.
                (Some(Value::Map(tags)), Value::Map(more)) if key == "tags" => {
                    let mut below = more.clone();
                    merge(&mut below, tags);
                    *tags = below;
                }
                _ => {}
            }
        }
    }

    /// The providers that can give nodes with these labels (one for each node). Zuul: where a single provider could ever
    /// give all of them, they come from one; only elsewhere each label from any that has it.
    pub fn serving(&self, labels: &[&str]) -> Serving {
        let names = self.named.get("provider").into_iter().flatten().map(|(name, _)| name.as_str());
        let providers: Vec<MergedProvider> = names.filter_map(|name| self.merged_provider(name)).collect();
        let offers = |provider: &MergedProvider, label: &str| provider.entry("label", label).is_some();
        let nodes = i64::try_from(labels.len()).unwrap_or(i64::MAX);
        let whole = providers.iter().filter(|provider| {
            labels.iter().all(|label| offers(provider, label)) && provider.instances().is_none_or(|most| nodes <= most)
        });
        let whole: Vec<String> = whole.map(|provider| provider.name.clone()).collect();
        if !whole.is_empty() {
            return Serving::OneOf(whole);
        }
        let each = labels.iter().collect::<BTreeSet<_>>().into_iter().map(|label| {
            let able = providers.iter().filter(|provider| offers(provider, label));
            let able = able.filter(|provider| provider.instances().is_none_or(|most| most > 0));
            ((*label).to_owned(), able.map(|provider| provider.name.clone()).collect())
        });
        Serving::Each(each.collect())
    }
}

/// Which providers can give a node set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// All its nodes come from one of these.
    OneOf(Vec<String>),
    /// None of them could ever give all of its nodes; for each label those that have it, perhaps nobody.
    Each(BTreeMap<String, Vec<String>>),
}

/// Zuul: `true`, or `allow-override`.
fn is_final(attributes: &Attributes) -> bool {
    match attributes.get("final") {
        Some(Value::Bool(closed)) => *closed,
        Some(Value::Str(word)) => !word.is_empty(),
        _ => false,
    }
}
