//! The page's own files: in the binary, named by their content so that they are kept for ever.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gatelog_record::BlobHash;

const CSS: &str = include_str!("../../../../web/gatelog.css");
const SCRIPT: &str = include_str!("../../../../web/gatelog.js");
const CONSOLE: &str = include_str!("../../../../web/console.js");
const ICON: &str = include_str!("../../../../web/icon.svg");

/// The files' version: it changes with any of them.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all = [CSS, SCRIPT, CONSOLE, ICON].concat();
    BlobHash::of(all.as_bytes()).to_string().chars().take(12).collect()
});

/// `/assets/{version}/{name}`
pub(crate) fn answer(version: &str, name: &str) -> Response {
    let (kind, text) = match name {
        "gatelog.css" => ("text/css; charset=utf-8", CSS),
        "gatelog.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "console.js" => ("text/javascript; charset=utf-8", CONSOLE),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    };
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // Another version's page asking for this version's file must not keep it.
    let keep = if version == *VERSION { "public, max-age=31536000, immutable" } else { "no-store" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    response
}
