//! The moments that the `time` of a timer names, in a time zone.

use gatelog_record::Timestamp;
use gatelog_rules_config::timers::cron::{Civil, TimerSpec};
use jiff::tz::TimeZone;

/// Changes of a zone's offset to look through for the next tick: 29 February on a certain weekday may take forty years,
/// of two changes each.
const MOST_CHANGES: usize = 100;

/// A time zone that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no time zone: write a name of the IANA database, as in Europe/Berlin or UTC")]
pub struct UnknownZone(String);

/// The calendar of a site: its time zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    zone: TimeZone,
}

impl Calendar {
    /// The calendar of a named time zone.
    ///
    /// # Errors
    /// When nobody knows the zone.
    pub fn named(zone: &str) -> Result<Calendar, UnknownZone> {
        let zone = TimeZone::get(zone).map_err(|_| UnknownZone(zone.to_owned()))?;
        Ok(Calendar { zone })
    }

    /// The calendar of this machine's time zone; UTC where it has none. Zuul: timers fire by the zone of the scheduler.
    pub fn local() -> Calendar {
        Calendar { zone: TimeZone::try_system().unwrap_or(TimeZone::UTC) }
    }

    /// The name of the time zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("the machine's own")
    }

    /// The first tick after a moment; none when there is none any more.
    ///
    /// Where clocks go forward, times that never come are due at the moment of the change, all of them once. Where clocks
    /// go back, a time that comes twice is due the first time. A timer of every hour is due in every hour that there is:
    /// it leaves out what never comes and is due both times where a time comes twice.
    pub fn next_after(&self, spec: &TimerSpec, after: Timestamp) -> Option<Timestamp> {
        // Ticks are whole seconds.
        let (mut from, mut at) = (after.seconds(), after.seconds());
        for _ in 0..MOST_CHANGES {
            let offset = self.offset(at)?;
            let change = self.change_after(at);
            let start = from.saturating_add(offset).max(self.repeated_until(spec, at, offset));
            let found = spec.next_after(civil(start)?).and_then(seconds).map(|local| local.saturating_sub(offset));
            let Some(change) = change.filter(|change| found.is_none_or(|found| found >= *change)) else {
                return found.and_then(|found| Some(Timestamp(found.checked_mul(1_000_000)?)));
            };
            let skipped = self.offset(change)?.saturating_sub(offset);
            if !spec.is_every_hour() && found.is_some_and(|found| found < change.saturating_add(skipped)) {
                return Some(Timestamp(change.checked_mul(1_000_000)?));
            }
            (from, at) = (change.saturating_sub(1), change);
        }
        None
    }

    /// Seconds to add to a moment for the time on the wall.
    fn offset(&self, at: i64) -> Option<i64> {
        let at = jiff::Timestamp::from_second(at).ok()?;
        Some(i64::from(self.zone.to_offset(at).seconds()))
    }

    /// The next moment at which the zone's offset is another.
    fn change_after(&self, at: i64) -> Option<i64> {
        let from = jiff::Timestamp::from_second(at).ok()?;
        let offset = self.zone.to_offset(from);
        let mut changes = self.zone.following(from);
        // A change may be one of the name alone.
        changes.find(|change| change.offset() != offset).map(|change| change.timestamp().as_second())
    }

    /// The last second on the wall that comes for the second time, where clocks went back before `at`. A timer of every
    /// hour does not mind.
    fn repeated_until(&self, spec: &TimerSpec, at: i64, offset: i64) -> i64 {
        if spec.is_every_hour() {
            return i64::MIN;
        }
        let last_change = || {
            let until = jiff::Timestamp::from_second(at.checked_add(1)?).ok()?;
            let change = self.zone.preceding(until).next()?.timestamp().as_second();
            let before = self.offset(change.checked_sub(1)?)?;
            (before > offset).then(|| change.saturating_add(before).saturating_sub(1))
        };
        last_change().unwrap_or(i64::MIN)
    }
}

/// The time on the wall, of seconds by that clock.
fn civil(local: i64) -> Option<Civil> {
    let time = TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(local).ok()?);
    let number = |number: i8| u32::try_from(number).ok();
    Some(Civil {
        year: i32::from(time.year()),
        month: number(time.month())?,
        day: number(time.day())?,
        hour: number(time.hour())?,
        minute: number(time.minute())?,
        second: number(time.second())?,
    })
}

/// Seconds by the clock on the wall.
fn seconds(time: Civil) -> Option<i64> {
    let number = |number: u32| i8::try_from(number).ok();
    let (month, day) = (number(time.month)?, number(time.day)?);
    let date = jiff::civil::Date::new(i16::try_from(time.year).ok()?, month, day).ok()?;
    let time = jiff::civil::Time::new(number(time.hour)?, number(time.minute)?, number(time.second)?, 0).ok()?;
    Some(TimeZone::UTC.to_timestamp(date.to_datetime(time)).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks of a time in a zone after a moment, as the clock on the wall shows them, each with its offset.
    fn ticks(zone: &str, time: &str, after: &str, count: usize) -> Vec<String> {
        let calendar = Calendar::named(zone).unwrap();
        let spec = TimerSpec::parse(time).unwrap();
        let mut at = Timestamp(after.parse::<jiff::Timestamp>().unwrap().as_microsecond());
        let mut ticks = Vec::new();
        while ticks.len() < count
            && let Some(next) = calendar.next_after(&spec, at)
        {
            assert!(next > at, "{time}: {next} is not after {at}");
            let moment = jiff::Timestamp::from_microsecond(next.0).unwrap();
            ticks.push(moment.to_zoned(calendar.zone.clone()).strftime("%m-%d %H:%M %z").to_string());
            at = next;
        }
        ticks
    }

    #[test]
    fn a_time_is_meant_in_the_time_zone_of_the_site() {
        assert_eq!(ticks("Asia/Kolkata", "0 2 * * *", "2026-01-01T00:00:00Z", 1), ["01-02 02:00 +0530"]);
        assert_eq!(ticks("UTC", "0 2 * * 0", "2026-01-01T00:00:00Z", 2), ["01-05 02:00 +0000", "01-12 02:00 +0000"]);
        let said = Calendar::named("Europe/Atlantis").unwrap_err().to_string();
        assert!(said.contains("`Europe/Atlantis` is no time zone"), "{said}");
    }

    #[test]
    fn a_nightly_time_that_never_comes_is_due_as_the_clocks_go_forward() {
        // In Berlin 02:00 to 03:00 of 29 March 2026 never comes.
        let nightly = ticks("Europe/Berlin", "30 2 * * *", "2026-03-28T00:00:00Z", 3);
        assert_eq!(nightly, ["03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"]);
        let often = ticks("Europe/Berlin", "0,20,40 2 * * *", "2026-03-28T12:00:00Z", 2);
        assert_eq!(often, ["03-29 03:00 +0200", "03-30 02:00 +0200"]);
    }

    #[test]
    fn a_nightly_time_that_comes_twice_is_due_once() {
        // In Berlin 02:00 to 03:00 of 25 October 2026 comes twice.
        let nightly = ticks("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", 2);
        assert_eq!(nightly, ["10-25 02:30 +0200", "10-26 02:30 +0100"]);
        // Also where the look begins between both.
        assert_eq!(ticks("Europe/Berlin", "30 2 * * *", "2026-10-25T01:10:00Z", 1), ["10-26 02:30 +0100"]);
        assert_eq!(ticks("Europe/Berlin", "0 3 * * *", "2026-10-25T01:10:00Z", 1), ["10-25 03:00 +0100"]);
    }

    #[test]
    fn a_timer_of_every_hour_is_due_in_every_hour_that_there_is() {
        let forward = ticks("Europe/Berlin", "30 * * * *", "2026-03-29T00:00:00Z", 3);
        assert_eq!(forward, ["03-29 01:30 +0100", "03-29 03:30 +0200", "03-29 04:30 +0200"]);
        let back = ticks("Europe/Berlin", "30 * * * *", "2026-10-25T00:00:00Z", 3);
        assert_eq!(back, ["10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]);
        // Half an hour in Lord Howe.
        let howe = ticks("Australia/Lord_Howe", "*/15 * * * *", "2026-04-04T14:40:00Z", 4);
        assert_eq!(howe, ["04-05 01:45 +1100", "04-05 01:30 +1030", "04-05 01:45 +1030", "04-05 02:00 +1030"]);
    }

    #[test]
    fn a_day_that_is_rare_is_found_and_one_that_never_comes_again_is_not() {
        assert_eq!(ticks("Europe/Berlin", "0 0 29 2 0", "2026-01-01T00:00:00Z", 1), ["02-29 00:00 +0100"]);
        assert_eq!(ticks("UTC", "0 0 1 1 *", "9999-06-01T00:00:00Z", 1), Vec::<String>::new());
    }
}
