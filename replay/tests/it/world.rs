//! A quiet day of the simulated world, for whoever looks at the past.

use std::sync::{Arc, OnceLock};

use gatelog_event_log::{Log, MemoryBlobs, Tail};
use gatelog_record::{Domain, EventRecord, EventRef, Partition};

pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };

/// A history with its blobs, and its events by partition.
pub struct Day {
    pub log: Arc<dyn Log>,
    pub blobs: MemoryBlobs,
    pub gate: Vec<EventRecord>,
    pub capacity: Vec<EventRecord>,
}

impl Day {
    /// The first event of the gate of this kind, after another.
    pub fn first(&self, kind: &str, after: u64) -> &EventRecord {
        self.gate.iter().find(|record| record.sequence > after && record.event.name() == kind).unwrap()
    }
}

pub fn at(partition: Partition, sequence: u64) -> EventRef {
    EventRef { partition, sequence }
}

fn events(log: &dyn Log, partition: Partition) -> Vec<EventRecord> {
    let mut found = Vec::new();
    let mut reader = gatelog_event_log::HistoryReader::after(partition, Tail::GENESIS);
    let mut from = gatelog_event_log::Offset::default();
    loop {
        let stream = gatelog_record::Stream::Events(partition);
        let batch = log.read(stream, from, gatelog_event_log::ReadLimit::default()).unwrap();
        if batch.records.is_empty() {
            return found;
        }
        for record in &batch.records {
            if let gatelog_event_log::Step::Event(event, _) = reader.next(record).unwrap() {
                found.push(*event);
            }
        }
        from = batch.next;
    }
}

/// A day on which people propose, approve and merge, and nothing goes wrong but jobs. The same for all tests.
///
/// The seed was chosen: without a change the others have a little more time, which on some days turns what comes close
/// together (seed 7: an approval and its withdrawal, or two approvals, whose changes then merge the other way round).
pub fn day() -> &'static Day {
    static DAY: OnceLock<Day> = OnceLock::new();
    DAY.get_or_init(|| {
        let (log, blobs) = gatelog_world::stories::quiet_day(11, 800).unwrap();
        let (gate, capacity) = (events(&log, GATE), events(&log, CAPACITY));
        Day { log: Arc::new(log), blobs, gate, capacity }
    })
}
