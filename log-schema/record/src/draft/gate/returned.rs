//! What jobs return beyond what a record carries: in blobs, each with a life.

use serde::{Deserialize, Serialize};

use crate::id::{BlobHash, BuildId};
use crate::time::Timestamp;

/// A blob that holds what an attempt returned; [`crate::returned`] reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReturnedBlob {
    /// Its name.
    pub blob: BlobHash,
    /// Its size in bytes.
    pub size: u64,
}

/// Where the rest is of what an attempt returned. Both `None`: the record itself has all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedKept {
    /// Its `data` and its artifacts, whole; the record has what decisions read, and the first artifacts.
    pub data: Option<ReturnedBlob>,
    /// Its `secret_data`, whole and under the seal of its buildset; the record has none of it.
    pub secret_data: Option<ReturnedBlob>,
}

impl ReturnedKept {
    /// Whether the record has all of it.
    pub fn is_empty(&self) -> bool {
        self.blobs().next().is_none()
    }

    /// The blobs there are.
    pub fn blobs(&self) -> impl Iterator<Item = ReturnedBlob> {
        self.data.into_iter().chain(self.secret_data)
    }
}

/// Input: what is to become, or became, of the blobs with what the attempts of a build returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedTold {
    /// The tenant.
    pub tenant: String,
    /// The build.
    pub build: BuildId,
    /// What.
    pub step: ReturnedStep,
}

/// A step towards the end of what a build returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReturnedStep {
    /// The site's setting keeps it no longer.
    Due {
        /// The setting: days after the build's item has left.
        keep_days: u32,
    },
    /// Its blobs were removed from the store.
    Removed,
}

/// Something became of the blobs with what the attempts of a build returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedChanged {
    /// The build.
    pub build: BuildId,
    /// What.
    pub change: ReturnedChange,
}

/// What became of the blobs with what the attempts of a build returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReturnedChange {
    /// An outcome that came too late or twice names these. Nobody reads them; they are kept as long as others.
    Late {
        /// The blobs.
        blobs: Vec<ReturnedBlob>,
    },
    /// They are given up: from here on nobody reads them, and they are removed.
    Dropped {
        /// The blobs.
        blobs: Vec<ReturnedBlob>,
        /// Since when no item has referred to them.
        unused_since: Timestamp,
        /// The setting by which they go: days after that.
        keep_days: u32,
    },
    /// They are removed from the store.
    Removed,
}
