//! Items, buildsets, prepared states, frozen jobs.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::configuration::{ConfigFileSet, TenantProject};
use super::subjects::{ProjectBranch, Subject};
use crate::id::{BlobHash, BuildId, BuildsetId, ItemId, WorkId};
use crate::time::Timestamp;
use crate::value::Value;

/// An item entered a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemEnqueued {
    /// The item.
    pub item: ItemId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The queue within the pipeline: its name is the unit of order.
    pub queue: String,
    /// What it holds; several only for a cycle.
    pub subjects: Vec<Subject>,
    /// Whether it runs jobs and reports. An item that is not live only stands for what a live one
    /// behind it needs.
    pub live: bool,
    /// The item ahead in the queue at this moment.
    pub ahead: Option<ItemId>,
    /// The trigger's input sequence; `None` when it was pulled in by another.
    pub trigger: Option<u64>,
    /// Why it is here, as a code: `trigger`, `needed-by`, `needs`, `admin`, `cycle`.
    pub reason: String,
    /// The queue's window when the item is the first of a new queue.
    pub window: Option<u32>,
    /// What whoever enqueued it gave for the parameters that its project declares for the pipeline, as values of the
    /// types declared. Zuul: `allow-parameters`.
    pub parameters: BTreeMap<String, Value>,
}

/// A buildset was begun for an item, on top of what is ahead of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildsetOpened {
    /// The buildset.
    pub buildset: BuildsetId,
    /// The item.
    pub item: ItemId,
    /// The items it stands on, oldest first.
    pub ahead: Vec<ItemId>,
}

/// One merge of a chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeStep {
    /// The item it belongs to.
    pub item: ItemId,
    /// The change.
    pub subject: Subject,
    /// Zuul's merge mode: `merge`, `merge-resolve`, `cherry-pick`, `squash-merge`, `rebase`, …
    pub mode: String,
}

/// The merges of a chain, oldest first. What asks for them, what remembers them and whoever does them share one copy: a
/// chain is as long as its queue. Written down it is a list like any other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergeSteps(Arc<Vec<MergeStep>>);

impl Deref for MergeSteps {
    type Target = [MergeStep];

    fn deref(&self) -> &[MergeStep] {
        &self.0
    }
}

impl From<Vec<MergeStep>> for MergeSteps {
    fn from(steps: Vec<MergeStep>) -> MergeSteps {
        MergeSteps(Arc::new(steps))
    }
}

impl<'s> IntoIterator for &'s MergeSteps {
    type Item = &'s MergeStep;
    type IntoIter = std::slice::Iter<'s, MergeStep>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for MergeSteps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MergeSteps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MergeSteps, D::Error> {
        Vec::deserialize(deserializer).map(MergeSteps::from)
    }
}

/// Where a branch stood or stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BasePin {
    /// The branch.
    pub at: ProjectBranch,
    /// The commit.
    pub commit: String,
}

/// Work: prepare a speculative state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareRequested {
    /// The work.
    pub work: WorkId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The chain, oldest first; the item's own changes last.
    pub steps: MergeSteps,
    /// Bases that are fixed already; other branches are read at their tips.
    pub bases: Vec<BasePin>,
    /// Date of the commits made, so that they come out the same everywhere.
    pub dated: Timestamp,
}

/// A branch in a prepared state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedBranch {
    /// The branch.
    pub at: ProjectBranch,
    /// What it was prepared on: the tip of the branch in the repository.
    pub base: String,
    /// What the item's own changes were put on: with everything ahead merged.
    pub ahead: String,
    /// With everything merged, the item's own changes too.
    pub commit: String,
    /// Its tree.
    pub tree: String,
}

/// A speculative state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreparedState {
    /// Every branch the chain touches.
    pub branches: Vec<PreparedBranch>,
    /// The paths the item's own changes change; `None` when there are too many to say.
    pub files: Option<Vec<String>>,
    /// The configuration files of each branch the chain touches, at the prepared commit.
    pub config: Vec<ConfigFileSet>,
    /// Whether any step of the chain touches configuration.
    pub touches_config: bool,
    /// Whether the item's own changes do.
    pub item_touches_config: bool,
    /// For a tag or another ref without a branch: the branches whose history holds it, sorted. Its jobs are matched by
    /// them. Zuul: `item_in_branches`.
    pub containing_branches: Vec<String>,
}

/// All branches and tags of a repository at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenRefs {
    /// The connection.
    pub connection: String,
    /// The canonical name of the project.
    pub project: String,
    /// Their whole names and what each named (of an annotated tag its own id): a blob, a map of texts.
    pub refs: BlobHash,
}

/// How preparing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PrepareOutcome {
    /// It is there.
    Merged(PreparedState),
    /// A change does not merge with what is ahead of it.
    Conflict {
        /// The change that does not merge.
        subject: Subject,
        /// The paths in conflict.
        paths: Vec<String>,
        /// For people.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code: `repository-vanished`, `ref-missing`, …
        code: String,
        /// For people.
        message: String,
        /// Whether trying again may help.
        again: bool,
    },
}

/// Input: how preparing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// How it ended.
    pub outcome: PrepareOutcome,
}

/// A speculative state was prepared, or could not be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// How it ended.
    pub done: PrepareDone,
}

/// Work: freeze the jobs of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezeWanted {
    /// The work.
    pub work: WorkId,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The tenant.
    pub tenant: String,
    /// The pipeline.
    pub pipeline: String,
    /// The layout it is tested with.
    pub layout: BlobHash,
    /// The layout ahead: jobs whose configuration the item changes run whatever their file matchers say.
    pub layout_ahead: Option<BlobHash>,
    /// The chain, oldest first; the item's own changes last.
    pub steps: MergeSteps,
    /// The prepared state.
    pub state: PreparedState,
    /// The tenant's projects, for required projects and roles.
    pub projects: Vec<TenantProject>,
    /// The item's parameters: variables of its jobs, as far as they are declared for its branch.
    pub parameters: BTreeMap<String, Value>,
    /// Where the item has several changes, the paths that each of them changes, in the order of its steps; `None` where
    /// nobody knows. Where this is empty, those of the state count for each.
    pub own_files: Vec<Option<Vec<String>>>,
}

/// What the gate must know of a frozen job; everything else is in its spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrozenJob {
    /// The job's name.
    pub name: String,
    /// Everything a worker must know: a blob.
    pub spec: BlobHash,
    /// Whether its result counts.
    pub voting: bool,
    /// How many attempts it has.
    pub attempts: u32,
    /// Jobs it waits for; the second says whether softly.
    pub dependencies: Vec<(String, bool)>,
    /// Semaphores of the tenant it holds while it runs, with how many may hold each.
    pub semaphores: Vec<crate::draft::capacity::SemaphoreWanted>,
    /// The nodes it runs on.
    pub nodes: Vec<crate::draft::capacity::NodeWanted>,
    /// Whether it is done without a worker (`noop`).
    pub noop: bool,
    /// What is said instead of SUCCESS, if anything.
    pub success_message: Option<String>,
    /// What is said instead of FAILURE, if anything.
    pub failure_message: Option<String>,
    /// How it stands to other jobs, items and changes.
    pub traits: JobTraits,
}

/// How a job stands to other jobs, to other items and to the changes of its own item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTraits {
    /// Items behind start nothing before it succeeded. Zuul: `hold-following-changes`.
    pub hold_following_changes: bool,
    /// When a voting job fails, what its item still runs is given up. Zuul: `fail-fast`.
    pub fail_fast: bool,
    /// Artifacts it makes, by name.
    pub provides: Vec<String>,
    /// Artifacts of changes ahead that it needs, by name.
    pub requires: Vec<String>,
    /// Which of the item's changes it is for, counted from 0; several when it serves them together.
    /// Empty stands for all of them.
    pub changes: Vec<u32>,
    /// Whether it runs only once its item was reported as a success (and merged). Zuul: `type: reporter`.
    pub reporter: bool,
    /// Other nodes it may run on, in order of preference, where those it asks for first cannot be had or reached.
    /// Zuul: `alternatives` of a nodeset.
    pub alternatives: Vec<NodesetAlternative>,
    /// Those of its semaphores that it takes only once it has its nodes, by name. Zuul: `resources-first`.
    pub resources_first: Vec<String>,
}

/// Other nodes that a job may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesetAlternative {
    /// Everything a worker must know where it runs on these: a blob.
    pub spec: BlobHash,
    /// The nodes.
    pub nodes: Vec<crate::draft::capacity::NodeWanted>,
}

/// How freezing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FreezeOutcome {
    /// These jobs run.
    Frozen {
        /// The job graph: a blob.
        graph: BlobHash,
        /// Why these jobs and why thus: a blob.
        trace: BlobHash,
        /// The jobs, in the order of the graph.
        jobs: Vec<FrozenJob>,
        /// Every repository that jobs use, as all of them will see it however late they start. What the prepared state
        /// says of a branch goes before. Zuul: the global repo state.
        repo_state: Vec<FrozenRefs>,
    },
    /// No job runs: none matches, or (`in_pipeline` false) the project is not in the pipeline.
    NoJobs {
        /// Why: a blob.
        trace: BlobHash,
        /// Whether the project is in the pipeline at all.
        in_pipeline: bool,
    },
    /// The configuration is wrong for this item.
    Refused {
        /// Why: a blob.
        trace: BlobHash,
        /// What is reported.
        message: String,
    },
    /// It could not be tried.
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
        /// Whether trying again may help.
        again: bool,
    },
}

/// Input: how freezing ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezeDone {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// How it ended.
    pub outcome: FreezeOutcome,
}

/// Jobs were frozen. Each job has its build from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frozen {
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// How it ended.
    pub done: FreezeDone,
    /// The build of each job, in the order of the graph.
    pub builds: Vec<BuildId>,
}
