//! Tenants and their configuration in force.

use std::ops::Bound;

use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::SemaphoreHolders;
use gatelog_record::BuildId;
use gatelog_rules_config::Severity;
use gatelog_tables::{Backing, Table};
use serde_json::{Value as Json, json};

use crate::error::ApiError;
use crate::filter::{MAX_LIMIT, MAX_SKIP, any, fits};
use crate::query::Query;
use crate::reading::{Live, Reading};
use crate::shape::short;

/// The parameters of `config-errors`.
pub(crate) const ERROR_PARAMETERS: &[&str] = &["project", "branch", "severity", "name", "limit", "skip"];

/// `tenants`
pub(crate) fn tenants(reading: &Reading<'_>) -> Result<Json, ApiError> {
    let names = reading.history().tenant_names(reading.at)?;
    Ok(names.into_iter().map(|name| json!({ "name": name })).collect())
}

/// `info`, of the site or of a tenant. Everybody may read it: it says where people log in.
pub(crate) fn info(reading: &Reading<'_>, tenant: Option<&str>) -> Result<Json, ApiError> {
    if let Some(tenant) = tenant {
        reading.need_tenant(tenant)?;
    }
    let rules = match tenant {
        Some(tenant) => reading.rules_of(tenant)?,
        None => Some(reading.rules_of_root()?),
    };
    let protected = rules.as_ref().is_some_and(|rules| !rules.is_open(tenant));
    let realm = rules.as_ref().and_then(|rules| rules.realm(tenant).or_else(|| rules.realm(None)));
    let mut info = json!({
        "capabilities": {
            "job_history": true,
            "auth": reading.app.site.authenticators.capabilities(realm, protected),
        },
        "websocket_url": reading.app.site.websocket_url,
        "stats": null,
        "version": reading.app.site.version,
    });
    if let Some(tenant) = tenant {
        info["tenant"] = json!(tenant);
    }
    Ok(json!({ "info": info }))
}

/// `projects`
pub(crate) fn projects(reading: &Reading<'_>, tenant: &str) -> Result<Json, ApiError> {
    reading.need_tenant(tenant)?;
    let Some(entry) = reading.history().tenant(tenant, reading.at)? else { return Ok(json!([])) };
    let mut projects: Vec<Json> = entry
        .loaded
        .projects
        .iter()
        .map(|project| {
            json!({
                "name": short(&project.project),
                "connection_name": project.connection,
                "canonical_name": project.project,
                "type": if project.trusted { "config" } else { "untrusted" },
            })
        })
        .collect();
    projects.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
    Ok(Json::Array(projects))
}

/// `pipelines`
pub(crate) fn pipelines(reading: &Reading<'_>, tenant: &str) -> Result<Json, ApiError> {
    reading.need_tenant(tenant)?;
    let Some(layout) = reading.layout(tenant)? else { return Ok(json!([])) };
    let drivers = &reading.app.site.drivers;
    let pipeline = |pipeline: &gatelog_rules_config::Pipeline| {
        let triggers: Vec<Json> = pipeline
            .triggers
            .keys()
            .map(|connection| json!({ "name": connection, "driver": drivers.get(connection).unwrap_or(connection) }))
            .collect();
        json!({ "name": pipeline.name, "triggers": triggers })
    };
    Ok(layout.pipelines_in_order().map(pipeline).collect())
}

/// `jobs`
pub(crate) fn jobs(reading: &Reading<'_>, tenant: &str) -> Result<Json, ApiError> {
    use gatelog_rules_config::objects::job::{JobDefinition, Parent};
    use gatelog_rules_config::regexes::PatternText;
    reading.need_tenant(tenant)?;
    let Some(layout) = reading.layout(tenant)? else { return Ok(json!([])) };
    let variant = |definition: &JobDefinition| {
        let mut json = json!({
            "parent": match &definition.parent {
                Parent::Named(name) => Some(name.as_str()),
                Parent::Default if definition.name != layout.default_parent => Some(layout.default_parent.as_str()),
                _ => None,
            },
        });
        if let Some(branches) = &definition.branches {
            json["branches"] = branches.iter().map(|pattern| PatternText::from(pattern.clone()).regex).collect();
        }
        json
    };
    let mut jobs = Vec::new();
    for (name, definitions) in &layout.jobs {
        let mut json = json!({ "name": name });
        if let Some(description) = definitions.iter().find_map(|definition| definition.description.as_ref()) {
            json["description"] = json!(description);
        }
        json["variants"] = definitions.iter().map(|definition| variant(definition)).collect();
        jobs.push(json);
    }
    Ok(Json::Array(jobs))
}

/// `config-errors`: what is wrong with the layout in force, with projects that could not be read, and
/// with a newer layout that could not be made.
pub(crate) fn errors(reading: &Reading<'_>, tenant: &str, query: &Query) -> Result<Json, ApiError> {
    reading.need_tenant(tenant)?;
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(50);
    let skip = query.number("skip", MAX_SKIP)?.unwrap_or(0);
    let (projects, branches) = (query.all("project"), query.all("branch"));
    let (severities, names) = (query.all("severity"), query.all("name"));
    let mut told = Vec::new();
    let layout = reading.history().layout(tenant, reading.at)?;
    if let Some((code, message)) = layout.as_ref().and_then(|layout| layout.failed.as_ref()) {
        told.push(json!({
            "source_context": { "project": null, "branch": null, "path": null },
            "error": format!("the newest configuration is not in force: {message}"),
            "short_error": message,
            "severity": "error",
            "name": "Layout Failed",
            "code": code,
        }));
    }
    for problem in reading.history().unread(tenant, reading.at)? {
        told.push(json!({
            "source_context": { "project": problem.project, "branch": null, "path": null },
            "error": format!("the configuration of {} could not be read: {}", problem.project, problem.message),
            "short_error": problem.message,
            "severity": "error",
            "name": "Project Not Readable",
            "code": problem.code,
        }));
    }
    if let Some(problems) = layout.and_then(|layout| layout.problems) {
        for problem in reading.app.problems(&problems)? {
            let context = &problem.place.context;
            told.push(json!({
                "source_context": { "project": context.project, "branch": context.branch, "path": problem.zuul_path() },
                "error": problem.to_string(),
                "short_error": problem.message,
                "severity": problem.severity.to_string(),
                "name": problem.name,
                "code": problem.code,
                "line": problem.place.line,
                "column": problem.place.column,
                "cure": problem.cure,
            }));
        }
    }
    let text = |json: &Json, name: &str| json[name].as_str().unwrap_or_default().to_owned();
    Ok(told
        .into_iter()
        .filter(|error| {
            let context = &error["source_context"];
            let project = text(context, "project");
            any(&projects, |value| fits(value, &project) || fits(value, short(&project)))
                && any(&branches, |value| fits(value, &text(context, "branch")))
                && any(&severities, |value| text(error, "severity") == value)
                && any(&names, |value| text(error, "name") == value)
        })
        .skip(usize::try_from(skip).unwrap_or(usize::MAX))
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .collect())
}

/// `tenant-status`
pub(crate) fn tenant_status(reading: &Reading<'_>, tenant: &str) -> Result<Json, ApiError> {
    reading.need_tenant(tenant)?;
    let unread = reading.history().unread(tenant, reading.at)?.len() as u64;
    let layout = reading.history().layout(tenant, reading.at)?;
    let failed = layout.as_ref().is_some_and(|layout| layout.failed.is_some());
    let mut errors = unread + u64::from(failed);
    if let Some(problems) = layout.and_then(|layout| layout.problems) {
        let problems = reading.app.problems(&problems)?;
        errors += problems.iter().filter(|problem| problem.severity == Severity::Error).count() as u64;
    }
    Ok(json!({ "config_error_count": errors }))
}

/// `semaphores`
pub(crate) fn semaphores(reading: &Reading<'_>, tenant: &str) -> Result<Json, ApiError> {
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
                here.push(json!({ "buildset_uuid": entry.buildset.to_string(), "job_name": entry.job }));
            }
        }
        told.push(json!({
            "name": name,
            "global": false,
            "max": layout.as_ref().map_or(1, |layout| layout.semaphore_max(name)),
            "holders": { "count": here.len(), "other_tenants": 0, "this_tenant": here },
        }));
    }
    Ok(Json::Array(told))
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
