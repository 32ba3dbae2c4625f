//! A site under load: real processes, a simulated forge, executors that run nothing, and thousands who look.
//!
//! First 2,000 builds are brought to run and 5,000 pages to follow the queues. Then more and more changes come in, each
//! with one job that is over at once, until the way from a push to the end of its item gets longer and longer; then so
//! many come in as did not, for a while, and everything is measured. On the embedded log (one process, builds are
//! processes that wait, without a sandbox) and on one real Kafka broker (a process for each role, workers that speak the
//! protocol and run nothing).
//!
//! `./dev bench serving`; further words pick `embedded` or `kafka`; `seconds=2` tries each rate for so long and measures
//! three times as long (8), `builds=200` and `pages=500` make it smaller, `rate=20` looks for no rate and takes this.
#![expect(clippy::print_stderr, reason = "a benchmark tells whoever runs it how far it is")]

mod figures;
mod forge;
mod limits;
mod load;
mod null;
mod pages;
mod stage;

use std::path::Path;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::scratch;
use gatelog_benches::server::{binary, memory_of};
use gatelog_benches::table::{Table, per_second, time};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use figures::{Figures, Moment};
use forge::{JOBS, Simulated};
use load::Load;
use pages::Pages;
use stage::{Stage, Workers};

/// How many times as long as a rate is tried the highest one is measured.
const MEASURED: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(600);

/// How much is asked for.
#[derive(Clone, Copy)]
struct Sizes {
    builds: usize,
    pages: usize,
    /// How long a rate is tried.
    step: Duration,
    /// The one rate, where it is not looked for.
    rate: Option<usize>,
}

fn wait(stage: &mut Stage, what: &str, mut look: impl FnMut() -> bool) -> Result<(), Failure> {
    stage.web()?.until(what, PATIENCE, |_| look().then_some(()))
}

/// Brings builds to run that last.
fn build(
    table: &mut Table,
    stage: &mut Stage,
    forge: &mut Simulated,
    pages: &Pages,
    builds: usize,
) -> Result<(), Failure> {
    let (began, before) = (Instant::now(), stage.taken()?);
    for _ in 0..builds / JOBS {
        forge.propose_lasting()?;
    }
    wait(stage, "all builds run", || pages.count("build-started") >= builds)?;
    let took = began.elapsed();
    let after = stage.taken()?;
    // The last is who loads.
    let spent: Duration =
        after.iter().zip(&before).rev().skip(1).map(|(now, then)| now.own.saturating_sub(then.own)).sum();
    let running = match &stage.workers {
        Workers::Null(null) => null.running(),
        Workers::Own(_) => pages.count("build-started") - pages.count("build-finished"),
    };
    table.row("builds that run", running.to_string(), String::new(), String::new(), "2,000");
    let each = time(spent / u32::try_from(builds)?.max(1));
    table.note("… brought to run in; processor time each", format!("{}; {each}", time(took)));
    Ok(())
}

/// Lets pages follow.
fn look(table: &mut Table, stage: &mut Stage, pages: &Pages, count: usize) -> Result<(), Failure> {
    let memory = |stage: &mut Stage| Ok::<u64, Failure>(memory_of(stage.web()?.pid())?.0);
    let (began, before) = (Instant::now(), memory(stage)?);
    pages.look(count)?;
    table.row("pages that follow", pages.connected().to_string(), String::new(), String::new(), "5,000");
    let took = began.elapsed();
    let each = memory(stage)?.saturating_sub(before) as f64 / count.max(1) as f64 / 1e3;
    table.note("… connected in; memory of the server each", format!("{}; {each:.1} kB", time(took)));
    Ok(())
}

fn run(table: &mut Table, stage: &mut Stage, forge: &mut Simulated, sizes: Sizes, limit: f64) -> Result<(), Failure> {
    let address = stage.web()?.address.clone();
    let pages = Pages::open(&address)?;
    wait(stage, "the configuration is in force", || pages.count("layout-activated") > 0)?;
    build(table, stage, forge, &pages, sizes.builds)?;
    look(table, stage, &pages, sizes.pages)?;
    pages.ask();

    let mut load = Load::new(forge, &pages);
    let held = match sizes.rate {
        Some(rate) => rate as f64,
        None => {
            let mut tried = Vec::new();
            let held = load.highest(sizes.step, |rate, found| {
                let how = if found.flat { "held" } else { "not held" };
                eprintln!("{rate:.1} changes/s: {how} with {:.0} under way", found.under_way);
                tried.push(format!("{rate:.1} ({:.0}{})", found.under_way, if found.flat { "" } else { ", not held" }));
            })?;
            table.note("changes a second tried (under way then)", tried.join(", "));
            held
        }
    };

    pages.forget();
    let before = Moment::now(stage, &pages)?;
    let tried = load.propose(held, sizes.step * MEASURED)?;
    let after = Moment::now(stage, &pages)?;
    let how = if tried.flat { "held with flat lag" } else { "which is not held for so long" };
    table.row(&format!("changes a second, {how}"), format!("{held:.1}"), String::new(), String::new(), "");
    let way = Duration::from_secs_f64(tried.under_way / held);
    table.note("… a change is under way for (mean)", time(way));
    Figures { before, after, pages: &pages, limit }.tell(table);
    table.note("pages that were lost on the way", pages.lost().to_string());
    load.drain()
}

/// One log: everything set up, loaded, measured, taken down.
fn on(log: &str, binary: &Path, sizes: Sizes) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(scratch(env!("CARGO_TARGET_TMPDIR")))?;
    let root = dir.path();
    let kafka = log == "kafka";
    eprintln!("{log}: making the forge");
    let notify = stage::notify(root, kafka);
    std::fs::create_dir_all(&notify)?;
    let mut forge = Simulated::make(&root.join("forge"), &notify, sizes.builds / JOBS)?;
    let slots = sizes.builds + sizes.builds / 4;
    let stage = match kafka {
        true => Stage::kafka(binary, root, slots, sizes.builds)?,
        false => Stage::embedded(binary, root, slots)?,
    };
    let mut stage = match stage {
        Ok(stage) => stage,
        Err(missing) => {
            eprintln!("SKIPPED serving on {log}: {missing}");
            return Ok(());
        }
    };
    let what = if kafka { "one Kafka broker, a process for each role" } else { "the embedded log, one process" };
    let mut table = Table::new(&format!("Under load: {what}"));
    let (of, limit) = match &stage.broker {
        Some((broker, _)) => ("transactions of one record on the same broker", limits::transactions(broker)?),
        None => ("records written and synced on the same disk", limits::synced(root)?),
    };
    table.note(&format!("{of}, one after the other"), per_second(limit));
    let ran = run(&mut table, &mut stage, &mut forge, sizes, limit);
    // What was found before it went wrong is told, too.
    table.print();
    ran
}

/// What a word of the command line sets.
fn given(words: &[String], name: &str) -> Option<usize> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let sizes = Sizes {
        builds: given(&words, "builds").unwrap_or(2_000),
        pages: given(&words, "pages").unwrap_or(5_000),
        step: Duration::from_secs(given(&words, "seconds").unwrap_or(8).max(1) as u64),
        rate: given(&words, "rate"),
    };
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let binary = binary()?;
    let picked: Vec<&str> =
        ["embedded", "kafka"].into_iter().filter(|log| words.iter().any(|word| word == log)).collect();
    let logs = if picked.is_empty() { vec!["embedded", "kafka"] } else { picked };
    for log in logs {
        on(log, &binary, sizes)?;
    }
    Ok(())
}
