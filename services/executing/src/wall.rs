//! The wall against fork bombs: who in the kernel refuses a build more processes than it may have.
//!
//! A bomb that doubles has taken every process number of a host long before anybody who looks every so often has
//! seen it. So the kernel itself must refuse. It can in one of three ways, tried in this order:
//!
//! - [`Wall::Group`]: a control group of the build's own (see [`crate::cgroup`]). Exact, and it counts what it refused.
//! - [`Wall::User`]: the resource limit on processes, set inside the sandbox. The kernel counts it for each user
//!   namespace since Linux 5.14, but never for the host's root, whatever namespace it is in.
//! - [`Wall::Namespace`]: for root. Every sandbox has process numbers of its own, and since Linux 6.14 each such set
//!   has a `kernel.pid_max` of its own: a sandbox that has run out of numbers starts nothing more, whoever asks.
//!
//! `pid_max` is set from outside: bubblewrap is told to stop before it starts the command and to say who the
//! sandbox's first process is; a thread that is about to do nothing but wait enters the sandbox's process numbers
//! (what it starts is counted there, nothing else changes for it) and starts a program that writes the number. Inside
//! `/proc/sys` is read-only, and a new `/proc` cannot be mounted, so a job cannot take the wall down.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Deserialize;

use crate::cgroup::{Delegated, NoCgroup};
use crate::confine::{kernel, kernel_process_limit};
use crate::process::{Hold, admit, gate};
use crate::procfs::Process;
use crate::sandbox::{Features, Profile};

const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// Numbers the kernel never gives a second time once it has come to the end of them.
const RESERVED: u64 = 300;
/// More than this bubblewrap never says of a sandbox.
const LONGEST_REPORT: u64 = 4096;

/// How often the number is written before that is given up, and how long is waited in between.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// Who refuses a build more processes than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wall {
    /// A control group of the build's own.
    Group,
    /// The limit on processes of a user, which is counted for each sandbox.
    User,
    /// The sandbox's own process numbers: there are only so many.
    Namespace,
}

impl Wall {
    /// What it is, in words.
    pub fn text(self) -> &'static str {
        match self {
            Wall::Group => "a control group for each build",
            Wall::User => "a limit on processes, counted for each sandbox",
            Wall::Namespace => "process numbers of each sandbox's own (kernel.pid_max of its namespace)",
        }
    }
}

/// Why only the watch stands between a fork bomb and this host: what is the matter, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {cure}")]
pub struct NoWall {
    /// What is the matter.
    pub reason: String,
    /// What to do about it.
    pub cure: String,
}

/// What the choice of a wall depends on.
#[derive(Clone, Debug)]
struct Ground {
    limited: bool,
    group: bool,
    sandboxed: bool,
    root: bool,
    kernel: (u32, u32),
}

const ORDINARY: &str =
    "run gatelog as a user of its own (User=gatelog in the systemd unit), whose processes the kernel counts";
const GROUPS: &str = "give it control groups (Delegate=yes)";

/// The wall there is on such ground; `attempt` tries the last one.
fn choose(ground: &Ground, attempt: impl FnOnce() -> Result<(), String>) -> Result<Wall, NoWall> {
    let none = |reason: String, cure: String| Err(NoWall { reason, cure });
    if !ground.limited {
        return none("builds have no limit on processes".into(), "remove job-pids = \"none\" from [executor]".into());
    }
    if ground.group {
        return Ok(Wall::Group);
    }
    if !ground.sandboxed {
        let cure = format!("remove unsandboxed = true from [executor], or {GROUPS}");
        return none("without a sandbox nobody counts the processes of a build".into(), cure);
    }
    let (major, minor) = ground.kernel;
    if !ground.root {
        if ground.kernel >= (5, 14) {
            return Ok(Wall::User);
        }
        let cure = format!("{GROUPS}, or take Linux 5.14 or later");
        return none(format!("Linux {major}.{minor} does not count processes for each sandbox"), cure);
    }
    if ground.kernel < (6, 14) {
        let cure = format!("{ORDINARY}; or {GROUPS}; or take Linux 6.14 or later");
        return none(format!("Linux {major}.{minor} never counts the processes of root"), cure);
    }
    match attempt() {
        Ok(()) => Ok(Wall::Namespace),
        Err(said) => {
            let cure = format!(
                "{ORDINARY}; or {GROUPS}; in a container, let it write below /proc/sys (podman or docker: --security-opt systempaths=unconfined --cap-add SYS_ADMIN)"
            );
            none(format!("the process numbers of a sandbox cannot be limited ({said})"), cure)
        }
    }
}

/// The wall on this host; tries to build one where that is the only way to know.
pub(crate) fn look(
    limited: bool,
    delegated: &Result<Delegated, NoCgroup>,
    bwrap: Option<&(PathBuf, Features)>,
) -> Result<Wall, NoWall> {
    let ground = Ground {
        limited,
        group: delegated.as_ref().is_ok_and(|delegated| delegated.processes),
        sandboxed: bwrap.is_some(),
        root: rustix::process::geteuid().is_root(),
        kernel: kernel(),
    };
    choose(&ground, || match bwrap {
        Some((path, features)) => try_out(path, *features),
        None => Err("there is no sandbox".into()),
    })
}

/// How many process numbers a sandbox gets whose build may have so many processes: somewhat more than the watch
/// allows, so that the watch sees it and can say so.
pub(crate) fn numbers(processes: u64) -> u64 {
    RESERVED.saturating_add(kernel_process_limit(processes))
}

/// Bubblewrap's words for a sandbox that waits for its wall: with [`gate`], which gives it these two.
pub(crate) const HELD: [&str; 4] = ["--info-fd", "4", "--block-fd", "3"];

/// Who the first process of a sandbox is, by bubblewrap's report. `None`: it ended without one, and says why elsewhere.
pub(crate) fn first_process(report: &mut impl Read) -> io::Result<Option<i32>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Report {
        child_pid: i32,
    }
    let mut text = Vec::new();
    let mut part = [0; 512];
    // To the bracket, not to the end: who else holds the pipe is not known.
    while !text.contains(&b'}') {
        let count = report.read(&mut part)?;
        if count == 0 {
            return Ok(None);
        }
        text.extend_from_slice(part.get(..count).unwrap_or_default());
        if text.len() as u64 > LONGEST_REPORT {
            return Err(io::Error::other("bubblewrap's report on a sandbox is too long"));
        }
    }
    let said: Report = serde_json::from_slice(&text)
        .map_err(|error| io::Error::other(format!("bubblewrap's report on a sandbox is not understood: {error}")))?;
    Ok(Some(said.child_pid))
}

/// Gives the sandbox so many process numbers. `first` is its first process, a child of `bwrap`.
///
/// What the calling thread starts from now on is in the sandbox's process numbers: it must not start anything more.
pub(crate) fn raise(bwrap: i32, first: i32, numbers: u64) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{first}/ns/pid"))?;
    // By mistake this would be the host's own limit.
    let own = fs::metadata("/proc/self/ns/pid")?.ino();
    if namespace.metadata()?.ino() == own || Process::read(first).is_none_or(|process| process.parent != bwrap) {
        return Err(io::Error::other("the sandbox has no process numbers of its own"));
    }
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    let script = format!("echo {numbers} > {PID_MAX}");
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        let output = Command::new("/bin/sh").args(["-c", &script]).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        said = format!("{}: {}", output.status, words.lines().next().unwrap_or("it said nothing"));
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other(format!("cannot limit the sandbox's process numbers: {said}")))
}

fn pid_max() -> Result<u64, String> {
    let text = fs::read_to_string(PID_MAX).map_err(|error| format!("{PID_MAX}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{PID_MAX} is no number"))
}

/// Gives a sandbox one number less than this host has, which does no harm if it is the host's own limit after all.
fn try_out(bwrap: &Path, features: Features) -> Result<(), String> {
    let before = pid_max()?;
    let wanted = before.saturating_sub(1);
    if wanted <= RESERVED {
        return Err(format!("this host has {before} numbers only"));
    }
    let argv = Profile::system(None).argv(&["cat".into(), PID_MAX.into()], features);
    let bwrap = bwrap.to_owned();
    // A thread of its own: it cannot start anything outside the sandbox afterwards.
    let tried = std::thread::spawn(move || -> io::Result<String> {
        let (report, writer) = io::pipe()?;
        let (mut said, output) = io::pipe()?;
        let mut command = gate(&bwrap, true);
        command.args(argv).stdin(Stdio::piped()).stdout(output).stderr(writer);
        let mut child = command.spawn()?;
        drop(command);
        let mut gate = child.stdin.take().ok_or_else(|| io::Error::other("no pipe to the gate"))?;
        let admitted = admit(&mut child, &mut gate, Some(Hold { report, numbers: wanted }));
        if admitted.is_err() {
            let _ = child.kill();
        }
        let status = child.wait()?;
        admitted?;
        let mut text = String::new();
        said.read_to_string(&mut text)?;
        match status.success() {
            true => Ok(text),
            false => Err(io::Error::other(text.lines().next().unwrap_or("the sandbox failed").to_owned())),
        }
    });
    let tried = tried.join().map_err(|_| "trying it failed".to_owned())?;
    let after = pid_max()?;
    if after == wanted {
        // Somebody else's new setting, were it another number, is left alone.
        let _ = fs::write(PID_MAX, before.to_string());
        return Err("this kernel has one limit for all".into());
    }
    match tried {
        Ok(text) if text.trim() == wanted.to_string() => Ok(()),
        Ok(text) => Err(format!("one that was to have {wanted} has {}", text.trim())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(root: bool, kernel: (u32, u32)) -> Ground {
        Ground { limited: true, group: false, sandboxed: true, root, kernel }
    }

    fn chosen(ground: &Ground, attempt: Result<(), &str>) -> String {
        match choose(ground, || attempt.map_err(str::to_owned)) {
            Ok(wall) => wall.text().to_owned(),
            Err(reason) => reason.to_string(),
        }
    }

    #[test]
    fn each_host_has_its_wall_or_is_told_what_it_takes() {
        let never = Err("not to be tried");
        let group = Ground { group: true, ..ground(true, (4, 19)) };
        for (ground, attempt, expected) in [
            (group.clone(), never, "a control group"),
            (Ground { sandboxed: false, ..group.clone() }, never, "a control group"),
            (Ground { limited: false, ..group }, never, "remove job-pids"),
            (ground(false, (5, 14)), never, "counted for each sandbox"),
            (ground(false, (5, 10)), never, "Linux 5.14 or later"),
            (ground(true, (6, 12)), never, "never counts the processes of root: run gatelog as a user of its own"),
            (ground(true, (6, 14)), Ok(()), "process numbers of each sandbox's own"),
            (ground(true, (6, 18)), Err("read-only"), "cannot be limited (read-only): run gatelog as"),
            (Ground { sandboxed: false, ..ground(false, (6, 18)) }, never, "remove unsandboxed"),
        ] {
            let text = chosen(&ground, attempt);
            assert!(text.contains(expected), "{ground:?}: {text}");
        }
    }

    #[test]
    fn a_report_names_the_first_process_or_nobody() {
        let read = |text: &str| first_process(&mut text.as_bytes());
        assert_eq!(read("{\n    \"child-pid\": 4711,\n    \"pid-namespace\": 9\n}\n").unwrap(), Some(4711));
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("{ \"child-pid\": 47").unwrap(), None, "cut short");
        assert!(read("{ \"child\": 1 }").is_err());
        assert!(read(&"x".repeat(9000)).is_err());
    }

    #[test]
    fn this_host_s_own_numbers_are_never_touched() {
        let before = pid_max().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let parent = Process::read(own).unwrap().parent;
        let refused = raise(parent, own, 400).unwrap_err();
        assert!(refused.to_string().contains("no process numbers of its own"), "{refused}");
        assert_eq!(pid_max().unwrap(), before);
        // Whoever asks for 100 processes has them also when all numbers were given once.
        assert!(numbers(100) > RESERVED + 100);
    }
}
