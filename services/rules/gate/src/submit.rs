//! Merging for real: exactly what was tested, onto exactly what it was tested on.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::{ItemRow, Work};
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{
    FactsPurpose, ItemResult, ProjectBranch, Subject, SubmitDone, SubmitOutcome, SubmitRequested, SubmitTarget,
    Submitted,
};
use gatelog_record::event::GateEvent;

use crate::decision::Decision;
use crate::queue_pass::Walk;
use crate::work::announced_timer;

/// How long the code review has to announce what was merged, before its configuration is read without that.
const ANNOUNCED_MS: i64 = 10_000;
/// How often a branch may have moved under an item before it is given up.
const MAX_BASE_MOVED: u32 = 10;

impl Decision<'_> {
    /// The item succeeded and it is its turn: asks once more whether it may be merged, then merges.
    pub(crate) fn merge(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<(), Refusal> {
        let Some(row) = self.item(item) else { return Ok(()) };
        if row.work.is_some() {
            return Ok(());
        }
        if !row.asked
            && let Some(subject) = row.subjects.first()
            && let Some(key) = subject.change_key()
        {
            let connection = subject.connection.clone();
            let purpose = FactsPurpose::BeforeSubmit { item };
            return self.want_changes(walk.tenant, &connection, key, false, purpose);
        }
        match self.targets(item) {
            Ok(targets) => {
                let work = self.deciding.id();
                let tenant = walk.tenant.to_owned();
                self.emit(GateEvent::SubmitRequested(SubmitRequested { work, item, tenant, targets }))
            }
            Err(detail) => self.leave_failing(item, ItemResult::MergeFailure, "not-prepared", &detail, false),
        }
    }

    fn targets(&self, item: ItemId) -> Result<Vec<SubmitTarget>, String> {
        let subjects = self.item(item).map(|row| row.subjects.as_slice()).unwrap_or_default();
        let state = self.buildset_of(item).and_then(|(_, set)| set.state.as_ref());
        subjects
            .iter()
            .map(|subject| {
                let at = branch_of(subject).ok_or_else(|| format!("{} has no branch.", subject.git_ref))?;
                let prepared = state
                    .and_then(|state| state.branches.iter().find(|branch| branch.at == at))
                    .ok_or_else(|| format!("Branch {} of {} was not prepared.", at.branch, at.project))?;
                Ok(SubmitTarget {
                    subject: subject.clone(),
                    at,
                    // Everything that was ahead of it is merged by now, as the commit it was put on.
                    tested_base: prepared.ahead.clone(),
                    tested_commit: prepared.commit.clone(),
                    tested_tree: prepared.tree.clone(),
                })
            })
            .collect()
    }

    /// Merging ended.
    pub(crate) fn submit_done(&mut self, done: &SubmitDone) -> Result<(), Refusal> {
        let failed = !matches!(done.outcome, SubmitOutcome::Merged);
        let is_submit = |work: &Work| matches!(work, Work::Submit(_));
        let Some(row) = self.outcome(done.work, done.attempt, failed, is_submit)? else { return Ok(()) };
        if matches!(done.outcome, SubmitOutcome::Failed { again: true, .. }) && self.send_again(done.work, &row)? {
            return Ok(());
        }
        let Work::Submit(wanted) = &row.work else { return Ok(()) };
        let item = wanted.item;
        let Some(row) = self.item(item).cloned() else { return Ok(()) };
        let merged_here = self.merged_here(&row, &wanted.targets);
        self.emit(GateEvent::Submitted(Submitted { item, done: done.clone() }))?;
        match &done.outcome {
            SubmitOutcome::Merged => self.merged(item, &row, &wanted.targets),
            SubmitOutcome::BaseMoved { at, expected, found } => {
                self.base_moved(item, &row, at, expected.clone(), found.clone())
            }
            // Zuul: it is told so, and what was tested on top of it is tested again on what is there.
            SubmitOutcome::Refused { code, message } if code == "already-merged" => {
                if row.subjects.len() > 1 && !merged_here {
                    return self.leave_partly_merged(item, &row, message);
                }
                self.leave_succeeding(item, "already-merged", message, merged_here)?;
                self.ask_open_changes(&row.tenant, &row.subjects)
            }
            SubmitOutcome::Refused { code, message } => {
                let detail = format!("It could not be merged: {message} ({code}).");
                self.leave_unmerged(item, &row, "merge-failure", &detail)
            }
            SubmitOutcome::Failed { code, message, .. } => {
                let detail = format!("Merging could not be tried: {message} ({code}).");
                self.leave_unmerged(item, &row, "merge-failure", &detail)
            }
        }
    }

    /// Whether what turns out to be merged already was merged by a gate. Zuul: for that it compares the branch with what
    /// it was when a gate told this patchset for the first time. What changed nothing from the beginning takes nothing
    /// away from those behind.
    fn merged_here(&self, row: &ItemRow, targets: &[SubmitTarget]) -> bool {
        targets.iter().all(|target| {
            let key = target.subject.change_key();
            let Some(change) = key.and_then(|key| self.change(&row.tenant, &key)) else { return false };
            let by_others = change.closed.is_some_and(|closed| closed >= row.enqueued);
            change.submitted.is_some() && change.submitted == target.subject.patchset
                || !by_others && target.tested_base == target.tested_commit
        })
    }

    fn merged(&mut self, item: ItemId, row: &ItemRow, targets: &[SubmitTarget]) -> Result<(), Refusal> {
        for target in targets {
            let old = Some(target.tested_base.clone());
            let new = Some(target.tested_commit.clone());
            self.note_branch(&row.tenant, &target.at, old, new, Some(item))?;
        }
        self.leave_succeeding(item, "merged", "", true)?;
        self.ask_open_changes(&row.tenant, &row.subjects)?;
        // Zuul: what was merged is configuration as soon as the code review has announced it. That may never come.
        if self.tenant(&row.tenant).is_some_and(|tenant| !tenant.unread_merges.is_empty()) {
            self.set_timer(announced_timer(&row.tenant), self.now().plus_millis(ANNOUNCED_MS))?;
        }
        Ok(())
    }

    /// Somebody else moved the branch: nothing is merged that was not tested there.
    fn base_moved(
        &mut self,
        item: ItemId,
        row: &ItemRow,
        at: &ProjectBranch,
        expected: String,
        found: Option<String>,
    ) -> Result<(), Refusal> {
        let news = self.note_branch(&row.tenant, at, Some(expected), found.clone(), None)?;
        if news {
            let reads = self.tenant(&row.tenant).and_then(|tenant| tenant.project(&at.project));
            if reads.is_some_and(|project| project.reads_config) {
                self.reread(&row.tenant, &BTreeSet::from([at.project.clone()]))?;
            }
        }
        if row.base_moved >= MAX_BASE_MOVED {
            let detail = format!("Branch {} moved {MAX_BASE_MOVED} times before it could be merged.", at.branch);
            return self.leave_failing(item, ItemResult::MergeFailure, "base-moved", &detail, false);
        }
        let detail = match found {
            Some(_) => format!("Somebody else moved branch {} of {}.", at.branch, at.project),
            None => format!("Branch {} of {} is gone.", at.branch, at.project),
        };
        self.reset_behind(item, None, "base-moved", &detail)
    }
}

/// The branch a change is for.
fn branch_of(subject: &Subject) -> Option<ProjectBranch> {
    Some(ProjectBranch {
        connection: subject.connection.clone(),
        project: subject.project.clone(),
        branch: subject.branch.clone()?,
    })
}
