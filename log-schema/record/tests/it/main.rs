//! Every kind of record against golden bytes, released shapes against their hashes, damage of every sort.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]
#![expect(clippy::disallowed_methods, reason = "goldens and sources are files, and one variable asks for new goldens")]

mod damage;
mod frozen;
mod fuzzed;
mod goldens;
mod records;
mod sampler;
mod shapes;

use std::path::{Path, PathBuf};

/// A file of this crate.
fn crate_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
