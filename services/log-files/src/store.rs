//! Where files and manifests are: a directory of this host, or S3.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use gatelog_record::BuildId;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig, WriteMultipart};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use crate::http::{self, Connector};
use crate::manifest::{Digest, Manifest, Removal};

/// The largest manifest that is read, in bytes.
const LARGEST_MANIFEST: u64 = 64 << 20;
/// Files up to this size go in one piece, larger ones in pieces of it, in bytes.
const PIECE: usize = 8 << 20;
/// Pieces of one file on their way at once.
const PIECES: usize = 2;
/// Content that was put into the store longer ago is put there again: retention leaves what is younger than
/// [`crate::retention::YOUNGEST`] alone, also where no manifest names it yet.
const FRESH: Duration = Duration::from_secs(30 * 60);
/// Locks on content, by the first bits of its digest.
const LOCKS: usize = 64;

/// Why the store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be used.
    #[error("the directory {path} for logs of jobs cannot be used: {why}")]
    Directory {
        /// The directory.
        path: String,
        /// What the system says.
        why: io::Error,
    },
    /// The settings of S3 do not go together.
    #[error("logs of jobs cannot be kept in S3: {0}")]
    Setting(String),
    /// It could not be read or written.
    #[error("{key} in {place}: {why}")]
    Store {
        /// What was asked for.
        key: String,
        /// The store.
        place: String,
        /// What it says.
        why: object_store::Error,
    },
    /// A document there is damaged.
    #[error("{key} in {place} is damaged: {why}")]
    Damaged {
        /// The document.
        key: String,
        /// The store.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file of the job changed while it was read, or cannot be read.
    #[error("it cannot be read: {0}")]
    Source(io::Error),
}

impl StoreError {
    /// Whether it is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, StoreError::Store { why: object_store::Error::NotFound { .. }, .. })
    }
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> io::Error {
        let kind = if error.is_missing() { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
        io::Error::new(kind, error)
    }
}

/// Where a bucket is.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Config {
    /// The bucket.
    pub bucket: String,
    /// Where S3 answers, such as `http://minio.example:9000`. gatelog has no TLS of its own.
    pub endpoint: String,
    /// The region.
    pub region: String,
    /// What every key begins with; may be empty.
    pub prefix: String,
    /// The access key's name.
    pub access_key_id: String,
    /// The access key's secret.
    pub secret_access_key: String,
}

impl fmt::Debug for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Config({} at {})", self.bucket, self.endpoint)
    }
}

/// A store. Clones are the same.
#[derive(Clone)]
pub struct LogStore {
    store: Arc<dyn ObjectStore>,
    place: Arc<str>,
    shared: bool,
    locks: Arc<[Mutex<()>]>,
}

impl fmt::Debug for LogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogStore({})", self.place)
    }
}

impl LogStore {
    /// The store in a directory, which is made if it is not there. `shared`: other processes of the site read it too.
    pub fn directory(path: &Path, shared: bool) -> Result<LogStore, StoreError> {
        let failed = |why| StoreError::Directory { path: path.display().to_string(), why };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let store = LocalFileSystem::new_with_prefix(path).map_err(|error| failed(io::Error::other(error)))?;
        Ok(LogStore::new(Arc::new(store), path.display().to_string(), shared))
    }

    /// The store in a bucket of S3.
    pub fn s3(config: &S3Config) -> Result<LogStore, StoreError> {
        if !config.endpoint.starts_with("http://") {
            return Err(StoreError::Setting(format!(
                "gatelog has no TLS of its own yet, and {:?} does not begin with http://: name an address inside your \
                 network, or of a proxy on this host",
                config.endpoint
            )));
        }
        let retry = RetryConfig { max_retries: 5, retry_timeout: http::TIME, ..RetryConfig::default() };
        let store = AmazonS3Builder::new()
            .with_bucket_name(&config.bucket)
            .with_endpoint(&config.endpoint)
            .with_region(&config.region)
            .with_access_key_id(&config.access_key_id)
            .with_secret_access_key(&config.secret_access_key)
            .with_allow_http(true)
            .with_http_connector(Connector)
            .with_retry(retry)
            .build()
            .map_err(|error| StoreError::Setting(error.to_string()))?;
        let store = PrefixStore::new(store, config.prefix.as_str());
        Ok(LogStore::new(Arc::new(store), format!("s3://{}/{}", config.bucket, config.prefix), true))
    }

    fn new(store: Arc<dyn ObjectStore>, place: String, shared: bool) -> LogStore {
        LogStore { store, place: place.into(), shared, locks: (0..LOCKS).map(|_| Mutex::new(())).collect() }
    }

    /// Whether other processes of the site read it too: then the executor's own files are kept there as well.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Where it is, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What was kept of an attempt; `None` if nothing is known of it.
    ///
    /// # Errors
    /// The store cannot be read, or the manifest is damaged.
    pub async fn manifest(&self, build: BuildId, attempt: u32) -> Result<Option<Manifest>, StoreError> {
        self.document(&attempt_key(build, attempt)).await
    }

    /// Writes what is kept of an attempt.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn put_manifest(&self, build: BuildId, attempt: u32, manifest: &Manifest) -> Result<(), StoreError> {
        self.put_document(&attempt_key(build, attempt), manifest).await
    }

    pub(crate) async fn delete_manifest(&self, build: BuildId, attempt: u32) -> Result<(), StoreError> {
        self.delete(&attempt_key(build, attempt)).await
    }

    /// When and by which rule an attempt's logs went; `None` if they did not.
    ///
    /// # Errors
    /// The store cannot be read, or the document is damaged.
    pub async fn removal(&self, build: BuildId, attempt: u32) -> Result<Option<Removal>, StoreError> {
        self.document(&removal_key(build, attempt)).await
    }

    pub(crate) async fn put_removal(&self, build: BuildId, attempt: u32, removal: &Removal) -> Result<(), StoreError> {
        self.put_document(&removal_key(build, attempt), removal).await
    }

    /// Every attempt that has a manifest, with when that was written (milliseconds since 1970), in no order.
    pub fn attempts(&self) -> BoxStream<'static, Result<(BuildId, u32, i64), StoreError>> {
        let place = Arc::clone(&self.place);
        let listed = self.store.list(Some(&Key::from("attempts")));
        let named = move |found: object_store::Result<ObjectMeta>| {
            let failed = |why| StoreError::Store { key: "attempts/".into(), place: place.to_string(), why };
            let found = match found.map_err(failed) {
                Ok(found) => found,
                Err(error) => return Some(Err(error)),
            };
            let mut parts = found.location.parts().skip(1);
            let build = parts.next()?.as_ref().parse::<BuildId>().ok()?;
            let attempt = parts.next()?.as_ref().strip_suffix(".json")?.parse::<u32>().ok()?;
            Some(Ok((build, attempt, found.last_modified.timestamp_millis())))
        };
        listed.filter_map(move |found| std::future::ready(named(found))).boxed()
    }

    /// Content from an offset on, at most `max` bytes of the `size` there are.
    ///
    /// # Errors
    /// It is not there, or the store cannot be read.
    pub async fn read(&self, digest: Digest, size: u64, offset: u64, max: usize) -> Result<Bytes, StoreError> {
        let end = size.min(offset.saturating_add(max as u64));
        if offset >= end {
            return Ok(Bytes::new());
        }
        let key = file_key(digest);
        let bytes = self.store.get_range(&key, offset..end).await.map_err(|source| self.failed(&key, source))?;
        if bytes.len() as u64 != end - offset {
            return Err(self.damaged(&key, format!("it is shorter than {size} bytes")));
        }
        Ok(bytes)
    }

    /// Puts content into the store, unless it is there. `open` opens it from its first byte.
    ///
    /// # Errors
    /// It cannot be read, is not what it was, or the store cannot be written.
    pub async fn put_file(
        &self,
        digest: Digest,
        size: u64,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Result<(), StoreError> {
        let key = file_key(digest);
        let _lock = self.lock(digest).lock().await;
        match self.store.head(&key).await {
            Ok(found) if found.size == size && age(&found) < FRESH => return Ok(()),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(source) => return Err(self.failed(&key, source)),
        }
        let source = Source { file: open().map_err(StoreError::Source)?, hash: Sha256::new(), read: 0 };
        let (first, again) = source.piece().await?;
        let changed = || StoreError::Source(io::Error::other("it changed while it was read"));
        if size <= first.len() as u64 {
            again.is(digest, size).then_some(()).ok_or_else(changed)?;
            let put = self.store.put(&key, PutPayload::from(first)).await;
            return put.map(drop).map_err(|source| self.failed(&key, source));
        }
        let upload = self.store.put_multipart(&key).await.map_err(|source| self.failed(&key, source))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PIECE);
        upload.put(first.into());
        let mut source = again;
        let outcome = loop {
            if let Err(error) = upload.wait_for_capacity(PIECES).await {
                break Err(self.failed(&key, error));
            }
            match source.piece().await {
                Ok((piece, again)) => {
                    source = again;
                    if piece.is_empty() {
                        break source.is(digest, size).then_some(()).ok_or_else(changed);
                    }
                    upload.put(piece.into());
                }
                Err(error) => break Err(error),
            }
        };
        match outcome {
            Ok(()) => upload.finish().await.map(drop).map_err(|source| self.failed(&key, source)),
            Err(error) => {
                // What is left of it is in nobody's way.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Removes content that has been there for `least`; whether it did.
    pub(crate) async fn delete_file(&self, digest: Digest, least: Duration) -> Result<bool, StoreError> {
        let key = file_key(digest);
        let _lock = self.lock(digest).lock().await;
        match self.store.head(&key).await {
            Ok(found) if age(&found) < least => Ok(false),
            Ok(_) => self.delete(&key).await.map(|()| true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(self.failed(&key, source)),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        match self.store.delete(key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed(key, source)),
        }
    }

    async fn document<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, StoreError> {
        let found = match self.store.get(key).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(self.failed(key, source)),
        };
        if found.meta.size > LARGEST_MANIFEST {
            return Err(self.damaged(key, format!("it has {} bytes", found.meta.size)));
        }
        let bytes = found.bytes().await.map_err(|source| self.failed(key, source))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.damaged(key, error.to_string()))
    }

    async fn put_document(&self, key: &Key, document: &impl Serialize) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(document).map_err(|error| self.damaged(key, error.to_string()))?;
        let put = self.store.put(key, PutPayload::from(bytes)).await;
        put.map(drop).map_err(|source| self.failed(key, source))
    }

    fn lock(&self, digest: Digest) -> &Mutex<()> {
        let [first, ..] = digest.0;
        &self.locks[usize::from(first) % LOCKS]
    }

    fn failed(&self, key: &Key, source: object_store::Error) -> StoreError {
        StoreError::Store { key: key.to_string(), place: self.place.to_string(), why: source }
    }

    fn damaged(&self, key: &Key, why: String) -> StoreError {
        StoreError::Damaged { key: key.to_string(), place: self.place.to_string(), why }
    }
}

/// A file that is being read.
struct Source {
    file: File,
    hash: Sha256,
    read: u64,
}

impl Source {
    /// The next piece, empty at the end.
    async fn piece(self) -> Result<(Vec<u8>, Source), StoreError> {
        let read = tokio::task::spawn_blocking(move || {
            let Source { file, mut hash, read } = self;
            let mut piece = Vec::new();
            (&file).take(PIECE as u64).read_to_end(&mut piece)?;
            hash.update(&piece);
            let read = read + piece.len() as u64;
            Ok((piece, Source { file, hash, read }))
        });
        read.await.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(StoreError::Source)
    }

    /// Whether what was read is that.
    fn is(&self, digest: Digest, size: u64) -> bool {
        self.read == size && <[u8; 32]>::from(self.hash.clone().finalize()) == digest.0
    }
}

fn age(found: &ObjectMeta) -> Duration {
    let now = jiff::Timestamp::now().as_millisecond();
    Duration::from_millis(u64::try_from(now - found.last_modified.timestamp_millis()).unwrap_or(0))
}

fn file_key(digest: Digest) -> Key {
    let text = digest.to_string();
    Key::from(format!("files/{}/{text}", text.get(..2).unwrap_or_default()))
}

fn attempt_key(build: BuildId, attempt: u32) -> Key {
    Key::from(format!("attempts/{build}/{attempt}.json"))
}

fn removal_key(build: BuildId, attempt: u32) -> Key {
    Key::from(format!("removed/{build}/{attempt}.json"))
}
