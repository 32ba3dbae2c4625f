//! A blob store that nothing leaves: what is put is kept here, what is asked for comes from the record.

use gatelog_event_log::{BlobError, Blobs, MemoryBlobs};
use gatelog_record::BlobHash;

/// Blobs of a record, for reading, with others on top that go with it.
pub(crate) struct SealedBlobs<'a> {
    recorded: &'a dyn Blobs,
    own: MemoryBlobs,
}

impl<'a> SealedBlobs<'a> {
    pub(crate) fn over(recorded: &'a dyn Blobs) -> SealedBlobs<'a> {
        SealedBlobs { recorded, own: MemoryBlobs::new() }
    }
}

impl Blobs for SealedBlobs<'_> {
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        self.own.put(bytes)
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        match self.own.get(hash) {
            Err(BlobError::Missing(_)) => self.recorded.get(hash),
            other => other,
        }
    }

    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
        Ok(self.own.has(hash)? || self.recorded.has(hash)?)
    }

    fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
        let mut all = self.recorded.list()?;
        all.extend(self.own.list()?);
        Ok(all)
    }

    fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        self.own.remove(hash)
    }
}

/// A blob store that only says what a blob would be called.
pub(crate) struct NamingBlobs<'a>(pub(crate) &'a dyn Blobs);

impl Blobs for NamingBlobs<'_> {
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        Ok(BlobHash::of(bytes))
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        self.0.get(hash)
    }

    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
        self.0.has(hash)
    }

    fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
        self.0.list()
    }

    fn remove(&self, _: &BlobHash) -> Result<(), BlobError> {
        Ok(())
    }
}
