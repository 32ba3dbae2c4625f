//! What a build says, from its first byte on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures::stream;
use gatelog_record::BuildId;
use tokio::sync::OwnedSemaphorePermit;

use crate::builds;
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, Needs, mark, moment, read};
use crate::site::ConsoleSource;

/// The parameters of a console.
pub(crate) const PARAMETERS: &[&str] = &["attempt", "offset", "follow"];
/// The most bytes of one piece.
const PIECE: usize = 64 << 10;
/// How long one wait for more lasts. The connection is looked after in between.
const PATIENCE: Duration = Duration::from_secs(5);

struct Follower {
    source: Box<dyn ConsoleSource>,
    offset: u64,
    follow: bool,
    over: bool,
    _place: OwnedSemaphorePermit,
}

/// `build/{uuid}/console`
pub(crate) async fn answer(app: Arc<App>, tenant: String, uuid: String, query: Query) -> Result<Response, ApiError> {
    let offset = query.number("offset", u64::MAX)?.unwrap_or(0);
    let follow = query.truth("follow")?.unwrap_or(false);
    let wanted = match query.number("attempt", u64::from(u32::MAX))? {
        Some(number) => Some(u32::try_from(number).map_err(|_| ApiError::BadRequest("no such attempt".into()))?),
        None => None,
    };
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| ApiError::Busy)?;
    let at = moment(&app, &query).await?;
    let (sequence, source) = loop {
        let mut fold = app.site.gate_fold.subscribe();
        let (tenant, uuid) = (tenant.clone(), uuid.clone());
        let (sequence, build, attempts, over) = app
            .blocking(move |app| {
                read(app, at, Needs::History, |reading| {
                    let (id, entry) = builds::find(reading, &tenant, &uuid)?;
                    let attempts: BTreeSet<u32> = entry.attempts.iter().map(|attempt| attempt.attempt).collect();
                    Ok((reading.at, id, attempts, entry.finished_at.is_some()))
                })
            })
            .await?;
        if let Some(source) = open(&app, build, wanted, &attempts).await? {
            break (sequence, source);
        }
        let missing = || match wanted.or(attempts.last().copied()) {
            None => ApiError::NotFound(format!("build {build} has not begun: ask again, or with follow=1")),
            Some(attempt) => ApiError::NotFound(format!("attempt {attempt} of build {build} has no console here")),
        };
        // What has not begun is waited for by those who follow.
        if !follow || over || at.is_some() {
            return Err(missing());
        }
        match tokio::time::timeout(PATIENCE, fold.changed()).await {
            // The worker opens the console a moment before or after it says so.
            Ok(Ok(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Ok(Err(_)) => return Err(missing()),
        }
    };
    let follower = Follower { source, offset, follow, over: false, _place: place };
    let mut response = Response::new(Body::from_stream(stream::unfold(follower, piece)));
    let headers = response.headers_mut();
    mark(&app, headers, sequence);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The console of the attempt asked for, or of the newest there is one of.
async fn open(
    app: &Arc<App>,
    build: BuildId,
    wanted: Option<u32>,
    attempts: &BTreeSet<u32>,
) -> Result<Option<Box<dyn ConsoleSource>>, ApiError> {
    let candidates: Vec<u32> = match wanted {
        Some(attempt) => attempts.get(&attempt).copied().into_iter().collect(),
        None => attempts.last().copied().into_iter().collect(),
    };
    app.blocking(move |app| Ok(candidates.into_iter().find_map(|attempt| app.site.consoles.open(build, attempt)))).await
}

async fn piece(mut follower: Follower) -> Option<(std::io::Result<Bytes>, Follower)> {
    if follower.over {
        return None;
    }
    loop {
        let patience = if follower.follow { PATIENCE } else { Duration::ZERO };
        match follower.source.read_from(follower.offset, PIECE, patience).await {
            Ok(chunk) => {
                follower.offset = chunk.next.max(follower.offset);
                follower.over = chunk.ended || (chunk.bytes.is_empty() && !follower.follow);
                if !chunk.bytes.is_empty() {
                    return Some((Ok(Bytes::from(chunk.bytes)), follower));
                }
                if follower.over {
                    return None;
                }
            }
            Err(error) => {
                follower.over = true;
                return Some((Err(error), follower));
            }
        }
    }
}
