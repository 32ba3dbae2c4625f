//! Where inputs lie for readers of files: in memory, where the system has that. A disk would take a thousand times longer.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "readers of files want files")]

use std::path::Path;

/// A new folder, gone with what is given.
pub fn in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
