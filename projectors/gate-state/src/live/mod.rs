//! The live tables.

mod building;
mod configuration;
mod queueing;
mod returned;
mod timers;
mod waiting;

pub use building::{
    ArtifactRow, Artifacts, AutoholdRow, Autoholds, BuildRow, BuildState, Builds, HeldBuild, SemaphoreHolders,
};
pub(crate) use configuration::branch_key;
pub use configuration::{
    Branches, ConfigFiles, LayoutRow, Layouts, ProjectReads, TenantRow, Tenants, Unread, UnreadRow,
};
pub use queueing::{
    Ahead, BuildsetProblem, BuildsetRow, Buildsets, Chains, Failures, FailuresRow, ItemRow, Items, ItemsByChange,
    Phase, ProblemKind, QueueRow, Queues, subject_name,
};
pub use returned::{Returned, ReturnedRow, ReturnedState};
pub use timers::{TimerKey, TimerRow, Timers};
pub use waiting::{ChangeRow, Changes, TriggerRow, Triggers, WaitKey, WaitRow, Waits};

pub use crate::work::Work;
/// A piece of the gate's pending work.
pub type PendingRow = work::PendingRow<Work>;

use gatelog_partition_state::PartitionTables;
use gatelog_partition_state::work::{self, HasWork, PendingWork};
use gatelog_tables::{Backing, Factory, Maps, Overlay, TableError, TableSet, TableVisitor, TableVisitorMut};

gatelog_tables::tables! {
    /// The gate's own live tables.
    pub struct GateTables {
        /// Tenants.
        tenants: Tenants,
        /// Their configuration files.
        config_files: ConfigFiles,
        /// Projects whose configuration could not be read.
        unread: Unread,
        /// Layouts in force.
        layouts: Layouts,
        /// Tips of branches.
        branches: Branches,
        /// Facts about changes.
        changes: Changes,
        /// Triggers that wait.
        triggers: Triggers,
        /// Queues.
        queues: Queues,
        /// Items.
        items: Items,
        /// Items by what they hold.
        items_by_change: ItemsByChange,
        /// Buildsets of items.
        buildsets: Buildsets,
        /// Builds of buildsets.
        builds: Builds,
        /// Builds that hold semaphores.
        semaphores: SemaphoreHolders,
        /// What everything waits for.
        waits: Waits,
        /// Short work that was asked for and not answered.
        pending_work: PendingWork<Work>,
        /// How new each project's configuration is.
        project_reads: ProjectReads,
        /// What failed in a row in pipelines.
        failures: Failures,
        /// What became of artifacts of open changes.
        artifacts: Artifacts,
        /// Requests to keep nodes of builds that fail.
        autoholds: Autoholds,
        /// What buildsets were prepared with.
        chains: Chains,
        /// Blobs with what builds returned.
        returned: Returned,
        /// What enters pipelines by the calendar.
        timers: Timers,
    }
}

/// Everything the gate's writer holds.
pub struct GateLive<B: Backing> {
    /// What every partition has.
    pub partition: PartitionTables<B>,
    /// The gate's own.
    pub gate: GateTables<B>,
}

impl<B: Backing> TableSet<B> for GateLive<B> {
    fn open(factory: &mut impl Factory<B>) -> Result<Self, TableError> {
        Ok(GateLive { partition: PartitionTables::open(factory)?, gate: GateTables::open(factory)? })
    }

    fn visit(&self, visitor: &mut impl TableVisitor<B>) -> Result<(), TableError> {
        self.partition.visit(visitor)?;
        self.gate.visit(visitor)
    }

    fn visit_mut(&mut self, visitor: &mut impl TableVisitorMut<B>) -> Result<(), TableError> {
        self.partition.visit_mut(visitor)?;
        self.gate.visit_mut(visitor)
    }
}

impl<B: Backing> HasWork<B> for GateLive<B> {
    type Work = Work;

    fn pending_work(&self) -> &B::Table<PendingWork<Work>> {
        &self.gate.pending_work
    }

    fn partition(&self) -> &PartitionTables<B> {
        &self.partition
    }
}

impl GateLive<Maps> {
    /// Empty tables in memory.
    pub fn in_memory() -> Self {
        GateLive { partition: PartitionTables::in_memory(), gate: GateTables::in_memory() }
    }

    /// The same tables, for reading, with changes of their own on top.
    pub fn overlay(&self) -> GateLive<Overlay<'_>> {
        GateLive { partition: self.partition.overlay(), gate: self.gate.overlay() }
    }
}
