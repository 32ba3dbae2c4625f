//! What can go wrong, and what it means for whoever asked.

use gatelog_cloud_contract::{Refusal, Trouble};
use gatelog_record::NodeId;

/// Why this cloud did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// There is no such label.
    #[error("cloud {cloud} has no label {label:?}: use one of {known}, or add it to the cloud's settings")]
    UnknownLabel {
        /// The cloud.
        cloud: String,
        /// What was asked for.
        label: String,
        /// What there is.
        known: String,
    },
    /// The cloud is full; it works once another node is deleted.
    #[error("cloud {cloud} is full: {used} of {limit} {what} are taken; wait for a node to be deleted")]
    Full {
        /// The cloud.
        cloud: String,
        /// What is short.
        what: String,
        /// How many are taken.
        used: u32,
        /// How many there are.
        limit: u32,
    },
    /// The node exists and is something else.
    #[error("node {node} exists already with label {existing:?}, not {wanted:?}: delete it first")]
    Mismatch {
        /// Which.
        node: NodeId,
        /// The label it has.
        existing: String,
        /// The label asked for.
        wanted: String,
    },
    /// Settings that cannot work.
    #[error("settings of cloud {cloud} cannot work: {reason}")]
    Settings {
        /// The cloud.
        cloud: String,
        /// What is wrong, and the cure.
        reason: String,
    },
    /// A file or directory.
    #[error("cannot {action} {path}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: std::path::PathBuf,
        /// Why it did not work.
        source: std::io::Error,
    },
}

impl From<LocalError> for Trouble {
    fn from(error: LocalError) -> Trouble {
        let refusal = match &error {
            LocalError::UnknownLabel { .. } | LocalError::Mismatch { .. } | LocalError::Settings { .. } => {
                Refusal::Permanent
            }
            LocalError::Full { .. } => Refusal::Quota,
            LocalError::Io { .. } => Refusal::Temporary,
        };
        Trouble::of(refusal, &error)
    }
}
