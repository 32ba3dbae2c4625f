//! Work that failed because this host has no room: it has no outcome, and is done again after a while, however often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gatelog_partition_state::work::Work;
use gatelog_record::WorkId;
use gatelog_room::{Lack, Pause, Room, Waiting};

use crate::dispatch::{Due, Taken};

/// How often work that waits for room tells its domain so: within the shortest deadline, so that no sending is lost by it.
const SIGN: Duration = Duration::from_secs(20);

/// What rests, by work and sending.
#[derive(Clone, Default)]
pub(crate) struct Resting(Arc<Mutex<BTreeMap<(WorkId, u32), Rest>>>);

struct Rest {
    /// When it is taken up again; `None`: it is under way.
    until: Option<Instant>,
    pause: Pause,
    told: Waiting,
    /// When it is next told that it waits.
    sign: Instant,
}

impl Resting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(WorkId, u32), Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays a piece of work aside for a while; says whether it is time to tell that it waits.
    pub(crate) fn rest<W: Work>(&self, room: &Arc<Room>, due: &Due<W>, lack: Lack, said: String) -> bool {
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
    pub(crate) fn over<W>(&self, due: &Due<W>) {
        self.lock().remove(&(due.work, due.attempt));
    }

    /// Lets the scan find what has rested for long enough.
    pub(crate) fn wake(&self, taken: &Taken) {
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
    pub(crate) fn keep_only(&self, there: &BTreeSet<(WorkId, u32)>) {
        self.lock().retain(|key, _| there.contains(key));
    }
}
