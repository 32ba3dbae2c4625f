//! Queues, items, buildsets.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gatelog_record::draft::gate::{ConfigRemark, MergeSteps, PreparedState, Subject};
use gatelog_record::{BlobHash, BuildId, BuildsetId, ItemId, Timestamp, Value, WorkId};
use gatelog_tables::TableDef;
use gatelog_tables::table::Life;
use serde::{Deserialize, Serialize};

/// Queues, by tenant, pipeline and name.
#[derive(Debug)]
pub struct Queues;
impl TableDef for Queues {
    const ID: u16 = 27;
    const NAME: &'static str = "queues";
    const LIFE: Life = Life::Live;
    type Key = (String, String, String);
    type Row = QueueRow;
}

/// A queue. One without a window leaves with its last item; one with a window stays, so that the
/// window is remembered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueRow {
    /// How many of its items are worked on; 0 means all.
    pub window: u32,
    /// Its items in order.
    pub items: Vec<ItemId>,
    /// The project and branch of what entered it first since the tenant's layout is in force; `None` when nothing
    /// did. Zuul: with the next layout the queue's window goes where this project is gated by then.
    pub first: Option<(String, Option<String>)>,
    /// The queues of a pipeline are looked at in this order. Zuul: as they began, promoted ones first.
    pub since: u64,
    /// The items that gatelog merged out of it, oldest first, as far as a buildset may still have begun before.
    pub merged: Vec<ItemId>,
    /// How many it merged before these.
    pub merged_before: u64,
}

impl QueueRow {
    /// How many items gatelog merged out of it.
    pub fn merges(&self) -> u64 {
        self.merged_before.saturating_add(self.merged.len() as u64)
    }

    /// What a buildset of the queue stands on by now: items merged since it was begun are in the branch, and it stands on
    /// the branch itself where they were.
    pub fn stands_on<'s>(&self, set: &'s BuildsetRow) -> Cow<'s, [Ahead]> {
        let known = set.merged_before.saturating_sub(self.merged_before);
        let merged = self.merged.get(usize::try_from(known).unwrap_or(usize::MAX)..).unwrap_or_default();
        // They merge in the order of the queue, so they are those it names first.
        let first = set.ahead.iter().take(merged.len()).map(|ahead| &ahead.item);
        match set.ahead.get(merged.len()..) {
            Some(left) if first.eq(merged) => Cow::Borrowed(left),
            _ => set.ahead.iter().filter(|ahead| !merged.contains(&ahead.item)).copied().collect(),
        }
    }
}

/// What failed in a row in a pipeline, by tenant and pipeline; no row means nothing.
#[derive(Debug)]
pub struct Failures;
impl TableDef for Failures {
    const ID: u16 = 36;
    const NAME: &'static str = "failures";
    const LIFE: Life = Life::Live;
    type Key = (String, String);
    type Row = FailuresRow;
}

/// What failed in a row in a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailuresRow {
    /// How many items.
    pub failures: u32,
    /// Whether the pipeline tells nobody but its `disabled` reporters.
    pub disabled: bool,
}

/// Items that are in a pipeline.
#[derive(Debug)]
pub struct Items;
impl TableDef for Items {
    const ID: u16 = 28;
    const NAME: &'static str = "items";
    const LIFE: Life = Life::Live;
    type Key = ItemId;
    type Row = ItemRow;
}

/// An item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemRow {
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// What it holds.
    pub subjects: Vec<Subject>,
    /// Whether it runs jobs and reports.
    pub live: bool,
    /// Why it is here, as a code.
    pub reason: String,
    /// The trigger's input sequence.
    pub trigger: Option<u64>,
    /// The event by which it entered.
    pub enqueued: u64,
    /// When it entered.
    pub enqueued_at: Timestamp,
    /// Its buildset, while it has one.
    pub buildset: Option<BuildsetId>,
    /// Why it is failing; empty when it is not.
    pub failing: Vec<String>,
    /// Short work under way for it (not reports).
    pub work: Option<WorkId>,
    /// Whether its start was reported.
    pub start_reported: bool,
    /// Whether mergeability was asked for again since its buildset was opened.
    pub asked: bool,
    /// How often it was reset.
    pub resets: u32,
    /// How often a branch had moved when it was to be merged.
    pub base_moved: u32,
    /// Once it was reported as a success and its reporter jobs run: whether gatelog merged it.
    pub reporting: Option<bool>,
    /// What whoever enqueued it gave for the parameters its project declares.
    pub parameters: BTreeMap<String, Value>,
}

/// What a change or a ref is called within its project: the change's id, or the ref.
pub fn subject_name(subject: &Subject) -> String {
    subject.change.clone().unwrap_or_else(|| subject.git_ref.clone())
}

/// Items by tenant, project (canonical name), and change or ref.
#[derive(Debug)]
pub struct ItemsByChange;
impl TableDef for ItemsByChange {
    const ID: u16 = 29;
    const NAME: &'static str = "items-by-change";
    const LIFE: Life = Life::Live;
    type Key = (String, String, String, ItemId);
    type Row = ();
}

/// Buildsets of items that are in a pipeline.
#[derive(Debug)]
pub struct Buildsets;
impl TableDef for Buildsets {
    const ID: u16 = 30;
    const NAME: &'static str = "buildsets";
    const LIFE: Life = Life::Live;
    type Key = BuildsetId;
    type Row = BuildsetRow;
}

/// How far a buildset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// It was begun.
    Opened,
    /// Its state is being prepared.
    Preparing,
    /// Its state is there.
    Prepared,
    /// A layout is being made for it.
    Layout,
    /// Its layout is known.
    LayoutReady,
    /// Its jobs are being frozen.
    Freezing,
    /// Its jobs are known.
    Frozen,
    /// It ended before it had jobs: `problem` says why.
    Ended,
}

/// What kept a buildset from having jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProblemKind {
    /// It does not merge with what is ahead of it.
    Conflict,
    /// Its configuration is wrong.
    Config,
    /// No job is to run.
    NoJobs,
    /// Something could not be done.
    Error,
}

/// What kept a buildset from having jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildsetProblem {
    /// What kind of problem.
    pub kind: ProblemKind,
    /// A code.
    pub code: String,
    /// For people.
    pub message: String,
    /// What of it is about single lines.
    pub remarks: Vec<ConfigRemark>,
}

/// An item a buildset stands on, and which buildset of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ahead {
    /// The item.
    pub item: ItemId,
    /// Its buildset at that moment; an item that is not live has none.
    pub buildset: Option<BuildsetId>,
}

/// A buildset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildsetRow {
    /// The item.
    pub item: ItemId,
    /// When it was begun.
    pub opened_at: Timestamp,
    /// What it stood on when it was begun, oldest first. Of these, items may have been merged since:
    /// [`QueueRow::stands_on`].
    pub ahead: Vec<Ahead>,
    /// Whether that was the last of these and what its buildset stood on, so that to stand on that buildset is to stand on
    /// them all.
    pub stacked: bool,
    /// How many items had been merged out of its queue by then: [`QueueRow::merges`].
    pub merged_before: u64,
    /// How far it is.
    pub phase: Phase,
    /// Date of the commits it was prepared with. Whatever is put on top of it is prepared with the same,
    /// so that the merges ahead come out as the very commits that are merged for real.
    pub dated: Timestamp,
    /// The prepared state.
    pub state: Option<PreparedState>,
    /// Whether changes to config projects in it were found right.
    pub validated: bool,
    /// The layout its jobs are frozen with.
    pub layout: Option<BlobHash>,
    /// The problems of that layout, when it is not the tenant's.
    pub layout_problems: Option<BlobHash>,
    /// The job graph, a blob.
    pub graph: Option<BlobHash>,
    /// Why these jobs, a blob.
    pub trace: Option<BlobHash>,
    /// The builds, in the order of the graph.
    pub builds: Vec<BuildId>,
    /// What kept it from having jobs.
    pub problem: Option<BuildsetProblem>,
    /// What is wrong with its configuration and keeps it from nothing.
    pub warnings: Vec<ConfigRemark>,
}

/// The chains buildsets were prepared with. Each is as long as the queue and never changes, while the row of its buildset
/// is written with every step it takes.
#[derive(Debug)]
pub struct Chains;
impl TableDef for Chains {
    const ID: u16 = 39;
    const NAME: &'static str = "chains";
    const LIFE: Life = Life::Live;
    type Key = BuildsetId;
    type Row = MergeSteps;
}
