//! Consoles of builds, wherever they run: an executor serves those of its builds over HTTP, and the web reads them here
//! or there.
//!
//! `GET /console/<build>/<attempt>?offset=N&max=BYTES&wait_ms=N` answers with bytes, at most so many, and two headers:
//! `gatelog-next`, the offset to go on from, and `gatelog-ended`, `1` when nothing will ever come after them. Where
//! there is nothing yet, it waits up to `wait_ms` and may come empty. 404: no such console here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gatelog_capacity_state::Capacity;
use gatelog_effects::connection::chain;
use gatelog_executing::{ConsoleReader, Executor};
use gatelog_gate_state::Gate;
use gatelog_log_files::LogStore;
use gatelog_record::BuildId;
use gatelog_store::SharedProjection;
use gatelog_tables::Table;
use gatelog_web::site::ConsoleRead;
use gatelog_web::{ConsoleChunk, ConsoleSource, Consoles};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::job_logs::{WorkerLogs, stored_console};
use crate::presence::Signer;

const NEXT: &str = "gatelog-next";
const ENDED: &str = "gatelog-ended";
/// The most bytes of one answer.
const MOST: usize = 1 << 20;
/// The longest one answer is waited for at the worker.
const LONGEST: Duration = Duration::from_secs(30);
/// How many are answered at once.
const AT_ONCE: usize = 256;
/// How long a worker may take to answer, beyond what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an executor serves: consoles, and what jobs left in their log directories ([`crate::job_logs`]).
pub fn router(executor: Executor, store: Option<LogStore>) -> axum::Router {
    let logs = WorkerLogs { executor: executor.clone(), store };
    let served = Arc::new(Served { executor, logs, places: Semaphore::new(AT_ONCE) });
    axum::Router::new()
        .route("/console/{build}/{attempt}", get(answer))
        .route("/job-logs/{build}/{attempt}", get(job_logs))
        .route("/job-logs/{build}/{attempt}/{name}", get(job_log))
        .with_state(served)
}

struct Served {
    executor: Executor,
    logs: WorkerLogs,
    places: Semaphore,
}

#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    max: usize,
    #[serde(default)]
    wait_ms: u64,
    /// Of a file, its size.
    #[serde(default)]
    size: u64,
}

async fn answer(
    State(served): State<Arc<Served>>,
    Path((build, attempt)): Path<(String, u32)>,
    Query(asked): Query<Asked>,
) -> Response {
    let Ok(build) = build.parse::<BuildId>() else {
        return (StatusCode::BAD_REQUEST, "that is no build").into_response();
    };
    let Ok(_place) = served.places.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many read consoles here").into_response();
    };
    let Some(reader) = served.executor.console(build, attempt) else {
        return (StatusCode::NOT_FOUND, "no such console here").into_response();
    };
    piece(&Local(reader), &asked).await
}

/// Answers with a piece of a console or file.
async fn piece(source: &dyn ConsoleSource, asked: &Asked) -> Response {
    let patience = Duration::from_millis(asked.wait_ms).min(LONGEST);
    match source.read_from(asked.offset, asked.max.min(MOST), patience).await {
        Ok(chunk) => {
            let mut headers = HeaderMap::new();
            headers.insert(NEXT, HeaderValue::from(chunk.next));
            headers.insert(ENDED, HeaderValue::from_static(if chunk.ended { "1" } else { "0" }));
            (headers, chunk.bytes).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// `job-logs/{build}/{attempt}`
async fn job_logs(State(served): State<Arc<Served>>, Path((build, attempt)): Path<(String, u32)>) -> Response {
    let Ok(build) = build.parse::<BuildId>() else {
        return (StatusCode::BAD_REQUEST, "that is no build").into_response();
    };
    let Ok(_place) = served.places.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many read logs here").into_response();
    };
    served.logs.answer(build, attempt).await
}

/// `job-logs/{build}/{attempt}/{name}`
async fn job_log(
    State(served): State<Arc<Served>>,
    Path((build, attempt, name)): Path<(String, u32, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    let Ok(build) = build.parse::<BuildId>() else {
        return (StatusCode::BAD_REQUEST, "that is no build").into_response();
    };
    let Ok(_place) = served.places.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many read logs here").into_response();
    };
    let (logs, size) = (served.logs.clone(), asked.size);
    let opened = tokio::task::spawn_blocking(move || logs.named(build, attempt, &name, size)).await;
    match opened {
        Ok(Some(source)) => piece(&*source, &asked).await,
        Ok(None) => (StatusCode::NOT_FOUND, "no such file here").into_response(),
        Err(panic) => (StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()).into_response(),
    }
}

/// The consoles of a site.
pub struct SiteConsoles {
    /// Where this process runs builds, if it does.
    pub local: Option<Executor>,
    /// Which worker ran an attempt.
    pub gate: SharedProjection<Gate>,
    /// Where workers are.
    pub capacity: SharedProjection<Capacity>,
    /// Where they say they are.
    pub signer: Arc<Signer>,
    /// How they are asked.
    pub http: reqwest::Client,
    /// Where asking whether there is a console is done: not where whoever waits for the answer runs.
    pub probing: tokio::runtime::Handle,
    /// Where logs of jobs are kept, as far as this process knows.
    pub store: Option<LogStore>,
}

impl SiteConsoles {
    /// The worker of an attempt, once it has one.
    pub(crate) fn worker(&self, build: BuildId, attempt: u32) -> Option<String> {
        let view = self.gate.view();
        let entry = view.temporal().build(build, view.position().sequence).ok().flatten()?;
        entry.attempts.iter().find(|one| one.attempt == attempt)?.worker.clone()
    }

    pub(crate) fn address(&self, worker: &str) -> Option<String> {
        let view = self.capacity.view();
        let row = view.live().own.workers.get(&worker.to_owned()).ok().flatten();
        if let Some(row) = row {
            return Some(row.offer.address.clone());
        }
        drop(view);
        self.signer.last_seen().into_iter().find(|(component, _)| component.name == worker)?.0.address
    }
}

impl Consoles for SiteConsoles {
    fn open(&self, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>> {
        if let Some(reader) = self.local.as_ref().and_then(|executor| executor.console(build, attempt)) {
            return Some(Box::new(Local(reader)));
        }
        let worker = self.worker(build, attempt)?;
        if self.local.is_some() && worker == self.signer.own().name {
            return None;
        }
        let Some(address) = self.address(&worker) else {
            return Some(Box::new(Gone { worker }));
        };
        let url = format!("{}/console/{build}/{attempt}", address.trim_end_matches('/'));
        let remote = Remote { worker, url, http: self.http.clone() };
        // On a thread of its own, whatever kind of thread asks.
        let probe = || self.probing.block_on(remote.fetch(0, 0, Duration::ZERO));
        let there = std::thread::scope(|scope| scope.spawn(probe).join());
        match there.unwrap_or_else(|_| Err(unreachable(&remote.worker, "asking it failed"))) {
            Ok(None) => None,
            // A worker that does not answer is told by reading, which may go better.
            Ok(Some(_)) | Err(_) => Some(Box::new(remote)),
        }
    }

    fn stored(&self, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>> {
        let store = self.store.as_ref().filter(|store| store.is_shared())?;
        let look = || self.probing.block_on(stored_console(store, build, attempt));
        std::thread::scope(|scope| scope.spawn(look).join()).ok().flatten()
    }
}

/// A console that is kept here.
pub(crate) struct Local(pub(crate) ConsoleReader);

impl ConsoleSource for Local {
    fn read_from(&self, offset: u64, max: usize, patience: Duration) -> ConsoleRead<'_> {
        Box::pin(async move {
            let chunk = self.0.wait_from(offset, max, patience).await?;
            Ok(ConsoleChunk { bytes: chunk.bytes, next: chunk.next, ended: chunk.ended })
        })
    }
}

/// A console whose worker is not there any more.
struct Gone {
    worker: String,
}

impl ConsoleSource for Gone {
    fn read_from(&self, _: u64, _: usize, _: Duration) -> ConsoleRead<'_> {
        Box::pin(std::future::ready(Err(unreachable(&self.worker, "it is not there any more"))))
    }
}

fn unreachable(worker: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, format!("the worker {worker} cannot be reached: {why}"))
}

/// A console or file that is with another process.
pub(crate) struct Remote {
    pub(crate) worker: String,
    /// Where; a query may follow the path.
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
}

impl Remote {
    /// What there is; `None` when there is no such console.
    async fn fetch(&self, offset: u64, max: usize, patience: Duration) -> io::Result<Option<ConsoleChunk>> {
        let patience = patience.min(LONGEST);
        let max = max.min(MOST);
        let joint = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{joint}offset={offset}&max={max}&wait_ms={}", self.url, patience.as_millis());
        let failed = |error: &dyn std::error::Error| unreachable(&self.worker, &chain(error));
        let request = self.http.get(url).timeout(patience + PATIENCE);
        let mut response = request.send().await.map_err(|error| failed(&error.without_url()))?;
        match response.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            status => return Err(unreachable(&self.worker, &format!("it answers with status {status}"))),
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let next = header(NEXT).and_then(|next| next.parse::<u64>().ok());
        let ended = header(ENDED).as_deref() == Some("1");
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(&error.without_url()))? {
            if bytes.len() + piece.len() > max {
                return Err(unreachable(&self.worker, "it answers with more than it was asked for"));
            }
            bytes.extend_from_slice(&piece);
        }
        match next {
            Some(next) if next == offset + bytes.len() as u64 => Ok(Some(ConsoleChunk { bytes, next, ended })),
            _ => Err(unreachable(&self.worker, "what answers there is no worker")),
        }
    }
}

impl Remote {
    /// The whole answer: its status, and its body of at most so many bytes.
    pub(crate) async fn document(&self, most: usize) -> io::Result<(u16, Vec<u8>)> {
        let failed = |error: reqwest::Error| unreachable(&self.worker, &chain(&error.without_url()));
        let mut response = self.http.get(&self.url).timeout(PATIENCE).send().await.map_err(failed)?;
        let (status, mut bytes) = (response.status().as_u16(), Vec::new());
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if bytes.len() + piece.len() > most {
                return Err(unreachable(&self.worker, "it answers with more than it was asked for"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok((status, bytes))
    }
}

impl ConsoleSource for Remote {
    fn read_from(&self, offset: u64, max: usize, patience: Duration) -> ConsoleRead<'_> {
        Box::pin(async move {
            let chunk = self.fetch(offset, max, patience).await?;
            chunk.ok_or_else(|| unreachable(&self.worker, "it does not have this console any more"))
        })
    }
}

/// A client for workers.
pub fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().connect_timeout(PATIENCE).no_proxy().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn serve(answer: &'static str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}/console/x/1")
    }

    async fn read(answer: &'static str) -> Result<ConsoleChunk, String> {
        let remote = Remote { worker: "w".into(), url: serve(answer).await, http: client().unwrap() };
        remote.read_from(3, 5, Duration::ZERO).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_console_of_another_process_is_read_and_what_answers_otherwise_is_not_believed() {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
        let good = Box::leak(format!("{head}gatelog-next: 5\r\ngatelog-ended: 1\r\n\r\nab").into_boxed_str());
        assert_eq!(read(good).await, Ok(ConsoleChunk { bytes: b"ab".to_vec(), next: 5, ended: true }));
        let more = Box::leak(format!("{head}gatelog-next: 9\r\n\r\nabcdefgh").into_boxed_str());
        assert!(read(more).await.unwrap_err().contains("more than it was asked for"));
        let other = Box::leak(format!("{head}\r\nhello").into_boxed_str());
        assert!(read(other).await.unwrap_err().contains("is no worker"));
        let gone = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert!(read(gone).await.unwrap_err().contains("does not have this console"));
    }

    #[tokio::test]
    async fn a_worker_that_does_not_answer_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/console/x/1", listener.local_addr().unwrap());
        drop(listener);
        let remote = Remote { worker: "far-away".into(), url, http: client().unwrap() };
        let error = remote.read_from(0, 1, Duration::ZERO).await.unwrap_err().to_string();
        assert!(error.starts_with("the worker far-away cannot be reached: "), "{error}");
    }
}
