//! Recorded inputs through the rules again.
//!
//! The same shell as in life ([`Shell`]) takes every recorded input again, at the recorded state,
//! with the recorded clock and the ids that follow from the input, and must make the recorded bytes.
//! A difference is a bug, or shows what another gatelog would have decided.

use gatelog_deciding::Rules;
use gatelog_event_log::{Blobs, Description, Log, Offset, Tail};
use gatelog_record::event::PartitionEvent;
use gatelog_record::{Cause, Envelope, Event, EventRecord, InputFrame, Partition, Stream};
use gatelog_store::rung::{rows_of, tables_of};
use gatelog_tables::{DomainState, LiveTables, Maps, TableSet};
use gatelog_writer::{Outside, PartitionOf, RulesFactory, Shell, Times};
use serde::Serialize;

use crate::error::ReplayError;
use crate::reading::{bytes_at, read_history};

/// What deciding again gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Redecided {
    /// How many decisions are byte for byte the same.
    pub decisions: u64,
    /// How many events they have.
    pub events: u64,
    /// How many of the decisions are refusals for what stood outside of the rules that day (a blob that
    /// was away, a log that takes no decision so large): these are taken as recorded.
    pub as_recorded: u64,
    /// The sequence up to which the history was gone through.
    pub sequence: u64,
    /// The first difference, where it ended.
    pub difference: Option<Difference>,
}

/// A decision that comes out otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The partition.
    pub partition: String,
    /// The sequence of the first event that differs.
    pub sequence: u64,
    /// The input's offset.
    pub input_offset: u64,
    /// The input's kind, or why it cannot be read.
    pub input: String,
    /// What differs, in one sentence.
    pub what: String,
    /// The recorded decision, for people.
    pub recorded: Vec<serde_json::Value>,
    /// The decision made again.
    pub decided: Vec<serde_json::Value>,
}

/// One decision as it stands on the log, or what a writer recorded of its own accord.
#[derive(Default)]
pub(crate) struct Decision {
    pub records: Vec<EventRecord>,
    pub bytes: Vec<Vec<u8>>,
}

/// Decides a partition's inputs again, decision by decision.
pub(crate) struct Again<'a, R: Rules> {
    log: &'a dyn Log,
    blobs: &'a dyn Blobs,
    partition: Partition,
    factory: RulesFactory<R>,
    tables: PartitionOf<R::State>,
    /// The state as the log tells it: the shell's is checked against the log only.
    live: <R::State as DomainState>::Live<Maps>,
    tail: Tail,
    shell: Option<Shell<R>>,
    described: Description,
    pub done: Redecided,
    /// What was decided where it first came out otherwise.
    pub otherwise: Vec<EventRecord>,
}

/// Decides every recorded input of a partition again and gives the first difference. What the writer
/// records of its own accord (that it started, that the clock jumped) is taken as recorded.
///
/// # Errors
/// `Slice`, `InputChanged`, `NoInput`, `NoBlob`, `FoldRefused`, `Shell`, `Log`, `History`.
pub fn redecide<R: Rules>(
    log: &dyn Log,
    blobs: &dyn Blobs,
    partition: Partition,
    factory: RulesFactory<R>,
    tables: PartitionOf<R::State>,
) -> Result<Redecided, ReplayError> {
    let mut again = Again::new(log, blobs, partition, factory, tables)?;
    let mut decision = Decision::default();
    read_history(log, partition, Tail::GENESIS, |record, _, bytes| {
        let begins = record.decision.is_some() || record.cause == Cause::Start;
        if begins && !again.settle(&mut decision)? {
            return Ok(false);
        }
        decision.records.push(record);
        decision.bytes.push(bytes.to_vec());
        Ok(true)
    })?;
    again.settle(&mut decision)?;
    Ok(again.done)
}

impl<'a, R: Rules> Again<'a, R> {
    /// Before the first decision.
    pub(crate) fn new(
        log: &'a dyn Log,
        blobs: &'a dyn Blobs,
        partition: Partition,
        factory: RulesFactory<R>,
        tables: PartitionOf<R::State>,
    ) -> Result<Again<'a, R>, ReplayError> {
        let begins = log.begins(partition).sequence;
        if begins > 0 {
            return Err(ReplayError::Slice { partition, begins });
        }
        Ok(Again {
            log,
            blobs,
            partition,
            factory,
            tables,
            live: <R::State as DomainState>::Live::<Maps>::open(&mut Maps)?,
            tail: Tail::GENESIS,
            shell: None,
            described: log.describe(),
            done: Redecided { decisions: 0, events: 0, as_recorded: 0, sequence: 0, difference: None },
            otherwise: Vec::new(),
        })
    }

    /// The shell as it stands after the last decision, also one that came out otherwise.
    pub(crate) fn into_shell(mut self) -> Result<Shell<R>, ReplayError> {
        let term = self.tail.term.max(1);
        self.shell_in(term)
    }

    /// The shell that decides in a term.
    fn shell_in(&mut self, term: u64) -> Result<Shell<R>, ReplayError> {
        if let Some(shell) = self.shell.take() {
            return Ok(shell);
        }
        let copy = tables_of(&rows_of(&self.live)?)?;
        // A shell decides in the term after its tail's; this one goes on in the tail's own.
        let tail = Tail { term: term.saturating_sub(1), ..self.tail };
        let factory = RulesFactory::clone(&self.factory);
        Ok(Shell::new(self.partition, factory, self.tables, copy, tail, &self.described))
    }

    /// Deals with what was gathered; says whether it is to go on.
    pub(crate) fn settle(&mut self, decision: &mut Decision) -> Result<bool, ReplayError> {
        let Decision { records, bytes } = std::mem::take(decision);
        let Some(first) = records.first() else { return Ok(self.done.difference.is_none()) };
        if self.done.difference.is_some() {
            return Ok(false);
        }
        if let Some(header) = &first.decision {
            let made = self.decide(first, header.input_offset, &records)?;
            if made.frames != bytes {
                if let (None, Some((Outside::BlobMissing | Outside::BlobDamaged, message))) =
                    (outside_of(&records), outside_of(&made.records))
                {
                    let (partition, sequence) = (self.partition, first.sequence);
                    return Err(ReplayError::NoBlob { partition, sequence, message });
                }
                let input = self.input_name(header.input_offset);
                self.otherwise.clone_from(&made.records);
                self.done.difference =
                    Some(difference(self.partition, header.input_offset, input, &records, &bytes, &made.records));
                return Ok(false);
            }
            self.done.decisions += 1;
            self.done.events += records.len() as u64;
        } else {
            // The shell must stand where the log does: it is begun anew after what it did not decide.
            self.shell = None;
            for record in &records {
                if let Event::Partition(PartitionEvent::WriterStarted(started)) = &record.event {
                    self.described.site = started.site;
                    self.described.generation = started.generation;
                }
            }
        }
        for (record, bytes) in records.iter().zip(&bytes) {
            self.live.apply(record).map_err(|refused| ReplayError::FoldRefused {
                partition: self.partition,
                sequence: record.sequence,
                kind: record.event.name(),
                refused,
            })?;
            let link = Envelope::link_after(bytes, &self.tail.link).unwrap_or_default();
            self.tail = Tail { sequence: record.sequence, term: record.term, link };
            self.done.sequence = record.sequence;
        }
        Ok(true)
    }

    fn decide(
        &mut self,
        first: &EventRecord,
        offset: u64,
        records: &[EventRecord],
    ) -> Result<gatelog_writer::Append, ReplayError> {
        let stream = Stream::Inputs(self.partition);
        let input = bytes_at(self.log, stream, offset)?;
        if first.decision.as_ref().is_some_and(|header| header.input_digest != InputFrame::digest(&input)) {
            return Err(ReplayError::InputChanged { stream, offset, sequence: first.sequence });
        }
        let mut shell = self.shell_in(first.term)?;
        if let Some((outside, message)) = outside_of(records) {
            // What a log takes and which blobs were there is not the rules' to say: it is a fact of that day.
            shell.refuse_for(offset, outside, message);
            self.done.as_recorded += 1;
        }
        let times = Times { wall: first.wall_at, log: first.recorded_at };
        let append = shell.take(Offset(offset), &input, times, self.blobs)?;
        self.shell = Some(shell);
        Ok(append)
    }

    fn input_name(&self, offset: u64) -> String {
        match crate::reading::input_at(self.log, Stream::Inputs(self.partition), offset) {
            Ok(input) => input.input.name().to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// Whether a decision is a refusal for what stood outside of the rules, and its message.
fn outside_of(records: &[EventRecord]) -> Option<(Outside, String)> {
    match records.last().map(|record| &record.event) {
        Some(Event::Partition(PartitionEvent::InputRefused(refused))) => {
            Some((Outside::of_code(&refused.code)?, refused.message.clone()))
        }
        _ => None,
    }
}

fn difference(
    partition: Partition,
    input_offset: u64,
    input: String,
    recorded: &[EventRecord],
    bytes: &[Vec<u8>],
    decided: &[EventRecord],
) -> Difference {
    let same = recorded.iter().zip(decided).take_while(|(recorded, decided)| recorded == decided).count();
    let sequence = recorded.first().map_or(0, |first| first.sequence) + same as u64;
    let what = match (recorded.get(same), decided.get(same)) {
        (Some(was), Some(is)) if was.event.name() != is.event.name() => {
            format!("event {sequence} was {}, now it is {}", was.event.name(), is.event.name())
        }
        (Some(was), Some(is)) if was.event != is.event => {
            format!("event {sequence} ({}) has other content", was.event.name())
        }
        (Some(was), Some(_)) => format!("event {sequence} ({}) has another envelope", was.event.name()),
        (Some(was), None) => format!("event {sequence} ({}) is no longer decided", was.event.name()),
        (None, Some(is)) => format!("event {sequence} ({}) is decided in addition", is.event.name()),
        (None, None) => format!("the same events have other bytes ({} of them)", bytes.len()),
    };
    Difference {
        partition: partition.to_string(),
        sequence,
        input_offset,
        input,
        what,
        recorded: recorded.iter().map(EventRecord::to_json).collect(),
        decided: decided.iter().map(EventRecord::to_json).collect(),
    }
}
