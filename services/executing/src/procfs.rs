//! Processes as `/proc` shows them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// One process, as far as limits care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its parent.
    pub(crate) parent: i32,
    /// When it started, in ticks since the host did.
    pub(crate) start: u64,
    /// Threads; a dead process that nobody has asked for yet still counts as one.
    pub(crate) threads: u64,
    /// Pages in memory, shared ones too.
    pub(crate) pages: u64,
    /// Whether it is dead and only waits for its parent.
    pub(crate) dead: bool,
}

impl Process {
    /// `None`: there is no such process.
    pub(crate) fn read(pid: i32) -> Option<Process> {
        parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// `/proc/<pid>/stat` behind the command's name, which may hold spaces and brackets.
fn parse_stat(text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        start: number(19)?,
        threads: number(17)?.max(1),
        pages: number(21)?,
        dead: fields.first().is_some_and(|state| matches!(*state, "Z" | "X" | "x")),
    })
}

/// All processes of this host that can be seen from here.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    processes: BTreeMap<i32, Process>,
    children: BTreeMap<i32, Vec<i32>>,
}

impl Snapshot {
    /// Reads them. Not one moment: what starts and ends meanwhile may be seen or not.
    pub(crate) fn take() -> Snapshot {
        Self::of(pids().into_iter().filter_map(|pid| Some((pid, Process::read(pid)?))))
    }

    /// The trees of these processes, and nothing else of this host. Where the kernel does not list children, all.
    pub(crate) fn of_trees(roots: &[i32]) -> Snapshot {
        let mut all = Vec::new();
        let mut next: Vec<i32> = roots.to_vec();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(pid) = next.pop() {
            if !seen.insert(pid) {
                continue;
            }
            let Some(process) = Process::read(pid) else { continue };
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for thread in threads.flatten() {
                match fs::read_to_string(thread.path().join("children")) {
                    Ok(text) => next.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
                    // The thread has ended, or this kernel has no such file.
                    Err(_) if thread.path().exists() => return Snapshot::take(),
                    Err(_) => {}
                }
            }
            all.push((pid, process));
        }
        Snapshot::of(all.into_iter())
    }

    fn of(all: impl Iterator<Item = (i32, Process)>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (pid, process) in all {
            snapshot.processes.insert(pid, process);
            snapshot.children.entry(process.parent).or_default().push(pid);
        }
        snapshot
    }

    /// This process and all below it, as far as they are there.
    pub(crate) fn tree(&self, root: i32) -> Vec<(i32, Process)> {
        let mut found: Vec<(i32, Process)> =
            self.processes.get(&root).map(|process| (root, *process)).into_iter().collect();
        let mut next = 0;
        while let Some((parent, _)) = found.get(next).copied() {
            let children = self.children.get(&parent).into_iter().flatten();
            found
                .extend(children.filter(|pid| **pid != root).filter_map(|pid| Some((*pid, *self.processes.get(pid)?))));
            next += 1;
        }
        found
    }

    /// Those that this process has started and that still are its own.
    pub(crate) fn children(&self, parent: i32) -> &[i32] {
        self.children.get(&parent).map_or(&[], Vec::as_slice)
    }
}

/// The numbers of all processes.
pub(crate) fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// How many processes a sandbox has by its own `/proc`, whose numbers are its own: one directory to read, whatever runs
/// beside it on this host. `None`: this process lives in no such sandbox, or is gone, or may not be looked at.
pub(crate) fn count_inside(first: i32) -> Option<u64> {
    let inside = format!("/proc/{first}/root/proc");
    // Before it has one of its own, this would be the host's.
    if fs::metadata(&inside).ok()?.dev() == fs::metadata("/proc").ok()?.dev() {
        return None;
    }
    let entries = fs::read_dir(&inside).ok()?.flatten();
    let count = entries.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    u64::try_from(count.count()).ok()
}

/// The numbers in a file, one a line.
pub(crate) fn pids_in(file: &Path) -> Vec<i32> {
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
}

/// Those that this process has started and that still are its own: one file to read where the kernel has it.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    match fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
        Ok(text) => text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect(),
        Err(_) => Snapshot::take().children(parent).to_vec(),
    }
}

/// The command's name.
pub(crate) fn comm(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The process's fair share of memory in bytes: pages that several map are divided among them. And how much of it are
/// files in memory, such as the kernel tells (since Linux 5.8). Takes long for large processes. `None`: it is gone, or may
/// not be looked at.
pub(crate) fn proportional_memory(pid: i32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some((kib_of(&text, "Pss:")?, kib_of(&text, "Pss_Shmem:").unwrap_or_default()))
}

/// How many threads this host has, of all processes: one short line to read, however many there are. The file stays
/// open, for it is read many times a second.
pub(crate) struct HostThreads(Option<fs::File>);

impl HostThreads {
    pub(crate) fn open() -> HostThreads {
        HostThreads(fs::File::open("/proc/loadavg").ok())
    }

    pub(crate) fn count(&self) -> Option<u64> {
        let mut line = [0; 128];
        let length = self.0.as_ref()?.read_at(&mut line, 0).ok()?;
        parse_loadavg(std::str::from_utf8(line.get(..length)?).ok()?)
    }
}

/// `/proc/loadavg`: three averages, then how many threads run and how many there are.
fn parse_loadavg(text: &str) -> Option<u64> {
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// All memory of this host, and what is available of it, in bytes.
pub fn host_memory() -> Option<(u64, u64)> {
    gatelog_room::measure::host_memory().map(|memory| (memory.all, memory.free))
}

fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse_and_trees_are_whole() {
        let line = |state: &str, parent: i32, threads: u32, pages: u32| {
            format!(
                "7 (a) b) c) {state} {parent} 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4242 1000 {pages} 18446744073709551615 1\n"
            )
        };
        let read = |text: String| parse_stat(&text).unwrap();
        let process = read(line("S", 3, 2, 99));
        assert_eq!(process, Process { parent: 3, start: 4242, threads: 2, pages: 99, dead: false });
        assert!(read(line("Z", 3, 0, 0)).dead);
        assert_eq!(parse_stat("7 (x"), None);
        let child = |parent: i32| read(line("S", parent, 1, 1));
        let all = [(1, child(0)), (10, child(1)), (11, child(10)), (12, child(11)), (20, child(1))];
        let snapshot = Snapshot::of(all.into_iter());
        let tree: Vec<i32> = snapshot.tree(10).into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(tree, [10, 11, 12]);
        assert_eq!(snapshot.tree(99), []);
        assert_eq!((snapshot.children(1), snapshot.children(12)), (&[10, 20][..], &[][..]));
    }

    #[test]
    fn this_process_is_there() {
        let own = i32::try_from(std::process::id()).unwrap();
        let tree = Snapshot::take().tree(own);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let alone: Vec<i32> = Snapshot::of_trees(&[own]).tree(own).into_iter().map(|(pid, _)| pid).collect();
        assert!(alone.contains(&own) && alone.contains(&i32::try_from(child.id()).unwrap()), "{alone:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.first().is_some_and(|(pid, process)| *pid == own && process.pages > 0 && process.threads > 0));
        assert_eq!(count_inside(own), None, "this is no sandbox");
        assert!(proportional_memory(own).is_some_and(|(all, shared)| all > 100_000 && shared <= all));
        let threads = Snapshot::take().processes.values().filter(|process| !process.dead).count();
        assert!(
            HostThreads::open().count().is_some_and(|all| all as usize * 2 > threads),
            "some of them may have ended since"
        );
        assert_eq!(parse_loadavg("0.63 1.92 2.30 3/412 4711\n"), Some(412));
        assert_eq!(parse_loadavg("0.63 1.92"), None);
        let (total, available) = host_memory().unwrap();
        assert!(total > available && available > 0);
    }
}
