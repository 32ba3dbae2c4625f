//! Warnings of what playbooks leave in the home directory. Zuul: `preserve-home-paths`; files are left where they are, and told
//! of. Here those that are trusted or have secrets do not see what others leave, see [`crate::homes`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::spec::{JobSpec, PlaybookSpec};

/// What the executor and Ansible themselves leave there (Zuul).
const USUAL: [&str; 4] =
    [".ssh/known_hosts", ".rpmdb/rpmdb.sqlite", ".rpmdb/rpmdb.sqlite-shm", ".rpmdb/rpmdb.sqlite-wal"];
/// How many files below one name of the home directory are told of (Zuul).
const TOLD: usize = 5;
/// How many entries are looked at before one playbook: a job may have made any number.
const LOOKED_AT: usize = 10_000;

/// A home directory before a playbook.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) job: &'a JobSpec,
    pub(crate) playbook: &'a PlaybookSpec,
    /// The home of playbooks that are neither trusted nor have secrets.
    pub(crate) home: &'a Path,
    /// That of this playbook.
    pub(crate) own: &'a Path,
}

/// What was told already, by the first part of the path.
#[derive(Debug, Default)]
pub(crate) struct HomeWarnings {
    told: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl HomeWarnings {
    /// A warning for each file that was left and not told of yet. No process of the job may run.
    pub(crate) fn look(&mut self, left: Left<'_>) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut folders = vec![left.home.to_owned()];
        let mut looked_at = 0;
        while let Some(folder) = folders.pop() {
            // What cannot be read now can be by nobody else.
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                looked_at += 1;
                if looked_at > LOOKED_AT {
                    return warnings;
                }
                let path = entry.path();
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_dir() {
                    folders.push(path);
                } else if let Ok(below) = path.strip_prefix(left.home) {
                    warnings.extend(self.file(below, left));
                }
            }
        }
        warnings
    }

    fn file(&mut self, path: &Path, left: Left<'_>) -> Option<String> {
        let name = path.to_string_lossy();
        if USUAL.contains(&name.as_ref()) || left.job.preserve_home_paths.contains(name.as_ref()) {
            return None;
        }
        let top = path.components().next()?;
        let told = self.told.entry(Path::new(&top).to_owned()).or_default();
        if told.len() >= TOLD || told.iter().any(|known| known == path) {
            return None;
        }
        told.push(path.to_owned());
        let shown: String = name.chars().take(200).collect();
        if left.home != left.own && fs::symlink_metadata(left.own.join(path)).is_err() {
            return Some(format!(
                "{shown:?}, which an untrusted playbook has left in the home directory, is not seen by playbook {}: name it \
                 in preserve-home-paths of job {} if it may be",
                left.playbook.path, left.job.name
            ));
        }
        Some(format!(
            "{shown:?} lies in the home directory before playbook {}: name it in preserve-home-paths of job {} if later \
             playbooks may see it, or let the job remove it",
            left.playbook.path, left.job.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::spec;

    #[test]
    fn what_is_left_in_a_home_is_told_once_and_not_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        for directory in [".ssh", ".cache/deep", "kept"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        for file in [".ssh/known_hosts", ".ssh/id", "kept/file", "plain"] {
            fs::write(home.join(file), "x").unwrap();
        }
        for number in 0..9 {
            fs::write(home.join(format!(".cache/deep/{number}")), "x").unwrap();
        }
        std::os::unix::fs::symlink("/", home.join("everything")).unwrap();
        let mut spec = spec();
        spec.job.preserve_home_paths = ["kept/file".to_owned()].into();
        let left = Left { job: &spec.job, playbook: &spec.playbooks[0], home, own: home };
        let mut warnings = HomeWarnings::default();
        let first = warnings.look(left);
        let told = |name: &str| first.iter().filter(|one| one.starts_with(&format!("\"{name}"))).count();
        assert_eq!((told(".ssh/id"), told("plain"), told("everything"), told(".cache/")), (1, 1, 1, 5), "{first:?}");
        assert_eq!(first.len(), 8, "{first:?}");
        let expected = "name it in preserve-home-paths of job unit";
        assert!(first.iter().all(|one| one.contains(expected) && one.contains("run.yaml")), "{first:?}");
        assert_eq!(warnings.look(left), Vec::<String>::new());
    }
}
