//! Asking, and reading what came of it, as JSON.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{MAX_QUESTION, Question, permitted};
use crate::answers::{Case, CaseAsked};
use crate::error::ApiError;
use crate::query::Query;
use crate::reading::App;
use crate::routes::{Segments, segments};

type Shared = State<Arc<App>>;

fn fresh(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `what-if`: those there are, without their answers.
pub(crate) async fn list(State(app): Shared, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    let brief = |told: Case| Case { answer: None, ..told };
    let all: Vec<Case> = app.what_ifs.all().iter().map(|case| brief(case.told())).collect();
    Ok(fresh(Json(all)))
}

/// `what-if`, to ask: 202 with where the answer will be.
pub(crate) async fn ask(
    State(app): Shared,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    sent: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    Query::read_only(query.as_deref(), &[])?;
    let by = permitted(&app, &headers).await?;
    let bytes = sent.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge(MAX_QUESTION),
        _ => ApiError::BadRequest(error.body_text()),
    })?;
    let question: Question = serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::BadRequest(format!("the body is no question: {error}")))?;
    let newest = app.blocking(|app| Ok(app.site.gate.position().sequence)).await?;
    if let Some(at) = question.at.filter(|at| *at > newest) {
        return Err(ApiError::Beyond { wanted: format!("event {at}"), newest: app.position(newest) });
    }
    let case = app.what_ifs.ask(&app, question.checked()?, by)?;
    let mut response =
        fresh((StatusCode::ACCEPTED, Json(CaseAsked { id: case.id.clone(), page: format!("/what-if/{}", case.id) })));
    if let Ok(place) = HeaderValue::from_str(&format!("/api/what-if/{}", case.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// `what-if/{id}`
pub(crate) async fn one(
    State(app): Shared,
    path: Segments<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = segments(path)?;
    Query::read_only(query.as_deref(), &[])?;
    Ok(fresh(Json(app.what_ifs.find(&id)?.told())))
}

/// `what-if/{id}`, to be ended.
pub(crate) async fn cancel(
    State(app): Shared,
    path: Segments<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = segments(path)?;
    Query::read_only(query.as_deref(), &[])?;
    permitted(&app, &headers).await?;
    app.what_ifs.find(&id)?.cancel();
    Ok(StatusCode::NO_CONTENT.into_response())
}
