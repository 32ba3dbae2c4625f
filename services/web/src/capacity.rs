//! Who is there, and what capacity knows: who offers slots, and what an attempt waited for before it ran.
//!
//! Capacity has a history of its own, so these answers carry a position of their own. `at` names one of the gate: the
//! answer is as of where capacity stood then ([`crate::Past::capacity_beside`]).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use axum::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use gatelog_capacity_state::{CapacityRead, LeaseHistoryRow, WorkerRow};
use gatelog_record::{BuildId, LeaseId};
use gatelog_store::RocksBacking;
use gatelog_tables::{Table, TableExt};
use serde_json::{Map, Value, json};

use crate::builds;
use crate::error::ApiError;
use crate::reading::{AFTER_TIME, App, Needs, POSITION, read};
use crate::shape::ms;
use crate::site::{Component, ComponentState};

/// Zuul's kind of those who run builds.
const EXECUTOR: &str = "executor";
/// Zuul's state of one that takes nothing new.
const PAUSED: &str = "paused";
/// The most leases told of one build.
const MAX_LEASES: usize = 1_000;

fn respond(position: &str, document: Value) -> Response {
    let mut response = Json(document).into_response();
    if let Ok(value) = HeaderValue::from_str(position) {
        response.headers_mut().insert(POSITION, value);
    }
    response
}

/// As of which of its events capacity is to be read for a moment of the gate; `None` for the newest.
pub(crate) async fn beside(app: &Arc<App>, at: Option<u64>) -> Result<Option<u64>, ApiError> {
    let Some(gate) = at else { return Ok(None) };
    let wanted = app.blocking(move |app| Ok(app.site.past.capacity_beside(gate)?)).await?;
    // The fold here may be a little behind the log.
    let mut fold = app.site.capacity_fold.subscribe();
    match tokio::time::timeout(AFTER_TIME, fold.reached(wanted)).await {
        Ok(Ok(_)) => Ok(Some(wanted)),
        Ok(Err(_)) | Err(_) => {
            let at = app.site.capacity_fold.position().sequence;
            Err(ApiError::NotYet { wanted, at, position: format!("{}:{at}", app.site.capacity.view().partition()) })
        }
    }
}

/// The leases of a build's attempts as of an event of capacity's (`u64::MAX`: the newest), at most so many.
pub(crate) fn leases_of(
    history: &CapacityRead<RocksBacking>,
    build: BuildId,
    at: u64,
    most: usize,
) -> Result<Vec<(LeaseId, LeaseHistoryRow)>, ApiError> {
    let (first, last) = ((build, 0, 0), (build, u32::MAX, u64::MAX));
    let mut found = Vec::new();
    for entry in history.of_build.range(Bound::Included(&first), Bound::Included(&last))?.take(most) {
        let lease = *entry?.1;
        found.extend(history.lease_at(lease, at)?.map(|row| (lease, row)));
    }
    Ok(found)
}

/// The workers that had joined when the gate had come to an event, and capacity's own position then.
pub(crate) async fn workers_then(app: &Arc<App>, at: u64) -> Result<(u64, Vec<(String, WorkerRow)>), ApiError> {
    let find = move |app: &App| {
        let at = app.site.past.capacity_beside(at)?;
        let live = app.site.past.capacity_at(at)?;
        let workers = live.own.workers.all()?.map(|entry| entry.map(|(name, row)| (name, row.into_owned())));
        Ok((at, workers.collect::<Result<_, _>>()?))
    };
    app.blocking(find).await
}

/// `components` of the past: the workers that had joined. Signs of life are no part of the history.
pub(crate) async fn components_then(app: Arc<App>, at: u64) -> Result<Response, ApiError> {
    let (at, workers) = workers_then(&app, at).await?;
    let executor = |(name, row): (String, WorkerRow)| {
        let mut told = Map::new();
        told.insert("hostname".into(), json!(name));
        told.insert("state".into(), json!(ComponentState::Running.name()));
        told.insert("version".into(), Value::Null);
        offers(&mut told, &row);
        Value::Object(told)
    };
    let executors: Vec<Value> = workers.into_iter().map(executor).collect();
    let partition = app.blocking(|app| Ok(app.site.capacity.view().partition())).await?;
    Ok(respond(&format!("{partition}:{at}"), json!({ EXECUTOR: executors })))
}

/// What capacity knows of a worker.
fn offers(executor: &mut Map<String, Value>, row: &WorkerRow) {
    executor.insert("address".into(), json!(row.offer.address));
    executor.insert("slots".into(), json!(row.offer.slots));
    executor.insert("used".into(), json!(row.used));
    executor.insert("labels".into(), json!(row.offer.labels));
    executor.insert("joined_ms".into(), json!(ms(row.joined_at)));
}

/// `components`: who is there, by Zuul's kinds and gatelog's own (`connections`). A process is listed under each of its
/// roles, as Zuul lists its components; what capacity knows of a worker is told with its `executor`.
pub(crate) async fn components(app: Arc<App>) -> Result<Response, ApiError> {
    let (position, document) = app
        .blocking(|app| {
            let mut present = app.site.components.present();
            present.sort_by(|a, b| a.name.cmp(&b.name));
            let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for component in &present {
                for role in &component.roles {
                    kinds.entry(role.clone()).or_default().push(told(component));
                }
            }
            let view = app.site.capacity.view();
            for entry in view.live().own.workers.all()? {
                let (name, row) = entry?;
                let executors = kinds.entry(EXECUTOR.to_owned()).or_default();
                let known = executors.iter().position(|executor| executor["hostname"] == name.as_str());
                let place = known.unwrap_or_else(|| {
                    // No sign of it is known here, and capacity has not heard yet that it is gone.
                    executors.push(json!({
                        "hostname": name,
                        "state": ComponentState::Stopped.name(),
                        "version": null,
                    }));
                    executors.len() - 1
                });
                if let Some(Value::Object(executor)) = executors.get_mut(place) {
                    offers(executor, &row);
                }
            }
            for entry in view.live().own.pauses.all()? {
                let ((role, name), pause) = entry?;
                let known = kinds.get_mut(&role).into_iter().flatten().find(|one| one["hostname"] == name.as_str());
                let Some(Value::Object(component)) = known else { continue };
                // Zuul: one that runs and takes nothing new is paused.
                if component.get("state").and_then(Value::as_str) == Some(ComponentState::Running.name()) {
                    component.insert("state".into(), json!(PAUSED));
                }
                let by = app.site.operators.name_of(pause.by);
                let since = ms(pause.since);
                component.insert("pause".into(), json!({ "reason": pause.reason, "by": by, "since_ms": since }));
            }
            let position = format!("{}:{}", view.partition(), view.position().sequence);
            Ok((position, json!(kinds)))
        })
        .await?;
    Ok(respond(&position, document))
}

/// Zuul: `hostname`, `state`, `version`; the rest is gatelog's.
fn told(component: &Component) -> Value {
    let mut told = json!({
        "hostname": component.name,
        "state": component.state.name(),
        "version": component.version,
        "level": component.level,
        "silent": component.silent,
        "roles": component.roles,
        "started_ms": ms(component.started_at),
        "last_sign_ms": u64::try_from(component.last_sign.as_millis()).unwrap_or(u64::MAX),
    });
    if let (Some(zone), Some(map)) = (&component.zone, told.as_object_mut()) {
        map.insert("zone".into(), json!(zone));
    }
    if let Some(map) = told.as_object_mut().filter(|_| !component.held.is_empty()) {
        let held = component.held.iter().map(|(code, detail)| json!({ "code": code, "detail": detail }));
        map.insert("held".into(), held.collect());
    }
    told
}

/// `build/{uuid}/leases`: what each attempt asked for, waited for and got.
pub(crate) async fn leases(app: Arc<App>, tenant: String, uuid: String, at: Option<u64>) -> Result<Response, ApiError> {
    let then = beside(&app, at).await?;
    let (position, document) = app
        .blocking(move |app| {
            let build = read(app, at, Needs::History, |reading| Ok(builds::find(reading, &tenant, &uuid)?.0))?;
            let view = app.site.capacity.view();
            let newest = then.unwrap_or(view.position().sequence);
            let mut told = Vec::new();
            for (lease, row) in leases_of(view.temporal(), build, newest, MAX_LEASES)? {
                let granted = row.granted_at;
                told.push(json!({
                    "lease": lease.to_string(),
                    "attempt": row.attempt,
                    "phase": format!("{:?}", row.phase).to_lowercase(),
                    "asked_ms": ms(row.asked_at),
                    "granted_ms": granted.map(ms),
                    "ended_ms": row.ended_at.map(ms),
                    "worker": granted.map(|_| row.worker),
                    "code": row.reason,
                    "detail": row.detail,
                }));
            }
            Ok((format!("{}:{newest}", view.partition()), Value::Array(told)))
        })
        .await?;
    Ok(respond(&position, document))
}
