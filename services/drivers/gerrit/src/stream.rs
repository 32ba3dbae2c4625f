//! `gerrit stream-events` over the ssh program.
//!
//! The stream has no heartbeat, no ids and no end of its own: ssh's keepalive stands in for the first. It ends with any
//! exit code, also 0 (Gerrit cuts off a listener that is about 2 MB behind, in the middle of a line), and what happens
//! while nobody listens is not told afterwards; [`crate::Intake`] fetches that.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::config::GerritConfig;
use crate::error::{GerritError, shorten};
use crate::events::LINE_MAX;

/// How many lines wait in memory. Behind them the pipe fills, then ssh's window, then Gerrit cuts off.
const LINES_MAX: usize = 1_000;
/// How much of what ssh complains of is kept.
const COMPLAINT_MAX: usize = 4_000;

/// What comes from the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A whole line, without its end.
    Line(Vec<u8>),
    /// A line that is longer than [`LINE_MAX`], of which nothing was kept.
    TooLong {
        /// How many bytes it had.
        bytes: usize,
    },
    /// The stream is over, and why as far as ssh says.
    End {
        /// ssh's exit code and its last words.
        why: String,
    },
}

/// A running `stream-events`. Dropping it ends the ssh program.
#[derive(Debug)]
pub struct EventStream {
    child: Child,
    lines: Receiver<Received>,
    complaint: Option<thread::JoinHandle<String>>,
    over: bool,
}

/// ssh's options of a connection, without the host.
pub(crate) fn ssh_words(config: &GerritConfig) -> Vec<String> {
    let ssh = &config.ssh;
    let option = |text: String| ["-o".to_owned(), text];
    let mut words =
        vec!["-T".to_owned(), "-F".to_owned(), "none".to_owned(), "-i".to_owned(), ssh.key.display().to_string()];
    words.extend(option("IdentitiesOnly=yes".to_owned()));
    words.extend(option("BatchMode=yes".to_owned()));
    words.extend(option("StrictHostKeyChecking=yes".to_owned()));
    // ssh splits at spaces, unless quoted.
    words.extend(option(format!("UserKnownHostsFile=\"{}\"", ssh.known_hosts.display())));
    words.extend(option(format!("ConnectTimeout={}", config.limits.connect.as_secs().max(1))));
    words.extend(option(format!("ServerAliveInterval={}", ssh.keepalive_s)));
    words.extend(option("ServerAliveCountMax=3".to_owned()));
    words.extend(["-p".to_owned(), ssh.port.to_string()]);
    words
}

impl EventStream {
    /// Starts ssh. Whether it comes through shows in what is received.
    ///
    /// # Errors
    /// [`GerritError::BadSetting`], [`GerritError::Program`] where ssh cannot be started.
    pub fn open(config: &GerritConfig) -> Result<EventStream, GerritError> {
        config.check()?;
        let mut ssh = Command::new("ssh");
        ssh.arg("-n").args(ssh_words(config)).arg(format!("{}@{}", config.user, config.ssh.host));
        ssh.args(["gerrit", "stream-events"]);
        EventStream::run(ssh)
    }

    fn run(mut command: Command) -> Result<EventStream, GerritError> {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| {
                GerritError::Program { program: "ssh", what: "stream-events".to_owned(), why: error.to_string() }
            })?;
        let (send, lines) = sync_channel(LINES_MAX);
        if let Some(out) = child.stdout.take() {
            thread::spawn(move || read_lines(BufReader::with_capacity(64 << 10, out), &send));
        }
        let complaint = child.stderr.take().map(|err| thread::spawn(move || last_words(err)));
        Ok(EventStream { child, lines, complaint, over: false })
    }

    /// The next that comes, within this time; `None` where nothing does. After the end there is nothing more.
    pub fn next(&mut self, at_most: Duration) -> Option<Received> {
        if self.over {
            return None;
        }
        match self.lines.recv_timeout(at_most) {
            Ok(received) => Some(received),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.over = true;
                Some(Received::End { why: self.end() })
            }
        }
    }

    fn end(&mut self) -> String {
        // Its output is closed: it has ended, or is told to.
        let _ = self.child.kill();
        let code = match self.child.wait() {
            Ok(status) => status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}")),
            Err(error) => error.to_string(),
        };
        let words = self.complaint.take().and_then(|words| words.join().ok()).unwrap_or_default();
        format!("ssh ended with {code}{}{}", if words.is_empty() { "" } else { ": " }, shorten(&words, 500))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines until the end, or until nobody wants them. Half a line at the end is not given: it was cut off.
fn read_lines(mut out: impl BufRead, send: &SyncSender<Received>) {
    let (mut line, mut length) = (Vec::new(), 0);
    loop {
        let block = match out.fill_buf() {
            Ok([]) | Err(_) => return,
            Ok(block) => block,
        };
        let (taken, ends) = match block.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at, true),
            None => (block.len(), false),
        };
        length += taken;
        if length <= LINE_MAX {
            line.extend_from_slice(&block[..taken]);
        }
        out.consume(taken + usize::from(ends));
        if ends {
            let whole = std::mem::take(&mut line);
            let received = if length <= LINE_MAX { Received::Line(whole) } else { Received::TooLong { bytes: length } };
            length = 0;
            if send.send(received).is_err() {
                return;
            }
        }
    }
}

/// What was written last, and as much of it as is kept.
fn last_words(mut err: impl Read) -> String {
    let (mut kept, mut block) = (VecDeque::new(), [0; 1024]);
    while let Ok(read) = err.read(&mut block) {
        if read == 0 {
            break;
        }
        kept.extend(&block[..read]);
        while kept.len() > COMPLAINT_MAX {
            kept.pop_front();
        }
    }
    let bytes: Vec<u8> = kept.into();
    String::from_utf8_lossy(&bytes).trim().replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    fn shell(script: &str) -> EventStream {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        EventStream::run(command).unwrap()
    }

    fn all(mut stream: EventStream) -> Vec<Received> {
        let mut received = Vec::new();
        while let Some(one) = stream.next(Duration::from_secs(60)) {
            received.push(one);
        }
        received
    }

    #[test]
    fn lines_come_whole_and_the_end_says_why() {
        let received =
            all(shell("printf 'a\\n\\nb\\nhalf a li'; echo 'Connection closed by remote host' >&2; exit 255"));
        let line = |text: &str| Received::Line(text.as_bytes().to_vec());
        let why = "ssh ended with exit code 255: Connection closed by remote host".to_owned();
        assert_eq!(received, [line("a"), line(""), line("b"), Received::End { why }]);
        // Gerrit cuts off a listener that is too slow in the middle of a line, and ssh says 0.
        let received = all(shell("printf '{\"type\":'"));
        assert_eq!(received, [Received::End { why: "ssh ended with exit code 0".to_owned() }]);
    }

    #[test]
    fn a_line_without_end_costs_no_memory_and_not_the_next_line() {
        let received = all(shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo next"));
        assert_eq!(received[0], Received::TooLong { bytes: 3_000_000 });
        assert_eq!(received[1], Received::Line(b"next".to_vec()));
    }

    #[test]
    fn who_does_not_read_holds_a_limited_number_of_lines() {
        let mut stream = shell("i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done");
        assert_eq!(stream.next(Duration::from_secs(60)), Some(Received::Line(b"0".to_vec())));
        assert_eq!(all(stream).len(), 5_000, "and loses none of them: 4,999 more and the end");
    }

    #[test]
    fn ssh_asks_nobody_and_trusts_no_unknown_host() {
        let mut config = config("https://h/");
        config.ssh.known_hosts = "/some place/known_hosts".into();
        let words = ssh_words(&config).join(" ");
        assert_eq!(
            words,
            "-T -F none -i /nonexistent -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes -o \
             UserKnownHostsFile=\"/some place/known_hosts\" -o ConnectTimeout=10 -o ServerAliveInterval=60 -o \
             ServerAliveCountMax=3 -p 29418"
        );
    }
}
