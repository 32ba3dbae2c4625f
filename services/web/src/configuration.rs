//! Tenants and their configuration in force.

use std::ops::Bound;

use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::SemaphoreHolders;
use gatelog_record::BuildId;
use gatelog_rules_config::{Problem, Severity};
use gatelog_tables::{Backing, Table};

use crate::answers::{
    Capabilities, ConfigError, Holders, Info, InfoOf, Job, JobVariant, Named, NamedTrigger, Pipeline, Project,
    Semaphore, SemaphoreHolder, SourceContext, TenantStatus,
};
use crate::error::ApiError;
use crate::filter::{MAX_LIMIT, MAX_SKIP, any, fits};
use crate::query::Query;
use crate::reading::{Live, Reading};
use crate::shape::short;

/// The parameters of `config-errors`.
pub(crate) const ERROR_PARAMETERS: &[&str] = &["project", "branch", "severity", "name", "limit", "skip"];

/// `tenants`
pub(crate) fn tenants(reading: &Reading<'_>) -> Result<Vec<Named>, ApiError> {
    let names = reading.history().tenant_names(reading.at)?;
    Ok(names.into_iter().map(|name| Named { name }).collect())
}

/// `info`, of the site or of a tenant. Everybody may read it: it says where people log in.
pub(crate) fn info(reading: &Reading<'_>, tenant: Option<&str>) -> Result<Info, ApiError> {
    if let Some(tenant) = tenant {
        reading.need_tenant(tenant)?;
    }
    let rules = match tenant {
        Some(tenant) => reading.rules_of(tenant)?,
        None => Some(reading.rules_of_root()?),
    };
    let protected = rules.as_ref().is_some_and(|rules| !rules.is_open(tenant));
    let realm = rules.as_ref().and_then(|rules| rules.realm(tenant).or_else(|| rules.realm(None)));
    let site = &reading.app.site;
    let info = InfoOf {
        capabilities: Capabilities { job_history: true, auth: site.authenticators.capabilities(realm, protected) },
        websocket_url: site.websocket_url.clone(),
        stats: None,
        version: site.version.clone(),
        tenant: tenant.map(str::to_owned),
    };
    Ok(Info { info })
}

/// `projects`
pub(crate) fn projects(reading: &Reading<'_>, tenant: &str) -> Result<Vec<Project>, ApiError> {
    reading.need_tenant(tenant)?;
    let Some(entry) = reading.history().tenant(tenant, reading.at)? else { return Ok(Vec::new()) };
    let mut projects: Vec<Project> = entry
        .loaded
        .projects
        .iter()
        .map(|project| Project {
            name: short(&project.project).to_owned(),
            connection_name: project.connection.clone(),
            canonical_name: project.project.clone(),
            kind: if project.trusted { "config" } else { "untrusted" }.to_owned(),
        })
        .collect();
    projects.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(projects)
}

/// `pipelines`
pub(crate) fn pipelines(reading: &Reading<'_>, tenant: &str) -> Result<Vec<Pipeline>, ApiError> {
    reading.need_tenant(tenant)?;
    let Some(layout) = reading.layout(tenant)? else { return Ok(Vec::new()) };
    let drivers = &reading.app.site.drivers;
    let trigger = |connection: &String| NamedTrigger {
        name: connection.clone(),
        driver: drivers.get(connection).unwrap_or(connection).clone(),
    };
    let pipeline = |pipeline: &gatelog_rules_config::Pipeline| Pipeline {
        name: pipeline.name.clone(),
        triggers: pipeline.triggers.keys().map(trigger).collect(),
    };
    Ok(layout.pipelines_in_order().map(pipeline).collect())
}

/// `jobs`
pub(crate) fn jobs(reading: &Reading<'_>, tenant: &str) -> Result<Vec<Job>, ApiError> {
    use gatelog_rules_config::objects::job::{JobDefinition, Parent};
    use gatelog_rules_config::regexes::PatternText;
    reading.need_tenant(tenant)?;
    let Some(layout) = reading.layout(tenant)? else { return Ok(Vec::new()) };
    let variant = |definition: &JobDefinition| JobVariant {
        parent: match &definition.parent {
            Parent::Named(name) => Some(name.clone()),
            Parent::Default if definition.name != layout.default_parent => Some(layout.default_parent.clone()),
            _ => None,
        },
        branches: definition
            .branches
            .as_ref()
            .map(|branches| branches.iter().map(|pattern| PatternText::from(pattern.clone()).regex).collect()),
    };
    let mut jobs = Vec::new();
    for (name, definitions) in &layout.jobs {
        jobs.push(Job {
            name: name.clone(),
            description: definitions.iter().find_map(|definition| definition.description.clone()),
            variants: definitions.iter().map(|definition| variant(definition)).collect(),
        });
    }
    Ok(jobs)
}

/// `config-errors`: what is wrong with the layout in force, with projects that could not be read, and
/// with a newer layout that could not be made.
pub(crate) fn errors(reading: &Reading<'_>, tenant: &str, query: &Query) -> Result<Vec<ConfigError>, ApiError> {
    reading.need_tenant(tenant)?;
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(50);
    let skip = query.number("skip", MAX_SKIP)?.unwrap_or(0);
    let (projects, branches) = (query.all("project"), query.all("branch"));
    let (severities, names) = (query.all("severity"), query.all("name"));
    let mut told = Vec::new();
    let layout = reading.history().layout(tenant, reading.at)?;
    if let Some((code, message)) = layout.as_ref().and_then(|layout| layout.failed.as_ref()) {
        told.push(ConfigError {
            source_context: SourceContext { project: None, branch: None, path: None },
            error: format!("the newest configuration is not in force: {message}"),
            short_error: message.clone(),
            severity: "error".to_owned(),
            name: "Layout Failed".to_owned(),
            code: code.clone(),
            line: None,
            column: None,
            cure: None,
        });
    }
    for problem in reading.history().unread(tenant, reading.at)? {
        told.push(ConfigError {
            error: format!("the configuration of {} could not be read: {}", problem.project, problem.message),
            source_context: SourceContext { project: Some(problem.project), branch: None, path: None },
            short_error: problem.message,
            severity: "error".to_owned(),
            name: "Project Not Readable".to_owned(),
            code: problem.code,
            line: None,
            column: None,
            cure: None,
        });
    }
    if let Some(problems) = layout.and_then(|layout| layout.problems) {
        for problem in reading.app.problems(&problems)? {
            told.push(config_error(problem));
        }
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Ok(told
        .into_iter()
        .filter(|error| {
            let context = &error.source_context;
            let project = text(&context.project);
            any(&projects, |value| fits(value, &project) || fits(value, short(&project)))
                && any(&branches, |value| fits(value, &text(&context.branch)))
                && any(&severities, |value| error.severity == value)
                && any(&names, |value| error.name == value)
        })
        .skip(usize::try_from(skip).unwrap_or(usize::MAX))
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .collect())
}

fn config_error(problem: Problem) -> ConfigError {
    let error = problem.to_string();
    let path = problem.zuul_path();
    ConfigError {
        source_context: SourceContext {
            project: Some(problem.place.context.project.clone()),
            branch: Some(problem.place.context.branch.clone()),
            path: Some(path.to_owned()),
        },
        error,
        severity: problem.severity.to_string(),
        short_error: problem.message,
        name: problem.name,
        code: problem.code,
        line: Some(problem.place.line),
        column: Some(problem.place.column),
        cure: Some(problem.cure),
    }
}

/// `tenant-status`
pub(crate) fn tenant_status(reading: &Reading<'_>, tenant: &str) -> Result<TenantStatus, ApiError> {
    reading.need_tenant(tenant)?;
    let unread = reading.history().unread(tenant, reading.at)?.len() as u64;
    let layout = reading.history().layout(tenant, reading.at)?;
    let failed = layout.as_ref().is_some_and(|layout| layout.failed.is_some());
    let mut errors = unread + u64::from(failed);
    if let Some(problems) = layout.and_then(|layout| layout.problems) {
        let problems = reading.app.problems(&problems)?;
        errors += problems.iter().filter(|problem| problem.severity == Severity::Error).count() as u64;
    }
    Ok(TenantStatus { config_error_count: errors })
}

/// `semaphores`
pub(crate) fn semaphores(reading: &Reading<'_>, tenant: &str) -> Result<Vec<Semaphore>, ApiError> {
    reading.need_tenant(tenant)?;
    let holders = match reading.live() {
        Live::Now(live) => holders(live, tenant)?,
        Live::Then(live) => holders(&*live, tenant)?,
    };
    let layout = reading.layout(tenant)?;
    let mut names: std::collections::BTreeSet<&str> = holders.iter().map(|(name, _)| name.as_str()).collect();
    names.extend(layout.iter().flat_map(|layout| layout.semaphores.keys()).map(String::as_str));
    let mut told = Vec::new();
    for name in names {
        let mut here = Vec::new();
        for (_, build) in holders.iter().filter(|(held, _)| held == name) {
            if let Some(entry) = reading.history().build(*build, reading.at)? {
                here.push(SemaphoreHolder { buildset_uuid: entry.buildset.to_string(), job_name: entry.job });
            }
        }
        told.push(Semaphore {
            name: name.to_owned(),
            global: false,
            max: layout.as_ref().map_or(1, |layout| layout.semaphore_max(name)),
            holders: Holders { count: here.len(), other_tenants: 0, this_tenant: here },
        });
    }
    Ok(told)
}

fn holders<B: Backing>(live: &GateLive<B>, tenant: &str) -> Result<Vec<(String, BuildId)>, ApiError> {
    let first = (tenant.to_owned(), String::new(), BuildId([0; 16]));
    let mut found = Vec::new();
    let rows = Table::<SemaphoreHolders>::range(&live.gate.semaphores, Bound::Included(&first), Bound::Unbounded)?;
    for entry in rows {
        let ((of, name, build), _) = entry?;
        if of != tenant {
            break;
        }
        found.push((name, build));
    }
    Ok(found)
}
