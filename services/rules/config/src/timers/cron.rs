//! The `time` of a timer, and when it is due next.
//!
//! Zuul: the text is five fields (minute, hour, day of month, month, weekday), a sixth for seconds and a seventh for
//! jitter, read as the Python library APScheduler reads them. That is not as cron does it: a weekday of 0 is Monday, 7 is
//! none, and day of month and weekday must both fit.

use std::fmt;

/// Days looked through for the next time: 29 February on a certain weekday may take forty years.
const MOST_DAYS: u32 = 41 * 366;
/// The last year there is.
const LAST_YEAR: i32 = 9_999;

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// What is wrong with a `time`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimerError {
    /// Not five to seven fields.
    #[error(
        "it has {0} fields: write minute, hour, day of month, month and weekday, then seconds and jitter if they are wanted"
    )]
    Fields(usize),
    /// Neither a number, a range, a list, a step nor a name.
    #[error("`{text}` is no {field}: write {}", forms(field))]
    Unreadable {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A number that the field has not.
    #[error("`{text}` is no {field}: it goes from {min} to {max}{}", remark(field))]
    OutOfRange {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
        /// The least number.
        min: u32,
        /// The greatest.
        max: u32,
    },
    /// The end of a range comes before its beginning.
    #[error(
        "`{text}` is a {field} range that ends before it begins: write two ranges, as in `a-b,c-d`{}",
        remark(field)
    )]
    Backwards {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A step of nothing, or beyond the range.
    #[error("the step of `{text}` in the {field} must be from 1 to {most}")]
    Step {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
        /// The longest step.
        most: u32,
    },
    /// The seventh field is no number of seconds.
    #[error("`{0}` is no jitter: write a number of seconds")]
    Jitter(String),
    /// Such a day is in no year.
    #[error("no year has such a day: change the day of month or the month")]
    Never,
}

fn forms(field: &str) -> &'static str {
    match field {
        "month" => "*, a number, a name such as jan, a range a-b, or a list a,b; * and numbers take a step: */2",
        "weekday" => "*, a number from 0 (Monday), a name such as mon, a range a-b, or a list a,b",
        "day of month" => "*, a number, last, a range a-b, or a list a,b; * and numbers take a step: */2",
        _ => "*, a number, a range a-b, or a list a,b; each may have a step: */15",
    }
}

fn remark(field: &str) -> &'static str {
    if field == "weekday" { "; 0 is Monday and 6 is Sunday" } else { "" }
}

/// A date and time of day on some clock on the wall; the time zone is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil {
    /// The year.
    pub year: i32,
    /// The month, from 1.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
    /// The hour, from 0.
    pub hour: u32,
    /// The minute, from 0.
    pub minute: u32,
    /// The second, from 0.
    pub second: u32,
}

impl Civil {
    /// The weekday; 0 is Monday.
    pub fn weekday(self) -> u32 {
        // Days since 1 March of the year 0, in eras of 400 years.
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        // 1 March of the year 0 was a Wednesday.
        u32::try_from((days + 2).rem_euclid(7)).unwrap_or(0)
    }

    /// The day after, at midnight.
    fn tomorrow(self) -> Civil {
        let next = Civil { hour: 0, minute: 0, second: 0, ..self };
        if self.day < days_of(self.year, self.month) {
            return Civil { day: self.day + 1, ..next };
        }
        match self.month {
            ..12 => Civil { month: self.month + 1, day: 1, ..next },
            _ => Civil { year: self.year.saturating_add(1), month: 1, day: 1, ..next },
        }
    }
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// What a field may hold.
struct Unit {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTE: Unit = Unit { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Unit = Unit { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Unit = Unit { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Unit = Unit { name: "month", min: 1, max: 12, names: MONTHS };
const WEEKDAY: Unit = Unit { name: "weekday", min: 0, max: 6, names: WEEKDAYS };
const SECOND: Unit = Unit { name: "second", min: 0, max: 59, names: &[] };

/// The numbers a field takes, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn has(self, number: u32) -> bool {
        number < 64 && self.0 & (1 << number) != 0
    }

    /// The least number from `from` on.
    fn next(self, from: u32) -> Option<u32> {
        (from..64).find(|number| self.has(*number))
    }
}

/// When a timer fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerSpec {
    minute: Set,
    hour: Set,
    day: Set,
    last_day: bool,
    month: Set,
    weekday: Set,
    second: Set,
    /// Up to how many seconds later each branch fires, so that not all fire at once.
    pub jitter: u32,
}

impl TimerSpec {
    /// Reads a `time`.
    ///
    /// # Errors
    /// What is wrong with it. Zuul writes that to its log and goes on without the timer.
    pub fn parse(text: &str) -> Result<TimerSpec, TimerError> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let (minute, hour, day, month, weekday, rest) = match parts.as_slice() {
            [minute, hour, day, month, weekday, rest @ ..] if rest.len() <= 2 => {
                (minute, hour, day, month, weekday, rest)
            }
            other => return Err(TimerError::Fields(other.len())),
        };
        let jitter = match rest.get(1) {
            Some(text) => text.parse().map_err(|_| TimerError::Jitter((*text).to_owned()))?,
            None => 0,
        };
        let (day, last_day) = days(day)?;
        let spec = TimerSpec {
            minute: list(&MINUTE, minute)?,
            hour: list(&HOUR, hour)?,
            day,
            last_day,
            month: list(&MONTH, month)?,
            weekday: list(&WEEKDAY, weekday)?,
            second: list(&SECOND, rest.first().copied().unwrap_or("0"))?,
            jitter,
        };
        // 2024 is a leap year.
        let exists = |month: u32| spec.last_day || spec.day.next(0).is_some_and(|day| day <= days_of(2024, month));
        match (1..=12).any(|month| spec.month.has(month) && exists(month)) {
            true => Ok(spec),
            false => Err(TimerError::Never),
        }
    }

    /// Whether it is due in every hour of a day: such a timer follows the hours that there are, and no time of day.
    pub fn is_every_hour(&self) -> bool {
        (0..24).all(|hour| self.hour.has(hour))
    }

    /// The first time after `now` at which it is due, jitter left out; none when there is none any more.
    pub fn next_after(&self, now: Civil) -> Option<Civil> {
        let mut day = now;
        // Of the first day the rest, from the next second on; of the others everything.
        let mut from = (now.hour, now.minute, now.second.saturating_add(1));
        for _ in 0..MOST_DAYS {
            if day.year > LAST_YEAR {
                return None;
            }
            if self.has_day(day)
                && let Some((hour, minute, second)) = self.time_from(from)
            {
                return Some(Civil { hour, minute, second, ..day });
            }
            day = day.tomorrow();
            from = (0, 0, 0);
        }
        None
    }

    fn has_day(&self, day: Civil) -> bool {
        let of_month = self.day.has(day.day) || self.last_day && day.day == days_of(day.year, day.month);
        of_month && self.month.has(day.month) && self.weekday.has(day.weekday())
    }

    /// The first time of day at or after one.
    fn time_from(&self, (hour, minute, second): (u32, u32, u32)) -> Option<(u32, u32, u32)> {
        let first = |set: Set| set.next(0);
        if self.hour.has(hour) {
            if self.minute.has(minute)
                && let Some(second) = self.second.next(second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = self.minute.next(minute.saturating_add(1)) {
                return Some((hour, minute, first(self.second)?));
            }
        }
        Some((self.hour.next(hour.saturating_add(1))?, first(self.minute)?, first(self.second)?))
    }
}

/// A day of the month may be the last one, too.
fn days(text: &str) -> Result<(Set, bool), TimerError> {
    let is_last = |part: &&str| part.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("last"));
    let (last, others): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_last);
    let set = match others.is_empty() {
        true => Set::default(),
        false => list(&DAY, &others.join(","))?,
    };
    Ok((set, !last.is_empty()))
}

fn list(unit: &Unit, text: &str) -> Result<Set, TimerError> {
    let mut set = Set::default();
    for part in text.split(',') {
        let (first, last, step) = expression(unit, part)?;
        let mut number = first;
        while number <= last {
            set.0 |= 1 << number;
            number += step;
        }
    }
    Ok(set)
}

/// One part of a list: its first number, its last and its step.
fn expression(unit: &Unit, text: &str) -> Result<(u32, u32, u32), TimerError> {
    let field = unit.name;
    let owned = || text.to_owned();
    let unreadable = || TimerError::Unreadable { field, text: owned() };
    let out_of_range = || TimerError::OutOfRange { field, text: owned(), min: unit.min, max: unit.max };
    if !unit.names.is_empty() && text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let (first, last) = names(unit, text).ok_or_else(unreadable)?;
        return if first > last { Err(TimerError::Backwards { field, text: owned() }) } else { Ok((first, last, 1)) };
    }
    let number = |text: &str| match text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(unreadable()),
        false => text.parse::<u32>().map_err(|_| out_of_range()),
    };
    let (range, step) = match text.split_once('/') {
        Some((range, step)) => (range, Some(number(step)?)),
        None => (text, None),
    };
    let (first, last) = match range.split_once('-') {
        _ if range == "*" => (unit.min, Some(unit.max)),
        Some((first, last)) => (number(first)?, Some(number(last)?)),
        None => (number(range)?, None),
    };
    // A single number with a step goes on to the end.
    let last = last.unwrap_or(if step.is_some() { unit.max } else { first });
    if first < unit.min || first > unit.max || last > unit.max {
        return Err(out_of_range());
    }
    if first > last {
        return Err(TimerError::Backwards { field, text: owned() });
    }
    let most = if last == 0 { unit.max } else { last - first };
    match step {
        Some(step) if step == 0 || step > most => Err(TimerError::Step { field, text: owned(), most }),
        step => Ok((first, last, step.unwrap_or(1))),
    }
}

/// A name, or two with a dash. Zuul: what follows them is passed over, so that `mon-fri/2` is `mon-fri`.
fn names(unit: &Unit, text: &str) -> Option<(u32, u32)> {
    let word = |text: &str| -> usize { text.bytes().take_while(u8::is_ascii_alphabetic).count() };
    let number = |name: &str| {
        let place = unit.names.iter().position(|known| name.eq_ignore_ascii_case(known))?;
        u32::try_from(place).ok()?.checked_add(unit.min)
    };
    let (first, rest) = text.split_at_checked(word(text))?;
    let first = number(first)?;
    match rest.strip_prefix('-').map(|rest| rest.split_at_checked(word(rest))) {
        Some(Some((last, _))) if !last.is_empty() => Some((first, number(last)?)),
        _ => Some((first, first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Civil {
        let numbers: Vec<u32> = text.split(['-', 'T', ':']).map(|part| part.parse().unwrap()).collect();
        let [year, month, day, hour, minute, second] = numbers[..] else { panic!("{text}") };
        Civil { year: i32::try_from(year).unwrap(), month, day, hour, minute, second }
    }

    fn next(time: &str, now: &str) -> String {
        let spec = TimerSpec::parse(time).unwrap();
        spec.next_after(at(now)).map_or("never".to_owned(), |due| due.to_string())
    }

    fn wrong(time: &str) -> String {
        TimerSpec::parse(time).unwrap_err().to_string()
    }

    #[test]
    fn weekdays_count_from_monday_and_months_end_where_they_do() {
        let days = ["2026-11-23T00:00:00", "2000-02-29T00:00:00", "1970-01-01T00:00:00", "2100-03-01T00:00:00"];
        assert_eq!(days.map(|day| at(day).weekday()), [0, 1, 3, 0]);
        assert_eq!(at("2024-02-28T09:09:09").tomorrow().to_string(), "2024-02-29T00:00:00");
        assert_eq!(at("2026-02-28T09:09:09").tomorrow().to_string(), "2026-03-01T00:00:00");
        assert_eq!(at("2026-12-31T23:59:59").tomorrow().to_string(), "2027-01-01T00:00:00");
    }

    #[test]
    fn the_next_time_is_the_first_that_fits_and_never_now() {
        let now = "2026-11-21T10:15:00";
        let due = [
            ("15 10 * * *", "2026-11-22T10:15:00"),
            ("16 10 * * *", "2026-11-21T10:16:00"),
            ("*/20 * * * *", "2026-11-21T10:20:00"),
            ("5/20 * * * *", "2026-11-21T10:25:00"),
            ("0 9-17/4 * * *", "2026-11-21T13:00:00"),
            ("0 0 * * 0", "2026-11-23T00:00:00"),
            ("0 0 * * sun,MON", "2026-11-22T00:00:00"),
            ("0 0 * jan-mar *", "2027-01-01T00:00:00"),
            ("0 0 last * *", "2026-11-30T00:00:00"),
            ("0 0 1,last 2 *", "2027-02-01T00:00:00"),
            ("0 0 29 2 mon", "2044-02-29T00:00:00"),
            ("* * * * * */7", "2026-11-21T10:15:07"),
            ("* * * * * 0", "2026-11-21T10:16:00"),
            // Both must fit, which is not so in cron.
            ("0 0 13 * 4", "2027-08-13T00:00:00"),
        ];
        for (time, expected) in due {
            assert_eq!(next(time, now), expected, "{time}");
        }
        assert_eq!(next("59 23 31 12 *", "2026-12-31T23:59:00"), "2027-12-31T23:59:00");
        assert_eq!(next("0 0 1 1 *", "9999-06-01T00:00:00"), "never");
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_field() {
        assert!(wrong("0 0 * *").starts_with("it has 4 fields"), "{}", wrong("0 0 * *"));
        assert!(wrong("0 0 * * * 0 0 0").starts_with("it has 8 fields"));
        assert_eq!(wrong("60 0 * * *"), "`60` is no minute: it goes from 0 to 59");
        assert_eq!(wrong("0 0 * * 7"), "`7` is no weekday: it goes from 0 to 6; 0 is Monday and 6 is Sunday");
        assert!(wrong("0 0 * * sun-mon").contains("ends before it begins"));
        assert!(wrong("0 0 * * monday").starts_with("`monday` is no weekday: write"));
        assert_eq!(wrong("*/60 * * * *"), "the step of `*/60` in the minute must be from 1 to 59");
        assert_eq!(wrong("0-10/20 * * * *"), "the step of `0-10/20` in the minute must be from 1 to 10");
        assert!(wrong("*/0 * * * *").contains("from 1 to 59"));
        assert!(wrong("H 0 * * *").starts_with("`H` is no minute"));
        assert!(wrong("0 0 * * 1#2").starts_with("`1#2` is no weekday"));
        assert_eq!(wrong("0 0 * * * 0 soon"), "`soon` is no jitter: write a number of seconds");
        assert!(wrong("0 0 30 2 *").starts_with("no year has such a day"));
        assert!(wrong("99999999999 0 * * *").starts_with("`99999999999` is no minute"));
    }
}
