//! Those who look: pages that follow the status of a tenant, a few that fetch themselves anew as browsers do, one who
//! follows every event, and somebody who asks the API.

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
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

const STREAM: &str = "/api/tenant/load/status/stream?brief=1";
const PAGE: &str = "/t/load/status";
/// Of how many pages each message is noted, not only counted.
const NOTED: usize = 50;
/// How many pages connect at once.
const CONNECTING: usize = 64;
/// How long pages have to connect.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many pages fetch themselves anew when they are told of something, as each does that somebody looks at.
const LOOKED_AT: usize = 4;
/// How long such a page rests, and how many times as long as it took: as `web/gatelog.js` has it.
const REST: (Duration, u32) = (Duration::from_millis(400), 4);
/// How long between two questions to the API, whether the last was answered or not.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// What is asked, in turns.
pub const ASKED: [(&str, &str); 5] = [
    ("the status", "/api/tenant/load/status"),
    ("builds", "/api/tenant/load/builds?limit=50"),
    ("builds of a job", "/api/tenant/load/builds?job_name=quick&limit=20"),
    ("buildsets", "/api/tenant/load/buildsets?limit=50"),
    ("tenants", "/api/tenants"),
];

/// What is known of an event: a page has what is as of `sequence`, at a time in microseconds since 1970.
#[derive(Clone, Copy)]
struct Message {
    sequence: u64,
    at: i64,
}

/// What some pages had, page by page.
type Noted = Mutex<BTreeMap<usize, Vec<Message>>>;

#[derive(Default)]
struct Seen {
    /// When each event was recorded.
    events: Mutex<BTreeMap<u64, i64>>,
    /// How many events there were of a kind.
    kinds: Mutex<BTreeMap<String, usize>>,
    /// The messages that noted pages took.
    messages: Noted,
    /// The pages that were fetched anew.
    fetched: Noted,
    taken: AtomicUsize,
    connected: AtomicUsize,
    lost: AtomicUsize,
    asked: Mutex<[Vec<Duration>; ASKED.len()]>,
    failed: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn note(noted: &Noted, page: usize, sequence: u64) {
    let mut noted = lock(noted);
    let all = noted.entry(page).or_default();
    // A page that was fetched twice as of the same event shows nothing new.
    if all.last().is_none_or(|last| last.sequence < sequence) {
        all.push(Message { sequence, at: now() });
    }
}

/// Those who look.
pub struct Pages {
    /// Of the pages.
    pages: Runtime,
    /// Of whoever follows events and asks: not to be held up by the pages.
    others: Runtime,
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

/// The next line that says which event a message is as of.
async fn message(reader: &mut BufReader<TcpStream>, line: &mut String) -> Option<u64> {
    loop {
        line.clear();
        if !matches!(reader.read_line(line).await, Ok(read) if read > 0) {
            return None;
        }
        if let Some(sequence) = line.strip_prefix("id:") {
            return sequence.trim().parse().ok();
        }
    }
}

/// A page: what is new is told to it.
async fn page(seen: Arc<Seen>, address: String, number: usize) {
    let Ok(mut reader) = open(&address, STREAM).await else {
        seen.lost.fetch_add(1, Ordering::Relaxed);
        return;
    };
    seen.connected.fetch_add(1, Ordering::Relaxed);
    let mut line = String::new();
    while let Some(sequence) = message(&mut reader, &mut line).await {
        seen.taken.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(NOTED) {
            note(&seen.messages, number, sequence);
        }
    }
    seen.connected.fetch_sub(1, Ordering::Relaxed);
    seen.lost.fetch_add(1, Ordering::Relaxed);
}

/// A page that somebody looks at: it fetches itself anew when it is told of something.
async fn looked_at(seen: Arc<Seen>, address: String, number: usize) {
    let told = Arc::new(Notify::new());
    let hears = Arc::clone(&told);
    let stream = address.clone();
    let lost = Arc::clone(&seen);
    tokio::spawn(async move {
        let Ok(mut reader) = open(&stream, STREAM).await else {
            lost.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut line = String::new();
        while message(&mut reader, &mut line).await.is_some() {
            hears.notify_one();
        }
        lost.lost.fetch_add(1, Ordering::Relaxed);
    });
    loop {
        // What was told while it fetched or rested is told once.
        told.notified().await;
        let began = Instant::now();
        match ask(&address, PAGE, "text/html").await {
            Ok(Some(sequence)) => note(&seen.fetched, number, sequence),
            _ => {
                seen.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(REST.0.max(began.elapsed() * REST.1)).await;
    }
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
        sleep(Duration::from_millis(200)).await;
    }
}

/// Asks and takes the whole answer. Says as of which event it is; none where that is not 200 or not said.
async fn ask(address: &str, path: &str, accept: &str) -> std::io::Result<Option<u64>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let head = String::from_utf8_lossy(answer.get(..answer.len().min(1_024)).unwrap_or_default()).to_lowercase();
    let position = head.lines().find_map(|line| line.strip_prefix("gatelog-position:")).unwrap_or_default();
    let sequence = position
        .split(',')
        .next()
        .and_then(|gate| gate.rsplit(':').next())
        .and_then(|number| number.trim().parse().ok());
    Ok(sequence.filter(|_| head.get(9..12) == Some("200")))
}

async fn asking(seen: Arc<Seen>, address: String) {
    let mut due = interval(ASK_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for (number, (_, path)) in ASKED.iter().enumerate().cycle() {
        due.tick().await;
        let (seen, address) = (Arc::clone(&seen), address.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            match ask(&address, path, "application/json").await {
                Ok(Some(_)) => {
                    if let Some(took) = lock(&seen.asked).get_mut(number) {
                        took.push(began.elapsed());
                    }
                }
                _ => {
                    seen.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

fn runtime(name: &str) -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build()?)
}

impl Pages {
    /// Somebody follows every event.
    pub fn open(address: &str) -> Result<Pages, Failure> {
        let (pages, others) = (runtime("pages")?, runtime("asks")?);
        let seen = Arc::new(Seen::default());
        others.spawn(events(Arc::clone(&seen), address.to_owned()));
        Ok(Pages { pages, others, seen, address: address.to_owned() })
    }

    /// So many pages look, and somebody asks the API.
    pub fn look(&self, pages: usize) -> Result<(), Failure> {
        let (seen, address) = (Arc::clone(&self.seen), self.address.clone());
        self.pages.spawn(async move {
            for first in (0..pages).step_by(CONNECTING) {
                for number in first..pages.min(first + CONNECTING) {
                    tokio::spawn(page(Arc::clone(&seen), address.clone(), number));
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        let began = Instant::now();
        while self.connected() < pages {
            if self.lost() > 0 || began.elapsed() > PATIENCE {
                let (there, lost) = (self.connected(), self.lost());
                return Err(format!("only {there} of {pages} pages are connected, {lost} were refused or lost").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Somebody asks the API, and a few pages are looked at.
    pub fn ask(&self) {
        self.others.spawn(asking(Arc::clone(&self.seen), self.address.clone()));
        for number in 0..LOOKED_AT {
            self.others.spawn(looked_at(Arc::clone(&self.seen), self.address.clone(), number));
        }
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
        for noted in [&self.seen.messages, &self.seen.fetched] {
            lock(noted).values_mut().for_each(|noted| {
                noted.drain(..noted.len().saturating_sub(1));
            });
        }
        lock(&self.seen.asked).iter_mut().for_each(Vec::clear);
        self.seen.failed.store(0, Ordering::Relaxed);
        self.seen.taken.store(0, Ordering::Relaxed);
    }

    /// How old events were when a page had them, for every event and every page that is noted. An event is had with
    /// what is as of it or a later one.
    fn staleness(&self, noted: &Noted) -> Spread {
        let events = lock(&self.seen.events);
        let mut delays = Vec::new();
        for noted in lock(noted).values() {
            for pair in noted.windows(2) {
                let [before, message] = pair else { continue };
                for (_, at) in events.range(before.sequence + 1..=message.sequence) {
                    delays.push(Duration::from_micros(u64::try_from(message.at - at).unwrap_or(0)));
                }
            }
        }
        Spread::new(delays)
    }

    /// Since then, from an event to a page that is told of it.
    pub fn told(&self) -> Spread {
        self.staleness(&self.seen.messages)
    }

    /// Since then, from an event to a page that shows it.
    pub fn shown(&self) -> Spread {
        self.staleness(&self.seen.fetched)
    }

    /// How many messages all pages took since then.
    pub fn messages(&self) -> usize {
        self.seen.taken.load(Ordering::Relaxed)
    }

    /// How long the API took since then for each of [`ASKED`].
    pub fn asked(&self) -> Vec<Vec<Duration>> {
        lock(&self.seen.asked).to_vec()
    }

    /// How often it, or a page, did not answer well.
    pub fn failed(&self) -> usize {
        self.seen.failed.load(Ordering::Relaxed)
    }
}
