//! The memory log and blob store: the suite, and the faults they can be given.

use super::*;
use crate::conformance::{BlobHarness, Harness, Injected, Injection, Scribe, arrived, input, read_all};
use crate::history;
use gatelog_record::Domain;

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const INPUTS: Stream = Stream::Inputs(GATE);
const EVENTS: Stream = Stream::Events(GATE);

#[expect(clippy::disallowed_methods, reason = "the suite asks its harness for threads; here they are")]
fn threads(work: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = work.into_iter().map(std::thread::spawn).collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

struct MemoryHarness(MemoryLog);

impl Harness for MemoryHarness {
    fn log(&self) -> Arc<dyn Log> {
        Arc::new(self.0.clone())
    }
    fn reopen(&mut self) {
        self.0.close();
        self.0.crash(0);
    }
    fn crash(&mut self) {
        self.0.crash(0);
    }
    fn reader(&mut self) -> Option<Arc<dyn Log>> {
        Some(self.log())
    }
    fn inject(&mut self, injection: Injection) -> Injected {
        match injection {
            Injection::Insert { stream, record } => {
                self.0.insert(stream, record);
            }
            Injection::Damage { stream, offset } => self.0.damage(stream, offset),
            Injection::Torn { stream, records } => {
                self.0.hold();
                let lost = self.0.append_inputs(stream, records);
                self.0.crash(0);
                assert_eq!(lost.wait(), None);
            }
        }
        Injected::Done
    }
    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>) {
        threads(work);
    }
    fn limits(&self) -> (u64, u64) {
        (10_000, 40_000)
    }
}

fn small(offset_gap: u64) -> MemoryHarness {
    MemoryHarness(MemoryLog::new(MemoryOptions {
        offset_gap,
        max_record: 10_000,
        max_append: 40_000,
        ..MemoryOptions::default()
    }))
}

mod dense {
    use super::small;
    crate::log_conformance!(|| small(0));
}

mod sparse {
    use super::small;
    crate::log_conformance!(|| small(2));
}

/// A log that does not notice damage itself: then the history must.
struct Unnoticing(MemoryHarness);

impl Harness for Unnoticing {
    fn log(&self) -> Arc<dyn Log> {
        self.0.log()
    }
    fn reopen(&mut self) {
        self.0.reopen();
    }
    fn crash(&mut self) {
        self.0.crash();
    }
    fn reader(&mut self) -> Option<Arc<dyn Log>> {
        None
    }
    fn inject(&mut self, injection: Injection) -> Injected {
        match injection {
            Injection::Damage { stream, offset } => {
                assert!(self.0.0.tamper(stream, offset, 30));
                Injected::Done
            }
            other => self.0.inject(other),
        }
    }
    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>) {
        threads(work);
    }
    fn limits(&self) -> (u64, u64) {
        self.0.limits()
    }
}

mod unnoticing {
    use super::{Unnoticing, small};
    crate::log_conformance!(|| Unnoticing(small(0)));
}

#[test]
fn a_held_append_is_neither_seen_nor_acknowledged_until_it_is_let_through() {
    let log = MemoryLog::default();
    log.hold();
    let first = log.append_inputs(INPUTS, vec![input("1")]);
    let second = log.append_inputs(INPUTS, vec![input("2")]);
    assert_eq!((log.held(), log.end(INPUTS)), (2, Ok(Offset(0))));
    assert_eq!(log.release(1), 1);
    assert_eq!(arrived(first), Ok(vec![Offset(0)]));
    let second = second.wait_for(std::time::Duration::from_millis(1)).err().unwrap();
    log.flow();
    assert_eq!(arrived(second), Ok(vec![Offset(1)]));
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![input("3")])), Ok(vec![Offset(2)]));
}

#[test]
fn a_crash_loses_what_waits_or_keeps_it_unacknowledged_and_kills_the_writers() {
    let log = MemoryLog::default();
    let (claim, mut writer) = log.claim(GATE).unwrap();
    let mut scribe = Scribe::of(&claim);
    log.hold();
    let written = writer.append(scribe.several(2));
    let lost = writer.append(scribe.several(1));
    let waiting = log.changed(EVENTS, Offset(0));
    log.crash(1);
    assert_eq!((written.wait(), lost.wait(), waiting.wait()), (None, None, None));
    assert_eq!(log.claim(GATE).unwrap().0.last_sequence, 2);
    let late = writer.append(scribe.several(1)).wait().unwrap();
    assert_eq!(late, Err(LogError::Fenced { partition: GATE, term: 1 }));
}

#[test]
fn a_lost_acknowledgement_leaves_the_record_and_a_duplicate_stands_twice() {
    let log = MemoryLog::default();
    log.lose_next_ack();
    assert_eq!(log.append_inputs(INPUTS, vec![input("unsure")]).wait(), None);
    log.duplicate_next_input();
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![input("twice")])), Ok(vec![Offset(1)]));
    let found: Vec<_> = log.records(INPUTS).into_iter().map(|record| record.bytes).collect();
    assert_eq!(found, [input("unsure"), input("twice"), input("twice")]);
}

#[test]
fn a_failed_append_writes_nothing_and_ends_the_event_writer() {
    let log = MemoryLog::default();
    let error = LogError::Stopped { message: "no space left on device".into() };
    log.fail_next(error.clone());
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![input("1")])), Err(error.clone()));
    let (claim, mut writer) = log.claim(GATE).unwrap();
    let mut scribe = Scribe::of(&claim);
    log.fail_next(error.clone());
    assert_eq!(arrived(writer.append(scribe.several(1))), Err(error.clone()));
    assert_eq!(arrived(writer.append(scribe.several(1))), Err(error));
    assert_eq!(log.streams(), Ok(vec![]));
}

#[test]
fn an_older_log_put_in_place_ends_earlier() {
    let log = MemoryLog::default();
    let (claim, mut writer) = log.claim(GATE).unwrap();
    let mut scribe = Scribe::of(&claim);
    arrived(writer.append(scribe.several(5))).unwrap();
    log.truncate(EVENTS, 3);
    assert_eq!(log.claim(GATE).unwrap().0.last_sequence, 3);
    assert_eq!(history::verify(&log, GATE).tail.sequence, 3);
    assert_eq!(read_all(&log, EVENTS).unwrap().len(), 3);
}

#[test]
fn inputs_are_refused_when_too_much_waits() {
    let log = MemoryLog::new(MemoryOptions { max_waiting: 100, ..MemoryOptions::default() });
    log.hold();
    let _first = log.append_inputs(INPUTS, vec![vec![0; 90]]);
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![vec![0; 20]])), Err(LogError::Busy { waiting: 90 }));
    log.flow();
    assert!(arrived(log.append_inputs(INPUTS, vec![vec![0; 20]])).is_ok());
}

struct Store(MemoryBlobs);

impl BlobHarness for Store {
    fn blobs(&self) -> Arc<dyn Blobs> {
        Arc::new(self.0.clone())
    }
    fn crash(&mut self) -> bool {
        false
    }
    fn damage(&mut self, hash: &BlobHash) -> bool {
        self.0.damage(hash)
    }
    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>) {
        threads(work);
    }
}

#[test]
fn the_blob_store_keeps_its_contract() {
    let skipped = crate::conformance::run_blobs(&mut || Box::new(Store(MemoryBlobs::new())));
    assert_eq!(skipped, [("what_is_put_survives_a_crash", "nothing survives here")]);
}

#[test]
fn a_blob_that_cannot_be_put_is_not_there() {
    let blobs = MemoryBlobs::new();
    let error = BlobError::Store { what: "writing", message: "no space left on device".into() };
    blobs.fail_next(error.clone());
    assert_eq!(blobs.put(b"x"), Err(error));
    assert_eq!(blobs.list(), Ok(vec![]));
    assert!(blobs.put(b"x").is_ok());
}
