//! The suite of the blob store.

use std::sync::Arc;

use gatelog_record::BlobHash;

use super::Outcome;
use crate::blobs::{BlobError, Blobs};

/// One blob store under test. A fresh one for each case.
pub trait BlobHarness {
    /// The store as it is open now.
    fn blobs(&self) -> Arc<dyn Blobs>;
    /// Drops it without a clean close and opens it again; false when nothing would be left.
    fn crash(&mut self) -> bool;
    /// Changes the bytes behind this name; false when that cannot be done.
    fn damage(&mut self, hash: &BlobHash) -> bool;
    /// Runs these at the same time and waits for all.
    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>);
}

/// One promise of a blob store.
pub type BlobCase = fn(&mut dyn BlobHarness) -> Outcome;

/// Every case of the blob store's suite.
pub const BLOB_CASES: &[(&str, BlobCase)] = &[
    ("what_is_put_can_be_had", blobs_put_and_get),
    ("putting_again_changes_nothing", blobs_put_again),
    ("a_missing_blob_is_named", blobs_missing),
    ("a_damaged_blob_is_named_and_can_be_put_again", blobs_damaged),
    ("listing_and_removing", blobs_list_and_remove),
    ("what_is_put_survives_a_crash", blobs_crash),
    ("many_at_once", blobs_at_once),
];

/// Runs every case of the blob store's suite, each on a fresh store; gives the names of those that
/// were skipped, with the reason.
pub fn run_blobs(make: &mut dyn FnMut() -> Box<dyn BlobHarness>) -> Vec<(&'static str, &'static str)> {
    let mut skipped = Vec::new();
    for (name, case) in BLOB_CASES {
        match case(&mut *make()) {
            Outcome::Passed => {}
            Outcome::Skipped(why) => skipped.push((*name, why)),
        }
    }
    skipped
}

fn blobs_put_and_get(harness: &mut dyn BlobHarness) -> Outcome {
    let blobs = harness.blobs();
    for content in [&b""[..], b"x", &[7; 100_000]] {
        assert_eq!(blobs.has(&BlobHash::of(content)), Ok(false));
        let hash = blobs.put(content).expect("it can be put");
        assert_eq!(hash, BlobHash::of(content), "a blob's name is its hash");
        assert_eq!(blobs.has(&hash), Ok(true));
        assert_eq!(blobs.get(&hash).as_deref(), Ok(content));
    }
    Outcome::Passed
}

fn blobs_put_again(harness: &mut dyn BlobHarness) -> Outcome {
    let blobs = harness.blobs();
    let first = blobs.put(b"twice").expect("it can be put");
    assert_eq!(blobs.put(b"twice"), Ok(first));
    assert_eq!(blobs.list(), Ok(vec![first]));
    Outcome::Passed
}

fn blobs_missing(harness: &mut dyn BlobHarness) -> Outcome {
    let hash = BlobHash::of(b"never put");
    assert_eq!(harness.blobs().get(&hash), Err(BlobError::Missing(hash)));
    assert_eq!(harness.blobs().has(&hash), Ok(false));
    Outcome::Passed
}

fn blobs_damaged(harness: &mut dyn BlobHarness) -> Outcome {
    let hash = harness.blobs().put(b"to be damaged").expect("it can be put");
    if !harness.damage(&hash) {
        return Outcome::Skipped("blobs cannot be damaged");
    }
    let blobs = harness.blobs();
    match blobs.get(&hash) {
        Err(BlobError::Damaged { hash: named, place }) => {
            assert_eq!(named, hash);
            assert!(!place.is_empty(), "the place is named");
        }
        other => panic!("damage is Damaged, not {other:?}"),
    }
    Outcome::Passed
}

fn blobs_list_and_remove(harness: &mut dyn BlobHarness) -> Outcome {
    let blobs = harness.blobs();
    assert_eq!(blobs.list(), Ok(vec![]));
    let mut hashes: Vec<BlobHash> = (0..40_u8).map(|content| blobs.put(&[content]).expect("it can be put")).collect();
    hashes.sort();
    let mut listed = blobs.list().expect("it can be listed");
    listed.sort();
    assert_eq!(listed, hashes);
    blobs.remove(&hashes[3]).expect("it can be removed");
    blobs.remove(&hashes[3]).expect("removing what is not there is no error");
    assert_eq!(blobs.has(&hashes[3]), Ok(false));
    assert_eq!(blobs.get(&hashes[3]), Err(BlobError::Missing(hashes[3])));
    assert_eq!(blobs.list().map(|listed| listed.len()), Ok(39));
    let content = (0..40_u8).find(|content| BlobHash::of(&[*content]) == hashes[3]).expect("it was put");
    assert_eq!(blobs.put(&[content]), Ok(hashes[3]), "it can be put anew");
    assert_eq!(blobs.get(&hashes[3]), Ok(vec![content]));
    Outcome::Passed
}

fn blobs_crash(harness: &mut dyn BlobHarness) -> Outcome {
    let hash = harness.blobs().put(b"kept").expect("it can be put");
    if !harness.crash() {
        return Outcome::Skipped("nothing survives here");
    }
    assert_eq!(harness.blobs().get(&hash).as_deref(), Ok(&b"kept"[..]));
    Outcome::Passed
}

fn blobs_at_once(harness: &mut dyn BlobHarness) -> Outcome {
    let work = (0..6_u8)
        .map(|start| {
            let blobs = harness.blobs();
            Box::new(move || {
                for content in start..start + 10 {
                    let hash = blobs.put(&[content; 64]).expect("it can be put");
                    assert_eq!(blobs.get(&hash), Ok(vec![content; 64]), "what was put can be had at once");
                }
            }) as Box<dyn FnOnce() + Send>
        })
        .collect();
    harness.at_once(work);
    assert_eq!(harness.blobs().list().map(|listed| listed.len()), Ok(15));
    Outcome::Passed
}
