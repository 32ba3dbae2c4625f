//! The composition root: one process that is a whole site.
//!
//! Start order is the order of need: the log, what folds it, who decides, who acts, who listens.
//! Stop order is the reverse. Nothing here is needed for what was acknowledged to survive: stopping
//! and being killed leave the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_capacity_state::Capacity;
use gatelog_cloud_local::{Label, LocalCloud, LocalCloudConfig};
use gatelog_deciding::Rules;
use gatelog_driver_git::{Forge, ForgeConfig, Notifier};
use gatelog_effects::connection::{Connections, chain};
use gatelog_effects::dispatch::{self, Tools};
use gatelog_effects::git::Repositories;
use gatelog_effects::worker::{LeaseSource, Worker};
use gatelog_event_log::{Blobs, Log, Tail};
use gatelog_executing::{Executor, ExecutorConfig, SandboxMode};
use gatelog_gate_state::Gate;
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, Known, Options as LogOptions};
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::draft::capacity::WorkerSeen;
use gatelog_record::input::CapacityInput;
use gatelog_record::{Domain, InputId, InputRecord, Partition, Stream, Timestamp};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;
use gatelog_runner::{Runner, RunnerConfig};
use gatelog_secrets::Keyring;
use gatelog_store::{Layout as StoreLayout, RungDir};
use gatelog_tables::{DomainState, TableExt};
use gatelog_writer::{
    Clock, Directory, Host, Initial, Options as WriterOptions, PartitionOf, Published, Setup, SystemClock,
};
use serde::{Deserialize, Serialize};

use crate::config::{ConnectionConfig, SiteConfig};
use crate::connections::git::{GitConnection, GitIntake};
use crate::presence::{Presence, SIGN_EVERY};
use crate::routing::IntakeRouter;
use crate::sources::{GateWork, WorkerLeases};
use crate::tenants;

/// The gate's partition, while there is one.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// Capacity's partition.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// What says where a running server is.
pub const SERVER_FILE: &str = "server.json";

/// Where things are in a site's directory.
#[derive(Clone, Debug)]
pub struct SitePaths {
    /// The site's directory.
    pub root: PathBuf,
}

impl SitePaths {
    /// The places of a site.
    pub fn new(root: impl Into<PathBuf>) -> SitePaths {
        SitePaths { root: root.into() }
    }

    /// The log, with its blobs.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Projections, checkpoints and rungs.
    pub fn projections(&self) -> PathBuf {
        self.root.join("projections")
    }
}

/// Where hooks of a connection's repositories leave word of pushes.
pub fn notify_dir(site: &Path, connection: &str) -> PathBuf {
    site.join("notify").join(connection)
}

/// What a running server says of itself in [`SERVER_FILE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerFile {
    /// Its process.
    pub pid: u32,
    /// Its API.
    pub url: String,
}

/// How a server is started, besides its site's configuration.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Listen here instead of where the configuration says.
    pub listen: Option<std::net::SocketAddr>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The site's configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The tenant file.
    #[error(transparent)]
    Tenants(#[from] tenants::TenantFileError),
    /// The log; another server on the same directory is one of its errors.
    #[error(transparent)]
    Log(#[from] gatelog_event_log::LogError),
    /// A part of the site could not be opened.
    #[error("{part}: {message}")]
    Part {
        /// The part.
        part: &'static str,
        /// What is wrong, and the cure.
        message: String,
    },
}

fn part<E: std::error::Error>(part: &'static str) -> impl Fn(E) -> StartError {
    move |error| StartError::Part { part, message: chain(&error) }
}

/// A running site.
pub struct Server {
    site: PathBuf,
    url: String,
    started_at: Timestamp,
    stop: Arc<AtomicBool>,
    web_stop: Option<tokio::sync::oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    gate_fold: gatelog_runner::Published,
    inside: Option<Inside>,
}

/// What is taken down when the server stops, in this order.
struct Inside {
    gate: Host,
    capacity: Host,
    gate_fold: Runner<Gate>,
    capacity_fold: Runner<Capacity>,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Starts the site in a directory.
    pub fn start(site: &Path, options: ServerOptions) -> Result<Server, StartError> {
        let stop = Arc::new(AtomicBool::new(false));
        // What was started before something failed ends.
        Self::start_with(site, options, &stop).inspect_err(|_| stop.store(true, Ordering::Relaxed))
    }

    fn start_with(site: &Path, options: ServerOptions, stop: &Arc<AtomicBool>) -> Result<Server, StartError> {
        let started_at = crate::clock::now();
        let config = SiteConfig::read(site)?;
        let paths = SitePaths::new(site);
        let stop = Arc::clone(stop);
        let mut threads = Vec::new();

        // The address first: links in reports name it.
        let listen = options.listen.unwrap_or(config.web.listen);
        let listener = std::net::TcpListener::bind(listen).map_err(|error| StartError::Part {
            part: "API",
            message: format!("cannot listen on {listen}: {error}; name another address in [web] listen"),
        })?;
        let url = format!("http://{}", listener.local_addr().map_err(part("API"))?);
        let web_root = config.web.root.clone().unwrap_or_else(|| url.clone());

        // The log, which nobody else may write meanwhile.
        let mut log_options = LogOptions::default();
        log_options.known = known(&paths)?;
        let embedded = Arc::new(EmbeddedLog::open(paths.log(), log_options)?);
        let log: Arc<dyn Log> = embedded;
        let blobs: Arc<dyn Blobs> = Arc::new(FileBlobs::open(paths.log().join("blobs")).map_err(part("blob store"))?);
        let keyring = Arc::new(Keyring::open_dir(site.join("keys")).map_err(part("keys"))?);

        // What folds it.
        let fold = RunnerConfig { rung_every: config.log.rung_every, ..RunnerConfig::new(paths.projections()) };
        let gate_fold =
            Runner::<Gate>::start(Arc::clone(&log), GATE, fold.clone()).map_err(part("projection of gate"))?;
        let capacity_fold =
            Runner::<Capacity>::start(Arc::clone(&log), CAPACITY, fold).map_err(part("projection of capacity"))?;

        // Who decides.
        let directory = Arc::new(Directory::default());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let shell = Shell { log: &log, blobs: &blobs, clock: &clock, paths: &paths, directory: &directory };
        let gate = shell.host(GATE, GateRules::default, |live| &live.partition)?;
        let capacity = shell.host(CAPACITY, CapacityRules::default, |live| &live.partition)?;

        // Connections, and what is done with them.
        let mut connections = Connections::default();
        let mut intakes = Vec::new();
        for (name, connection) in &config.connection {
            let ConnectionConfig::Git { root, canonical_hostname, poll_ms } = connection;
            let notify = notify_dir(site, name);
            let mut forge = ForgeConfig::new(site.join(root), canonical_hostname.clone());
            forge.notify = Some(notify.clone());
            let forge = Forge::open(forge).map_err(part("forge"))?;
            let adapter = Arc::new(GitConnection::new(name.clone(), forge, Arc::clone(&keyring)));
            connections.add(name.clone(), Arc::clone(&adapter) as _);
            let notifier = Notifier::open(notify).map_err(part("forge"))?;
            let snapshots = site.join("connections").join(name);
            let every = Duration::from_millis((*poll_ms).max(50));
            intakes.push((GitIntake::new(adapter, Arc::clone(&log), snapshots, every, Arc::clone(&stop)), notifier));
        }
        let mirrors = Mirrors::open(MirrorsConfig::new(site.join("mirrors"))).map_err(part("mirrors"))?;
        let repositories =
            Repositories { mirrors: Arc::new(mirrors), connections: connections.clone(), blobs: Arc::clone(&blobs) };
        let tools = Tools {
            repositories: repositories.clone(),
            log: Arc::clone(&log),
            now: crate::clock::now,
            partition: GATE,
        };
        let work = GateWork { projection: gate_fold.projection(), published: gate_fold.published() };
        threads.extend(dispatch::spawn(tools, Arc::new(work), Arc::clone(&stop)).map_err(part("threads"))?);

        // Routing goes on where the gate has taken inputs from; then the tenant file, then the world.
        let mut router = IntakeRouter::open(Arc::clone(&log), Arc::clone(gate.published())).map_err(part("intake"))?;
        let file = site.join(&config.tenant_file);
        let problems = tenants::load(&file, &connections, &*blobs, &*log, router.newest(), &web_root)?;
        for problem in problems {
            tracing::warn!("{problem}");
        }
        let routing_stop = Arc::clone(&stop);
        threads.push(thread("intake-router", move || router.run(&routing_stop))?);
        for (intake, notifier) in intakes {
            threads.push(thread("forge-intake", move || intake.run(&notifier))?);
        }

        // The API, before the worker: a build's log address names it.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .thread_name("gatelog-io")
            .build()
            .map_err(part("threads"))?;
        let executor = runtime.block_on(executor(site, &config))?;
        listener.set_nonblocking(true).map_err(part("API"))?;
        let listener = {
            let _in_runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(part("API"))?
        };
        let web_site = crate::web::site(crate::web::Parts {
            gate: gate_fold.projection(),
            gate_fold: gate_fold.published(),
            capacity: capacity_fold.projection(),
            capacity_fold: capacity_fold.published(),
            log: Arc::clone(&log),
            blobs: Arc::clone(&blobs),
            paths: paths.clone(),
            executor: executor.clone(),
            writers: vec![Arc::clone(gate.published()), Arc::clone(capacity.published())],
            drivers: config.connection.keys().map(|name| (name.clone(), "git".to_owned())).collect(),
        });
        let (web_stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let shutdown = async move {
            // Told to stop, or the server is gone.
            let _ = stopped.await;
        };
        runtime.spawn(async move {
            if let Err(error) = gatelog_web::serve(listener, gatelog_web::router(web_site), shutdown).await {
                tracing::error!(error = %chain(&error), "the API ended");
            }
        });

        // The worker.
        let worker = worker(site, &config, &repositories, &keyring, &log, executor, web_root)?;
        let leases: Arc<dyn LeaseSource> = Arc::new(WorkerLeases {
            capacity: capacity_fold.projection(),
            published: capacity_fold.published(),
            gate: gate_fold.projection(),
        });
        let presence = Presence::default();
        announce(&*log, &worker, config.executor.slots, &url)?;
        threads.push(signs(&presence, &worker, &log, capacity_fold.projection(), &stop)?);
        let (handle, worker_stop) = (runtime.handle().clone(), Arc::clone(&stop));
        threads.push(thread("worker", move || worker.follow(&leases, &handle, &worker_stop))?);

        let server_file = ServerFile { pid: std::process::id(), url: url.clone() };
        let text = serde_json::to_string(&server_file).map_err(part("server.json"))?;
        std::fs::write(site.join(SERVER_FILE), text).map_err(part("server.json"))?;
        Ok(Server {
            site: site.to_path_buf(),
            url,
            started_at,
            stop,
            web_stop: Some(web_stop),
            threads,
            gate_fold: gate_fold.published(),
            inside: Some(Inside { gate, capacity, gate_fold, capacity_fold, runtime }),
        })
    }

    /// The API's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// When it was started.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// The newest event the gate's fold has.
    pub fn gate_sequence(&self) -> u64 {
        self.gate_fold.position().sequence
    }

    /// Stops everything: what runs is stopped, what was acknowledged is there at the next start.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        let Some(inside) = self.inside.take() else { return };
        self.stop.store(true, Ordering::Relaxed);
        if let Some(web_stop) = self.web_stop.take() {
            // Nobody listens any more when the API has ended by itself.
            let _ = web_stop.send(());
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server died");
            }
        }
        inside.gate.stop();
        inside.capacity.stop();
        inside.gate_fold.stop();
        inside.capacity_fold.stop();
        inside.runtime.shutdown_timeout(Duration::from_secs(5));
        let _ = std::fs::remove_file(self.site.join(SERVER_FILE));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(part("threads"))
}

/// What projections and rungs know of the log: it must not be shorter.
fn known(paths: &SitePaths) -> Result<Vec<Known>, StartError> {
    let mut all = Vec::new();
    for partition in [GATE, CAPACITY] {
        let mut warnings = Vec::new();
        let known =
            gatelog_store::known(&paths.projections(), partition, &mut warnings).map_err(part("projections"))?;
        for warning in warnings {
            tracing::warn!(%partition, "{warning}");
        }
        all.extend(known.map(|known| Known { who: known.by, partition, sequence: known.sequence, link: known.link }));
    }
    Ok(all)
}

/// What every partition's shell is made of.
struct Shell<'a> {
    log: &'a Arc<dyn Log>,
    blobs: &'a Arc<dyn Blobs>,
    clock: &'a Arc<dyn Clock>,
    paths: &'a SitePaths,
    directory: &'a Arc<Directory>,
}

impl Shell<'_> {
    fn host<R: Rules + 'static>(
        &self,
        partition: Partition,
        rules: fn() -> R,
        tables: PartitionOf<R::State>,
    ) -> Result<Host, StartError> {
        let rungs = RungDir::new(StoreLayout::new(&self.paths.projections(), partition).rungs());
        let setup = Setup {
            log: Arc::clone(self.log),
            blobs: Arc::clone(self.blobs),
            clock: Arc::clone(self.clock),
            partition,
            rules: Arc::new(rules),
            tables,
            initial: Box::new(move || initial::<R::State>(&rungs, partition)),
            published: Published::new(partition),
            options: WriterOptions { build: build(), ..WriterOptions::default() },
        };
        Host::start(setup, self.directory).map_err(part("threads"))
    }
}

/// The state to start from: the newest rung, or the beginning.
fn initial<S: DomainState>(rungs: &RungDir, partition: Partition) -> Result<Initial<S>, String> {
    let mut warnings = Vec::new();
    let rung = rungs.nearest::<S>(partition, u64::MAX, &mut warnings).map_err(|error| chain(&error))?;
    for warning in warnings {
        tracing::warn!(%partition, "{warning}");
    }
    match rung {
        Some(rung) => {
            let position = rung.header.position;
            let tail = Tail { sequence: position.sequence, term: position.term, link: position.link };
            Ok(Initial { live: rung.live, tail })
        }
        None => Initial::genesis(),
    }
}

/// What stands in `WriterStarted`.
fn build() -> String {
    format!("gatelog {}", env!("CARGO_PKG_VERSION"))
}

async fn executor(site: &Path, config: &SiteConfig) -> Result<Executor, StartError> {
    let mut settings = ExecutorConfig::new(site.join("builds"), site.join("logs"));
    settings.ansible_playbook = config
        .executor
        .ansible_playbook
        .clone()
        .or_else(|| std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").map(PathBuf::from));
    if config.executor.unsandboxed {
        settings.sandbox = SandboxMode::Unsandboxed;
    }
    let executor = Executor::open(settings).await.map_err(part("executor"))?;
    let swept = executor.sweep().await.map_err(part("executor"))?;
    if !swept.removed.is_empty() || swept.stray_processes > 0 {
        tracing::warn!(
            builds = swept.removed.len(),
            processes = swept.stray_processes,
            "leftovers of an earlier process were removed"
        );
    }
    Ok(executor)
}

fn worker(
    site: &Path,
    config: &SiteConfig,
    repositories: &Repositories,
    keyring: &Arc<Keyring>,
    log: &Arc<dyn Log>,
    executor: Executor,
    web_root: String,
) -> Result<Worker, StartError> {
    // A build may have several nodes: slots are counted by capacity, the cloud only holds room.
    let labels = config.executor.labels.iter().map(|label| (label.clone(), Label::default())).collect();
    let cloud = LocalCloud::open(LocalCloudConfig {
        name: "local".into(),
        root: site.join("nodes"),
        slots: config.executor.slots.saturating_mul(64).max(64),
        labels,
    })
    .map_err(part("local cloud"))?;
    // A new incarnation holds no lease: every node there is was an earlier one's.
    let swept = cloud.sweep(&std::collections::BTreeSet::new()).map_err(part("local cloud"))?;
    for failed in swept.failed {
        tracing::warn!(failed, "a leftover node could not be removed");
    }
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn).map_err(|error| StartError::Part { part: "worker", message: error.to_string() })?;
    Ok(Worker {
        name: "local".into(),
        incarnation: hex::encode(drawn),
        executor,
        cloud: Arc::new(cloud),
        repositories: repositories.clone(),
        keyring: Arc::clone(keyring),
        log: Arc::clone(log),
        capacity: CAPACITY,
        web_root,
        now: crate::clock::now,
        labels: config.executor.labels.clone(),
    })
}

/// Tells capacity that this start of the worker is there.
fn announce(log: &dyn Log, worker: &Worker, slots: u32, address: &str) -> Result<(), StartError> {
    let seen = WorkerSeen {
        worker: worker.name.clone(),
        incarnation: worker.incarnation.clone(),
        address: address.to_owned(),
        slots,
        labels: worker.labels.clone(),
    };
    let id = InputId::new(format!("worker/{}/{}", worker.name, worker.incarnation));
    let record = InputRecord::new(id, "main", crate::clock::now(), CapacityInput::WorkerSeen(seen));
    let frame = record.close().map_err(part("worker"))?.encode();
    match log.append_inputs(Stream::Inputs(CAPACITY), vec![frame]).wait() {
        Some(result) => result.map(drop).map_err(StartError::Log),
        None => Err(StartError::Part { part: "worker", message: "the log is closing".into() }),
    }
}

/// Gives this worker's signs of life, and tells capacity of workers that give none.
fn signs(
    presence: &Presence,
    worker: &Worker,
    log: &Arc<dyn Log>,
    capacity: gatelog_store::SharedProjection<Capacity>,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>, StartError> {
    let (presence, log, stop) = (presence.clone(), Arc::clone(log), Arc::clone(stop));
    let (name, incarnation) = (worker.name.clone(), worker.incarnation.clone());
    thread("presence", move || {
        while !stop.load(Ordering::Relaxed) {
            presence.sign(&name, &incarnation);
            let known: Vec<(String, String)> = capacity
                .view()
                .live()
                .own
                .workers
                .all()
                .map(|rows| {
                    rows.filter_map(Result::ok).map(|(name, row)| (name, row.offer.incarnation.clone())).collect()
                })
                .unwrap_or_default();
            for record in presence.silent(&known, std::time::Instant::now()) {
                if let Ok(frame) = record.close() {
                    // What could not be told now is told at the next round.
                    let _ = log.append_inputs(Stream::Inputs(CAPACITY), vec![frame.encode()]).wait();
                }
            }
            let began = std::time::Instant::now();
            while began.elapsed() < SIGN_EVERY && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })
}
