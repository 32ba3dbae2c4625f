//! Timers of tenants: what enters pipelines by the calendar, and how far the calendar was told.

use gatelog_record::Timestamp;
use gatelog_record::draft::gate::TimerName;
use gatelog_tables::table::Life;
use gatelog_tables::{KeyError, TableDef, TableKey};
use serde::{Deserialize, Serialize};

/// A timer of a tenant, as a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerKey {
    /// The tenant.
    pub tenant: String,
    /// The timer.
    pub timer: TimerName,
}

impl TimerKey {
    /// The key that comes before all of a tenant's.
    pub fn first_of(tenant: &str) -> TimerKey {
        let none = String::new;
        let timer = TimerName { pipeline: none(), project: none(), branch: none(), time: none(), dereference: false };
        TimerKey { tenant: tenant.to_owned(), timer }
    }
}

impl TableKey for TimerKey {
    fn write(&self, out: &mut Vec<u8>) {
        let TimerName { pipeline, project, branch, time, dereference } = &self.timer;
        for text in [&self.tenant, pipeline, project, branch, time] {
            text.write(out);
        }
        out.push(u8::from(*dereference));
    }

    fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let tenant = String::read(bytes)?;
        let (pipeline, project) = (String::read(bytes)?, String::read(bytes)?);
        let (branch, time) = (String::read(bytes)?, String::read(bytes)?);
        let dereference = match u8::read(bytes)? {
            0 => false,
            1 => true,
            _ => return Err(KeyError("a timer dereferences its branch or does not")),
        };
        Ok(TimerKey { tenant, timer: TimerName { pipeline, project, branch, time, dereference } })
    }
}

/// The timers of all tenants, as their layouts in force say.
#[derive(Debug)]
pub struct Timers;
impl TableDef for Timers {
    const ID: u16 = 41;
    const NAME: &'static str = "gate-timers";
    const LIFE: Life = Life::Live;
    type Key = TimerKey;
    type Row = TimerRow;
}

/// How far a timer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerRow {
    /// Since when the timer is there: nothing before that is due.
    pub since: Timestamp,
    /// The last tick that was taken: the moment that the `time` names, without jitter.
    pub last: Option<Timestamp>,
    /// How many were taken.
    pub count: u64,
}
