//! The blob store.

use super::*;
use crate::FileBlobs;
use gatelog_event_log::blobs::MAX_BLOB;
use gatelog_event_log::conformance::{BlobHarness, run_blobs};
use gatelog_event_log::{BlobError, Blobs};
use gatelog_record::BlobHash;

struct Store {
    dir: TempDir,
    blobs: Arc<FileBlobs>,
}

impl Store {
    fn new() -> Store {
        let dir = TempDir::new().unwrap();
        let blobs = Arc::new(FileBlobs::open(dir.path().join("blobs")).unwrap());
        Store { dir, blobs }
    }
}

impl BlobHarness for Store {
    fn blobs(&self) -> Arc<dyn Blobs> {
        self.blobs.clone()
    }
    fn crash(&mut self) -> bool {
        self.blobs = Arc::new(FileBlobs::open(self.dir.path().join("blobs")).unwrap());
        true
    }
    fn damage(&mut self, hash: &BlobHash) -> bool {
        flip(&self.blobs.path(hash), 3);
        true
    }
    fn at_once(&self, work: Vec<Box<dyn FnOnce() + Send>>) {
        threads(work);
    }
}

#[test]
fn the_store_keeps_its_contract() {
    assert_eq!(run_blobs(&mut || Box::new(Store::new())), []);
}

#[test]
fn what_was_cut_short_is_swept_away_by_the_holder_only() {
    let store = Store::new();
    let hash = store.blobs.put(b"kept").unwrap();
    let leftover = store.dir.path().join("blobs/new/123.0");
    fs::write(&leftover, b"half a blo").unwrap();
    let reader = FileBlobs::open_reader(store.dir.path().join("blobs"));
    assert_eq!((reader.get(&hash).as_deref(), reader.list()), (Ok(&b"kept"[..]), Ok(vec![hash])));
    assert!(leftover.exists());
    let again = FileBlobs::open(store.dir.path().join("blobs")).unwrap();
    assert!(!leftover.exists());
    assert_eq!(again.list(), Ok(vec![hash]));
}

#[test]
fn what_was_cut_short_in_a_shared_store_is_swept_away_once_it_is_a_day_old() {
    let store = Store::new();
    let hash = store.blobs.put(b"kept").unwrap();
    let new = store.dir.path().join("blobs/new");
    let hour = std::time::Duration::from_secs(3600);
    let left = |name: &str, age: std::time::Duration| {
        let path = new.join(name);
        fs::write(&path, b"half a blo").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
        path
    };
    let (young, old) = (left("young.0", hour * 23), left("old.0", hour * 25));
    let shared = FileBlobs::open_shared(store.dir.path().join("blobs")).unwrap();
    assert!(young.exists() && !old.exists());
    // Both who are there go on, and nobody's files get in another's way.
    let other = FileBlobs::open_shared(store.dir.path().join("blobs")).unwrap();
    for (blobs, bytes) in [(&shared, b"one"), (&other, b"two")] {
        let put = blobs.put(bytes).unwrap();
        assert_eq!(other.get(&put).as_deref(), Ok(&bytes[..]));
    }
    assert_eq!(shared.get(&hash).as_deref(), Ok(&b"kept"[..]));
    assert_eq!(shared.list().unwrap().len(), 3);
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
    // A store that cannot be written says where.
    let file = store.dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = FileBlobs::open_shared(&file).unwrap_err().to_string();
    assert!(error.contains("file/00"), "{error}");
}

#[test]
fn a_damaged_or_shortened_blob_is_mended_by_putting_it_again() {
    let store = Store::new();
    let hash = store.blobs.put(b"to be damaged").unwrap();
    for again in [false, true] {
        flip(&store.blobs.path(&hash), 5);
        // Either somebody noticed, or another process puts it.
        let blobs = if again {
            FileBlobs::open(store.dir.path().join("blobs")).unwrap()
        } else {
            let place = store.blobs.path(&hash).display().to_string();
            assert_eq!(store.blobs.get(&hash), Err(BlobError::Damaged { hash, place }));
            assert_eq!(store.blobs.put(b"to be damaged"), Ok(hash));
            assert_eq!(store.blobs.get(&hash).as_deref(), Ok(&b"to be damaged"[..]));
            continue;
        };
        assert_eq!(blobs.put(b"to be damaged"), Ok(hash));
        assert_eq!(blobs.get(&hash).as_deref(), Ok(&b"to be damaged"[..]));
    }
    cut(&store.blobs.path(&hash), 4);
    assert!(matches!(store.blobs.get(&hash), Err(BlobError::Damaged { .. })));
}

#[test]
fn many_are_put_at_once() {
    let store = Store::new();
    let contents: Vec<Vec<u8>> = (0..30_u8).map(|content| vec![content % 20; 50]).collect();
    let blobs: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let hashes = store.blobs.put_many(&blobs).unwrap();
    assert_eq!(hashes, contents.iter().map(|content| BlobHash::of(content)).collect::<Vec<_>>());
    assert_eq!(store.blobs.list().unwrap().len(), 20);
    assert_eq!(fs::read_dir(store.dir.path().join("blobs/new")).unwrap().count(), 0);
    for (hash, content) in hashes.iter().zip(&contents) {
        assert_eq!(store.blobs.get(hash).as_ref(), Ok(content));
    }
    assert_eq!(store.blobs.put_many(&[]), Ok(vec![]));
}

/// The files of a store's bundles.
fn bundles(store: &Store) -> Vec<PathBuf> {
    let entries = fs::read_dir(store.dir.path().join("blobs/bundles"));
    entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn small_blobs_that_are_put_together_share_a_file() {
    let mut store = Store::new();
    let before = FileBlobs::open_reader(store.dir.path().join("blobs"));
    assert_eq!(before.list(), Ok(vec![]));
    let large = vec![7; 100_000];
    let group = [&b"one"[..], b"two", b"", &large, b"one"];
    let hashes = store.blobs.put_many(&group).unwrap();
    assert_eq!((bundles(&store).len(), store.blobs.path(&hashes[3]).exists()), (1, true));
    // Of what is there nothing is written again, and what comes alone has a file of its own.
    store.blobs.put_many(&[b"two", b"three"]).unwrap();
    let three = BlobHash::of(b"three");
    assert_eq!((bundles(&store).len(), store.blobs.path(&three).exists()), (1, true));
    for again in [false, true] {
        if again {
            store.crash();
        }
        let reader = FileBlobs::open_reader(store.dir.path().join("blobs"));
        let shared = FileBlobs::open_shared(store.dir.path().join("blobs")).unwrap();
        for blobs in [&*store.blobs, &before, &reader, &shared] {
            for (hash, bytes) in hashes.iter().zip(group) {
                assert_eq!((blobs.has(hash), blobs.get(hash).as_deref()), (Ok(true), Ok(bytes)));
            }
            assert_eq!(blobs.list().unwrap().len(), 5);
            let absent = BlobHash::of(b"absent");
            assert_eq!((blobs.has(&absent), blobs.get(&absent)), (Ok(false), Err(BlobError::Missing(absent))));
        }
        assert_eq!(store.blobs.put_many(&group).unwrap(), hashes);
        assert_eq!(bundles(&store).len(), 1);
    }
    // Where several write, each blob can be found by its name.
    let shared = FileBlobs::open_shared(store.dir.path().join("blobs")).unwrap();
    for hash in shared.put_many(&[b"four", b"five"]).unwrap() {
        assert!(shared.path(&hash).exists());
    }
    // One that is removed takes none with it.
    let others = [hashes[0], hashes[2]];
    store.blobs.remove(&hashes[1]).unwrap();
    for again in [false, true] {
        if again {
            store.crash();
        }
        assert_eq!(store.blobs.get(&hashes[1]), Err(BlobError::Missing(hashes[1])));
        assert!(others.iter().all(|hash| store.blobs.get(hash).is_ok()));
    }
    others.iter().for_each(|hash| store.blobs.remove(hash).unwrap());
    assert_eq!((bundles(&store).len(), store.blobs.list().unwrap().len()), (0, 4));
}

#[test]
fn what_is_damaged_of_a_bundle_is_named_and_mended() {
    let group = [&b"the first"[..], b"the second", b"the third"];
    let head = 8 + 4 + 3 * 36 + 4;
    // The magic, the count, a name, a length, the checksum; contents; all cut off but a part.
    for (byte, first) in [(0, false), (9, false), (13, false), (46, false), (head - 1, false), (head + 2, true)] {
        for alone in [false, true] {
            let mut store = Store::new();
            let hashes = store.blobs.put_many(&group).unwrap();
            let path = bundles(&store).remove(0);
            flip(&path, byte);
            store.crash();
            let reader = FileBlobs::open_reader(store.dir.path().join("blobs"));
            for blobs in [&*store.blobs, &reader] {
                for (hash, bytes) in hashes.iter().zip(group) {
                    let wanted = match (first, *hash == hashes[0]) {
                        (true, true) => {
                            let place = format!("{} byte {head}", path.display());
                            Err(BlobError::Damaged { hash: *hash, place })
                        }
                        (true, false) => Ok(bytes.to_vec()),
                        (false, _) => Err(BlobError::Missing(*hash)),
                    };
                    assert_eq!(blobs.get(hash), wanted, "byte {byte}");
                }
            }
            // By the same blobs again, or one by one.
            let again = match alone {
                false => store.blobs.put_many(&group).unwrap(),
                true => group.iter().map(|bytes| store.blobs.put(bytes).unwrap()).collect(),
            };
            assert_eq!(again, hashes);
            for again in [false, true] {
                if again {
                    store.crash();
                }
                for (hash, bytes) in hashes.iter().zip(group) {
                    assert_eq!(store.blobs.get(hash).as_deref(), Ok(bytes), "byte {byte}, alone {alone}");
                }
            }
        }
    }
    for length in [0, 5, 30, head, head + 12] {
        let mut store = Store::new();
        let hashes = store.blobs.put_many(&group).unwrap();
        cut(&bundles(&store)[0], length);
        store.crash();
        assert!(hashes.iter().any(|hash| store.blobs.get(hash).is_err()));
        store.blobs.put_many(&group).unwrap();
        assert!(hashes.iter().all(|hash| store.blobs.get(hash).is_ok()), "cut at {length}");
    }
}

#[test]
fn a_blob_beyond_the_limit_is_refused() {
    let store = Store::new();
    let size = MAX_BLOB + 1;
    let refused = store.blobs.put(&vec![0; size as usize]);
    assert_eq!(refused, Err(BlobError::TooLarge { size, limit: MAX_BLOB }));
    assert_eq!(store.blobs.list(), Ok(vec![]));
}

#[test]
fn a_store_that_cannot_be_written_says_where() {
    let store = Store::new();
    fs::remove_dir(store.dir.path().join("blobs/new")).unwrap();
    let Err(BlobError::Store { message, .. }) = store.blobs.put(b"x") else { panic!("it must fail") };
    assert!(message.contains("blobs/new"), "{message}");
    assert_eq!(store.blobs.list(), Ok(vec![]));
}
