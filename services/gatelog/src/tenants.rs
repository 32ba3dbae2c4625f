//! The tenant file: read at start, put onto the intake when it is new.

use std::collections::BTreeMap;
use std::path::Path;

use gatelog_effects::connection::{Connections, chain};
use gatelog_event_log::{Blobs, Log};
use gatelog_record::draft::gate::{TenantLoaded, TenantProject};
use gatelog_record::draft::intake::TenantFile;
use gatelog_record::input::IntakeInput;
use gatelog_record::{BlobHash, InputId, InputRecord, Stream, codec};
use gatelog_rules_config::tenant::TenantSpec;
use gatelog_rules_config::{Problem, Severity, check_sources, parse_tenant_file};

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
    let (specs, mut problems) = parse_tenant_file(&text);
    let drivers: BTreeMap<String, String> =
        connections.iter().map(|(name, connection)| (name.clone(), connection.driver().to_owned())).collect();
    problems.extend(check_sources(&text, &drivers));
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
    let included = read_included(path, &specs);
    // A change of a file that is included is a change of the tenant file.
    let whole = included.iter().fold(text, |whole, (name, text)| format!("{whole}\n# {name}\n{text}"));
    let file = blobs.put(whole.as_bytes()).map_err(|error| failed(&error))?;
    if newest.is_some_and(|(_, known)| known == file) {
        return Ok(problems);
    }
    let version = newest.map_or(1, |(version, _)| version + 1);
    let mut tenants = Vec::with_capacity(specs.len());
    let names: Vec<String> = connections.iter().map(|(name, _)| name.clone()).collect();
    for mut spec in specs {
        for file in &mut spec.settings.included {
            file.text = included.get(&file.path).cloned();
        }
        spec.imply_projects(&names);
        let mut settings = spec.settings;
        settings.connections.clone_from(&names);
        settings.drivers = drivers.clone().into_iter().filter(|(_, driver)| !driver.is_empty()).collect();
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
