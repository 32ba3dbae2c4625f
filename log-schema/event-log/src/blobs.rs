//! The blob store's contract: content by its hash.
//!
//! # Operations
//! [`Blobs::put`], [`Blobs::get`], [`Blobs::has`], and for maintenance [`Blobs::list`] and
//! [`Blobs::remove`] (mark and sweep: a caller that knows every hash a log names may remove what is
//! not among them, and nothing younger than its mark).
//!
//! # Guarantees
//! - When `put` has returned, the blob survives what the implementation says (see
//!   [`crate::Survives`]), under the SHA-256 of its bytes. Putting it again does nothing.
//! - `get` gives exactly the bytes that were put, or an error: content is checked against its name.
//!
//! # Non-guarantees
//! - No order between blobs, no listing order, no deletion by itself.
//!
//! # Failures
//! A missing blob is [`BlobError::Missing`], a damaged one [`BlobError::Damaged`]: named errors for
//! whoever asked, never an empty value.

use gatelog_record::BlobHash;

/// Why a blob could not be had or put.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// It is not there.
    #[error("blob {0} is missing: restore it from a backup or export of this log")]
    Missing(BlobHash),
    /// What is there is not it.
    #[error("blob {hash} is damaged at {place}: restore it from a backup or export of this log")]
    Damaged {
        /// Its name.
        hash: BlobHash,
        /// Where it is kept.
        place: String,
    },
    /// It is larger than the store takes.
    #[error("a blob of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The store itself failed.
    #[error("blob store: {what}: {message}")]
    Store {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        message: String,
    },
}

/// The largest blob, in bytes.
pub const MAX_BLOB: u64 = 256 << 20;

/// A content-addressed store.
pub trait Blobs: Send + Sync {
    /// Keeps the bytes and returns their name once they are durable.
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError>;
    /// Puts several, where it can be with fewer waits for the disk than one by one. Gives their names in order. Where it
    /// fails, some of them may be there.
    fn put_many(&self, blobs: &[&[u8]]) -> Result<Vec<BlobHash>, BlobError> {
        blobs.iter().map(|bytes| self.put(bytes)).collect()
    }
    /// The bytes of this name.
    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError>;
    /// Whether a blob of this name is there; says nothing of its content.
    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError>;
    /// Every name there is, in no order.
    fn list(&self) -> Result<Vec<BlobHash>, BlobError>;
    /// Takes a blob away; doing so for one that is not there is no error.
    fn remove(&self, hash: &BlobHash) -> Result<(), BlobError>;
}
