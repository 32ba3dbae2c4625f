//! Rows on their way into the database beside the fold.
//!
//! While a projection is far behind its log, its rows are gathered over many events, sorted as they are, written
//! into one file of the database's own format and taken in whole: no write-ahead log, no table in memory, and the
//! position in the same file. The fold goes on meanwhile, on another thread, and sees what it handed over
//! ([`crate::Projection::stage`]) on top of what is stored until it is told that it is there
//! ([`crate::Projection::settle`]). If anything dies before, the database stands where it stood.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use rocksdb::{SstFileWriter, WriteBatch};

use crate::engine::{Engine, Meta};
use crate::error::StoreError;

/// What rows are written to.
pub(crate) trait Sink {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), StoreError>;
    fn delete(&mut self, key: &[u8]) -> Result<(), StoreError>;
}

impl Sink for WriteBatch {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), StoreError> {
        WriteBatch::put(self, key, row);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        WriteBatch::delete(self, key);
        Ok(())
    }
}

/// A file of the database in the making: keys come in order.
pub(crate) struct Sorted<'w> {
    pub file: SstFileWriter<'w>,
    pub path: PathBuf,
}

impl Sorted<'_> {
    pub(crate) fn failed(&self, error: rocksdb::Error) -> StoreError {
        StoreError::System { what: "cannot write", path: self.path.clone(), message: error.into_string() }
    }
}

impl Sink for Sorted<'_> {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), StoreError> {
        self.file.put(key, row).map_err(|error| self.failed(error))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.file.delete(key).map_err(|error| self.failed(error))
    }
}

/// A table's changed rows, whatever the table.
pub(crate) trait TableRows: Send {
    /// The table's number.
    fn number(&self) -> u16;
    /// Writes them in key order.
    fn write(&self, sink: &mut dyn Sink) -> Result<(), StoreError>;
}

/// Rows that were written and that nobody needs any more.
pub struct Settled {
    pub(crate) _rows: Vec<Box<dyn Any + Send>>,
}

impl std::fmt::Debug for Settled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settled").finish_non_exhaustive()
    }
}

/// Rows and position to be written beside the fold.
#[must_use = "the rows are nowhere until they are written"]
pub struct Staged {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tables: Vec<Box<dyn TableRows>>,
    pub(crate) meta: Meta,
    pub(crate) path: PathBuf,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("position", &self.meta.position).finish_non_exhaustive()
    }
}

impl Staged {
    /// Writes them: all of it is there afterwards, durably, or nothing. May run on any thread, but one after the
    /// other, in the order in which they were handed over.
    ///
    /// # Errors
    /// `Encode`, `System`.
    pub fn write(mut self) -> Result<(), StoreError> {
        self.tables.sort_by_key(|table| table.number());
        self.engine.take_in(&self.path, |sink| {
            // The position's key comes before those of all tables.
            let (key, position) = Engine::meta_row(&self.meta)?;
            sink.put(&key, &position)?;
            self.tables.iter().try_for_each(|table| table.write(sink))
        })
    }
}
