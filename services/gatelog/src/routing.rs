//! The intake's router: a pure fold over the intake (`rules/gate/routing`), and its feet.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatelog_effects::connection::chain;
use gatelog_event_log::{Log, LogError, Offset, ReadLimit, failpoint};
use gatelog_record::input::IntakeInput;
use gatelog_record::{BlobHash, Domain, Input, InputFrame, InputId, InputRecord, Partition, Source, Stream};
use gatelog_rules_gate::routing::Router;
use gatelog_writer::Receiver;
use serde::{Deserialize, Serialize};

/// The intake, as the source of what is routed.
const INTAKE: Partition = Partition { domain: Domain::Intake, index: 0 };

/// After so many records the place is kept again.
const KEEP_EVERY: u64 = 1_000;

/// Where routing goes on after a start. A hint: without it, or when it fits another log, routing begins at the first
/// record again, and the gate's mark tells what it has taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    site: String,
    generation: u32,
    /// Everything before it was routed.
    next: u64,
    /// The newest tenant file before it: the table is made of that record alone.
    tenant_file: Option<u64>,
}

/// Routes the intake to the gate.
pub struct IntakeRouter {
    log: Arc<dyn Log>,
    gate: Arc<dyn Receiver>,
    router: Router,
    next: Offset,
    tenant_file: Option<Offset>,
    newest: Option<(u64, BlobHash)>,
    partitions: u32,
    file: PathBuf,
    kept: u64,
}

impl IntakeRouter {
    /// Folds the routing table up to where it had routed to. `file` is where that place is kept.
    pub fn open(log: Arc<dyn Log>, gate: Arc<dyn Receiver>, file: PathBuf) -> Result<IntakeRouter, LogError> {
        let partitions = log.describe().partitions;
        let mut router = IntakeRouter {
            log,
            gate,
            router: Router::default(),
            next: Offset(0),
            tenant_file: None,
            newest: None,
            partitions,
            file,
            kept: 0,
        };
        router.take_up()?;
        // The newest tenant file may stand after what was routed.
        let mut at = router.next;
        loop {
            let batch = router.log.read(Stream::Intake(0), at, ReadLimit::default())?;
            if batch.records.is_empty() {
                break;
            }
            for record in &batch.records {
                if let Some(IntakeInput::TenantFile(file)) = open(&record.bytes) {
                    router.newest = Some((file.version, file.file));
                }
            }
            at = batch.next;
        }
        Ok(router)
    }

    /// Goes to the place that was kept, if it is one of this log.
    fn take_up(&mut self) -> Result<(), LogError> {
        let Ok(bytes) = std::fs::read(&self.file) else { return Ok(()) };
        let Ok(place) = serde_json::from_slice::<Place>(&bytes) else { return Ok(()) };
        let here = self.log.describe();
        if place.site != here.site.to_string() || place.generation != here.generation {
            return Ok(());
        }
        if self.log.end(Stream::Intake(0))? < Offset(place.next) {
            return Ok(());
        }
        if let Some(offset) = place.tenant_file {
            let batch =
                self.log.read(Stream::Intake(0), Offset(offset), ReadLimit { records: 1, ..ReadLimit::default() })?;
            let Some(record) = batch.records.first().filter(|record| record.offset.0 == offset) else { return Ok(()) };
            let Some(IntakeInput::TenantFile(file)) = open(&record.bytes) else { return Ok(()) };
            self.newest = Some((file.version, file.file));
            self.router.route(offset, &IntakeInput::TenantFile(file));
            self.tenant_file = Some(Offset(offset));
        }
        self.next = Offset(place.next);
        self.kept = place.next;
        Ok(())
    }

    /// Keeps the place. Where that fails, more is read at the next start.
    fn keep(&mut self) {
        let here = self.log.describe();
        let place = Place {
            site: here.site.to_string(),
            generation: here.generation,
            next: self.next.0,
            tenant_file: self.tenant_file.map(|offset| offset.0),
        };
        let part = self.file.with_extension("part");
        let kept = serde_json::to_vec(&place)
            .map_err(std::io::Error::other)
            .and_then(|bytes| std::fs::write(&part, bytes))
            .and_then(|()| std::fs::rename(&part, &self.file));
        match kept {
            Ok(()) => self.kept = self.next.0,
            Err(error) => tracing::warn!(%error, file = %self.file.display(), "where routing is could not be kept"),
        }
    }

    /// The newest tenant file on the intake: its version and blob.
    pub fn newest(&self) -> Option<(u64, BlobHash)> {
        self.newest
    }

    /// Routes until it is stopped.
    pub fn run(&mut self, stop: &AtomicBool) {
        let mut routed = 0;
        while !stop.load(Ordering::Relaxed) {
            match self.step() {
                Ok(count) if count > 0 => {
                    routed += count;
                    if routed >= KEEP_EVERY {
                        routed = 0;
                        self.keep();
                    }
                }
                Ok(_) => {
                    // Woken when the intake grows; looks now and then whether it shall stop.
                    let _ = self.log.changed(Stream::Intake(0), self.next).wait_for(Duration::from_millis(250));
                }
                Err(message) => {
                    tracing::warn!(message, "the intake cannot be routed; it is tried again");
                    std::thread::sleep(Duration::from_millis(500));
                }
            }
        }
        if self.kept != self.next.0 {
            self.keep();
        }
    }

    /// Routes one batch; says how many records it had.
    fn step(&mut self) -> Result<u64, String> {
        if self.gate.mark(INTAKE).is_none() {
            // Before it is known what the gate has taken, all of it would be sent again.
            std::thread::sleep(Duration::from_millis(20));
            return Ok(0);
        }
        let batch = self.log.read(Stream::Intake(0), self.next, ReadLimit::default()).map_err(|error| chain(&error))?;
        if batch.records.is_empty() {
            return Ok(0);
        }
        let count = batch.records.len() as u64;
        for record in batch.records {
            let Some(input) = open(&record.bytes) else {
                tracing::error!(offset = record.offset.0, "an intake record cannot be read and is passed over");
                continue;
            };
            let frame = InputFrame::decode(&record.bytes).map_err(|error| chain(&error))?;
            let mut routed_to: std::collections::BTreeMap<Partition, Vec<Vec<u8>>> = Default::default();
            let mut next_router = self.router.clone();
            for routed in next_router.route(record.offset.0, &input) {
                let to = Partition::of_key(Domain::Gate, &routed.key, self.partitions);
                let source = Source { partition: INTAKE, sequence: record.offset.0 + 1, ordinal: routed.ordinal };
                if self.gate.mark(INTAKE).is_some_and(|mark| (source.sequence, source.ordinal) <= mark) {
                    continue;
                }
                let id = InputId::new(format!("{}/{}", frame.input_id, routed.key));
                let mut out = InputRecord::new(id, routed.key, frame.observed_at, routed.input);
                out.actor = frame.actor;
                out.traceparent.clone_from(&frame.traceparent);
                out.source = Some(source);
                let bytes = out.close().map_err(|error| chain(&error))?.encode();
                routed_to.entry(to).or_default().push(bytes);
            }
            for (to, frames) in routed_to {
                failpoint::pass("intake/routed");
                self.log
                    .append_inputs(Stream::Inputs(to), frames)
                    .wait()
                    .ok_or("the log is closing")?
                    .map_err(|error| chain(&error))?;
                failpoint::pass("intake/route-told");
            }
            self.router = next_router;
            self.next = Offset(record.offset.0 + 1);
            if matches!(input, IntakeInput::TenantFile(_)) {
                self.tenant_file = Some(record.offset);
            }
        }
        Ok(count)
    }
}

fn open(bytes: &[u8]) -> Option<IntakeInput> {
    match InputFrame::decode(bytes).ok()?.open().ok()?.input {
        Input::Intake(input) => Some(input),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryLog;
    use gatelog_event_log::memory::MemoryOptions;
    use gatelog_record::Timestamp;
    use gatelog_record::draft::intake::TenantFile;
    use gatelog_writer::Followed;

    use super::*;

    fn append(log: &MemoryLog, number: u64, input: IntakeInput) {
        let record = InputRecord::new(InputId::new(format!("{number}")), "", Timestamp(1), input);
        log.append_inputs(Stream::Intake(0), vec![record.close().unwrap().encode()]).wait().unwrap().unwrap();
    }

    fn tenants(version: u64) -> IntakeInput {
        let file = BlobHash::of(&version.to_be_bytes());
        IntakeInput::TenantFile(TenantFile { version, file, tenants: Vec::new() })
    }

    #[test]
    fn routing_goes_on_where_it_was_and_knows_the_newest_tenant_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("routing.json");
        let log = Arc::new(MemoryLog::default());
        let gate = Followed::new(Partition { domain: Domain::Gate, index: 0 });
        gate.advance([]);
        let open = |log: &Arc<MemoryLog>| {
            IntakeRouter::open(Arc::clone(log) as _, Arc::clone(&gate) as _, file.clone()).unwrap()
        };
        append(&log, 1, tenants(1));
        let mut router = open(&log);
        assert_eq!(router.newest().map(|(version, _)| version), Some(1));
        assert_eq!(router.step(), Ok(1));
        router.keep();

        append(&log, 2, tenants(2));
        let again = open(&log);
        assert_eq!((again.next, again.router.version), (router.next, 1), "the table is that of the place");
        assert_eq!(again.newest().map(|(version, _)| version), Some(2), "and what came since is known");

        std::fs::write(&file, "{}").unwrap();
        let from_the_first = open(&log);
        assert_eq!((from_the_first.next, from_the_first.router.version), (Offset(0), 0));
        // Another log: nothing of it was routed.
        router.keep();
        let site = gatelog_record::SiteId([9; 16]);
        let other = Arc::new(MemoryLog::new(MemoryOptions { site, ..MemoryOptions::default() }));
        append(&other, 1, tenants(7));
        append(&other, 2, tenants(8));
        let moved = open(&other);
        assert_eq!((moved.next, moved.newest().map(|(version, _)| version)), (Offset(0), Some(8)));
    }
}
