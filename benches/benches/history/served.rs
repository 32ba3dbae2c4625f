//! A site's directory to be served, made of the kept history without touching it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gatelog_benches::Failure;

use crate::History;

/// What the site is configured with. Nobody's repositories are there, and nothing asks for them.
const CONFIG: &str = "[web]\nlisten = \"127.0.0.1:0\"\nroot = \"https://zuul.opendev.example\"\n[executor]\nslots = 1\n\
                      [connection.forge]\ndriver = \"git\"\nroot = \"forge\"\ncanonical-hostname = \"review.opendev.example\"\n";

/// A directory that can be served and thrown away. Files that never change again are linked, all others are copied.
pub fn site(history: &History, projections: &Path) -> Result<tempfile::TempDir, Failure> {
    let dir = tempfile::tempdir_in(&history.site)?;
    let root = dir.path();
    std::fs::write(root.join("gatelog.toml"), CONFIG)?;
    std::fs::create_dir(root.join("forge"))?;
    std::fs::copy(history.site.join("tenants.yaml"), root.join("tenants.yaml"))?;
    take(&history.site.join("log"), &root.join("log"), &newest_segment(history)?)?;
    symlink(history.site.join("log").join("blobs"), root.join("log").join("blobs"))?;
    take(projections, &root.join("projections"), Path::new(""))?;
    Ok(dir)
}

fn newest_segment(history: &History) -> Result<PathBuf, Failure> {
    Ok(history.segments()?.pop().ok_or("a log without segments")?.0)
}

/// Links or copies a directory; `grows` is a file that is still written to.
fn take(from: &Path, to: &Path, grows: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let lasting = ["log", "sst", "rung", "blob"];
        let lasts = path.extension().is_some_and(|end| lasting.iter().any(|known| end == *known));
        if path.is_dir() {
            if entry.file_name() != "blobs" {
                take(&path, &target, grows)?;
            }
        } else if lasts && path != grows && !in_database_log(&path) {
            std::fs::hard_link(&path, &target)?;
        } else {
            std::fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// RocksDB's write-ahead log ends like a segment.
fn in_database_log(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|name| name != "segments")
        && path.extension().is_some_and(|end| end == "log")
}
