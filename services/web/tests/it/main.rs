//! The API and the page over HTTP, and the page in a browser, against a gate that says what the tests have it say.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod api;
mod browser;
mod console_stream;
mod hostile;
mod page;
mod site;
mod story;
mod trace;
