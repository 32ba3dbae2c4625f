//! Requests to keep the nodes of builds that fail. Zuul: autoholds.

use std::ops::Bound;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::AutoholdRow;
use gatelog_record::LeaseId;
use gatelog_record::draft::gate::{AutoholdAsked, AutoholdDeleteAsked, TenantProject};
use gatelog_record::input::GateInput;
use gatelog_tables::{Backing, Table, TableExt};
use serde_json::{Value, json};

use super::body::{Fields, change_name};
use super::{AUTOHOLD, Answered, Asking, Head, ProjectHead, Sent, asking, project_before, to_project};
use crate::answers::{Autohold, HeldNodes, Typed};
use crate::error::ApiError;
use crate::keys::project_of;
use crate::query::Query;
use crate::reading::{Live, Needs, Reading, answer};
use crate::routes::segments;
use crate::shape::{ms, short};

/// The parameters of the list.
pub(super) const PARAMETERS: &[&str] = &["project"];
/// The parameters of a request that is taken back.
pub(super) const DELETE_PARAMETERS: &[&str] = &["reason"];
/// The header of an answer with the number of the request that is in force now.
const REQUEST: &str = "gatelog-request";

/// A request's number, as Zuul writes it.
fn number(request: u64) -> String {
    format!("{request:010}")
}

/// The nodes that a lease has, as long as capacity has the lease.
fn nodes_of(reading: &Reading<'_>, lease: LeaseId) -> Result<Vec<String>, ApiError> {
    reading.of_lease(lease, |row| {
        row.grant.iter().flat_map(|grant| &grant.nodes).map(|one| one.node.to_string()).collect()
    })
}

/// Whether some of these requests keep nodes, which capacity tells.
pub(crate) fn names_leases<B: Backing>(live: &GateLive<B>) -> Result<bool, ApiError> {
    for entry in live.gate.autoholds.all()? {
        if entry?.1.held.iter().any(|held| held.lease.is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn document(reading: &Reading<'_>, request: u64, row: &AutoholdRow) -> Result<Autohold, ApiError> {
    let asked = &row.asked;
    let held = |one: &gatelog_gate_state::live::HeldBuild| {
        Ok(HeldNodes {
            build: one.build.to_string(),
            nodes: one.lease.map_or_else(|| Ok(Vec::new()), |lease| nodes_of(reading, lease))?,
            lease: one.lease.map(|lease| lease.to_string()),
            worker: one.worker.clone(),
            since_ms: ms(one.since),
            until_ms: one.hold.until.map(ms),
        })
    };
    Ok(Autohold {
        id: number(request),
        tenant: asked.tenant.clone(),
        project: asked.project.clone(),
        job: asked.job.clone(),
        ref_filter: asked.ref_filter.clone(),
        max_count: asked.count,
        current_count: row.count,
        reason: asked.reason.clone(),
        node_expiration: asked.node_expiration,
        expired: None,
        nodes: row.held.iter().map(held).collect::<Result<_, ApiError>>()?,
        asked_ms: ms(row.asked_at),
    })
}

fn rows<B: Backing>(live: &GateLive<B>, tenant: &str) -> Result<Vec<(u64, AutoholdRow)>, ApiError> {
    let (from, to) = ((tenant.to_owned(), 0), (tenant.to_owned(), u64::MAX));
    let mut found = Vec::new();
    for entry in live.gate.autoholds.range(Bound::Included(&from), Bound::Included(&to))? {
        let ((_, request), row) = entry?;
        found.push((request, row.into_owned()));
    }
    Ok(found)
}

fn all(reading: &Reading<'_>, tenant: &str) -> Result<Vec<(u64, AutoholdRow)>, ApiError> {
    reading.need_tenant(tenant)?;
    match reading.live() {
        Live::Now(live) => rows(live, tenant),
        Live::Then(live) => rows(&*live, tenant),
    }
}

/// Those of a tenant; with a project, those of projects whose names end so. Zuul: it looks at the end of the name, too.
pub(crate) fn list(reading: &Reading<'_>, tenant: &str, project: Option<&str>) -> Result<Vec<Autohold>, ApiError> {
    let fits = |row: &AutoholdRow| project.is_none_or(|project| row.asked.project.ends_with(project));
    let found = all(reading, tenant)?;
    found.iter().filter(|(_, row)| fits(row)).map(|(request, row)| document(reading, *request, row)).collect()
}

/// `autohold`
pub(super) async fn of_tenant((State(app), path, headers, RawQuery(query)): Head) -> Answered {
    let tenant = segments(path)?;
    let query = Query::read(query.as_deref(), PARAMETERS)?;
    answer(app, headers, query, Needs::Live, move |reading, query| {
        list(reading, &tenant, query.one("project")?).map(Typed)
    })
    .await
}

/// `project/{project}/autohold`, to read. Zuul: without authenticators it does not exist.
pub(super) async fn of_project((State(app), path, headers, RawQuery(query)): ProjectHead) -> Answered {
    let (tenant, rest) = segments(path)?;
    let project = project_before(&rest, "/autohold")?.to_owned();
    if app.site.authenticators.is_empty() {
        return Err(ApiError::nothing());
    }
    let query = Query::read(query.as_deref(), &[])?;
    answer(app, headers, query, Needs::Live, move |reading, _| list(reading, &tenant, Some(&project)).map(Typed)).await
}

fn unknown(tenant: &str, id: &str) -> ApiError {
    ApiError::NotFound(format!("tenant {tenant:?} has no request {id:?} to keep nodes"))
}

/// `autohold/{id}`
pub(super) async fn one((State(app), path, headers, RawQuery(query)): ProjectHead) -> Answered {
    let (tenant, id) = segments(path)?;
    let query = Query::read(query.as_deref(), &[])?;
    answer(app, headers, query, Needs::Live, move |reading, _| {
        let request = id.parse::<u64>();
        let found = all(reading, &tenant)?;
        let row = found.iter().find(|(one, _)| Ok(*one) == request);
        let (request, row) = row.ok_or_else(|| unknown(&tenant, &id))?;
        document(reading, *request, row).map(Typed)
    })
    .await
}

/// `autohold/{id}`, to let the nodes go.
pub(super) async fn remove((State(app), path, headers, RawQuery(query)): ProjectHead) -> Answered {
    let (tenant, id) = segments(path)?;
    let request = id.parse::<u64>();
    let why = Query::read_only(query.as_deref(), DELETE_PARAMETERS)?.one("reason")?.unwrap_or_default().to_owned();
    let asking = asking(app, headers, None, Some(tenant)).await?;
    // Zuul: whoever may keep nodes of a project may let them go.
    let row = asking.look(Needs::Live, move |reading, tenant| {
        Ok(all(reading, tenant)?.into_iter().find(|(one, _)| Ok(*one) == request))
    });
    let row = row.await?;
    let project = row.as_ref().map(|(_, row)| short(&row.asked.project).to_owned());
    asking.need(AUTOHOLD, project.as_deref(), None)?;
    let (request, _) = row.ok_or_else(|| unknown(asking.tenant(), &id))?;
    let reason = Fields::of("reason", why).reason()?;
    let asked = AutoholdDeleteAsked { tenant: asking.tenant().to_owned(), request, reason };
    asking.ask(GateInput::AutoholdDeleteAsked(asked), Value::Null).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `project/{project}/autohold`, to ask.
pub(super) async fn ask(head: ProjectHead, sent: Sent) -> Answered {
    let (asking, project, body) = to_project(head, "/autohold", sent).await?;
    asking.need(AUTOHOLD, Some(&project), body.reference())?;
    body.only(&["job", "count", "change", "ref", "reason", "node_hold_expiration"])?;
    let job = body.needed("job")?;
    let count = body.number("count")?.unwrap_or(1);
    let count = u32::try_from(count).map_err(|_| ApiError::BadRequest(format!("`count` is too large: {count}")))?;
    let node_expiration = body.number("node_hold_expiration")?.unwrap_or(0);
    let reason = body.reason()?;
    let project = asking.look(Needs::History, move |reading, tenant| project_of(reading, tenant, &project)).await?;
    let ref_filter = match (body.name("change")?, body.full_ref()?) {
        (None, None) => ".*".to_owned(),
        (None, Some(reference)) => reference,
        (Some(change), None) => refs_of(&asking, &project, change_name(&change))?,
        (Some(_), Some(_)) => {
            return Err(ApiError::BadRequest("the body names a change and a ref; name one of them".into()));
        }
    };
    let tenant = asking.tenant().to_owned();
    let asked = AutoholdAsked { tenant, project: project.project, job, ref_filter, count, node_expiration, reason };
    asking.ask(GateInput::AutoholdAsked(asked), json!(true)).await
}

/// What the refs of a change's patchsets match, as its code-review system names them.
fn refs_of(asking: &Asking, project: &TenantProject, change: &str) -> Result<String, ApiError> {
    let driver = asking.app.site.drivers.get(&project.connection).map_or("", String::as_str);
    let numbered = change.parse::<u64>().ok();
    let refs = match (driver, numbered) {
        ("plain-git", _) => Some(format!("refs/for/{}$", regex::escape(change))),
        ("gerrit", Some(number)) => Some(format!("refs/changes/{:02}/{number}/.*", number % 100)),
        ("github" | "pagure", Some(number)) => Some(format!("refs/pull/{number}/head")),
        ("gitlab", Some(number)) => Some(format!("refs/merge-requests/{number}/head")),
        _ => None,
    };
    refs.ok_or_else(|| {
        let connection = &project.connection;
        ApiError::BadRequest(format!("{change:?} is no change of {connection}; name one, or say which `ref` is meant"))
    })
}

/// Says which request is in force now.
pub(super) fn say_number(response: &mut Response, request: u64) {
    if let Ok(value) = HeaderValue::from_str(&number(request)) {
        response.headers_mut().insert(REQUEST, value);
    }
}
