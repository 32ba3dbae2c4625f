//! The tenant file: read at start, put onto the intake when it is new.

use std::path::Path;

use gatelog_effects::connection::{Connections, chain};
use gatelog_event_log::{Blobs, Log};
use gatelog_record::draft::gate::{TenantLoaded, TenantProject};
use gatelog_record::draft::intake::TenantFile;
use gatelog_record::input::IntakeInput;
use gatelog_record::{BlobHash, InputId, InputRecord, Stream, codec};
use gatelog_rules_config::{Problem, Severity, parse_tenant_file};

/// Why the tenant file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TenantFileError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system says.
        source: std::io::Error,
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
    #[error("the tenant file could not be put onto the log: {0}")]
    Append(String),
}

/// Reads the tenant file; puts it onto the intake unless the newest there is the same (`newest`:
/// its version and blob). Gives what is wrong with it, for the operator.
pub fn load(
    path: &Path,
    connections: &Connections,
    blobs: &dyn Blobs,
    log: &dyn Log,
    newest: Option<(u64, BlobHash)>,
    web_root: &str,
) -> Result<Vec<Problem>, TenantFileError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| TenantFileError::Read { path: name.clone(), source })?;
    let (specs, problems) = parse_tenant_file(&text);
    if specs.is_empty() {
        let problems = problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        return Err(TenantFileError::Empty { path: name, problems });
    }
    let failed = |error: &dyn std::error::Error| TenantFileError::Append(chain(error));
    let file = blobs.put(text.as_bytes()).map_err(|error| failed(&error))?;
    if newest.is_some_and(|(_, known)| known == file) {
        return Ok(problems);
    }
    let version = newest.map_or(1, |(version, _)| version + 1);
    let mut tenants = Vec::with_capacity(specs.len());
    for spec in specs {
        let mut settings = spec.settings;
        settings.connections = connections.iter().map(|(name, _)| name.clone()).collect();
        let projects = settings
            .projects
            .iter()
            .filter_map(|project| {
                let host = match connections.get(&project.connection) {
                    Ok(connection) => connection.canonical_hostname(),
                    Err(trouble) => {
                        tracing::warn!(tenant = settings.name, project = project.name, %trouble, "a project is left out");
                        return None;
                    }
                };
                Some(TenantProject {
                    connection: project.connection.clone(),
                    project: format!("{host}/{}", project.name),
                    trusted: project.trusted,
                    reads_config: !project.include.is_empty(),
                })
            })
            .collect();
        let bytes = codec::encode(&settings).map_err(|error| failed(&error))?;
        let blob = blobs.put(&bytes).map_err(|error| failed(&error))?;
        tenants.push(TenantLoaded {
            tenant: settings.name,
            version,
            settings: blob,
            projects,
            web_root: web_root.to_owned(),
        });
    }
    let id = InputId::new(format!("tenant-file/{version}/{file}"));
    let input = IntakeInput::TenantFile(TenantFile { version, file, tenants });
    let record = InputRecord::new(id, "", crate::clock::now(), input);
    let frame = record.close().map_err(|error| failed(&error))?.encode();
    log.append_inputs(Stream::Intake(0), vec![frame])
        .wait()
        .ok_or_else(|| TenantFileError::Append("the log is closing".into()))?
        .map_err(|error| failed(&error))?;
    Ok(problems)
}
