//! Blobs that are put again until the store takes them, for those who work for the gate: that this process has no room for
//! a blob says nothing of a change, and must never become its verdict.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gatelog_event_log::{BlobError, Blobs};
use gatelog_record::BlobHash;
use gatelog_room::Lack;

/// How long the first wait is; doubled each time up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// How often it is said that something waits.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// A store that keeps what is put as soon as it can, or the process is to end.
pub struct PatientBlobs {
    blobs: Arc<dyn Blobs>,
    stop: Arc<AtomicBool>,
    waiting: Mutex<Waiting>,
}

/// Those who wait now.
#[derive(Default)]
struct Waiting {
    count: usize,
    /// What the store said last.
    said: String,
}

impl PatientBlobs {
    /// Waits for this store until `stop` is set.
    pub fn new(blobs: Arc<dyn Blobs>, stop: Arc<AtomicBool>) -> PatientBlobs {
        PatientBlobs { blobs, stop, waiting: Mutex::default() }
    }

    /// Why something waits, and what to do; `None`: nothing does.
    pub fn trouble(&self) -> Option<String> {
        let waiting = self.waiting();
        (waiting.count > 0).then(|| {
            format!("work waits until its blobs can be kept: {}; make room: it then goes on by itself", waiting.said)
        })
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_until<T>(&self, put: impl Fn(&dyn Blobs) -> Result<T, BlobError>) -> Result<T, BlobError> {
        let first = match put(&*self.blobs) {
            Err(error @ BlobError::Store { .. }) => error,
            answer => return answer,
        };
        self.waiting().count += 1;
        let answer = self.again(first, put);
        self.waiting().count -= 1;
        answer
    }

    /// Reading fails for want of room, too: of file descriptors or memory. Any other failure is told at once.
    fn read_until<T>(&self, read: impl Fn(&dyn Blobs) -> Result<T, BlobError>) -> Result<T, BlobError> {
        match read(&*self.blobs) {
            Err(BlobError::Store { message, .. }) if Lack::of_text(&message).is_some() => self.put_until(read),
            answer => answer,
        }
    }

    fn again<T>(&self, mut error: BlobError, put: impl Fn(&dyn Blobs) -> Result<T, BlobError>) -> Result<T, BlobError> {
        let (mut pause, mut said) = (FIRST, None::<Instant>);
        while !self.stop.load(Ordering::Relaxed) {
            self.waiting().said = error.to_string();
            if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
                tracing::warn!(%error, "a blob cannot be kept or read; it is tried again until it is");
                said = Some(Instant::now());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST);
            match put(&*self.blobs) {
                Err(next @ BlobError::Store { .. }) => error = next,
                answer => return answer,
            }
        }
        Err(error)
    }
}

impl Blobs for PatientBlobs {
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        self.put_until(|blobs| blobs.put(bytes))
    }

    fn put_many(&self, all: &[&[u8]]) -> Result<Vec<BlobHash>, BlobError> {
        self.put_until(|blobs| blobs.put_many(all))
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        self.read_until(|blobs| blobs.get(hash))
    }

    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
        self.read_until(|blobs| blobs.has(hash))
    }

    fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
        self.blobs.list()
    }

    fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        self.blobs.remove(hash)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use gatelog_event_log::MemoryBlobs;

    use super::*;

    fn full() -> BlobError {
        BlobError::Store { what: "writing", message: "No space left on device".into() }
    }

    #[test]
    fn a_blob_waits_for_room_and_it_is_told_meanwhile() {
        let stop = Arc::new(AtomicBool::new(false));
        let blobs = Arc::new(PatientBlobs::new(Arc::new(MemoryBlobs::new()), Arc::clone(&stop)));
        assert_eq!(blobs.trouble(), None);
        let (tried, seen) = (AtomicU32::new(0), Mutex::new(None));
        let put = |store: &dyn Blobs| match tried.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(full()),
            _ => {
                *seen.lock().unwrap() = blobs.trouble();
                store.put(b"kept")
            }
        };
        let hash = blobs.put_until(put).unwrap();
        assert_eq!(blobs.get(&hash).unwrap(), b"kept");
        let told = seen.into_inner().unwrap().unwrap();
        assert!(told.contains("No space left on device") && told.contains("make room"), "{told}");
        assert_eq!(blobs.trouble(), None);
    }

    #[test]
    fn what_no_room_would_help_is_told_at_once_and_the_end_of_the_process_is_not_waited_for() {
        let stop = Arc::new(AtomicBool::new(false));
        let blobs = PatientBlobs::new(Arc::new(MemoryBlobs::new()), Arc::clone(&stop));
        let large = BlobError::TooLarge { size: 2, limit: 1 };
        assert_eq!(blobs.put_until(|_| Err::<(), _>(large.clone())), Err(large));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(blobs.put_until(|_| Err::<(), _>(full())), Err(full()));
    }
}
