//! The reconciler over the gate's pending work: woken by a hint and by a periodic scan, idempotent,
//! no retry loop inside. The table is the truth; what is lost here is found again at the next scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_event_log::{Log, LogError, Offset, Pending as Answer, failpoint};
use gatelog_gate_state::Work;
use gatelog_record::draft::gate::{FreezeDone, LayoutMade, PrepareDone, ReportDone, SubmitDone};
use gatelog_record::input::GateInput;
use gatelog_record::{EventRef, InputId, InputRecord, ItemId, Partition, Stream, Timestamp, WorkId};
use gatelog_room::{Lack, Pause, Room, Waiting};
use gatelog_secrets::Keyring;

use crate::chain::Chain;
use crate::connection::{Connections, chain};
use crate::git::Repositories;
use crate::share::Share;
use crate::together::Together;
use crate::{config_read, freeze, layout, prepare, review, room};

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
    fn due(&self, known: &BTreeSet<(WorkId, u32)>) -> Pending;
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
    /// Whether it may be done in groups, and again: it touches nobody else's system.
    fn is_own(self) -> bool {
        match self {
            Duty::Merge | Duty::Compute => true,
            Duty::Submit | Duty::Review => false,
        }
    }

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
/// How many outcomes may be on their way to the log; who has more waits.
const UNTOLD: usize = 256;
/// How many pieces of work a thread does before it tells their outcomes, if more waits, and for how long at most.
const GROUP: usize = 16;
const GROUP_FOR: Duration = Duration::from_millis(5);
/// How long after an outcome that could not be appended the next is waited for.
const RETRY: Duration = Duration::from_millis(100);
/// How often work that waits for room tells the gate so: within the shortest deadline, so that no sending is lost by it.
const SIGN: Duration = Duration::from_secs(20);

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
    /// Knows what waits until this host has room.
    pub room: Arc<Room>,
}

/// Runs the reconciler for these duties until `stop` is set; of what is pending, it does its share. Returns its threads.
pub fn spawn(
    tools: Tools,
    source: Arc<dyn WorkSource>,
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
    let mut lanes: BTreeMap<Duty, SyncSender<Due>> = BTreeMap::new();
    for lane in duties.iter().copied() {
        let (sender, receiver) = sync_channel::<Due>(LANE_DEPTH);
        let receiver = Arc::new(Mutex::new(receiver));
        lanes.insert(lane, sender);
        for index in 0..lane.threads() {
            let (tools, telling, receiver) = (tools.clone(), telling.clone(), Arc::clone(&receiver));
            let (source, resting) = (Arc::clone(&source), resting.clone());
            let name = format!("effects-{lane:?}-{index}").to_lowercase();
            let work = move || work_lane(&tools, lane, &*source, &resting, &telling, &receiver);
            threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
    }
    let scan = std::thread::Builder::new().name("effects-scan".into());
    threads.push(scan.spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            resting.wake(&taken);
            let known = taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Pending { position, there, mut new } = source.due(&known);
            for row in &new {
                if let Work::Prepare(wanted) = &row.request {
                    tools.repositories.begun.note(wanted.buildset, &tools.repositories.mirrors);
                }
            }
            let present: BTreeMap<Duty, Vec<String>> =
                lanes.keys().filter(|duty| share.takes(**duty)).map(|duty| (*duty, share.present(*duty))).collect();
            new.retain(|row| present.get(&lane_of(&row.request)).is_some_and(|present| share.is_mine(row, present)));
            let mut taken_now = taken.lock().unwrap_or_else(PoisonError::into_inner);
            // What is no longer in the table was answered, and the answer was taken.
            taken_now.retain(|key| there.contains(key));
            resting.keep_only(&there);
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

/// What was taken up, and in which sending of it.
type Taken = Arc<Mutex<BTreeSet<(WorkId, u32)>>>;

/// Work that failed because this host has no room: it has no outcome, and is done again after a while, however often.
#[derive(Clone, Default)]
struct Resting(Arc<Mutex<BTreeMap<(WorkId, u32), Rest>>>);

struct Rest {
    /// When it is taken up again; `None`: it is under way.
    until: Option<Instant>,
    pause: Pause,
    told: Waiting,
    /// When it is next told to the gate that it waits.
    sign: Instant,
}

impl Resting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(WorkId, u32), Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays a piece of work aside for a while; says whether it is time to tell the gate that it waits.
    fn rest(&self, room: &Arc<Room>, due: &Due, lack: Lack, said: String) -> bool {
        let mut resting = self.lock();
        let rest = resting.entry((due.work, due.attempt)).or_insert_with(|| Rest {
            until: None,
            pause: Pause::default(),
            told: room.wait(format!("{} {}", due.request.kind(), due.work), lack, said.clone()),
            sign: Instant::now() + SIGN,
        });
        rest.told.again(lack, said);
        let now = Instant::now();
        rest.until = Some(now + rest.pause.take());
        let is_time = rest.sign <= now;
        if is_time {
            rest.sign = now + SIGN;
        }
        is_time
    }

    /// It has an outcome.
    fn over(&self, due: &Due) {
        self.lock().remove(&(due.work, due.attempt));
    }

    /// Lets the scan find what has rested for long enough.
    fn wake(&self, taken: &Taken) {
        let mut resting = self.lock();
        if resting.is_empty() {
            return;
        }
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, rest) in resting.iter_mut() {
            if rest.until.take_if(|until| *until <= Instant::now()).is_some() {
                taken.remove(key);
            }
        }
    }

    /// Of what is no longer pending nothing waits.
    fn keep_only(&self, there: &BTreeSet<(WorkId, u32)>) {
        self.lock().retain(|key, _| there.contains(key));
    }
}

/// An outcome on its way to the log. Nobody works less for waiting until it is there: outcomes of one lane share a sync.
struct Telling {
    key: (WorkId, u32),
    /// The step at which a crash test lets the process die once it is there.
    told: &'static str,
    answer: Answer<Result<Vec<Offset>, LogError>>,
}

impl Telling {
    /// Waits until the outcome is on the log; where it could not be appended, the next scan finds its row again.
    fn finish(self, taken: &Taken) {
        let answer = self.answer.wait();
        failpoint::pass(self.told);
        match answer {
            Some(Ok(_)) => return,
            Some(Err(error)) => {
                tracing::warn!(work = %self.key.0, error = %chain(&error), "an outcome could not be appended");
                std::thread::sleep(RETRY);
            }
            None => {}
        }
        taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Work that was done, and its outcome as it goes to the log.
struct Done {
    due: Due,
    frame: Vec<u8>,
}

fn work_lane(
    tools: &Tools,
    lane: Duty,
    source: &dyn WorkSource,
    resting: &Resting,
    telling: &SyncSender<Telling>,
    receiver: &Mutex<Receiver<Due>>,
) {
    let together = Arc::new(Together::new(Arc::clone(&tools.repositories.blobs)));
    let mut collecting = tools.clone();
    let most = if lane.is_own() { GROUP } else { 1 };
    if lane.is_own() {
        collecting.repositories.blobs = Arc::<Together>::clone(&together);
    }
    loop {
        // The lock is held while waiting: whoever waits next takes the next row.
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(due) = next else { return };
        let began = Instant::now();
        let mut done: Vec<Done> = perform_one(&collecting, source, resting, due).into_iter().collect();
        // Whoever else waits for work has the lock.
        while done.len() < most
            && began.elapsed() < GROUP_FOR
            && let Some(due) = receiver.try_lock().ok().and_then(|receiver| receiver.try_recv().ok())
        {
            done.extend(perform_one(&collecting, source, resting, due));
        }
        if let Err(error) = together.write() {
            tracing::warn!(error = %chain(&error), "blobs could not be written; the work is done again, each for itself");
            done = done.into_iter().filter_map(|done| perform_one(tools, source, resting, done.due)).collect();
        }
        for done in done {
            if telling.send(tell(tools, done)).is_err() {
                return;
            }
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

/// Does a piece of work. `None` where it has no outcome: it is done again after a while if this host had no room for it,
/// and sent again when its deadline passes.
fn perform_one(tools: &Tools, source: &dyn WorkSource, resting: &Resting, due: Due) -> Option<Done> {
    let [before, ..] = steps(&due.request);
    failpoint::pass(before);
    let perform = || perform(tools, source, &due);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(perform)).ok();
    let Some(mut input) = outcome else {
        tracing::error!(work = %due.work, "an effect panicked; its work is sent again when its deadline passes");
        return None;
    };
    if let Some((lack, said)) = room::lack(&mut input, tools.repositories.mirrors.root()) {
        if !resting.rest(&tools.room, &due, lack, said) {
            return None;
        }
        // Each is news: of two with one id, the second would begin no deadline anew. Another process may have told some.
        let id = format!("work/{}/{}/no-room/{}", due.work, due.attempt, (tools.now)().0);
        return close(tools, due, id, room::waits(input, lack));
    }
    resting.over(&due);
    let id = format!("work/{}/{}", due.work, due.attempt);
    close(tools, due, id, room::hide(input))
}

/// An outcome as it goes to the log.
fn close(tools: &Tools, due: Due, id: String, input: GateInput) -> Option<Done> {
    let id = InputId::new(id);
    let record = InputRecord::new(id, due.tenant.clone(), (tools.now)(), input)
        .caused_by(EventRef { partition: tools.partition, sequence: due.requested_by });
    match record.close() {
        Ok(frame) => Some(Done { frame: frame.encode(), due }),
        Err(error) => {
            tracing::error!(work = %due.work, error = %chain(&error), "an outcome cannot be written");
            None
        }
    }
}

/// Sends an outcome to the log.
fn tell(tools: &Tools, done: Done) -> Telling {
    let Done { due, frame } = done;
    let [_, done, told] = steps(&due.request);
    failpoint::pass(done);
    let answer = tools.log.append_inputs(Stream::Inputs(tools.partition), vec![frame]);
    Telling { key: (due.work, due.attempt), told, answer }
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
            let chain = || source.chain(wanted.item);
            SubmitDone { work, attempt, tenant, outcome: review::submit(repositories, wanted, chain) }.into()
        }
        Work::Report(wanted) => {
            ReportDone { work, attempt, tenant, failed: review::report(connections, wanted) }.into()
        }
    }
}
