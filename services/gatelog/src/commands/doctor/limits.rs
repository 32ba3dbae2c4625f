//! Who keeps the limits of builds, and what is before their SSH agents.

use gatelog_executing::{ByteSize, NoCgroup, NoWall};

use crate::governors::Held;

use super::{Facts, Finding, Level, not_ok, ok};

pub(super) fn groups(facts: &Facts) -> Finding {
    const AT: (&str, &str) = ("executor", "control groups");
    let watch = watch(facts);
    match &facts.cgroup {
        Err(_) if facts.cgroup_off => {
            not_ok(Level::Warning, AT, format!("switched off; {watch}"), "set cgroup = \"auto\" in [executor]")
        }
        Err(NoCgroup { reason, cure }) => not_ok(Level::Warning, AT, format!("{reason}; {watch}"), cure),
        Ok(delegated) => {
            let place = delegated.directory.display();
            let missing = match (delegated.memory, delegated.processes) {
                (true, true) => {
                    let version = if delegated.version() == 1 { " (version 1)" } else { "" };
                    let found = format!("the kernel limits memory and processes of builds in {place}{version}");
                    return ok("executor", "control groups", found);
                }
                (true, false) => "pids",
                _ => "memory",
            };
            let cure = match delegated.version() {
                1 => format!("let gatelog write to the directory at the same place in the tree of {missing}"),
                _ => format!(
                    "delegate it too: Delegate=yes in the systemd unit, or +{missing} in cgroup.subtree_control above {place}"
                ),
            };
            not_ok(Level::Warning, AT, format!("{place} has no {missing} controller; {watch}"), cure)
        }
    }
}

/// Why an executor would take no builds on this host as it is now.
pub(super) fn governors(facts: &Facts) -> Vec<Finding> {
    const AT: (&str, &str) = ("executor", "governors");
    let one = |held: &Held| {
        let cure = match held.passing {
            true => "wait, or raise load-multiplier in [executor]",
            false => "see what it says: until then an executor takes no builds here",
        };
        not_ok(Level::Warning, AT, format!("{}: {}", held.code, held.detail), cure)
    };
    match facts.held.is_empty() {
        true => vec![ok(AT.0, AT.1, "there is enough of disk, inodes, memory and processors to take builds")],
        false => facts.held.iter().map(one).collect(),
    }
}

/// Who keeps the limits where the kernel does not, and what escapes him.
fn watch(facts: &Facts) -> String {
    let ends = "a watch in gatelog ends builds that use too much";
    let kept = facts.cgroup.as_ref().is_ok_and(|delegated| delegated.memory);
    match (kept || facts.limits.memory_bytes.is_none(), facts.root) {
        (true, _) => ends.to_owned(),
        (false, true) => format!("{ends}, a moment later, and does not see buffers of sockets and pipes"),
        // Only root may enter a sandbox to look for them.
        (false, false) => {
            format!("{ends}, a moment later, and does not see System V segments and buffers of sockets and pipes")
        }
    }
}

pub(super) fn agent(facts: &Facts) -> Finding {
    match &facts.ssh_agent {
        Some(path) => {
            ok("executor", "ssh agent", format!("{} for each build, behind a proxy with bounds", path.display()))
        }
        None => {
            let found = "there is no ssh-agent on PATH: builds have none, and those that are given keys fail";
            let cure = "install openssh-client (Fedora: openssh-clients)";
            not_ok(Level::Warning, ("executor", "ssh agent"), found, cure)
        }
    }
}

pub(super) fn wall(facts: &Facts) -> Finding {
    match &facts.wall {
        Ok(wall) => {
            let most = facts.limits.processes.map_or_else(String::new, |most| format!("{most} for each build, by "));
            ok("executor", "processes", format!("{most}{}", wall.text()))
        }
        Err(NoWall { reason, cure }) => {
            let found = format!("{reason}; a fork bomb may take this host before the watch has seen it");
            not_ok(Level::Warning, ("executor", "processes"), found, cure)
        }
    }
}

pub(super) fn memory(facts: &Facts) -> Finding {
    let at = ("executor", "memory");
    let slots = facts.slots;
    let Some(limit) = facts.limits.memory_bytes else {
        return not_ok(Level::Warning, at, "builds have no limit", "remove job-memory = \"none\" from [executor]");
    };
    let Some((total, _)) = facts.memory else {
        return ok("executor", "memory", format!("{} for each of {slots} builds", ByteSize(limit)));
    };
    let found = format!("{} for each of {slots} builds, of {}", ByteSize(limit), ByteSize(total));
    if limit.saturating_mul(u64::from(slots)) > total {
        let cure = "lower slots or job-memory in [executor], or give the host more memory: builds that all use what they may do not fit";
        return not_ok(Level::Warning, at, found, cure);
    }
    ok("executor", "memory", found)
}
