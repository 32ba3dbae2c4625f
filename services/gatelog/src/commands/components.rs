//! `gatelog components`, and pauses of executors and mergers.

use std::process::ExitCode;

use serde_json::{Value as Json, json};

use super::encrypt::escaped;
use super::failure::{Code, Failure};
use super::operators::{client, explained};
use super::output::Output;
use super::site::Target;
use crate::cli::SiteArgs;
use crate::cli::processes::{ComponentArgs, ComponentsArgs, ExecutorCommand, MergerCommand};
use crate::presence::SILENT_AFTER;
use crate::show::{self, Style, clean};

/// `components`
pub fn show(site: &SiteArgs, args: &ComponentsArgs) -> Result<ExitCode, Failure> {
    let client = match site.target()? {
        Target::Url(client) => client,
        Target::Dir(here) => here.server().ok_or_else(|| {
            let what =
                format!("no server with the role web runs in {}: who is there is not known", here.dir().display());
            Failure::new(Code::Unavailable, what)
                .hint("start it with `gatelog serve`, or name a running one with --url")
        })?,
    };
    let document = client.get("/api/components").map_err(|error| explained(error, site))?;
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&document)?
    } else {
        out.lines(&render(&document, Style::of_stdout(), crate::clock::now().0 / 1_000))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each role of each process, by role.
fn render(document: &Json, style: Style, now_ms: i64) -> Vec<String> {
    let text = |value: &Json| value.as_str().map(clean).unwrap_or_default();
    let mut table = vec![["role", "name", "state", "gatelog", "level", "since", ""].map(str::to_owned)];
    for (role, components) in document.as_object().into_iter().flatten() {
        for one in components.as_array().map(Vec::as_slice).unwrap_or_default() {
            let silent = one["last_sign_ms"].as_i64().map(|span| span >= SILENT_AFTER.as_millis() as i64);
            let mut notes = Vec::new();
            let state = match silent {
                Some(true) => {
                    notes.push(format!(
                        "no sign for {}",
                        show::millis(one["last_sign_ms"].as_i64().unwrap_or_default())
                    ));
                    "silent".to_owned()
                }
                // Capacity knows it, and nobody has heard of it.
                None => "gone".to_owned(),
                Some(false) => text(&one["state"]),
            };
            if let (Some(used), Some(slots)) = (one["used"].as_u64(), one["slots"].as_u64()) {
                notes.push(format!("{used} of {slots} slots in use"));
            }
            if let Some(zone) = one["zone"].as_str() {
                notes.push(format!("zone {}", clean(zone)));
            }
            let held = one["held"].as_array().into_iter().flatten().filter(|_| role == "executor");
            let held: Vec<String> =
                held.map(|held| format!("{}: {}", text(&held["code"]), text(&held["detail"]))).collect();
            if !held.is_empty() {
                notes.push(format!("takes no builds: {}", held.join("; ")));
            }
            if one["pause"].is_object() {
                notes.push(paused(&one["pause"], now_ms));
            }
            let since = one["started_ms"].as_i64().map(|began| show::millis((now_ms - began).max(0)));
            let level = one["level"].as_u64().map(|level| level.to_string());
            table.push([
                clean(role),
                text(&one["hostname"]),
                state,
                text(&one["version"]),
                level.unwrap_or_default(),
                since.unwrap_or_default(),
                notes.join("; "),
            ]);
        }
    }
    if table.len() == 1 {
        return vec!["nobody has given a sign".to_owned()];
    }
    show::table(&table, style)
}

fn paused(pause: &Json, now_ms: i64) -> String {
    let text = |key: &str| pause[key].as_str().filter(|text| !text.is_empty()).map(clean);
    let mut told = "paused".to_owned();
    if let Some(by) = text("by") {
        told.push_str(&format!(" by {by}"));
    }
    if let Some(since) = pause["since_ms"].as_i64() {
        told.push_str(&format!(" {} ago", show::millis((now_ms - since).max(0))));
    }
    if let Some(reason) = text("reason") {
        told.push_str(&format!(": {reason}"));
    }
    told
}

/// `executor pause`, `executor resume`
pub fn executor(site: &SiteArgs, command: &ExecutorCommand) -> Result<ExitCode, Failure> {
    match command {
        ExecutorCommand::Pause(args) => ask(site, args, "executor", "pause", "takes no new builds from now on"),
        ExecutorCommand::Resume(args) => ask(site, args, "executor", "resume", "takes new builds again"),
    }
}

/// `merger pause`, `merger resume`
pub fn merger(site: &SiteArgs, command: &MergerCommand) -> Result<ExitCode, Failure> {
    match command {
        MergerCommand::Pause(args) => ask(site, args, "merger", "pause", "takes no new work from now on"),
        MergerCommand::Resume(args) => ask(site, args, "merger", "resume", "takes new work again"),
    }
}

fn ask(site: &SiteArgs, args: &ComponentArgs, role: &str, verb: &str, done: &str) -> Result<ExitCode, Failure> {
    let client = client(site, &args.token)?;
    let path = format!("/api/component/{role}/{}/{verb}", escaped(&args.name));
    let (document, said) =
        client.ask(&path, &json!({ "reason": args.reason })).map_err(|error| explained(error, site))?;
    if document["paused"].is_null() {
        return Err(Failure::new(Code::Unavailable, "it was asked, and nothing has decided yet")
            .hint("`gatelog components` shows what became of it; asking again does no harm"));
    }
    let at = said.position.map(|position| format!(" ({position})")).unwrap_or_default();
    let mut out = Output::new();
    let _ = out.line(&format!("{role} {}: {done}{at}", args.name))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_of_each_process_has_a_line_with_what_is_known_of_it() {
        let document = json!({
            "executor": [
                { "hostname": "east", "state": "paused", "version": "0.1.0", "level": 1, "started_ms": 40_000,
                  "last_sign_ms": 2_000, "slots": 4, "used": 1, "held": [{ "code": "executor-disk-low", "detail": "3 % is free" }],
                  "pause": { "reason": "its disk\u{1b} is full", "by": "ann (local)", "since_ms": 95_000 } },
                { "hostname": "lost", "state": "stopped", "version": null, "slots": 2, "used": 2 }
            ],
            "web": [{ "hostname": "west", "state": "stopped", "version": "0.0.9", "level": 0, "started_ms": 0,
                "last_sign_ms": 95_000 }]
        });
        assert_eq!(
            render(&document, Style::Plain, 100_000),
            [
                "role      name  state   gatelog  level  since",
                "executor  east  paused  0.1.0    1      1m 00s  1 of 4 slots in use; takes no builds: \
                 executor-disk-low: 3 % is free; paused by ann (local) 5s ago: its \
                 disk\u{fffd} is full",
                "executor  lost  gone                            2 of 2 slots in use",
                "web       west  silent  0.0.9    0      1m 40s  no sign for 1m 35s",
            ]
        );
        assert_eq!(render(&json!({}), Style::Plain, 0), ["nobody has given a sign"]);
    }
}
