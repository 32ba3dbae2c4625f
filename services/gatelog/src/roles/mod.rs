//! The roles of a site, each started by a module of its own, and what all roles of a process share.
//!
//! | role | does |
//! |---|---|
//! | `connections` | receives from code-review systems, asks them, reports to them |
//! | `scheduler` | owns `gate`: decides, routes the intake, reads the tenant file, forwards and keeps time for it |
//! | `merger` | prepares, makes layouts, freezes, merges for real |
//! | `executor` | runs builds as the site's worker of this process's name, and serves their consoles |
//! | `launcher` | owns `capacity`: decides, forwards, keeps time, and says who is silent |
//! | `web` | API and page |
//!
//! Who owns a partition need not know where others are: everybody folds what they need from the log for themselves.

pub mod connections;
pub mod executor;
pub mod follow;
pub mod launcher;
pub mod merger;
pub mod scheduler;
pub mod web;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use gatelog_capacity_state::Capacity;
use gatelog_effects::connection::Connections;
use gatelog_effects::git::Repositories;
use gatelog_event_log::{Blobs, Log};
use gatelog_gate_state::Gate;
use gatelog_hosting::{HostedDomain, Hosting, Surroundings};
use gatelog_log_files::LogStore;
use gatelog_merging::{Aging, Mirrors, MirrorsConfig};
use gatelog_record::{Domain, Partition};
use gatelog_room::Room;
use gatelog_runner::Fold;
pub use gatelog_runner::Folded;
use gatelog_secrets::Keyring;
use gatelog_store::{Layout as StoreLayout, RungDir};
use gatelog_writer::{Clock, Directory, Host, Options as WriterOptions};
use serde::{Deserialize, Serialize};

use crate::config::SiteConfig;
use crate::connections::troubles::Troubles;
use crate::logs::{Refusing, SitePaths};
use crate::patient_blobs::PatientBlobs;
use crate::presence::Signer;
use crate::server::{StartError, part, thread};
use crate::steady::Steady;

/// The gate's partition, while there is one.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// Capacity's partition.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };

/// A role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Receives from code-review systems, asks them, reports to them.
    Connections,
    /// Owns the gate.
    Scheduler,
    /// Prepares, makes layouts, freezes, merges for real.
    Merger,
    /// Runs builds.
    Executor,
    /// Owns capacity.
    Launcher,
    /// API and page.
    Web,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 6] =
        [Role::Connections, Role::Scheduler, Role::Merger, Role::Executor, Role::Launcher, Role::Web];

    /// Its name, as `--role` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Connections => "connections",
            Role::Scheduler => "scheduler",
            Role::Merger => "merger",
            Role::Executor => "executor",
            Role::Launcher => "launcher",
            Role::Web => "web",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The roles of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// These; all of them when none is named.
    pub fn new(named: &[Role]) -> Roles {
        if named.is_empty() { Roles(Role::ALL.into()) } else { Roles(named.iter().copied().collect()) }
    }

    /// Whether this is one of them.
    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }

    /// Those that are missing.
    pub fn missing(&self) -> Vec<Role> {
        Role::ALL.into_iter().filter(|role| !self.has(*role)).collect()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Role> {
        self.0.iter().copied()
    }
}

impl Default for Roles {
    fn default() -> Self {
        Roles::new(&[])
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Role::name).collect();
        f.write_str(&names.join(","))
    }
}

/// What all roles of a process share.
pub struct Process {
    /// The site's directory.
    pub site: PathBuf,
    /// Its configuration.
    pub config: SiteConfig,
    /// Where things are in it.
    pub paths: SitePaths,
    /// What this process is called.
    pub name: String,
    /// Its roles.
    pub roles: Roles,
    /// The log.
    pub log: Arc<dyn Log>,
    /// The same for folds and writers: where the log may be out of reach for a while, reads wait.
    pub patient: Arc<dyn Log>,
    /// Why the log refuses appends, if it does.
    pub refusing: Refusing,
    /// Its blobs.
    pub blobs: Arc<dyn Blobs>,
    /// The same for those who work for the gate: what is put waits until it can be kept.
    pub keeping: Arc<PatientBlobs>,
    /// Knows what waits until this host has room.
    pub room: Arc<Room>,
    /// What jobs left in their log directories, where this process keeps or reads it.
    pub job_logs: Option<LogStore>,
    /// What is wrong with connections.
    pub troubles: Arc<Troubles>,
    /// The keys.
    pub keyring: Arc<Keyring>,
    /// The domains it hosts.
    pub domains: Hosting,
    /// Each of them as it is folded here, in the order of the list.
    pub folds: Arc<[Arc<dyn Fold>]>,
    /// The gate.
    pub gate: Folded<Gate>,
    /// Capacity.
    pub capacity: Folded<Capacity>,
    /// Gives this process's signs, and knows who else gives some.
    pub signer: Arc<Signer>,
    /// Where forwarders find their receivers.
    pub directory: Arc<Directory>,
    /// The clock of those who decide.
    pub clock: Arc<dyn Clock>,
    /// What the machine's clock did, and the time by which things grow old.
    pub steady: Arc<Steady>,
    /// Set when the process is to end.
    pub stop: Arc<AtomicBool>,
    /// Where builds and the API run.
    pub runtime: tokio::runtime::Handle,
    /// Where other processes are asked by those who wait for the answer.
    pub probing: tokio::runtime::Handle,
    /// How people reach the API.
    pub web_root: Option<String>,
}

impl Process {
    /// The site's repositories, in mirrors of this process.
    pub fn repositories(&self, connections: &Connections) -> Result<Repositories, StartError> {
        let mut settings = MirrorsConfig::new(self.site.join("mirrors"));
        let steady = Arc::clone(&self.steady);
        settings.aging = Aging(Arc::new(move || steady.aging_files()));
        let mirrors = Mirrors::open(settings).map_err(part("mirrors"))?;
        Ok(Repositories {
            mirrors: Arc::new(mirrors),
            connections: connections.clone(),
            blobs: Arc::<PatientBlobs>::clone(&self.keeping),
            begun: Arc::default(),
        })
    }

    /// Whether a domain is decided in this process: it has the role that does.
    pub fn decides(&self, domain: &dyn HostedDomain) -> bool {
        self.roles.iter().any(|role| role.name() == domain.role())
    }

    /// Starts a domain of this process's own: who decides, who forwards, who keeps time. The host must be stopped by
    /// whoever started it.
    pub fn host(&self, domain: &dyn HostedDomain) -> Result<Host, StartError> {
        let rungs = RungDir::new(StoreLayout::new(&self.paths.projections(), domain.partition()).rungs());
        let mut options = WriterOptions { build: build(), ..WriterOptions::default() };
        if self.config.log.kafka.is_some() {
            // However long brokers are away: it goes on when they are back.
            options.restarts = u32::MAX;
        }
        let surroundings = Surroundings {
            log: Arc::clone(&self.patient),
            blobs: Arc::clone(&self.blobs),
            clock: Arc::clone(&self.clock),
            rungs,
            options,
        };
        domain.host(surroundings, &self.directory).map_err(part("threads"))
    }

    /// A thread of this process.
    fn thread(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
        thread(name, run)
    }
}

/// What stands in `WriterStarted`.
fn build() -> String {
    format!("gatelog {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_role_named_means_all_and_some_named_leave_others_missing() {
        assert_eq!(Roles::new(&[]).missing(), []);
        let some = Roles::new(&[Role::Web, Role::Scheduler, Role::Web]);
        assert_eq!(some.to_string(), "scheduler,web");
        assert_eq!(some.missing(), [Role::Connections, Role::Merger, Role::Executor, Role::Launcher]);
    }
}
