//! What every manifest must say.

use std::path::Path;

use gatelog_architecture::{metadata, text};

use crate::dependencies::members;

/// Everything a manifest lacks.
fn faults(manifest: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for field in ["version", "edition", "rust-version", "license", "publish"] {
        if !manifest.lines().any(|line| line == format!("{field}.workspace = true")) {
            faults.push(format!("lacks `{field}.workspace = true`"));
        }
    }
    if !manifest.contains("[lints]\nworkspace = true\n") {
        faults.push("does not take the workspace's lints: [lints] workspace = true".to_owned());
    }
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && line.contains('=') && !line.contains("workspace = true") {
            faults.push(format!("`{line}` is not from [workspace.dependencies]: one version for the whole house"));
        }
    }
    faults
}

#[test]
fn every_crate_takes_edition_lints_and_versions_from_the_workspace() {
    let metadata = metadata().unwrap();
    let mut wrong = Vec::new();
    for folder in members(&metadata).keys() {
        let manifest = text(&Path::new(folder).join("Cargo.toml")).unwrap();
        wrong.extend(faults(&manifest).into_iter().map(|fault| format!("{folder}/Cargo.toml {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn a_manifest_that_goes_its_own_way_is_named() {
    let own = "[package]\nname = \"x\"\nversion.workspace = true\nedition = \"2021\"\nrust-version.workspace = true\n\
        license.workspace = true\npublish.workspace = true\n\n[dependencies]\nserde = \"1\"\n";
    assert_eq!(
        faults(own),
        [
            "lacks `edition.workspace = true`",
            "does not take the workspace's lints: [lints] workspace = true",
            "`serde = \"1\"` is not from [workspace.dependencies]: one version for the whole house",
        ]
    );
}

#[test]
fn the_bans_are_errors_in_the_workspace() {
    let manifest = text(Path::new("Cargo.toml")).unwrap();
    for lint in ["disallowed_methods", "disallowed_types", "todo", "unimplemented", "unsafe_code"] {
        assert!(manifest.contains(&format!("{lint} = \"deny\"")), "the root Cargo.toml must deny {lint}");
    }
}

#[test]
fn every_crate_is_on_the_page_of_the_house() {
    let metadata = metadata().unwrap();
    let page = text(Path::new("docs/architecture.md")).unwrap();
    for folder in members(&metadata).keys() {
        assert!(page.contains(&format!("`{folder}`")), "docs/architecture.md does not say what {folder} is");
    }
}

/// Licences under which others' code may become part of gatelog: all let it be passed on under Apache-2.0.
const LICENCES: &[&str] =
    &["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib"];

/// Crates whose manifest names a file in place of an expression, with the licence that stands in it.
const READ: &[(&str, &str)] = &[("libyaml-safer", "MIT")];

/// Whether a licence expression gives a choice that is allowed (`/` is an old way to write `OR`).
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    let one = |name: &str| LICENCES.contains(&name.split_whitespace().next().unwrap_or_default());
    expression.split(" AND ").all(|part| part.split(" OR ").any(one))
}

#[test]
fn what_comes_from_outside_may_be_used_and_comes_from_the_registry() {
    let metadata = metadata().unwrap();
    let outside: Vec<_> = metadata.packages.iter().filter(|package| package.source.is_some()).collect();
    assert!(outside.len() > 50, "only {} crates from outside were found", outside.len());
    for package in outside {
        let read = READ.iter().find(|(name, _)| *name == package.name.as_str()).map(|(_, licence)| *licence);
        let licence = package.license.as_deref().or(read).unwrap_or("none");
        assert!(is_allowed(licence), "{} {} has the licence {licence}", package.name, package.version);
        let source = package.source.as_ref().map(|source| source.repr.as_str()).unwrap_or_default();
        assert!(!source.starts_with("git+"), "{} is taken from {source}, not from the registry", package.name);
    }
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0") && is_allowed("Unlicense/MIT"));
    assert!(!is_allowed("GPL-3.0-only") && !is_allowed("MIT AND GPL-3.0-only") && !is_allowed("none"));
}
