//! Leaps of the log's time: where the machine's clock is set ahead, the log's time follows. Whatever ran or waited then
//! did not do so for longer by that, and is not to be shown as if it had.
//!
//! They are known to the process that saw them: what it began before another start is over, or is of another process.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use gatelog_record::Timestamp;

/// How many are remembered: the newest.
const MOST: usize = 64;

static LEAPS: Mutex<VecDeque<(i64, i64)>> = Mutex::new(VecDeque::new());

/// The log's time leapt.
pub fn note(before: Timestamp, after: Timestamp) {
    let mut leaps = LEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    if leaps.len() >= MOST {
        leaps.pop_front();
    }
    leaps.push_back((before.0, after.0));
}

/// How much of a stretch of the log's time were leaps, in milliseconds; begin and end are milliseconds since 1970.
pub(crate) fn within(from_ms: i64, until_ms: i64) -> i64 {
    let leaps = LEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    leaps
        .iter()
        .map(|(before, after)| (after / 1_000).min(until_ms) - (before / 1_000).max(from_ms))
        .map(|of| of.max(0))
        .sum()
}

/// How long something has run, in milliseconds: from and until are milliseconds since 1970.
pub(crate) fn ran_ms(from_ms: i64, until_ms: i64) -> i64 {
    (until_ms - from_ms - within(from_ms, until_ms)).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_while_the_clock_is_set_ahead_has_not_run_for_longer() {
        const DAY: i64 = 86_400_000;
        // No other test is at this time.
        let at = |ms: i64| 50_000 * DAY + ms;
        note(Timestamp(at(5_000) * 1_000), Timestamp(at(800 * DAY) * 1_000));
        assert_eq!(within(at(1_000), at(800 * DAY + 2_000)), 800 * DAY - 5_000);
        assert_eq!(within(at(1_000), at(4_000)), 0, "it was over before");
        assert_eq!(within(at(800 * DAY), at(801 * DAY)), 0, "it began after");
    }
}
