//! What happened since the last look: refs compared with a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository};
use serde::{Deserialize, Serialize};

use crate::change::{APPROVED, ChangeKey, FOR, commit_id};
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::meaning::{self, Approves};
use crate::patchsets::commit_of;
use crate::submit::contains;

pub(crate) const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
/// What the name of a ref ends with here when it is no UTF-8; no ref's own name can have a space.
const NOT_UTF8: &str = " (not UTF-8)";
/// How deep directories of refs may be nested.
const DEEPEST: usize = 90;

/// What a project's refs were when they were last looked at. The caller keeps it, together with
/// the events it came with; an empty one stands for a project never seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefSnapshot {
    /// How many polls before this found something. It keeps the delivery ids of the same change of
    /// a ref apart, when a ref is moved there and back and there again.
    pub polls: u64,
    /// Branches, tags, proposals and approvals, by whole name, and the objects they name.
    pub refs: BTreeMap<String, String>,
}

/// Something that happened in a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeEvent {
    /// The same for the same event when the poll is repeated with the same snapshot.
    pub delivery: String,
    /// The project.
    pub project: String,
    /// The ref that changed, by its whole name.
    pub ref_name: String,
    /// What it named before.
    pub old: Option<String>,
    /// What it names now.
    pub new: Option<String>,
    /// What that means.
    pub kind: EventKind,
}

/// What a change of a ref means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A change was proposed, for the first time or again after it was closed.
    ChangeProposed {
        /// The change.
        change: ChangeKey,
        /// The patchset's number, from 1.
        patchset: u32,
        /// The patchset's commit.
        commit: String,
    },
    /// An open change got another patchset.
    PatchsetPushed {
        /// The change.
        change: ChangeKey,
        /// The patchset's number. Smaller than before when an old commit was pushed again.
        patchset: u32,
        /// The patchset's commit.
        commit: String,
    },
    /// The current patchset was approved.
    Approved {
        /// The change.
        change: ChangeKey,
        /// The patchset.
        patchset: u32,
        /// The patchset's commit.
        commit: String,
    },
    /// An approval that does not count.
    ApprovalIgnored {
        /// The change it names.
        change: ChangeKey,
        /// The commit it names.
        commit: String,
        /// Why it does not count.
        reason: IgnoredApproval,
    },
    /// The approval was deleted.
    ApprovalWithdrawn {
        /// The change.
        change: ChangeKey,
    },
    /// The proposal was deleted, and it had not merged.
    Abandoned {
        /// The change.
        change: ChangeKey,
    },
    /// The proposal is gone because gatelog merged it.
    Merged {
        /// The change.
        change: ChangeKey,
        /// The patchset that merged.
        patchset: u32,
        /// The commit it merged as.
        commit: String,
    },
    /// A branch came.
    BranchCreated {
        /// The branch, without `refs/heads/`.
        branch: String,
    },
    /// A branch moved.
    BranchUpdated {
        /// The branch, without `refs/heads/`.
        branch: String,
        /// Whether commits were taken away from it.
        forced: bool,
    },
    /// A branch went.
    BranchDeleted {
        /// The branch, without `refs/heads/`.
        branch: String,
    },
    /// A tag came.
    TagCreated {
        /// The tag, without `refs/tags/`.
        tag: String,
    },
    /// A tag moved.
    TagUpdated {
        /// The tag, without `refs/tags/`.
        tag: String,
    },
    /// A tag went.
    TagDeleted {
        /// The tag, without `refs/tags/`.
        tag: String,
    },
    /// A ref that means nothing, and why. To be shown to whoever pushed it.
    RefIgnored {
        /// Why, in one sentence.
        reason: String,
    },
}

/// Why an approval does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IgnoredApproval {
    /// Nothing of this name is proposed.
    NoSuchChange,
    /// It names another commit than the one proposed.
    OtherPatchset {
        /// The patchset it names, if it was one.
        approved: Option<u32>,
        /// The patchset that is proposed.
        current: u32,
    },
}

impl Forge {
    /// What happened since a snapshot, in an order in which it can be taken in: branches, tags,
    /// proposals, approvals. With an empty snapshot, everything there is.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`] when the repository has vanished, [`ForgeError::TooMany`],
    /// [`ForgeError::Git`].
    pub fn poll(&self, project: &str, known: &RefSnapshot) -> Result<(Vec<ForgeEvent>, RefSnapshot), ForgeError> {
        let repo = self.repository(project)?;
        let refs = self.read_refs(&repo, project)?;
        if refs == known.refs {
            return Ok((Vec::new(), known.clone()));
        }
        let mut names: Vec<&String> = refs.keys().chain(known.refs.keys()).collect();
        names.sort_by_key(|name| (rank(name), name.as_str()));
        names.dedup();
        let look = Look { forge: self, repo: &repo, project, refs: &refs };
        let now = RefSnapshot { polls: known.polls.saturating_add(1), refs: refs.clone() };
        let mut events = Vec::new();
        // Approvals that were there before the commit they approve.
        let mut proposed_anew = BTreeSet::new();
        for name in names {
            let (old, new) = (known.refs.get(name), refs.get(name));
            let early = name.starts_with(APPROVED) && old == new && proposed_anew.contains(name);
            if old == new && !early {
                continue;
            }
            let kind = match rank(name) {
                _ if name.ends_with(NOT_UTF8) => {
                    Some(EventKind::RefIgnored { reason: "the name of the ref is not UTF-8".to_owned() })
                }
                0 => Some(look.branch(name, old, new)),
                1 => Some(tag(name, old, new)),
                2 => Some(look.proposal(name, old, new, &mut proposed_anew)?),
                _ => look.approval(name, new, early)?,
            };
            if let Some(kind) = kind {
                let text = |id: Option<&String>| id.map_or("-", String::as_str).to_owned();
                // An approval that only now counts is made known by the proposal's arrival.
                let cause = if early { "early" } else { "ref" };
                let delivery = format!("{project}:{name}:{}:{}:{}:{cause}", text(old), text(new), now.polls);
                events.push(ForgeEvent {
                    delivery,
                    project: project.to_owned(),
                    ref_name: name.clone(),
                    old: old.cloned(),
                    new: new.cloned(),
                    kind,
                });
            }
        }
        Ok((events, now))
    }

    pub(crate) fn read_refs(&self, repo: &Repository, project: &str) -> Result<BTreeMap<String, String>, ForgeError> {
        let wrap = ForgeError::git(project, "cannot read the refs");
        let limit = self.config.limits.refs;
        let mut found = BTreeMap::new();
        for prefix in [HEADS, TAGS, FOR, APPROVED] {
            check_depth(repo, project, prefix)?;
            for reference in repo.references_glob(&format!("{prefix}*")).map_err(&wrap)? {
                let reference = match reference {
                    Ok(reference) => reference,
                    // Deleted between being listed and being read.
                    Err(e) if e.code() == git2::ErrorCode::NotFound => continue,
                    Err(e) => return Err(wrap(e)),
                };
                let Some(id) = reference.target() else { continue };
                let name = match std::str::from_utf8(reference.name_bytes()) {
                    Ok(name) => name.to_owned(),
                    // Two such names may read the same: nothing may be done by them, only told.
                    Err(_) => format!("{}{NOT_UTF8}", String::from_utf8_lossy(reference.name_bytes())),
                };
                found.insert(name, id.to_string());
                if found.len() > limit {
                    return Err(ForgeError::TooMany { what: "refs", subject: project.to_owned(), limit });
                }
            }
        }
        Ok(found)
    }
}

/// libgit2 gives up on refs whose directories are nested more than a hundred deep, and on all that it
/// would have read after them, without a word: they would be taken for deleted.
fn check_depth(repo: &Repository, project: &str, prefix: &str) -> Result<(), ForgeError> {
    let root = repo.path().join(prefix);
    let mut rest = vec![(root, 0)];
    while let Some((path, depth)) = rest.pop() {
        if depth > DEEPEST {
            return Err(ForgeError::TooDeep { project: project.to_owned(), path });
        }
        // Gone since it was listed: then it is not too deep any more.
        let Ok(entries) = std::fs::read_dir(&path) else { continue };
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        rest.extend(directories.map(|entry| (entry.path(), depth + 1)));
    }
    Ok(())
}

fn rank(name: &str) -> u8 {
    match name {
        _ if name.starts_with(HEADS) => 0,
        _ if name.starts_with(TAGS) => 1,
        _ if name.starts_with(FOR) => 2,
        _ => 3,
    }
}

fn tag(name: &str, old: Option<&String>, new: Option<&String>) -> EventKind {
    let tag = name.strip_prefix(TAGS).unwrap_or(name).to_owned();
    match (old, new) {
        (None, _) => EventKind::TagCreated { tag },
        (_, None) => EventKind::TagDeleted { tag },
        _ => EventKind::TagUpdated { tag },
    }
}

/// One look at a repository.
struct Look<'a> {
    forge: &'a Forge,
    repo: &'a Repository,
    project: &'a str,
    refs: &'a BTreeMap<String, String>,
}

impl Look<'_> {
    fn branch(&self, name: &str, old: Option<&String>, new: Option<&String>) -> EventKind {
        let branch = name.strip_prefix(HEADS).unwrap_or(name).to_owned();
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (commit_id(old), commit_id(new)),
            (None, _) => return EventKind::BranchCreated { branch },
            (_, None) => return EventKind::BranchDeleted { branch },
        };
        let forward = match (old, new) {
            (Ok(old), Ok(new)) => contains(self.repo, new, old).unwrap_or(false),
            _ => false,
        };
        EventKind::BranchUpdated { branch, forced: !forward }
    }

    fn proposal(
        &self,
        name: &str,
        old: Option<&String>,
        new: Option<&String>,
        proposed_anew: &mut BTreeSet<String>,
    ) -> Result<EventKind, ForgeError> {
        let change = match ChangeKey::of_ref(self.project, name) {
            Ok(change) => change,
            Err(e) => return Ok(EventKind::RefIgnored { reason: e.to_string() }),
        };
        let Some(new) = new else {
            let commit = old.and_then(|id| commit_id(id).ok());
            return self.closed(change, commit);
        };
        let has_branch = |name: &str| self.refs.contains_key(name);
        let commit = match meaning::proposed(self.repo, &change, commit_id(new).ok(), has_branch) {
            Ok(commit) => commit,
            Err(reason) => return Ok(EventKind::RefIgnored { reason: reason.to_string() }),
        };
        let patchset = self.forge.number_patchsets(self.repo, &change, commit)?;
        proposed_anew.insert(change.approval_ref());
        let commit = commit.to_string();
        Ok(match old {
            None => EventKind::ChangeProposed { change, patchset, commit },
            Some(_) => EventKind::PatchsetPushed { change, patchset, commit },
        })
    }

    fn closed(&self, change: ChangeKey, commit: Option<Oid>) -> Result<EventKind, ForgeError> {
        let patchsets = self.forge.patchsets(self.repo, &change)?;
        let patchset = patchsets.iter().find(|(_, id)| Some(**id) == commit).map(|(number, _)| *number);
        let merged = self.forge.merged(self.repo, &change)?;
        Ok(match patchset.and_then(|number| Some((number, merged.get(&number)?))) {
            Some((patchset, commit)) => EventKind::Merged { change, patchset, commit: commit.to_string() },
            None => EventKind::Abandoned { change },
        })
    }

    fn approval(&self, name: &str, new: Option<&String>, early: bool) -> Result<Option<EventKind>, ForgeError> {
        let change = match ChangeKey::of_ref(self.project, name) {
            Ok(change) => change,
            Err(e) => return Ok(Some(EventKind::RefIgnored { reason: e.to_string() })),
        };
        let Some(new) = new else {
            // gatelog deletes it with the proposal when the change has merged.
            let open = self.refs.contains_key(&change.proposal_ref());
            let is_merged = !open && !self.forge.merged(self.repo, &change)?.is_empty();
            return Ok((!is_merged).then_some(EventKind::ApprovalWithdrawn { change }));
        };
        let proposal = self.refs.get(&change.proposal_ref()).and_then(|id| commit_id(id).ok());
        let (proposed, approved) = match meaning::approves(self.repo, commit_id(new).ok(), proposal) {
            Approves::Nothing => {
                let commit = commit_id(new).ok().and_then(|id| commit_of(self.repo, id));
                let commit = commit.map_or_else(|| new.clone(), |id| id.to_string());
                let reason = IgnoredApproval::NoSuchChange;
                return Ok(Some(EventKind::ApprovalIgnored { change, commit, reason }));
            }
            Approves::Proposed(commit) => (commit, Some(commit)),
            Approves::Other { approved, proposed } => (proposed, approved),
        };
        let commit = approved.map_or_else(|| new.clone(), |id| id.to_string());
        let patchset = self.forge.number_patchsets(self.repo, &change, proposed)?;
        if approved == Some(proposed) {
            return Ok(Some(EventKind::Approved { change, patchset, commit }));
        }
        if early {
            // Nothing was pushed to it; that it does not count any more is told by the patchset.
            return Ok(None);
        }
        let patchsets = self.forge.patchsets(self.repo, &change)?;
        let approved = patchsets.iter().find(|(_, id)| Some(**id) == approved).map(|(number, _)| *number);
        let reason = IgnoredApproval::OtherPatchset { approved, current: patchset };
        Ok(Some(EventKind::ApprovalIgnored { change, commit, reason }))
    }
}
