//! `waits`: what everything waits for, why, since when, what ends it, and the cure.
//!
//! Gate and capacity together say it, so these answers carry both positions. How long something has waited is counted up
//! to now, or to the moment asked for.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use gatelog_capacity_state::CapacityLive;
use gatelog_record::Timestamp;
use gatelog_replay::waits::{self, Standing, Subject, TOLD_AFTER_MS, Wait};
use gatelog_tables::Maps;

use crate::answers::{WaitSubject, WaitTold, Waits};
use crate::capacity;
use crate::cut::Cut;
use crate::error::ApiError;
use crate::health;
use crate::query::Query;
use crate::reading::{App, Live, Needs, Reading, mark_cut, moment_of_all, read_at};
use crate::shape::ms;
use crate::site::ComponentState;

/// The parameters: whether waits of less than a minute are told, too.
pub(crate) const PARAMETERS: &[&str] = &["all"];
/// The most waits that are told at once; the worst come first.
const MOST: usize = 1_000;

/// What waits as of a moment.
pub(crate) struct Told {
    gate: u64,
    /// What stretches are counted up to.
    pub(crate) now: Timestamp,
    /// Worst first, at most [`MOST`].
    pub(crate) waits: Vec<Wait>,
    /// How many more there are.
    pub(crate) left_off: usize,
}

/// Capacity's tables of a moment; `None` for those of now.
pub(crate) type CapacityThen = Option<Arc<CapacityLive<Maps>>>;

/// Capacity's tables beside a moment of the gate. They are fetched before the gate's are held.
pub(crate) async fn capacity_then(app: &Arc<App>, at: Option<u64>) -> Result<CapacityThen, ApiError> {
    match capacity::beside(app, at).await? {
        Some(at) => app.blocking(move |app| Ok(Some(app.site.past.capacity_at(at)?))).await,
        None => Ok(None),
    }
}

/// `waits` of a tenant, or of the site with all its tenants.
pub(crate) async fn answer(app: Arc<App>, tenant: Option<String>, query: Query) -> Result<Response, ApiError> {
    let all = query.truth("all")?.unwrap_or(false);
    let at = moment_of_all(&app, &query).await?;
    let cut = capacity::cut_beside(&app, at.clone()).await?;
    let (cut, document) = app
        .blocking(move |app| {
            let then = match &cut {
                Some(cut) => Some(app.site.past.capacity_at(cut.of(app.site.capacity_partition()))?),
                None => None,
            };
            let cut = cut.unwrap_or_else(|| app.now());
            // Parts are looked at before tables are held.
            let parts = if at.is_none() && tenant.is_none() { parts(app) } else { Vec::new() };
            let look = |reading: &Reading<'_>| of_reading(reading, &then, tenant.as_deref(), parts, all);
            let told = read_at(app, at.as_ref(), Needs::Live, look)?;
            let cut = cut.with(app.gate, told.gate);
            let document = told.answer(&cut);
            Ok((cut, document))
        })
        .await?;
    let mut response = Json(document).into_response();
    mark_cut(response.headers_mut(), &cut);
    Ok(response)
}

/// What waits, of a tenant or of the site, as of the moment of a reading, with parts that hold something up. Without
/// `all`, what has waited for more than a minute.
pub(crate) fn of_reading(
    reading: &Reading<'_>,
    then: &CapacityThen,
    tenant: Option<&str>,
    parts: Vec<Wait>,
    all: bool,
) -> Result<Told, ApiError> {
    if let Some(tenant) = tenant {
        reading.need_tenant(tenant)?;
    }
    let recorded = |sequence| reading.history().moment(sequence).ok().flatten().map(|moment| moment.at);
    // Whoever asks for a moment is told as of that, also where it is the newest.
    let (mut waits, now) = match then {
        Some(capacity) => {
            let now = reading.now;
            let found = match reading.live() {
                Live::Now(gate) => waits::waits(gate, &**capacity, tenant, now, &recorded),
                Live::Then(gate) => waits::waits(&*gate, &**capacity, tenant, now, &recorded),
            };
            (found?, now)
        }
        None => {
            let capacity = reading.app.site.capacity.view();
            let now = health::now().max(reading.now);
            let found = match reading.live() {
                Live::Now(gate) => waits::waits(gate, capacity.live(), tenant, now, &recorded),
                Live::Then(gate) => waits::waits(&*gate, capacity.live(), tenant, now, &recorded),
            };
            (found?, now)
        }
    };
    waits.extend(parts);
    waits::worst_first(&mut waits);
    if !all {
        waits.retain(|wait| wait.millis(now) > TOLD_AFTER_MS || wait.is_part_held_up());
    }
    let left_off = waits.len().saturating_sub(MOST);
    waits.truncate(MOST);
    Ok(Told { gate: reading.at, now, waits, left_off })
}

/// Parts of this process, and processes, that hold something up.
fn parts(app: &App) -> Vec<Wait> {
    let parts = health::parts_since(app).into_iter().filter_map(|(part, since)| {
        let reason = match part.state.as_str() {
            "starting" | "catching-up" if part.well => waits::PART_STARTING,
            _ if part.well => return None,
            "stopped" => waits::PART_STOPPED,
            "missing" | "silent" => waits::ROLE_MISSING,
            "paused" => waits::ROLE_PAUSED,
            _ if part.part.starts_with("connection ") => waits::CONNECTION_FAILS,
            _ => waits::PART_YELLOW,
        };
        Wait::of_part(part.part, reason, part.detail, since)
    });
    let mut found: Vec<Wait> = parts.collect();
    for (component, since) in health::components_since(app) {
        let reason = match component.state {
            ComponentState::Draining => waits::DRAINING,
            ComponentState::Stopped if component.silent => waits::SILENT,
            ComponentState::Initializing => waits::PART_STARTING,
            ComponentState::Running | ComponentState::Stopped => continue,
        };
        let detail = format!("roles: {}", component.roles.join(", "));
        found.extend(Wait::of_part(format!("process {}", component.name), reason, detail, since));
    }
    found
}

impl Told {
    /// The answer of the API, as of where all stood.
    pub(crate) fn answer(&self, cut: &Cut) -> Waits {
        Waits {
            positions: cut.positions(),
            now_ms: ms(self.now),
            told_after_ms: TOLD_AFTER_MS,
            held_up: self.waits.iter().any(|wait| wait.reason.standing == Standing::HeldUp),
            waits: self.waits.iter().map(|wait| one(wait, self.now)).collect(),
            left_off: self.left_off,
        }
    }
}

fn one(wait: &Wait, now: Timestamp) -> WaitTold {
    WaitTold {
        subject: WaitSubject { kind: wait.subject.kind().to_owned(), id: wait.subject.id(), name: wait.name.clone() },
        tenant: wait.tenant.clone(),
        reason: wait.reason.code.to_owned(),
        standing: wait.reason.standing.word().to_owned(),
        means: wait.reason.means.to_owned(),
        detail: wait.detail.clone(),
        since: wait.since.to_string(),
        since_ms: ms(wait.since),
        waited_ms: wait.millis(now),
        ends_when: wait.ends_when.clone(),
        cure: (!wait.cure.is_empty()).then(|| wait.cure.clone()),
    }
}

/// The build or item a wait has a page of: kind and id.
pub(crate) fn page_of(wait: &Wait) -> Option<(&'static str, String)> {
    match &wait.subject {
        Subject::Item(_) => Some(("item", wait.subject.id())),
        Subject::Build(_) | Subject::Nodes(_) => Some(("build", wait.subject.id())),
        _ => None,
    }
}
