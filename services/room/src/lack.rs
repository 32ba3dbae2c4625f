//! What a host can lack, and how an error says so.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::measure::FileSystem;

/// Less than this is no room: what fails beside it may well have failed for want of it. A small file system has a
/// sixteenth of itself instead.
const LITTLE_BYTES: u64 = 1 << 20;
/// The same of inodes.
const FEW_INODES: u64 = 4;

/// What a host has no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lack {
    /// A file system has no bytes left (`ENOSPC`).
    Disk,
    /// A file system has no inodes left (`ENOSPC`, too).
    Inodes,
    /// The user's quota is used up (`EDQUOT`).
    Quota,
    /// A file system is read-only, often after an error of its disk (`EROFS`).
    ReadOnly,
    /// The process or the host may open no more files (`EMFILE`, `ENFILE`).
    Files,
    /// The kernel gives no more memory (`ENOMEM`).
    Memory,
    /// No process or thread can be started (`EAGAIN` of `fork` and `clone`).
    Processes,
}

/// What the C library says of each error that means a lack, in the language of programs that were not asked to speak
/// another, and its number on Linux.
const TEXTS: [(&str, i32, Lack); 8] = [
    ("No space left on device", 28, Lack::Disk),
    ("Disk quota exceeded", 122, Lack::Quota),
    ("Read-only file system", 30, Lack::ReadOnly),
    ("Too many open files in system", 23, Lack::Files),
    ("Too many open files", 24, Lack::Files),
    ("Cannot allocate memory", 12, Lack::Memory),
    ("Out of memory", 12, Lack::Memory),
    ("Resource temporarily unavailable", 11, Lack::Processes),
];

impl Lack {
    /// Every one.
    pub const ALL: [Lack; 7] =
        [Lack::Disk, Lack::Inodes, Lack::Quota, Lack::ReadOnly, Lack::Files, Lack::Memory, Lack::Processes];

    /// The reason as programs know it, such as `server-disk-full`.
    pub fn code(self) -> &'static str {
        match self {
            Lack::Disk => "server-disk-full",
            Lack::Inodes => "server-inodes-used-up",
            Lack::Quota => "server-quota-used-up",
            Lack::ReadOnly => "server-read-only",
            Lack::Files => "server-file-descriptors-used-up",
            Lack::Memory => "server-memory-used-up",
            Lack::Processes => "server-processes-used-up",
        }
    }

    /// What to do about it.
    pub fn cure(self) -> &'static str {
        match self {
            Lack::Disk => "make room",
            Lack::Inodes => "remove files, or make the file system anew with more inodes",
            Lack::Quota => "make room, or raise the quota of the server's user",
            Lack::ReadOnly => "see why in the kernel's log (dmesg), and mount it writable again",
            Lack::Files => "raise the limit (LimitNOFILE= of the service, fs.file-max of the host), and start it again",
            Lack::Memory => "give the server more memory, or let it run fewer builds at once (slots)",
            Lack::Processes => "raise the limit of processes (TasksMax= of the service, ulimit -u of its user)",
        }
    }

    /// Whether an error of the system means a lack. `EAGAIN` does when a process or thread was to be started; who reads
    /// or locks without waiting gets it as well and must not ask here.
    pub fn of(error: &io::Error) -> Option<Lack> {
        let number = error.raw_os_error()?;
        TEXTS.iter().find(|(_, known, _)| *known == number).map(|(.., lack)| *lack)
    }

    /// Whether the text of an error means a lack: where it ends a line or stands before a semicolon, as the C library's words end the complaints of
    /// libgit2, git and other programs, or stands with its number, as in Rust. What else somebody may have called a file
    /// or branch is not taken for one.
    pub fn of_text(text: &str) -> Option<Lack> {
        TEXTS.iter().find(|(words, number, _)| says(text, words, *number)).map(|(.., lack)| *lack)
    }

    /// A text for operators, with the code of the lack it tells of before it, if it tells of one.
    pub fn named(text: &str) -> String {
        match Lack::of_text(text).filter(|lack| !text.contains(lack.code())) {
            Some(lack) => format!("{}: {text}", lack.code()),
            None => text.to_owned(),
        }
    }

    /// What a file system lacks at this moment, of this process or any other.
    pub fn at(path: &Path) -> Option<Lack> {
        let found = FileSystem::of(path)?;
        if found.read_only {
            return Some(Lack::ReadOnly);
        }
        if found.inodes.is_some_and(|inodes| inodes.free < FEW_INODES) {
            return Some(Lack::Inodes);
        }
        (found.bytes.free < LITTLE_BYTES.min(found.bytes.all / 16)).then_some(Lack::Disk)
    }

    /// What this host lacks at this moment at one of these places, or of file descriptors. Asked when something failed
    /// whose error may not say why: a failure on a host without room is not to be trusted.
    pub fn now<'p>(places: impl IntoIterator<Item = &'p Path>) -> Option<Lack> {
        let files = || File::open("/dev/null").err().and_then(|error| Lack::of(&error));
        places.into_iter().find_map(Lack::at).or_else(files)
    }

    /// The same lack, told apart by the file systems: `ENOSPC` is said of bytes and of inodes.
    #[must_use]
    pub fn told_apart<'p>(self, places: impl IntoIterator<Item = &'p Path>) -> Lack {
        match self {
            Lack::Disk => places.into_iter().find_map(Lack::at).filter(|found| *found == Lack::Inodes).unwrap_or(self),
            _ => self,
        }
    }
}

/// Whether a text has these words at the end of a line, or with their number.
fn says(text: &str, words: &str, number: i32) -> bool {
    let numbered = format!("{words} (os error {number})");
    let ends = |part: &str| part.trim_end().trim_end_matches('.').ends_with(words);
    text.contains(&numbered) || text.split(['\n', ';']).any(ends)
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Disk => "a disk is full",
            Lack::Inodes => "a file system has no inodes left",
            Lack::Quota => "the quota on disk is used up",
            Lack::ReadOnly => "a file system is read-only",
            Lack::Files => "no more files can be opened",
            Lack::Memory => "there is no memory left",
            Lack::Processes => "no more processes can be started",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_host_without_room_is_told_from_its_number_and_from_what_programs_say() {
        for (number, expected) in [
            (28, Lack::Disk),
            (122, Lack::Quota),
            (30, Lack::ReadOnly),
            (24, Lack::Files),
            (23, Lack::Files),
            (12, Lack::Memory),
            (11, Lack::Processes),
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(Lack::of(&error), Some(expected), "{error}");
            for text in [
                format!("cannot write node.json: {error}"),
                format!("{error}; it is tried again"),
                error.to_string().replace(&format!(" (os error {number})"), "") + "\nfatal: write error",
                error.to_string().replace(&format!(" (os error {number})"), "; class=Os (2)"),
            ] {
                assert_eq!(Lack::of_text(&text), Some(expected), "{text}");
            }
            let named = Lack::named(&error.to_string());
            assert!(named.starts_with(&format!("{}: ", expected.code())), "{named}");
            assert_eq!((Lack::named(&named), Lack::named("well")), (named, "well".to_owned()));
        }
        for number in [1, 2, 5, 13, 17, 36] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!((Lack::of(&error), Lack::of_text(&error.to_string())), (None, None), "{error}");
        }
        for text in ["no branch No space left on device in app", "'Read-only file system' is not there"] {
            assert_eq!(Lack::of_text(text), None, "{text}");
        }
    }

    #[test]
    fn codes_are_of_the_server_and_each_has_a_cure() {
        for lack in Lack::ALL {
            assert!(lack.code().starts_with("server-") && !lack.cure().is_empty() && !lack.to_string().is_empty());
        }
    }

    #[test]
    fn a_directory_with_room_lacks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Lack::at(&folder.path().join("not/there")), None, "what is not there tells nothing");
        // This host may be full; then that is what it says.
        assert!(Lack::at(folder.path()).is_none_or(|lack| matches!(lack, Lack::Disk | Lack::Inodes)));
        assert_eq!(Lack::Memory.told_apart([folder.path()]), Lack::Memory);
    }
}
