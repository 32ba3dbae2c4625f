//! Timers: which there are follows the layout in force; each tick of one is a trigger of its own, for its pipeline alone.

use std::collections::BTreeSet;
use std::ops::Bound;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{TimerKey, TimerRow};
use gatelog_record::draft::gate::{
    PipelineVerdict, Subject, TimerName, TimerTicked, TimersChanged, TriggerCause, TriggerIntake, TriggerSettled,
};
use gatelog_record::event::GateEvent;

use crate::decision::Decision;
use crate::layout_view::LayoutView;
use crate::managers::Entry;
use crate::triggers::verdict;

/// How many timers one event names.
const PER_EVENT: usize = 5_000;

impl Decision<'_> {
    /// The timers of a tenant, in the order of their names.
    fn timers(&self, tenant: &str) -> impl Iterator<Item = (&TimerName, &TimerRow)> {
        let from = TimerKey::first_of(tenant);
        let rows = self.gate().timers.rows(Bound::Included(&from), Bound::Unbounded);
        rows.take_while(move |(key, _)| key.tenant == tenant).map(|(key, row)| (&key.timer, row))
    }

    /// Makes the timers of a tenant those of its layout. One that was there before goes on from its last tick.
    pub(crate) fn renew_timers(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        let there: BTreeSet<&TimerName> = self.timers(tenant).map(|(timer, _)| timer).collect();
        let wanted: BTreeSet<&TimerName> = layout.timers().iter().collect();
        let differing = |these: &BTreeSet<&TimerName>, others: &BTreeSet<&TimerName>| -> Vec<TimerName> {
            these.difference(others).copied().cloned().collect()
        };
        let (added, removed) = (differing(&wanted, &there), differing(&there, &wanted));
        for removed in removed.chunks(PER_EVENT) {
            self.timers_changed(tenant, &[], removed)?;
        }
        for added in added.chunks(PER_EVENT) {
            self.timers_changed(tenant, added, &[])?;
        }
        Ok(())
    }

    fn timers_changed(&mut self, tenant: &str, added: &[TimerName], removed: &[TimerName]) -> Result<(), Refusal> {
        let (added, removed) = (added.to_vec(), removed.to_vec());
        self.emit(GateEvent::TimersChanged(TimersChanged { tenant: tenant.to_owned(), added, removed }))
    }

    /// Gives a tenant its timers whose layout came into force before this gatelog knew any.
    pub(crate) fn arm_timers(&mut self, tenant: &str) -> Result<(), Refusal> {
        let Some(layout) = self.layout(tenant)? else { return Ok(()) };
        match layout.timers().is_empty() || self.timers(tenant).next().is_some() {
            true => Ok(()),
            false => self.renew_timers(tenant),
        }
    }

    /// A timer came due.
    pub(crate) fn timer_ticked(&mut self, ticked: &TimerTicked) -> Result<(), Refusal> {
        let Some(intake) = self.tenant(&ticked.tenant).map(|row| row.triggers) else {
            return self.nothing("no-such-tenant");
        };
        let key = TimerKey { tenant: ticked.tenant.clone(), timer: ticked.timer.clone() };
        match self.gate().timers.row(&key) {
            None => return self.nothing("no-such-timer"),
            // More than are known were taken before it where one of them is left out: in a what-if.
            Some(row) if row.count > ticked.count => return self.nothing("tick-already-taken"),
            Some(_) => {}
        }
        let trigger = self.deciding.input_sequence;
        self.wait(&ticked.tenant, TriggerCause::Timer(ticked.clone()))?;
        if intake != TriggerIntake::Discarding
            || self.gate().timers.row(&key).is_some_and(|row| row.count <= ticked.count)
        {
            return Ok(());
        }
        // The tick is over all the same: it does not come again when the tenant takes events again.
        let dropped = verdict(&ticked.timer.pipeline, "tenant-discards", "outside events of the tenant are dropped");
        let (tenant, verdicts) = (ticked.tenant.clone(), vec![dropped]);
        self.emit(GateEvent::TriggerSettled(TriggerSettled { trigger, tenant, verdicts }))
    }

    /// Lets the branch of a timer into its pipeline, or says why not. Zuul: a timer's event goes to its pipeline alone;
    /// without `dereference` it says nothing of the commit, so that a branch that is there still is not there twice.
    pub(crate) fn settle_ticked(
        &mut self,
        layout: &LayoutView,
        trigger: u64,
        ticked: &TimerTicked,
    ) -> Result<PipelineVerdict, Refusal> {
        let TimerName { pipeline: name, project, branch, dereference, .. } = &ticked.timer;
        let pipeline = layout.pipeline(name).filter(|_| layout.timers().contains(&ticked.timer));
        let Some(pipeline) = pipeline else {
            return Ok(verdict(name, "no-such-timer", "the tenant has no such timer any more"));
        };
        let connection = self.tenant(&ticked.tenant).and_then(|row| row.project(project)).map(|one| &one.connection);
        let Some(connection) = connection.cloned() else {
            return Ok(verdict(name, "project-not-in-tenant", format!("the tenant has no project {project} any more")));
        };
        let at = (ticked.tenant.clone(), project.clone(), branch.clone());
        let Some(tip) = self.gate().branches.row(&at).cloned() else {
            return Ok(verdict(name, "ref-deleted", format!("{project} has no branch {branch} any more")));
        };
        let subject = Subject {
            connection,
            project: project.clone(),
            branch: Some(branch.clone()),
            git_ref: format!("refs/heads/{branch}"),
            change: None,
            patchset: None,
            commit: dereference.then_some(tip),
            old_commit: None,
            url: String::new(),
        };
        self.enter(&Entry {
            tenant: &ticked.tenant,
            layout,
            pipeline,
            subject: &subject,
            trigger: Some(trigger),
            reason: "timer",
            asked: false,
            parameters: None,
        })
    }
}
