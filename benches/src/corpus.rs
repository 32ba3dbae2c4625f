//! A real site's configuration, from the folder that `GATELOG_CORPUS` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gatelog_rules_config::folder::Folder;

use crate::Failure;

/// The folder `openstack` below `GATELOG_CORPUS` (a tenant file, `zuul.conf`, `branches.json` and trees of files), if
/// it is there.
pub fn given() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("GATELOG_CORPUS")?).join("openstack");
    path.is_dir().then_some(path)
}

/// Reads it.
///
/// # Errors
/// What could not be read.
pub fn read(root: &Path) -> Result<Folder, Failure> {
    let text = |name: &str| std::fs::read_to_string(root.join(name));
    let mut folder = Folder {
        tenant_file: text("main.yaml")?,
        conf: text("zuul.conf")?,
        branches: serde_json::from_str(&text("branches.json")?)?,
        site: true,
        ..Folder::default()
    };
    for entry in std::fs::read_dir(root.join("git"))? {
        let path = entry?.path();
        let mut files = BTreeMap::new();
        walk(&path, &path, &mut files)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        folder.trees.insert(name, files);
    }
    Ok(folder)
}

fn walk(base: &Path, directory: &Path, files: &mut BTreeMap<String, String>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(base, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(base)?.to_string_lossy().into_owned();
        if name.ends_with(".yaml") || name.ends_with(".zuul.ignore") {
            files.insert(name, String::from_utf8_lossy(&std::fs::read(&path)?).into_owned());
        }
    }
    Ok(())
}
