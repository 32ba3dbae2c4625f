//! Who gets a lease, and when. Pure.
//!
//! A lease gives one attempt of its owner's, whoever that is, all it needs, together or not at all: a slot of a worker that
//! can make its nodes, and its semaphores. [`CapacityRules`] is the domain's `Rules`; each kind of
//! input has its function in [`asks`] or [`workers`], and every one of them ends in [`granting`],
//! which gives away what is free in order and says of every lease left what it waits for.

pub mod asks;
pub mod granting;
pub mod workers;

use gatelog_capacity_state::{Capacity, CapacityLive};
use gatelog_deciding::{Context, Deciding, Refusal, Rules};
use gatelog_record::draft::partition::InputTaken;
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::{CapacityInput, PartitionInput};
use gatelog_record::{BlobHash, Event, Input, InputRecord};
use gatelog_tables::Maps;

/// What the rules hold back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many waiting leases of one share and priority are looked at; those behind wait with reason
    /// `fair-share`.
    pub considered: usize,
    /// How many leases may wait in all.
    pub queued: u64,
    /// How many nodes, and how many semaphores, one lease may ask for.
    pub per_lease: usize,
    /// How many workers there may be, and how many components may be paused.
    pub workers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { considered: 100, queued: 100_000, per_lease: 100, workers: 10_000 }
    }
}

/// Capacity's rules. They read no blobs and hold nothing but their limits, which are part of the build.
#[derive(Clone, Copy, Debug, Default)]
pub struct CapacityRules {
    limits: Limits,
}

impl CapacityRules {
    /// With limits of one's own; for tests and for looking at what other limits would do.
    pub fn with_limits(limits: Limits) -> Self {
        CapacityRules { limits }
    }
}

/// A decision of capacity in the making.
pub(crate) type Making<'a> = Deciding<'a, Capacity>;

impl Rules for CapacityRules {
    type State = Capacity;

    fn needs(&self, _: &CapacityLive<Maps>, _: &InputRecord) -> Vec<BlobHash> {
        Vec::new()
    }

    fn admit(&mut self, _: BlobHash, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn decide(&self, state: &CapacityLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        let mut making = Making::begin(state, input, context);
        let limits = &self.limits;
        match &input.input {
            Input::Capacity(CapacityInput::WorkerSeen(seen)) => workers::seen(&mut making, limits, seen)?,
            Input::Capacity(CapacityInput::WorkerSilent(silent)) => workers::silent(&mut making, limits, silent)?,
            Input::Capacity(CapacityInput::LeaseAsked(ask)) => asks::asked(&mut making, limits, ask)?,
            Input::Capacity(CapacityInput::LeaseEndAsked(end)) => asks::end_asked(&mut making, limits, end)?,
            Input::Capacity(CapacityInput::LeaseHoldAsked(hold)) => asks::hold_asked(&mut making, limits, hold)?,
            Input::Capacity(CapacityInput::LeasePauseAsked(asked)) => asks::pause_asked(&mut making, limits, asked)?,
            Input::Capacity(CapacityInput::LeaseResumeAsked(asked)) => asks::resume_asked(&mut making, asked)?,
            Input::Capacity(CapacityInput::LeaseReleased(released)) => asks::released(&mut making, limits, released)?,
            Input::Capacity(CapacityInput::PauseAsked(asked)) => workers::pause_asked(&mut making, limits, asked)?,
            Input::Partition(
                PartitionInput::TimerDue(_) | PartitionInput::OutboxDelivered(_) | PartitionInput::LevelRaiseAsked(_),
            ) => {}
            other => return Err(Refusal::NotOurs(other.name())),
        }
        Ok(making.finish())
    }
}

/// Records that an input led to nothing, and why.
pub(crate) fn nothing(making: &mut Making<'_>, reason: &str) -> Result<(), Refusal> {
    making.emit(Event::Partition(PartitionEvent::InputTaken(InputTaken {
        duplicate_of: None,
        reason: reason.to_owned(),
    })))
}
