//! What effects and workers read: committed projections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gatelog_capacity_state::{Capacity, LeaseState, Pause};
use gatelog_gate_state::Gate;
use gatelog_gate_state::live::BuildState;
use gatelog_partition_state::work::HasWork;
use gatelog_record::{BuildId, ItemId, NodeId, Timestamp, WorkId};
use gatelog_runner::Published;
use gatelog_store::{RocksBacking, SharedProjection};
use gatelog_tables::{DomainState, Table, TableExt};

use crate::artifacts;
use crate::chain::Chain;
use crate::dispatch::{Due, Pending, WorkSource};
use crate::perform::Chains;
use crate::returned::FromBuild;
use crate::worker::{Held, LeaseSource, Parents};

/// What a domain's work is, as its stored tables hold it.
type WorkOf<D> = <<D as DomainState>::Live<RocksBacking> as HasWork<RocksBacking>>::Work;

/// A domain's projection, for those who do its pending work.
pub struct DomainWork<D: DomainState> {
    /// The projection.
    pub projection: SharedProjection<D>,
    /// Where its fold stands.
    pub published: Published,
    waits: Mutex<Waits>,
}

/// The gate's.
pub type GateWork = DomainWork<Gate>;

impl<D: DomainState> DomainWork<D> {
    /// Of a process that begins now.
    pub fn new(projection: SharedProjection<D>, published: Published) -> DomainWork<D> {
        DomainWork { projection, published, waits: Mutex::default() }
    }
}

/// Work that is to be done later, and from when on by the monotonic clock.
///
/// `not_before` is in the log's time, which the machine's clock says nothing about once that was set: by it work would
/// wait for as long as the clock was set back, or not at all. So what is left to wait is counted from when a row was
/// first seen: from the time of the newest event that is folded to its `not_before`. That is never more than the delay
/// that was decided, for the event that decided it is folded.
#[derive(Default)]
struct Waits(BTreeMap<(WorkId, u32), Instant>);

impl Waits {
    /// Whether work may be done at `now`; `newest` is the log's time as folded.
    fn is_due(&mut self, key: (WorkId, u32), not_before: Timestamp, newest: Timestamp, now: Instant) -> bool {
        let left = not_before.0.saturating_sub(newest.0);
        if left <= 0 && !self.0.contains_key(&key) {
            return true;
        }
        let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
        // A wait too long for the clock is one that nothing decides.
        *self.0.entry(key).or_insert_with(|| now.checked_add(left).unwrap_or(now)) <= now
    }

    /// Forgets what is not pending any more.
    fn keep(&mut self, pending: impl Fn(&(WorkId, u32)) -> bool) {
        self.0.retain(|key, _| pending(key));
    }
}

impl<D> WorkSource<WorkOf<D>> for DomainWork<D>
where
    D: DomainState,
    D::Live<RocksBacking>: HasWork<RocksBacking>,
{
    fn due(&self, known: &BTreeSet<(WorkId, u32)>) -> Pending<WorkOf<D>> {
        let view = self.projection.view();
        let writer = view.live().partition().writer.get(&());
        let newest = writer.ok().flatten().map_or(Timestamp(i64::MIN), |row| row.recorded_at);
        let now = Instant::now();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeSet::new();
        let mut pending = Pending { position: view.position().sequence, there: BTreeSet::new(), new: Vec::new() };
        let rows = match view.live().pending_work().all() {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, "pending work cannot be read");
                return pending;
            }
        };
        for (work, row) in rows.filter_map(Result::ok) {
            seen.insert((work, row.attempt));
            if !waits.is_due((work, row.attempt), row.not_before, newest, now) {
                continue;
            }
            pending.there.insert((work, row.attempt));
            if !known.contains(&(work, row.attempt)) {
                pending.new.push(Due {
                    work,
                    attempt: row.attempt,
                    key: row.key.clone(),
                    requested_by: row.requested,
                    request: row.work.clone(),
                });
            }
        }
        waits.keep(|key| seen.contains(key));
        pending.new.sort_by_key(|row| row.requested_by);
        pending
    }

    fn wait(&self, beyond: u64, at_most: Duration) {
        self.published.wait_at_most(beyond + 1, at_most);
    }
}

impl Chains for GateWork {
    fn chain(&self, item: ItemId) -> Option<Chain> {
        let view = self.projection.view();
        let gate = &view.live().gate;
        let buildset = gate.items.get(&item).ok().flatten()?.buildset?;
        let steps = gate.chains.get(&buildset).ok().flatten()?;
        Chain::of(&*gate.buildsets.get(&buildset).ok().flatten()?, &steps)
    }
}

/// Capacity's and the gate's projections, for a worker.
pub struct WorkerLeases {
    /// Capacity's projection.
    pub capacity: SharedProjection<Capacity>,
    /// Where capacity's fold stands.
    pub published: Published,
    /// The gate's projection.
    pub gate: SharedProjection<Gate>,
}

impl LeaseSource for WorkerLeases {
    fn held(&self, worker: &str, incarnation: &str) -> (u64, Vec<Held>) {
        let view = self.capacity.view();
        let position = view.position().sequence;
        let rows = match view.live().own.leases.all() {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, "leases cannot be read");
                return (position, Vec::new());
            }
        };
        let held = rows
            .filter_map(Result::ok)
            .filter_map(|(lease, row)| {
                let grant = row.grant.as_ref()?;
                if grant.worker != worker || grant.incarnation != incarnation || row.released {
                    return None;
                }
                // Whatever else owns leases is followed by those who do that.
                let (build, attempt) = row.ask.owner.build()?;
                Some(Held {
                    lease,
                    build,
                    attempt,
                    owner: row.ask.owner.partition,
                    tenant: row.ask.owner.key.clone(),
                    spec: row.ask.spec,
                    nodes: grant.nodes.clone(),
                    revoked: row.state == LeaseState::Revoked,
                    kept: row.state == LeaseState::Held,
                    resumed: row.pause == Pause::Over,
                    granted_by: Some(grant.event),
                })
            })
            .collect();
        (position, held)
    }

    fn nodes(&self, worker: &str, incarnation: &str) -> Option<BTreeSet<NodeId>> {
        let view = self.capacity.view();
        let own = &view.live().own;
        let there = own.workers.get(&worker.to_owned()).ok().flatten()?.offer.incarnation == incarnation;
        if !there {
            return None;
        }
        let mut nodes = BTreeSet::new();
        for row in own.leases.all().ok()? {
            let (_, row) = row.ok()?;
            let grant = row.grant.as_ref().filter(|grant| grant.worker == worker);
            nodes.extend(grant.into_iter().flat_map(|grant| &grant.nodes).map(|grant| grant.node));
        }
        Some(nodes)
    }

    fn parents(&self, build: BuildId, attempt: u32) -> Option<Parents> {
        let view = self.gate.view();
        let (gate, history, at) = (&view.live().gate, view.temporal(), view.position().sequence);
        let own = gate.builds.get(&build).ok().flatten()?;
        if own.attempt < attempt {
            // The gate's events are read by themselves: this view is from before the lease was asked for.
            return None;
        }
        let buildset = gate.buildsets.get(&own.buildset).ok().flatten()?;
        let web_root = gate.tenants.get(&own.tenant).ok().flatten().map(|row| row.loaded.web_root.clone());
        let mut jobs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut names: Vec<(BuildId, String)> = Vec::new();
        for other in &buildset.builds {
            let Some(row) = gate.builds.get(other).ok().flatten() else { continue };
            let waits_for = row.job.dependencies.iter().map(|(name, _)| name.clone()).collect();
            jobs.insert(row.job.name.clone(), waits_for);
            names.push((*other, row.job.name.clone()));
        }
        let ancestors = ancestors(&own.job.name, &jobs);
        let item = gate.items.get(&own.item).ok().flatten();
        let mut parents = Parents {
            buildset: own.buildset,
            event_id: item.as_ref().and_then(|item| item.trigger).map(|trigger| trigger.to_string()),
            artifacts: artifacts::required(&view, &own),
            chain: gate.chains.get(&own.buildset).ok().flatten().and_then(|steps| Chain::of(&buildset, &steps)),
            web_root: web_root.unwrap_or_default(),
            ..Parents::default()
        };
        parents.jobs = names.iter().map(|(_, name)| name.clone()).collect();
        // In the order of the graph.
        for (other, name) in names.iter().filter(|(_, name)| ancestors.contains(name)) {
            let Some(entry) = history.build(*other, at).ok().flatten() else { continue };
            let Some(attempt) = entry.attempt() else { continue };
            let row = gate.builds.get(other).ok().flatten();
            let subject = item.as_ref().zip(row.as_ref()).and_then(|(item, row)| artifacts::subject(item, row));
            parents.returned.push(FromBuild::new(*other, name, attempt, subject));
        }
        Some(parents)
    }

    fn may_begin(&self, build: BuildId, attempt: u32) -> bool {
        let view = self.gate.view();
        let row = view.live().gate.builds.get(&build).ok().flatten();
        row.is_some_and(|row| row.attempt == attempt && row.state == BuildState::Running)
    }

    fn wait(&self, beyond: u64, at_most: Duration) {
        self.published.wait_at_most(beyond + 1, at_most);
    }
}

/// The jobs that a job waits for, directly or not.
fn ancestors(job: &str, waits_for: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![job];
    while let Some(name) = next.pop() {
        for parent in waits_for.get(name).map(Vec::as_slice).unwrap_or_default() {
            if found.insert(parent.clone()) {
                next.push(parent);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_for_its_delay_by_the_monotonic_clock_whatever_the_machine_s_clock_says() {
        const SECOND: Duration = Duration::from_secs(1);
        let (now, newest) = (Instant::now(), Timestamp(7_000_000));
        let (work, mut waits) = (WorkId([1; 16]), Waits::default());
        assert!(waits.is_due((work, 1), newest, newest, now), "no clock is asked");
        let later = newest.plus_seconds(2);
        assert!(!waits.is_due((work, 2), later, newest, now));
        assert!(!waits.is_due((work, 2), later, newest, now + SECOND), "counted from when it was first seen");
        assert!(waits.is_due((work, 2), later, newest, now + SECOND * 2));
        // The log's time leaps, and what has begun to wait goes on as it was.
        let (work, leap) = (WorkId([2; 16]), newest.plus_seconds(800 * 86_400));
        assert!(!waits.is_due((work, 2), later, newest, now));
        assert!(!waits.is_due((work, 2), later, leap, now + SECOND));
        assert!(waits.is_due((work, 2), later, leap, now + SECOND * 2));
        waits.keep(|(_, attempt)| *attempt > 2);
        assert_eq!(waits.0.len(), 0);
    }

    #[test]
    fn ancestors_are_found_over_any_number_of_steps() {
        let jobs = [("a", vec![]), ("b", vec!["a"]), ("c", vec!["b"]), ("d", vec!["d"])];
        let jobs: BTreeMap<String, Vec<String>> =
            jobs.into_iter().map(|(name, of)| (name.into(), of.into_iter().map(str::to_owned).collect())).collect();
        assert_eq!(ancestors("c", &jobs), BTreeSet::from(["a".into(), "b".into()]));
        assert_eq!(ancestors("d", &jobs), BTreeSet::from(["d".into()]), "a cycle ends");
        assert!(ancestors("a", &jobs).is_empty());
    }
}
