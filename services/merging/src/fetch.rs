//! Bringing a mirror up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gatelog_event_log::failpoint;
use git2::{Oid, Repository};

use crate::error::MergeError;
use crate::kept::Open;
use crate::mirrors::{Locked, Mirrors};
use crate::names::{ProjectKey, full_ref};
use crate::remote::{Remote, is_remote};
use crate::sealed;
use crate::{objects, store};

/// Where other refs than branches and tags are kept: by a hash of their name, so that names that
/// are each other's directories over time do not get into each other's way.
const FETCHED: &str = "refs/gatelog/fetched";
/// Branches and tags.
const GLOBS: [&str; 2] = ["refs/heads/*", "refs/tags/*"];

/// What a fetch found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The refs that were asked for and the objects they name.
    pub refs: BTreeMap<String, String>,
    /// All branches (without `refs/heads/`) and their tips, of one moment.
    pub branches: BTreeMap<String, String>,
    /// The branch that HEAD names.
    pub default_branch: Option<String>,
}

/// What a repository offers: one reading of its refs.
pub(crate) struct Offer {
    /// Branches, tags and what else was asked for, by their whole names.
    pub(crate) refs: BTreeMap<String, Oid>,
    head: Option<String>,
}

impl Mirrors {
    /// Brings all branches and tags of a mirror up to date, and brings the refs asked for (whole
    /// names) with what they hold. A mirror that is not there, or half there, is made.
    ///
    /// Branches and tags that are gone disappear from the mirror, too. Each ref changes in one
    /// step, after its objects have come.
    ///
    /// # Errors
    /// [`MergeError::UnknownProject`], [`MergeError::Vanished`], [`MergeError::UnsupportedUrl`],
    /// [`MergeError::MissingRef`], [`MergeError::Damaged`], [`MergeError::Locked`],
    /// [`MergeError::TooMany`].
    pub fn fetch(&self, project: &ProjectKey, refs: &[&str]) -> Result<Fetched, MergeError> {
        let names = refs.iter().map(|name| full_ref(name)).collect::<Result<Vec<_>, _>>()?;
        self.fetch_all(project, &names).map(|offer| fetched(names, offer))
    }

    /// The same, and gives what was offered: what the mirror has now.
    pub(crate) fn fetch_all(&self, project: &ProjectKey, names: &[String]) -> Result<Offer, MergeError> {
        let began = self.moment();
        let offer = self.fetch_offer(project, names)?;
        self.seen.lock().note(project, began, &offer.refs);
        Ok(offer)
    }

    fn fetch_offer(&self, project: &ProjectKey, names: &[String]) -> Result<Offer, MergeError> {
        let url = self.source(project)?;
        let lock = self.lock(project)?;
        if is_remote(&url) {
            return self.fetch_remote(project, &url, names, &lock);
        }
        let source = self.source_of(project, &url)?;
        let offer = read_offer(project, &source, names, self.config.limits.refs)?;
        let missing = names.iter().find(|name| !offer.refs.contains_key(*name));
        if let Some(name) = missing {
            return Err(MergeError::MissingRef { project: project.clone(), name: name.clone() });
        }
        let path = self.path(project)?;
        if self.is_complete(&path) {
            // Objects come before the refs that name them: where no ref differs, there is nothing to bring.
            if names.is_empty() {
                let mirror = self.repository(project)?;
                if is_up_to_date(project, &mirror, &offer)? {
                    return Ok(offer);
                }
            }
            // What is there is asked of the disk, and not of what was there when somebody looked before.
            let mirror = self.open_mirror(project, &path)?;
            bring_objects(project, &source, &mirror, &offer, false)?;
            failpoint::pass("mirror/objects-copied");
            update_refs(&lock, project, &mirror, &offer)?;
            failpoint::pass("mirror/refs-updated");
        } else {
            self.create(&lock, project, &url, |mirror| {
                bring_objects(project, &source, mirror, &offer, true)?;
                failpoint::pass("mirror/objects-cloned");
                update_refs(&lock, project, mirror, &offer)
            })?;
        }
        Ok(offer)
    }

    fn fetch_remote(
        &self,
        project: &ProjectKey,
        url: &str,
        names: &[String],
        lock: &Locked,
    ) -> Result<Offer, MergeError> {
        let remote = Remote::new(project, url, self.access(project));
        let limit = self.config.limits.refs;
        let bring = |mirror: &Repository| {
            let (refs, head) = remote.bring(mirror, names, limit)?;
            if let Some(name) = names.iter().find(|name| !refs.contains_key(*name)) {
                return Err(MergeError::MissingRef { project: project.clone(), name: name.clone() });
            }
            let offer = Offer { refs, head };
            update_refs(lock, project, mirror, &offer)?;
            Ok(offer)
        };
        let path = self.path(project)?;
        if self.is_complete(&path) {
            return bring(&self.open_mirror(project, &path)?);
        }
        let mut made = None;
        self.create(lock, project, url, |mirror| {
            made = Some(bring(mirror)?);
            Ok(())
        })?;
        made.ok_or_else(|| MergeError::UnknownProject { project: project.clone() })
    }

    /// The repository behind an address, which stays open as a mirror does.
    fn source_of(&self, project: &ProjectKey, url: &str) -> Result<Open<'_>, MergeError> {
        let path = source_path(project, url)?;
        self.kept.take(&path, "HEAD", || {
            let source = open_source(project, url, &path)?;
            sealed::seal(&self.config.root, source).map_err(|e| MergeError::git(project, "cannot open its source", e))
        })
    }
}

/// The names asked for and the branches, as they were offered.
fn fetched(names: Vec<String>, offer: Offer) -> Fetched {
    let wanted = names.into_iter().filter_map(|n| offer.refs.get(&n).map(|id| (n.clone(), id.to_string())));
    let branches = offer
        .refs
        .iter()
        .filter_map(|(name, id)| name.strip_prefix("refs/heads/").map(|branch| (branch.to_owned(), id.to_string())));
    Fetched {
        refs: wanted.collect(),
        branches: branches.collect(),
        default_branch: offer.head.as_deref().and_then(|h| h.strip_prefix("refs/heads/")).map(str::to_owned),
    }
}

/// Whether a mirror's branches, tags and HEAD are those that are offered.
fn is_up_to_date(project: &ProjectKey, mirror: &Repository, offer: &Offer) -> Result<bool, MergeError> {
    // They were written here: no deeper than what was read there.
    let (refs, head) = read_refs(project, mirror, usize::MAX)?;
    Ok(refs == offer.refs && (offer.head.is_none() || head == offer.head))
}

/// Where the repository of an address of this host is. This, [`open_source`] and [`bring_objects`] are all that knows how
/// repositories of this host are reached; those of others are reached by [`Remote`].
fn source_path(project: &ProjectKey, url: &str) -> Result<PathBuf, MergeError> {
    match url.split_once("://") {
        None => Ok(PathBuf::from(url)),
        Some(("file", path)) if path.starts_with('/') => Ok(PathBuf::from(path)),
        Some(_) => Err(MergeError::UnsupportedUrl { project: project.clone(), url: url.to_owned() }),
    }
}

fn open_source(project: &ProjectKey, url: &str, path: &Path) -> Result<Repository, MergeError> {
    let vanished = |detail: String| MergeError::Vanished { project: project.clone(), url: url.to_owned(), detail };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(vanished("it is not a directory".to_owned())),
        Err(e) => return Err(vanished(e.to_string())),
    }
    let flags = git2::RepositoryOpenFlags::NO_SEARCH;
    Repository::open_ext(path, flags, &[] as &[&Path]).map_err(|e| match e.code() {
        git2::ErrorCode::NotFound => vanished("it is not a git repository".to_owned()),
        _ => MergeError::Damaged { project: project.clone(), what: "cannot open it", source: e },
    })
}

/// libgit2 gives up on refs whose directories are nested more than a hundred deep, and on all that it
/// would have read after them, without a word: branches would be taken for deleted.
fn check_depth(project: &ProjectKey, source: &Repository, glob: &str) -> Result<(), MergeError> {
    /// How deep directories of refs may be nested.
    const DEEPEST: usize = 90;
    let mut rest = vec![(source.path().join(glob.trim_end_matches('*')), 0)];
    while let Some((path, depth)) = rest.pop() {
        if depth > DEEPEST {
            let subject = format!("{project} ({})", path.display());
            let limit = u64::try_from(DEEPEST).unwrap_or(u64::MAX);
            return Err(MergeError::TooMany { what: "levels of refs", subject, limit });
        }
        // Gone since it was listed: then it is not too deep any more.
        let Ok(entries) = std::fs::read_dir(&path) else { continue };
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        rest.extend(directories.map(|entry| (entry.path(), depth + 1)));
    }
    Ok(())
}

fn read_offer(project: &ProjectKey, source: &Repository, wanted: &[String], limit: usize) -> Result<Offer, MergeError> {
    for glob in GLOBS {
        check_depth(project, source, glob)?;
    }
    let (mut refs, head) = read_refs(project, source, limit)?;
    for name in wanted {
        match source.refname_to_id(name) {
            Ok(id) => drop(refs.insert(name.clone(), id)),
            Err(e) if e.code() == git2::ErrorCode::NotFound => {}
            Err(e) => return Err(MergeError::git(project, "cannot read the refs", e)),
        }
    }
    Ok(Offer { refs, head })
}

/// The branches and tags of a repository, at most so many, and what its HEAD names.
fn read_refs(
    project: &ProjectKey,
    source: &Repository,
    limit: usize,
) -> Result<(BTreeMap<String, Oid>, Option<String>), MergeError> {
    let wrap = |e| MergeError::git(project, "cannot read the refs", e);
    let mut refs = BTreeMap::new();
    for glob in GLOBS {
        for reference in source.references_glob(glob).map_err(wrap)? {
            let reference = reference.map_err(wrap)?;
            // Names that are not UTF-8 cannot be configured, so nobody asks for them.
            let (Ok(name), Some(id)) = (reference.name(), reference.target()) else { continue };
            refs.insert(name.to_owned(), id);
            if refs.len() > limit {
                return Err(MergeError::TooMany {
                    what: "refs",
                    subject: project.to_string(),
                    limit: u64::try_from(limit).unwrap_or(u64::MAX),
                });
            }
        }
    }
    let head = source.find_reference("HEAD").ok();
    let head = head.and_then(|h| h.symbolic_target().ok().flatten().map(str::to_owned));
    Ok((refs, head))
}

fn bring_objects(
    project: &ProjectKey,
    source: &Repository,
    mirror: &Repository,
    offer: &Offer,
    new: bool,
) -> Result<(), MergeError> {
    let wrap = |e| MergeError::git(project, "cannot copy its objects", e);
    let objects = source.commondir().join("objects");
    // Objects that live in yet another repository would be missed by copying files.
    if new && !objects.join("info/alternates").exists() {
        let target = mirror.path().join("objects");
        // A repack in the midst of it may move files away; what is missing then comes below.
        if let Err(error) = store::copy_files(&objects, &target, false, |_| false) {
            tracing::debug!(%project, %error, "copying object files was cut short");
        }
    }
    let wants: BTreeSet<Oid> = offer.refs.values().copied().collect();
    objects::copy_missing(source, mirror, &wants).map_err(wrap)
}

fn update_refs(lock: &Locked, project: &ProjectKey, mirror: &Repository, offer: &Offer) -> Result<(), MergeError> {
    lock.write_refs(mirror, || write_refs(mirror, offer))
        .map_err(|e| MergeError::git(project, "cannot update the mirror's refs", e))
}

fn write_refs(mirror: &Repository, offer: &Offer) -> Result<(), git2::Error> {
    // What is gone goes first: a new branch may need its name as a directory.
    for glob in GLOBS {
        for reference in mirror.references_glob(glob)? {
            let mut reference = reference?;
            if !reference.name().is_ok_and(|name| offer.refs.contains_key(name)) {
                reference.delete()?;
            }
        }
    }
    for (name, &id) in &offer.refs {
        let kept = if name.starts_with("refs/heads/") || name.starts_with("refs/tags/") {
            name.clone()
        } else {
            let hash = Oid::hash_object(git2::ObjectType::Blob, name.as_bytes())?;
            format!("{FETCHED}/{hash}")
        };
        if mirror.refname_to_id(&kept).ok() != Some(id) {
            mirror.reference(&kept, id, true, "gatelog: fetch")?;
            failpoint::pass("mirror/ref-updated");
        }
    }
    if let Some(head) = &offer.head {
        let same = mirror.find_reference("HEAD").is_ok_and(|h| h.symbolic_target().ok().flatten() == Some(head));
        if !same {
            mirror.set_head(head)?;
        }
    }
    Ok(())
}
