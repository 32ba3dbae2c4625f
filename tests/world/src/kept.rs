//! A world's log on disk: written down when it is over, read back, and decided again, by this build or by another.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log, LogError, MemoryBlobs, Offset, ReadLimit};
use gatelog_log_embedded::{Piece, SliceHead, SliceLog, SliceWriter, read_slice};
use gatelog_record::Partition;
use gatelog_replay::{Redecided, redecide};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;

use crate::marked::{Marked, Undone};
use crate::world::{CAPACITY, GATE, World};

/// How the names of files end that worlds are written to.
pub const ENDING: &str = "slice";

/// Where the log of a seed is kept in a folder.
pub fn file_of(folder: &Path, seed: u64) -> PathBuf {
    folder.join(format!("{seed}.{ENDING}"))
}

/// Writes a world's log and blobs to a file.
///
/// # Errors
/// What the system or the log in memory says.
pub fn keep(world: &World, file: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", file.display());
    let (log, blobs): (&dyn Log, &dyn Blobs) = (&world.log, &world.blobs);
    let described = log.describe();
    let head = SliceHead {
        site: described.site,
        generation: described.generation,
        partitions: described.partitions,
        begins: std::collections::BTreeMap::new(),
    };
    let out = BufWriter::new(File::create(file).map_err(wrong)?);
    let mut slice = SliceWriter::new(out, &head).map_err(wrong)?;
    for stream in log.streams().map_err(|error| error.to_string())? {
        let mut next = Offset(0);
        loop {
            let batch = log.read(stream, next, ReadLimit::default()).map_err(|error| error.to_string())?;
            if batch.records.is_empty() {
                break;
            }
            next = batch.next;
            for record in &batch.records {
                slice.record(stream, record).map_err(wrong)?;
            }
        }
    }
    for hash in blobs.list().map_err(|error| error.to_string())? {
        let bytes = blobs.get(&hash).map_err(|error| error.to_string())?;
        slice.blob(&hash, &bytes).map_err(wrong)?;
    }
    slice.finish().map(drop).map_err(wrong)
}

/// Reads a world's log back and decides every input of it again. Says how many decisions came out as they were.
///
/// # Errors
/// What cannot be read, or the first decision that comes out otherwise.
pub fn decide_again(file: &Path) -> Result<u64, String> {
    let told = |error: LogError| error.to_string();
    let log = SliceLog::open(file).map_err(told)?;
    let blobs = MemoryBlobs::new();
    read_slice(file, |_, piece, _, bytes| {
        if let Piece::Blob(_) = piece {
            // It was just compared with its name.
            let _ = blobs.put(&bytes);
        }
        Ok::<(), LogError>(())
    })
    .map_err(told)?;
    let gate = Arc::new(|| Marked::<GateRules>::planted(None, &Undone::default()));
    let capacity = Arc::new(|| Marked::<CapacityRules>::planted(None, &Undone::default()));
    let gate = redecide(&log, &blobs, GATE, gate, |live| &live.partition).map_err(|error| error.to_string())?;
    let capacity =
        redecide(&log, &blobs, CAPACITY, capacity, |live| &live.partition).map_err(|error| error.to_string())?;
    Ok(same(GATE, gate)? + same(CAPACITY, capacity)?)
}

/// How many decisions were made again, and came out as they were.
///
/// # Errors
/// The first that did not.
pub(crate) fn same(partition: Partition, again: Redecided) -> Result<u64, String> {
    match again.difference {
        None => Ok(again.decisions),
        Some(difference) => Err(format!(
            "{partition}: decided again, {} at offset {}: {}",
            difference.input, difference.input_offset, difference.what
        )),
    }
}
