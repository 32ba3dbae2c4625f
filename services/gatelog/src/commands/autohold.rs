//! Requests to keep the nodes of builds that fail. Zuul: `zuul-client autohold` and its like.

use std::process::ExitCode;

use serde_json::{Value as Json, json};

use super::encrypt::escaped;
use super::failure::Failure;
use super::operators::{client, explained, tenant};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::operators::{AutoholdArgs, AutoholdDeleteArgs, AutoholdInfoArgs, AutoholdListArgs, LookArgs};
use crate::show::clean;

/// Asks for nodes to be kept.
pub fn ask(site: &SiteArgs, args: &AutoholdArgs) -> Result<ExitCode, Failure> {
    let client = client(site, &args.asking.token)?;
    let tenant = tenant(&client, args.asking.tenant.as_deref())?;
    let path = format!("/api/tenant/{}/project/{}/autohold", escaped(&tenant), escaped(&args.project));
    let body = json!({
        "job": args.job, "change": args.change, "ref": args.reference, "count": args.count,
        "node_hold_expiration": args.node_hold_expiration, "reason": args.asking.reason,
    });
    let said = client.post(&path, &body).map_err(|error| explained(error, site))?;
    let number = said.request.map(|request| format!("request {request}: ")).unwrap_or_default();
    let times = if args.count == 1 { "once".to_owned() } else { format!("{} times", args.count) };
    tell(&[format!("{tenant}: {number}nodes of {} of {} are kept when it fails, {times}", args.job, args.project)])
}

/// Lists requests.
pub fn list(site: &SiteArgs, args: &AutoholdListArgs) -> Result<ExitCode, Failure> {
    let client = client(site, &args.asking.token)?;
    let tenant = tenant(&client, args.asking.tenant.as_deref())?;
    let path = format!("/api/tenant/{}/autohold{}", escaped(&tenant), then(&args.asking));
    let found = client.get(&path).map_err(|error| explained(error, site))?;
    if args.asking.json {
        return show(&found);
    }
    let all = found.as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        let verb = if args.asking.at.is_some() { "were" } else { "are" };
        return tell(&[format!("{tenant}: no nodes {verb} to be kept")]);
    }
    tell(&all.iter().map(line).collect::<Vec<_>>())
}

/// Shows a request.
pub fn info(site: &SiteArgs, args: &AutoholdInfoArgs) -> Result<ExitCode, Failure> {
    let client = client(site, &args.asking.token)?;
    let tenant = tenant(&client, args.asking.tenant.as_deref())?;
    let path = format!("/api/tenant/{}/autohold/{}{}", escaped(&tenant), args.request, then(&args.asking));
    let found = client.get(&path).map_err(|error| explained(error, site))?;
    if args.asking.json {
        return show(&found);
    }
    let mut lines = vec![line(&found)];
    for held in found["nodes"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let worker = held["worker"].as_str().map_or_else(|| "its worker".to_owned(), clean);
        for node in held["nodes"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(text) {
            let build = text(&held["build"]);
            lines.push(format!("  keeps node {node} of build {build}: nodes/{node}/home in the directory of {worker}"));
        }
    }
    tell(&lines)
}

/// Deletes a request.
pub fn delete(site: &SiteArgs, args: &AutoholdDeleteArgs) -> Result<ExitCode, Failure> {
    let client = client(site, &args.asking.token)?;
    let tenant = tenant(&client, args.asking.tenant.as_deref())?;
    let reason =
        if args.asking.reason.is_empty() { String::new() } else { format!("?reason={}", escaped(&args.asking.reason)) };
    let path = format!("/api/tenant/{}/autohold/{}{reason}", escaped(&tenant), args.request);
    client.delete(&path).map_err(|error| explained(error, site))?;
    tell(&[format!("{tenant}: request {:010} is over, and keeps nothing", args.request)])
}

/// The moment asked about, as a query.
fn then(asking: &LookArgs) -> String {
    asking.at.map(|at| format!("?at={}", escaped(&at.to_string()))).unwrap_or_default()
}

fn text(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), clean)
}

fn line(one: &Json) -> String {
    let reason = Some(text(&one["reason"])).filter(|reason| !reason.is_empty());
    format!(
        "{}  {} of {}, refs {}, kept {} of {}{}",
        text(&one["id"]),
        text(&one["job"]),
        text(&one["project"]),
        text(&one["ref_filter"]),
        one["current_count"],
        one["max_count"],
        reason.map(|reason| format!(": {reason}")).unwrap_or_default()
    )
}

fn show(document: &Json) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    let _ = out.json(document)?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn tell(lines: &[String]) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    let _ = out.lines(lines)?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}
