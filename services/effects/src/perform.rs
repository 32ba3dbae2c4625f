//! The gate's work, done in the world.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use gatelog_event_log::{Blobs, Log};
use gatelog_gate_state::Work;
use gatelog_gate_state::work::{NotReported, PerformKinds, Told};
use gatelog_partition_state::work::{Perform, Sending};
use gatelog_record::draft::gate::{
    ChangesFound, ChangesWanted, ConfigFilesFound, ConfigReadWanted, FreezeOutcome, FreezeWanted, LayoutOutcome,
    LayoutWanted, PrepareOutcome, PrepareRequested, ReportRequested, SubmitOutcome, SubmitRequested,
};
use gatelog_record::input::GateInput;
use gatelog_record::{ItemId, Partition, Timestamp};
use gatelog_room::Room;
use gatelog_secrets::Keyring;

use crate::chain::Chain;
use crate::dispatch::{self, Due, Duty, Judged, Outlet, Performer, WorkSource};
use crate::git::Repositories;
use crate::share::Share;
use crate::{config_read, freeze, layout, prepare, review, room};

/// Knows what is tested on what.
pub trait Chains: Send + Sync {
    /// How the state an item was tested in came about; `None` when there is none.
    fn chain(&self, item: ItemId) -> Option<Chain>;
}

/// Everything the gate's work is done with.
#[derive(Clone)]
pub struct Tools {
    /// Repositories, connections, blobs.
    pub repositories: Repositories,
    /// What says whether secrets decipher.
    pub keyring: Arc<Keyring>,
    /// Where outcomes go.
    pub log: Arc<dyn Log>,
    /// The clock, for what an outcome says it was observed at.
    pub now: fn() -> Timestamp,
    /// The gate's partition.
    pub partition: Partition,
    /// Knows what waits until this host has room.
    pub room: Arc<Room>,
}

/// Runs the reconciler over the gate's work for these duties until `stop` is set. Returns its threads.
///
/// # Errors
/// When a thread cannot be started.
pub fn spawn<S: WorkSource<Work> + Chains + 'static>(
    tools: Tools,
    source: Arc<S>,
    duties: &[Duty],
    share: Share,
    stop: Arc<AtomicBool>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let Tools { repositories, keyring, log, now, partition, room } = tools;
    let chains: Arc<dyn Chains> = Arc::<S>::clone(&source);
    let performer = GatePerformer { repositories, keyring, chains };
    dispatch::spawn(Outlet { log, now, partition, room }, performer, source, duties, share, stop)
}

/// Does the gate's work.
#[derive(Clone)]
pub struct GatePerformer {
    repositories: Repositories,
    keyring: Arc<Keyring>,
    chains: Arc<dyn Chains>,
}

impl PerformKinds for GatePerformer {
    type Error = Infallible;

    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, Infallible> {
        Ok(config_read::read(&self.repositories, wanted, of.attempt))
    }

    fn layout(&mut self, _: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, Infallible> {
        Ok(layout::make(&self.repositories, &self.keyring, wanted))
    }

    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, Infallible> {
        Ok(review::find_changes(&self.repositories.connections, wanted, of.attempt))
    }

    fn prepare(&mut self, _: Sending<'_>, wanted: &PrepareRequested) -> Result<PrepareOutcome, Infallible> {
        Ok(prepare::prepare(&self.repositories, wanted))
    }

    fn freeze(&mut self, _: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, Infallible> {
        Ok(freeze::run(&self.repositories, wanted))
    }

    fn submit(&mut self, _: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, Infallible> {
        Ok(review::submit(&self.repositories, wanted, || self.chains.chain(wanted.item)))
    }

    fn report(&mut self, _: Sending<'_>, wanted: &ReportRequested) -> Result<NotReported, Infallible> {
        Ok(review::report(&self.repositories.connections, wanted))
    }
}

impl Perform<Work> for GatePerformer {
    type Outcome = GateInput;
    type Error = Infallible;

    fn perform(&mut self, sending: Sending<'_>, work: &Work) -> Result<GateInput, Infallible> {
        work.perform(sending, self)
    }
}

impl Performer<Work> for GatePerformer {
    fn has_connection(&self, name: &str) -> bool {
        self.repositories.connections.get(name).is_ok()
    }

    fn blobs(&self) -> Arc<dyn Blobs> {
        Arc::clone(&self.repositories.blobs)
    }

    fn with_blobs(&self, blobs: Arc<dyn Blobs>) -> GatePerformer {
        let mut other = self.clone();
        other.repositories.blobs = blobs;
        other
    }

    fn see(&self, due: &Due<Work>) {
        if let Work::Prepare(wanted) = &due.request {
            self.repositories.begun.note(wanted.buildset, &self.repositories.mirrors);
        }
    }

    fn judge(&self, mut outcome: GateInput) -> Judged {
        if let Some((lack, said)) = room::lack(&mut outcome, self.repositories.mirrors.root()) {
            return Judged::NoRoom { lack, said, told: room::waits(outcome, lack).into() };
        }
        let trouble = Told::of(&outcome).and_then(|told| told.failed).is_some_and(|(_, again)| again);
        Judged::Outcome { told: room::hide(outcome).into(), trouble }
    }
}
