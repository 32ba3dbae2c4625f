//! Preparing: an item's changes on top of everything it stands on.

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::{Phase, Work};
use gatelog_record::draft::gate::{BuildsetOpened, MergeStep, PrepareDone, PrepareOutcome, PrepareRequested, Prepared};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildsetId, ItemId};

use crate::decision::Decision;
use crate::layout_view::LayoutView;
use crate::queue_pass::Walk;

impl Decision<'_> {
    /// Begins a buildset on the chain and asks for its state.
    pub(crate) fn open_buildset(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<(), Refusal> {
        let buildset = self.begin_buildset(walk, item)?;
        self.want_prepare(walk, item, buildset)
    }

    /// Begins a buildset on the chain.
    pub(crate) fn begin_buildset(&mut self, walk: &Walk<'_>, item: ItemId) -> Result<BuildsetId, Refusal> {
        let buildset = self.deciding.id();
        self.emit(GateEvent::BuildsetOpened(BuildsetOpened { buildset, item, ahead: walk.chain.clone() }))?;
        Ok(buildset)
    }

    /// Asks for the state of a buildset that stands on the chain.
    pub(crate) fn want_prepare(&mut self, walk: &Walk<'_>, item: ItemId, buildset: BuildsetId) -> Result<(), Refusal> {
        let mut steps = Vec::new();
        for ahead in &walk.chain {
            self.add_steps(walk.layout, *ahead, &mut steps);
        }
        self.add_steps(walk.layout, item, &mut steps);
        // The merges ahead must come out as the very commits that are merged for real: on the same
        // bases and with the same date.
        let nearest = walk.chain.iter().rev().find_map(|ahead| self.buildset_of(*ahead));
        let dated = nearest.map_or(self.now(), |(_, set)| set.dated);
        let own = self.item(item).map(|row| row.subjects.as_slice()).unwrap_or_default();
        let bases = walk.ground(self, |ground| ground.clone().pins(own));
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

    /// A state was prepared, or could not be.
    pub(crate) fn prepare_done(&mut self, done: &PrepareDone) -> Result<(), Refusal> {
        let failed = matches!(done.outcome, PrepareOutcome::Failed { .. });
        let is_prepare = |work: &Work| matches!(work, Work::Prepare(_));
        let Some(row) = self.outcome(done.work, done.attempt, failed, is_prepare)? else { return Ok(()) };
        if matches!(done.outcome, PrepareOutcome::Failed { again: true, .. }) && self.send_again(done.work, &row)? {
            return Ok(());
        }
        let Work::Prepare(wanted) = &row.work else { return Ok(()) };
        // What does not merge is the one ahead, which was not answered yet: once it is, this begins without it.
        if self.conflicts_ahead(wanted, &done.outcome) && self.send_again(done.work, &row)? {
            return Ok(());
        }
        let (item, buildset) = (wanted.item, wanted.buildset);
        self.emit(GateEvent::Prepared(Prepared { item, buildset, done: done.clone() }))
    }

    /// Whether what does not merge belongs to an item ahead that is still being prepared itself.
    fn conflicts_ahead(&self, wanted: &PrepareRequested, outcome: &PrepareOutcome) -> bool {
        let PrepareOutcome::Conflict { subject, .. } = outcome else { return false };
        let begins = |item: ItemId| {
            self.buildset_of(item).is_some_and(|(_, set)| matches!(set.phase, Phase::Opened | Phase::Preparing))
        };
        wanted.steps.iter().any(|step| step.item != wanted.item && step.subject == *subject && begins(step.item))
    }
}
