//! `sample` version 1. Frozen.

use serde::{Deserialize, Serialize};

/// A name and a count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// A name.
    pub name: String,
    /// A count.
    pub count: u32,
}
