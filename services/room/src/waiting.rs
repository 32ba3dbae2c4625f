//! What waits until this host has room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::lack::Lack;

/// How long the first wait is; doubled each time up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);
/// How many of those that wait are named.
const NAMED: usize = 3;

/// Knows what waits in this process for room of its host.
#[derive(Debug, Default)]
pub struct Room {
    waiting: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    by_number: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    what: String,
    lack: Lack,
    said: String,
    since: Instant,
}

/// Something that waits, until this is dropped.
#[derive(Debug)]
pub struct Waiting {
    room: Arc<Room>,
    number: u64,
}

/// What a lack keeps waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The lack.
    pub lack: Lack,
    /// The lack's code, what waits, what the system said last, and the cure. For operators: it names paths.
    pub detail: String,
}

/// How long to wait before something is tried again: a little at first, never more than 5 s.
#[derive(Clone, Copy, Debug)]
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Pause(FIRST)
    }
}

impl Pause {
    /// The next wait.
    pub fn take(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }
}

impl Room {
    /// Notes that something waits since now. `said` is what the system said, with whatever paths.
    pub fn wait(self: &Arc<Self>, what: impl Into<String>, lack: Lack, said: impl Into<String>) -> Waiting {
        let (what, said) = (what.into(), said.into());
        tracing::warn!(what, said, reason = lack.code(), "this host has no room: it is tried again until there is");
        let mut entries = self.entries();
        let number = entries.next;
        entries.next += 1;
        entries.by_number.insert(number, Entry { what, lack, said, since: Instant::now() });
        drop(entries);
        Waiting { room: Arc::clone(self), number }
    }

    /// What waits, by what is lacking; nothing: all is well.
    pub fn troubles(&self) -> Vec<Trouble> {
        let entries = self.entries();
        Lack::ALL
            .into_iter()
            .filter_map(|lack| {
                let of: Vec<&Entry> = entries.by_number.values().filter(|entry| entry.lack == lack).collect();
                let first = of.first()?;
                let mut names: Vec<&str> = of.iter().take(NAMED).map(|entry| entry.what.as_str()).collect();
                if of.len() > NAMED {
                    names.push("…");
                }
                let wait = if of.len() == 1 { "piece of work waits" } else { "pieces of work wait" };
                let detail = format!(
                    "{}: {lack}; {} {wait} for that, the first for {} s ({}): {}; {}: what waits goes on by itself, and no \
                     change is judged by it",
                    lack.code(),
                    of.len(),
                    first.since.elapsed().as_secs(),
                    names.join(", "),
                    first.said,
                    lack.cure()
                );
                Some(Trouble { lack, detail })
            })
            .collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// It was tried again, and failed again.
    pub fn again(&self, lack: Lack, said: impl Into<String>) {
        if let Some(entry) = self.room.entries().by_number.get_mut(&self.number) {
            (entry.lack, entry.said) = (lack, said.into());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let entry = self.room.entries().by_number.remove(&self.number);
        if let Some(entry) = entry {
            let waited_s = entry.since.elapsed().as_secs();
            tracing::info!(what = entry.what, waited_s, "it waits for room no more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_with_reason_and_cure_until_it_goes_on() {
        let room = Arc::new(Room::default());
        assert_eq!(room.troubles(), []);
        let one = room.wait("build 1", Lack::Disk, "cannot write /srv/x: No space left on device");
        let more: Vec<Waiting> = (2..6).map(|n| room.wait(format!("build {n}"), Lack::Files, "no")).collect();
        let told = room.troubles();
        assert_eq!(told.iter().map(|trouble| trouble.lack).collect::<Vec<_>>(), [Lack::Disk, Lack::Files]);
        let detail = &told[0].detail;
        for part in ["server-disk-full: ", "(build 1)", "/srv/x", "make room", "no change is judged"] {
            assert!(detail.contains(part), "{detail}");
        }
        assert!(told[1].detail.contains("(build 2, build 3, build 4, …)"), "{}", told[1].detail);
        one.again(Lack::Inodes, "still");
        drop(more);
        let told = room.troubles();
        assert!(told.len() == 1 && told[0].detail.starts_with("server-inodes-used-up: "), "{told:?}");
        drop(one);
        assert_eq!(room.troubles(), []);
    }

    #[test]
    fn pauses_grow_to_five_seconds_and_no_further() {
        let mut pause = Pause::default();
        let waits: Vec<u128> = (0..7).map(|_| pause.take().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 5000, 5000]);
    }
}
