//! The corpus of the fuzz targets `segment` and `slice`, and inputs made of it; docs/fuzzing.md.

use super::*;
use crate::fuzzing;

#[path = "../../../../../tests/fuzz/corpus.rs"]
mod corpus;
#[path = "../../../../../tests/fuzz/folder.rs"]
mod folder;

/// The fuzzer bounds memory; here it is as it is.
fn unbounded(_most: usize, read: &mut dyn FnMut()) {
    read();
}

#[test]
fn whatever_is_read_as_a_segment_is_what_was_written_or_refused_at_its_byte() {
    if corpus::seeds_wanted() {
        segment_seeds();
    }
    let dir = folder::in_memory();
    let file = dir.path().join("segment");
    corpus::play("segment", 20_000, |data| fuzzing::segment(data, &file, &unbounded));
}

#[test]
fn whatever_is_read_as_a_slice_is_what_was_written_or_refused_at_its_byte() {
    let dir = folder::in_memory();
    let file = dir.path().join("slice");
    corpus::play("slice", 20_000, |data| fuzzing::slice(data, &file, &unbounded));
}

fn segment_seeds() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir, tiny());
    let (mut scribe, writer) = claim(&log);
    let mut writer = writer;
    for index in 0..8 {
        put(&log, format!("input {index}").as_bytes());
        arrived(writer.append(vec![scribe.next("one")])).unwrap();
        arrived(writer.append(scribe.several(2))).unwrap();
    }
    drop((writer, log));
    let mut names: Vec<PathBuf> =
        fs::read_dir(dir.path().join("segments")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for (index, name) in names.iter().enumerate().take(4) {
        let bytes = fs::read(name).unwrap();
        corpus::seed("segment", &format!("sealed-{index}"), &[&[8], &bytes]);
        corpus::seed("segment", &format!("sealed-{index}-last"), &[&[0], &bytes]);
        corpus::seed("segment", &format!("sealed-{index}-mended"), &[&[15], &bytes]);
        corpus::seed("segment", &format!("sealed-{index}-cut"), &[&[7], &bytes[..bytes.len() - 60]]);
    }
}
