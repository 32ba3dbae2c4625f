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

/// How long after its start, and how often, a process looks.
const FIRST: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(600);
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
}

impl ReturnedLife {
    /// Looks until it is told to stop.
    pub fn run(&self, stop: &AtomicBool) {
        rest(FIRST, stop);
        while !stop.load(Ordering::Relaxed) {
            match self.look(crate::clock::now()) {
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
    fn look(&self, now: Timestamp) -> Result<usize, String> {
        let (due, dropped) = self.waiting(now)?;
        for (build, row) in &dropped {
            self.remove(*build, row)?;
        }
        let removed = dropped.iter().map(|(build, row)| (*build, row, ReturnedStep::Removed));
        let asked = due.iter().map(|(build, row)| (*build, row, ReturnedStep::Due { keep_days: self.keep_days }));
        let told: Vec<_> = asked.chain(removed).collect();
        let before = self.gate.published.wait_at_most(0, Duration::ZERO).sequence;
        for (build, row, step) in &told {
            self.tell(*build, &row.tenant, *step, now)?;
        }
        // Each is decided by an event at least.
        self.gate.published.wait_at_most(before + told.len() as u64, DECIDED);
        let changed = told.iter().filter(|(build, row, _)| self.row(*build).as_ref() != Some(*row)).count();
        Ok(changed)
    }

    /// What is due, and what is to be removed.
    #[expect(clippy::type_complexity, reason = "two lists of the same")]
    fn waiting(&self, now: Timestamp) -> Result<(Vec<(BuildId, ReturnedRow)>, Vec<(BuildId, ReturnedRow)>), String> {
        let view = self.gate.projection.view();
        let (mut due, mut dropped) = (Vec::new(), Vec::new());
        let rows = view.live().gate.returned.all().map_err(|error| chain(&error))?;
        for row in rows {
            let (build, row) = row.map_err(|error| chain(&error))?;
            let list = match row.state {
                ReturnedState::InUse => continue,
                ReturnedState::Unused { since } if is_due(since, now, self.keep_days) => &mut due,
                ReturnedState::Unused { .. } => continue,
                ReturnedState::Dropped { at } if now.millis_since(at) >= self.settled_ms() => &mut dropped,
                ReturnedState::Dropped { .. } => continue,
            };
            if list.len() < STEP {
                list.push((build, row.into_owned()));
            }
        }
        Ok((due, dropped))
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

/// Whether what nobody has needed since then goes now.
fn is_due(since: Timestamp, now: Timestamp, keep_days: u32) -> bool {
    now.millis_since(since) >= i64::from(keep_days).saturating_mul(DAY_MS)
}

fn rest(time: Duration, stop: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
}
