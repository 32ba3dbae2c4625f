//! Workers come, change their offer, start again, fall silent, and are paused.

use gatelog_capacity_state::{LeaseState, pause_key};
use gatelog_deciding::Refusal;
use gatelog_record::Timestamp;
use gatelog_record::draft::capacity::{
    LeaseEnded, PauseAsked, PauseChanged, WorkerJoined, WorkerLost, WorkerSeen, WorkerSilent,
};
use gatelog_record::event::CapacityEvent;

use crate::granting::grant;
use crate::{Limits, Making, nothing};

/// A worker is there. One that was here as an earlier start of itself has started again: what that one held is lost.
///
/// An announcement of an earlier start than the one that is here came late and changes nothing. It may also be a worker
/// that did start again, whose clock was set back: that one is let in once nothing has been heard of the start that is
/// here for long enough, and has to announce itself until then.
pub(crate) fn seen(making: &mut Making<'_>, limits: &Limits, seen: &WorkerSeen) -> Result<(), Refusal> {
    match making.state.own.workers.row(&seen.worker) {
        Some(row) if row.offer == *seen => return nothing(making, "already-had"),
        Some(row) if row.offer.incarnation == seen.incarnation => {}
        Some(row) if start_of(seen) < start_of(&row.offer) => return nothing(making, "older-start"),
        Some(row) => {
            let before = row.offer.incarnation.clone();
            lost(making, &seen.worker, &before, "restarted", &format!("worker {} started again", seen.worker))?;
        }
        None if making.state.own.workers.every().count() >= limits.workers => return nothing(making, "over-limit"),
        None => {}
    }
    making.emit(CapacityEvent::WorkerJoined(WorkerJoined { offer: seen.clone() }))?;
    grant(making, limits, None)
}

/// Where a start of a worker stands among its starts. Two of the same moment must not take each other's place for ever.
fn start_of(seen: &WorkerSeen) -> (Timestamp, &str) {
    (seen.started_at, &seen.incarnation)
}

/// Nothing has been heard of a worker for too long: what it held is lost.
pub(crate) fn silent(making: &mut Making<'_>, limits: &Limits, silent: &WorkerSilent) -> Result<(), Refusal> {
    match making.state.own.workers.row(&silent.worker) {
        None => nothing(making, "unknown-worker"),
        Some(row) if row.offer.incarnation != silent.incarnation => nothing(making, "old-incarnation"),
        Some(_) => {
            let worker = &silent.worker;
            let (reason, message) = match silent.silent_ms {
                // It says so itself.
                ..=0 => ("left", format!("worker {worker} was stopped")),
                silent_ms => {
                    ("silent", format!("nothing was heard of worker {worker} for {} seconds", silent_ms / 1_000))
                }
            };
            lost(making, worker, &silent.incarnation, reason, &message)?;
            grant(making, limits, None)
        }
    }
}

fn lost(making: &mut Making<'_>, worker: &str, incarnation: &str, reason: &str, message: &str) -> Result<(), Refusal> {
    let held = making.state.own.held_by(worker);
    making.emit(CapacityEvent::WorkerLost(WorkerLost {
        worker: worker.to_owned(),
        incarnation: incarnation.to_owned(),
        reason: reason.to_owned(),
    }))?;
    for lease in held {
        // What is kept lies where it lay: whatever starts there next has it.
        if making.state.own.leases.row(&lease).is_some_and(|row| row.state == LeaseState::Held) {
            continue;
        }
        // An owner that has asked for the end knows; any other waits for a result that may not come.
        let tell_owner = making.state.own.leases.row(&lease).is_some_and(|row| row.state != LeaseState::Revoked);
        making.emit(CapacityEvent::LeaseEnded(LeaseEnded {
            lease,
            reason: "worker-lost".to_owned(),
            tell_owner,
            message: message.to_owned(),
        }))?;
    }
    Ok(())
}

/// A component is to take nothing new, or to take it again. It need not be there: whether its name means anybody is for
/// those to say who know who gives signs of life, which capacity does not.
pub(crate) fn pause_asked(making: &mut Making<'_>, limits: &Limits, asked: &PauseAsked) -> Result<(), Refusal> {
    let pauses = &making.state.own.pauses;
    if pauses.row(&pause_key(asked.role, &asked.component)).is_some() == asked.paused {
        return nothing(making, "already-so");
    }
    if asked.paused && pauses.every().count() >= limits.workers {
        return nothing(making, "over-limit");
    }
    making.emit(CapacityEvent::PauseChanged(PauseChanged { asked: asked.clone() }))?;
    grant(making, limits, None)
}
