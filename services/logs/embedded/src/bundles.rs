//! Bundles: several small blobs that were put together, in one file.
//!
//! A file costs the file system a good deal more than the few kilobytes of a small blob do. A bundle is written as a
//! whole, as a blob's file is, and never changes: `<dir>/bundles/<name>` holds
//!
//! ```text
//! magic     8 bytes
//! count     u32, little-endian, as all numbers here
//! entries   of each blob its SHA-256 and its length (u32)
//! checksum  u32, CRC32C over everything before
//! contents  one after the other
//! ```
//!
//! and is named after the SHA-256 of its head, so that the same blobs put once more are the same file. Which blobs there
//! are is known from the heads, read when it is first asked; a blob itself is checked against its name, as everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gatelog_record::BlobHash;

const MAGIC: &[u8; 8] = b"glbundle";
const ENTRY: usize = 36;
/// The most blobs of a bundle.
pub(crate) const MOST: usize = 256;
/// A larger blob gets a file of its own.
pub(crate) const SMALL: usize = 64 << 10;

/// Where a blob's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    hash: BlobHash,
    /// The bundle, by its place in [`Bundles::names`].
    bundle: u32,
    at: u64,
    length: u32,
}

/// What is known of the bundles of a store.
#[derive(Debug)]
pub(crate) struct Bundles {
    dir: PathBuf,
    /// Those whose head was read, also if it told nothing, and their files' names.
    known: BTreeMap<String, u32>,
    names: Vec<String>,
    entries: BTreeSet<Entry>,
}

/// A bundle as it is written.
pub(crate) struct Bundle {
    /// Its name.
    pub(crate) name: String,
    /// All its bytes.
    pub(crate) bytes: Vec<u8>,
    blobs: Vec<(BlobHash, u32)>,
}

impl Bundle {
    /// Of these blobs, at most [`MOST`] and each at most [`SMALL`].
    pub(crate) fn of(blobs: &[(BlobHash, &[u8])]) -> Bundle {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(blobs.len() as u32).to_le_bytes());
        for (hash, content) in blobs {
            bytes.extend_from_slice(&hash.0);
            bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let name = BlobHash::of(&bytes).to_string();
        blobs.iter().for_each(|(_, content)| bytes.extend_from_slice(content));
        let blobs = blobs.iter().map(|(hash, content)| (*hash, content.len() as u32)).collect();
        Bundle { name, bytes, blobs }
    }
}

/// What a bundle's head names, with lengths; `None` where it is none.
fn read_head(file: &mut impl Read) -> io::Result<Option<Vec<(BlobHash, u32)>>> {
    let mut head = vec![0; MAGIC.len() + 4];
    if let Err(error) = file.read_exact(&mut head) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let count = number(head.get(MAGIC.len()..).unwrap_or_default()) as usize;
    if !head.starts_with(MAGIC) || count > MOST {
        return Ok(None);
    }
    let mut rest = vec![0; count * ENTRY + 4];
    if let Err(error) = file.read_exact(&mut rest) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let (entries, checksum) = rest.split_at(count * ENTRY);
    head.extend_from_slice(entries);
    if crc32c::crc32c(&head) != number(checksum) {
        return Ok(None);
    }
    let entry = |entry: &[u8]| {
        let (hash, length) = entry.split_at(ENTRY - 4);
        Some((BlobHash(hash.try_into().ok()?), number(length)))
    };
    Ok(entries.chunks_exact(ENTRY).map(entry).collect())
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

impl Bundles {
    /// Those below a store's directory; nothing is read yet.
    pub(crate) fn new(store: &Path) -> Bundles {
        Bundles { dir: store.join("bundles"), known: BTreeMap::new(), names: Vec::new(), entries: BTreeSet::new() }
    }

    /// Their directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads the heads of those that came since the last time. One that is damaged tells nothing: what was in it is
    /// missing.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if self.known.contains_key(&name) {
                continue;
            }
            let path = self.dir.join(&name);
            let head = match File::open(&path).and_then(|file| read_head(&mut io::BufReader::new(file))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                head => head?,
            };
            match head {
                Some(blobs) => self.admit(name, &blobs),
                None => {
                    tracing::error!(path = %path.display(), "a bundle of blobs is damaged: what was in it is missing");
                    self.admit(name, &[]);
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, name: String, blobs: &[(BlobHash, u32)]) {
        let bundle = self.names.len() as u32;
        self.known.insert(name.clone(), bundle);
        self.names.push(name);
        let mut at = (MAGIC.len() + 4 + blobs.len() * ENTRY + 4) as u64;
        for (hash, length) in blobs {
            self.entries.insert(Entry { hash: *hash, bundle, at, length: *length });
            at += u64::from(*length);
        }
    }

    /// Knows of one that was just made durable, perhaps in place of one that was damaged.
    pub(crate) fn add(&mut self, bundle: &Bundle) {
        self.forget(&bundle.name);
        self.admit(bundle.name.clone(), &bundle.blobs);
    }

    fn entries_of(&self, hash: &BlobHash) -> impl Iterator<Item = &Entry> {
        let first = Entry { hash: *hash, bundle: 0, at: 0, length: 0 };
        self.entries.range(first..).take_while(move |entry| entry.hash == first.hash)
    }

    /// Whether one is known that has this blob.
    pub(crate) fn has(&self, hash: &BlobHash) -> bool {
        self.entries_of(hash).next().is_some()
    }

    /// All that are known.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = BlobHash> {
        self.entries.iter().map(|entry| entry.hash)
    }

    fn path(&self, entry: &Entry) -> PathBuf {
        self.names.get(entry.bundle as usize).map_or_else(PathBuf::new, |name| self.dir.join(name))
    }

    /// The blob's bytes, from whichever bundle has them whole; else where they should be, if anywhere.
    pub(crate) fn get(&self, hash: &BlobHash) -> io::Result<Result<Vec<u8>, Option<String>>> {
        let mut damaged = None;
        for entry in self.entries_of(hash) {
            let path = self.path(entry);
            let mut bytes = vec![0; entry.length as usize];
            match File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, entry.at)) {
                Ok(()) if BlobHash::of(&bytes) == *hash => return Ok(Ok(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
                _ => damaged = Some(format!("{} byte {}", path.display(), entry.at)),
            }
        }
        Ok(Err(damaged))
    }

    /// What is left of the bundles that have this blob when it is gone: each with the name of the one that goes for it.
    pub(crate) fn without(&self, hash: &BlobHash) -> io::Result<Vec<(String, Option<Bundle>)>> {
        let mut left = Vec::new();
        for entry in self.entries_of(hash) {
            let path = self.path(entry);
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let range = |one: &Entry| {
                let begin = usize::try_from(one.at).ok()?;
                Some((one.hash, bytes.get(begin..begin.checked_add(one.length as usize)?)?))
            };
            let others = self.entries.iter().filter(|one| one.bundle == entry.bundle && one.hash != *hash);
            let others: Vec<(BlobHash, &[u8])> = others.filter_map(range).collect();
            let name = self.names.get(entry.bundle as usize).cloned().unwrap_or_default();
            left.push((name, (!others.is_empty()).then(|| Bundle::of(&others))));
        }
        Ok(left)
    }

    /// Forgets a bundle whose file is gone.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(bundle) = self.known.remove(name) {
            self.entries.retain(|entry| entry.bundle != bundle);
        }
    }
}
