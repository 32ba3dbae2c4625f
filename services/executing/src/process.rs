//! Processes of a build: starting one, ending all of them, finding what an earlier executor left.

use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) use crate::procfs::pids_in;
use crate::procfs::{Process, pids};
use crate::wall;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The environment variable every process of a build carries, with the build's directory.
pub(crate) const MARK: &str = "GATELOG_JOB_DIR";

/// A command that becomes `program` once it is told so on its standard input. Until then it has
/// done nothing: limits put on it in the meantime hold for all it will ever start. The program keeps that input.
///
/// `held`: the program is bubblewrap and is to wait once more, in front of what it runs. Then it is
/// given [`wall::HELD`], the gate itself as descriptor 3, and what comes as standard error as
/// descriptor 4; its own standard error goes where its output goes.
pub(crate) fn gate(program: &Path, held: bool) -> Command {
    let script = match held {
        true => "exec 4>&2 2>&1; read -r word && [ \"$word\" = go ] && exec \"$@\" 3<&0",
        false => "read -r word && [ \"$word\" = go ] && exec \"$@\"",
    };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "gatelog-gate"]).arg(program);
    if held {
        command.args(wall::HELD);
    }
    command
}

/// What a sandbox that waits inside needs before it may go on.
pub(crate) struct Hold {
    /// Where bubblewrap says who its first process is.
    pub(crate) report: io::PipeReader,
    /// How many process numbers it gets.
    pub(crate) numbers: u64,
}

/// Lets a command pass the gate, and a sandbox that waits inside once its wall stands. The calling
/// thread must not start anything afterwards.
pub(crate) fn admit(child: &mut Child, gate: &mut impl Write, hold: Option<Hold>) -> io::Result<OwnedFd> {
    let pid = as_pid(child.id()).ok_or_else(|| io::Error::other("process id out of range"))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    gate.write_all(b"go\n")?;
    if let Some(mut hold) = hold
        && let Some(first) = wall::first_process(&mut hold.report)?
    {
        match wall::raise(pid.as_raw_nonzero().get(), first, hold.numbers) {
            // Nobody reads any more: the sandbox failed by itself meanwhile, and says better what was wrong.
            Ok(()) => match gate.write_all(b"\n") {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            },
            Err(error) => {
                // A sandbox that failed by itself took its process numbers with it, and says better what was wrong.
                // On a busy host it takes a while until it is seen to have ended.
                let until = Instant::now() + Duration::from_secs(2);
                while child.try_wait()?.is_none() {
                    if Instant::now() >= until {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
    Ok(handle)
}

/// Kills these processes.
pub(crate) fn kill_all(pids: &[i32]) {
    pids.iter().for_each(|pid| signal(*pid, Signal::KILL));
}

/// Kills the process behind this handle.
pub(crate) fn kill_handle(handle: &OwnedFd) {
    // Fails only when it has ended already.
    let _ = pidfd_send_signal(handle, Signal::KILL);
}

pub(crate) fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
    {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Kills every process that carries the mark of this build directory, again and again until there
/// is none. Returns how many are left when the time is over.
pub(crate) async fn kill_marked(job_dir: &Path, within: Duration) -> usize {
    let until = Instant::now() + within;
    loop {
        // It reads about every process of the host: not on the threads that serve.
        let dir = job_dir.to_owned();
        let found = tokio::task::spawn_blocking(move || marked(&dir)).await.unwrap_or_else(|_| marked(job_dir));
        if found.is_empty() || Instant::now() >= until {
            return found.len();
        }
        for pid in found {
            if let Some(raw) = Pid::from_raw(pid)
                && let Ok(handle) = pidfd_open(raw, PidfdFlags::empty())
                // Looked at again now that the handle is held: the number may be somebody else's.
                && is_marked(pid, job_dir)
            {
                let _ = pidfd_send_signal(&handle, Signal::KILL);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The processes that carry the mark of this build directory.
pub(crate) fn marked(job_dir: &Path) -> Vec<i32> {
    pids().into_iter().filter(|pid| is_marked(*pid, job_dir)).collect()
}

fn is_marked(pid: i32, job_dir: &Path) -> bool {
    let wanted = format!("{MARK}={}", job_dir.display());
    // A zombie's environment is empty, so one that only waits for its parent does not count.
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// A process, so that it cannot be taken for another one that has its number later.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ProcessIdentity {
    /// Its number.
    pub(crate) pid: i32,
    /// When it started, in ticks since the host did.
    pub(crate) start: u64,
    /// Which start of the host.
    pub(crate) boot: String,
}

impl ProcessIdentity {
    /// This process.
    pub(crate) fn own() -> ProcessIdentity {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        ProcessIdentity { pid, start: Process::read(pid).map_or(0, |process| process.start), boot: boot() }
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let found = Process::read(self.pid);
        self.boot == boot() && found.is_some_and(|process| !process.dead && process.start == self.start)
    }
}

fn boot() -> String {
    fs::read_to_string(PathBuf::from("/proc/sys/kernel/random/boot_id"))
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}
