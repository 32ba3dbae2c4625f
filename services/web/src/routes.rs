//! Paths.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::auth::guard::guard;
use crate::error::ApiError;
use crate::paths::{Paths, ReadPath};
use crate::query::Query;
use crate::reading::{App, Needs, Reading, answer, answer_with, moment};
use crate::site::Site;
use crate::status::Pieces;
use crate::{
    builds, buildsets, capacity, configuration, console, followed, health, job_logs, keys, newest, operators, page,
    status, stream, timers, tokens, waits, what_if,
};

/// The longest path and query, in bytes.
const MAX_URI: usize = 8 << 10;
/// The policy of what is no page: even a browser that takes it for one loads and runs nothing.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";
/// The largest body.
pub(crate) const MAX_BODY: usize = 64 << 10;
/// What paths that are read answer to.
const READS: &str = "GET, HEAD, OPTIONS";
/// How long open answers may go on once the server is told to stop.
const GRACE: Duration = Duration::from_secs(2);

type Shared = State<Arc<App>>;
type Answered = Result<Response, ApiError>;
pub(crate) type Segments<T> = Result<Path<T>, PathRejection>;

pub(crate) fn segments<T>(path: Segments<T>) -> Result<T, ApiError> {
    path.map(|Path(segments)| segments).map_err(|error| ApiError::BadRequest(error.body_text()))
}

/// A handler for a document of the site.
macro_rules! of_site {
    ($needs:expr, $known:expr, $render:expr) => {
        get(|State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery| async move {
            let query = Query::read(query.as_deref(), $known)?;
            answer(app, headers, query, $needs, |reading, query| $render(reading, query)).await
        })
    };
}

/// A handler for a document of a tenant.
macro_rules! of_tenant {
    ($needs:expr, $known:expr, $render:expr) => {
        get(|State(app): Shared, path: Segments<String>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
            let tenant = segments(path)?;
            let query = Query::read(query.as_deref(), $known)?;
            answer(app, headers, query, $needs, move |reading, query| $render(reading, &tenant, query)).await
        })
    };
}

/// A handler for a document of one thing of a tenant.
macro_rules! of_one {
    ($needs:expr, $render:expr) => {
        get(
            |State(app): Shared, path: Segments<(String, String)>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
                let (tenant, one) = segments(path)?;
                let query = Query::read(query.as_deref(), &[])?;
                answer(app, headers, query, $needs, move |reading, _| $render(reading, &tenant, &one)).await
            },
        )
    };
}

/// Why some of what is read cannot be had as of a moment.
pub(crate) const OF_PROGRAM: &str = "paths, style and script are those of this program";
const OF_PROCESSES: &str = "how processes are is no part of the history";
const OF_CONNECTIONS: &str = "connections are of this process's configuration, which is no part of the history; \
                              which projects a tenant had, and where, is told by `projects`";
const OF_STREAM: &str = "what has been does not change any more; ask for `status` itself";
pub(crate) const OF_WHAT_IF: &str = "a what-if says itself up to where it looks";
const OF_CONSOLE_STREAM: &str = "it follows what a build says; `console` has what it had said";
pub(crate) const OF_LOGS: &str =
    "files that jobs left are no part of the history: they are there until they are removed";
const OF_KEYS: &str = "keys are no part of the history: there is the one that is there";

/// The API and the page of a site.
pub fn router(site: Site) -> Router {
    let app = Arc::new(App::new(site));
    health::watch(&app);
    let guarded = from_fn_with_state(Arc::clone(&app), guard);
    all(|paths| paths.route_layer(guarded))
        .into_router()
        .fallback(|uri: Uri, headers: HeaderMap| async move { page::nothing(&uri, &headers) })
        .method_not_allowed_fallback(|| async { ApiError::Method(READS) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(common))
        .with_state(app)
}

/// Every path that is read, with what it makes of `at`.
pub fn read_paths() -> Vec<ReadPath> {
    all(|paths| paths).listed()
}

/// Every path, those that everybody may not read behind a guard.
fn all(guard: impl FnOnce(Router<Arc<App>>) -> Router<Arc<App>>) -> Paths {
    // Those of operators see for themselves who asks, and what verifies tokens is for everybody.
    reads().merge(page::routes()).guarded(guard).merge(operators::routes()).merge(tokens::routes())
}

fn reads() -> Paths {
    use Needs::{History, Live};
    type R<'a, 'v> = &'a Reading<'v>;
    Paths::default()
        .read_now("/api", OF_PROGRAM, get(map))
        .read("/api/info", of_site!(History, &[], |reading: R<'_, '_>, _: &Query| configuration::info(reading, None)))
        .read_now("/api/health", OF_PROCESSES, get(health_of))
        .read_now("/api/health/live", OF_PROCESSES, get(live))
        .read_now("/api/health/ready", OF_PROCESSES, get(ready))
        .read("/api/events", get(events))
        .read_now("/api/connections", OF_CONNECTIONS, get(connections))
        .read("/api/components", get(components))
        .read("/api/waits", get(waits_of_site))
        .read("/api/tenant/{tenant}/waits", get(waits_of))
        .read_now(
            "/api/what-if",
            OF_WHAT_IF,
            get(what_if::api::list).post(what_if::api::ask).layer(DefaultBodyLimit::max(what_if::MAX_QUESTION)),
        )
        .read_now("/api/what-if/{id}", OF_WHAT_IF, get(what_if::api::one).delete(what_if::api::cancel))
        .read("/api/tenants", of_site!(History, &[], |reading: R<'_, '_>, _: &Query| configuration::tenants(reading)))
        .read(
            "/api/tenant/{tenant}/info",
            of_tenant!(History, &[], |reading: R<'_, '_>, tenant: &String, _| configuration::info(
                reading,
                Some(tenant)
            )),
        )
        .read("/api/tenant/{tenant}/status", get(status_of))
        .read_now("/api/tenant/{tenant}/status/stream", OF_STREAM, get(status_stream))
        .read("/api/tenant/{tenant}/status/change/{*change}", of_one!(Live, status::change))
        .read("/api/tenant/{tenant}/builds", of_tenant!(History, builds::PARAMETERS, builds::list))
        .read("/api/tenant/{tenant}/build/{uuid}", of_one!(History, builds::one))
        .read("/api/tenant/{tenant}/build/{uuid}/console", get(console_of))
        .read("/api/tenant/{tenant}/build/{uuid}/console/lines", get(console_lines))
        .read("/api/tenant/{tenant}/build/{uuid}/console/find", get(console_find))
        .read("/api/tenant/{tenant}/build/{uuid}/leases", get(leases_of))
        .read_now("/api/tenant/{tenant}/build/{uuid}/logs", OF_LOGS, get(logs_of))
        .read_now("/api/tenant/{tenant}/console-stream", OF_CONSOLE_STREAM, get(console_stream))
        .read_now("/api/tenant/{tenant}/key/{*project}", OF_KEYS, get(key_of))
        .read_now("/api/tenant/{tenant}/project-ssh-key/{*project}", OF_KEYS, get(project_ssh_key))
        .read_now("/api/tenant/{tenant}/tenant-ssh-key/ssh.pub", OF_KEYS, get(tenant_ssh_key))
        .read("/api/tenant/{tenant}/buildsets", of_tenant!(History, buildsets::PARAMETERS, buildsets::list))
        .read("/api/tenant/{tenant}/buildset/{uuid}", of_one!(History, buildsets::one))
        .read(
            "/api/tenant/{tenant}/projects",
            of_tenant!(History, &[], |reading: R<'_, '_>, tenant: &String, _| configuration::projects(reading, tenant)),
        )
        .read(
            "/api/tenant/{tenant}/pipelines",
            of_tenant!(History, &[], |reading: R<'_, '_>, tenant: &String, _| configuration::pipelines(
                reading, tenant
            )),
        )
        .read(
            "/api/tenant/{tenant}/jobs",
            of_tenant!(History, &[], |reading: R<'_, '_>, tenant: &String, _| configuration::jobs(reading, tenant)),
        )
        .read(
            "/api/tenant/{tenant}/config-errors",
            of_tenant!(History, configuration::ERROR_PARAMETERS, configuration::errors),
        )
        .read(
            "/api/tenant/{tenant}/tenant-status",
            of_tenant!(History, &[], |reading: R<'_, '_>, tenant: &String, _| {
                configuration::tenant_status(reading, tenant)
            }),
        )
        .read(
            "/api/tenant/{tenant}/semaphores",
            of_tenant!(Live, &[], |reading: R<'_, '_>, tenant: &String, _| configuration::semaphores(reading, tenant)),
        )
        .read(
            "/api/tenant/{tenant}/timers",
            of_tenant!(Live, &[], |reading: R<'_, '_>, tenant: &String, _| timers::timers(reading, tenant)),
        )
}

/// What every answer has, and what is the same for every path.
async fn common(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let long = request.uri().path_and_query().is_some_and(|text| text.as_str().len() > MAX_URI);
    let mut response = if request.method() == Method::OPTIONS {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        let methods = operators::methods(&path).or_else(|| what_if::api::methods(&path)).unwrap_or(READS);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
        headers.insert(
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("Authorization, Content-Type, If-None-Match, Last-Event-ID, X-Request-Id"),
        );
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
        response
    } else if long {
        ApiError::BadRequest(format!("path and query are longer than {MAX_URI} bytes")).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("Gatelog-Position, Gatelog-Request, ETag, WWW-Authenticate"),
    );
    // What people wrote is never taken for anything but what it is said to be.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Pages have a policy that lets in their own files; nothing else is to be shown as a page.
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NO_PAGE));
    response
}

/// The paths of operators, by their names in the map.
const OF_OPERATORS: &[(&str, &str)] = &[
    ("authorizations", "/api/authorizations"),
    ("tenant_authorizations", "/api/tenant/{tenant}/authorizations"),
    ("enqueue", "/api/tenant/{tenant}/project/{project}/enqueue"),
    ("dequeue", "/api/tenant/{tenant}/project/{project}/dequeue"),
    ("promote", "/api/tenant/{tenant}/promote"),
    ("autohold", "/api/tenant/{tenant}/project/{project}/autohold"),
    ("autohold_list", "/api/tenant/{tenant}/autohold"),
    ("autohold_by_request_id", "/api/tenant/{tenant}/autohold/{request_id}"),
    ("autohold_delete", "/api/tenant/{tenant}/autohold/{request_id}"),
    ("tenant_state", "/api/tenant/{tenant}/state"),
    ("component_pause", "/api/component/{role}/{name}/pause"),
    ("component_resume", "/api/component/{role}/{name}/resume"),
];

async fn map(State(app): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    let mut map = json!({
        "info": "/api/info",
        "health": "/api/health",
        "live": "/api/health/live",
        "ready": "/api/health/ready",
        "events": "/api/events",
        "connections": "/api/connections",
        "components": "/api/components",
        "level": "/api/level",
        "waits": "/api/waits",
        "what_ifs": "/api/what-if",
        "what_if": "/api/what-if/{id}",
        "tenants": "/api/tenants",
        "tenant_info": "/api/tenant/{tenant}/info",
        "status": "/api/tenant/{tenant}/status",
        "status_stream": "/api/tenant/{tenant}/status/stream",
        "tenant_waits": "/api/tenant/{tenant}/waits",
        "status_change": "/api/tenant/{tenant}/status/change/{change}",
        "jobs": "/api/tenant/{tenant}/jobs",
        "projects": "/api/tenant/{tenant}/projects",
        "pipelines": "/api/tenant/{tenant}/pipelines",
        "semaphores": "/api/tenant/{tenant}/semaphores",
        "timers": "/api/tenant/{tenant}/timers",
        "builds": "/api/tenant/{tenant}/builds",
        "build": "/api/tenant/{tenant}/build/{uuid}",
        "console": "/api/tenant/{tenant}/build/{uuid}/console",
        "console_lines": "/api/tenant/{tenant}/build/{uuid}/console/lines",
        "console_find": "/api/tenant/{tenant}/build/{uuid}/console/find",
        "logs": "/api/tenant/{tenant}/build/{uuid}/logs",
        "console_stream": "/api/tenant/{tenant}/console-stream",
        "leases": "/api/tenant/{tenant}/build/{uuid}/leases",
        "buildsets": "/api/tenant/{tenant}/buildsets",
        "buildset": "/api/tenant/{tenant}/buildset/{uuid}",
        "key": "/api/tenant/{tenant}/key/{project}.pub",
        "project_ssh_key": "/api/tenant/{tenant}/project-ssh-key/{project}.pub",
        "tenant_ssh_key": "/api/tenant/{tenant}/tenant-ssh-key/ssh.pub",
        "config_errors": "/api/tenant/{tenant}/config-errors",
        "tenant_status": "/api/tenant/{tenant}/tenant-status",
    });
    // Zuul: without authenticators there are none of these.
    if let (Some(map), false) = (map.as_object_mut(), app.site.authenticators.is_empty()) {
        for (name, path) in OF_OPERATORS {
            map.insert((*name).to_owned(), (*path).into());
        }
    }
    Ok(Json(map))
}

async fn connections(State(app): Shared, RawQuery(query): RawQuery) -> Result<Json<Value>, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    Ok(Json(app.site.drivers.iter().map(|(name, driver)| json!({ "name": name, "driver": driver })).collect()))
}

async fn health_of(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    Query::read_only(query.as_deref(), &[])?;
    let (stopped, document) = health::document(&app);
    let status = if stopped { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Ok((status, Json(document)).into_response())
}

async fn live(RawQuery(query): RawQuery) -> Result<Json<Value>, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    Ok(Json(json!({ "live": true })))
}

async fn ready(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    Query::read_only(query.as_deref(), &[])?;
    let (ready, document) = health::ready(&app);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(document)).into_response())
}

async fn components(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    let query = Query::read(query.as_deref(), &[])?;
    match moment(&app, &query).await? {
        Some(at) => capacity::components_then(app, at).await,
        None => capacity::components(app).await,
    }
}

async fn waits_of_site(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    waits::answer(app, None, Query::read(query.as_deref(), waits::PARAMETERS)?).await
}

async fn waits_of(State(app): Shared, path: Segments<String>, RawQuery(query): RawQuery) -> Answered {
    let tenant = segments(path)?;
    waits::answer(app, Some(tenant), Query::read(query.as_deref(), waits::PARAMETERS)?).await
}

async fn leases_of(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, uuid) = segments(path)?;
    let query = Query::read(query.as_deref(), &[])?;
    let at = moment(&app, &query).await?;
    capacity::leases(app, tenant, uuid, at).await
}

async fn events(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Answered {
    let query = Query::read_only(query.as_deref(), stream::PARAMETERS)?;
    stream::events(app, headers, query).await
}

async fn status_of(
    State(app): Shared,
    path: Segments<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answered {
    let tenant = segments(path)?;
    let query = Query::read(query.as_deref(), &[])?;
    if query.one("at")?.is_none() {
        return answer_with(app, headers, query, move |app, had, _| newest::said(app, had, &tenant)).await;
    }
    let then = move |reading: &Reading<'_>, _: &Query| status::document(reading, &tenant, &mut Pieces::default());
    answer(app, headers, query, Needs::Live, then).await
}

async fn status_stream(
    State(app): Shared,
    path: Segments<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answered {
    let query = Query::read_only(query.as_deref(), followed::PARAMETERS)?;
    followed::statuses(app, segments(path)?, headers, query).await
}

async fn key_of(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, project) = segments(path)?;
    let query = Query::read_only(query.as_deref(), &["after"])?;
    keys::of_project(app, keys::Of::Secrets, tenant, project, query).await
}

async fn project_ssh_key(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, project) = segments(path)?;
    let query = Query::read_only(query.as_deref(), &["after"])?;
    keys::of_project(app, keys::Of::Ssh, tenant, project, query).await
}

async fn tenant_ssh_key(State(app): Shared, path: Segments<String>, RawQuery(query): RawQuery) -> Answered {
    let tenant = segments(path)?;
    let query = Query::read_only(query.as_deref(), &["after"])?;
    keys::of_tenant(app, tenant, query).await
}

async fn console_of(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, uuid) = segments(path)?;
    let query = Query::read(query.as_deref(), console::PARAMETERS)?;
    console::answer(app, tenant, uuid, query).await
}

async fn console_lines(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, uuid) = segments(path)?;
    let query = Query::read(query.as_deref(), console::LINE_PARAMETERS)?;
    console::lines_of(app, tenant, uuid, query).await
}

async fn console_find(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, uuid) = segments(path)?;
    let query = Query::read(query.as_deref(), console::FIND_PARAMETERS)?;
    console::find_in(app, tenant, uuid, query).await
}

async fn console_stream(
    State(app): Shared,
    path: Segments<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answered {
    let tenant = segments(path)?;
    Query::read_only(query.as_deref(), &[])?;
    console::websocket::answer(app, tenant, headers, upgrade)
}

async fn logs_of(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, uuid) = segments(path)?;
    let query = Query::read_only(query.as_deref(), job_logs::PARAMETERS)?;
    job_logs::list(app, tenant, uuid, query).await
}

/// Serves the API until `shutdown` comes, and a moment longer for answers that are under way.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (told, mut stopping) = tokio::sync::watch::channel(false);
    let graceful = async move {
        shutdown.await;
        let _ = told.send(true);
    };
    // Given the router itself, axum makes its table of routes anew for each connection: 37 kB as long as that is open.
    let serving = axum::serve(listener, router.into_make_service()).with_graceful_shutdown(graceful);
    let patience = async move {
        // Streams do not end by themselves.
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serving => served,
        () = patience => Ok(()),
    }
}
