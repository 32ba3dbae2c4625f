//! A build's SSH agent: OpenSSH's own, outside the sandbox, with a socket that is shown inside.
//!
//! It is started for each build and holds what the build was given; a job may add keys of its own. The agent ends with
//! the build, and with this process however that dies: it waits on a pipe that only this process holds. Keys are handed
//! over through the socket, so they are never in a file, an argument or an environment.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::build::Build;
use crate::outcome::{BuildResult, RetryCause};
use crate::sandbox::{Mount, Profile};
use crate::setup::Stopped;
use crate::spec::SshIdentity;
use crate::toolchain::on_path;

/// How long an agent may take to be there, and to take a key.
const PATIENCE: Duration = Duration::from_secs(20);
/// The socket, in its directory.
const SOCKET: &str = "socket";
/// Where a sandbox shows that directory: short, for a socket's path holds 107 bytes.
const INSIDE: &str = "/run/gatelog-agent";
/// The longest path of a socket, in bytes.
const LONGEST: usize = 107;
/// The agent's answer that all is well.
const SUCCESS: u8 = 6;

/// An agent that runs. Dropping it ends it.
pub(crate) struct Agent {
    child: Child,
    /// While this is open the agent stays.
    stay: Option<ChildStdin>,
    directory: PathBuf,
}

impl Agent {
    /// Starts an agent with its socket in this directory, and gives it keys.
    /// `file` is a key that comes before them.
    async fn start(
        program: &Path,
        directory: PathBuf,
        file: Option<&Path>,
        keys: &[SshIdentity],
    ) -> Result<Agent, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut command = Command::new(program);
        // No library of this host is loaded into the agent because a job asks for it. The name is relative: the
        // directory's may be too long for a socket. Once nobody holds the pipe any more the agent is killed; it also ends
        // by itself soon after the one that waits.
        command.args(["-P", "/nonexistent", "-a", SOCKET, "/bin/sh", "-c"]);
        command.arg("read -r word; kill -KILL \"$SSH_AGENT_PID\"");
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(&directory).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let stay = child.stdin.take();
        let agent = Agent { child, stay, directory };
        let mut stream = agent.connect().await?;
        if let Some(file) = file {
            agent.add_file(program, file).await?;
        }
        for key in keys {
            let told = timeout(PATIENCE, tell(&mut stream, key.as_bytes())).await;
            match told.map_err(|_| "it does not answer".to_owned())?.map_err(failed)? {
                SUCCESS => {}
                _ => return Err("it does not take a key".into()),
            }
        }
        Ok(agent)
    }

    /// Gives it the key in a file, by the `ssh-add` beside the agent's own program.
    async fn add_file(&self, program: &Path, file: &Path) -> Result<(), String> {
        let mut command = Command::new(program.with_file_name("ssh-add"));
        // The socket's name is relative, as above. Nobody can be asked for a passphrase.
        command.arg("-q").arg(file).env_clear().env("SSH_AUTH_SOCK", SOCKET).env("SSH_ASKPASS_REQUIRE", "never");
        command.current_dir(&self.directory);
        told(command).await.map_err(|said| format!("it does not take the executor's key {}: {said}", file.display()))
    }

    /// A connection to it, once it is there.
    async fn connect(&self) -> Result<UnixStream, String> {
        let until = Instant::now() + PATIENCE;
        // By way of the open directory: its own name may be too long.
        let directory = std::fs::File::open(&self.directory).map_err(|error| error.to_string())?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() >= until => return Err(error.to_string()),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Lets what runs under this profile reach the agent.
    pub(crate) fn show(&self, profile: &mut Profile, sandboxed: bool) {
        let socket = if sandboxed {
            profile.mounts.push(Mount::ReadOnlyAt { from: self.directory.clone(), to: INSIDE.into() });
            Path::new(INSIDE).join(SOCKET)
        } else {
            self.directory.join(SOCKET)
        };
        profile.environment.insert("SSH_AUTH_SOCK".into(), socket.into());
    }

    /// Ends it; it is gone when this returns.
    pub(crate) async fn end(mut self) {
        self.stay = None;
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            tracing::warn!(directory = %self.directory.display(), "a build's SSH agent would not end");
        }
    }
}

/// Whether an agent can be given the key in this file; else why not.
pub(crate) async fn check_key(file: &Path) -> Result<(), String> {
    let program = on_path("ssh-keygen").ok_or("there is no ssh-keygen on PATH: install openssh-client")?;
    let mut command = Command::new(program);
    // Prints its public half, for which it must be read whole.
    command.args(["-y", "-P", "", "-f"]).arg(file).env_clear();
    told(command).await
}

/// Runs a program to its end; what it says where it fails.
async fn told(mut command: Command) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.map_err(|_| "no answer".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if output.status.success() { Ok(()) } else { Err(words.trim_matches(['@', ' ']).to_owned()) }
}

/// Sends a message; gives the kind of the answer.
async fn tell(stream: &mut UnixStream, message: &[u8]) -> std::io::Result<u8> {
    let length = u32::try_from(message.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(message).await?;
    let _length = stream.read_u32().await?;
    stream.read_u8().await
}

impl Build {
    /// The build's agent with the keys it was given. Without a program for it there is none, and no key may be given.
    pub(crate) async fn start_agent(&self) -> Result<Option<Agent>, Box<Stopped>> {
        let keys = &self.spec.ssh_keys;
        let file = self.executor.config.private_key_file.as_deref();
        let refused = |reason: String| Box::new((BuildResult::Error(reason.clone()), reason));
        let Some(program) = &self.executor.ssh_agent else {
            return match keys.is_empty() && file.is_none() {
                true => Ok(None),
                false => Err(refused(
                    "the build is given SSH keys, and there is no ssh-agent on its worker: install openssh-client"
                        .into(),
                )),
            };
        };
        let directory = self.job_dir.agent();
        let path = directory.join(SOCKET);
        if self.executor.bwrap.is_none() && path.as_os_str().len() > LONGEST {
            let path = path.display();
            return Err(refused(format!(
                "the path of a socket cannot be as long as {path}: give the site a shorter one"
            )));
        }
        Agent::start(program, directory, file, keys).await.map(Some).map_err(|reason| {
            let reason = format!("the build's SSH agent cannot be had: {reason}");
            Box::new((BuildResult::Retry(RetryCause::SetupFailed), reason))
        })
    }
}
