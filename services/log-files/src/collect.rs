//! What lies in a log directory. A job has made whatever is there: no link is followed, and nothing but directories and
//! plain files is opened.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::manifest::{CONSOLE, Manifest, RESULTS};

/// Limits on what is kept of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    /// Files.
    pub files: usize,
    /// Directories within each other.
    pub depth: usize,
    /// Bytes of all files together.
    pub bytes: u64,
}

impl Default for KeepLimits {
    fn default() -> Self {
        KeepLimits { files: 20_000, depth: 32, bytes: 2 << 30 }
    }
}

/// Entries of one directory that are looked at: all names of a directory are in memory at once.
const MOST_ENTRIES: usize = 100_000;
/// The longest path, in bytes.
const LONGEST_PATH: usize = 4096;

/// A plain file that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path below the log directory.
    pub path: String,
    /// Its size in bytes when it was found.
    pub size: u64,
}

/// A directory that is being walked.
struct Level {
    handle: OwnedFd,
    path: String,
    below: Vec<CString>,
}

/// The files below a directory, ordered by path; what is not to be kept is noted in the manifest.
///
/// # Errors
/// The directory itself cannot be read.
pub fn collect(root: &Path, limits: &KeepLimits, manifest: &mut Manifest) -> std::io::Result<Vec<Found>> {
    let root = open_dir(CWD, root)?;
    let device = rustix::fs::fstat(&root)?.st_dev;
    let mut walk = Walk { limits, manifest, device, found: Vec::new(), bytes: 0 };
    let mut levels = vec![walk.enter(root, String::new())?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.below.pop() else {
            levels.pop();
            continue;
        };
        let path = join(&level.path, &name);
        let opened = open_dir(&level.handle, name.as_c_str());
        if levels.len() >= limits.depth {
            walk.manifest.leave_out(path, format!("it lies more than {} directories deep", limits.depth));
            continue;
        }
        match opened.map_err(std::io::Error::from).and_then(|handle| walk.enter(handle, path.clone())) {
            Ok(level) => levels.push(level),
            Err(error) => walk.manifest.leave_out(path, format!("it cannot be read: {error}")),
        }
    }
    let mut found = walk.found;
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

struct Walk<'a> {
    limits: &'a KeepLimits,
    manifest: &'a mut Manifest,
    device: u64,
    found: Vec<Found>,
    bytes: u64,
}

impl Walk<'_> {
    /// Takes the files of a directory, and gives the directories in it.
    fn enter(&mut self, handle: OwnedFd, path: String) -> std::io::Result<Level> {
        let mut names: Vec<CString> = Vec::new();
        let mut entries = Dir::read_from(&handle)?;
        while let Some(entry) = entries.read() {
            let name = entry?.file_name().to_owned();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() >= MOST_ENTRIES {
                self.manifest.leave_out(path.clone(), format!("it has more than {MOST_ENTRIES} entries"));
                break;
            }
            names.push(name);
        }
        names.sort();
        let mut below = Vec::new();
        for name in names {
            let file = join(&path, &name);
            // The executor's own: the console is only shown there, the results are a copy.
            if path.is_empty() && [CONSOLE, RESULTS].contains(&file.as_str()) {
                continue;
            }
            if name.to_str().is_err() {
                self.manifest.leave_out(file, "its name is no UTF-8");
                continue;
            }
            if file.len() > LONGEST_PATH {
                self.manifest.leave_out(cut(&file, 200), format!("its path is longer than {LONGEST_PATH} bytes"));
                continue;
            }
            match statat(&handle, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if found.st_dev != self.device => self.manifest.leave_out(file, "it is another file system"),
                Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                    FileType::Directory => below.push(name),
                    FileType::RegularFile => self.take(file, u64::try_from(found.st_size).unwrap_or_default()),
                    other => self.manifest.leave_out(file, format!("it is {}", word(other))),
                },
                Err(error) => self.manifest.leave_out(file, format!("it cannot be read: {error}")),
            }
        }
        // The last is entered first.
        below.reverse();
        Ok(Level { handle, path, below })
    }

    fn take(&mut self, path: String, size: u64) {
        let bytes = self.bytes.saturating_add(size);
        if self.found.len() >= self.limits.files {
            self.manifest.leave_out(path, format!("there are more than {} files", self.limits.files));
        } else if bytes > self.limits.bytes {
            let (size, most) = (size, self.limits.bytes);
            self.manifest.leave_out(path, format!("with its {size} bytes there would be more than {most} bytes"));
        } else {
            self.bytes = bytes;
            self.found.push(Found { path, size });
        }
    }
}

/// Opens a plain file by its path below a directory, following no link.
///
/// # Errors
/// It is not there, or no plain file any more.
pub fn open_below(root: &Path, path: &str) -> std::io::Result<File> {
    let mut directory = open_dir(CWD, root)?;
    let mut rest = path;
    while let Some((name, below)) = rest.split_once('/') {
        directory = open_dir(&directory, name)?;
        rest = below;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&directory, rest, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is no plain file")) }
}

fn open_dir<P: rustix::path::Arg>(at: impl AsFd, path: P) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn join(path: &str, name: &CStr) -> String {
    let name = name.to_string_lossy();
    if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") }
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no plain file",
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn left(manifest: &Manifest) -> Vec<(&str, &str)> {
        manifest.left_out.iter().map(|left| (left.path.as_str(), left.why.as_str())).collect()
    }

    #[test]
    fn plain_files_are_found_and_of_all_else_it_is_said_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("b/c")).unwrap();
        for (path, text) in [("z.txt", "zz"), ("b/c/deep.log", "d"), ("b/a", ""), ("job-output.json", "[]")] {
            fs::write(root.join(path), text).unwrap();
        }
        symlink("/etc/passwd", root.join("b/passwd")).unwrap();
        symlink("..", root.join("b/up")).unwrap();
        rustix::fs::mkfifoat(CWD, root.join("pipe"), Mode::RUSR).unwrap();
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"na\xffme")), "x").unwrap();
        let mut manifest = Manifest::default();
        let found = collect(root, &KeepLimits::default(), &mut manifest).unwrap();
        let found: Vec<(&str, u64)> = found.iter().map(|found| (found.path.as_str(), found.size)).collect();
        assert_eq!(found, [("b/a", 0), ("b/c/deep.log", 1), ("z.txt", 2)]);
        assert_eq!(
            left(&manifest),
            [
                ("na\u{fffd}me", "its name is no UTF-8"),
                ("pipe", "it is a pipe"),
                ("b/passwd", "it is a symbolic link"),
                ("b/up", "it is a symbolic link"),
            ]
        );
        assert!(open_below(root, "b/passwd").is_err() && open_below(root, "b/up/z.txt").is_err());
        assert!(open_below(root, "pipe").is_err() && open_below(root, "b/c/deep.log").is_ok());
    }

    #[test]
    fn what_is_too_much_is_left_out_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("1/2/3")).unwrap();
        fs::write(root.join("1/2/3/deep"), "x").unwrap();
        for (name, size) in [("a", 60), ("b", 60), ("c", 40), ("d", 0), ("e", 0)] {
            fs::write(root.join(name), vec![0; size]).unwrap();
        }
        let mut manifest = Manifest::default();
        let found = collect(root, &KeepLimits { files: 3, depth: 3, bytes: 100 }, &mut manifest).unwrap();
        let found: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
        assert_eq!(found, ["a", "c", "d"]);
        assert_eq!(
            left(&manifest),
            [
                ("b", "with its 60 bytes there would be more than 100 bytes"),
                ("e", "there are more than 3 files"),
                ("1/2/3", "it lies more than 3 directories deep"),
            ]
        );
        for number in 0..200 {
            manifest.leave_out(number.to_string(), "why");
        }
        assert_eq!((manifest.left_out.len(), manifest.left_out_more), (100, 103));
        assert_eq!(manifest.warnings().last().unwrap(), "193 more files of the log directory are not kept");
    }
}
