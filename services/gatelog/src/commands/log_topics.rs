//! `gatelog log init` and `gatelog log check`: a log is made, and what is wrong with it is said with its cure.

use std::process::ExitCode;

use gatelog_event_log::Log;
use gatelog_log_embedded::{EmbeddedLog, Options};
use gatelog_log_kafka::{Finding, FindingKind};
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::{LogCheckArgs, LogInitArgs, SiteArgs};
use crate::logs;
use crate::show::{Paint, Style};

/// `log init`
pub fn init(site: &SiteArgs, args: &LogInitArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("log init")?;
    let (lines, document, findings) = match site.kafka()? {
        Some(section) => {
            let kafka = logs::kafka(&section, Vec::new());
            let report = match gatelog_log_kafka::init(kafka.clone()) {
                Ok(report) => report,
                Err(error) => return Err(logs::explained(&kafka, error).into()),
            };
            let mut lines: Vec<String> = Vec::new();
            lines.extend(report.created.iter().map(|topic| format!("created  {topic}")));
            lines.extend(report.found.iter().map(|topic| format!("found    {topic}")));
            lines.push(format!(
                "log of site {}, generation {}, {} in each domain",
                report.site,
                report.generation,
                partitions(report.partitions)
            ));
            let document = json!({ "site": report.site.to_string(), "generation": report.generation,
                "partitions": report.partitions, "created": report.created, "found": report.found,
                "findings": to_json(&report.findings) });
            (lines, document, report.findings)
        }
        None => {
            let path = site.dir().join("log");
            let there = path.exists();
            let log = EmbeddedLog::open(&path, Options::default())?;
            let description = log.describe();
            let done = if there { "found" } else { "created" };
            let lines = vec![
                format!("{done:<8} {}", path.display()),
                format!("log of site {}, generation {}", description.site, description.generation),
            ];
            let only = vec![path.display().to_string()];
            let (created, found) = if there { (Vec::new(), only) } else { (only, Vec::new()) };
            let document = json!({ "site": description.site.to_string(), "generation": description.generation,
                "partitions": description.partitions, "created": created, "found": found, "findings": [] });
            (lines, document, Vec::new())
        }
    };
    say(lines, document, &findings, args.json)
}

/// `log check`
pub fn check(site: &SiteArgs, args: &LogCheckArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("log check")?;
    let (name, spoken, findings) = match site.kafka()? {
        Some(section) => {
            let kafka = logs::kafka(&section, Vec::new());
            let spoken = kafka.security().ok();
            let mut findings = gatelog_log_kafka::check(kafka);
            findings.sort_by_key(|finding| finding.kind);
            (format!("log on Kafka at {}, topics {}*", section.brokers, section.prefix), spoken, findings)
        }
        None => {
            // Whether what stands in the segments is right is `log verify`'s to say.
            let log = site.embedded()?;
            (log.describe().name, None, Vec::new())
        }
    };
    let style = Style::of_stdout();
    let state = if findings.is_empty() {
        style.paint(Paint::Green, "ok")
    } else {
        style.paint(Paint::Red, "not as it must be")
    };
    let mut document = json!({ "ok": findings.is_empty(), "log": name, "findings": to_json(&findings) });
    let mut lines = vec![format!("{name}: {state}")];
    if let Some(spoken) = spoken {
        lines.push(format!("spoken  {spoken}"));
        document["security"] = json!({ "protocol": spoken.protocol(), "mechanism": spoken.mechanism,
            "user": spoken.user, "ca": spoken.ca, "certificate": spoken.certificate });
    }
    say(lines, document, &findings, args.json)
}

fn partitions(number: u32) -> String {
    if number == 1 { "1 partition".to_owned() } else { format!("{number} partitions") }
}

fn to_json(findings: &[Finding]) -> Vec<Json> {
    findings
        .iter()
        .map(|finding| json!({ "kind": kind(finding.kind), "what": finding.what, "cure": finding.cure }))
        .collect()
}

fn kind(kind: FindingKind) -> String {
    let mut name = String::new();
    for character in format!("{kind:?}").chars() {
        if character.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}

/// Prints what was done and what was found; fails when there are findings.
fn say(lines: Vec<String>, document: Json, findings: &[Finding], as_json: bool) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    let _ = if as_json { out.json(&document)? } else { out.lines(&lines)? };
    let _ = out.flush()?;
    let Some(first) = findings.first() else { return Ok(ExitCode::SUCCESS) };
    let mut failure = Failure::new(Code::of_finding(first.kind), first.what.clone()).hint(first.cure.clone());
    failure.detail.extend(findings.iter().skip(1).map(ToString::to_string));
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_findings_are_words_for_scripts() {
        assert_eq!(kind(FindingKind::MissingTopic), "missing-topic");
        assert_eq!(kind(FindingKind::Offline), "offline");
    }
}
