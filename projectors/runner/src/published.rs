//! Where a fold stands, for everybody who waits for it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gatelog_store::Position;

use crate::error::RunnerError;

/// How a fold is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has not reached the log's end since it began.
    CatchingUp,
    /// It follows the log.
    Following,
    /// It stopped at the published position. It goes on by itself only where the disk below was full
    /// or out of reach, and is no more.
    Stopped(Arc<RunnerError>),
    /// It was told to end.
    Ended,
}

/// Why a wait did not get what it waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The time is over.
    #[error("event {wanted} is not folded yet, the fold is at event {at}: ask again later")]
    NotYet {
        /// What was waited for.
        wanted: u64,
        /// Where the fold is.
        at: u64,
    },
    /// The fold stopped before it.
    #[error("event {wanted} will not be folded, the fold stopped at event {at}: {error}")]
    Stopped {
        /// What was waited for.
        wanted: u64,
        /// Where the fold is.
        at: u64,
        /// Why it stopped.
        error: Arc<RunnerError>,
    },
    /// The fold ended before it.
    #[error("event {wanted} is not folded, the fold ended at event {at}: gatelog is going down")]
    Ended {
        /// What was waited for.
        wanted: u64,
        /// Where the fold is.
        at: u64,
    },
}

struct State {
    position: Position,
    health: Health,
    wakers: BTreeMap<u64, Option<Waker>>,
    subscriptions: u64,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Where a fold stands. Clones are the same.
#[derive(Clone)]
pub struct Published {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Published").field(&self.position().sequence).field(&self.health()).finish()
    }
}

impl State {
    /// Whether a wait for this sequence is over, and how.
    fn answer(&self, wanted: u64) -> Option<Result<Position, WaitError>> {
        let at = self.position.sequence;
        if at >= wanted {
            return Some(Ok(self.position));
        }
        match &self.health {
            Health::Stopped(error) => Some(Err(WaitError::Stopped { wanted, at, error: Arc::clone(error) })),
            Health::Ended => Some(Err(WaitError::Ended { wanted, at })),
            Health::CatchingUp | Health::Following => None,
        }
    }
}

impl Published {
    pub(crate) fn new(position: Position) -> Published {
        let state = State { position, health: Health::CatchingUp, wakers: BTreeMap::new(), subscriptions: 0 };
        Published { shared: Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, position: Position) {
        self.change(|state| state.position = position);
    }

    pub(crate) fn set_health(&self, health: Health) {
        // It says so with every turn; nobody waits for that.
        if matches!(health, Health::Following) && self.health() == Health::Following {
            return;
        }
        self.change(|state| state.health = health);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let woken: Vec<Waker> = {
            let mut state = self.lock();
            change(&mut state);
            state.wakers.values_mut().filter_map(Option::take).collect()
        };
        self.shared.changed.notify_all();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Where the fold stands: what readers of the projection see is at least this.
    pub fn position(&self) -> Position {
        self.lock().position
    }

    /// How the fold is.
    pub fn health(&self) -> Health {
        self.lock().health.clone()
    }

    /// Blocks until an event is folded, but no longer than `at_most`.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_until(&self, sequence: u64, at_most: Duration) -> Result<Position, WaitError> {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.lock(), at_most, |state| state.answer(sequence).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.answer(sequence).unwrap_or(Err(WaitError::NotYet { wanted: sequence, at: state.position.sequence }))
    }

    /// Blocks until an event is folded, but no longer than `at_most`, and gives the position then: for
    /// loops that look again whatever came. Also where the fold has stopped it waits the whole time,
    /// so that such a loop does not spin.
    pub fn wait_at_most(&self, sequence: u64, at_most: Duration) -> Position {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.lock(), at_most, |state| state.position.sequence < sequence)
            .unwrap_or_else(PoisonError::into_inner);
        state.position
    }

    /// A subscription, for futures. It has seen the present position.
    pub fn subscribe(&self) -> Subscription {
        let mut state = self.lock();
        state.subscriptions += 1;
        let id = state.subscriptions;
        state.wakers.insert(id, None);
        let seen = state.position.sequence;
        drop(state);
        Subscription { published: self.clone(), id, seen }
    }
}

/// One who follows a fold without blocking. Needs no particular executor.
#[derive(Debug)]
pub struct Subscription {
    published: Published,
    id: u64,
    seen: u64,
}

impl Subscription {
    /// Polls for an event to be folded.
    pub fn poll_reached(&mut self, context: &mut Context<'_>, sequence: u64) -> Poll<Result<Position, WaitError>> {
        let mut state = self.published.lock();
        match state.answer(sequence) {
            Some(answer) => {
                if let Ok(position) = &answer {
                    self.seen = self.seen.max(position.sequence);
                }
                Poll::Ready(answer)
            }
            None => {
                state.wakers.insert(self.id, Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// Comes when an event is folded; at once when it is already.
    ///
    /// # Errors
    /// `Stopped`, `Ended`.
    pub async fn reached(&mut self, sequence: u64) -> Result<Position, WaitError> {
        poll_fn(|context| self.poll_reached(context, sequence)).await
    }

    /// Comes when more is folded than this subscription has seen.
    ///
    /// # Errors
    /// `Stopped`, `Ended`.
    pub async fn changed(&mut self) -> Result<Position, WaitError> {
        let next = self.seen.saturating_add(1);
        self.reached(next).await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.published.lock().wakers.remove(&self.id);
    }
}
