//! Tables and fold of the gate: tenants and their configuration, queues, items, builds, pending work.
//!
//! [`GateLive`] is what the writer holds and a rung keeps; it is bounded by what is going on: rows of
//! an item, its buildset, its builds and their waits leave with the item, facts about changes leave
//! when nothing refers to them. [`history`] remembers for ever and is folded on the read side alone.
//! The fold decides nothing: it inserts, updates and removes; an event that does not fit is an error.

mod fold;
pub mod history;
pub mod live;
pub mod work;

pub use history::GateRead;
pub use live::{GateLive, GateTables};
pub use work::{PerformKinds, Work};

use gatelog_partition_state::{PartitionState, PartitionTables};
use gatelog_record::Domain;
use gatelog_tables::{Backing, DomainState, Maps, Overlay};

/// The domain `gate`: configuration in force, pipelines, items, buildsets, builds, reports.
#[derive(Clone, Copy, Debug)]
pub struct Gate;

impl DomainState for Gate {
    const DOMAIN: Domain = Domain::Gate;
    const LIVE_SCHEMA: u32 = 12;
    const READ_SCHEMA: u32 = 4;
    type Live<B: Backing> = GateLive<B>;
    type Read<B: Backing> = GateRead<B>;

    fn overlay(live: &GateLive<Maps>) -> GateLive<Overlay<'_>> {
        live.overlay()
    }
}

impl PartitionState for Gate {
    fn partition<B: Backing>(live: &GateLive<B>) -> &PartitionTables<B> {
        &live.partition
    }
}
