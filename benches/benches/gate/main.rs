//! A gate as a whole: changes through an independent and a dependent pipeline, and gate resets, in a real site on the
//! durable log with real layouts, freezes and merges. Forge and executor are faked, as `measure_throughput.py` fakes
//! them for Zuul, and the configuration is the same. `benches/peers/gate.py` runs both in turns.
//!
//! Beside each: the very merges that the site asked for and the states of repositories that its freezes read, once more on a
//! copy of the repositories with nothing around them. Measured is the processor time of the whole process and of every git it ran.
//!
//! The log is on the disk that `GATELOG_BENCH_DIR` names, repositories are where `GATELOG_BENCH_REPOSITORIES` says.
//!
//! `GATELOG_BENCH_THREADS` tells what each thread took.
//!
//! What is run can be named: `dependent:100 reset:20 independent:100 merges:20`.
#![expect(clippy::print_stderr, reason = "a benchmark tells whoever runs it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::{Took, process_cpu, scratch, threads_cpu};
use gatelog_benches::table::{Table, time, times};
use gatelog_effects::{prepare, review as submitting};
use gatelog_event_log::{MemoryBlobs, Offset};
use gatelog_merging::{
    BranchKey, FileFilter, FrozenBase, MergeItem, MergeMode, Mirrors, MirrorsConfig, PrepareOutcome as Merge,
    PrepareRequest, ProjectKey,
};
use gatelog_record::draft::gate::{BuildResult, PrepareOutcome, SubmitOutcome};
use gatelog_record::event::GateEvent;

use review::{CONNECTION, PROJECT, Review};
use site::{Site, configuration, repositories};

#[path = "../../../services/gatelog/src/clock.rs"]
#[expect(dead_code, reason = "the time of the log is the server's to know")]
mod clock;
mod review;
#[path = "../../../services/gatelog/src/routing.rs"]
#[expect(dead_code, unused_imports, reason = "its tests come along, without what runs them")]
mod routing;
mod site;
#[path = "../../../services/gatelog/src/tenants.rs"]
#[expect(dead_code, reason = "what its tenants say is the server's to read")]
#[cfg_attr(test, expect(unused_imports, reason = "its tests come along, without what runs them"))]
mod tenants;
mod workers;

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is run when nothing is named.
const ALL: [&str; 8] = [
    "independent:100",
    "dependent:20",
    "dependent:50",
    "dependent:100",
    "dependent:200",
    "reset:20",
    "reset:100",
    "merges:20",
];
/// Files of the project.
const FILES: usize = 20;
/// Files of the large one.
const MANY: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// All in an independent pipeline.
    Independent,
    /// All in a dependent pipeline, the window as large.
    Dependent,
    /// The same, and the first of all fails.
    Reset,
    /// Merges only, one request for each change that lists all ahead of it.
    Merges,
}

impl Story {
    fn read(text: &str) -> Result<(Story, usize), Failure> {
        let (name, count) = text.split_once(':').ok_or_else(|| format!("{text:?}: say dependent:100, or such"))?;
        let story = match name {
            "independent" => Story::Independent,
            "dependent" => Story::Dependent,
            "reset" => Story::Reset,
            "merges" => Story::Merges,
            _ => return Err(format!("nobody knows {name:?}: independent, dependent, reset, merges").into()),
        };
        Ok((story, count.parse()?))
    }
}

/// What a part of a story took.
struct Part {
    name: &'static str,
    took: Took,
    /// For how many changes.
    changes: usize,
    /// The merger's work alone.
    merges: Took,
    /// How many events the gate decided, and what the log wrote.
    events: usize,
    bytes: u64,
    syncs: u64,
}

/// The processor time of everything.
fn measured<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<(Took, T), Failure> {
    let (cpu, began) = (process_cpu()?, Instant::now());
    let made = run()?;
    let wall = began.elapsed();
    Ok((Took { wall, cpu: process_cpu()?.saturating_sub(cpu) }, made))
}

fn main() -> Result<(), Failure> {
    let named: Vec<String> = std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    let named = if named.is_empty() { ALL.map(str::to_owned).to_vec() } else { named };
    let mut table = Table::new(&format!(
        "Changes through a whole gate, for each (limit: the same work of the merger, nothing else; processor time; {FILES} files)"
    ));
    let mut grown: Vec<(usize, Duration)> = Vec::new();
    for name in named {
        let (story, changes) = Story::read(&name)?;
        eprintln!("{name} …");
        if story == Story::Merges {
            merges(&mut table, changes)?;
            continue;
        }
        let parts = play(story, changes)?;
        let mut whole = (Took::default(), Took::default());
        for part in &parts {
            row(&mut table, &format!("{name}, {}", part.name), part.took, part.merges, part.changes);
            let each = |count: usize| count / part.changes.max(1);
            table.note(
                &format!("{name}, {}: events of the gate, log, syncs", part.name),
                format!(
                    "{}, {} kB, {:.1}",
                    each(part.events),
                    part.bytes / 1000 / part.changes as u64,
                    part.syncs as f64 / part.changes as f64
                ),
            );
            for (sum, more) in [(&mut whole.0, part.took), (&mut whole.1, part.merges)] {
                sum.cpu += more.cpu;
                sum.wall += more.wall;
            }
        }
        if story != Story::Reset {
            row(&mut table, &format!("{name}, whole"), whole.0, whole.1, changes);
        }
        if story == Story::Dependent {
            grown.push((changes, whole.0.cpu / u32::try_from(changes)?));
        }
    }
    if let Some((least, first)) = grown.first().copied() {
        for (window, each) in &grown {
            let ratio = times(each.as_secs_f64() / first.as_secs_f64());
            table.row(
                &format!("a change at window {window} beside one at {least}"),
                time(*each),
                time(first),
                ratio,
                "1×",
            );
        }
    }
    table.print();
    Ok(())
}

fn row(table: &mut Table, what: &str, took: Took, merges: Took, changes: usize) {
    let each = |whole: Duration| time(whole / u32::try_from(changes.max(1)).unwrap_or(u32::MAX));
    let ratio = took.cpu.as_secs_f64() / merges.cpu.as_secs_f64().max(1e-9);
    let (limit, ratio) =
        if merges.cpu.is_zero() { (String::new(), String::new()) } else { (each(merges.cpu), times(ratio)) };
    let aim = if limit.is_empty() { "" } else { "3×" };
    table.row(what, format!("{} (wall {})", each(took.cpu), each(took.wall)), limit, ratio, aim);
}

// ---- stories ----

fn play(story: Story, changes: usize) -> Result<Vec<Part>, Failure> {
    let room = tempfile::tempdir_in(scratch(env!("CARGO_TARGET_TMPDIR")))?;
    let files = configuration(changes);
    let shed = shed(room.path())?;
    let made = |name: &str| Review::new(&shed.path().join(name), &files, FILES, changes);
    let site = Site::start(room.path(), &shed.path().join("mirrors"), made("forge")?)?;
    let copy = Arc::new(made("copy")?);
    let again = repositories(&shed.path().join("again"), Arc::clone(&copy), Arc::new(MemoryBlobs::new()))?;
    let (_, mut place) = site.events(Offset(0))?;
    let mut parts = Vec::new();
    let mut part = |name, changes, run: &mut dyn FnMut() -> Result<(), Failure>| -> Result<(), Failure> {
        let before = site.stats();
        let own = std::process::id();
        let threads = std::env::var_os("GATELOG_BENCH_THREADS").map(|_| threads_cpu(own)).transpose()?;
        let (took, ()) = measured(run)?;
        let after = site.stats();
        if let Some(before) = threads {
            tell_threads(name, changes, &before, &threads_cpu(own)?);
        }
        let (events, next) = site.events(place)?;
        place = next;
        let (merges, ()) = measured(|| merge_again(&again, &events))?;
        let (bytes, syncs) = (after.bytes - before.bytes, after.syncs - before.syncs);
        parts.push(Part { name, took, changes, merges, events: events.len(), bytes, syncs });
        Ok(())
    };
    let review = Arc::clone(&site.review);
    let events = (1..=changes)
        .map(|number| if story == Story::Independent { review.proposed(number) } else { review.approved(number) })
        .collect::<Result<Vec<_>, _>>()?;
    part("until all builds run", changes, &mut || {
        site.intake(events.clone())?;
        site.wait("all builds to run", || site.workers.begun() >= changes)
    })?;
    let mut merging = changes;
    if story == Story::Reset {
        merging -= 1;
        let first = site.build_of(1)?;
        part("first fails until all behind run again", merging, &mut || {
            site.workers.end(first, BuildResult::Failure)?;
            site.wait("all behind to run again", || site.workers.begun() >= changes + merging)
        })?;
    }
    part("let go until all are reported", merging, &mut || {
        site.workers.let_go();
        site.wait("all to be reported", || review.told().success >= merging && site.is_empty())
    })?;
    let merged = if story == Story::Independent { 0 } else { merging };
    if review.merged() != merged || copy.merged() != merged {
        return Err(format!("{} and {} changes are merged, not {merged}", review.merged(), copy.merged()).into());
    }
    Ok(parts)
}

/// What each thread took, for each change, the most first.
fn tell_threads(name: &str, changes: usize, before: &BTreeMap<String, Duration>, after: &BTreeMap<String, Duration>) {
    let spent = |thread: &str, now: Duration| now.saturating_sub(before.get(thread).copied().unwrap_or_default());
    let mut all: Vec<(Duration, &str)> =
        after.iter().map(|(thread, now)| (spent(thread, *now), thread.as_str())).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let changes = u32::try_from(changes.max(1)).unwrap_or(u32::MAX);
    for (spent, thread) in all.into_iter().filter(|(spent, _)| !spent.is_zero()) {
        eprintln!("  {name}: {thread}: {}", time(spent / changes));
    }
}

/// Where repositories are: `GATELOG_BENCH_REPOSITORIES`, or beside the log.
fn shed(room: &Path) -> Result<tempfile::TempDir, Failure> {
    let place = std::env::var_os("GATELOG_BENCH_REPOSITORIES").map_or_else(|| room.to_owned(), PathBuf::from);
    Ok(tempfile::tempdir_in(place)?)
}

/// What was asked of the merger, in the same order.
fn merge_again(repositories: &gatelog_effects::git::Repositories, events: &[GateEvent]) -> Result<(), Failure> {
    for event in events {
        match event {
            GateEvent::PrepareRequested(wanted) => match prepare::prepare(repositories, wanted) {
                PrepareOutcome::Merged(_) => {}
                other => return Err(format!("another merge than before: {other:?}").into()),
            },
            // Zuul's merger reads the state of repositories with the merge.
            GateEvent::FreezeWanted(wanted) => {
                for project in &wanted.projects {
                    let project = BTreeSet::from([repositories.key(&project.connection, &project.project)?]);
                    repositories.mirrors.repo_state(&project, &BTreeMap::new(), &BTreeMap::new())?;
                }
            }
            GateEvent::SubmitRequested(wanted) => match submitting::submit(repositories, wanted, || None) {
                SubmitOutcome::Merged => {}
                other => return Err(format!("another merge than before: {other:?}").into()),
            },
            _ => {}
        }
    }
    Ok(())
}

// ---- merges in a larger repository ----

/// As `measure_merger.py`: a fetch and a request for each change, which lists all ahead of it.
fn merges(table: &mut Table, changes: usize) -> Result<(), Failure> {
    let room = shed(&scratch(env!("CARGO_TARGET_TMPDIR")))?;
    let review = Review::new(&room.path().join("forge"), &configuration(changes), MANY, changes)?;
    let (mirrors, project) = (open(room.path())?, ProjectKey::new(CONNECTION, PROJECT));
    mirrors.set_source(&project, &room.path().join("forge").join(format!("{PROJECT}.git")).to_string_lossy())?;
    let (first, fetched) = measured(|| Ok(mirrors.fetch(&project, &[])?))?;
    let tip = fetched.branches.get("master").ok_or("there is no branch")?;
    let bases = vec![FrozenBase { branch: BranchKey::new(project.clone(), "master"), commit: tip.clone() }];
    let items = review.items(&project, MergeMode::from_name("merge-resolve").ok_or("no such mode")?);
    let (took, ()) = measured(|| {
        for count in 1..=changes {
            mirrors.fetch(&project, &[])?;
            let items: Vec<MergeItem> = items.iter().take(count).cloned().collect();
            let (id, bases, files) = (format!("request-{count}"), bases.clone(), FileFilter::none());
            match mirrors.prepare(&PrepareRequest { id, items, bases, files })? {
                Merge::Merged(_) => {}
                Merge::Conflict(conflict) => return Err(conflict.message.into()),
            }
        }
        Ok(())
    })?;
    let what = format!("merges:{changes}");
    row(table, &format!("{what}, {MANY} files: the first fetch"), first, Took::default(), 1);
    row(table, &format!("{what}, {MANY} files: a change"), took, Took::default(), changes);
    row(
        table,
        &format!("{what}, {MANY} files: an item of a request"),
        took,
        Took::default(),
        changes * (changes + 1) / 2,
    );
    Ok(())
}

fn open(room: &Path) -> Result<Mirrors, Failure> {
    Ok(Mirrors::open(MirrorsConfig::new(room.join("mirrors")))?)
}
