//! Processes of a build: starting one, ending all of them, finding what an earlier executor left.

use std::fs;
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

pub(crate) use crate::procfs::pids_in;
use crate::procfs::{Process, Snapshot, comm, pids};
use crate::wall;

/// The environment variable every process of a build carries, with the build's directory.
pub(crate) const MARK: &str = "GATELOG_JOB_DIR";

/// A process tree that is running. Dropping it kills the tree.
pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) handle: Arc<OwnedFd>,
    /// How it ended, once it has.
    pub(crate) exit: oneshot::Receiver<io::Result<ExitStatus>>,
    /// What it writes, standard output and error in one.
    pub(crate) output: pipe::Receiver,
}

impl Running {
    /// Starts a command that waits at the [`gate`] until `confine` has put its limits on it; an
    /// error there ends it before it has begun. `numbers`: how many process numbers its sandbox gets,
    /// for a command that is held a second time, inside (see [`crate::wall`]).
    ///
    /// It is started and waited for by a thread of its own. Bubblewrap's `--die-with-parent` means
    /// the parent *thread*; a thread of the async runtime may come to an end at any time, and would
    /// take the build with it.
    pub(crate) async fn start(
        mut command: Command,
        numbers: Option<u64>,
        confine: impl FnOnce(u32) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?);
        let hold = match numbers {
            Some(numbers) => {
                let (report, said) = io::pipe()?;
                command.stderr(said);
                Some(Hold { report, numbers })
            }
            None => {
                command.stderr(writer.try_clone()?);
                None
            }
        };
        drop(writer);
        let output = pipe::Receiver::from_owned_fd(reader.into())?;
        let (started_sender, started) = oneshot::channel();
        let (exit_sender, exit) = oneshot::channel();
        std::thread::Builder::new().name("gatelog-playbook".into()).stack_size(256 << 10).spawn(move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => return drop(started_sender.send(Err(error))),
            };
            // Closes this side's copies of the pipes, so that their end is seen.
            drop(command);
            let started = confine(child.id()).and_then(|()| admit(&mut child, hold));
            let known = started.is_ok();
            if started_sender.send(started.map(|handle| (child.id(), handle))).is_err() || !known {
                let _ = child.kill();
            }
            let _ = exit_sender.send(child.wait());
        })?;
        let (pid, handle) =
            started.await.map_err(|_| io::Error::other("the thread that starts the process is gone"))??;
        Ok(Running { pid: i32::try_from(pid).unwrap_or_default(), handle: Arc::new(handle), exit, output })
    }

    /// Asks all processes of the tree to end. Bubblewrap's own are left out: it would end at once
    /// and give the others no time.
    pub(crate) fn terminate(&self) {
        for (pid, _) in Snapshot::take().tree(self.pid) {
            if comm(pid).is_some_and(|name| name != "bwrap") {
                signal(pid, Signal::TERM);
            }
        }
    }

    /// Kills the process; with bubblewrap, all of its tree.
    pub(crate) fn kill(&self) {
        kill_handle(&self.handle);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command that becomes `program` once it is told so on its standard input. Until then it has
/// done nothing: limits put on it in the meantime hold for all it will ever start.
///
/// `held`: the program is bubblewrap and is to wait once more, in front of what it runs. Then it is
/// given [`wall::HELD`], the gate itself as descriptor 3, and what comes as standard error as
/// descriptor 4; its own standard error goes where its output goes.
pub(crate) fn gate(program: &Path, held: bool) -> Command {
    let script = match held {
        true => "exec 4>&2 2>&1; read -r word && [ \"$word\" = go ] && exec \"$@\" 3<&0 </dev/null",
        false => "read -r word && [ \"$word\" = go ] && exec \"$@\" </dev/null",
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
pub(crate) fn admit(child: &mut Child, hold: Option<Hold>) -> io::Result<OwnedFd> {
    let pid = as_pid(child.id()).ok_or_else(|| io::Error::other("process id out of range"))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let mut gate = child.stdin.take().ok_or_else(|| io::Error::other("no pipe to the gate"))?;
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

fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn signal(pid: i32, signal: Signal) {
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
