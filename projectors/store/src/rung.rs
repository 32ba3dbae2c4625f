//! Rungs: the live tables alone, at one sequence, as one file. Time travel begins at the nearest.
//!
//! Layout, little endian:
//!
//! | field | bytes | |
//! |---|---|---|
//! | magic | 8 | `GLRUNG` and two zero bytes |
//! | format | 2 | [`FORMAT`] |
//! | header | 4 + n | [`RungHeader`] |
//! | rows | 8 + n | zstd of the canonical rows |
//! | SHA-256 | 32 | over all before |
//!
//! Canonical rows: for each table in the order of its declaration its number (2), the count of its
//! rows (8), and for each row in key order key and row, each with its length before it (4). The
//! header's digest is that of the tables ([`StateDigest`]), whatever they are kept in.

use std::path::{Path, PathBuf};

use gatelog_record::{Partition, codec};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::{
    Backing, DomainState, Factory, MapTable, Maps, TableDef, TableError, TableExt, TableKey, TableSet, TableVisitor,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::{make, names, write_whole};
use crate::error::{StoreError, StoreWarning};
use crate::position::Position;

/// The newest format of a rung's file.
pub const FORMAT: u16 = 1;
const MAGIC: [u8; 8] = *b"GLRUNG\0\0";
const HASH: usize = 32;
/// The largest file read, and the most bytes of rows it may unfold to.
const MAX_BYTES: u64 = 2 << 30;
/// The largest header.
const MAX_HEADER: usize = 64 << 10;
/// The most bytes of rows that a byte of a rung can unfold to: a block of zstd has four bytes at least and unfolds to
/// 128 KiB at most. Room is made for what a header says only as far as this.
const MAX_UNFOLDED: u64 = (128 << 10) / 4;

/// What a rung says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RungHeader {
    /// The domain's number.
    pub domain: u8,
    /// The partition's index.
    pub index: u32,
    /// Where the state stands.
    pub position: Position,
    /// The version of the live tables.
    pub live_schema: u32,
    /// The digest of the live tables.
    pub digest: [u8; 32],
    /// How many bytes the rows unfold to.
    pub rows_bytes: u64,
}

/// A rung read and checked.
pub struct Rung<S: DomainState> {
    /// What it says of itself.
    pub header: RungHeader,
    /// The live tables.
    pub live: S::Live<Maps>,
}

/// A rung ready to be written.
#[derive(Clone, Debug)]
pub struct EncodedRung {
    sequence: u64,
    live_schema: u32,
    bytes: Vec<u8>,
}

/// One rung's file, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RungEntry {
    /// Its sequence.
    pub sequence: u64,
    /// The version of its live tables.
    pub live_schema: u32,
    /// The file.
    pub path: PathBuf,
}

/// The rows of a rung and where they stand: quickly taken, to be encoded later or elsewhere.
#[derive(Clone, Debug)]
pub struct RungRows {
    partition: Partition,
    position: Position,
    live_schema: u32,
    rows: Vec<u8>,
}

impl RungRows {
    /// The rows of live tables at a position.
    ///
    /// # Errors
    /// `Encode`.
    pub fn take<S: DomainState, B: Backing>(
        partition: Partition,
        position: &Position,
        live: &S::Live<B>,
    ) -> Result<RungRows, StoreError> {
        let rows = rows_of(live).map_err(|error| StoreError::Encode { what: "a rung", message: error.to_string() })?;
        Ok(RungRows { partition, position: *position, live_schema: S::LIVE_SCHEMA, rows })
    }

    /// The rung of these rows.
    ///
    /// # Errors
    /// `Encode`.
    pub fn encode(self) -> Result<EncodedRung, StoreError> {
        let encode = |message: String| StoreError::Encode { what: "a rung", message };
        let RungRows { partition, position, live_schema, rows } = self;
        let header = RungHeader {
            domain: partition.domain as u8,
            index: partition.index,
            position,
            live_schema,
            digest: digest_of(&rows).ok_or_else(|| encode("its rows end too early".to_owned()))?,
            rows_bytes: rows.len() as u64,
        };
        let head = codec::encode(&header).map_err(|error| encode(error.to_string()))?;
        let body = zstd::bulk::compress(&rows, 3).map_err(|error| encode(error.to_string()))?;
        let mut bytes = Vec::with_capacity(head.len() + body.len() + 64);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        let hash: [u8; HASH] = Sha256::digest(&bytes).into();
        bytes.extend_from_slice(&hash);
        Ok(EncodedRung { sequence: position.sequence, live_schema, bytes })
    }
}

impl EncodedRung {
    /// The rung of live tables at a position.
    ///
    /// # Errors
    /// `Encode`.
    pub fn new<S: DomainState, B: Backing>(
        partition: Partition,
        position: &Position,
        live: &S::Live<B>,
    ) -> Result<EncodedRung, StoreError> {
        RungRows::take::<S, B>(partition, position, live)?.encode()
    }

    /// The name of its file in a [`RungDir`].
    pub fn file_name(&self) -> String {
        format!("{:020}-l{}.rung", self.sequence, self.live_schema)
    }

    /// What stands in its file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A directory of rungs of one partition.
#[derive(Clone, Debug)]
pub struct RungDir {
    dir: PathBuf,
}

impl RungDir {
    /// The rungs in this directory, which need not be there yet.
    pub fn new(dir: impl Into<PathBuf>) -> RungDir {
        RungDir { dir: dir.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Writes a rung; it is there whole or not at all, and durable when this returns.
    ///
    /// # Errors
    /// `System`.
    pub fn put(&self, rung: &EncodedRung) -> Result<PathBuf, StoreError> {
        make(&self.dir)?;
        let path = self.file(rung.sequence, rung.live_schema);
        write_whole(&path, &rung.bytes)?;
        Ok(path)
    }

    /// Whether the rung of a position is there, whole: then it need not be made again.
    pub fn holds<S: DomainState>(&self, partition: Partition, position: &Position) -> bool {
        let path = self.file(position.sequence, S::LIVE_SCHEMA);
        let here = (partition.domain as u8, partition.index, position.link);
        crate::disk::is_there(&path)
            && header(&path).is_ok_and(|found| (found.domain, found.index, found.position.link) == here)
    }

    fn file(&self, sequence: u64, live_schema: u32) -> PathBuf {
        self.dir.join(format!("{sequence:020}-l{live_schema}.rung"))
    }

    /// Every rung by its name, oldest first. Content is not looked at.
    ///
    /// # Errors
    /// `System`.
    pub fn list(&self) -> Result<Vec<RungEntry>, StoreError> {
        let mut found: Vec<RungEntry> = names(&self.dir)?
            .into_iter()
            .filter_map(|name| {
                let (sequence, live_schema) = name.strip_suffix(".rung")?.split_once("-l")?;
                let (sequence, live_schema) = (sequence.parse().ok()?, live_schema.parse().ok()?);
                Some(RungEntry { sequence, live_schema, path: self.dir.join(name) })
            })
            .collect();
        found.sort();
        Ok(found)
    }

    /// The newest usable rung at or before a sequence. What is damaged, of another state schema or
    /// of another partition is passed over and told.
    ///
    /// # Errors
    /// `System`.
    pub fn nearest<S: DomainState>(
        &self,
        partition: Partition,
        sequence: u64,
        warnings: &mut Vec<StoreWarning>,
    ) -> Result<Option<Rung<S>>, StoreError> {
        for entry in self.list()?.into_iter().rev().filter(|entry| entry.sequence <= sequence) {
            match read::<S>(&entry.path, partition) {
                Ok(rung) => return Ok(Some(rung)),
                Err(error) => warnings.push(StoreWarning::RungPassedOver(error)),
            }
        }
        Ok(None)
    }

    /// Deletes every rung after a sequence: after an older log was adopted they tell of a history
    /// that is no more.
    ///
    /// # Errors
    /// `System`.
    pub fn discard_after(&self, sequence: u64) -> Result<usize, StoreError> {
        let late: Vec<RungEntry> = self.list()?.into_iter().filter(|entry| entry.sequence > sequence).collect();
        for entry in &late {
            crate::disk::remove_file(&entry.path)?;
        }
        Ok(late.len())
    }
}

/// A rung's header and rows, still folded; the file's hash is checked.
fn open(path: &Path) -> Result<(RungHeader, Vec<u8>), StoreError> {
    let damaged = |message: &str| StoreError::RungDamaged { path: path.to_owned(), message: message.to_owned() };
    let bytes = crate::disk::read(path, MAX_BYTES)?.ok_or_else(|| damaged("it is larger than any rung"))?;
    let (content, hash) = bytes.split_last_chunk::<HASH>().ok_or_else(|| damaged("it ends too early"))?;
    let computed: [u8; HASH] = Sha256::digest(content).into();
    if computed != *hash {
        return Err(damaged("its hash does not fit its content"));
    }
    let mut rest = content.strip_prefix(&MAGIC).ok_or_else(|| damaged("it is no rung"))?;
    let format = u16::from_le_bytes(take(&mut rest).ok_or_else(|| damaged("it ends too early"))?);
    if format != FORMAT {
        let message = format!("its format is {format}, this gatelog knows {FORMAT}");
        return Err(StoreError::RungOther { path: path.to_owned(), message });
    }
    let length = u32::from_le_bytes(take(&mut rest).ok_or_else(|| damaged("it ends too early"))?) as usize;
    if length > MAX_HEADER {
        return Err(damaged("its header is too long"));
    }
    let (head, mut rest) = rest.split_at_checked(length).ok_or_else(|| damaged("it ends too early"))?;
    let header: RungHeader = codec::decode(head).map_err(|error| damaged(&format!("its header: {error}")))?;
    let length = u64::from_le_bytes(take(&mut rest).ok_or_else(|| damaged("it ends too early"))?);
    if length != rest.len() as u64 || header.rows_bytes > MAX_BYTES.min(length.saturating_mul(MAX_UNFOLDED)) {
        return Err(damaged("its length does not fit"));
    }
    Ok((header, rest.to_vec()))
}

/// What a rung says of itself; the file's hash is checked, the rows are not looked at.
///
/// # Errors
/// `RungDamaged`, `RungOther`, `System`.
pub fn header(path: &Path) -> Result<RungHeader, StoreError> {
    open(path).map(|(header, _)| header)
}

/// Reads and checks a rung: hash, partition, state schema, digest.
///
/// # Errors
/// `RungDamaged`, `RungOther`, `System`.
pub fn read<S: DomainState>(path: &Path, partition: Partition) -> Result<Rung<S>, StoreError> {
    let damaged = |message: String| StoreError::RungDamaged { path: path.to_owned(), message };
    let other = |message: String| StoreError::RungOther { path: path.to_owned(), message };
    let (header, body) = open(path)?;
    if (header.domain, header.index) != (partition.domain as u8, partition.index) {
        return Err(other(format!("it is of domain {} partition {}, not of {partition}", header.domain, header.index)));
    }
    if header.live_schema != S::LIVE_SCHEMA {
        return Err(other(format!("its state schema is {}, this gatelog's is {}", header.live_schema, S::LIVE_SCHEMA)));
    }
    let rows = zstd::bulk::decompress(&body, usize::try_from(header.rows_bytes).unwrap_or(0))
        .map_err(|error| damaged(error.to_string()))?;
    if rows.len() as u64 != header.rows_bytes {
        return Err(damaged(format!("it unfolds to {} bytes, not to the {} it names", rows.len(), header.rows_bytes)));
    }
    let live: S::Live<Maps> = tables_of(&rows).map_err(|error| damaged(error.to_string()))?;
    let mut digest = StateDigest::default();
    live.visit(&mut digest).map_err(|error| damaged(error.to_string()))?;
    if digest.finish() != header.digest {
        return Err(damaged("its rows do not have the digest it names".to_owned()));
    }
    Ok(Rung { header, live })
}

/// The canonical rows of tables: the same bytes for equal tables, whatever they are kept in.
///
/// # Errors
/// What the tables say.
pub fn rows_of<B: Backing>(tables: &impl TableSet<B>) -> Result<Vec<u8>, TableError> {
    let mut rows = Rows::default();
    tables.visit(&mut rows)?;
    Ok(rows.bytes)
}

/// The digest of canonical rows: that of the tables they are of. `None` when they end too early.
fn digest_of(rows: &[u8]) -> Option<[u8; 32]> {
    let mut digest = StateDigest::default();
    let mut loader = Loader { rest: rows };
    while !loader.rest.is_empty() {
        let number = u16::from_le_bytes(take(&mut loader.rest)?);
        for _ in 0..u64::from_le_bytes(take(&mut loader.rest)?) {
            digest.row(number, loader.part()?, loader.part()?);
        }
    }
    Some(digest.finish())
}

/// The tables of canonical rows, in memory.
///
/// # Errors
/// The bytes are not these tables' rows.
pub fn tables_of<L: TableSet<Maps>>(rows: &[u8]) -> Result<L, TableError> {
    let mut loader = Loader { rest: rows };
    let tables = L::open(&mut loader)?;
    if !loader.rest.is_empty() {
        let message = format!("{} bytes of rows are left over", loader.rest.len());
        return Err(TableError::Store { table: "rows", message });
    }
    Ok(tables)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// Writes rows down.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
}

impl Rows {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }
}

impl<B: Backing> TableVisitor<B> for Rows {
    fn visit<T: TableDef>(&mut self, table: &B::Table<T>) -> Result<(), TableError> {
        self.bytes.extend_from_slice(&T::ID.to_le_bytes());
        let count_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        let mut count = 0_u64;
        for entry in table.all()? {
            let (key, row) = entry?;
            let row = codec::encode(row.as_ref())
                .map_err(|error| TableError::Store { table: T::NAME, message: error.to_string() })?;
            self.put(&key.to_bytes());
            self.put(&row);
            count += 1;
        }
        if let Some(place) = self.bytes.get_mut(count_at..count_at + 8) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        Ok(())
    }
}

/// Reads rows back into maps.
struct Loader<'r> {
    rest: &'r [u8],
}

impl<'r> Loader<'r> {
    fn part(&mut self) -> Option<&'r [u8]> {
        let length = u32::from_le_bytes(take(&mut self.rest)?) as usize;
        let (part, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(part)
    }
}

impl Factory<Maps> for Loader<'_> {
    fn open<T: TableDef>(&mut self) -> Result<MapTable<T>, TableError> {
        let wrong = |message: &str| TableError::Store { table: T::NAME, message: message.to_owned() };
        let number = take(&mut self.rest).map(u16::from_le_bytes);
        if number != Some(T::ID) {
            return Err(wrong("another table stands in its place"));
        }
        let count = take(&mut self.rest).map(u64::from_le_bytes).ok_or_else(|| wrong("it ends too early"))?;
        let mut table = MapTable::default();
        for _ in 0..count {
            let (key, row) = self.part().zip(self.part()).ok_or_else(|| wrong("it ends too early"))?;
            let damaged = |message: String| TableError::Row { table: T::NAME, key: hex::encode(key), message };
            let parsed = T::Key::from_bytes(key).map_err(|error| damaged(error.to_string()))?;
            let row = codec::decode(row).map_err(|error| damaged(error.to_string()))?;
            table.rows.insert(parsed, row);
        }
        Ok(table)
    }
}
