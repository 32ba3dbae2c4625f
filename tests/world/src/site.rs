//! The site that is simulated: two tenants, their projects and their configuration.

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::draft::gate::{TenantLoaded, TenantProject};
use gatelog_record::draft::intake::TenantFile;
use gatelog_record::{BlobHash, codec};
use gatelog_rules_config::{TenantProject as ConfigProject, TenantSettings};

use crate::forge::{CONNECTION, Forge, canonical};

/// A tenant: its name, its config project, its other projects.
pub type Tenant = (&'static str, &'static str, &'static [&'static str]);

/// The tenants. One project is in both: an event of it goes two ways.
pub const TENANTS: [Tenant; 2] = [("acme", "config-acme", &["lib", "app"]), ("beta", "config-beta", &["far", "lib"])];
/// The projects in which changes are proposed.
pub const PROJECTS: [&str; 3] = ["lib", "app", "far"];

const PIPELINES: &str = "\
- pipeline: {name: check, manager: independent, trigger: {git: [{event: change-proposed}]}, success: {git: {}}, failure: {git: {}}, start: {git: {}}}
- pipeline: {name: gate, manager: dependent, window: 3, window-floor: 1, require: {git: {approved: true, current-patchset: true}}, trigger: {git: [{event: change-approved}]}, success: {git: {}}, failure: {git: {}}, start: {git: {}}}
- pipeline: {name: post, manager: independent, precedence: low, trigger: {git: [{event: ref-updated}]}, success: {git: {}}, failure: {git: {}}}
- pipeline: {name: often, manager: independent, precedence: low, trigger: {timer: [{time: '*/15 * * * *'}, {time: '*/20 * * * * 30 90', dereference: true}]}, success: {git: {}}, failure: {git: {}}}
- pipeline: {name: alone, manager: supercedent, trigger: {timer: [{time: '*/30 * * * *', dereference: true}]}, success: {git: {}}, failure: {git: {}}}
- job: {name: base, parent: null, run: run.yaml}
- semaphore: {name: rig, max: 1}
- job: {name: tests, attempts: 2, nodeset: {alternatives: [{nodes: [{name: node, label: small}]}, {nodes: [{name: node, label: large}]}]}}
- job: {name: deep, dependencies: [tests], attempts: 3, nodeset: {alternatives: [{nodes: [{name: node, label: small}]}, {nodes: [{name: node, label: large}]}]}}
- job: {name: rigged, semaphores: [rig]}
- job: {name: lint, voting: false, semaphores: [{name: rig, resources-first: true}], nodeset: {nodes: [{name: node, label: small}]}}
- job: {name: near, semaphores: [{name: rig, resources-first: true}]}
- job: {name: publish}
- queue: {name: shared}
";
const ACME: &str = "\
- project: {name: lib, queue: shared, check: {jobs: [tests, lint]}, gate: {jobs: [tests, deep, rigged, lint]}, post: {jobs: [publish]}, often: {jobs: [publish]}}
- project: {name: app, queue: shared, check: {jobs: [tests, deep]}, gate: {jobs: [tests, rigged]}}
";
const BETA: &str = "\
- project: {name: far, check: {jobs: [tests, rigged, near]}, gate: {jobs: [tests, deep]}, post: {jobs: [noop]}, often: {jobs: [noop]}, alone: {jobs: [tests]}}
- project: {name: lib, check: {jobs: [tests]}}
";

/// Makes the repositories.
pub fn found(forge: &mut Forge) {
    forge.project("config-acme", &[("zuul.yaml", &format!("{PIPELINES}{ACME}"))]);
    forge.project("config-beta", &[("zuul.yaml", &format!("{PIPELINES}{BETA}"))]);
    for project in PROJECTS {
        forge.project(project, &[("src/a", "0\n1\n2\n3\n"), ("src/b", "0\n1\n2\n3\n")]);
    }
}

/// The tenant file.
///
/// # Errors
/// When the blob store fails.
pub fn tenant_file(blobs: &MemoryBlobs, version: u64) -> Result<TenantFile, String> {
    let mut tenants = Vec::new();
    for (tenant, config, others) in TENANTS {
        let mut settings = TenantSettings { name: tenant.into(), ..TenantSettings::default() };
        let mut projects = Vec::new();
        for (project, trusted) in std::iter::once((&config, true)).chain(others.iter().map(|one| (one, false))) {
            let mut known = ConfigProject::new(CONNECTION, project, trusted);
            known.canonical_name = canonical(project);
            settings.projects.push(known);
            projects.push(TenantProject {
                connection: CONNECTION.into(),
                project: canonical(project),
                trusted,
                reads_config: true,
            });
        }
        let bytes = codec::encode(&settings).map_err(|error| error.to_string())?;
        let settings = blobs.put(&bytes).map_err(|error| error.to_string())?;
        tenants.push(TenantLoaded {
            tenant: tenant.into(),
            version,
            settings,
            web_root: "https://gate".into(),
            projects,
        });
    }
    Ok(TenantFile { version, file: BlobHash::of(&version.to_le_bytes()), tenants })
}
