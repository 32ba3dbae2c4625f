//! Proof that leaves the site: checkpoints are signed and published, exports are told of.
//!
//! What checkpoints and exports are is `gatelog-audit`'s; here are the site's key, the clock, and the places they go to.

pub mod notary;
pub mod publisher;
pub mod told;

use gatelog_audit::PublicKey;
use gatelog_secrets::{Rs256, SigningKey};

/// The public half of the site's key, as exports have it.
pub fn public(key: &SigningKey) -> PublicKey {
    PublicKey(key.public_der().to_vec())
}

/// Whether a signature is a key's.
pub fn check(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    Rs256::from_der(&key.0).is_ok_and(|key| key.verify(message, signature))
}
