//! Short work, as far as it is the gate's own: its timers, what its outcomes say of a server without room, and what it
//! means that nobody answered. The rest is [`gatelog_deciding::work`].

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::{PendingRow, Work};
use gatelog_gate_state::work::Told;
use gatelog_record::draft::partition::{TimerDue, TimerSet, WorkResent};
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::GateInput;
use gatelog_record::{Timestamp, WorkId};

use crate::decision::Decision;

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
    let told = Told::of(input)?;
    told.failed.is_some_and(|(code, _)| code.starts_with(NO_ROOM)).then_some((told.work, told.attempt))
}

impl DecidesWork<Work> for Decision<'_> {
    fn now(&self) -> Timestamp {
        self.deciding.now
    }

    fn pending(&self, id: WorkId) -> Option<&PendingRow> {
        Decision::pending(self, id)
    }

    fn work_of<'s>(&'s self, key: &'s str) -> impl Iterator<Item = (WorkId, &'s PendingRow)> {
        self.gate().pending_work.every().filter(move |(_, row)| row.key == key).map(|(id, row)| (*id, row))
    }

    fn resend(&mut self, event: WorkResent) -> Result<(), Refusal> {
        self.touch_resent(event.work);
        self.deciding.emit(PartitionEvent::WorkResent(event))
    }

    fn ignore(&mut self, what: String, code: &'static str) -> Result<(), Refusal> {
        Decision::ignore(self, what, code)
    }

    /// Nobody answered, however often it was sent: that is a failure with a name.
    fn give_up(&mut self, id: WorkId, row: &PendingRow) -> Result<(), Refusal> {
        let message = format!("nobody answered, although the {} was sent {} times", row.work.kind(), row.attempt);
        self.take(&row.work.failed(row.sending(id), "no-answer", &message, false))
    }
}

impl Decision<'_> {
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

    /// Sets the timer of a tenant's work to its earliest deadline. A timer that is set earlier is left
    /// alone: it comes due for nothing and is set anew.
    pub(crate) fn set_timers(&mut self, tenant: &str) -> Result<(), Refusal> {
        let timer = work_timer(tenant);
        // Once it is set, what was asked for before is no earlier.
        let earliest = match self.seen.all || self.deciding.state.partition.timers.row(&timer).is_none() {
            true => self.earliest_deadline(tenant),
            false => self.seen.asked.iter().filter_map(|work| self.pending(*work)).map(PendingRow::deadline).min(),
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
}
