//! What the API says when it has no answer.

use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request has no answer. Rendered as JSON: `error`, a code, and `description`, a sentence.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// What is named is not there.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// The position asked for has not come yet.
    #[error("{wanted} has not come yet: the newest event is {newest}")]
    Beyond {
        /// What was asked for.
        wanted: String,
        /// The newest position.
        newest: String,
    },
    /// The position waited for was not reached in time.
    #[error("event {wanted} is not folded yet, the fold is at event {at}: ask again")]
    NotYet {
        /// What was waited for.
        wanted: u64,
        /// Where the fold is.
        at: u64,
        /// The fold's position as it stands in headers.
        position: String,
    },
    /// Answering would need too many rows to be looked at.
    #[error(
        "more than {0} rows would have to be looked at: name a change, project or job, or go on from a row with idx_max"
    )]
    TooWide(usize),
    /// Too much is going on.
    #[error("too many requests are being answered: ask again")]
    Busy,
    /// What is there cannot be reached, such as a console whose worker is away.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("the answer took too long: ask for less, or again")]
    Timeout,
    /// The method is not one of this path's.
    #[error("this path answers GET, HEAD and OPTIONS only")]
    Method,
    /// Something inside is wrong: a damaged table, a missing blob.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// The status and the code.
    fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            ApiError::NotFound(_) => (StatusCode::NOT_FOUND, "not-found"),
            ApiError::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            ApiError::Beyond { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, "position-beyond-the-end"),
            ApiError::NotYet { .. } => (StatusCode::GATEWAY_TIMEOUT, "position-not-reached"),
            ApiError::TooWide(_) => (StatusCode::UNPROCESSABLE_ENTITY, "too-wide"),
            ApiError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            ApiError::Unreachable(_) => (StatusCode::BAD_GATEWAY, "unreachable"),
            ApiError::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
            ApiError::Method => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed"),
            ApiError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal-error"),
        }
    }

    /// The status of its answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// A tenant that is not there.
    pub(crate) fn tenant(tenant: &str) -> ApiError {
        ApiError::NotFound(format!("there is no tenant {tenant:?}"))
    }
}

impl From<gatelog_tables::TableError> for ApiError {
    fn from(error: gatelog_tables::TableError) -> Self {
        ApiError::Internal(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.kind();
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!("{self}");
        }
        let mut response = (status, Json(json!({ "error": code, "description": self.to_string() }))).into_response();
        if let ApiError::NotYet { position, .. } | ApiError::Beyond { newest: position, .. } = &self
            && let Ok(value) = HeaderValue::from_str(position)
        {
            response.headers_mut().insert(crate::reading::POSITION, value);
        }
        response
    }
}
