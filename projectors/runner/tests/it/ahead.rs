//! A log that is far ahead: read, folded and stored on three threads, to the same end.

use std::sync::Arc;

use gatelog_event_log::ReadLimit;
use gatelog_record::{ChainLink, EventRecord};
use gatelog_runner::{Ahead, Folder, Health, RunnerConfig, RunnerError, Stepped, rebuild};
use gatelog_store::{Layout, RungDir, SchemaVersion, StoreError};

use crate::lending::{Lending, PARTITION, Story};
use crate::{EVENTS, append, config, log_of};

/// Far ahead from the second batch on, and stored every so many events.
fn far(root: &std::path::Path, store: usize) -> RunnerConfig {
    let store = ReadLimit { records: store, bytes: 1 << 20 };
    RunnerConfig { ahead: Ahead { after_batches: 1, store, rungs: 1 }, ..config(root) }
}

fn digest(folder: &Folder<Lending>) -> [u8; 32] {
    folder.projection().view().projection().digest().unwrap()
}

fn rungs(root: &std::path::Path) -> Vec<(u64, Vec<u8>)> {
    let dir = RungDir::new(Layout::new(root, PARTITION).rungs());
    dir.list().unwrap().iter().map(|rung| (rung.sequence, std::fs::read(&rung.path).unwrap())).collect()
}

#[test]
fn a_rebuild_far_ahead_gives_what_following_the_log_gave() {
    let story = Story::long(195);
    let (memory, log) = log_of(&story, 0);
    let live = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(live.path())).unwrap();
    for event in 0..195 {
        append(&memory, &story, event, event + 1);
        folder.catch_up().unwrap();
    }
    assert_eq!(digest(&folder), story.digests[195]);
    for store in [1, 13, 50, 10_000] {
        let dir = tempfile::tempdir().unwrap();
        let rebuilt = rebuild::<Lending>(Arc::clone(&log), PARTITION, far(dir.path(), store)).unwrap();
        assert_eq!(rebuilt.projection().position(), folder.projection().position());
        assert_eq!(digest(&rebuilt), digest(&folder));
        assert_eq!(rebuilt.published().position(), folder.published().position());
        assert_eq!(rebuilt.published().health(), Health::Following);
        assert!(rebuilt.warnings().is_empty(), "{:?}", rebuilt.warnings());
        assert_eq!(rungs(dir.path()), rungs(live.path()));
        drop(rebuilt);
        // It is stored, all of it.
        let again = Folder::<Lending>::open(Arc::clone(&log), PARTITION, far(dir.path(), store)).unwrap();
        assert_eq!((again.projection().position().sequence, digest(&again)), (195, story.digests[195]));
    }
}

#[test]
fn while_the_log_is_far_ahead_only_some_rungs_are_written_and_those_that_are_there_stay() {
    let story = Story::long(195);
    let (_, log) = log_of(&story, 195);
    let dir = tempfile::tempdir().unwrap();
    let mut fewer = far(dir.path(), 50);
    fewer.ahead.rungs = 5;
    drop(rebuild::<Lending>(Arc::clone(&log), PARTITION, fewer).unwrap());
    let made: Vec<u64> = rungs(dir.path()).iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(made, [50, 100, 150]);
    let file = RungDir::new(Layout::new(dir.path(), PARTITION).rungs()).list().unwrap().remove(0).path;
    let first = std::fs::read(&file).unwrap();
    // A damaged one is made again.
    std::fs::write(&file, b"damaged").unwrap();
    drop(rebuild::<Lending>(log, PARTITION, far(dir.path(), 50)).unwrap());
    assert_eq!(std::fs::read(&file).unwrap(), first);
    assert_eq!(rungs(dir.path()).len(), 19);
}

#[test]
fn stopped_anywhere_it_goes_on_to_the_same_end() {
    let story = Story::long(150);
    let (_, log) = log_of(&story, 150);
    for steps in [2, 3, 5, 9, 14, 17] {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, far(dir.path(), 20)).unwrap();
        for _ in 0..steps {
            assert!(matches!(folder.step().unwrap(), Stepped::Read(_)));
        }
        let (seen, published) = (folder.projection().position().sequence, folder.published().position().sequence);
        assert_eq!(digest(&folder), story.digests[seen as usize]);
        assert!(published <= seen, "{published} was told, {seen} can be read");
        drop(folder);
        let mut again = Folder::<Lending>::open(Arc::clone(&log), PARTITION, far(dir.path(), 20)).unwrap();
        let stored = again.projection().position().sequence;
        assert!(stored >= published, "{published} was told, {stored} is stored");
        assert_eq!(digest(&again), story.digests[stored as usize]);
        assert_eq!(again.catch_up().unwrap().sequence, 150);
        assert_eq!(digest(&again), story.digests[150]);
    }
}

#[test]
fn an_event_that_does_not_fit_stops_it_at_the_same_place_by_name() {
    for place in [40, 41, 60, 95] {
        let mut story = Story::long(place);
        story.tell_wrong("burn", "dune", 1);
        while story.events.len() < place + 30 {
            story.tell_wrong("burn", "dune", 1);
        }
        let (_, log) = log_of(&story, place + 30);
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::<Lending>::open(log, PARTITION, far(dir.path(), 20)).unwrap();
        let error = folder.catch_up().unwrap_err();
        let refused = place as u64 + 1;
        assert!(
            matches!(&error, RunnerError::Store(StoreError::FoldRefused { sequence, .. }) if *sequence == refused),
            "{error}"
        );
        assert_eq!((folder.published().position().sequence, digest(&folder)), (place as u64, story.digests[place]));
        assert_eq!(folder.step().unwrap_err(), error);
    }
}

#[test]
fn a_broken_chain_stops_it_and_a_stale_writers_records_are_counted() {
    let story = Story::long(90);
    let (memory, log) = log_of(&story, 90);
    let place = memory.records(EVENTS)[54].offset;
    assert!(memory.tamper(EVENTS, place, story.bytes[54].len() - 1));
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(log, PARTITION, far(dir.path(), 20)).unwrap();
    let error = folder.catch_up().unwrap_err().to_string();
    assert!(error.contains("the chain is broken at sequence 55"), "{error}");
    assert_eq!((folder.projection().position().sequence, digest(&folder)), (54, story.digests[54]));

    let (memory, log) = log_of(&story, 0);
    for (count, event) in story.events.iter().enumerate() {
        append(&memory, &story, count, count + 1);
        if count % 7 == 6 && event.record.term > 1 {
            let late = EventRecord { term: event.record.term - 1, ..event.record.clone() };
            memory.insert(EVENTS, late.close().unwrap().encode(&ChainLink([9; 32])).0);
        }
    }
    let careful = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(Arc::clone(&log), PARTITION, config(careful.path())).unwrap();
    folder.catch_up().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let rebuilt = rebuild::<Lending>(log, PARTITION, far(dir.path(), 20)).unwrap();
    assert!(rebuilt.projection().position().stale > 0);
    assert_eq!(rebuilt.projection().position(), folder.projection().position());
    assert_eq!(digest(&rebuilt), story.digests[90]);
    assert_eq!(rungs(dir.path()), rungs(careful.path()));
}

#[test]
fn where_nothing_can_be_written_beside_the_fold_it_goes_on_carefully() {
    let story = Story::long(120);
    let (_, log) = log_of(&story, 120);
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::<Lending>::open(log, PARTITION, far(dir.path(), 20)).unwrap();
    let incoming = Layout::new(dir.path(), PARTITION).incoming(SchemaVersion { live: 1, read: 1 });
    std::fs::write(incoming, b"no directory").unwrap();
    assert_eq!(folder.catch_up().unwrap().sequence, 120);
    assert_eq!(digest(&folder), story.digests[120]);
}
