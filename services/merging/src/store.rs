//! The object files of a repository as files: copied or linked into another, and gathered into packs when they are
//! many.
//!
//! Each change leaves some five loose objects in a mirror, each a file. A workspace copies them all, so before they
//! are many they become one pack, and before the packs are many the small ones become one too.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use git2::{Oid, Repository};

/// More loose objects than this become a pack.
const LOOSE_MAX: usize = 48;
/// A pack of fewer bytes is small.
const SMALL: u64 = 1 << 20;
/// More small packs than this become one.
const SMALL_PACKS_MAX: usize = 12;
/// How often a copy begins anew because files went away under it, and how long it waits before: whoever gathers takes
/// one file after the other away, each of which would end an attempt.
const ATTEMPTS: usize = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// What lies in a repository's `objects`.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    objects: PathBuf,
    /// Directories of two letters, and the loose objects in each by the rest of their names.
    loose: Vec<(String, Vec<String>)>,
    /// Packs that have an index, without the ending, and their bytes.
    packs: Vec<(String, u64)>,
}

impl Listing {
    /// Looks. Files in the making are left out.
    pub(crate) fn of(objects: &Path) -> io::Result<Listing> {
        let mut listing = Listing { objects: objects.to_owned(), ..Listing::default() };
        for entry in fs::read_dir(objects)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.len() == 2 && is_hex(name) {
                let rest = names(&objects.join(name))?;
                let rest: Vec<String> = rest.into_iter().filter(|rest| rest.len() == 38 && is_hex(rest)).collect();
                if !rest.is_empty() {
                    listing.loose.push((name.to_owned(), rest));
                }
            }
        }
        let pack = objects.join("pack");
        for name in names(&pack)? {
            // An index makes its pack visible.
            let Some(stem) = name.strip_suffix(".idx").filter(|stem| stem.starts_with("pack-")) else { continue };
            if let Ok(found) = fs::metadata(pack.join(format!("{stem}.pack"))) {
                listing.packs.push((stem.to_owned(), found.len()));
            }
        }
        Ok(listing)
    }

    fn loose_count(&self) -> usize {
        self.loose.iter().map(|(_, rest)| rest.len()).sum()
    }

    /// Whether it is time to [`gather`].
    pub(crate) fn is_scattered(&self) -> bool {
        self.loose_count() > LOOSE_MAX
    }

    fn copy(&self, to: &Path, link: bool) -> io::Result<()> {
        for (directory, rest) in &self.loose {
            let (from, to) = (self.objects.join(directory), to.join(directory));
            make_dir(&to)?;
            rest.iter().try_for_each(|name| bring(&from.join(name), &to.join(name), link))?;
        }
        let (from, to) = (self.objects.join("pack"), to.join("pack"));
        make_dir(&to)?;
        self.packs.iter().try_for_each(|(stem, _)| {
            // The index last.
            ["pack", "idx"].iter().try_for_each(|ending| {
                let name = format!("{stem}.{ending}");
                bring(&from.join(&name), &to.join(&name), link)
            })
        })
    }
}

fn is_hex(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The names in a directory; one that is not there has none.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
}

fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(path),
        other => other,
    }
}

fn bring(from: &Path, to: &Path, link: bool) -> io::Result<()> {
    if link {
        match fs::hard_link(from, to) {
            Ok(()) => return Ok(()),
            // From an attempt before this one. To copy over it would be to write into the other repository.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) };
            }
            // Another file system.
            Err(_) => {}
        }
    }
    fs::copy(from, to).map(drop)
}

/// Copies (or links) all object files of a repository as they are: much faster than walking the history. `before` is
/// given each listing before it is used; whether it changed anything, so that it has to be made anew.
pub(crate) fn copy_files(
    from: &Path,
    to: &Path,
    link: bool,
    mut before: impl FnMut(&Listing) -> bool,
) -> io::Result<()> {
    let mut attempt = 1;
    loop {
        let mut listing = Listing::of(from)?;
        if attempt == 1 && before(&listing) {
            listing = Listing::of(from)?;
        }
        match listing.copy(to, link) {
            // Gathered by somebody else meanwhile: the objects are there, elsewhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {
                attempt += 1;
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Makes loose objects, and small packs that are many, one pack. Only for who holds the mirror's lock; who reads it
/// meanwhile finds every object in the old place or in the new one.
pub(crate) fn gather(repository: &Repository, listing: &Listing) -> Result<(), GatherError> {
    let small: Vec<&(String, u64)> = listing.packs.iter().filter(|(_, bytes)| *bytes < SMALL).collect();
    let small: &[&(String, u64)] = if small.len() > SMALL_PACKS_MAX { &small } else { &[] };
    let pack = listing.objects.join("pack");
    let loose = listing
        .loose
        .iter()
        .flat_map(|(directory, rest)| rest.iter().map(move |name| Oid::from_str(&format!("{directory}{name}"))));
    let mut wanted = loose.collect::<Result<BTreeSet<Oid>, _>>()?;
    for (stem, _) in small {
        wanted.extend(packed(&fs::read(pack.join(format!("{stem}.idx")))?).ok_or(GatherError::Index)?);
    }
    let mut builder = repository.packbuilder()?;
    for id in &wanted {
        builder.insert_object(*id, None)?;
    }
    builder.write(&pack, 0)?;
    let made = format!("pack-{}", builder.name()?.unwrap_or_default());
    // What it stands for is about to go, so it has to be there after a power loss.
    for file in [pack.join(format!("{made}.pack")), pack.join(format!("{made}.idx")), pack.clone()] {
        File::open(file)?.sync_all()?;
    }
    for (directory, rest) in &listing.loose {
        let directory = listing.objects.join(directory);
        rest.iter().try_for_each(|name| fs::remove_file(directory.join(name)))?;
        // Not if somebody puts something there.
        let _ = fs::remove_dir(directory);
    }
    for (stem, _) in small.iter().filter(|(stem, _)| *stem != made) {
        // The index first: without it nobody looks for the pack.
        ["idx", "pack"].iter().try_for_each(|ending| fs::remove_file(pack.join(format!("{stem}.{ending}"))))?;
    }
    tracing::debug!(pack = made, objects = wanted.len(), "loose objects were gathered");
    Ok(())
}

/// Why objects stay where they are.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    #[error(transparent)]
    Git(#[from] git2::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the index of a pack is not of version 2")]
    Index,
}

/// The objects in a pack, by its index (version 2). `None`: it is none.
fn packed(index: &[u8]) -> Option<Vec<Oid>> {
    const HEAD: usize = 8;
    const FANOUT: usize = 256 * 4;
    if !index.starts_with(&[0xff, b't', b'O', b'c', 0, 0, 0, 2]) {
        return None;
    }
    let count = index.get(HEAD + FANOUT - 4..HEAD + FANOUT)?;
    let count = usize::try_from(u32::from_be_bytes(count.try_into().ok()?)).ok()?;
    let names = index.get(HEAD + FANOUT..)?.get(..count.checked_mul(20)?)?;
    names.chunks_exact(20).map(|name| Oid::from_bytes(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(place: &Path, arguments: &[&str]) -> String {
        let output = std::process::Command::new("git").arg("-C").arg(place).args(arguments).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn blob(repository: &Repository, text: &str) -> Oid {
        repository.blob(text.as_bytes()).unwrap()
    }

    #[test]
    fn scattered_objects_become_one_pack_and_many_small_packs_become_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Repository::init_bare(folder.path().join("mirror")).unwrap();
        // Somebody who has it open all the while.
        let reader = Repository::open(writer.path()).unwrap();
        let objects = writer.path().join("objects");
        let mut ids = Vec::new();
        for round in 0..SMALL_PACKS_MAX + 3 {
            ids.extend((0..5).map(|n| blob(&writer, &format!("{round} {n}"))));
            let listing = Listing::of(&objects).unwrap();
            assert_eq!(listing.loose_count(), 5);
            assert!(!listing.is_scattered());
            gather(&writer, &listing).unwrap();
            let listing = Listing::of(&objects).unwrap();
            assert_eq!((listing.loose_count(), listing.loose.len()), (0, 0), "round {round}");
            assert!(listing.packs.len() <= SMALL_PACKS_MAX + 1, "round {round}: {:?}", listing.packs);
            for id in &ids {
                assert!(reader.find_blob(*id).is_ok(), "round {round}: {id}");
            }
        }
        git(writer.path(), &["fsck", "--strict"]);
        assert!(packed(b"\xfftOc\0\0\0\x02 cut short").is_none() && packed(b"").is_none());
    }

    #[test]
    fn a_copy_finds_what_is_gathered_under_it_and_never_writes_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = Repository::init_bare(folder.path().join("mirror")).unwrap();
        let objects = mirror.path().join("objects");
        let ids: Vec<Oid> = (0..LOOSE_MAX + 1).map(|n| blob(&mirror, &format!("number {n}"))).collect();
        for link in [true, false] {
            let other = Repository::init_bare(folder.path().join(format!("other-{link}"))).unwrap();
            let target = other.path().join("objects");
            // An attempt that got half of it.
            Listing::of(&objects).unwrap().copy(&target, link).unwrap();
            copy_files(&objects, &target, link, |listing| {
                if listing.is_scattered() {
                    // The listing that is used is from before.
                    gather(&mirror, listing).unwrap();
                }
                false
            })
            .unwrap();
            for id in &ids {
                assert!(Repository::open(other.path()).unwrap().find_blob(*id).is_ok());
            }
            git(other.path(), &["fsck", "--strict"]);
            git(mirror.path(), &["fsck", "--strict"]);
        }
        assert_eq!(Listing::of(&objects).unwrap().loose_count(), 0);
    }
}
