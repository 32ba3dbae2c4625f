//! Reads a configuration folder, or one repository, from the disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gatelog_rules_config::folder::Folder;

use super::failure::{Code, Failure};

/// Directories below one another; a deeper one is a link that leads back.
const MAX_DEPTH: usize = 40;
/// Files of one repository.
const MAX_FILES: usize = 200_000;
/// The longest file that may be configuration, in bytes: the loader refuses longer ones by itself.
const MAX_BYTES: u64 = 8 << 20;

/// The tenant file of a folder, or the file itself.
pub fn tenant_file(config: &Path) -> PathBuf {
    if config.is_dir() { config.join("main.yaml") } else { config.to_owned() }
}

/// Reads a folder with its `zuul.conf`; without one given, that beside the tenant file.
pub fn read(config: &Path, conf: Option<&Path>, made_branches: &[String]) -> Result<Folder, Failure> {
    let tenant_file = tenant_file(config);
    let beside = tenant_file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let conf = conf.map_or_else(|| beside.join("zuul.conf"), Path::to_owned);
    let mut folder = Folder {
        tenant_file: read_text(&tenant_file, "the tenant file")?,
        conf: read_text(&conf, "zuul.conf")?,
        conf_name: conf.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        made_branches: made_branches.to_vec(),
        schemas: crate::drivers::schemas(),
        ..Folder::default()
    };
    for file in files_beside(&tenant_file) {
        if let Some(name) = file.file_name().map(|name| name.to_string_lossy().into_owned()) {
            folder.beside.insert(name, read_text(&file, "a file beside the tenant file")?);
        }
    }
    let branches = beside.join("branches.json");
    if branches.exists() {
        folder.branches = serde_json::from_str(&read_text(&branches, "the list of branches")?)
            .map_err(|error| unreadable(&branches, "the list of branches", &error))?;
        folder.site = true;
    }
    folder.site |= same_directory(conf.parent(), &beside);
    let git = beside.join("git");
    for (name, path) in directories(&git)? {
        let mut files = BTreeMap::new();
        walk(&path, "", 0, &mut files)?;
        folder.trees.insert(name, files);
    }
    Ok(folder)
}

/// Files beside the tenant file that tenants may include.
fn files_beside(tenant_file: &Path) -> Vec<PathBuf> {
    let Some(entries) = tenant_file.parent().and_then(|beside| fs::read_dir(beside).ok()) else { return Vec::new() };
    let fits = |path: &PathBuf| {
        path != tenant_file
            && path.extension().is_some_and(|extension| extension == "yaml")
            && fs::metadata(path).is_ok_and(|known| known.is_file() && known.len() <= MAX_BYTES)
    };
    entries.flatten().map(|entry| entry.path()).filter(fits).collect()
}

/// The files of a repository that may be configuration: path to text.
pub fn read_repository(root: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let mut files = BTreeMap::new();
    walk(root, "", 0, &mut files)?;
    Ok(files)
}

fn same_directory(conf: Option<&Path>, beside: &Path) -> bool {
    let whole = |path: &Path| fs::canonicalize(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok();
    let Some(conf) = conf else { return false };
    whole(conf).is_some() && whole(conf) == whole(beside)
}

fn unreadable(path: &Path, what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::No, format!("cannot read {what}, {}: {error}", path.display()))
}

fn read_text(path: &Path, what: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(Code::NotFound, format!("{what} is not there: {}", path.display()))
                .hint("name the tenant file, or a folder with main.yaml in it, and zuul.conf with --conf")
        }
        _ => unreadable(path, what, &error),
    })
}

/// The directories in one, by name; none when it is not there.
pub fn directories(path: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(path, "the folder", &error))?;
        if entry.path().is_dir() {
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn walk(directory: &Path, below: &str, depth: usize, files: &mut BTreeMap<String, String>) -> Result<(), Failure> {
    if depth > MAX_DEPTH {
        let message = format!("{} is more than {MAX_DEPTH} directories deep", directory.display());
        return Err(Failure::new(Code::No, message).hint("look for a link that leads back"));
    }
    let entries = fs::read_dir(directory).map_err(|error| unreadable(directory, "the folder", &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(directory, "the folder", &error))?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let rel = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if path.is_dir() {
            if name != ".git" {
                walk(&path, &rel, depth + 1, files)?;
            }
            continue;
        }
        let config = name.ends_with(".yaml") || name.ends_with(".yml") || name == ".zuul.ignore";
        if !config || entry.metadata().is_ok_and(|known| known.len() > MAX_BYTES) {
            continue;
        }
        if files.len() >= MAX_FILES {
            let message = format!("{} holds more than {MAX_FILES} files", directory.display());
            return Err(Failure::new(Code::No, message));
        }
        // A link to nowhere is no configuration.
        let Ok(bytes) = fs::read(&path) else { continue };
        files.insert(rel, String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(())
}
