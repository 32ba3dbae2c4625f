//! `sample` version 2: the count became wider, and a note was added. Frozen.

use serde::{Deserialize, Serialize};

/// A name, a count and a note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// A name.
    pub name: String,
    /// A count.
    pub count: u64,
    /// A note; version 1 had none.
    pub note: Option<String>,
}

impl From<super::v1::Sample> for Sample {
    fn from(old: super::v1::Sample) -> Sample {
        Sample { name: old.name, count: u64::from(old.count), note: None }
    }
}
