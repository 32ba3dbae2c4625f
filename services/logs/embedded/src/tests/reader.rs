//! Readers beside a running writer.

use std::time::Duration;

use super::*;
use crate::ReaderOptions;
use crate::tests::writing::Disk;
use gatelog_event_log::conformance::input;
use gatelog_event_log::history;

fn reader(dir: &TempDir) -> EmbeddedLog {
    EmbeddedLog::open_reader(dir.path(), ReaderOptions { poll: Duration::from_millis(1) }).unwrap()
}

#[test]
fn a_reader_sees_only_what_is_durable_and_in_order() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(usual()));
    let beside = reader(&dir);
    put(&log, b"one");
    assert_eq!(contents(&beside, INPUTS), [b"one".to_vec()]);
    disk.close();
    let waiting = log.append_inputs(INPUTS, vec![b"two".to_vec()]);
    let change = beside.changed(INPUTS, Offset(1));
    disk.until_syncs(2);
    // The frame's bytes are in the file by now.
    assert_eq!(contents(&beside, INPUTS), [b"one".to_vec()]);
    assert_eq!(contents(&reader(&dir), INPUTS), [b"one".to_vec()], "a new reader neither");
    assert!(beside.verify().is_ok());
    disk.open();
    arrived(waiting).unwrap();
    arrived(change);
    assert_eq!(contents(&beside, INPUTS), [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_reader_follows_a_busy_writer_through_many_segments() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, tiny());
    let beside = reader(&dir);
    let writing = std::thread::spawn(move || {
        let (mut scribe, mut writer) = claim(&log);
        for round in 0..60 {
            put(&log, &input(&format!("{round}")));
            arrived(writer.append(scribe.several(1 + round % 3))).unwrap();
        }
        (log, scribe.tail)
    });
    let mut seen = Vec::new();
    let mut from = Offset(0);
    while seen.len() < 60 {
        let batch = beside.read(INPUTS, from, Default::default()).unwrap();
        if batch.records.is_empty() {
            arrived(beside.changed(INPUTS, from));
        }
        from = batch.next;
        seen.extend(batch.records.into_iter().map(|record| record.bytes));
    }
    let (log, tail) = writing.join().unwrap();
    assert_eq!(seen, (0..60).map(|round| input(&format!("{round}"))).collect::<Vec<_>>());
    assert_eq!(history::verify(&beside, GATE).tail, tail);
    assert_eq!(beside.verify(), log.verify());
    assert_eq!(beside.seek(GATE, 77), log.seek(GATE, 77));
    // It stays when the writer goes, and goes on with the next one.
    drop(log);
    let log = open(&dir, tiny());
    put(&log, b"by the next writer");
    assert_eq!(contents(&beside, INPUTS).last().unwrap(), b"by the next writer");
}

#[test]
fn without_the_hint_a_reader_is_one_commit_behind_and_nothing_else_differs() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, usual());
    for index in 0..5_u8 {
        put(&log, &[index]);
    }
    drop(log);
    let copied = copy(dir.path());
    forget_hint(copied.path());
    assert_eq!(contents(&reader(&copied), INPUTS).len(), 4);
    assert_eq!(contents(&reader(&dir), INPUTS).len(), 5);
    let log = open(&copied, usual());
    assert_eq!(contents(&log, INPUTS).len(), 5, "the writer makes it durable first");
    assert_eq!(contents(&reader(&copied), INPUTS).len(), 5);
}

#[test]
fn a_reader_writes_nothing_and_takes_no_lock() {
    let dir = TempDir::new().unwrap();
    let error = EmbeddedLog::open_reader(dir.path(), ReaderOptions::default()).err().unwrap();
    assert!(error.to_string().contains("there is no gatelog log here"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    drop(open(&dir, usual()));
    let beside = reader(&dir);
    assert_eq!(beside.claim(GATE).map(|_| ()), Err(LogError::ReadOnly));
    assert_eq!(arrived(beside.append_inputs(INPUTS, vec![vec![1]])), Err(LogError::ReadOnly));
    put(&open(&dir, usual()), b"a writer beside it");
    let waiting = beside.changed(Stream::Intake(0), Offset(0));
    drop(beside);
    assert_eq!(waiting.wait(), None);
}

#[test]
fn a_reader_names_damage_in_what_was_acknowledged() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, usual());
    let beside = reader(&dir);
    put(&log, &[1; 100]);
    assert_eq!(beside.end(INPUTS), Ok(Offset(1)));
    let start = log.shared().home.read_hint();
    put(&log, &[2; 100]);
    flip(&segment(dir.path(), 1), start + 70);
    let waiting = beside.changed(INPUTS, Offset(1));
    arrived(waiting);
    let error = beside.read(INPUTS, Offset(1), Default::default()).unwrap_err();
    assert_eq!(place_of(&error), (1, start));
    assert_eq!(place_of(&beside.verify().unwrap_err()), (1, start));
}
