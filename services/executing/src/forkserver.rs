//! A process that has Ansible loaded and forks for each playbook.
//!
//! Loading Ansible takes more time than most playbooks do. One server for each Ansible loads it once, before it has
//! heard of any build, and only ever forks. Its child enters the sandbox that bubblewrap has made for one playbook alone
//! and runs the playbook there (see `plugins/run/gatelog_playbook.py`): what a playbook sees, may do and leaves behind
//! is as if Ansible had been started inside. The server holds nothing of a build; it ends with this process, however
//! that dies, because it waits on a socket that only this process holds.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ansible::{self, RUNNER};
use crate::channel::send_with;
use crate::jobdir::{make_dir, write};
use crate::procfs::Process;
use crate::toolchain::Toolchain;

/// How long a server may take to load Ansible.
const LOADING: Duration = Duration::from_secs(120);
/// How long it may take to fork.
const FORKING: Duration = Duration::from_secs(30);
/// The longest answer of a server, in bytes.
const LONGEST_ANSWER: usize = 4096;

/// The servers of an executor, one for each Ansible.
pub(crate) struct ForkServers {
    /// The executor's own directory.
    root: PathBuf,
    plugins: PathBuf,
    known: Mutex<BTreeMap<Key, Known>>,
}

/// An installation of Ansible; one that was replaced in the same place is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    ansible_playbook: PathBuf,
    version: String,
    file: (u64, i64),
}

#[derive(Clone)]
enum Known {
    Server(Arc<ForkServer>),
    /// There is none to be had, which was said once.
    Nothing,
}

impl ForkServers {
    pub(crate) fn new(root: &Path, plugins: &Path) -> ForkServers {
        ForkServers { root: root.to_owned(), plugins: plugins.to_owned(), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(toolchain: &Toolchain) -> Option<Key> {
        let file = fs::metadata(&toolchain.ansible_playbook).ok()?;
        Some(Key {
            ansible_playbook: toolchain.ansible_playbook.clone(),
            version: toolchain.version.clone(),
            file: (file.ino(), file.mtime()),
        })
    }

    /// The server of this Ansible, started if it does not run. `None`: playbooks have to start Ansible themselves.
    /// Blocks while Ansible is loaded.
    pub(crate) fn get(&self, toolchain: &Toolchain) -> Option<Arc<ForkServer>> {
        let key = ForkServers::key(toolchain)?;
        let mut known = self.lock();
        match known.get(&key) {
            Some(Known::Server(server)) if server.is_alive() => return Some(server.clone()),
            Some(Known::Nothing) => return None,
            _ => {}
        }
        // Of an Ansible that was replaced; its server ends once the last build that uses it has.
        known.retain(|other, _| other.ansible_playbook != key.ansible_playbook);
        let started = ForkServer::start(&self.root, &self.plugins, toolchain);
        let found = match started {
            Ok(server) => Known::Server(Arc::new(server)),
            Err(error) => {
                tracing::warn!(%error, ansible = %toolchain.version, "no fork server: each playbook starts Ansible itself");
                Known::Nothing
            }
        };
        known.insert(key, found.clone());
        match found {
            Known::Server(server) => Some(server),
            Known::Nothing => None,
        }
    }

    /// Does without the server of this Ansible from now on: what it forks may not enter sandboxes.
    pub(crate) fn give_up(&self, toolchain: &Toolchain, reason: &str) {
        tracing::warn!(%reason, ansible = %toolchain.version, "no fork server: each playbook starts Ansible itself");
        if let Some(key) = ForkServers::key(toolchain) {
            self.lock().insert(key, Known::Nothing);
        }
    }

    /// Lets go of a server that did not fork. What it may still answer belongs to nobody: the next run gets another.
    pub(crate) fn replace(&self, toolchain: &Toolchain, reason: &str) {
        tracing::warn!(%reason, ansible = %toolchain.version, "the fork server failed: a playbook starts Ansible itself");
        if let Some(key) = ForkServers::key(toolchain) {
            self.lock().remove(&key);
        }
    }
}

/// A server that runs. Dropping it ends it; runs that it has forked go on.
pub(crate) struct ForkServer {
    control: Mutex<UnixStream>,
    child: Mutex<Child>,
    pid: u32,
}

impl ForkServer {
    fn start(root: &Path, plugins: &Path, toolchain: &Toolchain) -> io::Result<ForkServer> {
        let other = |error: crate::config::ExecutorError| io::Error::other(error.to_string());
        let own = root.join("fork-server");
        make_dir(&own).map_err(other)?;
        let configuration = own.join("ansible.cfg");
        write(&configuration, ansible::server_configuration(plugins, &own).as_bytes()).map_err(other)?;
        let (control, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&toolchain.python);
        command.arg("-s").arg(plugins.join(RUNNER)).arg("serve").current_dir("/").process_group(0);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8").env("HOME", &own);
        // A home that is nowhere: what depends on a run's own is recognised by it.
        command.env("ANSIBLE_CONFIG", &configuration).env("ANSIBLE_HOME", "/nonexistent/gatelog-ansible-home");
        if let Some(path) = &toolchain.python_path {
            command.env("PYTHONPATH", path);
        }
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn()?;
        drop(command);
        let pid = child.id();
        let server = ForkServer { control: Mutex::new(control), child: Mutex::new(child), pid };
        match answer(&server.control.lock().unwrap_or_else(PoisonError::into_inner), LOADING)?.as_str() {
            "ready" => {}
            said => return Err(io::Error::other(format!("it said {said:?}"))),
        }
        Ok(server)
    }

    fn is_alive(&self) -> bool {
        matches!(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
    }

    /// Forks; gives the number of the child. It waits for a [`Run`](crate::run::Run) on the other end of `line`, and
    /// what the run writes goes to `output`, what its callback says to `channel`.
    pub(crate) fn fork(&self, output: BorrowedFd, line: BorrowedFd, channel: BorrowedFd) -> io::Result<i32> {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        send_with(&control, b"fork\n", &[output, line, channel])?;
        let said = answer(&control, FORKING)?;
        let child: i32 = said.parse().map_err(|_| io::Error::other(said))?;
        // Its limits and its end are asked for by this number: it must be the child's here, too.
        match Process::read(child) {
            Some(process) if u32::try_from(process.parent) == Ok(self.pid) => Ok(child),
            _ => Err(io::Error::other(format!("process {child} is no child of the server"))),
        }
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // It ends when it sees that nobody holds the socket any more; this is for one that hangs.
        let control = self.control.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = control.shutdown(std::net::Shutdown::Both);
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// One line from a server.
fn answer(control: &UnixStream, within: Duration) -> io::Result<String> {
    control.set_read_timeout(Some(within))?;
    let mut line = Vec::new();
    let mut reader = BufReader::with_capacity(1, io::Read::take(control, LONGEST_ANSWER as u64));
    reader.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::other("it has ended: its last words are in this process's standard error"));
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Sends a run to a child of the server.
pub(crate) fn send(line: &mut impl Write, run: &crate::run::Run) -> io::Result<()> {
    let text = run.json();
    line.write_all(&(text.len() as u64).to_le_bytes())?;
    line.write_all(&text)
}
