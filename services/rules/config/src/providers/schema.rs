//! What the driver of a provider's connection understands of it.

use std::collections::BTreeMap;

use gatelog_record::Value;

use super::merge::{Attributes, MergedProvider};
use gatelog_driver_schema::{Field, Shape, field, needed};

use crate::drivers::fields_fit;

const TEXT: Shape = Shape::Text;
const INT: Shape = Shape::Int;
const BOOL: Shape = Shape::Bool;

const FINAL: Field = field("final", Shape::Final);

const LABEL: &[Field] = &[
    field("boot-timeout", INT),
    field("max-ready-age", INT),
    field("max-age", INT),
    field("min-retention-time", INT),
    field("snapshot-timeout", INT),
    field("snapshot-expiration", INT),
    field("slots", INT),
    field("reuse", BOOL),
    field("aliases", Shape::Texts),
    field("executor-zone", TEXT),
    field("tags", Shape::TextMap),
    FINAL,
];

/// What an entry has besides, and defaults have not.
const LABEL_ENTRY: &[Field] =
    &[needed("name", TEXT), field("description", TEXT), field("image", TEXT), field("flavor", TEXT)];

/// These are the label's own, and were put in when everything was put together.
const LABEL_OBJECT: &[Field] = &[field("min-ready", INT), field("max-nodes", INT)];

const SSH_LABEL: &[Field] = &[field("key-name", TEXT), field("host-key-checking", BOOL)];

const IMAGE: &[Field] = &[
    field("username", TEXT),
    field("connection-type", Shape::Word(&["winrm", "ssh"])),
    field("connection-port", INT),
    field("python-path", TEXT),
    field("shell-type", TEXT),
    field("import-timeout", INT),
    FINAL,
];

const IMAGE_ENTRY: &[Field] =
    &[needed("name", TEXT), field("description", TEXT), needed("type", Shape::Word(&["cloud", "zuul"]))];

/// Of images that Zuul makes.
const ZUUL_IMAGE: &[Field] = &[
    field("upload-methods", Shape::ListOf(&Shape::Word(&["copy", "import", "upload"]))),
    field("tags", Shape::TextMap),
    field("retain-count", Shape::Positive),
    field("max-retain-count", Shape::Positive),
];

const FLAVOR: &[Field] = &[FINAL];
const FLAVOR_ENTRY: &[Field] = &[needed("name", TEXT), field("description", TEXT)];
const CLOUD_FLAVOR: &[Field] = &[field("public-ipv4", BOOL), field("public-ipv6", BOOL)];

const PROVIDER: &[Field] = &[
    needed("name", TEXT),
    needed("section", TEXT),
    field("label-defaults", Shape::Anything),
    field("image-defaults", Shape::Anything),
    field("flavor-defaults", Shape::Anything),
    field("abstract", BOOL),
    field("parent", TEXT),
    needed("connection", TEXT),
    field("launch-timeout", INT),
    field("launch-attempts", INT),
];

/// What one driver knows beyond what all know.
struct Driver {
    provider: &'static [Field],
    /// Of images of both kinds, of flavors and labels, too.
    image: &'static [Field],
    cloud_image: &'static [Field],
    zuul_image: &'static [Field],
    /// Of which a cloud image has exactly one.
    cloud_image_one_of: &'static [&'static str],
    flavor: &'static [Field],
    flavor_one_of: &'static [&'static str],
    /// Of label entries and of label-defaults.
    label: &'static [Field],
    /// Which of these a label entry must have.
    label_needs: &'static [&'static str],
    label_one_of: &'static [&'static str],
    /// Whether flavors may say how a machine is reached.
    clouds: bool,
}

const PLAIN: Driver = Driver {
    provider: &[],
    image: &[],
    cloud_image: &[],
    zuul_image: &[],
    cloud_image_one_of: &[],
    flavor: &[],
    flavor_one_of: &[],
    label: &[],
    label_needs: &[],
    label_one_of: &[],
    clouds: false,
};

const AWS: Driver = Driver {
    provider: &[
        needed("region", TEXT),
        field("object-storage", Shape::Fields(&[needed("bucket-name", TEXT)])),
        // Codes of quotas (`L-1216C47A`) come in addition.
        field("resource-limits", Shape::OpenFields(&[field("instances", INT), field("cores", INT), field("ram", INT)])),
    ],
    image: &[
        field("volume-size", INT),
        field("volume-type", TEXT),
        field("iops", INT),
        field("throughput", INT),
        field("imds-http-tokens", Shape::Word(&["optional", "required"])),
        field("userdata", TEXT),
    ],
    cloud_image: &[
        field("image-id", TEXT),
        field("image-filters", Shape::ListedFields(&[field("name", TEXT), field("values", Shape::Texts)])),
    ],
    cloud_image_one_of: &["image-id", "image-filters"],
    zuul_image: &[
        field("import-method", Shape::Word(&["snapshot", "image", "ebs-direct"])),
        field("image-format", Shape::Word(&["ova", "vhd", "vhdx", "vmdk", "raw", "snapshot"])),
        field("imds-support", Shape::WordOrNothing(&["v2.0"])),
        field("architecture", TEXT),
        field("ena-support", BOOL),
    ],
    flavor: &[
        field("instance-type", TEXT),
        field("dedicated-host", BOOL),
        field("ebs-optimized", BOOL),
        field("market-type", Shape::Word(&["on-demand", "spot"])),
        field(
            "fleet",
            Shape::Fields(&[
                needed("instance-types", Shape::Texts),
                needed(
                    "allocation-strategy",
                    Shape::Word(&[
                        "prioritized",
                        "price-capacity-optimized",
                        "capacity-optimized",
                        "capacity-optimized-prioritized",
                        "diversified",
                        "lowest-price",
                    ]),
                ),
            ]),
        ),
        field("nested-virtualization", BOOL),
    ],
    flavor_one_of: &["instance-type", "fleet"],
    label: &[
        field("key-name", TEXT),
        field("host-key-checking", BOOL),
        field("az", TEXT),
        field("security-group-ids", Shape::Texts),
        field("subnet-ids", Shape::Texts),
        field("iam-instance-profile", Shape::OneField(&[field("name", TEXT), field("arn", TEXT)])),
        field("kms-key-id", TEXT),
    ],
    clouds: true,
    ..PLAIN
};

const OPENSTACK: Driver = Driver {
    provider: &[
        field("region", TEXT),
        field(
            "resource-limits",
            Shape::Fields(&[
                field("instances", INT),
                field("cores", INT),
                field("ram", INT),
                field("volumes", INT),
                field("volume-gb", INT),
            ]),
        ),
        field("floating-ip-cleanup", BOOL),
        field("port-cleanup-interval", INT),
    ],
    image: &[field("volume-size", INT), field("userdata", TEXT)],
    cloud_image: &[needed("image-id", TEXT), field("config-drive", BOOL)],
    zuul_image: &[field("config-drive", BOOL)],
    flavor: &[needed("flavor-name", TEXT)],
    label: &[
        field("key-name", TEXT),
        field("host-key-checking", BOOL),
        field("az", TEXT),
        field("auto-floating-ip", BOOL),
        field("boot-from-volume", BOOL),
        field("networks", Shape::Texts),
        field("security-groups", Shape::Texts),
    ],
    clouds: true,
    ..PLAIN
};

const GALLERY: Shape = Shape::Fields(&[needed("gallery-name", TEXT), needed("name", TEXT), field("version", TEXT)]);

const AZURE: Driver = Driver {
    provider: &[
        needed("region", TEXT),
        needed("resource-group", TEXT),
        field(
            "resource-limits",
            Shape::Fields(&[
                field("instances", INT),
                field("cores", INT),
                field("ram", INT),
                field("lowPriorityCores", INT),
            ]),
        ),
    ],
    image: &[
        field("volume-size", INT),
        field("ephemeral-disk", BOOL),
        field("generate-password", BOOL),
        field("userdata", TEXT),
    ],
    cloud_image: &[
        field(
            "image-filter",
            Shape::Fields(&[field("location", TEXT), field("name", TEXT), field("tags", Shape::TextMap)]),
        ),
        field("image-id", TEXT),
        field(
            "image-reference",
            Shape::Fields(&[
                needed("sku", TEXT),
                needed("publisher", TEXT),
                needed("version", TEXT),
                needed("offer", TEXT),
            ]),
        ),
        field("community-gallery-image", GALLERY),
        field("shared-gallery-image", GALLERY),
    ],
    cloud_image_one_of: &[
        "image-id",
        "image-reference",
        "image-filter",
        "community-gallery-image",
        "shared-gallery-image",
    ],
    flavor: &[
        needed("vm-size", TEXT),
        field("priority", Shape::Word(&["regular", "spot"])),
        field("ipv4", BOOL),
        field("ipv6", BOOL),
    ],
    label: &[
        field("host-key-checking", BOOL),
        field("subnet-id", TEXT),
        field(
            "subnet-reference",
            Shape::Fields(&[field("resource-group", TEXT), needed("network", TEXT), field("subnet", TEXT)]),
        ),
        field("user-assigned-identities", Shape::ListedFields(&[field("resource-group", TEXT), needed("name", TEXT)])),
        field("key-data", TEXT),
    ],
    label_one_of: &["subnet-id", "subnet-reference"],
    clouds: true,
    ..PLAIN
};

const STATIC: Driver = Driver {
    provider: &[
        field("resource-limits", Shape::Fields(&[field("instances", INT)])),
        needed(
            "nodes",
            Shape::ListOf(&Shape::Fields(&[
                needed("name", TEXT),
                field("connection-port", INT),
                field("username", TEXT),
                needed("label", TEXT),
                field("aliases", Shape::Texts),
                field("host-key", TEXT),
            ])),
        ),
    ],
    label: SSH_LABEL,
    ..PLAIN
};

const KUBERNETES: Driver = Driver {
    provider: &[field("resource-limits", Shape::Fields(&[field("pods", INT), field("namespaces", INT)]))],
    label: &[
        field("kind", Shape::Word(&["pod", "namespace"])),
        field("image-pull-secrets", Shape::ListedFields(&[needed("name", TEXT), field("namespace", TEXT)])),
        field("spec", Shape::Map),
        field("annotations", Shape::Map),
    ],
    label_needs: &["kind"],
    ..PLAIN
};

/// What is known of a driver's providers.
enum Known {
    /// It has some.
    Yes(Driver),
    /// It is one of Zuul's, and has none.
    Never,
    /// It is none of Zuul's.
    Unknown,
}

fn driver(name: &str) -> Known {
    Known::Yes(match name {
        "aws" => AWS,
        "azure" => AZURE,
        "openstack" => OPENSTACK,
        "static" => STATIC,
        "kubernetes" => KUBERNETES,
        "gerrit" | "github" | "gitlab" | "pagure" | "git" | "smtp" | "mqtt" | "sql" | "elasticsearch" => {
            return Known::Never;
        }
        _ => return Known::Unknown,
    })
}

/// What is wrong with a provider in the eyes of its connection's driver; none when nothing is. Zuul tells the first.
pub(super) fn wrong(name: &str, provider: &MergedProvider) -> Option<String> {
    let driver = match driver(name) {
        Known::Yes(driver) => driver,
        Known::Never => return Some(format!("connections of the driver \"{name}\" give no machines")),
        Known::Unknown => return None,
    };
    let defaults = |class: &str, fields: Vec<Field>| {
        let key = format!("{class}-defaults");
        match provider.attributes.get(&key)? {
            Value::Map(given) => fields_fit(&fields, given, false).map(|why| format!("{key}: {why}")),
            other => Some(format!("{key}: {other} is not a dictionary")),
        }
    };
    let of_images = [IMAGE, ZUUL_IMAGE, driver.image, driver.zuul_image].concat();
    let of_flavors = [FLAVOR, driver.image, if driver.clouds { CLOUD_FLAVOR } else { &[] }].concat();
    let of_labels = [LABEL, driver.image, driver.label].concat();
    defaults("image", of_images)
        .or_else(|| defaults("flavor", of_flavors.clone()))
        .or_else(|| defaults("label", of_labels.clone()))
        .or_else(|| fields_fit(&[PROVIDER, driver.provider].concat(), &provider.attributes, false))
        .or_else(|| entries("image", &provider.images, |entry| image(&driver, entry)))
        .or_else(|| {
            let fields = [FLAVOR_ENTRY, of_flavors.as_slice(), driver.flavor].concat();
            entries("flavor", &provider.flavors, |entry| {
                fields_fit(&fields, entry, false).or_else(|| one_of(driver.flavor_one_of, entry))
            })
        })
        .or_else(|| {
            let fields = [LABEL_ENTRY, LABEL_OBJECT, of_labels.as_slice()].concat();
            entries("label", &provider.labels, |entry| label(&driver, &fields, entry))
        })
        .or_else(|| unattached(provider))
        .or_else(|| entries("label", &provider.labels, |entry| dedicated(provider, entry)))
}

/// Labels, and static nodes, whose image, flavor or label the provider does not offer.
fn unattached(provider: &MergedProvider) -> Option<String> {
    let missing = |class: &str, name: Option<&Value>| {
        let name = name.and_then(Value::as_str).unwrap_or_default();
        let offered = provider.entry(class, name).is_some();
        (!offered).then(|| format!("its sections offer no {class} \"{name}\""))
    };
    let of_label =
        |entry: &Attributes| ["image", "flavor"].into_iter().find_map(|class| missing(class, entry.get(class)));
    entries("label", &provider.labels, of_label).or_else(|| {
        let nodes = provider.attributes.get("nodes").and_then(Value::as_list).unwrap_or(&[]);
        nodes.iter().filter_map(Value::as_map).find_map(|node| missing("label", node.get("label")))
    })
}

/// AWS: what cannot be had on a host of one's own.
fn dedicated(provider: &MergedProvider, label: &Attributes) -> Option<String> {
    let flavor = provider.entry("flavor", label.get("flavor").and_then(Value::as_str)?)?;
    if flavor.get("dedicated-host") != Some(&Value::Bool(true)) {
        return None;
    }
    let spot = flavor.get("market-type").and_then(Value::as_str) == Some("spot");
    let zone = label.get("az").and_then(Value::as_str).is_some_and(|zone| !zone.is_empty());
    match (spot, zone) {
        (true, _) => Some("its flavor wants both spot instances and a dedicated host".to_owned()),
        (false, false) => Some("`az` is missing, which a dedicated host needs".to_owned()),
        (false, true) => None,
    }
}

fn entries(class: &str, entries: &[Attributes], wrong: impl Fn(&Attributes) -> Option<String>) -> Option<String> {
    entries.iter().find_map(|entry| {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        wrong(entry).map(|why| format!("{class} \"{name}\": {why}"))
    })
}

fn image(driver: &Driver, entry: &Attributes) -> Option<String> {
    if entry.get("type").and_then(Value::as_str) == Some("zuul") {
        return fields_fit(&[IMAGE_ENTRY, IMAGE, ZUUL_IMAGE, driver.image, driver.zuul_image].concat(), entry, false);
    }
    let fields = [IMAGE_ENTRY, IMAGE, driver.image, driver.cloud_image].concat();
    fields_fit(&fields, entry, false).or_else(|| one_of(driver.cloud_image_one_of, entry))
}

fn label(driver: &Driver, fields: &[Field], entry: &Attributes) -> Option<String> {
    if let Some(missing) = driver.label_needs.iter().find(|name| !entry.contains_key(**name)) {
        return Some(format!("`{missing}` is missing"));
    }
    // Kubernetes alone has kinds.
    match entry.get("kind").and_then(Value::as_str) {
        Some("pod") if !entry.contains_key("spec") => return Some("`spec` is missing".to_owned()),
        Some("namespace") => {
            if let Some(key) = ["spec", "annotations"].into_iter().find(|key| entry.contains_key(*key)) {
                return Some(format!("`{key}` is of pods only"));
            }
        }
        _ => {}
    }
    fields_fit(fields, entry, false).or_else(|| one_of(driver.label_one_of, entry))
}

fn one_of(names: &[&str], entry: &BTreeMap<String, Value>) -> Option<String> {
    let given: Vec<&str> = names.iter().copied().filter(|name| entry.contains_key(*name)).collect();
    match given.as_slice() {
        _ if names.is_empty() => None,
        [_] => None,
        [] => Some(format!("one of these is missing: {}", names.join(", "))),
        [one, other, ..] => Some(format!("`{one}` and `{other}` exclude each other")),
    }
}
