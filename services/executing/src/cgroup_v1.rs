//! Control groups of version 1: each controller has a tree of its own, and a group may hold processes and groups.
//!
//! Groups for builds are made below the group this process lives in, in the trees of memory, pids and cpu, as far as this
//! process may write there; root usually may. What else is said of groups in [`crate::cgroup`] holds here too.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// Where groups for builds are made, by controller. `None`: this controller is not to be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trees {
    pub(crate) memory: Option<PathBuf>,
    pub(crate) processes: Option<PathBuf>,
    pub(crate) cpu: Option<PathBuf>,
}

impl Trees {
    /// Below the groups of this process.
    pub(crate) fn own(mountinfo: &str, own: &str) -> Option<Trees> {
        Trees::by(|controller| {
            let (mount, root) = mount(mountinfo, controller)?;
            let path = own.lines().find_map(|line| path_of(line, controller))?;
            let below = path.strip_prefix(root.as_str()).unwrap_or(path).trim_start_matches('/');
            let outside = below.split('/').any(|part| part == "..");
            (!outside).then(|| mount.join(below))
        })
    }

    /// In the directory, which lies in the tree of one controller, and in those at the same place in the others.
    pub(crate) fn at(mountinfo: &str, directory: &Path) -> Option<Trees> {
        let place = ["memory", "pids"].iter().find_map(|controller| {
            let (mount, _) = mount(mountinfo, controller)?;
            directory.strip_prefix(&mount).ok()
        })?;
        Trees::by(|controller| Some(mount(mountinfo, controller)?.0.join(place)))
    }

    /// `None`: there is neither memory nor pids.
    fn by(place: impl Fn(&str) -> Option<PathBuf>) -> Option<Trees> {
        let usable = |controller: &str| place(controller).filter(|place| is_ours(place));
        let trees = Trees { memory: usable("memory"), processes: usable("pids"), cpu: usable("cpu") };
        (trees.memory.is_some() || trees.processes.is_some()).then_some(trees)
    }

    /// All of them, the one that matters most first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.memory, &self.processes, &self.cpu].into_iter().flatten()
    }
}

/// Whether groups can be made there, and processes put into them.
fn is_ours(place: &Path) -> bool {
    [place.to_owned(), place.join("cgroup.procs")].iter().all(|path| rustix::fs::access(path, Access::WRITE_OK).is_ok())
}

/// Where the tree of a controller is mounted, and which part of it.
fn mount(mountinfo: &str, controller: &str) -> Option<(PathBuf, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let options = after.clone().nth(2)?;
        if after.next() != Some("cgroup") || !options.split(',').any(|option| option == controller) {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let root = fields.next()?;
        Some((fields.next()?.into(), root.to_owned()))
    })
}

/// The group in a line of `/proc/<pid>/cgroup`, if it is of this controller's tree.
fn path_of<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    controllers.split(',').any(|name| name == controller).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_controller_has_its_place_and_what_cannot_be_written_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        for place in ["memory/box/ours", "cpu,cpuacct/box", "pids/ours", "memory/named", "cpu,cpuacct/named"] {
            let place = folder.path().join(place);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("cgroup.procs"), "").unwrap();
        }
        let line = |number: u32, name: &str, part: &str, options: &str| {
            format!("{number} 31 0:{number} {part} {root}/{name} rw,relatime shared:9 - cgroup cgroup {options}\n")
        };
        let mountinfo = line(32, "cpu,cpuacct", "/", "rw,cpu,cpuacct")
            + &line(33, "memory", "/", "rw,memory")
            + &line(34, "pids", "/container", "rw,pids")
            + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "9:name=systemd:/\n4:memory:/box/ours\n3:pids:/container/ours\n2:cpu,cpuacct:/nowhere\n0::/\n";
        let at = |place: &str| Some(folder.path().join(place));
        let found = Trees::own(&mountinfo, own).unwrap();
        assert_eq!(found, Trees { memory: at("memory/box/ours"), processes: at("pids/ours"), cpu: None });
        let named = Trees::at(&mountinfo, &folder.path().join("memory/named")).unwrap();
        assert_eq!(named, Trees { memory: at("memory/named"), processes: None, cpu: at("cpu,cpuacct/named") });
        assert_eq!(named.all().count(), 2);
        assert_eq!(Trees::at(&mountinfo, folder.path()), None);
        assert_eq!(Trees::own(&mountinfo, "4:memory:/../other\n"), None);
        assert_eq!(Trees::own("", own), None);
    }
}
