//! Timers in words.

use gatelog_record::draft::gate::{TimerName, TimerTicked, TimersChanged};

use super::say::count;

/// The timers of a tenant are others than before.
pub(super) fn changed(changed: &TimersChanged) -> String {
    let timers = |timers: &[TimerName]| count(timers.len(), "timer");
    let (added, removed) = (timers(&changed.added), timers(&changed.removed));
    format!("tenant {}: {added} of its layout came, {removed} went", changed.tenant)
}

/// The tick of a timer: which, when it was due, and for how many others it stands.
pub(super) fn ticked(ticked: &TimerTicked) -> String {
    let TimerName { pipeline, project, branch, time, .. } = &ticked.timer;
    let jitter = match ticked.due.millis_since(ticked.tick) / 1_000 {
        0 => String::new(),
        seconds => format!(" and {seconds} s of jitter"),
    };
    let missed = match ticked.missed {
        0 => String::new(),
        missed => format!(", also for {} that nobody told", count(missed as usize, "earlier tick")),
    };
    format!("the timer `{time}` of {pipeline} was due at {}{jitter}{missed}: {project} {branch}", ticked.tick)
}
