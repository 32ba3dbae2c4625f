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
