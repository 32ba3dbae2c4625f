//! Facts, triggers, reasons.

use gatelog_partition_state::work::WorkTable;
use gatelog_record::EventRecord;
use gatelog_record::draft::gate::{
    ChangesForgotten, ChangesObserved, ChangesWanted, FactsPurpose, IntakeChanged, TriggerCause, TriggerSettled,
    TriggerWaiting, WaitChanged,
};
use gatelog_tables::{Backing, FoldRefused, Table, TableExt};

use crate::live::{ChangeRow, GateTables, TriggerRow, WaitKey, WaitRow, Work};

impl<B: Backing> GateTables<B> {
    pub(super) fn changes_wanted(&mut self, record: &EventRecord, event: &ChangesWanted) -> Result<(), FoldRefused> {
        self.pending_work.ask(record, event.work, &event.tenant, Work::Changes(event.clone()))?;
        match event.purpose {
            FactsPurpose::Trigger { trigger } => {
                self.triggers.update(&(event.tenant.clone(), trigger), |row| row.work = Some(event.work))
            }
            FactsPurpose::BeforeSubmit { item } => self.works_on(item, event.work),
            FactsPurpose::Refresh | FactsPurpose::ProjectMerged { .. } => Ok(()),
        }
    }

    pub(super) fn changes_observed(
        &mut self,
        record: &EventRecord,
        event: &ChangesObserved,
    ) -> Result<(), FoldRefused> {
        let found = &event.found;
        let pending = self.pending_work.close(found.work)?;
        let Work::Changes(wanted) = &pending.work else {
            return Err(FoldRefused::Illegal(format!("work {} asked for no changes", found.work)));
        };
        let tenant = &wanted.tenant;
        for facts in &found.changes {
            let Some(key) = facts.subject.change_key() else {
                return Err(FoldRefused::Illegal(format!("{} is not a change", facts.subject.git_ref)));
            };
            let key = (tenant.clone(), key.project, key.change);
            // Nobody stands on artifacts of a change that is closed.
            if !facts.open {
                self.artifacts.delete(&key)?;
            }
            // An answer to an older question says nothing new.
            let known = self.changes.get(&key)?;
            if known.as_ref().is_none_or(|row| row.as_of <= pending.requested) {
                let (before, submitted) = known.map_or((None, None), |row| (row.closed, row.submitted.clone()));
                let closed = if facts.open { None } else { before.or(Some(record.sequence)) };
                let as_of = pending.requested;
                self.changes.put(key, ChangeRow { facts: facts.clone(), as_of, closed, submitted })?;
            }
        }
        for missing in &found.missing {
            let key = (tenant.clone(), missing.project.clone(), missing.change.clone());
            if self.changes.get(&key)?.is_some_and(|row| row.as_of <= pending.requested) {
                self.changes.delete(&key)?;
            }
        }
        match wanted.purpose {
            FactsPurpose::Trigger { trigger } => self.triggers.update(&(tenant.clone(), trigger), |row| {
                row.work = None;
                row.answered = true;
                row.failed.clone_from(&found.failed);
            }),
            FactsPurpose::BeforeSubmit { item } => self.items.update(&item, |row| {
                row.work = None;
                row.asked = found.failed.is_none();
            }),
            FactsPurpose::Refresh | FactsPurpose::ProjectMerged { .. } => Ok(()),
        }
    }

    pub(super) fn changes_forgotten(&mut self, event: &ChangesForgotten) -> Result<(), FoldRefused> {
        for change in &event.changes {
            self.changes.remove(&(event.tenant.clone(), change.project.clone(), change.change.clone()))?;
        }
        Ok(())
    }

    pub(super) fn trigger_waiting(&mut self, record: &EventRecord, event: &TriggerWaiting) -> Result<(), FoldRefused> {
        if let TriggerCause::Timer(ticked) = &event.cause {
            self.timer_ticked(ticked)?;
        }
        self.triggers.insert(
            (event.tenant.clone(), event.trigger),
            TriggerRow {
                cause: event.cause.clone(),
                needs_facts: event.needs_facts,
                sequence: record.sequence,
                since: record.recorded_at,
                work: None,
                answered: false,
                failed: None,
            },
        )
    }

    pub(super) fn intake_changed(&mut self, event: &IntakeChanged) -> Result<(), FoldRefused> {
        let asked = &event.asked;
        self.tenants.update(&asked.tenant, |tenant| {
            tenant.triggers = asked.triggers;
            tenant.triggers_reason.clone_from(&asked.reason);
        })
    }

    pub(super) fn trigger_settled(&mut self, event: &TriggerSettled) -> Result<(), FoldRefused> {
        self.triggers.remove(&(event.tenant.clone(), event.trigger))?;
        self.waits.delete(&WaitKey(gatelog_record::draft::gate::WaitSubject::Trigger(event.trigger)))?;
        Ok(())
    }

    pub(super) fn wait_changed(&mut self, event: &WaitChanged) -> Result<(), FoldRefused> {
        let key = WaitKey(event.subject.clone());
        match event.code {
            Some(code) => Ok(self.waits.put(
                key,
                WaitRow { code, detail: event.detail.clone(), since: event.since, unblocks: event.unblocks.clone() },
            )?),
            None => self.waits.remove(&key).map(|_| ()),
        }
    }
}
