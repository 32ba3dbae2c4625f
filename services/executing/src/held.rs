//! What a build keeps that has no name and no size of a process: files that are open or mapped and deleted, and what lies
//! in the memory of its sandbox.
//!
//! Deleted files count for the disk where they lie on the file systems of the build's directories, and for memory where
//! they lie in none (`memfd_create`, `memfd_secret`). For memory also count the sandbox's file systems in memory, and its
//! System V segments, queues and semaphores. The latter can be read only by entering the sandbox's IPC namespace, which
//! root may; the files of mappings alone, whose descriptor is closed, too.
//!
//! Not found: descriptors that are on their way through a socket or are an io_uring's, and buffers of sockets and pipes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, stat, statat, statfs};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Descriptors and mappings of one build that one look sees. A build with more is seen in turns.
pub(crate) const MOST_SEEN: usize = 1 << 18;
/// What a sandbox has in memory (see [`crate::sandbox`]).
const IN_MEMORY: [&str; 4] = ["tmp", "var/tmp", "run", "dev/shm"];
/// What the kernel keeps for one semaphore, in bytes.
const SEMAPHORE: u64 = 64;
/// File systems in memory, by the number that `statfs` gives them (`include/uapi/linux/magic.h`).
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
const SECRETMEM: u64 = 0x5345_434d;

/// What was found, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// On the file systems that count for the disk.
    pub(crate) disk: u64,
    /// In memory, whether processes have mapped it or not.
    pub(crate) memory: u64,
}

/// What the file systems of these directories are known by.
pub(crate) fn devices(places: &[PathBuf]) -> BTreeSet<u64> {
    places.iter().filter_map(|place| Some(fs::symlink_metadata(place).ok()?.dev())).collect()
}

/// What a file system is, as far as its deleted files matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Disk,
    /// Its files count with the blocks they have.
    Memory,
    /// Its files count with their size: it does not tell how much of that is there.
    Whole,
    Other,
}

/// Looks through the processes of one build.
pub(crate) struct Search {
    kinds: BTreeMap<u64, Kind>,
    seen: BTreeSet<(u64, u64)>,
    left: usize,
    found: Held,
}

impl Search {
    /// `disks`: the file systems that count for the disk.
    pub(crate) fn new(disks: &BTreeSet<u64>) -> Search {
        let kinds = disks.iter().map(|device| (*device, Kind::Disk)).collect();
        Search { kinds, seen: BTreeSet::new(), left: MOST_SEEN, found: Held::default() }
    }

    /// Counts what lies in the memory of a sandbox, whose first process this is.
    pub(crate) fn sandbox(&mut self, first: i32) {
        for name in IN_MEMORY {
            let inside = Path::new("/proc").join(first.to_string()).join("root").join(name);
            let (Ok(there), Ok(found)) = (fs::metadata(&inside), statfs(&inside)) else { continue };
            // This host's own, where there is no sandbox or none yet.
            let own = fs::metadata(Path::new("/").join(name)).is_ok_and(|own| own.dev() == there.dev());
            if own || number(found.f_type) != TMPFS || self.kinds.insert(there.dev(), Kind::Other).is_some() {
                continue;
            }
            let used = number(found.f_blocks).saturating_sub(number(found.f_bfree));
            self.found.memory = self.found.memory.saturating_add(used.saturating_mul(number(found.f_bsize)));
        }
    }

    /// Counts so many bytes of memory.
    pub(crate) fn memory(&mut self, bytes: u64) {
        self.found.memory = self.found.memory.saturating_add(bytes);
    }

    /// Looks through these processes. `turn`: with which of them it begins.
    pub(crate) fn processes(mut self, pids: &[i32], turn: usize) -> Held {
        let begin = turn.checked_rem(pids.len()).unwrap_or_default();
        for pid in pids.iter().cycle().skip(begin).take(pids.len()) {
            if self.left == 0 {
                break;
            }
            self.descriptors(*pid);
            self.mappings(*pid);
        }
        self.found
    }

    /// A thread may have descriptors of its own.
    fn descriptors(&mut self, pid: i32) {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
        for thread in threads.flatten() {
            let directory = thread.path().join("fd");
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(handle) = openat(CWD, &directory, flags, Mode::empty()) else { continue };
            let Ok(mut entries) = Dir::read_from(&handle) else { continue };
            while let Some(Ok(entry)) = entries.read() {
                if entry.file_name().to_bytes().starts_with(b".") {
                    continue;
                }
                if self.left == 0 {
                    return;
                }
                self.left -= 1;
                self.descriptor(&handle, &directory, entry.file_name());
            }
        }
    }

    fn descriptor(&mut self, handle: impl AsFd, directory: &Path, name: &CStr) {
        // Of the open file itself, not of the link that stands for it.
        if let Ok(found) = statat(handle, name, AtFlags::empty()) {
            self.file(&found, || directory.join(name.to_string_lossy().as_ref()));
        }
    }

    /// Files that are only mapped. Their descriptors may be closed.
    fn mappings(&mut self, pid: i32) {
        let Ok(file) = File::open(format!("/proc/{pid}/maps")) else { return };
        let mut last = String::new();
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            if self.left == 0 {
                return;
            }
            let Some((range, inode)) = deleted_mapping(&line) else { continue };
            // One file has several mappings, one behind the other.
            if inode == last {
                continue;
            }
            self.left -= 1;
            let path = PathBuf::from(format!("/proc/{pid}/map_files/{range}"));
            last = inode;
            match stat(&path) {
                Ok(found) => self.file(&found, || path),
                // Nobody but root may follow it.
                Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => return,
                Err(_) => {}
            }
        }
    }

    /// Counts a file, once, if it has no name any more.
    fn file(&mut self, found: &Stat, path: impl FnOnce() -> PathBuf) {
        if found.st_nlink != 0 || FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return;
        }
        let device = found.st_dev;
        let kind = *self.kinds.entry(device).or_insert_with(|| kind(&path()));
        if kind == Kind::Other || !self.seen.insert((device, found.st_ino)) {
            return;
        }
        let blocks = number(found.st_blocks).saturating_mul(512);
        match kind {
            Kind::Disk => self.found.disk = self.found.disk.saturating_add(blocks),
            Kind::Memory => self.memory(blocks),
            Kind::Whole => self.memory(number(found.st_size)),
            Kind::Other => {}
        }
    }
}

fn kind(path: &Path) -> Kind {
    match statfs(path).map(|found| number(found.f_type)) {
        Ok(TMPFS) => Kind::Memory,
        Ok(HUGETLBFS | SECRETMEM) => Kind::Whole,
        _ => Kind::Other,
    }
}

/// What the kernel counts with and without a sign, on one processor and another.
fn number<N>(value: N) -> u64
where
    u64: TryFrom<N>,
{
    u64::try_from(value).unwrap_or_default()
}

/// The range, and device with inode, of a line of `/proc/<pid>/maps` whose file is deleted.
fn deleted_mapping(line: &[u8]) -> Option<(String, String)> {
    let line = String::from_utf8_lossy(line.strip_suffix(b" (deleted)")?);
    let mut fields = line.split_ascii_whitespace();
    let (range, device, inode) = (fields.next()?, fields.nth(2)?, fields.next()?);
    Some((range.to_owned(), format!("{device} {inode}")))
}

/// A way into the IPC namespaces of sandboxes, and back. For one thread.
pub(crate) struct Ipc {
    own: Option<File>,
}

impl Ipc {
    pub(crate) fn open() -> Ipc {
        Ipc { own: File::open("/proc/thread-self/ns/ipc").ok() }
    }

    /// Bytes of System V segments, queues and semaphores in the sandbox of this process. `None`: it has none of its own, or
    /// may not be entered.
    pub(crate) fn measure(&self, first: i32) -> Option<u64> {
        let own = self.own.as_ref()?;
        let theirs = File::open(format!("/proc/{first}/ns/ipc")).ok()?;
        if theirs.metadata().ok()?.ino() == own.metadata().ok()?.ino() {
            return None;
        }
        let kind = Some(LinkNameSpaceType::InterProcessCommunication);
        move_into_link_name_space(theirs.as_fd(), kind).ok()?;
        let bytes = [("shm", &["rss", "swap"][..], 1), ("msg", &["cbytes"], 1), ("sem", &["nsems"], SEMAPHORE)]
            .iter()
            .map(|(name, columns, unit)| sum(&format!("/proc/sysvipc/{name}"), columns).saturating_mul(*unit))
            .fold(0, u64::saturating_add);
        if let Err(error) = move_into_link_name_space(own.as_fd(), kind) {
            tracing::warn!(%error, "a thread cannot leave a sandbox's IPC namespace: the next look enters another");
        }
        Some(bytes)
    }
}

/// The sum of these columns of a table with names above them.
fn sum(path: &str, columns: &[&str]) -> u64 {
    let Ok(file) = File::open(path) else { return 0 };
    sum_of(BufReader::new(file), columns)
}

fn sum_of(table: impl BufRead, columns: &[&str]) -> u64 {
    let mut lines = table.lines().map_while(Result::ok);
    let head = lines.next().unwrap_or_default();
    let wanted: Vec<bool> = head.split_ascii_whitespace().map(|name| columns.contains(&name)).collect();
    let of = |line: String| -> u64 {
        let fields = line.split_ascii_whitespace().zip(&wanted).filter(|(_, wanted)| **wanted);
        fields.filter_map(|(text, _)| text.parse::<u64>().ok()).fold(0, u64::saturating_add)
    };
    lines.map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn own() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn a_deleted_file_counts_once_as_long_as_somebody_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let disks = devices(&[folder.path().to_owned(), folder.path().join("nowhere")]);
        assert_eq!(disks.len(), 1);
        let look = || Search::new(&disks).processes(&[own()], 7).disk;
        let before = look();
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        // Other tests of this process have deleted files, too.
        assert!(look().abs_diff(before) < 1 << 20, "as long as it has a name it is somebody else's to count");
        let again = file.try_clone().unwrap();
        fs::remove_file(&path).unwrap();
        let grown = look() - before;
        assert!((3 << 20..4 << 20).contains(&grown), "{grown}");
        drop((file, again));
        assert!(look().abs_diff(before) < 1 << 20);
        assert_eq!(Search::new(&disks).processes(&[], 3), Held::default());
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let line = "7f00-7f01 rw-s 00000000 00:01 1029      /memfd:a b (deleted)";
        assert_eq!(deleted_mapping(line.as_bytes()), Some(("7f00-7f01".into(), "00:01 1029".into())));
        assert_eq!(deleted_mapping(b"7f00-7f01 rw-s 00000000 00:01 1029 /usr/bin/python3"), None);
        assert_eq!(deleted_mapping(b"7f00 (deleted)"), None);
        let table = "  key shmid  size   rss swap\n  0  1  4096   100   20\n 0 2 5 7 x\n 0\n";
        assert_eq!(sum_of(table.as_bytes(), &["rss", "swap"]), 127);
        assert_eq!(sum_of("".as_bytes(), &["rss"]), 0);
        assert_eq!(Ipc::open().measure(own()), None, "this host's own is nobody's sandbox");
    }
}
