//! A look through the files that RocksDB reads record by record when it opens, before it does.
//!
//! RocksDB 11.8 never comes back from a MANIFEST or write-ahead log in which a record that is not the first has the type
//! of a recycled one: `log::Reader::ReadPhysicalRecord` refuses it without passing it over, and `ReadRecord` asks again
//! for ever. A recycled log is something these databases never have, so one flipped bit is enough, and a start would
//! hang. Everything else that can be wrong in these files RocksDB names itself.
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
/// The types of records in recycled logs.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];

/// Whether RocksDB comes back from opening the database in a directory.
///
/// # Errors
/// `StoreDamaged` with the file and the byte; `System`.
pub(crate) fn check(database: &Path) -> Result<(), StoreError> {
    for name in disk::names(database)? {
        // Of several manifests CURRENT names one; the others are removed soon, and whole until then.
        if name.starts_with("MANIFEST-") || name.ends_with(".log") {
            let mut reader = Reader::default();
            disk::each_piece(&database.join(&name), |piece| reader.take(piece))?;
            reader.end();
            if let Some((byte, kind)) = reader.recycled {
                let message =
                    format!("byte {byte} of {name} begins a record of type {kind}, which is never written here");
                return Err(StoreError::StoreDamaged { path: database.to_owned(), message });
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
    recycled: Option<(u64, u8)>,
}

impl Reader {
    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && self.recycled.is_none() {
            let (now, rest) = piece.split_at(piece.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            piece = rest;
            if self.block.len() == BLOCK {
                self.end();
            }
        }
    }

    /// Looks through the block.
    fn end(&mut self) {
        let mut at = 0;
        while let Some((header, rest)) = self.block.get(at..).and_then(|left| left.split_first_chunk::<HEADER>()) {
            let [c0, c1, c2, c3, l0, l1, kind] = *header;
            if self.recycled.is_none() && RECYCLED.contains(&kind) {
                self.recycled = Some((self.before + at as u64, kind));
            }
            let length = usize::from(u16::from_le_bytes([l0, l1]));
            let Some(payload) = rest.get(..length) else { break };
            let stored = u32::from_le_bytes([c0, c1, c2, c3]).wrapping_sub(MASK);
            // The rest of a block behind something damaged is not read.
            if stored.rotate_left(15) != crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload) {
                break;
            }
            at += HEADER + length;
        }
        self.before += self.block.len() as u64;
        self.block.clear();
    }
}
