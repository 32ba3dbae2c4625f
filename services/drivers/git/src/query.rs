//! Facts about changes, and what they depend on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use git2::{Commit, DiffOptions, ErrorCode, Oid, Repository, Sort};

use crate::change::{ChangeKey, FOR, check_branch, commit_id, depends_on};
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::patchsets::commit_of;
use crate::poll::HEADS;
use crate::refs;
use crate::submit::contains;

/// How many commits of a change are searched for other changes below it.
const STACK_MAX: usize = 250;

/// An approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The commit it names.
    pub commit: String,
    /// The patchset that is, if it is one.
    pub patchset: Option<u32>,
    /// Whether it is the one proposed now. Only then does it count.
    pub current: bool,
}

/// All that is known of a change at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeFacts {
    /// The change.
    pub change: ChangeKey,
    /// Its address.
    pub url: String,
    /// The patchset proposed now; of a closed change, the one that merged, or the last.
    pub patchset: u32,
    /// That patchset's commit.
    pub commit: String,
    /// The ref that keeps this patchset.
    pub patchset_ref: String,
    /// The commit's parents.
    pub parents: Vec<String>,
    /// The commit message.
    pub message: String,
    /// Whether the message was longer than the limit.
    pub message_truncated: bool,
    /// The message's first line.
    pub subject: String,
    /// The commit's author.
    pub owner_name: String,
    /// The author's mail address.
    pub owner_email: String,
    /// When the commit was made, in seconds since 1970.
    pub committed_s: i64,
    /// The texts behind `Depends-On:`, as they stand. [`Forge::resolve`] tells what they name.
    pub depends_on: Vec<String>,
    /// Changes of the same branch that this one is built on, with the patchset it is built on.
    /// Zuul: `git_needs_changes`. Only the nearest; they have their own.
    pub git_needs: Vec<(ChangeKey, u32)>,
    /// The files the change touches, against the newest commit it shares with the branch.
    pub files: Vec<String>,
    /// Whether the list was longer than the limit.
    pub files_truncated: bool,
    /// Whether it is proposed and has not merged.
    pub open: bool,
    /// Whether this patchset is in the branch: gatelog merged it, or somebody pushed it there.
    pub merged: bool,
    /// The approval, if there is one.
    pub approved: Option<Approval>,
    /// The tip of the branch it is for; `None` when the branch is gone.
    pub base_tip: Option<String>,
}

/// What a text behind `Depends-On:` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// A change of this forge.
    Change(ChangeKey),
    /// An address of another host, or nothing that was ever proposed here. Zuul ignores it.
    Foreign,
    /// A short form that fits several open changes. It is ignored; write the whole address.
    Ambiguous(Vec<ChangeKey>),
}

/// A dependency that could not be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The change that has it.
    pub change: ChangeKey,
    /// The text behind `Depends-On:`.
    pub text: String,
    /// Why.
    pub resolution: Resolution,
}

/// Changes with all they depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closure {
    /// The facts of each.
    pub changes: BTreeMap<ChangeKey, ChangeFacts>,
    /// What each depends on directly: by `Depends-On:` first, then by commits.
    pub needs: BTreeMap<ChangeKey, Vec<ChangeKey>>,
    /// Dependencies that lead nowhere.
    pub unresolved: Vec<Unresolved>,
    /// Whether the limit was reached: then something is missing and nothing should be decided.
    pub truncated: bool,
}

/// The patchsets of all that is proposed for a branch of a project: asked for once in a search over many changes.
type Siblings = BTreeMap<(String, String), Vec<(Oid, ChangeKey, u32)>>;

impl Forge {
    /// The facts about a change.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::NoChange`], [`ForgeError::BadName`],
    /// [`ForgeError::Git`].
    pub fn query(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError> {
        self.query_among(change, &mut Siblings::new())
    }

    fn query_among(&self, change: &ChangeKey, siblings: &mut Siblings) -> Result<ChangeFacts, ForgeError> {
        // The parts are public, so they may be anything.
        let change = &ChangeKey::new(&change.project, &change.branch, &change.name)?;
        let repo = self.repository(&change.project)?;
        let wrap = ForgeError::git(&change.project, "cannot read a change");
        let read = |name: &str| -> Result<Option<Oid>, ForgeError> {
            let found = refs::read(&repo, &change.project, name)?;
            Ok(found.and_then(|id| commit_of(&repo, id)))
        };
        let proposed = read(&change.proposal_ref())?;
        let base = refs::read(&repo, &change.project, &check_branch(&change.branch)?)?;
        let markers = self.merged(&repo, change)?;
        let (patchset, commit) = match proposed {
            Some(commit) => (self.number_patchsets(&repo, change, commit)?, commit),
            None => {
                let all = self.patchsets(&repo, change)?;
                let last_merged = markers.keys().next_back().and_then(|n| Some((*n, *all.get(n)?)));
                let last = all.last_key_value().map(|(n, id)| (*n, *id));
                last_merged.or(last).ok_or_else(|| ForgeError::NoChange { change: change.clone() })?
            }
        };
        let patchsets = self.patchsets(&repo, change)?;
        let contained = match base {
            Some(tip) => tip == commit || repo.graph_descendant_of(tip, commit).map_err(&wrap)?,
            None => false,
        };
        let merged = markers.contains_key(&patchset) || contained;
        let approved = read(&change.approval_ref())?.map(|id| Approval {
            commit: id.to_string(),
            patchset: patchsets.iter().find(|(_, known)| **known == id).map(|(number, _)| *number),
            current: Some(id) == proposed,
        });
        let found = repo.find_commit(commit).map_err(&wrap)?;
        let (message, message_truncated) = shorten(&found, self.config.limits.message_bytes);
        let (files, files_truncated) = files(&repo, base, &found, self.config.limits.files).map_err(&wrap)?;
        let author = found.author();
        Ok(ChangeFacts {
            url: change.url(&self.config.canonical_host),
            patchset,
            commit: commit.to_string(),
            patchset_ref: change.patchset_ref(patchset),
            parents: found.parent_ids().map(|id| id.to_string()).collect(),
            subject: message.lines().next().unwrap_or_default().trim().to_owned(),
            depends_on: depends_on(&message, self.config.limits.depends_on),
            message,
            message_truncated,
            owner_name: String::from_utf8_lossy(author.name_bytes()).into_owned(),
            owner_email: String::from_utf8_lossy(author.email_bytes()).into_owned(),
            committed_s: found.time().seconds(),
            git_needs: if merged { Vec::new() } else { self.git_needs(&repo, change, base, commit, siblings)? },
            files,
            files_truncated,
            open: proposed.is_some() && !merged,
            merged,
            approved,
            base_tip: base.map(|id| id.to_string()),
            change: change.clone(),
        })
    }

    /// The changes proposed in a project for a branch it has, whether merged by now or not.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::TooMany`], [`ForgeError::Git`].
    pub fn proposed_changes(&self, project: &str) -> Result<Vec<ChangeKey>, ForgeError> {
        let repo = self.repository(project)?;
        let refs = self.read_refs(&repo, project)?;
        let names = refs.keys().filter(|name| name.starts_with(FOR));
        let changes = names.filter_map(|name| ChangeKey::of_ref(project, name).ok());
        // What is proposed for no branch is told as such when it comes, and is in nobody's way.
        Ok(changes.filter(|change| refs.contains_key(&format!("{HEADS}{}", change.branch))).collect())
    }

    /// The changes that are proposed and not in their branch yet. Changes nothing in the repository.
    ///
    /// # Errors
    /// As [`Forge::proposed_changes`].
    pub fn open_changes(&self, project: &str) -> Result<Vec<ChangeKey>, ForgeError> {
        let repo = self.repository(project)?;
        let commit = |name: &str| -> Result<Option<Oid>, ForgeError> {
            Ok(refs::read(&repo, project, name)?.and_then(|id| commit_of(&repo, id)))
        };
        let mut open = Vec::new();
        for change in self.proposed_changes(project)? {
            let tip = commit(&check_branch(&change.branch)?)?;
            // Gone since it was listed.
            let Some(proposed) = commit(&change.proposal_ref())? else { continue };
            let merged = match tip {
                Some(tip) => {
                    contains(&repo, tip, proposed).map_err(ForgeError::git(project, "cannot read a change"))?
                }
                None => false,
            };
            if !merged {
                open.push(change);
            }
        }
        Ok(open)
    }

    /// What a text behind `Depends-On:` names: a change's whole address, or, for people who type,
    /// `<project>/<branch>/<name>` or `<project>/<name>` where that fits exactly one open change.
    ///
    /// # Errors
    /// [`ForgeError::Io`], [`ForgeError::Git`].
    pub fn resolve(&self, text: &str) -> Result<Resolution, ForgeError> {
        if let Some(change) = ChangeKey::from_url(text, &self.config.canonical_host) {
            return match self.repository(&change.project) {
                Ok(repo) => {
                    let proposed = refs::read(&repo, &change.project, &change.proposal_ref())?.is_some();
                    let known = proposed || !self.patchsets(&repo, &change)?.is_empty();
                    Ok(if known { Resolution::Change(change) } else { Resolution::Foreign })
                }
                Err(ForgeError::NoProject { .. }) => Ok(Resolution::Foreign),
                Err(e) => Err(e),
            };
        }
        if text.contains("://") || !text.contains('/') {
            return Ok(Resolution::Foreign);
        }
        let mut found = Vec::new();
        for project in self.projects()? {
            let Some(rest) = text.strip_prefix(project.as_str()).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            let fits = |c: &ChangeKey| rest == c.name || rest == format!("{}/{}", c.branch, c.name);
            found.extend(self.proposed_changes(&project)?.into_iter().filter(fits));
        }
        Ok(match found.len() {
            0 => Resolution::Foreign,
            1 => found.pop().map_or(Resolution::Foreign, Resolution::Change),
            _ => Resolution::Ambiguous(found),
        })
    }

    /// The open changes of some projects that need this one, directly. Zuul: the reverse search
    /// for `Depends-On`, and changes built on this one's commits.
    ///
    /// Of a project with more open changes than the limit only so many are looked at, by name: one that is
    /// passed over is not found here, and is known as soon as somebody asks for it by itself.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::Git`].
    pub fn needed_by(&self, change: &ChangeKey, projects: &[String]) -> Result<Vec<ChangeKey>, ForgeError> {
        let mut found = Vec::new();
        let mut siblings = Siblings::new();
        for project in projects {
            for other in self.proposed_changes(project)?.into_iter().take(self.config.limits.changes) {
                if other == *change {
                    continue;
                }
                let facts = match self.query_among(&other, &mut siblings) {
                    Ok(facts) => facts,
                    // Closed while we looked.
                    Err(ForgeError::NoChange { .. }) => continue,
                    Err(e) => return Err(e),
                };
                if facts.open && self.needs(&facts, &mut Vec::new())?.contains(change) {
                    found.push(other);
                }
            }
        }
        Ok(found)
    }

    /// Changes with all they depend on, over any number of steps. Merged changes are in it, what
    /// those depended on is not.
    ///
    /// # Errors
    /// As [`Forge::query`] for the changes asked for; a dependency that cannot be read is listed as
    /// unresolved.
    pub fn closure(&self, changes: &[ChangeKey]) -> Result<Closure, ForgeError> {
        let mut closure = Closure::default();
        let mut siblings = Siblings::new();
        let mut rest: VecDeque<ChangeKey> = changes.iter().cloned().collect();
        while let Some(change) = rest.pop_front() {
            if closure.changes.contains_key(&change) {
                continue;
            }
            if closure.changes.len() >= self.config.limits.changes {
                closure.truncated = true;
                break;
            }
            let facts = self.query_among(&change, &mut siblings)?;
            if !facts.merged {
                let needs = self.needs(&facts, &mut closure.unresolved)?;
                rest.extend(needs.iter().cloned());
                closure.needs.insert(change.clone(), needs);
            }
            closure.changes.insert(change, facts);
        }
        Ok(closure)
    }

    fn needs(&self, facts: &ChangeFacts, unresolved: &mut Vec<Unresolved>) -> Result<Vec<ChangeKey>, ForgeError> {
        let mut found: Vec<ChangeKey> = Vec::new();
        for text in &facts.depends_on {
            match self.resolve(text)? {
                Resolution::Change(change) if found.contains(&change) => {}
                Resolution::Change(change) => found.push(change),
                resolution => {
                    let (change, text) = (facts.change.clone(), text.clone());
                    unresolved.push(Unresolved { change, text, resolution });
                }
            }
        }
        for (change, _) in &facts.git_needs {
            if !found.contains(change) {
                found.push(change.clone());
            }
        }
        Ok(found)
    }

    /// The open changes of the branch whose patchsets are among the commits a change brings.
    fn git_needs(
        &self,
        repo: &Repository,
        change: &ChangeKey,
        base: Option<Oid>,
        commit: Oid,
        siblings: &mut Siblings,
    ) -> Result<Vec<(ChangeKey, u32)>, ForgeError> {
        let wrap = ForgeError::git(&change.project, "cannot look for changes below a change");
        let branch = (change.project.clone(), change.branch.clone());
        let known = match siblings.entry(branch) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(self.proposed_for(repo, change)?),
        };
        let mut patchsets: BTreeMap<Oid, (ChangeKey, u32)> = BTreeMap::new();
        for (id, other, number) in known.iter().filter(|(_, other, _)| other != change) {
            patchsets.entry(*id).or_insert((other.clone(), *number));
        }
        let mut found = Vec::new();
        // Two names for one commit do not need each other.
        patchsets.remove(&commit);
        if patchsets.is_empty() {
            return Ok(found);
        }
        let mut hidden: Vec<Oid> = base.into_iter().collect();
        // Each change found hides what is below it: that is its own business.
        for _ in 0..STACK_MAX {
            let mut walk = repo.revwalk().map_err(&wrap)?;
            walk.set_sorting(Sort::TOPOLOGICAL).map_err(&wrap)?;
            walk.push(commit).map_err(&wrap)?;
            for id in &hidden {
                walk.hide(*id).map_err(&wrap)?;
            }
            let mut next = None;
            for id in walk.take(STACK_MAX) {
                let id = id.map_err(&wrap)?;
                if let Some(other) = patchsets.get(&id) {
                    next = Some((id, other.clone()));
                    break;
                }
            }
            let Some((id, other)) = next else { break };
            hidden.push(id);
            found.push(other);
        }
        Ok(found)
    }

    /// The patchsets of all that is proposed for a change's branch, its own included.
    fn proposed_for(&self, repo: &Repository, change: &ChangeKey) -> Result<Vec<(Oid, ChangeKey, u32)>, ForgeError> {
        let wrap = ForgeError::git(&change.project, "cannot look for changes of a branch");
        let mut found = Vec::new();
        let proposed = repo.references_glob(&format!("{FOR}{}/*", change.branch)).map_err(&wrap)?;
        for reference in proposed.take(self.config.limits.changes) {
            let Ok(reference) = reference else { continue };
            let Ok(name) = reference.name() else { continue };
            let Ok(other) = ChangeKey::of_ref(&change.project, name) else { continue };
            if other.branch != change.branch {
                continue;
            }
            if let Some(tip) = reference.target().and_then(|id| commit_of(repo, id)) {
                self.number_patchsets(repo, &other, tip)?;
            }
            let patchsets = self.patchsets(repo, &other)?;
            found.extend(patchsets.into_iter().map(|(number, id)| (id, other.clone(), number)));
        }
        Ok(found)
    }
}

fn shorten(commit: &Commit<'_>, limit: usize) -> (String, bool) {
    let bytes = commit.message_bytes();
    let kept = bytes.get(..limit).unwrap_or(bytes);
    (String::from_utf8_lossy(kept).into_owned(), bytes.len() > limit)
}

fn files(
    repo: &Repository,
    base: Option<Oid>,
    commit: &Commit<'_>,
    limit: usize,
) -> Result<(Vec<String>, bool), git2::Error> {
    let common = match base.map(|tip| repo.merge_base(tip, commit.id())) {
        Some(Ok(id)) if id != commit.id() => Some(id),
        // In the branch already: what it brought is what its first parent had not.
        Some(Ok(_)) => commit.parent_ids().next(),
        Some(Err(e)) if e.code() != ErrorCode::NotFound => return Err(e),
        _ => None,
    };
    let before = common.map(|id| repo.find_commit(id)?.tree()).transpose()?;
    let mut options = DiffOptions::new();
    options.skip_binary_check(true).include_typechange(true);
    let diff = repo.diff_tree_to_tree(before.as_ref(), Some(&commit.tree()?), Some(&mut options))?;
    let mut paths = BTreeSet::new();
    for delta in diff.deltas() {
        for side in [delta.old_file(), delta.new_file()] {
            paths.extend(side.path_bytes().map(|path| String::from_utf8_lossy(path).into_owned()));
        }
    }
    let truncated = paths.len() > limit;
    Ok((paths.into_iter().take(limit).collect(), truncated))
}

impl ChangeFacts {
    /// The commit as libgit2 knows it.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], which facts read from a repository never give.
    pub fn commit_oid(&self) -> Result<Oid, ForgeError> {
        commit_id(&self.commit)
    }
}
