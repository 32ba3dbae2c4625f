//! `gatelog log repartition`: the next generation of the log's topics, with as many partitions as gatelog.toml says.

use std::process::ExitCode;

use gatelog_record::draft::gate::AccessTold;
use serde_json::{Value as Json, json};

use super::audit::{keyring, tell};
use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::repartition::LogRepartitionArgs;
use crate::logs::{self, PARTITIONS};

/// `log repartition`
pub fn run(site: &SiteArgs, args: &LogRepartitionArgs) -> Result<ExitCode, Failure> {
    #[cfg(debug_assertions)]
    crate::failpoints::arm()?;
    let site = site.directory("log repartition")?;
    let Some(section) = site.kafka()? else {
        return Err(Failure::new(Code::Usage, "the log in this directory has no topics")
            .hint("it is for a log on Kafka: see [log.kafka] in gatelog.toml"));
    };
    if section.partitions > PARTITIONS {
        return Err(Failure::new(
            Code::Usage,
            format!("partitions = {} under [log.kafka], and this gatelog serves {PARTITIONS}", section.partitions),
        )
        .hint(format!("set partitions = {PARTITIONS}")));
    }
    if site.server().is_some() {
        return Err(Failure::new(Code::InUse, format!("a server runs on {}", site.dir().display()))
            .hint("stop every process of the site: nothing may be written while its topics are copied"));
    }
    let kafka = logs::kafka(&section, Vec::new());
    let mut out = Output::new();
    let mut told = |topic: &str, records: u64| {
        if !args.json {
            let _ = out.line(&format!("copied   {topic}, {records} offsets"));
            let _ = out.flush();
        }
    };
    let done = gatelog_log_kafka::repartition(kafka.clone(), section.partitions, &mut told)
        .map_err(|error| logs::explained(&kafka, error))?;
    let Some(done) = done else {
        let _ = if args.json {
            out.json(&json!({ "changed": false, "partitions": section.partitions }))?
        } else {
            out.line(&format!("every topic has {} already", partitions(section.partitions)))?
        };
        let _ = out.flush()?;
        return Ok(ExitCode::SUCCESS);
    };
    let what = AccessTold {
        what: "log-repartitioned".to_owned(),
        subject: format!("generation {} of the log's topics", done.topics),
        detail: partitions(done.partitions),
    };
    // The switch is made: that it cannot be told does not undo it.
    let told = keyring(&site).and_then(|keyring| tell(&site, &keyring, "", what));
    let _ = if args.json {
        let copied: Vec<Json> =
            done.copied.iter().map(|(topic, offsets)| json!({ "topic": topic, "offsets": offsets })).collect();
        out.json(&json!({ "changed": true, "site": done.site.to_string(), "topics": done.topics,
            "partitions": done.partitions, "copied": copied, "left": done.left }))?
    } else {
        let mut lines = vec![format!(
            "the log is in generation {} of its topics, with {} each",
            done.topics,
            partitions(done.partitions)
        )];
        lines.push("the topics before are left as they were; delete them once the site runs again:".to_owned());
        lines.extend(done.left.iter().map(|topic| format!("  {topic}")));
        out.lines(&lines)?
    };
    let _ = out.flush()?;
    told.map(|()| ExitCode::SUCCESS).map_err(|failure| failure.detail("the log is in its new topics all the same"))
}

fn partitions(number: u32) -> String {
    if number == 1 { "1 partition".to_owned() } else { format!("{number} partitions") }
}
