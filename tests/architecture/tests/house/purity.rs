//! The bans of the pure folders, each proven on code that breaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use cargo_metadata::Message;
use gatelog_architecture::{metadata, root, text};

use crate::dependencies::{is_pure, members};

/// The bans of a clippy.toml: path and reason. One entry to a line, as the file itself promises.
fn bans(file: &str) -> BTreeMap<String, String> {
    let content = text(Path::new(file)).unwrap_or_else(|| panic!("{file} cannot be read"));
    let mut bans = BTreeMap::new();
    for line in content.lines().map(str::trim).filter(|line| line.starts_with('{')) {
        let quoted: Vec<&str> = line.split('"').collect();
        let [before, path, between, reason, _] = quoted[..] else { panic!("{file}: not one entry to a line: {line}") };
        assert!(before.contains("path") && between.contains("reason"), "{file}: path, then reason: {line}");
        bans.insert(path.to_owned(), reason.to_owned());
    }
    assert!(!bans.is_empty(), "{file} bans nothing");
    bans
}

/// What Clippy refused: for each package the banned paths and reasons it named.
fn refusals() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("purity");
    // Clippy says nothing of a package it has checked before with the same result only where cargo replays it; and
    // cargo replays what it has in the target directory, so this is right the first time and every time.
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["clippy", "--workspace", "--offline", "--keep-going", "--message-format=json", "--manifest-path"])
        .arg(root().join("tests/purity/Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .env_remove("CLIPPY_CONF_DIR")
        .env_remove("CLIPPY_ARGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_BOOTSTRAP")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .unwrap();
    assert!(!output.status.success(), "Clippy refused nothing at all");
    let mut refusals: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for message in Message::parse_stream(&output.stdout[..]) {
        let Message::CompilerMessage(message) = message.unwrap() else { continue };
        let package = message.target.name.clone();
        let message = message.message;
        let code = message.code.as_ref().map(|code| code.code.clone()).unwrap_or_default();
        if !matches!(code.as_str(), "clippy::disallowed_methods" | "clippy::disallowed_types") {
            // The closing line of a failed compilation has no code; anything else is a fixture that is wrong in itself.
            assert!(code.is_empty(), "{package}: {message}");
            continue;
        }
        assert_eq!(message.level, cargo_metadata::diagnostic::DiagnosticLevel::Error, "{package}: {message}");
        let path = message.message.split('`').nth(1).unwrap().to_owned();
        let reason = message.children.first().map(|note| note.message.clone()).unwrap_or_default();
        refusals.entry(package).or_default().insert((path, reason));
    }
    refusals
}

fn clippy_is_there() -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let there = Command::new(cargo).args(["clippy", "--version"]).output().is_ok_and(|output| output.status.success());
    if !there {
        println!("SKIPPED proof of the purity bans: Clippy is not installed (rustup component add clippy)");
    }
    there
}

#[test]
fn each_ban_is_refused_with_its_reason_and_each_fixture_fails() {
    if !clippy_is_there() {
        return;
    }
    let refusals = refusals();
    for (folder, file, prefix) in [
        ("tests/purity/pure", "log-schema/clippy.toml", "purity_pure_"),
        ("tests/purity/root", "clippy.toml", "purity_root_"),
    ] {
        let of_folder: BTreeMap<_, _> = refusals.iter().filter(|(package, _)| package.starts_with(prefix)).collect();
        let refused: BTreeSet<&(String, String)> = of_folder.values().copied().flatten().collect();
        for (path, reason) in bans(file) {
            assert!(
                refused.contains(&(path.clone(), reason.clone())),
                "{file} bans {path}, but no fixture under {folder} proves it (refused were {refused:#?})"
            );
        }
        for entry in std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                let name = entry.file_name().to_string_lossy().replace('-', "_");
                assert!(of_folder.contains_key(&format!("{prefix}{name}")), "{folder}/{name} breaks a ban and passed");
            }
        }
    }
}

/// The clippy.toml Clippy takes for a crate: the nearest at or above it.
fn nearest_clippy_toml(folder: &str) -> Option<std::path::PathBuf> {
    let root = root();
    let crate_dir = root.join(folder);
    crate_dir
        .ancestors()
        .take_while(|above| above.starts_with(&root))
        .flat_map(|above| [above.join(".clippy.toml"), above.join("clippy.toml")])
        .find(|file| file.is_file())
}

#[test]
fn every_pure_crate_stands_under_the_bans() {
    let bans = std::fs::canonicalize(root().join("log-schema/clippy.toml")).unwrap();
    let mut pure = 0;
    for folder in members(&metadata().unwrap()).keys() {
        let nearest = nearest_clippy_toml(folder).unwrap_or_else(|| panic!("{folder}: no clippy.toml above it"));
        let nearest = std::fs::canonicalize(nearest).unwrap();
        assert_eq!(nearest == bans, is_pure(folder), "{folder} is checked against {}", nearest.display());
        pure += usize::from(is_pure(folder));
    }
    assert!(pure >= 5, "only {pure} pure crates were found");
    for link in ["projectors/clippy.toml", "services/rules/clippy.toml", "tests/purity/pure/clippy.toml"] {
        assert_eq!(std::fs::canonicalize(root().join(link)).unwrap(), bans, "{link}");
    }
}
