//! The faked executor: takes what is granted, tells that it started, holds it, and ends it when it is told to. Nothing is
//! run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_benches::Failure;
use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_record::draft::capacity::{LeaseGranted, LeaseReleased, WorkerSeen};
use gatelog_record::draft::gate::{AttemptFinished, AttemptStarted, BuildResult};
use gatelog_record::event::CapacityEvent;
use gatelog_record::input::{CapacityInput, GateInput};
use gatelog_record::{
    BuildId, Envelope, Event, Input, InputId, InputRecord, LeaseId, Partition, Stream, Timestamp, Value,
};

use super::clock::now;

const NAME: &str = "worker";
const INCARNATION: &str = "first";

/// The executor.
pub struct Workers {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    log: Arc<dyn Log>,
    capacity: Partition,
    state: Mutex<State>,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// Builds end as soon as they run.
    lets_go: bool,
    begun: usize,
    running: BTreeMap<LeaseId, LeaseGranted>,
}

impl Workers {
    /// Offers more room than anybody needs, and follows what is granted.
    pub fn start(log: Arc<dyn Log>, capacity: Partition, stop: Arc<AtomicBool>) -> Result<Workers, Failure> {
        let inner = Arc::new(Inner { log, capacity, state: Mutex::default(), stop });
        let offer = WorkerSeen {
            worker: NAME.into(),
            incarnation: INCARNATION.into(),
            started_at: now(),
            address: "http://127.0.0.1:1".into(),
            slots: 100_000,
            labels: Vec::new(),
        };
        inner.append(capacity, "worker/seen".into(), "main", CapacityInput::WorkerSeen(offer));
        let following = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("workers".into()).spawn(move || following.follow())?;
        Ok(Workers { inner, thread: Some(thread) })
    }

    /// How many builds ever began.
    pub fn begun(&self) -> usize {
        self.inner.state().begun
    }

    /// Ends a build.
    pub fn end(&self, build: BuildId, result: BuildResult) -> Result<(), Failure> {
        let mut state = self.inner.state();
        let lease = state
            .running
            .iter()
            .find(|(_, run)| run.owner.build().is_some_and(|(of, _)| of == build))
            .map(|(lease, _)| *lease);
        let run = lease.and_then(|lease| state.running.remove(&lease)).ok_or("the build does not run")?;
        drop(state);
        self.inner.finish(&run, result);
        Ok(())
    }

    /// Ends all builds well, and from now on each as soon as it runs.
    pub fn let_go(&self) {
        let mut state = self.inner.state();
        state.lets_go = true;
        let running = std::mem::take(&mut state.running);
        drop(state);
        running.values().for_each(|run| self.inner.finish(run, BuildResult::Success));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whatever it died of was printed.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self) {
        let stream = Stream::Events(self.capacity);
        let mut next = Offset(0);
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(batch) = self.log.read(stream, next, ReadLimit::default()) else { return };
            next = batch.next;
            if batch.records.is_empty() {
                let _ = self.log.changed(stream, next).wait_for(Duration::from_millis(100));
            }
            for record in batch.records {
                let event = Envelope::decode(&record.bytes).ok().and_then(|(envelope, _)| envelope.open().ok());
                match event.map(|record| record.event) {
                    Some(Event::Capacity(CapacityEvent::LeaseGranted(granted))) => self.begin(granted),
                    Some(Event::Capacity(CapacityEvent::LeaseRevoked(revoked))) => {
                        let run = self.state().running.remove(&revoked.lease);
                        run.iter().for_each(|run| self.release(run));
                    }
                    _ => {}
                }
            }
        }
    }

    fn begin(&self, run: LeaseGranted) {
        let Some((build, attempt)) = run.owner.build() else { return };
        let started = AttemptStarted {
            tenant: run.owner.key.clone(),
            build,
            attempt,
            lease: run.lease,
            worker: NAME.into(),
            started_at: now(),
        };
        self.tell(&run, "started", GateInput::AttemptStarted(started));
        let mut state = self.state();
        state.begun += 1;
        if state.lets_go {
            drop(state);
            self.finish(&run, BuildResult::Success);
        } else {
            state.running.insert(run.lease, run);
        }
    }

    fn finish(&self, run: &LeaseGranted, result: BuildResult) {
        let Some((build, attempt)) = run.owner.build() else { return };
        let moment: Timestamp = now();
        let finished = AttemptFinished {
            tenant: run.owner.key.clone(),
            build,
            attempt,
            worker: NAME.into(),
            result,
            started_at: moment,
            finished_at: moment,
            detail: None,
            data: Value::Null,
            secret_data: None,
            artifacts: Vec::new(),
            log_url: None,
            kept: Default::default(),
        };
        self.tell(run, "finished", GateInput::AttemptFinished(finished));
        self.release(run);
    }

    fn release(&self, run: &LeaseGranted) {
        let released = LeaseReleased { lease: run.lease, worker: NAME.into(), incarnation: INCARNATION.into() };
        let id = format!("lease/{}/released", run.lease);
        self.append(self.capacity, id, "main", CapacityInput::LeaseReleased(released));
    }

    fn tell(&self, run: &LeaseGranted, what: &str, input: GateInput) {
        self.append(run.owner.partition, format!("{}/{what}", run.owner.subject), &run.owner.key, input);
    }

    /// Durable by the time anybody reads it; there is nothing here that would have to wait for that.
    fn append(&self, to: Partition, id: String, key: &str, input: impl Into<Input>) {
        if let Ok(frame) = InputRecord::new(InputId::new(id), key, now(), input).close() {
            drop(self.log.append_inputs(Stream::Inputs(to), vec![frame.encode()]));
        }
    }
}
