//! The key pair a site signs with: checkpoints and exports of its log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::signature::{SignatureEncoding, Signer};
use rsa::{RsaPrivateKey, pkcs1v15};
use sha2::Sha256;

use crate::error::KeyringError;
use crate::files::Identity;
use crate::keyring::Keyring;
use crate::pairs::Pair;
use crate::project_key::bits;

/// The size of the key that is made here, in bits.
pub(crate) const SIGNING_BITS: usize = 3072;
/// The name its file is found under.
pub(crate) const SIGNING_NAME: &str = "signing-key/site";

/// The key pair a site signs with. The private half is never printed, and wiped when it is dropped.
pub struct SigningKey {
    private: RsaPrivateKey,
    file: Identity,
    public_der: Vec<u8>,
    public_pem: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("bits", &self.bits()).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The signature of a message: RSA PKCS#1 v1.5 with SHA-256. The same message gives the same signature.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyringError> {
        let key = pkcs1v15::SigningKey::<Sha256>::new(self.private.clone());
        let signature = key.try_sign(message).map_err(|error| KeyringError::Sign(error.to_string()))?;
        Ok(signature.to_vec())
    }

    /// The public half as SubjectPublicKeyInfo in DER.
    pub fn public_der(&self) -> &[u8] {
        &self.public_der
    }

    /// The same as PEM.
    pub fn public_pem(&self) -> &str {
        &self.public_pem
    }

    /// The size of the key in bits.
    pub fn bits(&self) -> usize {
        bits(&self.private)
    }
}

impl Pair for SigningKey {
    const HEAD: &str = "gatelog signing key 1";

    fn of(private: RsaPrivateKey, file: Identity) -> Option<SigningKey> {
        let public = private.to_public_key();
        let public_der = public.to_public_key_der().ok()?.as_bytes().to_vec();
        let public_pem = public.to_public_key_pem(LineEnding::LF).ok()?;
        Some(SigningKey { private, file, public_der, public_pem })
    }

    fn private(&self) -> &RsaPrivateKey {
        &self.private
    }

    fn file(&self) -> Identity {
        self.file
    }

    fn kept(keyring: &Keyring) -> &Mutex<BTreeMap<String, Arc<SigningKey>>> {
        &keyring.signing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing::Rs256;

    #[test]
    fn what_a_site_signs_anybody_can_check_and_the_same_twice_is_the_same() {
        let site = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_dir(site.path()).unwrap();
        assert!(keyring.known_signing_key().unwrap().is_none());
        let key = keyring.signing_key().unwrap();
        assert_eq!(key.bits(), SIGNING_BITS);
        let signature = key.sign(b"gate/0 stood here").unwrap();
        let again = Keyring::open_dir(site.path()).unwrap().known_signing_key().unwrap().unwrap();
        assert_eq!(again.sign(b"gate/0 stood here").unwrap(), signature);
        for public in [Rs256::from_der(key.public_der()).unwrap(), Rs256::from_pem(key.public_pem()).unwrap()] {
            assert!(public.verify(b"gate/0 stood here", &signature));
            assert!(!public.verify(b"gate/0 stood there", &signature));
            let mut other = signature.clone();
            other[7] ^= 1;
            assert!(!public.verify(b"gate/0 stood here", &other));
        }
        assert!(Rs256::from_der(&key.public_der()[1..]).is_err());
    }
}
