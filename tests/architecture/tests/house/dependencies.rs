//! Who may know whom.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, Metadata, Package};

/// For each folder (`*` is any one name): the house's crates it may know, and, where the list is closed, the crates
/// from outside. The first line that fits a crate holds. A new crate needs a line.
///
/// What it says: records know nothing; projectors know records; rules know records and states; nobody knows a
/// service but the effects and the binary that put services together.
const TABLE: &[(&str, &[&str], Outside)] = &[
    ("log-schema/record", &[], Only(&["bincode", "crc32c", "hex", "serde", "serde_json", "sha2", "thiserror"])),
    ("log-schema/event-log", &[RECORD], Only(&["thiserror"])),
    (
        "log-schema/audit",
        &[RECORD, "log-schema/event-log"],
        Only(&["base64", "hex", "serde_json", "sha2", "thiserror"]),
    ),
    ("projectors/tables", &[RECORD], Only(&["serde", "sha2", "thiserror"])),
    (
        "projectors/store",
        &[RECORD, TABLES],
        Only(&["crc32c", "hex", "rocksdb", "serde", "serde_json", "sha2", "thiserror", "tracing", "zstd"]),
    ),
    (
        "projectors/runner",
        &["log-schema/*", TABLES, PARTITION, "projectors/store"],
        Only(&["serde", "thiserror", "tracing"]),
    ),
    (PARTITION, &[RECORD, TABLES], Only(&["serde", "thiserror"])),
    ("projectors/*", &[RECORD, TABLES, PARTITION], Only(&["serde", "thiserror"])),
    ("services/rules/deciding", &[RECORD, TABLES, PARTITION], Only(&["serde", "thiserror"])),
    (
        "services/rules/config",
        &[RECORD, "services/drivers/schema"],
        Only(&["fancy-regex", "libyaml-safer", "regex", "serde", "serde_json", "thiserror"]),
    ),
    (
        "services/rules/gate",
        &[RECORD, TABLES, PARTITION, DECIDING, "projectors/gate-state", "services/rules/config"],
        Only(&["regex", "serde", "serde_json", "thiserror"]),
    ),
    ("services/rules/deployments", &[RECORD, "services/rules/config"], Only(&["serde", "serde_json", "thiserror"])),
    (
        "services/rules/capacity",
        &[RECORD, TABLES, PARTITION, DECIDING, "projectors/capacity-state"],
        Only(&["serde", "thiserror"]),
    ),
    // The shell knows no domain: what it decides with is handed to it.
    ("services/writer", &["log-schema/*", TABLES, PARTITION, "projectors/store", "projectors/runner", DECIDING], Any),
    // The list of domains: it knows each of them, its rules and its words, and nothing of the world.
    (
        "services/hosting",
        &["log-schema/*", "projectors/*", "services/rules/*", "services/writer", "replay"],
        Only(&["thiserror", "tracing"]),
    ),
    ("services/logs/*", &["log-schema/*"], Any),
    // Never a driver to a driver, a cloud to a cloud.
    ("services/drivers/schema", &[], Only(&[])),
    (
        "services/drivers/contract",
        &[RECORD, "services/drivers/schema", "services/secrets"],
        Only(&["thiserror", "toml"]),
    ),
    ("services/drivers/*", &["log-schema/*", "services/drivers/contract", "services/secrets"], Any),
    ("services/clouds/contract", &[RECORD], Only(&["thiserror", "toml"])),
    ("services/clouds/*", &["log-schema/*", "services/clouds/contract", "services/secrets"], Any),
    ("services/merging", &["log-schema/*"], Any),
    ("services/log-files", &[RECORD], Any),
    ("services/room", &[], Only(&["rustix", "serde", "tracing"])),
    ("services/executing", &["log-schema/*", "services/log-files", "services/room"], Any),
    ("services/secrets", &[RECORD], Any),
    ("services/calendar", &[RECORD, "services/rules/config"], Only(&["jiff", "thiserror"])),
    // Reads, and appends requests; decides nothing.
    (
        "services/web",
        &[
            "log-schema/*",
            "projectors/*",
            "services/calendar",
            "services/rules/config",
            "services/secrets",
            "services/log-files",
            "services/room",
            "replay",
        ],
        Any,
    ),
    (
        "services/effects",
        &[
            "log-schema/*",
            "projectors/*",
            "services/rules/*",
            "services/merging",
            "services/executing",
            "services/room",
            "services/secrets",
            "services/clouds/contract",
            "services/drivers/contract",
        ],
        Any,
    ),
    ("services/gatelog", &["log-schema/*", "projectors/*", "services/*", "services/*/*", "replay"], Any),
    // `replay verify` runs the one shell over recorded inputs again, rather than another that might differ.
    ("replay", &["log-schema/*", "projectors/*", "services/rules/*", "services/writer"], Any),
    (FEATURES, &[], Any),
    ("tests/kafka-broker", &[], Any),
    ("tests/ssh-host", &[], Any),
    ("tests/*", &["log-schema/*", "projectors/*", "services/*", "services/*/*", "replay"], Any),
    ("benches", &["log-schema/*", "projectors/*", "services/*", "services/*/*", "replay"], Any),
];

const RECORD: &str = "log-schema/record";
const TABLES: &str = "projectors/tables";
const PARTITION: &str = "projectors/partition-state";
const DECIDING: &str = "services/rules/deciding";

/// What of the world outside a crate may name among its dependencies.
enum Outside {
    /// These and no other.
    Only(&'static [&'static str]),
    /// Anything, but see [`ONE_PLACE`].
    Any,
}
use Outside::{Any, Only};

/// Crates that only these folders may name, so that there is one place to look at and to change.
const ONE_PLACE: &[(&str, &[&str])] = &[
    ("bincode", &["log-schema/record"]),
    ("rocksdb", &["projectors/store"]),
    ("rdkafka", &["services/logs/kafka", "tests/kafka-broker"]),
    ("git2", &["services/merging", "services/drivers/git", "tests/scenario"]),
    ("object_store", &["services/log-files", "tests/features"]),
    ("axum", &["services/web", "services/gatelog"]),
    ("chacha20poly1305", &["services/secrets"]),
    ("aes", &["services/secrets"]),
    ("cbc", &["services/secrets"]),
    ("rsa", &["services/secrets"]),
    ("jsonwebtoken", &["services/secrets", "services/web"]),
    ("maud", &["services/web"]),
    ("schemars", &["services/web"]),
    ("sha1", &["services/secrets"]),
    ("libyaml-safer", &["services/rules/config"]),
    ("clap", &["services/gatelog"]),
    ("crossterm", &["services/gatelog"]),
];

/// Names every crate, and uses none.
pub const FEATURES: &str = "tests/features";

/// What the pure folders may not reach, however far down.
const NEVER_BELOW_PURE: &[&str] = &[
    "async-std",
    "axum",
    "chrono",
    "getrandom",
    "git2",
    "hyper",
    "jiff",
    "librocksdb-sys",
    "mio",
    "rand",
    "rdkafka",
    "reqwest",
    "rocksdb",
    "rustix",
    "smol",
    "socket2",
    "time",
    "tokio",
    "ureq",
    "uuid",
];

/// Pure folders whose work it is to reach the disk.
const REACH_THE_DISK: &[&str] = &["projectors/store", "projectors/runner"];

pub fn is_pure(folder: &str) -> bool {
    ["log-schema/", "projectors/", "services/rules/"].iter().any(|pure| folder.starts_with(pure))
}

/// Whether a folder fits a pattern in which `*` is any one name.
fn fits(pattern: &str, folder: &str) -> bool {
    pattern.split('/').count() == folder.split('/').count()
        && pattern.split('/').zip(folder.split('/')).all(|(want, name)| want == "*" || want == name)
}

/// The workspace's crates by their folder, relative to the checkout.
pub fn members(metadata: &Metadata) -> BTreeMap<String, &Package> {
    let folder = |package: &Package| {
        let folder = package.manifest_path.parent().unwrap();
        folder.strip_prefix(&metadata.workspace_root).unwrap().to_string()
    };
    metadata.workspace_packages().into_iter().map(|package| (folder(package), package)).collect()
}

/// Everything wrong with these edges by the table: (folder, what it names, whether that is the house's own folder).
fn faults(edges: &[(String, String, bool)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (folder, named, house) in edges {
        let Some((_, may_know, outside)) = TABLE.iter().find(|(pattern, _, _)| fits(pattern, folder)) else {
            faults.push(format!(
                "{folder} has no line in the table of tests/house/dependencies.rs: say what it may know"
            ));
            continue;
        };
        if *house {
            if !may_know.iter().any(|pattern| fits(pattern, named)) {
                faults.push(format!("{folder} may not know {named}"));
            }
        } else {
            if let Only(crates) = outside
                && !crates.contains(&named.as_str())
            {
                faults.push(format!("{folder} is pure and may not name {named}"));
            }
            if let Some((_, folders)) = ONE_PLACE.iter().find(|(name, _)| name == named)
                && folder != FEATURES
                && !folders.contains(&folder.as_str())
            {
                faults.push(format!("{folder} may not name {named}: only {} may", folders.join(", ")));
            }
        }
    }
    faults
}

#[test]
fn every_crate_knows_only_what_it_may() {
    let metadata = gatelog_architecture::metadata().unwrap();
    let members = members(&metadata);
    let folder_of: BTreeMap<&str, &str> =
        members.iter().map(|(folder, package)| (package.name.as_str(), folder.as_str())).collect();
    let mut edges = Vec::new();
    for (folder, package) in &members {
        // A crate without dependencies needs its line too.
        assert!(TABLE.iter().any(|(pattern, _, _)| fits(pattern, folder)), "{folder} needs a line in the table");
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal) {
            let house = folder_of.get(dependency.name.as_str());
            edges.push((
                folder.clone(),
                house.map_or(dependency.name.clone(), |name| (*name).to_owned()),
                house.is_some(),
            ));
        }
    }
    assert!(edges.len() > members.len(), "cargo told of hardly any dependency: {edges:?}");
    let faults = faults(&edges);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn a_forbidden_edge_is_named() {
    let edge = |from: &str, to: &str, house| (from.to_owned(), to.to_owned(), house);
    let faults = faults(&[
        edge("projectors/gate-state", "services/rules/gate", true),
        edge("services/rules/gate", "services/merging", true),
        edge("services/drivers/git", "services/drivers/gerrit", true),
        edge("services/rules/config", "tokio", false),
        edge("services/web", "bincode", false),
        edge("services/merging", "git2", false),
        edge("attic", "serde", false),
    ]);
    assert_eq!(
        faults,
        [
            "projectors/gate-state may not know services/rules/gate",
            "services/rules/gate may not know services/merging",
            "services/drivers/git may not know services/drivers/gerrit",
            "services/rules/config is pure and may not name tokio",
            "services/web may not name bincode: only log-schema/record may",
            "attic has no line in the table of tests/house/dependencies.rs: say what it may know",
        ]
    );
}

#[test]
fn nothing_below_a_pure_crate_reaches_the_world() {
    let metadata = gatelog_architecture::metadata().unwrap();
    let mut checked = 0;
    for (folder, package) in members(&metadata) {
        if !is_pure(&folder) || REACH_THE_DISK.contains(&folder.as_str()) {
            continue;
        }
        let below = gatelog_architecture::below(&package.name).unwrap();
        assert!(below.contains("thiserror"), "{folder}: what is below it was not read: {below:?}");
        let world: Vec<&str> = NEVER_BELOW_PURE.iter().copied().filter(|name| below.contains(*name)).collect();
        assert!(world.is_empty(), "{folder} is pure and reaches {world:?} through its dependencies");
        checked += 1;
    }
    assert!(checked >= 5, "only {checked} pure crates were found");
    let sealing = gatelog_architecture::below("gatelog-secrets").unwrap();
    assert!(sealing.contains("getrandom"), "a crate that does draw lots was not seen to: {sealing:?}");
}
