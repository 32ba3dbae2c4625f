//! What an append changes for those who live by what the writer makes known.

use std::ops::Bound;

use gatelog_deciding::Rules;
use gatelog_record::event::PartitionEvent;
use gatelog_record::{Event, EventRecord};

use crate::published::{Changes, OutboxKey, TimerEntry};
use crate::shell::Shell;

impl<R: Rules> Shell<R> {
    /// What these records, already applied, change for the timer service and the forwarder.
    pub(super) fn changes(&self, records: &[EventRecord]) -> Changes {
        let mut changes =
            Changes { last: self.tail.sequence, inputs_taken: self.place().input_sequence, ..Changes::default() };
        for record in records {
            if let Some(source) = record.decision.as_ref().and_then(|decision| decision.source) {
                changes.mark = Some((source.partition, (source.sequence, source.ordinal)));
            }
            match &record.event {
                Event::Partition(PartitionEvent::TimerSet(set)) => {
                    let entry = TimerEntry::seen(set.due_at, &record.key, record.sequence, record.recorded_at);
                    changes.timers.push((set.timer.clone(), Some(entry)));
                }
                Event::Partition(PartitionEvent::TimerCleared(cleared)) => {
                    changes.timers.push((cleared.timer.clone(), None));
                }
                Event::Partition(PartitionEvent::OutboxCleared(cleared)) => {
                    changes.cleared.push((cleared.to, cleared.up_to));
                }
                _ => {}
            }
        }
        let Some(first) = records.first().map(|record| record.sequence) else { return changes };
        let outbox = &self.partition_tables().outbox.rows;
        let mut from: Bound<OutboxKey> = Bound::Unbounded;
        while let Some((&(domain, index, _, _), _)) = outbox.range((from, Bound::Unbounded)).next() {
            let new = outbox.range((domain, index, first, 0)..=(domain, index, u64::MAX, u32::MAX));
            changes.sent.extend(new.map(|(key, row)| (*key, row.clone())));
            from = Bound::Excluded((domain, index, u64::MAX, u32::MAX));
        }
        changes
    }
}
