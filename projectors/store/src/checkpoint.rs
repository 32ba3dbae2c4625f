//! Checkpoints: copies of a database, with which a start goes on after damage.
//!
//! A checkpoint is made by RocksDB (files that never change again are linked, not copied) and is
//! whole once `metadata.json` stands in it. The two newest are kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gatelog_record::Partition;
use gatelog_tables::DomainState;
use rocksdb::checkpoint::Checkpoint;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::{
    copy, each_piece, is_there, link, make, names, read, remove, rename, same_file, size, sync_dir, write_whole,
};
use crate::engine::Engine;
use crate::error::{StoreError, StoreWarning};
use crate::layout::Layout;
use crate::position::{Position, SchemaVersion};
use crate::projection::Projection;

/// How many checkpoints are kept.
pub const KEEP: usize = 2;
/// The newest format of `metadata.json`.
pub const FORMAT: u32 = 1;
const METADATA: &str = "metadata.json";
const UNFINISHED: &str = ".unfinished";
/// How the names of RocksDB's tables of rows end.
const TABLE: &str = ".sst";
/// The largest `metadata.json` read, in bytes.
const MAX_METADATA: u64 = 1 << 20;

/// What `metadata.json` says. Not the projection's truth (that is in the database), but what it is
/// checked against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The format of this file.
    pub format: u32,
    /// The partition, such as `gate/0`.
    pub partition: String,
    /// The site.
    pub site: String,
    /// The log's generation.
    pub generation: u32,
    /// The newest event folded.
    pub sequence: u64,
    /// Its term.
    pub term: u64,
    /// Its link, in hex.
    pub link: String,
    /// When it was decided, in microseconds since 1970.
    pub recorded_at: i64,
    /// The versions of the tables.
    pub schema: SchemaVersion,
    /// The digest of the live tables, in hex.
    pub live_digest: String,
    /// The files and their sizes in bytes.
    pub files: Vec<(String, u64)>,
    /// SHA-256 of each file, in hex. Older checkpoints have none.
    #[serde(default)]
    pub sums: BTreeMap<String, String>,
}

impl Metadata {
    fn fits(&self, position: &Position) -> bool {
        self.sequence == position.sequence
            && self.term == position.term
            && self.link == position.link.to_string()
            && self.generation == position.generation
    }
}

/// Makes a checkpoint of the committed state, all of which must be stored, and drops all but the two newest.
///
/// # Errors
/// `System`, `StoreDamaged`, `HandedOver`.
pub fn create<S: DomainState>(projection: &Projection<S>) -> Result<PathBuf, StoreError> {
    if !projection.is_stored() {
        return Err(StoreError::HandedOver { partition: projection.partition() });
    }
    let schema = SchemaVersion::of::<S>();
    let position = *projection.position();
    let dir = projection.layout().checkpoints(schema);
    make(&dir)?;
    let target = dir.join(format!("{:020}", position.sequence));
    if is_there(&target.join(METADATA)) {
        return Ok(target);
    }
    let unfinished = dir.join(format!("{:020}{UNFINISHED}", position.sequence));
    remove(&unfinished)?;
    remove(&target)?;
    let failed = |error: rocksdb::Error| StoreError::System {
        what: "cannot make the checkpoint",
        path: target.clone(),
        message: error.into_string(),
    };
    Checkpoint::new(projection.engine().db())
        .and_then(|checkpoint| checkpoint.create_checkpoint(&unfinished))
        .map_err(failed)?;
    let metadata = Metadata {
        format: FORMAT,
        partition: projection.partition().to_string(),
        site: position.site.to_string(),
        generation: position.generation,
        sequence: position.sequence,
        term: position.term,
        link: position.link.to_string(),
        recorded_at: position.recorded_at.0,
        schema,
        live_digest: hex::encode(projection.live_digest()?),
        files: files(&unfinished)?,
        sums: sums(&unfinished, list(projection.layout(), schema)?.first())?,
    };
    let path = unfinished.join(METADATA);
    let json = serde_json::to_vec_pretty(&metadata)
        .map_err(|error| StoreError::Encode { what: "a checkpoint's metadata", message: error.to_string() })?;
    write_whole(&path, &json)?;
    rename(&unfinished, &target)?;
    sync_dir(&dir)?;
    prune(&dir)?;
    Ok(target)
}

/// The checkpoints of a partition, newest first.
///
/// # Errors
/// `System`.
pub fn list(layout: &Layout, schema: SchemaVersion) -> Result<Vec<PathBuf>, StoreError> {
    let dir = layout.checkpoints(schema);
    let mut found: Vec<String> = names(&dir)?.into_iter().filter(|name| name.parse::<u64>().is_ok()).collect();
    found.reverse();
    Ok(found.into_iter().map(|name| dir.join(name)).collect())
}

/// Puts the newest usable checkpoint in the place of a damaged database and opens it. `None` when
/// there is none: then the projection is deleted and folded from the log again.
///
/// # Errors
/// `System`, `InUse`.
pub fn restore<S: DomainState>(
    root: &Path,
    partition: Partition,
    warnings: &mut Vec<StoreWarning>,
) -> Result<Option<Projection<S>>, StoreError> {
    let layout = Layout::new(root, partition);
    let schema = SchemaVersion::of::<S>();
    // Where a read came upon damage it may be older than the sums, which then say nothing.
    let summed = !Engine::is_marked(&layout.database(schema));
    for path in list(&layout, schema)? {
        match restore_one::<S>(root, partition, &layout, &path, summed) {
            Ok(projection) => return Ok(Some(projection)),
            Err(error @ (StoreError::System { .. } | StoreError::InUse { .. })) => return Err(error),
            Err(error) => {
                let message = match error {
                    StoreError::StoreDamaged { message, .. } => message,
                    other => other.to_string(),
                };
                warnings.push(StoreWarning::CheckpointPassedOver { path, message });
            }
        }
    }
    Ok(None)
}

fn restore_one<S: DomainState>(
    root: &Path,
    partition: Partition,
    layout: &Layout,
    path: &Path,
    summed: bool,
) -> Result<Projection<S>, StoreError> {
    let damaged = |message: String| StoreError::StoreDamaged { path: path.to_owned(), message };
    let metadata = metadata(path)?;
    if metadata.format != FORMAT || metadata.schema != SchemaVersion::of::<S>() {
        return Err(damaged(format!("its format or state schema ({}) is another", metadata.schema)));
    }
    if metadata.partition != partition.to_string() {
        return Err(damaged(format!("it is of {}", metadata.partition)));
    }
    if files(path)? != metadata.files {
        return Err(damaged("its files are not those it was made with".to_owned()));
    }
    let database = layout.database(metadata.schema);
    let summed = summed && metadata.files.iter().all(|(name, _)| metadata.sums.contains_key(name));
    for (name, said) in &metadata.sums {
        if summed && sum(&path.join(name))? != *said {
            return Err(damaged(format!("{name} is not what it was made with")));
        }
    }
    // Tables of rows never change, and RocksDB links them itself. All others are copied: what the open database does to
    // them must not reach the checkpoint.
    let copied = database.with_extension("restoring");
    remove(&copied)?;
    make(&copied)?;
    for (name, _) in &metadata.files {
        let (from, to) = (path.join(name), copied.join(name));
        if name.ends_with(TABLE) { link(&from, &to)? } else { copy(&from, &to)? }
    }
    remove(&database)?;
    rename(&copied, &database)?;
    let (projection, _) = Projection::<S>::open(root, partition)?;
    // Files are linked between database and checkpoint: what damaged the one may have damaged the other.
    if !summed {
        projection.engine().check()?;
    }
    if !metadata.fits(projection.position()) || hex::encode(projection.live_digest()?) != metadata.live_digest {
        return Err(damaged("its tables are not those it was made with".to_owned()));
    }
    Ok(projection)
}

/// What a checkpoint says of itself.
///
/// # Errors
/// `StoreDamaged`.
pub fn metadata(checkpoint: &Path) -> Result<Metadata, StoreError> {
    let path = checkpoint.join(METADATA);
    let damaged = |message: String| StoreError::StoreDamaged { path: checkpoint.to_owned(), message };
    let json = read(&path, MAX_METADATA).map_err(|error| damaged(error.to_string()))?;
    let json = json.ok_or_else(|| damaged(format!("{METADATA} is larger than {MAX_METADATA} bytes")))?;
    serde_json::from_slice(&json).map_err(|error| damaged(format!("{METADATA}: {error}")))
}

fn files(dir: &Path) -> Result<Vec<(String, u64)>, StoreError> {
    let mut found = Vec::new();
    for name in names(dir)?.into_iter().filter(|name| name != METADATA) {
        let bytes = size(&dir.join(&name))?;
        found.push((name, bytes));
    }
    Ok(found)
}

/// The sum of every file. Those that another checkpoint shares are as it has them: to read them all each time would cost
/// more with every event there ever was.
fn sums(dir: &Path, before: Option<&PathBuf>) -> Result<BTreeMap<String, String>, StoreError> {
    let known = before.and_then(|path| Some((path, metadata(path).ok()?.sums)));
    let mut found = BTreeMap::new();
    for (name, _) in files(dir)? {
        let path = dir.join(&name);
        let shared = known.as_ref().and_then(|(before, sums)| {
            let said = sums.get(&name)?;
            same_file(&before.join(&name), &path).then(|| said.clone())
        });
        let sum = match shared {
            Some(said) => said,
            None => sum(&path)?,
        };
        found.insert(name, sum);
    }
    Ok(found)
}

/// SHA-256 of a file, in hex.
fn sum(path: &Path) -> Result<String, StoreError> {
    let mut sum = Sha256::new();
    each_piece(path, |piece| sum.update(piece))?;
    Ok(hex::encode(sum.finalize()))
}

fn prune(dir: &Path) -> Result<(), StoreError> {
    let all = names(dir)?;
    let whole: Vec<&String> = all.iter().filter(|name| name.parse::<u64>().is_ok()).collect();
    let old = whole.iter().rev().skip(KEEP).copied();
    for name in old.chain(all.iter().filter(|name| name.ends_with(UNFINISHED))) {
        remove(&dir.join(name))?;
    }
    Ok(())
}
