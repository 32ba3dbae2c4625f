//! What stands between a build and its SSH agents: playbooks reach this, and never an agent itself.
//!
//! A build has two agents. One holds the keys that the build was given and those that trusted playbooks add; the other,
//! started with the first key, those that untrusted playbooks add. Trusted playbooks see and may remove all keys,
//! untrusted ones see all and may remove only what untrusted ones have added. So nothing that is written in an untrusted
//! playbook's message has to be understood to keep the other keys safe: that agent does not have them.
//!
//! The two kinds of playbooks have a socket each, and each socket its own bounds. What is not needed is refused: locks,
//! smartcards, keys on hardware, keys to be confirmed, extensions. OpenSSH's programs go on without the extensions.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::agent_keys::{Door, LONGEST_MESSAGE, SshAgent, send};
use crate::agent_wire::{FAILURE, Listing, REMOVE_ALL, REQUEST_IDENTITIES, Request, SUCCESS};

/// The longest message that brings a key, in bytes: several times an RSA key of 8192 bits with a certificate.
const LONGEST_KEY: usize = 16 << 10;
/// Keys that playbooks of one kind may add.
const MOST_ADDED: u32 = 64;
/// Bytes of the public halves and comments of the keys that playbooks of one kind have added. With both kinds and the
/// given keys the list is still shorter than OpenSSH's longest message.
const MOST_ADDED_BYTES: usize = 96 << 10;
/// Connections of playbooks of one kind that are served at once. Further ones wait until one has ended.
const MOST_CONNECTIONS: usize = 32;
/// How long the rest of a message may take once it has begun, and how long an answer may lie there.
const HALF_SENT: Duration = Duration::from_secs(10);
/// How long a connection may be silent between two messages.
const SILENT: Duration = Duration::from_secs(600);
/// How long nobody is let in after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Which playbooks ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Trusted,
    Untrusted,
}

impl Side {
    /// The name of its socket in the directory of a build's agents.
    pub(crate) fn socket(self) -> &'static str {
        match self {
            Side::Trusted => "trusted",
            Side::Untrusted => "untrusted",
        }
    }
}

/// The agents of a build.
pub(crate) struct Keyrings {
    program: PathBuf,
    directory: PathBuf,
    /// Holds what the build was given, and what trusted playbooks add.
    given: Door,
    /// How many keys the build was given, and the bytes of their list.
    at_first: (u32, usize),
    /// Holds what untrusted playbooks add.
    added: OnceCell<Door>,
    /// One key after the other, so that they are counted.
    adding: tokio::sync::Mutex<()>,
    /// The agents' processes.
    agents: Mutex<Vec<SshAgent>>,
}

impl Keyrings {
    /// Around an agent that has been given its keys.
    pub(crate) async fn new(program: &Path, directory: &Path, agent: SshAgent) -> io::Result<Keyrings> {
        let given = agent.door.clone();
        let held = list(&given).await?;
        Ok(Keyrings {
            program: program.to_owned(),
            directory: directory.to_owned(),
            given,
            at_first: (held.count, held.entries.len()),
            added: OnceCell::new(),
            adding: tokio::sync::Mutex::default(),
            agents: Mutex::new(vec![agent]),
        })
    }

    /// Ends the agents; they are gone when this returns.
    pub(crate) async fn end(&self) {
        let agents = std::mem::take(&mut *self.agents.lock().unwrap_or_else(PoisonError::into_inner));
        for agent in agents {
            agent.end().await;
        }
    }

    /// The answer to a message.
    async fn answer(&self, side: Side, message: &[u8]) -> Vec<u8> {
        let answer = match Request::of(message) {
            None => return vec![FAILURE],
            Some(Request::List) => self.list().await.map(|all| all.answer()),
            Some(Request::Sign) => self.sign(message).await,
            Some(Request::Add) => self.add(side, message).await,
            Some(Request::Remove) => self.remove(side, message).await,
            Some(Request::RemoveAll) => self.remove_all(side).await,
        };
        answer.unwrap_or_else(|error| {
            tracing::debug!(directory = %self.directory.display(), %error, "a build's SSH agent does not answer");
            vec![FAILURE]
        })
    }

    /// Both agents, those keys first that the build was given.
    fn doors(&self) -> impl Iterator<Item = &Door> {
        std::iter::once(&self.given).chain(self.added.get())
    }

    async fn list(&self) -> io::Result<Listing> {
        let mut all = Listing::default();
        for door in self.doors() {
            all = all.and(list(door).await?);
        }
        Ok(all)
    }

    /// By whichever has the key; a key that both have is the given one.
    async fn sign(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        let mut answer = vec![FAILURE];
        for door in self.doors() {
            answer = door.ask(message).await?;
            if answer != [FAILURE] {
                break;
            }
        }
        Ok(answer)
    }

    async fn add(&self, side: Side, message: &[u8]) -> io::Result<Vec<u8>> {
        if message.len() > LONGEST_KEY {
            return Ok(vec![FAILURE]);
        }
        let _one = self.adding.lock().await;
        let (door, (count, bytes)) = match side {
            Side::Trusted => (&self.given, self.at_first),
            Side::Untrusted => (self.added.get_or_try_init(|| self.start_second()).await?, (0, 0)),
        };
        let held = list(door).await?;
        // What the list grows by is in the message.
        let room = held.count < count.saturating_add(MOST_ADDED)
            && held.entries.len().saturating_add(message.len()) <= bytes.saturating_add(MOST_ADDED_BYTES);
        if room { door.ask(message).await } else { Ok(vec![FAILURE]) }
    }

    async fn start_second(&self) -> io::Result<Door> {
        let agent = SshAgent::start(&self.program, &self.directory, "added").await?;
        let door = agent.door.clone();
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).push(agent);
        Ok(door)
    }

    /// The agents whose keys this side may remove.
    fn removable(&self, side: Side) -> impl Iterator<Item = &Door> {
        self.doors().skip(usize::from(side == Side::Untrusted))
    }

    async fn remove(&self, side: Side, message: &[u8]) -> io::Result<Vec<u8>> {
        let mut answer = vec![FAILURE];
        for door in self.removable(side) {
            if door.ask(message).await? == [SUCCESS] {
                answer = vec![SUCCESS];
            }
        }
        Ok(answer)
    }

    /// Succeeds only where no key is left: whoever empties an agent relies on that.
    async fn remove_all(&self, side: Side) -> io::Result<Vec<u8>> {
        for door in self.removable(side) {
            door.ask(&[REMOVE_ALL]).await?;
        }
        Ok(vec![if self.list().await?.count == 0 { SUCCESS } else { FAILURE }])
    }
}

async fn list(door: &Door) -> io::Result<Listing> {
    let answer = door.ask(&[REQUEST_IDENTITIES]).await?;
    Listing::read(&answer).ok_or_else(|| io::Error::other("it does not tell its keys"))
}

/// A socket for this side in the directory.
pub(crate) fn listen(directory: &Path, side: Side) -> io::Result<UnixListener> {
    // By way of the open directory: its own name may be too long.
    let handle = File::open(directory)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{}", handle.as_raw_fd(), side.socket()))
}

/// Serves playbooks of one kind, for ever.
pub(crate) async fn serve(listener: UnixListener, side: Side, keyrings: std::sync::Arc<Keyrings>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let keyrings = keyrings.clone();
                    connections.spawn(async move { converse(stream, side, &keyrings).await });
                }
                Err(_) => sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until it ends, or does not keep to the bounds.
async fn converse(mut stream: UnixStream, side: Side, keyrings: &Keyrings) {
    while let Some(mut message) = receive(&mut stream).await {
        let answer = keyrings.answer(side, &message).await;
        // It may have brought a key.
        message.fill(0);
        std::hint::black_box(&mut message);
        if !matches!(timeout(HALF_SENT, send(&mut stream, &answer)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// The next message. `None`: there is none any more, it is too long, or comes too slowly.
async fn receive(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let first = timeout(SILENT, stream.read_u8()).await.ok()?.ok()?;
    let rest = async {
        let mut length = [first, 0, 0, 0];
        stream.read_exact(length.get_mut(1..)?).await.ok()?;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        if length == 0 || length > LONGEST_MESSAGE {
            return None;
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message).await.ok()?;
        Some(message)
    };
    timeout(HALF_SENT, rest).await.ok()?
}
