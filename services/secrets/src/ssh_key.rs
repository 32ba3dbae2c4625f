//! SSH key pairs of projects and tenants: a build's agent holds them, people let their public halves in.
//!
//! Zuul: RSA with 2048 bits; one pair for each project of a connection, whatever tenants it is in, and one for each
//! tenant.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rsa::RsaPrivateKey;
use rsa::traits::{PrivateKeyParts, PublicKeyParts};

use crate::cipher::Plaintext;
use crate::error::KeyringError;
use crate::files::Identity;
use crate::keyring::Keyring;
use crate::pairs::Pair;
use crate::project_key::{KeyOwner, bits, fingerprint};

/// The size of SSH keys that are made here, in bits.
pub(crate) const SSH_BITS: usize = 2048;
/// What such keys are called in SSH.
const TYPE: &[u8] = b"ssh-rsa";
/// The agent's message that brings a key.
const ADD_IDENTITY: u8 = 17;

/// Whose SSH key pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SshOwner {
    /// A tenant's.
    Tenant(String),
    /// A project's.
    Project(KeyOwner),
}

impl SshOwner {
    /// The name its key's file is found under; two owners never have the same.
    pub(crate) fn name(&self) -> Result<String, KeyringError> {
        match self {
            SshOwner::Project(owner) => owner.name_of("project-ssh-key"),
            SshOwner::Tenant(tenant) => {
                let name = format!("tenant-ssh-key/{tenant}");
                let fine = !tenant.is_empty() && name.len() <= KeyOwner::MAX && !name.contains(char::is_control);
                if fine { Ok(name) } else { Err(KeyringError::Tenant { tenant: tenant.clone(), most: KeyOwner::MAX }) }
            }
        }
    }
}

impl fmt::Display for SshOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SshOwner::Tenant(tenant) => write!(f, "tenant {tenant}"),
            SshOwner::Project(owner) => write!(f, "project {owner}"),
        }
    }
}

/// An SSH key pair. The private half is never printed, and wiped when it is dropped.
pub struct SshKey {
    pub(crate) private: RsaPrivateKey,
    file: Identity,
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshKey").field("bits", &self.bits()).finish_non_exhaustive()
    }
}

impl Pair for SshKey {
    const HEAD: &str = "gatelog ssh key 1";

    fn of(private: RsaPrivateKey, file: Identity) -> Option<SshKey> {
        Some(SshKey { private, file })
    }

    fn private(&self) -> &RsaPrivateKey {
        &self.private
    }

    fn file(&self) -> Identity {
        self.file
    }

    fn kept(keyring: &Keyring) -> &Mutex<BTreeMap<String, Arc<SshKey>>> {
        &keyring.ssh
    }
}

impl SshKey {
    /// The public half as a line of `authorized_keys`, without its end: `ssh-rsa …`, as Zuul serves it.
    pub fn public_line(&self) -> String {
        let mut blob = Vec::new();
        string(&mut blob, TYPE);
        number(&mut blob, &self.private.e_bytes());
        number(&mut blob, &self.private.n_bytes());
        format!("ssh-rsa {}", STANDARD.encode(blob))
    }

    /// What tells the key from others; see [`crate::ProjectKey::fingerprint`].
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.private.to_public_key())
    }

    /// The size of the key in bits.
    pub fn bits(&self) -> usize {
        bits(&self.private)
    }

    /// What an SSH agent is told to take the key: its message `SSH_AGENTC_ADD_IDENTITY` without the length before it.
    /// Holds the private half.
    ///
    /// # Errors
    /// The numbers of the key do not belong together.
    pub fn agent_message(&self, comment: &str) -> Result<Plaintext, KeyringError> {
        let broken = || KeyringError::Make("its numbers do not belong together".into());
        let key = &self.private;
        let coefficient = key.crt_coefficient().ok_or_else(broken)?;
        let [p, q] = key.primes() else { return Err(broken()) };
        let secret = |number: &[u8]| Plaintext(number.to_vec());
        let (d, p, q, coefficient) = (
            secret(&key.d().to_be_bytes()),
            secret(&p.to_be_bytes()),
            secret(&q.to_be_bytes()),
            secret(&coefficient.to_be_bytes()),
        );
        // Room for all of it: nothing secret is left behind where the text has grown.
        let mut message =
            Plaintext(Vec::with_capacity(key.size().saturating_mul(8).saturating_add(256 + comment.len())));
        message.0.push(ADD_IDENTITY);
        string(&mut message.0, TYPE);
        number(&mut message.0, &key.n_bytes());
        number(&mut message.0, &key.e_bytes());
        for secret in [&d, &coefficient, &p, &q] {
            number(&mut message.0, secret);
        }
        string(&mut message.0, comment.as_bytes());
        Ok(message)
    }
}

/// A length and as many bytes.
fn string(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    into.extend_from_slice(bytes);
}

/// A number that is not negative: as few bytes as it needs, the first of them below 128.
fn number(into: &mut Vec<u8>, bytes: &[u8]) {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = bytes.get(first..).unwrap_or_default();
    let sign = bytes.first().is_some_and(|byte| *byte >= 0x80);
    let length = bytes.len().saturating_add(usize::from(sign));
    into.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    if sign {
        into.push(0);
    }
    into.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be_and_never_negative() {
        let written = |bytes: &[u8]| {
            let mut into = Vec::new();
            number(&mut into, bytes);
            into
        };
        assert_eq!(written(&[]), [0, 0, 0, 0]);
        assert_eq!(written(&[0, 0]), [0, 0, 0, 0]);
        assert_eq!(written(&[0, 1, 0]), [0, 0, 0, 2, 1, 0]);
        assert_eq!(written(&[0x80]), [0, 0, 0, 2, 0, 0x80]);
    }
}
