//! A host with a real OpenSSH server, for tests: a user `zuul` with a home of its own, on a port of loopback.
//!
//! The server runs in a namespace (bubblewrap) in which it is that user, so that it needs no rights, changes nothing of
//! this machine and ends with the test. It is found on this machine, or where `./dev test` has unpacked Debian's package:
//! `${GATELOG_CACHE:-~/.cache/gatelog}/openssh`; no service is installed.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The user's number and its home, in the namespace.
const UID: &str = "1000";
const HOME: &str = "/home/zuul";

/// A host that can be reached as `zuul@127.0.0.1` on its port, by whoever has a key that it was told of.
#[derive(Debug)]
pub struct SshHost {
    folder: tempfile::TempDir,
    port: u16,
    server: Child,
}

impl Drop for SshHost {
    fn drop(&mut self) {
        // Everything in the namespace ends with its first process.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl SshHost {
    /// Starts a host, with a host key of its own (Ed25519) and no key that may log in.
    ///
    /// # Errors
    /// What is missing on this machine, for a test to say as it skips; or what went wrong.
    pub fn start() -> Result<SshHost, String> {
        let programs = Programs::find()?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let place = folder.path();
        prepare(place, &programs).map_err(|error| format!("an SSH host cannot be prepared: {error}"))?;
        let port = free_port().map_err(|error| error.to_string())?;
        let server = programs.command(place, port).spawn().map_err(|error| error.to_string())?;
        let mut host = SshHost { folder, port, server };
        host.wait().map_err(|error| {
            let said = fs::read_to_string(host.folder.path().join("sshd.log")).unwrap_or_default();
            format!("the SSH server does not start: {error}: {said}")
        })?;
        Ok(host)
    }

    fn wait(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let mut greeting = [0; 4];
                if stream.read_exact(&mut greeting).is_ok() && &greeting == b"SSH-" {
                    return Ok(());
                }
            }
            if let Ok(Some(status)) = self.server.try_wait() {
                return Err(status.to_string());
            }
            if Instant::now() >= until {
                return Err("no answer".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The port of its server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The home of its user, as this machine sees it.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Lets the holder of a key in: `line` is its public half as OpenSSH writes it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn let_in(&self, line: &str) -> std::io::Result<()> {
        let file = self.home().join(".ssh/authorized_keys");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(file)?;
        writeln!(file, "{}", line.trim())
    }

    /// The public half of the host's key, as `<type> <base64>`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn host_key(&self) -> std::io::Result<String> {
        let line = fs::read_to_string(self.folder.path().join("host_key.pub"))?;
        Ok(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
    }

    /// The fingerprint of the host's key as `ssh-keygen -l` says it; `digest`: `md5` or `sha256`.
    ///
    /// # Errors
    /// When the program fails.
    pub fn fingerprint(&self, digest: &str) -> std::io::Result<String> {
        let mut command = Command::new("ssh-keygen");
        command.args(["-l", "-E", digest, "-f"]).arg(self.folder.path().join("host_key.pub"));
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().nth(1).map(str::to_owned).ok_or_else(|| std::io::Error::other(text))
    }

    /// What its server has written: connections, keys that were offered, who logged in.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("sshd.log")).unwrap_or_default()
    }
}

/// The programs of a host.
struct Programs {
    sshd: PathBuf,
    sftp: Option<PathBuf>,
    /// Helpers of newer servers.
    session: Option<PathBuf>,
    auth: Option<PathBuf>,
    libraries: Vec<PathBuf>,
}

impl Programs {
    fn find() -> Result<Programs, String> {
        let cache = std::env::var_os("GATELOG_CACHE")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/gatelog")));
        let unpacked = cache.map(|cache| cache.join("openssh")).filter(|place| place.join("usr/sbin/sshd").exists());
        let root = unpacked.clone().unwrap_or_else(|| PathBuf::from("/"));
        let sshd = root.join("usr/sbin/sshd");
        if !sshd.exists() {
            return Err("no OpenSSH server: ./dev test unpacks one into its cache".to_owned());
        }
        if Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Err("no bubblewrap: install it".to_owned());
        }
        let helper = |name: &str| Some(root.join("usr/lib/openssh").join(name)).filter(|path| path.exists());
        let libraries = unpacked.map_or_else(Vec::new, |root| {
            let below = fs::read_dir(root.join("usr/lib")).into_iter().flatten().filter_map(Result::ok);
            below.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with("-linux-gnu")).collect()
        });
        Ok(Programs {
            sftp: helper("sftp-server"),
            session: helper("sshd-session"),
            auth: helper("sshd-auth"),
            sshd,
            libraries,
        })
    }

    /// The server in its namespace.
    fn command(&self, place: &Path, port: u16) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session"]);
        command.args(["--uid", UID, "--gid", UID, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        command.args(["--tmpfs", "/tmp", "--tmpfs", "/home"]);
        // What lies below /tmp or /home of this machine is hidden by now.
        command.arg("--bind").arg(place).arg(place);
        command.arg("--bind").arg(place.join("home")).arg(HOME);
        let helpers = [&self.sftp, &self.session, &self.auth].into_iter().flatten();
        for program in std::iter::once(&self.sshd).chain(helpers) {
            command.arg("--ro-bind").arg(program).arg(program);
        }
        for library in &self.libraries {
            command.arg("--ro-bind").arg(library).arg(library);
        }
        for name in ["passwd", "group"] {
            command.arg("--ro-bind").arg(place.join(name)).arg(Path::new("/etc").join(name));
        }
        if let Some(paths) = std::env::join_paths(&self.libraries).ok().filter(|paths| !paths.is_empty()) {
            command.arg("--setenv").arg("LD_LIBRARY_PATH").arg(paths);
        }
        command.args(["--chdir", HOME, "--"]).arg(&self.sshd);
        command.args(["-D", "-p", &port.to_string(), "-f"]).arg(place.join("sshd_config"));
        command.arg("-E").arg(place.join("sshd.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// The host's key, settings, user and home.
fn prepare(place: &Path, programs: &Programs) -> std::io::Result<()> {
    fs::create_dir_all(place.join("home/.ssh"))?;
    let key = place.join("host_key");
    let status = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status()?;
    if !status.success() {
        return Err(std::io::Error::other(format!("ssh-keygen: {status}")));
    }
    fs::write(
        place.join("passwd"),
        format!("zuul:x:{UID}:{UID}:Zuul:{HOME}:/bin/bash\nroot:x:0:0:root:/root:/bin/sh\n"),
    )?;
    fs::write(place.join("group"), format!("zuul:x:{UID}:\nroot:x:0:\n"))?;
    let mut settings = format!(
        "ListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nUsePAM no\nStrictModes no\nLogLevel VERBOSE\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPubkeyAuthentication yes\nMaxSessions 100\n\
         MaxStartups 200\nAuthorizedKeysFile {HOME}/.ssh/authorized_keys\nPrintMotd no\n",
        key.display()
    );
    let helpers = [("SshdSessionPath", &programs.session), ("SshdAuthPath", &programs.auth)];
    for (setting, program) in helpers {
        if let Some(program) = program {
            settings.push_str(&format!("{setting} {}\n", program.display()));
        }
    }
    if let Some(sftp) = &programs.sftp {
        settings.push_str(&format!("Subsystem sftp {}\n", sftp.display()));
    }
    fs::write(place.join("sshd_config"), settings)
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
