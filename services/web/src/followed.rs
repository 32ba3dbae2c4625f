//! The status of a tenant, for all who follow it: made once, however many they are.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures::stream;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::error::ApiError;
use crate::newest::{self, Made};
use crate::query::Query;
use crate::reading::{App, Needs, mark, read};
use crate::stream::{KEEP_ALIVE, resumed};

/// The parameters. With `brief` only that something has changed is told, not what.
pub(crate) const PARAMETERS: &[&str] = &["from", "brief"];
/// How long a tenant's status document rests between two that are made.
const REST: Duration = Duration::from_millis(200);
/// How many times as long as it takes to make one it rests at least: following takes a fifth of a processor for a
/// tenant at most, however large the document is.
const REST_TIMES: u32 = 4;
/// How long it rests for each who follows: to tell one takes about a fifth of it.
const REST_EACH: Duration = Duration::from_micros(100);

/// A tenant's status document as of an event, as it is sent.
struct Told {
    made: Arc<Made>,
    /// With all of it. Not made where nobody wants it.
    whole: OnceLock<Bytes>,
    brief: Bytes,
}

impl Told {
    fn new(app: &App, made: Arc<Made>) -> Told {
        let brief = message(made.at, &json!({ "position": app.position(made.at) }).to_string());
        Told { made, whole: OnceLock::new(), brief }
    }

    fn whole(&self) -> Bytes {
        let message = || message(self.made.at, std::str::from_utf8(&self.made.text()).unwrap_or_default());
        self.whole.get_or_init(message).clone()
    }
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
        let told = match told(&app, &tenant).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(tenant, "the streams of a status end: {error}");
                break;
            }
        };
        let next = told.made.at.saturating_add(1);
        let rest = REST.max(told.made.took * REST_TIMES);
        documents.send_replace(Some(Arc::new(told)));
        let followers = u32::try_from(documents.receiver_count()).unwrap_or(u32::MAX);
        let rested = Instant::now() + rest.max(REST_EACH.saturating_mul(followers));
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
    app.blocking(move |app| Ok(Told::new(app, newest::status(app, &tenant)?))).await
}

/// A message of a stream, as the standard has it. JSON written in one line has no other.
fn message(at: u64, data: &str) -> Bytes {
    Bytes::from(format!("event: status\nid: {at}\ndata: {data}\n\n"))
}

/// One who follows.
struct Follower {
    documents: watch::Receiver<Option<Arc<Told>>>,
    brief: bool,
    had: Option<u64>,
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
    let place = app.stream()?;
    let (seen, newest) = resumed(&app, &headers, &query).await?;
    let brief = query.truth("brief")?.unwrap_or(false);
    // An unknown tenant is an answer, not a stream.
    let named = tenant.clone();
    app.blocking(move |app| read(app, None, Needs::History, |reading| reading.need_tenant(&named))).await?;
    let mut documents = Followed::follow(&app, &tenant);
    let (at, lasting) = {
        let is_there = |told: &Option<Arc<Told>>| told.as_ref().is_some_and(|told| told.made.at >= newest);
        let told = documents.wait_for(is_there).await.map_err(|_| ApiError::Busy)?;
        told.as_ref().map(|told| (told.made.at, told.made.lasting)).ok_or(ApiError::Busy)?
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
        let message = if follower.had != Some(told.made.lasting) {
            follower.had = Some(told.made.lasting);
            if follower.brief { told.brief.clone() } else { told.whole() }
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
