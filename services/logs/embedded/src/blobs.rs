//! The blob store: one file for each blob, under its hash, or one for several small ones.
//!
//! `<dir>/ab/cdef…` holds the bytes as they are. A blob is written beside, made durable, moved to its
//! name, and the directory made durable, in this order: under its name there is never half of it. Small ones that the
//! holder of a log puts together go into a bundle, which comes to its name in the same way ([`crate::bundles`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use gatelog_event_log::blobs::MAX_BLOB;
use gatelog_event_log::{BlobError, Blobs, failpoint};
use gatelog_record::BlobHash;
use parking_lot::Mutex;

use crate::bundles::{Bundle, Bundles, MOST, SMALL};
use crate::home::{make_dir, sync_dir};

/// How many names are remembered as durable, so that putting them again costs nothing.
const SETTLED: usize = 65_536;
/// How many blobs are written before any is made durable.
const TOGETHER: usize = 64;
const _: () = assert!(TOGETHER <= MOST, "what is put together fits into a bundle");
/// After this long, nobody writes a blob any more that is not under its name yet: whoever did was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Blobs in files.
#[derive(Debug)]
pub struct FileBlobs {
    dir: PathBuf,
    /// What the names of this store's temporary files begin with: by chance, as processes of several hosts may write
    /// into one directory, and as one that was killed may have left files under this process's id.
    temporary: String,
    /// Known to be whole and durable under their names.
    settled: Mutex<BTreeSet<BlobHash>>,
    bundles: Mutex<Bundles>,
    /// Whether what is put together is written as bundles: not where others write here, too, who would have to look
    /// for them.
    bundling: bool,
}

/// Blobs that were written and are not under their names yet. What is left of them goes with it.
#[derive(Default)]
struct Unfinished {
    /// Each with the temporary file and the name it is to have.
    files: Vec<(File, PathBuf, PathBuf)>,
}

impl Unfinished {
    fn write(&mut self, temporary: PathBuf, path: PathBuf, bytes: &[u8]) -> Result<(), BlobError> {
        let mut file = File::create_new(&temporary).map_err(|error| failed("making", &temporary, &error))?;
        let written = file.write_all(bytes).map_err(|error| failed("writing", &temporary, &error));
        self.files.push((file, temporary, path));
        written
    }

    /// Makes all of them durable. Written before any is waited for, they share what the file system waits for.
    fn sync(&self) -> Result<(), BlobError> {
        for (file, temporary, _) in &self.files {
            file.sync_all().map_err(|error| failed("writing", temporary, &error))?;
        }
        Ok(())
    }

    /// Moves them to their names.
    fn finish(mut self) -> Result<(), BlobError> {
        while let Some((_, temporary, path)) = self.files.last() {
            fs::rename(temporary, path).map_err(|error| failed("moving", path, &error))?;
            self.files.pop();
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        for (_, temporary, _) in &self.files {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Numbers temporary files over all stores of this process.
static TEMPORARY: AtomicU64 = AtomicU64::new(0);

fn failed(what: &'static str, path: &Path, error: &io::Error) -> BlobError {
    BlobError::Store { what, message: format!("{}: {error}", path.display()) }
}

impl FileBlobs {
    /// Opens the store in this directory, which is made if it is not there, and removes what writes
    /// that were cut short have left. To be called by whoever holds the log that goes with it.
    ///
    /// # Errors
    /// [`BlobError::Store`].
    pub fn open(dir: impl AsRef<Path>) -> Result<FileBlobs, BlobError> {
        let store = FileBlobs { bundling: true, ..FileBlobs::open_reader(&dir) };
        let temporary = store.make_dirs()?;
        store.refresh_bundles()?;
        let entries = fs::read_dir(&temporary).map_err(|error| failed("reading", &temporary, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| failed("reading", &temporary, &error))?.path();
            fs::remove_file(&path).map_err(|error| failed("removing", &path, &error))?;
        }
        Ok(store)
    }

    /// Opens a store that several processes write, perhaps of several hosts. What writes that were cut short have left
    /// is removed once it is a day old: anything younger may be about to become a blob.
    ///
    /// # Errors
    /// [`BlobError::Store`].
    pub fn open_shared(dir: impl AsRef<Path>) -> Result<FileBlobs, BlobError> {
        let store = FileBlobs::open_reader(&dir);
        store.make_dirs()?;
        store.refresh_bundles()?;
        store.clear_abandoned()?;
        Ok(store)
    }

    /// Makes all directories of a new store at once: one by one, each would be waited for. Gives that of temporary
    /// files, which is made last.
    fn make_dirs(&self) -> Result<PathBuf, BlobError> {
        let temporary = self.temporary_dir();
        if !temporary.is_dir() {
            make_dir(&self.dir).map_err(|error| failed("making", &self.dir, &error))?;
            for first in 0..=u8::MAX {
                let path = self.dir.join(format!("{first:02x}"));
                match fs::create_dir(&path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(failed("making", &path, &error));
                    }
                    _ => {}
                }
            }
            make_dir(&temporary).map_err(|error| failed("making", &temporary, &error))?;
        }
        Ok(temporary)
    }

    fn clear_abandoned(&self) -> Result<(), BlobError> {
        let temporary = self.temporary_dir();
        // Ages are told by the clock that dates these files, which may be another host's; on a full disk by this one.
        let probe = temporary.join(self.temporary_name());
        let dated = write_file(&probe, b"").and_then(|()| fs::metadata(&probe)?.modified());
        let _ = fs::remove_file(&probe);
        let now = dated.unwrap_or_else(|_| SystemTime::now());
        let entries = fs::read_dir(&temporary).map_err(|error| failed("reading", &temporary, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| failed("reading", &temporary, &error))?.path();
            let age = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
            let age = age.map(|modified| now.duration_since(modified).unwrap_or_default());
            // Where it is gone, somebody who starts at the same time was first.
            if age.is_ok_and(|age| age >= ABANDONED)
                && let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                // It is in nobody's way but the disk's.
                tracing::warn!(path = %path.display(), %error, "a blob that was never finished cannot be removed");
            }
        }
        Ok(())
    }

    /// The store in this directory, for another process than the one that holds the log. Nothing is
    /// made or removed by opening it.
    pub fn open_reader(dir: impl AsRef<Path>) -> FileBlobs {
        let dir = dir.as_ref().to_owned();
        let bundles = Mutex::new(Bundles::new(&dir));
        FileBlobs { dir, temporary: by_chance(), settled: Mutex::new(BTreeSet::new()), bundles, bundling: false }
    }

    fn refresh_bundles(&self) -> Result<(), BlobError> {
        let mut bundles = self.bundles.lock();
        bundles.refresh().map_err(|error| failed("reading", bundles.dir(), &error))
    }

    fn temporary_name(&self) -> String {
        format!("{}.{}", self.temporary, TEMPORARY.fetch_add(1, Ordering::Relaxed))
    }

    fn temporary_dir(&self) -> PathBuf {
        self.dir.join("new")
    }

    /// Where the bytes of this name are kept.
    pub fn path(&self, hash: &BlobHash) -> PathBuf {
        let name = hash.to_string();
        let (first, rest) = name.split_at(2);
        self.dir.join(first).join(rest)
    }

    /// Puts so many as may be open at once.
    fn put_together(&self, blobs: &[&[u8]]) -> Result<Vec<BlobHash>, BlobError> {
        let mut hashes = Vec::with_capacity(blobs.len());
        let mut unfinished = Unfinished::default();
        let mut fresh = BTreeSet::new();
        let mut dirs = BTreeSet::new();
        let mut alone: Vec<(BlobHash, &[u8])> = Vec::new();
        let mut together: Vec<(BlobHash, &[u8])> = Vec::new();
        for bytes in blobs {
            let size = bytes.len() as u64;
            if size > MAX_BLOB {
                return Err(BlobError::TooLarge { size, limit: MAX_BLOB });
            }
            let hash = BlobHash::of(bytes);
            hashes.push(hash);
            let path = self.path(&hash);
            if self.is_settled(&hash, &path) || !fresh.insert(hash) {
                continue;
            }
            // One that stands there and is whole was put before or by somebody else just now: only its
            // being there is made durable. One that is damaged is replaced.
            if self.bundled(&hash)?.is_some_and(|found| found == *bytes) {
                dirs.insert(self.bundles.lock().dir().to_owned());
            } else if fs::read(&path).is_ok_and(|found| found == *bytes) {
                File::open(&path).and_then(|file| file.sync_all()).map_err(|error| failed("syncing", &path, &error))?;
                dirs.insert(path.parent().unwrap_or(&self.dir).to_owned());
            } else if self.bundling && bytes.len() <= SMALL && !path.exists() {
                together.push((hash, bytes));
            } else {
                alone.push((hash, bytes));
            }
        }
        if let [_] = together.as_slice() {
            alone.append(&mut together);
        }
        for (hash, bytes) in alone {
            let path = self.path(&hash);
            let dir = path.parent().unwrap_or(&self.dir).to_owned();
            make_dir(&dir).map_err(|error| failed("making", &dir, &error))?;
            unfinished.write(self.temporary_dir().join(self.temporary_name()), path, bytes)?;
            dirs.insert(dir);
        }
        let bundle = (!together.is_empty()).then(|| Bundle::of(&together));
        if let Some(bundle) = &bundle {
            let dir = self.bundles.lock().dir().to_owned();
            make_dir(&dir).map_err(|error| failed("making", &dir, &error))?;
            let path = dir.join(&bundle.name);
            unfinished.write(self.temporary_dir().join(self.temporary_name()), path, &bundle.bytes)?;
            dirs.insert(dir);
        }
        unfinished.sync()?;
        failpoint::pass("blob/written");
        unfinished.finish()?;
        for dir in &dirs {
            sync_dir(dir).map_err(|error| failed("syncing", dir, &error))?;
        }
        failpoint::pass("blob/durable");
        if let Some(bundle) = &bundle {
            self.bundles.lock().add(bundle);
        }
        let mut settled = self.settled.lock();
        if settled.len() + fresh.len() > SETTLED {
            settled.clear();
        }
        settled.extend(fresh);
        Ok(hashes)
    }

    fn is_settled(&self, hash: &BlobHash, path: &Path) -> bool {
        self.settled.lock().contains(hash) && (self.bundles.lock().has(hash) || path.exists())
    }

    /// The bytes of this name, if a bundle has them whole.
    fn bundled(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, BlobError> {
        let bundles = self.bundles.lock();
        let found = bundles.get(hash).map_err(|error| failed("reading", bundles.dir(), &error))?;
        Ok(found.ok())
    }

    /// The bytes of this name from a file of their own; `None` where there is none.
    fn read_file(&self, hash: &BlobHash) -> Result<Option<Result<Vec<u8>, String>>, BlobError> {
        let path = self.path(hash);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("opening", &path, &error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BLOB + 1).read_to_end(&mut bytes).map_err(|error| failed("reading", &path, &error))?;
        Ok(Some(if BlobHash::of(&bytes) == *hash { Ok(bytes) } else { Err(path.display().to_string()) }))
    }
}

/// A name nobody else has. Where the system has no random numbers to give, the process's id must do.
fn by_chance() -> String {
    let mut drawn = [0; 8];
    match getrandom::fill(&mut drawn) {
        Ok(()) => format!("{:016x}", u64::from_le_bytes(drawn)),
        Err(_) => std::process::id().to_string(),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

impl Blobs for FileBlobs {
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        self.put_together(&[bytes]).map(|hashes| hashes.first().copied().unwrap_or_default())
    }

    fn put_many(&self, blobs: &[&[u8]]) -> Result<Vec<BlobHash>, BlobError> {
        let mut hashes = Vec::with_capacity(blobs.len());
        for blobs in blobs.chunks(TOGETHER) {
            hashes.extend(self.put_together(blobs)?);
        }
        Ok(hashes)
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        let mut damaged = None;
        for again in [false, true] {
            let found = {
                let mut bundles = self.bundles.lock();
                if again {
                    bundles.refresh().map_err(|error| failed("reading", bundles.dir(), &error))?;
                }
                bundles.get(hash).map_err(|error| failed("reading", bundles.dir(), &error))?
            };
            match found {
                Ok(bytes) => return Ok(bytes),
                Err(place) => damaged = damaged.or(place),
            }
            match self.read_file(hash)? {
                Some(Ok(bytes)) => return Ok(bytes),
                Some(Err(place)) => damaged = damaged.or(Some(place)),
                None => {}
            }
        }
        // Putting it again must then mend it.
        self.settled.lock().remove(hash);
        Err(match damaged {
            Some(place) => BlobError::Damaged { hash: *hash, place },
            None => BlobError::Missing(*hash),
        })
    }

    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
        let path = self.path(hash);
        if self.bundles.lock().has(hash) || path.try_exists().map_err(|error| failed("looking for", &path, &error))? {
            return Ok(true);
        }
        self.refresh_bundles()?;
        Ok(self.bundles.lock().has(hash))
    }

    fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
        self.refresh_bundles()?;
        let mut found: BTreeSet<BlobHash> = self.bundles.lock().hashes().collect();
        for first in read_names(&self.dir)?.into_iter().filter(|name| name.len() == 2) {
            for rest in read_names(&self.dir.join(&first))? {
                found.extend(format!("{first}{rest}").parse::<BlobHash>());
            }
        }
        Ok(found.into_iter().collect())
    }

    fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        let path = self.path(hash);
        self.settled.lock().remove(hash);
        self.refresh_bundles()?;
        {
            let mut bundles = self.bundles.lock();
            let left = bundles.without(hash).map_err(|error| failed("reading", bundles.dir(), &error))?;
            for (name, rest) in left {
                let path = bundles.dir().join(&name);
                // The others of its bundle first come to another one.
                if let Some(rest) = rest {
                    let mut unfinished = Unfinished::default();
                    let to = bundles.dir().join(&rest.name);
                    unfinished.write(self.temporary_dir().join(self.temporary_name()), to, &rest.bytes)?;
                    unfinished.sync()?;
                    unfinished.finish()?;
                    sync_dir(bundles.dir()).map_err(|error| failed("syncing", bundles.dir(), &error))?;
                    bundles.add(&rest);
                }
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed("removing", &path, &error));
                    }
                    _ => bundles.forget(&name),
                }
            }
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", &path, &error)),
            _ => Ok(()),
        }
    }
}

fn read_names(dir: &Path) -> Result<Vec<String>, BlobError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("reading", dir, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("reading", dir, &error))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}
