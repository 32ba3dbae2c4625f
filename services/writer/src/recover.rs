//! Taking a partition over: claim, fold what is on the log, know where to go on.

use gatelog_deciding::Rules;
use gatelog_event_log::{Claim, EventWriter, HistoryReader, Log, ReadLimit, Step, Tail};
use gatelog_record::{EventRecord, Partition, Stream};
use gatelog_tables::{DomainState, LiveTables, Maps, TableSet};

use crate::error::WriterError;
use crate::shell::outcome_of;
use crate::waits::Decided;

/// Live tables to start from, and the event they stand at.
pub struct Initial<S: DomainState> {
    /// The tables.
    pub live: S::Live<Maps>,
    /// The event they stand at.
    pub tail: Tail,
}

impl<S: DomainState> Initial<S> {
    /// Empty tables before the first event.
    ///
    /// # Errors
    /// None that ordered maps can give.
    pub fn genesis() -> Result<Initial<S>, String> {
        let live = S::Live::<Maps>::open(&mut Maps).map_err(|error| error.to_string())?;
        Ok(Initial { live, tail: Tail::GENESIS })
    }
}

/// A partition taken over.
pub(crate) struct Recovered<S: DomainState> {
    pub live: S::Live<Maps>,
    pub tail: Tail,
    pub stale: u64,
    pub events: Box<dyn EventWriter>,
}

/// Claims a partition and folds its history up to the claim's newest event. `settled` hears of every
/// decision on the way: of some, an earlier writer may not have known that they were kept.
pub(crate) fn recover<R: Rules>(
    log: &dyn Log,
    partition: Partition,
    initial: Initial<R::State>,
    mut settled: impl FnMut(Decided),
) -> Result<Recovered<R::State>, WriterError> {
    let (claim, events) = log.claim(partition)?;
    let Claim { last_sequence, last_link, .. } = claim;
    let Initial { mut live, tail } = initial;
    if tail.sequence > last_sequence {
        return Err(WriterError::Behind { partition, known: tail.sequence, last: last_sequence });
    }
    let mut reader = HistoryReader::after(partition, tail);
    let mut decision: Vec<EventRecord> = Vec::new();
    if tail.sequence < last_sequence {
        let mut from = log.seek(partition, tail.sequence + 1)?;
        while reader.tail().sequence < last_sequence {
            let batch = log.read(Stream::Events(partition), from, ReadLimit::default())?;
            if batch.records.is_empty() {
                return Err(WriterError::Short { partition, claimed: last_sequence, found: reader.tail().sequence });
            }
            from = batch.next;
            for bytes in &batch.records {
                let step = reader.next(bytes).map_err(|error| error.with_writer(log))?;
                let Step::Event(record, _) = step else { continue };
                live.apply(&record).map_err(|refused| WriterError::Fold {
                    partition,
                    sequence: record.sequence,
                    event: record.event.name(),
                    refused,
                })?;
                if record.decision.is_some() {
                    decided(&mut decision, &mut settled);
                }
                if record.decision.is_some() || !decision.is_empty() {
                    decision.push(*record);
                }
            }
        }
    }
    decided(&mut decision, &mut settled);
    let tail = reader.tail();
    if tail.link != last_link {
        return Err(WriterError::Link { partition, sequence: tail.sequence, found: tail.link, claimed: last_link });
    }
    Ok(Recovered { live, tail, stale: reader.stale(), events })
}

/// Tells of one decision and makes room for the next. The writer's own records may follow a decision
/// without being part of it.
fn decided(records: &mut Vec<EventRecord>, settled: &mut impl FnMut(Decided)) {
    records.retain(|record| record.cause != gatelog_record::Cause::Start);
    if let (Some(first), Some(last)) = (records.first(), records.last())
        && let Some(header) = &first.decision
    {
        settled(Decided {
            input_offset: header.input_offset,
            input_id: header.input_id.clone(),
            first: first.sequence,
            last: last.sequence,
            outcome: outcome_of(records),
        });
    }
    records.clear();
}
