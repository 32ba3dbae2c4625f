//! A partition's state at any position or time.

use std::marker::PhantomData;
use std::sync::Arc;

use gatelog_event_log::{Log, Tail};
use gatelog_record::{EventRef, Partition, Timestamp};
use gatelog_store::{Position, Rung, RungDir, StoreWarning};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, LiveTables, Maps, ReadTables, TableSet};

use crate::cut::beside;
use crate::error::ReplayError;
use crate::reading::{envelope_at, read_history};

/// A moment somebody asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the event with this sequence; 0 is before the first.
    Sequence(u64),
    /// After the last event recorded at or before this time.
    Time(Timestamp),
    /// Now: after the newest event on the log.
    Newest,
}

/// The live tables at a moment.
pub struct At<S: DomainState> {
    /// The live tables.
    pub live: S::Live<Maps>,
    /// Where they stand; its log offset and count of stale records are 0, whatever it was come from.
    pub position: Position,
    /// The rung the fold began at; `None` when it began at the first event.
    pub rung: Option<u64>,
    /// What was passed over on the way.
    pub warnings: Vec<StoreWarning>,
}

impl<S: DomainState> At<S> {
    /// The digest of the live tables.
    ///
    /// # Errors
    /// None that ordered maps can give.
    pub fn digest(&self) -> Result<[u8; 32], ReplayError> {
        let mut digest = StateDigest::default();
        self.live.visit(&mut digest)?;
        Ok(digest.finish())
    }
}

/// All tables at a moment, temporal ones too.
pub struct Full<S: DomainState> {
    /// The live tables.
    pub live: S::Live<Maps>,
    /// The temporal tables.
    pub temporal: S::Read<Maps>,
    /// Where they stand.
    pub position: Position,
}

/// A partition's past.
pub struct Timeline<S: DomainState> {
    log: Arc<dyn Log>,
    partition: Partition,
    rungs: Option<RungDir>,
    state: PhantomData<fn() -> S>,
}

impl<S: DomainState> Timeline<S> {
    /// The past of a partition as its log tells it; rungs only make it quicker.
    pub fn new(log: Arc<dyn Log>, partition: Partition, rungs: Option<RungDir>) -> Timeline<S> {
        Timeline { log, partition, rungs, state: PhantomData }
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// The live tables at a moment: from the nearest usable rung, folded on; without one from the
    /// first event. The answer is the same either way.
    ///
    /// # Errors
    /// `NotYet`, `FoldRefused`, `Log`, `History`.
    pub fn state_at(&self, moment: Moment) -> Result<At<S>, ReplayError> {
        let sequence = self.sequence(moment)?;
        let mut warnings = Vec::new();
        if let Some(rung) = self.rung(sequence.unwrap_or(u64::MAX), &mut warnings)? {
            let (live, position) = (rung.live, rung.header.position);
            let from = position.sequence;
            match self.fold(live, position, sequence) {
                Ok((live, position)) => {
                    return Ok(At { live, position: bare(position), rung: Some(from), warnings });
                }
                Err(error @ ReplayError::FoldRefused { .. }) => {
                    // Folding from the first event tells whether the rung or the log is at fault.
                    warnings.push(StoreWarning::RungPassedOver(gatelog_store::StoreError::RungOther {
                        path: self.rungs.as_ref().map(|rungs| rungs.path().to_owned()).unwrap_or_default(),
                        message: format!("folding on from event {from} failed: {error}"),
                    }));
                }
                Err(error) => return Err(error),
            }
        }
        self.begins_at_the_first_event()?;
        let (live, position) = self.fold(S::Live::open(&mut Maps)?, Position::default(), sequence)?;
        Ok(At { live, position: bare(position), rung: None, warnings })
    }

    /// All tables at a moment, folded from the first event: rungs hold no temporal tables. Where a
    /// projection is at hand, its temporal tables answer by their `from` and `until` instead.
    ///
    /// # Errors
    /// As [`Timeline::state_at`].
    pub fn full_at(&self, moment: Moment) -> Result<Full<S>, ReplayError> {
        let sequence = self.sequence(moment)?;
        self.begins_at_the_first_event()?;
        let mut live = S::Live::<Maps>::open(&mut Maps)?;
        let mut temporal = S::Read::<Maps>::open(&mut Maps)?;
        let position = self.each(Position::default(), sequence, |record| {
            live.apply(record)?;
            temporal.apply(&live, record)
        })?;
        Ok(Full { live, temporal, position: bare(position) })
    }

    /// The sequence of the last event recorded at or before a time; 0 when there was none yet.
    ///
    /// # Errors
    /// `Log`, `Frame`.
    pub fn sequence_at_time(&self, at: Timestamp) -> Result<u64, ReplayError> {
        sequence_at_time(&*self.log, self.partition, at)
    }

    /// Where this partition stood when another had just come to an event (0: before its first).
    ///
    /// # Errors
    /// `Log`, `Frame`.
    pub fn beside(&self, other: EventRef) -> Result<u64, ReplayError> {
        beside(&*self.log, other, self.partition)
    }

    /// Whether there is an event after this one.
    ///
    /// # Errors
    /// `Log`, `Frame`.
    pub fn goes_on_after(&self, sequence: u64) -> Result<bool, ReplayError> {
        Ok(envelope_at(&*self.log, self.partition, sequence.saturating_add(1))?.is_some())
    }

    /// The sequence of the newest event on the log; 0 when there is none.
    ///
    /// # Errors
    /// `Log`, `Frame`.
    pub fn newest(&self) -> Result<u64, ReplayError> {
        newest(&*self.log, self.partition)
    }

    /// Without a rung everything must be folded; a slice of a log does not have everything.
    fn begins_at_the_first_event(&self) -> Result<(), ReplayError> {
        let begins = self.log.begins(self.partition).sequence;
        match begins {
            0 => Ok(()),
            _ => Err(ReplayError::Slice { partition: self.partition, begins }),
        }
    }

    /// What a moment is as a sequence; `None` for the newest.
    fn sequence(&self, moment: Moment) -> Result<Option<u64>, ReplayError> {
        Ok(match moment {
            Moment::Sequence(sequence) => Some(sequence),
            Moment::Time(at) => Some(self.sequence_at_time(at)?),
            Moment::Newest => None,
        })
    }

    /// The nearest rung of this log's history.
    fn rung(&self, sequence: u64, warnings: &mut Vec<StoreWarning>) -> Result<Option<Rung<S>>, ReplayError> {
        let Some(rungs) = &self.rungs else { return Ok(None) };
        let mut at_most = sequence;
        loop {
            let Some(rung) = rungs.nearest::<S>(self.partition, at_most, warnings)? else { return Ok(None) };
            let found = rung.header.position;
            let expected = match envelope_at(&*self.log, self.partition, found.sequence)? {
                Some((_, link)) if link == found.link => return Ok(Some(rung)),
                Some((_, link)) => link.to_string(),
                None => "no event".to_owned(),
            };
            warnings.push(StoreWarning::RungOfAnotherHistory {
                path: rungs.path().to_owned(),
                sequence: found.sequence,
                found: found.link,
                expected,
            });
            match found.sequence.checked_sub(1) {
                Some(earlier) => at_most = earlier,
                None => return Ok(None),
            }
        }
    }

    fn fold(
        &self,
        mut live: S::Live<Maps>,
        position: Position,
        until: Option<u64>,
    ) -> Result<(S::Live<Maps>, Position), ReplayError> {
        let position = self.each(position, until, |record| live.apply(record))?;
        Ok((live, position))
    }

    fn each(
        &self,
        mut position: Position,
        until: Option<u64>,
        mut apply: impl FnMut(&gatelog_record::EventRecord) -> Result<(), gatelog_tables::FoldRefused>,
    ) -> Result<Position, ReplayError> {
        let partition = self.partition;
        let wanted = until.unwrap_or(u64::MAX);
        if position.sequence < wanted {
            let tail = Tail { sequence: position.sequence, term: position.term, link: position.link };
            read_history(&*self.log, partition, tail, |record, link, _| {
                apply(&record).map_err(|refused| ReplayError::FoldRefused {
                    partition,
                    sequence: record.sequence,
                    kind: record.event.name(),
                    refused,
                })?;
                // Where to read on is not known here, nor needed: events are found by sequence.
                position = position.after(&record, link, 0);
                Ok(record.sequence < wanted)
            })?;
        }
        match until {
            Some(wanted) if position.sequence < wanted => {
                Err(ReplayError::NotYet { partition, wanted, newest: position.sequence })
            }
            _ => Ok(position),
        }
    }
}

/// A position without what depends on how it was come to: where the log is read on and what was
/// passed over on the way.
fn bare(position: Position) -> Position {
    Position { log_offset: 0, stale: 0, ..position }
}

/// Whether an event comes after this one.
///
/// # Errors
/// `Log`, `Frame`.
pub fn goes_on_after(log: &dyn Log, partition: Partition, sequence: u64) -> Result<bool, ReplayError> {
    Ok(envelope_at(log, partition, sequence.saturating_add(1))?.is_some())
}

/// The sequence of the newest event on the log; 0 when there is none. Doubling steps, then halving
/// ones: a log is asked for its place of a sequence, never read through.
///
/// # Errors
/// `Log`, `Frame`.
pub fn newest(log: &dyn Log, partition: Partition) -> Result<u64, ReplayError> {
    last_with(log, partition, |sequence| envelope_at(log, partition, sequence).map(|found| found.is_some()))
}

/// The sequence of the last event recorded at or before a time; 0 when there was none yet. Times
/// never go back along a history.
///
/// # Errors
/// `Log`, `Frame`.
pub fn sequence_at_time(log: &dyn Log, partition: Partition, at: Timestamp) -> Result<u64, ReplayError> {
    last_with(log, partition, |sequence| {
        envelope_at(log, partition, sequence).map(|found| found.is_some_and(|(envelope, _)| envelope.recorded_at <= at))
    })
}

/// The last sequence for which the question, answered yes up to somewhere, is yes; what stands before the first event
/// where it never is.
fn last_with(
    log: &dyn Log,
    partition: Partition,
    question: impl Fn(u64) -> Result<bool, ReplayError>,
) -> Result<u64, ReplayError> {
    let mut yes = log.begins(partition).sequence;
    let mut step = 1_u64;
    while question(yes.saturating_add(step))? {
        yes = yes.saturating_add(step);
        step = step.saturating_mul(2);
    }
    let mut no = yes.saturating_add(step);
    while yes + 1 < no {
        let middle = yes + (no - yes) / 2;
        if question(middle)? { yes = middle } else { no = middle }
    }
    Ok(yes)
}
