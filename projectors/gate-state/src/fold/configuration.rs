//! Tenants, files, layouts, branches.

use std::collections::BTreeSet;

use gatelog_partition_state::work::WorkTable;
use gatelog_record::draft::gate::{
    BranchMoved, ConfigRead, ConfigReadWanted, LayoutActivated, LayoutOutcome, LayoutPurpose, LayoutReady,
    LayoutWanted, TenantConfigured,
};
use gatelog_record::{EventRecord, ItemId};
use gatelog_tables::{Backing, FoldRefused, Table, TableDef, TableExt};

use crate::live::{BuildsetProblem, GateTables, LayoutRow, Phase, ProblemKind, TenantRow, UnreadRow, Work};

/// The keys of a table's rows that belong to a tenant, or to one project of it.
fn keys_of<T, X>(table: &X, tenant: &str, project: Option<&str>) -> Result<Vec<T::Key>, FoldRefused>
where
    T: TableDef<Key = (String, String, String)>,
    X: Table<T>,
{
    let from = (tenant.to_owned(), project.unwrap_or_default().to_owned(), String::new());
    let mut keys = Vec::new();
    for entry in table.range(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded)? {
        let (key, _) = entry?;
        if key.0 != tenant || project.is_some_and(|project| key.1 != project) {
            break;
        }
        keys.push(key);
    }
    Ok(keys)
}

/// The keys of a table's rows for the projects of a tenant.
fn projects_of<T, X>(table: &X, tenant: &str) -> Result<Vec<(String, String)>, FoldRefused>
where
    T: TableDef<Key = (String, String)>,
    X: Table<T>,
{
    let from = (tenant.to_owned(), String::new());
    let mut keys = Vec::new();
    for entry in table.range(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded)? {
        let (key, _) = entry?;
        if key.0 != tenant {
            break;
        }
        keys.push(key);
    }
    Ok(keys)
}

impl<B: Backing> GateTables<B> {
    pub(super) fn tenant_configured(
        &mut self,
        record: &EventRecord,
        event: &TenantConfigured,
    ) -> Result<(), FoldRefused> {
        let loaded = &event.tenant;
        let before = self.tenants.get(&loaded.tenant)?.map(|row| row.into_owned());
        let row = TenantRow {
            loaded: loaded.clone(),
            configured: record.sequence,
            read: false,
            stale: true,
            config_reads: before.as_ref().map(|row| row.config_reads.clone()).unwrap_or_default(),
            unread_merges: BTreeSet::new(),
            layout_work: before.as_ref().and_then(|row| row.layout_work),
            layout_problem: before.as_ref().and_then(|row| row.layout_problem.clone()),
            triggers: before.as_ref().map(|row| row.triggers).unwrap_or_default(),
            triggers_reason: before.map(|row| row.triggers_reason).unwrap_or_default(),
        };
        for key in keys_of(&self.config_files, &loaded.tenant, None)? {
            if row.project(&key.1).is_none() {
                self.config_files.delete(&key)?;
            }
        }
        for key in keys_of(&self.branches, &loaded.tenant, None)? {
            if row.project(&key.1).is_none() {
                self.branches.delete(&key)?;
            }
        }
        for key in projects_of(&self.unread, &loaded.tenant)? {
            if row.project(&key.1).is_none() {
                self.unread.delete(&key)?;
            }
        }
        for key in projects_of(&self.project_reads, &loaded.tenant)? {
            if row.project(&key.1).is_none() {
                self.project_reads.delete(&key)?;
            }
        }
        Ok(self.tenants.put(loaded.tenant.clone(), row)?)
    }

    pub(super) fn config_read_wanted(
        &mut self,
        record: &EventRecord,
        event: &ConfigReadWanted,
    ) -> Result<(), FoldRefused> {
        self.tenants.update(&event.tenant, |tenant| {
            tenant.config_reads.push(event.work);
            event.projects.iter().for_each(|one| {
                tenant.unread_merges.remove(&one.project);
            });
        })?;
        self.pending_work.ask(record, event.work, &event.tenant, Work::ConfigRead(event.clone()))
    }

    pub(super) fn config_read(&mut self, record: &EventRecord, event: &ConfigRead) -> Result<(), FoldRefused> {
        let found = &event.found;
        let asked = self.pending_work.close(found.work)?.requested;
        let mut tenant = self.tenants.need(&found.tenant)?.into_owned();
        tenant.config_reads.retain(|work| *work != found.work);
        tenant.read = true;
        tenant.stale |= event.changed;
        self.tenants.put(found.tenant.clone(), tenant)?;
        for project in &event.replaces {
            for key in keys_of(&self.config_files, &found.tenant, Some(project))? {
                self.config_files.delete(&key)?;
            }
            for key in keys_of(&self.branches, &found.tenant, Some(project))? {
                self.branches.delete(&key)?;
            }
            self.unread.delete(&(found.tenant.clone(), project.clone()))?;
            self.project_reads.put((found.tenant.clone(), project.clone()), asked)?;
        }
        for set in found.sets.iter().filter(|set| event.replaces.contains(&set.at.project)) {
            let key = (found.tenant.clone(), set.at.project.clone(), set.at.branch.clone());
            self.branches.put(key.clone(), set.commit.clone())?;
            self.config_files.put(key, set.clone())?;
        }
        for problem in &found.failed {
            let key = (found.tenant.clone(), problem.project.clone());
            let before = self.unread.get(&key)?.map(|row| (row.since, row.times));
            let (since, times) = before.unwrap_or((record.recorded_at, 0));
            self.unread.put(key, UnreadRow { problem: problem.clone(), since, times: times.saturating_add(1) })?;
        }
        Ok(())
    }

    pub(super) fn layout_wanted(&mut self, record: &EventRecord, event: &LayoutWanted) -> Result<(), FoldRefused> {
        self.pending_work.ask(record, event.work, &event.tenant, Work::Layout(event.clone()))?;
        match (event.item, event.buildset) {
            (Some(item), Some(buildset)) => {
                self.works_on(item, event.work)?;
                self.buildsets.update(&buildset, |row| row.phase = Phase::Layout)
            }
            (None, None) => self.tenants.update(&event.tenant, |tenant| {
                tenant.stale = false;
                tenant.layout_work = Some(event.work);
            }),
            _ => Err(FoldRefused::Illegal("a layout is wanted for an item without buildset".into())),
        }
    }

    pub(super) fn layout_ready(&mut self, event: &LayoutReady) -> Result<(), FoldRefused> {
        self.answered(event.item, event.made.work)?;
        self.buildsets.update(&event.buildset, |row| {
            if let LayoutOutcome::Made { warnings, .. } = &event.made.outcome {
                // What was looked through and what it is tested with are two layouts, with mostly the same warnings.
                let fresh: Vec<_> = warnings.iter().filter(|one| !row.warnings.contains(one)).cloned().collect();
                row.warnings.extend(fresh);
            }
            let code = match (&event.made.outcome, event.purpose) {
                (LayoutOutcome::Made { layout, problems, .. }, LayoutPurpose::Use) => {
                    row.layout = Some(*layout);
                    row.layout_problems = Some(*problems);
                    "config-error"
                }
                (LayoutOutcome::Made { .. }, LayoutPurpose::Validate | LayoutPurpose::Tenant) => {
                    row.validated = true;
                    "config-error"
                }
                (LayoutOutcome::Failed { code, .. }, _) => code.as_str(),
            };
            row.phase = match (&event.problem, event.purpose) {
                (Some(_), _) => Phase::Ended,
                (None, LayoutPurpose::Use) => Phase::LayoutReady,
                (None, _) => Phase::Prepared,
            };
            row.problem = event.problem.as_ref().map(|message| BuildsetProblem {
                kind: match event.made.outcome {
                    LayoutOutcome::Made { .. } => ProblemKind::Config,
                    LayoutOutcome::Failed { .. } => ProblemKind::Error,
                },
                code: code.to_owned(),
                message: message.clone(),
                remarks: match &event.made.outcome {
                    LayoutOutcome::Made { introduced, .. } => introduced.clone(),
                    LayoutOutcome::Failed { .. } => Vec::new(),
                },
            });
        })
    }

    pub(super) fn layout_activated(
        &mut self,
        record: &EventRecord,
        event: &LayoutActivated,
    ) -> Result<(), FoldRefused> {
        let made = &event.made;
        self.pending_work.close(made.work)?;
        let problem = match &made.outcome {
            LayoutOutcome::Made { layout, problems, errors, loader, .. } => {
                self.layouts.put(
                    made.tenant.clone(),
                    LayoutRow {
                        layout: *layout,
                        problems: *problems,
                        errors: *errors,
                        loader: *loader,
                        generation: event.generation,
                        activated: record.sequence,
                    },
                )?;
                match &event.begun {
                    Some(begun) => self.queues_begun(&made.tenant, begun)?,
                    None => self.queues_begin_anew(&made.tenant)?,
                }
                None
            }
            LayoutOutcome::Failed { code, message } => Some((code.clone(), message.clone())),
        };
        self.tenants.update(&made.tenant, |tenant| {
            tenant.layout_work = None;
            tenant.layout_problem = problem;
        })
    }

    pub(super) fn branch_moved(&mut self, event: &BranchMoved) -> Result<(), FoldRefused> {
        let key = crate::live::branch_key(&event.tenant, &event.at);
        match &event.new {
            Some(commit) => self.branches.put(key, commit.clone())?,
            None => {
                self.branches.delete(&key)?;
            }
        }
        match event.by {
            Some(item) => self.configuration_merged(&event.tenant, &event.at.project, item),
            None => Ok(()),
        }
    }

    /// An item was merged: that its project's configuration is to be read, if it may have changed that.
    fn configuration_merged(&mut self, tenant: &str, project: &str, item: ItemId) -> Result<(), FoldRefused> {
        let buildset = self.items.get(&item)?.and_then(|row| row.buildset);
        let set = match &buildset {
            Some(buildset) => self.buildsets.get(buildset)?,
            None => None,
        };
        let state = set.as_ref().and_then(|set| set.state.as_ref());
        if state.is_some_and(|state| !state.item_touches_config && state.files.is_some()) {
            return Ok(());
        }
        let reads = |tenant: &TenantRow| tenant.project(project).is_some_and(|one| one.reads_config);
        if self.tenants.get(&tenant.to_owned())?.is_some_and(|tenant| reads(&tenant)) {
            self.tenants.update(&tenant.to_owned(), |row| {
                row.unread_merges.insert(project.to_owned());
            })?;
        }
        Ok(())
    }
}
