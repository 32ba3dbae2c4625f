//! The tenant file: read at start, put onto the intake when it is new.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatelog_effects::connection::{Connections, chain};
use gatelog_event_log::{Blobs, Log, LogError};
use gatelog_executing::environments::DEFAULT_RELEASE;
use gatelog_record::draft::gate::TenantLoaded;
use gatelog_record::draft::intake::TenantFile;
use gatelog_record::input::IntakeInput;
use gatelog_record::{BlobHash, InputId, InputRecord, Stream, codec};
use gatelog_rules_config::tenant::TenantSpec;
use gatelog_rules_config::{Problem, Severity, check_sources, parse_tenant_file_with};
use gatelog_rules_gate::{routed_projects, tenant_settings};

/// Why the tenant file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TenantFileError {
    /// It cannot be read.
    #[error("{path}: {why}")]
    Read {
        /// The file.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// No tenant in it can be used.
    #[error("{path} has no tenant that can be used:\n{problems}")]
    Empty {
        /// The file.
        path: String,
        /// What is wrong with it.
        problems: String,
    },
    /// It could not be kept.
    #[error("the tenant file could not be made ready for the log: {0}")]
    Keep(String),
}

/// A tenant file that was read.
pub struct Loaded {
    /// What is wrong with it, for the operator.
    pub problems: Vec<Problem>,
    /// The record to put onto the intake; none when the newest there is the same.
    pub fresh: Option<Fresh>,
    /// What is in it; nothing when the newest is the same.
    pub tenants: Vec<TenantLoaded>,
}

/// A tenant file that the intake does not have.
pub struct Fresh(Vec<u8>);

/// How long it is waited before a tenant file is put onto the log again.
const AGAIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);

impl Fresh {
    /// Puts it onto the intake, again and again until that is acknowledged or `stop` is set: brokers may be away for a
    /// while just when a process starts. One that arrives twice counts once, by its name.
    pub fn put(&self, log: &dyn Log, stop: &AtomicBool) {
        let stopping = || stop.load(Ordering::Relaxed);
        while !stopping() {
            let mut answer = log.append_inputs(Stream::Intake(0), vec![self.0.clone()]);
            let error = loop {
                answer = match answer.wait_for(LOOK) {
                    Ok(Some(Ok(_))) => return,
                    Ok(Some(Err(error @ LogError::TooLarge { .. }))) => {
                        tracing::error!(%error, "the tenant file cannot be put onto the log: the one before stays in force");
                        return;
                    }
                    Ok(Some(Err(error))) => break chain(&error),
                    Ok(None) => break "the log is closing".to_owned(),
                    Err(_) if stopping() => return,
                    Err(answer) => answer,
                };
            };
            tracing::warn!(error, "the tenant file could not be put onto the log; it is tried again");
            let began = Instant::now();
            while began.elapsed() < AGAIN && !stopping() {
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// How people reach the API, for links in reports.
#[derive(Clone, Copy, Debug)]
pub struct WebRoot<'a> {
    /// The address.
    pub url: &'a str,
    /// Whether it is the same after another start: it is set, or the port that is listened on is. One that is not
    /// is no reason to configure all tenants anew.
    pub lasts: bool,
}

/// Reads the tenant file, and compares it with the newest on the intake (`newest`: its version and blob). Jobs of tenants
/// that name no version of Ansible get `default_ansible`.
pub fn load(
    path: &Path,
    default_ansible: &str,
    connections: &Connections,
    blobs: &dyn Blobs,
    newest: Option<(u64, BlobHash)>,
    web_root: WebRoot<'_>,
) -> Result<Loaded, TenantFileError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|why| TenantFileError::Read { path: name.clone(), why })?;
    let (specs, mut problems) = parse_tenant_file_with(&text, default_ansible);
    let drivers: BTreeMap<String, String> =
        connections.iter().map(|one| (one.name.clone(), one.schema.name.to_owned())).collect();
    problems.extend(check_sources(&text, &drivers, connections.schemas()));
    if specs.is_empty() {
        let problems = problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        return Err(TenantFileError::Empty { path: name, problems });
    }
    let failed = |error: &dyn std::error::Error| TenantFileError::Keep(chain(error));
    let included = read_included(path, &specs);
    // A change of a file that is included is a change of the tenant file, and so is one of a setting that tenants have from
    // the site.
    let mut text = text;
    if default_ansible != DEFAULT_RELEASE {
        text.push_str(&format!("\n# default-ansible-version: {default_ansible}"));
    }
    if web_root.lasts {
        text.push_str(&format!("\n# web-root: {}", web_root.url));
    }
    // What tenants have of connections stands in their settings: names, drivers, and hosts in names of projects.
    for one in connections.iter() {
        let host = one.review.as_ref().map_or("", |review| review.canonical_hostname());
        text.push_str(&format!("\n# connection: {} {} {host}", one.name, one.schema.name));
    }
    let whole = included.iter().fold(text, |whole, (name, text)| format!("{whole}\n# {name}\n{text}"));
    let file = blobs.put(whole.as_bytes()).map_err(|error| failed(&error))?;
    if newest.is_some_and(|(_, known)| known == file) {
        return Ok(Loaded { problems, fresh: None, tenants: Vec::new() });
    }
    let version = newest.map_or(1, |(version, _)| version + 1);
    let mut tenants = Vec::with_capacity(specs.len());
    let names: Vec<String> = connections.iter().map(|one| one.name.clone()).collect();
    for spec in specs {
        let settings = tenant_settings(spec, &names, &drivers, &included);
        let projects = routed_projects(&settings, |connection| match connections.review(connection) {
            Ok(connection) => Some(connection.canonical_hostname().to_owned()),
            Err(trouble) => {
                tracing::warn!(tenant = settings.name, %trouble, "a project is left out");
                None
            }
        });
        let bytes = codec::encode(&settings).map_err(|error| failed(&error))?;
        let blob = blobs.put(&bytes).map_err(|error| failed(&error))?;
        tenants.push(TenantLoaded {
            tenant: settings.name,
            version,
            settings: blob,
            projects,
            web_root: web_root.url.to_owned(),
        });
    }
    let id = InputId::new(format!("tenant-file/{version}/{file}"));
    let input = IntakeInput::TenantFile(TenantFile { version, file, tenants: tenants.clone() });
    let record = InputRecord::new(id, "", crate::clock::now(), input);
    let frame = record.close().map_err(|error| failed(&error))?.encode();
    Ok(Loaded { problems, fresh: Some(Fresh(frame)), tenants })
}

/// The longest file a tenant may include, in bytes: the loader refuses longer ones by itself.
const MAX_INCLUDED: u64 = 8 << 20;

/// The files that tenants include, by the names they have in the tenant file, beside which they lie. One that
/// cannot be read is left out, and told by the layouts of its tenants.
fn read_included(tenant_file: &Path, specs: &[TenantSpec]) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for file in specs.iter().flat_map(|spec| &spec.settings.included) {
        let path = tenant_file.parent().unwrap_or(Path::new("")).join(&file.path);
        let fits = std::fs::metadata(&path).is_ok_and(|known| known.is_file() && known.len() <= MAX_INCLUDED);
        if let Some(bytes) = fits.then(|| std::fs::read(&path).ok()).flatten() {
            texts.insert(file.path.clone(), String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryLog;

    use super::*;

    #[test]
    fn a_tenant_file_is_put_onto_the_log_again_until_it_is_there_or_the_process_ends() {
        let (log, stop) = (MemoryLog::default(), AtomicBool::new(false));
        let fresh = Fresh(b"tenants".to_vec());
        let kept = |log: &MemoryLog| log.records(Stream::Intake(0)).len();
        log.fail_next(LogError::System { what: "appending".into(), message: "no broker".into() });
        fresh.put(&log, &stop);
        assert_eq!(kept(&log), 1);
        // What is larger than the log takes stays so.
        log.fail_next(LogError::TooLarge { size: 2, limit: 1 });
        fresh.put(&log, &stop);
        assert_eq!(kept(&log), 1);
        // Nobody answers, and the process is to end.
        log.hold();
        std::thread::scope(|scope| {
            scope.spawn(|| fresh.put(&log, &stop));
            while log.held() == 0 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(kept(&log), 1);
    }
}
