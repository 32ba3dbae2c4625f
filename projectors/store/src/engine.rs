//! One RocksDB database. The only file that names its options.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_record::codec;
use gatelog_tables::TableError;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, ErrorKind, IngestExternalFileOptions, IteratorMode, LogLevel,
    Options, ReadOptions, SstFileWriter, WriteBatch,
};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::position::{Position, SchemaVersion};
use crate::staged::{Sink, Sorted};

/// The key of the position: table number 0, which no table has.
const META_KEY: [u8; 3] = [0, 0, b'm'];
const META_MAGIC: [u8; 4] = *b"GLP\x01";
/// The level of compression (Zstandard's) at which time counts more than room.
const FAST: i32 = 1;
/// A file that says that the database was found damaged while it was open.
const MARK: &str = "DAMAGED";

/// What stands beside the rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub domain: u8,
    pub index: u32,
    pub schema: SchemaVersion,
    pub position: Position,
}

/// Key and row as they are stored.
pub(crate) type Stored = Result<(Box<[u8]>, Box<[u8]>), rocksdb::Error>;

/// A database that is open.
#[derive(Debug)]
pub(crate) struct Engine {
    db: DB,
    path: PathBuf,
}

/// Small buffers: a projection's rows are few and its log is elsewhere.
fn options() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(8 << 20);
    options.set_max_write_buffer_number(2);
    options.set_max_total_wal_size(32 << 20);
    options.set_max_background_jobs(2);
    // A rebuild brings large files: merging them in twos and threes would cost more than it spares.
    options.set_level_zero_file_num_compaction_trigger(8);
    options.set_max_open_files(128);
    options.set_bytes_per_sync(1 << 20);
    options.set_compression_type(DBCompressionType::Zstd);
    options.set_keep_log_file_num(2);
    options.set_log_level(LogLevel::Warn);
    options.set_paranoid_checks(true);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(16 << 20));
    blocks.set_bloom_filter(10.0, false);
    options.set_block_based_table_factory(&blocks);
    options
}

impl Engine {
    /// Opens the database in a directory, which is made if there is none.
    pub fn open(path: &Path) -> Result<Arc<Engine>, StoreError> {
        crate::disk::make(path)?;
        let new = crate::disk::names(path)?.is_empty();
        if !new && !crate::disk::is_there(&path.join("CURRENT")) {
            return Err(StoreError::StoreDamaged { path: path.to_owned(), message: "CURRENT is missing".to_owned() });
        }
        let mark = path.join(MARK);
        if crate::disk::is_there(&mark) {
            let said = crate::disk::read(&mark, 64 << 10)?.unwrap_or_default();
            let message = String::from_utf8_lossy(&said).into_owned();
            return Err(StoreError::StoreDamaged { path: path.to_owned(), message });
        }
        crate::journals::check(path)?;
        let mut options = options();
        options.create_if_missing(new);
        let db = DB::open(&options, path).map_err(|error| opening(path, &error))?;
        Ok(Arc::new(Engine { db, path: path.to_owned() }))
    }

    /// Opens a database beside whoever has it open, for reading what it holds now.
    pub fn open_read_only(path: &Path) -> Result<Engine, StoreError> {
        crate::journals::check(path)?;
        let db = DB::open_for_read_only(&options(), path, false).map_err(|error| opening(path, &error))?;
        Ok(Engine { db, path: path.to_owned() })
    }

    /// Notes that the database was found damaged, so that the next start does not go on with it.
    pub fn mark_damaged(&self, message: &str) -> Result<(), StoreError> {
        crate::disk::write_whole(&self.path.join(MARK), message.as_bytes())
    }

    /// Whether a database was found damaged while it was open.
    pub fn is_marked(path: &Path) -> bool {
        crate::disk::is_there(&path.join(MARK))
    }

    /// Reads everything there is, so that damage in any block is found.
    pub fn check(&self) -> Result<(), StoreError> {
        for entry in self.db.iterator(IteratorMode::Start) {
            entry
                .map_err(|error| StoreError::StoreDamaged { path: self.path.clone(), message: error.into_string() })?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn db(&self) -> &DB {
        &self.db
    }

    /// What stands beside the rows; `None` in a database that has nothing at all.
    pub fn meta(&self) -> Result<Option<Meta>, StoreError> {
        let damaged = |message: String| StoreError::StoreDamaged { path: self.path.clone(), message };
        match self.db.get(META_KEY).map_err(|error| damaged(error.into_string()))? {
            Some(bytes) => {
                let body = bytes
                    .strip_prefix(&META_MAGIC)
                    .ok_or_else(|| damaged("its position is of an unknown format".to_owned()))?;
                codec::decode(body).map(Some).map_err(|error| damaged(format!("its position: {error}")))
            }
            None => match self.db.iterator(IteratorMode::Start).next() {
                None => Ok(None),
                Some(_) => Err(damaged("it has rows but no position".to_owned())),
            },
        }
    }

    /// The position as it is stored: its key, which comes before that of every row, and its bytes.
    pub fn meta_row(meta: &Meta) -> Result<([u8; 3], Vec<u8>), StoreError> {
        let body = codec::encode(meta)
            .map_err(|error| StoreError::Encode { what: "a position", message: error.to_string() })?;
        Ok((META_KEY, [&META_MAGIC[..], &body].concat()))
    }

    /// Puts the position into a batch.
    pub fn put_meta(batch: &mut WriteBatch, meta: &Meta) -> Result<(), StoreError> {
        let (key, position) = Engine::meta_row(meta)?;
        batch.put(key, position);
        Ok(())
    }

    /// Takes in a file of rows, written here in the order of their keys: all of it is there afterwards, durably, or
    /// nothing. The file is made at `path`, on the database's own disk, and moved in.
    pub fn take_in(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn Sink) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        path.parent().map_or(Ok(()), crate::disk::make)?;
        let mut options = options();
        // It is compressed again when it is merged into what is there.
        options.set_compression_options(-14, FAST, 0, 0);
        let mut sorted = Sorted { file: SstFileWriter::create(&options), path: path.to_owned() };
        sorted.file.open(path).map_err(|error| sorted.failed(error))?;
        fill(&mut sorted)?;
        sorted.file.finish().map_err(|error| sorted.failed(error))?;
        let mut moved = IngestExternalFileOptions::default();
        moved.set_move_files(true);
        self.db.ingest_external_file_opts(&moved, vec![path]).map_err(|error| sorted.failed(error))
    }

    /// Writes a batch: all of it is there afterwards, or nothing.
    pub fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        self.db.write(batch).map_err(|error| StoreError::System {
            what: "cannot write to the projection in",
            path: self.path.clone(),
            message: error.into_string(),
        })
    }

    /// The row of a key.
    pub fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<rocksdb::DBPinnableSlice<'_>>, TableError> {
        self.db.get_pinned(key).map_err(|error| {
            self.note(&error);
            unreadable(table, &error)
        })
    }

    /// The rows from `low` up to but without `high` (no end when empty).
    pub fn scan(&self, low: Vec<u8>, high: Vec<u8>, backwards: bool) -> impl Iterator<Item = Stored> {
        let mut reading = ReadOptions::default();
        reading.set_iterate_lower_bound(low);
        if !high.is_empty() {
            reading.set_iterate_upper_bound(high);
        }
        let mode = if backwards { IteratorMode::End } else { IteratorMode::Start };
        self.db.iterator_opt(mode, reading).inspect(|entry| {
            if let Err(error) = entry {
                self.note(error);
            }
        })
    }

    /// Where an error says that what is stored is damaged, the next start must not go on with it: a
    /// start reads live rows, but not all others.
    fn note(&self, error: &rocksdb::Error) {
        if error.kind() == ErrorKind::Corruption {
            // If even that cannot be written, the error still tells the cure.
            let _ = self.mark_damaged(error.as_ref());
        }
    }
}

/// Rows of a table that cannot be read, with the cure where there is one.
pub(crate) fn unreadable(table: &'static str, error: &rocksdb::Error) -> TableError {
    let message = match error.kind() {
        ErrorKind::Corruption => format!("{error}; restart gatelog: the projection is then rebuilt from the log"),
        _ => error.to_string(),
    };
    TableError::Store { table, message }
}

/// What an error while opening means.
fn opening(path: &Path, error: &rocksdb::Error) -> StoreError {
    let message = error.to_string();
    let path = path.to_owned();
    match error.kind() {
        // By RocksDB's own words: a path may well have a lock in its name.
        ErrorKind::IOError if message.contains("While lock file") || message.contains("lock hold by") => {
            StoreError::InUse { path }
        }
        ErrorKind::IOError if !message.contains("No such file") => {
            StoreError::System { what: "cannot open the projection in", path, message }
        }
        _ => StoreError::StoreDamaged { path, message },
    }
}
