//! What may have to disappear.
//!
//! Names and addresses of persons, commit and review texts, `secret_data`, node credentials and raw
//! intake bodies enter the log only under seal. Sealing happens at the edge, before append; keys are
//! kept outside the log (per person, project, buildset, or connection and month) and only keys are
//! ever deleted: the chain of records stays whole.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ciphertext and the name of the key that opens it. What it says is not known here.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sealed {
    /// Which key: `<scope>/<subject>`, such as `person/3f…` or `buildset/77…`. Opaque, names nobody.
    pub key_id: String,
    /// The nonce, 24 bytes (XChaCha20-Poly1305).
    pub nonce: Vec<u8>,
    /// Ciphertext with its tag.
    pub ciphertext: Vec<u8>,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({}, {} bytes)", self.key_id, self.ciphertext.len())
    }
}
