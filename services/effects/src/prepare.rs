//! Work: prepare a speculative state, in memory, with real merges.

use std::collections::BTreeSet;

use gatelog_merging::{
    BranchKey, FileFilter, FrozenBase, MergeItem, MergeMode, PrepareOutcome as Merge, PrepareRequest,
};
use gatelog_record::Timestamp;
use gatelog_record::draft::gate::{
    ConfigFileSet, MergeStep, PrepareOutcome, PrepareRequested, PreparedBranch, PreparedState, ProjectBranch, Subject,
};

use crate::connection::Trouble;
use crate::git::{Repositories, config_filter, trouble};

/// Paths of one item beyond which it is only known that there are many.
const MAX_FILES: usize = 10_000;

/// Prepares; trouble becomes an outcome too.
pub fn prepare(repositories: &Repositories, wanted: &PrepareRequested) -> PrepareOutcome {
    match try_prepare(repositories, wanted) {
        Ok(outcome) => outcome,
        Err(Trouble { code, message, again, .. }) => PrepareOutcome::Failed { code, message, again },
    }
}

/// The merges of a chain as the mirrors take them.
pub(crate) fn items(
    repositories: &Repositories,
    steps: &[MergeStep],
    dated: Timestamp,
) -> Result<Vec<MergeItem>, Trouble> {
    let mut items = Vec::with_capacity(steps.len());
    for step in steps.iter().filter(|step| !is_tag(step)) {
        let subject = &step.subject;
        let project = repositories.key(&subject.connection, &subject.project)?;
        let branch = subject
            .branch
            .clone()
            .ok_or_else(|| Trouble::new("no-branch", format!("{} has no branch to be merged into", subject.git_ref)))?;
        let mode = MergeMode::from_name(&step.mode)
            .ok_or_else(|| Trouble::new("unknown-merge-mode", format!("merge mode {:?} is not known", step.mode)))?;
        items.push(MergeItem {
            project,
            branch,
            ref_name: Some(subject.git_ref.clone()),
            commit: subject.commit.clone(),
            mode,
            date_s: dated.seconds(),
            message: None,
        });
    }
    Ok(items)
}

/// A ref that is no branch is where it is: there is nothing to merge. It never stands in a chain with others.
fn is_tag(step: &MergeStep) -> bool {
    step.subject.change.is_none() && step.subject.branch.is_none()
}

fn try_prepare(repositories: &Repositories, wanted: &PrepareRequested) -> Result<PrepareOutcome, Trouble> {
    if wanted.steps.iter().all(is_tag) {
        let mut containing = BTreeSet::new();
        for step in &wanted.steps {
            containing.extend(branches_that_hold(repositories, &step.subject)?);
        }
        return Ok(PrepareOutcome::Merged(PreparedState {
            branches: Vec::new(),
            files: None,
            config: Vec::new(),
            touches_config: false,
            item_touches_config: false,
            containing_branches: containing.into_iter().collect(),
        }));
    }
    let filter = config_filter(&[]);
    let items = items(repositories, &wanted.steps, wanted.dated)?;
    let mut bases = Vec::with_capacity(wanted.bases.len());
    for pin in &wanted.bases {
        let project = repositories.key(&pin.at.connection, &pin.at.project)?;
        bases.push(FrozenBase { branch: BranchKey::new(project, pin.at.branch.clone()), commit: pin.commit.clone() });
    }
    let request = PrepareRequest { id: wanted.work.to_string(), items, bases, files: filter.clone() };
    match repositories.mirrors.prepare(&request).map_err(|error| trouble(&error))? {
        Merge::Conflict(conflict) => {
            let step = wanted
                .steps
                .get(conflict.item)
                .ok_or_else(|| Trouble::new("internal", "the merger named an item that was not asked for"))?;
            Ok(PrepareOutcome::Conflict {
                subject: step.subject.clone(),
                paths: conflict.paths,
                message: conflict.message,
            })
        }
        Merge::Merged(merged) => Ok(PrepareOutcome::Merged(state(repositories, wanted, &filter, merged)?)),
    }
}

/// The branches whose history holds a tag. One that was deleted is in none.
fn branches_that_hold(repositories: &Repositories, tag: &Subject) -> Result<Vec<String>, Trouble> {
    let Some(commit) = &tag.commit else { return Ok(Vec::new()) };
    let project = repositories.key(&tag.connection, &tag.project)?;
    // A tag is often pushed together with the branch.
    repositories.mirrors.fetch(&project, &[]).map_err(|error| trouble(&error))?;
    repositories.mirrors.branches_containing(&project, commit).map_err(|error| trouble(&error))
}

fn state(
    repositories: &Repositories,
    wanted: &PrepareRequested,
    filter: &FileFilter,
    merged: gatelog_merging::Prepared,
) -> Result<PreparedState, Trouble> {
    // A branch's "ahead" is what the first of the item's own steps on it was put on; a branch that
    // none of them touches is ahead as a whole.
    let own = |index: usize| wanted.steps.get(index).is_some_and(|step| step.item == wanted.item);
    let mut files = Vec::new();
    let mut known = true;
    let mut touches_config = false;
    let mut item_touches_config = false;
    for (index, item) in merged.items.iter().enumerate() {
        let touches = item.files.truncated || item.files.paths.iter().any(|path| filter.concerns(path));
        touches_config |= touches;
        if own(index) {
            item_touches_config |= touches;
            known &= !item.files.truncated;
            files.extend(item.files.paths.iter().cloned());
        }
    }
    files.sort();
    files.dedup();
    let mut branches = Vec::with_capacity(merged.branches.len());
    let mut config = Vec::with_capacity(merged.branches.len());
    for branch in merged.branches {
        let step_of = |index: &usize| {
            let Some(step) = wanted.steps.get(*index) else { return false };
            step.subject.connection == branch.branch.project.connection
                && step.subject.branch.as_deref() == Some(branch.branch.branch.as_str())
                && repositories
                    .connections
                    .local_name(&step.subject.connection, &step.subject.project)
                    .is_ok_and(|name| name == branch.branch.project.name)
        };
        let steps: Vec<usize> = (0..wanted.steps.len()).filter(step_of).collect();
        let canonical = steps
            .first()
            .and_then(|index| wanted.steps.get(*index))
            .map(|step| step.subject.project.clone())
            .unwrap_or_default();
        let ahead = steps
            .iter()
            .find(|index| own(**index))
            .and_then(|index| merged.items.get(*index))
            .map_or_else(|| branch.commit.clone(), |item| item.ahead.clone());
        let at = ProjectBranch {
            connection: branch.branch.project.connection.clone(),
            project: canonical,
            branch: branch.branch.branch.clone(),
        };
        let default = repositories.mirrors.default_branch(&branch.branch.project).ok().flatten();
        config.push(ConfigFileSet {
            at: at.clone(),
            default: default.as_deref() == Some(branch.branch.branch.as_str()),
            commit: branch.commit.clone(),
            files: repositories.keep(branch.files)?,
        });
        branches.push(PreparedBranch { at, base: branch.base, ahead, commit: branch.commit, tree: branch.tree });
    }
    Ok(PreparedState {
        branches,
        files: (known && files.len() <= MAX_FILES).then_some(files),
        config,
        touches_config,
        item_touches_config,
        containing_branches: Vec::new(),
    })
}
