//! Null executors: workers that speak with the log as the role `executor` does, and run nothing. Those of one process
//! read the log once for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gatelog_benches::Failure;
use gatelog_benches::opendev::{CAPACITY, GATE};
use gatelog_event_log::{Log, Offset, Presence, ReadLimit};
use gatelog_record::draft::capacity::{LeaseGranted, LeaseReleased, WorkerSeen};
use gatelog_record::draft::gate::{AttemptFinished, AttemptStarted, BuildResult};
use gatelog_record::event::CapacityEvent;
use gatelog_record::input::{CapacityInput, GateInput, Input};
use gatelog_record::{Envelope, Event, InputId, InputRecord, LeaseId, Partition, Stream, Timestamp, Value};
use serde_json::json;

const INCARNATION: &str = "first";
/// How often a worker gives a sign.
const SIGN_EVERY: Duration = Duration::from_secs(3);

/// The workers.
pub struct Null {
    stop: Arc<AtomicBool>,
    running: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    log: Arc<dyn Log>,
    stop: Arc<AtomicBool>,
    running: Arc<AtomicUsize>,
    /// So many of the leases granted first last until the end.
    lasting: usize,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn name(worker: usize) -> String {
    format!("null-{worker:02}")
}

impl Null {
    /// So many workers with so many slots each; the first builds last until the end, all others are over at once.
    pub fn start(
        log: Arc<dyn Log>,
        presence: Arc<dyn Presence>,
        workers: usize,
        slots: u32,
        lasting: usize,
    ) -> Result<Null, Failure> {
        let (stop, running) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let started = now();
        let signing = Arc::clone(&stop);
        let sign = move || {
            while !signing.load(Ordering::Relaxed) {
                for worker in 0..workers {
                    let body = json!({
                        "name": name(worker), "incarnation": INCARNATION, "roles": ["executor"], "state": "running",
                        "address": "127.0.0.1:1", "web": null, "version": "null", "slots": slots,
                        "started_at": started.0,
                    });
                    // One that is missed is given again.
                    let _ = presence.sign(&name(worker), body.to_string().into_bytes());
                }
                let began = Instant::now();
                while began.elapsed() < SIGN_EVERY && !signing.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        };
        let inner = Inner { log, stop: Arc::clone(&stop), running: Arc::clone(&running), lasting };
        for worker in 0..workers {
            let offer = WorkerSeen {
                worker: name(worker),
                incarnation: INCARNATION.into(),
                started_at: started,
                address: "127.0.0.1:1".into(),
                slots,
                labels: Vec::new(),
            };
            inner.append(
                CAPACITY,
                format!("worker/{}/{INCARNATION}", name(worker)),
                "main",
                CapacityInput::WorkerSeen(offer),
            );
        }
        let threads = vec![
            std::thread::Builder::new().name("null-presence".into()).spawn(sign)?,
            std::thread::Builder::new().name("null-workers".into()).spawn(move || inner.follow())?,
        ];
        Ok(Null { stop, running, threads })
    }

    /// How many builds run.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Whatever it died of was printed.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn follow(&self) {
        let stream = Stream::Events(CAPACITY);
        let mut next = Offset(0);
        let mut held: BTreeMap<LeaseId, LeaseGranted> = BTreeMap::new();
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(batch) = self.log.read(stream, next, ReadLimit::default()) else { return };
            next = batch.next;
            if batch.records.is_empty() {
                let _ = self.log.changed(stream, next).wait_for(Duration::from_millis(100));
            }
            for record in batch.records {
                let event = Envelope::decode(&record.bytes).ok().and_then(|(envelope, _)| envelope.open().ok());
                match event.map(|record| record.event) {
                    Some(Event::Capacity(CapacityEvent::LeaseGranted(granted))) => self.begin(granted, &mut held),
                    Some(Event::Capacity(CapacityEvent::LeaseRevoked(revoked))) => {
                        held.remove(&revoked.lease).iter().for_each(|run| self.release(run));
                    }
                    _ => {}
                }
            }
            self.running.store(held.len(), Ordering::Relaxed);
        }
    }

    fn begin(&self, run: LeaseGranted, held: &mut BTreeMap<LeaseId, LeaseGranted>) {
        let Some((build, attempt)) = run.owner.build() else { return };
        let started = AttemptStarted {
            tenant: run.owner.key.clone(),
            build,
            attempt,
            lease: run.lease,
            worker: run.worker.clone(),
            started_at: now(),
        };
        self.tell(&run, "started", GateInput::AttemptStarted(started));
        if held.len() < self.lasting {
            held.insert(run.lease, run);
            return;
        }
        let finished = AttemptFinished {
            tenant: run.owner.key.clone(),
            build,
            attempt,
            worker: run.worker.clone(),
            result: BuildResult::Success,
            started_at: now(),
            finished_at: now(),
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        self.tell(&run, "finished", GateInput::AttemptFinished(finished));
        self.release(&run);
    }

    fn release(&self, run: &LeaseGranted) {
        let released =
            LeaseReleased { lease: run.lease, worker: run.worker.clone(), incarnation: run.incarnation.clone() };
        self.append(CAPACITY, format!("lease/{}/released", run.lease), "main", CapacityInput::LeaseReleased(released));
    }

    fn tell(&self, run: &LeaseGranted, what: &str, input: GateInput) {
        self.append(GATE, format!("{}/{what}", run.owner.subject), &run.owner.key, input);
    }

    /// Nothing here has to wait until it is acknowledged: what is lost is lost for the figures.
    fn append(&self, to: Partition, id: String, key: &str, input: impl Into<Input>) {
        if let Ok(frame) = InputRecord::new(InputId::new(id), key, now(), input).close() {
            drop(self.log.append_inputs(Stream::Inputs(to), vec![frame.encode()]));
        }
    }
}
