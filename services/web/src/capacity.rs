//! What capacity knows: who offers slots, and what an attempt waited for before it ran.
//!
//! Capacity has a history of its own, so these answers carry a position of their own and do not take
//! `at`: which of its positions belongs to one of the gate is a question of causes.

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

/// The most leases told of one build.
const MAX_LEASES: usize = 1_000;

fn respond(position: &str, document: Value) -> Response {
    let mut response = Json(document).into_response();
    if let Ok(value) = HeaderValue::from_str(position) {
        response.headers_mut().insert(POSITION, value);
    }
    response
}

/// `components`: Zuul's kinds, of which workers are the `executor`s.
pub(crate) async fn components(app: Arc<App>) -> Result<Response, ApiError> {
    let (position, document) = app
        .blocking(|app| {
            let view = app.site.capacity.view();
            let mut executors = Vec::new();
            for entry in view.live().own.workers.all()? {
                let (name, row) = entry?;
                executors.push(json!({
                    "hostname": name,
                    "state": "running",
                    "version": app.site.version,
                    "address": row.offer.address,
                    "slots": row.offer.slots,
                    "used": row.used,
                    "labels": row.offer.labels,
                    "joined_ms": ms(row.joined_at),
                }));
            }
            let here = json!([{ "hostname": null, "state": "running", "version": app.site.version }]);
            let position = format!("{}:{}", view.partition(), view.position().sequence);
            Ok((position, json!({ "scheduler": here.clone(), "web": here, "executor": executors })))
        })
        .await?;
    Ok(respond(&position, document))
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
