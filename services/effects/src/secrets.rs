//! Secrets: what a job's playbooks are given, and whether it can be had.
//!
//! Rules have no keys. They say which secret a playbook sees; whether it deciphers is said here, beforehand as
//! verdicts of a layout ([`verdicts`]), and finally when a worker opens it ([`open`]). Until then a secret is as it
//! stands in the repository, encrypted, and in clear it goes nowhere but into the build that was given it.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use gatelog_record::draft::gate::SecretVerdict;
use gatelog_record::{BlobHash, Value};
use gatelog_rules_config::objects::Secret;
use gatelog_rules_config::objects::secret::{SecretSource, SecretValue};
use gatelog_rules_config::verdicts::{KEY_UNREADABLE, MAX_CHUNKS, TOO_MANY, UNDECIPHERABLE, asked, too_many};
use gatelog_rules_config::{FrozenJob, Layout};
use gatelog_secrets::{KeyOwner, Keyring, ProjectKey};
use serde::{Deserialize, Serialize};

use crate::connection::chain;

/// A secret of a job, still encrypted, and whose key opens it: that of the project that it stands in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenSecret {
    /// The connection of its project.
    pub connection: String,
    /// The project's name on that connection.
    pub project: String,
    /// What stands in the repository.
    pub source: SecretSource,
}

impl FrozenSecret {
    /// Whether it is a token, which is issued when a playbook begins, rather than something to be opened.
    pub fn is_token(&self) -> bool {
        matches!(self.source, SecretSource::Oidc(_))
    }
}

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretRefused {
    /// It does not decipher.
    #[error("secret {secret:?} of project {project} cannot be had: {reason}")]
    Undecipherable {
        /// The secret.
        secret: String,
        /// Its project.
        project: String,
        /// What the keys say.
        reason: gatelog_secrets::Undecipherable,
    },
    /// The key cannot be read.
    #[error("secret {secret:?} of project {project} cannot be had: {reason}")]
    Key {
        /// The secret.
        secret: String,
        /// Its project.
        project: String,
        /// Why.
        reason: String,
    },
    /// There is too much to decipher.
    #[error(
        "the job's secrets of project {project} have {chunks} encrypted chunks, above the limit of {most}: encrypt less"
    )]
    TooMany {
        /// The project.
        project: String,
        /// How many.
        chunks: usize,
        /// How many may be.
        most: usize,
    },
    /// It is a token, and there is no name to issue it under.
    #[error(
        "secret {secret:?} of project {project} is an OpenID Connect token, and nobody has said under which name this site \
         issues them: set `root` under [web] in gatelog.toml to the address that those who verify tokens reach it at"
    )]
    NoIssuer {
        /// The secret.
        secret: String,
        /// Its project.
        project: String,
    },
    /// It is a token where a text is asked for.
    #[error("secret {secret:?} of project {project} is an OpenID Connect token: it is issued when a playbook begins")]
    Token {
        /// The secret.
        secret: String,
        /// Its project.
        project: String,
    },
}

impl SecretRefused {
    /// Whether it may be otherwise the next time.
    pub fn again(&self) -> bool {
        matches!(self, SecretRefused::Key { .. })
    }
}

/// The secrets that a job's playbooks name, by their names in the layout. One that the layout has not is left out, and
/// missed by the worker.
pub fn frozen(layout: &Layout, job: &FrozenJob) -> BTreeMap<String, FrozenSecret> {
    let named = job.playbooks.iter().flat_map(|playbook| &playbook.secrets);
    named
        .filter_map(|used| {
            let secret = layout.secrets.get(&used.secret)?;
            // One in a file that lies in no repository has no owner, and needs none if nothing in it is encrypted.
            let owner = owner(layout, secret).unwrap_or_else(|| KeyOwner::new("", ""));
            let (connection, project) = (owner.connection, owner.project);
            Some((used.secret.clone(), FrozenSecret { connection, project, source: secret.source.clone() }))
        })
        .collect()
}

/// Refuses a job for whose secrets there would be too much to decipher. A layout's verdicts say so before; a job may run
/// all the same.
///
/// # Errors
/// [`SecretRefused::TooMany`].
pub fn bounded(secrets: &BTreeMap<String, FrozenSecret>) -> Result<(), SecretRefused> {
    let mut of_projects: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for secret in secrets.values() {
        let chunks = of_projects.entry((&secret.connection, &secret.project)).or_default();
        *chunks = chunks.saturating_add(secret.source.chunks());
        if *chunks > MAX_CHUNKS {
            let project = format!("{}/{}", secret.connection, secret.project);
            return Err(SecretRefused::TooMany { project, chunks: *chunks, most: MAX_CHUNKS });
        }
    }
    Ok(())
}

/// A secret in clear.
pub struct Opened {
    /// What a playbook is given.
    pub value: Value,
    /// The texts in it that were encrypted.
    pub texts: Vec<String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({} texts)", self.texts.len())
    }
}

/// What a playbook is given: the secret in clear.
///
/// # Errors
/// Why it cannot be had; nothing of the secret is in it.
pub fn open(keyring: &Keyring, name: &str, secret: &FrozenSecret) -> Result<Opened, SecretRefused> {
    let (secret_name, project) = (name.to_owned(), format!("{}/{}", secret.connection, secret.project));
    let SecretSource::Data(data) = &secret.source else {
        return Err(SecretRefused::Token { secret: secret_name, project });
    };
    let undecipherable =
        |reason| SecretRefused::Undecipherable { secret: name.to_owned(), project: project.clone(), reason };
    if data.encrypted().is_empty() {
        // No key is needed, and none is made for it.
        let value = clear(data, &mut |_: &[String]| Err(gatelog_secrets::Undecipherable)).map_err(undecipherable)?;
        return Ok(Opened { value, texts: Vec::new() });
    }
    if secret.project.is_empty() {
        return Err(undecipherable(gatelog_secrets::Undecipherable));
    }
    let owner = KeyOwner::new(&secret.connection, &secret.project);
    // Former keys of the project, too: a secret need not be encrypted anew as soon as its key is rotated.
    let keys = keyring.project_keys(&owner).map_err(|error| SecretRefused::Key {
        secret: name.to_owned(),
        project: project.clone(),
        reason: chain(&error),
    })?;
    let mut texts = Vec::new();
    let mut decipher = |chunks: &[String]| {
        let text = keys.decipher(chunks)?;
        let text = text.as_str().ok_or(gatelog_secrets::Undecipherable)?;
        texts.push(text.to_owned());
        Ok(text.to_owned())
    };
    let value = clear(data, &mut decipher).map_err(undecipherable)?;
    Ok(Opened { value, texts })
}

type Deciphered<T> = Result<T, gatelog_secrets::Undecipherable>;

fn clear(value: &SecretValue, decipher: &mut impl FnMut(&[String]) -> Deciphered<String>) -> Deciphered<Value> {
    Ok(match value {
        SecretValue::Plain(value) => value.clone(),
        SecretValue::Encrypted(chunks) => Value::Str(decipher(chunks)?),
        SecretValue::List(items) => {
            Value::List(items.iter().map(|item| clear(item, decipher)).collect::<Deciphered<_>>()?)
        }
        SecretValue::Map(map) => Value::Map(
            map.iter().map(|(key, item)| Ok((key.clone(), clear(item, decipher)?))).collect::<Deciphered<_>>()?,
        ),
    })
}

fn owner(layout: &Layout, secret: &Secret) -> Option<KeyOwner> {
    let project = layout.projects.get(&secret.place.context.project)?;
    Some(KeyOwner::new(&project.connection, &project.name))
}

/// The most encrypted texts whose verdict is remembered.
const REMEMBERED: usize = 1 << 16;

/// Verdicts on encrypted texts, by key and text: layouts of one tenant after the other share nearly all of them.
static VERDICTS: LazyLock<Mutex<BTreeMap<BlobHash, bool>>> = LazyLock::new(Mutex::default);

/// Whether an encrypted text deciphers.
fn deciphers(key: &ProjectKey, chunks: &[String]) -> bool {
    let mut what = key.public_pem().to_owned();
    for chunk in chunks {
        what.push('\n');
        what.push_str(chunk);
    }
    let what = BlobHash::of(what.as_bytes());
    let remembered = || VERDICTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(verdict) = remembered().get(&what) {
        return *verdict;
    }
    let verdict = key.decipher(chunks).is_ok();
    let mut all = remembered();
    if all.len() >= REMEMBERED {
        all.clear();
    }
    all.insert(what, verdict);
    verdict
}

/// The secrets that a layout's jobs use and that cannot be had, in the order of their names.
pub fn verdicts(keyring: &Keyring, layout: &Layout) -> Vec<SecretVerdict> {
    let asked = asked(layout);
    let refused = too_many(layout, &asked);
    asked
        .into_iter()
        .filter_map(|name| {
            let secret = layout.secrets.get(name)?;
            let code = if refused.contains(name) { Some(TOO_MANY) } else { trouble(keyring, layout, secret) };
            let code = code?.to_owned();
            Some(SecretVerdict { secret: name.to_owned(), project: secret.place.context.project.clone(), code })
        })
        .collect()
}

fn trouble(keyring: &Keyring, layout: &Layout, secret: &Secret) -> Option<&'static str> {
    let SecretSource::Data(data) = &secret.source else { return None };
    let texts = data.encrypted();
    if texts.is_empty() {
        return None;
    }
    let Some(owner) = owner(layout, secret) else { return Some(UNDECIPHERABLE) };
    match keyring.project_keys(&owner) {
        // Where there are no keys at all, none opens it: nobody can have encrypted anything for one that was never made.
        Ok(keys) => {
            let all = texts.into_iter().all(|chunks| keys.all().any(|key| deciphers(key, chunks)));
            (!all).then_some(UNDECIPHERABLE)
        }
        Err(error) => {
            tracing::error!(project = %owner, error = %chain(&error), "a project's key cannot be read");
            Some(KEY_UNREADABLE)
        }
    }
}
