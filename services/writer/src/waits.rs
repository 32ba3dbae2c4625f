//! Those who wait for the decision on an input.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use gatelog_event_log::{Completer, Offset, Pending, pending};
use gatelog_record::InputId;

/// How many decisions are remembered for those who ask late.
const REMEMBERED: usize = 10_000;
/// How many may wait at once.
const MAX_WAITING: usize = 10_000;

/// How an input was dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was decided: the events say what.
    Decided,
    /// It was taken and led to nothing.
    NothingToDo {
        /// A code.
        reason: String,
    },
    /// It had been taken before.
    Duplicate {
        /// The first event of that taking, if it is still known.
        of: Option<u64>,
    },
    /// It could not be decided.
    Refused {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
}

/// The acknowledged decision on an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The input's offset.
    pub input_offset: u64,
    /// The input's id.
    pub input_id: InputId,
    /// The sequence of its first event.
    pub first: u64,
    /// The sequence of its last event.
    pub last: u64,
    /// How it was dealt with.
    pub outcome: Outcome,
}

/// Too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_WAITING} requests wait for a decision already: try again")]
pub struct TooManyWait;

#[derive(Default)]
struct Inner {
    waiting: usize,
    by_offset: BTreeMap<u64, Vec<Completer<Decided>>>,
    by_id: BTreeMap<InputId, Vec<Completer<Decided>>>,
    order: VecDeque<u64>,
    recent: BTreeMap<u64, Decided>,
    recent_ids: BTreeMap<InputId, u64>,
}

/// Completes those who wait for an input once its decision is acknowledged. Decisions of the recent
/// past are remembered, so that asking right after appending is early enough.
#[derive(Default)]
pub struct WaitRegistry {
    inner: Mutex<Inner>,
}

impl WaitRegistry {
    /// The decision on the input with this id, once there is one. Ask before appending, and no
    /// decision is missed.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub fn for_id(&self, id: &InputId) -> Result<Pending<Decided>, TooManyWait> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decided) = inner.recent_ids.get(id).and_then(|offset| inner.recent.get(offset)) {
            return Ok(Pending::ready(decided.clone()));
        }
        inner.admit()?;
        let (completer, pending) = pending();
        inner.by_id.entry(id.clone()).or_default().push(completer);
        Ok(pending)
    }

    /// The decision on the input at this offset, once there is one.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub fn for_offset(&self, offset: Offset) -> Result<Pending<Decided>, TooManyWait> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decided) = inner.recent.get(&offset.0) {
            return Ok(Pending::ready(decided.clone()));
        }
        inner.admit()?;
        let (completer, pending) = pending();
        inner.by_offset.entry(offset.0).or_default().push(completer);
        Ok(pending)
    }

    /// A decision was acknowledged.
    pub(crate) fn settle(&self, decided: Decided) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = inner.by_offset.remove(&decided.input_offset).unwrap_or_default();
        due.extend(inner.by_id.remove(&decided.input_id).unwrap_or_default());
        inner.waiting = inner.waiting.saturating_sub(due.len());
        if !inner.recent.contains_key(&decided.input_offset) {
            inner.order.push_back(decided.input_offset);
        }
        inner.recent_ids.insert(decided.input_id.clone(), decided.input_offset);
        inner.recent.insert(decided.input_offset, decided.clone());
        while inner.order.len() > REMEMBERED {
            let Some(oldest) = inner.order.pop_front() else { break };
            if let Some(old) = inner.recent.remove(&oldest)
                && inner.recent_ids.get(&old.input_id) == Some(&oldest)
            {
                inner.recent_ids.remove(&old.input_id);
            }
        }
        drop(inner);
        due.into_iter().for_each(|completer| completer.complete(decided.clone()));
    }

    /// The writer stopped for good: nobody who waits will get an answer.
    pub(crate) fn abandon(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.waiting = 0;
        let abandoned = (std::mem::take(&mut inner.by_offset), std::mem::take(&mut inner.by_id));
        drop(inner);
        drop(abandoned);
    }
}

impl Inner {
    fn admit(&mut self) -> Result<(), TooManyWait> {
        if self.waiting >= MAX_WAITING {
            return Err(TooManyWait);
        }
        self.waiting += 1;
        Ok(())
    }
}
