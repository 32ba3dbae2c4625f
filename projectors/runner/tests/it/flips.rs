//! Bits flipped in the files of a projection: what is read is what was folded, or the damage is named and the projection
//! is built again from the log. Never a third.
//!
//! `GATELOG_CORRUPTION=long` flips 10,000 bits, `GATELOG_FLIPS=N` as many as it says; otherwise a sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_event_log::Log;
use gatelog_runner::Folder;
use gatelog_store::{Layout, Projection, RungDir, SchemaVersion};
use gatelog_tables::LiveTables;

use crate::lending::{Lending, PARTITION, Story, digest_of};
use crate::{config, log_of};

fn wanted() -> u64 {
    match std::env::var("GATELOG_FLIPS") {
        Ok(count) => count.parse().unwrap(),
        Err(_) if std::env::var_os("GATELOG_CORRUPTION").is_some_and(|value| value == "long") => 10_000,
        Err(_) => 60,
    }
}

/// Chance that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }
}

/// A file of a projection, and which of its links it is: a checkpoint's tables are the database's.
struct Kept {
    path: PathBuf,
    bytes: Vec<u8>,
    link_of: Option<usize>,
}

/// Everything below a directory.
fn kept(root: &Path) -> Vec<Kept> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    use std::os::unix::fs::MetadataExt;
    let mut paths = Vec::new();
    walk(root, &mut paths);
    paths.sort();
    let mut seen = std::collections::BTreeMap::new();
    let mut all: Vec<Kept> = Vec::new();
    for path in paths {
        let inode = std::fs::metadata(&path).unwrap().ino();
        let link_of = seen.get(&inode).copied();
        seen.entry(inode).or_insert(all.len());
        all.push(Kept { bytes: std::fs::read(&path).unwrap(), path, link_of });
    }
    all
}

/// The directory as it was, links and all.
fn put_back(root: &Path, all: &[Kept], flipped: (usize, &[u8])) {
    std::fs::remove_dir_all(root).unwrap();
    for (number, kept) in all.iter().enumerate() {
        std::fs::create_dir_all(kept.path.parent().unwrap()).unwrap();
        match kept.link_of {
            Some(first) => std::fs::hard_link(&all[first].path, &kept.path).unwrap(),
            None if number == flipped.0 => std::fs::write(&kept.path, flipped.1).unwrap(),
            None => std::fs::write(&kept.path, &kept.bytes).unwrap(),
        }
    }
}

/// What time travel by a rung comes to: folded on from the newest usable one, the state is what it was. Says how many
/// rungs were passed over by name.
fn travelled(root: &Path, story: &Story, to: usize) -> usize {
    let rungs = RungDir::new(Layout::new(root, PARTITION).rungs());
    let mut warnings = Vec::new();
    if let Some(mut rung) = rungs.nearest::<Lending>(PARTITION, to as u64, &mut warnings).unwrap() {
        for event in &story.events[rung.header.position.sequence as usize..to] {
            rung.live.apply(&event.record).unwrap();
        }
        assert_eq!(digest_of(&rung.live), story.live_digests[to]);
    }
    warnings.len()
}

/// What a start comes to: the digest of all tables, and whether something was told. Else the error, by name.
fn started(log: &Arc<dyn Log>, root: &Path) -> Result<([u8; 32], bool), String> {
    let mut folder =
        Folder::<Lending>::open(Arc::clone(log), PARTITION, config(root)).map_err(|error| error.to_string())?;
    let _ = folder.catch_up().map_err(|error| error.to_string())?;
    let told = !folder.warnings().is_empty();
    let digest = folder.projection().view().projection().digest().map_err(|error| error.to_string())?;
    Ok((digest, told))
}

#[test]
fn a_bit_flipped_anywhere_in_a_projection_changes_no_read_or_is_named_and_mended() {
    let story = Story::long(60);
    let (_, log) = log_of(&story, 60);
    // In memory where that can be had: thousands of databases are not to wait for a disk.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = dir.path().join("projections");
    // Several starts, so that there are tables, logs and checkpoints.
    for count in [25, 40, 55, 60] {
        let (_, part) = log_of(&story, count);
        assert_eq!(started(&part, &root).unwrap().0, story.digests[count]);
    }
    let all = kept(&root);
    // What the database writes for people is not read by anybody.
    let flippable: Vec<usize> = (0..all.len())
        .filter(|number| all[*number].link_of.is_none() && !all[*number].bytes.is_empty())
        .filter(|number| !all[*number].path.file_name().unwrap().to_string_lossy().starts_with("LOG"))
        .collect();
    let mut dice = Dice(0xfeed_5678_9abc_def1);
    let (mut unchanged, mut mended, mut named, mut rungs) = (0, 0, 0, 0);
    let database = Layout::new(&root, PARTITION).database(SchemaVersion { live: 1, read: 1 });
    let flips = wanted();
    for _ in 0..flips {
        // A file as often as another, however small it is.
        let number = flippable[dice.roll(flippable.len() as u64) as usize];
        let mut bytes = all[number].bytes.clone();
        let at = dice.roll(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << dice.roll(8);
        put_back(&root, &all, (number, &bytes));
        // A checkpoint is read only where the database is lost.
        let lost = all[number].path.components().any(|part| part.as_os_str() == "checkpoints");
        if lost {
            std::fs::remove_file(database.join("CURRENT")).unwrap();
        }
        let what = format!("byte {at} of {}", all[number].path.display());
        // Each rung in its turn is the newest.
        rungs += [60, 45, 20].into_iter().filter(|to| travelled(&root, &story, *to) > 0).count();
        match started(&log, &root) {
            Ok((digest, told)) => {
                assert!(told || !lost, "{what}: the database was lost, and nobody was told");
                assert_eq!(digest, story.digests[60], "{what} changed what is read");
                if told { mended += 1 } else { unchanged += 1 }
            }
            Err(error) => {
                assert!(!error.is_empty(), "{what}");
                named += 1;
                // The damage is remembered: the next start goes on with something whole, or says what to delete.
                let next = started(&log, &root).or_else(|_| {
                    Projection::<Lending>::delete(&root, PARTITION).map_err(|error| error.to_string())?;
                    started(&log, &root)
                });
                assert_eq!(next.unwrap().0, story.digests[60], "{what}: {error}");
            }
        }
    }
    assert!(Layout::new(&root, PARTITION).home().exists());
    println!(
        "{flips} bits flipped in files of a projection, its checkpoints and rungs: {unchanged} times read as folded, \
         {mended} times mended and told, {named} times named and built again; {rungs} times a rung passed over by name"
    );
}
