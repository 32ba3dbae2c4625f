//! What the API reads from.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gatelog_calendar::Calendar;
use gatelog_capacity_state::Capacity;
use gatelog_event_log::Blobs;
use gatelog_gate_state::Gate;
use gatelog_log_files::{KeptFile, Manifest, Removal, Rules};
use gatelog_record::{BuildId, Domain, Partition, Timestamp};
use gatelog_runner::{Fold, Published};
use gatelog_store::SharedProjection;

use crate::auth::Authenticators;
use crate::operators::Operators;
use crate::past::Past;
use crate::what_if::WhatIfs;

/// Everything the API reads from. What people ask for goes to [`Site::operators`].
#[derive(Clone)]
pub struct Site {
    /// The gate's tables.
    pub gate: SharedProjection<Gate>,
    /// Where their fold stands.
    pub gate_fold: Published,
    /// Capacity's tables.
    pub capacity: SharedProjection<Capacity>,
    /// Where their fold stands.
    pub capacity_fold: Published,
    /// Every partition that is folded here, these two too, in the order in which positions are told.
    pub folds: Arc<[Arc<dyn Fold>]>,
    /// Layouts and problems.
    pub blobs: Arc<dyn Blobs>,
    /// The live tables as they were.
    pub past: Arc<dyn Past>,
    /// What builds say.
    pub consoles: Arc<dyn Consoles>,
    /// What builds leave in their log directories.
    pub job_logs: Arc<dyn JobLogs>,
    /// How those who decide are.
    pub health: Arc<dyn Health>,
    /// Whether this process is about to end, and why: new readers are better sent elsewhere.
    pub leaving: Arc<dyn Leaving>,
    /// Who is there.
    pub components: Arc<dyn Components>,
    /// What people encrypt secrets with and let in by SSH, and what tokens are verified with.
    pub keys: Arc<dyn PublicKeys>,
    /// The name the site issues tokens under; `None`: nobody has said, and it issues none.
    pub issuer: Option<String>,
    /// Who can say who somebody is.
    pub authenticators: Arc<Authenticators>,
    /// Where requests of operators go.
    pub operators: Arc<dyn Operators>,
    /// Who says what would have been.
    pub what_ifs: Arc<dyn WhatIfs>,
    /// The driver of each connection.
    pub drivers: BTreeMap<String, String>,
    /// The calendar by which timers are due.
    pub calendar: Calendar,
    /// How many streams and waits are open at once; more are refused.
    pub streams: usize,
    /// Where clients reach websockets, if not where they reach the API. Zuul: `[web] websocket_url`.
    pub websocket_url: Option<String>,
    /// The version told to clients.
    pub version: String,
}

impl Site {
    /// Capacity's partition.
    pub(crate) fn capacity_partition(&self) -> Partition {
        let capacity = self.folds.iter().map(|fold| fold.partition()).find(|one| one.domain == Domain::Capacity);
        capacity.unwrap_or(Partition { domain: Domain::Capacity, index: 0 })
    }
}

/// What was read from a console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleChunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The offset to go on from.
    pub next: u64,
    /// Whether nothing will ever come after these bytes.
    pub ended: bool,
}

/// What a read of a console comes to.
pub type ConsoleRead<'a> = Pin<Box<dyn Future<Output = std::io::Result<ConsoleChunk>> + Send + 'a>>;

/// One console.
pub trait ConsoleSource: Send + Sync {
    /// What there is from an offset on, at most `max` bytes. Where there is nothing yet, waits for it up
    /// to `patience`; comes empty when nothing came.
    fn read_from(&self, offset: u64, max: usize, patience: Duration) -> ConsoleRead<'_>;
}

/// Where consoles are: with the worker while it runs, in storage after.
pub trait Consoles: Send + Sync {
    /// The console of an attempt of a build; `None` when there is none (yet, or any more). Where its
    /// worker cannot be reached, a source whose reads say so.
    fn open(&self, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>>;

    /// What is stored of a console, for when its worker cannot be reached; `None` when nothing is.
    fn stored(&self, _build: BuildId, _attempt: u32) -> Option<Box<dyn ConsoleSource>> {
        None
    }
}

/// No consoles at all: for a site whose workers are elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConsoles;

impl Consoles for NoConsoles {
    fn open(&self, _: BuildId, _: u32) -> Option<Box<dyn ConsoleSource>> {
        None
    }
}

/// What is known of an attempt's log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundLogs {
    /// What is kept; of an attempt that runs, the executor's own files.
    Kept(Manifest),
    /// It was removed.
    Removed(Removal),
}

/// What asking for logs comes to.
pub type LogsFuture<'a, T> = Pin<Box<dyn Future<Output = std::io::Result<T>> + Send + 'a>>;

/// Where the files are that jobs leave: with the worker, or in a store that every process reads.
pub trait JobLogs: Send + Sync {
    /// What is known of an attempt; `None` when nothing is.
    fn find(&self, build: BuildId, attempt: u32) -> LogsFuture<'_, Option<FoundLogs>>;

    /// A file of a manifest that [`JobLogs::find`] gave; `None` when it is gone.
    fn open<'a>(
        &'a self,
        build: BuildId,
        attempt: u32,
        file: &'a KeptFile,
    ) -> LogsFuture<'a, Option<Box<dyn ConsoleSource>>>;

    /// How long what is kept stays.
    fn rules(&self) -> Rules {
        Rules::default()
    }
}

/// No logs at all: for a site whose workers are elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJobLogs;

impl JobLogs for NoJobLogs {
    fn find(&self, _: BuildId, _: u32) -> LogsFuture<'_, Option<FoundLogs>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn open<'a>(&'a self, _: BuildId, _: u32, _: &'a KeptFile) -> LogsFuture<'a, Option<Box<dyn ConsoleSource>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A public key, by whose it is. Projects have the names they have on their connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// What secrets of a project are encrypted with: PEM (SubjectPublicKeyInfo).
    Secrets {
        /// The connection.
        connection: String,
        /// The project.
        project: String,
    },
    /// The SSH key of a project: a line of `authorized_keys`.
    ProjectSsh {
        /// The connection.
        connection: String,
        /// The project.
        project: String,
    },
    /// What tokens of secrets are verified with: a JSON Web Key Set.
    Tokens,
    /// The SSH key of a tenant: a line of `authorized_keys`.
    TenantSsh {
        /// The tenant.
        tenant: String,
    },
}

/// The public halves of the site's keys.
pub trait PublicKeys: Send + Sync {
    /// A public key as text, with the end of its last line. The key is made if there is none, which takes a while: not
    /// called where that would hold anybody up.
    ///
    /// # Errors
    /// Why it cannot be had, one sentence.
    fn public(&self, key: &PublicKey) -> Result<String, String>;
}

impl<F: Fn(&PublicKey) -> Result<String, String> + Send + Sync> PublicKeys for F {
    fn public(&self, key: &PublicKey) -> Result<String, String> {
        self(key)
    }
}

/// How one part of the site is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartHealth {
    /// The part, such as `writer gate/0`.
    pub part: String,
    /// Whether all is well.
    pub well: bool,
    /// What it is doing, a word.
    pub state: String,
    /// What is wrong, and the cure; empty when nothing is.
    pub detail: String,
}

/// How the parts are that the API cannot see by itself.
pub trait Health: Send + Sync {
    /// Each of them.
    fn parts(&self) -> Vec<PartHealth>;
}

impl<F: Fn() -> Vec<PartHealth> + Send + Sync> Health for F {
    fn parts(&self) -> Vec<PartHealth> {
        self()
    }
}

/// Whether a process is about to end.
pub trait Leaving: Send + Sync {
    /// Why it is, one sentence; `None` while it is not.
    fn why(&self) -> Option<String>;
}

impl<F: Fn() -> Option<String> + Send + Sync> Leaving for F {
    fn why(&self) -> Option<String> {
        self()
    }
}

/// How a process is. Zuul: a component's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentState {
    /// It catches up with the log.
    Initializing,
    /// It does what its roles do.
    Running,
    /// It takes nothing new and ends what it has begun; then it stops. Zuul has no word for it.
    Draining,
    /// It ends, or gives no sign any more.
    Stopped,
}

impl ComponentState {
    /// Zuul's word for it.
    pub fn name(self) -> &'static str {
        match self {
            ComponentState::Initializing => "initializing",
            ComponentState::Running => "running",
            ComponentState::Draining => "draining",
            ComponentState::Stopped => "stopped",
        }
    }
}

/// A process of the site, as it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its roles; Zuul's kinds where Zuul has them.
    pub roles: Vec<String>,
    /// How it is.
    pub state: ComponentState,
    /// Those of its roles that take nothing new.
    pub paused: Vec<String>,
    /// Its gatelog.
    pub version: String,
    /// The newest level of records that it knows; 0 of one that does not say.
    pub level: u32,
    /// The zone of its executor, if it has one and is in one.
    pub zone: Option<String>,
    /// Why its executor takes no builds now, each with a code; nothing: it does.
    pub held: Vec<(String, String)>,
    /// When it was started, by its own clock.
    pub started_at: Timestamp,
    /// How long ago it gave its last sign.
    pub last_sign: Duration,
    /// Whether that is so long ago that it is taken for dead.
    pub silent: bool,
}

/// Who is there.
pub trait Components: Send + Sync {
    /// Every process that gave a sign lately. May take a while: not called where that would hold anybody up.
    fn present(&self) -> Vec<Component>;
}

impl<F: Fn() -> Vec<Component> + Send + Sync> Components for F {
    fn present(&self) -> Vec<Component> {
        self()
    }
}
