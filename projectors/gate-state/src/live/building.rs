//! Builds and the semaphores they hold.

use gatelog_record::draft::gate::{BuildResult, FrozenJob};
use gatelog_record::{BuildId, BuildsetId, ItemId, LeaseId, Timestamp};
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
}

impl BuildRow {
    /// Whether an attempt of it has a lease or asked for one.
    pub fn holds_lease(&self) -> bool {
        matches!(self.state, BuildState::Leased | BuildState::Running)
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
