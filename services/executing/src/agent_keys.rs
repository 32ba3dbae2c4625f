//! One OpenSSH agent: its process, and questions to it.
//!
//! It ends with this process however that dies: it waits on a pipe that only this process holds. Keys are handed over
//! through its socket, so they are never in a file, an argument or an environment.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long an agent may take to be there, and to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest message of an agent, in bytes: OpenSSH takes and gives no longer one.
pub(crate) const LONGEST_MESSAGE: usize = 256 << 10;

/// An agent that runs. Dropping it ends it.
pub(crate) struct SshAgent {
    child: Child,
    /// While this is open the agent stays.
    stay: Option<ChildStdin>,
    pub(crate) door: Door,
}

/// Where an agent is reached.
#[derive(Clone)]
pub(crate) struct Door {
    directory: PathBuf,
    socket: &'static str,
}

impl SshAgent {
    /// Starts an agent with a socket of this name in this directory.
    pub(crate) async fn start(program: &Path, directory: &Path, socket: &'static str) -> io::Result<SshAgent> {
        let mut command = Command::new(program);
        // No library of this host is loaded into the agent because a job asks for it. The name is relative: the
        // directory's may be too long for a socket. Once nobody holds the pipe any more the agent is killed; it also ends
        // by itself soon after the one that waits.
        command.args(["-P", "/nonexistent", "-a", socket, "/bin/sh", "-c"]);
        command.arg("read -r word; kill -KILL \"$SSH_AGENT_PID\"");
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(directory).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stay = child.stdin.take();
        let agent = SshAgent { child, stay, door: Door { directory: directory.to_owned(), socket } };
        let until = Instant::now() + PATIENCE;
        loop {
            match agent.door.connect().await {
                Ok(_) => return Ok(agent),
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Ends it; it is gone when this returns.
    pub(crate) async fn end(mut self) {
        self.stay = None;
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            tracing::warn!(directory = %self.door.directory.display(), "a build's SSH agent would not end");
        }
    }
}

impl Door {
    async fn connect(&self) -> io::Result<UnixStream> {
        // By way of the open directory: its own name may be too long.
        let directory = File::open(&self.directory)?;
        UnixStream::connect(format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), self.socket)).await
    }

    /// Asks one question, by a connection of its own; gives the answer, without the lengths before both.
    pub(crate) async fn ask(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let ask = async {
            let mut stream = self.connect().await?;
            send(&mut stream, message).await?;
            let length = usize::try_from(stream.read_u32().await?).map_err(io::Error::other)?;
            if length == 0 || length > LONGEST_MESSAGE {
                return Err(io::Error::other("its answer has an impossible length"));
            }
            let mut answer = vec![0; length];
            stream.read_exact(&mut answer).await?;
            Ok(answer)
        };
        timeout(PATIENCE, ask).await.map_err(|_| io::Error::other("it does not answer"))?
    }
}

/// Sends a message with its length before it.
pub(crate) async fn send(stream: &mut UnixStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(message).await
}
