//! State at any position, with rungs, without, and with bad ones.

use std::sync::Arc;

use gatelog_event_log::{Blobs, Log, MemoryBlobs};
use gatelog_record::{BlobHash, ChainLink, Timestamp};
use gatelog_replay::{Moment, ReplayError, Timeline, verify};
use gatelog_runner::{Folder, RunnerConfig};
use gatelog_store::rung::EncodedRung;
use gatelog_store::{Layout, Position, RungDir, StoreWarning};
use gatelog_tables::{Maps, Table, TableExt};
use proptest::prelude::*;

use crate::lending::{InMaps, Lending, PARTITION, Story, digest_of};
use crate::log_of;

fn rung_at(story: &Story, sequence: usize) -> EncodedRung {
    rung_with(story, sequence, sequence)
}

/// A rung that says it is of one position and holds the tables of another.
fn rung_with(story: &Story, says: usize, holds: usize) -> EncodedRung {
    let mut maps = InMaps::default();
    story.events[..holds].iter().for_each(|event| maps.apply(&event.record).unwrap());
    let position = story.events[..says]
        .iter()
        .fold(Position::default(), |position, event| position.after(&event.record, event.link, event.log_offset));
    EncodedRung::new::<Lending, _>(PARTITION, &position, &maps.live).unwrap()
}

fn timeline(log: &Arc<impl Log + 'static>, rungs: Option<&RungDir>) -> Timeline<Lending> {
    Timeline::new(Arc::clone(log) as Arc<dyn Log>, PARTITION, rungs.cloned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn every_position_is_the_same_with_rungs_at_odd_places_damaged_and_without(
        places in prop::collection::btree_set(1..90_usize, 0..12),
        damaged in prop::collection::vec(any::<(bool, u16)>(), 12),
    ) {
        let story = Story::long(90);
        let log = log_of(&story);
        let dir = tempfile::tempdir().unwrap();
        let rungs = RungDir::new(dir.path());
        let mut whole = Vec::new();
        for (place, (damage, byte)) in places.iter().zip(damaged) {
            let path = rungs.put(&rung_at(&story, *place)).unwrap();
            if damage {
                let mut bytes = std::fs::read(&path).unwrap();
                let byte = usize::from(byte) % bytes.len();
                bytes[byte] ^= 0x20;
                std::fs::write(&path, bytes).unwrap();
            } else {
                whole.push(*place);
            }
        }
        let (with, without) = (timeline(&log, Some(&rungs)), timeline(&log, None));
        for sequence in 0..=90 {
            let moment = Moment::Sequence(sequence as u64);
            let (with, without) = (with.state_at(moment).unwrap(), without.state_at(moment).unwrap());
            prop_assert_eq!(with.digest().unwrap(), story.live_digests[sequence]);
            prop_assert_eq!(without.digest().unwrap(), story.live_digests[sequence]);
            prop_assert_eq!(with.position, without.position);
            let nearest = whole.iter().rev().find(|place| **place <= sequence).map(|place| *place as u64);
            prop_assert_eq!(with.rung, nearest);
            prop_assert_eq!(without.rung, None);
        }
    }
}

#[test]
fn the_runners_rungs_serve_and_go_with_the_projections_without_loss() {
    let story = Story::long(77);
    let log = log_of(&story);
    let dir = tempfile::tempdir().unwrap();
    let config = RunnerConfig { rung_every: 7, ..RunnerConfig::new(dir.path()) };
    let mut folder = Folder::<Lending>::open(log.clone(), PARTITION, config).unwrap();
    folder.catch_up().unwrap();
    let rungs = RungDir::new(Layout::new(dir.path(), PARTITION).rungs());
    let past = timeline(&log, Some(&rungs));
    assert_eq!(past.state_at(Moment::Sequence(41)).unwrap().rung, Some(35));
    assert_eq!(past.state_at(Moment::Newest).unwrap().digest().unwrap(), story.live_digests[77]);
    let verified = verify::<Lending>(&*log, PARTITION, Some(&rungs), None).unwrap();
    assert_eq!((verified.rungs, verified.warnings.len(), verified.tail.sequence), (11, 0, 77));
    assert_eq!(verified.digest, folder.projection().view().projection().digest().unwrap());
    drop(folder);
    std::fs::remove_dir_all(dir.path()).unwrap();
    let again = past.state_at(Moment::Sequence(41)).unwrap();
    assert_eq!((again.rung, again.digest().unwrap()), (None, story.live_digests[41]));
}

#[test]
fn a_time_is_the_last_event_at_or_before_it() {
    let story = Story::long(75);
    let log = log_of(&story);
    let past = timeline(&log, None);
    let times: Vec<Timestamp> = story.events.iter().map(|event| event.record.recorded_at).collect();
    let asked = times.iter().flat_map(|at| [Timestamp(at.0 - 1), *at, Timestamp(at.0 + 1)]);
    for at in asked.chain([Timestamp::ZERO, Timestamp(i64::MAX)]) {
        let expected = times.iter().filter(|recorded| **recorded <= at).count() as u64;
        assert_eq!(past.sequence_at_time(at).unwrap(), expected, "at {at}");
        let state = past.state_at(Moment::Time(at)).unwrap();
        assert_eq!(state.digest().unwrap(), story.live_digests[expected as usize]);
    }
    assert_eq!(past.newest().unwrap(), 75);
}

#[test]
fn a_position_that_is_not_there_yet_says_so() {
    let story = Story::long(10);
    let log = log_of(&story);
    let error = timeline(&log, None).state_at(Moment::Sequence(11)).err().unwrap();
    assert_eq!(error.to_string(), "deployments/0 has no event 11 yet: its newest is event 10");
}

#[test]
fn temporal_rows_answer_for_the_past_by_from_and_until() {
    let story = Story::long(80);
    let log = log_of(&story);
    let past = timeline(&log, None);
    let newest = past.full_at(Moment::Newest).unwrap();
    assert_eq!(digest_of(&newest.temporal), digest_of(&story.state.told));
    for at in 0..=80_u64 {
        let then = past.full_at(Moment::Sequence(at)).unwrap();
        for book in ["dune", "emma", "ilias", "momo", "ulysses"] {
            let held = newest
                .temporal
                .copies
                .all()
                .unwrap()
                .map(|row| row.map(|(key, row)| (key, row.into_owned())).unwrap())
                .find(|((of, from), (_, until))| of == book && *from <= at && until.is_none_or(|until| until > at))
                .map(|(_, (copies, _))| copies);
            let live = then.live.own.shelf.get(&book.to_owned()).unwrap().map(|copies| *copies);
            assert_eq!(held, live, "{book} at {at}");
        }
    }
}

#[test]
fn a_rung_of_another_history_is_passed_over() {
    let story = Story::long(40);
    let log = log_of(&story);
    let mut other = Story::of("buy emma 1\nlend emma 4");
    while other.events.len() < 50 {
        other.restart();
    }
    let dir = tempfile::tempdir().unwrap();
    let rungs = RungDir::new(dir.path());
    for sequence in [20, 30, 50] {
        rungs.put(&rung_at(&other, sequence)).unwrap();
    }
    rungs.put(&rung_at(&story, 10)).unwrap();
    let found = timeline(&log, Some(&rungs)).state_at(Moment::Newest).unwrap();
    assert_eq!((found.rung, found.digest().unwrap()), (Some(10), story.live_digests[40]));
    assert!(
        found.warnings.iter().all(|warning| matches!(warning, StoreWarning::RungOfAnotherHistory { .. })),
        "{:?}",
        found.warnings
    );
    assert_eq!(found.warnings.len(), 3);
    assert_eq!(verify::<Lending>(&*log, PARTITION, Some(&rungs), None).unwrap().warnings.len(), 3);
}

#[test]
fn verifying_finds_a_rung_that_is_not_what_folding_gives() {
    let story = Story::long(40);
    let log = log_of(&story);
    let dir = tempfile::tempdir().unwrap();
    let rungs = RungDir::new(dir.path());
    rungs.put(&rung_with(&story, 30, 29)).unwrap();
    let error = verify::<Lending>(&*log, PARTITION, Some(&rungs), None).unwrap_err();
    assert!(matches!(error, ReplayError::RungDiffers { sequence: 30, .. }), "{error}");
}

#[test]
fn verifying_finds_a_broken_chain_and_a_blob_that_is_missing() {
    let mut story = Story::long(40);
    let blobs = MemoryBlobs::new();
    let there = blobs.put(b"a page").unwrap();
    let missing = BlobHash([5; 32]);
    let log = log_of(&story);
    let names = |record: &gatelog_record::EventRecord| match record.sequence {
        7 | 8 => vec![there],
        _ => Vec::new(),
    };
    let verified = verify::<Lending>(&*log, PARTITION, None, Some((&blobs, &names))).unwrap();
    assert_eq!((verified.blobs, verified.live_digest), (1, story.live_digests[40]));
    let names = |_: &gatelog_record::EventRecord| vec![missing];
    let error = verify::<Lending>(&*log, PARTITION, None, Some((&blobs, &names))).unwrap_err();
    assert!(matches!(error, ReplayError::Blob(_)), "{error}");

    let like = story.events[19].record.clone();
    story.bytes[19] = like.close().unwrap().encode(&ChainLink([3; 32])).0;
    let error = verify::<Lending>(&*log_of(&story), PARTITION, None, None).unwrap_err();
    assert!(error.to_string().contains("the chain is broken at sequence 20"), "{error}");
}

#[test]
fn an_event_that_does_not_fit_is_named_at_its_position_and_the_past_before_it_can_be_seen() {
    let mut story = Story::long(20);
    story.tell_wrong("burn", "dune", 0);
    let log = log_of(&story);
    let past = timeline(&log, None);
    assert_eq!(past.state_at(Moment::Sequence(20)).unwrap().digest().unwrap(), story.live_digests[20]);
    let error = past.state_at(Moment::Newest).err().unwrap().to_string();
    assert!(
        error.starts_with("deployments/0: event 21 (sample) does not fit the state: nobody knows how to burn"),
        "{error}"
    );
}

#[test]
fn maps_are_what_a_past_state_is_kept_in() {
    // What the API reads from a past state is the same table trait as live.
    let story = Story::of("buy dune 3");
    let live: crate::lending::Live<Maps> = timeline(&log_of(&story), None).state_at(Moment::Newest).unwrap().live;
    assert_eq!(live.own.shelf.get(&"dune".to_owned()).unwrap().as_deref(), Some(&3));
}
