//! Faults of a real cluster of three brokers, and of the processes on it, while changes are pushed, built and merged:
//! nothing acknowledged is lost, nothing is decided twice, queues go on by themselves, another tenant does too. Each test
//! says how long it took until something was decided again.
//!
//! Each day has one of a leader killed, a leader paused, a rolling restart and two schedulers of which one is a zombie;
//! `GATELOG_FAULTS=long` has all four, and full disks, cut networks and each role's process killed.

mod brokers;
mod disks;
mod networks;
mod roles;
mod stage;
mod zombie;

use std::sync::MutexGuard;

use crate::harness::cluster::{Cluster, cluster};
use crate::harness::{host, test_seed};

/// The cluster for a long test that wants something of it; says why there is none in the line that is counted.
fn long_cluster(test: &str, has: impl Fn(&Cluster) -> bool, lacks: &str) -> Option<MutexGuard<'static, Cluster>> {
    if !long(test) || !host::can_build(test) {
        return None;
    }
    let cluster = cluster(test)?;
    if !has(&cluster) {
        println!("SKIPPED {test}: {lacks}");
        return None;
    }
    Some(cluster)
}

/// How many faults take turns from day to day.
const DAYS: u64 = 4;

/// The cluster for the fault of one day in [`DAYS`]; on other days says so in the line that is counted.
fn cluster_of_day(test: &str, day: u64) -> Option<MutexGuard<'static, Cluster>> {
    if !all_faults() && test_seed() % DAYS != day {
        println!("SKIPPED {test}: its day is another (GATELOG_TEST_SEED={day}); GATELOG_FAULTS=long has all");
        return None;
    }
    if host::can_build(test) { cluster(test) } else { None }
}

fn all_faults() -> bool {
    std::env::var("GATELOG_FAULTS").is_ok_and(|wanted| wanted == "long")
}

/// Whether the long ones are to run too; says so in the line that is counted, if not.
fn long(test: &str) -> bool {
    let wanted = all_faults();
    if !wanted {
        println!("SKIPPED {test}: it takes minutes; set GATELOG_FAULTS=long");
    }
    wanted
}
