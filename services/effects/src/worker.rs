//! The executor's role: follows the leases granted to this worker, runs each attempt, says how it
//! went, and lets go of what it was given.
//!
//! A start of a worker is an incarnation: what an earlier one held is lost, its leftovers are swept
//! before anything new begins, and capacity tells the owners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_cloud_contract::Cloud;
use gatelog_event_log::{Log, failpoint};
use gatelog_executing::spec::NodeSpec;
use gatelog_executing::{
    AbortReason, BuildControl, BuildOutcome, BuildResult as Verdict, Executor, FailureCause, RetryCause, Returned,
    Stopwatch,
};
use gatelog_record::draft::capacity::{LeaseReleased, NodeGrant};
use gatelog_record::draft::gate::{
    AttemptFailing, AttemptFinished, AttemptPaused, AttemptStarted, BuildResult, SecretsOpened,
};
use gatelog_record::input::{CapacityInput, GateInput};
use gatelog_record::{
    BlobHash, BuildId, BuildsetId, EventRef, Input, InputId, InputRecord, LeaseId, NodeId, Partition, Stream,
    Timestamp, Value,
};
use gatelog_room::{Room, without_paths};
use gatelog_secrets::Keyring;
use tokio::sync::Semaphore;

use crate::artifacts::Found;
use crate::chain::{self, Chain};
use crate::connection::{Trouble, chain};
use crate::git::Repositories;
use crate::given::Secrets;
use crate::handing_on::{FromParents, Place};
use crate::nodes;
use crate::returned::{FromBuild, Told};
use crate::spec::{Attempt, JobSpec};
use crate::tokens::{Issuer, TokenSettings};
use crate::used;
use crate::workspace::MirrorWorkspace;

/// A lease this worker holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// The lease.
    pub lease: LeaseId,
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// Whose build it is.
    pub owner: Partition,
    /// The owner's key: the tenant.
    pub tenant: String,
    /// What is to be run.
    pub spec: BlobHash,
    /// The nodes.
    pub nodes: Vec<NodeGrant>,
    /// Whether it was taken back.
    pub revoked: bool,
    /// Whether its attempt is over and its nodes are to be left as they are.
    pub kept: bool,
    /// Whether its attempt waited for other jobs and is to go on.
    pub resumed: bool,
    /// The event that granted it, if known.
    pub granted_by: Option<u64>,
}

/// What a build must be told of its buildset when it starts.
#[derive(Clone, Debug, Default)]
pub struct Parents {
    /// The buildset.
    pub buildset: BuildsetId,
    /// The event that put the item into the pipeline; `None`: no event did.
    pub event_id: Option<String>,
    /// How the state under test came about, to make it here where it was made elsewhere.
    pub chain: Option<Chain>,
    /// How people reach the API, as the tenant has it; empty where nobody said.
    pub web_root: String,
    /// The jobs of the buildset.
    pub jobs: BTreeSet<String>,
    /// What parents returned and left behind, in the order of the graph.
    pub returned: Vec<FromBuild>,
    /// What builds of changes ahead left behind that make what this one requires.
    pub artifacts: Vec<Found>,
}

/// Where the worker reads what it holds and what its builds depend on.
pub trait LeaseSource: Send + Sync {
    /// The leases that this start of this worker holds, and the position they were read at.
    fn held(&self, worker: &str, incarnation: &str) -> (u64, Vec<Held>);
    /// The nodes of this worker's leases, if this start of it is known there: no other node of it is anybody's.
    fn nodes(&self, worker: &str, incarnation: &str) -> Option<BTreeSet<NodeId>>;
    /// The buildset of a build and what its parents returned, as of the moment when this attempt was asked for or
    /// later; `None` when the build is gone or that moment is not known here yet.
    fn parents(&self, build: BuildId, attempt: u32) -> Option<Parents>;
    /// Whether an attempt whose nodes are there may begin: nobody else holds what it needs besides.
    fn may_begin(&self, build: BuildId, attempt: u32) -> bool;
    /// Waits until something was folded beyond a position, at most so long.
    fn wait(&self, beyond: u64, at_most: Duration);
}

/// What a start of a worker is called. It changes while the process runs when the worker has to take itself for dead:
/// what it held until then is lost to it, as after a restart.
#[derive(Clone, Debug, Default)]
pub struct Incarnation(Arc<Mutex<(String, Timestamp)>>);

impl Incarnation {
    /// A start with this name at this time.
    pub fn new(name: impl Into<String>, started_at: Timestamp) -> Incarnation {
        Incarnation(Arc::new(Mutex::new((name.into(), started_at))))
    }

    /// Its name and when it began.
    pub fn get(&self) -> (String, Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another start: whoever follows leases stops what the one before ran.
    pub fn renew(&self, name: impl Into<String>, started_at: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (name.into(), started_at);
    }

    fn name(&self) -> String {
        self.get().0
    }
}

/// One worker.
#[derive(Clone)]
pub struct Worker {
    /// Its name, the same over restarts.
    pub name: String,
    /// Drawn anew at each start.
    pub incarnation: Incarnation,
    /// Runs builds.
    pub executor: Executor,
    /// Makes nodes.
    pub cloud: Arc<dyn Cloud>,
    /// Repositories, connections, blobs.
    pub repositories: Repositories,
    /// What is returned under seal is sealed here.
    pub keyring: Arc<Keyring>,
    /// Where inputs go.
    pub log: Arc<dyn Log>,
    /// Capacity's partition.
    pub capacity: Partition,
    /// Set when the process is to end.
    pub stop: Arc<AtomicBool>,
    /// The site's time, in which moments are told.
    pub now: fn() -> Timestamp,
    /// The machine's clock, for tokens: whoever is shown one goes by a clock of their own.
    pub wall: fn() -> Timestamp,
    /// The labels of nodes it makes.
    pub labels: Vec<String>,
    /// How tokens of secrets are issued.
    pub tokens: TokenSettings,
    /// Knows what waits until this host has room.
    pub room: Arc<Room>,
    /// Who may set up a build now. Zuul: `max_starting_builds`.
    pub starting: Arc<Semaphore>,
}

enum Run {
    Running(BuildControl),
    /// It failed: its nodes stay until capacity says whether somebody wants to look at them.
    Failed(Held),
    /// Its nodes are kept.
    Kept,
    Over,
}

type Runs = Arc<Mutex<BTreeMap<LeaseId, Run>>>;

impl Worker {
    /// Follows leases until it is told to stop, then stops every build. Blocks; call it on a thread of its own. Builds
    /// run on `runtime`.
    pub fn follow(&self, source: &Arc<dyn LeaseSource>, runtime: &tokio::runtime::Handle) {
        let runs: Runs = Arc::default();
        let mut incarnation = self.incarnation.name();
        let mut swept = false;
        while !self.stop.load(Ordering::Relaxed) {
            let newest = self.incarnation.name();
            if newest != incarnation {
                tracing::warn!(worker = self.name, "every build is stopped: others take this worker for dead by now");
                self.stop_all(&runs);
                incarnation = newest;
                swept = false;
            }
            // What an earlier start left behind goes before anything new begins, except what is kept.
            if !swept && let Some(wanted) = source.nodes(&self.name, &incarnation) {
                self.sweep(&wanted);
                swept = true;
            }
            let (position, held) = source.held(&self.name, &incarnation);
            let there: BTreeSet<LeaseId> = held.iter().map(|lease| lease.lease).collect();
            let mut known = lock(&runs);
            for lease in held {
                match known.get(&lease.lease) {
                    None if lease.revoked => {
                        // Taken back before it began.
                        known.insert(lease.lease, Run::Over);
                        let (worker, incarnation) = (self.clone(), incarnation.clone());
                        runtime.spawn_blocking(move || worker.release(&lease, incarnation));
                    }
                    None if lease.kept => {
                        known.insert(lease.lease, Run::Kept);
                    }
                    // Nothing begins before the leftovers are gone.
                    None if !swept => {}
                    None => {
                        let control = BuildControl::new();
                        known.insert(lease.lease, Run::Running(control.clone()));
                        let (worker, source, runs) = (self.clone(), Arc::clone(source), Arc::clone(&runs));
                        let incarnation = incarnation.clone();
                        runtime.spawn(async move { worker.attempt(lease, incarnation, source, control, runs).await });
                    }
                    Some(Run::Running(control)) if lease.revoked => {
                        control.abort(AbortReason::Cancelled);
                        self.executor.abort(lease.build, lease.attempt, AbortReason::Cancelled);
                    }
                    Some(Run::Running(control)) if lease.resumed => control.resume(),
                    Some(Run::Failed(_)) if lease.kept => {
                        known.insert(lease.lease, Run::Kept);
                    }
                    Some(Run::Failed(_) | Run::Kept) if lease.revoked => {
                        known.insert(lease.lease, Run::Over);
                        let (worker, incarnation) = (self.clone(), incarnation.clone());
                        runtime.spawn_blocking(move || worker.release(&lease, incarnation));
                    }
                    Some(_) => {}
                }
            }
            // A lease that ended without a word from here was taken for lost, while this start of the worker was not
            // heard of; what still runs under it has no place any more.
            for (_, run) in known.iter().filter(|(lease, _)| !there.contains(lease)) {
                match run {
                    Run::Running(control) => control.abort(AbortReason::Cancelled),
                    Run::Failed(lease) => {
                        let (worker, lease) = (self.clone(), lease.clone());
                        runtime.spawn_blocking(move || worker.remove_nodes(&lease));
                    }
                    Run::Kept | Run::Over => {}
                }
            }
            known.retain(|lease, run| there.contains(lease) || matches!(run, Run::Running(_)));
            drop(known);
            source.wait(position, Duration::from_millis(500));
        }
        self.stop_all(&runs);
    }

    /// Stops every build without a word to anybody: what it held is lost, and capacity tells the owners.
    fn stop_all(&self, runs: &Runs) {
        for run in lock(runs).values() {
            if let Run::Running(control) = run {
                control.abort(AbortReason::Shutdown);
            }
        }
        for (build, attempt) in self.executor.running() {
            self.executor.abort(build, attempt, AbortReason::Shutdown);
        }
        // Builds that were told to stop do so at once; whoever does not is ended with its sandbox.
        let patience = std::time::Instant::now();
        while !self.executor.running().is_empty() && patience.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Removes the nodes of leases that are lost.
    fn sweep(&self, wanted: &BTreeSet<NodeId>) {
        let nodes = self.cloud.list().unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "leftover nodes could not be found");
            Vec::new()
        });
        for node in nodes.into_iter().filter(|node| !wanted.contains(&node.node)) {
            if let Err(error) = self.cloud.stop(node.node) {
                tracing::warn!(node = %node.node, error = %chain(&error), "a leftover node could not be removed");
            }
        }
    }

    async fn attempt(
        self,
        lease: Held,
        incarnation: String,
        source: Arc<dyn LeaseSource>,
        control: BuildControl,
        runs: Runs,
    ) {
        let began = Stopwatch::start((self.now)());
        failpoint::pass("build/leased");
        let outcome = self.run_with_room(&lease, &source, &control).await;
        failpoint::pass("build/over");
        if control.aborted() == Some(AbortReason::Shutdown) {
            // The next start is another incarnation, and capacity tells.
            lock(&runs).remove(&lease.lease);
            return;
        }
        let worker = self.clone();
        let known = Arc::clone(&runs);
        let told = tokio::task::spawn_blocking(move || {
            let finished = worker.finished(&lease, began, outcome);
            let waits = !lease.nodes.is_empty() && may_be_kept(finished.result);
            // Before it is told: the answer may be quick.
            if waits {
                lock(&known).insert(lease.lease, Run::Failed(lease.clone()));
            }
            worker.tell_owner(&lease, "finished", GateInput::AttemptFinished(finished));
            failpoint::pass("build/finish-told");
            if waits {
                return None;
            }
            worker.release(&lease, incarnation);
            failpoint::pass("build/released");
            Some(lease.lease)
        });
        if let Ok(Some(lease)) = told.await {
            lock(&runs).insert(lease, Run::Over);
        }
    }

    pub(crate) async fn run(
        &self,
        lease: &Held,
        source: &Arc<dyn LeaseSource>,
        control: &BuildControl,
    ) -> Result<(BuildOutcome, Arc<Place>), Failed> {
        let worker = self.clone();
        let (for_setup, source, told) = (lease.clone(), Arc::clone(source), control.clone());
        let setup = tokio::task::spawn_blocking(move || worker.set_up(&for_setup, &*source, &told));
        let (spec, attempt, issuer, place) =
            setup.await.map_err(|_| Failed::again("setting the attempt up panicked"))??;
        failpoint::pass("build/set-up");
        let place = Arc::new(place);
        let turn = tokio::select! {
            turn = Arc::clone(&self.starting).acquire_owned() => turn.ok(),
            _ = control.wait() => return Err(Failed::given_up()),
        };
        let workspace = MirrorWorkspace::new(self.repositories.clone(), spec.refs.clone()).with_issuer(issuer);
        let workspace = Arc::new(workspace);
        let mut build = self
            .executor
            .prepare(spec.build(attempt), workspace)
            .await
            .map_err(|error| Failed::again(chain(&error)))?;
        build.keep_until_set_up(turn);
        failpoint::pass("build/prepared");
        let inner = build.control();
        let outer = control.clone();
        // Both handles must stop the build: the worker's own, and the executor's by build id.
        let link = tokio::spawn(async move {
            let reason = outer.wait().await;
            inner.abort(reason);
        });
        let (inner, outer) = (build.control(), control.clone());
        let (worker, told, paused_in) = (self.clone(), lease.clone(), Arc::clone(&place));
        let pausing = tokio::spawn(async move {
            let returned = inner.wait_paused().await;
            let _ = tokio::task::spawn_blocking(move || worker.paused(&told, &paused_in, returned)).await;
            outer.wait_resumed().await;
            inner.resume();
        });
        let (worker, told, early) = (self.clone(), lease.clone(), build.control());
        let telling = tokio::spawn(async move {
            let why = early.wait_failing().await;
            let _ = tokio::task::spawn_blocking(move || worker.failing(&told, why)).await;
        });
        let begun = (self.now)();
        let mut outcome = build.run().await;
        // What the build measured, on the clock of what is told.
        (outcome.started, outcome.ended) = (begun, Timestamp(begun.0 + outcome.ended.0 - outcome.started.0));
        link.abort();
        telling.abort();
        pausing.abort();
        Ok((outcome, place))
    }

    /// What an attempt needs: its spec, what comes with it, who issues its tokens, and what its outcome is told with.
    fn set_up(
        &self,
        lease: &Held,
        source: &dyn LeaseSource,
        control: &BuildControl,
    ) -> Result<(JobSpec, Attempt, Issuer, Place), Failed> {
        let started = AttemptStarted {
            tenant: lease.tenant.clone(),
            build: lease.build,
            attempt: lease.attempt,
            lease: lease.lease,
            worker: self.name.clone(),
            started_at: (self.now)(),
        };
        let bytes = self.repositories.blobs.get(&lease.spec).map_err(|error| Failed::lasting(chain(&error)))?;
        let spec = JobSpec::read(&bytes).map_err(|error| Failed::lasting(chain(&error)))?;
        // Zuul: a semaphore may be one that is taken once the nodes are there; then that is said first.
        let nodes_first = spec.job.semaphores.iter().any(|semaphore| semaphore.resources_first);
        if !nodes_first {
            self.tell_owner(lease, "started", GateInput::AttemptStarted(started.clone()));
            failpoint::pass("build/start-told");
        }
        if let Some(refused) = used::refusal(&spec.job) {
            return Err(Failed::lasting(refused));
        }
        let host = nodes::named(&spec.job).map_err(Failed::lasting)?;
        let parents = parents(lease, source, control)?;
        if let Some(chain) = &parents.chain {
            let name = format!("build-{}", lease.build);
            chain::ensure(&self.repositories, &name, chain).map_err(|Trouble { message, again, .. }| Failed {
                message,
                again,
                no_node: false,
            })?;
        }
        let mut nodes: Vec<NodeSpec> = host.into_iter().collect();
        for grant in &lease.nodes {
            let ready = nodes::ready(&*self.cloud, grant, || control.is_aborted()).map_err(Failed::without_node)?;
            nodes.push(nodes::granted(grant, ready.ok_or_else(Failed::given_up)?));
        }
        if nodes_first {
            self.tell_owner(lease, "started", GateInput::AttemptStarted(started));
            while !source.may_begin(lease.build, lease.attempt) {
                if control.is_aborted() {
                    return Err(Failed::given_up());
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        let messages = spec
            .steps
            .iter()
            .map(|step| {
                let key = self.repositories.key(&step.subject.connection, &step.subject.project).ok()?;
                self.repositories.mirrors.message(&key, step.subject.commit.as_deref()?).ok()
            })
            .collect();
        let FromParents { data: parent_data, secret_data: parent_secret_data, artifacts } =
            self.handed_on(&spec, parents.returned, parents.artifacts)?;
        let Secrets { opened, tokens, mut given } = self.open_secrets(lease, &spec)?;
        let ssh_keys = self.ssh_keys(lease, &spec, &mut given)?;
        if !given.is_empty() {
            // Nothing is handed over before that is on the log.
            let (tenant, worker) = (lease.tenant.clone(), self.name.clone());
            let opened = SecretsOpened { tenant, build: lease.build, attempt: lease.attempt, worker, given };
            self.tell_owner(lease, "secrets", GateInput::SecretsOpened(opened));
        }
        let attempt = Attempt {
            build: lease.build,
            attempt: lease.attempt,
            buildset: parents.buildset,
            event_id: parents.event_id,
            nodes,
            messages,
            parent_data,
            parent_secret_data,
            artifacts,
            sensitive: opened.values().flat_map(|secret| secret.texts.iter().cloned()).collect(),
            secrets: opened.into_iter().map(|(name, secret)| (name, secret.value)).collect(),
            ssh_keys,
        };
        let issuer = Issuer::new(Arc::clone(&self.keyring), tokens, self.tokens.rotate_every, self.wall);
        let place = Place { buildset: attempt.buildset, jobs: parents.jobs, web_root: parents.web_root };
        Ok((spec, attempt, issuer, place))
    }

    /// The attempt will fail, although it still runs: those behind it need not wait for its end.
    fn failing(&self, lease: &Held, detail: String) {
        let (tenant, worker) = (lease.tenant.clone(), self.name.clone());
        let failing = AttemptFailing { tenant, build: lease.build, attempt: lease.attempt, worker, detail };
        self.tell_owner(lease, "failing", GateInput::AttemptFailing(failing));
    }

    /// The attempt waits for the jobs that need it: what it returned so far is theirs.
    fn paused(&self, lease: &Held, place: &Place, returned: Returned) {
        let secret_data = self.sealed(place.buildset, &returned).unwrap_or_else(|error| {
            tracing::warn!(build = %lease.build, error, "secret_data of a paused build could not be sealed");
            None
        });
        let told = self.told(lease, place, returned, secret_data).unwrap_or_else(|error| {
            tracing::warn!(build = %lease.build, error, "what a paused build returned could not be kept");
            Told::default()
        });
        let paused = AttemptPaused {
            tenant: lease.tenant.clone(),
            build: lease.build,
            attempt: lease.attempt,
            worker: self.name.clone(),
            data: told.data,
            secret_data: told.secret_data,
            artifacts: told.artifacts,
            kept: told.kept,
        };
        self.tell_owner(lease, "paused", GateInput::AttemptPaused(paused));
    }

    fn finished(
        &self,
        lease: &Held,
        began: Stopwatch,
        outcome: Result<(BuildOutcome, Arc<Place>), Failed>,
    ) -> AttemptFinished {
        let mut finished = AttemptFinished {
            tenant: lease.tenant.clone(),
            build: lease.build,
            attempt: lease.attempt,
            worker: self.name.clone(),
            result: BuildResult::Error,
            started_at: began.started,
            finished_at: began.now(),
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        match outcome {
            Err(Failed { message, again, no_node }) => {
                let told = without_paths(&message);
                if told != message {
                    tracing::warn!(build = %lease.build, attempt = lease.attempt, error = message, "no attempt could be made");
                }
                finished.result = match (again, no_node) {
                    (_, true) => BuildResult::Unreachable,
                    (true, false) => BuildResult::Retry,
                    (false, false) => BuildResult::Error,
                };
                finished.detail = Some(told);
            }
            Ok((outcome, place)) => {
                finished.result = result(&outcome.result);
                finished.started_at = outcome.started;
                finished.finished_at = outcome.ended;
                finished.detail = detail(&outcome);
                // Zuul: a job's line in a report links the page of its build, and the logs are where the job says.
                let web_root = place.web_root.trim_end_matches('/');
                finished.log_url = outcome.returned.log_url();
                if finished.log_url.is_none() && !web_root.is_empty() {
                    finished.log_url = Some(format!("{web_root}/t/{}/build/{}", lease.tenant, lease.build));
                }
                let sealed = self.sealed_with_room(lease, place.buildset, &outcome.returned).unwrap_or_else(|error| {
                    // In clear it must not go anywhere; without it a child would miss it.
                    finished.result = BuildResult::Error;
                    finished.detail = Some(format!("secret_data could not be sealed: {error}"));
                    None
                });
                match self.told(lease, &place, outcome.returned, sealed) {
                    Ok(Told { data, secret_data, artifacts, kept }) => {
                        (finished.data, finished.secret_data) = (data, secret_data);
                        (finished.artifacts, finished.kept) = (artifacts, kept);
                    }
                    Err(error) => {
                        // Without it a child would miss it.
                        finished.result = BuildResult::Error;
                        finished.detail = Some(format!("what the job returned could not be kept: {error}"));
                    }
                }
            }
        }
        finished
    }

    fn release(&self, lease: &Held, incarnation: String) {
        self.remove_nodes(lease);
        let released = LeaseReleased { lease: lease.lease, worker: self.name.clone(), incarnation };
        let id = format!("lease/{}/released", lease.lease);
        let input = CapacityInput::LeaseReleased(released);
        let record = InputRecord::new(InputId::new(id), "main", (self.now)(), input);
        self.append(self.capacity, record);
    }

    fn remove_nodes(&self, lease: &Held) {
        for grant in &lease.nodes {
            if let Err(error) = self.cloud.stop(grant.node) {
                tracing::warn!(node = %grant.node, error = %chain(&error), "a node could not be deleted; the next sweep does it");
            }
        }
    }

    fn tell_owner(&self, lease: &Held, what: &str, input: impl Into<Input>) {
        let id = format!("build/{}/{}/{what}", lease.build, lease.attempt);
        let mut record = InputRecord::new(InputId::new(id), lease.tenant.clone(), (self.now)(), input);
        record.caused_by = lease.granted_by.map(|sequence| EventRef { partition: self.capacity, sequence });
        self.append(lease.owner, record);
    }

    /// Appends until it is acknowledged: nobody else knows what is said here. Only the end of the process, or of the
    /// log in it, ends it; then the next incarnation tells.
    fn append(&self, to: Partition, record: InputRecord) {
        let frame = match record.close() {
            Ok(frame) => frame.encode(),
            Err(error) => {
                tracing::error!(error = %chain(&error), "an outcome cannot be written");
                return;
            }
        };
        let mut pause = Duration::from_millis(10);
        while !self.stop.load(Ordering::Relaxed) {
            match self.log.append_inputs(Stream::Inputs(to), vec![frame.clone()]).wait() {
                Some(Ok(_)) | None => return,
                Some(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "an outcome could not be appended; it is tried again");
                    std::thread::sleep(pause);
                    pause = (pause * 3).min(Duration::from_secs(5));
                }
            }
        }
    }
}

/// How long a worker waits until what led to a lease is known here too: gate and capacity are folded each by itself.
const CATCH_UP: Duration = Duration::from_secs(30);

fn parents(lease: &Held, source: &dyn LeaseSource, control: &BuildControl) -> Result<Parents, Failed> {
    let began = std::time::Instant::now();
    loop {
        if let Some(parents) = source.parents(lease.build, lease.attempt) {
            return Ok(parents);
        }
        if control.is_aborted() || began.elapsed() > CATCH_UP {
            return Err(Failed::again("the build is gone"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Why there is no outcome.
pub(crate) struct Failed {
    pub(crate) message: String,
    pub(crate) again: bool,
    /// Whether a node could not be had.
    pub(crate) no_node: bool,
}

impl Failed {
    pub(crate) fn again(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), again: true, no_node: false }
    }

    pub(crate) fn given_up() -> Failed {
        Failed::again("it was given up before it began")
    }

    pub(crate) fn without_node(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), again: true, no_node: true }
    }

    pub(crate) fn lasting(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), again: false, no_node: false }
    }
}

fn lock(runs: &Runs) -> std::sync::MutexGuard<'_, BTreeMap<LeaseId, Run>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody may have asked to look at the nodes of what ends so; whether it was the last attempt is for the
/// owner to say. Zuul: autohold.
fn may_be_kept(result: BuildResult) -> bool {
    matches!(
        result,
        BuildResult::Failure
            | BuildResult::PostFailure
            | BuildResult::TimedOut
            | BuildResult::Retry
            | BuildResult::Unreachable
    )
}

fn result(verdict: &Verdict) -> BuildResult {
    match verdict {
        Verdict::Success => BuildResult::Success,
        Verdict::Failure(FailureCause::DiskLimit) => BuildResult::DiskFull,
        Verdict::Failure(FailureCause::SecretExposure) => BuildResult::SecretExposure,
        Verdict::Failure(_) => BuildResult::Failure,
        Verdict::TimedOut => BuildResult::TimedOut,
        Verdict::Aborted => BuildResult::Aborted,
        Verdict::PostFailure => BuildResult::PostFailure,
        Verdict::Retry(RetryCause::Unreachable) => BuildResult::Unreachable,
        Verdict::Retry(_) => BuildResult::Retry,
        Verdict::Error(_) => BuildResult::Error,
    }
}

fn detail(outcome: &BuildOutcome) -> Option<String> {
    match &outcome.result {
        // The executor's own words may name its own places.
        Verdict::Retry(RetryCause::SetupFailed) => {
            let told = outcome.detail.as_deref().map(without_paths);
            if told != outcome.detail {
                tracing::warn!(error = outcome.detail, log_dir = %outcome.log_dir.display(), "a build could not be set up");
            }
            return told;
        }
        Verdict::Retry(RetryCause::NoRoom { lack, .. }) => {
            return Some(format!("the worker had no room ({lack}) whenever the job ran there"));
        }
        _ => {}
    }
    // What a build was ended for says more than the task it happened to be at.
    if let Verdict::Failure(
        FailureCause::OutputLimit
        | FailureCause::MemoryLimit
        | FailureCause::ProcessLimit
        | FailureCause::DiskLimit
        | FailureCause::SecretExposure,
    ) = &outcome.result
    {
        return outcome.detail.clone();
    }
    if let (Verdict::Failure(_) | Verdict::Retry(_) | Verdict::PostFailure, Some(task)) =
        (&outcome.result, &outcome.failing_task)
    {
        // What it said stays on the console: it may hold what nobody should keep.
        let place = task.line.map_or_else(String::new, |line| format!(" (line {line} of the console)"));
        return Some(format!("task {:?} failed on {}{place}", task.task, task.host));
    }
    outcome.detail.clone()
}
