//! `gatelog job-logs`: which logs of jobs go, and when, before they do.

use std::process::ExitCode;

use gatelog_executing::ByteSize;
use gatelog_log_files::retention::Planned;
use gatelog_log_files::{Plan, Rules};
use serde_json::json;

use super::failure::{Code, Failure};
use super::output::Output;
use super::site::Target;
use crate::cli::SiteArgs;
use crate::cli::job_logs::JobLogsPlanArgs;
use crate::config::SiteConfig;

/// The most attempts that are listed for people.
const LISTED: usize = 50;

/// `job-logs plan`
pub fn plan(site: &SiteArgs, args: &JobLogsPlanArgs) -> Result<ExitCode, Failure> {
    let Target::Dir(here) = site.target()? else {
        return Err(Failure::new(Code::No, "this reads the logs themselves: name the site's directory with --dir"));
    };
    let config = SiteConfig::read(here.dir())?;
    let failed = |error: &dyn std::error::Error| Failure::new(Code::No, gatelog_effects::connection::chain(error));
    let mut rules = config.job_logs.rules();
    rules.keep_days = args.keep_days.or(rules.keep_days);
    rules.keep_bytes = args.keep_bytes.map(|size| size.0).or(rules.keep_bytes);
    let store = config.job_logs.store(here.dir(), true).map_err(|error| failed(&error))?;
    let Some(store) = store else { return Ok(ExitCode::SUCCESS) };
    let logs = here.dir().join("logs");
    let consoles = match logs.exists() {
        true => gatelog_executing::kept(&logs, |_, _| false),
        false => Ok(Vec::new()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let now_ms = crate::clock::now().0 / 1_000;
    let plan = runtime.block_on(crate::job_logs::plan(&store, consoles, &rules, now_ms));
    let plan = plan.map_err(|error| failed(&error))?;
    let mut out = Output::new();
    let _ = if args.json {
        let rules = json!({ "keep_days": rules.keep_days, "keep_bytes": rules.keep_bytes });
        out.json(&json!({ "store": store.place(), "rules": rules, "plan": plan }))?
    } else {
        out.lines(&render(&plan, &rules, store.place()))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn render(plan: &Plan, rules: &Rules, place: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (days, bytes) = (rules.keep_days, rules.keep_bytes.map(ByteSize));
    match (days, bytes) {
        (None, None) => lines.push("everything is kept for ever: neither keep-days nor keep-bytes is set".to_owned()),
        (days, bytes) => {
            let days = days.map(|days| format!("keep-days = {days}"));
            let bytes = bytes.map(|bytes| format!("keep-bytes = {bytes}"));
            let rules: Vec<String> = days.into_iter().chain(bytes).collect();
            lines.push(format!("rules: {}", rules.join(", ")));
        }
    }
    let of = |one: &Planned| {
        let (size, ended) = (ByteSize(one.bytes), stamp(one.ended_ms));
        format!("{} attempt {}, ended {ended}, {} files, {size}, by {}", one.build, one.attempt, one.files, one.rule)
    };
    let bytes = plan.now.iter().fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
    lines.push(format!("go now: {} attempts, {}", plan.now.len(), ByteSize(bytes)));
    lines.extend(plan.now.iter().take(LISTED).map(|one| format!("  {}", of(one))));
    if plan.now.len() > LISTED {
        lines.push(format!("  and {} more; --json lists them all", plan.now.len() - LISTED));
    }
    if let Some(next) = &plan.next {
        lines.push(format!("goes next, from {} on: {}", stamp(next.due_ms), of(next)));
    }
    lines.push(format!("stay: {} attempts, {}, in {place}", plan.kept, ByteSize(plan.kept_bytes)));
    lines
}

fn stamp(at_ms: i64) -> String {
    let text = gatelog_record::Timestamp(at_ms.saturating_mul(1_000)).to_string();
    format!("{}Z", text.get(..16).unwrap_or(&text))
}
