//! What stands on the log, and what becomes of the fold.

use std::sync::Arc;

use gatelog_event_log::memory::MemoryOptions;
use gatelog_event_log::{LogError, MemoryLog, Offset};
use gatelog_record::{ChainLink, EventRecord};
use gatelog_runner::{Folder, Health, RunnerError, rebuild};
use gatelog_store::{Layout, Position, RungDir, SchemaVersion, StoreError, StoreWarning};

use crate::lending::{Lending, PARTITION, Story};
use crate::{EVENTS, append, config, log_of};

fn digest(folder: &Folder<Lending>) -> [u8; 32] {
    folder.projection().view().projection().digest().unwrap()
}

#[test]
fn a_rebuilt_projection_is_the_same_with_all_its_tables() {
    let story = Story::long(95);
    let (_, log) = log_of(&story, 95);
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).unwrap();
    let position = folder.catch_up().unwrap();
    assert_eq!((position.sequence, digest(&folder)), (95, story.digests[95]));
    let rungs = RungDir::new(Layout::new(dir.path(), PARTITION).rungs());
    let made: Vec<u64> = rungs.list().unwrap().iter().map(|rung| rung.sequence).collect();
    assert_eq!(made, [10, 20, 30, 40, 50, 60, 70, 80, 90]);
    let first: Vec<Vec<u8>> = rungs.list().unwrap().iter().map(|rung| std::fs::read(&rung.path).unwrap()).collect();
    drop(folder);

    let rebuilt = rebuild::<Lending>(Arc::clone(&log), PARTITION, config(dir.path())).unwrap();
    assert_eq!((rebuilt.projection().position(), digest(&rebuilt)), (position, story.digests[95]));
    let again: Vec<Vec<u8>> = rungs.list().unwrap().iter().map(|rung| std::fs::read(&rung.path).unwrap()).collect();
    assert_eq!(first, again);
    drop(rebuilt);

    // All of it deleted, and no rungs this time.
    std::fs::remove_dir_all(dir.path()).unwrap();
    let mut plain = config(dir.path());
    plain.rung_every = 0;
    let mut folder = Folder::<Lending>::open(log, PARTITION, plain).unwrap();
    folder.catch_up().unwrap();
    assert_eq!(digest(&folder), story.digests[95]);
    assert_eq!(rungs.list().unwrap(), []);
}

#[test]
fn it_goes_on_where_it_stood_with_every_batch_size() {
    let story = Story::long(60);
    let (memory, log) = log_of(&story, 20);
    let dir = tempfile::tempdir().unwrap();
    for (records, count) in [(1, 20), (3, 33), (1_000, 34), (7, 60)] {
        append(&memory, &story, memory.records(EVENTS).len(), count);
        let mut config = config(dir.path());
        config.batch.records = records;
        let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config).unwrap();
        assert_eq!(folder.catch_up().unwrap().sequence, count as u64);
        assert_eq!(digest(&folder), story.digests[count]);
        assert_eq!(folder.published().health(), Health::Following);
    }
}

/// What an old writer wrote after it was cut off: its own idea of the next event.
fn stale(story: &Story, sequence: usize) -> Vec<u8> {
    let like = &story.events[sequence - 1].record;
    let record = EventRecord { term: like.term - 1, ..like.clone() };
    record.close().unwrap().encode(&ChainLink([9; 32])).0
}

#[test]
fn records_of_a_stale_writer_are_passed_over_and_counted_once() {
    let mut story = Story::of("buy dune 3\nlend dune 1");
    story.restart();
    story.tell("lend", "dune", 2);
    story.tell("return", "dune", 1);
    let (memory, log) = log_of(&story, 4);
    memory.insert(EVENTS, stale(&story, 5));
    append(&memory, &story, 4, 5);
    memory.insert(EVENTS, stale(&story, 6));
    memory.insert(EVENTS, stale(&story, 6));
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).unwrap();
    let position = folder.catch_up().unwrap();
    assert_eq!((position.sequence, position.stale, digest(&folder)), (5, 3, story.digests[5]));
    drop(folder);
    append(&memory, &story, 5, 6);
    let mut folder = Folder::<Lending>::open(log, PARTITION, config(dir.path())).unwrap();
    let position = folder.catch_up().unwrap();
    assert_eq!((position.sequence, position.stale, digest(&folder)), (6, 3, story.digests[6]));
}

#[test]
fn an_event_that_does_not_fit_stops_the_fold_before_it_by_name() {
    let mut story = Story::long(30);
    story.tell_wrong("burn", "dune", 1);
    let (_, log) = log_of(&story, 31);
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(log, PARTITION, config(dir.path())).unwrap();
    let error = folder.catch_up().unwrap_err();
    assert!(
        matches!(&error, RunnerError::Store(StoreError::FoldRefused { sequence: 31, kind: "sample", .. })),
        "{error}"
    );
    assert_eq!((folder.published().position().sequence, digest(&folder)), (30, story.digests[30]));
    assert_eq!(folder.step().unwrap_err(), error, "it does not go on by itself");
}

#[test]
fn a_gap_a_repeat_and_a_broken_link_stop_the_fold_at_their_place() {
    let story = Story::long(20);
    let cases: [(&str, Vec<usize>); 2] = [
        ("sequence 12 was expected, 13 was found", (1..=11).chain(13..=20).collect()),
        ("sequence 12 was expected, 11 was found", (1..=11).chain(11..=20).collect()),
    ];
    for (expected, order) in cases {
        let memory = MemoryLog::default();
        order.iter().for_each(|sequence| {
            memory.insert(EVENTS, story.bytes[sequence - 1].clone());
        });
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::<Lending>::open(Arc::new(memory), PARTITION, config(dir.path())).unwrap();
        let error = folder.catch_up().unwrap_err();
        assert!(matches!(&error, RunnerError::History(_)) && error.to_string().contains(expected), "{error}");
        assert_eq!((folder.projection().position().sequence, digest(&folder)), (11, story.digests[11]));
    }
    let (memory, log) = log_of(&story, 20);
    let place = memory.records(EVENTS)[14].offset;
    assert!(memory.tamper(EVENTS, place, story.bytes[14].len() - 1));
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(log, PARTITION, config(dir.path())).unwrap();
    let error = folder.catch_up().unwrap_err().to_string();
    assert!(error.contains("the chain is broken at sequence 15"), "{error}");
    assert_eq!(folder.projection().position().sequence, 14);
}

#[test]
fn a_log_that_is_shorter_than_what_was_folded_is_named() {
    let story = Story::long(40);
    let (memory, log) = log_of(&story, 40);
    let dir = tempfile::tempdir().unwrap();
    Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).unwrap().catch_up().unwrap();
    memory.truncate(EVENTS, 33);
    let error = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).err().unwrap();
    assert!(matches!(&error, RunnerError::Log(LogError::Behind { .. })), "{error}");
    assert!(error.to_string().contains("has folded event 40; an older log was put in place"), "{error}");
    // Without the projection the rungs still know.
    std::fs::remove_dir_all(Layout::new(dir.path(), PARTITION).schema(SchemaVersion { live: 1, read: 1 })).unwrap();
    let error = Folder::<Lending>::open(log, PARTITION, config(dir.path())).err().unwrap();
    assert!(error.to_string().contains("rung"), "{error}");
}

#[test]
fn another_history_and_another_site_are_named_and_an_adopted_log_is_folded_anew() {
    let story = Story::long(40);
    let (_, log) = log_of(&story, 40);
    let dir = tempfile::tempdir().unwrap();
    Folder::<Lending>::open(log, PARTITION, config(dir.path())).unwrap().catch_up().unwrap();

    let mut other = Story::of("buy emma 1\nlend emma 4\nreturn emma 4");
    while other.events.len() < 45 {
        other.restart();
    }
    let (_, forked) = log_of(&other, 45);
    let error = Folder::<Lending>::open(Arc::clone(&forked), PARTITION, config(dir.path())).err().unwrap();
    assert!(matches!(&error, RunnerError::Diverged { sequence: 40, .. }), "{error}");

    let elsewhere = MemoryLog::new(MemoryOptions { site: gatelog_record::SiteId([1; 16]), ..MemoryOptions::default() });
    let error = Folder::<Lending>::open(Arc::new(elsewhere), PARTITION, config(dir.path())).err().unwrap();
    assert!(matches!(&error, RunnerError::OtherSite { .. }), "{error}");

    let adopted = MemoryLog::new(MemoryOptions { generation: 2, ..MemoryOptions::default() });
    append(&adopted, &other, 0, 45);
    let mut folder = Folder::<Lending>::open(Arc::new(adopted), PARTITION, config(dir.path())).unwrap();
    assert!(folder.warnings()[0].to_string().contains("its log was replaced by an adopted one"));
    folder.catch_up().unwrap();
    assert_eq!(digest(&folder), other.digests[45]);
}

#[test]
fn a_damaged_projection_is_put_right_by_itself_and_that_is_told() {
    let story = Story::long(60);
    let (_, log) = log_of(&story, 60);
    let dir = tempfile::tempdir().unwrap();
    Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).unwrap().catch_up().unwrap();
    let database = Layout::new(dir.path(), PARTITION).database(SchemaVersion { live: 1, read: 1 });

    std::fs::remove_file(database.join("CURRENT")).unwrap();
    let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).unwrap();
    let warnings = folder.warnings();
    assert!(
        matches!(&warnings[..], [StoreWarning::RestoredFromCheckpoint { sequence, .. }] if (25..=60).contains(sequence)),
        "{warnings:?}"
    );
    folder.catch_up().unwrap();
    assert_eq!(digest(&folder), story.digests[60]);
    drop(folder);

    std::fs::remove_file(database.join("CURRENT")).unwrap();
    std::fs::remove_dir_all(database.with_file_name("checkpoints")).unwrap();
    let mut folder = Folder::<Lending>::open(log, PARTITION, config(dir.path())).unwrap();
    assert!(matches!(&folder.warnings()[..], [StoreWarning::Rebuilt { .. }]));
    folder.catch_up().unwrap();
    assert_eq!(digest(&folder), story.digests[60]);
}

#[test]
fn an_offset_remembered_from_another_broker_is_only_a_hint() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let sparse = MemoryLog::new(MemoryOptions { offset_gap: 3, ..MemoryOptions::default() });
    append(&sparse, &story, 0, 15);
    let position: Position =
        Folder::<Lending>::open(Arc::new(sparse), PARTITION, config(dir.path())).unwrap().catch_up().unwrap();
    // The mirror has the same events at other offsets: the hint points far behind, then far ahead.
    let (_, mirror) = log_of(&story, 40);
    assert_ne!(mirror.seek(PARTITION, 16).unwrap(), Offset(position.log_offset));
    let mut folder = Folder::<Lending>::open(mirror, PARTITION, config(dir.path())).unwrap();
    folder.catch_up().unwrap();
    assert_eq!(digest(&folder), story.digests[40]);
}

#[test]
fn a_new_state_schema_changes_over_once_it_has_caught_up() {
    let story = Story::long(40);
    let (_, log) = log_of(&story, 40);
    let dir = tempfile::tempdir().unwrap();
    Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(dir.path())).unwrap().catch_up().unwrap();
    let layout = Layout::new(dir.path(), PARTITION);
    let mut folder = Folder::<Lending<1, 2>>::open(log, PARTITION, config(dir.path())).unwrap();
    folder.step().unwrap();
    assert_eq!(layout.schemas().unwrap().len(), 2);
    folder.catch_up().unwrap();
    assert_eq!(layout.schemas().unwrap(), [SchemaVersion { live: 1, read: 2 }]);
    assert_eq!(folder.projection().view().projection().digest().unwrap(), story.digests[40]);
}
