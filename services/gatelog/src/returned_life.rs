//! The end of blobs with what builds returned: whoever owns the gate asks for it when the site's setting keeps one no
//! longer, and removes it once the gate has decided so.
//!
//! Three steps, each of which a process that dies repeats: ask (`returned-told`, due), remove what the gate has dropped
//! (`returned-changed`), and say so. No blob goes that an item's build may still need: the gate refuses that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatelog_effects::connection::chain;
use gatelog_event_log::{BlobError, Blobs, Log};
use gatelog_gate_state::Gate;
use gatelog_gate_state::live::{ReturnedRow, ReturnedState};
use gatelog_record::draft::gate::{ReturnedStep, ReturnedTold};
use gatelog_record::input::GateInput;
use gatelog_record::{BuildId, InputId, InputRecord, Stream, Timestamp, returned};
use gatelog_tables::{Table, TableExt};

use crate::roles::{Folded, GATE};
use crate::steady::Steady;

/// How long after its start, and how often, a process looks.
const FIRST: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(600);
/// How long it waits where the clock has jumped.
const AFTER_JUMP: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(200);
/// Builds of one step, at most.
const STEP: usize = 200;
/// How long one step waits until its questions are decided.
const DECIDED: Duration = Duration::from_secs(10);
const DAY_MS: i64 = 24 * 3600 * 1000;
const SETTLED_MS: i64 = 3600 * 1000;

/// Whoever ends them.
pub struct ReturnedLife {
    /// The gate as this process has folded it.
    pub gate: Folded<Gate>,
    /// Where they are.
    pub blobs: Arc<dyn Blobs>,
    /// Where inputs go.
    pub log: Arc<dyn Log>,
    /// Days after a build's item has left.
    pub keep_days: u32,
    /// What the machine's clock did.
    pub steady: Arc<Steady>,
}

impl ReturnedLife {
    /// Looks until it is told to stop.
    pub fn run(&self, stop: &AtomicBool) {
        rest(FIRST, stop);
        while !stop.load(Ordering::Relaxed) {
            let Some(aging) = self.steady.aging() else {
                rest(AFTER_JUMP, stop);
                continue;
            };
            match self.look(Times { now: crate::clock::site_now(), aging }) {
                // There may be more.
                Ok(done) if done > 0 => tracing::info!(builds = done, "what builds returned came to its end"),
                Ok(_) => rest(EVERY, stop),
                Err(message) => {
                    tracing::warn!(message, "what builds returned could not be removed; it is tried again");
                    rest(EVERY, stop);
                }
            }
        }
    }

    /// One step: how many builds something became of.
    fn look(&self, times: Times) -> Result<usize, String> {
        let (due, dropped) = self.waiting(times)?;
        for (build, row) in &dropped {
            self.remove(*build, row)?;
        }
        let removed = dropped.iter().map(|(build, row)| (*build, row, ReturnedStep::Removed));
        let asked = due.iter().map(|(build, row)| (*build, row, ReturnedStep::Due { keep_days: self.keep_days }));
        let told: Vec<_> = asked.chain(removed).collect();
        let before = self.gate.published.wait_at_most(0, Duration::ZERO).sequence;
        for (build, row, step) in &told {
            self.tell(*build, &row.tenant, *step, times.now)?;
        }
        // Each is decided by an event at least.
        self.gate.published.wait_at_most(before + told.len() as u64, DECIDED);
        let changed = told.iter().filter(|(build, row, _)| self.row(*build).as_ref() != Some(*row)).count();
        Ok(changed)
    }

    /// What is due, and what is to be removed.
    #[expect(clippy::type_complexity, reason = "two lists of the same")]
    fn waiting(&self, times: Times) -> Result<(Vec<(BuildId, ReturnedRow)>, Vec<(BuildId, ReturnedRow)>), String> {
        let view = self.gate.projection.view();
        let (mut due, mut dropped) = (Vec::new(), Vec::new());
        let rows = view.live().gate.returned.all().map_err(|error| chain(&error))?;
        for row in rows {
            let (build, row) = row.map_err(|error| chain(&error))?;
            let list = match row.state {
                ReturnedState::InUse => continue,
                ReturnedState::Unused { since } if times.is_past(since, self.keep_ms()) => &mut due,
                ReturnedState::Unused { .. } => continue,
                ReturnedState::Dropped { at } if times.is_past(at, self.settled_ms()) => &mut dropped,
                ReturnedState::Dropped { .. } => continue,
            };
            if list.len() < STEP {
                list.push((build, row.into_owned()));
            }
        }
        Ok((due, dropped))
    }

    fn keep_ms(&self) -> i64 {
        i64::from(self.keep_days).saturating_mul(DAY_MS)
    }

    /// How long a blob stays after it was dropped: a backup copies the log first, and then the blobs that it names. Where
    /// nothing is to be kept that does not count.
    fn settled_ms(&self) -> i64 {
        if self.keep_days == 0 { 0 } else { SETTLED_MS }
    }

    fn row(&self, build: BuildId) -> Option<ReturnedRow> {
        let view = self.gate.projection.view();
        view.live().gate.returned.get(&build).ok().flatten().map(|row| row.into_owned())
    }

    /// Removes the blobs of a build. One that holds something else stays: the name is wrong then, not the blob.
    fn remove(&self, build: BuildId, row: &ReturnedRow) -> Result<(), String> {
        for blob in &row.blobs {
            match self.blobs.get(&blob.blob) {
                Ok(bytes) if returned::is_of(&bytes, build) => {}
                Ok(_) => {
                    tracing::warn!(%build, blob = %blob.blob, "this is no blob of what the build returned; it stays");
                    continue;
                }
                Err(BlobError::Missing(_)) => continue,
                // It cannot be looked into, and nobody is to read it any more.
                Err(BlobError::Damaged { .. }) => {}
                Err(error) => return Err(chain(&error)),
            }
            self.blobs.remove(&blob.blob).map_err(|error| chain(&error))?;
        }
        Ok(())
    }

    fn tell(&self, build: BuildId, tenant: &str, step: ReturnedStep, now: Timestamp) -> Result<(), String> {
        let what = match step {
            ReturnedStep::Due { .. } => "due",
            ReturnedStep::Removed => "removed",
        };
        // Asked again it is another question: what was refused may be due by then.
        let id = InputId::new(format!("returned/{build}/{what}/{}", now.0));
        let told = ReturnedTold { tenant: tenant.to_owned(), build, step };
        let record = InputRecord::new(id, tenant, now, GateInput::ReturnedTold(told));
        let frame = record.close().map_err(|error| chain(&error))?.encode();
        match self.log.append_inputs(Stream::Inputs(GATE), vec![frame]).wait() {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(chain(&error)),
            None => Err("the log is closed".to_owned()),
        }
    }
}

/// The times of one look.
#[derive(Clone, Copy)]
struct Times {
    /// The site's.
    now: Timestamp,
    /// That by which things grow old: without the jumps of the machine's clock.
    aging: Timestamp,
}

impl Times {
    /// Whether so many milliseconds have passed since a moment of the log's time. That time leaps with the machine's
    /// clock, and what was there before must not grow old by the leap; what came after it has only the log's time.
    fn is_past(self, since: Timestamp, span_ms: i64) -> bool {
        let grown = since > self.aging || self.aging.millis_since(since) >= span_ms;
        grown && self.now.millis_since(since) >= span_ms
    }
}

fn rest(time: Duration, stop: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_builds_returned_does_not_grow_old_by_a_jump_of_the_clock() {
        const DAY: i64 = 86_400;
        let day = |days: i64| Timestamp(20_000 * DAY * 1_000_000).plus_seconds(days * DAY);
        let well = Times { now: day(31), aging: day(31) };
        assert!(well.is_past(day(0), 30 * DAY_MS) && !well.is_past(day(2), 30 * DAY_MS));
        // 800 days ahead, and for good: the log's time has leapt.
        let ahead = Times { now: day(802), aging: day(2) };
        assert!(!ahead.is_past(day(0), 30 * DAY_MS), "it is two days old");
        assert!(!ahead.is_past(day(801), 30 * DAY_MS), "it came after the jump");
        let later = Times { now: day(832), aging: day(32) };
        assert!(later.is_past(day(0), 30 * DAY_MS) && later.is_past(day(801), 30 * DAY_MS));
    }
}
