//! The gate's rules, which panic on inputs that are marked: the one fault a rule cannot be asked for.

use gatelog_deciding::{Context, Refusal, Rules};
use gatelog_gate_state::{Gate, GateLive};
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, Event, Input, InputRecord};
use gatelog_rules_gate::GateRules;
use gatelog_tables::Maps;

/// How the delivery of an event begins on which the rules panic.
pub const MARK: &str = "poison";

/// The gate's rules with a fault in them.
#[derive(Default)]
pub struct Marked(GateRules);

impl Rules for Marked {
    type State = Gate;

    fn needs(&self, state: &GateLive<Maps>, input: &InputRecord) -> Vec<BlobHash> {
        self.0.needs(state, input)
    }

    fn admit(&mut self, hash: BlobHash, bytes: &[u8]) -> Result<(), String> {
        self.0.admit(hash, bytes)
    }

    fn decide(&self, state: &GateLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        let decided = self.0.decide(state, input, context);
        if let Input::Gate(GateInput::TriggerReceived(received)) = &input.input {
            assert!(!received.event.delivery.starts_with(MARK), "a rule meets an input it was made to panic on");
        }
        decided
    }
}
