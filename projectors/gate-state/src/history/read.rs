//! Asking the temporal tables, as of an event.

use std::ops::Bound;

use gatelog_record::draft::gate::{ProjectProblem, WaitSubject};
use gatelog_record::{BuildId, BuildsetId, ItemId, Timestamp, WorkId};
use gatelog_tables::{Backing, Table, TableError};

use super::GateRead;
use super::held::{Held, as_of, stretches};
use super::rows::{
    BuildEntry, BuildsetEntry, ItemEntry, LayoutEntry, Moment, ReportEntry, TenantEntry, TriggerEntry, WaitEntry,
};
use crate::live::WaitKey;

/// Which list to read: the narrowest that holds everything looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List<'a> {
    /// Everything of the tenant.
    Tenant,
    /// Of one job; builds only.
    Job(&'a str),
    /// Of one project, by its canonical name.
    Project(&'a str),
    /// Of one change, or ref where there is none.
    Change(&'a str),
    /// Of one pipeline; buildsets only.
    Pipeline(&'a str),
}

/// Ids, newest first.
pub type Newest<'a, I> = Box<dyn Iterator<Item = Result<I, TableError>> + 'a>;

macro_rules! newest {
    ($table:expr, $from:expr, $to:expr) => {
        Ok(Box::new(
            $table.range_back(Bound::Included(&$from), Bound::Included(&$to))?.map(|entry| entry.map(|(_, id)| *id)),
        ))
    };
}

impl<B: Backing> GateRead<B> {
    /// An item as of an event.
    pub fn item(&self, item: ItemId, at: u64) -> Result<Option<ItemEntry>, TableError> {
        as_of(&self.items, &item, at)
    }

    /// A buildset as of an event.
    pub fn buildset(&self, buildset: BuildsetId, at: u64) -> Result<Option<BuildsetEntry>, TableError> {
        as_of(&self.buildsets, &buildset, at)
    }

    /// A build as of an event.
    pub fn build(&self, build: BuildId, at: u64) -> Result<Option<BuildEntry>, TableError> {
        as_of(&self.builds, &build, at)
    }

    /// A report as of an event.
    pub fn report(&self, report: WorkId, at: u64) -> Result<Option<ReportEntry>, TableError> {
        as_of(&self.reports, &report, at)
    }

    /// What something waited for as of an event.
    pub fn wait(&self, subject: &WaitSubject, at: u64) -> Result<Option<WaitEntry>, TableError> {
        as_of(&self.waits, &WaitKey(subject.clone()), at)
    }

    /// Everything something waited for up to an event, oldest first, with the events between which it did.
    pub fn waits(&self, subject: &WaitSubject, at: u64) -> Result<Vec<Held<WaitEntry>>, TableError> {
        stretches(&self.waits, &WaitKey(subject.clone()), at)
    }

    /// A tenant's layout in force as of an event.
    pub fn layout(&self, tenant: &str, at: u64) -> Result<Option<LayoutEntry>, TableError> {
        as_of(&self.layouts, &tenant.to_owned(), at)
    }

    /// A tenant's settings as of an event.
    pub fn tenant(&self, tenant: &str, at: u64) -> Result<Option<TenantEntry>, TableError> {
        as_of(&self.tenants, &tenant.to_owned(), at)
    }

    /// The names of all tenants as of an event, in order.
    pub fn tenant_names(&self, at: u64) -> Result<Vec<String>, TableError> {
        let mut names: Vec<String> = Vec::new();
        for entry in self.tenants.range(Bound::Unbounded, Bound::Unbounded)? {
            let ((name, from), _) = entry?;
            if from <= at && names.last() != Some(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// A trigger as of an event.
    pub fn trigger(&self, trigger: u64, at: u64) -> Result<Option<TriggerEntry>, TableError> {
        as_of(&self.triggers, &trigger, at)
    }

    /// A tenant's projects whose configuration could not be read, as of an event.
    pub fn unread(&self, tenant: &str, at: u64) -> Result<Vec<ProjectProblem>, TableError> {
        let mut found = Vec::new();
        for project in self.unread_projects(tenant, at)? {
            found.extend(as_of(&self.unread, &(tenant.to_owned(), project), at)?);
        }
        Ok(found)
    }

    /// Projects that were ever unread up to an event.
    pub(super) fn unread_projects(&self, tenant: &str, at: u64) -> Result<Vec<String>, TableError> {
        let first = ((tenant.to_owned(), String::new()), 0);
        let mut found: Vec<String> = Vec::new();
        for entry in self.unread.range(Bound::Included(&first), Bound::Unbounded)? {
            let (((of, project), from), _) = entry?;
            if of != tenant {
                break;
            }
            if from <= at && found.last() != Some(&project) {
                found.push(project);
            }
        }
        Ok(found)
    }

    /// What an event was about.
    pub fn moment(&self, sequence: u64) -> Result<Option<Moment>, TableError> {
        Ok(self.moments.get(&sequence)?.map(|row| row.into_owned()))
    }

    /// What the events after one were about, oldest first, at most so many.
    pub fn moments_after(&self, sequence: u64, at_most: usize) -> Result<Vec<(u64, Moment)>, TableError> {
        self.moments
            .range(Bound::Excluded(&sequence), Bound::Unbounded)?
            .take(at_most)
            .map(|entry| entry.map(|(sequence, row)| (sequence, row.into_owned())))
            .collect()
    }

    /// The newest event at or before a moment; 0 before the first.
    pub fn sequence_at(&self, moment: Timestamp) -> Result<u64, TableError> {
        let newest = self.sequence_at.range_back(Bound::Unbounded, Bound::Included(&moment))?.next().transpose()?;
        Ok(newest.map_or(0, |(_, sequence)| *sequence))
    }

    /// Items in the order in which they were enqueued, newest first, up to an event.
    pub fn newest_items(&self, tenant: &str, at: u64) -> Result<Newest<'_, ItemId>, TableError> {
        let tenant = || tenant.to_owned();
        newest!(self.items_of_tenant, (tenant(), 0), (tenant(), at))
    }

    /// Buildsets, newest first, up to an event. A list that is not of buildsets is that of the tenant.
    pub fn newest_buildsets(
        &self,
        tenant: &str,
        list: List<'_>,
        at: u64,
    ) -> Result<Newest<'_, BuildsetId>, TableError> {
        let tenant = || tenant.to_owned();
        match list {
            List::Tenant | List::Job(_) => newest!(self.buildsets_of_tenant, (tenant(), 0), (tenant(), at)),
            List::Project(of) => {
                newest!(self.buildsets_of_project, (tenant(), of.to_owned(), 0), (tenant(), of.to_owned(), at))
            }
            List::Change(of) => {
                newest!(self.buildsets_of_change, (tenant(), of.to_owned(), 0), (tenant(), of.to_owned(), at))
            }
            List::Pipeline(of) => {
                newest!(self.buildsets_of_pipeline, (tenant(), of.to_owned(), 0), (tenant(), of.to_owned(), at))
            }
        }
    }

    /// The buildsets of an item, newest first, up to an event.
    pub fn buildsets_of(&self, item: ItemId, at: u64) -> Result<Newest<'_, BuildsetId>, TableError> {
        newest!(self.buildsets_of_item, (item, 0), (item, at))
    }

    /// Builds, newest first, up to an event. A list that is not of builds is that of the tenant.
    pub fn newest_builds(&self, tenant: &str, list: List<'_>, at: u64) -> Result<Newest<'_, BuildId>, TableError> {
        let tenant = || tenant.to_owned();
        let last = u32::MAX;
        match list {
            List::Tenant | List::Pipeline(_) => {
                newest!(self.builds_of_tenant, (tenant(), 0, 0), (tenant(), at, last))
            }
            List::Job(of) => {
                newest!(self.builds_of_job, (tenant(), of.to_owned(), 0, 0), (tenant(), of.to_owned(), at, last))
            }
            List::Project(of) => {
                newest!(self.builds_of_project, (tenant(), of.to_owned(), 0, 0), (tenant(), of.to_owned(), at, last))
            }
            List::Change(of) => {
                newest!(self.builds_of_change, (tenant(), of.to_owned(), 0, 0), (tenant(), of.to_owned(), at, last))
            }
        }
    }

    /// The reports of an item, newest first, up to an event.
    pub fn reports_of(&self, item: ItemId, at: u64) -> Result<Newest<'_, WorkId>, TableError> {
        newest!(self.reports_of_item, (item, 0), (item, at))
    }

    /// The items a trigger brought in, newest first, up to an event.
    pub fn items_of(&self, trigger: u64, at: u64) -> Result<Newest<'_, ItemId>, TableError> {
        newest!(self.items_of_trigger, (trigger, 0), (trigger, at))
    }

    /// How long a job's newest successful builds took, in milliseconds, newest first, up to an event.
    pub fn durations(&self, tenant: &str, job: &str, at: u64, at_most: usize) -> Result<Vec<u64>, TableError> {
        let (from, to) = ((tenant.to_owned(), job.to_owned(), 0), (tenant.to_owned(), job.to_owned(), at));
        self.durations_of_job
            .range_back(Bound::Included(&from), Bound::Included(&to))?
            .take(at_most)
            .map(|entry| entry.map(|(_, took)| *took))
            .collect()
    }
}
