//! A site that has run for long: a history in OpenDev's proportions on a durable log, and what it costs to start on it,
//! to look at any past moment of it, to fold it, to make its projections anew, to verify it.
//!
//! `./dev bench history` makes a million events, `./dev bench history 10000000` ten; what was made is kept (below
//! `GATELOG_BENCH_DIR`, else below `GATELOG_CACHE`) and used again. Further words pick what is measured: `read`, `fold`,
//! `rebuild`, `past`, `start`, `verify`; without any, everything is.
#![expect(clippy::print_stderr, reason = "a benchmark tells whoever runs it how far it is")]

mod past;
mod read;
mod rebuilt;
mod served;
mod sizes;
mod started;

use std::path::PathBuf;
use std::sync::Arc;

use gatelog_benches::Failure;
use gatelog_benches::opendev::{CAPACITY, GATE, Made, OpenDev, tenant_file};
use gatelog_benches::table::{Table, per_second};
use gatelog_log_embedded::{EmbeddedLog, ReaderOptions};
use gatelog_writer::registry_digest;

/// As in the binary: to decide and to fold is to make and drop many small things.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Raised whenever the same number of events would be another history.
const GENERATOR: u32 = 2;
/// How many events without a word about it.
const EVENTS: u64 = 1_000_000;

/// A history that was made, as a site's directory.
struct History {
    site: PathBuf,
    made: Made,
}

impl History {
    /// Its log, for reading.
    fn log(&self) -> Result<Arc<EmbeddedLog>, Failure> {
        Ok(Arc::new(EmbeddedLog::open_reader(self.site.join("log"), ReaderOptions::default())?))
    }

    fn events(&self) -> u64 {
        self.made.gate + self.made.capacity
    }

    /// The files of the log, and how long they are.
    fn segments(&self) -> Result<Vec<(PathBuf, u64)>, Failure> {
        sizes::files(&self.site.join("log").join("segments"))
    }
}

fn home() -> PathBuf {
    let given = std::env::var_os("GATELOG_BENCH_DIR").map(PathBuf::from);
    let kept = || Some(PathBuf::from(std::env::var_os("GATELOG_CACHE")?).join("benches"));
    given.or_else(kept).unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into())
}

/// The history of so many events: the one that was kept, or a new one.
fn history(events: u64) -> Result<History, Failure> {
    let shapes: String = registry_digest().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let site = home().join(format!("history-{events}-v{GENERATOR}-{shapes}"));
    let told = site.join("made.json");
    if let Ok(text) = std::fs::read_to_string(&told) {
        return Ok(History { site, made: serde_json::from_str(&text)? });
    }
    if site.exists() {
        std::fs::remove_dir_all(&site)?;
    }
    eprintln!("making {events} events in {}", site.display());
    std::fs::create_dir_all(&site)?;
    let made = OpenDev::make(&site.join("log"), events, |progress| eprintln!("{progress}"))?;
    std::fs::write(site.join("tenants.yaml"), tenant_file()?)?;
    std::fs::write(&told, serde_json::to_string(&made)?)?;
    Ok(History { site, made })
}

fn about(history: &History, table: &mut Table) -> Result<(), Failure> {
    let made = &history.made;
    let log: u64 = history.segments()?.iter().map(|(_, size)| size).sum();
    table.note("events of the gate, of capacity", format!("{}, {}", made.gate, made.capacity));
    table.note("inputs of both", made.inputs.to_string());
    table.note("days of the site, builds a day", format!("{:.1}, {:.0}", made.days, made.attempts as f64 / made.days));
    table.note("attempts that run at its end", made.running.to_string());
    table
        .note("log: segments, an event with its inputs", format!("{}, {} B", mega(log), log / history.events().max(1)));
    table.note("made at", per_second(history.events() as f64 / made.seconds.max(1e-9)));
    let blobs = sizes::below(&history.site.join("log").join("blobs"))?;
    table.note("blobs", format!("{} files, {}", blobs.files, mega(blobs.bytes)));
    Ok(())
}

/// Bytes in millions.
fn mega(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 10_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let events = words.iter().find_map(|word| word.parse().ok()).unwrap_or(EVENTS);
    let parts: Vec<&String> = words.iter().filter(|word| word.parse::<u64>().is_err()).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| *word == part);
    let history = history(events)?;
    let mut table = Table::new(&format!("A history of {events} events in OpenDev's proportions"));
    about(&history, &mut table)?;
    let measured = measure(&history, &mut table, wants);
    // What was measured before something failed may have taken an hour.
    table.print();
    measured
}

fn measure(history: &History, table: &mut Table, wants: impl Fn(&str) -> bool) -> Result<(), Failure> {
    if wants("read") {
        read::measure(history, table)?;
    }
    if wants("fold") {
        read::fold(history, table)?;
    }
    if wants("rebuild") || !rebuilt::is_there(history) {
        rebuilt::measure(history, table)?;
    }
    if wants("past") {
        past::measure(history, table)?;
    }
    if wants("start") {
        started::measure(history, table)?;
    }
    if wants("verify") {
        read::verify(history, table, &home())?;
    }
    Ok(())
}

/// Both partitions with a name for people.
const PARTITIONS: [(gatelog_record::Partition, &str); 2] = [(GATE, "gate"), (CAPACITY, "capacity")];
