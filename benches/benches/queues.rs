//! Decisions alone: the gate's rules behind the real shell on a log in memory, with nothing to merge.
//!
//! What a change costs with few and with many of them in one tenant, all put in at once; and what it takes until all is
//! asked for again when the first of a dependent queue fails. Only deciding, folding and writing down is measured.
#![expect(clippy::print_stderr, reason = "a benchmark tells whoever runs it")]

use std::collections::BTreeMap;

use gatelog_benches::Failure;
use gatelog_benches::measure::Took;
use gatelog_benches::site::{Pace, Site};
use gatelog_benches::table::{Table, time, times};

/// A dependent queue has no larger window.
const WINDOW: usize = 200;
const PACE: Pace = Pace { seconds_between: 90, failing: 0, again: 0 };

fn configuration(jobs: usize, window: usize) -> String {
    let names: Vec<String> = (0..jobs).map(|job| format!("job{job}")).collect();
    let all: String = names.iter().map(|name| format!("- job: {{name: {name}}}\n")).collect();
    let names = names.join(", ");
    format!(
        "
- pipeline:
    name: check
    manager: independent
    trigger: {{forge: [{{event: change-proposed}}]}}
    success: {{forge: {{}}}}
    failure: {{forge: {{}}}}
- pipeline:
    name: gate
    manager: dependent
    window: {window}
    window-floor: {window}
    trigger: {{forge: [{{event: change-approved}}]}}
    success: {{forge: {{}}}}
    failure: {{forge: {{}}}}
- job: {{name: base, parent: null, run: playbooks/run.yaml}}
{all}
- project: {{name: service, check: {{jobs: [{names}]}}, gate: {{jobs: [{names}]}}}}
"
    )
}

/// What was spent on something.
fn spent(site: &mut Site, run: impl FnOnce(&mut Site) -> Result<(), Failure>) -> Result<Took, Failure> {
    let before = site.spent;
    run(site)?;
    Ok(Took { wall: site.spent.wall - before.wall, cpu: site.spent.cpu - before.cpu })
}

/// So many changes, all put in at once, until all builds run that may.
fn filled(pipeline: &str, changes: usize, jobs: usize) -> Result<(Site, Took), Failure> {
    let window = changes.min(WINDOW);
    let mut site = Site::with(PACE, &configuration(jobs, window))?;
    let took = spent(&mut site, |site| {
        for number in 0..changes {
            if pipeline == "check" {
                site.propose_new("service", number)?;
            } else {
                let name = site.change("service", number);
                site.approve(&name)?;
            }
        }
        site.settle(true)
    })?;
    let expected = jobs * if pipeline == "check" { changes } else { window };
    if site.running() != expected {
        return Err(format!("{} builds run, not {expected}", site.running()).into());
    }
    Ok((site, took))
}

/// What is run when nothing is named.
const ALL: [&str; 9] = [
    "independent:10",
    "independent:100",
    "independent:1000",
    "dependent:10",
    "dependent:50",
    "dependent:100",
    "dependent:1000",
    "reset:50",
    "reset:200",
];

fn main() -> Result<(), Failure> {
    let named: Vec<String> = std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    let named = if named.is_empty() { ALL.map(str::to_owned).to_vec() } else { named };
    let mut table = Table::new(&format!(
        "Decisions alone, with a log in memory (limit: with the fewest; processor time; window at most {WINDOW})"
    ));
    let mut least: BTreeMap<String, Took> = BTreeMap::new();
    for name in named {
        let (story, count) = name.split_once(':').ok_or_else(|| format!("{name:?}: say dependent:100, or such"))?;
        let count: usize = count.parse()?;
        let pipeline = if story == "independent" { "check" } else { "gate" };
        if !["independent", "dependent", "reset"].contains(&story) {
            return Err(format!("nobody knows {story:?}: independent, dependent, reset").into());
        }
        let (mut site, began) = filled(pipeline, count, if story == "reset" { 10 } else { 1 })?;
        let mut row = |part: &str, took: Took, over: usize, aim: &str| {
            let each = took.cpu / u32::try_from(over.max(1)).unwrap_or(u32::MAX);
            eprintln!("{name}: {part}: {}", time(each));
            let each = Took { wall: took.wall, cpu: each };
            let first = *least.entry(format!("{story} {part}")).or_insert(each);
            let ratio = times(each.cpu.as_secs_f64() / first.cpu.as_secs_f64());
            table.row(&format!("{name}, {part}"), time(each.cpu), time(first.cpu), ratio, aim);
        };
        row("a change until all builds run", began, count, "");
        if story == "reset" {
            let before = site.frames.len();
            let took = spent(&mut site, Site::reset)?;
            // Those of the first that did not fail run on.
            let expected = 10 * count - 1;
            if site.running() != expected {
                return Err(format!("{} builds run after the reset, not {expected}", site.running()).into());
            }
            row("until all is asked for again", took, 1, if count == 200 { "2 s" } else { "" });
            let events = site.frames.len() - before;
            table.note(&format!("{name}, the same by the clock; events"), format!("{}; {events}", time(took.wall)));
            continue;
        }
        let ended = spent(&mut site, Site::let_go)?;
        if !site.live().gate.items.rows.is_empty() {
            return Err("an item is left".into());
        }
        row("a change until all are reported", ended, count, "");
    }
    table.print();
    Ok(())
}
