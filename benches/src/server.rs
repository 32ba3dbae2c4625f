//! A real `gatelog serve` for benchmarks: its binary, its process, what it takes of the machine, and asking its API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// How long an answer of the API is waited for.
const ANSWER: Duration = Duration::from_secs(60);

/// The binary: `GATELOG_BIN`, or the release build beside this benchmark, which is made if need be.
///
/// # Errors
/// When it does not build.
pub fn binary() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("GATELOG_BIN") {
        return Ok(path.into());
    }
    let me = std::env::current_exe()?;
    let path = me.parent().and_then(Path::parent).ok_or("no target directory")?.join("gatelog");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "--release", "--package", "gatelog"]).status()?;
    if built.success() { Ok(path) } else { Err("the gatelog binary does not build".into()) }
}

/// Processor time of a process itself, and of the children it has waited for.
///
/// # Errors
/// When there is no such process.
pub fn cpu_of(pid: u32) -> Result<(Duration, Duration), Failure> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<u64> = text
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    let sum = |from: usize| fields.iter().skip(from).take(2).sum::<u64>();
    // Ticks are 10 ms on every Linux there is.
    Ok((Duration::from_millis(sum(11) * 10), Duration::from_millis(sum(13) * 10)))
}

/// Memory of a process that lies in the machine's, in bytes: now, and the most it was.
///
/// # Errors
/// When there is no such process.
pub fn memory_of(pid: u32) -> Result<(u64, u64), Failure> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Ok((field("VmRSS:").unwrap_or(0) << 10, field("VmHWM:").unwrap_or(0) << 10))
}

/// A server under way; killed when dropped.
pub struct Server {
    child: Child,
    dir: PathBuf,
    /// The address of its API, `host:port`; empty when it has none.
    pub address: String,
    /// When it was started.
    pub began: Instant,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts `gatelog serve` in a site's directory, and waits until it says where it is.
    ///
    /// # Errors
    /// When it ends instead, with what it said.
    pub fn start(binary: &Path, dir: &Path, further: &[&str]) -> Result<Server, Failure> {
        let file = dir.join("server.json");
        let _ = std::fs::remove_file(&file);
        let said = std::fs::File::create(dir.join("server.log"))?;
        let began = Instant::now();
        let child = Command::new(binary)
            .args(["serve", "--dir"])
            .arg(dir)
            .args(further)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()?;
        let mut server = Server { child, dir: dir.to_owned(), address: String::new(), began };
        let told = server.until("the server says where it is", Duration::from_secs(300), |_| {
            let text = std::fs::read_to_string(&file).ok()?;
            serde_json::from_str::<serde_json::Value>(&text).ok()
        })?;
        let url = told.get("url").and_then(serde_json::Value::as_str).unwrap_or_default();
        server.address = url.trim_start_matches("http://").to_owned();
        Ok(server)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for something, as long as the process lives.
    ///
    /// # Errors
    /// When the process ends, or it takes too long.
    pub fn until<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl FnMut(&Server) -> Option<T>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || began.elapsed() > patience {
                let said = std::fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
                let tail: Vec<&str> = said.lines().rev().take(20).collect();
                let how = ended.map_or_else(|| "it runs".to_owned(), |status| format!("it ended with {status}"));
                return Err(
                    format!("waited in vain: {what}; {how}; it said, newest first:\n{}", tail.join("\n")).into()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks the API: status and document.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn get(&self, path: &str) -> Result<(u16, String), Failure> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let address = &self.address;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n")?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without an end of its head")?;
        let status =
            head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).ok_or("an answer without a status")?;
        Ok((status, body.to_owned()))
    }

    /// Whether reads are answered as of now.
    pub fn is_ready(&self) -> bool {
        self.get("/api/health/ready").is_ok_and(|(status, _)| status == 200)
    }
}
