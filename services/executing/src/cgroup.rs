//! Limits that the kernel keeps: control groups for builds, where this host lets us. Version 2 is described here; where it
//! is not to be had, version 1 is taken (see [`crate::cgroup_v1`]), in which a build has a group in each of several trees.
//!
//! The kernel's rules shape this: only a group without processes of its own may hand controllers to
//! groups below it, and only who may write to a group's files may use it. So there must be a group
//! that was delegated to us (systemd: `Delegate=yes`; a container of its own; or a directory named
//! in the settings). If this process itself lives in it, alone, it moves into a group below:
//!
//! ```text
//! <delegated>/                          memory and pids are handed down
//! <delegated>/gatelog-main/             this process
//! <delegated>/gatelog-build-<pid>-<start>-<build>-<attempt>/   one for each build that runs
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Access;

use crate::cgroup_v1::Trees;
use crate::process::{ProcessIdentity, pids_in};

/// Where this process goes when it must make room.
const MAIN: &str = "gatelog-main";
/// What groups of builds begin with.
const BUILD: &str = "gatelog-build-";
/// How long a group may take to be empty once it is killed.
const DEATH: Duration = Duration::from_secs(10);
/// Beside 100 of everybody else: builds leave room for the log and the web.
const CPU_WEIGHT: u32 = 50;
/// The same in version 1, beside 1024.
const CPU_SHARES: u32 = 512;

/// Where groups for builds are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CgroupSetting {
    /// In the group this process lives in, if it was delegated.
    #[default]
    Auto,
    /// Nowhere: a watch in this process keeps the limits.
    Off,
    /// In this directory of a cgroup2 file system; or of the tree of memory or pids in version 1, and in those at the same
    /// place in the other trees.
    At(PathBuf),
}

/// Why the kernel's limits cannot be used: what is the matter, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {cure}")]
pub struct NoCgroup {
    /// What is the matter.
    pub reason: String,
    /// What to do about it.
    pub cure: String,
}

/// A group in which groups for builds can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// Its directory; with version 1 that in the first of the trees.
    pub directory: PathBuf,
    /// Whether memory can be limited in it.
    pub memory: bool,
    /// Whether processes can be limited in it.
    pub processes: bool,
    /// Whether shares of the processors can be set in it.
    pub cpu: bool,
    /// Whether this process lives in it and has to move out of the way first.
    moves: bool,
    /// The directories of version 1; `None`: it is version 2.
    trees: Option<Trees>,
}

fn none(reason: impl Into<String>, cure: &str) -> NoCgroup {
    NoCgroup { reason: reason.into(), cure: cure.to_owned() }
}

const DELEGATE: &str = "start gatelog as a systemd service with Delegate=yes (to try it by hand: systemd-run --user --scope -p Delegate=yes gatelog …), or name a delegated directory as cgroup of [executor]";
const UNIFIED: &str = "boot the host with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1), or give gatelog's user a directory in the trees of memory and pids of version 1, and name one of them as cgroup of [executor]";

impl Delegated {
    /// Whether there is such a group on this host. Changes nothing.
    ///
    /// # Errors
    /// Why there is none, and what to do about it.
    pub fn look(setting: &CgroupSetting) -> Result<Delegated, NoCgroup> {
        Self::look_in(setting, Path::new("/proc"))
    }

    fn look_in(setting: &CgroupSetting, proc: &Path) -> Result<Delegated, NoCgroup> {
        if *setting == CgroupSetting::Off {
            return Err(none("it is switched off", "set cgroup = \"auto\" in [executor]"));
        }
        let mountinfo = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
        let own = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
        Self::look_unified(setting, &mountinfo, &own).or_else(|why| {
            let trees = match setting {
                CgroupSetting::At(directory) => Trees::at(&mountinfo, directory),
                _ => Trees::own(&mountinfo, &own),
            };
            trees.and_then(Self::legacy).ok_or(why)
        })
    }

    fn legacy(trees: Trees) -> Option<Delegated> {
        let directory = trees.all().next()?.clone();
        Some(Delegated {
            directory,
            memory: trees.memory.is_some(),
            processes: trees.processes.is_some(),
            cpu: trees.cpu.is_some(),
            moves: false,
            trees: Some(trees),
        })
    }

    fn look_unified(setting: &CgroupSetting, mountinfo: &str, own: &str) -> Result<Delegated, NoCgroup> {
        let Some((mount, root)) = cgroup2_mount(mountinfo) else {
            return Err(none("no cgroup2 file system is mounted", UNIFIED));
        };
        let directory = match setting {
            CgroupSetting::At(directory) => {
                if !directory.join("cgroup.controllers").exists() {
                    let reason = format!("{} is no directory of a cgroup file system", directory.display());
                    return Err(none(
                        reason,
                        "name one below the place where cgroup2 is mounted, or memory or pids of version 1, that gatelog may write to",
                    ));
                }
                directory.clone()
            }
            _ => {
                let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
                let below = own.strip_prefix(root.as_str()).unwrap_or(own).trim_start_matches('/');
                if below.split('/').any(|part| part == "..") {
                    return Err(none("this process's group lies outside what it can see", DELEGATE));
                }
                mount.join(below)
            }
        };
        let read = |file: &str| fs::read_to_string(directory.join(file));
        let controllers =
            read("cgroup.controllers").map_err(|error| none(format!("{}: {error}", directory.display()), DELEGATE))?;
        let has = |name: &str| controllers.split_whitespace().any(|word| word == name);
        let (memory, processes, cpu) = (has("memory"), has("pids"), has("cpu"));
        if !memory && !processes {
            let reason = format!("the group {} has neither memory nor pids controller", directory.display());
            // At the top of the tree nothing was withheld: version 1 has them.
            let cure = if directory == mount && root == "/" { UNIFIED } else { DELEGATE };
            return Err(none(reason, cure));
        }
        for file in ["cgroup.subtree_control", "cgroup.procs", ""] {
            if rustix::fs::access(directory.join(file), Access::WRITE_OK).is_err() {
                return Err(none(format!("the group {} is not ours to write", directory.display()), DELEGATE));
            }
        }
        // The root of all groups, and only it, has no type; there processes are no hindrance.
        let is_root = !directory.join("cgroup.type").exists();
        let own = std::process::id().to_string();
        let living = read("cgroup.procs").unwrap_or_default();
        let strangers = living.lines().filter(|pid| *pid != own).count();
        let moves = !is_root && living.lines().any(|pid| pid == own);
        if strangers > 0 && !is_root {
            let reason = format!("{strangers} other processes live in the group {}", directory.display());
            return Err(none(reason, DELEGATE));
        }
        Ok(Delegated { directory, memory, processes, cpu, moves, trees: None })
    }

    /// Makes the group ready for builds: this process moves out of the way, and the controllers are
    /// handed down.
    pub(crate) fn take(setting: &CgroupSetting) -> Result<Delegated, NoCgroup> {
        let mut delegated = Self::look(setting)?;
        delegated.set_up().map_err(|(path, error)| none(format!("{}: {error}", path.display()), DELEGATE))?;
        Ok(delegated)
    }

    /// The version of control groups.
    pub fn version(&self) -> u8 {
        if self.trees.is_some() { 1 } else { 2 }
    }

    /// The directories in which a build has a group.
    fn directories(&self) -> Vec<&PathBuf> {
        self.trees.as_ref().map_or_else(|| vec![&self.directory], |trees| trees.all().collect())
    }

    fn set_up(&mut self) -> Result<(), (PathBuf, io::Error)> {
        if self.trees.is_some() {
            return Ok(());
        }
        if self.moves {
            let main = self.directory.join(MAIN);
            match fs::create_dir(&main) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err((main, error)),
                _ => put(&main.join("cgroup.procs"), &std::process::id().to_string())?,
            }
            self.moves = false;
        }
        let control = self.directory.join("cgroup.subtree_control");
        for (wanted, name) in [(&mut self.memory, "memory"), (&mut self.processes, "pids"), (&mut self.cpu, "cpu")] {
            // One that cannot be handed down (in use elsewhere) does not spoil the others.
            *wanted = *wanted && put(&control, &format!("+{name}")).is_ok();
        }
        match self.memory || self.processes {
            true => Ok(()),
            false => Err((control, io::Error::other("neither memory nor pids can be handed down"))),
        }
    }

    /// Removes groups of builds whose process is no more, with all that still lives in them. How
    /// many there were.
    pub(crate) fn sweep(&self) -> usize {
        let mut dead = BTreeSet::new();
        let entries = self.directories().into_iter().filter_map(|directory| fs::read_dir(directory).ok());
        for entry in entries.flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(rest) = name.strip_prefix(BUILD) else { continue };
            let mut parts = rest.splitn(3, '-');
            let (pid, start) = (parts.next().map(str::parse), parts.next().map(str::parse));
            let (Some(Ok(pid)), Some(Ok(start))) = (pid, start) else { continue };
            // Groups do not outlive a start of the host.
            let owner = ProcessIdentity { pid, start, ..ProcessIdentity::own() };
            if !owner.is_alive() {
                dead.insert(name);
            }
        }
        let found = dead.len();
        dead.into_iter().for_each(|name| Group { name, delegated: self.clone() }.remove());
        found
    }
}

/// Where cgroup2 is mounted, and which part of it.
fn cgroup2_mount(mountinfo: &str) -> Option<(PathBuf, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let root = fields.next()?;
        Some((fields.next()?.into(), root.to_owned()))
    })
}

fn put(path: &Path, text: &str) -> Result<(), (PathBuf, io::Error)> {
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
        let name = format!("{BUILD}{}-{}-{name}", own.pid, own.start);
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

    fn directories(&self) -> Vec<PathBuf> {
        self.delegated.directories().into_iter().map(|directory| directory.join(&self.name)).collect()
    }

    /// Where a file of a controller lies. Its name begins with the controller's.
    fn file(&self, file: &str) -> PathBuf {
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

    /// Kills everything in the group and removes it.
    pub(crate) fn remove(self) {
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
            // What is still dying is removed by the next sweep.
            let _ = self.remove_directories();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree that looks like cgroup2, and a /proc whose process lives in `/own`.
    fn host(own: &str, controllers: &str, living: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("cgroup").join(own.trim_start_matches('/'));
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        fs::create_dir_all(&group).unwrap();
        let mountinfo = format!(
            "20 1 0:19 / /proc rw - proc proc rw\n35 24 0:30 / {} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
            folder.path().join("cgroup").display()
        );
        let living = living.replace("OWN", &std::process::id().to_string());
        let files = [
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", &living),
            ("cgroup.type", "domain\n"),
        ];
        for (name, text) in files {
            fs::write(group.join(name), text).unwrap();
        }
        fs::write(folder.path().join("proc/self/mountinfo"), mountinfo).unwrap();
        fs::write(folder.path().join("proc/self/cgroup"), format!("4:memory:/old\n0::{own}\n")).unwrap();
        folder
    }

    fn look(folder: &Path) -> Result<Delegated, NoCgroup> {
        Delegated::look_in(&CgroupSetting::Auto, &folder.join("proc"))
    }

    #[test]
    fn a_group_of_our_own_is_found_and_made_ready() {
        let folder = host("/system.slice/gatelog.service", "cpuset cpu memory pids\n", "OWN\n");
        let mut found = look(folder.path()).unwrap();
        assert_eq!(found.directory, folder.path().join("cgroup/system.slice/gatelog.service"));
        assert!(found.memory && found.processes && found.cpu && found.moves);
        // The kernel would make these files.
        let main = found.directory.join(MAIN);
        fs::create_dir(&main).unwrap();
        fs::write(main.join("cgroup.procs"), "").unwrap();
        found.set_up().unwrap();
        assert_eq!(fs::read_to_string(main.join("cgroup.procs")).unwrap(), std::process::id().to_string());
        let empty = host("/ci", "memory\n", "");
        let found = look(empty.path()).unwrap();
        assert!(found.memory && !found.processes && !found.moves, "{found:?}");
    }

    #[test]
    fn what_is_missing_is_said_with_its_cure() {
        let cases = [
            (host("/a", "hugetlb\n", ""), "neither memory nor pids", "Delegate=yes"),
            (host("/", "hugetlb\n", ""), "neither memory nor pids", "unified_cgroup_hierarchy"),
            (host("/user.slice/session-1.scope", "memory pids\n", "OWN\n1\n"), "1 other processes live in", "Delegate"),
            (host("/../other", "memory pids\n", ""), "outside what it can see", "Delegate=yes"),
        ];
        for (folder, reason, cure) in cases {
            let error = look(folder.path()).unwrap_err();
            assert!(error.reason.contains(reason) && error.cure.contains(cure), "{error}");
        }
        let folder = host("/a", "memory pids\n", "");
        fs::write(folder.path().join("proc/self/mountinfo"), "20 1 0:19 / /proc rw - proc proc rw\n").unwrap();
        assert!(look(folder.path()).unwrap_err().reason.contains("no cgroup2"));
        let nowhere = CgroupSetting::At(folder.path().join("nowhere"));
        let folder = host("/a", "memory pids\n", "");
        let error = Delegated::look_in(&nowhere, &folder.path().join("proc")).unwrap_err();
        assert!(error.to_string().contains("is no directory of a cgroup file system: name one below"), "{error}");
    }

    #[test]
    fn a_group_is_given_these_settings() {
        let mut delegated =
            Delegated { directory: "/d".into(), memory: true, processes: true, cpu: true, moves: false, trees: None };
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
            "memory.limit_in_bytes = 1073741824\n?memory.memsw.limit_in_bytes = 1073741824\npids.max = 4096\n?cpu.shares = 512\n"
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

    #[test]
    fn events_are_read_and_groups_of_the_dead_are_swept() {
        let folder = host("/a", "memory pids\n", "");
        let delegated = look(folder.path()).unwrap();
        let group = Group::create(&delegated, "b-1", &[]).unwrap();
        fs::write(group.file("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        fs::write(group.file("pids.events"), "max 7\n").unwrap();
        assert_eq!(group.events(), Events { oom_kills: 2, refused_processes: 7 });
        assert_eq!(delegated.sweep(), 0, "our own is left alone");
        let dead = delegated.directory.join(format!("{BUILD}1-99999999999-b-2"));
        fs::create_dir(&dead).unwrap();
        fs::create_dir(delegated.directory.join("somebody-else")).unwrap();
        assert_eq!(delegated.sweep(), 1);
        assert!(!dead.exists() && delegated.directory.join("somebody-else").exists());
        for file in ["memory.events", "pids.events"] {
            fs::remove_file(group.file(file)).unwrap();
        }
        let place = delegated.directory.join(&group.name);
        group.remove();
        assert!(!place.exists());
    }
}
