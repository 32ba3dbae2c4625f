//! `gatelog doctor --site`: what holds a site up, the worst first, each with the cure. Of one that does not run, what is
//! on its disk.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use gatelog_event_log::Log;
use gatelog_gate_state::Gate;
use gatelog_replay::{Moment, Timeline};
use gatelog_store::{Layout as StoreLayout, RungDir};
use serde_json::{Value as Json, json};

use super::{Finding, LITTLE_SPACE, Level, disks, not_ok, ok, render};
use crate::cli::SiteArgs;
use crate::client::{Client, ClientError};
use crate::commands::failure::{Code, Failure};
use crate::commands::output::Output;
use crate::commands::site::{SERVER_FILE, Site, Target};
use crate::commands::waits;
use crate::roles::GATE;
use crate::show::{Paint, Style, clean};

/// Runs it.
pub fn run(args: &SiteArgs, all: bool, as_json: bool) -> Result<ExitCode, Failure> {
    let path = if all { "/api/waits?all=true" } else { "/api/waits" };
    match args.target()? {
        Target::Url(client) => Ok(tell(&client, &client.get(path)?, as_json)?.into()),
        Target::Dir(site) => match site.server() {
            Some(client) => match client.get(path) {
                Ok(answer) => Ok(tell(&client, &answer, as_json)?.into()),
                // It went away meanwhile, or hangs.
                Err(error @ ClientError::Unreachable { .. }) => on_disk(&site, Some(&error), as_json),
                Err(error) => Err(error.into()),
            },
            None => on_disk(&site, None, as_json),
        },
    }
}

/// What a running site says.
fn tell(client: &Client, answer: &Json, as_json: bool) -> Result<Code, Failure> {
    let all = waits::of(answer);
    let held: Vec<&Json> = all.iter().filter(|wait| waits::is_held_up(wait)).collect();
    let code = if held.is_empty() { Code::Ok } else { Code::No };
    let mut out = Output::new();
    let _ = if as_json {
        let of = |standing: &str| all.iter().filter(|wait| wait["standing"] == standing).collect::<Vec<_>>();
        out.json(&json!({
            "ok": held.is_empty(),
            "runs": true,
            "server": client.base(),
            "held_up": held,
            "waiting": of("waiting"),
            "working": of("working"),
            "left_off": answer["left_off"],
        }))?
    } else {
        let style = Style::of_stdout();
        let mut lines = vec![style.paint(Paint::Faint, &clean(client.base()))];
        for wait in &held {
            lines.push(String::new());
            lines.extend(waits::lines(wait, style));
        }
        lines.push(String::new());
        let others = all.len() - held.len();
        let rest = match others {
            0 => String::new(),
            1 => " One more waits its turn or is worked on: `gatelog status` and the page tell of it.".to_owned(),
            others => {
                format!(" {others} more wait their turn or are worked on: `gatelog status` and the page tell of them.")
            }
        };
        lines.push(match held.len() {
            0 => format!("{}{rest}", style.paint(Paint::Green, "Nothing is held up.")),
            1 => format!("{}{rest}", style.paint(Paint::Red, "One thing is held up.")),
            held => format!("{}{rest}", style.paint(Paint::Red, &format!("{held} things are held up."))),
        });
        out.lines(&lines)?
    };
    let _ = out.flush()?;
    Ok(code)
}

/// What is there of a site that does not run, or does not answer.
fn on_disk(site: &Site, unanswered: Option<&ClientError>, as_json: bool) -> Result<ExitCode, Failure> {
    let mut findings = vec![server(site, unanswered)];
    let config = site.config();
    findings.push(match &config {
        Ok(Some(_)) => ok("site", "gatelog.toml", "can be read; `gatelog check --site` says more"),
        Ok(None) => ok("site", "gatelog.toml", "none: there is only a log"),
        Err(failure) => not_ok(
            Level::Lack,
            ("site", "gatelog.toml"),
            failure.primary.clone(),
            "correct it, then `gatelog check --site`",
        ),
    });
    if config.is_ok() {
        findings.push(log(site));
    }
    for disk in disks(site.dir(), config.ok().flatten().as_ref()) {
        let at = ("site", "disk");
        let place = disk.path.display();
        findings.push(match (disk.writable, disk.free < LITTLE_SPACE) {
            (false, _) => not_ok(
                Level::Lack,
                at,
                format!("{}: this user may not write to {place}", disk.what),
                "run gatelog as the user the directory belongs to",
            ),
            (true, true) => not_ok(
                Level::Lack,
                at,
                format!("{}: {} free on {place}", disk.what, gatelog_executing::ByteSize(disk.free)),
                "make room before it is started",
            ),
            (true, false) => {
                ok("site", "disk", format!("{}: {} free on {place}", disk.what, gatelog_executing::ByteSize(disk.free)))
            }
        });
    }
    let mut out = Output::new();
    let _ = if as_json {
        out.json(
            &json!({ "ok": false, "runs": false, "site": site.dir().display().to_string(), "findings": findings }),
        )?
    } else {
        out.lines(&render(&site.dir().display().to_string(), &findings, Style::of_stdout()))?
    };
    let _ = out.flush()?;
    Ok(Code::No.into())
}

/// The server that should run.
fn server(site: &Site, unanswered: Option<&ClientError>) -> Finding {
    let at = ("site", "server");
    let start = format!("gatelog serve --dir {}", site.dir().display());
    if let Some(error) = unanswered {
        let cure = "look at its log; `gatelog stop` ends it, and it can be started again";
        return not_ok(Level::Lack, at, format!("a server runs and does not answer: {error}"), cure);
    }
    let left = site.dir().join(SERVER_FILE).exists();
    let found = match (in_use(site.dir()), left) {
        (true, _) => "a process serves this directory and has no API (role `web`)",
        (false, true) => "none runs; the last one was killed or fell over, which loses nothing",
        (false, false) => "none runs",
    };
    not_ok(Level::Lack, at, found, start)
}

/// Whether a process holds the directory.
fn in_use(dir: &Path) -> bool {
    [dir.join("serve.lock"), dir.join("log").join("LOCK")].iter().any(|path| {
        std::fs::File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
    })
}

/// Whether the newest of the log can be read and folded.
fn log(site: &Site) -> Finding {
    let at = ("site", "log");
    let read = || -> Result<u64, Failure> {
        let (log, _): (Arc<dyn Log>, _) = site.history()?;
        let rungs = RungDir::new(StoreLayout::new(&site.dir().join("projections"), GATE).rungs());
        let newest = Timeline::<Gate>::new(log, GATE, Some(rungs)).state_at(Moment::Newest)?;
        Ok(newest.position.sequence)
    };
    match read() {
        Ok(sequence) => {
            ok("site", "log", format!("reads well from the newest rung up to event {sequence} of the gate"))
        }
        Err(failure) if failure.code == Code::NotFound => ok("site", "log", "none yet: the first start makes it"),
        Err(failure) => Finding {
            code: failure.code,
            ..not_ok(Level::Lack, at, failure.primary, "run `gatelog log verify`, which names the place")
        },
    }
}
