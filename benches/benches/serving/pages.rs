//! Those who look: pages that follow the status of a tenant, one that follows every event, and somebody who asks the API.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gatelog_benches::Failure;
use gatelog_benches::measure::Spread;
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// Of how many pages each message is noted, not only counted.
const NOTED: usize = 50;
/// How many pages connect at once.
const CONNECTING: usize = 64;
/// How long between two questions to the API.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// A message that a page took: of which event, and when, in microseconds since 1970.
#[derive(Clone, Copy)]
struct Message {
    sequence: u64,
    at: i64,
}

#[derive(Default)]
struct Seen {
    /// When each event was recorded.
    events: Mutex<BTreeMap<u64, i64>>,
    /// How many events there were of a kind.
    kinds: Mutex<BTreeMap<String, usize>>,
    /// What noted pages took, page by page.
    messages: Mutex<BTreeMap<usize, Vec<Message>>>,
    taken: AtomicUsize,
    connected: AtomicUsize,
    lost: AtomicUsize,
    asked: Mutex<Vec<Duration>>,
    failed: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// What the pages saw over a while.
pub struct Staleness {
    /// From an event to the message that has it, for every event and every noted page.
    pub delays: Spread,
    /// Messages that all pages took.
    pub messages: usize,
}

/// Those who look.
pub struct Pages {
    runtime: Runtime,
    seen: Arc<Seen>,
    address: String,
}

async fn open(address: &str, path: &str) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut reader = BufReader::with_capacity(2_048, stream);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    if !line.contains(" 200 ") {
        return Err(std::io::Error::other(format!("{path}: {}", line.trim())));
    }
    Ok(reader)
}

async fn page(seen: Arc<Seen>, address: String, number: usize) {
    // As the page does: what is new is told, the document is fetched by who looks.
    let Ok(mut reader) = open(&address, "/api/tenant/load/status/stream?brief=1").await else {
        seen.lost.fetch_add(1, Ordering::Relaxed);
        return;
    };
    seen.connected.fetch_add(1, Ordering::Relaxed);
    let mut line = String::new();
    loop {
        line.clear();
        match reader.read_line(&mut line).await {
            Ok(read) if read > 0 => {}
            _ => break,
        }
        let Some(sequence) = line.strip_prefix("id: ").or_else(|| line.strip_prefix("id:")) else { continue };
        seen.taken.fetch_add(1, Ordering::Relaxed);
        if let (true, Ok(sequence)) = (number % NOTED == 0, sequence.trim().parse()) {
            lock(&seen.messages).entry(number).or_default().push(Message { sequence, at: now() });
        }
    }
    seen.connected.fetch_sub(1, Ordering::Relaxed);
    seen.lost.fetch_add(1, Ordering::Relaxed);
}

/// Follows every event; comes back when its stream ends.
async fn events(seen: Arc<Seen>, address: String) {
    let mut last = 0_u64;
    loop {
        if let Ok(mut reader) = open(&address, &format!("/api/events?from={last}")).await {
            let mut line = String::new();
            while matches!(reader.read_line(&mut line).await, Ok(read) if read > 0) {
                if let Some(told) = line.strip_prefix("data:").and_then(|text| serde_json::from_str::<Json>(text).ok())
                {
                    let number = |name: &str| told.get(name).and_then(Json::as_i64);
                    if let (Some(sequence), Some(at)) = (number("sequence"), number("at_ms")) {
                        last = u64::try_from(sequence).unwrap_or(last);
                        lock(&seen.events).insert(last, at * 1_000);
                    }
                    if let Some(kind) = told.get("kind").and_then(Json::as_str) {
                        *lock(&seen.kinds).entry(kind.to_owned()).or_default() += 1;
                    }
                }
                line.clear();
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn ask(address: &str, path: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.get(9..12) == Some(b"200"))
}

async fn asking(seen: Arc<Seen>, address: String) {
    let paths = [
        "/api/tenants",
        "/api/tenant/load/builds?limit=50",
        "/api/tenant/load/buildsets?limit=50",
        "/api/tenant/load/status",
        "/api/tenant/load/builds?job_name=quick&limit=20",
        "/api/health",
    ];
    for path in paths.iter().cycle() {
        let began = Instant::now();
        match ask(&address, path).await {
            Ok(true) => lock(&seen.asked).push(began.elapsed()),
            _ => {
                seen.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(ASK_EVERY.saturating_sub(began.elapsed())).await;
    }
}

impl Pages {
    /// Somebody follows every event.
    pub fn open(address: &str) -> Result<Pages, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("pages").enable_all().build()?;
        let seen = Arc::new(Seen::default());
        runtime.spawn(events(Arc::clone(&seen), address.to_owned()));
        Ok(Pages { runtime, seen, address: address.to_owned() })
    }

    /// So many pages look, and somebody asks the API.
    pub fn look(&self, pages: usize) -> Result<(), Failure> {
        let (seen, address) = (Arc::clone(&self.seen), self.address.clone());
        self.runtime.spawn(async move {
            for first in (0..pages).step_by(CONNECTING) {
                for number in first..pages.min(first + CONNECTING) {
                    tokio::spawn(page(Arc::clone(&seen), address.clone(), number));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let began = Instant::now();
        while self.seen.connected.load(Ordering::Relaxed) < pages {
            if self.seen.lost.load(Ordering::Relaxed) > 0 || began.elapsed() > Duration::from_secs(120) {
                let (there, lost) = (self.connected(), self.lost());
                return Err(format!("only {there} of {pages} pages are connected, {lost} were refused or lost").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.runtime.spawn(asking(Arc::clone(&self.seen), self.address.clone()));
        Ok(())
    }

    /// How many pages are connected.
    pub fn connected(&self) -> usize {
        self.seen.connected.load(Ordering::Relaxed)
    }

    /// How many were refused or lost their connection.
    pub fn lost(&self) -> usize {
        self.seen.lost.load(Ordering::Relaxed)
    }

    /// How many events of a kind there were.
    pub fn count(&self, kind: &str) -> usize {
        lock(&self.seen.kinds)
            .iter()
            .filter(|(known, _)| known.rsplit('.').next() == Some(kind))
            .map(|(_, count)| count)
            .sum()
    }

    /// How many events there were.
    pub fn events(&self) -> usize {
        lock(&self.seen.kinds).values().sum()
    }

    /// Forgets what was noted until now.
    pub fn forget(&self) {
        lock(&self.seen.messages).values_mut().for_each(|noted| {
            let last = noted.pop();
            noted.clear();
            noted.extend(last);
        });
        lock(&self.seen.asked).clear();
        self.seen.failed.store(0, Ordering::Relaxed);
        self.seen.taken.store(0, Ordering::Relaxed);
    }

    /// What pages saw since then. An event is seen with the first message of its or a later one.
    pub fn staleness(&self) -> Staleness {
        let events = lock(&self.seen.events);
        let mut delays = Vec::new();
        for noted in lock(&self.seen.messages).values() {
            for pair in noted.windows(2) {
                let [before, message] = pair else { continue };
                for (_, at) in events.range(before.sequence + 1..=message.sequence) {
                    delays.push(Duration::from_micros(u64::try_from(message.at - at).unwrap_or(0)));
                }
            }
        }
        Staleness { delays: Spread::new(delays), messages: self.seen.taken.load(Ordering::Relaxed) }
    }

    /// How long the API took since then, and how often it did not answer well.
    pub fn asked(&self) -> (Spread, usize) {
        (Spread::new(lock(&self.seen.asked).clone()), self.seen.failed.load(Ordering::Relaxed))
    }
}
