//! A state that can be led forwards and back.
//!
//! Folding goes forwards alone. To go back, the states of some events on the way are kept as bytes: one every
//! [`EVERY`] events, over the last [`BEHIND`] events before where one went; at most [`MAX_KEPT`] of them and
//! [`MAX_BYTES`] in all. Further back, the nearest rung serves, or the first event.

use std::collections::BTreeMap;
use std::sync::Arc;

use gatelog_event_log::{Log, Tail};
use gatelog_record::Partition;
use gatelog_store::RungDir;
use gatelog_store::rung::{rows_of, tables_of};
use gatelog_tables::{DomainState, LiveTables, Maps, TableSet};

use crate::diff::{RowChange, RowsBefore, TableRows, table_rows};
use crate::error::ReplayError;
use crate::reading::read_history;
use crate::timeline::{Moment, Timeline};

/// A state is kept every so many events.
pub const EVERY: u64 = 64;
/// So many events before where one went are walked through with states kept.
pub const BEHIND: u64 = 1_024;
/// At most so many states are kept.
pub const MAX_KEPT: usize = 32;
/// At most so many bytes of them.
pub const MAX_BYTES: usize = 256 << 20;

/// A state of a partition that can be led to any of its events.
pub trait Stand {
    /// Goes to the state after an event; 0 is before the first.
    ///
    /// # Errors
    /// `NotYet`, `FoldRefused`, and what reading the past gives. It stays where it was.
    fn go_to(&mut self, sequence: u64) -> Result<(), ReplayError>;
    /// What the event it stands at changed.
    ///
    /// # Errors
    /// A row cannot be written down.
    fn made(&mut self) -> Result<Vec<RowChange>, ReplayError>;
    /// The tables with their rows; only that one, where it is named.
    ///
    /// # Errors
    /// A row cannot be written down.
    fn tables(&self, only: Option<&str>) -> Result<Vec<TableRows>, ReplayError>;
    /// How many states are kept, and how many bytes they take.
    fn kept(&self) -> (usize, usize);
    /// How many events were folded so far, for whoever asks what going somewhere costs.
    fn folded(&self) -> u64;
}

/// A state written down.
struct Kept {
    tail: Tail,
    rows: Vec<u8>,
}

/// A state and where it stands.
struct Here<S: DomainState> {
    live: S::Live<Maps>,
    tail: Tail,
}

/// A state of a domain's partition, and what is kept of those before it.
pub struct Standing<S: DomainState> {
    log: Arc<dyn Log>,
    timeline: Timeline<S>,
    rungs: Option<RungDir>,
    partition: Partition,
    here: Here<S>,
    kept: BTreeMap<u64, Kept>,
    folded: u64,
}

impl<S: DomainState> Standing<S> {
    /// Before the first event.
    ///
    /// # Errors
    /// None that ordered maps can give.
    pub fn new(log: Arc<dyn Log>, partition: Partition, rungs: Option<RungDir>) -> Result<Standing<S>, ReplayError> {
        let timeline = Timeline::new(Arc::clone(&log), partition, rungs.clone());
        let here = Here { live: S::Live::open(&mut Maps)?, tail: Tail::GENESIS };
        Ok(Standing { log, timeline, rungs, partition, here, kept: BTreeMap::new(), folded: 0 })
    }

    /// The state after an event, from the nearest that is at hand.
    fn come_to(&mut self, sequence: u64) -> Result<Here<S>, ReplayError> {
        let nearest = self.kept.range(..=sequence).next_back().map(|(at, _)| *at);
        let far = sequence.saturating_sub(nearest.unwrap_or(0)) > BEHIND;
        let begin = match nearest.and_then(|at| self.kept.get(&at)) {
            Some(kept) if !far => Here { live: tables_of(&kept.rows)?, tail: kept.tail },
            _ => {
                // So far before it that the way back from it is short, too.
                let before = sequence.saturating_sub(BEHIND);
                let at = match self.rung_or_nearest(before, nearest) {
                    Some(kept) => Here { live: tables_of(&kept.rows)?, tail: kept.tail },
                    None => {
                        let at = self.timeline.state_at(Moment::Sequence(before))?;
                        self.folded += before - at.rung.unwrap_or(0);
                        let place = at.position;
                        let tail = Tail { sequence: place.sequence, term: place.term, link: place.link };
                        Here { live: at.live, tail }
                    }
                };
                self.fold(at, before)?
            }
        };
        self.fold(begin, sequence)
    }

    /// A state that is kept, where no rung is nearer.
    fn rung_or_nearest(&self, before: u64, nearest: Option<u64>) -> Option<&Kept> {
        let nearest = nearest.filter(|at| *at <= before)?;
        let rungs = self.rungs.as_ref().and_then(|rungs| rungs.list().ok()).unwrap_or_default();
        let rung = rungs.iter().map(|entry| entry.sequence).filter(|at| *at <= before).max();
        if rung.is_some_and(|rung| rung > nearest) { None } else { self.kept.get(&nearest) }
    }

    /// Folds on to an event, keeping states on the way.
    fn fold(&mut self, mut here: Here<S>, to: u64) -> Result<Here<S>, ReplayError> {
        let partition = self.partition;
        if here.tail.sequence >= to {
            return Ok(here);
        }
        let log = Arc::clone(&self.log);
        let (mut live, mut tail) = (here.live, here.tail);
        read_history(&*log, partition, tail, |record, link, _| {
            live.apply(&record).map_err(|refused| ReplayError::FoldRefused {
                partition,
                sequence: record.sequence,
                kind: record.event.name(),
                refused,
            })?;
            self.folded += 1;
            tail = Tail { sequence: record.sequence, term: record.term, link };
            if record.sequence.is_multiple_of(EVERY) && to - record.sequence <= BEHIND {
                self.keep(&live, tail)?;
            }
            Ok(record.sequence < to)
        })?;
        if tail.sequence < to {
            return Err(ReplayError::NotYet { partition, wanted: to, newest: tail.sequence });
        }
        here = Here { live, tail };
        Ok(here)
    }

    fn keep(&mut self, live: &S::Live<Maps>, tail: Tail) -> Result<(), ReplayError> {
        if self.kept.contains_key(&tail.sequence) {
            return Ok(());
        }
        let rows = rows_of(live)?;
        self.kept.insert(tail.sequence, Kept { tail, rows });
        // What is furthest from here goes.
        while self.kept.len() > MAX_KEPT || (self.kept.len() > 1 && self.bytes() > MAX_BYTES) {
            let far = |at: &u64| at.abs_diff(tail.sequence);
            let Some(furthest) = self.kept.keys().copied().max_by_key(|at| far(at)) else { break };
            self.kept.remove(&furthest);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.kept.values().map(|kept| kept.rows.len()).sum()
    }
}

impl<S: DomainState> Stand for Standing<S> {
    fn go_to(&mut self, sequence: u64) -> Result<(), ReplayError> {
        let now = self.here.tail.sequence;
        if now == sequence {
            return Ok(());
        }
        if sequence == now + 1 {
            // The state at hand goes on; should its next event not fit, it is made anew.
            let fresh = Here { live: S::Live::open(&mut Maps)?, tail: Tail::GENESIS };
            let here = std::mem::replace(&mut self.here, fresh);
            return match self.fold(here, sequence) {
                Ok(here) => {
                    self.here = here;
                    Ok(())
                }
                Err(error) => {
                    self.here = self.come_to(now)?;
                    Err(error)
                }
            };
        }
        self.here = self.come_to(sequence)?;
        Ok(())
    }

    fn made(&mut self) -> Result<Vec<RowChange>, ReplayError> {
        let Some(before) = self.here.tail.sequence.checked_sub(1) else { return Ok(Vec::new()) };
        let before = self.come_to(before)?;
        RowsBefore::of(&before.live)?.to(&self.here.live)
    }

    fn tables(&self, only: Option<&str>) -> Result<Vec<TableRows>, ReplayError> {
        table_rows(&self.here.live, only)
    }

    fn kept(&self) -> (usize, usize) {
        (self.kept.len(), self.bytes())
    }

    fn folded(&self) -> u64 {
        self.folded
    }
}
