//! The store, driven by a small library.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a test may panic and explains itself")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "files are what this is about")]

mod ahead;
mod crash;
mod folding;
mod fuzzed;
mod golden_logs;
mod lending;
mod rungs;

use std::path::Path;

/// Copies a directory as it is, as if the machine had stopped there and then.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Copies a directory in which the database may just be tidying up, as it was at one moment.
pub fn copy_dir_at_once(from: &Path, to: &Path) {
    let seen = || -> Vec<_> {
        let files = files_ending(from, "").into_iter().filter(|path| !path.ends_with("LOG"));
        files.map(|path| (std::fs::metadata(&path).map_or(0, |file| file.len()), path)).collect()
    };
    for _ in 0..1_000 {
        let before = seen();
        let copied = std::panic::catch_unwind(|| copy_dir(from, to));
        if copied.is_ok() && before == seen() {
            return;
        }
        std::fs::remove_dir_all(to).unwrap();
    }
    panic!("{} is never still", from.display());
}

/// Every file below a directory whose name ends like this.
pub fn files_ending(dir: &Path, end: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_ending(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}
