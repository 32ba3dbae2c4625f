//! A site whose gate says what the test has it say, served on loopback.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gatelog_capacity_state::Capacity;
use gatelog_event_log::{Blobs, EventWriter, Log, MemoryBlobs, MemoryLog};
use gatelog_gate_state::Gate;
use gatelog_record::draft::partition::WriterStarted;
use gatelog_record::event::{GateEvent, PartitionEvent};
use gatelog_record::{
    ActorId, BuildId, Cause, ChainLink, Domain, Event, EventId, EventRecord, Partition, SiteId, Timestamp,
};
use gatelog_replay::Timeline;
use gatelog_runner::{Runner, RunnerConfig};
use gatelog_store::{Layout, RungDir};
use gatelog_web::site::ConsoleRead;
use gatelog_web::{ConsoleChunk, ConsoleSource, Consoles, PartHealth, Site, TimelinePast};
use serde_json::Value as Json;

pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// When the first event is recorded: 2026-01-01T00:00:00Z. Each later one comes a second after.
pub const BEGAN: i64 = 1_767_225_600;

/// One who appends the gate's events.
pub struct Gatekeeper {
    log: MemoryLog,
    writer: Mutex<(Box<dyn EventWriter>, ChainLink, u64)>,
}

impl Gatekeeper {
    pub fn new() -> Gatekeeper {
        let log = MemoryLog::new(Default::default());
        let (claim, writer) = log.claim(GATE).unwrap();
        let keeper = Gatekeeper { log, writer: Mutex::new((writer, claim.last_link, 0)) };
        keeper.append(Event::Partition(PartitionEvent::WriterStarted(WriterStarted {
            term: 1,
            build: "test".into(),
            registry: [0; 32],
            site: SiteId([0x67; 16]),
            generation: 1,
        })));
        keeper
    }

    /// Appends an event and gives its sequence.
    pub fn say(&self, event: GateEvent) -> u64 {
        self.append(Event::Gate(event))
    }

    fn append(&self, event: Event) -> u64 {
        let mut writer = self.writer.lock().unwrap();
        let sequence = writer.2 + 1;
        let at = Timestamp((BEGAN + sequence as i64) * 1_000_000);
        let record = EventRecord {
            sequence,
            term: 1,
            recorded_at: at,
            wall_at: at,
            id: EventId([0; 16]),
            cause: Cause::Start,
            actor: ActorId::SYSTEM,
            key: "demo".into(),
            traceparent: String::new(),
            decision: None,
            event,
        };
        let (bytes, link) = record.close().unwrap().encode(&writer.1);
        writer.0.append(vec![bytes]).wait().unwrap().unwrap();
        (writer.1, writer.2) = (link, sequence);
        sequence
    }

    pub fn log(&self) -> Arc<dyn Log> {
        Arc::new(self.log.clone())
    }
}

/// Consoles the test writes: bytes so far, and whether they are over.
#[derive(Clone, Default)]
pub struct TestConsoles(Arc<Mutex<BTreeMap<(BuildId, u32), (Vec<u8>, bool)>>>);

impl TestConsoles {
    pub fn write(&self, build: BuildId, attempt: u32, text: &str, over: bool) {
        let mut all = self.0.lock().unwrap();
        let console = all.entry((build, attempt)).or_default();
        console.0.extend_from_slice(text.as_bytes());
        console.1 = over;
    }
}

impl Consoles for TestConsoles {
    fn open(&self, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>> {
        self.0
            .lock()
            .unwrap()
            .contains_key(&(build, attempt))
            .then(|| Box::new(TestConsole { consoles: self.clone(), of: (build, attempt) }) as Box<dyn ConsoleSource>)
    }
}

struct TestConsole {
    consoles: TestConsoles,
    of: (BuildId, u32),
}

impl ConsoleSource for TestConsole {
    fn read_from(&self, offset: u64, max: usize, patience: Duration) -> ConsoleRead<'_> {
        Box::pin(async move {
            let began = tokio::time::Instant::now();
            loop {
                {
                    let all = self.consoles.0.lock().unwrap();
                    let (said, over) = all.get(&self.of).unwrap();
                    let rest = said.get(offset as usize..).unwrap_or_default();
                    let bytes = rest[..rest.len().min(max)].to_vec();
                    let next = offset + bytes.len() as u64;
                    if !bytes.is_empty() || *over || began.elapsed() >= patience {
                        return Ok(ConsoleChunk { ended: *over && next >= said.len() as u64, bytes, next });
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }
}

/// A served site.
pub struct Served {
    pub base: String,
    pub http: reqwest::Client,
    pub consoles: TestConsoles,
    gate: Runner<Gate>,
    _capacity: Runner<Capacity>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub position: Option<String>,
    pub etag: Option<String>,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Served {
    /// Serves what a gate says, from projections below a directory.
    pub async fn start(keeper: &Gatekeeper, blobs: &MemoryBlobs, dir: &Path, rung_every: u64) -> Served {
        let config = RunnerConfig { rung_every, ..RunnerConfig::new(dir) };
        let gate = Runner::<Gate>::start(keeper.log(), GATE, config.clone()).unwrap();
        let capacity = Runner::<Capacity>::start(keeper.log(), CAPACITY, config).unwrap();
        let consoles = TestConsoles::default();
        let rungs = (rung_every > 0).then(|| RungDir::new(Layout::new(dir, GATE).rungs()));
        let blobs: Arc<dyn Blobs> = Arc::new(blobs.clone());
        let site = Site {
            gate: gate.projection(),
            gate_fold: gate.published(),
            capacity: capacity.projection(),
            capacity_fold: capacity.published(),
            blobs,
            past: Arc::new(TimelinePast::new(Timeline::new(keeper.log(), GATE, rungs))),
            consoles: Arc::new(consoles.clone()),
            health: Arc::new(Vec::<PartHealth>::new),
            drivers: BTreeMap::from([("forge".to_owned(), "git".to_owned())]),
            version: "1.2.3".into(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(gatelog_web::serve(listener, gatelog_web::router(site), async move {
            let _ = stopped.await;
        }));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Served { base, http, consoles, gate, _capacity: capacity, _stop: stop }
    }

    /// Waits until the fold has reached an event.
    pub async fn reached(&self, sequence: u64) {
        let mut fold = self.gate.published().subscribe();
        tokio::time::timeout(Duration::from_secs(30), fold.reached(sequence)).await.unwrap().unwrap();
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(path, &[]).await
    }

    pub async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.http.get(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("access-control-allow-origin").as_deref(), Some("*"), "{path}");
        let (position, etag) = (header("gatelog-position"), header("etag"));
        Answer { status: response.status().as_u16(), position, etag, text: response.text().await.unwrap() }
    }

    /// A document that must be there.
    pub async fn json(&self, path: &str) -> Json {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }
}

/// Messages of a stream of events, as they come.
pub struct Messages {
    response: reqwest::Response,
    buffer: String,
}

impl Messages {
    pub async fn open(served: &Served, path: &str, last: Option<u64>) -> Messages {
        let mut request = served.http.get(format!("{}{path}", served.base));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Messages { response, buffer: String::new() }
    }

    /// The next message: its id and its data.
    pub async fn next(&mut self) -> (u64, Json) {
        loop {
            if let Some((message, rest)) = self.buffer.split_once("\n\n") {
                let (message, rest) = (message.to_owned(), rest.to_owned());
                self.buffer = rest;
                let field = |name: &str| {
                    message.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
                };
                let (Some(id), Some(data)) = (field("id:"), field("data:")) else { continue };
                return (id.parse().unwrap(), serde_json::from_str(&data).unwrap());
            }
            let piece = tokio::time::timeout(Duration::from_secs(30), self.response.chunk()).await.unwrap();
            self.buffer.push_str(std::str::from_utf8(&piece.unwrap().expect("the stream goes on")).unwrap());
        }
    }
}
