//! The composition root: one process of a site, with some of its roles or all of them.
//!
//! Start order is the order of need: the log, what folds it, who decides, who acts, who listens.
//! Stop order is the reverse. Nothing here is needed for what was acknowledged to survive: stopping
//! and being killed leave the same.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_capacity_state::{Capacity, pause_key};
use gatelog_effects::connection::chain;
use gatelog_event_log::Log;
use gatelog_gate_state::Gate;
use gatelog_hosting::{Following, HostedDomain, Hosting};
use gatelog_record::draft::capacity::Pausable;
use gatelog_record::level::{GATELOG, LEVEL};
use gatelog_record::{Domain, Partition, Timestamp};
use gatelog_runner::{Fold, Health, RunnerConfig, folded};
use gatelog_secrets::Keyring;
use gatelog_tables::Table;
use gatelog_writer::{Directory, Host, SystemClock, WriterState};
use serde::{Deserialize, Serialize};

use crate::audit::notary;
use crate::config::{SiteConfig, StopSection};
use crate::logs::{self, Known, OpenError, SitePaths};
use crate::patience::Patient;
use crate::patient_blobs::PatientBlobs;
use crate::presence::{Component, SIGN_EVERY, Signer, State};
use crate::roles::{Process, Role, Roles, connections, executor, follow, launcher, merger};
use crate::roles::{scheduler, web};
use crate::settings::{self, Settings};
use crate::steady::Steady;
use crate::tenants;

/// What says where a running server is.
pub const SERVER_FILE: &str = "server.json";
/// Held by the process that serves a directory, where the log itself is elsewhere.
const LOCK_FILE: &str = "serve.lock";

/// What a running server says of itself in [`SERVER_FILE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerFile {
    /// Its process.
    pub pid: u32,
    /// When that began, in ticks since the host did: another process may have the same number later.
    #[serde(default)]
    pub started_ticks: u64,
    /// What it is called.
    pub name: String,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Its API, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// How a server is started, besides its site's configuration.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Listen here instead of where the configuration says.
    pub listen: Option<std::net::SocketAddr>,
    /// Its roles.
    pub roles: Roles,
    /// The domains it hosts; gatelog's own unless others are named.
    pub domains: Hosting,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The site's configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// A setting that cannot change has changed.
    #[error(transparent)]
    Settings(#[from] crate::settings::Refused),
    /// The tenant file.
    #[error(transparent)]
    Tenants(#[from] tenants::TenantFileError),
    /// The log; another server on the same directory is one of its errors.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Some roles alone, with a log that only one process can write.
    #[error(
        "the embedded log serves one process with all roles, {missing} would be missing; leave out --role, or move the \
         log to Kafka with [log.kafka]"
    )]
    Alone {
        /// The roles that are missing.
        missing: String,
    },
    /// Another process serves this directory.
    #[error("{directory} is in use by another gatelog serve; give each process a directory of its own")]
    InUse {
        /// The directory.
        directory: String,
    },
    /// A domain's projection could not be opened.
    #[error("projection of {domain}: {message}")]
    Projection {
        /// The domain.
        domain: Domain,
        /// What is wrong, and the cure.
        message: String,
    },
    /// A domain that roles work for is not among those that are hosted.
    #[error("{domain} is not among the domains that this program hosts: list it")]
    NotHosted {
        /// The domain.
        domain: Domain,
    },
    /// A part of the site could not be opened.
    #[error("{part}: {message}")]
    Part {
        /// The part.
        part: &'static str,
        /// What is wrong, and the cure.
        message: String,
    },
}

/// Names the part that an error is of.
pub fn part<E: std::error::Error>(part: &'static str) -> impl Fn(E) -> StartError {
    move |error| StartError::Part { part, message: chain(&error) }
}

/// Why a server cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Another process owns a partition that was this one's.
    #[error("another process has taken over {partition}, and this one has ended")]
    Fenced {
        /// The partition.
        partition: Partition,
    },
}

/// A running process of a site.
pub struct Server {
    site: PathBuf,
    url: Option<String>,
    started_at: Timestamp,
    stop: Arc<AtomicBool>,
    endings: Vec<web::Ending>,
    threads: Vec<JoinHandle<()>>,
    signer: Arc<Signer>,
    log: Arc<dyn Log>,
    /// What this process runs, if it is a worker.
    work: Option<executor::Work>,
    stopping: StopSection,
    folds: Arc<[Arc<dyn Fold>]>,
    inside: Option<Inside>,
}

/// What is taken down when the server stops, in this order.
struct Inside {
    /// Those who decide here, in the order of the list of domains.
    hosts: Vec<Host>,
    /// Every domain is folded here.
    followings: Vec<Box<dyn Following>>,
    runtime: tokio::runtime::Runtime,
    probing: tokio::runtime::Runtime,
    /// Held until all else has ended.
    _lock: Option<File>,
}

impl Server {
    /// Starts a process of the site in a directory.
    pub fn start(site: &Path, options: ServerOptions) -> Result<Server, StartError> {
        let stop = Arc::new(AtomicBool::new(false));
        // What was started before something failed ends.
        Self::start_with(site, options, &stop).inspect_err(|_| stop.store(true, Ordering::Relaxed))
    }

    fn start_with(site: &Path, options: ServerOptions, stop: &Arc<AtomicBool>) -> Result<Server, StartError> {
        let started_at = crate::clock::now();
        let config = SiteConfig::read(site)?;
        let roles = options.roles;
        let missing: Vec<&str> = roles.missing().into_iter().map(Role::name).collect();
        if config.log.kafka.is_none() && !missing.is_empty() {
            return Err(StartError::Alone { missing: missing.join(", ") });
        }
        let settings = Settings::of_file(site).unwrap_or_default();
        settings::at_start(site, &settings, &config)?;
        let name = process_name(site, &config)?;
        let paths = SitePaths::new(site, &config);

        // The address first: links in reports name it.
        let listener = if roles.has(Role::Web) {
            let listen = options.listen.unwrap_or(config.web.listen);
            Some(std::net::TcpListener::bind(listen).map_err(|error| StartError::Part {
                part: "API",
                message: format!("cannot listen on {listen}: {error}; name another address in [web] listen"),
            })?)
        } else {
            None
        };
        let url = match &listener {
            Some(listener) => Some(format!("http://{}", listener.local_addr().map_err(part("API"))?)),
            None => None,
        };
        let web_root = config.web.root.clone().or_else(|| url.clone());

        // The log, and what folds it.
        let lock = if config.log.kafka.is_some() { Some(lock(site)?) } else { None };
        let partitions = options.domains.partitions();
        let mut all_known = known(&paths, &config, &partitions)?;
        let published = published(site, &paths, &config, &partitions)?;
        all_known.extend(published.clone());
        let opened = logs::open(&paths, &config, all_known)?;
        // A log elsewhere says who it is once it is open.
        for known in &published {
            let _ = notary::agrees(&*opened.log, known).map_err(OpenError::from)?;
        }
        let keyring = Arc::new(Keyring::open_dir(paths.keys()).map_err(part("keys"))?);
        let keeps = roles.has(Role::Executor);
        let job_logs = match keeps || roles.has(Role::Web) {
            true => config.job_logs.store(site, keeps).map_err(part("logs of jobs"))?,
            false => None,
        };
        // Brokers may be out of reach for a while; a directory that cannot be read stays so.
        let patient: Arc<dyn Log> = match &config.log.kafka {
            Some(_) => Arc::new(Patient::new(Arc::clone(&opened.log), Arc::clone(stop))),
            None => Arc::clone(&opened.log),
        };
        let fold = RunnerConfig {
            rung_every: config.log.rung_every,
            checkpoint_every: config.log.checkpoint_every,
            ..RunnerConfig::new(paths.projections())
        };
        let follow = |domain: &'static dyn HostedDomain| {
            domain
                .follow(Arc::clone(&patient), fold.clone())
                .map_err(|error| StartError::Projection { domain: domain.domain(), message: chain(&error) })
        };
        let followings = options.domains.iter().map(follow).collect::<Result<Vec<_>, _>>()?;
        let folds: Arc<[Arc<dyn Fold>]> = followings.iter().map(|one| one.fold()).collect();
        // Roles of gatelog's own work for these two, whatever else is hosted.
        let needed = |domain: Domain| StartError::NotHosted { domain };
        let gate = folded::<Gate>(&folds).ok_or_else(|| needed(Domain::Gate))?;
        let capacity = folded::<Capacity>(&folds).ok_or_else(|| needed(Domain::Capacity))?;
        let (runtime, probing) = (runtime("gatelog-io", 2)?, runtime("gatelog-probe", 1)?);
        let own = Component {
            name: name.clone(),
            incarnation: draw()?,
            roles: roles.iter().collect(),
            state: State::Initializing,
            address: None,
            web: url.clone(),
            version: GATELOG.to_owned(),
            level: LEVEL,
            draining: false,
            paused: Vec::new(),
            slots: 0,
            held: Vec::new(),
            zone: None,
            allow_unzoned: true,
            started_at: started_at.0,
        };
        let process = Process {
            site: site.to_path_buf(),
            config,
            paths,
            name,
            roles,
            log: opened.log,
            patient,
            refusing: opened.refusing,
            keeping: Arc::new(PatientBlobs::new(Arc::clone(&opened.blobs), Arc::clone(stop))),
            room: Arc::default(),
            blobs: opened.blobs,
            job_logs,
            troubles: Arc::default(),
            keyring,
            domains: options.domains,
            folds: Arc::clone(&folds),
            gate,
            capacity,
            signer: Arc::new(Signer::new(opened.presence, own)),
            directory: Arc::new(Directory::default()),
            clock: Arc::new(SystemClock::default()),
            steady: Arc::new(Steady::open(site)),
            stop: Arc::clone(stop),
            runtime: runtime.handle().clone(),
            probing: probing.handle().clone(),
            web_root,
        };
        let mut server = Server {
            site: site.to_path_buf(),
            url,
            started_at,
            stop: Arc::clone(stop),
            endings: Vec::new(),
            threads: Vec::new(),
            signer: Arc::clone(&process.signer),
            log: Arc::clone(&process.log),
            work: None,
            stopping: process.config.stop.clone(),
            folds: Arc::clone(&folds),
            inside: Some(Inside { hosts: Vec::new(), followings, runtime, probing, _lock: lock }),
        };
        let newest = move || {
            let places = folds.iter().filter_map(|fold| fold.place().ok()).filter(|place| place.sequence > 0);
            places.map(|place| place.recorded_at).max()
        };
        newest().into_iter().for_each(crate::clock::log_is_at);
        server.threads.push(process.steady.watch(newest, stop)?);
        server.roles(&process, listener)?;
        settings.keep(site).map_err(part(settings::FILE))?;
        server.say_where(&process)?;
        Ok(server)
    }

    /// Starts each role. What was started is taken down with the server, also when a later one fails.
    fn roles(&mut self, process: &Process, listener: Option<std::net::TcpListener>) -> Result<(), StartError> {
        let has = |role| process.roles.has(role);
        let mut writers = Vec::new();

        // Who decides.
        let decides = process.domains.iter().any(|domain| process.decides(domain));
        for (domain, fold) in process.domains.iter().zip(process.folds.iter()) {
            if process.decides(domain) {
                let host = process.host(domain)?;
                writers.push(Arc::clone(host.published()));
                self.inside(|inside| inside.hosts.push(host));
            } else if decides {
                // Whoever sends to it must know what it has taken.
                self.threads.push(follow::start(process, Arc::clone(fold))?);
            }
        }
        if has(Role::Launcher) {
            self.threads.push(launcher::watch(process)?);
        }

        // Who acts.
        let known = connections::open(process)?;
        let repositories = process.repositories(&known.connections)?;
        let mut duties = Vec::new();
        if has(Role::Merger) {
            duties.extend(merger::DUTIES);
        }
        if has(Role::Connections) {
            duties.push(gatelog_effects::dispatch::Duty::Review);
        }
        if !duties.is_empty() {
            self.threads.extend(connections::effects(process, &repositories, &duties)?);
        }
        if let Some(gate) = self.writer_of(Domain::Gate) {
            self.threads.push(scheduler::route(process, &gate, &known.connections)?);
            self.threads.push(scheduler::renew(process, &gate, &known.connections)?);
            self.threads.push(scheduler::tick(process, &gate)?);
            self.threads.push(scheduler::end_returned(process)?);
            self.threads.extend(scheduler::sign(process)?);
        }
        if has(Role::Connections) {
            self.threads.extend(connections::listen(process, &known)?);
        }

        // The API, before the worker: its links lead there.
        let executor =
            if has(Role::Executor) { Some(process.runtime.block_on(executor::open(process))?) } else { None };
        if let Some(listener) = listener {
            self.endings.extend(web::start(process, listener, executor.clone(), writers)?);
        }
        if let Some(executor) = executor {
            let address = match &self.url {
                // Nobody else is there who would ask.
                Some(url) if process.config.log.kafka.is_none() => url.clone(),
                _ => {
                    let (listener, address) = console_listener(process)?;
                    self.endings.push(web::serve(
                        process,
                        listener,
                        crate::consoles::router(executor.clone(), process.job_logs.clone()),
                    )?);
                    address
                }
            };
            self.work = Some(executor::Work::of(process, executor.clone()));
            self.threads.extend(crate::job_logs::removing(process, &executor)?);
            self.threads.extend(executor::start(process, executor, &repositories, address)?);
        }
        self.threads.push(signing(process)?);
        Ok(())
    }

    fn inside(&mut self, change: impl FnOnce(&mut Inside)) {
        if let Some(inside) = &mut self.inside {
            change(inside);
        }
    }

    /// The writer of a domain, where it is here.
    fn writer_of(&self, domain: Domain) -> Option<Arc<gatelog_writer::Published>> {
        let hosts = self.inside.iter().flat_map(|inside| &inside.hosts);
        hosts.map(Host::published).find(|published| published.partition().domain == domain).map(Arc::clone)
    }

    fn say_where(&self, process: &Process) -> Result<(), StartError> {
        let said = ServerFile {
            pid: std::process::id(),
            started_ticks: started_ticks(std::process::id()).unwrap_or_default(),
            name: process.name.clone(),
            roles: process.roles.iter().collect(),
            url: self.url.clone(),
        };
        let text = serde_json::to_string(&said).map_err(part("server.json"))?;
        std::fs::write(self.site.join(SERVER_FILE), text).map_err(part("server.json"))
    }

    /// The log, for whoever asks something of the domains this process hosts.
    pub fn log(&self) -> Arc<dyn Log> {
        Arc::clone(&self.log)
    }

    /// The API's address, if this process has the role.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// When it was started.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// The newest event the gate's fold has.
    pub fn gate_sequence(&self) -> u64 {
        let gate = self.folds.iter().find(|fold| fold.partition().domain == Domain::Gate);
        gate.map_or(0, |fold| fold.published().position().sequence)
    }

    /// Why this process must not go on, if so.
    pub fn ended(&self) -> Option<Ended> {
        let inside = self.inside.as_ref()?;
        for host in &inside.hosts {
            let health = host.published().health();
            let Some(fold) = self.folds.iter().find(|fold| fold.partition() == health.partition) else { continue };
            let over = match health.state {
                WriterState::Stopped { fenced, .. } => fenced,
                // One that has nothing to append hears of it from the events of the one that took over.
                WriterState::Running | WriterState::Yellow { .. } => fold.published().position().term > health.term,
                // Its term is about to change.
                WriterState::Starting { .. } => false,
            };
            if over {
                return Some(Ended::Fenced { partition: health.partition });
            }
        }
        None
    }

    /// How it is to end.
    pub fn stopping(&self) -> &StopSection {
        &self.stopping
    }

    /// Takes nothing new from here on: others do it, and know from this process's signs that they are to.
    pub fn drain(&self) {
        self.signer.change(|own| own.draining = true);
        self.signer.sign();
    }

    /// How many builds it has not done with, once it drains: also those it may still be given, by whoever has not heard
    /// yet that it takes none. All else that is in hand when a process is stopped is done by then, or left to others.
    pub fn left(&self) -> usize {
        self.work.as_ref().map_or(0, executor::Work::left)
    }

    /// Stops everything: what runs is stopped, what was acknowledged is there at the next start.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        let Some(inside) = self.inside.take() else { return };
        self.stop.store(true, Ordering::Relaxed);
        self.signer.is(State::Stopped);
        // Others see it end; where signs cannot be given, that is not waited for.
        if self.signer.mute_for() < 2 * SIGN_EVERY {
            self.signer.sign();
        }
        for ending in self.endings.drain(..) {
            // Nobody listens any more when it has ended by itself.
            let _ = ending.send(());
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server died");
            }
        }
        self.signer.withdraw();
        for host in inside.hosts {
            host.stop();
        }
        for following in inside.followings {
            following.stop();
        }
        inside.runtime.shutdown_timeout(Duration::from_secs(5));
        inside.probing.shutdown_timeout(Duration::from_secs(1));
        let _ = std::fs::remove_file(self.site.join(SERVER_FILE));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

fn runtime(name: &str, threads: usize) -> Result<tokio::runtime::Runtime, StartError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().thread_name(name).build().map_err(part("threads"))
}

/// A thread of the server.
pub fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(part("threads"))
}

/// When a process began, in ticks since the host did; `None` where it is gone, or dead and not yet taken leave of.
pub fn started_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the command's name, which may hold spaces and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Sixteen hex digits by chance.
pub fn draw() -> Result<String, StartError> {
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn)
        .map_err(|error| StartError::Part { part: "random numbers", message: error.to_string() })?;
    Ok(hex::encode(drawn))
}

/// Gives this process's sign every few seconds.
fn signing(process: &Process) -> Result<JoinHandle<()>, StartError> {
    let (signer, stop) = (Arc::clone(&process.signer), Arc::clone(&process.stop));
    let folds = Arc::clone(&process.folds);
    let (capacity, name, roles) = (process.capacity.projection.clone(), process.name.clone(), process.roles.clone());
    // What is paused is a matter of capacity's log; others hear of it here.
    let paused = move || -> Option<Vec<Role>> {
        let view = capacity.view();
        let pauses = &view.live().own.pauses;
        let mut paused = Vec::new();
        for (role, pausable) in [(Role::Executor, Pausable::Executor), (Role::Merger, Pausable::Merger)] {
            if roles.has(role) && pauses.get(&pause_key(pausable, &name)).ok()?.is_some() {
                paused.push(role);
            }
        }
        Some(paused)
    };
    thread("presence", move || {
        // Once it has caught up with the log, it stays running: being a moment behind is nothing to tell.
        let caught_up = || folds.iter().all(|fold| !matches!(fold.published().health(), Health::CatchingUp));
        while !stop.load(Ordering::Relaxed) {
            signer.sign();
            let (began, own) = (std::time::Instant::now(), signer.own());
            // What changed is said at once.
            while began.elapsed() < SIGN_EVERY && !stop.load(Ordering::Relaxed) && signer.own() == own {
                std::thread::sleep(Duration::from_millis(100));
                if signer.own().state == State::Initializing && caught_up() {
                    signer.is(State::Running);
                }
                if let Some(paused) = paused().filter(|paused| *paused != own.paused) {
                    signer.change(|own| own.paused = paused);
                }
            }
        }
    })
}

/// What this process is called: as configured, or else made of host and directory, so that it stays the same.
fn process_name(site: &Path, config: &SiteConfig) -> Result<String, StartError> {
    if let Some(name) = &config.name {
        return Ok(name.clone());
    }
    if config.log.kafka.is_none() {
        return Ok("local".to_owned());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(60).collect();
    let directory = std::fs::canonicalize(site).map_err(part("site"))?;
    let hash = gatelog_record::BlobHash::of(directory.as_os_str().as_encoded_bytes()).to_string();
    Ok(format!("{host}-{}", hash.get(..6).unwrap_or_default()))
}

/// Sees to it that one process serves a directory.
fn lock(site: &Path) -> Result<File, StartError> {
    let path = site.join(LOCK_FILE);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| StartError::Part { part: "site", message: format!("{}: {error}", path.display()) })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse { directory: site.display().to_string() }),
        Err(TryLockError::Error(error)) => {
            Err(StartError::Part { part: "site", message: format!("{}: {error}", path.display()) })
        }
    }
}

/// Where other processes get consoles: the listener, and the address they are told.
fn console_listener(process: &Process) -> Result<(std::net::TcpListener, String), StartError> {
    let section = &process.config.executor;
    let listener = std::net::TcpListener::bind(section.listen).map_err(|error| StartError::Part {
        part: "consoles",
        message: format!("cannot listen on {}: {error}; name another address in [executor] listen", section.listen),
    })?;
    let bound = listener.local_addr().map_err(part("consoles"))?;
    let address = match &section.address {
        Some(address) => address.clone(),
        None if bound.ip().is_unspecified() => {
            return Err(StartError::Part {
                part: "consoles",
                message: format!("nobody can reach {bound}; set address = \"host:{}\" under [executor]", bound.port()),
            });
        }
        None => bound.to_string(),
    };
    Ok((listener, format!("http://{address}")))
}

/// What was signed and published of the log: it must not be shorter.
fn published(
    site: &Path,
    paths: &SitePaths,
    config: &SiteConfig,
    partitions: &[Partition],
) -> Result<Vec<Known>, StartError> {
    let Some(directory) = config.audit.directory(site) else { return Ok(Vec::new()) };
    let Some(identity) = identity(paths, config)? else { return Ok(Vec::new()) };
    notary::known(&directory, &paths.keys(), identity, partitions)
        .map_err(|message| StartError::Part { part: "published checkpoints", message })
}

/// Which log there is: the site and the generation.
fn identity(paths: &SitePaths, config: &SiteConfig) -> Result<Option<(gatelog_record::SiteId, u32)>, StartError> {
    Ok(match &config.log.kafka {
        None => gatelog_log_embedded::EmbeddedLog::identity(paths.log()).map_err(OpenError::from)?,
        Some(section) => {
            let description = logs::open_kafka_reader(section)?.describe();
            Some((description.site, description.generation))
        }
    })
}

/// What projections and rungs know of the log: it must not be shorter. What they know of an earlier generation no longer
/// counts: since then the log was adopted.
fn known(paths: &SitePaths, config: &SiteConfig, partitions: &[Partition]) -> Result<Vec<Known>, StartError> {
    let mut all = Vec::new();
    for partition in partitions.iter().copied() {
        let mut warnings = Vec::new();
        let known =
            gatelog_store::known(&paths.projections(), partition, &mut warnings).map_err(part("projections"))?;
        for warning in warnings {
            tracing::warn!(%partition, "{warning}");
        }
        all.extend(known.map(|known| (partition, known)));
    }
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let generation = identity(paths, config)?.map_or(0, |(_, generation)| generation);
    all.retain(|(_, known)| known.generation >= generation);
    let named = |(partition, known): (Partition, gatelog_store::Known)| Known {
        who: known.by,
        partition,
        sequence: known.sequence,
        link: known.link,
    };
    Ok(all.into_iter().map(named).collect())
}
