//! A playbook's processes, from their start to their end.
//!
//! bubblewrap makes a sandbox for each playbook, and in it a shell that waits (the holder). Then a child of the
//! [fork server](crate::forkserver) enters the sandbox and runs the playbook there; where that cannot be, the shell
//! becomes Python and starts Ansible itself. The sandbox ends with bubblewrap, and all that is in it ends with the
//! sandbox.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use serde::Deserialize;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::channel::{Channel, send_with};
use crate::executor::Inner;
use crate::forkserver::{self, ForkServer};
use crate::network::{Attached, Maker};
use crate::process::{Hold, admit, as_pid, kill_handle, signal};
use crate::procfs::{Snapshot, children, comm};
use crate::run::Run;
use crate::toolchain::Toolchain;

/// What a sandbox is started with: waits, and becomes its arguments once it is told so. It gives itself a name that
/// nobody has in mind who ends all shells.
pub(crate) const HOLD: &str = "{ echo gatelog-hold > /proc/$$/comm; } 2>/dev/null; \
    echo ready >&0; read -r word && [ \"$word\" = run ] && exec \"$@\"";
/// That name.
pub(crate) const HOLDER: &str = "gatelog-hold";
/// The longest word of a child of the fork server, in bytes.
const LONGEST_WORD: u64 = 64 << 10;
/// How long a sandbox may take until it is there.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the kernel may take to end what is in a sandbox.
const EMPTYING: Duration = Duration::from_secs(30);

/// What is started.
pub(crate) struct Start {
    /// The sandbox with its holder, or the holder alone, at the [gate](crate::process::gate).
    pub(crate) command: Command,
    /// How many process numbers the sandbox gets, where it is held a second time (see [`crate::wall`]).
    pub(crate) numbers: Option<u64>,
    pub(crate) run: Run,
    /// What makes the sandbox's network; `None`: it has the host's or none.
    pub(crate) network: Option<Maker>,
    /// Whose fork server it may use; `None`: none.
    pub(crate) server: Option<(Arc<Inner>, Arc<Toolchain>)>,
}

/// A process of a playbook that this process has started.
pub(crate) struct Begun {
    pub(crate) pid: i32,
    pub(crate) handle: Arc<OwnedFd>,
}

impl Begun {
    fn of(pid: u32) -> io::Result<Begun> {
        let number = as_pid(pid).ok_or_else(|| io::Error::other("process id out of range"))?;
        let handle = Arc::new(pidfd_open(number, PidfdFlags::empty())?);
        Ok(Begun { pid: number.as_raw_nonzero().get(), handle })
    }
}

/// How a playbook's processes ended.
pub(crate) struct Exit {
    pub(crate) status: ExitStatus,
    /// Whether it is known that none is left: the kernel has ended the sandbox's first process, which goes last.
    pub(crate) empty: bool,
}

impl Exit {
    /// Others may be left.
    fn alone(status: ExitStatus) -> Exit {
        Exit { status, empty: false }
    }
}

/// A process tree that is running. Dropping it kills the tree.
pub(crate) struct Running {
    /// bubblewrap; without a sandbox Ansible itself.
    pub(crate) outer: Begun,
    /// The process that waits outside for one that the fork server has forked.
    pub(crate) forked: Option<Begun>,
    /// How it ended, once it has.
    pub(crate) exit: oneshot::Receiver<io::Result<Exit>>,
    /// What it writes, standard output and error in one.
    pub(crate) output: pipe::Receiver,
    /// What gatelog's callback says.
    pub(crate) channel: Channel,
}

impl Running {
    /// Starts a command that waits at the gate until `confine` has put its limits on it; an
    /// error there ends it before it has begun.
    ///
    /// It is started and waited for by a thread of its own. Bubblewrap's `--die-with-parent` means
    /// the parent *thread*; a thread of the async runtime may come to an end at any time, and would
    /// take the build with it.
    pub(crate) async fn start(
        mut start: Start,
        confine: impl Fn(u32) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        let (gate, theirs) = UnixStream::pair()?;
        start.command.stdin(OwnedFd::from(theirs)).stdout(writer.try_clone()?);
        let hold = match start.numbers {
            Some(numbers) => {
                let (report, said) = io::pipe()?;
                start.command.stderr(said);
                Some(Hold { report, numbers })
            }
            None => {
                start.command.stderr(writer.try_clone()?);
                None
            }
        };
        let output = pipe::Receiver::from_owned_fd(reader.into())?;
        let (channel, told) = Channel::open()?;
        let (started_sender, started) = oneshot::channel();
        let (exit_sender, exit) = oneshot::channel();
        std::thread::Builder::new().name("gatelog-playbook".into()).stack_size(256 << 10).spawn(move || {
            let Start { mut command, run, server, network, .. } = start;
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => return drop(started_sender.send(Err(error))),
            };
            // Closes this side's copies of the pipes, so that their end is seen.
            drop(command);
            let begun = Beginning { gate, output: writer, channel: told, run, server, network }
                .begin(&mut child, hold, &confine);
            let (begun, following, network) = match begun {
                Ok(((outer, forked, following), network)) => (Ok((outer, forked)), following, network),
                Err(error) => (Err(error), Following::Over, None),
            };
            let failed = begun.is_err();
            if started_sender.send(begun).is_err() || failed {
                let _ = child.kill();
            }
            let _ = exit_sender.send(following.end(&mut child));
            drop(network);
        })?;
        let (outer, forked) =
            started.await.map_err(|_| io::Error::other("the thread that starts the process is gone"))??;
        Ok(Running { outer, forked, exit, output, channel })
    }

    /// The processes whose trees this is.
    pub(crate) fn roots(&self) -> Vec<i32> {
        std::iter::once(&self.outer).chain(&self.forked).map(|begun| begun.pid).collect()
    }

    /// Asks all processes of the tree to end. Those that hold the sandbox are left out: it would end at once
    /// and give the others no time.
    pub(crate) fn terminate(&self) {
        let snapshot = Snapshot::take();
        let waits = self.forked.as_ref().map(|forked| forked.pid);
        let holds = |name: String| name == "bwrap" || (waits.is_some() && name == HOLDER);
        for (pid, _) in self.roots().into_iter().flat_map(|root| snapshot.tree(root)) {
            if waits != Some(pid) && comm(pid).is_some_and(|name| !holds(name)) {
                signal(pid, Signal::TERM);
            }
        }
    }

    /// Kills the process; with bubblewrap, all of its tree.
    pub(crate) fn kill(&self) {
        kill_handle(&self.outer.handle);
        if let Some(forked) = &self.forked {
            kill_handle(&forked.handle);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a run is begun, in the thread that starts it.
struct Beginning {
    /// The other end is the standard input of the gate, and then of the holder.
    gate: UnixStream,
    /// Where the run writes.
    output: io::PipeWriter,
    /// Where its callback speaks.
    channel: OwnedFd,
    run: Run,
    server: Option<(Arc<Inner>, Arc<Toolchain>)>,
    network: Option<Maker>,
}

/// What was begun: bubblewrap, the process that waits outside, and how it goes on.
type Begins = (Begun, Option<Begun>, Following);

/// A run that was begun, until its end.
enum Following {
    /// The sandbox has ended by itself, and said why.
    Over,
    /// The holder becomes the run.
    Alone { gate: UnixStream, channel: OwnedFd, run: Run },
    /// A child of the fork server tells on `line` how it ended. The sandbox stays as long as `gate` is open.
    Forked { gate: UnixStream, line: BufReader<UnixStream>, first: OwnedFd },
}

/// What a child of the fork server says, one a line.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    /// Limits of the kernel that could not be set in the sandbox.
    Started(Vec<String>),
    Refused(String),
    /// As wait(2) gives it.
    Status(i32),
}

impl Beginning {
    fn begin(
        mut self,
        child: &mut Child,
        hold: Option<Hold>,
        confine: &impl Fn(u32) -> io::Result<()>,
    ) -> io::Result<(Begins, Option<Attached>)> {
        // Before this thread is admitted: then it may start nothing more.
        let network = self.network.take().map(Maker::start).transpose()?;
        let server = self.server.take().and_then(|(executor, toolchain)| {
            let server = executor.fork_servers.get(&toolchain)?;
            Some((executor, toolchain, server))
        });
        confine(child.id())?;
        let handle = Arc::new(admit(child, &mut self.gate, hold)?);
        let outer = Begun { pid: i32::try_from(child.id()).unwrap_or_default(), handle };
        if (server.is_some() || network.is_some()) && !self.is_ready()? {
            return Ok(((outer, None, Following::Over), None));
        }
        let network = match network {
            Some(waiting) => Some(waiting.attach(in_sandbox(outer.pid)?.1)?),
            None => None,
        };
        Ok((self.go_on(outer, server, confine)?, network))
    }

    /// In a sandbox that is there.
    fn go_on(
        self,
        outer: Begun,
        server: Option<(Arc<Inner>, Arc<Toolchain>, Arc<ForkServer>)>,
        confine: &impl Fn(u32) -> io::Result<()>,
    ) -> io::Result<Begins> {
        let Some((executor, toolchain, server)) = server else {
            return Ok((outer, None, Following::Alone { gate: self.gate, channel: self.channel, run: self.run }));
        };
        match self.fork(&server, &executor, outer.pid, confine) {
            Ok((forked, line, first)) => Ok((outer, Some(forked), Following::Forked { gate: self.gate, line, first })),
            Err(NotForked::Refused(reason)) => {
                executor.fork_servers.give_up(&toolchain, &reason);
                Ok((outer, None, Following::Alone { gate: self.gate, channel: self.channel, run: self.run }))
            }
            Err(NotForked::Failed(error)) => {
                executor.fork_servers.replace(&toolchain, &error.to_string());
                Ok((outer, None, Following::Alone { gate: self.gate, channel: self.channel, run: self.run }))
            }
        }
    }

    /// Waits until the sandbox is there. `false`: it has ended.
    fn is_ready(&self) -> io::Result<bool> {
        self.gate.set_read_timeout(Some(PATIENCE))?;
        let mut line = [0; 6];
        match (&self.gate).read_exact(&mut line) {
            Ok(()) => Ok(&line == b"ready\n"),
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                Ok(false)
            }
            // The system says the same of a wait that is over and of process numbers that are used up.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the sandbox takes too long to begin"))
            }
            Err(error) => Err(error),
        }
    }

    /// A run in this sandbox, by a child of the fork server.
    fn fork(
        &self,
        server: &ForkServer,
        executor: &Inner,
        bwrap: i32,
        confine: &impl Fn(u32) -> io::Result<()>,
    ) -> Result<(Begun, BufReader<UnixStream>, OwnedFd), NotForked> {
        let (first, holder) = in_sandbox(bwrap)?;
        let first = as_pid(first.unsigned_abs()).ok_or_else(|| io::Error::other("process id out of range"))?;
        let first = pidfd_open(first, PidfdFlags::empty()).map_err(io::Error::from)?;
        let (mut line, theirs) = UnixStream::pair()?;
        let pid = server.fork(self.output.as_fd(), theirs.as_fd(), self.channel.as_fd())?;
        drop(theirs);
        // It waits for its run until it has its limits.
        let forked = Begun::of(pid.unsigned_abs())?;
        let refused = |error| io::Error::other(format!("its child cannot be given its limits: {error}"));
        confine(pid.unsigned_abs()).map_err(refused)?;
        forkserver::send(&mut line, &self.run.entering(holder))?;
        let mut line = BufReader::new(line);
        match hear(&mut line) {
            Ok(Some(Said::Refused(reason))) => Err(NotForked::Refused(reason)),
            Ok(Some(Said::Started(refused))) if !refused.is_empty() => {
                executor.tell_unbounded(&refused);
                Ok((forked, line, first))
            }
            // Where it was killed meanwhile the run may have begun: it has ended then, and is not begun again.
            _ => Ok((forked, line, first)),
        }
    }
}

/// The first process of a sandbox, and the one that holds it.
fn in_sandbox(bwrap: i32) -> io::Result<(i32, i32)> {
    let gone = || io::Error::other("the sandbox's processes are not there");
    let first = children(bwrap).first().copied().ok_or_else(gone)?;
    Ok((first, children(first).first().copied().ok_or_else(gone)?))
}

/// Why a child of the fork server does not run a playbook, which has not begun.
enum NotForked {
    /// The kernel does not let it into the sandbox.
    Refused(String),
    /// Something is wrong with the server.
    Failed(io::Error),
}

impl From<io::Error> for NotForked {
    fn from(error: io::Error) -> Self {
        NotForked::Failed(error)
    }
}

/// The next word of a child of the fork server; `None`: there is none any more.
fn hear(line: &mut BufReader<UnixStream>) -> io::Result<Option<Said>> {
    let mut text = String::new();
    line.take(LONGEST_WORD).read_line(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&text).map(Some).map_err(io::Error::other)
}

impl Following {
    /// Waits for the end of the run; what has bubblewrap for a child ends with it.
    fn end(self, child: &mut Child) -> io::Result<Exit> {
        match self {
            Following::Over => child.wait().map(Exit::alone),
            Following::Alone { mut gate, channel, run } => {
                // Where it fails the command has ended, and its end is seen.
                let _ = become_alone(&mut gate, channel, &run);
                // The gate stays until then: the holder may be about to say that it is there.
                child.wait().map(Exit::alone)
            }
            Following::Forked { gate, mut line, first } => {
                let status = match hear(&mut line) {
                    Ok(Some(Said::Status(status))) => status,
                    // It was killed.
                    _ => Signal::KILL.as_raw(),
                };
                drop(gate);
                child.kill()?;
                child.wait()?;
                Ok(Exit { status: ExitStatus::from_raw(status), empty: until_empty(&first) })
            }
        }
    }
}

/// Tells the holder to become the run.
fn become_alone(gate: &mut UnixStream, channel: OwnedFd, run: &Run) -> io::Result<()> {
    // The shell reads no further than to the end of this line, so the descriptor is Python's.
    gate.write_all(b"run\n")?;
    send_with(gate, b"r", &[channel.as_fd()])?;
    drop(channel);
    gate.write_all(&run.json())?;
    gate.shutdown(std::net::Shutdown::Write)
}

/// Waits until the kernel has ended all that was in a sandbox; `false`: that took too long.
fn until_empty(first: &OwnedFd) -> bool {
    let limit = Timespec { tv_sec: EMPTYING.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(first, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready == 1)
}
