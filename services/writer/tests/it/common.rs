//! A partition to try the writer on: capacity's state, and rules that misbehave for some tenants.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_capacity_state::{Capacity, CapacityLive};
use gatelog_deciding::{Context, Refusal, Rules};
use gatelog_event_log::history::verify;
use gatelog_event_log::{Blobs, HistoryReader, Log, MemoryBlobs, MemoryLog, Offset, ReadLimit, Step};
use gatelog_record::draft::capacity::{LeaseAsked, LeaseDescription, LeaseEnded, WorkerSeen};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::partition::TimerSet;
use gatelog_record::event::{CapacityEvent, PartitionEvent};
use gatelog_record::input::{CapacityInput, PartitionInput};
use gatelog_record::{
    BlobHash, BuildId, Domain, Event, EventRecord, Input, InputId, InputRecord, LeaseId, Partition, Stream, Timestamp,
};
use gatelog_rules_capacity::CapacityRules;
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{LiveTables, Maps, TableSet};
use gatelog_writer::{Initial, ManualClock, Options, Published, Setup, Writer};

/// The partition most tests are about.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// The partition that gets its messages.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// When every test begins.
pub const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// Capacity's rules, but for some tenants they go wrong, each in its own way.
#[derive(Default)]
pub struct Touchy {
    inner: CapacityRules,
    held: BTreeSet<BlobHash>,
}

impl Rules for Touchy {
    type State = Capacity;

    fn needs(&self, _: &CapacityLive<Maps>, input: &InputRecord) -> Vec<BlobHash> {
        match &input.input {
            Input::Capacity(CapacityInput::LeaseAsked(ask)) if ask.share == "blobby" => {
                [ask.spec].into_iter().filter(|hash| !self.held.contains(hash)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn admit(&mut self, hash: BlobHash, bytes: &[u8]) -> Result<(), String> {
        if bytes.starts_with(b"nonsense") {
            return Err("it is no spec".to_owned());
        }
        self.held.insert(hash);
        Ok(())
    }

    fn decide(&self, state: &CapacityLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        match &input.input {
            Input::Capacity(CapacityInput::LeaseAsked(ask)) => match ask.share.as_str() {
                "cursed" => panic!("a canary name stands in this message: {}", ask.description.title),
                "liar" => {
                    return Ok(vec![Event::Capacity(CapacityEvent::LeaseEnded(LeaseEnded {
                        lease: LeaseId([9; 16]),
                        reason: "finished".to_owned(),
                        tell_owner: false,
                        message: String::new(),
                    }))]);
                }
                "timed" => {
                    let due_at = context.now.plus_seconds(i64::from(ask.owner.subject.attempt));
                    return Ok(vec![
                        PartitionEvent::TimerSet(TimerSet { timer: ask.description.title.clone(), due_at }).into(),
                    ]);
                }
                _ => {}
            },
            Input::Partition(PartitionInput::TimerDue(due)) => match due.timer.as_str() {
                "cursed timer" => panic!("cursed"),
                "periodic" => {
                    // One for all missed ticks: the next lies ahead.
                    let due_at = context.now.plus_seconds(60);
                    let timer = due.timer.clone();
                    return Ok(vec![PartitionEvent::TimerSet(TimerSet { timer, due_at }).into()]);
                }
                _ => {}
            },
            // As the receiver of capacity's messages.
            Input::Gate(_) | Input::Partition(PartitionInput::LeaseLost(_)) => return Ok(Vec::new()),
            _ => {}
        }
        self.inner.decide(state, input, context)
    }
}

/// A site with a log, blobs and a clock.
pub struct Site {
    pub log: MemoryLog,
    pub blobs: MemoryBlobs,
    pub clock: Arc<ManualClock>,
}

impl Site {
    pub fn new() -> Site {
        Site::on(MemoryLog::default())
    }

    pub fn on(log: MemoryLog) -> Site {
        Site { log, blobs: MemoryBlobs::new(), clock: Arc::new(ManualClock::at(START)) }
    }

    pub fn setup(&self, partition: Partition, options: Options) -> Setup<Touchy> {
        Setup {
            log: Arc::new(self.log.clone()),
            blobs: Arc::new(self.blobs.clone()) as Arc<dyn Blobs>,
            clock: Arc::clone(&self.clock) as Arc<dyn gatelog_writer::Clock>,
            partition,
            rules: Arc::new(Touchy::default),
            tables: |live| &live.partition,
            initial: Box::new(Initial::genesis),
            published: Published::new(partition),
            options,
        }
    }

    pub fn writer(&self) -> Writer {
        Writer::start(self.setup(CAPACITY, quick())).unwrap()
    }

    /// Appends an input; gives its offset.
    pub fn say(&self, input: &InputRecord) -> Offset {
        self.say_bytes(input.close().unwrap().encode())
    }

    pub fn say_bytes(&self, bytes: Vec<u8>) -> Offset {
        self.log.append_inputs(Stream::Inputs(CAPACITY), vec![bytes]).wait().unwrap().unwrap()[0]
    }

    /// The partition's history so far, which must be sound.
    pub fn history(&self, partition: Partition) -> Vec<EventRecord> {
        let report = verify(&self.log, partition);
        assert_eq!(report.error, None);
        let mut reader = HistoryReader::from_genesis(partition);
        let mut history = Vec::new();
        let mut from = Offset::default();
        loop {
            let batch = self.log.read(Stream::Events(partition), from, ReadLimit::default()).unwrap();
            if batch.records.is_empty() {
                return history;
            }
            for record in &batch.records {
                if let Step::Event(record, _) = reader.next(record).unwrap() {
                    history.push(*record);
                }
            }
            from = batch.next;
        }
    }

    /// The history folded from nothing.
    pub fn fold(&self, partition: Partition) -> CapacityLive<Maps> {
        let mut live = CapacityLive::in_memory();
        let mut recorded_at = Timestamp(0);
        for record in self.history(partition) {
            assert!(record.recorded_at >= recorded_at, "recorded_at went back");
            recorded_at = record.recorded_at;
            live.apply(&record).unwrap();
        }
        live
    }

    /// The events of the decision on the input at this offset.
    pub fn decision(&self, offset: Offset) -> Vec<EventRecord> {
        let cause = gatelog_record::Cause::Input { offset: offset.0 };
        self.history(CAPACITY).into_iter().filter(|record| record.cause == cause).collect()
    }

    /// The names of those events.
    pub fn names(&self, offset: Offset) -> Vec<&'static str> {
        self.decision(offset).iter().map(|record| record.event.name()).collect()
    }
}

/// Options that lose no time.
pub fn quick() -> Options {
    Options { build: "test".to_owned(), backoff: Duration::from_millis(1), ..Options::default() }
}

/// Waits until something is so.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn build(name: &str) -> BuildId {
    let mut id = [0; 16];
    id.copy_from_slice(&BlobHash::of(name.as_bytes()).0[..16]);
    BuildId(id)
}

pub fn asks(tenant: &str, name: &str) -> InputRecord {
    asks_with(tenant, name, |_| {})
}

pub fn asks_with(tenant: &str, name: &str, change: impl FnOnce(&mut LeaseAsked)) -> InputRecord {
    let mut ask = LeaseAsked {
        owner: build_owner(tenant, build(name), 1),
        share: tenant.to_owned(),
        description: LeaseDescription { title: name.to_owned(), facts: Vec::new() },
        spec: BlobHash::of(name.as_bytes()),
        nodes: Vec::new(),
        semaphores: Vec::new(),
        priority: 200,
        or_others: false,
    };
    change(&mut ask);
    InputRecord::new(InputId::new(format!("ask {name}")), "main", START, CapacityInput::LeaseAsked(ask))
}

pub fn worker(name: &str, incarnation: u32, slots: u32) -> InputRecord {
    let seen = WorkerSeen {
        worker: name.to_owned(),
        incarnation: incarnation.to_string(),
        started_at: Timestamp(START.0 + i64::from(incarnation)),
        address: "localhost".to_owned(),
        slots,
        labels: Vec::new(),
    };
    let id = InputId::new(format!("worker {name} {incarnation} {slots}"));
    InputRecord::new(id, "main", START, CapacityInput::WorkerSeen(seen))
}

/// The digest of live tables.
pub fn digest(live: &CapacityLive<Maps>) -> [u8; 32] {
    let mut digest = StateDigest::default();
    TableSet::<Maps>::visit(live, &mut digest).unwrap();
    digest.finish()
}
