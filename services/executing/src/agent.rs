//! A build's SSH agent: OpenSSH's own, outside the sandbox, behind a proxy whose socket is shown inside.
//!
//! It is started for each build and holds what the build was given; a job may add keys of its own. The proxy keeps a job
//! from the keys that are not its own, and to its bounds (see [`crate::agent_proxy`]). Both end with the build, and with
//! this process however that dies.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::agent_keys::{PATIENCE, SshAgent};
use crate::agent_proxy::{Keyrings, Side, listen, serve};
use crate::agent_wire::SUCCESS;
use crate::build::Build;
use crate::outcome::BuildResult;
use crate::sandbox::{Mount, Profile};
use crate::setup::{Stopped, failed};
use crate::spec::SshIdentity;
use crate::toolchain::on_path;

/// The socket of the agent with the keys a build was given.
const GIVEN: &str = "given";
/// Where a sandbox shows the socket of the proxy: short, for a socket's path holds 107 bytes.
const INSIDE: &str = "/run/gatelog-agent/socket";
/// The longest path of a socket, in bytes.
const LONGEST: usize = 107;

/// An agent that runs. Dropping it ends it.
pub(crate) struct Agent {
    directory: PathBuf,
    keyrings: Arc<Keyrings>,
    /// Serves playbooks, one task for each kind.
    servers: JoinSet<()>,
}

impl Agent {
    /// Starts an agent with its sockets in this directory, and gives it keys.
    /// `file` is a key that comes before them.
    async fn start(
        program: &Path,
        directory: PathBuf,
        file: Option<&Path>,
        keys: &[SshIdentity],
    ) -> Result<Agent, String> {
        let failed = |error: std::io::Error| error.to_string();
        let agent = SshAgent::start(program, &directory, GIVEN).await.map_err(failed)?;
        if let Some(file) = file {
            add_file(program, &directory, file).await?;
        }
        for key in keys {
            if agent.door.ask(key.as_bytes()).await.map_err(failed)? != [SUCCESS] {
                return Err("it does not take a key".into());
            }
        }
        let keyrings = Arc::new(Keyrings::new(program, &directory, agent).await.map_err(failed)?);
        let mut servers = JoinSet::new();
        for side in [Side::Trusted, Side::Untrusted] {
            let listener = listen(&directory, side).map_err(failed)?;
            servers.spawn(serve(listener, side, keyrings.clone()));
        }
        Ok(Agent { directory, keyrings, servers })
    }

    /// Lets what runs under this profile reach the agent: as a trusted playbook, or as an untrusted one.
    pub(crate) fn show(&self, profile: &mut Profile, trusted: bool, sandboxed: bool) {
        let side = if trusted { Side::Trusted } else { Side::Untrusted };
        let mut socket = self.directory.join(side.socket());
        if sandboxed {
            let from = std::mem::replace(&mut socket, INSIDE.into());
            profile.mounts.push(Mount::ReadOnlyAt { from, to: INSIDE.into() });
        }
        profile.environment.insert("SSH_AUTH_SOCK".into(), socket.into());
    }

    /// Ends it; it is gone when this returns.
    pub(crate) async fn end(mut self) {
        self.servers.shutdown().await;
        self.keyrings.end().await;
    }
}

/// Gives an agent the key in a file, by the `ssh-add` beside the agent's own program.
async fn add_file(program: &Path, directory: &Path, file: &Path) -> Result<(), String> {
    let mut command = Command::new(program.with_file_name("ssh-add"));
    // The socket's name is relative: the directory's may be too long for a socket. Nobody can be asked for a passphrase.
    command.arg("-q").arg(file).env_clear().env("SSH_AUTH_SOCK", GIVEN).env("SSH_ASKPASS_REQUIRE", "never");
    command.current_dir(directory);
    told(command).await.map_err(|said| format!("it does not take the executor's key {}: {said}", file.display()))
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
        // The longer of the two.
        let path = directory.join(Side::Untrusted.socket());
        if self.executor.bwrap.is_none() && path.as_os_str().len() > LONGEST {
            let path = path.display();
            return Err(refused(format!(
                "the path of a socket cannot be as long as {path}: give the site a shorter one"
            )));
        }
        Agent::start(program, directory, file, keys)
            .await
            .map(Some)
            .map_err(|reason| failed(format!("the build's SSH agent cannot be had: {reason}")))
    }
}
