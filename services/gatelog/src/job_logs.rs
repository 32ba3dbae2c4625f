//! What jobs left in their log directories, wherever it is: a worker serves that of its builds over HTTP, and the web
//! reads it here, there, or in a store that all processes see. Retention removes it.
//!
//! - `GET /job-logs/<build>/<attempt>` of a worker: the manifest; 410 with the record of its removal; 404.
//! - `GET /job-logs/<build>/<attempt>/<name>?offset=N&max=BYTES` answers as `/console` does (see [`crate::consoles`]);
//!   the name is `job-output.txt`, `job-output.json` or the digest of a kept file, with `size=` of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gatelog_executing::{Executor, ResultsReader};
use gatelog_log_files::manifest::{CONSOLE, RESULTS};
use gatelog_log_files::retention::{self, Kept};
use gatelog_log_files::{Digest, KeptFile, LogStore, Manifest, Plan, Removal, Rules, StoreError};
use gatelog_record::{BuildId, Timestamp};
use gatelog_web::site::{ConsoleRead, LogsFuture};
use gatelog_web::{ConsoleChunk, ConsoleSource, FoundLogs, JobLogs};

use crate::config::JobLogsSection;
use crate::consoles::{Local, Remote, SiteConsoles};
use crate::roles::Process;
use crate::server::StartError;

/// How long after its start, and how often, an executor removes what the rules do not keep.
const FIRST: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_secs(3600);
/// How long it waits where the clock has jumped.
const AFTER_JUMP: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(200);
/// The largest manifest of a worker, in bytes.
const LARGEST: usize = 64 << 20;

/// The logs of the builds of this process.
#[derive(Clone)]
pub struct WorkerLogs {
    /// Where builds run.
    pub executor: Executor,
    /// Where their logs are kept; nowhere in tests.
    pub store: Option<LogStore>,
}

impl WorkerLogs {
    /// What is known of an attempt.
    pub async fn find(&self, build: BuildId, attempt: u32) -> io::Result<Option<FoundLogs>> {
        if !self.executor.is_running(build, attempt)
            && let Some(store) = &self.store
            && let Some(found) = stored(store, build, attempt).await?
        {
            return Ok(Some(found));
        }
        // It runs, or was kept before there were manifests.
        let mut manifest = Manifest::new(build, attempt, "");
        manifest.pending = self.executor.is_running(build, attempt);
        let (executor, mut files) = (self.executor.clone(), Vec::new());
        let looking = tokio::task::spawn_blocking(move || {
            let file = |path: &str, size, mime: &str| KeptFile {
                path: path.to_owned(),
                size,
                digest: None,
                mime: mime.to_owned(),
            };
            if let Some(results) = executor.results(build, attempt) {
                files.push(file(RESULTS, results.size(), "application/json"));
            }
            if executor.console(build, attempt).is_some() {
                let size = std::fs::metadata(executor.log_dir(build, attempt).join(CONSOLE)).map_or(0, |of| of.len());
                files.push(file(CONSOLE, size, "text/plain; charset=utf-8"));
            }
            files
        });
        manifest.files = looking.await.map_err(io::Error::other)?;
        Ok(Some(FoundLogs::Kept(manifest)).filter(|_| self.executor.console(build, attempt).is_some()))
    }

    /// One of the executor's own files.
    pub fn own(&self, build: BuildId, attempt: u32, name: &str) -> Option<Box<dyn ConsoleSource>> {
        match name {
            CONSOLE => Some(Box::new(Local(self.executor.console(build, attempt)?))),
            RESULTS => Some(Box::new(Results(self.executor.results(build, attempt)?))),
            _ => None,
        }
    }

    /// Any of an attempt's files, by its name for other processes.
    pub fn named(&self, build: BuildId, attempt: u32, name: &str, size: u64) -> Option<Box<dyn ConsoleSource>> {
        match name.parse::<Digest>() {
            Ok(digest) => Some(Box::new(Stored { store: self.store.clone()?, digest, size })),
            Err(_) => self.own(build, attempt, name),
        }
    }

    /// What a worker says of an attempt to other processes.
    pub async fn answer(&self, build: BuildId, attempt: u32) -> Response {
        match self.find(build, attempt).await {
            Ok(Some(FoundLogs::Kept(manifest))) => Json(manifest).into_response(),
            Ok(Some(FoundLogs::Removed(removal))) => (StatusCode::GONE, Json(removal)).into_response(),
            Ok(None) => (StatusCode::NOT_FOUND, "no such logs here").into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// What a store has of an attempt. That it was removed counts, also while some of it is still there.
async fn stored(store: &LogStore, build: BuildId, attempt: u32) -> Result<Option<FoundLogs>, StoreError> {
    if let Some(removal) = store.removal(build, attempt).await? {
        return Ok(Some(FoundLogs::Removed(removal)));
    }
    Ok(store.manifest(build, attempt).await?.map(FoundLogs::Kept))
}

/// The console of an attempt, from a store that all processes see.
pub async fn stored_console(store: &LogStore, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>> {
    let manifest = store.manifest(build, attempt).await.ok().flatten()?;
    let file = manifest.file(CONSOLE)?;
    Some(Box::new(Stored { store: store.clone(), digest: file.digest?, size: file.size }))
}

/// A file of the store.
struct Stored {
    store: LogStore,
    digest: Digest,
    size: u64,
}

impl ConsoleSource for Stored {
    fn read_from(&self, offset: u64, max: usize, _: Duration) -> ConsoleRead<'_> {
        Box::pin(async move {
            let bytes = self.store.read(self.digest, self.size, offset, max).await?.to_vec();
            let next = offset + bytes.len() as u64;
            Ok(ConsoleChunk { bytes, next, ended: next >= self.size })
        })
    }
}

/// The results of tasks.
struct Results(ResultsReader);

impl ConsoleSource for Results {
    fn read_from(&self, offset: u64, max: usize, _: Duration) -> ConsoleRead<'_> {
        Box::pin(async move {
            let bytes = self.0.read_from(offset, max)?;
            let next = offset + bytes.len() as u64;
            Ok(ConsoleChunk { bytes, next, ended: next >= self.0.size() })
        })
    }
}

/// The logs of a site.
pub struct SiteLogs {
    /// How workers are found and asked.
    pub consoles: Arc<SiteConsoles>,
    /// Those of this process, if it runs builds.
    pub local: Option<WorkerLogs>,
    /// How long they are kept.
    pub rules: Rules,
}

impl SiteLogs {
    /// The store that all processes see, if there is one.
    fn shared(&self) -> Option<&LogStore> {
        self.consoles.store.as_ref().filter(|store| store.is_shared())
    }

    /// Those of this process, if it ran the attempt.
    fn here(&self, worker: &str) -> Option<&WorkerLogs> {
        self.local.as_ref().filter(|_| worker == self.consoles.signer.own().name)
    }

    /// Asks a worker.
    async fn ask(&self, worker: String, build: BuildId, attempt: u32) -> io::Result<Option<FoundLogs>> {
        let remote = self.remote(worker, format!("job-logs/{build}/{attempt}"))?;
        let (status, bytes) = remote.document(LARGEST).await?;
        let damaged = |error: serde_json::Error| io::Error::other(format!("what a worker says of logs: {error}"));
        match status {
            200 => serde_json::from_slice::<Manifest>(&bytes).map(FoundLogs::Kept).map(Some).map_err(damaged),
            410 => serde_json::from_slice::<Removal>(&bytes).map(FoundLogs::Removed).map(Some).map_err(damaged),
            404 => Ok(None),
            status => Err(io::Error::other(format!("the worker {} answers with status {status}", remote.worker))),
        }
    }

    fn remote(&self, worker: String, path: String) -> io::Result<Remote> {
        let address = self.consoles.address(&worker).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotConnected, format!("the worker {worker} is not there any more"))
        })?;
        let url = format!("{}/{path}", address.trim_end_matches('/'));
        Ok(Remote { worker, url, http: self.consoles.http.clone() })
    }

    /// The worker of an attempt: reading tables blocks.
    async fn worker(&self, build: BuildId, attempt: u32) -> io::Result<Option<String>> {
        let consoles = Arc::clone(&self.consoles);
        tokio::task::spawn_blocking(move || consoles.worker(build, attempt)).await.map_err(io::Error::other)
    }
}

impl JobLogs for SiteLogs {
    fn find(&self, build: BuildId, attempt: u32) -> LogsFuture<'_, Option<FoundLogs>> {
        Box::pin(async move {
            if let Some(store) = self.shared()
                && let Some(found) = stored(store, build, attempt).await?
                && !matches!(&found, FoundLogs::Kept(manifest) if manifest.pending)
            {
                return Ok(Some(found));
            }
            let Some(worker) = self.worker(build, attempt).await? else { return Ok(None) };
            match self.here(&worker) {
                Some(here) => here.find(build, attempt).await,
                None => self.ask(worker, build, attempt).await,
            }
        })
    }

    fn open<'a>(
        &'a self,
        build: BuildId,
        attempt: u32,
        file: &'a KeptFile,
    ) -> LogsFuture<'a, Option<Box<dyn ConsoleSource>>> {
        Box::pin(async move {
            if let (Some(store), Some(digest)) = (self.shared(), file.digest) {
                let stored = Stored { store: store.clone(), digest, size: file.size };
                return Ok(Some(Box::new(stored) as Box<dyn ConsoleSource>));
            }
            let Some(worker) = self.worker(build, attempt).await? else { return Ok(None) };
            let name = file.digest.map_or_else(|| file.path.clone(), |digest| digest.to_string());
            if let Some(here) = self.here(&worker) {
                let (here, size) = (here.clone(), file.size);
                let opened = tokio::task::spawn_blocking(move || here.named(build, attempt, &name, size));
                return opened.await.map_err(io::Error::other);
            }
            let path = format!("job-logs/{build}/{attempt}/{name}?size={}", file.size);
            Ok(Some(Box::new(self.remote(worker, path)?) as Box<dyn ConsoleSource>))
        })
    }

    fn rules(&self) -> Rules {
        self.rules
    }
}

/// What the rules make of what is there: the store, and consoles that are in no manifest.
///
/// # Errors
/// The store or the directory of consoles cannot be read.
pub async fn plan(
    store: &LogStore,
    consoles: io::Result<Vec<gatelog_executing::KeptAttempt>>,
    rules: &Rules,
    now_ms: i64,
) -> io::Result<Plan> {
    let mut all = retention::kept(store).await?;
    let known: std::collections::BTreeSet<(BuildId, u32)> = all.iter().map(|kept| (kept.build, kept.attempt)).collect();
    for one in consoles? {
        if !known.contains(&(one.build, one.attempt)) {
            let (files, bytes) = (one.files, one.bytes);
            all.push(Kept { build: one.build, attempt: one.attempt, ended_ms: one.ended_ms, files, bytes });
        }
    }
    Ok(retention::plan(all, rules, now_ms))
}

/// Starts the thread that removes what the rules do not keep; `None` where everything is kept.
pub fn removing(process: &Process, executor: &Executor) -> Result<Option<JoinHandle<()>>, StartError> {
    let section: &JobLogsSection = &process.config.job_logs;
    let rules = section.rules();
    let Some(store) = process.job_logs.clone().filter(|_| !rules.is_forever()) else { return Ok(None) };
    let (executor, stop, runtime) = (executor.clone(), Arc::clone(&process.stop), process.runtime.clone());
    let steady = Arc::clone(&process.steady);
    let run = move || {
        let rest = |time: Duration| {
            let began = Instant::now();
            while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
        };
        rest(FIRST);
        while !stop.load(Ordering::Relaxed) {
            let Some(aging) = steady.aging() else {
                tracing::info!("no logs of jobs are removed for now: the machine's clock has jumped");
                rest(AFTER_JUMP);
                continue;
            };
            match runtime.block_on(remove(&store, &executor, &rules, aging)) {
                // There is more than one step.
                Ok(removed) if removed >= retention::STEP => continue,
                Ok(0) => {}
                Ok(removed) => tracing::info!(attempts = removed, "logs of jobs were removed by the rules"),
                Err(error) => tracing::warn!(%error, "logs of jobs could not be removed; it is tried again"),
            }
            rest(EVERY);
        }
    };
    crate::server::thread("job-logs", run).map(Some)
}

/// One step. `aging` is the moment by which logs grow old.
async fn remove(store: &LogStore, executor: &Executor, rules: &Rules, aging: Timestamp) -> io::Result<usize> {
    let now_ms = crate::clock::now().0 / 1_000;
    let plan = plan(store, executor.kept(), rules, aging.0 / 1_000).await?;
    let removed = retention::apply(store, &plan.now, now_ms, |build, attempt| executor.forget(build, attempt)).await?;
    // Consoles here of what another process has removed from the store that all see.
    if store.is_shared() {
        for one in executor.kept()?.into_iter().take(retention::STEP) {
            if store.removal(one.build, one.attempt).await?.is_some() {
                executor.forget(one.build, one.attempt)?;
            }
        }
    }
    Ok(removed.len())
}
