//! The lanes in which work is done.
//!
//! Each connection has lanes of its own for each duty, with threads of their own, a limit of what waits in them, and a rest
//! after trouble: a connection that is slow or does not answer makes no work wait but its own. Work that talks to several
//! connections has a lane for just those together. Work that talks to none has one lane for each duty.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_event_log::{LogError, Offset, Pending as Answer, failpoint};
use gatelog_partition_state::work::{Duty, Work};
use gatelog_record::{EventRef, Input, InputId, InputRecord, Stream, WorkId};

use crate::connection::chain;
use crate::dispatch::{Due, Judged, Outlet, Performer, Taken};
use crate::resting::Resting;
use crate::together::Together;

/// How many rows may wait in a lane; the rest stays in the table.
const LANE_DEPTH: usize = 256;
/// How many lanes there may be. What would need one more goes with the work of its duty that talks to nobody.
const LANES_MAX: usize = 64;
/// How many outcomes may be on their way to the log; who has more waits.
pub(crate) const UNTOLD: usize = 256;
/// How many pieces of work a thread does before it tells their outcomes, if more waits, and for how long at most.
const GROUP: usize = 16;
const GROUP_FOR: Duration = Duration::from_millis(5);
/// How long after an outcome that could not be appended the next is waited for.
const RETRY: Duration = Duration::from_millis(100);
/// How much trouble in a row a connection may give before its lane rests between pieces of work, and for how long it rests
/// then: twice as long each time.
const PATIENCE: u32 = 3;
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(5);

/// Whether a duty may be done in groups, and again: it touches nobody else's system.
fn is_own(duty: Duty) -> bool {
    match duty {
        Duty::Merge | Duty::Compute => true,
        Duty::Submit | Duty::Review => false,
    }
}

/// How many pieces of work of a lane are done at once.
fn threads(duty: Duty) -> usize {
    match duty {
        Duty::Merge | Duty::Compute | Duty::Review => 2,
        Duty::Submit => 1,
    }
}

/// What all lanes have.
pub(crate) struct Shared<P> {
    pub outlet: Outlet,
    pub performer: P,
    pub resting: Resting,
    pub telling: SyncSender<Telling>,
    pub stop: Arc<AtomicBool>,
}

/// Whose work is done in a lane: a duty, and the connections the work talks to, in their order.
type LaneKey = (Duty, Vec<String>);

/// The lanes there are, made as work for them comes.
pub(crate) struct Lanes<W: Work, P: Performer<W>> {
    pub shared: Arc<Shared<P>>,
    lanes: BTreeMap<LaneKey, SyncSender<Due<W>>>,
    threads: Vec<JoinHandle<()>>,
    kinds: PhantomData<W>,
}

impl<W: Work, P: Performer<W>> Lanes<W, P> {
    /// None yet.
    pub fn new(shared: Shared<P>) -> Lanes<W, P> {
        Lanes { shared: Arc::new(shared), lanes: BTreeMap::new(), threads: Vec::new(), kinds: PhantomData }
    }

    /// Gives a piece of work to its lane; says whether that took it. If not, it stays in the table.
    pub fn offer(&mut self, due: Due<W>) -> bool {
        let mut key = self.key(&due.request);
        if self.lanes.len() >= LANES_MAX && !self.lanes.contains_key(&key) {
            key.1.clear();
        }
        if !self.lanes.contains_key(&key) {
            match self.open(key.0, !key.1.is_empty()) {
                Ok(sender) => self.lanes.insert(key.clone(), sender),
                Err(error) => {
                    tracing::error!(error = %chain(&error), "a thread for pending work cannot be started");
                    return false;
                }
            };
        }
        self.lanes.get(&key).is_some_and(|sender| sender.try_send(due).is_ok())
    }

    fn key(&self, work: &W) -> LaneKey {
        let known = work.connections().into_iter().filter(|name| self.shared.performer.has_connection(name));
        (work.terms().duty, known.map(str::to_owned).collect())
    }

    /// Starts the threads of one more lane.
    fn open(&mut self, duty: Duty, asks: bool) -> std::io::Result<SyncSender<Due<W>>> {
        let (sender, receiver) = sync_channel(LANE_DEPTH);
        let lane = Arc::new(Lane { duty, asks, receiver: Mutex::new(receiver), trouble: AtomicU32::new(0) });
        for index in 0..threads(duty) {
            let (shared, lane) = (Arc::clone(&self.shared), Arc::clone(&lane));
            // A connection's name may be anything, which a thread's may not.
            let name = format!("effects-{duty:?}-{}-{index}", self.lanes.len()).to_lowercase();
            self.threads.push(std::thread::Builder::new().name(name).spawn(move || lane.run(&shared))?);
        }
        Ok(sender)
    }

    /// Waits until what is under way is done. What waits in lanes stays in the table.
    pub fn end(self) {
        drop(self.lanes);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of pending work panicked");
            }
        }
    }
}

/// One lane.
struct Lane<W> {
    duty: Duty,
    /// Whether its work talks to others.
    asks: bool,
    receiver: Mutex<Receiver<Due<W>>>,
    /// How often in a row there was trouble.
    trouble: AtomicU32,
}

impl<W: Work> Lane<W> {
    fn run<P: Performer<W>>(&self, shared: &Shared<P>) {
        let together = Arc::new(Together::new(shared.performer.blobs()));
        let mut alone = shared.performer.clone();
        let mut collecting = match is_own(self.duty) {
            true => shared.performer.with_blobs(Arc::<Together>::clone(&together)),
            false => shared.performer.clone(),
        };
        let most = if is_own(self.duty) { GROUP } else { 1 };
        loop {
            // The lock is held while waiting: whoever waits next takes the next row.
            let next = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(due) = next else { return };
            self.rest(&shared.stop);
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let began = Instant::now();
            let mut done: Vec<Done<W>> = self.perform_one(shared, &mut collecting, due).into_iter().collect();
            // Whoever else waits for work has the lock.
            while done.len() < most
                && began.elapsed() < GROUP_FOR
                && let Some(due) = self.receiver.try_lock().ok().and_then(|receiver| receiver.try_recv().ok())
            {
                done.extend(self.perform_one(shared, &mut collecting, due));
            }
            if let Err(error) = together.write() {
                tracing::warn!(
                    error = %chain(&error),
                    "blobs could not be written; the work is done again, each for itself"
                );
                done = done.into_iter().filter_map(|done| self.perform_one(shared, &mut alone, done.due)).collect();
            }
            for done in done {
                if shared.telling.send(tell(&shared.outlet, done)).is_err() {
                    return;
                }
            }
        }
    }

    /// Leaves what gives trouble alone for a while.
    fn rest(&self, stop: &AtomicBool) {
        let until = Instant::now() + rest_after(self.trouble.load(Ordering::Relaxed));
        while !stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(REST));
        }
    }

    /// Does a piece of work. `None` where it has no outcome: it is done again after a while if this host had no room for
    /// it, and sent again when its deadline passes.
    fn perform_one<P: Performer<W>>(&self, shared: &Shared<P>, performer: &mut P, due: Due<W>) -> Option<Done<W>> {
        failpoint::pass(due.request.terms().steps[0]);
        let perform = || performer.perform(due.sending(), &due.request).map(|outcome| performer.judge(outcome));
        let judged = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(perform)) {
            Ok(Ok(judged)) => judged,
            Ok(Err(error)) => {
                tracing::error!(work = %due.work, %error, "work has no outcome; it is sent again when its deadline passes");
                return None;
            }
            Err(_) => {
                tracing::error!(work = %due.work, "an effect panicked; its work is sent again when its deadline passes");
                return None;
            }
        };
        match judged {
            Judged::NoRoom { lack, said, told } => {
                if !shared.resting.rest(&shared.outlet.room, &due, lack, said) {
                    return None;
                }
                // Each is news: of two with one id, the second would begin no deadline anew. Another process may have
                // told some.
                let id = format!("work/{}/{}/no-room/{}", due.work, due.attempt, (shared.outlet.now)().0);
                close(&shared.outlet, due, id, told)
            }
            Judged::Outcome { told, trouble } => {
                match trouble && self.asks {
                    true => self.trouble.fetch_add(1, Ordering::Relaxed),
                    false => self.trouble.swap(0, Ordering::Relaxed),
                };
                shared.resting.over(&due);
                let id = format!("work/{}/{}", due.work, due.attempt);
                close(&shared.outlet, due, id, told)
            }
        }
    }
}

/// How long a lane rests after so much trouble in a row.
fn rest_after(trouble: u32) -> Duration {
    match trouble.checked_sub(PATIENCE) {
        None => Duration::ZERO,
        Some(more) => REST.saturating_mul(1 << more.min(10)).min(REST_MAX),
    }
}

/// Work that was done, and its outcome as it goes to the log.
struct Done<W> {
    due: Due<W>,
    frame: Vec<u8>,
}

/// An outcome as it goes to the log.
fn close<W: Work>(outlet: &Outlet, due: Due<W>, id: String, input: Input) -> Option<Done<W>> {
    let record = InputRecord::new(InputId::new(id), due.key.clone(), (outlet.now)(), input)
        .caused_by(EventRef { partition: outlet.partition, sequence: due.requested_by });
    match record.close() {
        Ok(frame) => Some(Done { frame: frame.encode(), due }),
        Err(error) => {
            tracing::error!(work = %due.work, error = %chain(&error), "an outcome cannot be written");
            None
        }
    }
}

/// Sends an outcome to the log.
fn tell<W: Work>(outlet: &Outlet, done: Done<W>) -> Telling {
    let Done { due, frame } = done;
    let [_, done, told] = due.request.terms().steps;
    failpoint::pass(done);
    let answer = outlet.log.append_inputs(Stream::Inputs(outlet.partition), vec![frame]);
    Telling { key: (due.work, due.attempt), told, answer }
}

/// An outcome on its way to the log. Nobody works less for waiting until it is there: outcomes of one lane share a sync.
pub(crate) struct Telling {
    key: (WorkId, u32),
    /// The step at which a crash test lets the process die once it is there.
    told: &'static str,
    answer: Answer<Result<Vec<Offset>, LogError>>,
}

impl Telling {
    /// Waits until the outcome is on the log; where it could not be appended, the next scan finds its row again.
    pub(crate) fn finish(self, taken: &Taken) {
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

#[cfg(test)]
mod tests;
