//! Key pairs of projects: people encrypt secrets with the public half and put them into repositories.
//!
//! Zuul: RSA with 4096 bits, one pair for each project of a connection, whatever tenants it is in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use chacha20::ChaCha20Rng;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey, LineEnding};
use rsa::rand_core::SeedableRng;
use rsa::traits::PublicKeyParts;
use rsa::{RsaPrivateKey, RsaPublicKey};
use sha2::{Digest, Sha256};

use crate::cipher::{Plaintext, random};
use crate::error::KeyringError;
use crate::files::Identity;
use crate::keyring::Keyring;
use crate::pairs::Pair;

/// The size of keys that are made here, in bits.
pub(crate) const BITS: usize = 4096;
/// The smallest key that is taken over from elsewhere, in bits.
const SMALLEST: usize = 2048;
/// The longest PEM text that is looked at, in bytes.
pub(crate) const LONGEST_PEM: usize = 64 << 10;

/// Whose key pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyOwner {
    /// The connection.
    pub connection: String,
    /// The project's name on that connection, without its host.
    pub project: String,
}

impl KeyOwner {
    /// The longest name of connection and project together, in bytes.
    pub const MAX: usize = 512;

    /// A project of a connection.
    pub fn new(connection: impl Into<String>, project: impl Into<String>) -> KeyOwner {
        KeyOwner { connection: connection.into(), project: project.into() }
    }

    /// The name its key's file is found under; two owners never have the same.
    pub(crate) fn name(&self) -> Result<String, KeyringError> {
        self.name_of("project-key")
    }

    /// The name under which the file of a key of this kind is found.
    pub(crate) fn name_of(&self, kind: &str) -> Result<String, KeyringError> {
        let name = format!("{kind}/{self}");
        let fine = !self.connection.is_empty()
            && !self.connection.contains('/')
            && !self.project.is_empty()
            && name.len() <= Self::MAX
            && !name.contains(char::is_control);
        if fine { Ok(name) } else { Err(KeyringError::Owner { owner: self.to_string(), most: Self::MAX }) }
    }
}

impl fmt::Display for KeyOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.connection, self.project)
    }
}

/// A project's key pair. The private half is never printed, and wiped when it is dropped.
pub struct ProjectKey {
    pub(crate) private: RsaPrivateKey,
    pub(crate) file: Identity,
    public_pem: String,
}

impl fmt::Debug for ProjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectKey").field("bits", &self.bits()).finish_non_exhaustive()
    }
}

impl ProjectKey {
    /// The public half as PEM (SubjectPublicKeyInfo), as Zuul serves it.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// The size of the key in bits.
    pub fn bits(&self) -> usize {
        bits(&self.private)
    }

    /// What tells the key from others: the beginning of the SHA-256 of its public half (SubjectPublicKeyInfo in DER), as
    /// 16 hex digits.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.private.to_public_key())
    }
}

impl Pair for ProjectKey {
    const HEAD: &str = "gatelog project key 1";

    fn of(private: RsaPrivateKey, file: Identity) -> Option<ProjectKey> {
        let public_pem = private.to_public_key().to_public_key_pem(LineEnding::LF).ok()?;
        Some(ProjectKey { private, file, public_pem })
    }

    fn private(&self) -> &RsaPrivateKey {
        &self.private
    }

    fn file(&self) -> Identity {
        self.file
    }

    fn kept(keyring: &Keyring) -> &Mutex<BTreeMap<String, Arc<ProjectKey>>> {
        &keyring.projects
    }
}

/// See [`ProjectKey::fingerprint`]; empty for what has no such form, which no key that was read is.
pub(crate) fn fingerprint(public: &RsaPublicKey) -> String {
    let der = public.to_public_key_der().map(|der| der.as_bytes().to_vec()).unwrap_or_default();
    hex::encode(Sha256::digest(der).get(..8).unwrap_or_default())
}

pub(crate) fn bits(key: &impl PublicKeyParts) -> usize {
    key.size().saturating_mul(8)
}

/// A key from what stands in its file; `None` when that is none.
pub(crate) fn read_der(der: &Plaintext) -> Option<RsaPrivateKey> {
    RsaPrivateKey::from_pkcs8_der(der).ok()
}

/// What is written into a key's file: PKCS#8.
pub(crate) fn der(private: &RsaPrivateKey) -> Result<Plaintext, KeyringError> {
    let der = private.to_pkcs8_der().map_err(|error| KeyringError::Make(error.to_string()))?;
    Ok(Plaintext(der.as_bytes().to_vec()))
}

/// A new pair. Takes from a second up to a minute of one processor.
pub(crate) fn generate(bits: usize) -> Result<RsaPrivateKey, KeyringError> {
    let mut chance = chance()?;
    RsaPrivateKey::new(&mut chance, bits).map_err(|error| KeyringError::Make(error.to_string()))
}

/// Random numbers without end, from a seed of the system's.
pub(crate) fn chance() -> Result<ChaCha20Rng, KeyringError> {
    Ok(ChaCha20Rng::from_seed(random::<32>()?))
}

/// Reads a private key that was made elsewhere: PEM, PKCS#8 or PKCS#1, without a password.
pub(crate) fn read_pem(pem: &str) -> Result<RsaPrivateKey, KeyringError> {
    let refused = |why: &'static str| KeyringError::Import { why };
    if pem.len() > LONGEST_PEM {
        return Err(refused("it is longer than any key"));
    }
    if pem.contains("ENCRYPTED") {
        return Err(refused(
            "it is under a password: take that away first with `openssl pkey -in FILE -out NEW` (a whole export of \
             Zuul's keys is taken over with its password by `gatelog keys import-all`)",
        ));
    }
    if pem.contains("OPENSSH PRIVATE KEY") {
        return Err(refused("it is in OpenSSH's own form: turn it into PEM first with `ssh-keygen -p -m PEM -f FILE`"));
    }
    let private = RsaPrivateKey::from_pkcs8_pem(pem)
        .ok()
        .or_else(|| RsaPrivateKey::from_pkcs1_pem(pem).ok())
        .ok_or(refused("it is no RSA private key in PEM (PKCS#8 or PKCS#1)"))?;
    fit(private)
}

/// A key that was made elsewhere, if its numbers belong together and its size is one that is taken over.
pub(crate) fn fit(private: RsaPrivateKey) -> Result<RsaPrivateKey, KeyringError> {
    let refused = |why: &'static str| KeyringError::Import { why };
    if private.validate().is_err() {
        return Err(refused("its numbers do not belong together"));
    }
    match bits(&private) {
        SMALLEST..=BITS => Ok(private),
        _ => Err(refused("it has not between 2048 and 4096 bits")),
    }
}

/// The public half of somebody's key, from PEM; `None` when it is none.
pub(crate) fn read_public_pem(pem: &str) -> Option<RsaPublicKey> {
    use rsa::pkcs8::DecodePublicKey;
    if pem.len() > LONGEST_PEM {
        return None;
    }
    RsaPublicKey::from_public_key_pem(pem.trim()).ok()
}
