//! What a build says: from its first byte on, by its lines, and where in it something stands.
//!
//! - this file: the raw text, in pieces, as it comes;
//! - `index`: where lines begin; `lines`: a bounded part of them; `find`: looking for text;
//! - `websocket`, `finger`: the raw text as clients of Zuul ask for it;
//! - `words`: what a line is about.
//!
//! A console may be a gigabyte, and so may one line of it: no answer but the raw text is longer than a
//! few hundred kilobytes, and nothing here holds more of a console in memory than a few blocks.

mod find;
pub(crate) mod finger;
mod index;
pub(crate) mod lines;
pub(crate) mod websocket;
pub(crate) mod words;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use gatelog_record::BuildId;
use tokio::sync::OwnedSemaphorePermit;

use crate::answers::{Hit, Hits, Line, Lines};
use crate::builds;
use crate::error::ApiError;
use crate::job_logs;
use crate::query::Query;
use crate::reading::{App, Needs, mark, moment, read};
use crate::site::{ConsoleChunk, ConsoleSource};
pub(crate) use find::{Found, Place, Wanted};
use lines::{Opened, Part};

/// The parameters of a console.
pub(crate) const PARAMETERS: &[&str] = &["attempt", "offset", "limit", "follow", "stored", "download"];
/// Those of its lines.
pub(crate) const LINE_PARAMETERS: &[&str] = &["attempt", "line", "count", "wait", "stored"];
/// Those of looking for something in it.
pub(crate) const FIND_PARAMETERS: &[&str] = &["attempt", "text", "regex", "line", "offset", "limit", "stored"];
/// The most bytes of one piece.
const PIECE: usize = 64 << 10;
/// How long one wait for more lasts. The connection is looked after in between.
const PATIENCE: Duration = Duration::from_secs(5);

struct Follower {
    source: Box<dyn ConsoleSource>,
    offset: u64,
    /// How many bytes are still wanted.
    left: u64,
    follow: bool,
    over: bool,
    /// What was read before the answer began.
    first: Option<ConsoleChunk>,
    _place: OwnedSemaphorePermit,
}

/// `build/{uuid}/console`
pub(crate) async fn answer(app: Arc<App>, tenant: String, uuid: String, query: Query) -> Result<Response, ApiError> {
    let offset = query.number("offset", u64::MAX)?.unwrap_or(0);
    let limit = query.number("limit", u64::MAX)?.unwrap_or(u64::MAX);
    let follow = query.truth("follow")?.unwrap_or(false);
    let stored = query.truth("stored")?.unwrap_or(false);
    let download = query.truth("download")?.unwrap_or(false);
    let wanted = match query.number("attempt", u64::from(u32::MAX))? {
        Some(number) => Some(u32::try_from(number).map_err(|_| ApiError::BadRequest("no such attempt".into()))?),
        None => None,
    };
    let place = app.stream()?;
    let at = moment(&app, &query).await?;
    let asked = Wished { tenant, uuid, attempt: wanted, at, stored, wait: follow };
    let Begun { sequence, build, attempt, source } = begun(&app, &asked).await?;
    // That it cannot be had is an answer of its own, not one that breaks off.
    let most = piece_size(limit);
    let first = source.read_from(offset, most, Duration::ZERO).await.map_err(|error| unreachable(&error, stored))?;
    let first = Some(first).filter(|first| !first.bytes.is_empty() || first.ended);
    let follower = Follower { source, offset, left: limit, follow, over: limit == 0, first, _place: place };
    let mut response = Response::new(Body::from_stream(stream::unfold(follower, piece)));
    let headers = response.headers_mut();
    mark(&app, headers, sequence);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if download
        && let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"console-{build}-{attempt}.txt\""))
    {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// The console somebody wants to read from its first byte.
pub(crate) struct Wished {
    pub(crate) tenant: String,
    pub(crate) uuid: String,
    /// Which attempt; `None` for the newest.
    pub(crate) attempt: Option<u32>,
    /// As of which event.
    pub(crate) at: Option<u64>,
    /// Whether what is stored is meant.
    pub(crate) stored: bool,
    /// Whether to wait for a build that has not begun.
    pub(crate) wait: bool,
}

/// A console that can be read.
pub(crate) struct Begun {
    /// As of which event the attempt was looked up.
    pub(crate) sequence: u64,
    pub(crate) build: BuildId,
    pub(crate) attempt: u32,
    pub(crate) source: Box<dyn ConsoleSource>,
}

/// Opens a console, once its build has begun.
pub(crate) async fn begun(app: &Arc<App>, wished: &Wished) -> Result<Begun, ApiError> {
    let Wished { attempt: wanted, at, stored, wait, .. } = *wished;
    loop {
        let mut fold = app.site.gate_fold.subscribe();
        let (tenant, uuid) = (wished.tenant.clone(), wished.uuid.clone());
        let (sequence, build, attempts, over) = app
            .blocking(move |app| {
                read(app, at, Needs::History, |reading| {
                    let (id, entry) = builds::find(reading, &tenant, &uuid)?;
                    let attempts: BTreeSet<u32> = entry.attempts.iter().map(|attempt| attempt.attempt).collect();
                    Ok((reading.at, id, attempts, entry.finished_at.is_some()))
                })
            })
            .await?;
        let attempt =
            wanted.filter(|wanted| attempts.contains(wanted)).or(attempts.last().copied().filter(|_| wanted.is_none()));
        if let Some(attempt) = attempt
            && let Some(opened) = lines::open(app, build, attempt, stored).await?
        {
            return Ok(Begun { sequence, build, attempt, source: opened.source });
        }
        let missing = || match wanted.or(attempts.last().copied()) {
            None => ApiError::NotFound(format!("build {build} has not begun: ask again, or with follow=1")),
            Some(attempt) => ApiError::NotFound(format!("attempt {attempt} of build {build} has no console here")),
        };
        if let Some(attempt) = attempt {
            job_logs::not_removed(app, build, attempt).await?;
        }
        // What has not begun is waited for by those who follow.
        if !wait || over || at.is_some() {
            return Err(missing());
        }
        match tokio::time::timeout(PATIENCE, fold.changed()).await {
            // The worker opens the console a moment before or after it says so.
            Ok(Ok(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Ok(Err(_)) => return Err(missing()),
        }
    }
}

/// A console that is there and cannot be read.
fn unreachable(error: &std::io::Error, stored: bool) -> ApiError {
    let cure =
        if stored { "look at the health of the storage" } else { "ask again, or for what is stored with stored=true" };
    ApiError::Unreachable(format!("the console cannot be read now: {error}; {cure}"))
}

fn piece_size(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(PIECE)
}

async fn piece(mut follower: Follower) -> Option<(std::io::Result<Bytes>, Follower)> {
    if follower.over {
        return None;
    }
    loop {
        let patience = if follower.follow { PATIENCE } else { Duration::ZERO };
        let read = match follower.first.take() {
            Some(first) => Ok(first),
            None => follower.source.read_from(follower.offset, piece_size(follower.left), patience).await,
        };
        match read {
            Ok(mut chunk) => {
                chunk.bytes.truncate(piece_size(follower.left));
                follower.offset = chunk.next.max(follower.offset);
                follower.left = follower.left.saturating_sub(chunk.bytes.len() as u64);
                follower.over = chunk.ended || follower.left == 0 || (chunk.bytes.is_empty() && !follower.follow);
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

/// The console a request for lines is about.
pub(crate) struct Asked {
    pub(crate) build: BuildId,
    /// Which attempt: the newest unless another was asked for; `None` before the first.
    pub(crate) attempt: Option<u32>,
    pub(crate) opened: Option<Opened>,
}

/// Opens what a request for lines asks for.
pub(crate) async fn asked(app: &Arc<App>, tenant: &str, uuid: &str, query: &Query) -> Result<Asked, ApiError> {
    let wanted = query.number("attempt", u64::from(u32::MAX))?.and_then(|number| u32::try_from(number).ok());
    let stored = query.truth("stored")?.unwrap_or(false);
    let at = moment(app, query).await?;
    let (tenant, uuid) = (tenant.to_owned(), uuid.to_owned());
    let (build, attempts) = app
        .blocking(move |app| {
            read(app, at, Needs::History, |reading| {
                let (id, entry) = builds::find(reading, &tenant, &uuid)?;
                let attempts: BTreeSet<u32> = entry.attempts.iter().map(|attempt| attempt.attempt).collect();
                Ok((id, attempts))
            })
        })
        .await?;
    let attempt = match wanted {
        Some(wanted) if attempts.contains(&wanted) => Some(wanted),
        Some(wanted) => return Err(ApiError::NotFound(format!("build {build} has no attempt {wanted}"))),
        None => attempts.last().copied(),
    };
    let opened = match attempt {
        Some(attempt) => lines::open(app, build, attempt, stored).await?,
        None => None,
    };
    Ok(Asked { build, attempt, opened })
}

impl Asked {
    /// The console, which must be there.
    pub(crate) async fn there(self, app: &Arc<App>) -> Result<Opened, ApiError> {
        let Asked { build, attempt, opened } = self;
        if let (Some(attempt), None) = (attempt, &opened) {
            job_logs::not_removed(app, build, attempt).await?;
        }
        opened.ok_or_else(|| match attempt {
            Some(attempt) => ApiError::NotFound(format!("attempt {attempt} of build {build} has no console here")),
            None => ApiError::NotFound(format!("build {build} has not begun: ask again")),
        })
    }
}

/// Reads the lines a request asks for: `line` (the first, or `last` for the end), `count`, `wait`.
pub(crate) async fn wanted_lines(app: &Arc<App>, opened: &Opened, query: &Query) -> Result<Part, ApiError> {
    let stored = query.truth("stored")?.unwrap_or(false);
    let count = query.number("count", lines::MOST as u64)?.unwrap_or(lines::MOST as u64);
    let count = usize::try_from(count).unwrap_or(lines::MOST);
    let wait = query.truth("wait")?.unwrap_or(false);
    // Only those who wait hold a place among the streams.
    let _place = match wait {
        true => Some(app.stream()?),
        false => None,
    };
    let from = match query.one("line")? {
        Some("last") => {
            let known = opened.count(lines::BUDGET).await.map_err(|error| unreachable(&error, stored))?;
            if !known.complete || known.known == 0 {
                return Ok(Part { next: known.known + 1, ..known });
            }
            (known.known + 1).saturating_sub(count as u64)
        }
        _ => query.number("line", u64::MAX >> 1)?.unwrap_or(1),
    };
    opened.lines(from, count, wait).await.map_err(|error| unreachable(&error, stored))
}

/// `build/{uuid}/console/lines`
pub(crate) async fn lines_of(app: Arc<App>, tenant: String, uuid: String, query: Query) -> Result<Response, ApiError> {
    let asked = asked(&app, &tenant, &uuid, &query).await?;
    let attempt = asked.attempt;
    let part = wanted_lines(&app, &asked.there(&app).await?, &query).await?;
    let line = |line: &lines::Line| Line {
        line: line.number,
        offset: line.offset,
        bytes: line.length,
        cut: line.cut(),
        text: String::from_utf8_lossy(&line.head).into_owned(),
    };
    Ok(fresh(Json(Lines {
        attempt,
        lines: part.lines.iter().map(line).collect(),
        next: part.next,
        known_lines: part.known,
        known_bytes: part.bytes,
        complete: part.complete,
        ended: part.ended,
        first_failure: part.failure,
    })))
}

/// Looks for what a request asks for: `text`, `regex`, from `line` on, there from `offset` on if that is given (a byte of
/// the console that lies in this line), at most `limit` hits.
pub(crate) async fn wanted_hits(opened: &Opened, query: &Query) -> Result<Found, ApiError> {
    let stored = query.truth("stored")?.unwrap_or(false);
    let wanted = Wanted::read(query.one("text")?.unwrap_or_default(), query.truth("regex")?.unwrap_or(false))?;
    let line = query.number("line", u64::MAX >> 1)?.unwrap_or(1);
    let from = Place { line, offset: query.number("offset", u64::MAX >> 1)? };
    let most = query.number("limit", find::MOST as u64)?.unwrap_or(100);
    let most = usize::try_from(most).unwrap_or(find::MOST);
    hits(opened, &wanted, from, most, stored).await
}

/// Looks for something from a place on, at most so many hits.
pub(crate) async fn hits(
    opened: &Opened,
    wanted: &Wanted,
    from: Place,
    most: usize,
    stored: bool,
) -> Result<Found, ApiError> {
    let from = Place { line: from.line.max(1), ..from };
    let failed = |error| unreachable(&error, stored);
    if let Some(offset) = from.offset {
        let begin = opened.offset(from.line).await.map_err(failed)?;
        let next = opened.offset(from.line.saturating_add(1)).await.map_err(failed)?;
        if begin.is_none_or(|begin| offset < begin) || next.is_some_and(|next| offset >= next) {
            let line = from.line;
            return Err(ApiError::BadRequest(format!(
                "byte {offset} of the console does not lie in line {line}; leave offset out to begin with the line"
            )));
        }
    }
    find::find(opened, wanted, from, most).await.map_err(failed)
}

/// `build/{uuid}/console/find`
pub(crate) async fn find_in(app: Arc<App>, tenant: String, uuid: String, query: Query) -> Result<Response, ApiError> {
    let asked = asked(&app, &tenant, &uuid, &query).await?;
    let attempt = asked.attempt;
    let found = wanted_hits(&asked.there(&app).await?, &query).await?;
    // Where a line is too long for one answer, looking goes on within it.
    let (next, next_offset) = (found.next.map(|next| next.line), found.next.and_then(|next| next.offset));
    let hit = |hit: find::Hit| Hit { line: hit.line, before: hit.before, itself: hit.itself, after: hit.after };
    let hits = found.hits.into_iter().map(hit).collect();
    Ok(fresh(Json(Hits { attempt, hits, next, next_offset })))
}

fn fresh(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
