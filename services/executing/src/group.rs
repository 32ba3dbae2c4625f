//! The control group of one build: what is written into it, what it says, and its end.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cgroup::Delegated;
use crate::process::{ProcessIdentity, pids_in};

/// What groups of builds begin with.
pub(crate) const BUILD: &str = "gatelog-build-";
/// How long a group may take to be empty once it is killed.
const DEATH: Duration = Duration::from_secs(10);
/// Beside 100 of everybody else: builds leave room for the log and the web.
const CPU_WEIGHT: u32 = 50;
/// The part of its memory that a build may have once more for buffers of TCP, in version 1.
const TCP_SHARE: u64 = 4;
/// The same as the weight in version 1, beside 1024.
const CPU_SHARES: u32 = 512;

/// The number of the next group that this process makes.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Writes to a file of a group; else which and why.
pub(crate) fn put(path: &Path, text: &str) -> Result<(), (PathBuf, io::Error)> {
    // Never makes a file: in a cgroup there is one, or the kernel does not know it.
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes())).map_err(|error| (path.to_owned(), error))
}

/// What a group of a build says it was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// Processes killed because the group was out of memory.
    pub(crate) oom_kills: u64,
    /// Processes that could not be started because there were too many.
    pub(crate) refused_processes: u64,
}

/// What to write into a group's files, in this order. `false`: where the file is missing the kernel
/// has not this feature, and that is well.
pub(crate) fn settings(delegated: &Delegated, memory: Option<u64>, processes: Option<u64>) -> Vec<Setting> {
    let mut all = Vec::new();
    let legacy = delegated.version() == 1;
    if let Some(bytes) = memory.filter(|_| delegated.memory && legacy) {
        all.push(Setting { file: "memory.limit_in_bytes", value: bytes.to_string(), required: true });
        // With swap no more than without. After the other: the kernel takes no less for both than for one.
        all.push(Setting { file: "memory.memsw.limit_in_bytes", value: bytes.to_string(), required: false });
        // They are counted apart, and only where they have a limit. A connection that meets it waits.
        let buffers = (bytes / TCP_SHARE).to_string();
        all.push(Setting { file: "memory.kmem.tcp.limit_in_bytes", value: buffers, required: false });
    } else if let Some(bytes) = memory.filter(|_| delegated.memory) {
        all.push(Setting { file: "memory.max", value: bytes.to_string(), required: true });
        // A limit that swap stretches is none.
        all.push(Setting { file: "memory.swap.max", value: "0".into(), required: false });
        // The build ends as a whole, not by the loss of whichever process was the largest.
        all.push(Setting { file: "memory.oom.group", value: "1".into(), required: false });
    }
    if let Some(count) = processes.filter(|_| delegated.processes) {
        all.push(Setting { file: "pids.max", value: count.to_string(), required: true });
    }
    if delegated.cpu {
        let (file, value) = if legacy { ("cpu.shares", CPU_SHARES) } else { ("cpu.weight", CPU_WEIGHT) };
        all.push(Setting { file, value: value.to_string(), required: false });
    }
    all
}

/// One line of [`settings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) file: &'static str,
    pub(crate) value: String,
    pub(crate) required: bool,
}

/// The group of one build; with version 1, its groups. Dropping it kills what lives in it.
#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    delegated: Delegated,
}

impl Group {
    /// Makes a group.
    pub(crate) fn create(delegated: &Delegated, name: &str, settings: &[Setting]) -> io::Result<Group> {
        let own = ProcessIdentity::own();
        // Two executors of one process may have builds of the same name.
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{BUILD}{}-{}-{name}-{serial}", own.pid, own.start);
        let group = Group { name, delegated: delegated.clone() };
        group.directories().iter().try_for_each(fs::create_dir)?;
        for Setting { file, value, required } in settings {
            match put(&group.file(file), value) {
                Err((_, error)) if *required => return Err(error),
                _ => {}
            }
        }
        Ok(group)
    }

    /// One that an earlier process has made.
    pub(crate) fn found(delegated: &Delegated, name: String) -> Group {
        Group { name, delegated: delegated.clone() }
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.delegated.directories().into_iter().map(|directory| directory.join(&self.name)).collect()
    }

    /// Where a file of a controller lies. Its name begins with the controller's.
    pub(crate) fn file(&self, file: &str) -> PathBuf {
        let tree = self.delegated.trees.as_ref().and_then(|trees| match file.split('.').next() {
            Some("pids") => trees.processes.as_ref(),
            Some("cpu") => trees.cpu.as_ref(),
            _ => trees.memory.as_ref(),
        });
        tree.unwrap_or(&self.delegated.directory).join(&self.name).join(file)
    }

    /// Puts a process, and what it will start, into the group.
    pub(crate) fn enter(&self, pid: u32) -> io::Result<()> {
        let mut directories = self.directories().into_iter();
        directories.try_for_each(|directory| {
            put(&directory.join("cgroup.procs"), &pid.to_string()).map_err(|(_, error)| error)
        })
    }

    /// Whether the kernel limits memory here.
    pub(crate) fn limits_memory(&self) -> bool {
        self.delegated.memory
    }

    /// Whether the kernel limits processes here.
    pub(crate) fn limits_processes(&self) -> bool {
        self.delegated.processes
    }

    /// What was refused so far.
    pub(crate) fn events(&self) -> Events {
        let kills = if self.delegated.version() == 1 { "memory.oom_control" } else { "memory.events" };
        Events { oom_kills: self.count(kills, "oom_kill"), refused_processes: self.count("pids.events", "max") }
    }

    fn count(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.file(file)).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        found.unwrap_or_default()
    }

    /// The most memory the group ever had, if the kernel says so.
    pub(crate) fn peak(&self) -> Option<u64> {
        let file = if self.delegated.version() == 1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.file(file)).ok()?.trim().parse().ok()
    }

    /// Kills everything in the group.
    pub(crate) fn kill(&self) {
        for directory in self.directories() {
            if put(&directory.join("cgroup.kill"), "1").is_err() {
                // Before Linux 5.14, and with version 1.
                crate::process::kill_all(&pids_in(&directory.join("cgroup.procs")));
            }
        }
    }

    /// Removes its directories. Whether they are gone.
    fn remove_directories(&self) -> bool {
        let mut gone = true;
        for directory in self.directories() {
            gone &= fs::remove_dir(directory).map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true);
        }
        gone
    }

    /// Kills everything in the group and removes it. Whoever else has it can do nothing with it any more.
    pub(crate) fn remove(&self) {
        let until = Instant::now() + DEATH;
        while Instant::now() < until {
            self.kill();
            if self.remove_directories() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let directory = self.delegated.directory.join(&self.name);
        tracing::warn!(directory = %directory.display(), "a build's control group is not empty; the next sweep removes it");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.directories().iter().any(|directory| directory.exists()) {
            self.kill();
            if !self.remove_directories() {
                // What is in it is dying. Whoever drops it may have no time.
                let group = ManuallyDrop::new(Group::found(&self.delegated, self.name.clone()));
                std::thread::spawn(move || group.remove());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup_v1::Trees;

    #[test]
    fn a_group_is_given_these_settings() {
        let mut delegated = Delegated::unified("/d".into(), true, true, true);
        let text = |delegated: &Delegated| {
            let all = settings(delegated, Some(1 << 30), Some(4096));
            all.iter()
                .map(|one| format!("{}{} = {}\n", if one.required { "" } else { "?" }, one.file, one.value))
                .collect::<String>()
        };
        assert_eq!(
            text(&delegated),
            "memory.max = 1073741824\n?memory.swap.max = 0\n?memory.oom.group = 1\npids.max = 4096\n?cpu.weight = 50\n"
        );
        delegated.memory = false;
        delegated.cpu = false;
        assert_eq!(text(&delegated), "pids.max = 4096\n");
        assert_eq!(settings(&delegated, None, None), []);
        let place = || Some(PathBuf::from("/d"));
        let trees = Trees { memory: place(), processes: place(), cpu: place() };
        assert_eq!(
            text(&Delegated::legacy(trees).unwrap()),
            "memory.limit_in_bytes = 1073741824\n?memory.memsw.limit_in_bytes = 1073741824\n?memory.kmem.tcp.limit_in_bytes = 268435456\npids.max = 4096\n?cpu.shares = 512\n"
        );
    }

    #[test]
    fn with_version_1_a_build_has_a_group_in_each_tree() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let place = folder.path().join(name);
            fs::create_dir(&place).unwrap();
            Some(place)
        };
        let trees = Trees { memory: place("memory"), processes: place("pids"), cpu: None };
        let delegated = Delegated::legacy(trees).unwrap();
        assert!(delegated.version() == 1 && delegated.memory && delegated.processes && !delegated.cpu);
        let group = Group::create(&delegated, "b-1", &[]).unwrap();
        let files = [
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            ("memory.max_usage_in_bytes", "4096\n"),
            ("pids.events", "max 7\n"),
        ];
        files.iter().for_each(|(name, text)| fs::write(group.file(name), text).unwrap());
        assert_eq!(group.events(), Events { oom_kills: 3, refused_processes: 7 });
        assert_eq!(group.peak(), Some(4096));
        assert_eq!(delegated.sweep(), 0, "our own is left alone");
        files.iter().for_each(|(name, _)| fs::remove_file(group.file(name)).unwrap());
        group.remove();
        for tree in ["memory", "pids"] {
            assert_eq!(fs::read_dir(folder.path().join(tree)).unwrap().count(), 0, "{tree}");
        }
        // One half of it is enough.
        fs::create_dir(folder.path().join(format!("pids/{BUILD}1-99999999999-b-2"))).unwrap();
        assert_eq!(delegated.sweep(), 1);
        assert_eq!(fs::read_dir(folder.path().join("pids")).unwrap().count(), 0);
    }
}
