//! A look through the files that RocksDB reads record by record when it opens a database, before it does. Two things that
//! one flipped bit does are not named by RocksDB 11.8 itself:
//!
//! - A record of its MANIFEST whose length goes beyond the file's end is taken for one that was being written when the
//!   machine stopped, wherever it stands: what follows is passed over without a word, tables that were added too, and rows
//!   are missing. Here a manifest that is not whole to its last byte is damage. After a loss of power it may be so
//!   innocently; the start from a checkpoint costs little.
//! - It never comes back from a journal (its write-ahead log) or manifest in which a record that is not the first has the
//!   type of a recycled one, which these databases never have: `log::Reader::ReadPhysicalRecord` refuses it without
//!   passing it over, and `ReadRecord` asks again for ever.
//!
//! A journal that ends in the middle of a record is no damage: it is not waited for when rows are committed, and ends
//! at an older position that is whole.
//!
//! The format: <https://github.com/facebook/rocksdb/wiki/Write-Ahead-Log-File-Format>.

use std::path::Path;

use crate::disk;
use crate::error::StoreError;

/// Records do not go over the ends of blocks of so many bytes.
const BLOCK: usize = 32 << 10;
/// Checksum, length and type.
const HEADER: usize = 7;
/// What is added to a checksum that is stored.
const MASK: u32 = 0xa282_ead8;
/// The types of the pieces of a record: all of it, its first, one between, its last.
const PIECES: [u8; 4] = [1, 2, 3, 4];
/// The types of records in recycled logs.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];
/// More than any name in CURRENT.
const NAME: u64 = 256;

/// Whether RocksDB comes back from opening the database in a directory, and has all of it then.
///
/// # Errors
/// `StoreDamaged` with the file and the byte; `System`.
pub(crate) fn check(database: &Path) -> Result<(), StoreError> {
    let damaged = |message: String| StoreError::StoreDamaged { path: database.to_owned(), message };
    // Which of several manifests is read. What CURRENT names and is not there is RocksDB's to name.
    let current = database.join("CURRENT");
    let current = if disk::is_there(&current) { disk::read(&current, NAME)? } else { None };
    let current = current.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    for name in disk::names(database)? {
        let is_manifest = name == current.trim_end();
        if is_manifest || name.ends_with(".log") {
            let mut reader = Reader::default();
            disk::each_piece(&database.join(&name), |piece| reader.take(piece))?;
            reader.end();
            if let Some((byte, kind)) = reader.recycled {
                return Err(damaged(format!(
                    "byte {byte} of {name} begins a record of type {kind}, which is never written here"
                )));
            }
            if let Some(byte) = reader.broken.filter(|_| is_manifest) {
                return Err(damaged(format!("{name} is not whole from byte {byte} on")));
            }
        }
    }
    Ok(())
}

/// Reads as RocksDB does.
#[derive(Default)]
struct Reader {
    block: Vec<u8>,
    /// Bytes before the block.
    before: u64,
    /// Where a record began that did not end yet.
    begun: Option<u64>,
    /// The first record of a recycled log, and its type.
    recycled: Option<(u64, u8)>,
    /// The first byte that is not of a whole record.
    broken: Option<u64>,
}

impl Reader {
    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (now, rest) = piece.split_at(piece.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            piece = rest;
            if self.block.len() == BLOCK {
                self.look_through();
            }
        }
    }

    /// After the last byte.
    fn end(&mut self) {
        self.look_through();
        self.broken = self.broken.or(self.begun);
    }

    fn look_through(&mut self) {
        let mut at = 0;
        while let Some((header, rest)) = self.block.get(at..).and_then(|left| left.split_first_chunk::<HEADER>()) {
            let place = self.before + at as u64;
            let [c0, c1, c2, c3, l0, l1, kind] = *header;
            if self.recycled.is_none() && RECYCLED.contains(&kind) {
                self.recycled = Some((place, kind));
            }
            let length = usize::from(u16::from_le_bytes([l0, l1]));
            let stored = u32::from_le_bytes([c0, c1, c2, c3]).wrapping_sub(MASK).rotate_left(15);
            let whole = rest
                .get(..length)
                .is_some_and(|payload| stored == crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload));
            let follows = PIECES.contains(&kind) && self.begun.is_some() == matches!(kind, 3 | 4);
            if !whole || !follows {
                self.broken = self.broken.or(Some(place));
            }
            // The rest of a block behind something damaged is not read.
            if !whole {
                break;
            }
            match kind {
                2 => self.begun = Some(place),
                3 => {}
                _ => self.begun = None,
            }
            at += HEADER + length;
        }
        // The end of a whole block has no room for a header and is left empty.
        let left = self.block.get(at..).unwrap_or_default();
        if !left.is_empty() && (self.block.len() < BLOCK || left.iter().any(|byte| *byte != 0)) {
            self.broken = self.broken.or(Some(self.before + at as u64));
        }
        self.before += self.block.len() as u64;
        self.block.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_and_a_journal_of_many_blocks_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let database = rocksdb::DB::open_default(dir.path()).unwrap();
        // A record of the manifest for each table, and a journal with records that go over the ends of blocks.
        for number in 0_u32..600 {
            database.put(number.to_be_bytes(), [7; 100]).unwrap();
            database.flush().unwrap();
        }
        for number in 0_u32..40 {
            database.put(number.to_be_bytes(), vec![7; 5_000 + number as usize * 997]).unwrap();
        }
        drop(database);
        let named = |ends: fn(&str) -> bool| {
            let names = disk::names(dir.path()).unwrap();
            names
                .iter()
                .filter(|name| ends(name))
                .map(|name| disk::size(&dir.path().join(name)).unwrap())
                .max()
                .unwrap()
        };
        let (manifest, journal) = (named(|name| name.starts_with("MANIFEST-")), named(|name| name.ends_with(".log")));
        assert!(manifest > 2 * BLOCK as u64, "{manifest} bytes are no two blocks");
        assert!(journal > 10 * BLOCK as u64, "{journal} bytes are no ten blocks");
        check(dir.path()).unwrap();
    }
}
