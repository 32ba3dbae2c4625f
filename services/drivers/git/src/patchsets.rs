//! Numbering patchsets, in the repository itself.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository};

use crate::change::ChangeKey;
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::refs::{self, Swap};

/// The most entries of a proposal's reflog that are looked at.
const REFLOG_MAX: usize = 10_000;

impl Forge {
    /// The patchsets known of a change, by number.
    pub(crate) fn patchsets(&self, repo: &Repository, change: &ChangeKey) -> Result<BTreeMap<u32, Oid>, ForgeError> {
        numbered(repo, change, "patchsets", self.config.limits.patchsets)
    }

    /// The patchsets that have merged, and the commits they merged as.
    pub(crate) fn merged(&self, repo: &Repository, change: &ChangeKey) -> Result<BTreeMap<u32, Oid>, ForgeError> {
        numbered(repo, change, "merged", self.config.limits.patchsets)
    }

    /// Gives every commit that was pushed for a change its number, and says the number of `tip`.
    ///
    /// A patchset is a commit: its number is its place among the different commits pushed. Pushing
    /// an old one again brings its old number back. What was overwritten between two looks is
    /// found in the reflog.
    pub(crate) fn number_patchsets(&self, repo: &Repository, change: &ChangeKey, tip: Oid) -> Result<u32, ForgeError> {
        let limit = self.config.limits.patchsets;
        let who = self.signature(&change.project)?;
        // Another process may number at the same time; then the list is read again.
        for _ in 0..100 {
            let known = self.patchsets(repo, change)?;
            if let Some((number, _)) = known.iter().find(|(_, id)| **id == tip) {
                return Ok(*number);
            }
            let mut pushed = pushed(repo, change);
            pushed.push(tip);
            let mut next = known.keys().next_back().map_or(1, |last| last.saturating_add(1));
            let mut seen: Vec<Oid> = known.into_values().collect();
            for commit in pushed {
                if seen.contains(&commit) || repo.find_commit(commit).is_err() {
                    continue;
                }
                if seen.len() >= limit {
                    return Err(ForgeError::TooMany { what: "patchsets", subject: change.to_string(), limit });
                }
                let name = change.patchset_ref(next);
                let message = format!("gatelog: patchset {next}");
                let swap = refs::compare_and_swap(repo, &change.project, &name, None, Some(commit), &who, &message)?;
                if swap != Swap::Done {
                    break;
                }
                seen.push(commit);
                next = next.saturating_add(1);
            }
        }
        Err(ForgeError::Busy { project: change.project.clone(), name: change.patchset_ref(0), attempts: 100 })
    }
}

/// What the reflog of the proposal says was pushed, oldest first.
fn pushed(repo: &Repository, change: &ChangeKey) -> Vec<Oid> {
    let Ok(log) = repo.reflog(&change.proposal_ref()) else { return Vec::new() };
    let mut ids: Vec<Oid> = log.iter().take(REFLOG_MAX).map(|entry| entry.id_new()).collect();
    ids.reverse();
    ids
}

/// What is kept of a change's patchsets (`patchsets`, `merged`), by their numbers.
pub(crate) fn numbered(
    repo: &Repository,
    change: &ChangeKey,
    what: &str,
    limit: usize,
) -> Result<BTreeMap<u32, Oid>, ForgeError> {
    let prefix = change.kept_under(what);
    let wrap = ForgeError::git(&change.project, "cannot list patchsets");
    let mut found = BTreeMap::new();
    // A glob would take `[` in a name for a pattern, but git allows none of its signs in refs.
    for reference in repo.references_glob(&format!("{prefix}*")).map_err(&wrap)? {
        let reference = reference.map_err(&wrap)?;
        let (Ok(name), Some(id)) = (reference.name(), reference.target()) else { continue };
        let number = name.strip_prefix(&prefix).and_then(|n| n.parse::<u32>().ok());
        found.extend(number.map(|number| (number, id)));
        if found.len() > limit {
            return Err(ForgeError::TooMany { what: "patchsets", subject: change.to_string(), limit });
        }
    }
    Ok(found)
}

/// The commit an object stands for; `None` for files and directories.
pub(crate) fn commit_of(repo: &Repository, id: Oid) -> Option<Oid> {
    let object = repo.find_object(id, None).ok()?;
    object.peel(ObjectType::Commit).ok().map(|commit| commit.id())
}
