//! The home directories of a build: playbooks that are trusted, or hold secrets, have one that others cannot write to.
//!
//! What lies in a home is run, by bash, git, ssh, Python and most other tools. So an untrusted playbook could leave a trap
//! there for one that holds secrets. Each kind of playbook has a home of its own, all at the same path:
//!
//! - trusted ones share one;
//! - untrusted ones with secrets share one for each project;
//! - all others share the third.
//!
//! What a playbook leaves in its home comes to those who are trusted less, as a copy; the other way only `known_hosts` does,
//! and what `preserve-home-paths` of the job names. Zuul: there is one home, and a warning for each file that is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::jobdir::clear;
use crate::spec::PlaybookSpec;

/// What comes to everybody from everybody (Zuul: what Ansible and ssh themselves leave).
const SHARED: [&str; 1] = [".ssh/known_hosts"];
/// The most entries of a home that are looked at; one that holds more is told.
const MOST: usize = 10_000;
/// The largest file that comes from a home that is trusted less.
const LARGEST: u64 = 16 << 20;

/// Bytes that one playbook's home gives to each other home: the executor copies them, and a file may say that it is far
/// larger than what it takes on disk.
const MOST_BYTES: u64 = 256 << 20;

/// Who shares a home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sharing {
    /// Trusted playbooks.
    Trusted,
    /// Untrusted playbooks of this project that hold secrets.
    Secrets(String),
    /// All others.
    Others,
}

/// What tells whether a file was changed. A job cannot set the last part.
type Look = (u64, u64, i64, i64);

/// A home that exists.
#[derive(Debug, Default)]
struct Home {
    /// Its files when others were last given theirs.
    given: BTreeMap<PathBuf, Look>,
}

/// The homes of a build. They are changed while no process of the build runs.
#[derive(Debug)]
pub(crate) struct Homes {
    /// That of [`Sharing::Others`].
    others: PathBuf,
    /// The directory of all further ones, which no sandbox shows.
    folder: PathBuf,
    known: BTreeMap<Sharing, Home>,
}

impl Sharing {
    /// Who shares the home of this playbook.
    pub(crate) fn of(playbook: &PlaybookSpec, has_secrets: bool) -> Sharing {
        match (playbook.trusted, has_secrets) {
            (true, _) => Sharing::Trusted,
            (false, true) => Sharing::Secrets(playbook.checkout.project.canonical_name()),
            (false, false) => Sharing::Others,
        }
    }
}

impl Homes {
    pub(crate) fn new(others: PathBuf, folder: PathBuf) -> Homes {
        Homes { others, folder, known: BTreeMap::new() }
    }

    /// Where the home lies; the sandbox shows it at the place of the others'.
    pub(crate) fn place(&self, sharing: &Sharing) -> PathBuf {
        match sharing {
            Sharing::Trusted => self.folder.join("trusted"),
            Sharing::Others => self.others.clone(),
            // A project's name may be longer than that of a file.
            Sharing::Secrets(project) => self.folder.join(hexadecimal(&Sha256::digest(project.as_bytes()))),
        }
    }

    /// Makes the home of a playbook that is about to run, and brings what it may see of the others'. `preserved`: what
    /// the job names. What could not be brought is told.
    pub(crate) fn open(&mut self, sharing: &Sharing, preserved: &BTreeSet<String>) -> io::Result<Vec<String>> {
        if *sharing == Sharing::Others {
            return Ok(Vec::new());
        }
        let mut told = Vec::new();
        let place = self.place(sharing);
        if !self.known.contains_key(sharing) {
            fs::create_dir_all(&place)?;
            fs::set_permissions(&place, fs::Permissions::from_mode(0o700))?;
            self.known.insert(sharing.clone(), Home::default());
            if *sharing != Sharing::Trusted && self.known.contains_key(&Sharing::Trusted) {
                let trusted = self.place(&Sharing::Trusted);
                let mut room = MOST_BYTES;
                for (path, look) in looked_at(&trusted)?.0 {
                    if let Err(error) = fits(&mut room, &look).and_then(|()| copy(&trusted, &place, &path, MOST_BYTES))
                    {
                        told.push(format!("{path:?} of the home directory is not brought along: {error}"));
                    }
                }
            }
        }
        for path in SHARED.into_iter().chain(preserved.iter().map(String::as_str)) {
            let path = Path::new(path);
            let safe = path.components().all(|part| matches!(part, Component::Normal(_)));
            if let Err(error) = if safe { copy(&self.others, &place, path, LARGEST) } else { Ok(()) } {
                told.push(format!("{path:?} of the home directory is not brought along: {error}"));
            }
        }
        // Before the playbook: only what it changes itself is given to others.
        let given = looked_at(&place)?.0;
        if let Some(home) = self.known.get_mut(sharing) {
            home.given = given;
        }
        Ok(told)
    }

    /// Gives what a playbook has left in its home to those who are trusted less. What could not be given is told.
    pub(crate) fn close(&mut self, sharing: &Sharing) -> io::Result<Vec<String>> {
        let mut told = Vec::new();
        let place = self.place(sharing);
        let less: Vec<PathBuf> = match sharing {
            Sharing::Others => return Ok(told),
            Sharing::Secrets(_) => vec![self.others.clone()],
            Sharing::Trusted => {
                let further = self.known.keys().filter(|known| matches!(known, Sharing::Secrets(_)));
                further.map(|known| self.place(known)).chain([self.others.clone()]).collect()
            }
        };
        let (files, all) = looked_at(&place)?;
        if !all {
            told.push(format!("of what is in the home directory only {MOST} entries are given to later playbooks"));
        }
        let Some(home) = self.known.get_mut(sharing) else { return Ok(told) };
        let before = std::mem::replace(&mut home.given, files);
        let gone = before.keys().filter(|path| all && !home.given.contains_key(*path));
        let changed: Vec<(&PathBuf, &Look)> =
            home.given.iter().filter(|(path, look)| before.get(*path) != Some(look)).collect();
        for to in less {
            for path in gone.clone() {
                remove(&to, path)?;
            }
            let mut room = MOST_BYTES;
            for (path, look) in &changed {
                if let Err(error) = fits(&mut room, look).and_then(|()| copy(&place, &to, path, MOST_BYTES)) {
                    told.push(format!("{path:?} of the home directory is not given to later playbooks: {error}"));
                }
            }
        }
        Ok(told)
    }
}

/// Takes the size of a file from the room there is.
fn fits(room: &mut u64, look: &Look) -> io::Result<()> {
    let left = room.checked_sub(look.1);
    *room = left.unwrap_or(*room);
    left.map(|_| ()).ok_or_else(|| io::Error::other(format!("a home gives {MOST_BYTES} bytes at most")))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files and links below a home, and whether these are all.
fn looked_at(home: &Path) -> io::Result<(BTreeMap<PathBuf, Look>, bool)> {
    let (mut files, mut folders, mut entries) = (BTreeMap::new(), vec![home.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        // One that cannot be read now can be by nobody else.
        let Ok(listed) = fs::read_dir(&folder) else { continue };
        for entry in listed.flatten() {
            entries += 1;
            if entries > MOST {
                return Ok((files, false));
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if (metadata.is_file() || metadata.is_symlink())
                && let Ok(path) = entry.path().strip_prefix(home)
            {
                let look = (metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec());
                files.insert(path.to_owned(), look);
            }
        }
    }
    Ok((files, true))
}

/// The directories above a path in a home, without a link among them. `None`: there is something else. `make`: makes
/// those that are missing, in place of whatever is there.
fn above(home: &Path, path: &Path, make: bool) -> io::Result<Option<PathBuf>> {
    let mut place = home.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        place.push(part);
        if fs::symlink_metadata(&place).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        if !make {
            return Ok(None);
        }
        clear(&place)?;
        fs::create_dir(&place)?;
    }
    Ok(Some(place))
}

fn remove(home: &Path, path: &Path) -> io::Result<()> {
    match (above(home, path, false)?, path.file_name()) {
        (Some(folder), Some(name)) => clear(&folder.join(name)),
        _ => Ok(()),
    }
}

/// Copies a file or link from one home to the other, in place of whatever is there; where it is gone, nothing.
fn copy(from: &Path, to: &Path, path: &Path, largest: u64) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let Some(source) = above(from, path, false)?.map(|folder| folder.join(name)) else { return Ok(()) };
    let metadata = match fs::symlink_metadata(&source) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(target) = above(to, path, true)?.map(|folder| folder.join(name)) else { return Ok(()) };
    if metadata.is_symlink() {
        clear(&target)?;
        return std::os::unix::fs::symlink(fs::read_link(&source)?, &target);
    }
    if !metadata.is_file() || metadata.size() > largest {
        return Err(io::Error::other(format!("it is no plain file of at most {largest} bytes")));
    }
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let mut reader = OpenOptions::new().read(true).custom_flags(flags).open(&source)?;
    clear(&target)?;
    let mode = metadata.permissions().mode() & 0o777;
    let mut writer = OpenOptions::new().write(true).create_new(true).mode(mode).open(&target)?;
    io::copy(&mut reader, &mut writer).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        folder: tempfile::TempDir,
        homes: Homes,
    }

    impl Place {
        fn new() -> Place {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("home/.ssh")).unwrap();
            let homes = Homes::new(folder.path().join("home"), folder.path().join("homes"));
            Place { folder, homes }
        }

        /// One playbook, which writes these into its home.
        fn played(&mut self, sharing: &Sharing, files: &[(&str, &str)]) -> Vec<String> {
            let preserved = ["kept".to_owned(), "../home/.ssh/x".to_owned()].into();
            let mut told = self.homes.open(sharing, &preserved).unwrap();
            for (path, text) in files {
                let path = self.homes.place(sharing).join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            told.extend(self.homes.close(sharing).unwrap());
            told
        }

        fn seen(&self, sharing: &Sharing, path: &str) -> Option<String> {
            fs::read_to_string(self.homes.place(sharing).join(path)).ok()
        }
    }

    fn secrets(project: &str) -> Sharing {
        Sharing::Secrets(project.into())
    }

    #[test]
    fn what_is_left_in_a_home_comes_to_those_who_are_trusted_less_and_not_back() {
        let mut place = Place::new();
        let (one, two) = (secrets("example.org/one"), secrets("example.org/two"));
        place.played(&one, &[]);
        place.played(&Sharing::Trusted, &[(".netrc", "login"), (".config/tool", "1")]);
        for sharing in [&one, &Sharing::Others] {
            assert_eq!(place.seen(sharing, ".netrc").as_deref(), Some("login"), "{sharing:?}");
        }
        place.played(
            &Sharing::Others,
            &[(".gitconfig", "trap"), (".bashrc", "trap"), ("kept", "1"), (".netrc", "trap")],
        );
        place.played(&one, &[(".profile", "of one")]);
        place.played(&two, &[]);
        place.played(&Sharing::Trusted, &[(".config/tool", "2")]);
        for sharing in [&one, &two, &Sharing::Trusted] {
            assert_eq!(
                (place.seen(sharing, ".gitconfig"), place.seen(sharing, ".bashrc")),
                (None, None),
                "{sharing:?}"
            );
            assert_eq!(place.seen(sharing, ".netrc").as_deref(), Some("login"), "{sharing:?}");
            assert_eq!(place.seen(sharing, "kept").as_deref(), Some("1"), "{sharing:?}");
            assert_eq!(place.seen(sharing, ".config/tool").as_deref(), Some("2"), "{sharing:?}");
        }
        assert_eq!((place.seen(&two, ".profile"), place.seen(&Sharing::Trusted, ".profile")), (None, None));
        assert_eq!(place.seen(&Sharing::Others, ".profile").as_deref(), Some("of one"));
        // What was not changed is not given a second time.
        assert_eq!(place.seen(&Sharing::Others, ".netrc").as_deref(), Some("trap"));
    }

    #[test]
    fn what_a_trusted_playbook_removes_is_gone_for_all() {
        let mut place = Place::new();
        place.played(&Sharing::Trusted, &[(".docker/config.json", "login")]);
        assert!(place.seen(&Sharing::Others, ".docker/config.json").is_some());
        place.homes.open(&Sharing::Trusted, &BTreeSet::new()).unwrap();
        fs::remove_file(place.homes.place(&Sharing::Trusted).join(".docker/config.json")).unwrap();
        place.homes.close(&Sharing::Trusted).unwrap();
        assert_eq!(place.seen(&Sharing::Others, ".docker/config.json"), None);
    }

    #[test]
    fn links_in_a_home_lead_nobody_out_of_it() {
        let mut place = Place::new();
        let outside = place.folder.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("tool"), "mine").unwrap();
        let home = place.folder.path().join("home");
        std::os::unix::fs::symlink(&outside, home.join(".config")).unwrap();
        std::os::unix::fs::symlink(outside.join("tool"), home.join("kept")).unwrap();
        place.played(&Sharing::Trusted, &[(".config/tool", "theirs")]);
        assert_eq!(fs::read_to_string(outside.join("tool")).unwrap(), "mine");
        assert_eq!(place.seen(&Sharing::Others, ".config/tool").as_deref(), Some("theirs"));
        // A link comes along as a link: what it leads to is looked for in the sandbox.
        assert!(fs::symlink_metadata(place.homes.place(&Sharing::Trusted).join("kept")).unwrap().is_symlink());
    }

    #[test]
    fn files_that_say_they_are_large_do_not_fill_the_disk_of_this_host() {
        let mut place = Place::new();
        let one = secrets("example.org/one");
        place.homes.open(&one, &BTreeSet::new()).unwrap();
        for name in ["a", "b", "c"] {
            let file = fs::File::create(place.homes.place(&one).join(name)).unwrap();
            file.set_len(MOST_BYTES / 2 + 1).unwrap();
        }
        fs::write(place.homes.place(&one).join("small"), "x").unwrap();
        let told = place.homes.close(&one).unwrap();
        assert!(told.len() == 2 && told.iter().all(|told| told.contains("not given to later playbooks")), "{told:?}");
        assert_eq!(place.seen(&Sharing::Others, "small").as_deref(), Some("x"));
    }

    #[test]
    fn what_is_too_large_or_no_file_is_told() {
        let mut place = Place::new();
        let file = fs::File::create(place.folder.path().join("home/kept")).unwrap();
        file.set_len(LARGEST + 1).unwrap();
        let told = place.played(&Sharing::Trusted, &[]);
        assert!(told[0].contains("\"kept\" of the home directory is not brought along"), "{told:?}");
    }
}
