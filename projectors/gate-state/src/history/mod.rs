//! The temporal tables: what happened to items, buildsets and builds, for ever.
//!
//! A row holds from one event on and, once replaced, until another ([`Held`]); a read as of an event
//! filters by that and needs no rung. Lists for the newest first are tables of their own, in the order
//! of events: read backwards from the event asked for. Nothing here is ever taken away.

mod fold;
mod held;
mod read;
mod returned;
mod rows;
#[cfg(test)]
mod tests;

pub use held::{Held, as_of, stretches};
pub use read::{List, Newest};
pub use rows::*;

gatelog_tables::tables! {
    /// The gate's temporal tables.
    pub struct GateRead {
        /// Items.
        items: ItemHistory,
        /// Buildsets.
        buildsets: BuildsetHistory,
        /// Builds.
        builds: BuildHistory,
        /// Reports.
        reports: ReportHistory,
        /// Reasons for waiting.
        waits: WaitHistory,
        /// Layouts in force.
        layouts: LayoutHistory,
        /// Tenants' settings.
        tenants: TenantHistory,
        /// Projects that cannot be read.
        unread: UnreadHistory,
        /// Triggers.
        triggers: TriggerHistory,
        /// Changes that were not let in.
        refused: RefusedHistory,
        /// Every event.
        moments: Moments,
        /// The newest event of each moment.
        sequence_at: SequenceAt,
        /// Items by tenant.
        items_of_tenant: ItemsOfTenant,
        /// Buildsets by tenant.
        buildsets_of_tenant: BuildsetsOfTenant,
        /// Buildsets by project.
        buildsets_of_project: BuildsetsOfProject,
        /// Buildsets by change.
        buildsets_of_change: BuildsetsOfChange,
        /// Buildsets by pipeline.
        buildsets_of_pipeline: BuildsetsOfPipeline,
        /// Buildsets by item.
        buildsets_of_item: BuildsetsOfItem,
        /// Builds by tenant.
        builds_of_tenant: BuildsOfTenant,
        /// Builds by job.
        builds_of_job: BuildsOfJob,
        /// Builds by project.
        builds_of_project: BuildsOfProject,
        /// Builds by change.
        builds_of_change: BuildsOfChange,
        /// How long successful builds took.
        durations_of_job: DurationsOfJob,
        /// Reports by item.
        reports_of_item: ReportsOfItem,
        /// Items by trigger.
        items_of_trigger: ItemsOfTrigger,
    }
}
