//! Builds and the semaphores they hold.

use gatelog_record::draft::capacity::{LeaseHoldAsked, NodeWanted};
use gatelog_record::draft::gate::{AttemptStarted, AutoholdAsked, BuildResult, FrozenJob};
use gatelog_record::{ActorId, BlobHash, BuildId, BuildsetId, ItemId, LeaseId, Timestamp};
use gatelog_tables::TableDef;
use gatelog_tables::table::Life;
use serde::{Deserialize, Serialize};

/// Builds of buildsets that are there.
#[derive(Debug)]
pub struct Builds;
impl TableDef for Builds {
    const ID: u16 = 31;
    const NAME: &'static str = "builds";
    const LIFE: Life = Life::Live;
    type Key = BuildId;
    type Row = BuildRow;
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BuildState {
    /// It has not asked for a lease, or is to ask for another.
    Waiting,
    /// Its newest attempt asked for a lease.
    Leased,
    /// A worker runs its newest attempt.
    Running,
    /// It has its result.
    Done,
}

/// A build: one job of a buildset, over all its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildRow {
    /// The tenant.
    pub tenant: String,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// The job.
    pub job: FrozenJob,
    /// How far it is.
    pub state: BuildState,
    /// The newest attempt; 0 before the first.
    pub attempt: u32,
    /// The result, once it has one.
    pub result: Option<BuildResult>,
    /// The newest attempt's lease.
    pub lease: Option<LeaseId>,
    /// The newest attempt's worker.
    pub worker: Option<String>,
    /// When the newest attempt began, by the worker's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended, by the worker's clock.
    pub finished_at: Option<Timestamp>,
    /// Where its log is.
    pub log_url: Option<String>,
    /// For people.
    pub detail: Option<String>,
    /// Without a worker: a code that says why it has its result.
    pub settled: Option<String>,
    /// Zuul: `child_jobs` the job returned; of the jobs that wait for it only these run.
    pub child_jobs: Option<Vec<String>>,
    /// Whether its newest attempt succeeded so far and waits for the jobs that need it.
    pub paused: bool,
    /// Whether its newest attempt will fail, although it still runs. Zuul: `pre_fail`.
    pub pre_fail: bool,
    /// Which of the job's nodesets its next attempt asks for, or its newest asked for, counted from 0.
    pub nodeset: u32,
    /// What the worker said that has the newest attempt's nodes, while a semaphore is waited for.
    pub ready: Option<AttemptStarted>,
    /// How many of its attempts never began because their nodes could not be had: these do not count.
    pub uncounted: u32,
}

impl BuildRow {
    /// Whether an attempt of it has a lease or asked for one.
    pub fn holds_lease(&self) -> bool {
        matches!(self.state, BuildState::Leased | BuildState::Running)
    }

    /// Whether there are further nodes to ask for once those of its newest attempt could not be had.
    pub fn has_others(&self) -> bool {
        (self.nodeset as usize) < self.job.traits.alternatives.len()
    }

    /// The nodes of its newest or next attempt.
    pub fn nodes(&self) -> &[NodeWanted] {
        self.alternative().map_or(&self.job.nodes, |other| &other.nodes)
    }

    /// What a worker must know of its newest or next attempt.
    pub fn spec(&self) -> BlobHash {
        self.alternative().map_or(self.job.spec, |other| other.spec)
    }

    fn alternative(&self) -> Option<&gatelog_record::draft::gate::NodesetAlternative> {
        let index = usize::try_from(self.nodeset.checked_sub(1)?).ok()?;
        self.job.traits.alternatives.get(index)
    }

    /// Whether it failed, or will.
    pub fn fails(&self) -> bool {
        let failed = |result| !matches!(result, BuildResult::Success | BuildResult::Skipped);
        self.result.map_or(self.pre_fail, failed)
    }
}

/// What became of artifacts of changes that are open: tenant, project and change, then pipeline, patchset
/// and artifact in one.
#[derive(Debug)]
pub struct Artifacts;
impl TableDef for Artifacts {
    const ID: u16 = 37;
    const NAME: &'static str = "artifacts";
    const LIFE: Life = Life::Live;
    type Key = (String, String, String);
    type Row = Vec<ArtifactRow>;
}

/// What became of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRow {
    /// The pipeline in which it was made.
    pub pipeline: String,
    /// The patchset it was made of.
    pub patchset: Option<String>,
    /// Its name.
    pub artifact: String,
    /// Whether it is there.
    pub made: bool,
}

/// Builds that hold a tenant's semaphore: tenant, semaphore, build.
#[derive(Debug)]
pub struct SemaphoreHolders;
impl TableDef for SemaphoreHolders {
    const ID: u16 = 32;
    const NAME: &'static str = "semaphore-holders";
    const LIFE: Life = Life::Live;
    type Key = (String, String, BuildId);
    type Row = ();
}

/// Requests to keep nodes of builds that fail, by tenant and number.
#[derive(Debug)]
pub struct Autoholds;
impl TableDef for Autoholds {
    const ID: u16 = 38;
    const NAME: &'static str = "autoholds";
    const LIFE: Life = Life::Live;
    type Key = (String, u64);
    type Row = AutoholdRow;
}

/// A request to keep nodes of builds that fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoholdRow {
    /// What was asked.
    pub asked: AutoholdAsked,
    /// When.
    pub asked_at: Timestamp,
    /// By whom.
    pub actor: ActorId,
    /// For how many builds it has kept nodes, whether it still does or not.
    pub count: u32,
    /// What it keeps now.
    pub held: Vec<HeldBuild>,
}

impl AutoholdRow {
    /// Whether it keeps no further nodes.
    pub fn used_up(&self) -> bool {
        self.count >= self.asked.count
    }
}

/// A build whose nodes are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBuild {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// What capacity was asked: whose nodes, until when, why.
    pub hold: LeaseHoldAsked,
    /// The lease that has them.
    pub lease: Option<LeaseId>,
    /// The worker that has them.
    pub worker: Option<String>,
    /// The item it was a build of.
    pub item: ItemId,
    /// Since when.
    pub since: Timestamp,
}
