//! What the kernel refuses to builds, and what it shares out among them.

use gatelog_executing::Network;

use super::{Facts, Finding, Level, not_ok, ok};

/// Fewer inotify instances than this stop tools that watch files.
const FEW_INSTANCES: u64 = 16;

/// Everything, where builds run in sandboxes.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    if facts.unsandboxed {
        return Vec::new();
    }
    let mut all = vec![system_calls(facts), network(facts)];
    all.extend(facts.inotify.map(|(part, whole)| inotify(facts, part, whole)));
    all
}

fn system_calls(facts: &Facts) -> Finding {
    const AT: (&str, &str) = ("executor", "system calls");
    if !facts.filters_calls {
        let found =
            "all of the kernel's are open to jobs: it has no seccomp filter, or gatelog none for this processor";
        return not_ok(Level::Warning, AT, found, "take a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or 64-bit ARM");
    }
    if facts.foreign_abi {
        let found =
            "those that no job needs are refused; to programs of the older processor sockets of all kinds are open";
        return not_ok(
            Level::Warning,
            AT,
            found,
            "remove foreign-abi from [executor] where no job runs 32-bit programs",
        );
    }
    ok(AT.0, AT.1, "those that no job needs are refused, and programs of another processor's")
}

fn network(facts: &Facts) -> Finding {
    match facts.network {
        Network::Host => ok(
            "executor",
            "network",
            "this host's: jobs reach what listens on its loopback; network = \"none\" in [executor] keeps them from it",
        ),
        Network::None => ok("executor", "network", "none: each build has a loopback of its own"),
    }
}

fn inotify(facts: &Facts, part: u64, whole: u64) -> Finding {
    const AT: (&str, &str) = ("executor", "inotify");
    let slots = facts.slots;
    let found = format!("{part} instances for each of {slots} builds, of {whole}");
    let wanted = FEW_INSTANCES.saturating_mul(u64::from(slots).saturating_add(1));
    if part.saturating_mul(u64::from(slots)) >= whole || part < FEW_INSTANCES {
        let cure = format!("sysctl fs.inotify.max_user_instances={wanted}, and a file in /etc/sysctl.d to keep it");
        return not_ok(Level::Warning, AT, found, cure);
    }
    ok(AT.0, AT.1, found)
}
