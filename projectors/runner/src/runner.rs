//! A fold on a thread of its own, following the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_event_log::Log;
use gatelog_record::{Partition, Stream};
use gatelog_store::{Position, SharedProjection, StoreWarning};
use gatelog_tables::DomainState;

use crate::error::RunnerError;
use crate::folder::{Folder, RunnerConfig, Stepped};
use crate::published::{Health, Published};

/// How long a wait for the log lasts before the thread looks whether it should end.
const LOOK_UP: Duration = Duration::from_millis(50);
/// When nothing came for so long, what is folded is stored.
const REST: Duration = Duration::from_millis(20);
/// After a small batch the thread waits so long for more: under load it then commits some hundred times a second, and
/// not after every event. What comes after a pause is folded at once.
const PACE: Duration = Duration::from_millis(1);
/// A batch of so many records is not small.
const MANY: usize = 256;
/// How many times as long the thread waits before it tries again to write to a full disk.
const LOOKS_BEFORE_AGAIN: u32 = 10;

/// What there is to say about a partition's fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The partition.
    pub partition: Partition,
    /// How it is.
    pub health: Health,
    /// Where it stands.
    pub position: Position,
    /// What was passed over or put right.
    pub warnings: Vec<StoreWarning>,
}

/// A partition's fold, on a thread of its own. Ends when dropped.
pub struct Runner<S: DomainState> {
    partition: Partition,
    projection: SharedProjection<S>,
    published: Published,
    warnings: Arc<Mutex<Vec<StoreWarning>>>,
    end: Arc<AtomicBool>,
    #[expect(clippy::disallowed_types, reason = "each partition is folded on a thread of its own")]
    thread: Option<std::thread::JoinHandle<()>>,
}

impl<S: DomainState> Runner<S> {
    /// Opens the partition's projection and follows the log from where it stands.
    ///
    /// # Errors
    /// As [`Folder::open`]; what stops it later is in [`Runner::status`].
    #[expect(clippy::disallowed_methods, reason = "each partition is folded on a thread of its own")]
    pub fn start(log: Arc<dyn Log>, partition: Partition, config: RunnerConfig) -> Result<Runner<S>, RunnerError> {
        let mut folder = Folder::<S>::open(log, partition, config)?;
        folder.store_later();
        let projection = folder.projection();
        let published = folder.published();
        let warnings = Arc::new(Mutex::new(folder.warnings()));
        let end = Arc::new(AtomicBool::new(false));
        let shared = (published.clone(), Arc::clone(&warnings), Arc::clone(&end));
        let thread = std::thread::Builder::new()
            .name(format!("fold {partition}"))
            .spawn(move || {
                let (published, warnings, end) = shared;
                let ran = catch_unwind(AssertUnwindSafe(|| keep_following(&mut folder, &published, &warnings, &end)));
                match ran {
                    Ok(Ok(())) => published.set_health(Health::Ended),
                    Ok(Err(error)) => {
                        tracing::error!(%partition, "{error}");
                        published.set_health(Health::Stopped(Arc::new(error)));
                    }
                    Err(_) => {
                        let message = "it panicked outside of a fold; restart gatelog".to_owned();
                        published.set_health(Health::Stopped(Arc::new(RunnerError::Thread { partition, message })));
                    }
                }
            })
            .map_err(|error| RunnerError::Thread { partition, message: error.to_string() })?;
        Ok(Runner { partition, projection, published, warnings, end, thread: Some(thread) })
    }

    /// The partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// The projection, for reading.
    pub fn projection(&self) -> SharedProjection<S> {
        self.projection.clone()
    }

    /// Where the fold stands, with waits.
    pub fn published(&self) -> Published {
        self.published.clone()
    }

    /// What there is to say.
    pub fn status(&self) -> Status {
        Status {
            partition: self.partition,
            health: self.published.health(),
            position: self.published.position(),
            warnings: self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Ends the fold after the batch it is at and closes the projection, unless others still hold it.
    pub fn stop(mut self) {
        self.end_thread();
    }

    fn end_thread(&mut self) {
        self.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its panics are caught within.
            let _ = thread.join();
        }
    }
}

impl<S: DomainState> Drop for Runner<S> {
    fn drop(&mut self) {
        self.end_thread();
    }
}

/// Follows; where the projection's disk is full or out of reach, says so and tries again.
fn keep_following<S: DomainState>(
    folder: &mut Folder<S>,
    published: &Published,
    warnings: &Mutex<Vec<StoreWarning>>,
    end: &AtomicBool,
) -> Result<(), RunnerError> {
    let mut told = None;
    loop {
        let error = match follow(folder, published, warnings, end) {
            Err(error) if folder.may_pass() => error,
            ended => return ended,
        };
        if told.as_ref() != Some(&error) {
            tracing::error!(partition = %folder.partition(), "{error}; it is tried again");
            told = Some(error.clone());
        }
        published.set_health(Health::Stopped(Arc::new(error)));
        for _ in 0..LOOKS_BEFORE_AGAIN {
            if end.load(Ordering::Acquire) {
                return Ok(());
            }
            published.wait_at_most(u64::MAX, LOOK_UP);
        }
        folder.try_again();
    }
}

fn follow<S: DomainState>(
    folder: &mut Folder<S>,
    published: &Published,
    warnings: &Mutex<Vec<StoreWarning>>,
    end: &AtomicBool,
) -> Result<(), RunnerError> {
    let stream = Stream::Events(folder.partition());
    let log = Arc::clone(folder.log());
    while !end.load(Ordering::Acquire) {
        let stepped = folder.step();
        *warnings.lock().unwrap_or_else(PoisonError::into_inner) = folder.warnings();
        let beyond = match stepped? {
            Stepped::AtEnd(beyond) => beyond,
            Stepped::Read(records) => {
                if records < MANY {
                    published.wait_at_most(u64::MAX, PACE);
                }
                continue;
            }
        };
        let mut grown = log.changed(stream, beyond);
        while !end.load(Ordering::Acquire) {
            match grown.wait_for(if folder.is_unstored() { REST } else { LOOK_UP }) {
                Ok(Some(())) => break,
                // The log is closed: nothing more will come.
                Ok(None) => return folder.store(),
                Err(still) => {
                    folder.store()?;
                    grown = still;
                }
            }
        }
    }
    folder.store()
}
