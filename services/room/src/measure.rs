//! How much of this host there is, and how much of it is free.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

/// Of so much, so much is free for this user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// All.
    pub all: u64,
    /// Free.
    pub free: u64,
}

impl Amount {
    /// How much is free, in hundredths; of nothing, all is.
    pub fn percent_free(self) -> f64 {
        if self.all == 0 { 100.0 } else { self.free as f64 / self.all as f64 * 100.0 }
    }
}

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its bytes.
    pub bytes: Amount,
    /// Its inodes; `None`: it does not count them.
    pub inodes: Option<Amount>,
    /// Whether nobody can write.
    pub read_only: bool,
}

impl FileSystem {
    /// The one a path lies on; `None`: there is no such path.
    pub fn of(path: &Path) -> Option<FileSystem> {
        let found = statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // What is set aside for root is not there for this user, and no part of all: Zuul and df reckon so, too.
        let usable = found.f_blocks.saturating_sub(found.f_bfree.saturating_sub(found.f_bavail));
        Some(FileSystem {
            bytes: Amount { all: bytes(usable), free: bytes(found.f_bavail) },
            inodes: (found.f_files > 0).then_some(Amount { all: found.f_files, free: found.f_favail }),
            read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }
}

/// The memory of this process's control group where that has a limit that is lower than the host's, else the host's.
/// What files take that are in memory only to be read again quickly is free. `None`: this system does not tell.
pub fn memory() -> Option<Amount> {
    let host = host_memory()?;
    let groups = groups(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let limits = groups.iter().filter_map(|group| group_memory(group));
    Some(
        limits.filter(|group| group.all < host.all).fold(host, |tightest, group| {
            if group.free < tightest.free || tightest == host { group } else { tightest }
        }),
    )
}

/// All memory of this host. `None`: this system does not tell.
pub fn host_memory() -> Option<Amount> {
    told_by(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn told_by(meminfo: &str) -> Option<Amount> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Amount { all: kib("MemTotal:")?, free: kib("MemAvailable:")? })
}

/// The directories of the control groups a process is in, and of those above them, by its `/proc/self/cgroup`.
fn groups(text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|one| one == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        found.extend(group.ancestors().take_while(|place| place.starts_with(root)).map(Path::to_owned));
    }
    found
}

/// What a control group may have; `None`: it has no limit.
fn group_memory(group: &Path) -> Option<Amount> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let (all, used) = match number("memory.max") {
        Some(all) => (all, number("memory.current")?),
        None => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?),
    };
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
    let cached = of("inactive_file").or_else(|| of("total_inactive_file")).unwrap_or_default();
    Some(Amount { all, free: all.saturating_sub(used.saturating_sub(cached)) })
}

/// How many processes wanted to run over the last minute, on average. `None`: this system does not tell.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// How many processors there are for this process, at least one.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_control_group_where_it_has_a_limit() {
        let meminfo = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    250 kB\n";
        let host = told_by(meminfo).unwrap();
        assert_eq!((host, host.percent_free()), (Amount { all: 1_024_000, free: 256_000 }, 25.0));
        assert_eq!(told_by("MemTotal: x\n"), None);
        let both = groups("12:cpu,cpuacct:/x\n4:memory:/a/b\n0::/ci.slice/gatelog.service\n");
        assert_eq!(
            both.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/ci.slice/gatelog.service",
                "/sys/fs/cgroup/ci.slice",
                "/sys/fs/cgroup"
            ]
        );
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(group_memory(folder.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "900\n");
        assert_eq!(group_memory(folder.path()), None, "no limit");
        write("memory.max", "1000\n");
        write("memory.stat", "anon 500\ninactive_file 400\n");
        assert_eq!(group_memory(folder.path()), Some(Amount { all: 1000, free: 500 }));
    }

    #[test]
    fn this_host_tells_what_it_has() {
        let here = FileSystem::of(Path::new("/proc/self/..")).unwrap();
        assert_eq!(here.bytes.percent_free(), 100.0, "of nothing all is free");
        assert!(memory().is_some_and(|memory| memory.all >= memory.free && memory.all > 0));
        assert!(load().is_some_and(|load| load >= 0.0) && processors() > 0);
        assert_eq!(FileSystem::of(Path::new("/not/there")), None);
    }
}
