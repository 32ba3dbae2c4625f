//! The pieces of a tenant's status that are kept from one document to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use gatelog_gate_state::live::{BuildRow, BuildsetProblem, ItemRow, WaitRow};
use gatelog_record::{BuildId, ItemId};

use super::document::{ItemPiece, JobPiece};
use crate::estimate::Estimate;

/// All a job's piece is made of, beside the names of its tenant and of the build.
#[derive(Debug, PartialEq)]
pub(super) struct OfJob<'r> {
    pub(super) build: &'r BuildRow,
    pub(super) pipeline: &'r str,
    pub(super) wait: Option<&'r WaitRow>,
    pub(super) estimate: Option<Estimate>,
}

/// All an item's piece is made of, beside its name.
#[derive(Debug, PartialEq)]
pub(super) struct OfItem<'r> {
    pub(super) row: &'r ItemRow,
    pub(super) problem: Option<&'r BuildsetProblem>,
    pub(super) ahead: Option<ItemId>,
    pub(super) behind: &'r [ItemId],
    pub(super) active: bool,
    pub(super) wait: Option<&'r WaitRow>,
    /// Of each thing it holds, in its order.
    pub(super) owners: &'r [Option<String>],
}

#[derive(Debug)]
struct KeptJob {
    build: BuildRow,
    pipeline: String,
    wait: Option<WaitRow>,
    estimate: Option<Estimate>,
    piece: Arc<JobPiece>,
    round: u64,
}

#[derive(Debug)]
struct KeptItem {
    row: ItemRow,
    problem: Option<BuildsetProblem>,
    ahead: Option<ItemId>,
    behind: Vec<ItemId>,
    active: bool,
    wait: Option<WaitRow>,
    owners: Vec<Option<String>>,
    piece: Arc<ItemPiece>,
    round: u64,
}

/// Pieces with what each was made of: one is made again when any of that is another. There are as many as there are
/// jobs and items in the newest document.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    jobs: BTreeMap<BuildId, KeptJob>,
    items: BTreeMap<ItemId, KeptItem>,
    round: u64,
}

impl Pieces {
    /// A document is begun.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// It is made: what is not in it is forgotten.
    pub(super) fn end(&mut self) {
        let round = self.round;
        self.jobs.retain(|_, kept| kept.round == round);
        self.items.retain(|_, kept| kept.round == round);
    }

    /// The piece of a job.
    pub(super) fn job(&mut self, id: BuildId, of: &OfJob<'_>, make: impl FnOnce() -> JobPiece) -> Arc<JobPiece> {
        let round = self.round;
        if let Some(kept) = self.jobs.get_mut(&id) {
            let KeptJob { build, pipeline, wait, estimate, .. } = &*kept;
            if (OfJob { build, pipeline, wait: wait.as_ref(), estimate: *estimate }) == *of {
                kept.round = round;
                return Arc::clone(&kept.piece);
            }
        }
        let piece = Arc::new(make());
        let kept = KeptJob {
            build: of.build.clone(),
            pipeline: of.pipeline.to_owned(),
            wait: of.wait.cloned(),
            estimate: of.estimate,
            piece: Arc::clone(&piece),
            round,
        };
        self.jobs.insert(id, kept);
        piece
    }

    /// The piece of an item.
    pub(super) fn item(&mut self, id: ItemId, of: &OfItem<'_>, make: impl FnOnce() -> ItemPiece) -> Arc<ItemPiece> {
        let round = self.round;
        if let Some(kept) = self.items.get_mut(&id) {
            let KeptItem { row, problem, ahead, behind, active, wait, owners, .. } = &*kept;
            let was = OfItem {
                row,
                problem: problem.as_ref(),
                ahead: *ahead,
                behind,
                active: *active,
                wait: wait.as_ref(),
                owners,
            };
            if was == *of {
                kept.round = round;
                return Arc::clone(&kept.piece);
            }
        }
        let piece = Arc::new(make());
        let kept = KeptItem {
            row: of.row.clone(),
            problem: of.problem.cloned(),
            ahead: of.ahead,
            behind: of.behind.to_vec(),
            active: of.active,
            wait: of.wait.cloned(),
            owners: of.owners.to_vec(),
            piece: Arc::clone(&piece),
            round,
        };
        self.items.insert(id, kept);
        piece
    }
}
