//! A result that is on its way: a future for those who have an executor, a wait for those who have none.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

struct Slot<T> {
    value: Option<T>,
    closed: bool,
    waker: Option<Waker>,
}

struct Shared<T> {
    slot: Mutex<Slot<T>>,
    changed: Condvar,
}

/// A result that is on its way. Comes to `None` when whoever owed it is gone.
pub struct Pending<T> {
    shared: Arc<Shared<T>>,
}

/// The other end: whoever owes the result.
pub struct Completer<T> {
    shared: Arc<Shared<T>>,
}

/// A pair of ends.
pub fn pending<T>() -> (Completer<T>, Pending<T>) {
    let shared = Arc::new(Shared {
        slot: Mutex::new(Slot { value: None, closed: false, waker: None }),
        changed: Condvar::new(),
    });
    (Completer { shared: Arc::clone(&shared) }, Pending { shared })
}

impl<T> Pending<T> {
    /// One that is there already.
    pub fn ready(value: T) -> Pending<T> {
        let (completer, pending) = pending();
        completer.complete(value);
        pending
    }

    /// One that will never come.
    pub fn lost() -> Pending<T> {
        pending().1
    }

    /// Blocks until it is there; `None` when it will never be.
    pub fn wait(self) -> Option<T> {
        let mut slot = self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(value) = slot.value.take() {
                return Some(value);
            }
            if slot.closed {
                return None;
            }
            slot = self.shared.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks at most so long; gives itself back when the time is over.
    pub fn wait_for(self, at_most: Duration) -> Result<Option<T>, Pending<T>> {
        let slot = self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut slot, _) = self
            .shared
            .changed
            .wait_timeout_while(slot, at_most, |slot| slot.value.is_none() && !slot.closed)
            .unwrap_or_else(PoisonError::into_inner);
        match slot.value.take() {
            Some(value) => Ok(Some(value)),
            None if slot.closed => Ok(None),
            None => {
                drop(slot);
                Err(self)
            }
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.value.take() {
            Some(value) => Poll::Ready(Some(value)),
            None if slot.closed => Poll::Ready(None),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Completer<T> {
    /// Whether anybody still waits for it: lets a list of waiters be cleared of those who went away.
    pub fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Delivers the result.
    pub fn complete(self, value: T) {
        self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner).value = Some(value);
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.closed = true;
            slot.waker.take()
        };
        self.shared.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waiting is only shown with somebody else who delivers")]
    fn a_result_arrives_and_a_lost_one_says_so() {
        let (completer, pending_value) = pending();
        let waiting = std::thread::spawn(move || pending_value.wait());
        completer.complete(7);
        assert_eq!(waiting.join().unwrap(), Some(7));
        let (completer, lost) = pending::<u8>();
        let lost = lost.wait_for(Duration::from_millis(1)).err().unwrap();
        drop(completer);
        assert_eq!(lost.wait(), None);
    }
}
