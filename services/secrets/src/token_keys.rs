//! Keys that tokens of jobs are signed with (secrets with `oidc`), and how they follow one another.
//!
//! All of them lie in one file, so that at every moment, whatever dies, there are those from before a change or those from
//! after it. The newest signs. It is followed by another once it is old enough, and stays for as long as a token may be
//! valid that it has signed: what lives longest of all that was ever signed is kept beside the keys.

use std::sync::{Arc, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rsa::pkcs8::{DecodePrivateKey, EncodePrivateKey};
use rsa::signature::{SignatureEncoding, Signer};
use rsa::traits::PublicKeyParts;
use rsa::{RsaPrivateKey, pkcs1v15};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use crate::cipher::Plaintext;
use crate::error::KeyringError;
use crate::files::{self, Identity};
use crate::keyring::Keyring;
use crate::project_key::generate;

/// What tokens are signed with. Zuul knows no other either.
pub const TOKEN_ALGORITHM: &str = "RS256";
/// The size of keys that are made, in bits.
const BITS: usize = 3072;
/// The name under which their file is found.
const NAME: &str = "token-keys/RS256";
const HEAD: &str = "gatelog token keys 1";
/// How many there may be at once; where that many are needed still, the newest signs for longer.
const MOST: usize = 12;
/// What tokens live at most as long as nobody has signed one that lives longer, in seconds. Zuul: `max-oidc-ttl`.
const USUAL_LIFE: i64 = 10_800;
/// How much longer than that a key stays, in seconds: clocks differ, and a token may be signed while keys change.
const GRACE: i64 = 600;

/// A key.
struct TokenKey {
    /// Counts up from 0 over the life of the site.
    version: u32,
    /// When it was made, in seconds since 1970.
    created: i64,
    private: RsaPrivateKey,
}

/// What is in the file.
pub(crate) struct TokenKeys {
    /// The oldest first. Never empty.
    keys: Vec<TokenKey>,
    /// The longest life of a token that was signed, in seconds.
    longest_life: i64,
    file: Identity,
}

/// When keys of tokens follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenClock {
    /// Now, in seconds since 1970.
    pub now: i64,
    /// After how many seconds a key is followed by another. Zuul: `[oidc] signing_key_rotation_interval`.
    pub rotate_every: i64,
}

impl TokenKeys {
    fn newest(&self) -> Option<&TokenKey> {
        self.keys.last()
    }

    /// Whether the key at this place has signed something that may be valid.
    fn is_needed(&self, at: usize, now: i64) -> bool {
        let followed = self.keys.get(at + 1).map(|next| next.created);
        followed.is_none_or(|at| at.saturating_add(self.longest_life).saturating_add(GRACE) >= now)
    }

    fn needed(&self, now: i64) -> usize {
        (0..self.keys.len()).filter(|at| self.is_needed(*at, now)).count()
    }

    /// Whether another key is to follow.
    fn is_due(&self, clock: TokenClock) -> bool {
        let newest = self.newest().map_or(i64::MIN, |key| key.created);
        let every = clock.rotate_every.max(1);
        // One from so far ahead was made while the clock was wrong, and would sign until it is right to the clock.
        let from_ahead = newest > clock.now.saturating_add(every);
        (from_ahead || newest.saturating_add(every) <= clock.now) && self.needed(clock.now) < MOST
    }

    fn to_bytes(keys: &[&TokenKey], longest_life: i64) -> Result<Plaintext, KeyringError> {
        let mut bytes = Plaintext(Vec::with_capacity(keys.len().saturating_mul(4 << 10)));
        bytes.0.extend_from_slice(&longest_life.to_le_bytes());
        for key in keys {
            let der = key.private.to_pkcs8_der().map_err(|error| KeyringError::Make(error.to_string()))?;
            let length = u32::try_from(der.as_bytes().len()).map_err(|error| KeyringError::Make(error.to_string()))?;
            bytes.0.extend_from_slice(&key.version.to_le_bytes());
            bytes.0.extend_from_slice(&key.created.to_le_bytes());
            bytes.0.extend_from_slice(&length.to_le_bytes());
            bytes.0.extend_from_slice(der.as_bytes());
        }
        Ok(bytes)
    }

    fn from_bytes(bytes: &[u8], file: Identity) -> Option<TokenKeys> {
        let (longest_life, mut rest) = bytes.split_first_chunk::<8>()?;
        let mut keys = Vec::new();
        while let Some((version, more)) = rest.split_first_chunk::<4>() {
            let (created, more) = more.split_first_chunk::<8>()?;
            let (length, more) = more.split_first_chunk::<4>()?;
            let (der, more) = more.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
            let private = RsaPrivateKey::from_pkcs8_der(der).ok()?;
            keys.push(TokenKey {
                version: u32::from_le_bytes(*version),
                created: i64::from_le_bytes(*created),
                private,
            });
            rest = more;
        }
        let whole = rest.is_empty() && !keys.is_empty();
        whole.then_some(TokenKeys { keys, longest_life: i64::from_le_bytes(*longest_life), file })
    }
}

impl Keyring {
    /// A signed token (JWT) with these claims, which lives so many seconds. A key is made if there is none, which takes a
    /// processor for seconds.
    ///
    /// # Errors
    /// Trouble with the keys' file, or the key does not sign.
    pub fn sign_token(
        &self,
        claims: &Map<String, Value>,
        life: i64,
        clock: TokenClock,
    ) -> Result<String, KeyringError> {
        let keys = self.token_keys(clock, life)?;
        let newest = keys.newest().ok_or_else(|| KeyringError::Sign("there is none".to_owned()))?;
        let head = json!({"alg": TOKEN_ALGORITHM, "kid": kid(newest), "typ": "JWT"});
        let encoded = |part: String| URL_SAFE_NO_PAD.encode(part);
        let signed = format!("{}.{}", encoded(head.to_string()), encoded(Value::Object(claims.clone()).to_string()));
        let key = pkcs1v15::SigningKey::<Sha256>::new(newest.private.clone());
        let signature = key.try_sign(signed.as_bytes()).map_err(|error| KeyringError::Sign(error.to_string()))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_vec())))
    }

    /// The public halves of all keys that may have signed a token that is valid, as a JSON Web Key Set. One is made if
    /// there is none.
    ///
    /// # Errors
    /// Trouble with the keys' file.
    pub fn token_key_set(&self, clock: TokenClock) -> Result<Value, KeyringError> {
        let keys = self.token_keys(clock, 0)?;
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let one = |key: &TokenKey| {
            json!({"kty": "RSA", "n": number(&key.private.n_bytes()), "e": number(&key.private.e_bytes()),
                "alg": TOKEN_ALGORITHM, "use": "sig", "kid": kid(key)})
        };
        let needed = keys.keys.iter().enumerate().filter(|(at, _)| keys.is_needed(*at, clock.now));
        Ok(json!({"keys": needed.map(|(_, key)| one(key)).collect::<Vec<_>>()}))
    }

    /// Deletes all keys of tokens, such as after one was stolen: no token that was signed so far can be verified any more.
    /// New ones are made when a token is next signed. Whether there were any.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn replace_token_keys(&self, clock: TokenClock) -> Result<bool, KeyringError> {
        let new = generate(BITS)?;
        let _still = self.changing()?;
        let known = match self.known_token_keys() {
            Err(KeyringError::KeyFile { .. }) => None,
            known => known?,
        };
        let version = known.as_ref().and_then(|keys| keys.newest()).map_or(0, |key| key.version.saturating_add(1));
        let key = TokenKey { version, created: clock.now, private: new };
        self.write_token_keys(&[&key], known.as_ref().map_or(USUAL_LIFE, |keys| keys.longest_life))?;
        Ok(known.is_some())
    }

    /// The keys, as they ought to be now for a token that lives so long.
    fn token_keys(&self, clock: TokenClock, life: i64) -> Result<Arc<TokenKeys>, KeyringError> {
        let fits = |keys: &TokenKeys| {
            keys.longest_life >= life && !keys.is_due(clock) && keys.needed(clock.now) == keys.keys.len()
        };
        let known = self.known_token_keys()?;
        if let Some(keys) = known.as_ref().filter(|keys| fits(keys)) {
            return Ok(Arc::clone(keys));
        }
        // One thread makes a key, and the others wait for it.
        let _turn = self.token_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |keys: Option<&Arc<TokenKeys>>| keys.is_none_or(|keys| keys.is_due(clock));
        let new = if due(self.known_token_keys()?.as_ref()) { Some(generate(BITS)?) } else { None };
        let _still = self.changing()?;
        let known = self.known_token_keys()?;
        if let Some(keys) = known.as_ref().filter(|keys| fits(keys)) {
            return Ok(Arc::clone(keys));
        }
        let longest_life = known.as_ref().map_or(USUAL_LIFE, |keys| keys.longest_life).max(life);
        let version = known.as_ref().and_then(|keys| keys.newest()).map_or(0, |key| key.version.saturating_add(1));
        let new = new.filter(|_| due(known.as_ref())).map(|private| TokenKey { version, created: clock.now, private });
        let old = known.iter().flat_map(|known| {
            let of = known.keys.iter().enumerate();
            of.filter(|(at, _)| known.is_needed(*at, clock.now)).map(|(_, key)| key)
        });
        let keys: Vec<&TokenKey> = old.chain(&new).collect();
        self.write_token_keys(&keys, longest_life)
    }

    /// Whoever calls this holds [`Keyring::changing`].
    fn write_token_keys(&self, keys: &[&TokenKey], longest_life: i64) -> Result<Arc<TokenKeys>, KeyringError> {
        let path = self.path(NAME);
        files::replace(&path, &self.seal_file(HEAD, NAME, &TokenKeys::to_bytes(keys, longest_life)?)?)?;
        self.known_token_keys()?.ok_or(KeyringError::KeyFile { path, what: "it vanished as soon as it was made" })
    }

    fn known_token_keys(&self) -> Result<Option<Arc<TokenKeys>>, KeyringError> {
        let path = self.path(NAME);
        let mut kept = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        // The file decides: another process may have put others there.
        let Some(identity) = files::identity(&path)? else {
            *kept = None;
            return Ok(None);
        };
        if let Some(keys) = kept.as_ref().filter(|keys| keys.file == identity) {
            return Ok(Some(Arc::clone(keys)));
        }
        *kept = None;
        let Some((text, _, identity)) = files::read(&path)? else { return Ok(None) };
        let (_, bytes) = self.open_file(HEAD, NAME, &path, &text)?;
        let what = "there are no keys of tokens in it";
        let keys = TokenKeys::from_bytes(&bytes, identity).ok_or(KeyringError::KeyFile { path, what })?;
        let keys = Arc::new(keys);
        *kept = Some(Arc::clone(&keys));
        Ok(Some(keys))
    }
}

fn kid(key: &TokenKey) -> String {
    format!("{TOKEN_ALGORITHM}-{}", key.version)
}
