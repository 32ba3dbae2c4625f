//! No crate from outside is compiled twice: the binary, the tests, and each crate by itself are built with one set of
//! features.

use std::collections::{BTreeMap, BTreeSet};

use crate::dependencies::{FEATURES, members};

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
        "these would be compiled twice; name what asks for more in tests/features/Cargo.toml:\n{}",
        differ.join("\n")
    );
}

#[test]
fn every_crate_from_outside_is_named_with_its_features_where_all_are_chosen() {
    let metadata = gatelog_architecture::metadata().unwrap();
    let members = members(&metadata);
    let named: BTreeMap<&str, BTreeSet<&str>> = members[FEATURES]
        .dependencies
        .iter()
        .map(|dependency| (dependency.name.as_str(), dependency.features.iter().map(String::as_str).collect()))
        .collect();
    let mut missing = BTreeSet::new();
    for (folder, package) in members.iter().filter(|(folder, _)| folder.as_str() != FEATURES) {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_none()) {
            let name = dependency.name.as_str();
            let Some(known) = named.get(name) else {
                missing.insert(format!("{name}.workspace = true  # named by {folder}"));
                continue;
            };
            let further = dependency.features.iter().filter(|feature| !known.contains(feature.as_str()));
            missing.extend(further.map(|feature| format!("{name}, feature {feature:?}  # asked for by {folder}")));
        }
    }
    assert!(named.len() > 30, "hardly any crate is named in {FEATURES}: {named:?}");
    assert!(
        missing.is_empty(),
        "`./dev test -p CRATE` would compile these with other features than the whole workspace has; add them to \
         [dependencies] of {FEATURES}/Cargo.toml:\n{}",
        missing.into_iter().collect::<Vec<_>>().join("\n")
    );
}
