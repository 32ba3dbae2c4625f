//! `GATELOG_FAILPOINTS=area/step=3,…`: the process kills itself when it passes a step for the third time.
//!
//! Only in builds with debug assertions, for the tests that kill a site between any two steps. Steps are where
//! `failpoint::pass` is called.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gatelog_event_log::failpoint;

use crate::commands::failure::{Code, Failure};

/// The variable that says where to die.
const VARIABLE: &str = "GATELOG_FAILPOINTS";

/// How many passes are left of each step.
static LEFT: OnceLock<BTreeMap<String, AtomicU64>> = OnceLock::new();

/// Does as the environment says.
pub fn arm() -> Result<(), Failure> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let wanted = wanted(&text.to_string_lossy()).map_err(|message| {
        Failure::new(Code::Usage, format!("{VARIABLE}: {message}")).hint("write it as area/step=3,other/step=1")
    })?;
    // Once is enough for a process.
    let _ = LEFT.set(wanted);
    failpoint::install(passed);
    Ok(())
}

fn wanted(text: &str) -> Result<BTreeMap<String, AtomicU64>, String> {
    let mut wanted = BTreeMap::new();
    for one in text.split(',').filter(|one| !one.is_empty()) {
        let (name, count) = one.split_once('=').unwrap_or((one, "1"));
        let count = count.parse().ok().filter(|count| *count > 0);
        let count: u64 = count.ok_or_else(|| format!("{one:?} names no pass, counted from 1"))?;
        wanted.insert(name.to_owned(), AtomicU64::new(count));
    }
    Ok(wanted)
}

fn passed(name: &'static str) {
    let Some(left) = LEFT.get().and_then(|all| all.get(name)) else { return };
    // Below zero it goes round and never comes back to one.
    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
        // Whoever started this process reads it there. Nothing else is done any more, by any thread.
        let _ = std::io::stderr().write_all(format!("dies at {name}\n").as_bytes());
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_named_with_the_pass_they_are_meant_at() {
        let read = |text| wanted(text).map(|all| all.into_iter().map(|(n, c)| (n, c.into_inner())).collect::<Vec<_>>());
        assert_eq!(
            read("log/written=3,writer/decided"),
            Ok(vec![("log/written".into(), 3), ("writer/decided".into(), 1)])
        );
        assert_eq!(read(""), Ok(Vec::new()));
        for wrong in ["log/written=", "log/written=0", "log/written=often"] {
            assert!(read(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
