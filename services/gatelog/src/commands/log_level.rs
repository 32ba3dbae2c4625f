//! `gatelog log level`: up to which level records are written, who knows it, and raising it.

use std::process::ExitCode;

use gatelog_hosting::HostedDomain;
use gatelog_record::level::{GATELOG, LEVEL};
use gatelog_replay::Moment;
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::operators::{client, explained};
use super::output::Output;
use super::site::{Site, Target};
use crate::cli::processes::LevelArgs;
use crate::cli::{Parts, SiteArgs};
use crate::client::Client;
use crate::show::{self, Paint, Style, clean};

/// Runs it.
pub fn run(parts: &Parts, site: &SiteArgs, args: &LevelArgs) -> Result<ExitCode, Failure> {
    if args.raise {
        return raise(site, args);
    }
    let document = match site.target()? {
        Target::Url(client) => asked(&client, site)?,
        Target::Dir(here) => match here.server() {
            Some(client) => asked(&client, site)?,
            None => of_the_log(parts, &here)?,
        },
    };
    let mut out = Output::new();
    let _ = if args.json { out.json(&document)? } else { out.lines(&render(&document, Style::of_stdout()))? };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What a server says; what this gatelog knows is said beside it.
fn asked(client: &Client, site: &SiteArgs) -> Result<Json, Failure> {
    let mut document = client.get("/api/level").map_err(|error| explained(error, site))?;
    document["own"] = json!({ "version": GATELOG, "knows": LEVEL });
    Ok(document)
}

/// What the log itself says. Who is there is not known where nobody serves.
fn of_the_log(parts: &Parts, site: &Site) -> Result<Json, Failure> {
    let (log, _) = site.history()?;
    let rungs = site.rungs();
    let of = |domain: &dyn HostedDomain| -> Result<Json, Failure> {
        let partition = domain.partition();
        let place = domain.replay().place(&log, partition, rungs(partition), Moment::Newest)?;
        let position = format!("{partition}:{}", place.sequence);
        Ok(json!({ "partition": partition.to_string(), "level": place.level, "position": position }))
    };
    let partitions = parts.domains.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({
        "own": { "version": GATELOG, "knows": LEVEL },
        "partitions": partitions,
        "components": null,
    }))
}

fn render(document: &Json, style: Style) -> Vec<String> {
    let text = |value: &Json| value.as_str().map(clean).unwrap_or_default();
    let mut lines = vec![style.paint(Paint::Faint, &format!("{:<14} {:>5}", "partition", "level"))];
    let rows = |key: &str| document[key].as_array().cloned().unwrap_or_default();
    let mut most = 0;
    for row in rows("partitions") {
        let level = row["level"].as_u64().unwrap_or_default();
        most = most.max(level);
        lines.push(format!("{:<14} {level:>5}   as of {}", text(&row["partition"]), text(&row["position"])));
    }
    let own = &document["own"];
    let knows = own["knows"].as_u64().unwrap_or_default();
    lines.push(String::new());
    lines.push(format!("this gatelog ({}) knows records up to level {knows}", text(&own["version"])));
    lines.push(String::new());
    let Some(components) = document["components"].as_array() else {
        lines.push("no server runs here: who else is there is not known".to_owned());
        return lines;
    };
    let mut table = vec![["component", "roles", "gatelog", "level", ""].map(str::to_owned)];
    let mut held_up = false;
    for one in components {
        let level = one["level"].as_u64().unwrap_or_default();
        let roles = one["roles"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(text);
        let silent = one["silent"].as_bool() == Some(true);
        held_up |= !silent && level < knows;
        let note = match (silent, level < knows) {
            (true, _) => format!("silent for {}", show::millis(one["last_sign_ms"].as_i64().unwrap_or_default())),
            (false, true) => format!("does not know level {knows}: upgrade it"),
            (false, false) => String::new(),
        };
        let roles = roles.collect::<Vec<_>>().join(", ");
        table.push([text(&one["hostname"]), roles, text(&one["version"]), level.to_string(), note]);
    }
    lines.extend(show::table(&table, style));
    if knows > most && !held_up {
        lines.push(String::new());
        lines.push(format!("everybody who is there knows level {knows}: `gatelog log level --raise` raises it"));
    }
    lines
}

fn raise(site: &SiteArgs, args: &LevelArgs) -> Result<ExitCode, Failure> {
    let client = client(site, &args.token)?;
    let wanted = args.to.unwrap_or(LEVEL);
    let body = json!({ "level": wanted, "reason": args.reason });
    let (document, _) = client.ask("/api/level", &body).map_err(|error| explained(error, site))?;
    let mut lines = Vec::new();
    let mut open = false;
    for row in document["partitions"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let partition = row["partition"].as_str().map(clean).unwrap_or_default();
        let event = row["event"].as_u64().unwrap_or_default();
        lines.push(match row["raised"].as_bool() {
            Some(true) => format!("{partition}: records up to level {wanted} may be written from event {event} on"),
            Some(false) => format!("{partition}: that is so already"),
            None => {
                open = true;
                format!("{partition}: it was asked, and has not decided yet")
            }
        });
    }
    let mut out = Output::new();
    let _ = if args.json { out.json(&document)? } else { out.lines(&lines)? };
    let _ = out.flush()?;
    if open {
        return Err(Failure::new(Code::Unavailable, "not all have decided in time")
            .hint("`gatelog log level` shows what became of it; asking again does no harm"));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_who_keeps_the_level_from_rising() {
        let component = |name: &str, version: &str, level: u32, silent: bool| {
            json!({ "hostname": name, "roles": ["merger", "web"], "version": version, "level": level, "silent": silent,
                "last_sign_ms": 95_000 })
        };
        let mut document = json!({
            "own": { "version": "0.2.0", "knows": 1 },
            "partitions": [{ "partition": "gate/0", "level": 0, "position": "gate/0:12" }],
            "components": [component("east", "0.2.0", 1, false), component("west", "0.1.0", 0, false)],
        });
        assert_eq!(
            render(&document, Style::Plain),
            [
                "partition      level",
                "gate/0             0   as of gate/0:12",
                "",
                "this gatelog (0.2.0) knows records up to level 1",
                "",
                "component  roles        gatelog  level",
                "east       merger, web  0.2.0    1",
                "west       merger, web  0.1.0    0      does not know level 1: upgrade it",
            ]
        );
        document["components"][1] = component("west", "0.1.0", 0, true);
        let lines = render(&document, Style::Plain);
        assert_eq!(lines[7], "west       merger, web  0.1.0    0      silent for 1m 35s");
        assert_eq!(lines[9], "everybody who is there knows level 1: `gatelog log level --raise` raises it");
        document["components"] = Json::Null;
        assert!(render(&document, Style::Plain)[5].starts_with("no server runs here"));
    }
}
