//! One digest for a state, whatever it is kept in.

use gatelog_record::codec;
use sha2::{Digest, Sha256};

use crate::key::TableKey;
use crate::table::{Backing, TableDef, TableError, TableExt, TableVisitor};

/// SHA-256 over every row of every visited table: table number, key bytes, row bytes, each with its
/// length before it. Equal states have equal digests on every backing and every machine.
#[derive(Debug, Default)]
pub struct StateDigest {
    hash: Sha256,
}

impl StateDigest {
    /// Takes in one row. Whoever has the bytes at hand anyway need not write them down twice.
    pub fn row(&mut self, table: u16, key: &[u8], row: &[u8]) {
        self.hash.update(table.to_le_bytes());
        self.hash.update((key.len() as u32).to_le_bytes());
        self.hash.update(key);
        self.hash.update((row.len() as u32).to_le_bytes());
        self.hash.update(row);
    }

    /// The digest.
    pub fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

impl<B: Backing> TableVisitor<B> for StateDigest {
    fn visit<T: TableDef>(&mut self, table: &B::Table<T>) -> Result<(), TableError> {
        for entry in table.all()? {
            let (key, row) = entry?;
            let key = key.to_bytes();
            let row = codec::encode(row.as_ref())
                .map_err(|error| TableError::Store { table: T::NAME, message: error.to_string() })?;
            self.row(T::ID, &key, &row);
        }
        Ok(())
    }
}
