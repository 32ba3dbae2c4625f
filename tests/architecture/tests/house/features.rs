//! No crate from outside is compiled twice: the binary and the tests are built with one set of features.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of features of each package, as `cargo tree` lists them for these kinds of dependencies. A package that
/// build scripts and procedural macros use as well may have two sets.
fn features(edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let tree =
        gatelog_architecture::tree(&["--workspace", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"])
            .unwrap();
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree.lines() {
        let line = line.trim_end_matches(" (*)").replace(" (proc-macro)", "");
        if let Some((package, set)) = line.split_once('|') {
            features.entry(package.to_owned()).or_default().insert(set.to_owned());
        }
    }
    features
}

#[test]
fn tests_are_built_with_the_features_of_the_binary() {
    let (binary, tests) = (features("normal,build"), features("normal,build,dev"));
    assert!(binary.len() > 200, "cargo tree listed hardly any package");
    let differ: Vec<String> = binary
        .iter()
        .filter(|(package, sets)| tests.get(*package) != Some(*sets))
        .map(|(package, sets)| format!("{package}: {sets:?} for the binary, {:?} for tests", tests.get(package)))
        .collect();
    assert!(
        differ.is_empty(),
        "these would be compiled twice; name the dev-dependency that asks for more in tests/features/Cargo.toml:\n{}",
        differ.join("\n")
    );
}
