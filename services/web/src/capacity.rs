//! Who is there, and what capacity knows: who offers slots, and what an attempt waited for before it ran.
//!
//! Capacity has a history of its own, so these answers carry a position of their own and do not take
//! `at`: which of its positions belongs to one of the gate is a question of causes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use axum::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use gatelog_tables::{Table, TableExt};
use serde_json::{Value, json};

use crate::builds;
use crate::error::ApiError;
use crate::reading::{App, Needs, POSITION, read};
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
                    executor.insert("address".into(), json!(row.offer.address));
                    executor.insert("slots".into(), json!(row.offer.slots));
                    executor.insert("used".into(), json!(row.used));
                    executor.insert("labels".into(), json!(row.offer.labels));
                    executor.insert("joined_ms".into(), json!(ms(row.joined_at)));
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
    json!({
        "hostname": component.name,
        "state": component.state.name(),
        "version": component.version,
        "level": component.level,
        "silent": component.silent,
        "roles": component.roles,
        "started_ms": ms(component.started_at),
        "last_sign_ms": u64::try_from(component.last_sign.as_millis()).unwrap_or(u64::MAX),
    })
}

/// `build/{uuid}/leases`: what each attempt asked for, waited for and got.
pub(crate) async fn leases(app: Arc<App>, tenant: String, uuid: String) -> Result<Response, ApiError> {
    let (position, document) = app
        .blocking(move |app| {
            let build = read(app, None, Needs::History, |reading| Ok(builds::find(reading, &tenant, &uuid)?.0))?;
            let view = app.site.capacity.view();
            let history = view.temporal();
            let mut told = Vec::new();
            let (first, last) = ((build, 0, 0), (build, u32::MAX, u64::MAX));
            for entry in history.of_build.range(Bound::Included(&first), Bound::Included(&last))?.take(MAX_LEASES) {
                let lease = *entry?.1;
                let Some(row) = history.lease_at(lease, u64::MAX)? else { continue };
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
            Ok((format!("{}:{}", view.partition(), view.position().sequence), Value::Array(told)))
        })
        .await?;
    Ok(respond(&position, document))
}
