//! Merging for real: all changes of an item in one call, an outcome for each.
//!
//! Gerrit merges itself: it makes commits of its own (a merge, a rebase, a cherry-pick), and merges a topic as one. So
//! the branches are read before, and nothing is begun unless each is what was tested on; and afterwards the commit in
//! which each change landed is found, and its tree compared with the tested one. Where the site gives the account the
//! right to push, [`Mode::Exact`] puts the tested commits themselves on the branches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;

use crate::change::{Change, ChangeName};
use crate::client::{Gerrit, id};
use crate::error::GerritError;
use crate::git::Git;

/// A change that is to merge, and what was tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitTarget {
    /// The change.
    pub change: ChangeName,
    /// The branch it is for, without `refs/heads/`.
    pub branch: String,
    /// The commit of the patchset that was tested.
    pub patchset_commit: String,
    /// What the branch was when it was tested: for a second change on the same branch, the first one's tested commit.
    pub tested_base: String,
    /// The commit that was tested: the branch with the change.
    pub tested_commit: String,
    /// That commit's tree.
    pub tested_tree: String,
}

/// How changes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Gerrit merges, by its submit type, and asks its submit rules.
    ByGerrit,
    /// The tested commit itself is pushed to the branch, if that is still what was tested on. Gerrit then closes the
    /// changes as merged. Its submit rules are not asked; the account needs the right to push.
    Exact,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is merged, and the branch holds what was tested.
    Merged(Landed),
    /// It is merged, and the branch holds another tree than was tested.
    MergedUntested(Landed),
    /// The branch is not what was tested on: nothing was begun.
    BaseMoved {
        /// What the branch is; `None` where it is gone.
        is: Option<String>,
    },
    /// Gerrit says no, or would merge something else with it: asking the same again will not help.
    Refused {
        /// Why.
        why: String,
    },
    /// It could not be asked, or not be seen what came of it: asking again is right, and does nothing twice.
    Failed {
        /// A code, see [`GerritError::code`].
        code: &'static str,
        /// Why.
        why: String,
        /// Whether asking again may help.
        again: bool,
        /// When to ask again.
        retry_at: Option<SystemTime>,
    },
    /// It was not begun, because another of the same call did not merge.
    NotTried,
}

/// Where a change landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The commit of the branch in which it landed.
    pub commit: String,
    /// That commit's tree.
    pub tree: String,
    /// What the branch is now; others may have merged since.
    pub tip: String,
    /// It was merged already when this was called: by an earlier call, with its topic, or by somebody else.
    pub before: bool,
}

/// What submits.
#[derive(Debug)]
pub struct Submitter<'g> {
    gerrit: &'g Gerrit,
    git: &'g Git,
    mode: Mode,
}

impl<'g> Submitter<'g> {
    /// Submits by these.
    pub fn new(gerrit: &'g Gerrit, git: &'g Git, mode: Mode) -> Submitter<'g> {
        Submitter { gerrit, git, mode }
    }

    /// Merges the changes, in this order. `objects` gives for each project a repository that holds the tested commits;
    /// what Gerrit made is fetched into it, under no ref. The outcomes are in the order of the targets. Doing it twice is
    /// once.
    ///
    /// Nothing is begun unless every change is open (or merged already) with the tested patchset as its current one,
    /// every branch is what was tested on, and a submit would merge nothing but these.
    ///
    /// # Errors
    /// [`GerritError`] where it ended before anything was begun.
    pub fn submit_all(
        &self,
        targets: &[SubmitTarget],
        objects: &BTreeMap<String, PathBuf>,
    ) -> Result<Vec<Submitted>, GerritError> {
        let mut changes = Vec::new();
        for target in targets {
            if !objects.contains_key(&target.change.project) {
                let place = PathBuf::from(&target.change.project);
                return Err(GerritError::CommitMissing { commit: target.tested_commit.clone(), place });
            }
            changes.push(self.gerrit.change(&target.change)?);
        }
        let merged_before: Vec<bool> = changes.iter().map(Change::is_merged).collect();
        let mut outcomes = match self.look_first(targets, &changes)? {
            Some(outcomes) => outcomes,
            None => match self.mode {
                Mode::ByGerrit => self.by_gerrit(targets, &merged_before),
                Mode::Exact => self.push_exactly(targets, objects),
            },
        };
        for at in 0..targets.len() {
            if outcomes[at].is_none() {
                outcomes[at] = Some(self.landed(targets, at, objects, merged_before[at]).unwrap_or_else(failed));
            }
        }
        // A change that landed together with a later one on its branch holds what was tested for that later one.
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or(Submitted::NotTried)).collect())
    }

    /// What stands against it before anything is begun. `None` in an outcome: it has to be looked where it landed.
    fn look_first(
        &self,
        targets: &[SubmitTarget],
        changes: &[Change],
    ) -> Result<Option<Vec<Option<Submitted>>>, GerritError> {
        let mut against: BTreeMap<usize, Submitted> = BTreeMap::new();
        let mut branches: BTreeMap<(&str, &str), bool> = BTreeMap::new();
        for (target, change) in targets.iter().zip(changes) {
            *branches.entry((&target.change.project, &target.branch)).or_default() |= change.is_merged();
        }
        let mut looked: BTreeSet<(&str, &str)> = BTreeSet::new();
        for (at, (target, change)) in targets.iter().zip(changes).enumerate() {
            let branch = (target.change.project.as_str(), target.branch.as_str());
            if change.is_merged() {
                continue;
            }
            if !change.is_open() {
                against.insert(at, Submitted::Refused { why: format!("{} is {}", change.name, change.status) });
            } else if change.commit != target.patchset_commit {
                let why = format!("{} has a newer patchset, {}, than was tested", change.name, change.patchset);
                against.insert(at, Submitted::Refused { why });
            } else if change.branch != target.branch {
                let why = format!("{} is for branch {} now", change.name, change.branch);
                against.insert(at, Submitted::Refused { why });
            } else if looked.insert(branch) && !branches[&branch] {
                let is = self.gerrit.branch(branch.0, branch.1)?;
                let done = self.mode == Mode::Exact && last_of(targets, target) == is.as_deref();
                if is.as_deref() != Some(target.tested_base.as_str()) && !done {
                    against.insert(at, Submitted::BaseMoved { is });
                }
            }
            if self.mode == Mode::ByGerrit && !against.contains_key(&at) {
                against.extend(self.would_merge_more(target, targets)?.map(|why| (at, Submitted::Refused { why })));
            }
        }
        if against.is_empty() {
            return Ok(None);
        }
        let outcome = |at: usize| match against.remove(&at) {
            None if changes[at].is_merged() => None,
            None => Some(Submitted::NotTried),
            found => found,
        };
        Ok(Some((0..targets.len()).map(outcome).collect()))
    }

    /// What would be merged that nobody tested.
    fn would_merge_more(&self, target: &SubmitTarget, targets: &[SubmitTarget]) -> Result<Option<String>, GerritError> {
        let (together, hidden) = self.gerrit.submitted_together(&target.change)?;
        if hidden > 0 {
            return Ok(Some(format!("{} would merge {hidden} changes that this account cannot see", target.change)));
        }
        let more = together.iter().find(|name| !targets.iter().any(|other| other.change == **name));
        Ok(more.map(|name| format!("{} would merge {name} as well, which was not tested with it", target.change)))
    }

    fn by_gerrit(&self, targets: &[SubmitTarget], merged: &[bool]) -> Vec<Option<Submitted>> {
        let mut outcomes: Vec<Option<Submitted>> = vec![None; targets.len()];
        for (at, target) in targets.iter().enumerate() {
            // One submit may have merged several.
            if merged[at] || (at > 0 && self.is_merged(target)) {
                continue;
            }
            let what = format!("the submit of {}", target.change);
            let path = format!("changes/{}/revisions/{}/submit", id(&target.change), target.patchset_commit);
            let stopped = match self.gerrit.rest.post(&what, &path, &json!({})) {
                Ok(_) => continue,
                // Whatever was answered: what became of the change counts.
                Err(_) if self.is_merged(target) => continue,
                Err(GerritError::Refused { said, .. } | GerritError::Forbidden { said, .. }) => {
                    Submitted::Refused { why: said }
                }
                Err(error) => failed(error),
            };
            outcomes[at] = Some(stopped);
            for (later, outcome) in outcomes.iter_mut().enumerate().skip(at + 1) {
                *outcome = if merged[later] { None } else { Some(Submitted::NotTried) };
            }
            break;
        }
        outcomes
    }

    fn is_merged(&self, target: &SubmitTarget) -> bool {
        self.gerrit.change(&target.change).is_ok_and(|change| change.is_merged())
    }

    /// Each project's branches in one push, all or none of them.
    fn push_exactly(&self, targets: &[SubmitTarget], objects: &BTreeMap<String, PathBuf>) -> Vec<Option<Submitted>> {
        let mut outcomes: Vec<Option<Submitted>> = vec![None; targets.len()];
        let mut projects: Vec<&str> = Vec::new();
        for target in targets {
            if !projects.contains(&target.change.project.as_str()) {
                projects.push(&target.change.project);
            }
        }
        let mut stopped = false;
        for project in projects {
            let mine: Vec<usize> = (0..targets.len()).filter(|at| targets[*at].change.project == project).collect();
            let pushed = match objects.get(project) {
                _ if stopped => Some(Submitted::NotTried),
                Some(place) => {
                    self.push_project(project, &mine, targets, place).unwrap_or_else(|error| Some(failed(error)))
                }
                None => Some(Submitted::NotTried),
            };
            stopped |= pushed.is_some();
            for at in mine {
                outcomes[at] = pushed.clone();
            }
        }
        outcomes
    }

    fn push_project(
        &self,
        project: &str,
        mine: &[usize],
        targets: &[SubmitTarget],
        place: &Path,
    ) -> Result<Option<Submitted>, GerritError> {
        // For each branch, what it must be and what it becomes.
        let mut branches: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for target in mine.iter().map(|at| &targets[*at]) {
            self.git.tree(place, &target.tested_commit)?;
            let moves = branches.entry(&target.branch).or_insert((&target.tested_base, &target.tested_commit));
            moves.1 = &target.tested_commit;
        }
        let mut words = vec!["push".to_owned(), "--quiet".to_owned(), "--porcelain".to_owned(), "--atomic".to_owned()];
        let mut refspecs = Vec::new();
        for (branch, (base, commit)) in branches {
            if self.gerrit.branch(project, branch)?.as_deref() == Some(commit) {
                continue;
            }
            if !self.git.contains(place, commit, base)? {
                let why = format!("the tested commit {commit} does not contain {base}, which it was tested on");
                return Ok(Some(Submitted::Refused { why }));
            }
            words.push(format!("--force-with-lease=refs/heads/{branch}:{base}"));
            refspecs.push(format!("{commit}:refs/heads/{branch}"));
        }
        if refspecs.is_empty() {
            return Ok(None);
        }
        let address = self.git.address(project)?;
        words.extend(["--".to_owned(), address]);
        words.extend(refspecs);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = self.git.run(&format!("push to {project}"), place, &words)?;
        if ran.ok {
            return Ok(None);
        }
        let said = crate::error::shorten(&format!("{}\n{}", ran.out, ran.err), 600);
        if said.contains("stale info") || said.contains("fetch first") || said.contains("lock") {
            let branch = mine.first().map_or("", |at| targets[*at].branch.as_str());
            return Ok(Some(Submitted::BaseMoved { is: self.gerrit.branch(project, branch)? }));
        }
        if said.contains("rejected") || said.contains("prohibited") || said.contains("not permitted") {
            return Ok(Some(Submitted::Refused { why: said }));
        }
        Err(GerritError::Program { program: "git", what: format!("push to {project}"), why: said })
    }

    /// Finds the commit of the branch in which a merged change landed, and compares its tree.
    fn landed(
        &self,
        targets: &[SubmitTarget],
        at: usize,
        objects: &BTreeMap<String, PathBuf>,
        before: bool,
    ) -> Result<Submitted, GerritError> {
        let target = &targets[at];
        let (project, branch) = (target.change.project.as_str(), target.branch.as_str());
        let what = format!("branch {branch} of project {project}");
        let missing = || GerritError::Missing { what: what.clone(), user: self.gerrit.config().user.clone() };
        let place = objects.get(project).ok_or_else(missing)?;
        let tip = self.gerrit.branch(project, branch)?.ok_or_else(missing)?;
        if self.git.tree(place, &tip).is_err() {
            self.git.fetch(project, place, &[&format!("refs/heads/{branch}")])?;
        }
        // A rebase or a cherry-pick is a patchset that nobody announced: it is the change's newest now.
        let merged_as = match self.mode {
            Mode::ByGerrit => self.gerrit.change(&target.change)?.commit,
            Mode::Exact => target.tested_commit.clone(),
        };
        let range = format!("{}..{tip}", target.tested_base);
        let firsts = self.git.done("rev-list", place, &["rev-list", "--first-parent", "--reverse", &range, "--"]);
        let mut commit = None;
        for one in firsts.unwrap_or_default().lines() {
            if one == merged_as || self.git.contains(place, one, &merged_as)? {
                commit = Some(one.to_owned());
                break;
            }
        }
        let Some(commit) = commit else {
            // Somebody put the branch elsewhere meanwhile, or the base is not known here: the tip is all there is.
            if self.git.contains(place, &tip, &merged_as)? {
                let tree = self.git.tree(place, &tip)?;
                return Ok(judge(targets, at, Landed { commit: tip.clone(), tree, tip, before }));
            }
            return Err(GerritError::NotFoundNow {
                what: format!("commit {merged_as} in {what}"),
                said: "the change is merged, but the branch does not hold it (yet)".to_owned(),
                user: self.gerrit.config().user.clone(),
            });
        };
        let tree = self.git.tree(place, &commit)?;
        Ok(judge(targets, at, Landed { commit, tree, tip, before }))
    }
}

/// What was tested for a target's branch as a whole.
fn last_of<'t>(targets: &'t [SubmitTarget], target: &SubmitTarget) -> Option<&'t str> {
    let same = |other: &&SubmitTarget| other.change.project == target.change.project && other.branch == target.branch;
    targets.iter().rev().find(same).map(|last| last.tested_commit.as_str())
}

/// A change may land in one commit with those behind it on its branch: what was tested for any of them is tested.
fn judge(targets: &[SubmitTarget], at: usize, landed: Landed) -> Submitted {
    let target = &targets[at];
    let tested = targets[at..].iter().any(|other| {
        other.change.project == target.change.project
            && other.branch == target.branch
            && other.tested_tree == landed.tree
    });
    if tested { Submitted::Merged(landed) } else { Submitted::MergedUntested(landed) }
}

fn failed(error: GerritError) -> Submitted {
    Submitted::Failed { code: error.code(), why: error.to_string(), again: error.passes(), retry_at: error.retry_at() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: u64, branch: &str, tree: &str) -> SubmitTarget {
        SubmitTarget {
            change: ChangeName { project: "p".to_owned(), number },
            branch: branch.to_owned(),
            patchset_commit: "1".repeat(40),
            tested_base: "2".repeat(40),
            tested_commit: format!("commit-{number}"),
            tested_tree: tree.to_owned(),
        }
    }

    #[test]
    fn a_change_that_lands_with_the_next_is_tested_by_the_next_and_not_by_the_one_before() {
        let targets = [target(1, "master", "a"), target(2, "master", "b"), target(3, "stable", "c")];
        let landed =
            |tree: &str| Landed { commit: String::new(), tree: tree.to_owned(), tip: String::new(), before: false };
        let tested = |at, tree| matches!(judge(&targets, at, landed(tree)), Submitted::Merged(_));
        assert!(tested(0, "a") && tested(0, "b") && tested(1, "b") && tested(2, "c"));
        assert!(!tested(1, "a") && !tested(0, "c") && !tested(2, "b") && !tested(0, "x"));
        assert_eq!(last_of(&targets, &targets[0]), Some("commit-2"));
    }
}
