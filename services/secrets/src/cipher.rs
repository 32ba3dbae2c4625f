//! XChaCha20-Poly1305, and bytes that are wiped when they are dropped.

use std::fmt;
use std::ops::Deref;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::error::KeyringError;

/// Nonce length in bytes.
pub(crate) const NONCE: usize = 24;

/// Overwrites bytes in a way the optimiser may not leave out.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(bytes);
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], KeyringError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| KeyringError::Random(error.to_string()))?;
    Ok(bytes)
}

/// A key of 32 bytes. Never printed, wiped when dropped.
#[derive(Clone)]
pub(crate) struct Key(pub(crate) [u8; 32]);

impl Drop for Key {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    pub(crate) fn random() -> Result<Key, KeyringError> {
        Ok(Key(random()?))
    }

    /// Ciphertext with its tag; `None` when the cipher refuses (more than 256 GB).
    pub(crate) fn seal(&self, nonce: &[u8; NONCE], plaintext: &[u8], aad: &[u8]) -> Option<Vec<u8>> {
        XChaCha20Poly1305::new(&self.0.into()).encrypt(&XNonce::from(*nonce), Payload { msg: plaintext, aad }).ok()
    }

    /// The plaintext; `None` when key, nonce, ciphertext or `aad` are not those it was sealed with.
    pub(crate) fn open(&self, nonce: &[u8], ciphertext: &[u8], aad: &[u8]) -> Option<Plaintext> {
        let nonce: [u8; NONCE] = nonce.try_into().ok()?;
        let opened =
            XChaCha20Poly1305::new(&self.0.into()).decrypt(&XNonce::from(nonce), Payload { msg: ciphertext, aad });
        opened.ok().map(Plaintext)
    }
}

/// What was under seal. Never printed by `Debug`, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Plaintext(pub(crate) Vec<u8>);

impl Plaintext {
    /// The text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Deref for Plaintext {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Plaintext {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plaintext({} bytes)", self.0.len())
    }
}
