//! Exports as auditors get them, and as those would like them who have something to hide.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

mod desk;
mod fuzzed;
mod insiders;
mod mutations;
mod selections;
