//! The reconciler over the gate's pending work: woken by a hint and by a periodic scan, idempotent,
//! no retry loop inside. The table is the truth; what is lost here is found again at the next scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_event_log::{Log, failpoint};
use gatelog_gate_state::Work;
use gatelog_record::draft::gate::{FreezeDone, LayoutMade, PrepareDone, ReportDone, SubmitDone};
use gatelog_record::input::GateInput;
use gatelog_record::{EventRef, InputId, InputRecord, ItemId, Partition, Stream, Timestamp, WorkId};
use gatelog_secrets::Keyring;

use crate::chain::Chain;
use crate::connection::{Connections, chain};
use crate::git::Repositories;
use crate::share::Share;
use crate::{config_read, freeze, layout, prepare, review};

/// A row of pending work that may be done now.
#[derive(Clone, Debug)]
pub struct Due {
    /// The work.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// The event that asked for it.
    pub requested_by: u64,
    /// What is to be done.
    pub request: Work,
}

/// What is pending at one position.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// The position.
    pub position: u64,
    /// Everything that may be done at this moment.
    pub there: BTreeSet<(WorkId, u32)>,
    /// Of it what was not known, oldest first.
    pub new: Vec<Due>,
}

/// Where pending work is read.
pub trait WorkSource: Send + Sync {
    /// What may be done at this moment. Of what is `known`, only that it is there: the table is looked through with
    /// everything that is folded, and a request can be long.
    fn due(&self, now: Timestamp, known: &BTreeSet<(WorkId, u32)>) -> Pending;
    /// Waits until something was folded beyond a position, at most so long.
    fn wait(&self, beyond: u64, at_most: Duration);
    /// How the state an item was tested in came about; `None` when there is none.
    fn chain(&self, item: ItemId) -> Option<Chain>;
}

/// Kinds of work that do not get into each other's way; each process does those of its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Merging and reading repositories.
    Merge,
    /// Layouts and freezing.
    Compute,
    /// Merging for real.
    Submit,
    /// Asking code-review systems, and reporting to them.
    Review,
}

impl Duty {
    /// How many pieces of it are done at once.
    fn threads(self) -> usize {
        match self {
            Duty::Merge | Duty::Compute | Duty::Review => 2,
            Duty::Submit => 1,
        }
    }
}

/// How many rows may wait in a lane; the rest stays in the table.
const LANE_DEPTH: usize = 256;
const SCAN: Duration = Duration::from_millis(500);

/// Everything work is done with.
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
}

/// Runs the reconciler for these duties until `stop` is set; of what is pending, it does its share. Returns its threads.
pub fn spawn(
    tools: Tools,
    source: Arc<dyn WorkSource>,
    duties: &[Duty],
    share: Share,
    stop: Arc<AtomicBool>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let taken: Arc<Mutex<BTreeSet<(WorkId, u32)>>> = Arc::default();
    let mut threads = Vec::new();
    let mut lanes: BTreeMap<Duty, SyncSender<Due>> = BTreeMap::new();
    for lane in duties.iter().copied() {
        let (sender, receiver) = sync_channel::<Due>(LANE_DEPTH);
        let receiver = Arc::new(Mutex::new(receiver));
        lanes.insert(lane, sender);
        for index in 0..lane.threads() {
            let (tools, taken, receiver) = (tools.clone(), Arc::clone(&taken), Arc::clone(&receiver));
            let source = Arc::clone(&source);
            let name = format!("effects-{lane:?}-{index}").to_lowercase();
            threads.push(
                std::thread::Builder::new().name(name).spawn(move || work_lane(&tools, &*source, &taken, &receiver))?,
            );
        }
    }
    let scan = std::thread::Builder::new().name("effects-scan".into());
    threads.push(scan.spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let known = taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Pending { position, there, mut new } = source.due((tools.now)(), &known);
            let present: BTreeMap<Duty, Vec<String>> =
                lanes.keys().filter(|duty| share.takes(**duty)).map(|duty| (*duty, share.present(*duty))).collect();
            new.retain(|row| present.get(&lane_of(&row.request)).is_some_and(|present| share.is_mine(row, present)));
            let mut taken_now = taken.lock().unwrap_or_else(PoisonError::into_inner);
            // What is no longer in the table was answered, and the answer was taken.
            taken_now.retain(|key| there.contains(key));
            for row in new {
                let key = (row.work, row.attempt);
                if let Some(sender) = lanes.get(&lane_of(&row.request))
                    && sender.try_send(row).is_ok()
                {
                    taken_now.insert(key);
                }
            }
            drop(taken_now);
            source.wait(position, SCAN);
        }
    })?);
    Ok(threads)
}

fn lane_of(work: &Work) -> Duty {
    match work {
        Work::ConfigRead(_) | Work::Prepare(_) => Duty::Merge,
        Work::Layout(_) | Work::Freeze(_) => Duty::Compute,
        Work::Submit(_) => Duty::Submit,
        Work::Changes(_) | Work::Report(_) => Duty::Review,
    }
}

fn work_lane(
    tools: &Tools,
    source: &dyn WorkSource,
    taken: &Mutex<BTreeSet<(WorkId, u32)>>,
    receiver: &Mutex<Receiver<Due>>,
) {
    loop {
        // The lock is held while waiting: whoever waits next takes the next row.
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(due) = next else { return };
        let key = (due.work, due.attempt);
        if !perform_and_answer(tools, source, due) {
            // Nobody has the answer: the next scan finds the row again.
            taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }
}

/// Where a crash test lets the process die: before a piece of work is done, before its outcome is appended, after it.
fn steps(work: &Work) -> [&'static str; 3] {
    match work {
        Work::ConfigRead(_) => ["effect/config-read", "effect/config-read-done", "effect/config-read-told"],
        Work::Layout(_) => ["effect/layout", "effect/layout-done", "effect/layout-told"],
        Work::Changes(_) => ["effect/changes", "effect/changes-done", "effect/changes-told"],
        Work::Prepare(_) => ["effect/prepare", "effect/prepare-done", "effect/prepare-told"],
        Work::Freeze(_) => ["effect/freeze", "effect/freeze-done", "effect/freeze-told"],
        Work::Submit(_) => ["effect/submit", "effect/submit-done", "effect/submit-told"],
        Work::Report(_) => ["effect/report", "effect/report-done", "effect/report-told"],
    }
}

fn perform_and_answer(tools: &Tools, source: &dyn WorkSource, due: Due) -> bool {
    let [before, done, told] = steps(&due.request);
    failpoint::pass(before);
    let perform = || perform(tools, source, &due);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(perform)).ok();
    let Some(input) = outcome else {
        tracing::error!(work = %due.work, "an effect panicked; its work is sent again when its deadline passes");
        return true;
    };
    let id = InputId::new(format!("work/{}/{}", due.work, due.attempt));
    let record = InputRecord::new(id, due.tenant.clone(), (tools.now)(), input)
        .caused_by(EventRef { partition: tools.partition, sequence: due.requested_by });
    let frame = match record.close() {
        Ok(frame) => frame.encode(),
        Err(error) => {
            tracing::error!(work = %due.work, error = %chain(&error), "an outcome cannot be written");
            return true;
        }
    };
    failpoint::pass(done);
    let answer = tools.log.append_inputs(Stream::Inputs(tools.partition), vec![frame]).wait();
    failpoint::pass(told);
    match answer {
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            tracing::warn!(work = %due.work, error = %chain(&error), "an outcome could not be appended");
            std::thread::sleep(Duration::from_millis(100));
            false
        }
        None => false,
    }
}

fn perform(tools: &Tools, source: &dyn WorkSource, due: &Due) -> GateInput {
    let repositories = &tools.repositories;
    let connections: &Connections = &repositories.connections;
    let (work, attempt, tenant) = (due.work, due.attempt, due.tenant.clone());
    match &due.request {
        Work::ConfigRead(wanted) => config_read::read(repositories, wanted, attempt).into(),
        Work::Layout(wanted) => {
            let outcome = layout::make(repositories, &tools.keyring, wanted);
            LayoutMade { work, attempt, tenant, outcome }.into()
        }
        Work::Changes(wanted) => review::find_changes(connections, wanted, attempt).into(),
        Work::Prepare(wanted) => {
            PrepareDone { work, attempt, tenant, outcome: prepare::prepare(repositories, wanted) }.into()
        }
        Work::Freeze(wanted) => FreezeDone { work, attempt, tenant, outcome: freeze::run(repositories, wanted) }.into(),
        Work::Submit(wanted) => {
            let chain = source.chain(wanted.item);
            SubmitDone { work, attempt, tenant, outcome: review::submit(repositories, wanted, chain.as_ref()) }.into()
        }
        Work::Report(wanted) => {
            ReportDone { work, attempt, tenant, failed: review::report(connections, wanted) }.into()
        }
    }
}
