//! Giving away what is free, in order, and saying what the rest waits for.
//!
//! Order: the lower priority number first; within a priority the share (a tenant's, say) whose last grant lies
//! furthest back; within a share whoever asked first. A lease that cannot be granted is passed over,
//! but what it could have of its semaphores is kept for it: so one that needs two is not starved by
//! those that need one. Slots need no keeping, since each lease takes exactly one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use gatelog_capacity_state::{LeaseRow, WorkerRow};
use gatelog_deciding::Refusal;
use gatelog_record::LeaseId;
use gatelog_record::draft::capacity::{LeaseGranted, LeaseWaitChanged, NodeGrant, Pausable};
use gatelog_record::event::CapacityEvent;

use crate::{Limits, Making};

/// How many leases are told in one decision that what they wait for changed. The rest keep the reason
/// they have until the next decision: a decision has a budget, and being granted does not depend on it.
const MAX_TOLD: usize = 5_000;

/// Waits for a slot.
const NO_SLOT: &str = "no-slot";

/// How many executors are named in one reason.
const MAX_NAMED: usize = 3;

/// What a lease waits for.
struct Waits {
    code: &'static str,
    subject: String,
    detail: String,
}

/// Grants what can be granted. `newest` is the lease that was queued just now, if one was: it gets a
/// reason even if it is too far back to be looked at.
pub(crate) fn grant(making: &mut Making<'_>, limits: &Limits, newest: Option<LeaseId>) -> Result<(), Refusal> {
    let mut kept: BTreeMap<String, u32> = BTreeMap::new();
    let paused = paused(making);
    let mut ahead = 0_u64;
    let mut told = 0;
    for (_, shares) in considered(making, limits) {
        let mut waiting: BTreeMap<String, VecDeque<LeaseId>> = shares;
        let mut turns: BTreeSet<(u64, String)> =
            waiting.keys().map(|share| (last_grant(making, share), share.clone())).collect();
        while let Some((turn, share)) = turns.pop_first() {
            let Some(lease) = waiting.get_mut(&share).and_then(VecDeque::pop_front) else { continue };
            let Some(row) = making.state.own.leases.row(&lease) else { continue };
            match choose(making, &paused, &kept, row, ahead) {
                Ok(worker) => {
                    let row = row.clone();
                    give(making, lease, &row, &worker)?;
                    turns.insert((last_grant(making, &share), share));
                }
                Err(waits) => {
                    // What no worker makes, or none that takes it, holds nothing up.
                    if !matches!(waits.code, "no-worker" | "paused") {
                        for semaphore in &row.ask.semaphores {
                            *kept.entry(semaphore.name.clone()).or_default() += 1;
                        }
                        ahead += 1;
                    }
                    let may = row.wait.is_none() || told < MAX_TOLD;
                    if may && !is_said(row, waits.code, &waits.subject) {
                        say(making, lease, waits)?;
                        told += 1;
                    }
                    turns.insert((turn, share));
                }
            }
        }
    }
    if let Some(lease) = newest
        && let Some(row) = making.state.own.leases.row(&lease).filter(|row| row.grant.is_none() && row.wait.is_none())
    {
        let detail = format!(
            "share {} has {} requests of this priority before it, and no more are looked at",
            row.ask.share, limits.considered
        );
        say(making, lease, Waits { code: "fair-share", subject: String::new(), detail })?;
    }
    Ok(())
}

/// By priority and share, those that are looked at.
fn considered(making: &Making<'_>, limits: &Limits) -> BTreeMap<u32, BTreeMap<String, VecDeque<LeaseId>>> {
    let queue = &making.state.own.queue;
    let mut found: BTreeMap<u32, BTreeMap<String, VecDeque<LeaseId>>> = BTreeMap::new();
    let mut after: Option<(u32, String, u64)> = None;
    loop {
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let Some(((priority, share, _), _)) = queue.rows(from, Bound::Unbounded).next() else { return found };
        let (first, last) = ((*priority, share.clone(), 0), (*priority, share.clone(), u64::MAX));
        let leases = queue
            .rows(Bound::Included(&first), Bound::Included(&last))
            .take(limits.considered)
            .map(|(_, lease)| *lease)
            .collect();
        found.entry(*priority).or_default().insert(share.clone(), leases);
        after = Some(last);
    }
}

fn last_grant(making: &Making<'_>, share: &String) -> u64 {
    making.state.own.turns.row(share).map_or(0, |turn| turn.last_grant)
}

/// The executors that are paused, and why. Asked once for all leases that are looked at: there may be hundreds.
fn paused(making: &Making<'_>) -> BTreeMap<String, String> {
    let executors = making.state.own.pauses.every().filter(|((role, _), _)| role == Pausable::Executor.word());
    executors.map(|((_, component), pause)| (component.clone(), pause.reason.clone())).collect()
}

/// The worker for a lease, or what it waits for.
fn choose(
    making: &Making<'_>,
    pauses: &BTreeMap<String, String>,
    kept: &BTreeMap<String, u32>,
    row: &LeaseRow,
    ahead: u64,
) -> Result<WorkerRow, Waits> {
    let own = &making.state.own;
    let labels = || row.ask.nodes.iter().map(|node| node.label.as_str());
    let able: Vec<&WorkerRow> = own
        .workers
        .every()
        .map(|(_, worker)| worker)
        .filter(|worker| worker.offer.slots > 0 && worker.makes(labels()))
        .collect();
    if able.is_empty() {
        let wanted: BTreeSet<&str> = labels().collect();
        let wanted = wanted.into_iter().collect::<Vec<_>>().join(", ");
        let detail = if wanted.is_empty() {
            "no worker offers slots: start an executor".to_owned()
        } else {
            format!("no worker offers slots with label {wanted}: start one, or correct the label")
        };
        return Err(Waits { code: "no-worker", subject: wanted, detail });
    }
    let pause_of = |worker: &WorkerRow| pauses.get(&worker.offer.worker);
    let (paused, able): (Vec<&WorkerRow>, Vec<&WorkerRow>) =
        able.into_iter().partition(|worker| pause_of(worker).is_some());
    if able.is_empty() {
        let told = paused.iter().take(MAX_NAMED).map(|worker| {
            let reason = pause_of(worker).map(String::as_str).unwrap_or_default();
            format!("{} ({})", worker.offer.worker, if reason.is_empty() { "no reason given" } else { reason })
        });
        let mut told = told.collect::<Vec<_>>().join(", ");
        if let Some(more) = paused.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
            told.push_str(&format!(" and {more} more"));
        }
        let detail =
            format!("every executor that would do is paused: {told}; `gatelog executor resume NAME` ends that");
        return Err(Waits { code: "paused", subject: String::new(), detail });
    }
    for semaphore in &row.ask.semaphores {
        let held = own.holders(&semaphore.name).count() as u64;
        let kept = u64::from(kept.get(&semaphore.name).copied().unwrap_or(0));
        if held + kept < u64::from(semaphore.max) {
            continue;
        }
        let holder = own.holders(&semaphore.name).find_map(|lease| own.leases.row(&lease));
        let detail = match holder {
            Some(holder) => format!(
                "semaphore {} is held by {} {} ({})",
                semaphore.name,
                holder.ask.owner.subject.kind,
                holder.ask.owner.subject.id,
                holder.ask.description.title
            ),
            None => format!("semaphore {} is kept for a request that was here before", semaphore.name),
        };
        return Err(Waits { code: "semaphore", subject: semaphore.name.clone(), detail });
    }
    // The one with the most free slots; of equals the first by name.
    let best = able.iter().filter(|worker| worker.free() > 0).min_by_key(|worker| u32::MAX - worker.free());
    best.map(|worker| (*worker).clone()).ok_or_else(|| {
        if is_said(row, NO_SLOT, "") {
            // Nobody will read the sentence.
            return Waits { code: NO_SLOT, subject: String::new(), detail: String::new() };
        }
        let slots: u64 = able.iter().map(|worker| u64::from(worker.offer.slots)).sum();
        let mut detail = format!("all {slots} slots that would do are taken; {ahead} requests are ahead");
        if !paused.is_empty() {
            let paused: u64 = paused.iter().map(|worker| u64::from(worker.offer.slots)).sum();
            detail.push_str(&format!("; {paused} more are on executors that are paused"));
        }
        Waits { code: NO_SLOT, subject: String::new(), detail }
    })
}

fn give(making: &mut Making<'_>, lease: LeaseId, row: &LeaseRow, worker: &WorkerRow) -> Result<(), Refusal> {
    let ask = &row.ask;
    let nodes = ask.nodes.iter().map(|wanted| NodeGrant { node: making.id(), wanted: wanted.clone() }).collect();
    let waited_ms = making.now.millis_since(row.asked_at);
    making.emit(CapacityEvent::LeaseGranted(LeaseGranted {
        lease,
        owner: ask.owner.clone(),
        spec: ask.spec,
        nodes,
        worker: worker.offer.worker.clone(),
        incarnation: worker.offer.incarnation.clone(),
        waited_ms,
    }))
}

/// Whether a lease was told already that it waits for this.
fn is_said(row: &LeaseRow, code: &str, subject: &str) -> bool {
    row.wait.as_ref().is_some_and(|wait| wait.code == code && wait.subject == subject)
}

/// Says what a lease waits for.
fn say(making: &mut Making<'_>, lease: LeaseId, waits: Waits) -> Result<(), Refusal> {
    let since = making.now;
    making.emit(CapacityEvent::WaitChanged(LeaseWaitChanged {
        lease,
        code: waits.code.to_owned(),
        subject: waits.subject,
        detail: waits.detail,
        since,
    }))
}
