//! The table of the API's routes, and what every answer has.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, Request, State};
use axum::handler::Handler;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::net::TcpListener;

use crate::answers::{self, Connection, Live, Typed};
use crate::error::ApiError;
use crate::paths::{About, Listed, Right, Route, delete, get, into_router, post};
use crate::query::Query;
use crate::reading::{App, Needs, Reading, answer, answer_with, moment_of_all};
use crate::site::Site;
use crate::status::Pieces;
use crate::{
    builds, buildsets, capacity, configuration, console, followed, health, job_logs, keys, newest, openapi, operators,
    page, status, stream, timers, tokens, waits, what_if,
};

/// The longest path and query, in bytes.
const MAX_URI: usize = 8 << 10;
/// The types of answers that are no JSON.
const EVENTS: &str = "text/event-stream";
const TEXT: &str = "text/plain";
/// The parameters of keys.
const KEY_PARAMETERS: &[&str] = &["after"];
/// The policy of what is no page: even a browser that takes it for one loads and runs nothing.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";
/// The largest body.
pub(crate) const MAX_BODY: usize = 64 << 10;
/// What a path is said to answer to where there is nothing.
const READS: &str = "GET, HEAD, OPTIONS";
/// How long open answers may go on once the server is told to stop.
const GRACE: Duration = Duration::from_secs(2);

type Shared = State<Arc<App>>;
type Answered = Result<Response, ApiError>;
pub(crate) type Segments<T> = Result<Path<T>, PathRejection>;

pub(crate) fn segments<T>(path: Segments<T>) -> Result<T, ApiError> {
    path.map(|Path(segments)| segments).map_err(|error| ApiError::BadRequest(error.body_text()))
}

/// A document of the site.
fn of_site<T: Serialize + JsonSchema + 'static>(
    name: &'static str,
    path: &'static str,
    needs: Needs,
    render: fn(&Reading<'_>) -> Result<T, ApiError>,
) -> Route {
    get(name, path, move |State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery| async move {
        let query = Query::read(query.as_deref(), &[])?;
        answer(app, headers, query, needs, move |reading, _| render(reading).map(Typed)).await
    })
    .answers::<T>()
}

/// A document of a tenant.
fn of_tenant<T: Serialize + JsonSchema + 'static>(
    name: &'static str,
    path: &'static str,
    needs: Needs,
    render: fn(&Reading<'_>, &str) -> Result<T, ApiError>,
) -> Route {
    get(
        name,
        path,
        move |State(app): Shared, path: Segments<String>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
            let tenant = segments(path)?;
            let query = Query::read(query.as_deref(), &[])?;
            answer(app, headers, query, needs, move |reading, _| render(reading, &tenant).map(Typed)).await
        },
    )
    .answers::<T>()
}

/// A list of a tenant, of which parts can be asked for.
fn list_of<T: Serialize + JsonSchema + 'static>(
    name: &'static str,
    path: &'static str,
    needs: Needs,
    known: &'static [&'static str],
    render: fn(&Reading<'_>, &str, &Query) -> Result<T, ApiError>,
) -> Route {
    get(
        name,
        path,
        move |State(app): Shared, path: Segments<String>, headers: HeaderMap, RawQuery(query): RawQuery| async move {
            let tenant = segments(path)?;
            let query = Query::read(query.as_deref(), known)?;
            answer(app, headers, query, needs, move |reading, query| render(reading, &tenant, query).map(Typed)).await
        },
    )
    .parameters(known)
    .answers::<T>()
}

/// A document of one thing of a tenant.
fn of_one<T: Serialize + JsonSchema + 'static>(
    name: &'static str,
    path: &'static str,
    needs: Needs,
    render: fn(&Reading<'_>, &str, &str) -> Result<T, ApiError>,
) -> Route {
    get(
        name,
        path,
        move |State(app): Shared,
              path: Segments<(String, String)>,
              headers: HeaderMap,
              RawQuery(query): RawQuery| async move {
            let (tenant, one) = segments(path)?;
            let query = Query::read(query.as_deref(), &[])?;
            answer(app, headers, query, needs, move |reading, _| render(reading, &tenant, &one).map(Typed)).await
        },
    )
    .answers::<T>()
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
    into_router(all(), &app)
        .fallback(|uri: Uri, headers: HeaderMap| async move { page::nothing(&uri, &headers) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(common))
        .with_state(app)
}

/// Every route there is.
pub fn table() -> &'static [About] {
    static TABLE: OnceLock<Vec<About>> = OnceLock::new();
    TABLE.get_or_init(|| all().iter().map(|route| route.about).collect())
}

fn all() -> Vec<Route> {
    let mut all = of_the_site();
    all.extend(of_tenants());
    all.extend(of_builds());
    all.extend(operators::routes());
    all.extend(tokens::routes());
    all.extend(page::routes());
    all
}

/// What is read of the site. The order is that of the map.
fn of_the_site() -> Vec<Route> {
    use Needs::History;
    vec![
        get("map", "/api", map).now(OF_PROGRAM).unlisted().answers::<BTreeMap<String, String>>(),
        get("openapi", "/api/openapi.json", openapi).now(OF_PROGRAM).right(Right::Everybody).answers::<Value>(),
        of_site("info", "/api/info", History, |reading| configuration::info(reading, None)).right(Right::Everybody),
        get("health", "/api/health", health_of)
            .now(OF_PROCESSES)
            .right(Right::Everybody)
            .answers::<answers::Health>()
            .statuses(&[200, 503]),
        get("live", "/api/health/live", live).now(OF_PROCESSES).right(Right::Everybody).answers::<Live>(),
        get("ready", "/api/health/ready", ready)
            .now(OF_PROCESSES)
            .right(Right::Everybody)
            .answers::<answers::Ready>()
            .statuses(&[200, 503]),
        get("events", "/api/events", events)
            .right(Right::LookAtAll)
            .parameters(stream::PARAMETERS)
            .answers_text(EVENTS)
            .statuses(&[200, 204]),
        get("connections", "/api/connections", connections).now(OF_CONNECTIONS).answers::<Vec<Connection>>(),
        get("components", "/api/components", components).answers::<BTreeMap<String, Vec<answers::Component>>>(),
        get("level", "/api/level", operators::site::level)
            .now(operators::site::OF_WHO_IS_THERE)
            .answers::<answers::Level>(),
        get("waits", "/api/waits", waits_of_site).parameters(waits::PARAMETERS).answers::<answers::Waits>(),
        get("what_ifs", "/api/what-if", what_if::api::list)
            .now(OF_WHAT_IF)
            .right(Right::LookAtAll)
            .answers::<Vec<answers::Case>>(),
        post("what_ifs", "/api/what-if", what_if::api::ask)
            .now(OF_WHAT_IF)
            .right(Right::OperatorOfAll(what_if::PERMISSION))
            .body_up_to(what_if::MAX_QUESTION)
            .takes::<what_if::Question>()
            .answers::<answers::CaseAsked>()
            .statuses(&[202]),
        get("what_if", "/api/what-if/{id}", what_if::api::one)
            .now(OF_WHAT_IF)
            .right(Right::LookAtAll)
            .answers::<answers::Case>(),
        delete("what_if", "/api/what-if/{id}", what_if::api::cancel)
            .now(OF_WHAT_IF)
            .right(Right::OperatorOfAll(what_if::PERMISSION))
            .answers_nothing(&[204]),
        of_site("tenants", "/api/tenants", History, configuration::tenants),
    ]
}

/// What is read of a tenant.
fn of_tenants() -> Vec<Route> {
    use Needs::{History, Live};
    vec![
        of_tenant("tenant_info", "/api/tenant/{tenant}/info", History, |reading, tenant| {
            configuration::info(reading, Some(tenant))
        })
        .right(Right::Everybody),
        get("status", "/api/tenant/{tenant}/status", status_of).answers::<answers::Status>(),
        get("status_stream", "/api/tenant/{tenant}/status/stream", status_stream)
            .now(OF_STREAM)
            .parameters(followed::PARAMETERS)
            .answers_text(EVENTS),
        get("tenant_waits", "/api/tenant/{tenant}/waits", waits_of)
            .parameters(waits::PARAMETERS)
            .answers::<answers::Waits>(),
        of_one("status_change", "/api/tenant/{tenant}/status/change/{*change}", Live, status::change)
            .answers::<Vec<answers::ItemStatus>>(),
        of_tenant("jobs", "/api/tenant/{tenant}/jobs", History, configuration::jobs),
        of_tenant("projects", "/api/tenant/{tenant}/projects", History, configuration::projects),
        of_tenant("pipelines", "/api/tenant/{tenant}/pipelines", History, configuration::pipelines),
        of_tenant("semaphores", "/api/tenant/{tenant}/semaphores", Live, configuration::semaphores),
        of_tenant("timers", "/api/tenant/{tenant}/timers", Live, timers::timers),
    ]
}

/// What is read of builds, and of what encloses them.
fn of_builds() -> Vec<Route> {
    use Needs::History;
    vec![
        list_of("builds", "/api/tenant/{tenant}/builds", History, builds::PARAMETERS, builds::list),
        of_one("build", "/api/tenant/{tenant}/build/{uuid}", History, builds::one),
        get("console", "/api/tenant/{tenant}/build/{uuid}/console", console_of)
            .parameters(console::PARAMETERS)
            .answers_text(TEXT),
        get("console_lines", "/api/tenant/{tenant}/build/{uuid}/console/lines", console_lines)
            .parameters(console::LINE_PARAMETERS)
            .answers::<answers::Lines>(),
        get("console_find", "/api/tenant/{tenant}/build/{uuid}/console/find", console_find)
            .parameters(console::FIND_PARAMETERS)
            .answers::<answers::Hits>(),
        get("logs", "/api/tenant/{tenant}/build/{uuid}/logs", logs_of)
            .now(OF_LOGS)
            .parameters(job_logs::PARAMETERS)
            .answers::<answers::Logs>(),
        get("console_stream", "/api/tenant/{tenant}/console-stream", console_stream)
            .now(OF_CONSOLE_STREAM)
            .right(Right::LookByMessage)
            .answers_nothing(&[101]),
        get("leases", "/api/tenant/{tenant}/build/{uuid}/leases", leases_of).answers::<Vec<answers::Lease>>(),
        list_of("buildsets", "/api/tenant/{tenant}/buildsets", History, buildsets::PARAMETERS, buildsets::list),
        of_one("buildset", "/api/tenant/{tenant}/buildset/{uuid}", History, buildsets::one),
        key("key", "/api/tenant/{tenant}/key/{*project}.pub", key_of),
        key("project_ssh_key", "/api/tenant/{tenant}/project-ssh-key/{*project}.pub", project_ssh_key),
        key("tenant_ssh_key", "/api/tenant/{tenant}/tenant-ssh-key/ssh.pub", tenant_ssh_key),
        list_of(
            "config_errors",
            "/api/tenant/{tenant}/config-errors",
            History,
            configuration::ERROR_PARAMETERS,
            configuration::errors,
        ),
        of_tenant("tenant_status", "/api/tenant/{tenant}/tenant-status", History, configuration::tenant_status),
    ]
}

/// A public key.
fn key<H: Handler<T, Arc<App>>, T: 'static>(name: &'static str, path: &'static str, handler: H) -> Route {
    get(name, path, handler).now(OF_KEYS).parameters(KEY_PARAMETERS).answers_text(TEXT)
}

/// What every answer has, and what is the same for every path.
async fn common(request: Request, next: Next) -> Response {
    let long = request.uri().path_and_query().is_some_and(|text| text.as_str().len() > MAX_URI);
    let mut response = if request.method() == Method::OPTIONS {
        let mut answered = next.run(request).await;
        let methods = answered.headers_mut().remove(ACCESS_CONTROL_ALLOW_METHODS);
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods.unwrap_or(HeaderValue::from_static(READS)));
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

/// `/api`: the paths of the API by their names.
async fn map(State(app): Shared, RawQuery(query): RawQuery) -> Result<Json<Map<String, Value>>, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    let authenticators = !app.site.authenticators.is_empty();
    let named = table().iter().filter(|about| match about.listed {
        Listed::Always => true,
        Listed::WithAuthenticators => authenticators,
        Listed::Never => false,
    });
    Ok(Json(named.map(|about| (about.name.to_owned(), about.shown().into())).collect()))
}

/// `/api/openapi.json`
async fn openapi(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    Query::read_only(query.as_deref(), &[])?;
    Ok(([(CONTENT_TYPE, "application/json; charset=utf-8")], openapi::document(&app.site.version)).into_response())
}

async fn connections(State(app): Shared, RawQuery(query): RawQuery) -> Result<Json<Vec<Connection>>, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    Ok(Json(
        app.site
            .drivers
            .iter()
            .map(|(name, driver)| Connection { name: name.clone(), driver: driver.clone() })
            .collect(),
    ))
}

async fn health_of(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    Query::read_only(query.as_deref(), &[])?;
    let (stopped, document) = health::document(&app);
    let status = if stopped { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Ok((status, Json(document)).into_response())
}

async fn live(RawQuery(query): RawQuery) -> Result<Json<Live>, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    Ok(Json(Live { live: true }))
}

async fn ready(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    Query::read_only(query.as_deref(), &[])?;
    let (ready, document) = health::ready(&app);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(document)).into_response())
}

async fn components(State(app): Shared, RawQuery(query): RawQuery) -> Answered {
    let query = Query::read(query.as_deref(), &[])?;
    match moment_of_all(&app, &query).await? {
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
    let at = moment_of_all(&app, &query).await?;
    capacity::leases(app, tenant, uuid, at).await
}

async fn events(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Answered {
    let query = Query::read(query.as_deref(), stream::PARAMETERS)?;
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
    let query = Query::read_only(query.as_deref(), KEY_PARAMETERS)?;
    keys::of_project(app, keys::Of::Secrets, tenant, project, query).await
}

async fn project_ssh_key(State(app): Shared, path: Segments<(String, String)>, RawQuery(query): RawQuery) -> Answered {
    let (tenant, project) = segments(path)?;
    let query = Query::read_only(query.as_deref(), KEY_PARAMETERS)?;
    keys::of_project(app, keys::Of::Ssh, tenant, project, query).await
}

async fn tenant_ssh_key(State(app): Shared, path: Segments<String>, RawQuery(query): RawQuery) -> Answered {
    let tenant = segments(path)?;
    let query = Query::read_only(query.as_deref(), KEY_PARAMETERS)?;
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
