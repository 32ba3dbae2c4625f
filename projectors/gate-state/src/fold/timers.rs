//! Timers: there with a layout, and told when they came due.

use gatelog_record::EventRecord;
use gatelog_record::draft::gate::{TimerTicked, TimersChanged};
use gatelog_tables::{Backing, FoldRefused, TableExt};

use crate::live::{GateTables, TimerKey, TimerRow};

impl<B: Backing> GateTables<B> {
    pub(super) fn timers_changed(&mut self, record: &EventRecord, event: &TimersChanged) -> Result<(), FoldRefused> {
        let key = |timer: &_| TimerKey { tenant: event.tenant.clone(), timer: Clone::clone(timer) };
        for timer in &event.removed {
            self.timers.remove(&key(timer))?;
        }
        for timer in &event.added {
            self.timers.insert(key(timer), TimerRow { since: record.recorded_at, last: None, count: 0 })?;
        }
        Ok(())
    }

    pub(super) fn timer_ticked(&mut self, ticked: &TimerTicked) -> Result<(), FoldRefused> {
        let key = TimerKey { tenant: ticked.tenant.clone(), timer: ticked.timer.clone() };
        self.timers.update(&key, |row| {
            row.last = Some(ticked.tick);
            row.count = ticked.count.saturating_add(1);
        })
    }
}
