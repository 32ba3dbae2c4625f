//! What owners and workers say of leases.

use gatelog_capacity_state::{LeaseState, Pause};
use gatelog_deciding::Refusal;
use gatelog_record::LeaseId;
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseEndAsked, LeaseEnded, LeaseHeld, LeaseHoldAsked, LeasePauseAsked, LeasePaused, LeaseQueued,
    LeaseRefused, LeaseReleased, LeaseResumeAsked, LeaseResumed, LeaseRevoked, ReleaseNoted,
};
use gatelog_record::event::CapacityEvent;

use crate::granting::grant;
use crate::{Limits, Making, nothing};

/// An owner asks for a lease. Asking again for the same attempt changes nothing.
pub(crate) fn asked(making: &mut Making<'_>, limits: &Limits, ask: &LeaseAsked) -> Result<(), Refusal> {
    if making.state.own.lease_of(&ask.owner).is_some() {
        return nothing(making, "already-had");
    }
    if let Some((code, message)) = cannot_be(making, limits, ask) {
        let refused = LeaseRefused { ask: ask.clone(), code: code.to_owned(), message };
        return making.emit(CapacityEvent::LeaseRefused(refused));
    }
    let lease: LeaseId = making.id();
    making.emit(CapacityEvent::LeaseQueued(LeaseQueued { lease, ask: ask.clone() }))?;
    grant(making, limits, Some(lease))
}

/// Why a lease could never be granted, if so: a code and a sentence with the cure.
fn cannot_be(making: &Making<'_>, limits: &Limits, ask: &LeaseAsked) -> Option<(&'static str, String)> {
    if ask.nodes.len() > limits.per_lease || ask.semaphores.len() > limits.per_lease {
        let message = format!(
            "it asks for {} nodes and {} semaphores, more than {} of either: use a smaller nodeset",
            ask.nodes.len(),
            ask.semaphores.len(),
            limits.per_lease
        );
        return Some(("over-limit", message));
    }
    if let Some(semaphore) = ask.semaphores.iter().find(|semaphore| semaphore.max == 0) {
        let message = format!("semaphore {} may be held by nobody: its max is 0; raise it", semaphore.name);
        return Some(("over-limit", message));
    }
    if ask.or_others {
        let mut workers =
            making.state.own.workers.every().map(|(_, row)| row).filter(|row| row.offer.slots > 0).peekable();
        let labels = || ask.nodes.iter().map(|node| node.label.as_str());
        if workers.peek().is_some() && !workers.any(|row| row.makes(labels())) {
            let wanted = labels().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("no worker makes nodes with label {wanted}, and others are to choose from");
            return Some(("no-worker", message));
        }
    }
    let queued: u64 = making.state.own.turns.every().map(|(_, turn)| u64::from(turn.queued)).sum();
    (queued >= limits.queued).then(|| {
        let message = format!("{queued} requests wait already, which is the limit: enqueue again when there are fewer");
        ("over-limit", message)
    })
}

/// An owner no longer needs a lease. What waits ends at once; what a worker holds is taken back and
/// ends when the worker has let go.
pub(crate) fn end_asked(making: &mut Making<'_>, limits: &Limits, end: &LeaseEndAsked) -> Result<(), Refusal> {
    let Some(lease) = making.state.own.lease_of(&end.owner) else {
        return nothing(making, "unknown-lease");
    };
    let Some(row) = making.state.own.leases.row(&lease) else { return nothing(making, "unknown-lease") };
    match (row.state, &row.grant) {
        (LeaseState::Revoked, _) => nothing(making, "already-had"),
        (LeaseState::Granted, Some(held)) | (LeaseState::Held, Some(held))
            if !row.released && making.state.own.workers.row(&held.worker).is_some() =>
        {
            let revoked = LeaseRevoked {
                lease,
                owner: row.ask.owner.clone(),
                worker: held.worker.clone(),
                reason: end.reason.clone(),
            };
            making.emit(CapacityEvent::LeaseRevoked(revoked))
        }
        (LeaseState::Queued, _) => {
            ended(making, lease, &end.reason, "its owner no longer needs it").and_then(|()| grant(making, limits, None))
        }
        (LeaseState::Held, _) => {
            ended(making, lease, &end.reason, "its worker is gone; it removes the nodes if it returns")
        }
        (LeaseState::Granted, _) => ended(making, lease, &end.reason, "its owner and its worker are done with it")
            .and_then(|()| grant(making, limits, None)),
    }
}

/// An owner asks that a lease's nodes be kept although its attempt is over. That holds neither the worker's slot nor
/// semaphores. If the worker has let go of them already, the owner is told that there is nothing to keep.
pub(crate) fn hold_asked(making: &mut Making<'_>, limits: &Limits, hold: &LeaseHoldAsked) -> Result<(), Refusal> {
    let Some(lease) = making.state.own.lease_of(&hold.owner) else {
        return nothing(making, "unknown-lease");
    };
    let Some(row) = making.state.own.leases.row(&lease) else { return nothing(making, "unknown-lease") };
    match (row.state, &row.grant) {
        (LeaseState::Granted, Some(granted)) if !row.released => {
            let held = LeaseHeld { lease, worker: granted.worker.clone(), hold: hold.clone() };
            making.emit(CapacityEvent::LeaseHeld(held))?;
        }
        (LeaseState::Queued | LeaseState::Granted, _) => making.emit(CapacityEvent::LeaseEnded(LeaseEnded {
            lease,
            reason: "nothing-to-hold".to_owned(),
            tell_owner: true,
            message: "the nodes were let go before anybody asked to keep them".to_owned(),
        }))?,
        (LeaseState::Revoked | LeaseState::Held, _) => return nothing(making, "already-had"),
    }
    grant(making, limits, None)
}

/// An attempt waits for other jobs: it keeps its nodes and semaphores, and its slot goes to whoever is next. Otherwise a
/// worker whose every slot is taken by attempts that wait could never run what they wait for. Zuul: an executor counts
/// what starts, not what is paused.
pub(crate) fn pause_asked(making: &mut Making<'_>, limits: &Limits, asked: &LeasePauseAsked) -> Result<(), Refusal> {
    let Some(lease) = making.state.own.lease_of(&asked.owner) else {
        return nothing(making, "unknown-lease");
    };
    let Some(row) = making.state.own.leases.row(&lease) else { return nothing(making, "unknown-lease") };
    if row.state != LeaseState::Granted || row.released || row.pause != Pause::None {
        return nothing(making, "nothing-to-pause");
    }
    making.emit(CapacityEvent::LeasePaused(LeasePaused { lease }))?;
    grant(making, limits, None)
}

/// An attempt that waited goes on, at once: only its end is left to do, and what took its slot is not stopped for it.
pub(crate) fn resume_asked(making: &mut Making<'_>, asked: &LeaseResumeAsked) -> Result<(), Refusal> {
    let Some(lease) = making.state.own.lease_of(&asked.owner) else {
        return nothing(making, "unknown-lease");
    };
    match making.state.own.leases.row(&lease) {
        Some(row) if row.state == LeaseState::Granted && row.pause == Pause::Waits => {
            making.emit(CapacityEvent::LeaseResumed(LeaseResumed { lease }))
        }
        _ => nothing(making, "not-paused"),
    }
}

/// A worker has let go of a lease. It ends once its owner has asked for that too.
pub(crate) fn released(making: &mut Making<'_>, limits: &Limits, said: &LeaseReleased) -> Result<(), Refusal> {
    let Some(row) = making.state.own.leases.row(&said.lease) else { return nothing(making, "unknown-lease") };
    let Some(held) = &row.grant else { return nothing(making, "not-granted") };
    if held.worker != said.worker || held.incarnation != said.incarnation {
        return nothing(making, "old-incarnation");
    }
    match row.state {
        LeaseState::Revoked => {
            let reason = row.end_reason.clone().unwrap_or_default();
            ended(making, said.lease, &reason, "its owner and its worker are done with it")?;
            grant(making, limits, None)
        }
        // A worker that lets go of what it was to keep: a sweep of its host, or a person.
        LeaseState::Held => {
            making.emit(CapacityEvent::LeaseEnded(LeaseEnded {
                lease: said.lease,
                reason: "worker-let-go".to_owned(),
                tell_owner: true,
                message: format!("worker {} let go of the nodes", said.worker),
            }))?;
            grant(making, limits, None)
        }
        _ if row.released => nothing(making, "already-had"),
        _ => making.emit(CapacityEvent::ReleaseNoted(ReleaseNoted { released: said.clone() })),
    }
}

fn ended(making: &mut Making<'_>, lease: LeaseId, reason: &str, message: &str) -> Result<(), Refusal> {
    making.emit(CapacityEvent::LeaseEnded(LeaseEnded {
        lease,
        reason: reason.to_owned(),
        tell_owner: false,
        message: message.to_owned(),
    }))
}
