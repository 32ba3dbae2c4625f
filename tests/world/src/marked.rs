//! The house's rules, which panic on inputs that are marked: the one fault a rule cannot be asked for. And faults that are
//! planted in them on purpose, to see that the world finds them.

use std::sync::{Arc, Mutex, PoisonError};

use gatelog_capacity_state::{Capacity, CapacityLive, owner_key};
use gatelog_deciding::{Context, Refusal, Rules};
use gatelog_gate_state::{Gate, GateLive};
use gatelog_record::draft::gate::BuildResult;
use gatelog_record::input::{CapacityInput, GateInput};
use gatelog_record::{BlobHash, Event, Input, InputRecord, SubjectId};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;
use gatelog_tables::Maps;

/// How the delivery of an event, or the id of an input, begins on which the rules panic.
pub const MARK: &str = "poison";

/// A fault that is planted in the rules. Nothing but the world can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// Capacity takes whatever start of a worker announces itself last for the newest.
    AnyStartCounts,
    /// Capacity does not hear that a lease is no longer needed while that still waits.
    QueuedEndsAreLost,
    /// The gate takes an attempt that is to be made again for a success.
    RetriesSucceed,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 3] = [Plant::AnyStartCounts, Plant::QueuedEndsAreLost, Plant::RetriesSucceed];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Plant::AnyStartCounts => "any-start-counts",
            Plant::QueuedEndsAreLost => "queued-ends-are-lost",
            Plant::RetriesSucceed => "retries-succeed",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|plant| plant.name() == name)
    }
}

/// What decisions left undone, as it is found.
pub type Undone = Arc<Mutex<Vec<String>>>;

/// Rules with a fault in them.
#[derive(Default)]
pub struct Marked<R> {
    rules: R,
    plant: Option<Plant>,
    undone: Undone,
}

impl<R: Default> Marked<R> {
    /// Rules with a planted fault, or without. What is found to be left undone is told to `undone`.
    pub fn planted(plant: Option<Plant>, undone: &Undone) -> Marked<R> {
        Marked { rules: R::default(), plant, undone: Arc::clone(undone) }
    }
}

impl Marked<GateRules> {
    /// A decision looks only at what its events touch. Before the next of its tenant a look at everything must find
    /// nothing that was left undone: neither the last decision nor any before it looked at too little.
    fn look(&self, state: &GateLive<Maps>, input: &InputRecord, context: &Context) {
        // A timer that came due is gone, and is set again by the decision to come.
        if self.plant.is_some() || !matches!(input.input, Input::Gate(_)) {
            return;
        }
        let Ok(left) = self.rules.left_undone(state, input, context.clone()) else { return };
        let told: Vec<String> = left
            .iter()
            .filter(|event| matches!(event, Event::Gate(_)))
            .take(3)
            .map(|event| format!("{} {}", event.name(), event.to_json()))
            .collect();
        if !told.is_empty() {
            let told = format!("before {} this was left undone: {}", input.input.name(), told.join("; "));
            self.undone.lock().unwrap_or_else(PoisonError::into_inner).push(told);
        }
    }
}

impl Rules for Marked<GateRules> {
    type State = Gate;

    fn needs(&self, state: &GateLive<Maps>, input: &InputRecord) -> Vec<BlobHash> {
        self.rules.needs(state, input)
    }

    fn admit(&mut self, hash: BlobHash, bytes: &[u8]) -> Result<(), String> {
        self.rules.admit(hash, bytes)
    }

    fn decide(&self, state: &GateLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        self.look(state, input, &context);
        let mut input = input.clone();
        if let Input::Gate(GateInput::AttemptFinished(finished)) = &mut input.input
            && self.plant == Some(Plant::RetriesSucceed)
            && finished.result == BuildResult::Retry
        {
            finished.result = BuildResult::Success;
        }
        let decided = self.rules.decide(state, &input, context);
        let marked = match &input.input {
            Input::Gate(GateInput::TriggerReceived(received)) => received.event.delivery.starts_with(MARK),
            _ => input.input_id.as_str().starts_with(MARK),
        };
        assert!(!marked, "a rule meets an input it was made to panic on");
        decided
    }
}

impl Rules for Marked<CapacityRules> {
    type State = Capacity;

    fn needs(&self, state: &CapacityLive<Maps>, input: &InputRecord) -> Vec<BlobHash> {
        self.rules.needs(state, input)
    }

    fn admit(&mut self, hash: BlobHash, bytes: &[u8]) -> Result<(), String> {
        self.rules.admit(hash, bytes)
    }

    fn decide(&self, state: &CapacityLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        let mut input = input.clone();
        match (&mut input.input, self.plant) {
            (Input::Capacity(CapacityInput::WorkerSeen(seen)), Some(Plant::AnyStartCounts)) => {
                seen.started_at = context.now;
            }
            (Input::Capacity(CapacityInput::LeaseEndAsked(end)), Some(Plant::QueuedEndsAreLost)) => {
                let lease = state.own.by_owner.rows.get(&owner_key(end.owner.partition, &end.owner.subject));
                let row = lease.and_then(|lease| state.own.leases.rows.get(lease));
                if row.is_some_and(|row| row.grant.is_none()) {
                    end.owner.subject.id = SubjectId::default();
                }
            }
            _ => {}
        }
        self.rules.decide(state, &input, context)
    }
}
