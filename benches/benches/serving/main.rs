//! A site under load: real processes, a simulated forge, executors that run nothing, and thousands who look.
//!
//! First 2,000 builds are brought to run and 5,000 pages to follow the queues. Then more and more changes come in, each
//! with one job that is over at once, until the way from a push to the end of its item gets longer and longer; then so
//! many come in as did not, for a while, and everything is measured. On the embedded log (one process, builds are
//! processes that wait, without a sandbox) and on one real Kafka broker (a process for each role, workers that speak the
//! protocol and run nothing).
//!
//! `./dev bench serving`; further words pick `embedded` or `kafka`; `builds=200` and `pages=500` make it smaller.
#![expect(clippy::print_stderr, reason = "a benchmark tells whoever runs it how far it is")]

mod forge;
mod null;
mod pages;
mod stage;

use std::path::Path;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::scratch;
use gatelog_benches::server::binary;
use gatelog_benches::table::{Table, time};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use forge::{JOBS, Simulated};
use pages::Pages;
use stage::{Stage, Workers};

/// How long a rate is tried.
const STEP: Duration = Duration::from_secs(12);
/// How long the highest rate that was held is measured.
const HOLD: Duration = Duration::from_secs(45);
/// The first rate, in changes a second.
const FIRST: f64 = 2.0;
/// How much higher the next rate is.
const FACTOR: f64 = 1.6;
const PATIENCE: Duration = Duration::from_secs(600);

/// How much is asked for.
#[derive(Clone, Copy)]
struct Sizes {
    builds: usize,
    pages: usize,
}

/// Changes under way, and what has become of them.
struct Load<'a> {
    forge: &'a mut Simulated,
    pages: &'a Pages,
    proposed: usize,
    /// Items that had left before the first of these changes.
    before: usize,
}

impl Load<'_> {
    /// Changes proposed whose items have not left.
    fn under_way(&self) -> usize {
        (self.proposed + self.before).saturating_sub(self.pages.count("item-dequeued"))
    }

    /// Proposes so many a second for a while. Says whether no more were under way in the second half than in the first,
    /// and how many were.
    fn propose(&mut self, rate: f64, lasts: Duration) -> Result<(bool, f64), Failure> {
        let (began, before) = (Instant::now(), self.proposed);
        let (mut halves, mut looked) = ([Vec::new(), Vec::new()], Duration::ZERO);
        while began.elapsed() < lasts {
            let due = (began.elapsed().as_secs_f64() * rate) as usize;
            while self.proposed - before < due {
                self.forge.propose_quick()?;
                self.proposed += 1;
            }
            // The first fifth fills the way.
            if began.elapsed() >= lasts / 5 && began.elapsed() - looked >= Duration::from_millis(200) {
                looked = began.elapsed();
                let half = usize::from(looked >= lasts * 3 / 5);
                if let Some(half) = halves.get_mut(half) {
                    half.push(self.under_way() as f64);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let [first, second] = halves.map(|half| half.iter().sum::<f64>() / half.len().max(1) as f64);
        // More than four seconds' worth under way is no flat lag, however slowly it grows.
        Ok((second <= first * 1.25 + 3.0 && second <= rate * 4.0, second))
    }

    /// Waits until nothing is under way.
    fn drain(&self) -> Result<(), Failure> {
        let began = Instant::now();
        while self.under_way() > 0 {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} changes never come to an end", self.under_way()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn wait(stage: &mut Stage, what: &str, mut look: impl FnMut() -> bool) -> Result<(), Failure> {
    stage.web()?.until(what, PATIENCE, |_| look().then_some(()))
}

fn run(table: &mut Table, stage: &mut Stage, forge: &mut Simulated, sizes: Sizes) -> Result<(), Failure> {
    let address = stage.web()?.address.clone();
    let pages = Pages::open(&address)?;
    wait(stage, "the configuration is in force", || pages.count("layout-activated") > 0)?;

    // Builds that last.
    let (began, before) = (Instant::now(), stage.taken()?);
    for _ in 0..sizes.builds / JOBS {
        forge.propose_lasting()?;
    }
    wait(stage, "all builds run", || pages.count("build-started") >= sizes.builds)?;
    let spent: Duration = stage.taken()?.iter().zip(&before).map(|(now, then)| now.1.saturating_sub(then.1)).sum();
    let running = match &stage.workers {
        Workers::Null(null) => null.running(),
        Workers::Own => pages.count("build-started") - pages.count("build-finished"),
    };
    let each = time(spent / u32::try_from(sizes.builds)?.max(1));
    table.row("builds that run", running.to_string(), String::new(), String::new(), "2,000");
    table.note("… brought to run in, processor time each", format!("{}, {each}", time(began.elapsed())));

    let began = Instant::now();
    pages.look(sizes.pages)?;
    table.row("pages that follow", pages.connected().to_string(), String::new(), String::new(), "5,000");
    table.note("… connected in", time(began.elapsed()));

    let mut load = Load { forge, pages: &pages, proposed: 0, before: pages.count("item-dequeued") };
    let (mut rate, mut held) = (FIRST, 0.0);
    let mut tried = Vec::new();
    loop {
        let (flat, under_way) = load.propose(rate, STEP)?;
        eprintln!("{rate:.1} changes/s: {} with {under_way:.0} under way", if flat { "held" } else { "not held" });
        tried.push(format!("{rate:.1} ({under_way:.0})"));
        load.drain()?;
        if !flat {
            break;
        }
        held = rate;
        rate *= FACTOR;
    }
    table.note("changes a second tried (under way then)", tried.join(", "));
    if held == 0.0 {
        return Err("not even the lowest rate is held".into());
    }

    pages.forget();
    let (before, threads, events) = (stage.taken()?, stage.threads()?, pages.events());
    let began = Instant::now();
    let (flat, _) = load.propose(held, HOLD)?;
    let lasted = began.elapsed();
    let (after, threads_after, counted) = (stage.taken()?, stage.threads()?, pages.events() - events);
    let (staleness, (asked, failed)) = (pages.staleness(), pages.asked());
    let how = if flat { "held with flat lag" } else { "held for a short time only" };
    table.row(&format!("changes a second, {how}"), format!("{held:.1}"), String::new(), String::new(), "");
    let rate = counted as f64 / lasted.as_secs_f64();
    table.row("… events of the gate a second", format!("{rate:.0}"), String::new(), String::new(), "500");
    for (name, at, aim) in [("half of all", 0.5, ""), ("99 of 100", 0.99, "1 s"), ("the longest", 1.0, "")] {
        table.row(
            &format!("from an event to a page, {name}"),
            time(staleness.delays.at(at)),
            String::new(),
            String::new(),
            aim,
        );
    }
    table.note("messages to pages a second", format!("{:.0}", staleness.messages as f64 / lasted.as_secs_f64()));
    table.row("the API, 99 of 100", time(asked.at(0.99)), String::new(), String::new(), "200 ms");
    table.note(
        "the API, half of all; the longest; not answered well",
        format!("{}; {}; {failed}", time(asked.median()), time(asked.at(1.0))),
    );
    for ((name, now, memory), (_, then, _)) in after.iter().zip(&before) {
        let cores = now.saturating_sub(*then).as_secs_f64() / lasted.as_secs_f64();
        let aim = if name == "all roles" { "2,147 MB" } else { "" };
        table.row(
            &format!("{name}: cores, memory"),
            format!("{cores:.2}, {} MB", memory / 1_000_000),
            String::new(),
            String::new(),
            aim,
        );
    }
    for (name, now) in &threads_after {
        let then = threads.iter().find(|(known, _)| known == name).map_or(Duration::ZERO, |(_, then)| *then);
        let cores = now.saturating_sub(then).as_secs_f64() / lasted.as_secs_f64();
        if cores >= 0.005 {
            table.note(&format!("… of these, threads `{name}`"), format!("{cores:.2}"));
        }
    }
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
    run(&mut table, &mut stage, &mut forge, sizes)?;
    table.print();
    Ok(())
}

/// What a word of the command line sets.
fn given(words: &[String], name: &str, otherwise: usize) -> usize {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok()).unwrap_or(otherwise)
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let sizes = Sizes { builds: given(&words, "builds", 2_000), pages: given(&words, "pages", 5_000) };
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
