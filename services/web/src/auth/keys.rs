//! The public keys of an issuer: a JSON Web Key Set that is fetched when it is needed, kept for a while, and fetched
//! again when a token names a key that is not among them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gatelog_secrets::Rs256;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, KeyAlgorithm, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::time::Instant;

/// For how long keys are taken as they are.
const FRESH: Duration = Duration::from_secs(600);
/// For how long they still count where new ones cannot be had.
const STALE: Duration = Duration::from_secs(3_600);
/// How long nothing is fetched after an attempt, whatever tokens name.
const REST: Duration = Duration::from_secs(10);
/// How long one fetch may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest set, in bytes.
pub const MAX_KEYS: usize = 256 << 10;
/// How many keys of a set are looked at.
const MANY: usize = 100;

/// What a fetch comes to: the bytes, or why they cannot be had.
pub type Fetched<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// Where an issuer's keys are.
pub trait KeySource: Send + Sync {
    /// The set as it is now, at most [`MAX_KEYS`] bytes.
    fn fetch(&self) -> Fetched<'_>;
}

/// An issuer's keys.
pub struct KeySet {
    source: Arc<dyn KeySource>,
    kept: Mutex<Kept>,
    /// Held while keys are fetched; whoever has what it needs does not wait for that.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    keys: Vec<(Option<String>, Rs256)>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
    trouble: String,
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySet")
    }
}

impl KeySet {
    /// The keys there; nothing is fetched yet.
    pub fn new(source: Arc<dyn KeySource>) -> KeySet {
        KeySet { source, kept: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What is in it is put in whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key a token names, or the only one where it names none; why there is none otherwise.
    pub(super) async fn key(&self, name: Option<&str>) -> Result<Rs256, String> {
        if let Some(key) = self.kept().fresh(name) {
            return Ok(key);
        }
        let _turn = self.fetching.lock().await;
        let tried = {
            let mut kept = self.kept();
            if let Some(key) = kept.fresh(name) {
                return Ok(key);
            }
            let tried = young(kept.tried, REST);
            if !tried {
                kept.tried = Some(Instant::now());
            }
            tried
        };
        if !tried {
            let fetched = tokio::time::timeout(PATIENCE, self.source.fetch()).await;
            let fetched = fetched.unwrap_or_else(|_| Err(format!("nothing came within {} s", PATIENCE.as_secs())));
            let read = fetched.and_then(|bytes| read(&bytes));
            let mut kept = self.kept();
            match read {
                Ok(keys) => {
                    (kept.keys, kept.fetched) = (keys, Some(Instant::now()));
                    kept.trouble.clear();
                }
                Err(trouble) => {
                    tracing::warn!(trouble, "an issuer's keys cannot be had");
                    kept.trouble = trouble;
                }
            }
        }
        let kept = self.kept();
        if !young(kept.fetched, STALE) {
            return Err(format!("the issuer's keys cannot be had: {}", kept.trouble));
        }
        kept.find(name).cloned().ok_or_else(|| match name {
            Some(name) => format!("the issuer has no key {name:?}"),
            None => "the token names no key, and the issuer has several".to_owned(),
        })
    }
}

fn young(at: Option<Instant>, span: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < span)
}

impl Kept {
    fn fresh(&self, name: Option<&str>) -> Option<Rs256> {
        self.find(name).filter(|_| young(self.fetched, FRESH)).cloned()
    }

    fn find(&self, name: Option<&str>) -> Option<&Rs256> {
        match (name, self.keys.as_slice()) {
            (None, [(_, only)]) => Some(only),
            (None, _) => None,
            (Some(name), keys) => keys.iter().find(|(one, _)| one.as_deref() == Some(name)).map(|(_, key)| key),
        }
    }
}

/// The keys of a set by which RS256 is checked; others are passed over.
fn read(bytes: &[u8]) -> Result<Vec<(Option<String>, Rs256)>, String> {
    if bytes.len() > MAX_KEYS {
        return Err(format!("the set is longer than {MAX_KEYS} bytes"));
    }
    let set: Json = serde_json::from_slice(bytes).map_err(|error| format!("the set is not JSON: {error}"))?;
    let keys = set.get("keys").and_then(Json::as_array).ok_or("the set has no list `keys`")?;
    // One by one: what is wrong with one of them is nothing to the others.
    let usable = |key: &Json| {
        let Jwk { common, algorithm: AlgorithmParameters::RSA(key) } = Jwk::deserialize(key).ok()? else { return None };
        let fits = common.public_key_use.is_none_or(|used| used == PublicKeyUse::Signature)
            && common.key_algorithm.is_none_or(|algorithm| algorithm == KeyAlgorithm::RS256);
        // Some issuers fill up their numbers, which they should not.
        let [n, e] = [&key.n, &key.e].map(|number| number.trim_end_matches('='));
        let key = DecodingKey::from_rsa_components(n, e).ok().filter(|_| fits)?;
        Some((common.key_id, Rs256::try_from(&key).ok()?))
    };
    let found: Vec<_> = keys.iter().take(MANY).filter_map(usable).collect();
    if found.is_empty() { Err("the set has no RSA key for signatures".to_owned()) } else { Ok(found) }
}
