//! Files. The only place in this crate that touches them, other than RocksDB itself.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "what is stored is stored in files")]

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::StoreError;

/// The names in a directory, in order; none when it is not there.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |error: std::io::Error| StoreError::system("cannot list", dir, &error);
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether there is something of this name.
pub(crate) fn is_there(path: &Path) -> bool {
    path.exists()
}

/// Makes a directory and those above it.
pub(crate) fn make(dir: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(dir).map_err(|error| StoreError::system("cannot make the directory", dir, &error))
}

/// Removes a directory with all in it; one that is not there is no error.
pub(crate) fn remove(dir: &Path) -> Result<(), StoreError> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::system("cannot remove", dir, &error))
        }
        _ => Ok(()),
    }
}

/// Removes a file.
pub(crate) fn remove_file(path: &Path) -> Result<(), StoreError> {
    std::fs::remove_file(path).map_err(|error| StoreError::system("cannot remove", path, &error))
}

/// A file's size in bytes.
pub(crate) fn size(path: &Path) -> Result<u64, StoreError> {
    let metadata = std::fs::metadata(path).map_err(|error| StoreError::system("cannot look at", path, &error))?;
    Ok(metadata.len())
}

/// A file's bytes; `None` when there are more than `limit`.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, StoreError> {
    if size(path)? > limit {
        return Ok(None);
    }
    std::fs::read(path).map(Some).map_err(|error| StoreError::system("cannot read", path, &error))
}

/// Copies a file.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::copy(from, to).map(|_| ()).map_err(|error| StoreError::system("cannot copy", from, &error))
}

/// Gives a file another name.
pub(crate) fn link(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::hard_link(from, to).map_err(|error| StoreError::system("cannot link", from, &error))
}

/// Whether two names are those of one file.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|known| (known.dev(), known.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

/// Gives a file's bytes, a piece at a time.
pub(crate) fn each_piece(path: &Path, mut take: impl FnMut(&[u8])) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| StoreError::system("cannot read", path, &error);
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut piece = vec![0; 256 << 10];
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => return Ok(()),
            length => take(piece.get(..length).unwrap_or_default()),
        }
    }
}

/// Moves a file or directory.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::rename(from, to).map_err(|error| StoreError::system("cannot move", from, &error))
}

/// Makes names made, moved or removed in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    std::fs::File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| StoreError::system("cannot sync", dir, &error))
}

/// Writes a file that is there whole or not at all, and durable when this returns.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let unfinished = path.with_extension("unfinished");
    std::fs::File::create(&unfinished)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| StoreError::system("cannot write", path, &error))?;
    rename(&unfinished, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}
