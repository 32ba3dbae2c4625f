//! Why a writer stops, or starts again.

use gatelog_event_log::{HistoryError, LogError};
use gatelog_record::{ChainLink, Partition};
use gatelog_tables::FoldRefused;

use crate::shell::ShellError;

/// Why a writer could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// The log refused.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The state to start from could not be had.
    #[error("{partition}: the state to start from cannot be had: {message}")]
    Initial {
        /// The partition.
        partition: Partition,
        /// What is wrong.
        message: String,
    },
    /// The state to start from knows more than the log.
    #[error(
        "{partition}: the state to start from stands at event {known}, the log ends at event {last}: an older log was put in place; restore the newer one or adopt this one with `gatelog log adopt`"
    )]
    Behind {
        /// The partition.
        partition: Partition,
        /// What the state stands at.
        known: u64,
        /// Where the log ends.
        last: u64,
    },
    /// The log ends before the event it said was its newest.
    #[error(
        "{partition}: the log said its newest event was {claimed}, reading it ends at {found}: see `gatelog log verify`"
    )]
    Short {
        /// The partition.
        partition: Partition,
        /// What the claim said.
        claimed: u64,
        /// Where reading ended.
        found: u64,
    },
    /// The newest event's link is not the one the claim named.
    #[error("{partition}: event {sequence} has link {found} where the log said {claimed}: see `gatelog log verify`")]
    Link {
        /// The partition.
        partition: Partition,
        /// The event.
        sequence: u64,
        /// What was read.
        found: ChainLink,
        /// What the claim said.
        claimed: ChainLink,
    },
    /// An event of the history does not fit the state.
    #[error(
        "{partition}: event {sequence} ({event}) does not fit the state: {refused}; this gatelog cannot go on from here: use the release that wrote it"
    )]
    Fold {
        /// The partition.
        partition: Partition,
        /// The event.
        sequence: u64,
        /// Its kind.
        event: &'static str,
        /// Why not.
        refused: FoldRefused,
    },
    /// The shell cannot go on.
    #[error("{partition}: {why}")]
    Shell {
        /// The partition.
        partition: Partition,
        /// Why not.
        why: ShellError,
    },
    /// An append was neither acknowledged nor refused.
    #[error("{partition}: the log gave no answer to an append that ends with event {sequence}")]
    NoAnswer {
        /// The partition.
        partition: Partition,
        /// The append's last event.
        sequence: u64,
    },
    /// The log was closed.
    #[error("{partition}: the log was closed")]
    Closed {
        /// The partition.
        partition: Partition,
    },
    /// The writer itself panicked: a fault in gatelog.
    #[error("{partition}: the writer panicked at {place}: {message}")]
    Panicked {
        /// The partition.
        partition: Partition,
        /// The source line.
        place: String,
        /// What it said.
        message: String,
    },
}

impl WriterError {
    /// Whether another writer has taken over.
    pub fn fenced(&self) -> bool {
        matches!(self, WriterError::Log(LogError::Fenced { .. }))
    }

    /// Whether it is to be tried again for as long as it takes: something below is out of reach.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            WriterError::Shell { why: ShellError::BlobStore { .. }, .. } | WriterError::Log(LogError::System { .. })
        )
    }

    /// Whether starting again cannot help.
    pub fn is_final(&self) -> bool {
        match self {
            WriterError::Log(error) => match error {
                LogError::Fenced { .. }
                | LogError::Damaged { .. }
                | LogError::Behind { .. }
                | LogError::InUse { .. }
                | LogError::ReadOnly
                | LogError::Stopped { .. } => true,
                LogError::NotNext { .. }
                | LogError::TooLarge { .. }
                | LogError::Busy { .. }
                | LogError::System { .. } => false,
            },
            WriterError::History(_)
            | WriterError::Behind { .. }
            | WriterError::Short { .. }
            | WriterError::Link { .. }
            | WriterError::Fold { .. }
            | WriterError::Shell { why: ShellError::Level { .. }, .. }
            | WriterError::Closed { .. } => true,
            WriterError::Initial { .. }
            | WriterError::Shell { .. }
            | WriterError::NoAnswer { .. }
            | WriterError::Panicked { .. } => false,
        }
    }
}
