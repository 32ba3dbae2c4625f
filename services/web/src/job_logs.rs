//! What jobs leave in their log directories: the list of an attempt's files, and the files.
//!
//! Jobs write them, so none is shown as a page of this site: each is sent with [`POLICY`], as the type its name says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, IF_RANGE, RANGE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream;
use gatelog_log_files::{KeptFile, Manifest, Removal};
use gatelog_record::{BuildId, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use crate::answers::{LeftOutFile, LogFile, Logs};
use crate::builds;
use crate::error::ApiError;
use crate::page::logs_address;
use crate::query::Query;
use crate::reading::{App, Needs, read};
use crate::shape::ms;
use crate::site::{ConsoleChunk, ConsoleSource, FoundLogs};

/// The parameters of the list.
pub(crate) const PARAMETERS: &[&str] = &["attempt"];
/// What a browser lets a file of a job do: show itself, with pictures and style of the same logs. No scripts, no
/// origin, no frame around it.
const POLICY: &str = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; \
                      font-src 'self' data:; media-src 'self'; frame-ancestors 'none'";
/// The most bytes of one read.
const PIECE: usize = 1 << 20;

/// An attempt somebody asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) build: BuildId,
    pub(crate) attempt: u32,
    /// When it ended, in milliseconds since 1970.
    pub(crate) ended_ms: Option<i64>,
}

/// The attempt of a build of a tenant: the newest, or the one that is named.
pub(crate) async fn attempt(
    app: &Arc<App>,
    tenant: &str,
    uuid: &str,
    wanted: Option<u32>,
) -> Result<Attempt, ApiError> {
    let (tenant, uuid) = (tenant.to_owned(), uuid.to_owned());
    let look = move |app: &App| {
        read(app, None, Needs::History, |reading| {
            let (build, entry) = builds::find(reading, &tenant, &uuid)?;
            let known: BTreeSet<u32> = entry.attempts.iter().map(|attempt| attempt.attempt).collect();
            let attempt = match wanted {
                Some(wanted) if known.contains(&wanted) => wanted,
                Some(wanted) => return Err(ApiError::NotFound(format!("build {build} has no attempt {wanted}"))),
                None => *known.last().ok_or_else(|| ApiError::NotFound(format!("build {build} has not begun")))?,
            };
            let ended = entry.attempts.iter().find(|one| one.attempt == attempt).and_then(|one| one.finished_at);
            Ok(Attempt { build, attempt, ended_ms: ended.map(ms) })
        })
    };
    app.blocking(look).await
}

/// What is kept of an attempt.
pub(crate) async fn manifest(app: &Arc<App>, of: Attempt) -> Result<Manifest, ApiError> {
    let Attempt { build, attempt, .. } = of;
    match app.site.job_logs.find(build, attempt).await.map_err(|error| unreachable(&error))? {
        Some(FoundLogs::Kept(manifest)) => Ok(manifest),
        Some(FoundLogs::Removed(removal)) => Err(ApiError::Removed(removal_told(&removal))),
        None => Err(ApiError::NotFound(format!("no logs of attempt {attempt} of build {build} are kept here"))),
    }
}

fn unreachable(error: &std::io::Error) -> ApiError {
    ApiError::Unreachable(format!("the logs cannot be read now: {error}; ask again"))
}

/// Refuses what was removed by a rule. Where that cannot be known now, it is not said.
pub(crate) async fn not_removed(app: &Arc<App>, build: BuildId, attempt: u32) -> Result<(), ApiError> {
    match app.site.job_logs.find(build, attempt).await {
        Ok(Some(FoundLogs::Removed(removal))) => Err(ApiError::Removed(removal_told(&removal))),
        _ => Ok(()),
    }
}

/// When and by which rule logs went.
pub(crate) fn removal_told(removal: &Removal) -> String {
    format!(
        "Its logs ({} files, {}) were removed on {} by the rule {}.",
        removal.files,
        crate::page::size(removal.bytes),
        day(removal.removed_ms),
        removal.rule
    )
}

/// A moment for people, to the minute.
pub(crate) fn day(at_ms: i64) -> String {
    let text = Timestamp(at_ms.saturating_mul(1000)).to_string().replace('T', " ");
    format!("{} UTC", text.get(..16).unwrap_or(&text))
}

/// `build/{uuid}/logs`
pub(crate) async fn list(app: Arc<App>, tenant: String, uuid: String, query: Query) -> Result<Response, ApiError> {
    let wanted = query.number("attempt", u64::from(u32::MAX))?.and_then(|number| u32::try_from(number).ok());
    let of = attempt(&app, &tenant, &uuid, wanted).await?;
    let manifest = manifest(&app, of).await?;
    let build = of.build.to_string();
    let file = |file: &gatelog_log_files::KeptFile| LogFile {
        path: file.path.clone(),
        size: file.size,
        sha256: file.digest,
        mime: file.mime.clone(),
        url: logs_address(&tenant, &build, of.attempt, &file.path),
    };
    let files = manifest.files.iter().map(file).collect();
    let bytes = manifest.bytes();
    let left_out = manifest.left_out.into_iter().map(|one| LeftOutFile { path: one.path, why: one.why }).collect();
    let document = Logs {
        build,
        attempt: of.attempt,
        worker: manifest.worker,
        complete: !manifest.pending,
        bytes,
        files,
        left_out,
        left_out_more: manifest.left_out_more,
        kept_until_ms: of.ended_ms.and_then(|ended| app.site.job_logs.rules().until(ended)),
    };
    let mut response = Json(document).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// From the first byte to the one before the second.
    Some(u64, u64),
    /// It lies beyond the end.
    Beyond,
}

impl Part {
    /// The part a request asks for. One that asks for several, or makes no sense, gets everything (RFC 9110).
    fn asked(headers: &HeaderMap, size: u64, tag: &str) -> Part {
        let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(range) = header(RANGE).and_then(|range| range.trim().strip_prefix("bytes=")) else {
            return Part::Whole;
        };
        if header(IF_RANGE).is_some_and(|had| had != tag) {
            return Part::Whole;
        }
        let Some((from, to)) = range.split_once('-') else { return Part::Whole };
        match (from.trim().parse::<u64>(), to.trim().parse::<u64>()) {
            (Ok(from), Ok(to)) if to < from => Part::Whole,
            (Ok(from), _) if from >= size => Part::Beyond,
            (Ok(from), Ok(to)) => Part::Some(from, to.saturating_add(1).min(size)),
            (Ok(from), Err(_)) if to.trim().is_empty() => Part::Some(from, size),
            (Err(_), Ok(0)) if from.trim().is_empty() => Part::Beyond,
            (Err(_), Ok(last)) if from.trim().is_empty() => Part::Some(size.saturating_sub(last), size),
            _ => Part::Whole,
        }
    }
}

/// Sends a file, or the part of it that is asked for.
pub(crate) async fn send(
    app: &Arc<App>,
    headers: &HeaderMap,
    of: Attempt,
    manifest: &Manifest,
    file: &KeptFile,
) -> Result<Response, ApiError> {
    // What grows has no tag, and is as long as it was when it was listed.
    let tag = match (&file.digest, manifest.pending) {
        (Some(digest), _) => format!("\"{digest}\""),
        (None, false) => format!("\"{}-{}-{}\"", of.build, of.attempt, file.path),
        (None, true) => String::new(),
    };
    let had = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !tag.is_empty() && had.split(',').any(|one| one.trim().trim_start_matches("W/") == tag) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        describe(&mut response, file, &tag);
        return Ok(response);
    }
    let part = Part::asked(headers, file.size, &tag);
    let (status, from, to) = match part {
        Part::Whole => (StatusCode::OK, 0, file.size),
        Part::Some(from, to) => (StatusCode::PARTIAL_CONTENT, from, to),
        Part::Beyond => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            put(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{}", file.size));
            return Ok(response);
        }
    };
    let place = app.stream()?;
    let opened = app.site.job_logs.open(of.build, of.attempt, file).await.map_err(|error| unreachable(&error))?;
    let source = opened.ok_or_else(|| ApiError::NotFound(format!("{:?} is not kept any more", file.path)))?;
    // That it cannot be read is an answer of its own, not one that breaks off.
    let most = usize::try_from(to - from).unwrap_or(usize::MAX).min(PIECE);
    let first = source.read_from(from, most, Duration::ZERO).await.map_err(|error| unreachable(&error))?;
    let sent = Sent { source, from, to, first: Some(first), _place: place };
    let mut response = (status, Body::from_stream(stream::unfold(sent, piece))).into_response();
    describe(&mut response, file, &tag);
    let headers = response.headers_mut();
    put(headers, CONTENT_LENGTH, &(to - from).to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        put(headers, CONTENT_RANGE, &format!("bytes {from}-{}/{}", to.saturating_sub(1), file.size));
    }
    Ok(response)
}

fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// The headers of a file.
fn describe(response: &mut Response, file: &KeptFile, tag: &str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    put(headers, CONTENT_TYPE, &file.mime);
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if tag.is_empty() {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    } else {
        // It may be removed, and not everybody may read it.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        put(headers, ETAG, tag);
    }
}

struct Sent {
    source: Box<dyn ConsoleSource>,
    from: u64,
    to: u64,
    /// What was read before the answer began.
    first: Option<ConsoleChunk>,
    _place: OwnedSemaphorePermit,
}

async fn piece(mut sent: Sent) -> Option<(std::io::Result<Bytes>, Sent)> {
    if sent.from >= sent.to {
        return None;
    }
    let most = usize::try_from(sent.to - sent.from).unwrap_or(usize::MAX).min(PIECE);
    let read = match sent.first.take() {
        Some(first) => Ok(first),
        None => sent.source.read_from(sent.from, most, Duration::ZERO).await,
    };
    let mut bytes = match read {
        Ok(chunk) if chunk.bytes.is_empty() => Err(std::io::Error::other("the file is shorter than it was")),
        read => read.map(|chunk| chunk.bytes),
    };
    match &mut bytes {
        Ok(bytes) => {
            bytes.truncate(most);
            sent.from += bytes.len() as u64;
        }
        Err(_) => sent.to = sent.from,
    }
    Some((bytes.map(Bytes::from), sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_was_asked_for_or_everything() {
        let part = |range: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_str(range).unwrap());
            Part::asked(&headers, 100, "\"t\"")
        };
        assert_eq!(part("bytes=0-9"), Part::Some(0, 10));
        assert_eq!(part("bytes=90-"), Part::Some(90, 100));
        assert_eq!(part("bytes=90-1000"), Part::Some(90, 100));
        assert_eq!(part("bytes=-7"), Part::Some(93, 100));
        assert_eq!(part("bytes=-700"), Part::Some(0, 100));
        assert_eq!((part("bytes=100-"), part("bytes=-0")), (Part::Beyond, Part::Beyond));
        for other in ["bytes=5-2", "bytes=1-2,4-5", "bytes=x-y", "lines=1-2", "bytes=", "bytes=-"] {
            assert_eq!(part(other), Part::Whole, "{other}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        headers.insert(IF_RANGE, HeaderValue::from_static("\"other\""));
        assert_eq!(Part::asked(&headers, 100, "\"t\""), Part::Whole);
    }
}
