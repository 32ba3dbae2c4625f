//! What must hold after every input, whatever the story.

use gatelog_gate_state::Gate;
use gatelog_gate_state::live::{BuildState, GateLive, WaitKey};
use gatelog_record::draft::gate::{BuildResult, WaitSubject};
use gatelog_record::event::GateEvent;
use gatelog_record::{ChainLink, Envelope, Event, EventRecord};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{Backing, DomainState, LiveTables, Maps, TableSet};

use super::shell::World;

fn digest<B: Backing>(live: &GateLive<B>) -> Result<[u8; 32], String> {
    let mut digest = StateDigest::default();
    live.visit(&mut digest).map_err(|error| error.to_string())?;
    Ok(digest.finish())
}

/// The same events over an overlay and on the tables themselves come to the same.
pub fn overlay_agrees(live: &GateLive<Maps>, events: &[EventRecord]) -> Result<(), String> {
    let mut overlay = Gate::overlay(live);
    for event in events {
        overlay.apply(event).map_err(|refused| format!("overlay: event {}: {refused}", event.event.name()))?;
        // What is written down reads back the same.
        let (bytes, _) = event.close().map_err(|error| error.to_string())?.encode(&ChainLink::default());
        let (envelope, _) = Envelope::decode(&bytes).map_err(|error| error.to_string())?;
        let read = envelope.open().map_err(|error| error.to_string())?;
        if read != *event {
            return Err(format!("{} does not read back as it was written", event.event.name()));
        }
    }
    // Held until the tables themselves have the events.
    OVERLAY.with(|cell| {
        *cell.borrow_mut() = digest(&overlay).ok();
    });
    Ok(())
}

thread_local! {
    static OVERLAY: std::cell::RefCell<Option<[u8; 32]>> = const { std::cell::RefCell::new(None) };
}

/// What is to be merged was tested as it is, on what it is to be put on.
pub fn tested(live: &GateLive<Maps>, event: &Event) -> Result<(), String> {
    let Event::Gate(GateEvent::SubmitRequested(submit)) = event else { return Ok(()) };
    let gate = &live.gate;
    let item = gate.items.rows.get(&submit.item).ok_or("an item that is gone is to be merged")?;
    let set = item.buildset.and_then(|set| gate.buildsets.rows.get(&set)).ok_or("nothing was tested")?;
    let queue = gate.queues.rows.get(&(item.tenant.clone(), item.pipeline.clone(), item.queue.clone()));
    if !queue.ok_or("its queue is gone")?.stands_on(set).is_empty() {
        return Err("it is to be merged while it stands on something that is not".into());
    }
    for build in &set.builds {
        let row = gate.builds.rows.get(build).ok_or("a build is gone")?;
        if row.job.traits.reporter {
            continue;
        }
        let well = matches!(row.result, Some(BuildResult::Success | BuildResult::Skipped));
        if row.state != BuildState::Done || (row.job.voting && !well) {
            return Err(format!("it is to be merged although {} is {:?}", row.job.name, row.result));
        }
    }
    let branches = set.state.as_ref().map(|state| state.branches.as_slice()).unwrap_or_default();
    for target in &submit.targets {
        let there = branches.iter().any(|branch| {
            branch.at == target.at && branch.commit == target.tested_commit && branch.ahead == target.tested_base
        });
        if !there {
            return Err(format!("{} was not tested", target.tested_commit));
        }
    }
    Ok(())
}

/// The events from the beginning come to the same state; asked once a story has ended.
pub fn begins_anew(world: &World) -> Result<(), String> {
    let mut fresh = GateLive::in_memory();
    for event in &world.events {
        fresh.apply(event).map_err(|refused| format!("from the beginning: {}: {refused}", event.event.name()))?;
    }
    if digest(&fresh)? != digest(&world.live)? {
        return Err("the events from the beginning come to another state".into());
    }
    Ok(())
}

/// Checks a world after an input.
pub fn always_hold(world: &World) -> Result<(), String> {
    let now = digest(&world.live)?;
    if OVERLAY.with(|cell| cell.borrow().is_some_and(|overlay| overlay != now)) {
        return Err("the overlay came to another state than the tables".into());
    }
    if world.forge.surprised {
        return Err("a branch had moved under the gate although nobody else pushed".into());
    }
    let gate = &world.live.gate;
    let waits = |subject: WaitSubject| gate.waits.rows.contains_key(&WaitKey(subject));
    for (id, item) in &gate.items.rows {
        if !waits(WaitSubject::Item(*id)) {
            return Err(format!("item {id} ({:?}) waits without a reason", item.subjects.first()));
        }
    }
    for (id, build) in &gate.builds.rows {
        if build.state != BuildState::Done && !waits(WaitSubject::Build(*id)) {
            return Err(format!("build {id} ({}) waits without a reason", build.job.name));
        }
    }
    for (_, trigger) in gate.triggers.rows.keys() {
        if !waits(WaitSubject::Trigger(*trigger)) {
            return Err(format!("trigger {trigger} waits without a reason"));
        }
    }
    for WaitKey(subject) in gate.waits.rows.keys() {
        let there = match subject {
            WaitSubject::Tenant(tenant) => gate.tenants.rows.contains_key(tenant),
            WaitSubject::Trigger(trigger) => gate.triggers.rows.keys().any(|(_, other)| other == trigger),
            WaitSubject::Item(item) => gate.items.rows.contains_key(item),
            WaitSubject::Build(build) => {
                gate.builds.rows.get(build).is_some_and(|build| build.state != BuildState::Done)
            }
        };
        if !there {
            return Err(format!("{subject:?} waits but is gone"));
        }
    }
    for (id, pending) in &gate.pending_work.rows {
        if let Some(item) = pending.work.item()
            && pending.work.is_waited_for()
            && gate.items.rows.get(&item).is_none_or(|item| item.work != Some(*id))
        {
            return Err(format!("{} {id} is asked for by an item that does not wait for it", pending.work.kind()));
        }
    }
    for (key, queue) in &gate.queues.rows {
        if queue.items.is_empty() && queue.window == 0 {
            return Err(format!("queue {key:?} is empty and there"));
        }
    }
    for (id, set) in &gate.buildsets.rows {
        if gate.items.rows.get(&set.item).is_none_or(|item| item.buildset != Some(*id)) {
            return Err(format!("buildset {id} is nobody's"));
        }
    }
    if gate.items.rows.is_empty() && gate.triggers.rows.is_empty() && !gate.changes.rows.is_empty() {
        return Err("facts are kept of changes to which nothing refers".into());
    }
    Ok(())
}
