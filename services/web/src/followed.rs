//! The status of a tenant, for all who follow it: made once, however many they are.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures::stream;
use gatelog_record::BlobHash;
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, Needs, mark, read};
use crate::status;
use crate::stream::{KEEP_ALIVE, resumed};

/// The parameters. With `brief` only that something has changed is told, not what.
pub(crate) const PARAMETERS: &[&str] = &["from", "brief"];
/// How long a tenant's status document rests between two that are made.
const REST: Duration = Duration::from_millis(200);
/// How many times as long as it takes to make one it rests at least: following takes a fifth of a processor for a
/// tenant at most, however large the document is.
const REST_TIMES: u32 = 4;

/// A tenant's status document as of an event, as it is sent.
struct Told {
    at: u64,
    /// Of what does not change with every event.
    lasting: BlobHash,
    whole: Bytes,
    brief: Bytes,
}

/// The newest document of a tenant; none was made yet at first.
type Documents = watch::Sender<Option<Arc<Told>>>;

/// The tenants that are followed. Each has a task that makes its documents, as long as somebody follows.
#[derive(Default)]
pub(crate) struct Followed(Mutex<BTreeMap<String, Documents>>);

impl Followed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Documents>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a tenant.
    fn follow(app: &Arc<App>, tenant: &str) -> watch::Receiver<Option<Arc<Told>>> {
        let mut followed = app.followed.lock();
        if let Some(documents) = followed.get(tenant) {
            return documents.subscribe();
        }
        let (documents, follower) = watch::channel(None);
        followed.insert(tenant.to_owned(), documents.clone());
        drop(followed);
        tokio::spawn(make(Arc::clone(app), tenant.to_owned(), documents));
        follower
    }

    /// Nobody needs a tenant's documents any more, unless somebody came meanwhile.
    fn left_alone(&self, tenant: &str, documents: &Documents) -> bool {
        let mut followed = self.lock();
        let alone = documents.receiver_count() == 0;
        if alone {
            followed.remove(tenant);
        }
        alone
    }
}

/// Makes documents of a tenant, each as of a later event, until nobody follows, or it cannot go on: then the streams
/// end, and clients come back.
async fn make(app: Arc<App>, tenant: String, documents: Documents) {
    let mut fold = app.site.gate_fold.subscribe();
    loop {
        let began = Instant::now();
        let told = match told(&app, &tenant).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(tenant, "the streams of a status end: {error}");
                break;
            }
        };
        let next = told.at.saturating_add(1);
        documents.send_replace(Some(Arc::new(told)));
        let rested = Instant::now() + REST.max(began.elapsed() * REST_TIMES);
        let wait = async {
            sleep_until(rested).await;
            fold.reached(next).await
        };
        tokio::select! {
            reached = wait => if reached.is_err() {
                // The fold ended or stopped.
                break;
            },
            () = documents.closed() => if app.followed.left_alone(&tenant, &documents) {
                return;
            },
        }
    }
    app.followed.lock().remove(&tenant);
}

async fn told(app: &Arc<App>, tenant: &str) -> Result<Told, ApiError> {
    let tenant = tenant.to_owned();
    let (at, document) = app
        .blocking(move |app| {
            read(app, None, Needs::Live, |reading| Ok((reading.at, status::document(reading, &tenant)?)))
        })
        .await?;
    // The tables are not held any more.
    let position = json!({ "position": app.position(at) });
    let made = tokio::task::spawn_blocking(move || {
        let whole = message(at, &document);
        Told {
            at,
            lasting: BlobHash::of(lasting(document).to_string().as_bytes()),
            whole,
            brief: message(at, &position),
        }
    });
    made.await.map_err(|error| ApiError::Internal(format!("a status document could not be written: {error}")))
}

/// A message of a stream, as the standard has it. JSON written in one line has no other.
fn message(at: u64, data: &Json) -> Bytes {
    Bytes::from(format!("event: status\nid: {at}\ndata: {data}\n\n"))
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

/// One who follows.
struct Follower {
    documents: watch::Receiver<Option<Arc<Told>>>,
    brief: bool,
    had: Option<BlobHash>,
    spoken: Instant,
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
    let (seen, newest) = resumed(&app, &headers, &query).await?;
    let brief = query.truth("brief")?.unwrap_or(false);
    // An unknown tenant is an answer, not a stream.
    let named = tenant.clone();
    app.blocking(move |app| read(app, None, Needs::History, |reading| reading.need_tenant(&named))).await?;
    let mut documents = Followed::follow(&app, &tenant);
    let (at, lasting) = {
        let is_there = |told: &Option<Arc<Told>>| told.as_ref().is_some_and(|told| told.at >= newest);
        let told = documents.wait_for(is_there).await.map_err(|_| ApiError::Busy)?;
        told.as_ref().map(|told| (told.at, told.lasting)).ok_or(ApiError::Busy)?
    };
    let had = (seen == Some(at)).then_some(lasting);
    let follower = Follower { documents, brief, had, spoken: Instant::now(), _place: place };
    let mut response = Response::new(Body::from_stream(stream::unfold(follower, next)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    mark(&app, headers, at);
    Ok(response)
}

async fn next(mut follower: Follower) -> Option<(Result<Bytes, Infallible>, Follower)> {
    loop {
        let told = follower.documents.borrow_and_update().clone()?;
        let message = if follower.had != Some(told.lasting) {
            follower.had = Some(told.lasting);
            if follower.brief { told.brief.clone() } else { told.whole.clone() }
        } else {
            match timeout_at(follower.spoken + KEEP_ALIVE, follower.documents.changed()).await {
                Ok(Ok(())) => continue,
                Ok(Err(_)) => return None,
                Err(_) => Bytes::from_static(b":\n\n"),
            }
        };
        follower.spoken = Instant::now();
        return Some((Ok(message), follower));
    }
}
