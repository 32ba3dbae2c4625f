//! Timers of pipelines: whoever owns the gate tells it each tick that is due by the calendar.
//!
//! Which timers there are and how far each was told stands in the gate's own tables, so that nothing is lost with this
//! process: what came due while nobody looked is due at the next look. Told twice, or by two processes, a tick is taken
//! once, since it names how many were taken before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatelog_calendar::{Calendar, Next, Tick, Told, next_of};
use gatelog_effects::connection::chain;
use gatelog_event_log::Log;
use gatelog_gate_state::Gate;
use gatelog_gate_state::live::{TimerKey, TimerRow};
use gatelog_record::draft::gate::TimerTicked;
use gatelog_record::input::GateInput;
use gatelog_record::{InputId, InputRecord, Stream, Timestamp};
use gatelog_rules_config::timers::cron::TimerSpec;
use gatelog_tables::{Table, TableExt};
use gatelog_writer::Published as WriterPublished;

use crate::roles::{Folded, GATE};

/// How often it is looked whether anything is due.
const LOOK: Duration = Duration::from_millis(500);
const NAP: Duration = Duration::from_millis(100);
/// Ticks of one append.
const BATCH: usize = 256;
/// How long a tick that was told and not taken rests: too many triggers of its tenant wait, or the gate is not there.
const RETRY: Duration = Duration::from_secs(20);
/// A clock that differs by more from what has passed was set: all timers are looked at again.
const JUMP_MICROS: i64 = 1_000_000;

/// Whoever tells the gate what is due.
pub struct TimerTicks {
    /// The gate as this process has folded it.
    pub gate: Folded<Gate>,
    /// What the gate's owner has on the log.
    pub owner: Arc<WriterPublished>,
    /// Where inputs go.
    pub log: Arc<dyn Log>,
    /// The site's time zone.
    pub calendar: Calendar,
}

/// A timer as it was looked at last.
#[derive(Clone, Copy)]
struct Seen {
    row: TimerRow,
    /// Not before this moment; `None`: it is due, or was told and is not known to be taken.
    next: Option<Timestamp>,
    /// When it was told.
    told: Option<Instant>,
}

/// What is known of all timers.
#[derive(Default)]
struct Known {
    timers: BTreeMap<TimerKey, Seen>,
    /// By tenant, the layout that they are of.
    layouts: BTreeMap<String, u64>,
    specs: BTreeMap<String, Option<TimerSpec>>,
    /// What the machine's clock said last, and when.
    clock: Option<(Timestamp, Instant)>,
}

impl TimerTicks {
    /// Looks until it is told to stop.
    pub fn run(&self, stop: &AtomicBool) {
        let mut known = Known::default();
        while !stop.load(Ordering::Relaxed) {
            match self.step(&mut known, crate::clock::now()) {
                // There may be more.
                Ok(told) if told == BATCH => continue,
                Ok(_) => {}
                Err(message) => tracing::warn!(message, "timers could not be told; they are told again"),
            }
            let began = Instant::now();
            while began.elapsed() < LOOK && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Tells what is due: how many timers.
    fn step(&self, known: &mut Known, now: Timestamp) -> Result<usize, String> {
        // What the tables say counts once all that this process has appended is folded.
        let newest = self.owner.sequence();
        if self.owner.mark(GATE).is_none() || self.gate.published.wait_at_most(newest, LOOK).sequence < newest {
            return Ok(0);
        }
        self.read(known)?;
        if known.jumped(now) {
            known.timers.values_mut().filter(|seen| seen.told.is_none()).for_each(|seen| seen.next = None);
        }
        let mut due = Vec::new();
        let Known { timers, specs, .. } = known;
        for (key, seen) in timers.iter_mut() {
            if due.len() == BATCH || seen.told.is_some() || seen.next.is_some_and(|next| next > now) {
                continue;
            }
            match self.next(specs, key, seen.row, now) {
                Next::Due(tick) => due.push((key.clone(), seen.row, tick)),
                Next::At(moment) => seen.next = Some(moment),
                Next::Never => seen.next = Some(Timestamp(i64::MAX)),
            }
        }
        if due.is_empty() {
            return Ok(0);
        }
        self.tell(&due, now)?;
        for (key, ..) in &due {
            if let Some(seen) = timers.get_mut(key) {
                seen.told = Some(Instant::now());
            }
        }
        Ok(due.len())
    }

    /// Reads the timers of all tenants where a layout is another, and those that were told otherwise.
    fn read(&self, known: &mut Known) -> Result<(), String> {
        let view = self.gate.projection.view();
        let gate = &view.live().gate;
        let mut layouts = BTreeMap::new();
        for row in gate.layouts.all().map_err(|error| chain(&error))? {
            let (tenant, row) = row.map_err(|error| chain(&error))?;
            layouts.insert(tenant, row.generation);
        }
        // Timers of a site that was there before gatelog had any come without a layout.
        if layouts != known.layouts || known.timers.is_empty() {
            let mut timers = BTreeMap::new();
            for row in gate.timers.all().map_err(|error| chain(&error))? {
                let (key, row) = row.map_err(|error| chain(&error))?;
                let row = *row;
                let seen = known.timers.get(&key).filter(|seen| seen.row == row).copied();
                timers.insert(key, seen.unwrap_or(Seen { row, next: None, told: None }));
            }
            (known.timers, known.layouts) = (timers, layouts);
        }
        for (key, seen) in known.timers.iter_mut().filter(|(_, seen)| seen.told.is_some()) {
            let row = gate.timers.get(key).map_err(|error| chain(&error))?;
            let taken = row.filter(|row| **row != seen.row).map(|row| *row);
            if taken.is_some() || seen.told.is_some_and(|told| told.elapsed() >= RETRY) {
                *seen = Seen { row: taken.unwrap_or(seen.row), next: None, told: None };
            }
        }
        Ok(())
    }

    fn next(
        &self,
        specs: &mut BTreeMap<String, Option<TimerSpec>>,
        key: &TimerKey,
        row: TimerRow,
        now: Timestamp,
    ) -> Next {
        let timer = &key.timer;
        if !specs.contains_key(&timer.time) {
            specs.insert(timer.time.clone(), TimerSpec::parse(&timer.time).ok());
        }
        let Some(Some(spec)) = specs.get(&timer.time) else { return Next::Never };
        next_of(&self.calendar, spec, (&key.tenant, timer), Told { since: row.since, last: row.last }, now)
    }

    fn tell(&self, due: &[(TimerKey, TimerRow, Tick)], now: Timestamp) -> Result<(), String> {
        let frame = |(key, row, tick): &(TimerKey, TimerRow, Tick)| {
            let TimerKey { tenant, timer } = key;
            // Told again it is another question: what was not taken may be by then.
            let id = format!("tick/{tenant}/{timer:?}/{}/{}", row.count, now.0);
            let Tick { tick, due, missed } = *tick;
            let ticked =
                TimerTicked { tenant: tenant.clone(), timer: timer.clone(), count: row.count, tick, due, missed };
            let record = InputRecord::new(InputId::new(id), tenant, now, GateInput::TimerTicked(ticked));
            Ok(record.close().map_err(|error| chain(&error))?.encode())
        };
        let frames = due.iter().map(frame).collect::<Result<Vec<_>, String>>()?;
        match self.log.append_inputs(Stream::Inputs(GATE), frames).wait() {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(chain(&error)),
            None => Err("the log is closed".to_owned()),
        }
    }
}

impl Known {
    /// Whether the clock was set since the last look.
    fn jumped(&mut self, now: Timestamp) -> bool {
        let passed = |then: Instant| i64::try_from(then.elapsed().as_micros()).unwrap_or(i64::MAX);
        let expected = self.clock.map(|(before, then)| before.0.saturating_add(passed(then)));
        self.clock = Some((now, Instant::now()));
        expected.is_some_and(|expected| now.0.saturating_sub(expected).saturating_abs() > JUMP_MICROS)
    }
}
