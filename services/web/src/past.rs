//! The past: live tables as they were, and where capacity stood when the gate had come to an event.

use std::sync::{Arc, Mutex, PoisonError};

use gatelog_capacity_state::{Capacity, CapacityLive};
use gatelog_gate_state::{Gate, GateLive};
use gatelog_record::EventRef;
use gatelog_replay::{Moment, ReplayError, Timeline};
use gatelog_tables::{DomainState, Maps};

/// The past could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state at event {sequence} cannot be had: {message}")]
pub struct PastError {
    /// Of which event.
    pub sequence: u64,
    /// Why.
    pub message: String,
}

/// The live tables as they were. What is asked may take a while: it is not asked where that would hold anybody up.
pub trait Past: Send + Sync {
    /// The gate's live tables after an event of its; 0 is before the first.
    ///
    /// # Errors
    /// When the log or its rungs cannot be read or folded.
    fn at(&self, sequence: u64) -> Result<Arc<GateLive<Maps>>, PastError>;

    /// Which event of capacity was its last when the gate had just come to an event: with every cause of what the gate
    /// shows, without any effect of what it does not show.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn capacity_beside(&self, gate: u64) -> Result<u64, PastError>;

    /// Capacity's live tables after an event of its; 0 is before the first.
    ///
    /// # Errors
    /// As [`Past::at`].
    fn capacity_at(&self, sequence: u64) -> Result<Arc<CapacityLive<Maps>>, PastError>;
}

/// How many moments of each are kept ready.
const MOMENTS_KEPT: usize = 16;
/// Of how many events of the gate it is kept where capacity stood.
const BESIDE_KEPT: usize = 256;

/// What was asked for last.
struct Kept<T> {
    most: usize,
    found: Mutex<Vec<(u64, T)>>,
}

impl<T: Clone> Kept<T> {
    fn new(most: usize) -> Kept<T> {
        Kept { most, found: Mutex::default() }
    }

    fn get(&self, sequence: u64) -> Option<T> {
        let mut kept = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(at, _)| *at == sequence)?;
        let found = kept.remove(place);
        let value = found.1.clone();
        kept.push(found);
        Some(value)
    }

    fn keep(&self, sequence: u64, value: T) {
        let mut kept = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most {
            kept.remove(0);
        }
        kept.push((sequence, value));
    }
}

fn failed(sequence: u64) -> impl Fn(ReplayError) -> PastError {
    move |error| PastError { sequence, message: error.to_string() }
}

/// The past of one domain.
struct Domain<S: DomainState> {
    timeline: Timeline<S>,
    kept: Kept<Arc<S::Live<Maps>>>,
}

impl<S: DomainState> Domain<S> {
    fn at(&self, sequence: u64) -> Result<Arc<S::Live<Maps>>, PastError> {
        if let Some(live) = self.kept.get(sequence) {
            return Ok(live);
        }
        let found = self.timeline.state_at(Moment::Sequence(sequence)).map_err(failed(sequence))?;
        let live = Arc::new(found.live);
        self.kept.keep(sequence, Arc::clone(&live));
        Ok(live)
    }
}

/// The past by replay: from the nearest rung, folded on. The moments asked for last are kept.
pub struct TimelinePast {
    gate: Domain<Gate>,
    capacity: Domain<Capacity>,
    beside: Kept<u64>,
}

impl TimelinePast {
    /// The past that two timelines tell.
    pub fn new(gate: Timeline<Gate>, capacity: Timeline<Capacity>) -> TimelinePast {
        TimelinePast {
            gate: Domain { timeline: gate, kept: Kept::new(MOMENTS_KEPT) },
            capacity: Domain { timeline: capacity, kept: Kept::new(MOMENTS_KEPT) },
            beside: Kept::new(BESIDE_KEPT),
        }
    }
}

impl Past for TimelinePast {
    fn at(&self, sequence: u64) -> Result<Arc<GateLive<Maps>>, PastError> {
        self.gate.at(sequence)
    }

    fn capacity_beside(&self, gate: u64) -> Result<u64, PastError> {
        if let Some(beside) = self.beside.get(gate) {
            return Ok(beside);
        }
        let timeline = &self.capacity.timeline;
        let at = EventRef { partition: self.gate.timeline.partition(), sequence: gate };
        let beside = timeline.beside(at).map_err(failed(gate))?;
        // At the end of the log more may still come that belongs to this event.
        if timeline.goes_on_after(beside).map_err(failed(gate))? {
            self.beside.keep(gate, beside);
        }
        Ok(beside)
    }

    fn capacity_at(&self, sequence: u64) -> Result<Arc<CapacityLive<Maps>>, PastError> {
        self.capacity.at(sequence)
    }
}
