//! What concerns the site as a whole: the level of its log, and pauses of its executors and mergers. Zuul: what its
//! components' own commands ask for on their hosts (`zuul-executor pause`).
//!
//! Whoever may do everything at the root may ask for it: an `admin` of the root's role mappings, the bearer of a token
//! for all tenants, and the site's own Unix user.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gatelog_capacity_state::pause_key;
use gatelog_record::draft::capacity::{Pausable, PauseAsked};
use gatelog_record::draft::partition::LevelRaiseAsked;
use gatelog_record::input::{CapacityInput, PartitionInput};
use gatelog_record::level::{GATELOG, Knows, LEVEL};
use gatelog_record::{Input, Partition};
use gatelog_runner::Fold;
use gatelog_tables::Table;

use super::{Answer, Answered, READ_TIME, Sent, Shared, asking, fields};
use crate::answers::{Level, LevelBody, LevelComponent, LevelPartition, LevelRaised, Paused, Raised, ReasonBody};
use crate::error::ApiError;
use crate::paths::{Right, Route, post};
use crate::query::Query;
use crate::reading::{App, POSITION};
use crate::routes::{Segments, segments};
use crate::site::Component;

/// The key of what concerns a whole partition. Capacity's own is the name of its one allocation domain.
const WHOLE: &str = "main";

/// Permissions at the root.
const RAISE_LEVEL: &str = "raise-level";
const PAUSE_COMPONENT: &str = "pause-component";

/// The routes that are there with authenticators.
pub(super) fn routes() -> Vec<Route> {
    let routes = [
        post("component_pause", "/api/component/{role}/{name}/pause", pause),
        post("component_resume", "/api/component/{role}/{name}/resume", resume),
    ];
    let right = Right::Operator(PAUSE_COMPONENT);
    let told = |route: Route| route.right(right).takes::<ReasonBody>().answers::<Paused>().statuses(&[200, 202]);
    routes.into_iter().map(told).collect()
}

/// To raise the level. Its path is there for those who look at it.
pub(super) fn raise_route() -> Route {
    post("level", "/api/level", raise)
        .right(Right::Operator(RAISE_LEVEL))
        .takes::<LevelBody>()
        .answers::<LevelRaised>()
        .statuses(&[200, 202])
}

/// Why the level is told as of now alone.
pub(crate) const OF_WHO_IS_THERE: &str = "who is there and which records they know is told by those who are there now";

/// What each of a site's partitions is: its name, its level and where its fold stands.
struct Stands {
    partition: Partition,
    level: u32,
    sequence: u64,
}

fn stands(app: &App) -> Result<Vec<Stands>, ApiError> {
    let one = |fold: &Arc<dyn Fold>| {
        let place = fold.place().map_err(|error| ApiError::Internal(error.to_string()))?;
        Ok(Stands { partition: fold.partition(), level: place.level, sequence: place.sequence })
    };
    app.site.folds.iter().map(one).collect()
}

/// Waits for a while until what was decided can be read here.
async fn reached(app: &App, partition: Partition, sequence: u64) {
    let Some(fold) = app.site.folds.iter().find(|fold| fold.partition() == partition) else { return };
    let mut fold = fold.published().subscribe();
    let _reached = tokio::time::timeout(READ_TIME, fold.reached(sequence)).await;
}

/// Those who are there, as the input has it.
fn present(all: &[Component]) -> Vec<Knows> {
    let there = all.iter().filter(|component| !component.silent);
    let knows = there.map(|component| Knows {
        component: component.name.clone(),
        gatelog: component.version.clone(),
        level: component.level,
    });
    knows.collect()
}

/// `level`: up to which level records may be written in each partition, and which level everybody knows who is there.
pub(crate) async fn level(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    Query::read_only(query.as_deref(), &[])?;
    Ok(Json(app.blocking(document).await?).into_response())
}

/// `level`, to raise it.
async fn raise(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery, sent: Sent) -> Answered {
    let asking = asking(app, headers, query, None).await?;
    asking.need(RAISE_LEVEL, None, None)?;
    let body = fields(sent)?;
    body.only(&["level", "reason"])?;
    let wanted = body.number("level")?.unwrap_or(u64::from(LEVEL));
    let wanted = u32::try_from(wanted).map_err(|_| ApiError::BadRequest(format!("`level` is too large: {wanted}")))?;
    let reason = body.reason()?;
    let app = Arc::clone(&asking.app);
    let (before, present) =
        app.blocking(|app| Ok::<_, ApiError>((stands(app)?, present(&app.site.components.present())))).await?;
    let (mut told, mut last, mut status) = (Vec::new(), None, StatusCode::OK);
    // One after the other: where one says no, the others say it, too.
    for Stands { partition, .. } in before {
        let input = LevelRaiseAsked { level: wanted, present: present.clone(), reason: reason.clone() };
        let input = Input::from(PartitionInput::LevelRaiseAsked(input));
        let answer = asking.put(partition, WHOLE, input).await?;
        let (raised, event) = match answer.clone() {
            Answer::Waiting => {
                status = StatusCode::ACCEPTED;
                (None, None)
            }
            Answer::Decided { nothing, sequence, .. } => (Some(nothing.is_none()), Some(sequence)),
            Answer::Refused { code, message } => {
                let place = format!("{partition}: {message}");
                let done: Vec<&str> = told.iter().map(|row: &Raised| row.partition.as_str()).collect();
                let message = match done.as_slice() {
                    [] => place,
                    done => format!("{place}; {} has it already, so ask again for the rest", done.join(" and ")),
                };
                return Err(ApiError::Declined { code, message });
            }
            Answer::Settled { .. } => (None, None),
        };
        if let Answer::Decided { sequence, .. } = answer {
            reached(&app, partition, sequence).await;
            last = Some(format!("{partition}:{sequence}"));
        }
        told.push(Raised { partition: partition.to_string(), raised, event });
    }
    let mut response = (status, Json(LevelRaised { level: wanted, partitions: told })).into_response();
    say_position(&mut response, last);
    Ok(response)
}

fn say_position(response: &mut Response, position: Option<String>) {
    if let Some(value) = position.and_then(|position| HeaderValue::from_str(&position).ok()) {
        response.headers_mut().insert(POSITION, value);
    }
}

fn document(app: &App) -> Result<Level, ApiError> {
    let mut all = app.site.components.present();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let partition = |one: Stands| LevelPartition {
        partition: one.partition.to_string(),
        level: one.level,
        position: format!("{}:{}", one.partition, one.sequence),
    };
    let component = |one: Component| LevelComponent {
        last_sign_ms: millis(one.last_sign),
        hostname: one.name,
        roles: one.roles,
        version: one.version,
        level: one.level,
        silent: one.silent,
    };
    Ok(Level {
        version: GATELOG.to_owned(),
        knows: LEVEL,
        partitions: stands(app)?.into_iter().map(partition).collect(),
        components: all.into_iter().map(component).collect(),
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// All but the body of what is sent to a path of a component.
type ComponentHead = (Shared, Segments<(String, String)>, HeaderMap, RawQuery);

/// `component/{role}/{name}/pause`
async fn pause(head: ComponentHead, sent: Sent) -> Answered {
    set_paused(head, sent, true).await
}

/// `component/{role}/{name}/resume`
async fn resume(head: ComponentHead, sent: Sent) -> Answered {
    set_paused(head, sent, false).await
}

async fn set_paused((State(app), path, headers, RawQuery(query)): ComponentHead, sent: Sent, paused: bool) -> Answered {
    let (role, name) = segments(path)?;
    let role = [Pausable::Executor, Pausable::Merger].into_iter().find(|one| one.word() == role);
    let role = role.ok_or_else(ApiError::nothing)?;
    let asking = asking(app, headers, query, None).await?;
    asking.need(PAUSE_COMPONENT, None, None)?;
    let body = fields(sent)?;
    body.only(&["reason"])?;
    let reason = body.reason()?;
    let app = Arc::clone(&asking.app);
    let named = name.clone();
    let partition = app.blocking(move |app| known(app, role, &named)).await?;
    let asked = PauseAsked { role, component: name.clone(), paused, reason };
    let answer = asking.put(partition, WHOLE, Input::from(CapacityInput::PauseAsked(asked))).await?;
    let at = answer.taken()?;
    let status = if at.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let told = Paused { role: role.word().to_owned(), hostname: name, paused: at.map(|_| paused) };
    let mut response = (status, Json(told)).into_response();
    if let Some(at) = at {
        reached(&app, partition, at).await;
        say_position(&mut response, Some(format!("{partition}:{at}")));
    }
    Ok(response)
}

/// Capacity's partition, where there is such a component: it gave a sign within a day, offers slots, or is paused.
fn known(app: &App, role: Pausable, name: &str) -> Result<Partition, ApiError> {
    let view = app.site.capacity.view();
    let own = &view.live().own;
    let offers = role == Pausable::Executor && own.workers.get(&name.to_owned())?.is_some();
    if offers || own.pauses.get(&pause_key(role, name))?.is_some() {
        return Ok(view.partition());
    }
    let mut there: Vec<String> = app
        .site
        .components
        .present()
        .into_iter()
        .filter(|component| component.roles.iter().any(|one| one == role.word()))
        .map(|component| component.name)
        .collect();
    if there.iter().any(|one| one == name) {
        return Ok(view.partition());
    }
    there.sort();
    let there = if there.is_empty() { "there is none".to_owned() } else { format!("there are: {}", there.join(", ")) };
    Err(ApiError::NotFound(format!("there is no {} {name:?}; {there}", role.word())))
}
