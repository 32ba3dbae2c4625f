//! Chain, fold and rungs, checked over the whole history.

use std::collections::BTreeMap;

use gatelog_event_log::{Blobs, Log, Tail};
use gatelog_record::{BlobHash, EventRecord, Partition, Timestamp};
use gatelog_store::rung;
use gatelog_store::{RungDir, StoreWarning};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{DomainState, LiveTables, Maps, ReadTables, TableSet};

use crate::error::ReplayError;
use crate::reading::read_history;

/// Tells the blobs an event names.
pub type BlobsOf<'f> = &'f dyn Fn(&EventRecord) -> Vec<BlobHash>;

/// What was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The partition.
    pub partition: Partition,
    /// Where its history ends.
    pub tail: Tail,
    /// When its newest event was recorded.
    pub recorded_at: Timestamp,
    /// The digest of the live tables at the end.
    pub live_digest: [u8; 32],
    /// The digest of all tables at the end.
    pub digest: [u8; 32],
    /// How many rungs are what folding gives.
    pub rungs: usize,
    /// How many blobs are there and are what their names say.
    pub blobs: usize,
    /// Rungs that were passed over: they cost time, not truth.
    pub warnings: Vec<StoreWarning>,
}

/// Checks a partition's whole history: every record's checksum, sequence, term and link; that every
/// event folds; that every rung is what folding gives; and, if asked, that every blob the events name
/// is there and undamaged.
///
/// # Errors
/// The first thing that is wrong, by name and place.
pub fn verify<S: DomainState>(
    log: &dyn Log,
    partition: Partition,
    rungs: Option<&RungDir>,
    blobs: Option<(&dyn Blobs, BlobsOf<'_>)>,
) -> Result<Verified, ReplayError> {
    let mut warnings = Vec::new();
    let mut wanted = BTreeMap::new();
    for entry in rungs.map(RungDir::list).transpose()?.unwrap_or_default() {
        match rung::read::<S>(&entry.path, partition) {
            Ok(rung) => {
                wanted.insert(entry.sequence, (entry.path, rung.header));
            }
            Err(error) => warnings.push(StoreWarning::RungPassedOver(error)),
        }
    }
    let begins = log.begins(partition).sequence;
    if begins > 0 {
        return Err(ReplayError::Slice { partition, begins });
    }
    let mut live = S::Live::<Maps>::open(&mut Maps)?;
    let mut temporal = S::Read::<Maps>::open(&mut Maps)?;
    let mut recorded_at = Timestamp::ZERO;
    let mut checked = 0;
    let mut seen = std::collections::BTreeSet::new();
    let tail = read_history(log, partition, Tail::GENESIS, |record, link, _| {
        live.apply(&record).and_then(|()| temporal.apply(&live, &record)).map_err(|refused| {
            ReplayError::FoldRefused { partition, sequence: record.sequence, kind: record.event.name(), refused }
        })?;
        recorded_at = record.recorded_at;
        if let Some((path, header)) = wanted.remove(&record.sequence) {
            if header.position.link == link {
                let computed = digest_of(&live)?;
                if computed != header.digest {
                    return Err(ReplayError::RungDiffers {
                        sequence: record.sequence,
                        found: hex::encode(header.digest),
                        computed: hex::encode(computed),
                    });
                }
                checked += 1;
            } else {
                let (sequence, found) = (record.sequence, header.position.link);
                let expected = link.to_string();
                warnings.push(StoreWarning::RungOfAnotherHistory { path, sequence, found, expected });
            }
        }
        if let Some((store, names)) = blobs {
            for hash in names(&record) {
                if seen.insert(hash) {
                    store.get(&hash)?;
                }
            }
        }
        Ok(true)
    })?;
    for (sequence, (path, header)) in wanted {
        let expected = "no event".to_owned();
        warnings.push(StoreWarning::RungOfAnotherHistory { path, sequence, found: header.position.link, expected });
    }
    let live_digest = digest_of(&live)?;
    let mut digest = StateDigest::default();
    live.visit(&mut digest)?;
    temporal.visit(&mut digest)?;
    Ok(Verified {
        partition,
        tail,
        recorded_at,
        live_digest,
        digest: digest.finish(),
        rungs: checked,
        blobs: seen.len(),
        warnings,
    })
}

fn digest_of(tables: &impl TableSet<Maps>) -> Result<[u8; 32], ReplayError> {
    let mut digest = StateDigest::default();
    tables.visit(&mut digest)?;
    Ok(digest.finish())
}
