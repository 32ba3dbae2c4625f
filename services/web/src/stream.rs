//! Events as they come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use gatelog_gate_state::history::Moment;
use gatelog_record::{BlobHash, Event};
use gatelog_runner::Subscription;
use serde_json::{Value as Json, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, Needs, mark, moment, read};
use crate::shape::ms;
use crate::status;

/// The parameters of the events. With `at` those that had come by then, and no more.
pub(crate) const PARAMETERS: &[&str] = &["from", "at"];
/// Those of status documents. With `brief` only that something has changed is told, not what.
pub(crate) const STATUS_PARAMETERS: &[&str] = &["from", "brief"];
/// Of how many tenants the newest status document is kept.
const KEPT: usize = 256;
/// How many messages are read ahead for one client.
const AHEAD: usize = 256;
/// How long the status document rests between two changes told.
const REST: Duration = Duration::from_millis(200);
/// How often a word goes out when there is nothing to say.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where a client goes on: after the event it had last (`None` when it says nothing); and the newest
/// event.
async fn resumed(app: &Arc<App>, headers: &HeaderMap, query: &Query) -> Result<(Option<u64>, u64), ApiError> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?").trim());
    let last = match header.filter(|text| !text.is_empty()) {
        Some(text) => {
            let number = text
                .parse()
                .map_err(|_| ApiError::BadRequest(format!("Last-Event-ID {text:?} is not the sequence of an event")))?;
            Some(number)
        }
        None => query.number("from", u64::MAX)?,
    };
    let newest = app.blocking(|app| Ok(app.site.gate.position().sequence)).await?;
    match last {
        Some(last) if last > newest => {
            Err(ApiError::Beyond { wanted: format!("event {last}"), newest: app.position(newest) })
        }
        other => Ok((other, newest)),
    }
}

struct Events {
    app: Arc<App>,
    last: u64,
    /// The last one there is to be.
    until: Option<u64>,
    ready: VecDeque<(u64, Moment)>,
    fold: Subscription,
    _place: OwnedSemaphorePermit,
}

/// `events`: one message for each event of the gate, its id the event's sequence.
pub(crate) async fn events(app: Arc<App>, headers: HeaderMap, query: Query) -> Result<Response, ApiError> {
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| ApiError::Busy)?;
    let (last, newest) = resumed(&app, &headers, &query).await?;
    let until = moment(&app, &query).await?;
    let last = last.unwrap_or(if until.is_some() { 0 } else { newest });
    if until.is_some_and(|until| last >= until) {
        // A browser that comes back for more is told that this is all.
        let mut response = StatusCode::NO_CONTENT.into_response();
        mark(&app, response.headers_mut(), until.unwrap_or(last));
        return Ok(response);
    }
    let fold = app.site.gate_fold.subscribe();
    let events = Events { app: Arc::clone(&app), last, until, ready: VecDeque::new(), fold, _place: place };
    let messages = Sse::new(stream::unfold(events, next_event)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    let mut response = messages.into_response();
    mark(&app, response.headers_mut(), until.unwrap_or(last));
    Ok(response)
}

async fn next_event(mut events: Events) -> Option<(Result<Message, ApiError>, Events)> {
    loop {
        if let Some((sequence, moment)) = events.ready.pop_front() {
            events.last = sequence;
            let data = event(&events.app, sequence, &moment);
            return Some((Ok(Message::default().id(sequence.to_string()).data(data.to_string())), events));
        }
        let last = events.last;
        if events.until.is_some_and(|until| last >= until) {
            return None;
        }
        let read = events.app.blocking(move |app| Ok(app.site.gate.view().temporal().moments_after(last, AHEAD)?));
        match read.await {
            Ok(moments) if moments.is_empty() => {
                // The fold ended or stopped: so does the stream; a client comes back and goes on.
                events.fold.reached(last.saturating_add(1)).await.ok()?;
            }
            Ok(moments) => {
                let until = events.until.unwrap_or(u64::MAX);
                events.ready.extend(moments.into_iter().take_while(|(sequence, _)| *sequence <= until));
            }
            // Too much is going on, or something is wrong: a client comes back and goes on.
            Err(error) => {
                tracing::warn!("a stream of events ends: {error}");
                return None;
            }
        }
    }
}

fn event(app: &App, sequence: u64, moment: &Moment) -> Json {
    let kind = Event::kinds().find(|kind| kind.newest.kind == moment.kind).map(|kind| kind.name);
    json!({
        "position": app.position(sequence),
        "sequence": sequence,
        "at_ms": ms(moment.at),
        "kind": kind,
        "tenant": moment.key,
        "item": moment.item.map(|item| item.to_string()),
        "build": moment.build.map(|build| build.to_string()),
    })
}

/// A tenant's status document as of an event.
struct Told {
    at: u64,
    text: String,
    /// Of what does not change with every event.
    lasting: BlobHash,
}

type Cell = Arc<tokio::sync::Mutex<Option<Arc<Told>>>>;

/// The newest status documents: made once, however many clients follow a tenant.
#[derive(Default)]
pub(crate) struct Newest(Mutex<BTreeMap<String, Cell>>);

impl Newest {
    fn cell(&self, tenant: &str) -> Cell {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT && !kept.contains_key(tenant) {
            kept.clear();
        }
        Arc::clone(kept.entry(tenant.to_owned()).or_default())
    }
}

struct Statuses {
    app: Arc<App>,
    tenant: String,
    brief: bool,
    seen: Option<u64>,
    told: Option<BlobHash>,
    rested: Instant,
    fold: Subscription,
    _place: OwnedSemaphorePermit,
}

/// `status/stream`: the status document, now and whenever it changed.
///
/// Nothing is queued for a client: what changes while it is slow is in the next document it takes.
pub(crate) async fn statuses(
    app: Arc<App>,
    tenant: String,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| ApiError::Busy)?;
    let (seen, _) = resumed(&app, &headers, &query).await?;
    let brief = query.truth("brief")?.unwrap_or(false);
    let fold = app.site.gate_fold.subscribe();
    // An unknown tenant is an answer, not a stream.
    let told = status(&app, &tenant).await?;
    let mut statuses = Statuses {
        app: Arc::clone(&app),
        tenant,
        brief,
        seen: None,
        told: None,
        rested: Instant::now(),
        fold,
        _place: place,
    };
    if seen == Some(told.at) {
        statuses.seen = seen;
        statuses.told = Some(told.lasting);
    }
    let messages = Sse::new(stream::unfold(statuses, next_status)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    let mut response = messages.into_response();
    mark(&app, response.headers_mut(), told.at);
    Ok(response)
}

async fn status(app: &Arc<App>, tenant: &str) -> Result<Arc<Told>, ApiError> {
    let cell = app.newest.cell(tenant);
    // One makes it, the others wait for that one.
    let mut newest = cell.lock().await;
    if let Some(told) = newest.as_ref()
        && told.at == app.site.gate_fold.position().sequence
    {
        return Ok(Arc::clone(told));
    }
    let tenant = tenant.to_owned();
    let told = app
        .blocking(move |app| {
            read(app, None, Needs::Live, |reading| {
                let document = status::document(reading, &tenant)?;
                let text = document.to_string();
                let lasting = BlobHash::of(lasting(document).to_string().as_bytes());
                Ok(Arc::new(Told { at: reading.at, text, lasting }))
            })
        })
        .await?;
    *newest = Some(Arc::clone(&told));
    Ok(told)
}

/// The document without what changes with every event.
fn lasting(mut document: Json) -> Json {
    fn without(json: &mut Json, names: &[&str]) {
        match json {
            Json::Object(map) => {
                map.retain(|name, _| !names.contains(&name.as_str()));
                map.values_mut().for_each(|value| without(value, names));
            }
            Json::Array(list) => list.iter_mut().for_each(|value| without(value, names)),
            _ => {}
        }
    }
    without(&mut document, &["position", "position_ms", "elapsed_time", "remaining_time"]);
    document
}

async fn next_status(mut statuses: Statuses) -> Option<(Result<Message, ApiError>, Statuses)> {
    loop {
        if let Some(seen) = statuses.seen {
            statuses.fold.reached(seen.saturating_add(1)).await.ok()?;
            tokio::time::sleep_until(statuses.rested).await;
        }
        let told = match status(&statuses.app, &statuses.tenant).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!("a stream of status documents ends: {error}");
                return None;
            }
        };
        statuses.seen = Some(told.at);
        statuses.rested = Instant::now() + REST;
        if statuses.told != Some(told.lasting) {
            statuses.told = Some(told.lasting);
            let message = Message::default().id(told.at.to_string()).event("status");
            let message = if statuses.brief {
                message.data(json!({ "position": statuses.app.position(told.at) }).to_string())
            } else {
                message.data(&told.text)
            };
            return Some((Ok(message), statuses));
        }
    }
}
