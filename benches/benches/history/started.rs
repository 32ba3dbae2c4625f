//! A real `gatelog serve` on the history, from its start to the first answer as of now; and its API asked for the past.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::Spread;
use gatelog_benches::opendev::GATE;
use gatelog_benches::server::{Server, binary, memory_of};
use gatelog_benches::table::{Table, time, times};
use gatelog_store::Layout;

use crate::{History, mega, past, rebuilt, served};

const ROUNDS: usize = 3;
const SAMPLES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// How a projection is found when the server starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// As it was left.
    Whole,
    /// Damaged: it is put back from the newest checkpoint.
    Checkpoint,
}

fn damage(root: &Path) -> Result<(), Failure> {
    let layout = Layout::new(&root.join("projections"), GATE);
    for schema in layout.schemas()? {
        std::fs::remove_file(layout.database(schema).join("CURRENT"))?;
    }
    Ok(())
}

/// Starts it; how long until it says where it is, until it answers as of now, and the server.
fn start(binary: &Path, root: &Path) -> Result<(Duration, Duration, Server), Failure> {
    let mut server = Server::start(binary, root, &[])?;
    let there = server.began.elapsed();
    server.until("reads are answered as of now", PATIENCE, |server| server.is_ready().then_some(()))?;
    let ready = server.began.elapsed();
    Ok((there, ready, server))
}

fn empty(binary: &Path, history: &History) -> Result<Duration, Failure> {
    let dir = tempfile::tempdir_in(&history.site)?;
    let config = "[web]\nlisten = \"127.0.0.1:0\"\n[connection.forge]\ndriver = \"git\"\nroot = \"forge\"\n\
                  canonical-hostname = \"review.opendev.example\"\n";
    std::fs::write(dir.path().join("gatelog.toml"), config)?;
    std::fs::create_dir(dir.path().join("forge"))?;
    let tenants = "- tenant:\n    name: none\n    source:\n      forge:\n        config-projects: [config]\n";
    std::fs::write(dir.path().join("tenants.yaml"), tenants)?;
    let (_, ready, _server) = start(binary, dir.path())?;
    Ok(ready)
}

/// Starts it on the history as it was left, and from a checkpoint; asks its API for the past.
pub fn measure(history: &History, table: &mut Table) -> Result<(), Failure> {
    let binary = binary()?;
    let mut limits = Vec::new();
    for _ in 0..ROUNDS {
        limits.push(empty(&binary, history)?);
    }
    let limit = Spread::new(limits).median();
    for (found, what) in [
        (Found::Whole, "start of a server, projections as they were left"),
        (Found::Checkpoint, "start of a server, the gate's projection from its newest checkpoint"),
    ] {
        let (mut readies, mut memory) = (Vec::new(), (0, 0));
        for _ in 0..ROUNDS {
            let site = served::site(history, &rebuilt::dense(history))?;
            if found == Found::Checkpoint {
                damage(site.path())?;
            }
            let (_, ready, server) = start(&binary, site.path())?;
            readies.push(ready);
            memory = memory_of(server.pid())?;
        }
        let readies = Spread::new(readies);
        let ratio = times(readies.median().as_secs_f64() / limit.as_secs_f64());
        table.row(&format!("{what} (limit: an empty site)"), time(readies.median()), time(limit), ratio, "5 s");
        table.note(
            &format!("{what}: the longest of {ROUNDS}; memory"),
            format!("{}; {}", time(readies.at(1.0)), mega(memory.0)),
        );
    }
    asked(history, &binary, table)
}

/// The status page's document of the past, by HTTP; and by `replay state` beside no server.
fn asked(history: &History, binary: &Path, table: &mut Table) -> Result<(), Failure> {
    let site = served::site(history, &rebuilt::home(history))?;
    let (_, _, server) = start(binary, site.path())?;
    let mut waited = Vec::new();
    for at in past::moments(history, 21, SAMPLES) {
        let began = Instant::now();
        let (status, answer) = server.get(&format!("/api/tenant/openstack/status?at={at}"))?;
        waited.push(began.elapsed());
        if status != 200 && !(status == 404 && at < 100) {
            return Err(format!("the past at {at}: {status} {answer}").into());
        }
    }
    let waited = Spread::new(waited);
    table.row(
        "API: the status of the largest tenant at a past moment, 95 of 100",
        time(waited.at(0.95)),
        String::new(),
        String::new(),
        "1 s",
    );
    table.note(
        "API: the same, half of all; the longest",
        format!("{}; {}", time(waited.median()), time(waited.at(1.0))),
    );
    let (now, most) = memory_of(server.pid())?;
    table.note("API: memory of the server then; the most it was", format!("{}; {}", mega(now), mega(most)));
    drop(server);
    let mut waited = Vec::new();
    for at in past::moments(history, 31, SAMPLES / 10) {
        let began = Instant::now();
        let done = Command::new(binary)
            .args(["replay", "state", "--at", &at.to_string(), "--tenant", "openstack", "--json", "--dir"])
            .arg(site.path())
            .stdout(Stdio::null())
            .output()?;
        waited.push(began.elapsed());
        if !done.status.success() {
            return Err(format!("replay state --at {at}: {}", String::from_utf8_lossy(&done.stderr)).into());
        }
    }
    let waited = Spread::new(waited);
    table.note(
        "replay state --at, a process each: half of all; the longest",
        format!("{}; {}", time(waited.median()), time(waited.at(1.0))),
    );
    Ok(())
}
