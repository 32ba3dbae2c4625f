//! The paths there are, and of each that is read: whether it is answered as of any moment, or why it cannot be.
//!
//! Every path of the site is added here, so that none is without an answer to `at`.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use std::sync::Arc;

use crate::error::ApiError;
use crate::reading::App;

type Handlers = MethodRouter<Arc<App>>;

/// A path that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPath {
    /// The path, with the names of its segments in braces.
    pub path: &'static str,
    /// Why it is not answered as of a moment, a sentence; `None` where `at` asks for one.
    pub only_now: Option<&'static str>,
}

/// Paths with what answers at them.
#[derive(Default)]
pub(crate) struct Paths {
    router: Router<Arc<App>>,
    read: Vec<ReadPath>,
}

impl Paths {
    /// A path that is answered as of any moment.
    pub(crate) fn read(self, path: &'static str, handlers: Handlers) -> Paths {
        self.with(Some(ReadPath { path, only_now: None }), path, handlers)
    }

    /// A path that is answered as of now alone, and why.
    pub(crate) fn read_now(self, path: &'static str, why: &'static str, handlers: Handlers) -> Paths {
        let refuse = move |request: Request, next: Next| async move { not_then(why, request, next).await };
        self.with(Some(ReadPath { path, only_now: Some(why) }), path, handlers.layer(from_fn(refuse)))
    }

    /// A path that something is sent to, and that is not read.
    pub(crate) fn sent(self, path: &'static str, handlers: Handlers) -> Paths {
        self.with(None, path, handlers)
    }

    fn with(mut self, read: Option<ReadPath>, path: &'static str, handlers: Handlers) -> Paths {
        self.read.extend(read);
        self.router = self.router.route(path, handlers);
        self
    }

    /// These and those.
    pub(crate) fn merge(mut self, others: Paths) -> Paths {
        self.read.extend(others.read);
        self.router = self.router.merge(others.router);
        self
    }

    /// The same, with a look at every request before.
    pub(crate) fn guarded(mut self, guard: impl FnOnce(Router<Arc<App>>) -> Router<Arc<App>>) -> Paths {
        self.router = guard(self.router);
        self
    }

    /// What is read.
    pub(crate) fn listed(self) -> Vec<ReadPath> {
        self.read
    }

    /// What answers.
    pub(crate) fn into_router(self) -> Router<Arc<App>> {
        self.router
    }
}

/// Refuses to tell of a moment.
async fn not_then(why: &'static str, request: Request, next: Next) -> Response {
    let named = |pair: &str| pair == "at" || pair.starts_with("at=");
    if request.uri().query().is_some_and(|query| query.split('&').any(named)) {
        return ApiError::BadRequest(format!("`at` cannot be asked for here: {why}")).into_response();
    }
    next.run(request).await
}
