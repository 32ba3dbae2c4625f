//! Pending work, decided the same for every domain: which outcomes count, what is sent again, when it is given up.
//!
//! A domain's decision implements the few things that are its own ([`DecidesWork`]): where its table is, how an event is
//! emitted, what it means that nobody answered. The timer by which overdue work is found is the domain's too, for it knows
//! how many keys share a partition.

use gatelog_partition_state::work::{PendingRow, Work};
use gatelog_record::draft::partition::WorkResent;
use gatelog_record::{Timestamp, WorkId};

use crate::Refusal;

/// The longest delay before work is sent again, in milliseconds.
const BACKOFF_MAX_MS: i64 = 300_000;

/// How long after a failure work is sent again: 1 s, 2 s, 4 s, … at most five minutes.
pub fn backoff_ms(attempt: u32) -> i64 {
    1_000_i64.checked_shl(attempt.saturating_sub(1).min(20)).unwrap_or(BACKOFF_MAX_MS).min(BACKOFF_MAX_MS)
}

/// A decision of a domain that has pending work.
pub trait DecidesWork<W: Work> {
    /// The only clock.
    fn now(&self) -> Timestamp;

    /// A piece of work, while it is pending.
    fn pending(&self, id: WorkId) -> Option<&PendingRow<W>>;

    /// The pending work whose outcomes come under a key.
    fn work_of<'s>(&'s self, key: &'s str) -> impl Iterator<Item = (WorkId, &'s PendingRow<W>)>;

    /// Decides that work is sent again.
    ///
    /// # Errors
    /// When the event does not fit the state.
    fn resend(&mut self, event: WorkResent) -> Result<(), Refusal>;

    /// Decides that an outcome is of no use: `what` it is, and a code why: `gone`, `wrong-kind`, `old-attempt`.
    ///
    /// # Errors
    /// When the event does not fit the state.
    fn ignore(&mut self, what: String, code: &'static str) -> Result<(), Refusal>;

    /// Decides what it means that nobody answered, however often work was sent.
    ///
    /// # Errors
    /// As for any decision.
    fn give_up(&mut self, id: WorkId, row: &PendingRow<W>) -> Result<(), Refusal>;

    /// The pending work an outcome is about, or nothing when it came too late or twice: then that is recorded. `fits`
    /// says whether the outcome is of the kind that was asked for; `failed` whether it is a failure: one of an older
    /// sending does not count while a newer one is under way.
    ///
    /// # Errors
    /// When an event does not fit the state.
    fn outcome(
        &mut self,
        id: WorkId,
        attempt: u32,
        failed: bool,
        fits: impl Fn(&W) -> bool,
    ) -> Result<Option<PendingRow<W>>, Refusal> {
        let Some(row) = self.pending(id).cloned() else {
            self.ignore(format!("work {id} attempt {attempt}"), "gone")?;
            return Ok(None);
        };
        let kind = row.work.kind();
        let code = match (fits(&row.work), failed && attempt < row.attempt) {
            (true, false) => return Ok(Some(row)),
            (false, _) => "wrong-kind",
            (true, true) => "old-attempt",
        };
        self.ignore(format!("{kind} {id} attempt {attempt}"), code)?;
        Ok(None)
    }

    /// Sends work again after a failure that may pass; says whether it did. It does not when the work was sent often
    /// enough.
    ///
    /// # Errors
    /// When the event does not fit the state.
    fn send_again(&mut self, id: WorkId, row: &PendingRow<W>) -> Result<bool, Refusal> {
        if row.is_last_attempt() {
            return Ok(false);
        }
        let not_before = self.now().plus_millis(backoff_ms(row.attempt));
        self.resend(WorkResent { work: id, attempt: row.attempt + 1, not_before })?;
        Ok(true)
    }

    /// Whoever does the work goes on trying: its deadline begins anew, and the wait counts as no sending, however long
    /// it is.
    ///
    /// # Errors
    /// When an event does not fit the state.
    fn begin_deadline_anew(&mut self, id: WorkId, attempt: u32) -> Result<(), Refusal> {
        match self.pending(id).map(|row| (row.attempt, row.work.kind())) {
            None => self.ignore(format!("work {id} attempt {attempt}"), "gone"),
            Some((newest, kind)) if newest != attempt => {
                self.ignore(format!("{kind} {id} attempt {attempt}"), "old-attempt")
            }
            Some(_) => {
                let not_before = self.now();
                self.resend(WorkResent { work: id, attempt, not_before })
            }
        }
    }

    /// Sends again, or gives up, what is overdue under a key.
    ///
    /// # Errors
    /// As for any decision.
    fn resend_overdue(&mut self, key: &str) -> Result<(), Refusal> {
        let now = self.now();
        let overdue: Vec<(WorkId, PendingRow<W>)> =
            self.work_of(key).filter(|(_, row)| row.deadline() <= now).map(|(id, row)| (id, row.clone())).collect();
        for (id, row) in overdue {
            // What was decided on the work before it may have made an end of this one.
            if self.pending(id).is_none() {
                continue;
            }
            if row.is_last_attempt() {
                self.give_up(id, &row)?;
            } else {
                self.resend(WorkResent { work: id, attempt: row.attempt + 1, not_before: now })?;
            }
        }
        Ok(())
    }

    /// The earliest deadline of the pending work under a key.
    fn earliest_deadline(&self, key: &str) -> Option<Timestamp> {
        self.work_of(key).map(|(_, row)| row.deadline()).min()
    }
}

#[cfg(test)]
mod tests {
    use gatelog_partition_state::work::{Duty, PendingWork, Terms, WorkTable};
    use gatelog_record::{Cause, Event, EventId, EventRecord};
    use gatelog_tables::{MapTable, TableExt};
    use serde::{Deserialize, Serialize};

    use super::*;

    /// Work of a domain that nobody has heard of: kettles.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Kettle {
        Fill(String),
        Boil,
    }

    const FILL: Terms =
        Terms { kind: "fill", duty: Duty::Compute, deadline_ms: 10_000, attempts_max: 2, steps: ["", "", ""] };
    const BOIL: Terms = Terms { kind: "boil", deadline_ms: 60_000, attempts_max: 3, ..FILL };

    impl Work for Kettle {
        fn terms(&self) -> &'static Terms {
            match self {
                Kettle::Fill(_) => &FILL,
                Kettle::Boil => &BOIL,
            }
        }

        fn connections(&self) -> Vec<&str> {
            match self {
                Kettle::Fill(tap) => vec![tap],
                Kettle::Boil => Vec::new(),
            }
        }
    }

    /// The kitchen's decisions.
    #[derive(Default)]
    struct Kitchen {
        now: Timestamp,
        table: MapTable<PendingWork<Kettle>>,
        ignored: Vec<String>,
        given_up: Vec<&'static str>,
    }

    impl Kitchen {
        fn ask(&mut self, id: u8, work: Kettle) {
            let resent = WorkResent { work: WorkId([id; 16]), attempt: 1, not_before: self.now };
            let record = EventRecord {
                sequence: u64::from(id),
                term: 1,
                recorded_at: self.now,
                wall_at: self.now,
                id: EventId::default(),
                cause: Cause::Start,
                actor: gatelog_record::ActorId::SYSTEM,
                key: String::new(),
                traceparent: String::new(),
                decision: None,
                event: Event::Partition(resent.into()),
            };
            self.table.ask(&record, WorkId([id; 16]), "kitchen", work).unwrap();
        }

        fn attempt(&self, id: u8) -> Option<u32> {
            self.pending(WorkId([id; 16])).map(|row| row.attempt)
        }
    }

    impl DecidesWork<Kettle> for Kitchen {
        fn now(&self) -> Timestamp {
            self.now
        }

        fn pending(&self, id: WorkId) -> Option<&PendingRow<Kettle>> {
            self.table.rows.get(&id)
        }

        fn work_of<'s>(&'s self, key: &'s str) -> impl Iterator<Item = (WorkId, &'s PendingRow<Kettle>)> {
            self.table.rows.iter().filter(move |(_, row)| row.key == key).map(|(id, row)| (*id, row))
        }

        fn resend(&mut self, event: WorkResent) -> Result<(), Refusal> {
            self.table.resend(&event).map_err(|refused| Refusal::Fold { event: "work-resent", refused })
        }

        fn ignore(&mut self, what: String, code: &'static str) -> Result<(), Refusal> {
            self.ignored.push(format!("{what}: {code}"));
            Ok(())
        }

        fn give_up(&mut self, id: WorkId, row: &PendingRow<Kettle>) -> Result<(), Refusal> {
            self.given_up.push(row.work.kind());
            self.table.close(id).map(drop).map_err(|refused| Refusal::Fold { event: "given-up", refused })
        }
    }

    fn kitchen() -> Kitchen {
        let mut kitchen = Kitchen::default();
        kitchen.ask(1, Kettle::Fill("cold".into()));
        kitchen.ask(2, Kettle::Boil);
        kitchen
    }

    #[test]
    fn what_fails_is_sent_again_after_twice_as_long_each_time_up_to_five_minutes() {
        let waits = [1, 2, 3, 9, 10, 1_000].map(backoff_ms);
        assert_eq!(waits, [1_000, 2_000, 4_000, 256_000, 300_000, 300_000]);
    }

    #[test]
    fn the_first_outcome_counts_and_what_comes_later_is_told_as_of_no_use() {
        let mut kitchen = kitchen();
        let fits = |work: &Kettle| matches!(work, Kettle::Fill(_));
        let id = WorkId([1; 16]);
        let taken = kitchen.outcome(id, 1, false, fits).unwrap();
        assert_eq!(taken.map(|row| row.work), Some(Kettle::Fill("cold".into())));
        kitchen.table.close(id).unwrap();
        assert_eq!(kitchen.outcome(id, 1, false, fits).unwrap(), None);
        assert_eq!(kitchen.outcome(WorkId([2; 16]), 1, false, fits).unwrap(), None, "of another kind");
        assert!(kitchen.ignored.iter().any(|line| line.ends_with(": gone")), "{:?}", kitchen.ignored);
        assert!(kitchen.ignored.iter().any(|line| line.ends_with(": wrong-kind")), "{:?}", kitchen.ignored);
    }

    #[test]
    fn a_failure_of_an_older_sending_does_not_count_and_a_success_of_it_does() {
        let mut kitchen = kitchen();
        let id = WorkId([2; 16]);
        let row = kitchen.pending(id).cloned().unwrap();
        assert!(kitchen.send_again(id, &row).unwrap());
        assert_eq!(kitchen.attempt(2), Some(2));
        assert_eq!(kitchen.outcome(id, 1, true, |_| true).unwrap(), None);
        assert!(kitchen.outcome(id, 1, false, |_| true).unwrap().is_some());
    }

    #[test]
    fn what_nobody_answers_is_sent_again_at_its_kind_s_deadline_and_given_up_after_its_kind_s_attempts() {
        let mut kitchen = kitchen();
        assert_eq!(kitchen.earliest_deadline("kitchen"), Some(Timestamp::ZERO.plus_millis(10_000)));
        assert_eq!(kitchen.earliest_deadline("cellar"), None);
        kitchen.now = Timestamp::ZERO.plus_millis(10_000);
        kitchen.resend_overdue("kitchen").unwrap();
        assert_eq!((kitchen.attempt(1), kitchen.attempt(2)), (Some(2), Some(1)));
        kitchen.now = Timestamp::ZERO.plus_millis(20_000);
        kitchen.resend_overdue("kitchen").unwrap();
        assert_eq!((kitchen.given_up.as_slice(), kitchen.attempt(1)), (["fill"].as_slice(), None));
    }

    #[test]
    fn whoever_goes_on_trying_is_waited_for_and_it_counts_as_no_sending() {
        let mut kitchen = kitchen();
        kitchen.now = Timestamp::ZERO.plus_millis(9_000);
        kitchen.begin_deadline_anew(WorkId([1; 16]), 1).unwrap();
        kitchen.now = Timestamp::ZERO.plus_millis(10_000);
        kitchen.resend_overdue("kitchen").unwrap();
        assert_eq!(kitchen.attempt(1), Some(1));
        kitchen.begin_deadline_anew(WorkId([1; 16]), 7).unwrap();
        kitchen.begin_deadline_anew(WorkId([9; 16]), 1).unwrap();
        assert_eq!(kitchen.ignored.len(), 2);
    }

    /// Nothing here needs more of a domain than its kinds.
    #[test]
    fn a_row_says_by_when_it_is_to_be_answered_and_whom_it_asks() {
        let kitchen = kitchen();
        let row = kitchen.table.need(&WorkId([1; 16])).unwrap();
        assert_eq!((row.work.connections(), row.work.kind(), row.is_last_attempt()), (vec!["cold"], "fill", false));
        let sending = row.sending(WorkId([1; 16]));
        assert_eq!((sending.attempt, sending.key, sending.requested), (1, "kitchen", 1));
    }
}
