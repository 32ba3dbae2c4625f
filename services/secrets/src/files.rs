//! Key files: made whole or not at all, replaced only where that is asked for, safe beside other processes.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::KeyringError;

/// No key file is longer, in bytes.
const LONGEST: u64 = 64 << 10;

static TEMPORARY: AtomicU64 = AtomicU64::new(0);

/// Tells one file from the one that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    /// When the file was written, in seconds since 1970.
    pub(crate) fn written(self) -> i64 {
        self.changed.0
    }

    fn of(metadata: &fs::Metadata) -> Identity {
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Identity { device: metadata.dev(), inode: metadata.ino(), changed }
    }
}

/// A closure for `map_err` that says what was tried on what.
pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> KeyringError {
    let path = path.to_owned();
    move |why| KeyringError::Io { doing, path, why }
}

/// Makes the directory for keys, for its owner alone.
pub(crate) fn make_directory(dir: &Path) -> Result<(), KeyringError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io("make", dir))
}

/// Which file is there now; `None` when there is none.
pub(crate) fn identity(path: &Path) -> Result<Option<Identity>, KeyringError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(Identity::of(&metadata))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("look at", path)(error)),
    }
}

/// A file's text, permission bits and identity; `None` when there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<(String, u32, Identity)>, KeyringError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", path)(error)),
    };
    let metadata = file.metadata().map_err(io("look at", path))?;
    let mut text = String::new();
    match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) => Ok(Some((text, metadata.mode() & 0o777, Identity::of(&metadata)))),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(KeyringError::KeyFile { path: path.to_owned(), what: "it is not text" })
        }
        Err(error) => Err(io("read", path)(error)),
    }
}

/// The key files in a directory.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, KeyringError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io("list", dir))? {
        let path = entry.map_err(io("list", dir))?.path();
        if path.extension().is_some_and(|ending| ending == "key") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Makes a file with this text, durable when this returns. If there is one already (another thread or process was
/// first), that one is left as it is.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), KeyringError> {
    let temporary = temporary(path)?;
    let written = write_new(&temporary, text).and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io("make", path)(error)),
        _ => Ok(()),
    });
    remove_if_there(&temporary)?;
    written?;
    sync_directory(path)
}

/// Puts a file with this text in the place of the one there is, durable when this returns. Whatever dies meanwhile, the
/// place holds the old or the new one, whole.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), KeyringError> {
    let temporary = temporary(path)?;
    let replaced = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path).map_err(io("replace", path)));
    if replaced.is_err() {
        remove_if_there(&temporary)?;
    }
    replaced?;
    sync_directory(path)
}

/// Holds off whoever changes key pairs in this directory, in this process or another, until it is dropped. Locked is the
/// master key's file, which is there for as long as any key is. `alone`: to change them; otherwise to see that nobody
/// does, beside others who look.
pub(crate) fn hold(master: &Path, alone: bool) -> Result<File, KeyringError> {
    // A file is locked on NFS, too, if it is open for writing (alone) or for reading.
    let file = OpenOptions::new().read(true).write(alone).open(master).map_err(io("open", master))?;
    let locked = if alone { file.lock() } else { file.lock_shared() };
    locked.map_err(io("lock", master))?;
    Ok(file)
}

/// A place beside a file for what is to become it. Nothing is there.
fn temporary(path: &Path) -> Result<PathBuf, KeyringError> {
    let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.new", std::process::id()));
    // A process of the same number may have died and left it.
    remove_if_there(&temporary)?;
    Ok(temporary)
}

fn write_new(path: &Path, text: &str) -> Result<(), KeyringError> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io("make", path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io("write", path))
}

/// Deletes a key file and what an interrupted `create` left of it; durable when this returns. Whether there was one.
pub(crate) fn delete(path: &Path) -> Result<bool, KeyringError> {
    let mut found = remove_if_there(path)?;
    if let (Some(dir), Some(stem)) = (path.parent(), path.file_stem()) {
        let stem = format!("{}.", stem.to_string_lossy());
        for entry in fs::read_dir(dir).map_err(io("list", dir))? {
            let name = entry.map_err(io("list", dir))?.file_name();
            if name.to_string_lossy().starts_with(&stem) {
                found |= remove_if_there(&dir.join(name))?;
            }
        }
    }
    sync_directory(path)?;
    Ok(found)
}

fn remove_if_there(path: &Path) -> Result<bool, KeyringError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io("delete", path)(error)),
    }
}

fn sync_directory(path: &Path) -> Result<(), KeyringError> {
    let dir: PathBuf = path.parent().map(Path::to_owned).unwrap_or_default();
    File::open(&dir).and_then(|dir| dir.sync_all()).map_err(io("sync", &dir))
}
