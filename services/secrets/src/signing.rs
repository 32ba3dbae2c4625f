//! Keys of signatures: HS256 and RS256 of JSON Web Algorithms (RFC 7518), and no other. Tokens have both; what a site
//! signs itself (checkpoints and exports of its log) has the latter.
//!
//! Tokens are taken apart and put together by `jsonwebtoken`; this is what it signs and verifies with. Its own backends
//! would put a second RSA, SHA-2 and HMAC and three elliptic curves into the binary, and trust RSA keys of any size up to
//! 4096 bits. Whoever holds one of these keys has made the choice between the two: what a token says of itself is not
//! asked here.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as Unsigned, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use rsa::pkcs1::DecodeRsaPublicKey;
use rsa::pkcs8::{DecodePublicKey, EncodePublicKey};
use rsa::traits::PublicKeyParts;
use rsa::{BoxedUint, Pkcs1v15Sign, RsaPublicKey};
use sha2::{Digest, Sha256};

/// The smallest key that is trusted, in bits.
const SMALLEST: usize = 2048;
/// The largest, in bits: checking takes time.
const LARGEST: usize = 8192;
/// The longest PEM text that is looked at, in bytes.
const LONGEST_PEM: usize = 64 << 10;

/// A secret that both sides know: HMAC with SHA-256.
#[derive(Clone)]
pub struct Hs256 {
    mac: Hmac<Sha256>,
    secret: EncodingKey,
}

impl fmt::Debug for Hs256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hs256")
    }
}

impl Hs256 {
    /// The shared secret, as bytes; none where it is empty.
    pub fn new(secret: &[u8]) -> Option<Hs256> {
        if secret.is_empty() {
            return None;
        }
        let mac = Hmac::new_from_slice(secret).ok()?;
        Some(Hs256 { mac, secret: EncodingKey::from_secret(secret) })
    }

    /// To make tokens with.
    pub fn encoding_key(&self) -> &EncodingKey {
        install();
        &self.secret
    }

    /// To check tokens with.
    pub fn decoding_key(&self) -> DecodingKey {
        install();
        DecodingKey::from_secret(self.secret.as_bytes())
    }

    /// The signature of a message.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let mut mac = self.mac.clone();
        mac.update(message);
        mac.finalize().into_bytes().to_vec()
    }

    /// Whether a signature is this message's, in a time that tells nothing.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let mut mac = self.mac.clone();
        mac.update(message);
        mac.verify_slice(signature).is_ok()
    }
}

/// The public half of another's key: RSA with SHA-256.
#[derive(Clone, Debug)]
pub struct Rs256(RsaPublicKey);

/// That is no key by which signatures could be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no public RSA key of {SMALLEST} to {LARGEST} bits in PEM; `openssl pkey -in KEY -pubout` gives that of a \
     private key, `openssl x509 -in CERTIFICATE -pubkey -noout` that of a certificate"
)]
pub struct NoPublicKey;

impl Rs256 {
    /// From PEM (`PUBLIC KEY` or `RSA PUBLIC KEY`).
    ///
    /// # Errors
    /// [`NoPublicKey`]
    pub fn from_pem(text: &str) -> Result<Rs256, NoPublicKey> {
        let text = Some(text).filter(|text| text.len() <= LONGEST_PEM).ok_or(NoPublicKey)?;
        let key = RsaPublicKey::from_public_key_pem(text).or_else(|_| RsaPublicKey::from_pkcs1_pem(text));
        key.map_err(|_| NoPublicKey).and_then(Rs256::sized)
    }

    /// From modulus and exponent, as a JSON Web Key has them: big-endian bytes.
    ///
    /// # Errors
    /// [`NoPublicKey`]
    pub fn from_parts(modulus: &[u8], exponent: &[u8]) -> Result<Rs256, NoPublicKey> {
        if modulus.len() > LARGEST / 8 + 1 || exponent.len() > 8 {
            return Err(NoPublicKey);
        }
        let number = BoxedUint::from_be_slice_vartime;
        let key = RsaPublicKey::new_with_size_limits(number(modulus), number(exponent), SMALLEST..=LARGEST);
        key.map_err(|_| NoPublicKey).and_then(Rs256::sized)
    }

    /// From SubjectPublicKeyInfo in DER.
    ///
    /// # Errors
    /// [`NoPublicKey`]
    pub fn from_der(der: &[u8]) -> Result<Rs256, NoPublicKey> {
        let der = Some(der).filter(|der| der.len() <= LONGEST_PEM).ok_or(NoPublicKey)?;
        RsaPublicKey::from_public_key_der(der).map_err(|_| NoPublicKey).and_then(Rs256::sized)
    }

    /// As SubjectPublicKeyInfo in DER; `None` where it cannot be written so.
    pub fn to_der(&self) -> Option<Vec<u8>> {
        Some(self.0.to_public_key_der().ok()?.as_bytes().to_vec())
    }

    fn sized(key: RsaPublicKey) -> Result<Rs256, NoPublicKey> {
        let bits = key.size().saturating_mul(8);
        if (SMALLEST..=LARGEST).contains(&bits) { Ok(Rs256(key)) } else { Err(NoPublicKey) }
    }

    /// To check tokens with.
    pub fn decoding_key(&self) -> DecodingKey {
        install();
        DecodingKey::from_rsa_raw_components(&self.0.n_bytes(), &self.0.e_bytes())
    }

    /// Whether a signature is this message's.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.0.verify(Pkcs1v15Sign::new::<Sha256>(), &Sha256::digest(message), signature).is_ok()
    }
}

impl TryFrom<&DecodingKey> for Rs256 {
    type Error = NoPublicKey;

    /// From modulus and exponent, as `jsonwebtoken` holds them.
    fn try_from(key: &DecodingKey) -> Result<Rs256, NoPublicKey> {
        match key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => Rs256::from_parts(n, e),
            DecodingKeyKind::SecretOrDer(_) => Err(NoPublicKey),
        }
    }
}

/// What tokens are signed and verified with in this process.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // Only asked for fingerprints of keys and for keys in another form, which nobody here wants.
    key_utils: KeyUtils::new_unimplemented(),
};

/// No key leaves this module before this was done: without it, `jsonwebtoken` panics.
fn install() {
    // It is refused where there is one already, and there is no other than this.
    let _ = PROVIDER.install_default();
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(hs256(key.as_bytes())?)),
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    match (algorithm, key.family(), key.kind()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac, DecodingKeyKind::SecretOrDer(secret)) => Ok(Box::new(hs256(secret)?)),
        (Algorithm::RS256, AlgorithmFamily::Rsa, _) => {
            let key = Rs256::try_from(key).map_err(|error| ErrorKind::InvalidRsaKey(error.to_string()))?;
            Ok(Box::new(key))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn hs256(secret: &[u8]) -> Result<Hs256, Error> {
    Hs256::new(secret).ok_or_else(|| ErrorKind::InvalidKeyFormat.into())
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, Unsigned> {
        Ok(self.sign(message))
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Unsigned> {
        if self.verify(message, signature) { Ok(()) } else { Err(Unsigned::new()) }
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for Rs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Unsigned> {
        if self.verify(message, signature) { Ok(()) } else { Err(Unsigned::new()) }
    }
}

impl JwtVerifier for Rs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::RS256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hs256_is_that_of_rfc_4231_and_a_changed_bit_does_not_pass() {
        // Test case 2 of RFC 4231.
        let key = Hs256::new(b"Jefe").unwrap();
        let signature = key.sign(b"what do ya want for nothing?");
        assert_eq!(hex::encode(&signature), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(key.verify(b"what do ya want for nothing?", &signature));
        let mut other = signature.clone();
        other[31] ^= 1;
        assert!(!key.verify(b"what do ya want for nothing?", &other));
        assert!(!key.verify(b"what do ya want for nothing?", &signature[..31]));
        assert!(!key.verify(b"what do ya want for nothing?", b""));
        assert!(Hs256::new(b"").is_none());
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_cure() {
        for text in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert!(Rs256::from_pem(text).unwrap_err().to_string().contains("openssl pkey"), "{text}");
        }
        assert!(Rs256::from_parts(&[0xff; 64], &[1, 0, 1]).is_err(), "512 bits");
        assert!(Rs256::from_parts(&[0xff; 4096], &[1, 0, 1]).is_err(), "32768 bits");
        assert!(Rs256::from_parts(&[], &[]).is_err());
    }
}
