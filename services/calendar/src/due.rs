//! What is due of a timer.

use gatelog_record::Timestamp;
use gatelog_record::draft::gate::TimerName;
use gatelog_rules_config::timers::cron::TimerSpec;
use gatelog_rules_config::timers::delay;

use crate::zone::Calendar;

/// So many ticks that nobody told are counted; more are told as so many.
const MOST_MISSED: u32 = 1_000;
/// A clock that went back by less than this, in seconds, repeats no tick: it is waited until it is where it was. By more,
/// what comes by the clock as it is now is due, also where it was told before: a timer does not stand still until a clock
/// that was wrong is reached.
const STEP_BACK: i64 = 60;
const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// How far a timer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Since when it is there.
    pub since: Timestamp,
    /// The last tick told.
    pub last: Option<Timestamp>,
}

/// A tick that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The moment that the `time` names.
    pub tick: Timestamp,
    /// That and the jitter.
    pub due: Timestamp,
    /// How many earlier ticks were not told: after an outage one tick stands for all.
    pub missed: u32,
}

/// What comes next of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This is due.
    Due(Tick),
    /// Nothing before this moment.
    At(Timestamp),
    /// Nothing ever.
    Never,
}

/// What comes next of a timer of a tenant; `spec` is what its `time` says.
pub fn next_of(
    calendar: &Calendar,
    spec: &TimerSpec,
    (tenant, timer): (&str, &TimerName),
    told: Told,
    now: Timestamp,
) -> Next {
    look(calendar, spec, delay(tenant, &timer.project, &timer.branch, spec.jitter), told, now)
}

/// What comes next of a timer that is due `delay` seconds after each of its ticks.
fn look(calendar: &Calendar, spec: &TimerSpec, delay: u32, told: Told, now: Timestamp) -> Next {
    let after = |tick: Timestamp| calendar.next_after(spec, tick);
    let due = |tick: Timestamp| tick.plus_seconds(i64::from(delay));
    let Some(mut tick) = after(base(delay, told, now)) else { return Next::Never };
    if due(tick) > now {
        return Next::At(due(tick));
    }
    let mut missed = 0;
    while let Some(next) = after(tick).filter(|next| due(*next) <= now) {
        tick = next;
        missed += 1;
        if missed == MOST_MISSED {
            tick = last_until(calendar, spec, now.plus_seconds(-i64::from(delay))).map_or(tick, |last| last.max(tick));
            break;
        }
    }
    Next::Due(Tick { tick, due: due(tick), missed })
}

/// The moment after which ticks count.
fn base(delay: u32, told: Told, now: Timestamp) -> Timestamp {
    let base = told.last.unwrap_or(told.since);
    if base <= now.plus_seconds(STEP_BACK) { base } else { now.plus_seconds(-i64::from(delay)) }
}

/// The last tick until a moment, if it lies within a year of it.
fn last_until(calendar: &Calendar, spec: &TimerSpec, until: Timestamp) -> Option<Timestamp> {
    let first_within = |seconds: i64| {
        let first = calendar.next_after(spec, until.plus_seconds(-seconds))?;
        (first <= until).then_some(first)
    };
    let mut last = [MINUTE, HOUR, DAY, 31 * DAY, 366 * DAY].into_iter().find_map(first_within)?;
    while let Some(next) = calendar.next_after(spec, last).filter(|next| *next <= until) {
        last = next;
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    /// What is next of a timer in UTC that was told until a moment.
    fn next(time: &str, delay: u32, last: &str, now: &str) -> Next {
        let told = Told { since: Timestamp::ZERO, last: Some(at(last)) };
        look(&Calendar::named("UTC").unwrap(), &TimerSpec::parse(time).unwrap(), delay, told, at(now))
    }

    fn due(tick: &str, delay: i64, missed: u32) -> Next {
        let tick = at(tick);
        Next::Due(Tick { tick, due: tick.plus_seconds(delay), missed })
    }

    #[test]
    fn a_timer_is_due_at_its_time_and_its_jitter_later() {
        let (hourly, last) = ("0 * * * *", "2026-05-01T10:00:00Z");
        assert_eq!(next(hourly, 0, last, "2026-05-01T10:59:59Z"), Next::At(at("2026-05-01T11:00:00Z")));
        assert_eq!(next(hourly, 0, last, "2026-05-01T11:00:00Z"), due("2026-05-01T11:00:00Z", 0, 0));
        assert_eq!(next(hourly, 600, last, "2026-05-01T11:05:00Z"), Next::At(at("2026-05-01T11:10:00Z")));
        assert_eq!(next(hourly, 600, last, "2026-05-01T11:10:00Z"), due("2026-05-01T11:00:00Z", 600, 0));
        // A jitter longer than the hour.
        assert_eq!(next(hourly, 5_400, last, "2026-05-01T12:29:59Z"), Next::At(at("2026-05-01T12:30:00Z")));
        assert_eq!(next(hourly, 5_400, last, "2026-05-01T12:30:00Z"), due("2026-05-01T11:00:00Z", 5_400, 0));
    }

    #[test]
    fn what_is_new_is_due_from_then_on() {
        let told = Told { since: at("2026-05-01T10:30:00Z"), last: None };
        let (calendar, spec) = (Calendar::named("UTC").unwrap(), TimerSpec::parse("0 * * * *").unwrap());
        let look = |now: &str| look(&calendar, &spec, 0, told, at(now));
        assert_eq!(look("2026-05-01T10:31:00Z"), Next::At(at("2026-05-01T11:00:00Z")));
        assert_eq!(look("2026-05-01T11:01:00Z"), due("2026-05-01T11:00:00Z", 0, 0));
    }

    #[test]
    fn one_tick_stands_for_all_that_an_outage_missed() {
        let last = "2026-05-01T10:00:00Z";
        assert_eq!(next("0 * * * *", 0, last, "2026-05-01T14:20:00Z"), due("2026-05-01T14:00:00Z", 0, 3));
        assert_eq!(next("0 2 * * *", 0, last, "2026-05-05T14:20:00Z"), due("2026-05-05T02:00:00Z", 0, 3));
        // A second in two and a year: the newest, and the count says as many as are counted.
        let yearlong = next("* * * * * */2", 0, last, "2027-05-01T10:00:01Z");
        assert_eq!(yearlong, due("2027-05-01T10:00:00Z", 0, MOST_MISSED));
        let rare = next("* 3 * * *", 0, last, "2028-07-09T02:00:00Z");
        assert_eq!(rare, due("2028-07-08T03:59:00Z", 0, MOST_MISSED));
    }

    #[test]
    fn a_clock_that_goes_back_delays_no_timer_and_a_small_step_repeats_none() {
        let (hourly, last) = ("0 * * * *", "2026-05-01T10:00:00Z");
        // The clock was set back by half a minute just after the tick.
        assert_eq!(next(hourly, 0, last, "2026-05-01T09:59:31Z"), Next::At(at("2026-05-01T11:00:00Z")));
        // By three hours, and by 800 days.
        assert_eq!(next(hourly, 0, last, "2026-05-01T07:00:01Z"), Next::At(at("2026-05-01T08:00:00Z")));
        assert_eq!(next(hourly, 0, last, "2024-02-21T07:00:01Z"), Next::At(at("2024-02-21T08:00:00Z")));
        // What the jitter has put off is not lost with that.
        assert_eq!(next(hourly, 600, last, "2026-05-01T07:05:00Z"), Next::At(at("2026-05-01T07:10:00Z")));
    }
}
