//! What the kernel counts for a user as a whole, and keeps for each namespace too: so a build gets a part of it.
//!
//! One build that takes all inotify instances of its user leaves none for the others, nor for gatelog. A user namespace
//! may have a limit of its own below that of the host, and so may an IPC namespace for System V segments, which are memory
//! that no process has to hold. The numbers are written by the process that enters the sandbox
//! (`plugins/run/gatelog_playbook.py`), while it has the sandbox's namespaces and still the host's `/proc`; a process of
//! the job sees them read-only.

use std::fs;

use crate::config::ExecutorConfig;

/// What programs that watch files need at least, such as one tool for tests or one editor.
const FEWEST_INSTANCES: u64 = 8;
const FEWEST_WATCHES: u64 = 1024;
/// Queues of messages and sets of semaphores; the kernel's own limits allow half a gigabyte of each.
const QUEUES: &str = "64";
const SEMAPHORES: &str = "250 32000 100 128";
/// Segments of shared memory.
const SEGMENTS: &str = "4096";

/// By user namespace, below `/proc/sys/user`.
const INSTANCES: &str = "user/max_inotify_instances";
const WATCHES: &str = "user/max_inotify_watches";

/// The limit of this host, as a process outside of all sandboxes reads it.
fn of_host(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

/// The part of one build where so many run at once, and one part is left.
fn part(whole: u64, slots: u32, fewest: u64) -> u64 {
    (whole / (u64::from(slots) + 1)).max(fewest).min(whole)
}

/// How many inotify instances a build may have here, and how many its user has. `None`: the kernel does not tell.
pub fn inotify_instances(slots: u32) -> Option<(u64, u64)> {
    of_host(INSTANCES).map(|whole| (part(whole, slots, FEWEST_INSTANCES), whole))
}

/// What a sandbox may have: names below `/proc/sys` and what is written there.
pub(crate) fn limits(config: &ExecutorConfig) -> Vec<(&'static str, String)> {
    let mut limits = Vec::new();
    for (name, fewest) in [(INSTANCES, FEWEST_INSTANCES), (WATCHES, FEWEST_WATCHES)] {
        limits.extend(of_host(name).map(|whole| (name, part(whole, config.slots, fewest).to_string())));
    }
    if let Some(bytes) = config.limits.tmp_bytes {
        // In pages, for all segments together.
        limits.push(("kernel/shmall", (bytes / rustix::param::page_size() as u64).to_string()));
    }
    limits.push(("kernel/shmmni", SEGMENTS.into()));
    limits.push(("kernel/msgmni", QUEUES.into()));
    limits.push(("kernel/sem", SEMAPHORES.into()));
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_share_what_their_user_has_and_one_part_stays() {
        assert_eq!(part(128, 3, 8), 32);
        assert_eq!(part(128, 100, 8), 8);
        assert_eq!(part(4, 100, 8), 4);
    }

    #[test]
    fn a_sandbox_has_as_much_in_shared_segments_as_in_one_of_its_directories_in_memory() {
        let mut config = ExecutorConfig::new("/b", "/l");
        config.limits.tmp_bytes = Some(64 << 20);
        let pages = (64 << 20) / rustix::param::page_size();
        assert!(limits(&config).contains(&("kernel/shmall", pages.to_string())));
        config.limits.tmp_bytes = None;
        assert!(!limits(&config).iter().any(|(name, _)| *name == "kernel/shmall"));
    }
}
