//! The executor's role: follows the leases granted to this worker, runs each attempt, says how it
//! went, and lets go of what it was given.
//!
//! A start of a worker is an incarnation: what an earlier one held is lost, its leftovers are swept
//! before anything new begins, and capacity tells the owners.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_cloud_local::{Cloud, NodeConnection, NodeRequest};
use gatelog_event_log::Log;
use gatelog_executing::spec::Checkout;
use gatelog_executing::{
    AbortReason, BuildControl, BuildOutcome, BuildResult as Verdict, Executor, Workspace, WorkspaceError,
};
use gatelog_merging::{BranchState, MergeError, ObjectSharing, ProjectKey, WorkspaceRequest};
use gatelog_record::draft::capacity::{LeaseReleased, NodeGrant};
use gatelog_record::draft::gate::{Artifact, AttemptFinished, AttemptStarted, BuildResult};
use gatelog_record::input::{CapacityInput, GateInput};
use gatelog_record::{
    BlobHash, BuildId, BuildsetId, EventRef, Input, InputId, InputRecord, LeaseId, Partition, Stream, Timestamp, Value,
    codec,
};
use gatelog_secrets::{Keyring, Scope};

use crate::connection::chain;
use crate::git::Repositories;
use crate::spec::{Attempt, JobSpec};

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
    /// The event that granted it, if known.
    pub granted_by: Option<u64>,
}

/// What a build must be told of its buildset when it starts.
#[derive(Clone, Debug, Default)]
pub struct Parents {
    /// The buildset.
    pub buildset: BuildsetId,
    /// What parents returned.
    pub data: BTreeMap<String, Value>,
    /// What parents returned under seal.
    pub secret: Vec<gatelog_record::Sealed>,
    /// What parents left behind.
    pub artifacts: Vec<Value>,
}

/// Where the worker reads what it holds and what its builds depend on.
pub trait LeaseSource: Send + Sync {
    /// The leases that this start of this worker holds, and the position they were read at.
    fn held(&self, worker: &str, incarnation: &str) -> (u64, Vec<Held>);
    /// The buildset of a build and what its parents returned; `None` when the build is gone.
    fn parents(&self, build: BuildId) -> Option<Parents>;
    /// Waits until something was folded beyond a position, at most so long.
    fn wait(&self, beyond: u64, at_most: Duration);
}

/// One start of a worker.
#[derive(Clone)]
pub struct Worker {
    /// Its name, the same over restarts.
    pub name: String,
    /// Drawn anew at each start.
    pub incarnation: String,
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
    /// How people reach the API, for the address of a log; no slash at its end.
    pub web_root: String,
    /// The clock.
    pub now: fn() -> Timestamp,
    /// The labels of nodes it makes.
    pub labels: Vec<String>,
}

enum Run {
    Running(BuildControl),
    Over,
}

type Runs = Arc<Mutex<BTreeMap<LeaseId, Run>>>;

impl Worker {
    /// Follows leases until `stop` is set, then stops every build. Blocks; call it on a thread of
    /// its own. Builds run on `runtime`.
    pub fn follow(&self, source: &Arc<dyn LeaseSource>, runtime: &tokio::runtime::Handle, stop: &AtomicBool) {
        let runs: Runs = Arc::default();
        while !stop.load(Ordering::Relaxed) {
            let (position, held) = source.held(&self.name, &self.incarnation);
            let there: BTreeSet<LeaseId> = held.iter().map(|lease| lease.lease).collect();
            let mut known = lock(&runs);
            for lease in held {
                match known.get(&lease.lease) {
                    None if lease.revoked => {
                        // Taken back before it began.
                        known.insert(lease.lease, Run::Over);
                        let worker = self.clone();
                        runtime.spawn_blocking(move || worker.release(&lease));
                    }
                    None => {
                        let control = BuildControl::new();
                        known.insert(lease.lease, Run::Running(control.clone()));
                        let (worker, source, runs) = (self.clone(), Arc::clone(source), Arc::clone(&runs));
                        runtime.spawn(async move { worker.attempt(lease, source, control, runs).await });
                    }
                    Some(Run::Running(control)) if lease.revoked => {
                        control.abort(AbortReason::Cancelled);
                        self.executor.abort(lease.build, lease.attempt, AbortReason::Cancelled);
                    }
                    Some(_) => {}
                }
            }
            known.retain(|lease, run| there.contains(lease) || matches!(run, Run::Running(_)));
            drop(known);
            source.wait(position, Duration::from_millis(500));
        }
        for run in lock(&runs).values() {
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

    async fn attempt(self, lease: Held, source: Arc<dyn LeaseSource>, control: BuildControl, runs: Runs) {
        let began = (self.now)();
        let outcome = self.run(&lease, &source, &control).await;
        if control.aborted() == Some(AbortReason::Shutdown) {
            // The process is going down: the next start is another incarnation, and capacity tells.
            return;
        }
        let worker = self.clone();
        let told = tokio::task::spawn_blocking(move || {
            worker.finished(&lease, began, outcome);
            worker.release(&lease);
            lease.lease
        });
        if let Ok(lease) = told.await {
            lock(&runs).insert(lease, Run::Over);
        }
    }

    async fn run(
        &self,
        lease: &Held,
        source: &Arc<dyn LeaseSource>,
        control: &BuildControl,
    ) -> Result<(BuildOutcome, BuildsetId), Failed> {
        let worker = self.clone();
        let (for_setup, source) = (lease.clone(), Arc::clone(source));
        let setup = tokio::task::spawn_blocking(move || worker.set_up(&for_setup, &*source));
        let (spec, attempt) = setup.await.map_err(|_| Failed::again("setting the attempt up panicked"))??;
        let buildset = attempt.buildset;
        let workspace = Arc::new(MirrorWorkspace { repositories: self.repositories.clone() });
        let build = self
            .executor
            .prepare(spec.build(attempt), workspace)
            .await
            .map_err(|error| Failed::again(chain(&error)))?;
        let inner = build.control();
        let outer = control.clone();
        // Both handles must stop the build: the worker's own, and the executor's by build id.
        let link = tokio::spawn(async move {
            let reason = outer.wait().await;
            inner.abort(reason);
        });
        let outcome = build.run().await;
        link.abort();
        Ok((outcome, buildset))
    }

    fn set_up(&self, lease: &Held, source: &dyn LeaseSource) -> Result<(JobSpec, Attempt), Failed> {
        let started = AttemptStarted {
            tenant: lease.tenant.clone(),
            build: lease.build,
            attempt: lease.attempt,
            lease: lease.lease,
            worker: self.name.clone(),
            started_at: (self.now)(),
        };
        self.tell_owner(lease, "started", GateInput::AttemptStarted(started));
        let bytes = self.repositories.blobs.get(&lease.spec).map_err(|error| Failed::lasting(chain(&error)))?;
        let spec: JobSpec = codec::decode(&bytes).map_err(|error| Failed::lasting(chain(&error)))?;
        let parents = source.parents(lease.build).ok_or_else(|| Failed::again("the build is gone"))?;
        let mut nodes = Vec::with_capacity(lease.nodes.len());
        for grant in &lease.nodes {
            let request = NodeRequest { node: grant.node, label: grant.wanted.label.clone() };
            let ready = self.cloud.create_node(&request).map_err(|error| Failed::again(chain(&error)))?;
            match ready.connection {
                NodeConnection::Local { dir } => nodes.push((grant.clone(), dir)),
                NodeConnection::Remote { .. } => {
                    return Err(Failed::lasting("this worker cannot reach nodes over a network"));
                }
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
        let mut parent_secret_data = BTreeMap::new();
        for sealed in &parents.secret {
            let opened = self.keyring.open(sealed, SECRET_DATA).map_err(|error| Failed::again(chain(&error)))?;
            if let gatelog_secrets::Unsealed::Opened(plaintext) = opened
                && let Some(text) = plaintext.as_str()
                && let Ok(json) = serde_json::from_str::<serde_json::Value>(text)
                && let Value::Map(map) = Value::from_json(&json)
            {
                parent_secret_data.extend(map);
            }
        }
        let attempt = Attempt {
            build: lease.build,
            attempt: lease.attempt,
            buildset: parents.buildset,
            nodes,
            messages,
            parent_data: parents.data,
            parent_secret_data,
            artifacts: parents.artifacts,
        };
        Ok((spec, attempt))
    }

    fn finished(&self, lease: &Held, began: Timestamp, outcome: Result<(BuildOutcome, BuildsetId), Failed>) {
        let mut finished = AttemptFinished {
            tenant: lease.tenant.clone(),
            build: lease.build,
            attempt: lease.attempt,
            worker: self.name.clone(),
            result: BuildResult::Error,
            started_at: began,
            finished_at: (self.now)(),
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
        };
        match outcome {
            Err(Failed { message, again }) => {
                finished.result = if again { BuildResult::Retry } else { BuildResult::Error };
                finished.detail = Some(message);
            }
            Ok((outcome, buildset)) => {
                finished.result = result(&outcome.result);
                finished.started_at = outcome.started;
                finished.finished_at = outcome.ended;
                finished.detail = detail(&outcome);
                finished.log_url = Some(format!(
                    "{}/api/tenant/{}/build/{}/console?attempt={}",
                    self.web_root, lease.tenant, lease.build, lease.attempt
                ));
                finished.artifacts = outcome.returned.artifacts().iter().filter_map(artifact).collect();
                finished.data = outcome.returned.data;
                if outcome.returned.secret_data != Value::Null {
                    let text = outcome.returned.secret_data.to_json().to_string();
                    match self.keyring.seal(&Scope::Buildset(buildset), text.as_bytes(), SECRET_DATA) {
                        Ok(sealed) => finished.secret_data = Some(sealed),
                        Err(error) => {
                            // In clear it must not go anywhere; without it a child would miss it.
                            finished.result = BuildResult::Error;
                            finished.detail = Some(format!("secret_data could not be sealed: {}", chain(&error)));
                        }
                    }
                }
            }
        }
        self.tell_owner(lease, "finished", GateInput::AttemptFinished(finished));
    }

    fn release(&self, lease: &Held) {
        for grant in &lease.nodes {
            if let Err(error) = self.cloud.delete_node(grant.node) {
                tracing::warn!(node = %grant.node, error = %chain(&error), "a node could not be deleted; the next sweep does it");
            }
        }
        let released =
            LeaseReleased { lease: lease.lease, worker: self.name.clone(), incarnation: self.incarnation.clone() };
        let id = format!("lease/{}/released", lease.lease);
        let input = CapacityInput::LeaseReleased(released);
        let record = InputRecord::new(InputId::new(id), "main", (self.now)(), input);
        self.append(self.capacity, record);
    }

    fn tell_owner(&self, lease: &Held, what: &str, input: impl Into<Input>) {
        let id = format!("build/{}/{}/{what}", lease.build, lease.attempt);
        let mut record = InputRecord::new(InputId::new(id), lease.tenant.clone(), (self.now)(), input);
        record.caused_by = lease.granted_by.map(|sequence| EventRef { partition: self.capacity, sequence });
        self.append(lease.owner, record);
    }

    /// Appends until it is acknowledged: nobody else knows what is said here. A log that is closing
    /// ends it; then the next incarnation tells.
    fn append(&self, to: Partition, record: InputRecord) {
        let frame = match record.close() {
            Ok(frame) => frame.encode(),
            Err(error) => {
                tracing::error!(error = %chain(&error), "an outcome cannot be written");
                return;
            }
        };
        for pause in [10, 50, 200, 1_000, 5_000] {
            match self.log.append_inputs(Stream::Inputs(to), vec![frame.clone()]).wait() {
                Some(Ok(_)) | None => return,
                Some(Err(error)) => {
                    tracing::warn!(error = %chain(&error), "an outcome could not be appended; it is tried again");
                    std::thread::sleep(Duration::from_millis(pause));
                }
            }
        }
        tracing::error!(id = %record.input_id, "an outcome could not be appended and is given up");
    }
}

/// What seals of `secret_data` belong to.
const SECRET_DATA: &[u8] = b"secret_data";

/// Why there is no outcome.
struct Failed {
    message: String,
    again: bool,
}

impl Failed {
    fn again(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), again: true }
    }

    fn lasting(message: impl Into<String>) -> Failed {
        Failed { message: message.into(), again: false }
    }
}

fn lock(runs: &Runs) -> std::sync::MutexGuard<'_, BTreeMap<LeaseId, Run>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

fn result(verdict: &Verdict) -> BuildResult {
    match verdict {
        Verdict::Success => BuildResult::Success,
        Verdict::Failure(_) => BuildResult::Failure,
        Verdict::TimedOut => BuildResult::TimedOut,
        Verdict::Aborted => BuildResult::Aborted,
        Verdict::PostFailure => BuildResult::PostFailure,
        Verdict::Retry(_) => BuildResult::Retry,
        Verdict::Error(_) => BuildResult::Error,
    }
}

fn detail(outcome: &BuildOutcome) -> Option<String> {
    if let (Verdict::Failure(_) | Verdict::Retry(_) | Verdict::PostFailure, Some(task)) =
        (&outcome.result, &outcome.failing_task)
    {
        return Some(format!("task {:?} failed on {}: {}", task.task, task.host, task.message));
    }
    outcome.detail.clone()
}

fn artifact(value: &Value) -> Option<Artifact> {
    let map = value.as_map()?;
    Some(Artifact {
        name: map.get("name")?.as_str()?.to_owned(),
        url: map.get("url")?.as_str()?.to_owned(),
        metadata: map.get("metadata").cloned().unwrap_or_default(),
    })
}

/// Workspaces from the mirrors.
struct MirrorWorkspace {
    repositories: Repositories,
}

impl Workspace for MirrorWorkspace {
    fn materialize(
        &self,
        checkout: &Checkout,
        destination: &Path,
        control: &BuildControl,
    ) -> Result<(), WorkspaceError> {
        if control.is_aborted() {
            return Err(WorkspaceError::Aborted);
        }
        let project = checkout.project.canonical_name();
        let missing = |reason: String| WorkspaceError::Missing {
            project: project.clone(),
            commit: checkout.commit.clone(),
            reason,
        };
        let connection = self
            .repositories
            .connections
            .iter()
            .find(|(_, connection)| connection.canonical_hostname() == checkout.project.canonical_hostname)
            .map(|(name, _)| name.clone())
            .ok_or_else(|| missing(format!("no connection has host {}", checkout.project.canonical_hostname)))?;
        let key = ProjectKey::new(connection, &checkout.project.name);
        let mut branches: BTreeMap<String, BranchState> = checkout
            .branches
            .iter()
            .map(|(branch, commit)| (branch.clone(), BranchState { commit: commit.clone(), origin: commit.clone() }))
            .collect();
        let origin = checkout.previous.clone().unwrap_or_else(|| checkout.commit.clone());
        branches.insert(checkout.name.clone(), BranchState { commit: checkout.commit.clone(), origin });
        let request = WorkspaceRequest {
            project: key,
            destination: destination.to_path_buf(),
            branch: Some(checkout.name.clone()),
            commit: checkout.commit.clone(),
            branches,
            sharing: ObjectSharing::Copy,
        };
        self.repositories.mirrors.clone_workspace(&request).map_err(|error| match &error {
            MergeError::MissingCommit { .. } | MergeError::Vanished { .. } | MergeError::BadName { .. } => {
                missing(chain(&error))
            }
            _ => WorkspaceError::Failed { project: project.clone(), reason: chain(&error) },
        })
    }
}
