//! `gatelog audit forget|retention`: what is kept for how long, and what can be made unreadable. Nothing is ever taken out
//! of the log; what may have to disappear is sealed, and its key is deleted.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use gatelog_effects::connection::chain;
use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_record::draft::gate::AccessTold;
use gatelog_record::{Envelope, InputFrame, Stream, Timestamp};
use gatelog_secrets::Scope;
use serde_json::{Value as Json, json};

use super::audit::{keyring, tell};
use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::audit::{ForgetArgs, RetentionArgs};

/// `audit forget`
pub fn forget(site: &SiteArgs, args: &ForgetArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("audit forget")?;
    let scope = Scope::read(&args.scope).ok_or_else(|| {
        Failure::new(Code::Usage, format!("{:?} names no scope of a key", args.scope)).hint(
            "name person/ID, project/HOST/NAME, buildset/ID or intake/CONNECTION/MONTH; `audit retention` lists them",
        )
    })?;
    let keyring = keyring(&site)?;
    let forgotten = keyring.forget(&scope).map_err(|error| Failure::new(Code::No, chain(&error)))?;
    if !forgotten {
        return Err(Failure::new(Code::NotFound, format!("there is no key of {scope}"))
            .detail("nothing was sealed for it, or it was forgotten before"));
    }
    // Told after it is done: a note of what did not happen would be worse than none.
    let what = AccessTold { what: "key-forgotten".to_owned(), subject: scope.to_string(), detail: args.reason.clone() };
    tell(&site, &keyring, "", what).map_err(|failure| failure.detail(format!("the key of {scope} is forgotten")))?;
    let mut out = Output::new();
    let _ = out.line(&format!(
        "the key of {scope} is forgotten: what was sealed with it nobody can read any more; the log is as it was"
    ))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What a stream holds.
#[derive(Default)]
struct Kept {
    records: u64,
    bytes: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

/// `audit retention`
pub fn retention(site: &SiteArgs, args: &RetentionArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("audit retention")?;
    let (log, blobs) = site.history()?;
    let mut streams = Vec::new();
    let mut all = log.streams()?;
    all.sort();
    for stream in all {
        streams.push((stream, kept(&*log, stream)?));
    }
    let names = blobs.list()?;
    // Counted where they lie: reading all of them would take long.
    let keys = site.keys()?;
    let mut scopes: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    if keys.exists() {
        for name in keyring(&site)?.scopes().map_err(|error| Failure::new(Code::No, chain(&error)))? {
            let kind = match Scope::read(&name) {
                Some(Scope::Person(_)) => "person",
                Some(Scope::Project(_)) => "project",
                Some(Scope::Buildset(_)) => "buildset",
                Some(Scope::Intake { .. }) => "intake",
                None => continue,
            };
            scopes.entry(kind).or_default().push(name);
        }
    }
    let checkpoints = site.config()?.and_then(|config| config.audit.directory(site.dir()));
    let consoles = site.dir().join("logs");
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&to_json(&streams, names.len(), &scopes, checkpoints.as_deref(), &consoles))?
    } else {
        out.lines(&render(&streams, names.len(), &scopes, checkpoints.as_deref(), &consoles))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn kept(log: &dyn Log, stream: Stream) -> Result<Kept, Failure> {
    let mut kept = Kept::default();
    let mut from = Offset::default();
    loop {
        let batch = log.read(stream, from, ReadLimit::default())?;
        if batch.records.is_empty() {
            return Ok(kept);
        }
        for record in &batch.records {
            kept.records += 1;
            kept.bytes += record.bytes.len() as u64;
            let at = match stream {
                Stream::Events(_) => Envelope::decode(&record.bytes).map(|(envelope, _)| envelope.recorded_at).ok(),
                _ => InputFrame::decode(&record.bytes).map(|frame| frame.observed_at).ok(),
            };
            kept.first = kept.first.or(at);
            kept.last = at.or(kept.last);
        }
        from = batch.next;
    }
}

type Streams = [(Stream, Kept)];
type Scopes = BTreeMap<&'static str, Vec<String>>;

/// What is sealed for a kind of scope, and how long.
fn of_kind(kind: &str) -> &'static str {
    match kind {
        "person" => "names and addresses of persons",
        "project" => "texts of commits and reviews",
        "buildset" => "secret_data that jobs handed each other",
        _ => "raw bodies that came by a connection in a month",
    }
}

fn to_json(streams: &Streams, blobs: usize, scopes: &Scopes, checkpoints: Option<&Path>, consoles: &Path) -> Json {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let streams: Vec<Json> = streams
        .iter()
        .map(|(stream, kept)| {
            json!({ "stream": stream.to_string(), "records": kept.records, "bytes": kept.bytes,
                    "first": time(kept.first), "last": time(kept.last), "kept": "for ever" })
        })
        .collect();
    let sealed: Vec<Json> = scopes
        .iter()
        .map(|(kind, names)| {
            json!({ "kind": kind, "holds": of_kind(kind), "scopes": names, "kept": "until its key is forgotten" })
        })
        .collect();
    json!({ "streams": streams, "blobs": { "count": blobs, "kept": "for ever; returned data by keep-returned-days" },
        "sealed": sealed, "checkpoints": checkpoints.map(|path| path.display().to_string()),
        "consoles": { "directory": consoles.display().to_string(), "kept": "until somebody deletes them" } })
}

fn render(
    streams: &Streams,
    blobs: usize,
    scopes: &Scopes,
    checkpoints: Option<&Path>,
    consoles: &Path,
) -> Vec<String> {
    let mut lines = vec!["Kept for ever, and never changed:".to_owned()];
    for (stream, kept) in streams {
        let from = kept.first.map(|at| format!(", from {at}")).unwrap_or_default();
        let to = kept.last.map(|at| format!(" to {at}")).unwrap_or_default();
        lines.push(format!("  {stream}: {} records, {} bytes{from}{to}", kept.records, kept.bytes));
    }
    lines.push(format!("  {blobs} blobs that records name: configuration files, layouts, job graphs"));
    lines.push("    (what jobs returned beyond 64 KiB goes by [job-logs] keep-returned-days)".to_owned());
    lines.push("Sealed, and kept until the key is forgotten (gatelog audit forget SCOPE):".to_owned());
    for (kind, names) in scopes {
        lines.push(format!("  {}: {} ({kind}/…)", of_kind(kind), names.len()));
        lines.extend(names.iter().map(|name| format!("    {name}")));
    }
    if scopes.is_empty() {
        lines.push("  nothing".to_owned());
    }
    lines.push("Kept until somebody deletes it:".to_owned());
    lines.push(format!("  consoles of builds, in {}", consoles.display()));
    lines.push(match checkpoints {
        Some(path) => format!("  signed checkpoints, in {}", path.display()),
        None => "  no signed checkpoints: gatelog.toml names no [audit] checkpoint-directory".to_owned(),
    });
    lines
}
