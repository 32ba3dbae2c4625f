//! The keyring.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatelog_record::{ActorId, Sealed};
use sha2::{Digest, Sha256};

use crate::cipher::{Key, NONCE, Plaintext, random};
use crate::error::KeyringError;
use crate::files::{self, Identity};
use crate::project_key::ProjectKey;
use crate::scope::Scope;
use crate::signing_key::SigningKey;
use crate::ssh_key::SshKey;
use crate::token_keys::TokenKeys;

/// The most that is sealed into one record, in bytes.
pub const MAX_PLAINTEXT: usize = 8 << 20;

/// How many keys are kept in memory; more are read again when they are needed.
pub(crate) const KEPT: usize = 1024;

/// The file of the master key.
const MASTER: &str = "master.key";
const MASTER_HEAD: &str = "gatelog master key 1";
const SCOPE_HEAD: &str = "gatelog key 1";

/// The scope of the key behind [`Keyring::actor`]. Not a [`Scope`]: it is never forgotten, or one account would have
/// two ids in one log.
const ACTORS: &str = "actors/all";

/// What became of a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// What was sealed.
    Opened(Plaintext),
    /// The key was deleted: nobody can read this any more.
    KeyGone,
    /// The key is there, but this is not what it sealed, or not for this `aad`.
    Damaged,
}

/// A scope's key as it lies in its file.
#[derive(Clone)]
struct ScopeKey {
    /// `<scope>@<which>`; a key made after a forgotten one has another `which`.
    id: String,
    key: Key,
    file: Identity,
}

/// Holds off others; see [`Keyring::still`].
#[derive(Debug)]
pub struct Still {
    _file: std::fs::File,
}

/// The keys of a site. Safe to share between threads, and with other processes on the same directory.
pub struct Keyring {
    dir: PathBuf,
    master: Key,
    kept: Mutex<BTreeMap<String, ScopeKey>>,
    pub(crate) projects: Mutex<BTreeMap<String, Arc<ProjectKey>>>,
    pub(crate) ssh: Mutex<BTreeMap<String, Arc<SshKey>>>,
    pub(crate) signing: Mutex<BTreeMap<String, Arc<SigningKey>>>,
    pub(crate) tokens: Mutex<Option<Arc<TokenKeys>>>,
    /// Held while keys of tokens are changed. Not `making`: that is taken by who holds others off already.
    pub(crate) token_turn: Mutex<()>,
    /// Held while a key pair is made: one at a time, for each takes a processor for seconds.
    pub(crate) making: Mutex<()>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Keyring {
    /// Opens the keys in this directory (`<site>/keys`); makes it and a master key if there is none.
    ///
    /// # Errors
    /// The directory or `master.key` cannot be read or made, is damaged, or is readable by others.
    pub fn open_dir(dir: impl Into<PathBuf>) -> Result<Keyring, KeyringError> {
        let dir = dir.into();
        files::make_directory(&dir)?;
        let path = dir.join(MASTER);
        if files::identity(&path)?.is_none() {
            let key = Key::random()?;
            files::create(&path, &format!("{MASTER_HEAD}\n{}\n", hex::encode(key.0)))?;
        }
        let damaged = |what| KeyringError::KeyFile { path: path.clone(), what };
        let (text, mode, _) = files::read(&path)?.ok_or(damaged("it vanished"))?;
        if mode & 0o077 != 0 {
            return Err(KeyringError::Exposed { path, mode });
        }
        let mut lines = text.lines();
        if lines.next() != Some(MASTER_HEAD) {
            return Err(damaged("it does not begin as a master key does"));
        }
        let mut master = Key([0; 32]);
        hex::decode_to_slice(lines.next().unwrap_or_default(), &mut master.0)
            .map_err(|_| damaged("its second line is not 64 hex digits"))?;
        Ok(Keyring {
            dir,
            master,
            kept: Mutex::default(),
            projects: Mutex::default(),
            ssh: Mutex::default(),
            signing: Mutex::default(),
            tokens: Mutex::default(),
            token_turn: Mutex::default(),
            making: Mutex::default(),
        })
    }

    /// Seals bytes for a scope, whose key is made if there is none. `aad` is what the seal belongs to (a record's key
    /// or a field's name); opening needs the same.
    ///
    /// # Errors
    /// More than [`MAX_PLAINTEXT`] bytes, a name that cannot name a scope, or trouble with the key's file.
    pub fn seal(&self, scope: &Scope, plaintext: &[u8], aad: &[u8]) -> Result<Sealed, KeyringError> {
        if plaintext.len() > MAX_PLAINTEXT {
            return Err(KeyringError::TooLarge { bytes: plaintext.len(), most: MAX_PLAINTEXT });
        }
        let key = self.key_for(&scope.name()?)?;
        let nonce: [u8; NONCE] = random()?;
        let ciphertext = key
            .key
            .seal(&nonce, plaintext, &bound(&key.id, aad))
            .ok_or(KeyringError::TooLarge { bytes: plaintext.len(), most: MAX_PLAINTEXT })?;
        Ok(Sealed { key_id: key.id, nonce: nonce.to_vec(), ciphertext })
    }

    /// Opens a seal.
    ///
    /// # Errors
    /// The key's file cannot be read or is damaged; what is wrong with the seal itself is an [`Unsealed`].
    pub fn open(&self, sealed: &Sealed, aad: &[u8]) -> Result<Unsealed, KeyringError> {
        let Some((name, _)) = sealed.key_id.rsplit_once('@') else { return Ok(Unsealed::Damaged) };
        let key = match self.existing(name)? {
            Some(key) if key.id == sealed.key_id => key,
            _ => return Ok(Unsealed::KeyGone),
        };
        Ok(match key.key.open(&sealed.nonce, &sealed.ciphertext, &bound(&key.id, aad)) {
            Some(plaintext) => Unsealed::Opened(plaintext),
            None => Unsealed::Damaged,
        })
    }

    /// Deletes a scope's key, durably: what was sealed with it is gone for ever. Whether there was one. What is sealed
    /// for the scope afterwards gets a new key.
    ///
    /// # Errors
    /// The file cannot be deleted.
    pub fn forget(&self, scope: &Scope) -> Result<bool, KeyringError> {
        let name = scope.name()?;
        let mut kept = self.kept();
        kept.remove(&name);
        let named = if let Scope::Person(actor) = scope { self.forget_name(*actor)? } else { false };
        Ok(files::delete(&self.path(&name))? || named)
    }

    /// The scopes that have a key now, by name (`person/…`, `project/…`, `buildset/…`, `intake/…`), in order. No other
    /// keys are among them, and nothing is opened.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read.
    pub fn scopes(&self) -> Result<Vec<String>, KeyringError> {
        let mut scopes = Vec::new();
        for path in files::list(&self.dir)? {
            let Some((text, ..)) = files::read(&path)? else { continue };
            let mut lines = text.lines();
            if lines.next() == Some(SCOPE_HEAD)
                && let Some((scope, _)) = lines.next().and_then(|id| id.rsplit_once('@'))
                && scope != ACTORS
            {
                scopes.push(scope.to_owned());
            }
        }
        scopes.sort();
        Ok(scopes)
    }

    /// The opaque id of an account of a connection: the same for ever on this site, and nothing can be told from it
    /// without the keys.
    ///
    /// # Errors
    /// Trouble with the file of the key behind it.
    pub fn actor(&self, connection: &str, account: &str) -> Result<ActorId, KeyringError> {
        Ok(ActorId::of_account(&self.key_for(ACTORS)?.key.0, connection, account))
    }

    /// Nobody replaces, rotates, retires or deletes key pairs while this is held, in whatever process: a copy of the
    /// directory that is made meanwhile has each key pair, the former ones included, as of one moment. New ones are made.
    ///
    /// # Errors
    /// The master key's file cannot be locked.
    pub fn still(&self) -> Result<Still, KeyringError> {
        files::hold(&self.dir.join(MASTER), false).map(|file| Still { _file: file })
    }

    /// Before key pairs are changed: nobody else changes them, or copies them, until this is dropped.
    pub(crate) fn changing(&self) -> Result<Still, KeyringError> {
        files::hold(&self.dir.join(MASTER), true).map(|file| Still { _file: file })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, ScopeKey>> {
        // A panic elsewhere leaves the map as good as it was: entries are put in whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scope's file. Hashed: names may be long and hold slashes.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let hash = hex::encode(Sha256::digest(name.as_bytes()));
        self.dir.join(format!("{}.key", hash.get(..40).unwrap_or(&hash)))
    }

    /// The key of a scope, made if there is none.
    fn key_for(&self, name: &str) -> Result<ScopeKey, KeyringError> {
        if let Some(key) = self.existing(name)? {
            return Ok(key);
        }
        let path = self.path(name);
        files::create(&path, &self.new_file(name)?)?;
        self.existing(name)?.ok_or(KeyringError::KeyFile { path, what: "it vanished as soon as it was made" })
    }

    /// The key of a scope, if there is one.
    fn existing(&self, name: &str) -> Result<Option<ScopeKey>, KeyringError> {
        let path = self.path(name);
        let mut kept = self.kept();
        // The file decides: another process may have deleted it, and a key may not outlive that in memory.
        let Some(identity) = files::identity(&path)? else {
            kept.remove(name);
            return Ok(None);
        };
        if let Some(key) = kept.get(name).filter(|key| key.file == identity) {
            return Ok(Some(key.clone()));
        }
        kept.remove(name);
        let Some((text, _, identity)) = files::read(&path)? else { return Ok(None) };
        let key = self.read_file(name, &path, &text, identity)?;
        if kept.len() >= KEPT {
            kept.pop_first();
        }
        kept.insert(name.to_owned(), key.clone());
        Ok(Some(key))
    }

    /// The text of a new key's file.
    fn new_file(&self, name: &str) -> Result<String, KeyringError> {
        self.seal_file(SCOPE_HEAD, name, &Key::random()?.0)
    }

    /// The text of a file that holds a secret of this name: head, id, nonce, sealed secret.
    pub(crate) fn seal_file(&self, head: &str, name: &str, secret: &[u8]) -> Result<String, KeyringError> {
        let id = format!("{name}@{}", hex::encode(random::<8>()?));
        let nonce: [u8; NONCE] = random()?;
        let sealed = self
            .master
            .seal(&nonce, secret, &bound(&id, head.as_bytes()))
            .ok_or(KeyringError::TooLarge { bytes: secret.len(), most: MAX_PLAINTEXT })?;
        Ok(format!("{head}\n{id}\n{}\n{}\n", hex::encode(nonce), hex::encode(sealed)))
    }

    /// What `seal_file` wrote: the id and the secret.
    pub(crate) fn open_file(
        &self,
        head: &str,
        name: &str,
        path: &Path,
        text: &str,
    ) -> Result<(String, Plaintext), KeyringError> {
        let damaged = |what| KeyringError::KeyFile { path: path.to_owned(), what };
        let mut lines = text.lines();
        if lines.next() != Some(head) {
            return Err(damaged("it does not begin as a key does"));
        }
        let id = lines.next().unwrap_or_default().to_owned();
        if id.rsplit_once('@').map(|(scope, _)| scope) != Some(name) {
            return Err(damaged("it is the key of another scope"));
        }
        let mut hex_line = || hex::decode(lines.next().unwrap_or_default()).map_err(|_| damaged("it ends too early"));
        let (nonce, sealed) = (hex_line()?, hex_line()?);
        let opened = self
            .master
            .open(&nonce, &sealed, &bound(&id, head.as_bytes()))
            .ok_or(damaged("the master key does not open it"))?;
        Ok((id, opened))
    }

    fn read_file(&self, name: &str, path: &Path, text: &str, file: Identity) -> Result<ScopeKey, KeyringError> {
        let (id, opened) = self.open_file(SCOPE_HEAD, name, path, text)?;
        let mut key = Key([0; 32]);
        if opened.len() != key.0.len() {
            let what = "the key in it has another length";
            return Err(KeyringError::KeyFile { path: path.to_owned(), what });
        }
        key.0.copy_from_slice(&opened);
        Ok(ScopeKey { id, key, file })
    }
}

/// What a ciphertext is bound to: its key's id and what the caller says, unambiguously.
fn bound(key_id: &str, aad: &[u8]) -> Vec<u8> {
    let mut bound = Vec::with_capacity(8 + key_id.len() + aad.len());
    bound.extend_from_slice(&(key_id.len() as u64).to_le_bytes());
    bound.extend_from_slice(key_id.as_bytes());
    bound.extend_from_slice(aad);
    bound
}
