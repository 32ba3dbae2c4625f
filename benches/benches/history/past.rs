//! Any past moment, as the API and `replay state --at` have it: the nearest rung, folded on.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::{Spread, thread_cpu};
use gatelog_benches::opendev::{Chance, GATE};
use gatelog_benches::table::{Table, time, times};
use gatelog_gate_state::Gate;
use gatelog_replay::{Moment, Timeline};
use gatelog_store::{Layout, RungDir};

use crate::{History, rebuilt};

const SAMPLES: usize = 200;

/// So many moments, each time others.
pub fn moments(history: &History, seed: u64, count: usize) -> Vec<u64> {
    let mut chance = Chance::new(seed);
    (0..count).map(|_| 1 + chance.below(history.made.gate)).collect()
}

struct Looked {
    wall: Spread,
    cpu: Spread,
    raw: Spread,
}

/// What nobody can do without: the bytes of the rung and those of the log that are folded on, read and summed.
fn raw(history: &History, dir: &RungDir, at: u64, segments: &[(std::path::PathBuf, u64)]) -> Result<Duration, Failure> {
    let all: u64 = segments.iter().map(|(_, size)| size).sum();
    let each = all / history.events().max(1);
    let began = Instant::now();
    let nearest = dir.list()?.into_iter().rev().find(|entry| entry.sequence <= at);
    let mut sum = 0;
    let from = match &nearest {
        Some(entry) => {
            sum = crc32c::crc32c_append(sum, &std::fs::read(&entry.path)?);
            entry.sequence
        }
        None => 0,
    };
    let mut left = (at - from) * each;
    for (path, size) in segments {
        if left == 0 {
            break;
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(left).read_to_end(&mut bytes)?;
        sum = crc32c::crc32c_append(sum, &bytes);
        left = left.saturating_sub(*size);
    }
    std::hint::black_box(sum);
    Ok(began.elapsed())
}

fn look(history: &History, root: &Path) -> Result<Looked, Failure> {
    let rungs = RungDir::new(Layout::new(root, GATE).rungs());
    let segments = history.segments()?;
    let timeline = Timeline::<Gate>::new(history.log()?, GATE, Some(rungs.clone()));
    let (mut wall, mut cpu, mut limit) = (Vec::new(), Vec::new(), Vec::new());
    for at in moments(history, 11, SAMPLES) {
        let (before, began) = (thread_cpu(), Instant::now());
        let then = timeline.state_at(Moment::Sequence(at))?;
        wall.push(began.elapsed());
        cpu.push(thread_cpu().saturating_sub(before));
        if let Some(warning) = then.warnings.first() {
            return Err(warning.to_string().into());
        }
        // Letting go of so many rows takes its time, which nobody waits for.
        drop(then);
        limit.push(raw(history, &rungs, at, &segments)?);
    }
    Ok(Looked { wall: Spread::new(wall), cpu: Spread::new(cpu), raw: Spread::new(limit) })
}

/// Looks at random moments.
pub fn measure(history: &History, table: &mut Table) -> Result<(), Failure> {
    let homes = [
        (rebuilt::home(history), "a past moment, a rung every 100,000 events"),
        (rebuilt::dense(history), "a past moment, a rung every 10,000 events"),
    ];
    for (root, what) in homes {
        let looked = look(history, &root)?;
        for (name, at, aim) in [("half of all", 0.5, ""), ("95 of 100", 0.95, "1 s"), ("the longest", 1.0, "")] {
            let (wall, raw) = (looked.wall.at(at), looked.raw.at(at));
            let ratio = times(wall.as_secs_f64() / raw.as_secs_f64().max(1e-9));
            table.row(&format!("{what}: {name}"), time(wall), time(raw), ratio, aim);
        }
        table.note(&format!("{what}: processor time, 95 of 100"), time(looked.cpu.at(0.95)));
    }
    let timeline = Timeline::<Gate>::new(history.log()?, GATE, None);
    let began = Instant::now();
    for at in moments(history, 12, SAMPLES) {
        let at = i64::try_from(at * 1_000_000 / history.made.gate)?;
        let micros = (history.made.days * 86_400.0 * at as f64) as i64;
        timeline.sequence_at_time(gatelog_record::Timestamp(gatelog_benches::opendev::life::BEGINNING + micros))?;
    }
    table.note("which event a time means", time(began.elapsed() / SAMPLES as u32));
    Ok(())
}
