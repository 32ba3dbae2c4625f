//! Tables and fold of capacity: who offers slots, who waits for a lease, who holds one.
//!
//! [`CapacityLive`] is what the writer holds and a rung keeps; it is bounded by the workers there
//! are and the leases that are not over. [`CapacityRead`] remembers every lease for ever and is
//! folded on the read side alone. The fold decides nothing: it inserts, removes and counts.

mod fold;
pub mod history;
pub mod live;

pub use history::{CapacityRead, LeaseHistory, LeaseHistoryRow, LeaseOfOwner, LeasePhase};
pub use live::{
    ByOwner, ByWorker, CapacityLive, CapacityTables, Grant, LeaseRow, LeaseState, Leases, OwnerKey, Pause, PauseRow,
    Pauses, Queue, SemaphoreHolders, TurnRow, Turns, Wait, WorkerRow, Workers, owner_key, pause_key,
};

use gatelog_partition_state::{PartitionState, PartitionTables};
use gatelog_record::Domain;
use gatelog_tables::{Backing, DomainState, Maps, Overlay};

/// The domain `capacity`: leases of nodes, semaphores and worker slots.
#[derive(Clone, Copy, Debug)]
pub struct Capacity;

impl DomainState for Capacity {
    const DOMAIN: Domain = Domain::Capacity;
    const LIVE_SCHEMA: u32 = 5;
    const READ_SCHEMA: u32 = 4;
    type Live<B: Backing> = CapacityLive<B>;
    type Read<B: Backing> = CapacityRead<B>;

    fn overlay(live: &CapacityLive<Maps>) -> CapacityLive<Overlay<'_>> {
        live.overlay()
    }
}

impl PartitionState for Capacity {
    fn partition<B: Backing>(live: &CapacityLive<B>) -> &PartitionTables<B> {
        &live.partition
    }
}
