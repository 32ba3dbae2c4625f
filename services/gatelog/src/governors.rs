//! Governors: when an executor takes no build, because its host has too little to run it well.
//!
//! Zuul's sensors, on Zuul's limits. What is running goes on. Where a governor has begun to hold, it lets go only once
//! there is a tenth more than its limit, so that an executor on the verge does not offer its slots and take them back by
//! turns.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gatelog_executing::ByteSize;
use gatelog_room::measure::{self, Amount, FileSystem};
use serde::{Deserialize, Serialize};

/// Where builds are taken no more; 0: nobody looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Hundredths of a file system that must be free.
    pub hdd: f64,
    /// Hundredths of its inodes that must be free.
    pub inodes: f64,
    /// Hundredths of memory that must be free.
    pub mem: f64,
    /// The most load for each processor.
    pub load: f64,
}

/// Why an executor takes no build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Such as `executor-disk-low`.
    pub code: String,
    /// What there is, what there must be, and the cure.
    pub detail: String,
    /// Whether that passes with the builds that run: nobody needs to do anything.
    #[serde(default)]
    pub passing: bool,
}

/// What a host has.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The file systems that builds write to.
    pub disks: Vec<(PathBuf, FileSystem)>,
    /// Memory; `None`: not known.
    pub memory: Option<Amount>,
    /// The load of the last minute; `None`: not known.
    pub load: Option<f64>,
    /// Processors.
    pub processors: usize,
}

impl Measured {
    /// This host, for an executor of the site in this directory.
    pub fn here(site: &Path) -> Measured {
        let mut disks: Vec<(PathBuf, FileSystem)> = Vec::new();
        for name in ["builds", "nodes", "logs"] {
            // What is not there yet will be made in the site's directory.
            let path = Some(site.join(name)).filter(|path| path.exists()).unwrap_or_else(|| site.to_owned());
            if let Some(found) = FileSystem::of(&path)
                && !disks.iter().any(|(_, known)| *known == found)
            {
                disks.push((path, found));
            }
        }
        let (memory, load, processors) = (measure::memory(), measure::load(), measure::processors());
        Measured { disks, memory, load, processors }
    }
}

/// The governors of one executor.
#[derive(Clone, Debug)]
pub struct Governors {
    bounds: Bounds,
    /// Those that hold.
    holding: BTreeSet<&'static str>,
}

const DISK: &str = "executor-disk-low";
const INODES: &str = "executor-inodes-low";
const MEMORY: &str = "executor-memory-low";
const LOAD: &str = "executor-load-high";

impl Governors {
    /// With these bounds; none holds yet.
    pub fn new(bounds: Bounds) -> Governors {
        Governors { bounds, holding: BTreeSet::new() }
    }

    /// Why no build is taken on such a host; nothing: builds are taken.
    pub fn look(&mut self, host: &Measured) -> Vec<Held> {
        let mut held = Vec::new();
        for (path, disk) in &host.disks {
            let free = ByteSize(disk.bytes.free);
            let what = format!("of the disk of {} ({free})", path.display());
            held.extend(self.low(DISK, disk.bytes, self.bounds.hdd, "min-avail-hdd", &what, "make room"));
            if let Some(inodes) = disk.inodes {
                let what = format!("of the inodes of {} ({})", path.display(), inodes.free);
                let cure = "remove files that nobody needs";
                held.extend(self.low(INODES, inodes, self.bounds.inodes, "min-avail-inodes", &what, cure));
            }
        }
        if let Some(memory) = host.memory {
            let what = format!("of memory ({})", ByteSize(memory.free));
            let cure = "let fewer builds run at once (slots), or give the host more memory";
            held.extend(self.low(MEMORY, memory, self.bounds.mem, "min-avail-mem", &what, cure));
        }
        held.extend(host.load.and_then(|load| self.busy(load, host.processors)));
        self.holding = [DISK, INODES, MEMORY, LOAD]
            .into_iter()
            .filter(|code| held.iter().any(|one: &Held| one.code == *code))
            .collect();
        held
    }

    fn low(&self, code: &'static str, of: Amount, bound: f64, key: &str, what: &str, cure: &str) -> Option<Held> {
        let enough = match self.holding.contains(code) {
            // Half way to all of it at most: there must be a way out.
            true => (bound * 1.1).min((bound + 100.0) / 2.0),
            false => bound,
        };
        let free = of.percent_free();
        let detail = || {
            format!(
                "{free:.1} % {what} is free, and builds are taken with {enough:.1} % or more ({key} = {bound}): {cure}, or \
                 lower {key} in [executor]; builds are then taken by themselves"
            )
        };
        (bound > 0.0 && free < enough).then(|| Held { code: code.to_owned(), detail: detail(), passing: false })
    }

    fn busy(&self, load: f64, processors: usize) -> Option<Held> {
        let bound = self.bounds.load * processors as f64;
        let most = if self.holding.contains(LOAD) { bound * 0.9 } else { bound };
        let detail = || {
            format!(
                "the load of the last minute is {load:.1}, and builds are taken with {most:.1} or less ({processors} \
                 processors, load-multiplier = {}); builds are then taken by themselves",
                self.bounds.load
            )
        };
        (bound > 0.0 && load > most).then(|| Held { code: LOAD.to_owned(), detail: detail(), passing: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZUULS: Bounds = Bounds { hdd: 5.0, inodes: 5.0, mem: 5.0, load: 2.5 };

    fn host(disk: u64, inodes: Option<u64>, memory: u64, load: f64) -> Measured {
        let of = |free| Amount { all: 1000, free };
        let disk = FileSystem { bytes: of(disk), inodes: inodes.map(of), read_only: false };
        Measured {
            disks: vec![("/srv/ci/builds".into(), disk)],
            memory: Some(of(memory)),
            load: Some(load),
            processors: 2,
        }
    }

    fn codes(held: &[Held]) -> Vec<&str> {
        held.iter().map(|one| one.code.as_str()).collect()
    }

    #[test]
    fn each_governor_holds_below_its_limit_and_lets_go_a_tenth_above_it() {
        let mut governors = Governors::new(ZUULS);
        let mut look = |host: Measured| codes(&governors.look(&host)).join(" ");
        let well = || host(50, Some(50), 50, 5.0);
        assert_eq!(look(well()), "", "exactly the limit is enough");
        for (low, better, code) in [
            (host(49, Some(50), 50, 5.0), host(54, Some(50), 50, 5.0), DISK),
            (host(50, Some(49), 50, 5.0), host(50, Some(54), 50, 5.0), INODES),
            (host(50, Some(50), 49, 5.0), host(50, Some(50), 54, 5.0), MEMORY),
            (host(50, Some(50), 50, 5.1), host(50, Some(50), 50, 4.6), LOAD),
        ] {
            assert_eq!(look(low), code);
            assert_eq!(look(better), code, "it does not flap");
            assert_eq!(look(host(55, Some(55), 55, 4.5)), "");
            assert_eq!(look(well()), "");
        }
        assert_eq!(look(host(0, None, 0, 100.0)), "executor-disk-low executor-memory-low executor-load-high");
    }

    #[test]
    fn what_is_told_has_numbers_key_and_cure_and_nobody_looks_at_zero() {
        let mut governors = Governors::new(ZUULS);
        let held = governors.look(&host(31, None, 500, 0.0));
        let detail = &held[0].detail;
        for part in ["3.1 % of the disk of /srv/ci/builds (31 B)", "min-avail-hdd = 5)", "make room"] {
            assert!(detail.contains(part), "{part:?} is missing in {detail}");
        }
        assert_eq!(Governors::new(Bounds::default()).look(&host(0, Some(0), 0, 1e6)), []);
        // However high a limit is, there is a way out.
        let mut strict = Governors::new(Bounds { hdd: 95.0, ..Bounds::default() });
        assert_eq!(strict.look(&host(900, None, 0, 0.0)).len(), 1);
        assert_eq!(strict.look(&host(980, None, 0, 0.0)), []);
    }

    #[test]
    fn a_site_that_was_not_started_yet_is_measured_where_it_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let host = Measured::here(folder.path());
        assert_eq!(host.disks.iter().map(|(path, _)| path.as_path()).collect::<Vec<_>>(), [folder.path()]);
        assert!(host.memory.is_some() && host.load.is_some() && host.processors > 0);
    }
}
