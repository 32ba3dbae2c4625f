//! Records of a newer gatelog, met where the event that raised the level was not read: a fold goes on from a checkpoint
//! that lies behind it. Who can read them is who wrote them, and that is on the log where the writer's term begins.

use gatelog_record::event::PartitionEvent;
use gatelog_record::{BodyError, Envelope, Event, Partition, Stream};

use super::{Broken, HistoryError};
use crate::contract::{Log, ReadLimit};

impl HistoryError {
    /// The same, with who wrote it where it is a record this gatelog does not know.
    #[must_use]
    pub fn with_writer(self, log: &dyn Log) -> HistoryError {
        let Broken::Body { sequence, why } = &self.what else { return self };
        let what = match why {
            BodyError::UnknownKind(kind) => format!("of kind {kind}"),
            BodyError::UnknownVersion { name, found, .. } => format!("version {found} of {name}"),
            BodyError::Body { .. } => return self,
        };
        let Some(build) = writer_of(log, self.partition, *sequence) else { return self };
        let what = Broken::Newer { sequence: *sequence, what, build };
        HistoryError { what, ..self }
    }
}

/// The build of gatelog that wrote an event: its term begins with an event that says so, found by halving, since terms
/// only rise. `None` where it cannot be found.
fn writer_of(log: &dyn Log, partition: Partition, sequence: u64) -> Option<String> {
    let term = envelope_at(log, partition, sequence)?.term;
    let (mut before, mut first) = (log.begins(partition).sequence, sequence);
    while before.saturating_add(1) < first {
        let middle = before + (first - before) / 2;
        if envelope_at(log, partition, middle)?.term < term {
            before = middle;
        } else {
            first = middle;
        }
    }
    match envelope_at(log, partition, first)?.open().ok()?.event {
        Event::Partition(PartitionEvent::WriterStarted(started)) => Some(started.build),
        _ => None,
    }
}

/// The envelope of the event with this sequence, if it can be had.
fn envelope_at(log: &dyn Log, partition: Partition, sequence: u64) -> Option<Envelope> {
    let mut from = log.seek(partition, sequence).ok()?;
    loop {
        let batch = log.read(Stream::Events(partition), from, ReadLimit { records: 4, bytes: 1 << 20 }).ok()?;
        if batch.records.is_empty() {
            return None;
        }
        // A record of an old writer may stand between; its sequence comes again.
        for record in &batch.records {
            let (envelope, _) = Envelope::decode(&record.bytes).ok()?;
            if envelope.sequence >= sequence {
                return (envelope.sequence == sequence).then_some(envelope);
            }
        }
        from = batch.next;
    }
}
