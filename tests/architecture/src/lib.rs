//! What the tests of the house need to know of it: where it stands, its files, its crates.
//!
//! The tests are in `tests/house/`: [dependencies](../tests/house/dependencies.rs) holds the table of who may know
//! whom, `manifests.rs` what every crate's manifest must say, `purity.rs` proves the bans of the pure folders, and
//! `tidy.rs` looks at the text of every file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{Metadata, MetadataCommand};

/// The checkout.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// What cargo knows of the workspace and of all it is built from on this machine.
///
/// # Errors
/// What cargo said, when it could not be asked.
pub fn metadata() -> Result<Metadata, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc -vV: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not name its host")?;
    // Crates of other platforms need not be there.
    let ask = |options: &[&str]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
        MetadataCommand::new().manifest_path(root().join("Cargo.toml")).other_options(options).exec()
    };
    // Usually all is there; where this crate alone was built, the rest has to be fetched.
    ask(&["--filter-platform", host, "--offline"])
        .or_else(|_| ask(&["--filter-platform", host]))
        .map_err(|error| error.to_string())
}

/// The names of all crates a crate of the house is built from, itself among them; with the features it has by itself,
/// not those that others of the house switch on.
///
/// # Errors
/// What cargo said, when it could not be asked.
pub fn below(package: &str) -> Result<BTreeSet<String>, String> {
    let names = tree(&["--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", package])?;
    Ok(names.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect())
}

/// What `cargo tree` prints with these arguments.
///
/// # Errors
/// What cargo said, when it could not be asked.
pub fn tree(arguments: &[&str]) -> Result<String, String> {
    let ask = |options: &[&str]| {
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .arg("tree")
            .args(arguments)
            .args(options)
            .current_dir(root())
            .output()
            .map_err(|error| format!("cargo tree: {error}"))
    };
    let mut output = ask(&["--offline"])?;
    if !output.status.success() {
        output = ask(&[])?;
    }
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Every file of the checkout, relative to it, in order; without what is built, hidden or a link.
///
/// # Errors
/// The directory that could not be read.
pub fn files() -> Result<Vec<PathBuf>, String> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
            let kind = entry.file_type().map_err(|error| format!("{}: {error}", entry.path().display()))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if kind.is_dir() && name != ".git" && name != ".cache" && name != "target" && name != "node_modules" {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path().strip_prefix(&root).map(Path::to_owned).unwrap_or_else(|_| entry.path()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file of the checkout; `None` when it is not text.
pub fn text(file: &Path) -> Option<String> {
    std::fs::read(root().join(file)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}
