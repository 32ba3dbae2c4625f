//! Another tenant file than the recorded ones.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_event_log::Blobs;
use gatelog_record::codec;
use gatelog_record::draft::gate::TenantLoaded;
use gatelog_rules_config::tenant::TenantSpec;
use gatelog_rules_config::{Problem, Schemas, Severity, TenantSettings, check_sources, parse_tenant_file};
use gatelog_rules_gate::{routed_projects, tenant_settings};

use crate::error::ReplayError;

/// A tenant file that stands in place of each that was recorded.
pub(super) struct Tenants {
    text: String,
    schemas: Schemas,
    specs: BTreeMap<String, TenantSpec>,
    /// By tenant that the record has, the projects it has in this file.
    met: BTreeMap<String, BTreeSet<String>>,
}

fn wrong(message: impl Into<String>) -> ReplayError {
    ReplayError::TenantFile { message: message.into() }
}

fn errors(problems: &[Problem]) -> Result<(), ReplayError> {
    let errors: Vec<String> =
        problems.iter().filter(|problem| problem.severity == Severity::Error).map(ToString::to_string).collect();
    if errors.is_empty() { Ok(()) } else { Err(wrong(errors.join("\n"))) }
}

impl Tenants {
    /// Reads a tenant file.
    ///
    /// # Errors
    /// `TenantFile`, with everything that is wrong with it.
    pub(super) fn read(text: &str, schemas: Schemas) -> Result<Tenants, ReplayError> {
        let (specs, problems) = parse_tenant_file(text);
        errors(&problems)?;
        if specs.is_empty() {
            return Err(wrong("it has no tenant"));
        }
        let specs = specs.into_iter().map(|spec| (spec.settings.name.clone(), spec)).collect();
        Ok(Tenants { text: text.to_owned(), schemas, specs, met: BTreeMap::new() })
    }

    /// What would have been loaded in place of what was; nothing where that is the same, or the file does not have the
    /// tenant. Connections, their hosts and the files that a tenant includes are those of the record.
    ///
    /// # Errors
    /// `TenantFile` where the file names what the record does not know; `Blob`.
    pub(super) fn other(
        &mut self,
        recorded: &TenantLoaded,
        blobs: &dyn Blobs,
    ) -> Result<Option<TenantLoaded>, ReplayError> {
        let name = &recorded.tenant;
        let Some(spec) = self.specs.get(name) else { return Ok(None) };
        let before = TenantSettings::read(&blobs.get(&recorded.settings)?)
            .map_err(|error| wrong(format!("the recorded settings of tenant {name} cannot be read: {error}")))?;
        errors(&check_sources(&self.text, &before.drivers, self.schemas))?;
        let included: BTreeMap<String, String> =
            before.included.iter().filter_map(|file| Some((file.path.clone(), file.text.clone()?))).collect();
        if let Some(file) = spec.settings.included.iter().find(|file| !included.contains_key(&file.path)) {
            return Err(wrong(format!("tenant {name} includes {}, whose text the record does not have", file.path)));
        }
        let hosts: BTreeMap<&str, &str> = recorded
            .projects
            .iter()
            .filter_map(|project| Some((project.connection.as_str(), project.project.split_once('/')?.0)))
            .collect();
        let mut settings = tenant_settings(spec.clone(), &before.connections, &before.drivers, &included);
        for project in &mut settings.projects {
            let same = before.projects.iter().find(|known| {
                (known.connection.as_str(), known.name.as_str()) == (&*project.connection, &*project.name)
            });
            // What whoever loaded it filled in.
            if let Some(known) = same.filter(|_| project.canonical_name.is_empty()) {
                project.canonical_name.clone_from(&known.canonical_name);
            }
        }
        if let Some(project) = settings.projects.iter().find(|project| !hosts.contains_key(&*project.connection)) {
            return Err(wrong(format!(
                "tenant {name} has {} of connection {}, of which the record has no project in this tenant: its host is \
                 not known",
                project.name, project.connection
            )));
        }
        let projects = routed_projects(&settings, |connection| hosts.get(connection).map(|host| (*host).to_owned()));
        self.met.insert(name.clone(), projects.iter().map(|project| project.project.clone()).collect());
        if settings == before && projects == recorded.projects {
            return Ok(None);
        }
        let bytes = codec::encode(&settings).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(TenantLoaded { settings: blobs.put(&bytes)?, projects, ..recorded.clone() }))
    }

    /// Whether events of a project are routed to a tenant no more.
    pub(super) fn leaves_out(&self, tenant: &str, project: &str) -> bool {
        self.met.get(tenant).is_some_and(|projects| !projects.contains(project))
    }

    /// At least one of its tenants stands in the record.
    ///
    /// # Errors
    /// `TenantFile`.
    pub(super) fn any_met(&self) -> Result<(), ReplayError> {
        if self.met.is_empty() {
            let names: Vec<&str> = self.specs.keys().map(String::as_str).collect();
            return Err(wrong(format!("the record has none of its tenants ({})", names.join(", "))));
        }
        Ok(())
    }
}
