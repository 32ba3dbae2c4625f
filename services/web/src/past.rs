//! The past: live tables as they were, and where others stood when the gate had come to an event.

use std::sync::{Arc, Mutex, PoisonError};

use gatelog_capacity_state::{Capacity, CapacityLive};
use gatelog_event_log::Log;
use gatelog_gate_state::{Gate, GateLive};
use gatelog_record::{Domain, EventRef, Partition};
use gatelog_replay::cut::cut_beside;
use gatelog_replay::timeline::goes_on_after;
use gatelog_replay::{Moment, ReplayError, Timeline};
use gatelog_store::RungDir;
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

    /// Which event of every other partition was its last when the gate had just come to an event: with every cause of
    /// what the gate shows, without any effect of what it does not show.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn beside(&self, gate: u64) -> Result<Vec<(Partition, u64)>, PastError>;

    /// Capacity's live tables after an event of its; 0 is before the first.
    ///
    /// # Errors
    /// As [`Past::at`].
    fn capacity_at(&self, sequence: u64) -> Result<Arc<CapacityLive<Maps>>, PastError>;
}

/// How many moments of each are kept ready.
const MOMENTS_KEPT: usize = 16;
/// Of how many events of the gate it is kept where others stood.
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
struct Tables<S: DomainState> {
    timeline: Timeline<S>,
    kept: Kept<Arc<S::Live<Maps>>>,
}

impl<S: DomainState> Tables<S> {
    fn new(timeline: Timeline<S>) -> Tables<S> {
        Tables { timeline, kept: Kept::new(MOMENTS_KEPT) }
    }

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
    log: Arc<dyn Log>,
    others: Vec<Partition>,
    gate: Tables<Gate>,
    capacity: Tables<Capacity>,
    beside: Kept<Vec<(Partition, u64)>>,
}

impl TimelinePast {
    /// The past of these partitions, as the log tells it; rungs make it quicker.
    pub fn new(
        log: Arc<dyn Log>,
        partitions: &[Partition],
        rungs: impl Fn(Partition) -> Option<RungDir>,
    ) -> TimelinePast {
        let first = |domain| {
            let found = partitions.iter().copied().find(|partition| partition.domain == domain);
            found.unwrap_or(Partition { domain, index: 0 })
        };
        let (gate, capacity) = (first(Domain::Gate), first(Domain::Capacity));
        TimelinePast {
            others: partitions.iter().copied().filter(|partition| *partition != gate).collect(),
            gate: Tables::new(Timeline::new(Arc::clone(&log), gate, rungs(gate))),
            capacity: Tables::new(Timeline::new(Arc::clone(&log), capacity, rungs(capacity))),
            beside: Kept::new(BESIDE_KEPT),
            log,
        }
    }

    /// Whether more came to all of these partitions after these events.
    fn all_go_on(&self, beside: &[(Partition, u64)]) -> Result<bool, ReplayError> {
        for (partition, sequence) in beside {
            if !goes_on_after(&*self.log, *partition, *sequence)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Past for TimelinePast {
    fn at(&self, sequence: u64) -> Result<Arc<GateLive<Maps>>, PastError> {
        self.gate.at(sequence)
    }

    fn beside(&self, gate: u64) -> Result<Vec<(Partition, u64)>, PastError> {
        if let Some(beside) = self.beside.get(gate) {
            return Ok(beside);
        }
        let at = EventRef { partition: self.gate.timeline.partition(), sequence: gate };
        let cut = cut_beside(&*self.log, at, &self.others).map_err(failed(gate))?;
        let beside: Vec<_> =
            self.others.iter().map(|other| (*other, cut.get(other).copied().unwrap_or_default())).collect();
        // At the end of the log more may still come that belongs to this event.
        if self.all_go_on(&beside).map_err(failed(gate))? {
            self.beside.keep(gate, beside.clone());
        }
        Ok(beside)
    }

    fn capacity_at(&self, sequence: u64) -> Result<Arc<CapacityLive<Maps>>, PastError> {
        self.capacity.at(sequence)
    }
}
