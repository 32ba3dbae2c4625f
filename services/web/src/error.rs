//! What the API says when it has no answer.

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::answers::Failure;
use crate::auth::Refused;

/// After how many seconds those who found no place for a stream are to come again.
const COME_AGAIN: &str = "5";

/// Why a request has no answer. Rendered as JSON: `error`, a code, and `description`, a sentence.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// What is named is not there.
    #[error("{0}")]
    NotFound(String),
    /// What is named was there, and was removed.
    #[error("{0}")]
    Removed(String),
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
    /// As many streams and waits are open as may be.
    #[error(
        "{0} streams and waits are open, as many as this process holds (`streams` under [web] in its gatelog.toml): \
         come again later, or ask for the document itself"
    )]
    Full(usize),
    /// What is there cannot be reached, such as a console whose worker is away.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("the answer took too long: ask for less, or again")]
    Timeout,
    /// The method is not one of this path's.
    #[error("this path answers {0} only")]
    Method(String),
    /// Who asks is not known.
    #[error("{refused}")]
    Unauthorized {
        /// Where they can log in.
        realm: String,
        /// What is wrong with their token.
        refused: Refused,
    },
    /// Who asks may not.
    #[error("{what}")]
    Forbidden {
        /// Where they can log in as somebody else.
        realm: String,
        /// What they may not, a sentence.
        what: String,
    },
    /// What was asked for was not done.
    #[error("{message}")]
    Declined {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
    /// What it takes is away.
    #[error("{0}")]
    Unavailable(String),
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    /// Something inside is wrong: a damaged table, a missing blob.
    #[error("{0}")]
    Internal(String),
}

impl ApiError {
    /// The status and the code.
    fn kind(&self) -> (StatusCode, &str) {
        match self {
            ApiError::NotFound(_) => (StatusCode::NOT_FOUND, "not-found"),
            ApiError::Removed(_) => (StatusCode::GONE, "removed"),
            ApiError::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            ApiError::Beyond { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, "position-beyond-the-end"),
            ApiError::NotYet { .. } => (StatusCode::GATEWAY_TIMEOUT, "position-not-reached"),
            ApiError::TooWide(_) => (StatusCode::UNPROCESSABLE_ENTITY, "too-wide"),
            ApiError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            ApiError::Full(_) => (StatusCode::SERVICE_UNAVAILABLE, "too-many-streams"),
            ApiError::Unreachable(_) => (StatusCode::BAD_GATEWAY, "unreachable"),
            ApiError::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
            ApiError::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed"),
            ApiError::Unauthorized { refused, .. } => (StatusCode::UNAUTHORIZED, refused.code()),
            ApiError::Forbidden { .. } => (StatusCode::FORBIDDEN, "not-permitted"),
            ApiError::Declined { code, .. } => (StatusCode::UNPROCESSABLE_ENTITY, code),
            ApiError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            ApiError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
            ApiError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal-error"),
        }
    }

    /// The status of its answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// What stands in the headers of its answer, besides the body.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        let mut put = |name, text: String| {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        };
        // What stands between quotation marks holds none itself.
        let quoted = |text: &str| text.replace(|c: char| c.is_control() || !c.is_ascii() || c == '"' || c == '\\', "'");
        match self {
            ApiError::NotYet { position, .. } | ApiError::Beyond { newest: position, .. } => {
                put(crate::reading::POSITION, position.clone());
            }
            ApiError::Full(_) => put(RETRY_AFTER, COME_AGAIN.to_owned()),
            ApiError::Method(allowed) => put(ALLOW, allowed.clone()),
            ApiError::Unauthorized { realm, refused: Refused::NoToken } => {
                put(WWW_AUTHENTICATE, format!("Bearer realm=\"{}\"", quoted(realm)));
            }
            ApiError::Unauthorized { realm, refused } => {
                let (realm, text) = (quoted(realm), quoted(&refused.to_string()));
                let error = "invalid_token";
                put(
                    WWW_AUTHENTICATE,
                    format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{text}\""),
                );
            }
            ApiError::Forbidden { realm, what } => {
                let (realm, text) = (quoted(realm), quoted(what));
                let error = "insufficient_scope";
                put(
                    WWW_AUTHENTICATE,
                    format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{text}\""),
                );
            }
            _ => {}
        }
    }

    /// A path where there is nothing.
    pub(crate) fn nothing() -> ApiError {
        ApiError::NotFound("there is nothing at this path; /api lists what there is".into())
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

impl From<crate::past::PastError> for ApiError {
    fn from(error: crate::past::PastError) -> Self {
        ApiError::Internal(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.kind();
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!("{self}");
        }
        let realm = match &self {
            ApiError::Unauthorized { realm, .. } | ApiError::Forbidden { realm, .. } => Some(realm.clone()),
            _ => None,
        };
        let told = Failure { error: code.to_owned(), description: self.to_string(), realm };
        let mut response = (status, Json(told)).into_response();
        self.mark(response.headers_mut());
        response
    }
}
