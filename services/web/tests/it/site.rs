//! A site whose gate says what the test has it say, served on loopback.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gatelog_capacity_state::Capacity;
use gatelog_event_log::{Blobs, EventWriter, Log, MemoryBlobs, MemoryLog};
use gatelog_gate_state::Gate;
use gatelog_log_files::{Digest, KeptFile, Manifest, Removal, Rules};
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseGranted, LeaseQueued, LeaseWaitChanged, NodeGrant, WorkerJoined, WorkerSeen,
};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::gate::described;
use gatelog_record::draft::partition::WriterStarted;
use gatelog_record::event::{CapacityEvent, GateEvent, PartitionEvent};
use gatelog_record::{
    ActorId, BlobHash, BuildId, Cause, ChainLink, Domain, Event, EventId, EventRecord, LeaseId, Partition, SiteId,
    Timestamp, codec,
};
use gatelog_replay::what_if::{Answer as WhatIfAnswer, Divergence, InputNear, OutcomeDifference};
use gatelog_rules_config::TenantSettings;
use gatelog_rules_config::authorization::Access;
use gatelog_runner::{Fold, Folded, Health, Runner, RunnerConfig};
use gatelog_store::{Layout, RungDir};
use gatelog_web::auth::Authenticators;
use gatelog_web::operators::NoOperators;
use gatelog_web::site::{ConsoleRead, LogsFuture};
use gatelog_web::what_if::{Question, WhatIfs};
use gatelog_web::{
    Component, ConsoleChunk, ConsoleSource, Consoles, FoundLogs, JobLogs, PartHealth, PublicKey, Site, TimelinePast,
};
use serde_json::Value as Json;

pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// When the first event is recorded: 2026-01-01T00:00:00Z. Each later one comes a second after.
pub const BEGAN: i64 = 1_767_225_600;

/// How many streams a site has room for where a test does not say.
const STREAMS: usize = 8_192;

/// One who appends events of one partition.
struct Teller {
    writer: Box<dyn EventWriter>,
    link: ChainLink,
    last: u64,
}

impl Teller {
    fn new(log: &MemoryLog, partition: Partition) -> Teller {
        let (claim, writer) = log.claim(partition).unwrap();
        let mut teller = Teller { writer, link: claim.last_link, last: claim.last_sequence };
        teller.append(Event::Partition(PartitionEvent::WriterStarted(WriterStarted {
            term: 1,
            build: "test".into(),
            registry: [0; 32],
            site: SiteId([0x67; 16]),
            generation: 1,
        })));
        teller
    }

    fn append(&mut self, event: Event) -> u64 {
        self.last += 1;
        let at = Timestamp((BEGAN + self.last as i64) * 1_000_000);
        let record = EventRecord {
            sequence: self.last,
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
        let (bytes, link) = record.close().unwrap().encode(&self.link);
        self.writer.append(vec![bytes]).wait().unwrap().unwrap();
        self.link = link;
        self.last
    }
}

/// One who appends the gate's events.
pub struct Gatekeeper {
    log: MemoryLog,
    gate: Mutex<Teller>,
}

impl Gatekeeper {
    pub fn new() -> Gatekeeper {
        let log = MemoryLog::new(Default::default());
        let gate = Mutex::new(Teller::new(&log, GATE));
        Gatekeeper { log, gate }
    }

    /// Appends an event and gives its sequence.
    pub fn say(&self, event: GateEvent) -> u64 {
        self.gate.lock().unwrap().append(Event::Gate(event))
    }

    pub fn log(&self) -> Arc<dyn Log> {
        Arc::new(self.log.clone())
    }
}

/// Consoles the test writes, makes up, or has out of reach.
#[derive(Clone, Default)]
pub struct TestConsoles(Arc<Mutex<BTreeMap<(BuildId, u32), Said>>>, Stored);

/// What is stored of consoles.
type Stored = Arc<Mutex<BTreeMap<(BuildId, u32), Vec<u8>>>>;
/// A console too large to be held: its length, and what it holds from an offset on, up to so many bytes.
type Made = (u64, fn(u64, usize) -> Vec<u8>);

enum Said {
    /// Bytes so far, and whether they are over.
    Bytes(Vec<u8>, bool),
    Made(Made),
    /// Why it cannot be read.
    Away(String),
}

impl TestConsoles {
    pub fn write(&self, build: BuildId, attempt: u32, text: &str, over: bool) {
        let mut all = self.0.lock().unwrap();
        let console = all.entry((build, attempt)).or_insert_with(|| Said::Bytes(Vec::new(), false));
        let Said::Bytes(bytes, ended) = console else { panic!("it is not written") };
        bytes.extend_from_slice(text.as_bytes());
        *ended = over;
    }

    pub fn make(&self, build: BuildId, attempt: u32, length: u64, made: fn(u64, usize) -> Vec<u8>) {
        self.0.lock().unwrap().insert((build, attempt), Said::Made((length, made)));
    }

    pub fn away(&self, build: BuildId, attempt: u32, why: &str) {
        self.0.lock().unwrap().insert((build, attempt), Said::Away(why.to_owned()));
    }

    pub fn forget(&self, build: BuildId, attempt: u32) {
        self.0.lock().unwrap().remove(&(build, attempt));
    }

    pub fn store(&self, build: BuildId, attempt: u32, text: &str) {
        self.1.lock().unwrap().insert((build, attempt), text.as_bytes().to_vec());
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

    fn stored(&self, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>> {
        let stored = self.1.lock().unwrap().get(&(build, attempt)).cloned()?;
        Some(Box::new(StoredConsole(stored)))
    }
}

struct StoredConsole(Vec<u8>);

impl ConsoleSource for StoredConsole {
    fn read_from(&self, offset: u64, max: usize, _: Duration) -> ConsoleRead<'_> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let bytes = rest[..rest.len().min(max)].to_vec();
        let next = offset + bytes.len() as u64;
        let ended = next >= self.0.len() as u64;
        Box::pin(async move { Ok(ConsoleChunk { bytes, next, ended }) })
    }
}

/// Logs the test writes.
#[derive(Clone, Default)]
pub struct TestLogs(Arc<Mutex<BTreeMap<(BuildId, u32), FoundLogs>>>, Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl TestLogs {
    /// Keeps these files of an attempt.
    pub fn keep(&self, build: BuildId, attempt: u32, files: &[(&str, &str, &[u8])]) {
        let mut manifest = Manifest::new(build, attempt, "worker-1");
        for (number, (path, mime, bytes)) in files.iter().enumerate() {
            let (path, mime, size) = ((*path).to_owned(), (*mime).to_owned(), bytes.len() as u64);
            self.1.lock().unwrap().insert(path.clone(), bytes.to_vec());
            manifest.files.push(KeptFile { path, mime, size, digest: Some(Digest([number as u8; 32])) });
        }
        manifest.leave_out("evil/<link>", "it is a symbolic link");
        self.0.lock().unwrap().insert((build, attempt), FoundLogs::Kept(manifest));
    }

    pub fn remove(&self, build: BuildId, attempt: u32, rule: &str) {
        let removal = Removal {
            build: build.to_string(),
            attempt,
            removed_ms: BEGAN * 1000,
            ended_ms: 0,
            rule: rule.to_owned(),
            files: 3,
            bytes: 4_000,
        };
        self.0.lock().unwrap().insert((build, attempt), FoundLogs::Removed(removal));
    }
}

impl JobLogs for TestLogs {
    fn find(&self, build: BuildId, attempt: u32) -> LogsFuture<'_, Option<FoundLogs>> {
        let found = self.0.lock().unwrap().get(&(build, attempt)).cloned();
        Box::pin(async move { Ok(found) })
    }

    fn open<'a>(&'a self, _: BuildId, _: u32, file: &'a KeptFile) -> LogsFuture<'a, Option<Box<dyn ConsoleSource>>> {
        let bytes = self.1.lock().unwrap().get(&file.path).cloned();
        Box::pin(async move { Ok(bytes.map(|bytes| Box::new(StoredConsole(bytes)) as Box<dyn ConsoleSource>)) })
    }

    fn rules(&self) -> Rules {
        Rules { keep_days: Some(30), keep_bytes: None }
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
                    let (bytes, length, over) = match all.get(&self.of).unwrap() {
                        Said::Bytes(said, over) => {
                            let rest = said.get(offset as usize..).unwrap_or_default();
                            (rest[..rest.len().min(max)].to_vec(), said.len() as u64, *over)
                        }
                        Said::Made((length, made)) => {
                            let size = length.saturating_sub(offset).min(max as u64) as usize;
                            (made(offset, size), *length, true)
                        }
                        Said::Away(why) => return Err(std::io::Error::other(why.clone())),
                    };
                    let next = offset + bytes.len() as u64;
                    if !bytes.is_empty() || over || began.elapsed() >= patience {
                        return Ok(ConsoleChunk { ended: over && next >= length, bytes, next });
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }
}

/// A gigabyte of lines of a hundred bytes each.
pub const GIGABYTE: Made = (1 << 30, |offset, size| {
    use std::io::Write;
    let (mut out, mut line) = (Vec::with_capacity(size + 200), offset / 100);
    let skip = (offset % 100) as usize;
    while out.len() < skip + size {
        let end = out.len() + 99;
        let said = if line + 1 == 9_000_000 { "FAILED here" } else { "said" };
        write!(out, "line {} {said}", line + 1).unwrap();
        out.resize(end, b'.');
        out.push(b'\n');
        line += 1;
    }
    out.drain(..skip);
    out.truncate(size);
    out
});

/// A line, a hundred megabytes of one line, a line.
pub const LONG_LINE: Made = (6 + (100 << 20) + 1 + 5, |offset, size| {
    let at = |place: u64| match place {
        0..6 => b"first\n"[place as usize],
        _ if place < 6 + (100 << 20) => b'x',
        _ => b"\nlast\n"[(place - 6 - (100 << 20)) as usize],
    };
    (offset..offset + size as u64).map(at).collect()
});

/// The settings of tenants at which everybody may look, as a blob.
pub fn open_settings(tenants: &[&str]) -> Vec<u8> {
    let mut settings = TenantSettings::default();
    for tenant in tenants {
        settings.authorization.tenants.insert((*tenant).to_owned(), Access::default());
    }
    codec::encode(&settings).unwrap()
}

/// Answers every question alike, once it was given time; one that changes an input is never answered.
struct WhatIfsOfTheStory;

impl WhatIfs for WhatIfsOfTheStory {
    fn inputs_near(&self, gate: u64, most: usize) -> Result<Vec<InputNear>, String> {
        let near = |sequence: u64| InputNear {
            place: format!("intake/0:{sequence}"),
            sequence,
            at: Timestamp((BEGAN + sequence as i64) * 1_000_000),
            kind: "trigger-received".into(),
            tenant: "demo".into(),
            says: format!("change-approved of <b>master/add-miles</b> in forge.example/library ({sequence})"),
        };
        Ok((1..=gate).rev().take(most.min(5)).map(near).collect())
    }

    fn answer(&self, question: &Question, cancelled: &dyn Fn() -> bool) -> Result<WhatIfAnswer, String> {
        while !question.change.is_empty() {
            if cancelled() {
                return Err("cancelled".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(files) = question.config.get("broken") {
            return Err(format!("{} files cannot be read", files.len()));
        }
        let item = |result: &str, merged| {
            serde_json::json!({ "result": result, "code": "reported", "merged": merged, "resets": 0,
                "jobs": { "unit": { "result": result, "attempts": 1 } } })
        };
        let (a, b, c) = ("demo gate <b>a</b>", "demo gate b", "demo gate c");
        let recorded = serde_json::json!({ "items": { a: item("SUCCESS", true), b: item("FAILURE", false), c: item("SUCCESS", true) },
            "merges": [a, c], "left": [a, b, c], "attempts": { "SUCCESS": 2, "FAILURE": 1 }, "node_ms": 7_200_000, "leases": 3 });
        let now = serde_json::json!({ "items": { b: item("SUCCESS", true), c: item("SUCCESS", true) },
            "merges": [c, b], "left": [c, b], "attempts": { "SUCCESS": 2 }, "node_ms": 3_600_000, "leases": 2 });
        let outcome = |json: &Json| serde_json::from_value(json.clone()).map_err(|error| error.to_string());
        let (recorded, now) = (outcome(&recorded)?, outcome(&now)?);
        Ok(WhatIfAnswer {
            version: gatelog_replay::what_if::VERSION,
            until: BTreeMap::from([("gate/0".to_owned(), question.at.unwrap_or(50))]),
            same_decisions: 12,
            divergence: Some(Divergence {
                partition: "gate/0".into(),
                sequence: 9,
                at: "2026-01-01T00:00:09Z".into(),
                input_offset: 3,
                input: "gate.in.trigger-received".into(),
                why: "without".into(),
                what: "the input never came".into(),
                recorded: vec![serde_json::json!({ "kind": "gate.item-enqueued" })],
                now: Vec::new(),
            }),
            difference: OutcomeDifference::between(&recorded, &now),
            recorded,
            now,
            rules: vec!["a job that never ran succeeds".into()],
            assumed: BTreeMap::from([("a job that never ran succeeds".to_owned(), 4)]),
        })
    }
}

/// A served site.
pub struct Served {
    pub base: String,
    pub http: reqwest::Client,
    pub consoles: TestConsoles,
    pub job_logs: TestLogs,
    /// Where it answers finger requests.
    pub finger: std::net::SocketAddr,
    /// How the parts are that the API cannot see by itself.
    pub parts: Arc<Mutex<Vec<PartHealth>>>,
    /// Whether the process is about to end, and why.
    pub leaving: Arc<Mutex<Option<String>>>,
    /// Who is there.
    pub present: Arc<Mutex<Vec<Component>>>,
    gate: Runner<Gate>,
    capacity: Runner<Capacity>,
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
        Served::start_with(keeper, blobs, dir, rung_every, (STREAMS, Authenticators::none())).await
    }

    /// The same, with room for so many streams, and with those who can say who somebody is.
    pub async fn start_with(
        keeper: &Gatekeeper,
        blobs: &MemoryBlobs,
        dir: &Path,
        rung_every: u64,
        (streams, authenticators): (usize, Authenticators),
    ) -> Served {
        let config = RunnerConfig { rung_every, ..RunnerConfig::new(dir) };
        let gate = Runner::<Gate>::start(keeper.log(), GATE, config.clone()).unwrap();
        let capacity = Runner::<Capacity>::start(keeper.log(), CAPACITY, config).unwrap();
        let (consoles, job_logs) = (TestConsoles::default(), TestLogs::default());
        let rungs = |of| (rung_every > 0).then(|| RungDir::new(Layout::new(dir, of).rungs()));
        let past = TimelinePast::new(keeper.log(), &[GATE, CAPACITY], rungs);
        let blobs: Arc<dyn Blobs> = Arc::new(blobs.clone());
        let parts = Arc::new(Mutex::new(Vec::<PartHealth>::new()));
        let leaving = Arc::new(Mutex::new(None::<String>));
        let present = Arc::new(Mutex::new(Vec::<Component>::new()));
        let site = Site {
            gate: gate.projection(),
            gate_fold: gate.published(),
            capacity: capacity.projection(),
            capacity_fold: capacity.published(),
            folds: [Arc::new(Folded::of(&gate)) as Arc<dyn Fold>, Arc::new(Folded::of(&capacity))].into(),
            blobs,
            past: Arc::new(past),
            consoles: Arc::new(consoles.clone()),
            job_logs: Arc::new(job_logs.clone()),
            health: Arc::new({
                let parts = Arc::clone(&parts);
                move || parts.lock().unwrap().clone()
            }),
            leaving: Arc::new({
                let leaving = Arc::clone(&leaving);
                move || leaving.lock().unwrap().clone()
            }),
            components: Arc::new({
                let present = Arc::clone(&present);
                move || present.lock().unwrap().clone()
            }),
            keys: Arc::new(|key: &PublicKey| match key {
                PublicKey::Secrets { connection, project } => Ok(format!("the key of {project} on {connection}\n")),
                PublicKey::ProjectSsh { connection, project } => Ok(format!("ssh-rsa {project} on {connection}\n")),
                PublicKey::Tokens => Ok("{\"keys\":[{\"kid\":\"RS256-7\"}]}".to_owned()),
                PublicKey::TenantSsh { tenant } => Ok(format!("ssh-rsa {tenant}\n")),
            }),
            issuer: Some("https://ci.example.org".into()),
            authenticators: Arc::new(authenticators),
            operators: Arc::new(NoOperators),
            what_ifs: Arc::new(WhatIfsOfTheStory),
            calendar: gatelog_calendar::Calendar::named("UTC").unwrap(),
            drivers: BTreeMap::from([("forge".to_owned(), "plain-git".to_owned())]),
            streams,
            websocket_url: None,
            version: "1.2.3".into(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let finger_listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let finger = finger_listener.local_addr().unwrap();
        tokio::spawn(gatelog_web::serve_finger(finger_listener, site.clone(), std::future::pending()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(gatelog_web::serve(listener, gatelog_web::router(site), async move {
            let _ = stopped.await;
        }));
        // On a busy machine a fold of an empty log may take a while to say that there is nothing.
        for fold in [gate.published(), capacity.published()] {
            while fold.health() == Health::CatchingUp {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Served { base, http, consoles, job_logs, finger, parts, leaving, present, gate, capacity, _stop: stop }
    }

    /// Waits until the fold has reached an event.
    pub async fn reached(&self, sequence: u64) {
        let mut fold = self.gate.published().subscribe();
        tokio::time::timeout(Duration::from_secs(30), fold.reached(sequence)).await.unwrap().unwrap();
    }

    /// Has a worker join, wait for nothing and get the first attempt of a build.
    pub async fn worker_gets_a_lease(&self, keeper: &Gatekeeper, build: BuildId) -> LeaseId {
        let lease = LeaseId([0x1e; 16]);
        self.worker_gets(keeper, build, lease, Vec::new()).await;
        lease
    }

    /// The same by this lease, with these nodes.
    pub async fn worker_gets(&self, keeper: &Gatekeeper, build: BuildId, lease: LeaseId, nodes: Vec<NodeGrant>) {
        let ask = LeaseAsked {
            owner: build_owner("demo", build, 1),
            share: "demo".into(),
            description: described("demo", "gate", "unit"),
            spec: BlobHash::of(b"spec"),
            nodes: Vec::new(),
            semaphores: Vec::new(),
            priority: 200,
            or_others: false,
        };
        let offer = WorkerSeen {
            worker: "worker-1".into(),
            incarnation: "1".into(),
            started_at: Timestamp(0),
            address: "local".into(),
            slots: 2,
            labels: vec!["debian".into()],
        };
        let granted = LeaseGranted {
            lease,
            owner: build_owner("demo", build, 1),
            spec: ask.spec,
            nodes,
            worker: "worker-1".into(),
            incarnation: "1".into(),
            waited_ms: 1_000,
        };
        let wait = LeaseWaitChanged {
            lease,
            code: "no-worker".into(),
            subject: String::new(),
            detail: "no worker has joined".into(),
            since: Timestamp(BEGAN * 1_000_000),
        };
        let mut capacity = Teller::new(&keeper.log, CAPACITY);
        let mut last = 0;
        for event in [
            CapacityEvent::LeaseQueued(LeaseQueued { lease, ask }),
            CapacityEvent::WaitChanged(wait),
            CapacityEvent::WorkerJoined(WorkerJoined { offer }),
            CapacityEvent::LeaseGranted(granted),
        ] {
            last = capacity.append(Event::Capacity(event));
        }
        let mut fold = self.capacity.published().subscribe();
        tokio::time::timeout(Duration::from_secs(30), fold.reached(last)).await.unwrap().unwrap();
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
            self.buffer.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
    }
}
