//! How often what happens: a day of OpenDev.
//!
//! Sources: 50,000 builds a day, 900 nodes at the peak. Both together say how long a build takes: 900 nodes end 50,000
//! builds in a day only if one takes 1,555 s at the most, and they are not all busy at night. How often patchsets fail
//! and are made again is not published, nor how long jobs take; what stands here gives those numbers. A build takes some
//! 1,250 s on the whole: style in minutes, unit tests in a quarter of an hour, clouds in one to two hours. So on a working
//! day three quarters of the slots are busy on the whole: queues grow by day and empty by night.

use super::chance::Chance;

/// Microseconds.
pub const SECOND: i64 = 1_000_000;
/// Microseconds.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds.
pub const DAY: i64 = 24 * HOUR;

/// Monday, 2026-01-05, 00:00 UTC.
pub const BEGINNING: i64 = 1_767_571_200 * SECOND;

/// New changes on a working day, each with the two or three patchsets that it takes.
const CHANGES_A_DAY: f64 = 1_050.0;
/// How busy each hour of a working day is, in hundredths of the mean.
const HOURS: [u64; 24] =
    [55, 50, 55, 65, 70, 75, 85, 105, 125, 135, 140, 135, 140, 155, 165, 165, 155, 140, 120, 105, 90, 75, 65, 60];
/// How busy a day of the week is, from Monday, in hundredths.
const WEEK: [u64; 7] = [100, 115, 115, 110, 95, 35, 30];

/// Workers, and how many builds each runs at once.
pub const WORKERS: usize = 12;
/// 960 builds at once.
pub const SLOTS: u32 = 80;
/// A worker is restarted so often, one after the other.
pub const RESTART_EVERY: i64 = 14 * HOUR;
/// The hour of the day at which nightly jobs begin.
pub const NIGHT: i64 = 2 * HOUR;
/// For how many projects of a tenant there are nightly jobs.
pub const NIGHTLY: usize = 200;

/// Of a thousand changes, how many stand on another open change of their project.
pub const STACKED: u64 = 180;
/// Of a thousand changes, how many touch documentation alone.
pub const DOCUMENTATION: u64 = 70;
/// Of a thousand patchsets, how many are bad.
const BAD: u64 = 260;

/// How long until the next change comes in.
pub fn next_change(chance: &mut Chance, now: i64) -> i64 {
    let since = now - BEGINNING;
    let hour = HOURS.get((since / HOUR % 24) as usize).copied().unwrap_or(100);
    let day = WEEK.get((since / DAY % 7) as usize).copied().unwrap_or(100);
    let mean = 86_400.0 / CHANGES_A_DAY / (hour as f64 / 100.0) / (day as f64 / 100.0);
    (chance.wait(mean) * SECOND as f64) as i64
}

/// What becomes of a change whose check succeeded.
pub enum Next {
    /// Somebody approves it.
    Approve(i64),
    /// Another patchset.
    Propose(i64),
    /// Nobody does anything for now.
    Rest,
}

/// What people do with a change whose check succeeded.
pub fn after_success(chance: &mut Chance) -> Next {
    match chance.below(100) {
        0..=39 => Next::Approve((chance.wait(5.0) * HOUR as f64) as i64),
        40..=76 => Next::Propose((chance.wait(9.0) * HOUR as f64) as i64),
        _ => Next::Rest,
    }
}

/// What people do with a change whose check or gate failed: mend it, or have it checked again.
pub fn after_failure(chance: &mut Chance) -> Next {
    match chance.below(100) {
        0..=84 => Next::Propose((chance.wait(2.5) * HOUR as f64) as i64),
        _ => Next::Rest,
    }
}

/// When another patchset comes although the one before is still being checked.
pub fn impatience(chance: &mut Chance) -> Option<i64> {
    chance.happens(110).then(|| (chance.wait(25.0) * MINUTE as f64) as i64)
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Success,
    /// Badly.
    Failure,
    /// Badly, by its clock.
    TimedOut,
    /// Badly, when it cleaned up.
    PostFailure,
    /// It does not count.
    Retry,
}

/// How an attempt of a build ends. `item` is a number that follows from the item: a bad patchset fails in many of its
/// jobs. What is in the gate was checked before.
pub fn end(chance: &mut Chance, pipeline: &str, item: u64) -> End {
    let bad = pipeline == "check" && item % 1_000 < BAD;
    match chance.below(1_000) {
        0..=17 => End::Retry,
        18..=21 => End::PostFailure,
        22..=26 => End::TimedOut,
        rolled => {
            let failing = if bad { 330 } else { 9 };
            if rolled - 27 < failing { End::Failure } else { End::Success }
        }
    }
}
