//! A flag threads sleep on: raised by whoever has news, taken by the one who waits.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// A flag to sleep on. Raising it before anybody waits is not lost.
#[derive(Debug, Default)]
pub struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// One that is not raised.
    pub fn new() -> Arc<Signal> {
        Arc::new(Signal::default())
    }

    /// Raises it.
    pub fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Sleeps until it is raised, or at most so long, and takes it.
    pub fn wait(&self, at_most: Option<Duration>) {
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        match at_most {
            Some(at_most) => {
                raised = self
                    .changed
                    .wait_timeout_while(raised, at_most, |raised| !*raised)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            None => {
                raised = self.changed.wait_while(raised, |raised| !*raised).unwrap_or_else(PoisonError::into_inner);
            }
        }
        *raised = false;
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
