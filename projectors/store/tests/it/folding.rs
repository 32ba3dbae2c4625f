//! The same events give the same tables on every backing, wherever they are committed and reopened.

use std::ops::Bound;

use gatelog_record::Partition;
use gatelog_store::{Opened, Projection, RocksTable, SharedProjection, StoreError};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::fold::TableSet;
use gatelog_tables::table::Table;
use gatelog_tables::{DomainState, LiveTables, Maps, TableDef};
use proptest::prelude::*;

use crate::lending::{Copies, InMaps, Lending, PARTITION, Story, digest_of};

const VERBS: [&str; 4] = ["buy", "lend", "return", "sell"];
const BOOKS: [&str; 4] = ["", "a", "a\0b", "über"];

fn story(steps: &[(usize, usize, u64)]) -> Story {
    let mut story = Story::begin();
    for (verb, book, count) in steps {
        if !story.try_tell(VERBS[*verb], BOOKS[*book], *count) && *count == 0 {
            story.restart();
        }
    }
    story
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize, u64)>> {
    prop::collection::vec((0..4_usize, 0..4_usize, 0..5_u64), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn maps_overlay_and_rocksdb_agree_after_every_commit(
        steps in steps(),
        // After each event: go on, commit, commit and reopen, or crash without a commit.
        turns in prop::collection::vec(0..8_u8, 80..81),
        base in 0..80_usize,
    ) {
        let story = story(&steps);
        let dir = tempfile::tempdir().unwrap();
        let (mut projection, opened) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
        prop_assert_eq!(opened, Opened::Fresh { beside: Vec::new() });
        let mut next = 0;
        let mut turn = turns.iter().copied().cycle().take(story.events.len() * 3);
        while next < story.events.len() {
            projection.apply(&story.events[next]).unwrap();
            next += 1;
            match turn.next().unwrap_or(4) {
                4 | 5 => {
                    projection.commit().unwrap();
                    prop_assert_eq!(projection.digest().unwrap(), story.digests[next]);
                }
                6 => {
                    projection.commit().unwrap();
                    drop(projection);
                    projection = Projection::open(dir.path(), PARTITION).unwrap().0;
                    prop_assert_eq!(projection.position().sequence as usize, next);
                }
                7 => {
                    drop(projection);
                    projection = Projection::open(dir.path(), PARTITION).unwrap().0;
                    next = projection.position().sequence as usize;
                }
                _ => continue,
            }
            let sequence = projection.position().sequence as usize;
            prop_assert_eq!(projection.digest().unwrap(), story.digests[sequence]);
            prop_assert_eq!(projection.live_digest().unwrap(), story.live_digests[sequence]);
        }
        projection.commit().unwrap();
        prop_assert_eq!(projection.digest().unwrap(), story.digests[next]);

        // An overlay over the tables at any moment ends where the tables themselves end.
        let base = base % (story.events.len() + 1);
        let mut maps = InMaps::default();
        story.events[..base].iter().for_each(|event| maps.apply(&event.record).unwrap());
        let mut overlay = <Lending>::overlay(&maps.live);
        story.events[base..].iter().for_each(|event| overlay.apply(&event.record).unwrap());
        prop_assert_eq!(digest_of(&overlay), story.live_digests[story.events.len()]);
    }

    #[test]
    fn a_temporal_table_reads_like_a_map_with_changes_not_yet_committed(
        steps in steps(), commit_at in 0..80_usize, from in key(), to in key(), bounds in (0..3_u8, 0..3_u8),
    ) {
        let story = story(&steps);
        let dir = tempfile::tempdir().unwrap();
        let (mut projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
        for (count, event) in story.events.iter().enumerate() {
            projection.apply(event).unwrap();
            if count == commit_at {
                projection.commit().unwrap();
            }
        }
        let bound = |kind, key| match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        };
        let (from, to) = (bound(bounds.0, &from), bound(bounds.1, &to));
        let stored: &RocksTable<Copies> = &projection.temporal().copies;
        let maps = &story.state.told.copies;
        prop_assert_eq!(rows(stored.range(from, to)), rows(maps.range(from, to)));
        prop_assert_eq!(rows(stored.range_back(from, to)), rows(maps.range_back(from, to)));
        for (key, _) in rows(maps.range(Bound::Unbounded, Bound::Unbounded)) {
            prop_assert_eq!(stored.get(&key).unwrap(), maps.get(&key).unwrap());
        }
    }
}

fn key() -> impl Strategy<Value = (String, u64)> {
    (0..4_usize, 0..80_u64).prop_map(|(book, sequence)| (BOOKS[book].to_owned(), sequence))
}

type Entry = (<Copies as TableDef>::Key, <Copies as TableDef>::Row);

fn rows(found: Result<gatelog_tables::table::Rows<'_, Copies>, gatelog_tables::TableError>) -> Vec<Entry> {
    found.unwrap().map(|entry| entry.map(|(key, row)| (key, row.into_owned())).unwrap()).collect()
}

#[test]
fn an_event_that_does_not_fit_leaves_the_state_before_it_and_names_itself() {
    let mut story = Story::of("buy dune 1\nlend dune 7");
    // The loan is made before the missing copy is noticed: half an event must not stay.
    story.tell_wrong("lend", "dune", 8);
    let dir = tempfile::tempdir().unwrap();
    let (projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    let shared = SharedProjection::new(projection);
    let error = shared.fold(&story.events, 99, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "deployments/0: event 4 (sample) does not fit the state: no copy is left; the projection stops at event 3: \
         this is a fault in gatelog, see `gatelog log cat --from 4`"
    );
    let view = shared.view();
    assert_eq!((view.position().sequence, view.position().link), (3, story.events[2].link));
    assert_eq!(view.projection().digest().unwrap(), story.digests[3]);
    assert_eq!(digest_of(&view.live_in_memory().unwrap()), story.live_digests[3]);
    drop(view);
    drop(shared);
    let (again, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    assert_eq!((again.position().sequence, again.digest().unwrap()), (3, story.digests[3]));
}

#[test]
fn a_fold_that_panics_costs_its_event_and_nothing_before_it() {
    let mut story = Story::of("buy dune 1");
    story.tell_wrong("fire", "dune", 0);
    let dir = tempfile::tempdir().unwrap();
    let (mut projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    let error = projection.fold(&story.events, 99, 0).unwrap_err();
    assert!(
        matches!(&error, StoreError::FoldPanicked { sequence: 3, message, .. } if message == "the library burns"),
        "{error}"
    );
    assert_eq!((projection.position().sequence, projection.digest().unwrap()), (2, story.digests[2]));
}

#[test]
fn only_the_next_event_can_be_folded() {
    let story = Story::of("buy dune 1\nlend dune 7");
    let dir = tempfile::tempdir().unwrap();
    let (mut projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    projection.apply(&story.events[0]).unwrap();
    let error = projection.apply(&story.events[2]).unwrap_err();
    assert_eq!(error, StoreError::NotNext { partition: PARTITION, applied: 1, found: 3 });
    // What was not committed is taken back, and the place with it.
    assert_eq!(projection.position().sequence, 0);
    assert_eq!(projection.digest().unwrap(), story.digests[0]);
    projection.fold(&story.events, 3, 2).unwrap();
    assert_eq!((projection.position().stale, projection.digest().unwrap()), (2, story.digests[3]));
}

#[test]
fn readers_see_committed_state_of_one_position_only() {
    let story = Story::long(400);
    let dir = tempfile::tempdir().unwrap();
    let (projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    let shared = SharedProjection::new(projection);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            loop {
                let view = shared.view();
                let sequence = view.position().sequence as usize;
                assert_eq!(view.projection().digest().unwrap(), story.digests[sequence]);
                seen += 1;
                if sequence == story.events.len() {
                    return seen;
                }
            }
        });
        for batch in story.events.chunks(7) {
            shared.fold(batch, batch.last().unwrap().log_offset, 0).unwrap();
        }
        reader.join().unwrap()
    });
    assert!(seen > 0);
}

/// The numbers of a domain's tables are the store's keys: no two may share one.
fn opens_empty<S: DomainState>() {
    let dir = tempfile::tempdir().unwrap();
    let partition = Partition { domain: S::DOMAIN, index: 0 };
    let digest = Projection::<S>::open(dir.path(), partition).unwrap().0.digest().unwrap();
    let mut maps = StateDigest::default();
    S::Live::<Maps>::open(&mut Maps).unwrap().visit(&mut maps).unwrap();
    S::Read::<Maps>::open(&mut Maps).unwrap().visit(&mut maps).unwrap();
    assert_eq!(digest, maps.finish());
}

#[test]
fn the_houses_own_domains_open() {
    opens_empty::<gatelog_gate_state::Gate>();
    opens_empty::<gatelog_capacity_state::Capacity>();
}
