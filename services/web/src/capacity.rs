//! Who is there, and what capacity knows: who offers slots, and what an attempt waited for before it ran.
//!
//! `at` names a moment of the gate: the answer is as of where capacity stood then ([`crate::Past::beside`]), or where the
//! request says that it shall.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use gatelog_capacity_state::{CapacityRead, LeaseHistoryRow, WorkerRow};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::{BuildId, LeaseId};
use gatelog_store::RocksBacking;
use gatelog_tables::TableExt;
use serde::Serialize;

use crate::answers::{Coded, Component as Told, Lease, Pause};
use crate::builds;
use crate::cut::Cut;
use crate::error::ApiError;
use crate::reading::{AFTER_TIME, App, At, Needs, Reading, mark_cut, read_at};
use crate::shape::ms;
use crate::site::{Component, ComponentState};

/// Zuul's kind of those who run builds.
const EXECUTOR: &str = "executor";
/// Zuul's state of one that takes nothing new.
const PAUSED: &str = "paused";
/// The most leases told of one build.
const MAX_LEASES: usize = 1_000;

fn respond(cut: &Cut, document: impl Serialize) -> Response {
    let mut response = Json(document).into_response();
    mark_cut(response.headers_mut(), cut);
    response
}

/// As of which of its events capacity is to be read for a moment of the gate; `None` for the newest.
pub(crate) async fn beside(app: &Arc<App>, at: Option<u64>) -> Result<Option<u64>, ApiError> {
    Ok(cut_beside(app, at.map(At::from)).await?.map(|cut| cut.of(app.site.capacity_partition())))
}

/// Where all are to be read for a moment; `None` for the newest.
pub(crate) async fn cut_beside(app: &Arc<App>, at: Option<At>) -> Result<Option<Cut>, ApiError> {
    let Some(at) = at else { return Ok(None) };
    let cut = app.blocking(move |app| at.cut(app)).await?;
    let wanted = cut.of(app.site.capacity_partition());
    // The fold here may be a little behind the log.
    let mut fold = app.site.capacity_fold.subscribe();
    match tokio::time::timeout(AFTER_TIME, fold.reached(wanted)).await {
        Ok(Ok(_)) => Ok(Some(cut)),
        Ok(Err(_)) | Err(_) => {
            let at = app.site.capacity_fold.position().sequence;
            Err(ApiError::NotYet { wanted, at, position: app.now().to_string() })
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
    // One partition has every tenant's builds.
    let owner = build_owner("", build, 0);
    Ok(history.leases_of(owner.partition, (&owner.subject.kind, owner.subject.id), at, most)?)
}

/// The workers that had joined at a moment, and where all stood then.
pub(crate) async fn workers_then(
    app: &Arc<App>,
    at: impl Into<At>,
) -> Result<(Cut, Vec<(String, WorkerRow)>), ApiError> {
    let at = at.into();
    let find = move |app: &App| {
        let cut = at.cut(app)?;
        let live = app.site.past.capacity_at(cut.of(app.site.capacity_partition()))?;
        let workers = live.own.workers.all()?.map(|entry| entry.map(|(name, row)| (name, row.into_owned())));
        Ok((cut, workers.collect::<Result<_, _>>()?))
    };
    app.blocking(find).await
}

/// `components` of the past: the workers that had joined. Signs of life are no part of the history.
pub(crate) async fn components_then(app: Arc<App>, at: At) -> Result<Response, ApiError> {
    let (cut, workers) = workers_then(&app, at).await?;
    let executor = |(name, row): (String, WorkerRow)| {
        let mut told = Told { hostname: name, state: ComponentState::Running.name().to_owned(), ..Told::default() };
        offers(&mut told, &row);
        told
    };
    let executors: Vec<Told> = workers.into_iter().map(executor).collect();
    Ok(respond(&cut, BTreeMap::from([(EXECUTOR, executors)])))
}

/// What capacity knows of a worker.
fn offers(executor: &mut Told, row: &WorkerRow) {
    executor.address = Some(row.offer.address.clone());
    executor.slots = Some(row.offer.slots);
    executor.used = Some(row.used);
    executor.labels = Some(row.offer.labels.clone());
    executor.joined_ms = Some(ms(row.joined_at));
}

/// `components`: who is there, by Zuul's kinds and gatelog's own (`connections`). A process is listed under each of its
/// roles, as Zuul lists its components; what capacity knows of a worker is told with its `executor`.
pub(crate) async fn components(app: Arc<App>) -> Result<Response, ApiError> {
    let (cut, document) = app
        .blocking(|app| {
            let cut = app.now();
            let mut present = app.site.components.present();
            present.sort_by(|a, b| a.name.cmp(&b.name));
            let mut kinds: BTreeMap<String, Vec<Told>> = BTreeMap::new();
            for component in &present {
                for role in &component.roles {
                    kinds.entry(role.clone()).or_default().push(told(component));
                }
            }
            let view = app.site.capacity.view();
            for entry in view.live().own.workers.all()? {
                let (name, row) = entry?;
                let executors = kinds.entry(EXECUTOR.to_owned()).or_default();
                let known = executors.iter().position(|executor| executor.hostname == name);
                let place = known.unwrap_or_else(|| {
                    // No sign of it is known here, and capacity has not heard yet that it is gone.
                    let state = ComponentState::Stopped.name().to_owned();
                    executors.push(Told { hostname: name.clone(), state, ..Told::default() });
                    executors.len() - 1
                });
                if let Some(executor) = executors.get_mut(place) {
                    offers(executor, &row);
                }
            }
            for entry in view.live().own.pauses.all()? {
                let ((role, name), pause) = entry?;
                let known = kinds.get_mut(&role).into_iter().flatten().find(|one| one.hostname == name);
                let Some(component) = known else { continue };
                // Zuul: one that runs and takes nothing new is paused.
                if component.state == ComponentState::Running.name() {
                    component.state = PAUSED.to_owned();
                }
                let by = app.site.operators.name_of(pause.by);
                let since = ms(pause.since);
                component.pause = Some(Pause { reason: pause.reason.clone(), by, since_ms: since });
            }
            Ok((cut, kinds))
        })
        .await?;
    Ok(respond(&cut, document))
}

/// Zuul: `hostname`, `state`, `version`; the rest is gatelog's.
fn told(component: &Component) -> Told {
    let held = |(code, detail): &(String, String)| Coded { code: code.clone(), detail: detail.clone() };
    Told {
        hostname: component.name.clone(),
        state: component.state.name().to_owned(),
        version: Some(component.version.clone()),
        level: Some(component.level),
        silent: Some(component.silent),
        roles: Some(component.roles.clone()),
        started_ms: Some(ms(component.started_at)),
        last_sign_ms: Some(u64::try_from(component.last_sign.as_millis()).unwrap_or(u64::MAX)),
        zone: component.zone.clone(),
        held: (!component.held.is_empty()).then(|| component.held.iter().map(held).collect()),
        ..Told::default()
    }
}

/// `build/{uuid}/leases`: what each attempt asked for, waited for and got.
pub(crate) async fn leases(app: Arc<App>, tenant: String, uuid: String, at: Option<At>) -> Result<Response, ApiError> {
    let then = cut_beside(&app, at.clone()).await?;
    let (cut, document) = app
        .blocking(move |app| {
            let cut = then.clone().unwrap_or_else(|| app.now());
            let find = |reading: &Reading<'_>| Ok((builds::find(reading, &tenant, &uuid)?.0, reading.at));
            let (build, gate) = read_at(app, at.as_ref(), Needs::History, find)?;
            let view = app.site.capacity.view();
            let newest = then.map_or(u64::MAX, |cut| cut.of(view.partition()));
            let mut told = Vec::new();
            for (lease, row) in leases_of(view.temporal(), build, newest, MAX_LEASES)? {
                let granted = row.granted_at;
                told.push(Lease {
                    lease: lease.to_string(),
                    attempt: row.attempt(),
                    phase: format!("{:?}", row.phase).to_lowercase(),
                    asked_ms: ms(row.asked_at),
                    granted_ms: granted.map(ms),
                    ended_ms: row.ended_at.map(ms),
                    worker: granted.map(|_| row.worker),
                    code: row.reason,
                    detail: row.detail,
                });
            }
            Ok((cut.with(app.gate, gate), told))
        })
        .await?;
    Ok(respond(&cut, document))
}
