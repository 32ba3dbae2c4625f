//! Behind whom each item of a queue stands, as Zuul tells it: behind the nearest that is not failing. But who waits for
//! what it needs, which is failing, is left where it stood, or comes behind whom those stood behind that moved on from
//! there. It is tested on nothing, so gatelog knows of no such place.

use std::collections::BTreeMap;

use gatelog_gate_state::live::{GateLive, ItemRow};
use gatelog_record::ItemId;
use gatelog_rules_gate::NEEDED_FAILING;
use gatelog_tables::Maps;

/// A queue: tenant, pipeline and name.
pub type QueueKey = (String, String, String);

/// The places of all items.
#[derive(Default)]
pub struct Standing {
    queues: BTreeMap<QueueKey, Places>,
}

/// The items of a queue in order, each with the one that it stands behind.
type Places = Vec<(ItemId, Option<ItemId>)>;

impl Standing {
    /// Behind whom each item of a queue stands.
    pub fn of(&self, queue: &QueueKey) -> impl Iterator<Item = (ItemId, Option<ItemId>)> + '_ {
        self.queues.get(queue).into_iter().flatten().copied()
    }

    /// Looks at all queues after a decision.
    pub fn settle(&mut self, live: &GateLive<Maps>) {
        self.queues.retain(|queue, _| live.gate.queues.rows.contains_key(queue));
        for (queue, row) in &live.gate.queues.rows {
            let places = self.queues.entry(queue.clone()).or_default();
            stay(places, &row.items);
            move_on(places, |item| live.gate.items.rows.get(&item));
        }
    }
}

/// Takes in who came and lets go who left: whoever stood behind them stands behind whom they stood behind.
fn stay(places: &mut Places, items: &[ItemId]) {
    let gone: Places = places.iter().filter(|(item, _)| !items.contains(item)).copied().collect();
    places.retain(|(item, _)| items.contains(item));
    for (item, before) in gone.iter().rev() {
        places.iter_mut().filter(|(_, other)| *other == Some(*item)).for_each(|(_, other)| *other = *before);
    }
    let known = places.iter().map(|(item, _)| *item);
    // A promote lets all come in anew.
    if !known.eq(items.iter().take(places.len()).copied()) {
        places.clear();
    }
    for item in items.iter().skip(places.len()) {
        let last = places.last().map(|(item, _)| *item);
        places.push((*item, last));
    }
}

fn move_on<'r>(places: &mut Places, row: impl Fn(ItemId) -> Option<&'r ItemRow>) {
    let mut nearest = None;
    for at in 0..places.len() {
        let Some((item, before)) = places.get(at).copied() else { break };
        let failing = row(item).map(|row| row.failing.as_slice()).unwrap_or_default();
        if !failing.iter().any(|reason| reason == NEEDED_FAILING) && before != nearest {
            places.iter_mut().filter(|(_, other)| *other == Some(item)).for_each(|(_, other)| *other = before);
            places.get_mut(at).into_iter().for_each(|(_, own)| *own = nearest);
        }
        if failing.is_empty() {
            nearest = Some(item);
        }
    }
}
