//! The public halves of the projects' keys: what people encrypt secrets with.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use gatelog_record::draft::gate::TenantProject;

use crate::error::ApiError;
use crate::query::Query;
use crate::reading::{App, Needs, Reading, mark, moment, read};
use crate::shape::short;

/// How many keys are asked for at once; one that is made takes a processor for seconds.
pub(crate) const AT_ONCE: usize = 2;
/// How long an answer may take. A key that is being made then is there when it is asked for again.
const PATIENCE: Duration = Duration::from_secs(60);

/// `key/{project}.pub`
pub(crate) async fn answer(app: Arc<App>, tenant: String, file: String, query: Query) -> Result<Response, ApiError> {
    let Some(name) = file.strip_suffix(".pub").map(str::to_owned) else {
        return Err(ApiError::NotFound(format!("there is no {file:?} here: a public key is asked for as PROJECT.pub")));
    };
    let asked = moment(&app, &query).await?;
    let found = move |app: &App| {
        read(app, asked, Needs::History, |reading| Ok((project_of(reading, &tenant, &name)?, reading.at)))
    };
    let (project, at) = app.blocking(found).await?;
    let keys = Arc::clone(&app.site.keys);
    let place = Arc::clone(&app.keys);
    let made = async {
        let place = place.acquire_owned().await.map_err(|_| ApiError::Busy)?;
        let work = move || {
            // Held until the work is done, also where nobody waits for it any more.
            let _place = place;
            keys.public(&project.connection, short(&project.project)).map_err(ApiError::Internal)
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| ApiError::Internal(format!("a key could not be had: {error}")))?
    };
    let pem = tokio::time::timeout(PATIENCE, made).await.map_err(|_| ApiError::Timeout)??;
    let mut response = Response::new(Body::from(pem));
    let headers = response.headers_mut();
    mark(&app, headers, at);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// A tenant's project, by its short or canonical name.
pub(crate) fn project_of(reading: &Reading<'_>, tenant: &str, name: &str) -> Result<TenantProject, ApiError> {
    reading.need_tenant(tenant)?;
    let entry = reading.history().tenant(tenant, reading.at)?;
    let projects = entry.map(|entry| entry.loaded.projects).unwrap_or_default();
    if let Some(project) = projects.iter().find(|project| project.project == name) {
        return Ok(project.clone());
    }
    let mut named = projects.iter().filter(|project| short(&project.project) == name);
    match (named.next(), named.next()) {
        (Some(project), None) => Ok(project.clone()),
        (None, _) => Err(ApiError::NotFound(format!("there is no project {name:?} in tenant {tenant:?}"))),
        (Some(one), Some(other)) => Err(ApiError::NotFound(format!(
            "several projects of tenant {tenant:?} are called {name:?}: ask for {} or {}",
            one.project, other.project
        ))),
    }
}
