//! Capacity's rules: stories in the user's words, and properties of every course of events.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod properties;
mod stories;
