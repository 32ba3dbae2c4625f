//! What is put on a build's processes from outside, as data: resource limits, and their rank when
//! the host runs out of memory or processors.
//!
//! These hold for each process alone or are mere preferences. The limits on a build as a whole are
//! kept by [`crate::cgroup`] or [`crate::watch`].

use std::fmt;
use std::io;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setpriority_process};

use crate::config::Limits;

/// Where a build's processes stand beside others when the processors are busy (0 is usual, 19 the
/// last): the log and the web go first.
const NICE: i32 = 5;
/// The kernel's first choice when the host is out of memory.
const FIRST_TO_DIE: i32 = 1000;

/// What is put on a process before it becomes a playbook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confinement {
    /// The most of a resource that one process may use.
    limits: Vec<(Resource, u64)>,
    nice: i32,
    oom_score_adj: i32,
}

impl Confinement {
    /// What these limits mean for each process.
    pub(crate) fn of(limits: &Limits) -> Confinement {
        let mut all = vec![(Resource::Core, 0), (Resource::Nofile, limits.open_files)];
        if let Some(bytes) = limits.disk_bytes {
            // One large file is stopped at once, not when it is measured next.
            all.push((Resource::Fsize, bytes));
        }
        Confinement { limits: all, nice: NICE, oom_score_adj: FIRST_TO_DIE }
    }

    /// Puts it on a process.
    pub(crate) fn apply(&self, pid: u32) -> io::Result<()> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(number) = number else { return Err(io::Error::other("process id out of range")) };
        for (resource, limit) in &self.limits {
            // Nobody may raise a limit: where this host allows less, less it is.
            let current = getrlimit(*resource);
            let least = |known: Option<u64>| Some(known.map_or(*limit, |known| known.min(*limit)));
            let wanted = Rlimit { current: least(current.current), maximum: least(current.maximum) };
            prlimit(Some(number), *resource, wanted)?;
        }
        // Preferences: where they are refused (an unusual container) the limits still hold.
        let _ = setpriority_process(Some(number), self.nice);
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), self.oom_score_adj.to_string());
        Ok(())
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (resource, limit) in &self.limits {
            writeln!(f, "{resource:?} {limit}")?;
        }
        write!(f, "nice {}\noom_score_adj {}", self.nice, self.oom_score_adj)
    }
}

/// How many processes the kernel shall allow where it counts them for each user namespace: twice what the watch allows,
/// so that a bomb, whose processes end as soon as the kernel refuses them more, is over the limit long enough for the
/// watch to see it and to say so.
pub(crate) fn kernel_process_limit(processes: u64) -> u64 {
    processes.saturating_mul(2).saturating_add(32)
}

/// The kernel's version.
pub(crate) fn kernel() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_these_resource_limits() {
        let mut limits = Limits { disk_bytes: Some(7 << 20), open_files: 512, ..Limits::default() };
        let expected = "Core 0\nNofile 512\nFsize 7340032\nnice 5\noom_score_adj 1000";
        assert_eq!(Confinement::of(&limits).to_string(), expected);
        limits.disk_bytes = None;
        assert!(!Confinement::of(&limits).to_string().contains("Fsize"));
    }

    #[test]
    fn a_process_at_the_gate_has_them_before_it_begins() {
        let limits = Limits { disk_bytes: Some(5 << 20), open_files: 99, ..Limits::default() };
        let mut command = crate::process::gate(std::path::Path::new("/bin/sh"), false);
        command.args(["-c", "ulimit -c; ulimit -n; cat /proc/self/oom_score_adj; read -r x || echo nothing to read"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        Confinement::of(&limits).apply(child.id()).unwrap();
        io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n99\n1000\nnothing to read\n");
    }

    #[test]
    fn a_gate_that_nobody_opens_leads_nowhere() {
        let mut command = crate::process::gate(std::path::Path::new("/bin/echo"), false);
        let output = command.arg("passed").stdin(std::process::Stdio::null()).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(kernel() >= (4, 0), "{:?}", kernel());
    }
}
