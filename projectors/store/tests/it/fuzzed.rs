//! The corpus of the fuzz target `rung`, and inputs made of it; docs/fuzzing.md.

#[path = "../../../../tests/fuzz/bodies/rung.rs"]
mod bodies;
#[path = "../../../../tests/fuzz/corpus.rs"]
mod corpus;
#[path = "../../../../tests/fuzz/folder.rs"]
mod folder;

/// The fuzzer bounds memory; here it is as it is.
fn within<T>(_most: usize, read: impl FnOnce() -> T) -> T {
    read()
}

#[test]
fn whatever_is_read_as_a_rung_is_what_was_written_or_refused_by_its_file() {
    let dir = folder::in_memory();
    let file = dir.path().join("1.rung");
    corpus::play("rung", 10_000, |data| bodies::rung(data, &file));
}
