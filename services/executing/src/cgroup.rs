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
//! <delegated>/gatelog-build-<pid>-<start>-<build>-<attempt>-<number>/   one for each build that runs
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::cgroup_v1::Trees;
use crate::group::{BUILD, Group, put};
use crate::process::ProcessIdentity;

/// Where this process goes when it must make room.
const MAIN: &str = "gatelog-main";

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
    pub(crate) trees: Option<Trees>,
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

    pub(crate) fn unified(directory: PathBuf, memory: bool, processes: bool, cpu: bool) -> Delegated {
        Delegated { directory, memory, processes, cpu, moves: false, trees: None }
    }

    pub(crate) fn legacy(trees: Trees) -> Option<Delegated> {
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
        Ok(Delegated { moves, ..Self::unified(directory, memory, processes, cpu) })
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
    pub(crate) fn directories(&self) -> Vec<&PathBuf> {
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
        dead.into_iter().for_each(|name| Group::found(self, name).remove());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Events;

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
        let place = group.file("memory.max");
        let place = place.parent().unwrap().to_owned();
        group.remove();
        assert!(!place.exists());
    }
}
