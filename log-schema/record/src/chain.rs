//! The chain: each event proves all before it.

use std::fmt;

use sha2::{Digest, Sha256};

/// One link: SHA-256 over (previous link ‖ record without its link).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ChainLink(pub [u8; 32]);

impl ChainLink {
    /// What stands before the first event of a partition.
    pub const GENESIS: ChainLink = ChainLink([0; 32]);

    /// The link of a record that follows this one. `without_link` is the encoded record up to where
    /// its own link would stand.
    pub fn then(&self, without_link: &[u8]) -> ChainLink {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(without_link);
        ChainLink(hash.finalize().into())
    }
}

impl fmt::Display for ChainLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ChainLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainLink({})", hex::encode(self.0))
    }
}
