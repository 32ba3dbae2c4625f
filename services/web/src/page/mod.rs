//! The page: server-made HTML that works without scripts, over the same reads as the API.
//!
//! - `html`: what maud does not do when it writes them; `words`, `parts`: what stands on many pages;
//! - `frame`: head, navigation, the way through time, headers; `assets`: style and script, from `web/`;
//! - `what_if`: asking what would have been, and the answer;
//! - `status`, `lists`, `buildset` (with `graph`), `build` (with `console` and `ansi`), `logs`, `item`, `why`, `configuration`:
//!   the pages.
//!
//! Every page takes `at`, as every read does. What the script adds: pages that change by themselves, a
//! slider that need not be sent, consoles that go on.

mod ansi;
mod asked;
mod assets;
mod build;
mod buildset;
mod configuration;
mod console;
mod frame;
mod gantt;
mod graph;
mod html;
mod item;
mod lists;
mod logs;
mod parts;
mod status;
mod waits;
mod what_if;
mod why;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};

use crate::builds;
use crate::buildsets;
use crate::capacity;
use crate::error::ApiError;
use crate::newest;
use crate::paths::{Right, Route, get, post};
use crate::query::Query;
use crate::reading::{App, Needs, Reading, mark, moment, read};
use crate::routes::{OF_LOGS, OF_PROGRAM, OF_WHAT_IF};
use crate::status::{Pieces, document};
pub(crate) use console::size;
pub(crate) use html::Finished;
pub(crate) use logs::address as logs_address;
pub(crate) use status::JobHtml;
pub(crate) use words::took;

use frame::{Content, Frame, error_page, respond};
use gantt::Grants;
use gatelog_gate_state::history::BuildsetEntry;

type Shared = State<Arc<App>>;
type Segments<T> = Result<Path<T>, PathRejection>;

/// The page's routes.
pub(crate) fn routes() -> Vec<Route> {
    let of_tenants = [
        get("page_tenant", "/t/{tenant}", to_status),
        get("page_status", "/t/{tenant}/status", status_page),
        get("page_waits", "/t/{tenant}/waits", waits_page),
        get("page_builds", "/t/{tenant}/builds", builds_page),
        get("page_buildsets", "/t/{tenant}/buildsets", buildsets_page),
        get("page_buildset", "/t/{tenant}/buildset/{uuid}", buildset_page),
        get("page_why", "/t/{tenant}/buildset/{uuid}/why/{job}", why_page),
        get("page_build", "/t/{tenant}/build/{uuid}", build_page),
        get("page_lines", "/t/{tenant}/build/{uuid}/lines", lines_piece),
        get("page_found", "/t/{tenant}/build/{uuid}/found", found_piece),
        get("page_logs", "/t/{tenant}/build/{uuid}/logs", logs::newest).now(OF_LOGS),
        get("page_logs_attempt", "/t/{tenant}/build/{uuid}/logs/{attempt}", logs::to_top).now(OF_LOGS),
        get("page_logs_top", "/t/{tenant}/build/{uuid}/logs/{attempt}/", logs::top).now(OF_LOGS),
        get("page_logs_below", "/t/{tenant}/build/{uuid}/logs/{attempt}/{*path}", logs::below).now(OF_LOGS),
        get("page_item", "/t/{tenant}/item/{uuid}", item_page),
        get("page_config_errors", "/t/{tenant}/config-errors", errors_page),
    ];
    let permission = crate::what_if::PERMISSION;
    let of_the_site = [
        get("page_tenants", "/", tenants),
        get("page_asset", "/assets/{version}/{name}", asset).now(OF_PROGRAM).right(Right::Everybody),
        get("page_what_ifs", "/what-if", what_if::ask_page).right(Right::LookAtAll),
        post("page_what_ifs", "/what-if", what_if::ask).right(Right::OperatorOfAll(permission)),
        get("page_what_if", "/what-if/{id}", what_if::answer_page).now(OF_WHAT_IF).right(Right::LookAtAll),
        post("page_what_if_cancel", "/what-if/{id}/cancel", what_if::cancel).right(Right::OperatorOfAll(permission)),
    ];
    of_the_site.into_iter().chain(of_tenants).map(Route::unlisted).collect()
}

/// What is said at a path where there is nothing: a page to those who read pages.
pub(crate) fn nothing(uri: &Uri, headers: &HeaderMap) -> Response {
    let error = ApiError::nothing();
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if uri.path().starts_with("/api") || !accepts.contains("text/html") {
        return error.into_response();
    }
    failed(&error, None)
}

pub(crate) fn failed(error: &ApiError, tenant: Option<&str>) -> Response {
    failed_at(error, tenant, None)
}

/// The same, of a page of a moment.
fn failed_at(error: &ApiError, tenant: Option<&str>, uri: Option<&Uri>) -> Response {
    if error.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!("{error}");
    }
    let pairs = uri.map(pairs).unwrap_or_default();
    let at = pairs.iter().find(|(name, _)| name == "at").map(|(_, at)| at.as_str());
    respond(error.status(), error_page(error, tenant, at))
}

/// Makes a page as of the moment a request asks about.
async fn answer(
    app: Arc<App>,
    uri: Uri,
    tenant: Option<String>,
    needs: Needs,
    known: &'static [&'static str],
    render: impl FnOnce(&Reading<'_>, &Frame, &Query) -> Result<Content, ApiError> + Send + 'static,
) -> Response {
    let query = match Query::read(uri.query(), known) {
        Ok(query) => query,
        Err(error) => return failed(&error, tenant.as_deref()),
    };
    let (of, asked) = (tenant.clone(), uri.clone());
    let made = async {
        let at = moment(&app, &query).await?;
        app.blocking(move |app| {
            let newest = app.site.gate.position().sequence;
            read(app, at, needs, |reading| {
                let mut frame = Frame::new(reading, newest, at.is_some(), of, uri.path().to_owned())?;
                frame.kept = kept(&uri);
                let content = render(reading, &frame, &query)?;
                if let Some(item) = content.item {
                    frame.beside(reading, item)?;
                }
                Ok((reading.at, frame.page(content)))
            })
        })
        .await
    };
    match made.await {
        Ok((at, page)) => {
            let mut response = respond(StatusCode::OK, page);
            mark(&app, response.headers_mut(), at);
            response
        }
        Err(error) => failed_at(&error, tenant.as_deref(), Some(&asked)),
    }
}

fn pairs(uri: &Uri) -> Vec<(String, String)> {
    axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).map(|pairs| pairs.0).unwrap_or_default()
}

/// A page's own parameters, without the moment.
fn kept(uri: &Uri) -> Vec<(String, String)> {
    let own = |name: &str| name != "at" && name != "after";
    pairs(uri).into_iter().filter(|(name, value)| own(name) && !value.is_empty()).collect()
}

/// The segments of a path, or the page that says what is wrong with them.
#[expect(clippy::result_large_err, reason = "the error is the answer")]
fn segments<T>(path: Segments<T>) -> Result<T, Response> {
    path.map(|Path(segments)| segments).map_err(|error| failed(&ApiError::BadRequest(error.body_text()), None))
}

macro_rules! segments {
    ($path:expr) => {
        match segments($path) {
            Ok(segments) => segments,
            Err(response) => return response,
        }
    };
}

async fn asset(path: Segments<(String, String)>) -> Response {
    let (version, name) = segments!(path);
    let mut response = assets::answer(&version, &name);
    frame::guard(&mut response);
    response
}

async fn to_status(path: Segments<String>, RawQuery(query): RawQuery) -> Response {
    let tenant = segments!(path);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Redirect::temporary(&format!("/t/{}/status{query}", html::segment(&tenant))).into_response()
}

async fn tenants(State(app): Shared, uri: Uri) -> Response {
    let present = Arc::clone(&app.site.components);
    let workers = async {
        match moment(&app, &Query::read(uri.query(), &[])?).await? {
            Some(at) => Ok(capacity::workers_then(&app, at).await?.1),
            None => Ok(Vec::new()),
        }
    };
    let workers = match workers.await {
        Ok(workers) => workers,
        Err(error) => return failed_at(&error, None, Some(&uri)),
    };
    answer(app, uri, None, Needs::Live, &[], move |reading, frame, _| {
        configuration::tenants(reading, frame, || present.present(), &workers)
    })
    .await
}

async fn status_page(State(app): Shared, path: Segments<String>, uri: Uri) -> Response {
    let tenant = segments!(path);
    let of = Some(tenant.clone());
    let query = match Query::read(uri.query(), status::PARAMETERS) {
        Ok(query) => query,
        Err(error) => return failed(&error, of.as_deref()),
    };
    if pairs(&uri).iter().any(|(name, _)| name == "at") {
        return answer(app, uri, of, Needs::Live, status::PARAMETERS, move |reading, frame, query| {
            let document = document(reading, &tenant, &mut Pieces::default())?;
            let beside = status::beside(reading, frame, &tenant)?;
            status::page(frame, &tenant, query, &document, &beside)
        })
        .await;
    }
    let own = kept(&uri);
    let made = async {
        // `after` is waited for.
        moment(&app, &query).await?;
        app.blocking(move |app| {
            // However the tenant is spelled in the address, it is one page.
            let path = format!("/t/{}/status", html::segment(&tenant));
            let shared = own.is_empty();
            let look = |reading: &Reading<'_>| {
                let mut frame = Frame::new(reading, reading.at, false, Some(tenant.clone()), path)?;
                frame.kept = own;
                let beside = status::beside(reading, &frame, &tenant)?;
                Ok((frame, beside))
            };
            newest::page(app, &tenant, shared, look, |(frame, beside), document| {
                let content = status::page(&frame, &tenant, &query, document, &beside)?;
                Ok(frame.page(content))
            })
        })
        .await
    };
    match made.await {
        Ok((at, page)) => {
            let mut response = respond(StatusCode::OK, page);
            mark(&app, response.headers_mut(), at);
            response
        }
        Err(error) => failed_at(&error, of.as_deref(), None),
    }
}

async fn waits_page(State(app): Shared, path: Segments<String>, uri: Uri) -> Response {
    let tenant = segments!(path);
    let of = Some(tenant.clone());
    let then = async {
        let at = moment(&app, &Query::read(uri.query(), crate::waits::PARAMETERS)?).await?;
        crate::waits::capacity_then(&app, at).await
    };
    let then = match then.await {
        Ok(then) => then,
        Err(error) => return failed_at(&error, of.as_deref(), Some(&uri)),
    };
    answer(app, uri, of, Needs::Live, crate::waits::PARAMETERS, move |reading, frame, query| {
        waits::page(reading, frame, &tenant, query, &then)
    })
    .await
}

async fn builds_page(State(app): Shared, path: Segments<String>, uri: Uri) -> Response {
    let tenant = segments!(path);
    let of = Some(tenant.clone());
    answer(app, uri, of, Needs::History, builds::PARAMETERS, move |reading, frame, query| {
        lists::builds_page(reading, frame, &tenant, query)
    })
    .await
}

async fn buildsets_page(State(app): Shared, path: Segments<String>, uri: Uri) -> Response {
    let tenant = segments!(path);
    let of = Some(tenant.clone());
    answer(app, uri, of, Needs::History, buildsets::PARAMETERS, move |reading, frame, query| {
        lists::buildsets_page(reading, frame, &tenant, query)
    })
    .await
}

async fn buildset_page(State(app): Shared, path: Segments<(String, String)>, uri: Uri) -> Response {
    let (tenant, uuid) = segments!(path);
    let of = Some(tenant.clone());
    let (one, set) = (tenant.clone(), uuid.clone());
    let grants = grants(&app, &uri, move |reading| Ok(Some(buildset::find(reading, &one, &set)?.1)));
    let grants = match grants.await {
        Ok(grants) => grants,
        Err(error) => return failed_at(&error, of.as_deref(), Some(&uri)),
    };
    answer(app, uri, of, Needs::History, &[], move |reading, frame, _| {
        buildset::page(reading, frame, &tenant, &uuid, &grants)
    })
    .await
}

/// When the attempts of a buildset's builds got their workers: capacity's tables are not held together
/// with the gate's.
async fn grants(
    app: &Arc<App>,
    uri: &Uri,
    find: impl FnOnce(&Reading<'_>) -> Result<Option<BuildsetEntry>, ApiError> + Send + 'static,
) -> Result<Grants, ApiError> {
    let at = moment(app, &Query::read(uri.query(), &[])?).await?;
    let builds = app.blocking(move |app| read(app, at, Needs::History, find)).await?.map(|row| row.builds);
    let builds = builds.unwrap_or_default();
    let then = capacity::beside(app, at).await?;
    app.blocking(move |app| build::grants(app, &builds, then)).await
}

async fn why_page(State(app): Shared, path: Segments<(String, String, String)>, uri: Uri) -> Response {
    let (tenant, uuid, job) = segments!(path);
    let of = Some(tenant.clone());
    answer(app, uri, of, Needs::History, &[], move |reading, frame, _| why::page(reading, frame, &tenant, &uuid, &job))
        .await
}

async fn item_page(State(app): Shared, path: Segments<(String, String)>, uri: Uri) -> Response {
    let (tenant, uuid) = segments!(path);
    let of = Some(tenant.clone());
    let (one, item) = (tenant.clone(), uuid.clone());
    let grants = grants(&app, &uri, move |reading| {
        let entry = item::find(reading, &one, &item)?.1;
        match entry.buildset {
            Some(set) => Ok(reading.history().buildset(set, reading.at)?),
            None => Ok(None),
        }
    });
    let grants = match grants.await {
        Ok(grants) => grants,
        Err(error) => return failed_at(&error, of.as_deref(), Some(&uri)),
    };
    answer(app, uri, of, Needs::History, &[], move |reading, frame, _| {
        item::page(reading, frame, &tenant, &uuid, &grants)
    })
    .await
}

async fn errors_page(State(app): Shared, path: Segments<String>, uri: Uri) -> Response {
    let tenant = segments!(path);
    let of = Some(tenant.clone());
    answer(app, uri, of, Needs::History, crate::configuration::ERROR_PARAMETERS, move |reading, _, query| {
        configuration::errors(reading, &tenant, query)
    })
    .await
}

/// A build's page needs what the tables do not have: capacity's leases and part of the console.
async fn build_page(State(app): Shared, path: Segments<(String, String)>, uri: Uri) -> Response {
    let (tenant, uuid) = segments!(path);
    let of = Some(tenant.clone());
    let before = async {
        let query = Query::read(uri.query(), console::PARAMETERS)?;
        let at = moment(&app, &query).await?;
        let (tenant, uuid) = (tenant.clone(), uuid.clone());
        let (id, attempts) = app
            .blocking(move |app| {
                read(app, at, Needs::History, |reading| {
                    let (id, entry) = builds::find(reading, &tenant, &uuid)?;
                    let attempts: BTreeSet<u32> = entry.attempts.iter().map(|attempt| attempt.attempt).collect();
                    Ok((id, attempts))
                })
            })
            .await?;
        let console = console::read(&app, id, &attempts, &query).await?;
        let then = capacity::beside(&app, at).await?;
        let leases = app.blocking(move |app| build::leases(app, id, then)).await?;
        let logs = logs::look(&app, id, console.attempt()).await;
        Ok::<_, ApiError>((console, leases, logs))
    };
    let (console, leases, logs) = match before.await {
        Ok(before) => before,
        Err(error) => return failed_at(&error, of.as_deref(), Some(&uri)),
    };
    answer(app, uri, of, Needs::History, console::PARAMETERS, move |reading, frame, _| {
        build::page(reading, frame, &tenant, &uuid, &leases, &console, &logs)
    })
    .await
}

async fn lines_piece(State(app): Shared, path: Segments<(String, String)>, uri: Uri) -> Response {
    let (tenant, uuid) = segments!(path);
    console::lines_piece(app, tenant, uuid, uri).await
}

async fn found_piece(State(app): Shared, path: Segments<(String, String)>, uri: Uri) -> Response {
    let (tenant, uuid) = segments!(path);
    console::found_piece(app, tenant, uuid, uri).await
}
