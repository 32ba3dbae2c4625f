//! The intake's router: a pure fold over the intake (`rules/gate/routing`), and its feet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatelog_effects::connection::chain;
use gatelog_event_log::{Log, LogError, Offset, ReadLimit};
use gatelog_record::input::IntakeInput;
use gatelog_record::{BlobHash, Domain, Input, InputFrame, InputId, InputRecord, Partition, Source, Stream};
use gatelog_rules_gate::routing::Router;
use gatelog_writer::Published;

/// The intake, as the source of what is routed.
const INTAKE: Partition = Partition { domain: Domain::Intake, index: 0 };

/// Routes the intake to the gate.
pub struct IntakeRouter {
    log: Arc<dyn Log>,
    gate: Arc<Published>,
    router: Router,
    next: Offset,
    newest: Option<(u64, BlobHash)>,
    partitions: u32,
}

impl IntakeRouter {
    /// Folds the routing table up to where the gate has taken inputs from.
    pub fn open(log: Arc<dyn Log>, gate: Arc<Published>) -> Result<IntakeRouter, LogError> {
        let partitions = log.describe().partitions;
        let mut router =
            IntakeRouter { log, gate, router: Router::default(), next: Offset(0), newest: None, partitions };
        // The newest tenant file may stand after what was routed: the fold below only looks ahead.
        let mut at = Offset(0);
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

    /// The newest tenant file on the intake: its version and blob.
    pub fn newest(&self) -> Option<(u64, BlobHash)> {
        self.newest
    }

    /// Routes until it is stopped.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match self.step() {
                Ok(true) => {}
                Ok(false) => {
                    // Woken when the intake grows; looks now and then whether it shall stop.
                    let _ = self.log.changed(Stream::Intake(0), self.next).wait_for(Duration::from_millis(250));
                }
                Err(message) => {
                    tracing::warn!(message, "the intake cannot be routed; it is tried again");
                    std::thread::sleep(Duration::from_millis(500));
                }
            }
        }
    }

    /// Routes one batch; says whether there was one.
    fn step(&mut self) -> Result<bool, String> {
        let batch = self.log.read(Stream::Intake(0), self.next, ReadLimit::default()).map_err(|error| chain(&error))?;
        if batch.records.is_empty() {
            return Ok(false);
        }
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
                self.log
                    .append_inputs(Stream::Inputs(to), frames)
                    .wait()
                    .ok_or("the log is closing")?
                    .map_err(|error| chain(&error))?;
            }
            self.router = next_router;
            self.next = Offset(record.offset.0 + 1);
        }
        Ok(true)
    }
}

fn open(bytes: &[u8]) -> Option<IntakeInput> {
    match InputFrame::decode(bytes).ok()?.open().ok()?.input {
        Input::Intake(input) => Some(input),
        _ => None,
    }
}
