//! Every partition's decisions in one order: by time, and none before what it came from.

use std::collections::{BTreeMap, VecDeque};

use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, ReadRecord, Step};
use gatelog_record::{Cause, Domain, EventRecord, Partition, Stream, Timestamp};

use crate::cut::Cut;
use crate::error::ReplayError;
use crate::redecide::Decision;

/// One partition, decision by decision.
struct Lane<'a> {
    log: &'a dyn Log,
    partition: Partition,
    last: u64,
    reader: HistoryReader,
    from: Offset,
    batch: VecDeque<ReadRecord>,
    /// The first event of the next decision.
    held: Option<(EventRecord, Vec<u8>)>,
    next: Option<Decision>,
    /// The newest event that was given.
    given: u64,
}

impl Lane<'_> {
    fn event(&mut self) -> Result<Option<(EventRecord, Vec<u8>)>, ReplayError> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        loop {
            if self.reader.tail().sequence >= self.last {
                return Ok(None);
            }
            let Some(record) = self.batch.pop_front() else {
                let batch = self.log.read(Stream::Events(self.partition), self.from, ReadLimit::default())?;
                if batch.records.is_empty() {
                    return Ok(None);
                }
                self.from = batch.next;
                self.batch = batch.records.into();
                continue;
            };
            if let Step::Event(event, _) = self.reader.next(&record)? {
                return Ok(Some((*event, record.bytes)));
            }
        }
    }

    fn fill(&mut self) -> Result<(), ReplayError> {
        if self.next.is_some() {
            return Ok(());
        }
        let mut decision = Decision::default();
        while let Some((record, bytes)) = self.event()? {
            let begins = record.decision.is_some() || record.cause == Cause::Start;
            if begins && !decision.records.is_empty() {
                self.held = Some((record, bytes));
                break;
            }
            decision.records.push(record);
            decision.bytes.push(bytes);
        }
        self.next = Some(decision).filter(|decision| !decision.records.is_empty());
        Ok(())
    }
}

/// Every partition's decisions in one order.
pub(crate) struct Walk<'a> {
    lanes: BTreeMap<Partition, Lane<'a>>,
}

impl<'a> Walk<'a> {
    /// Those up to a cut.
    pub(crate) fn new(log: &'a dyn Log, cut: &Cut) -> Result<Walk<'a>, ReplayError> {
        let lanes = cut.iter().filter(|(partition, _)| partition.domain != Domain::Intake).map(|(partition, last)| {
            let lane = Lane {
                log,
                partition: *partition,
                last: *last,
                reader: HistoryReader::from_genesis(*partition),
                from: Offset::default(),
                batch: VecDeque::new(),
                held: None,
                next: None,
                given: 0,
            };
            (*partition, lane)
        });
        Ok(Walk { lanes: lanes.collect() })
    }

    /// The next decision, or what a writer recorded of its own accord.
    pub(crate) fn next(&mut self) -> Result<Option<(Partition, Decision)>, ReplayError> {
        for lane in self.lanes.values_mut() {
            lane.fill()?;
        }
        let first = |lane: &Lane<'_>| lane.next.as_ref().and_then(|next| next.records.first().cloned());
        let mut ready: Option<(Timestamp, Partition)> = None;
        let mut any: Option<(Timestamp, Partition)> = None;
        for (partition, lane) in &self.lanes {
            let Some(record) = first(lane) else { continue };
            let place = (record.recorded_at, *partition);
            let header = record.decision.as_ref();
            let source = header.and_then(|header| header.source).map(|source| (source.partition, source.sequence));
            let caused = header.and_then(|header| header.caused_by).map(|event| (event.partition, event.sequence));
            let waits = |of: Option<(Partition, u64)>| {
                of.is_some_and(|(of, sequence)| {
                    of != *partition
                        && self.lanes.get(&of).is_some_and(|lane| lane.next.is_some() && lane.given < sequence)
                })
            };
            any = Some(any.map_or(place, |known| known.min(place)));
            if !waits(source) && !waits(caused) {
                ready = Some(ready.map_or(place, |known| known.min(place)));
            }
        }
        // Should each wait for another, time alone decides.
        let Some((_, partition)) = ready.or(any) else { return Ok(None) };
        let Some(lane) = self.lanes.get_mut(&partition) else { return Ok(None) };
        let Some(decision) = lane.next.take() else { return Ok(None) };
        lane.given = decision.records.last().map_or(lane.given, |record| record.sequence);
        Ok(Some((partition, decision)))
    }
}
