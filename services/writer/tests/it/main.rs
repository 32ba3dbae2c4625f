//! The writer, its timers and its forwarder against a memory log.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod forwarding;
mod levels;
mod timers;
mod writer;
