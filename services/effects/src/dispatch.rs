//! The reconciler over a domain's pending work: woken by a hint and by a periodic scan, idempotent, no retry loop inside.
//! The table is the truth; what is lost here is found again at the next scan.
//!
//! It knows no domain: the work is of any kinds ([`Work`]), and whoever does it says what its outcomes mean ([`Performer`]).
//! Work is done in [`lanes`](crate::lanes), so that what one connection makes wait holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_event_log::{Blobs, Log};
use gatelog_partition_state::work::{Perform, Sending, Work};
use gatelog_record::{Input, Partition, Timestamp, WorkId};
use gatelog_room::{Lack, Room};

use crate::lanes::{Lanes, Shared, Telling, UNTOLD};
use crate::resting::Resting;
use crate::share::Share;

pub use gatelog_partition_state::work::Duty;

/// A row of pending work that may be done now.
#[derive(Clone, Debug)]
pub struct Due<W> {
    /// The work.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The key its outcome comes under, such as a tenant.
    pub key: String,
    /// The event that asked for it.
    pub requested_by: u64,
    /// What is to be done.
    pub request: W,
}

impl<W> Due<W> {
    /// Which sending of which work this is.
    pub fn sending(&self) -> Sending<'_> {
        Sending { work: self.work, attempt: self.attempt, key: &self.key, requested: self.requested_by }
    }
}

/// What is pending at one position.
#[derive(Clone, Debug)]
pub struct Pending<W> {
    /// The position.
    pub position: u64,
    /// Everything that may be done at this moment.
    pub there: BTreeSet<(WorkId, u32)>,
    /// Of it what was not known, oldest first.
    pub new: Vec<Due<W>>,
}

/// Where pending work is read.
pub trait WorkSource<W>: Send + Sync {
    /// What may be done at this moment. Of what is `known`, only that it is there: the table is looked through with
    /// everything that is folded, and a request can be long.
    fn due(&self, known: &BTreeSet<(WorkId, u32)>) -> Pending<W>;
    /// Waits until something was folded beyond a position, at most so long.
    fn wait(&self, beyond: u64, at_most: Duration);
}

/// Does a domain's work in the world, and knows what its outcomes say.
pub trait Performer<W: Work>:
    Perform<W, Outcome: Into<Input>, Error: std::fmt::Display> + Clone + Send + Sync + 'static
{
    /// Whether there is such a connection here. Work of connections that are nowhere has no lanes of its own.
    fn has_connection(&self, name: &str) -> bool;

    /// Where the blobs go that its outcomes name.
    fn blobs(&self) -> Arc<dyn Blobs>;

    /// The same, with its blobs kept there.
    fn with_blobs(&self, blobs: Arc<dyn Blobs>) -> Self;

    /// Sees work that is new, before any of it is done.
    fn see(&self, _: &Due<W>) {}

    /// What an outcome says, and how it is told.
    fn judge(&self, outcome: Self::Outcome) -> Judged;
}

/// What an outcome says of who did the work.
pub enum Judged {
    /// It is one.
    Outcome {
        /// As it is told.
        told: Input,
        /// Whether what was asked did not answer as it should: then it is left alone for a moment.
        trouble: bool,
    },
    /// It is none: this host has no room for the work, which is done again after a while, however often.
    NoRoom {
        /// What is wanting.
        lack: Lack,
        /// What the system said.
        said: String,
        /// How it is told that the work waits.
        told: Input,
    },
}

/// How outcomes get onto the log.
#[derive(Clone)]
pub struct Outlet {
    /// Where they go.
    pub log: Arc<dyn Log>,
    /// The clock, for what an outcome says it was observed at.
    pub now: fn() -> Timestamp,
    /// The domain's partition.
    pub partition: Partition,
    /// Knows what waits until this host has room.
    pub room: Arc<Room>,
}

const SCAN: Duration = Duration::from_millis(500);

/// What was taken up, and in which sending of it.
pub(crate) type Taken = Arc<Mutex<BTreeSet<(WorkId, u32)>>>;

/// Runs the reconciler for these duties until `stop` is set; of what is pending, it does its share. Returns its threads.
///
/// # Errors
/// When a thread cannot be started.
pub fn spawn<W: Work, P: Performer<W>>(
    outlet: Outlet,
    performer: P,
    source: Arc<dyn WorkSource<W>>,
    duties: &[Duty],
    share: Share,
    stop: Arc<AtomicBool>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let (taken, resting): (Taken, Resting) = Default::default();
    let mut threads = Vec::new();
    let (telling, tellings) = sync_channel::<Telling>(UNTOLD);
    threads.push(std::thread::Builder::new().name("effects-told".into()).spawn({
        let taken = Arc::clone(&taken);
        move || tellings.iter().for_each(|telling| telling.finish(&taken))
    })?);
    let shared = Shared { outlet, performer, resting, telling, stop };
    let scan = Scan { lanes: Lanes::new(shared), taken, share, duties: duties.to_vec(), source };
    threads.push(std::thread::Builder::new().name("effects-scan".into()).spawn(move || scan.run())?);
    Ok(threads)
}

/// The scan: finds what is new in the table and gives it to its lane.
struct Scan<W: Work, P: Performer<W>> {
    lanes: Lanes<W, P>,
    taken: Taken,
    share: Share,
    duties: Vec<Duty>,
    source: Arc<dyn WorkSource<W>>,
}

impl<W: Work, P: Performer<W>> Scan<W, P> {
    fn run(mut self) {
        while !self.lanes.shared.stop.load(Ordering::Relaxed) {
            let position = self.once();
            self.source.wait(position, SCAN);
        }
        self.lanes.end();
    }

    /// Looks through the table once; says at which position it stood.
    fn once(&mut self) -> u64 {
        let resting = &self.lanes.shared.resting;
        resting.wake(&self.taken);
        let known = self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Pending { position, there, mut new } = self.source.due(&known);
        new.iter().for_each(|row| self.lanes.shared.performer.see(row));
        let own = self.duties.iter().filter(|duty| self.share.takes(**duty));
        let present: BTreeMap<Duty, Vec<String>> = own.map(|duty| (*duty, self.share.present(*duty))).collect();
        new.retain(|row| {
            present.get(&row.request.terms().duty).is_some_and(|present| self.share.is_mine(row, present))
        });
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // What is no longer in the table was answered, and the answer was taken.
        taken.retain(|key| there.contains(key));
        resting.keep_only(&there);
        for row in new {
            let key = (row.work, row.attempt);
            if self.lanes.offer(row) {
                taken.insert(key);
            }
        }
        position
    }
}
