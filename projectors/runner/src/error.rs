//! Why a fold stopped.

use gatelog_event_log::{HistoryError, LogError};
use gatelog_record::{ChainLink, Partition, SiteId};
use gatelog_store::StoreError;

/// Why a partition's fold could not begin or go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunnerError {
    /// What is stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log; `Behind` when it is shorter than what was folded from it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What stands on the log is no history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The log is another one than was folded.
    #[error(
        "{partition}: {by} was folded from another history: at event {sequence} it has link {known}, the log has {found}; if the log is the right one, delete the projections and rungs: they are rebuilt from it"
    )]
    Diverged {
        /// The partition.
        partition: Partition,
        /// Who knows.
        by: String,
        /// At which event.
        sequence: u64,
        /// The link known.
        known: ChainLink,
        /// What the log has there.
        found: String,
    },
    /// The log is of another site.
    #[error(
        "{partition}: {by} belongs to site {known}, the log to site {log}: put the right one in place, or delete the projections and rungs"
    )]
    OtherSite {
        /// The partition.
        partition: Partition,
        /// Who knows.
        by: String,
        /// The site known.
        known: SiteId,
        /// The log's.
        log: SiteId,
    },
    /// The thread could not be started.
    #[error("{partition}: the thread that folds could not be started: {message}")]
    Thread {
        /// The partition.
        partition: Partition,
        /// What the system said.
        message: String,
    },
}
