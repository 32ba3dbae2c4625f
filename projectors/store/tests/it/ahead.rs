//! Folding far ahead of what is stored: what readers see, what is there after a crash, what failure takes back.

use gatelog_store::{Layout, Projection, SchemaVersion, SharedProjection, Staged, StoreError, checkpoint};
use gatelog_tables::Table;
use proptest::prelude::*;

use crate::copy_dir_at_once;
use crate::lending::{Lending, PARTITION, Story};

const SCHEMA: SchemaVersion = SchemaVersion { live: 1, read: 1 };

fn open(dir: &std::path::Path) -> Projection<Lending> {
    Projection::open(dir, PARTITION).unwrap().0
}

/// As if the machine had stopped there and then: where it stands at the next start, with the digest of that.
fn killed(dir: &std::path::Path, story: &Story) -> usize {
    let other = tempfile::tempdir().unwrap();
    copy_dir_at_once(dir, &other.path().join("copy"));
    let mut killed = open(&other.path().join("copy"));
    let sequence = killed.position().sequence as usize;
    assert_eq!(killed.digest().unwrap(), story.digests[sequence]);
    killed.fold(&story.events[sequence..], 0, 0).unwrap();
    assert_eq!(killed.digest().unwrap(), *story.digests.last().unwrap());
    sequence
}

#[test]
fn killed_anywhere_beside_the_fold_what_is_stored_is_whole_and_folding_on_gives_the_same() {
    let story = Story::long(60);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    let (mut stored, mut under_way): (usize, Option<(Staged, usize)>) = (0, None);
    for chunk in story.events.chunks(7) {
        projection.fold_ahead(chunk, chunk.last().unwrap().log_offset, 0).unwrap();
        let reached = projection.position().sequence as usize;
        // Readers see what is folded, wherever it is.
        assert_eq!(projection.digest().unwrap(), story.digests[reached]);
        assert_eq!(killed(dir.path(), &story), stored);
        if let Some((staged, up_to)) = under_way.take() {
            staged.write().unwrap();
            assert_eq!(projection.digest().unwrap(), story.digests[reached], "seen twice is seen once");
            assert_eq!(killed(dir.path(), &story), up_to);
            drop(projection.settle());
            stored = up_to;
        }
        assert_eq!(projection.digest().unwrap(), story.digests[reached]);
        under_way = projection.stage().unwrap().map(|staged| (staged, reached));
        assert!(under_way.is_some());
        assert_eq!(killed(dir.path(), &story), stored);
    }
}

#[test]
fn a_file_that_was_not_taken_in_counts_for_nothing() {
    let story = Story::long(20);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events[..10], 10, 0).unwrap();
    let incoming = projection.layout().incoming(SCHEMA);
    drop(projection);
    std::fs::create_dir_all(&incoming).unwrap();
    std::fs::write(incoming.join("00000000000000000020.sst"), b"half of it").unwrap();
    assert_eq!(killed(dir.path(), &story), 10);
    let projection = open(dir.path());
    assert!(!incoming.exists());
    assert_eq!(projection.digest().unwrap(), story.digests[10]);
}

#[test]
fn nothing_is_written_past_rows_that_are_under_way() {
    let story = Story::long(20);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    assert!(projection.stage().unwrap().is_none(), "there is nothing to hand over");
    projection.fold_ahead(&story.events[..8], 8, 0).unwrap();
    assert!(!projection.is_stored());
    let error = checkpoint::create(&projection).unwrap_err();
    assert!(matches!(error, StoreError::HandedOver { .. }), "{error}");
    let staged = projection.stage().unwrap().unwrap();
    projection.apply(&story.events[8]).unwrap();
    let error = projection.commit().unwrap_err();
    assert_eq!(error, StoreError::HandedOver { partition: PARTITION });
    assert!(error.to_string().contains("settle them before"), "{error}");
    assert_eq!((projection.position().sequence, projection.digest().unwrap()), (8, story.digests[8]));
    assert!(projection.stage().is_err());
    staged.write().unwrap();
    drop(projection.settle());
    assert!(projection.is_stored());
    checkpoint::create(&projection).unwrap();
    projection.fold(&story.events[8..], 20, 0).unwrap();
    drop(projection);
    assert_eq!(open(dir.path()).digest().unwrap(), story.digests[20]);
}

#[test]
fn an_event_that_does_not_fit_takes_back_what_was_not_handed_over() {
    let mut story = Story::long(20);
    story.tell_wrong("burn", "dune", 1);
    let dir = tempfile::tempdir().unwrap();
    let shared = SharedProjection::new(open(dir.path()));
    shared.fold_ahead(&story.events[..8], 8, 0).unwrap();
    let staged = shared.stage().unwrap().unwrap();
    shared.fold_ahead(&story.events[8..15], 15, 0).unwrap();
    let error = shared.fold_ahead(&story.events[15..], 21, 0).unwrap_err();
    assert!(matches!(error, StoreError::FoldRefused { sequence: 21, .. }), "{error}");
    assert_eq!(shared.position().sequence, 8);
    assert_eq!(shared.view().projection().digest().unwrap(), story.digests[8]);
    staged.write().unwrap();
    drop(shared.settle());
    let error = shared.fold(&story.events[8..], 21, 0).unwrap_err();
    assert!(matches!(error, StoreError::FoldRefused { sequence: 21, .. }), "{error}");
    assert_eq!(shared.view().projection().digest().unwrap(), story.digests[20]);
}

#[test]
fn where_rows_cannot_be_written_everything_is_as_it_is_stored() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events[..10], 10, 0).unwrap();
    // Something stands in the way.
    let incoming = Layout::new(dir.path(), PARTITION).incoming(SCHEMA);
    std::fs::write(&incoming, b"no directory").unwrap();
    projection.fold_ahead(&story.events[10..20], 20, 0).unwrap();
    let error = projection.stage().unwrap().unwrap().write().unwrap_err();
    assert!(matches!(error, StoreError::System { .. }), "{error}");
    projection.fold_ahead(&story.events[20..25], 25, 0).unwrap();
    assert_eq!(projection.reload().unwrap().sequence, 10);
    assert_eq!(projection.digest().unwrap(), story.digests[10]);
    projection.fold(&story.events[10..], 40, 0).unwrap();
    assert_eq!(projection.digest().unwrap(), story.digests[40]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // Whatever is folded carefully, folded ahead, handed over, written, taken back or lost, what is seen is what a
    // fold in memory shows at that event.
    #[test]
    fn what_is_seen_is_what_maps_show(turns in prop::collection::vec((0..9_u8, 1..6_usize), 1..60)) {
        let story = Story::long(80);
        let dir = tempfile::tempdir().unwrap();
        let mut projection = open(dir.path());
        let mut under_way: Option<Staged> = None;
        for (turn, count) in turns {
            let at = projection.position().sequence as usize;
            let next = &story.events[at..(at + count).min(80)];
            let offset = (at + next.len()) as u64;
            match (turn, under_way.take()) {
                // The machine stops; what was being written may or may not have been.
                (0, staged) => {
                    if let Some(staged) = staged && count % 2 == 0 {
                        staged.write().unwrap();
                    }
                    drop(projection);
                    projection = open(dir.path());
                }
                (1, Some(staged)) => {
                    drop(staged);
                    projection.reload().unwrap();
                }
                (2 | 3, Some(staged)) => {
                    staged.write().unwrap();
                    drop(projection.settle());
                }
                (2, None) => { projection.commit().unwrap(); }
                (3, None) => { projection.fold(next, offset, 0).unwrap(); }
                (4 | 5, None) => under_way = projection.stage().unwrap(),
                (6, staged) => {
                    under_way = staged;
                    projection.rollback();
                }
                (_, staged) => {
                    under_way = staged;
                    projection.fold_ahead(next, offset, 0).unwrap();
                }
            }
            let at = projection.position().sequence as usize;
            prop_assert_eq!(projection.digest().unwrap(), story.digests[at]);
            prop_assert_eq!(projection.live_digest().unwrap(), story.live_digests[at]);
            for (key, row) in story.state.told.spells.rows.range(..) {
                if key.1 as usize > at {
                    let none = projection.temporal().spells.get(key).unwrap();
                    prop_assert!(none.is_none(), "{:?}: {:?}, later {:?}", key, none, row);
                }
            }
        }
        let at = projection.position().sequence as usize;
        if let Some(staged) = under_way.take() {
            staged.write().unwrap();
            drop(projection.settle());
        }
        projection.fold(&story.events[at..], 80, 0).unwrap();
        drop(projection);
        prop_assert_eq!(open(dir.path()).digest().unwrap(), story.digests[80]);
    }
}
