//! `gatelog replay …`: what can be asked of the past, and of a past that was otherwise.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gatelog_record::Stream;
use gatelog_replay::Place;
use gatelog_replay::explain::position;

use super::{At, ReplayVerifyArgs, StateArgs, parse_at};

/// Ways back in time.
#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// Show the queues as they were
    State(StateArgs),
    /// Say what differs between two moments: items, queues, jobs, builds, leases, nodes, layouts
    Diff(DiffArgs),
    /// Go through history event by event, forwards and back; commands are read from standard input
    Step(StepArgs),
    /// Decide the recorded inputs again with something changed, and say what would have been otherwise
    WhatIf(WhatIfArgs),
    /// Decide every recorded input again, make every layout again, and compare
    Verify(ReplayVerifyArgs),
}

/// `replay diff`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog replay diff 80 117 --dir /srv/ci               from event 80 of the gate to event 117",
    "  gatelog replay diff 2026-11-21T10:00:00Z now           since ten o'clock",
    "  gatelog replay diff capacity/0:12 capacity/0:13        what one event of capacity changed",
    "  gatelog replay diff 80 117 --json                      every row before and after, for programs"
))]
pub struct DiffArgs {
    /// The first moment: a sequence of gate.events, <domain>/<partition>:<sequence>, a time (RFC 3339), or now
    #[arg(value_name = "A", value_parser = parse_place)]
    pub from: Place,
    /// The second moment
    #[arg(value_name = "B", value_parser = parse_place)]
    pub to: Place,
    /// Also tell what writers keep for themselves: marks, timers, messages under way, ids taken lately
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `replay step`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog replay step --at 117 --dir /srv/ci             `help` lists what can be said",
    "  printf 'made\\nnext item\\ncauses\\n' | gatelog replay step --at 117      commands from a script",
    "  gatelog replay step --at capacity/0:31 --json < commands      one JSON document an answer"
))]
pub struct StepArgs {
    /// Where to begin: a sequence of gate.events, <domain>/<partition>:<sequence>, a time (RFC 3339), or now
    #[arg(long, value_name = "POSITION", value_parser = parse_place)]
    pub at: Place,
    /// Print JSON, one document for each command
    #[arg(long)]
    pub json: bool,
}

/// `replay what-if`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog replay what-if --dir /srv/ci --without intake:41               had that event never come",
    "  gatelog replay what-if --without 7,9                                   inputs 7 and 9 of gate.inputs",
    "  gatelog replay what-if --change 7=asked.json                           had it asked for something else",
    "  gatelog replay what-if --config ../new-config                          with other configuration",
    "  gatelog replay what-if --tenants new-tenants.yaml                      with another tenant file",
    "  gatelog replay what-if --binary ./gatelog-next --json                  with another gatelog",
    "",
    "Exit codes of its own: 0 nothing would have been otherwise, 8 something would (the answer is printed)."
))]
pub struct WhatIfArgs {
    /// Leave these inputs out: offsets of gate.inputs, or <stream>:<offset>, such as intake:41 or capacity.inputs:3
    #[arg(long, value_name = "INPUT,…", value_delimiter = ',', value_parser = parse_input)]
    pub without: Vec<InputPlace>,
    /// Take this JSON for what an input says, as `log cat --json` shows its body; parts left out stay as they were
    #[arg(long, value_name = "INPUT=FILE.json", value_parser = parse_change)]
    pub change: Vec<(InputPlace, PathBuf)>,
    /// Take the configuration of projects from this folder: <org>_<project>/ (or git/<org>_<project>/) for each
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// Take this tenant file for each that was loaded; tenants that it does not have stay as they were
    #[arg(long, value_name = "FILE")]
    pub tenants: Option<PathBuf>,
    /// Let this gatelog decide over the same inputs, in a sandbox: it sees the record alone, and no network
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,
    /// Run --binary without a sandbox: it may do all that you may
    #[arg(long, requires = "binary")]
    pub unconfined: bool,
    /// Only events up to these: <domain>/<partition>:<sequence>,… [default: all there are]
    #[arg(long, value_name = "POSITION,…", value_delimiter = ',', value_parser = parse_until)]
    pub until: Vec<gatelog_record::EventRef>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where an input stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputPlace {
    /// The stream.
    pub stream: Stream,
    /// Its offset.
    pub offset: u64,
}

impl std::fmt::Display for InputPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.stream, self.offset)
    }
}

/// Reads a moment of a whole log.
pub fn parse_place(text: &str) -> Result<Place, String> {
    if text == "now" {
        return Ok(Place::Newest);
    }
    match position(text).map_err(|error| error.to_string())? {
        Some(event) => Ok(Place::Event(event)),
        None => match parse_at(text)? {
            At::Time(time) => Ok(Place::Time(time)),
            At::Sequence(_) => Err("no sequence is that large".to_owned()),
        },
    }
}

fn parse_until(text: &str) -> Result<gatelog_record::EventRef, String> {
    match parse_place(text)? {
        Place::Event(event) => Ok(event),
        Place::Time(_) | Place::Newest => Err("expected events, such as gate/0:117,capacity/0:31".to_owned()),
    }
}

/// Reads where an input stands: `7`, `intake:41`, `capacity.inputs/0:3`.
pub fn parse_input(text: &str) -> Result<InputPlace, String> {
    let (stream, offset) = text.rsplit_once(':').unwrap_or(("gate.inputs", text));
    let stream: Stream = stream.parse().map_err(|error| format!("{error}"))?;
    if let Stream::Events(_) = stream {
        return Err(format!("{stream} holds events; inputs stand in intake and <domain>.inputs"));
    }
    match offset.parse() {
        Ok(offset) => Ok(InputPlace { stream, offset }),
        Err(_) => Err("expected an offset, such as 7, intake:41 or capacity.inputs:3".to_owned()),
    }
}

fn parse_change(text: &str) -> Result<(InputPlace, PathBuf), String> {
    let (input, file) = text.split_once('=').ok_or("expected INPUT=FILE.json, such as 7=asked.json")?;
    Ok((parse_input(input)?, PathBuf::from(file)))
}

#[cfg(test)]
mod tests {
    use gatelog_record::{Domain, EventRef, Partition, Timestamp};

    use super::*;

    #[test]
    fn moments_are_sequences_places_times_or_now() {
        let event =
            |domain, index, sequence| Place::Event(EventRef { partition: Partition { domain, index }, sequence });
        assert_eq!(parse_place("117"), Ok(event(Domain::Gate, 0, 117)));
        assert_eq!(parse_place("capacity/2:31"), Ok(event(Domain::Capacity, 2, 31)));
        assert_eq!(parse_place("now"), Ok(Place::Newest));
        assert_eq!(parse_place("1970-01-01T00:00:01Z"), Ok(Place::Time(Timestamp(1_000_000))));
        for wrong in ["", "yesterday", "gate/0:x", "99999999999999999999999"] {
            assert!(parse_place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn inputs_are_offsets_with_or_without_their_stream() {
        let told = |text| parse_input(text).map(|input| format!("{} {}", input.stream, input.offset));
        assert_eq!(told("7").as_deref(), Ok("gate.inputs/0 7"));
        assert_eq!(told("intake:41").as_deref(), Ok("intake/0 41"));
        assert_eq!(told("capacity.inputs/1:3").as_deref(), Ok("capacity.inputs/1 3"));
        for wrong in ["gate.events:4", "7x", "nowhere:1", ""] {
            assert!(parse_input(wrong).is_err(), "{wrong}");
        }
        assert!(parse_change("7=a.json").is_ok() && parse_change("7").is_err());
    }
}
