//! `gatelog replay what-if`: what would have been, had something been otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_record::{Input, InputFrame};
use gatelog_replay::what_if::{Answer, Changes, OrderDifference, what_if};
use gatelog_replay::{Cut, Place};
use gatelog_rules_config::is_config_path;
use serde_json::Value as Json;

use super::failure::{Code, Failure};
use super::folder;
use super::output::Output;
use super::site::Site;
use crate::cli::SiteArgs;
use crate::cli::replay::{InputPlace, WhatIfArgs};
use crate::sealed::question::{Question, ask as ask_sealed};
use crate::sealed::{Limits, Sandbox};
use crate::show::{Paint, Style, clean};

/// How many differences of a kind are told; all are in the JSON.
const TOLD: usize = 100;
/// The largest file of a changed input, and the largest answer of another gatelog, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// The largest tenant file, in bytes.
const MAX_TENANT_FILE: u64 = 8 << 20;
/// How much another gatelog may take.
const LIMITS: Limits = Limits { time: Duration::from_secs(3_600), memory: 8 << 30, answer: MAX_BYTES };

/// Runs it.
pub fn run(site: &SiteArgs, args: &WhatIfArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("replay what-if")?;
    let answer = match &args.binary {
        Some(binary) => ask_another(&site, args, binary)?,
        None => ask(&site, args)?,
    };
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&serde_json::to_value(&answer).map_err(anyhow::Error::from)?)?
    } else {
        out.lines(&render(&answer, Style::of_stdout()))?
    };
    let _ = out.flush()?;
    Ok(if answer.is_same() { ExitCode::SUCCESS } else { Code::Diverged.into() })
}

fn ask(site: &Site, args: &WhatIfArgs) -> Result<Answer, Failure> {
    let (log, blobs) = site.history()?;
    let without: BTreeSet<_> = args.without.iter().map(|input| (input.stream, input.offset)).collect();
    let mut changed = BTreeMap::new();
    for (input, file) in &args.change {
        changed.insert((input.stream, input.offset), changed_input(&*log, *input, file)?);
    }
    let config = match &args.config {
        Some(dir) => configuration(dir)?,
        None => BTreeMap::new(),
    };
    let tenants = args.tenants.as_deref().map(|file| text_of(file, MAX_TENANT_FILE)).transpose()?;
    let cut: Option<Cut> = match args.until.as_slice() {
        [] => None,
        until => Some(until.iter().map(|event| (event.partition, event.sequence)).collect()),
    };
    let schemas = crate::drivers::schemas();
    Ok(what_if(&log, &*blobs, &Changes { without, changed, config, tenants, schemas }, cut.as_ref())?)
}

/// Another gatelog decides the same inputs, in a process of its own that sees nothing but the record.
fn ask_another(site: &Site, args: &WhatIfArgs, binary: &Path) -> Result<Answer, Failure> {
    let sandbox = match args.unconfined {
        true => None,
        false => Some(sandbox(site)?),
    };
    let (log, _) = site.history()?;
    // Both look at the same inputs, whatever is written meanwhile.
    let until: Cut = match args.until.as_slice() {
        [] => gatelog_replay::diff::cut_of(&*log, Place::Newest)?,
        until => until.iter().map(|event| (event.partition, event.sequence)).collect(),
    };
    let question = Question {
        without: &args.without,
        change: &args.change,
        config: args.config.as_deref(),
        tenants: args.tenants.as_deref(),
        until: &until,
    };
    ask_sealed(site, binary, &question, sandbox.as_ref(), LIMITS, &|| false)
}

/// What another gatelog is shut in with.
fn sandbox(site: &Site) -> Result<Sandbox, Failure> {
    let hint = "--unconfined runs it without a sandbox: it may then do all that you may";
    if site.kafka()?.is_some() {
        let message = "the log of this site is on Kafka, which a gatelog without network cannot read";
        return Err(Failure::new(Code::Usage, message).hint(format!(
            "take the log along with `gatelog log export` and `gatelog log import`, and ask there; {hint}"
        )));
    }
    Sandbox::find()
        .map_err(|why| Failure::new(Code::NotFound, format!("there is no sandbox for --binary: {why}")).hint(hint))
}

/// The text of a file, if it is not longer than so many bytes.
fn text_of(file: &Path, most: u64) -> Result<String, Failure> {
    let size = std::fs::metadata(file).map(|known| known.len()).unwrap_or_default();
    if size > most {
        return Err(Failure::new(Code::Usage, format!("{} is larger than {most} bytes", file.display())));
    }
    std::fs::read_to_string(file)
        .map_err(|error| Failure::new(Code::NotFound, format!("{} cannot be read: {error}", file.display())))
}

/// The input at a place with what a file says of it: parts left out stay as they were.
fn changed_input(log: &dyn Log, place: InputPlace, file: &Path) -> Result<Input, Failure> {
    let InputPlace { stream, offset } = place;
    let text = text_of(file, MAX_BYTES)?;
    let said: Json = serde_json::from_str(&text)
        .map_err(|error| Failure::new(Code::Usage, format!("{} is no JSON: {error}", file.display())))?;
    // What `log cat --json` prints has the body in it.
    let said = said.get("body").cloned().unwrap_or(said);
    let batch = log.read(stream, Offset(offset), ReadLimit { records: 1, bytes: 1 })?;
    let record = batch.records.first().filter(|record| record.offset == Offset(offset));
    let Some(record) = record else {
        return Err(Failure::new(Code::NotFound, format!("{stream} has no record at offset {offset}")));
    };
    let unreadable = |error: String| Failure::new(Code::Integrity, format!("{stream} offset {offset}: {error}"));
    let frame = InputFrame::decode(&record.bytes).map_err(|error| unreadable(error.to_string()))?;
    let input = frame.open().map_err(|error| unreadable(error.to_string()))?.input;
    let mut raw = serde_json::to_value(&input).map_err(anyhow::Error::from)?;
    // Family and kind stand around the body.
    let body = raw.as_object_mut().and_then(|family| family.values_mut().next());
    let body = body.and_then(|family| family.as_object_mut()).and_then(|kind| kind.values_mut().next());
    if let Some(body) = body {
        put_on(body, &said);
    }
    serde_json::from_value(raw).map_err(|error| {
        Failure::new(Code::Usage, format!("{} does not say what a {} says: {error}", file.display(), input.name()))
            .hint(format!(
                "take what `gatelog log cat {stream} --from {offset} --to {offset} --json` prints and change that"
            ))
    })
}

/// Puts values on others; ids and hashes are written in hex.
fn put_on(raw: &mut Json, said: &Json) {
    match (raw, said) {
        (Json::Object(raw), Json::Object(said)) => {
            for (key, value) in said {
                match raw.get_mut(key) {
                    Some(known) => put_on(known, value),
                    None => {
                        raw.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Json::Array(raw), Json::Array(said)) if raw.len() == said.len() && said.iter().any(Json::is_object) => {
            raw.iter_mut().zip(said).for_each(|(raw, said)| put_on(raw, said));
        }
        (raw @ Json::Array(_), Json::String(text)) => {
            *raw = match hex::decode(text) {
                Ok(bytes) => bytes.into(),
                Err(_) => said.clone(),
            };
        }
        (raw, said) => *raw = said.clone(),
    }
}

/// The configuration files of each project in a folder.
fn configuration(dir: &Path) -> Result<BTreeMap<String, BTreeMap<String, String>>, Failure> {
    let git = dir.join("git");
    let root = if git.is_dir() { git } else { dir.to_owned() };
    let mut projects = BTreeMap::new();
    for (name, path) in folder::directories(&root)? {
        let mut files = folder::read_repository(&path)?;
        files.retain(|path, _| is_config_path(path, &[]));
        if !files.is_empty() {
            projects.insert(name, files);
        }
    }
    if projects.is_empty() {
        return Err(Failure::new(
            Code::NotFound,
            format!("there is no project with configuration in {}", dir.display()),
        )
        .hint("each project is a directory named <org>_<project>, with its zuul.d/ or .zuul.yaml"));
    }
    Ok(projects)
}

fn render(answer: &Answer, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let until: Vec<String> = answer.until.iter().map(|(partition, last)| format!("{partition} event {last}")).collect();
    lines.push(style.paint(Paint::Faint, &format!("the record up to {}", until.join(", "))));
    let same = answer.same_decisions;
    let Some(first) = &answer.divergence else {
        lines.push(
            style.paint(Paint::Green, &format!("nothing would have been otherwise: {same} decisions are the same")),
        );
        return lines;
    };
    let head = format!(
        "otherwise from {} event {} on, {} ({same} decisions before it are the same)",
        first.partition, first.sequence, first.at
    );
    lines.push(style.paint(Paint::Bold, &head));
    lines.push(clean(&format!(
        "  {}: {} [input {} at offset {}]",
        first.why, first.what, first.input, first.input_offset
    )));
    let kinds = |events: &[Json]| -> String {
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
        if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") }
    };
    lines.push(format!("  recorded: {}", kinds(&first.recorded)));
    if first.why != "without" {
        lines.push(format!("  now:      {}", kinds(&first.now)));
    }
    let of = &answer.difference;
    let mut told = |head: &str, rows: Vec<String>| {
        if rows.is_empty() {
            return;
        }
        lines.push(style.paint(Paint::Bold, head));
        let count = rows.len();
        lines.extend(rows.into_iter().take(TOLD).map(|row| format!("  {}", clean(&row))));
        if count > TOLD {
            lines.push(style.paint(Paint::Faint, &format!("  and {} more (--json has all)", count - TOLD)));
        }
    };
    let gone = of.items_gone.iter().map(|item| format!("- {item}"));
    let come = of.items_come.iter().map(|item| format!("+ {item}"));
    let otherwise = of
        .items
        .iter()
        .map(|one| format!("~ {}: {} {} → {}", one.item, one.what, shown(&one.recorded), shown(&one.now)));
    told("items", gone.chain(come).chain(otherwise).collect());
    let job = |job: &Option<gatelog_replay::what_if::JobOutcome>| match job {
        None => "no such job".to_owned(),
        Some(job) => format!("{} ({} attempts)", job.result.as_deref().unwrap_or("no result"), job.attempts),
    };
    told(
        "jobs",
        of.jobs
            .iter()
            .map(|one| format!("~ {} of {}: {} → {}", one.job, one.item, job(&one.recorded), job(&one.now)))
            .collect(),
    );
    told("merges", order(&of.merges));
    told("order of leaving", order(&of.order));
    told("attempts", of.attempts.iter().map(|(result, (was, is))| format!("{result}: {was} → {is}")).collect());
    let hours = |ms: i64| ms as f64 / 3_600_000.0;
    let (was, is) = of.node_ms;
    told(
        "node-hours",
        vec![format!(
            "{:.2} → {:.2} ({:+.2}), {} → {} leases",
            hours(was),
            hours(is),
            hours(is - was),
            of.leases.0,
            of.leases.1
        )],
    );
    if of.is_same() {
        lines.push(style.paint(Paint::Green, "items, jobs, merges and their order would have been the same"));
    }
    lines.push(style.paint(Paint::Bold, "how what did not happen is modelled"));
    for rule in &answer.rules {
        let used = answer.assumed.get(rule).map(|count| format!(" [{count} times]")).unwrap_or_default();
        lines.push(style.paint(Paint::Faint, &format!("  {rule}{used}")));
    }
    lines
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn order(of: &OrderDifference) -> Vec<String> {
    let gone = of.only_recorded.iter().map(|item| format!("- {item}"));
    let come = of.only_now.iter().map(|item| format!("+ {item}"));
    let mut rows: Vec<String> = gone.chain(come).collect();
    if !of.recorded.is_empty() {
        rows.push(format!("~ {} → {}", of.recorded.join(", "), of.now.join(", ")));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_is_put_on_what_was_recorded() {
        let mut raw = serde_json::json!({ "tenant": "a", "item": vec![1; 16], "of": { "x": 1, "y": [1, 2] }, "list": [{ "a": 1 }] });
        let said =
            serde_json::json!({ "tenant": "b", "item": "02".repeat(16), "of": { "y": [3] }, "list": [{ "a": 2 }] });
        put_on(&mut raw, &said);
        assert_eq!(raw["tenant"], "b");
        assert_eq!(raw["item"], serde_json::json!(vec![2; 16]));
        assert_eq!((&raw["of"]["x"], &raw["of"]["y"]), (&Json::from(1), &serde_json::json!([3])));
        assert_eq!(raw["list"][0]["a"], 2);
    }

    #[test]
    fn an_order_is_told_by_what_is_gone_what_has_come_and_what_stands_elsewhere() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect();
        let of = OrderDifference {
            only_recorded: names("a"),
            only_now: names("b"),
            recorded: names("c d"),
            now: names("d c"),
        };
        assert_eq!(order(&of), ["- a", "+ b", "~ c, d → d, c"]);
    }
}
