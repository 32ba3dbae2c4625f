//! How much a build keeps on disk. Zuul: the disk accountant.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

/// Deeper than this no directory is followed: each level holds a file open.
const DEEPEST: usize = 256;
/// What the smallest file counts: so many files are much, whatever is in them.
const BLOCK: u64 = 4096;
/// Files with several names that are remembered, to be counted once.
const MOST_LINKED: usize = 1 << 20;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Bytes; no further counted once they are over the limit.
    pub(crate) bytes: u64,
    /// Whether there are directories too deep to be measured.
    pub(crate) too_deep: bool,
}

/// Measures what lies in these directories, up to `limit`. Follows no link, leaves no file system
/// and opens nothing but directories: a job may have made whatever is there, and goes on making it.
pub(crate) fn measure(places: &[PathBuf], limit: u64) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut linked = BTreeSet::new();
    for place in places {
        match open(CWD, place.as_path()) {
            Ok(directory) => walk(directory, limit, &mut usage, &mut linked)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(usage)
}

fn open<P: rustix::path::Arg>(at: impl std::os::fd::AsFd, path: P) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A directory that is being walked, and those in it that are still to come.
struct Level {
    handle: OwnedFd,
    below: Vec<CString>,
}

fn walk(root: OwnedFd, limit: u64, usage: &mut Usage, linked: &mut BTreeSet<u64>) -> io::Result<()> {
    let device = rustix::fs::fstat(&root)?.st_dev;
    let mut count = |handle: OwnedFd, usage: &mut Usage| -> io::Result<Level> {
        let mut below = Vec::new();
        let mut entries = Dir::read_from(&handle)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            // It may be gone by now.
            let Ok(found) = statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if found.st_dev != device {
                continue;
            }
            let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            if !is_directory && found.st_nlink > 1 && linked.len() < MOST_LINKED && !linked.insert(found.st_ino) {
                continue;
            }
            let blocks = u64::try_from(found.st_blocks).unwrap_or_default().saturating_mul(512);
            usage.bytes = usage.bytes.saturating_add(blocks.max(BLOCK));
            if is_directory {
                below.push(name.to_owned());
            }
            if usage.bytes > limit {
                break;
            }
        }
        Ok(Level { handle, below })
    };
    let mut levels = vec![count(root, usage)?];
    while let Some(level) = levels.last_mut() {
        if usage.bytes > limit {
            break;
        }
        let Some(name) = level.below.pop() else {
            levels.pop();
            continue;
        };
        let opened = match open(&level.handle, &name) {
            Ok(opened) => opened,
            // Gone, made a link meanwhile, or without rights: what cannot be entered is not counted.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            Err(error) => return Err(error.into()),
        };
        if levels.len() >= DEEPEST {
            usage.too_deep = true;
            break;
        }
        match count(opened, usage) {
            Ok(level) => levels.push(level),
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_counted_once_links_are_not_followed_and_many_small_ones_are_much() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        fs::create_dir_all(own.join("a/b")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("large"), vec![1; 1 << 20]).unwrap();
        let empty = measure(std::slice::from_ref(&own), u64::MAX).unwrap();
        fs::write(own.join("a/b/file"), vec![1; 300_000]).unwrap();
        fs::hard_link(own.join("a/b/file"), own.join("again")).unwrap();
        symlink(&other, own.join("a/link")).unwrap();
        symlink("/", own.join("root")).unwrap();
        let places = [own.clone(), folder.path().join("nowhere")];
        let usage = measure(&places, u64::MAX).unwrap();
        let grown = usage.bytes - empty.bytes;
        assert!((300_000..330_000).contains(&grown), "{grown}");
        for number in 0..100 {
            fs::write(own.join(format!("empty{number}")), "").unwrap();
        }
        let many = measure(&places, u64::MAX).unwrap();
        assert_eq!(many.bytes - usage.bytes, 100 * BLOCK);
        let stopped = measure(&places, 50_000).unwrap();
        assert!(stopped.bytes > 50_000 && stopped.bytes < 500_000, "{stopped:?}");
        assert!(!stopped.too_deep);
    }

    #[test]
    fn directories_in_directories_without_end_are_noticed_and_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep");
        fs::create_dir(&place).unwrap();
        let mut handle = open(CWD, place.as_path()).unwrap();
        for _ in 0..6000 {
            rustix::fs::mkdirat(&handle, "d", Mode::RWXU).unwrap();
            handle = open(&handle, "d").unwrap();
        }
        assert!(measure(std::slice::from_ref(&place), u64::MAX).unwrap().too_deep);
        crate::jobdir::remove_tree(&place).unwrap();
        assert!(!place.exists());
    }
}
