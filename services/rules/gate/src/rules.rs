//! What the shell calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gatelog_deciding::{Context, Refusal, Rules};
use gatelog_gate_state::Gate;
use gatelog_gate_state::live::{GateLive, Work};
use gatelog_record::draft::gate::{LayoutOutcome, LayoutPurpose};
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, Event, Input, InputRecord};
use gatelog_tables::Maps;

use crate::decision::Decision;
use crate::layout_view::LayoutView;

/// How many layouts are held. A decision reads at most two.
const MAX_HELD: usize = 64;

/// The gate's rules, with the layouts they hold.
#[derive(Debug, Default)]
pub struct GateRules {
    held: BTreeMap<BlobHash, Arc<LayoutView>>,
    order: VecDeque<BlobHash>,
}

impl GateRules {
    /// Rules that hold no layout yet.
    pub fn new() -> GateRules {
        GateRules::default()
    }

    /// What a look at the whole of an input's tenant would still decide: nothing, unless a decision before it looked
    /// at too little.
    ///
    /// # Errors
    /// As for a decision.
    pub fn left_undone(
        &self,
        state: &GateLive<Maps>,
        input: &InputRecord,
        context: Context,
    ) -> Result<Vec<Event>, Refusal> {
        Decision::look_at_all(self, state, input, context)
    }

    /// A layout that is held.
    pub(crate) fn layout(&self, hash: &BlobHash) -> Option<&Arc<LayoutView>> {
        self.held.get(hash)
    }
}

/// The tenant an input concerns: the key it comes under.
fn tenant_of(input: &InputRecord) -> &str {
    &input.key
}

impl Rules for GateRules {
    type State = Gate;

    fn needs(&self, state: &GateLive<Maps>, input: &InputRecord) -> Vec<BlobHash> {
        let mut wanted = Vec::new();
        if let Some(layout) = state.gate.layouts.rows.get(tenant_of(input)) {
            wanted.push(layout.layout);
        }
        if let Input::Gate(GateInput::LayoutMade(made)) = &input.input
            && let LayoutOutcome::Made { layout, .. } = &made.outcome
            && let Some(row) = state.gate.pending_work.rows.get(&made.work)
            && matches!(&row.work, Work::Layout(work) if work.purpose == LayoutPurpose::Tenant)
        {
            wanted.push(*layout);
        }
        wanted.retain(|hash| !self.held.contains_key(hash));
        wanted.dedup();
        wanted
    }

    fn admit(&mut self, hash: BlobHash, bytes: &[u8]) -> Result<(), String> {
        let view = LayoutView::decode(bytes)?;
        if self.held.insert(hash, Arc::new(view)).is_none() {
            self.order.push_back(hash);
        }
        while self.order.len() > MAX_HELD {
            if let Some(oldest) = self.order.pop_front() {
                self.held.remove(&oldest);
            }
        }
        Ok(())
    }

    fn decide(&self, state: &GateLive<Maps>, input: &InputRecord, context: Context) -> Result<Vec<Event>, Refusal> {
        Decision::run(self, state, input, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatelog_record::codec;
    use gatelog_rules_config::{LoadInput, load};

    #[test]
    fn as_many_layouts_are_held_as_may_be_and_the_oldest_goes_first() {
        let bytes = codec::encode(&load(&LoadInput::default()).0).unwrap();
        let hash = |number: usize| BlobHash::of(number.to_string().as_bytes());
        let mut rules = GateRules::new();
        for number in 0..MAX_HELD {
            rules.admit(hash(number), &bytes).unwrap();
        }
        assert!((0..MAX_HELD).all(|number| rules.layout(&hash(number)).is_some()));
        // One that is held already takes nobody's place.
        rules.admit(hash(0), &bytes).unwrap();
        assert!((0..MAX_HELD).all(|number| rules.layout(&hash(number)).is_some()));
        rules.admit(hash(MAX_HELD), &bytes).unwrap();
        let held: Vec<bool> = (0..=MAX_HELD).map(|number| rules.layout(&hash(number)).is_some()).collect();
        assert_eq!((held.first(), held.iter().filter(|held| **held).count()), (Some(&false), MAX_HELD));
    }
}
