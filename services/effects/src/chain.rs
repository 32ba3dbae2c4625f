//! Making prepared commits again. Their ids follow from the chain alone (bases, changes, modes, date), so whoever needs
//! one that was made in another mirror makes the same in its own.

use gatelog_gate_state::live::BuildsetRow;
use gatelog_merging::{BranchKey, FileFilter, FrozenBase, PrepareOutcome, PrepareRequest};
use gatelog_record::Timestamp;
use gatelog_record::draft::gate::{MergeSteps, PreparedBranch};

use crate::connection::Trouble;
use crate::git::{Repositories, trouble};
use crate::prepare;

/// How a prepared state came about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// The merges, oldest first.
    pub steps: MergeSteps,
    /// What they came to.
    pub branches: Vec<PreparedBranch>,
    /// The date of the commits.
    pub dated: Timestamp,
}

impl Chain {
    /// The chain of a buildset that was prepared with these steps.
    pub fn of(buildset: &BuildsetRow, steps: &MergeSteps) -> Option<Chain> {
        let state = buildset.state.as_ref()?;
        Some(Chain { steps: steps.clone(), branches: state.branches.clone(), dated: buildset.dated })
    }
}

/// Sees to it that the commits of a chain are in the mirrors here. `name` is what they are kept under if they must be
/// made.
///
/// # Errors
/// When they cannot be made, or do not come out as they did.
pub fn ensure(repositories: &Repositories, name: &str, chain: &Chain) -> Result<(), Trouble> {
    let mut missing = false;
    for branch in &chain.branches {
        let key = repositories.key(&branch.at.connection, &branch.at.project)?;
        // A mirror that is not there yet has no commit; one that was merged for real comes with the branch.
        let there = || repositories.mirrors.has_commit(&key, &branch.commit).unwrap_or(false);
        missing |= !there() && (repositories.mirrors.fetch(&key, &[]).is_err() || !there());
    }
    if !missing {
        return Ok(());
    }
    let items = prepare::items(repositories, &chain.steps, chain.dated)?;
    let mut bases = Vec::with_capacity(chain.branches.len());
    for branch in &chain.branches {
        let project = repositories.key(&branch.at.connection, &branch.at.project)?;
        bases.push(FrozenBase {
            branch: BranchKey::new(project, branch.at.branch.clone()),
            commit: branch.base.clone(),
        });
    }
    let request = PrepareRequest { id: name.to_owned(), items, bases, files: FileFilter::none() };
    let made = match repositories.mirrors.prepare(&request).map_err(|error| trouble(&error))? {
        PrepareOutcome::Merged(made) => made,
        PrepareOutcome::Conflict(conflict) => return Err(otherwise(&conflict.message)),
    };
    for branch in &chain.branches {
        let key = repositories.key(&branch.at.connection, &branch.at.project)?;
        let same = |found: &gatelog_merging::PreparedBranch| {
            found.branch.project == key && found.branch.branch == branch.at.branch && found.commit == branch.commit
        };
        if !made.branches.iter().any(same) {
            return Err(otherwise(&format!("branch {} of {} came out another", branch.at.branch, branch.at.project)));
        }
    }
    Ok(())
}

fn otherwise(what: &str) -> Trouble {
    Trouble::new("not-reproduced", format!("what was tested could not be made again here: {what}")).again(true)
}
