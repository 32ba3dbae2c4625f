//! The calendar of the world: ticks of pipelines' timers, as whoever owns the gate tells them, and what must hold of them.

use std::collections::BTreeMap;

use gatelog_calendar::{Calendar, Next, Told, next_of};
use gatelog_gate_state::live::{TimerKey, TimerRow};
use gatelog_record::draft::gate::{TimerTicked, TimersChanged};
use gatelog_record::input::GateInput;
use gatelog_record::{Stream, Timestamp};
use gatelog_rules_config::timers::cron::TimerSpec;

use crate::carrying::Sender;
use crate::faults::Fault;
use crate::world::{GATE, World};

/// The time zone of the site.
const ZONE: &str = "Europe/Berlin";
/// A tick that was told and not taken is told again after this, in microseconds.
const TOLD_AGAIN: i64 = 30_000_000;
/// As many missed ticks are counted.
const MOST_MISSED: u32 = 1_000;

/// What was told.
pub(crate) struct Clockwork {
    calendar: Calendar,
    /// For each timer, which tick was told, and when.
    told: BTreeMap<TimerKey, (u64, i64)>,
}

impl Clockwork {
    pub(crate) fn new() -> Result<Clockwork, String> {
        let calendar = Calendar::named(ZONE).map_err(|error| error.to_string())?;
        Ok(Clockwork { calendar, told: BTreeMap::new() })
    }

    fn next(&self, key: &TimerKey, row: TimerRow, now: Timestamp) -> Next {
        let timer = &key.timer;
        let Ok(spec) = TimerSpec::parse(&timer.time) else { return Next::Never };
        next_of(&self.calendar, &spec, (&key.tenant, timer), Told { since: row.since, last: row.last }, now)
    }
}

/// Tells a tick that is due, as long as the calendar goes on: once people do nothing any more it stands still, too, for
/// the world is to come to rest.
pub(crate) fn tell(world: &mut World, goes_on: bool) -> Result<Option<String>, String> {
    if !goes_on {
        return Ok(None);
    }
    let (now, wall) = (world.monotonic, world.wall());
    let rows = &world.gate.projection.live.gate.timers.rows;
    let untold = |key: &TimerKey, row: &TimerRow| {
        world.clockwork.told.get(key).is_none_or(|(count, at)| *count != row.count || at + TOLD_AGAIN <= now)
    };
    let due = rows.iter().filter(|(key, row)| untold(key, row)).find_map(|(key, row)| {
        match world.clockwork.next(key, *row, wall) {
            Next::Due(tick) => Some((key.clone(), row.count, tick)),
            Next::At(_) | Next::Never => None,
        }
    });
    let Some((key, count, tick)) = due else { return Ok(None) };
    world.clockwork.told.insert(key.clone(), (count, now));
    let TimerKey { tenant, timer } = key;
    let told = format!("the calendar tells tick {count} of {} for {} {}", timer.pipeline, timer.project, timer.branch);
    let ticked =
        TimerTicked { tenant: tenant.clone(), timer, count, tick: tick.tick, due: tick.due, missed: tick.missed };
    // A second process that believes to own the gate tells it as well.
    let times = 1 + u64::from(world.chance.chance(100));
    for time in 0..times {
        let id = format!("tick/{}/{now}/{time}", world.clockwork.told.len());
        let id = format!("{id}/{tenant}/{:?}", ticked.timer);
        world.post(Stream::Inputs(GATE), id, &tenant, GateInput::TimerTicked(ticked.clone()), Sender::Outside)?;
    }
    if times > 1 {
        world.fault(Fault::TickTwice, &told);
    }
    Ok(Some(told))
}

/// What was taken of each timer.
#[derive(Default)]
pub(crate) struct Ticks {
    calendar: Option<Calendar>,
    /// The last tick, or since when the timer is there.
    last: BTreeMap<TimerKey, Timestamp>,
    counts: BTreeMap<TimerKey, u64>,
}

impl Ticks {
    /// Timers came and went.
    pub(crate) fn changed(&mut self, changed: &TimersChanged, at: Timestamp) {
        let key = |timer: &_| TimerKey { tenant: changed.tenant.clone(), timer: Clone::clone(timer) };
        for timer in &changed.removed {
            self.last.remove(&key(timer));
            self.counts.remove(&key(timer));
        }
        for timer in &changed.added {
            self.last.insert(key(timer), at);
        }
    }

    /// A tick was taken: none twice, and between it and the one before there are as many as it stands for.
    ///
    /// # Errors
    /// The law that was broken.
    pub(crate) fn taken(&mut self, ticked: &TimerTicked) -> Result<(), String> {
        let key = TimerKey { tenant: ticked.tenant.clone(), timer: ticked.timer.clone() };
        let name = format!("{} of {}", ticked.timer.pipeline, ticked.timer.project);
        let count = self.counts.entry(key.clone()).or_default();
        if *count != ticked.count {
            return Err(format!("tick {} of {name} was taken as number {count}", ticked.count));
        }
        *count += 1;
        let Some(before) = self.last.insert(key, ticked.tick) else {
            return Err(format!("{name} ticked, and there is no such timer"));
        };
        if ticked.due < ticked.tick {
            return Err(format!("{name} was due at {} before its tick {}", ticked.due, ticked.tick));
        }
        // The clock was set back meanwhile.
        if ticked.tick <= before {
            return Ok(());
        }
        if self.calendar.is_none() {
            self.calendar = Some(Calendar::named(ZONE).map_err(|error| error.to_string())?);
        }
        let (Some(calendar), Ok(spec)) = (&self.calendar, TimerSpec::parse(&ticked.timer.time)) else { return Ok(()) };
        let (mut at, mut between) = (before, 0);
        while let Some(next) = calendar.next_after(&spec, at).filter(|next| *next < ticked.tick) {
            (at, between) = (next, between + 1);
            if between > MOST_MISSED {
                return Ok(());
            }
        }
        match calendar.next_after(&spec, at) == Some(ticked.tick) && between == ticked.missed {
            true => Ok(()),
            false => Err(format!(
                "{name} ticked at {} for {} missed ones, and between it and {before} there are {between}",
                ticked.tick, ticked.missed
            )),
        }
    }
}
