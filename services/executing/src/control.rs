//! A handle on a build: stopping it from outside, and hearing early that it will fail.

use std::sync::Arc;

use tokio::sync::watch;

use crate::outcome::Returned;

/// Why a build was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// Its result is not wanted any more (evicted, dequeued, superseded). Cleanup playbooks run.
    Cancelled,
    /// The executor is going down. Nothing more is run.
    Shutdown,
}

/// Whether a build waits for other jobs. Zuul: `zuul.pause`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Pause {
    /// It has not yet.
    #[default]
    None,
    /// It does; what it returned so far is known.
    Waits(Box<Returned>),
    /// It did, or need not.
    Over,
}

/// A handle on one build. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct BuildControl {
    abort: Arc<watch::Sender<Option<AbortReason>>>,
    failing: Arc<watch::Sender<Option<String>>>,
    pause: Arc<watch::Sender<Pause>>,
}

impl Default for BuildControl {
    fn default() -> Self {
        Self::new()
    }
}

impl BuildControl {
    /// A handle that nobody has used yet.
    pub fn new() -> BuildControl {
        BuildControl {
            abort: Arc::new(watch::channel(None).0),
            failing: Arc::new(watch::channel(None).0),
            pause: Arc::new(watch::channel(Pause::None).0),
        }
    }

    /// Stops the build, now or as soon as it starts. A second call changes nothing, except that a
    /// shutdown overrides a cancellation.
    pub fn abort(&self, reason: AbortReason) {
        self.abort.send_if_modified(|current| {
            let change = current.is_none() || (*current != Some(reason) && reason == AbortReason::Shutdown);
            if change {
                *current = Some(reason);
            }
            change
        });
    }

    /// Whether and why the build was stopped.
    pub fn aborted(&self) -> Option<AbortReason> {
        *self.abort.borrow()
    }

    /// Whether the build was stopped.
    pub fn is_aborted(&self) -> bool {
        self.aborted().is_some()
    }

    /// From here on the build will fail, and nothing undoes that. Only the first reason is kept.
    pub(crate) fn note_failing(&self, why: String) {
        self.failing.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(why);
            }
            first
        });
    }

    /// Why the build will fail, although it still runs. Zuul: early failure.
    pub fn failing(&self) -> Option<String> {
        self.failing.borrow().clone()
    }

    /// Completes, with the reason, when it is certain that the build will fail although it still runs.
    pub async fn wait_failing(&self) -> String {
        let mut receiver = self.failing.subscribe();
        loop {
            let known = receiver.borrow_and_update().clone();
            if let Some(why) = known {
                return why;
            }
            // The sender lives as long as `self`, so this ends only with a change.
            if receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The build has done its work so far and waits for the jobs that need it, until [`resume`](Self::resume) was
    /// called or it is stopped.
    pub(crate) async fn pause(&self, returned: Returned) {
        let mut receiver = self.pause.subscribe();
        self.pause.send_if_modified(|current| {
            let first = *current == Pause::None;
            if first {
                *current = Pause::Waits(Box::new(returned));
            }
            first
        });
        tokio::select! {
            _ = receiver.wait_for(|pause| *pause == Pause::Over) => {}
            _ = self.wait() => {}
        }
    }

    /// Completes, with what the build returned so far, when it waits for the jobs that need it.
    pub async fn wait_paused(&self) -> Returned {
        let mut receiver = self.pause.subscribe();
        loop {
            let known = receiver.borrow_and_update().clone();
            if let Pause::Waits(returned) = known {
                return *returned;
            }
            // The sender lives as long as `self`, so this ends only with a change.
            if receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Completes once the build need not wait for the jobs that need it.
    pub async fn wait_resumed(&self) {
        let mut receiver = self.pause.subscribe();
        // The sender lives as long as `self`.
        let _ = receiver.wait_for(|pause| *pause == Pause::Over).await;
    }

    /// A build that waits for the jobs that need it goes on. One that does not, does not from here on.
    pub fn resume(&self) {
        self.pause.send_if_modified(|current| {
            let changes = *current != Pause::Over;
            *current = Pause::Over;
            changes
        });
    }

    /// Completes when the build is stopped.
    pub async fn wait(&self) -> AbortReason {
        self.wait_for(|_| true).await
    }

    /// Completes when the executor goes down.
    pub(crate) async fn wait_shutdown(&self) -> AbortReason {
        self.wait_for(|reason| reason == AbortReason::Shutdown).await
    }

    async fn wait_for(&self, wanted: impl Fn(AbortReason) -> bool) -> AbortReason {
        let mut receiver = self.abort.subscribe();
        loop {
            if let Some(reason) = *receiver.borrow_and_update()
                && wanted(reason)
            {
                return reason;
            }
            // The sender lives as long as `self`, so this ends only with a change.
            if receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
