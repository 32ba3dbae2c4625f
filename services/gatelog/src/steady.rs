//! What the machine's clock did: jumps, told to operators, and the time by which things grow old.
//!
//! Nothing that is waited for is measured by that clock. What is removed because of its age is, and a clock that is set
//! far ahead would make everything old at once. So this process keeps a time of its own beside it: it goes on by the
//! monotonic clock, follows the machine's clock as long as the two agree, and is left in [`FILE`] for the next start.
//! What is removed goes by the earlier of both. Once the machine's clock has gone steadily for [`TRUSTED_AFTER`], it is
//! believed, whatever it says.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gatelog_record::Timestamp;
use gatelog_web::PartHealth;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::server::StartError;

/// Where a process of the site leaves its time, in its directory.
const FILE: &str = "clock.json";
/// How often both clocks are compared.
const LOOK: Duration = Duration::from_secs(1);
/// How often the time is left in the file.
const KEEP: Duration = Duration::from_secs(60);
/// What is less than this is no jump, in microseconds.
const JUMP: i64 = 5 * SECOND;
/// A clock that is further ahead than this of what it should say is not believed at first, in microseconds.
const AHEAD: i64 = 3_600 * SECOND;
/// The same at a start, when nobody knows how long the process was down.
const AHEAD_AT_START: i64 = 24 * 3_600 * SECOND;
/// After so long without a jump the clock is believed.
const TRUSTED_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// For so long after a jump nothing is removed, and health tells of it.
const TOLD_FOR: Duration = Duration::from_secs(3_600);
const SECOND: i64 = 1_000_000;

/// The time of this process, as the next one finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Left {
    /// In microseconds since 1970.
    time: i64,
}

/// A jump of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jump {
    /// By how much, in microseconds; less than 0: it went back.
    by: i64,
    /// What the clock said after it.
    now: Timestamp,
    /// When it was seen, by the monotonic clock.
    at: Duration,
    /// Whether the process was down meanwhile.
    down: bool,
}

/// Both clocks compared, over time. Pure: it is told what they say.
#[derive(Debug)]
struct Compared {
    /// The time of this process, in microseconds since 1970, and when it was that by the monotonic clock.
    own: (i64, Duration),
    /// What both clocks said last.
    last: (i64, Duration),
    jump: Option<Jump>,
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl Compared {
    /// A process that begins, with what an earlier one has left.
    fn new(left: Option<Left>, wall: i64, monotonic: Duration) -> Compared {
        let before = left.map_or(wall, |left| left.time);
        let by = wall.saturating_sub(before);
        // How long it was down nobody knows: only what is too much for that, or too little, is a jump.
        let jump = (!(-JUMP..=AHEAD_AT_START).contains(&by)).then_some(Jump {
            by,
            now: Timestamp(wall),
            at: monotonic,
            down: true,
        });
        let own = if jump.is_some() { before } else { wall };
        Compared { own: (own, monotonic), last: (wall, monotonic), jump }
    }

    /// What the clocks say now. Gives the jump that is seen by that.
    fn look(&mut self, wall: i64, monotonic: Duration) -> Option<Jump> {
        let expected = self.last.0.saturating_add(micros(monotonic.saturating_sub(self.last.1)));
        self.last = (wall, monotonic);
        let by = wall.saturating_sub(expected);
        let seen =
            (by.saturating_abs() > JUMP).then_some(Jump { by, now: Timestamp(wall), at: monotonic, down: false });
        self.jump = seen.or(self.jump);
        let own = self.own.0.saturating_add(micros(monotonic.saturating_sub(self.own.1)));
        let agrees = wall.saturating_sub(own).saturating_abs() <= AHEAD;
        let own = if agrees || self.is_steady(monotonic, TRUSTED_AFTER) { wall } else { own };
        self.own = (own, monotonic);
        seen
    }

    /// Whether there was no jump for so long.
    fn is_steady(&self, monotonic: Duration, span: Duration) -> bool {
        self.jump.is_none_or(|jump| monotonic.saturating_sub(jump.at) >= span)
    }

    /// The time by which things grow old; `None` shortly after a jump: then nothing does.
    fn aging(&self, monotonic: Duration) -> Option<i64> {
        self.is_steady(monotonic, TOLD_FOR).then_some(self.own.0.min(self.last.0))
    }

    /// What operators are to know of it now.
    fn trouble(&self, monotonic: Duration) -> Option<String> {
        let held = self.last.0.saturating_sub(self.own.0) > AHEAD;
        let jump = self.jump.filter(|_| held || !self.is_steady(monotonic, TOLD_FOR))?;
        let Jump { by, now, down, .. } = jump;
        let how = format!("{} {}", span(by.saturating_abs()), if by < 0 { "back" } else { "ahead" });
        let when = if down { "while this process was down; it said" } else { "and said" };
        let mut text = format!(
            "the machine's clock jumped {how} {when} {now} after that; no request waits for it. See what keeps the clock \
             (chronyc tracking, timedatectl)"
        );
        if held {
            let left = TRUSTED_AFTER.saturating_sub(monotonic.saturating_sub(jump.at));
            text.push_str(&format!(
                ". Until it has gone steadily for another {}, nothing is removed for having grown old by that jump",
                span(micros(left))
            ));
        }
        Some(text)
    }
}

/// A span in words, of microseconds: the two largest units.
fn span(micros: i64) -> String {
    let seconds = micros.saturating_add(SECOND / 2) / SECOND;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min {} s", seconds % 60),
        (1..=47, _) => format!("{hours} h {minutes} min"),
        _ => format!("{} days {} h", hours / 24, hours % 24),
    }
}

/// What comes of comparing the clocks.
struct Seen {
    own: i64,
    aging: Option<i64>,
    trouble: Option<String>,
}

/// The clocks of this process, compared.
#[derive(Debug)]
pub struct Steady {
    file: PathBuf,
    began: Instant,
    compared: Mutex<Compared>,
}

impl Steady {
    /// Of a process that begins now in this directory.
    pub fn open(site: &Path) -> Steady {
        let (file, began) = (site.join(FILE), Instant::now());
        // Without it, or where it cannot be read, the clock is believed.
        let left = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Left>(&bytes).ok());
        let compared = Compared::new(left, clock::now().0, Duration::ZERO);
        if let Some(text) = compared.trouble(Duration::ZERO) {
            tracing::warn!("{text}");
        }
        Steady { file, began, compared: Mutex::new(compared) }
    }

    fn lock(&self) -> MutexGuard<'_, Compared> {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the clocks.
    fn look(&self) -> Seen {
        let mut compared = self.lock();
        let monotonic = self.began.elapsed();
        if let Some(jump) = compared.look(clock::now().0, monotonic) {
            let expected = Timestamp(jump.now.0.saturating_sub(jump.by));
            let (before, after) = [expected, jump.now].map(clock::no_earlier_than_the_log).into();
            if before < after {
                gatelog_web::leaps::note(before, after);
            }
            if let Some(text) = compared.trouble(monotonic) {
                tracing::warn!("{text}");
            }
        }
        Seen { own: compared.own.0, aging: compared.aging(monotonic), trouble: compared.trouble(monotonic) }
    }

    /// The moment by which what is kept grows old; `None` shortly after a jump of the clock: then nothing is removed.
    pub fn aging(&self) -> Option<Timestamp> {
        self.look().aging.map(Timestamp)
    }

    /// The same for what is dated by a file system; the beginning of all time when nothing is to be removed.
    pub fn aging_files(&self) -> SystemTime {
        let micros = self.aging().and_then(|now| u64::try_from(now.0).ok()).unwrap_or(0);
        UNIX_EPOCH + Duration::from_micros(micros)
    }

    /// The part of health that tells of a jump, for a while.
    pub fn health(&self) -> Option<PartHealth> {
        let detail = self.look().trouble?;
        Some(PartHealth { part: "clock".to_owned(), well: false, state: "yellow".to_owned(), detail })
    }

    /// Compares the clocks and keeps the time until it is told to stop; `newest` gives the newest time of the log.
    pub fn watch(
        self: &Arc<Self>,
        newest: impl Fn() -> Option<Timestamp> + Send + 'static,
        stop: &Arc<AtomicBool>,
    ) -> Result<JoinHandle<()>, StartError> {
        let (steady, stop) = (Arc::clone(self), Arc::clone(stop));
        crate::server::thread("clock", move || {
            let mut kept: Option<Instant> = None;
            while !stop.load(Ordering::Relaxed) {
                // A jump is seen before the log's time follows it.
                let own = steady.look().own;
                if let Some(newest) = newest() {
                    clock::log_is_at(newest);
                }
                if kept.is_none_or(|kept| kept.elapsed() >= KEEP) {
                    steady.keep(own);
                    kept = Some(Instant::now());
                }
                let began = Instant::now();
                while began.elapsed() < LOOK && !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK / 10);
                }
            }
            steady.keep(steady.look().own);
        })
    }

    /// Leaves the time for the next start. Where that cannot be, the next start believes what was left before.
    fn keep(&self, time: i64) {
        let fresh = self.file.with_extension("json.new");
        let text = serde_json::to_vec(&Left { time }).unwrap_or_default();
        let kept = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &self.file));
        if let Err(error) = kept {
            tracing::debug!(file = %self.file.display(), %error, "the time of this process could not be kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600 * SECOND;
    const DAY: i64 = 24 * HOUR;
    const NOW: i64 = 20_000 * DAY;

    fn at(micros: i64) -> Duration {
        Duration::from_micros(u64::try_from(micros).unwrap())
    }

    #[test]
    fn a_clock_that_goes_as_it_should_is_believed_at_once_and_nothing_is_told() {
        for left in [None, Some(Left { time: NOW - 3 * HOUR })] {
            let mut clocks = Compared::new(left, NOW, at(0));
            assert_eq!((clocks.aging(at(0)), clocks.trouble(at(0))), (Some(NOW), None));
            // A correction of some seconds is none.
            assert_eq!(clocks.look(NOW + HOUR + 4 * SECOND, at(HOUR)), None);
            assert_eq!(clocks.aging(at(HOUR)), Some(NOW + HOUR + 4 * SECOND));
        }
    }

    #[test]
    fn what_is_kept_does_not_grow_old_by_a_jump_ahead_until_the_clock_was_steady_for_a_day() {
        let jump = 800 * DAY;
        let mut clocks = Compared::new(None, NOW, at(0));
        assert_eq!(clocks.look(NOW + jump + SECOND, at(SECOND)).map(|jump| jump.by), Some(jump));
        assert_eq!(clocks.aging(at(SECOND)), None, "nothing at all is removed at first");
        let told = clocks.trouble(at(SECOND)).unwrap();
        assert!(told.contains("jumped 800 days 0 h ahead and said 2026"), "{told}");
        assert!(told.contains("for another 24 h 0 min, nothing is removed"), "{told}");
        clocks.look(NOW + jump + 2 * HOUR, at(2 * HOUR));
        assert_eq!(clocks.aging(at(2 * HOUR)), Some(NOW + 2 * HOUR), "then as if it had not jumped");
        assert!(clocks.trouble(at(2 * HOUR)).is_some());
        // A restart does not make it true.
        let left = Left { time: clocks.own.0 };
        let mut again = Compared::new(Some(left), NOW + jump + 3 * HOUR, at(0));
        assert_eq!(again.aging(at(0)), None);
        again.look(NOW + jump + 5 * HOUR, at(2 * HOUR));
        assert_eq!(again.aging(at(2 * HOUR)), Some(NOW + 4 * HOUR));
        assert!(again.trouble(at(2 * HOUR)).unwrap().contains("while this process was down"));
        again.look(NOW + jump + 27 * HOUR, at(24 * HOUR));
        assert_eq!(again.aging(at(24 * HOUR)), Some(NOW + jump + 27 * HOUR));
        assert_eq!(again.trouble(at(24 * HOUR)), None);
        // Put right, it is believed at once but for the first hour.
        clocks.look(NOW + 6 * HOUR, at(6 * HOUR));
        assert_eq!(clocks.aging(at(6 * HOUR)), None);
        clocks.look(NOW + 8 * HOUR, at(8 * HOUR));
        assert_eq!((clocks.aging(at(8 * HOUR)), clocks.trouble(at(8 * HOUR))), (Some(NOW + 8 * HOUR), None));
    }

    #[test]
    fn a_clock_that_went_back_makes_nothing_older_and_may_come_back() {
        let mut clocks = Compared::new(Some(Left { time: NOW }), NOW - 800 * DAY, at(0));
        assert!(clocks.trouble(at(0)).unwrap().contains("jumped 800 days 0 h back while"), "also while it was down");
        clocks.look(NOW - 800 * DAY + 2 * HOUR, at(2 * HOUR));
        assert_eq!(clocks.aging(at(2 * HOUR)), Some(NOW - 800 * DAY + 2 * HOUR));
        assert_eq!(clocks.trouble(at(2 * HOUR)), None);
        clocks.look(NOW + 3 * HOUR, at(3 * HOUR));
        clocks.look(NOW + 5 * HOUR, at(5 * HOUR));
        assert_eq!(clocks.aging(at(5 * HOUR)), Some(NOW + 5 * HOUR), "it says what it should have said all the time");
    }
}
