//! Capacity: its records and rows in words.

use std::collections::BTreeSet;

use gatelog_record::draft::gate::BUILD;
use gatelog_record::event::CapacityEvent;
use gatelog_record::input::CapacityInput;
use gatelog_record::{BuildId, Event, Input};
use gatelog_rules_capacity::CapacityRules;
use serde_json::Value as Json;

use super::{Of, Words};
use crate::diff::{About, RowChange, came_and_went, text};
use crate::explain::{Names, after_colon, count, short, span};

/// Capacity.
pub static CAPACITY: Of<CapacityRules, CapacityWords> = Of::new(CapacityWords);

/// Capacity's words.
#[derive(Clone, Copy, Debug)]
pub struct CapacityWords;

impl Words for CapacityWords {
    fn event(&self, event: &Event, names: &Names) -> Option<String> {
        match event {
            Event::Capacity(event) => Some(self::event(names, event)),
            _ => None,
        }
    }

    fn input(&self, input: &Input, names: &Names) -> Option<String> {
        match input {
            Input::Capacity(input) => Some(self::input(names, input)),
            _ => None,
        }
    }

    fn about(&self, table: &str) -> About {
        match table {
            "workers" => About::Workers,
            "leases" => About::Leases,
            "semaphore-holders" => About::Facts,
            _ => About::Bookkeeping,
        }
    }

    fn subject(&self, change: &RowChange, names: &Names) -> Option<String> {
        if change.table != "leases" {
            return None;
        }
        let subject = change.row()?.get("ask")?.get("owner")?.get("subject")?;
        let (kind, id, attempt) = (text(subject, "kind"), text(subject, "id"), subject.get("attempt")?);
        let what = match id.parse::<BuildId>() {
            Ok(build) if kind == BUILD => names.build(build),
            _ => format!("{kind} {}", short(&id)),
        };
        Some(format!("{what} attempt {attempt} ({})", short(&change.key)))
    }

    /// Which nodes are given out: what leases say together.
    fn together(&self, changes: &[RowChange], _: &Names) -> Vec<(About, RowChange)> {
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        for change in changes.iter().filter(|change| change.table == "leases") {
            before.extend(change.before.iter().flat_map(nodes_of));
            after.extend(change.after.iter().flat_map(nodes_of));
        }
        came_and_went("nodes", &before, &after).map(|change| (About::Nodes, change)).collect()
    }
}

/// The nodes a lease was given, each with its label.
fn nodes_of(lease: &Json) -> Vec<String> {
    let grant = lease.get("grant").filter(|grant| !grant.is_null());
    let nodes = grant.and_then(|grant| grant.get("nodes")).and_then(Json::as_array);
    let worker = grant.map(|grant| text(grant, "worker")).unwrap_or_default();
    let one = |node: &Json| {
        let label = node.get("wanted").map(|wanted| text(wanted, "label")).unwrap_or_default();
        format!("{} {label} at {worker}", text(node, "node"))
    };
    nodes.map(|nodes| nodes.iter().map(one).collect()).unwrap_or_default()
}

fn event(names: &Names, event: &CapacityEvent) -> String {
    match event {
        CapacityEvent::WorkerJoined(joined) => {
            format!("worker {} offers {}", joined.offer.worker, count(joined.offer.slots as usize, "slot"))
        }
        CapacityEvent::WorkerLost(lost) => format!("worker {} is gone [{}]", lost.worker, lost.reason),
        CapacityEvent::LeaseQueued(queued) => {
            let ask = &queued.ask;
            format!("{} waits for a lease", names.described(&ask.owner.subject, &ask.description))
        }
        CapacityEvent::LeaseGranted(granted) => format!(
            "{} got worker {} and {} after {}",
            names.lease(granted.lease),
            granted.worker,
            count(granted.nodes.len(), "node"),
            span(granted.waited_ms)
        ),
        CapacityEvent::LeaseRevoked(revoked) => {
            format!("{}: the lease is taken back [{}]", names.lease(revoked.lease), revoked.reason)
        }
        CapacityEvent::LeaseEnded(ended) => {
            format!("{}: the lease is over [{}]", names.lease(ended.lease), ended.reason)
        }
        CapacityEvent::LeaseRefused(refused) => {
            let (ask, subject) = (&refused.ask, &refused.ask.owner.subject);
            let what = if subject.build().is_some() { ask.description.fact("job") } else { &ask.description.title };
            format!("attempt {} of {what} gets no lease: {} [{}]", subject.attempt, refused.message, refused.code)
        }
        CapacityEvent::WaitChanged(changed) => {
            format!("{} waits for {}: {}", names.lease(changed.lease), changed.code, changed.detail)
        }
        CapacityEvent::LeaseHeld(held) => {
            format!("{} is over, and worker {} keeps its nodes", names.lease(held.lease), held.worker)
        }
        CapacityEvent::LeasePaused(paused) => {
            format!("{} waits for other jobs, and its worker's slot is free", names.lease(paused.lease))
        }
        CapacityEvent::LeaseResumed(resumed) => format!("{} goes on", names.lease(resumed.lease)),
        CapacityEvent::PauseChanged(changed) => {
            let asked = &changed.asked;
            let what = if asked.paused { "takes nothing new" } else { "takes new work again" };
            format!("{} {} {what}{}", asked.role.word(), asked.component, after_colon(&asked.reason))
        }
        CapacityEvent::ReleaseNoted(noted) => {
            format!("{}: worker {} let go of it", names.lease(noted.released.lease), noted.released.worker)
        }
    }
}

fn input(names: &Names, input: &CapacityInput) -> String {
    match input {
        CapacityInput::WorkerSeen(seen) => {
            format!("worker {} offers {}", seen.worker, count(seen.slots as usize, "slot"))
        }
        CapacityInput::WorkerSilent(silent) if silent.silent_ms <= 0 => format!("worker {} stops", silent.worker),
        CapacityInput::WorkerSilent(silent) => {
            format!("worker {} is silent for {}", silent.worker, span(silent.silent_ms))
        }
        CapacityInput::LeaseAsked(ask) => {
            format!("{} asks for a lease", names.subject(&ask.owner.subject))
        }
        CapacityInput::LeaseEndAsked(asked) => {
            format!("{} needs its lease no longer [{}]", names.subject(&asked.owner.subject), asked.reason)
        }
        CapacityInput::LeaseHoldAsked(asked) => {
            format!("the nodes of {} are to be kept", names.subject(&asked.owner.subject))
        }
        CapacityInput::LeasePauseAsked(asked) => {
            format!("{} waits for other jobs", names.subject(&asked.owner.subject))
        }
        CapacityInput::LeaseResumeAsked(asked) => {
            format!("{} need not wait any more", names.subject(&asked.owner.subject))
        }
        CapacityInput::PauseAsked(asked) => {
            let what = if asked.paused { "is to be paused" } else { "is to go on" };
            format!("{} {} {what}{}", asked.role.word(), asked.component, after_colon(&asked.reason))
        }
        CapacityInput::LeaseReleased(released) => {
            format!("worker {} let go of {}", released.worker, names.lease(released.lease))
        }
    }
}
