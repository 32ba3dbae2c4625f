//! Images, flavors, labels, sections and providers as "Nodepool in Zuul" has them: whatever describes a
//! machine may stand in any of them.

use crate::objects::named::{DESCRIPTION, NAME};
use crate::schema::{Attribute, Kind, Sink, attribute};
use crate::yaml::{Entry, Mark, Node};

const IN_IMAGES: &str = "it in `images` of a section or provider, or `image-defaults` there";
const IN_FLAVORS: &str = "it in `flavors` of a section, or `flavor-defaults` there";
const IN_LABELS: &str = "it in `labels` of a section or provider, or `label-defaults` there";

const fn of_image(name: &'static str) -> Attribute {
    attribute(name, Kind::Special).older(IN_IMAGES)
}

const fn of_flavor(name: &'static str) -> Attribute {
    attribute(name, Kind::Special).older(IN_FLAVORS)
}

const fn of_label(name: &'static str) -> Attribute {
    attribute(name, Kind::Special).older(IN_LABELS)
}

/// What an image, flavor or label may say in older spellings, beside what it may say today.
pub(crate) const MACHINE: &[Attribute] = &[
    of_image("username"),
    of_image("connection-type"),
    of_image("connection-port"),
    of_image("python-path"),
    of_image("shell-type"),
    of_image("import-timeout"),
    of_image("userdata"),
    of_image("upload-methods"),
    of_image("image-id"),
    of_image("image-name"),
    of_image("image-filters"),
    of_image("config-drive"),
    of_image("volume-size"),
    of_image("volume-type"),
    of_flavor("public-ipv4"),
    of_flavor("public-ipv6"),
    of_flavor("cloud-flavor"),
    of_flavor("flavor-name"),
    of_flavor("instance-type"),
    of_flavor("vm-size"),
    of_label("boot-timeout"),
    of_label("launch-timeout"),
    of_label("snapshot-timeout"),
    of_label("slots"),
    of_label("reuse"),
    of_label("executor-zone"),
    of_label("tags"),
    of_label("key-name"),
    of_label("host-key-checking"),
    of_label("az"),
    of_label("availability-zones"),
    of_label("networks"),
    of_label("subnet"),
    of_label("security-groups"),
    of_label("boot-from-volume"),
    of_label("auto-floating-ip"),
];

const NUMBER: Kind = Kind::Int { min: i64::MIN };

/// What a label may say in older spellings: without an image and a flavor it is a static node's.
pub(crate) const LABEL: &[Attribute] = &[
    NAME,
    attribute("image", Kind::Text),
    attribute("flavor", Kind::Text),
    DESCRIPTION,
    attribute("min-ready", NUMBER),
    attribute("max-ready-age", NUMBER),
    attribute("max-age", NUMBER),
    attribute("min-retention-time", NUMBER),
    attribute("max-nodes", NUMBER),
    attribute("aliases", Kind::Texts),
];

/// The connection of a section; that of static nodes was none.
pub(crate) const CONNECTION: &[Attribute] = &[attribute("connection", Kind::TextOrNull)];

/// What sections and providers take today though it is in [`MACHINE`].
const OF_SECTIONS: &[&str] = &["launch-timeout", "subnet"];

/// Keys that have another name today.
const RENAMED: &[(&str, &str)] = &[("quota", "resource-limits"), ("cloud-flavor", "flavor-name")];

/// What a key of a section, a provider, or of an entry in one is called today.
pub(crate) fn modern_key(key: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, modern)| modern)
}

/// Whether an object is written in an older spelling.
pub(crate) fn is_older(class: &str, node: &Node) -> bool {
    let entries = node.as_mapping().unwrap_or(&[]);
    let machine = |entry: &Entry| MACHINE.iter().any(|row| row.name == entry.key);
    match class {
        "label" => node.get("image").is_none() || node.get("flavor").is_none() || entries.iter().any(machine),
        "image" | "flavor" => entries.iter().any(machine),
        _ => {
            entries.iter().any(|entry| {
                let top = machine(entry) && !OF_SECTIONS.contains(&entry.key.as_str());
                top || modern_key(&entry.key) != entry.key || has_older_entries(entry)
            }) || (class == "section" && is_static(node))
        }
    }
}

fn has_older_entries(entry: &Entry) -> bool {
    let listed = ["images", "flavors", "labels"].contains(&entry.key.as_str());
    let inner = entry.value.items().iter().flat_map(|item| item.as_mapping().unwrap_or(&[]));
    listed && inner.into_iter().any(|inner| modern_key(&inner.key) != inner.key)
}

/// Static nodes stood in a section without a connection.
fn is_static(section: &Node) -> bool {
    let listed = section.get("nodes").map_or(&[][..], |entry| entry.value.items());
    section.get("connection").is_some_and(|entry| entry.value.is_null())
        || listed.iter().any(|node| node.get("labels").is_some())
}

/// Tells what of an object is an older spelling, as far as its table does not tell it.
pub(crate) fn notices(sink: &mut Sink<'_>, class: &str, node: &Node, mark: Mark) {
    match class {
        "label" if node.get("image").is_none() || node.get("flavor").is_none() => {
            super::notice(sink, mark, "a label without image or flavor", "image: NAME and flavor: NAME");
        }
        "section" | "provider" => {
            for entry in node.as_mapping().unwrap_or(&[]) {
                of_entry(sink, class, entry);
            }
        }
        _ => {}
    }
}

fn of_entry(sink: &mut Sink<'_>, class: &str, entry: &Entry) {
    let key = entry.key.as_str();
    if modern_key(key) != key {
        super::notice(sink, entry.mark, key, modern_key(key));
    } else if let Some(row) = MACHINE.iter().find(|row| row.name == key && !OF_SECTIONS.contains(&key)) {
        super::notice(sink, entry.mark, key, row.older.unwrap_or(""));
    }
    let listed = entry.value.items();
    if ["images", "flavors", "labels"].contains(&key) {
        let inner = listed.iter().flat_map(|item| item.as_mapping().unwrap_or(&[]));
        for inner in inner.filter(|inner| modern_key(&inner.key) != inner.key) {
            super::notice(sink, inner.mark, &inner.key, modern_key(&inner.key));
        }
    }
    if class == "section" && key == "connection" && entry.value.is_null() {
        super::notice(sink, entry.mark, key, "connection: NAME, that of a connection with the static driver");
    }
    if class == "section" && key == "nodes" {
        for labels in listed.iter().filter_map(|node| node.get("labels")) {
            super::notice(sink, labels.mark, "labels", "label: NAME, and the others as its aliases");
        }
    }
}
