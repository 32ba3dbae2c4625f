//! What a ref below `refs/for/` and `refs/approved/` means, and what of a push means nothing.
//!
//! The poll that turns refs into events and the hook that answers a pusher ask the same functions here: what is
//! refused in a terminal is what would be passed over afterwards, or could never merge.

use std::collections::BTreeMap;
use std::path::PathBuf;

use git2::{ErrorCode, ObjectType, Oid, Repository};

use crate::change::{APPROVED, ChangeKey, FOR, commit_id};
use crate::error::ForgeError;
use crate::forge::{Limits, branches_of};
use crate::patchsets::{commit_of, numbered};
use crate::poll::HEADS;
use crate::refs;
use crate::report::NOTES_REF;
use crate::setup::LEVELS;

/// What gatelog keeps in a repository: nobody else writes there.
const KEPT: &str = "refs/gatelog/";

/// The longest line of a push that is read, in bytes; git's own limit for a packet.
const LINE_MAX: usize = 65_520;

/// Why a ref means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Meaningless {
    /// Its name is no text.
    #[error("the name of the ref is not UTF-8")]
    NotUtf8,
    /// Its name is none of a change.
    #[error("{0}")]
    BadName(String),
    /// The branch is not there.
    #[error("{project} has no branch {branch}: push the branch first")]
    NoBranch {
        /// The project.
        project: String,
        /// The branch, without `refs/heads/`.
        branch: String,
    },
    /// It names something else than a commit.
    #[error("{name} does not name a commit")]
    NoCommit {
        /// The ref.
        name: String,
        /// What it names: `blob`, `tree`, or `object` where that is not known.
        kind: &'static str,
    },
    /// All of it is in the branch.
    #[error("commit {commit} is in {branch} already: there is nothing to merge")]
    InBranch {
        /// The branch.
        branch: String,
        /// The commit.
        commit: String,
    },
    /// It has no commit in common with the branch.
    #[error("commit {commit} and {branch} have no history in common: they cannot be merged")]
    Unrelated {
        /// The branch.
        branch: String,
        /// The commit.
        commit: String,
    },
    /// The change has as many patchsets as a change may have.
    #[error("the change has {limit} patchsets, and may have no more")]
    TooManyPatchsets {
        /// The limit.
        limit: usize,
    },
    /// An approval of what nobody has proposed.
    #[error("no change {branch}/{name} is proposed")]
    NoSuchChange {
        /// The branch.
        branch: String,
        /// The change.
        name: String,
    },
    /// An approval of another commit than the one proposed.
    #[error("it approves {approved}, and {proposed} is what is proposed")]
    OtherCommit {
        /// The commit it names, or what else that is.
        approved: String,
        /// The commit that is proposed.
        proposed: String,
    },
    /// The ref is gatelog's own.
    #[error("gatelog alone writes this ref")]
    Kept,
    /// It is nested so deeply that it would hide others.
    #[error("a ref may have {LEVELS} levels at most")]
    TooDeep,
}

/// What an approval says of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Approves {
    /// The commit that is proposed.
    Proposed(Oid),
    /// Another one.
    Other {
        /// The commit it names, if it names one.
        approved: Option<Oid>,
        /// The commit that is proposed.
        proposed: Oid,
    },
    /// A change that is not proposed.
    Nothing,
}

/// The commit that a ref proposes for a change's branch.
pub(crate) fn proposed(
    repo: &Repository,
    change: &ChangeKey,
    new: Option<Oid>,
    has_branch: impl Fn(&str) -> bool,
) -> Result<Oid, Meaningless> {
    if !has_branch(&format!("{HEADS}{}", change.branch)) {
        return Err(Meaningless::NoBranch { project: change.project.clone(), branch: change.branch.clone() });
    }
    new.and_then(|id| commit_of(repo, id))
        .ok_or_else(|| Meaningless::NoCommit { name: change.proposal_ref(), kind: kind_of(repo, new) })
}

/// What an approval says, where its ref names `new` and the change's ref names `proposal`.
pub(crate) fn approves(repo: &Repository, new: Option<Oid>, proposal: Option<Oid>) -> Approves {
    let approved = new.and_then(|id| commit_of(repo, id));
    match proposal.and_then(|id| commit_of(repo, id)) {
        None => Approves::Nothing,
        Some(proposed) if approved == Some(proposed) => Approves::Proposed(proposed),
        Some(proposed) => Approves::Other { approved, proposed },
    }
}

fn kind_of(repo: &Repository, id: Option<Oid>) -> &'static str {
    let object = id.and_then(|id| repo.find_object(id, None).ok());
    // What a tag stands for is what was meant.
    let object =
        object.and_then(|object| if object.kind() == Some(ObjectType::Tag) { peeled(&object) } else { Some(object) });
    match object.and_then(|object| object.kind()) {
        Some(ObjectType::Blob) => "blob",
        Some(ObjectType::Tree) => "tree",
        _ => "object",
    }
}

fn peeled<'r>(object: &git2::Object<'r>) -> Option<git2::Object<'r>> {
    object.peel(ObjectType::Any).ok()
}

/// One ref that a push gives another value, as git tells it to hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    /// What the ref named before; `None`: it was not there.
    pub old: Option<String>,
    /// What it is to name; `None`: it goes.
    pub new: Option<String>,
    /// Its whole name, in whatever bytes it has.
    pub name: Vec<u8>,
}

impl RefUpdate {
    /// Reads a line `<old> <new> <ref>`; `None` where it is no such line.
    pub fn parse(line: &[u8]) -> Option<RefUpdate> {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let mut id = || {
            let text = std::str::from_utf8(parts.next()?).ok()?;
            let hex = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            hex.then(|| text.bytes().any(|byte| byte != b'0').then(|| text.to_owned()))
        };
        let (old, new) = (id()?, id()?);
        let name = parts.next().filter(|name| !name.is_empty() && line.len() <= LINE_MAX)?.to_vec();
        Some(RefUpdate { old, new, name })
    }

    /// The ref's name for people: what is no text is replaced.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// The change it proposes or takes back (`true`), or approves or does not approve any more (`false`).
    pub fn change(&self, project: &str) -> Option<(ChangeKey, bool)> {
        let name = std::str::from_utf8(&self.name).ok()?;
        Some((ChangeKey::of_ref(project, name).ok()?, name.starts_with(FOR)))
    }
}

/// The repository a push goes to.
#[derive(Clone, Debug)]
pub struct PushedTo {
    /// Where it is.
    pub repository: PathBuf,
    /// Where git keeps the objects of the push until it is accepted (`GIT_QUARANTINE_PATH`).
    pub quarantine: Option<PathBuf>,
    /// The project.
    pub project: String,
    /// The limits of the forge.
    pub limits: Limits,
}

/// A ref of a push that means nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The ref, for people.
    pub ref_name: String,
    /// Why.
    pub reason: Meaningless,
}

impl PushedTo {
    /// The refs of a push that mean nothing, where all of it is taken together: a branch and a change for it may come in
    /// one push. What takes a ref away always means something. Changes nothing.
    ///
    /// Beside what a poll passes over, this names changes that could never merge: those that are in their branch
    /// already, and those without history in common with it.
    ///
    /// # Errors
    /// [`ForgeError::TooMany`], and [`ForgeError::Git`] when the repository cannot be read: nothing is known then.
    pub fn check(&self, updates: &[RefUpdate]) -> Result<Vec<Refusal>, ForgeError> {
        let limit = self.limits.refs;
        if updates.len() > limit {
            return Err(ForgeError::TooMany { what: "refs in one push", subject: self.project.clone(), limit });
        }
        let repo = self.open()?;
        let mut after: BTreeMap<&str, Option<Oid>> = BTreeMap::new();
        for update in updates {
            if let Ok(name) = std::str::from_utf8(&update.name) {
                after.insert(name, update.new.as_deref().and_then(|id| commit_id(id).ok()));
            }
        }
        let push = Push { to: self, repo: &repo, after: &after };
        let mut refused = Vec::new();
        for update in updates.iter().filter(|update| update.new.is_some()) {
            if let Err(reason) = push.judge(update)? {
                refused.push(Refusal { ref_name: update.shown(), reason });
            }
        }
        // A branch that means something may still not go where gatelog keeps its own.
        let taken = updates.iter().filter(|update| update.new.is_none() && is_kept(&update.name));
        refused.extend(taken.map(|update| Refusal { ref_name: update.shown(), reason: Meaningless::Kept }));
        Ok(refused)
    }

    /// The branches of the repository, sorted.
    ///
    /// # Errors
    /// [`ForgeError::TooMany`], [`ForgeError::Git`].
    pub fn branches(&self) -> Result<Vec<String>, ForgeError> {
        branches_of(&self.open()?, &self.project, self.limits.refs)
    }

    fn open(&self) -> Result<Repository, ForgeError> {
        let wrap = ForgeError::git(&self.project, "cannot read what was pushed");
        let repo = Repository::open_bare(&self.repository).map_err(&wrap)?;
        if let Some(objects) = self.quarantine.as_deref().and_then(std::path::Path::to_str) {
            repo.odb().and_then(|odb| odb.add_disk_alternate(objects)).map_err(&wrap)?;
        }
        Ok(repo)
    }
}

fn is_kept(name: &[u8]) -> bool {
    name.starts_with(KEPT.as_bytes()) || name.starts_with(NOTES_REF.as_bytes())
}

/// A push that is looked at.
struct Push<'a> {
    to: &'a PushedTo,
    repo: &'a Repository,
    /// What refs of the push name afterwards.
    after: &'a BTreeMap<&'a str, Option<Oid>>,
}

impl Push<'_> {
    fn judge(&self, update: &RefUpdate) -> Result<Result<(), Meaningless>, ForgeError> {
        if is_kept(&update.name) {
            return Ok(Err(Meaningless::Kept));
        }
        // The first two levels are those of `refs/heads/`.
        if update.name.iter().filter(|byte| **byte == b'/').count() > LEVELS + 2 {
            return Ok(Err(Meaningless::TooDeep));
        }
        let ours = update.name.starts_with(FOR.as_bytes()) || update.name.starts_with(APPROVED.as_bytes());
        if !ours {
            return Ok(Ok(()));
        }
        let Ok(name) = std::str::from_utf8(&update.name) else { return Ok(Err(Meaningless::NotUtf8)) };
        let change = match ChangeKey::of_ref(&self.to.project, name) {
            Ok(change) => change,
            Err(error) => return Ok(Err(Meaningless::BadName(error.to_string()))),
        };
        let new = self.named(name)?;
        if name.starts_with(FOR) { self.proposal(&change, new) } else { self.approval(&change, new) }
    }

    /// What a ref names after the push.
    fn named(&self, name: &str) -> Result<Option<Oid>, ForgeError> {
        match self.after.get(name) {
            Some(id) => Ok(*id),
            None => refs::read(self.repo, &self.to.project, name),
        }
    }

    fn proposal(&self, change: &ChangeKey, new: Option<Oid>) -> Result<Result<(), Meaningless>, ForgeError> {
        let tip = self.named(&format!("{HEADS}{}", change.branch))?;
        let commit = match proposed(self.repo, change, new, |_| tip.is_some()) {
            Ok(commit) => commit,
            Err(reason) => return Ok(Err(reason)),
        };
        let limit = self.to.limits.patchsets;
        let known = numbered(self.repo, change, "patchsets", limit)?;
        if known.len() >= limit && !known.values().any(|id| *id == commit) {
            return Ok(Err(Meaningless::TooManyPatchsets { limit }));
        }
        let (branch, shown) = (change.branch.clone(), commit.to_string());
        let Some(tip) = tip.and_then(|id| commit_of(self.repo, id)) else { return Ok(Ok(())) };
        Ok(match self.repo.merge_base(tip, commit) {
            Ok(base) if base == commit => Err(Meaningless::InBranch { branch, commit: shown }),
            Err(error) if error.code() == ErrorCode::NotFound => Err(Meaningless::Unrelated { branch, commit: shown }),
            // A history that cannot be read is told by whoever merges it.
            _ => Ok(()),
        })
    }

    fn approval(&self, change: &ChangeKey, new: Option<Oid>) -> Result<Result<(), Meaningless>, ForgeError> {
        let proposal = self.named(&change.proposal_ref())?;
        Ok(match approves(self.repo, new, proposal) {
            Approves::Proposed(_) => Ok(()),
            Approves::Nothing => {
                Err(Meaningless::NoSuchChange { branch: change.branch.clone(), name: change.name.clone() })
            }
            Approves::Other { approved, proposed } => Err(Meaningless::OtherCommit {
                approved: approved.map_or_else(|| format!("a {}", kind_of(self.repo, new)), |id| id.to_string()),
                proposed: proposed.to_string(),
            }),
        })
    }
}
