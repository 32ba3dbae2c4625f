//! The gate's fold: events of every version, and events that do not fit the state.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod older;
mod refusals;
