//! A partition of the made-up site: the real shell around the real rules, and its streams on the log.

use std::collections::VecDeque;
use std::sync::Arc;

use gatelog_deciding::Rules;
use gatelog_event_log::{Blobs, EventWriter, Log, LogError, Offset, Pending, Tail};
use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::partition::OutboxDelivered;
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::{Input, PartitionInput};
use gatelog_record::{
    Cause, Event, EventRecord, EventRef, InputId, InputRecord, Partition, SiteId, Source, Stream, Timestamp,
};
use gatelog_tables::{DomainState, Maps, TableSet};
use gatelog_writer::{PartitionOf, Shell};

use crate::Failure;

/// How many appends wait for their acknowledgement.
const IN_FLIGHT: usize = 16;
/// After how many messages a sender is told that they were taken.
const TELL_AFTER: usize = 64;

/// Records on their way to a stream.
enum Waiting {
    Inputs(Pending<Result<Vec<Offset>, LogError>>, u64),
    Events(Pending<Result<Offset, LogError>>),
}

/// What is written and not acknowledged yet.
#[derive(Default)]
pub struct InFlight(VecDeque<Waiting>);

impl InFlight {
    /// Inputs of a stream, the first of which must get this offset.
    pub fn inputs(&mut self, log: &dyn Log, stream: Stream, frames: Vec<Vec<u8>>, first: u64) -> Result<(), Failure> {
        if !frames.is_empty() {
            self.0.push_back(Waiting::Inputs(log.append_inputs(stream, frames), first));
        }
        self.settle(IN_FLIGHT)
    }

    fn events(&mut self, writer: &mut dyn EventWriter, frames: Vec<Vec<u8>>) -> Result<(), Failure> {
        if !frames.is_empty() {
            self.0.push_back(Waiting::Events(writer.append(frames)));
        }
        self.settle(IN_FLIGHT)
    }

    /// Waits until at most so many are on their way.
    pub fn settle(&mut self, at_most: usize) -> Result<(), Failure> {
        while self.0.len() > at_most {
            match self.0.pop_front() {
                Some(Waiting::Inputs(answer, first)) => {
                    let offsets = answer.wait().ok_or("the log closed")??;
                    if offsets.first() != Some(&Offset(first)) {
                        return Err(format!("inputs are at {offsets:?} and not at {first}").into());
                    }
                }
                Some(Waiting::Events(answer)) => {
                    answer.wait().ok_or("the log closed")??;
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// A partition.
pub struct Host<R: Rules> {
    partition: Partition,
    site: SiteId,
    shell: Shell<R>,
    writer: Box<dyn EventWriter>,
    inputs: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
    taken: u64,
    sent: (u64, u32),
}

impl<R: Rules + 'static> Host<R> {
    /// Claims a partition that nobody has written to yet.
    pub fn new(
        log: &dyn Log,
        partition: Partition,
        rules: fn() -> R,
        tables: PartitionOf<R::State>,
        now: Timestamp,
    ) -> Result<Host<R>, Failure> {
        let (_, writer) = log.claim(partition)?;
        let live = <R::State as DomainState>::Live::<Maps>::open(&mut Maps)?;
        let described = log.describe();
        let mut shell = Shell::new(partition, Arc::new(rules), tables, live, Tail::default(), &described);
        let events = shell.start("gatelog benchmark", now)?.frames;
        let (inputs, site) = (Vec::new(), described.site);
        Ok(Host { partition, site, shell, writer, inputs, events, taken: 0, sent: (0, 0) })
    }

    /// Its state.
    pub fn state(&self) -> &<R::State as DomainState>::Live<Maps> {
        self.shell.state()
    }

    /// What every partition has.
    pub fn tables(&self) -> &PartitionTables<Maps> {
        self.shell.partition_tables()
    }

    /// How many events there are.
    pub fn sequence(&self) -> u64 {
        self.shell.tail().sequence
    }

    /// How many inputs were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes an input and gives what was decided.
    ///
    /// # Errors
    /// When it is refused: the site says nothing that could be.
    pub fn take(
        &mut self,
        record: &InputRecord,
        now: Timestamp,
        blobs: &dyn Blobs,
    ) -> Result<Vec<EventRecord>, Failure> {
        let bytes = record.close()?.encode();
        let append = self.shell.take(Offset(self.taken), &bytes, now, blobs)?;
        self.taken += 1;
        self.inputs.push(bytes);
        self.events.extend(append.frames);
        for record in &append.records {
            if let Event::Partition(PartitionEvent::InputRefused(refused)) = &record.event {
                return Err(format!("event {} of {}: {refused:?}", record.sequence, self.partition).into());
            }
        }
        Ok(append.records)
    }

    /// Messages to another partition that were not given out yet, as its forwarder sends them.
    pub fn messages(&mut self, to: Partition, now: Timestamp) -> Vec<InputRecord> {
        let lane = |(sequence, ordinal): (u64, u32)| (to.domain as u8, to.index, sequence, ordinal);
        let (from, after) = (self.partition, self.sent);
        let rows = self.shell.partition_tables().outbox.rows.range(lane(after)..=lane((u64::MAX, u32::MAX)));
        let mut sent = after;
        let mut found = Vec::new();
        for ((_, _, sequence, ordinal), row) in rows {
            let (sequence, ordinal) = (*sequence, *ordinal);
            if (sequence, ordinal) <= after {
                continue;
            }
            sent = (sequence, ordinal);
            let id = InputId::new(format!("{}/{from}/{sequence}.{ordinal}", self.site));
            let mut input = InputRecord::new(id, row.key.clone(), now, row.input.clone());
            input.source = Some(Source { partition: from, sequence, ordinal });
            found.push(input.caused_by(EventRef { partition: from, sequence }));
        }
        self.sent = sent;
        found
    }

    /// That another partition has taken what was given out, once that is worth saying.
    pub fn taken_by(&self, to: Partition, now: Timestamp) -> Option<InputRecord> {
        if self.shell.partition_tables().outbox.rows.len() < TELL_AFTER {
            return None;
        }
        let up_to = self.sent;
        let told = Input::Partition(PartitionInput::OutboxDelivered(OutboxDelivered { to, up_to }));
        Some(InputRecord::new(InputId::new(format!("outbox:{to}/{}.{}", up_to.0, up_to.1)), "", now, told))
    }

    /// Writes down what was taken and decided.
    pub fn write(&mut self, log: &dyn Log, in_flight: &mut InFlight) -> Result<(), Failure> {
        let inputs = std::mem::take(&mut self.inputs);
        let first = self.taken - inputs.len() as u64;
        in_flight.inputs(log, Stream::Inputs(self.partition), inputs, first)?;
        in_flight.events(&mut *self.writer, std::mem::take(&mut self.events))
    }
}

/// The timers that a decision set.
pub fn timers_set(records: &[EventRecord]) -> impl Iterator<Item = (&str, Timestamp)> {
    records.iter().filter_map(|record| match (&record.event, &record.cause) {
        (Event::Partition(PartitionEvent::TimerSet(set)), Cause::Input { .. }) => {
            Some((set.timer.as_str(), set.due_at))
        }
        _ => None,
    })
}
