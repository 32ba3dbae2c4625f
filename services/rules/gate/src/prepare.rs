//! Preparing: an item's changes on top of everything it stands on.

use std::collections::BTreeMap;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::Work;
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{
    BasePin, BuildsetOpened, MergeStep, PrepareDone, PrepareOutcome, PrepareRequested, Prepared, ProjectBranch,
};
use gatelog_record::event::GateEvent;

use crate::decision::Decision;
use crate::layout_view::LayoutView;
use crate::queue_pass::Walk;

impl Decision<'_> {
    /// Begins a buildset on the chain and asks for its state.
    pub(crate) fn open_buildset(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<(), Refusal> {
        let buildset = self.deciding.id();
        self.emit(GateEvent::BuildsetOpened(BuildsetOpened { buildset, item, ahead: walk.chain.clone() }))?;
        let mut steps = Vec::new();
        for ahead in &walk.chain {
            self.add_steps(walk.layout, *ahead, &mut steps);
        }
        self.add_steps(walk.layout, item, &mut steps);
        // The merges ahead must come out as the very commits that are merged for real: on the same
        // bases and with the same date.
        let nearest = walk.chain.iter().rev().find_map(|ahead| self.buildset_of(*ahead));
        let dated = nearest.map_or(self.now(), |(_, set)| set.dated);
        let bases = self.bases(walk, item);
        let (work, steps) = (self.deciding.id(), steps.into());
        self.emit(GateEvent::PrepareRequested(PrepareRequested { work, item, buildset, steps, bases, dated }))
    }

    fn add_steps(&self, layout: &LayoutView, item: ItemId, steps: &mut Vec<MergeStep>) {
        let subjects = self.item(item).map(|row| row.subjects.as_slice()).unwrap_or_default();
        steps.extend(subjects.iter().map(|subject| MergeStep {
            item,
            subject: subject.clone(),
            mode: layout.merge_mode(&subject.project).to_owned(),
        }));
    }

    /// Where branches stood for the chain. What the first item that touches a branch was put on is
    /// where the branch stands without the chain: all that was ahead of it has been merged since.
    fn bases(&self, walk: &Walk<'_>, item: ItemId) -> Vec<BasePin> {
        let mut pins: BTreeMap<ProjectBranch, String> = BTreeMap::new();
        for ahead in &walk.chain {
            let Some((_, set)) = self.buildset_of(*ahead) else { continue };
            for branch in set.state.iter().flat_map(|state| &state.branches) {
                if !pins.contains_key(&branch.at) {
                    pins.insert(branch.at.clone(), branch.ahead.clone());
                }
            }
        }
        let subjects = self.item(item).map(|row| row.subjects.as_slice()).unwrap_or_default();
        for subject in subjects.iter().filter(|subject| subject.change.is_none()) {
            // A ref is tested as it was when it moved.
            if let (Some(branch), Some(commit)) = (&subject.branch, &subject.commit) {
                let at = ProjectBranch {
                    connection: subject.connection.clone(),
                    project: subject.project.clone(),
                    branch: branch.clone(),
                };
                pins.insert(at, commit.clone());
            }
        }
        pins.into_iter().map(|(at, commit)| BasePin { at, commit }).collect()
    }

    /// A state was prepared, or could not be.
    pub(crate) fn prepare_done(&mut self, done: &PrepareDone) -> Result<(), Refusal> {
        let failed = matches!(done.outcome, PrepareOutcome::Failed { .. });
        let is_prepare = |work: &Work| matches!(work, Work::Prepare(_));
        let Some(row) = self.outcome(done.work, done.attempt, failed, is_prepare)? else { return Ok(()) };
        if matches!(done.outcome, PrepareOutcome::Failed { again: true, .. }) && self.send_again(done.work, &row)? {
            return Ok(());
        }
        let Work::Prepare(wanted) = &row.work else { return Ok(()) };
        let (item, buildset) = (wanted.item, wanted.buildset);
        self.emit(GateEvent::Prepared(Prepared { item, buildset, done: done.clone() }))
    }
}
