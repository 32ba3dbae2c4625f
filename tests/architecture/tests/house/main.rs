//! Tests of the house itself.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

mod circles;
mod dependencies;
mod errors;
mod features;
mod manifests;
mod names;
mod purity;
mod samples;
mod tidy;
