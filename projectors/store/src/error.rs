//! What can go wrong with what is stored, and what to do about it.

use std::path::{Path, PathBuf};

use gatelog_record::{ChainLink, Partition};
use gatelog_tables::{FoldRefused, TableError};

use crate::position::SchemaVersion;

/// Why a projection, rung or checkpoint could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// What is stored is not what was written. The log is not touched by this.
    #[error("the projection in {} is damaged: {message}; delete that directory: it is rebuilt from the log", path.display())]
    StoreDamaged {
        /// The directory to delete.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The tables have another shape than this gatelog's.
    #[error("the projection in {} has state schema {found}, this gatelog needs {wanted}: a new one is built beside it from the log", path.display())]
    SchemaChanged {
        /// Its directory.
        path: PathBuf,
        /// What is stored.
        found: SchemaVersion,
        /// What is needed.
        wanted: SchemaVersion,
    },
    /// The projection belongs to another partition.
    #[error("the projection in {} is of {found}, not of {wanted}: put it back where it was, or delete it", path.display())]
    OtherPartition {
        /// Its directory.
        path: PathBuf,
        /// What is stored, as text.
        found: String,
        /// What is needed.
        wanted: Partition,
    },
    /// Another process has it open.
    #[error("the projection in {} is in use by another gatelog process: stop it, or use another --dir", path.display())]
    InUse {
        /// Its directory.
        path: PathBuf,
    },
    /// The event is not the one that follows.
    #[error("{partition}: event {found} cannot be folded after event {applied}")]
    NotNext {
        /// The partition.
        partition: Partition,
        /// The newest event folded.
        applied: u64,
        /// The event given.
        found: u64,
    },
    /// The event does not fit the state.
    #[error("{partition}: event {sequence} ({kind}) does not fit the state: {refused}; the projection stops at event {}: this is a fault in gatelog, see `gatelog log cat --from {sequence}`", sequence.saturating_sub(1))]
    FoldRefused {
        /// The partition.
        partition: Partition,
        /// The event's sequence.
        sequence: u64,
        /// Its kind.
        kind: &'static str,
        /// Why it does not fit.
        refused: FoldRefused,
    },
    /// Folding the event panicked.
    #[error("{partition}: folding event {sequence} ({kind}) panicked: {message}; the projection stops at event {}: this is a fault in gatelog, see `gatelog log cat --from {sequence}`", sequence.saturating_sub(1))]
    FoldPanicked {
        /// The partition.
        partition: Partition,
        /// The event's sequence.
        sequence: u64,
        /// Its kind.
        kind: &'static str,
        /// What the panic said.
        message: String,
    },
    /// Rows were handed over to be written and are not known to be stored.
    #[error("{partition}: rows are being written beside the fold: settle them before others are written")]
    HandedOver {
        /// The partition.
        partition: Partition,
    },
    /// A row or position cannot be encoded.
    #[error("{what} cannot be written: {message}")]
    Encode {
        /// What.
        what: &'static str,
        /// Why not.
        message: String,
    },
    /// A rung's file is not what was written.
    #[error("the rung {} is damaged: {message}; delete it: the state is folded from an older one", path.display())]
    RungDamaged {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A rung has another shape than this gatelog's, or belongs elsewhere.
    #[error("the rung {} cannot be used here: {message}", path.display())]
    RungOther {
        /// Its file.
        path: PathBuf,
        /// What differs.
        message: String,
    },
    /// The system below failed.
    #[error("{what} {}: {message}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        message: String,
    },
}

impl StoreError {
    /// An error of the file system.
    pub(crate) fn system(what: &'static str, path: &Path, error: &std::io::Error) -> StoreError {
        StoreError::System { what, path: path.to_owned(), message: error.to_string() }
    }

    /// An error of a table of the projection in `path`.
    pub(crate) fn table(path: &Path, error: &TableError) -> StoreError {
        StoreError::StoreDamaged { path: path.to_owned(), message: error.to_string() }
    }

    /// Whether deleting and folding again is the cure.
    pub fn is_cured_by_rebuild(&self) -> bool {
        matches!(self, StoreError::StoreDamaged { .. } | StoreError::SchemaChanged { .. })
    }
}

/// Something that was passed over, and why. Nothing is lost by it but time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreWarning {
    /// A rung was not used.
    #[error("passed over: {0}")]
    RungPassedOver(StoreError),
    /// A rung is of another history than the log.
    #[error("passed over: the rung {} is at event {sequence} with link {found}, the log has {expected} there; delete it", path.display())]
    RungOfAnotherHistory {
        /// Its file.
        path: PathBuf,
        /// Its sequence.
        sequence: u64,
        /// Its link.
        found: ChainLink,
        /// The log's link at that sequence, or why there is none.
        expected: String,
    },
    /// A checkpoint was not used.
    #[error("passed over: the checkpoint {}: {message}", path.display())]
    CheckpointPassedOver {
        /// Its directory.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A projection says nothing of what it knows.
    #[error("passed over: {0}")]
    ProjectionPassedOver(StoreError),
    /// A damaged projection was put back from a checkpoint.
    #[error("{damage}; put back from the checkpoint at event {sequence}")]
    RestoredFromCheckpoint {
        /// What was wrong.
        damage: StoreError,
        /// Where the checkpoint stood.
        sequence: u64,
    },
    /// A projection was deleted and is built from the log again.
    #[error("{damage}; it was deleted and is rebuilt from the log")]
    Rebuilt {
        /// What was wrong.
        damage: StoreError,
    },
}
