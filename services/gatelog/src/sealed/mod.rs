//! A gatelog that answers a what-if, shut in: without network and environment, with nothing of this host to see but the
//! system's programs, itself and the record it is asked about, read-only, and for a bounded time in bounded memory.
//!
//! - this file: shutting a program in and waiting for what it says;
//! - [`question`]: what it is asked, and its answer.

pub mod question;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_effects::connection::chain;
use gatelog_executing::{ExecutorConfig, Features, Mount, Profile, find_bubblewrap};

/// Where the program stands in its sandbox.
const PROGRAM: &str = "/gatelog";
/// The most bytes kept of what a program complains.
const COMPLAINT: u64 = 64 << 10;
/// How long a look at a running program rests.
const REST: Duration = Duration::from_millis(20);
/// The most bytes of the one directory it can write to, which is in memory and its own.
const SHARED_MEMORY: u64 = 4 << 10;

/// How much a program may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may run.
    pub time: Duration,
    /// The most memory of its own, in bytes.
    pub memory: u64,
    /// The longest answer, in bytes.
    pub answer: u64,
}

/// A bubblewrap that makes sandboxes on this host.
#[derive(Clone, Debug)]
pub struct Sandbox {
    bwrap: PathBuf,
    features: Features,
}

impl Sandbox {
    /// Finds bubblewrap and tries it. Not called from within the runtime.
    ///
    /// # Errors
    /// Why there is none, one sentence with the cure.
    pub fn find() -> Result<Sandbox, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let found = runtime.block_on(find_bubblewrap(&ExecutorConfig::new("/", "/")));
        match found.map_err(|error| chain(&error))? {
            Some((bwrap, features)) => Ok(Sandbox { bwrap, features }),
            None => Err("sandboxes are turned off".to_owned()),
        }
    }

    /// The command that runs a task in a sandbox.
    fn command(&self, task: &Task<'_>, program: PathBuf) -> Command {
        let mut profile = Profile::system(None);
        profile.mounts.retain(|mount| matches!(mount, Mount::ReadOnlyIfThere(_)));
        profile.mounts.push(Mount::ReadOnlyAt { from: program, to: PROGRAM.into() });
        let shown = |(from, to): &(PathBuf, PathBuf)| Mount::ReadOnlyAt { from: from.clone(), to: to.clone() };
        profile.mounts.extend(task.shown.iter().map(shown));
        profile.network = false;
        profile.shared_memory = Some(SHARED_MEMORY);
        profile.directory = Some("/".into());
        let words: Vec<OsString> = std::iter::once(PROGRAM.into()).chain(task.arguments.iter().cloned()).collect();
        let mut command = limited(&self.bwrap, task.limits.memory);
        command.args(profile.argv(&words, self.features));
        command
    }
}

/// A program, started once limits hold for it and all that it starts.
fn limited(program: &Path, memory: u64) -> Command {
    let mut command = Command::new("/bin/sh");
    let script = format!("ulimit -c 0 2>/dev/null; ulimit -d {} 2>/dev/null; exec \"$@\"", memory.div_ceil(1024));
    command.args(["-c", script.as_str(), "gatelog-what-if"]).arg(program);
    command
}

/// A program and what it is told.
#[derive(Debug)]
pub struct Task<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What of this host it sees in its sandbox, and where.
    pub shown: Vec<(PathBuf, PathBuf)>,
    /// How much it may take.
    pub limits: Limits,
}

/// What a program said.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: Vec<u8>,
    /// What it complained of.
    pub complaint: String,
}

/// A program did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It was never begun.
    #[error("{program} cannot be started: {why}")]
    Start {
        /// Which.
        program: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It took too long.
    #[error("it took longer than {} seconds and was stopped", .0.as_secs())]
    TimedOut(Duration),
    /// It said too much.
    #[error("it answered more than {0} bytes and was stopped")]
    TooLong(u64),
    /// Nobody wants to know any more.
    #[error("it was cancelled")]
    Cancelled,
    /// It could not be waited for.
    #[error("it cannot be waited for: {0}")]
    Lost(io::Error),
}

/// Runs a program to its end, in a sandbox or (without one) as it is, with its limits all the same. Ends it when it takes
/// too much or `cancelled` says so.
///
/// # Errors
/// Why it did not come to its end.
pub fn run(sandbox: Option<&Sandbox>, task: &Task<'_>, cancelled: &dyn Fn() -> bool) -> Result<Said, Broken> {
    let start = |why| Broken::Start { program: task.program.to_owned(), why };
    let program = task.program.canonicalize().map_err(start)?;
    let mut command = match sandbox {
        Some(sandbox) => sandbox.command(task, program),
        None => {
            let mut command = limited(&program, task.limits.memory);
            command.args(&task.arguments);
            command
        }
    };
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // bubblewrap takes its sandbox along when the thread that started it ends: it is waited for here.
    let mut child = command.spawn().map_err(start)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // More of an answer than there may be is not read: whoever writes it finds nobody there.
    let output = read(out, task.limits.answer.saturating_add(1), false);
    let complaint = read(err, COMPLAINT, true);
    let status = wait(&mut child, task.limits, cancelled);
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    // Without a sandbox a program's own children may keep its pipes open: what fails is not waited for.
    let status = status?;
    let output = output.map_err(Broken::Lost)?.join().unwrap_or_default();
    if output.len() as u64 > task.limits.answer {
        return Err(Broken::TooLong(task.limits.answer));
    }
    let complaint = complaint.map_err(Broken::Lost)?.join().unwrap_or_default();
    Ok(Said { status, output, complaint: String::from_utf8_lossy(&complaint).trim().to_owned() })
}

/// Waits for the end.
fn wait(child: &mut Child, limits: Limits, cancelled: &dyn Fn() -> bool) -> Result<ExitStatus, Broken> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(Broken::Lost)? {
            return Ok(status);
        }
        if cancelled() {
            return Err(Broken::Cancelled);
        }
        if began.elapsed() > limits.time {
            return Err(Broken::TimedOut(limits.time));
        }
        std::thread::sleep(REST);
    }
}

/// Reads so many bytes of a pipe on a thread of its own, and passes over the rest if that is wanted.
fn read(pipe: Option<impl Read + Send + 'static>, most: u64, rest: bool) -> io::Result<JoinHandle<Vec<u8>>> {
    std::thread::Builder::new().name("gatelog-what-if".into()).spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What breaks off is as long as it is.
            let _ = pipe.by_ref().take(most).read_to_end(&mut bytes);
            if rest {
                let _ = io::copy(&mut pipe, &mut io::sink());
            }
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(60), memory: 256 << 20, answer: 1_000 };

    fn script(dir: &Path, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn sandbox() -> Option<Sandbox> {
        let found = Sandbox::find();
        if let Err(why) = &found {
            println!("SKIPPED what-if sandbox: {why}");
        }
        found.ok()
    }

    #[test]
    fn a_program_in_the_sandbox_reaches_no_network_writes_no_file_and_sees_what_it_is_shown() {
        let Some(sandbox) = sandbox() else { return };
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("log/one"), "recorded").unwrap();
        std::fs::write(dir.path().join("secret"), "not shown").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let text = format!(
            "cat /site/log/one
             for place in /site/log/one /site/new /etc/new /tmp/new /new $HOME/new {0}/new; do
                 (echo written > $place) 2>/dev/null && echo wrote $place
             done
             cat {0}/secret /root/.bashrc 2>/dev/null
             ls /sys/class/net /proc/net/dev 2>/dev/null | grep -v proc
             grep -c : /proc/net/dev
             python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2); print(\"reached\")' 2>/dev/null
             [ -z \"$GATELOG_SECRET$HOME\" ] && echo no environment
             exit 0",
            dir.path().display()
        );
        let program = script(dir.path(), &text);
        let shown = vec![(dir.path().join("log"), PathBuf::from("/site/log"))];
        let task = Task { program: &program, arguments: Vec::new(), shown, limits: LIMITS };
        let said = run(Some(&sandbox), &task, &|| false).unwrap();
        let told = String::from_utf8_lossy(&said.output).into_owned();
        // Of the network only the loopback of its own is there, on which nobody listens.
        assert_eq!(told, "recorded1\nno environment\n", "{}", said.complaint);
        assert!(!dir.path().join("new").exists());
        assert_eq!(std::fs::read_to_string(dir.path().join("log/one")).unwrap(), "recorded");
    }

    #[test]
    fn a_program_is_ended_when_it_takes_too_long_too_much_or_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        for sandbox in std::iter::once(None).chain(sandbox().map(Some)) {
            let run = |text: &str, limits: Limits, cancelled: bool| {
                let program = script(dir.path(), text);
                run(
                    sandbox.as_ref(),
                    &Task { program: &program, arguments: vec!["a b".into()], shown: Vec::new(), limits },
                    &|| cancelled,
                )
            };
            let said = run("echo \"$1\"; echo bad >&2; exit 8", LIMITS, false).unwrap();
            assert_eq!((said.status.code(), said.output.as_slice()), (Some(8), &b"a b\n"[..]));
            assert_eq!(said.complaint, "bad");
            let short = Limits { time: Duration::from_millis(200), ..LIMITS };
            assert!(matches!(run("exec sleep 600", short, false), Err(Broken::TimedOut(_))));
            assert!(matches!(run("exec sleep 600", LIMITS, true), Err(Broken::Cancelled)));
            assert!(matches!(run("head -c 5000 /dev/zero; exit 0", LIMITS, false), Err(Broken::TooLong(1_000))));
            let hungry = run("exec python3 -c 'a = bytearray(1 << 30); print(len(a))'", LIMITS, false).unwrap();
            assert_eq!((hungry.status.success(), hungry.output.len()), (false, 0), "{}", hungry.complaint);
        }
    }
}
