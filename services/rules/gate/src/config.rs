//! A tenant's configuration: files are read, a layout is made of them and comes into force.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::{PendingRow, TenantRow, Work};
use gatelog_record::draft::gate::{
    BranchMoved, ConfigFile, ConfigFileSet, ConfigFilesFound, ConfigRead, ConfigReadWanted, ConfigScope,
    LayoutActivated, LayoutMade, LayoutOutcome, LayoutPurpose, LayoutWanted, ProjectBranch, QueueBegun,
    ReconfigureAsked, TenantConfigured, TenantLoaded, TenantProject,
};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::event::GateEvent;
use gatelog_record::{ItemId, WorkId};

use crate::decision::Decision;
use crate::work::config_timer;

/// How long until a project that could not be read is read again, for each time in a row, and until a layout that could
/// not be made is asked for again.
const RETRY_MS: i64 = 60_000;
/// The longest that grows to.
const RETRY_MAX_MS: i64 = 600_000;

impl Decision<'_> {
    /// A tenant file brought settings.
    pub(crate) fn tenant_loaded(&mut self, loaded: &TenantLoaded) -> Result<(), Refusal> {
        if self.tenant(&loaded.tenant).is_some_and(|row| row.loaded.version > loaded.version) {
            return self.nothing("older-tenant-file");
        }
        self.emit(GateEvent::TenantConfigured(TenantConfigured { tenant: loaded.clone() }))?;
        self.want_config_read(&loaded.tenant, ConfigScope::Tenant, loaded.projects.clone())
    }

    /// Somebody asks that a tenant is configured anew, with the settings it has.
    pub(crate) fn reconfigure_asked(&mut self, asked: &ReconfigureAsked) -> Result<(), Refusal> {
        let Some(loaded) = self.tenant(&asked.tenant).map(|row| row.loaded.clone()) else {
            return self.nothing("no-such-tenant");
        };
        self.emit(GateEvent::TenantConfigured(TenantConfigured { tenant: loaded.clone() }))?;
        self.want_config_read(&loaded.tenant, ConfigScope::Tenant, loaded.projects)
    }

    pub(crate) fn want_config_read(
        &mut self,
        tenant: &str,
        scope: ConfigScope,
        projects: Vec<TenantProject>,
    ) -> Result<(), Refusal> {
        let work = self.deciding.id();
        self.emit(GateEvent::ConfigReadWanted(ConfigReadWanted { work, tenant: tenant.to_owned(), scope, projects }))
    }

    /// Reads some projects of a tenant again.
    pub(crate) fn reread(&mut self, tenant: &str, projects: &BTreeSet<String>) -> Result<(), Refusal> {
        let Some(row) = self.tenant(tenant) else { return Ok(()) };
        let known: Vec<TenantProject> =
            row.loaded.projects.iter().filter(|project| projects.contains(&project.project)).cloned().collect();
        if known.is_empty() {
            return Ok(());
        }
        let names = known.iter().map(|project| project.project.clone()).collect();
        self.want_config_read(tenant, ConfigScope::Projects(names), known)
    }

    /// The timer for what configuration could not be had came due.
    pub(crate) fn config_due(&mut self, tenant: &str) -> Result<(), Refusal> {
        // What was changed since is asked for anyway.
        let waits = |row: &TenantRow| row.layout_problem.is_some() && row.layout_work.is_none() && !row.stale;
        if self.tenant(tenant).is_some_and(waits) {
            self.want_tenant_layout(tenant)?;
        }
        let from = (tenant.to_owned(), String::new());
        let unread: BTreeSet<String> = self
            .gate()
            .unread
            .rows(Bound::Included(&from), Bound::Unbounded)
            .take_while(|((owner, _), _)| owner == tenant)
            .map(|((_, project), _)| project.clone())
            .collect();
        self.reread(tenant, &unread)
    }

    /// The file sets of a tenant, or of one of its projects.
    pub(crate) fn config_files(&self, tenant: &str, project: Option<&str>) -> Vec<&ConfigFileSet> {
        let from = (tenant.to_owned(), project.unwrap_or_default().to_owned(), String::new());
        self.gate()
            .config_files
            .rows(Bound::Included(&from), Bound::Unbounded)
            .take_while(|(key, _)| key.0 == tenant && project.is_none_or(|project| key.1 == project))
            .map(|(_, set)| set)
            .collect()
    }

    /// Configuration files came.
    pub(crate) fn config_found(&mut self, found: &ConfigFilesFound) -> Result<(), Refusal> {
        let is_read = |work: &Work| matches!(work, Work::ConfigRead(_));
        let Some(row) = self.outcome(found.work, found.attempt, false, is_read)? else { return Ok(()) };
        let Work::ConfigRead(wanted) = &row.work else { return Ok(()) };
        let tenant = &found.tenant;
        let failed: BTreeSet<&str> = found.failed.iter().map(|problem| problem.project.as_str()).collect();
        let replaces: Vec<String> = wanted
            .projects
            .iter()
            .map(|project| &project.project)
            .filter(|project| !failed.contains(project.as_str()) && self.is_news(tenant, project, &row))
            .cloned()
            .collect();
        let changed = replaces.iter().any(|project| self.differs(tenant, project, found));
        self.emit(GateEvent::ConfigRead(ConfigRead { found: found.clone(), replaces, changed }))?;
        let from = (tenant.clone(), String::new());
        let times = self
            .gate()
            .unread
            .rows(Bound::Included(&from), Bound::Unbounded)
            .take_while(|((owner, _), _)| owner == tenant)
            .map(|(_, row)| row.times)
            .min();
        match times {
            Some(times) => {
                let wait = RETRY_MS.saturating_mul(i64::from(times)).min(RETRY_MAX_MS);
                self.set_timer(config_timer(tenant), self.now().plus_millis(wait))
            }
            None => Ok(()),
        }
    }

    /// Whether a read is newer than what is known of a project: an older one can be overtaken.
    fn is_news(&self, tenant: &str, project: &str, row: &PendingRow) -> bool {
        let key = (tenant.to_owned(), project.to_owned());
        let tenant_has = self.tenant(tenant).is_some_and(|row| row.project(project).is_some());
        tenant_has && self.gate().project_reads.row(&key).is_none_or(|read| *read <= row.requested)
    }

    fn differs(&self, tenant: &str, project: &str, found: &ConfigFilesFound) -> bool {
        type Known<'s> = BTreeMap<&'s str, (bool, &'s [ConfigFile])>;
        fn by_branch<'s>(sets: impl Iterator<Item = &'s ConfigFileSet>) -> Known<'s> {
            sets.map(|set| (set.at.branch.as_str(), (set.default, set.files.as_slice()))).collect()
        }
        let before = by_branch(self.config_files(tenant, Some(project)).into_iter());
        before != by_branch(found.sets.iter().filter(|set| set.at.project == project))
    }

    /// Asks for the tenant's layout when something it is made of changed and no read is under way.
    pub(crate) fn configure(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(row) = self.tenant(tenant) else { return Ok(()) };
        if !row.stale || !row.read || row.layout_work.is_some() || self.reading(tenant) {
            return Ok(());
        }
        self.want_tenant_layout(tenant)
    }

    fn want_tenant_layout(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(row) = self.tenant(tenant) else { return Ok(()) };
        let settings = row.loaded.settings;
        let files = self.config_files(tenant, None).into_iter().cloned().collect();
        let work = self.deciding.id();
        self.emit(GateEvent::LayoutWanted(LayoutWanted {
            work,
            tenant: tenant.to_owned(),
            purpose: LayoutPurpose::Tenant,
            item: None,
            buildset: None,
            settings,
            files,
            ahead: None,
            changed: Vec::new(),
            base: None,
        }))
    }

    /// A layout was made, for the tenant or for an item.
    pub(crate) fn layout_made(&mut self, made: &LayoutMade) -> Result<(), Refusal> {
        let failed = matches!(made.outcome, LayoutOutcome::Failed { .. });
        let is_layout = |work: &Work| matches!(work, Work::Layout(_));
        let Some(row) = self.outcome(made.work, made.attempt, failed, is_layout)? else { return Ok(()) };
        let Work::Layout(wanted) = &row.work else { return Ok(()) };
        if let (Some(item), Some(buildset)) = (wanted.item, wanted.buildset) {
            return self.item_layout_made(made, item, buildset, wanted.purpose);
        }
        let before = self.gate().layouts.row(&made.tenant).map_or(0, |row| row.generation);
        let generation = if failed { before } else { before + 1 };
        let windows = self.windows(&made.tenant);
        let begun = Some(if failed { Vec::new() } else { self.begun_anew(&made.tenant) });
        self.emit(GateEvent::LayoutActivated(LayoutActivated { made: made.clone(), generation, begun }))?;
        if failed {
            // It is not the configuration that is wrong, and a tenant without a layout does nothing at all.
            return self.set_timer(config_timer(&made.tenant), self.now().plus_millis(RETRY_MS));
        }
        self.enable_pipelines(&made.tenant)?;
        self.lay_queues(&made.tenant)?;
        self.renew_windows(&made.tenant, windows)?;
        self.renew_timers(&made.tenant)
    }

    /// With a new layout what is still in a queue counts as having entered it anew.
    fn begun_anew(&self, tenant: &str) -> Vec<QueueBegun> {
        let from = (tenant.to_owned(), String::new(), String::new());
        let queues = self.gate().queues.rows(Bound::Included(&from), Bound::Unbounded);
        let own = queues.take_while(|(key, _)| key.0 == tenant);
        own.filter_map(|((_, pipeline, queue), row)| {
            let subject = row.items.first().and_then(|item| self.item(*item)).and_then(|item| item.subjects.first());
            let first = subject.map(|subject| (subject.project.clone(), subject.branch.clone()));
            let begun = QueueBegun { pipeline: pipeline.clone(), queue: queue.clone(), first };
            (begun.first != row.first).then_some(begun)
        })
        .collect()
    }

    /// A branch moved, or came, or went: that is recorded, and its configuration is read again, unless
    /// it stands where gatelog knew it to be.
    pub(crate) fn branch_updated(&mut self, tenant: &str, event: &ForgeEvent) -> Result<(), Refusal> {
        let Some(branch) = event.branch.clone() else { return Ok(()) };
        let at = ProjectBranch { connection: event.connection.clone(), project: event.project.clone(), branch };
        let moved = self.note_branch(tenant, &at, event.old_commit.clone(), event.commit.clone(), None)?;
        // What the gate has merged itself is no news, but its configuration was not read yet.
        let unread = self.tenant(tenant).is_some_and(|row| row.unread_merges.contains(&at.project));
        if !moved && !unread {
            return Ok(());
        }
        let key = (tenant.to_owned(), at.project.clone(), at.branch.clone());
        let reads = self.tenant(tenant).and_then(|row| row.project(&at.project)).is_some_and(|one| one.reads_config);
        let known = self.gate().config_files.row(&key).is_some();
        // Of a project without configuration only its branches count.
        if reads || known != event.commit.is_some() {
            self.reread(tenant, &BTreeSet::from([at.project]))?;
        }
        Ok(())
    }

    /// Records where a branch is; says whether that is news.
    pub(crate) fn note_branch(
        &mut self,
        tenant: &str,
        at: &ProjectBranch,
        old: Option<String>,
        new: Option<String>,
        by: Option<ItemId>,
    ) -> Result<bool, Refusal> {
        let key = (tenant.to_owned(), at.project.clone(), at.branch.clone());
        let known = self.gate().branches.row(&key).cloned();
        if known == new {
            return Ok(false);
        }
        let old = known.or(old);
        self.emit(GateEvent::BranchMoved(BranchMoved { tenant: tenant.to_owned(), at: at.clone(), old, new, by }))?;
        Ok(true)
    }

    /// Whether decisions that depend on configuration wait for a change of it that is under way.
    pub(crate) fn awaits_config(&self, tenant: &str) -> bool {
        let Some(row) = self.tenant(tenant) else { return false };
        self.reading(tenant) || (row.stale && row.read) || row.layout_work.is_some_and(|work| self.first(work))
    }

    /// Whether files are read that are waited for. A read that had to be sent again is waited for no
    /// longer, nor is one of projects that could not be read before: one repository that does not
    /// answer must not stop a tenant.
    fn reading(&self, tenant: &str) -> bool {
        let reads = self.tenant(tenant).map(|row| row.config_reads.as_slice()).unwrap_or_default();
        reads.iter().any(|work| self.first(*work) && !self.only_unread(tenant, *work))
    }

    fn first(&self, work: WorkId) -> bool {
        self.pending(work).is_some_and(|row| row.attempt == 1)
    }

    /// Whether a read is about projects that could not be read before and nothing else.
    fn only_unread(&self, tenant: &str, work: WorkId) -> bool {
        let Some(Work::ConfigRead(wanted)) = self.pending(work).map(|row| &row.work) else { return false };
        let unread =
            |project: &TenantProject| self.gate().unread.row(&(tenant.to_owned(), project.project.clone())).is_some();
        wanted.projects.iter().all(unread)
    }
}
