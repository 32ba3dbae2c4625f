//! The live tables: workers, leases that are not over, and what finds them quickly.

use std::ops::Bound;

use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::capacity::{
    LeaseAsked, LeaseHoldAsked, LeaseOwner, LeaseSubject, NodeGrant, Pausable, WorkerSeen,
};
use gatelog_record::{ActorId, LeaseId, Partition, SubjectId, Timestamp};
use gatelog_tables::table::Life;
use gatelog_tables::{Backing, Factory, Maps, Overlay, TableDef, TableError, TableSet, TableVisitor, TableVisitorMut};
use serde::{Deserialize, Serialize};

/// Workers that are there, by name.
#[derive(Debug)]
pub struct Workers;
impl TableDef for Workers {
    const ID: u16 = 20;
    const NAME: &'static str = "workers";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = WorkerRow;
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// What it offers.
    pub offer: WorkerSeen,
    /// How many of its slots are taken. May exceed what it offers after the offer shrank.
    pub used: u32,
    /// Since when it has been there with this incarnation.
    pub joined_at: Timestamp,
}

impl WorkerRow {
    /// How many of its slots are free.
    pub fn free(&self) -> u32 {
        self.offer.slots.saturating_sub(self.used)
    }

    /// Whether it can make every one of these labels. A worker that names none can make any.
    pub fn makes<'a>(&self, mut labels: impl Iterator<Item = &'a str>) -> bool {
        self.offer.labels.is_empty() || labels.all(|label| self.offer.labels.iter().any(|made| made == label))
    }
}

/// Leases that are not over.
#[derive(Debug)]
pub struct Leases;
impl TableDef for Leases {
    const ID: u16 = 21;
    const NAME: &'static str = "leases";
    const LIFE: Life = Life::Live;
    type Key = LeaseId;
    type Row = LeaseRow;
}

/// How far a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseState {
    /// It waits.
    Queued,
    /// A worker has it.
    Granted,
    /// Its owner asked for its end; the worker has not let go yet.
    Revoked,
    /// Its attempt is over, and its nodes are kept: its worker's slot and its semaphores are free.
    Held,
}

/// What a queued lease waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// A code: `no-worker`, `paused`, `no-slot`, `semaphore`, `fair-share`.
    pub code: String,
    /// A label, a semaphore, or empty.
    pub subject: String,
    /// For people.
    pub detail: String,
    /// Since when it has waited for this.
    pub since: Timestamp,
}

/// What a lease was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The worker.
    pub worker: String,
    /// Which start of it.
    pub incarnation: String,
    /// The nodes.
    pub nodes: Vec<NodeGrant>,
    /// When.
    pub granted_at: Timestamp,
    /// The event that granted it.
    pub event: u64,
}

/// A lease that is not over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// What was asked.
    pub ask: LeaseAsked,
    /// The event by which it was queued: its place within share and priority.
    pub queued: u64,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// How far it is.
    pub state: LeaseState,
    /// What it waits for, while it is queued.
    pub wait: Option<Wait>,
    /// What it was given, once it was.
    pub grant: Option<Grant>,
    /// Whether the worker let go of it before its owner asked for the end.
    pub released: bool,
    /// Why its owner asked for the end, once it has.
    pub end_reason: Option<String>,
    /// Why and until when its nodes are kept, or were until its owner asked for the end.
    pub held: Option<LeaseHoldAsked>,
    /// Whether its attempt waits for other jobs, or has.
    pub pause: Pause,
}

/// Whether an attempt waits for other jobs. Zuul: `zuul.pause`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    /// It has not yet.
    #[default]
    None,
    /// It does: its worker's slot is free.
    Waits,
    /// It did, and goes on.
    Over,
}

/// Queued leases in order: priority, share, the event that queued them.
#[derive(Debug)]
pub struct Queue;
impl TableDef for Queue {
    const ID: u16 = 22;
    const NAME: &'static str = "queue";
    const LIFE: Life = Life::Live;
    type Key = (u32, String, u64);
    type Row = LeaseId;
}

/// An owner's subject, as a key: the domain and index of its partition, and what it counts.
pub type OwnerKey = (u8, u32, (String, SubjectId, u32));

/// The key of an owner's subject. A subject is one thing in its partition, under whatever key answers come.
pub fn owner_key(partition: Partition, subject: &LeaseSubject) -> OwnerKey {
    (partition.domain as u8, partition.index, (subject.kind.clone(), subject.id, subject.attempt))
}

/// The lease of an owner's subject.
#[derive(Debug)]
pub struct ByOwner;
impl TableDef for ByOwner {
    const ID: u16 = 28;
    const NAME: &'static str = "leases-by-owner";
    const LIFE: Life = Life::Live;
    type Key = OwnerKey;
    type Row = LeaseId;
}

/// Who holds a slot of a semaphore. The row is how many slots: always 1.
#[derive(Debug)]
pub struct SemaphoreHolders;
impl TableDef for SemaphoreHolders {
    const ID: u16 = 24;
    const NAME: &'static str = "semaphore-holders";
    const LIFE: Life = Life::Live;
    type Key = (String, LeaseId);
    type Row = u32;
}

/// Whose turn it is: one row for each share that has a lease which is not over.
#[derive(Debug)]
pub struct Turns;
impl TableDef for Turns {
    const ID: u16 = 25;
    const NAME: &'static str = "turns";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = TurnRow;
}

/// A share's turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRow {
    /// The event that granted it a lease last; 0 if none has. The lowest is next.
    pub last_grant: u64,
    /// How many of its leases wait.
    pub queued: u32,
    /// How many of its leases are held.
    pub held: u32,
}

/// Leases a worker holds. The row is which start of the worker.
#[derive(Debug)]
pub struct ByWorker;
impl TableDef for ByWorker {
    const ID: u16 = 26;
    const NAME: &'static str = "leases-by-worker";
    const LIFE: Life = Life::Live;
    type Key = (String, LeaseId);
    type Row = String;
}

/// Components that take nothing new, by role and name. They need not be there.
#[derive(Debug)]
pub struct Pauses;
impl TableDef for Pauses {
    const ID: u16 = 27;
    const NAME: &'static str = "pauses";
    const LIFE: Life = Life::Live;
    type Key = (String, String);
    type Row = PauseRow;
}

/// The pause of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRow {
    /// Why, in the words of whoever asked.
    pub reason: String,
    /// Who asked.
    pub by: ActorId,
    /// Since when.
    pub since: Timestamp,
    /// The event that says so.
    pub event: u64,
}

gatelog_tables::tables! {
    /// Capacity's own live tables.
    pub struct CapacityTables {
        /// Workers.
        workers: Workers,
        /// Leases that are not over.
        leases: Leases,
        /// Those that wait, in order.
        queue: Queue,
        /// By their owners.
        by_owner: ByOwner,
        /// Semaphores held.
        semaphores: SemaphoreHolders,
        /// The turns of those who share.
        turns: Turns,
        /// By worker.
        by_worker: ByWorker,
        /// Components that take nothing new.
        pauses: Pauses,
    }
}

/// Everything capacity's writer holds.
pub struct CapacityLive<B: Backing> {
    /// What every partition has.
    pub partition: PartitionTables<B>,
    /// Capacity's own.
    pub own: CapacityTables<B>,
}

impl<B: Backing> TableSet<B> for CapacityLive<B> {
    fn open(factory: &mut impl Factory<B>) -> Result<Self, TableError> {
        Ok(CapacityLive { partition: PartitionTables::open(factory)?, own: CapacityTables::open(factory)? })
    }

    fn visit(&self, visitor: &mut impl TableVisitor<B>) -> Result<(), TableError> {
        self.partition.visit(visitor)?;
        self.own.visit(visitor)
    }

    fn visit_mut(&mut self, visitor: &mut impl TableVisitorMut<B>) -> Result<(), TableError> {
        self.partition.visit_mut(visitor)?;
        self.own.visit_mut(visitor)
    }
}

impl CapacityLive<Maps> {
    /// Empty tables in memory.
    pub fn in_memory() -> Self {
        CapacityLive { partition: PartitionTables::in_memory(), own: CapacityTables::in_memory() }
    }

    /// The same tables, for reading, with changes of their own on top.
    pub fn overlay(&self) -> CapacityLive<Overlay<'_>> {
        CapacityLive { partition: self.partition.overlay(), own: self.own.overlay() }
    }
}

/// A component's place among [`Pauses`].
pub fn pause_key(role: Pausable, component: &str) -> (String, String) {
    (role.word().to_owned(), component.to_owned())
}

impl CapacityTables<Overlay<'_>> {
    /// The lease of an owner.
    pub fn lease_of(&self, owner: &LeaseOwner) -> Option<LeaseId> {
        self.by_owner.row(&owner_key(owner.partition, &owner.subject)).copied()
    }

    /// Those who hold a semaphore.
    pub fn holders<'s>(&'s self, semaphore: &str) -> impl Iterator<Item = LeaseId> + use<'s> {
        let from = (semaphore.to_owned(), LeaseId([0; 16]));
        let to = (semaphore.to_owned(), LeaseId([255; 16]));
        let held: Vec<LeaseId> =
            self.semaphores.rows(Bound::Included(&from), Bound::Included(&to)).map(|((_, lease), _)| *lease).collect();
        held.into_iter()
    }

    /// The leases a worker holds.
    pub fn held_by(&self, worker: &str) -> Vec<LeaseId> {
        let from = (worker.to_owned(), LeaseId([0; 16]));
        let to = (worker.to_owned(), LeaseId([255; 16]));
        self.by_worker.rows(Bound::Included(&from), Bound::Included(&to)).map(|((_, lease), _)| *lease).collect()
    }
}
