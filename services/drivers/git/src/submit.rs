//! Merging for real: the branch moves to exactly the commit that was tested.

use std::path::PathBuf;

use gatelog_event_log::failpoint;
use git2::{ErrorCode, Oid, Repository};

use crate::change::{ChangeKey, check_branch, commit_id};
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::objects;
use crate::refs::{self, Swap};

/// A change that a submit merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedChange {
    /// Its name.
    pub name: String,
    /// The commit of the patchset that was tested.
    pub commit: String,
}

/// A branch to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitRequest {
    /// The project.
    pub project: String,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// The commit the branch must be at.
    pub expected_base: String,
    /// The commit it shall be at.
    pub commit: String,
    /// A repository on this machine that holds the commit: the mirror it was prepared in.
    pub objects: PathBuf,
    /// The changes this merges. They are closed: marked as merged, their proposals and approvals
    /// removed, unless another patchset has been pushed since.
    pub changes: Vec<SubmittedChange>,
    /// Who asked, for the reflog: the work id.
    pub work_id: String,
}

/// What became of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The branch is now at the commit.
    Merged,
    /// The branch has had the commit before: this was done already.
    AlreadyMerged,
    /// Somebody else has moved the branch. Nothing was changed; prepare again.
    BaseMoved {
        /// Where the branch is; `None` when it is gone.
        found: Option<String>,
    },
    /// It cannot be done, and would not be next time either.
    Refused {
        /// Why, in one sentence.
        reason: String,
    },
}

impl Forge {
    /// Moves a branch from the commit that was expected to the commit that was tested, or not at
    /// all. May be repeated after a crash at any moment.
    ///
    /// # Errors
    /// [`ForgeError::NoProject`], [`ForgeError::MissingCommit`], [`ForgeError::Locked`],
    /// [`ForgeError::Git`]: it is not known to be done; repeat it.
    pub fn submit(&self, request: &SubmitRequest) -> Result<SubmitOutcome, ForgeError> {
        let project = &request.project;
        let repo = self.repository(project)?;
        let name = check_branch(&request.branch)?;
        let (expected, commit) = (commit_id(&request.expected_base)?, commit_id(&request.commit)?);
        let changes = request
            .changes
            .iter()
            .map(|c| Ok((ChangeKey::new(project, &request.branch, &c.name)?, commit_id(&c.commit)?)))
            .collect::<Result<Vec<_>, ForgeError>>()?;
        let wrap = ForgeError::git(project, "cannot merge");

        let Some(tip) = refs::read(&repo, project, &name)? else {
            return Ok(SubmitOutcome::BaseMoved { found: None });
        };
        if contains(&repo, tip, commit).map_err(&wrap)? {
            self.close(&repo, &changes, commit, request)?;
            return Ok(SubmitOutcome::AlreadyMerged);
        }
        if tip != expected {
            return Ok(SubmitOutcome::BaseMoved { found: Some(tip.to_string()) });
        }
        let missing = |e: git2::Error| match e.code() {
            ErrorCode::NotFound => {
                ForgeError::MissingCommit { project: project.clone(), commit: request.commit.clone() }
            }
            _ => wrap(e),
        };
        let source = objects::open(&request.objects).map_err(missing)?;
        objects::copy_missing(&source, &repo, commit).map_err(missing)?;
        failpoint::pass("forge/objects-copied");
        if repo.find_commit(commit).is_err() {
            return Ok(SubmitOutcome::Refused { reason: format!("{commit} is not a commit") });
        }
        if !contains(&repo, commit, expected).map_err(&wrap)? {
            let reason = format!("{commit} is not built on {expected}: commits of the branch would be lost");
            return Ok(SubmitOutcome::Refused { reason });
        }
        let who = self.signature(project)?;
        let message = format!("gatelog: merge for work {}", request.work_id);
        match refs::compare_and_swap(&repo, project, &name, Some(expected), Some(commit), &who, &message)? {
            Swap::Done => {
                failpoint::pass("forge/branch-moved");
                self.close(&repo, &changes, commit, request)?;
                Ok(SubmitOutcome::Merged)
            }
            // Another process with the same work may have been faster.
            Swap::Moved(Some(tip)) if contains(&repo, tip, commit).map_err(&wrap)? => {
                self.close(&repo, &changes, commit, request)?;
                Ok(SubmitOutcome::AlreadyMerged)
            }
            Swap::Moved(found) => Ok(SubmitOutcome::BaseMoved { found: found.map(|id| id.to_string()) }),
        }
    }

    /// Marks changes as merged and removes their proposals. After the branch has moved, never
    /// before: a mark without a merge would be a lie, the other way round is mended by repeating.
    fn close(
        &self,
        repo: &Repository,
        changes: &[(ChangeKey, Oid)],
        merged: Oid,
        request: &SubmitRequest,
    ) -> Result<(), ForgeError> {
        let who = self.signature(&request.project)?;
        let message = format!("gatelog: merged for work {}", request.work_id);
        for (change, commit) in changes {
            let project = &change.project;
            // A change that was never seen here has no patchset to mark.
            let patchset = match repo.find_commit(*commit) {
                Ok(_) => self.number_patchsets(repo, change, *commit)?,
                Err(_) => continue,
            };
            refs::compare_and_swap(repo, project, &change.merged_ref(patchset), None, Some(merged), &who, &message)?;
            failpoint::pass("forge/marked-merged");
            // If they name something else by now, they are somebody's new patchset.
            for name in [change.approval_ref(), change.proposal_ref()] {
                refs::compare_and_swap(repo, project, &name, Some(*commit), None, &who, &message)?;
            }
        }
        self.leave_word(&request.project);
        Ok(())
    }
}

/// How many first parents are looked at before the history as a whole is.
const STEPS_BACK: usize = 20;

/// Whether a commit is another, or among its ancestors.
pub(crate) fn contains(repo: &Repository, tip: Oid, commit: Oid) -> Result<bool, git2::Error> {
    if tip == commit {
        return Ok(true);
    }
    if !repo.odb()?.exists(commit) {
        return Ok(false);
    }
    // What is merged stands a few steps before what it was merged into. To find the base of both goes, where old commits
    // were merged, through all that was merged since they were made.
    let mut at = repo.find_commit(tip)?;
    for _ in 0..STEPS_BACK {
        if at.id() == commit {
            return Ok(true);
        }
        at = match at.parent(0) {
            Ok(parent) => parent,
            Err(_) => break,
        };
    }
    repo.graph_descendant_of(tip, commit)
}
