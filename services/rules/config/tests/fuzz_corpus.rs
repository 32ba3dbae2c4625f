//! What fuzzing found worth keeping, once more: no panic, and an answer in time.
//!
//! How the corpus came to be stands in `fuzz/README.md`.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "reads the corpus from the tree")]

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 20, "the corpus of {target} has only {} entries", paths.len());
    for path in paths {
        run(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn the_corpus_of_the_loader_loads() {
    replay("load", bodies::load_any);
}

#[test]
fn the_corpus_of_regular_expressions_compiles_or_is_refused() {
    replay("regex", bodies::regex_any);
}
