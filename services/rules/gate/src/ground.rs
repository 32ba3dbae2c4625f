//! What an item is put on: which of those ahead hold it back, and where the branches stand without them.
//!
//! Items behind each other are prepared beside each other: what the one behind is merged with is known before the one
//! ahead is merged, as long as both begin with the same commits. Where a branch stood is written down with the first
//! state that is prepared on it; until then, whoever comes behind an item that touches the branch waits.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::ItemId;
use gatelog_record::draft::gate::{BasePin, ProjectBranch, Subject};

use crate::decision::Decision;

/// How many items ahead may still be being prepared when an item begins.
const BESIDE: usize = 16;

/// What stands ahead of an item, as far as its preparation goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ground {
    /// Whether one of those ahead is on its way into the branch, or is yet to be looked through.
    holds: bool,
    /// How many of them are still being prepared.
    preparing: usize,
    /// Where branches stand without any of them.
    pins: BTreeMap<ProjectBranch, String>,
    /// The branches that somebody else has moved since those ahead were put on them. Zuul: what comes behind is put on
    /// what is there now.
    moved: BTreeSet<ProjectBranch>,
    /// The branches that those touch which are not prepared, or come behind one that is not.
    touched: BTreeSet<ProjectBranch>,
}

impl Ground {
    /// What a chain is to the item behind it.
    pub(crate) fn of(decision: &Decision<'_>, chain: &[ItemId]) -> Ground {
        let mut ground = Ground::default();
        chain.iter().for_each(|item| ground.add(decision, *item));
        ground
    }

    /// One more item is ahead.
    pub(crate) fn add(&mut self, decision: &Decision<'_>, item: ItemId) {
        let Some(row) = decision.item(item) else {
            self.holds = true;
            return;
        };
        self.holds |= decision.is_leaving(item) || !row.live && !decision.is_looked_through(row);
        let state = decision.buildset_of(item).and_then(|(_, set)| set.state.as_ref());
        match state {
            // What the first item that touches a branch was put on is where the branch stands without the chain: all
            // that was ahead of it has been merged since.
            Some(state) if self.preparing == 0 => {
                for branch in &state.branches {
                    if self.pins.contains_key(&branch.at) || self.moved.contains(&branch.at) {
                        continue;
                    }
                    let key = (row.tenant.clone(), branch.at.project.clone(), branch.at.branch.clone());
                    let tip = decision.gate().branches.row(&key);
                    if tip.is_none_or(|tip| *tip == branch.ahead) {
                        self.pins.insert(branch.at.clone(), branch.ahead.clone());
                    } else {
                        self.moved.insert(branch.at.clone());
                    }
                }
                return;
            }
            Some(_) => {}
            None => self.preparing += usize::from(row.live),
        }
        self.touched.extend(row.subjects.iter().filter_map(branch_of));
    }

    /// Whether the item behind had better not stand on the chain yet.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Whether the item behind may begin: whatever branch it will share with those ahead, both are put on the same
    /// commit of it.
    pub(crate) fn is_settled(&self) -> bool {
        let known = || self.touched.iter().all(|branch| self.pins.contains_key(branch));
        !self.holds && (self.preparing == 0 || self.preparing < BESIDE && known())
    }

    /// Where the branches stood that the chain, or a moved ref among an item's own subjects, pins.
    pub(crate) fn pins(mut self, own: &[Subject]) -> Vec<BasePin> {
        for subject in own.iter().filter(|subject| subject.change.is_none()) {
            // A ref is tested as it was when it moved.
            if let (Some(at), Some(commit)) = (branch_of(subject), &subject.commit) {
                self.pins.insert(at, commit.clone());
            }
        }
        self.pins.into_iter().map(|(at, commit)| BasePin { at, commit }).collect()
    }
}

fn branch_of(subject: &Subject) -> Option<ProjectBranch> {
    Some(ProjectBranch {
        connection: subject.connection.clone(),
        project: subject.project.clone(),
        branch: subject.branch.clone()?,
    })
}
