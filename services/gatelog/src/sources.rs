//! What effects and workers read: the committed projections of gate and capacity.

use std::collections::BTreeMap;
use std::time::Duration;

use gatelog_capacity_state::{Capacity, LeaseState};
use gatelog_effects::dispatch::{Due, WorkSource};
use gatelog_effects::worker::{Held, LeaseSource, Parents};
use gatelog_gate_state::Gate;
use gatelog_record::{BuildId, Timestamp, Value};
use gatelog_runner::Published;
use gatelog_store::SharedProjection;
use gatelog_tables::{Table, TableExt};

/// The gate's projection, for effects.
pub struct GateWork {
    /// The projection.
    pub projection: SharedProjection<Gate>,
    /// Where its fold stands.
    pub published: Published,
}

impl WorkSource for GateWork {
    fn due(&self, now: Timestamp) -> (u64, Vec<Due>) {
        let view = self.projection.view();
        let position = view.position().sequence;
        let rows = match view.live().gate.pending_work.all() {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, "pending work cannot be read");
                return (position, Vec::new());
            }
        };
        let mut due: Vec<Due> = rows
            .filter_map(Result::ok)
            .filter(|(_, row)| row.not_before <= now)
            .map(|(work, row)| Due {
                work,
                attempt: row.attempt,
                tenant: row.tenant.clone(),
                requested_by: row.requested,
                request: row.work.clone(),
            })
            .collect();
        due.sort_by_key(|row| row.requested_by);
        (position, due)
    }

    fn wait(&self, beyond: u64, at_most: Duration) {
        // Whether it came or not, the table is looked at again.
        let _ = self.published.wait_until(beyond + 1, at_most);
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
                Some(Held {
                    lease,
                    build: row.ask.build,
                    attempt: row.ask.attempt,
                    owner: row.ask.owner,
                    tenant: row.ask.owner_key.clone(),
                    spec: row.ask.spec,
                    nodes: grant.nodes.clone(),
                    revoked: row.state == LeaseState::Revoked,
                    granted_by: None,
                })
            })
            .collect();
        (position, held)
    }

    fn parents(&self, build: BuildId) -> Option<Parents> {
        let view = self.gate.view();
        let gate = &view.live().gate;
        let own = gate.builds.get(&build).ok().flatten()?.into_owned();
        let buildset = gate.buildsets.get(&own.buildset).ok().flatten()?;
        let mut parents = Parents { buildset: own.buildset, ..Parents::default() };
        // In the order of the graph: for data the later job wins (Zuul).
        let waits_for = ancestors(&own.job.name, &buildset.builds, gate);
        for other in &buildset.builds {
            let Some(row) = gate.builds.get(other).ok().flatten() else { continue };
            if !waits_for.contains(&row.job.name) {
                continue;
            }
            if let Some(map) = row.data.as_map() {
                let hidden = ["zuul", "nodepool", "unsafe_vars"];
                let shown = map.iter().filter(|(name, _)| !hidden.contains(&name.as_str()));
                parents.data.extend(shown.map(|(name, value)| (name.clone(), value.clone())));
            }
            parents.secret.extend(row.secret_data.clone());
            for artifact in &row.artifacts {
                parents.artifacts.push(Value::Map(BTreeMap::from([
                    ("name".to_owned(), Value::Str(artifact.name.clone())),
                    ("url".to_owned(), Value::Str(artifact.url.clone())),
                    ("metadata".to_owned(), artifact.metadata.clone()),
                    ("job".to_owned(), Value::Str(row.job.name.clone())),
                ])));
            }
        }
        Some(parents)
    }

    fn wait(&self, beyond: u64, at_most: Duration) {
        let _ = self.published.wait_until(beyond + 1, at_most);
    }
}
