//! `gatelog replay diff`: what differs between two moments.

use std::process::ExitCode;

use gatelog_replay::diff::{compare, cut_of, names_until, words};
use gatelog_replay::{Cut, Place};

use super::explain::paint;
use super::failure::Failure;
use super::output::Output;
use crate::cli::replay::DiffArgs;
use crate::cli::{Parts, SiteArgs};
use crate::show::{Style, clean};

/// Runs it.
pub fn run(parts: &Parts, site: &SiteArgs, args: &DiffArgs) -> Result<ExitCode, Failure> {
    let domains = parts.domains.replay();
    let site = site.directory("replay diff")?;
    let (log, _) = site.history()?;
    let comparison = compare(&domains, &log, &site.rungs(), args.from, args.to)?;
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&serde_json::to_value(&comparison).map_err(anyhow::Error::from)?)?
    } else {
        // Both moments' names: what has left by the second is told by its name, too.
        let mut cut: Cut = cut_of(&*log, args.from)?;
        for (partition, last) in cut_of(&*log, args.to)? {
            let known = cut.entry(partition).or_default();
            *known = (*known).max(last);
        }
        let names = names_until(&domains, &*log, &cut)?;
        let style = Style::of_stdout();
        let lines = words(&comparison, &names, args.all);
        let lines: Vec<String> = lines.into_iter().map(|(tone, text)| paint(style, tone, &clean(&text))).collect();
        out.lines(&lines)?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What the debugger and others take a place for: the event of the gate at or before it.
pub fn event_of(log: &dyn gatelog_event_log::Log, place: Place) -> Result<gatelog_record::EventRef, Failure> {
    let gate = gatelog_record::Partition { domain: gatelog_record::Domain::Gate, index: 0 };
    match place {
        Place::Event(event) => Ok(event),
        other => {
            let sequence = cut_of(log, other)?.get(&gate).copied().unwrap_or_default();
            Ok(gatelog_record::EventRef { partition: gate, sequence })
        }
    }
}
