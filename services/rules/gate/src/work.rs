//! Short work: which outcomes count, what is sent again, and for how long.

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{PendingRow, Work};
use gatelog_record::draft::gate::{
    ChangesFound, ConfigFilesFound, FreezeDone, FreezeOutcome, LayoutMade, LayoutOutcome, PrepareDone, PrepareOutcome,
    ProjectProblem, ReportDone, SubmitDone, SubmitOutcome, WorkResent,
};
use gatelog_record::draft::partition::{TimerDue, TimerSet};
use gatelog_record::event::{GateEvent, PartitionEvent};
use gatelog_record::input::GateInput;
use gatelog_record::{Timestamp, WorkId};

use crate::decision::Decision;

/// How long an answer is waited for, in milliseconds.
fn deadline_ms(work: &Work) -> i64 {
    match work {
        Work::Prepare(_) => 300_000,
        Work::Layout(_) | Work::Freeze(_) | Work::Submit(_) => 120_000,
        Work::ConfigRead(_) | Work::Changes(_) | Work::Report(_) => 60_000,
    }
}

/// How often it is sent before it is given up.
pub(crate) fn max_attempts(work: &Work) -> u32 {
    match work {
        Work::Layout(_) | Work::Freeze(_) => 3,
        Work::ConfigRead(_) | Work::Changes(_) | Work::Prepare(_) => 5,
        Work::Submit(_) | Work::Report(_) => 8,
    }
}

/// How long after a failure it is sent again: 1 s, 2 s, 4 s, … at most five minutes.
pub(crate) fn backoff_ms(attempt: u32) -> i64 {
    1_000_i64.checked_shl(attempt.saturating_sub(1).min(20)).unwrap_or(300_000).min(300_000)
}

fn work_timer(tenant: &str) -> String {
    format!("work/{tenant}")
}

/// The timer by which nodes that are kept are let go.
pub(crate) fn hold_timer(tenant: &str) -> String {
    format!("holds/{tenant}")
}

/// The timer by which configuration that could not be had is asked for again.
pub(crate) fn config_timer(tenant: &str) -> String {
    format!("config/{tenant}")
}

/// The timer by which configuration is read that was merged and not announced.
pub(crate) fn announced_timer(tenant: &str) -> String {
    format!("announced/{tenant}")
}

/// How the code of an outcome begins that is none: whoever does the work has no room for it, goes on trying, and says so
/// now and then.
pub const NO_ROOM: &str = "server-";

/// The work, and which sending of it, for which an outcome says that there is no room.
pub(crate) fn waits_for_room(input: &GateInput) -> Option<(WorkId, u32)> {
    let (work, attempt, code) = match input {
        GateInput::ConfigFilesFound(found) => (found.work, found.attempt, &found.failed.first()?.code),
        GateInput::ChangesFound(found) => (found.work, found.attempt, &found.failed.as_ref()?.0),
        GateInput::LayoutMade(LayoutMade { work, attempt, outcome: LayoutOutcome::Failed { code, .. }, .. })
        | GateInput::PrepareDone(PrepareDone { work, attempt, outcome: PrepareOutcome::Failed { code, .. }, .. })
        | GateInput::FreezeDone(FreezeDone { work, attempt, outcome: FreezeOutcome::Failed { code, .. }, .. })
        | GateInput::SubmitDone(SubmitDone { work, attempt, outcome: SubmitOutcome::Failed { code, .. }, .. }) => {
            (*work, *attempt, code)
        }
        GateInput::ReportDone(done) => (done.work, done.attempt, &done.failed.as_ref()?.0),
        _ => return None,
    };
    code.starts_with(NO_ROOM).then_some((work, attempt))
}

impl Decision<'_> {
    /// Work waits for room: its deadline begins anew, and the wait counts as no sending, however long it is.
    pub(crate) fn wait_for_room(&mut self, work: WorkId, attempt: u32) -> Result<(), Refusal> {
        match self.pending(work).map(|row| (row.attempt, row.work.kind())) {
            None => self.ignore(format!("work {work} attempt {attempt}"), "gone"),
            Some((newest, kind)) if newest != attempt => {
                self.ignore(format!("{kind} {work} attempt {attempt}"), "old-attempt")
            }
            Some(_) => self.emit(GateEvent::WorkResent(WorkResent { work, attempt, not_before: self.now() })),
        }
    }

    /// The pending work an outcome is about, or nothing when it came too late or twice: then that is
    /// recorded. `fits` says whether the outcome is of the kind that was asked for; `failed` whether
    /// it is a failure: one of an older sending does not count while a newer one is under way.
    pub(crate) fn outcome(
        &mut self,
        id: WorkId,
        attempt: u32,
        failed: bool,
        fits: impl Fn(&Work) -> bool,
    ) -> Result<Option<PendingRow>, Refusal> {
        let Some(row) = self.pending(id).cloned() else {
            self.ignore(format!("work {id} attempt {attempt}"), "gone")?;
            return Ok(None);
        };
        let kind = row.work.kind();
        if !fits(&row.work) {
            self.ignore(format!("{kind} {id} attempt {attempt}"), "wrong-kind")?;
            return Ok(None);
        }
        if failed && attempt < row.attempt {
            self.ignore(format!("{kind} {id} attempt {attempt}"), "old-attempt")?;
            return Ok(None);
        }
        Ok(Some(row))
    }

    /// Sends work again after a failure that may pass; says whether it did. It does not when the work
    /// was sent often enough.
    pub(crate) fn send_again(&mut self, id: WorkId, row: &PendingRow) -> Result<bool, Refusal> {
        if row.attempt >= max_attempts(&row.work) {
            return Ok(false);
        }
        let not_before = self.now().plus_millis(backoff_ms(row.attempt));
        self.emit(GateEvent::WorkResent(WorkResent { work: id, attempt: row.attempt + 1, not_before }))?;
        Ok(true)
    }

    /// A timer came due.
    pub(crate) fn timer_due(&mut self, tenant: &str, due: &TimerDue) -> Result<(), Refusal> {
        // The shell asks only about a timer that was set to this moment, and has cleared it already.
        if due.timer == work_timer(tenant) {
            return self.resend_overdue(tenant);
        }
        if due.timer == config_timer(tenant) {
            return self.config_due(tenant);
        }
        if due.timer == announced_timer(tenant) {
            let merged = self.tenant(tenant).map(|row| row.unread_merges.clone()).unwrap_or_default();
            return self.reread(tenant, &merged);
        }
        if due.timer == hold_timer(tenant) {
            return self.holds_due(tenant);
        }
        Ok(())
    }

    fn work_of(&self, tenant: &str) -> impl Iterator<Item = (WorkId, &PendingRow)> {
        self.gate().pending_work.every().filter(move |(_, row)| row.tenant == tenant).map(|(id, row)| (*id, row))
    }

    fn resend_overdue(&mut self, tenant: &str) -> Result<(), Refusal> {
        let now = self.now();
        let overdue: Vec<(WorkId, PendingRow)> =
            self.work_of(tenant).filter(|(_, row)| deadline(row) <= now).map(|(id, row)| (id, row.clone())).collect();
        for (id, row) in overdue {
            // What was decided on the work before it may have made an end of this one.
            if self.pending(id).is_none() {
                continue;
            }
            if row.attempt >= max_attempts(&row.work) {
                self.give_up(id, &row)?;
            } else {
                let again = WorkResent { work: id, attempt: row.attempt + 1, not_before: now };
                self.emit(GateEvent::WorkResent(again))?;
            }
        }
        Ok(())
    }

    /// Nobody answered, however often it was sent: that is a failure with a name.
    fn give_up(&mut self, work: WorkId, row: &PendingRow) -> Result<(), Refusal> {
        let (attempt, tenant) = (row.attempt, row.tenant.clone());
        let code = "no-answer".to_owned();
        let message = format!("nobody answered, although the {} was sent {attempt} times", row.work.kind());
        match &row.work {
            Work::ConfigRead(wanted) => {
                let problem = |project: &gatelog_record::draft::gate::TenantProject| ProjectProblem {
                    project: project.project.clone(),
                    code: code.clone(),
                    message: message.clone(),
                };
                let failed = wanted.projects.iter().map(problem).collect();
                self.config_found(&ConfigFilesFound { work, attempt, tenant, sets: Vec::new(), failed })
            }
            Work::Layout(_) => {
                let outcome = LayoutOutcome::Failed { code, message };
                self.layout_made(&LayoutMade { work, attempt, tenant, outcome })
            }
            Work::Changes(_) => self.changes_found(&ChangesFound {
                work,
                attempt,
                tenant,
                changes: Vec::new(),
                missing: Vec::new(),
                failed: Some((code, message)),
            }),
            Work::Prepare(_) => {
                let outcome = PrepareOutcome::Failed { code, message, again: false };
                self.prepare_done(&PrepareDone { work, attempt, tenant, outcome })
            }
            Work::Freeze(_) => {
                let outcome = FreezeOutcome::Failed { code, message, again: false };
                self.freeze_done(&FreezeDone { work, attempt, tenant, outcome })
            }
            Work::Submit(_) => {
                let outcome = SubmitOutcome::Failed { code, message, again: false };
                self.submit_done(&SubmitDone { work, attempt, tenant, outcome })
            }
            Work::Report(_) => {
                self.report_done(&ReportDone { work, attempt, tenant, failed: Some((code, message, false)) })
            }
        }
    }

    /// Sets the timer of a tenant's work to its earliest deadline. A timer that is set earlier is left
    /// alone: it comes due for nothing and is set anew.
    pub(crate) fn set_timers(&mut self, tenant: &str) -> Result<(), Refusal> {
        let timer = work_timer(tenant);
        // Once it is set, what was asked for before is no earlier.
        let earliest = match self.seen.all || self.deciding.state.partition.timers.row(&timer).is_none() {
            true => self.work_of(tenant).map(|(_, row)| deadline(row)).min(),
            false => self.seen.asked.iter().filter_map(|work| self.pending(*work)).map(deadline).min(),
        };
        earliest.map_or(Ok(()), |earliest| self.set_timer(timer, earliest))
    }

    /// Sets a timer, unless it is set to that moment or an earlier one.
    pub(crate) fn set_timer(&mut self, timer: String, due_at: Timestamp) -> Result<(), Refusal> {
        if self.deciding.state.partition.timers.row(&timer).is_some_and(|row| row.due_at <= due_at) {
            return Ok(());
        }
        self.deciding.emit(PartitionEvent::TimerSet(TimerSet { timer, due_at }))
    }
}

fn deadline(row: &PendingRow) -> Timestamp {
    row.not_before.plus_millis(deadline_ms(&row.work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_named_for_their_tenant() {
        assert_eq!(work_timer("acme"), "work/acme");
        assert_eq!(hold_timer("acme"), "holds/acme");
        assert_eq!(config_timer("acme"), "config/acme");
        assert_eq!(announced_timer("acme"), "announced/acme");
    }

    #[test]
    fn what_fails_is_sent_again_after_twice_as_long_each_time_up_to_five_minutes() {
        let waits = [1, 2, 3, 9, 10, 1_000].map(backoff_ms);
        assert_eq!(waits, [1_000, 2_000, 4_000, 256_000, 300_000, 300_000]);
    }
}
