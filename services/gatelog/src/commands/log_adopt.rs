//! `gatelog log adopt`: another history goes on from a log that was restored or forked.

use std::fs;
use std::io::ErrorKind;
use std::process::ExitCode;

use gatelog_log_embedded::EmbeddedLog;
use gatelog_record::draft::gate::AccessTold;
use serde_json::json;

use super::audit::{keyring, tell};
use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::backup::LogAdoptArgs;
use crate::config::SiteConfig;
use crate::logs::{self, SitePaths};

/// `log adopt`
///
/// The log's generation is raised. What was derived from the log as it was goes: the writers record `log-restored` when
/// they start, projections are made anew, and what connections remember of code-review systems is dropped, so that they
/// are asked for all that is open, also for what came in after the backup.
pub fn run(site: &SiteArgs, args: &LogAdoptArgs) -> Result<ExitCode, Failure> {
    if args.reason.trim().is_empty() {
        return Err(Failure::new(Code::Usage, "why is this log adopted?").hint("say it with --reason TEXT"));
    }
    let site = site.directory("log adopt")?;
    if site.server().is_some() {
        return Err(Failure::new(Code::InUse, format!("a server runs on {}", site.dir().display()))
            .hint("stop it: a log is adopted before it is served"));
    }
    let config = site.config()?;
    let paths =
        config.as_ref().map_or_else(|| SitePaths::bare(site.dir()), |config| SitePaths::new(site.dir(), config));
    let generation = match config.as_ref().and_then(|config: &SiteConfig| config.log.kafka.as_ref()) {
        None => {
            let _ = site.embedded()?;
            EmbeddedLog::adopt(paths.log(), &args.reason)?
        }
        Some(section) => {
            let kafka = logs::kafka(section, Vec::new());
            gatelog_log_kafka::adopt(kafka.clone()).map_err(|error| logs::explained(&kafka, error))?
        }
    };
    // The log's own place keeps no reason where it is on Kafka.
    tell(
        &site,
        &keyring(&site)?,
        "",
        AccessTold {
            what: "log-adopted".to_owned(),
            subject: format!("generation {generation}"),
            detail: args.reason.clone(),
        },
    )?;
    let mut gone = Vec::new();
    for place in [paths.projections(), paths.connections()] {
        match fs::remove_dir_all(&place) {
            Ok(()) => gone.push(place),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::new(Code::No, format!("{}: {error}", place.display()))
                    .detail(format!("the log is adopted as generation {generation}"))
                    .hint("remove that directory: it tells of the history before"));
            }
        }
    }
    let mut out = Output::new();
    if args.json {
        let _ = out.json(&json!({ "generation": generation, "reason": args.reason, "removed": gone }))?;
    } else {
        let _ = out.line(&format!("the log goes on as generation {generation}: {}", args.reason))?;
        for place in gone {
            let _ = out.line(&format!("  {} told of the history before and is gone", place.display()))?;
        }
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}
