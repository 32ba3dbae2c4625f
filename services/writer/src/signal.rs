//! A flag threads sleep on: raised by whoever has news, taken by the one who waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

#[derive(Debug, Default)]
struct State {
    raised: bool,
    /// How many sleep on it.
    sleepers: usize,
}

/// A flag to sleep on. Raising it before anybody waits is not lost.
#[derive(Debug, Default)]
pub struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

impl Signal {
    /// One that is not raised.
    pub fn new() -> Arc<Signal> {
        Arc::new(Signal::default())
    }

    /// Raises it.
    pub fn raise(&self) {
        let mut state = self.lock();
        state.raised = true;
        // To wake nobody costs a call of the system, too.
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// Sleeps until it is raised, or at most so long, and takes it.
    pub fn wait(&self, at_most: Option<Duration>) {
        let mut state = self.lock();
        if !state.raised {
            state.sleepers += 1;
            state = match at_most {
                Some(at_most) => {
                    let woken = self.changed.wait_timeout_while(state, at_most, |state| !state.raised);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.changed.wait_while(state, |state| !state.raised);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
            state.sleepers -= 1;
        }
        state.raised = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A waker that raises it: so one thread can sleep on several results at once.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}
