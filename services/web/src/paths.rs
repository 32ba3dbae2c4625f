//! Routes as data: of each its name, path and method, who may ask, what it makes of `at`, and what answers.
//!
//! Every route of the site, of the API and of the page, is a [`Route`] in one of a few lists (`routes`, `operators`,
//! `tokens`, `page`). The router is made of them here and nowhere else, and so are the map at `/api`, the answers to
//! OPTIONS and the OpenAPI document: there is no route that those do not know.
//!
//! A segment written `{*name}` may hold slashes; more may stand behind it (`/project/{*project}/enqueue`).

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{DefaultBodyLimit, RawPathParams, Request, State};
use axum::handler::Handler;
use axum::http::header::ACCESS_CONTROL_ALLOW_METHODS;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::auth::guard::guard;
use crate::error::ApiError;
use crate::operators;
use crate::reading::App;

type Handlers = MethodRouter<Arc<App>>;

/// Who may ask at a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Everybody.
    Everybody,
    /// Whoever may look at the tenant in the path, or at the root where there is none.
    Look,
    /// Whoever may look at the root and at every tenant.
    LookAtAll,
    /// Whoever may look at the tenant, as a token in the first message says: a browser's websocket has none in headers.
    LookByMessage,
    /// Whoever a token names.
    Token,
    /// An operator with this permission.
    Operator(&'static str),
    /// An operator with this permission in every tenant.
    OperatorOfAll(&'static str),
}

/// What a route makes of `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It answers as of the moment asked for.
    Any,
    /// It answers as of now alone, and why: a sentence.
    Now(&'static str),
    /// Something is sent to it.
    Sent,
}

/// Whether the map at `/api` names a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// It does.
    Always,
    /// It does where there are authenticators. Zuul: without them these routes do not exist.
    WithAuthenticators,
    /// It does not.
    Never,
}

/// Makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a route answers with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    /// JSON of this schema.
    Json(SchemaOf),
    /// Text of this type.
    Text(&'static str),
    /// No body.
    Nothing,
}

/// What there is to say of a route.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in the map at `/api`. What is read, sent and removed at one path may have one name.
    pub name: &'static str,
    /// Its path, with the names of its segments in braces; a star before a name says that slashes may stand in it.
    pub path: &'static str,
    /// Its method, in upper case. What answers to GET answers to HEAD.
    pub method: &'static str,
    /// Who may ask.
    pub right: Right,
    /// What it makes of `at`.
    pub moment: Moment,
    pub(crate) listed: Listed,
    /// Its own parameters, beside `at` and `after`.
    pub(crate) parameters: &'static [&'static str],
    /// The body that is sent to it, where it takes one.
    pub(crate) takes: Option<SchemaOf>,
    pub(crate) says: Says,
    /// With which statuses it says so.
    pub(crate) statuses: &'static [u16],
}

impl About {
    /// The path as people read it.
    pub fn shown(&self) -> String {
        self.path.replace("{*", "{")
    }

    /// Whether it belongs to the API.
    pub fn is_api(&self) -> bool {
        self.path == "/api" || self.path.starts_with("/api/")
    }

    /// Whether it is there only where somebody can say who operators are.
    pub fn is_of_operators(&self) -> bool {
        matches!(self.right, Right::Token | Right::Operator(_))
    }

    /// Whether the OpenAPI document tells of it.
    pub fn is_documented(&self) -> bool {
        self.is_api() || self.path.contains("/.well-known/") || self.path.starts_with("/oidc/")
    }

    /// The path as the router takes it, and what must follow.
    fn mount(&self) -> (&'static str, &'static str) {
        let end = self.path.find("{*").and_then(|from| Some(from + self.path.get(from..)?.find('}')? + 1));
        self.path.split_at(end.unwrap_or(self.path.len()))
    }
}

/// A route with what answers at it.
pub(crate) struct Route {
    pub(crate) about: About,
    handlers: Handlers,
}

fn route<H, T>(method: &'static str, filter: MethodFilter, name: &'static str, path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<App>>,
    T: 'static,
{
    let moment = if method == "GET" { Moment::Any } else { Moment::Sent };
    let about = About {
        name,
        path,
        method,
        right: Right::Look,
        moment,
        listed: Listed::Always,
        parameters: &[],
        takes: None,
        says: Says::Text("text/html"),
        statuses: &[200],
    };
    Route { about, handlers: on(filter, handler) }
}

/// A route that is read, as of any moment, by whoever may look.
pub(crate) fn get<H: Handler<T, Arc<App>>, T: 'static>(name: &'static str, path: &'static str, handler: H) -> Route {
    route("GET", MethodFilter::GET, name, path, handler)
}

/// A route that something is sent to.
pub(crate) fn post<H: Handler<T, Arc<App>>, T: 'static>(name: &'static str, path: &'static str, handler: H) -> Route {
    route("POST", MethodFilter::POST, name, path, handler)
}

/// A route by which something is removed.
pub(crate) fn delete<H: Handler<T, Arc<App>>, T: 'static>(name: &'static str, path: &'static str, handler: H) -> Route {
    route("DELETE", MethodFilter::DELETE, name, path, handler)
}

impl Route {
    /// It is answered as of now alone, and why.
    pub(crate) fn now(mut self, why: &'static str) -> Route {
        self.about.moment = Moment::Now(why);
        self
    }

    pub(crate) fn right(mut self, right: Right) -> Route {
        self.about.right = right;
        self
    }

    /// It is there where there are authenticators.
    pub(crate) fn of_operators(mut self) -> Route {
        self.about.listed = Listed::WithAuthenticators;
        self
    }

    /// The map does not name it.
    pub(crate) fn unlisted(mut self) -> Route {
        self.about.listed = Listed::Never;
        self
    }

    /// The parameters it takes beside `at` and `after`.
    pub(crate) fn parameters(mut self, names: &'static [&'static str]) -> Route {
        self.about.parameters = names;
        self
    }

    /// The body it takes.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Route {
        self.about.takes = Some(|schemas| schemas.subschema_for::<T>());
        self
    }

    /// It answers with JSON of this type.
    pub(crate) fn answers<T: JsonSchema>(mut self) -> Route {
        self.about.says = Says::Json(|schemas| schemas.subschema_for::<T>());
        self
    }

    /// It answers with text of this type.
    pub(crate) fn answers_text(mut self, kind: &'static str) -> Route {
        self.about.says = Says::Text(kind);
        self
    }

    /// It answers with no body, and this status.
    pub(crate) fn answers_nothing(mut self, statuses: &'static [u16]) -> Route {
        (self.about.says, self.about.statuses) = (Says::Nothing, statuses);
        self
    }

    /// With which statuses it answers, where 200 is not the only one.
    pub(crate) fn statuses(mut self, statuses: &'static [u16]) -> Route {
        self.about.statuses = statuses;
        self
    }

    /// The most bytes of a body, where it is another number than elsewhere.
    pub(crate) fn body_up_to(mut self, bytes: usize) -> Route {
        self.handlers = self.handlers.layer(DefaultBodyLimit::max(bytes));
        self
    }

    /// What answers, once it is known who asks and that the moment can be had.
    fn guarded(self, app: &Arc<App>) -> Handlers {
        let mut handlers = self.handlers;
        if let Moment::Now(why) = self.about.moment {
            let refuse = move |request: Request, next: Next| async move { not_then(why, request, next).await };
            handlers = handlers.layer(from_fn(refuse));
        }
        handlers.layer(from_fn_with_state((Arc::clone(app), self.about.right), guard))
    }
}

/// What the routes of one path answer to.
fn methods<'r>(routes: impl Iterator<Item = &'r About>) -> String {
    let mut methods: Vec<&str> = Vec::new();
    for about in routes {
        methods.push(about.method);
        if about.method == "GET" {
            methods.push("HEAD");
        }
    }
    methods.push("OPTIONS");
    methods.join(", ")
}

/// What answers at one path.
fn of_path(routes: Vec<Route>, app: &Arc<App>) -> Handlers {
    let allowed = methods(routes.iter().map(|route| &route.about));
    let hidden = routes.iter().all(|route| route.about.is_of_operators());
    let mut handlers = Handlers::new();
    for route in routes {
        handlers = handlers.merge(route.guarded(app));
    }
    let told = HeaderValue::from_str(&allowed).unwrap_or(HeaderValue::from_static("OPTIONS"));
    let options = move || {
        let told = told.clone();
        async move { [(ACCESS_CONTROL_ALLOW_METHODS, told)].into_response() }
    };
    let other = move |State(app): State<Arc<App>>, params, headers, method| {
        let allowed = allowed.clone();
        async move { other_method(app, params, headers, method, hidden, allowed).await }
    };
    handlers.on(MethodFilter::OPTIONS, options).fallback(other)
}

/// Refuses a method. Where there are no authenticators, nobody learns by it of the paths of operators.
async fn other_method(
    app: Arc<App>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    headers: HeaderMap,
    method: Method,
    hidden: bool,
    allowed: String,
) -> ApiError {
    if hidden {
        let tenant = params
            .ok()
            .and_then(|params| params.iter().find(|(name, _)| *name == "tenant").map(|(_, tenant)| tenant.to_owned()));
        if let Err(error) = operators::known(&app, &headers, tenant.as_deref()).await {
            return error;
        }
    }
    tracing::debug!("{method} is none of {allowed}");
    ApiError::Method(allowed)
}

/// What answers below a segment that holds slashes, by how the path ends.
fn by_ending(choices: Vec<(&'static str, Handlers)>) -> Handlers {
    let choices = Arc::new(choices);
    any(move |State(app): State<Arc<App>>, request: Request| {
        let chosen = choices.iter().find(|(ending, _)| request.uri().path().ends_with(ending));
        let chosen = chosen.map(|(_, handlers)| handlers.clone());
        async move {
            match chosen {
                Some(handlers) => Handler::call(handlers, request, app).await,
                None => ApiError::nothing().into_response(),
            }
        }
    })
}

/// The routes of one path, by what stands behind its segment that holds slashes.
type Ending = (&'static str, Vec<Route>);

/// The router of some routes.
pub(crate) fn into_router(routes: Vec<Route>, app: &Arc<App>) -> Router<Arc<App>> {
    let mut mounts: Vec<(&str, Vec<Ending>)> = Vec::new();
    for route in routes {
        let (mount, ending) = route.about.mount();
        let place = match mounts.iter().position(|(known, _)| *known == mount) {
            Some(place) => place,
            None => {
                mounts.push((mount, Vec::new()));
                mounts.len() - 1
            }
        };
        let Some((_, endings)) = mounts.get_mut(place) else { continue };
        match endings.iter_mut().find(|(known, _)| *known == ending) {
            Some((_, routes)) => routes.push(route),
            None => endings.push((ending, vec![route])),
        }
    }
    let mut router = Router::new();
    for (mount, endings) in mounts {
        let mut choices: Vec<(&'static str, Handlers)> =
            endings.into_iter().map(|(ending, routes)| (ending, of_path(routes, app))).collect();
        // A path of its own says by itself what is wrong with its end.
        let handlers = match (choices.len(), choices.pop()) {
            (1, Some((_, only))) => only,
            (_, last) => by_ending(choices.into_iter().chain(last).collect()),
        };
        router = router.route(mount, handlers);
    }
    router
}

/// Refuses to tell of a moment.
async fn not_then(why: &'static str, request: Request, next: Next) -> Response {
    let named = |pair: &str| pair == "at" || pair.starts_with("at=");
    if request.uri().query().is_some_and(|query| query.split('&').any(named)) {
        return ApiError::BadRequest(format!("`at` cannot be asked for here: {why}")).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nobody() {}

    #[test]
    fn a_path_is_cut_behind_the_segment_that_holds_slashes() {
        for (path, mount, ending) in [
            ("/api/tenants", "/api/tenants", ""),
            ("/api/tenant/{tenant}/key/{*project}.pub", "/api/tenant/{tenant}/key/{*project}", ".pub"),
            ("/p/{*project}/enqueue", "/p/{*project}", "/enqueue"),
        ] {
            let about = get("x", path, nobody).about;
            assert_eq!(about.mount(), (mount, ending));
            assert_eq!(about.shown(), path.replace('*', ""));
        }
    }

    #[test]
    fn what_is_read_answers_to_head_too() {
        let routes = [get("x", "/x", nobody).about, delete("x", "/x", nobody).about];
        assert_eq!(methods(routes.iter()), "GET, HEAD, DELETE, OPTIONS");
    }
}
