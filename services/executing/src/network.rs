//! A network of a sandbox's own, with a way out.
//!
//! bubblewrap makes the sandbox with an empty network: a loopback that reaches nothing of the host. `slirp4netns`
//! (the tool of rootless containers) puts a device into it and makes the connections that the job asks for, as a program
//! of the executor's user, outside. The host's own loopback is not among what it reaches. It is started before the sandbox's
//! process is let go, told of the sandbox once that is there, and ends with the playbook.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ansible::RUNNER;
use crate::config::{ExecutorConfig, ExecutorError, Network};
use crate::toolchain::{Toolchain, on_path};

/// The program.
pub(crate) const PROGRAM: &str = "slirp4netns";
/// Where it answers names, by asking as this host does.
const NAMESERVER: &str = "10.0.2.3";
/// How long it may take to be ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most of its complaints that is told, in bytes.
const LONGEST_COMPLAINT: u64 = 2048;

/// The program, where the settings ask for such networks.
///
/// # Errors
/// They do, and there is none.
pub(crate) fn find(config: &ExecutorConfig) -> Result<Option<PathBuf>, ExecutorError> {
    match config.network {
        Network::Private => on_path(PROGRAM).map(Some).ok_or(ExecutorError::NoPrivateNetwork),
        Network::Host | Network::None => Ok(None),
    }
}

/// Where names are asked for in such a network, in the form of `resolv.conf`, with what else this host's says.
pub(crate) fn resolv_conf(host: &str) -> String {
    let kept = host.lines().filter(|line| ["search ", "domain ", "options "].iter().any(|word| line.starts_with(word)));
    std::iter::once(format!("nameserver {NAMESERVER}")).chain(kept.map(str::to_owned)).map(|line| line + "\n").collect()
}

/// How a network is made.
pub(crate) struct Maker {
    command: Command,
}

/// The program, waiting for a sandbox.
pub(crate) struct Waiting {
    child: Child,
}

/// The network of a sandbox. It is gone when this is dropped.
pub(crate) struct Attached {
    child: Child,
}

impl Maker {
    pub(crate) fn new(program: &Path, toolchain: &Toolchain, plugins: &Path) -> Maker {
        let mut command = Command::new(&toolchain.python);
        command.arg("-s").arg(plugins.join(RUNNER)).arg("network").arg(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Maker { command }
    }

    pub(crate) fn start(mut self) -> io::Result<Waiting> {
        Ok(Waiting { child: self.command.spawn()? })
    }
}

impl Waiting {
    /// Gives a network to the sandbox that this process is in.
    pub(crate) fn attach(self, process: i32) -> io::Result<Attached> {
        let mut attached = Attached { child: self.child };
        attached.begin(process).map_err(|error| {
            let _ = attached.child.kill();
            let mut said = String::new();
            if let Some(complaints) = attached.child.stderr.take() {
                let _ = complaints.take(LONGEST_COMPLAINT).read_to_string(&mut said);
            }
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            io::Error::other(format!("{PROGRAM} makes no network ({error}): {said}"))
        })?;
        Ok(attached)
    }
}

impl Attached {
    fn begin(&mut self, process: i32) -> io::Result<()> {
        let (stdin, stdout) = (self.child.stdin.take(), self.child.stdout.take());
        let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("no pipes"));
        };
        writeln!(stdin, "{process}")?;
        drop(stdin);
        let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&limit))? == 0 {
            return Err(io::Error::other("it takes too long"));
        }
        let mut word = [0];
        stdout.read_exact(&mut word).map_err(|_| io::Error::other("it has ended"))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_for_in_the_network_itself() {
        let host = "# made by hand\nnameserver 127.0.0.53\nsearch example.org\noptions edns0 trust-ad\n";
        assert_eq!(resolv_conf(host), "nameserver 10.0.2.3\nsearch example.org\noptions edns0 trust-ad\n");
        assert_eq!(resolv_conf(""), "nameserver 10.0.2.3\n");
    }
}
