//! Blobs of several pieces of work, written at once.
//!
//! A blob that is put is waited for: its file, then the directory it stands in. Many that are put together wait about as
//! long as one. So a lane that has more to do collects what its work puts, writes it, and only then tells the outcomes
//! that name it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gatelog_event_log::{BlobError, Blobs};
use gatelog_record::BlobHash;

/// How many bytes may wait to be written.
const WAITING: usize = 16 << 20;

/// A store that keeps what is put until it is told to write. **Nothing that names these blobs may leave before.**
pub(crate) struct Together {
    store: Arc<dyn Blobs>,
    waiting: Mutex<BTreeMap<BlobHash, Vec<u8>>>,
}

impl Together {
    /// In front of this store.
    pub(crate) fn new(store: Arc<dyn Blobs>) -> Together {
        Together { store, waiting: Mutex::default() }
    }

    /// Writes what was put, durably. Where that fails nothing waits any more, and some of it may be there.
    pub(crate) fn write(&self) -> Result<(), BlobError> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if waiting.is_empty() {
            return Ok(());
        }
        let all: Vec<&[u8]> = waiting.values().map(Vec::as_slice).collect();
        self.store.put_many(&all).map(drop)
    }
}

impl Blobs for Together {
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        let hash = BlobHash::of(bytes);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(hash).or_insert_with(|| bytes.to_vec());
        if waiting.values().map(Vec::len).sum::<usize>() <= WAITING {
            return Ok(hash);
        }
        drop(waiting);
        self.write().map(|()| hash)
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned();
        waiting.map_or_else(|| self.store.get(hash), Ok)
    }

    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
        let waits = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(hash);
        if waits { Ok(true) } else { self.store.has(hash) }
    }

    fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
        self.store.list()
    }

    fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(hash);
        self.store.remove(hash)
    }
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryBlobs;

    use super::*;

    #[test]
    fn what_is_put_is_read_at_once_and_in_the_store_when_it_was_written() {
        let store = Arc::new(MemoryBlobs::new());
        let together = Together::new(Arc::<MemoryBlobs>::clone(&store));
        let hash = together.put(b"one").unwrap();
        assert_eq!(together.put(b"one"), Ok(hash));
        assert_eq!((together.get(&hash), together.has(&hash)), (Ok(b"one".to_vec()), Ok(true)));
        assert_eq!((store.has(&hash), together.list()), (Ok(false), Ok(vec![])));
        together.write().unwrap();
        assert_eq!((store.get(&hash), together.get(&hash)), (Ok(b"one".to_vec()), Ok(b"one".to_vec())));
        together.write().unwrap();
        together.remove(&hash).unwrap();
        assert_eq!(together.get(&hash), Err(BlobError::Missing(hash)));
    }

    #[test]
    fn too_much_is_written_before_it_is_asked_for() {
        let store = Arc::new(MemoryBlobs::new());
        let together = Together::new(Arc::<MemoryBlobs>::clone(&store));
        let first = together.put(&vec![1; WAITING]).unwrap();
        assert_eq!(store.has(&first), Ok(false));
        let second = together.put(b"one more").unwrap();
        assert_eq!((store.has(&first), store.has(&second)), (Ok(true), Ok(true)));
    }
}
