//! Events as they come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use gatelog_gate_state::history::Moment;
use gatelog_record::Event;
use gatelog_runner::Subscription;
use tokio::sync::OwnedSemaphorePermit;

use crate::answers::{EventTold, Typed};
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, mark, moment};
use crate::shape::ms;

/// The parameters of the events. With `at` those that had come by then, and no more.
pub(crate) const PARAMETERS: &[&str] = &["from"];
/// How many messages are read ahead for one client.
const AHEAD: usize = 256;
/// After how long with nothing to say a word goes out all the same.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where a client goes on: after the event it had last (`None` when it says nothing); and the newest
/// event.
pub(crate) async fn resumed(
    app: &Arc<App>,
    headers: &HeaderMap,
    query: &Query,
) -> Result<(Option<u64>, u64), ApiError> {
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
    let place = app.stream()?;
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

fn event(app: &App, sequence: u64, moment: &Moment) -> Typed<EventTold> {
    let kind = Event::kinds().find(|kind| kind.newest.kind == moment.kind).map(|kind| kind.name.to_owned());
    Typed(EventTold {
        position: app.position(sequence),
        sequence,
        at_ms: ms(moment.at),
        kind,
        tenant: moment.key.clone(),
        item: moment.item.map(|item| item.to_string()),
        build: moment.build.map(|build| build.to_string()),
    })
}
