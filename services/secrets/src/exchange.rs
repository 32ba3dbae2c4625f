//! Keys as Zuul exports and imports them (`zuul-admin export-keys`, `import-keys`): one JSON document that names each key
//! by its place in ZooKeeper.
//!
//! ```text
//! {"keys": {"/keystorage/CONNECTION/PREFIX/PROJECT/secrets": {"schema": 1, "keys": [{
//!     "version": 0, "created": SECONDS, "private_key": PEM under the keystore's password}]},
//!   "/keystorage/CONNECTION/PREFIX/PROJECT/ssh": …, "/keystorage2/tenant/TENANT/ssh": …}}
//! ```
//!
//! `PREFIX` is the project's name up to its first slash, `PROJECT` the whole name, quoted as in a form of the web (a
//! slash is `%2F`, a blank `+`), and so is `TENANT`. Zuul uses the first of the keys of a place; here those behind it are
//! a project's former keys, and Zuul passes over them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::error::KeyringError;
use crate::files;
use crate::former::{FORMER, MAX_FORMER};
use crate::keyring::Keyring;
use crate::pairs::{Pair, TakenOver};
use crate::project_key::{KeyOwner, ProjectKey};
use crate::ssh_key::{SshKey, SshOwner};
use crate::under_password::{self, KeystorePassword};

/// How many places an export may have.
pub const MAX_PLACES: usize = 100_000;

/// What a key pair is for, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyOf {
    /// A project's, for secrets.
    Secrets(KeyOwner),
    /// A project's or a tenant's, for SSH.
    Ssh(SshOwner),
}

impl std::fmt::Display for KeyOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyOf::Secrets(owner) => write!(f, "project {owner}, secrets"),
            KeyOf::Ssh(owner) => write!(f, "{owner}, SSH"),
        }
    }
}

impl KeyOf {
    /// The place in Zuul's ZooKeeper.
    pub fn place(&self) -> String {
        let project = |owner: &KeyOwner, kind: &str| {
            let prefix = owner.project.split('/').next().unwrap_or_default();
            format!("/keystorage/{}/{prefix}/{}/{kind}", owner.connection, quoted(&owner.project))
        };
        match self {
            KeyOf::Secrets(owner) => project(owner, "secrets"),
            KeyOf::Ssh(SshOwner::Project(owner)) => project(owner, "ssh"),
            KeyOf::Ssh(SshOwner::Tenant(tenant)) => format!("/keystorage2/tenant/{}/ssh", quoted(tenant)),
        }
    }

    /// What a place is for; `None` for one that Zuul does not have.
    pub fn at(place: &str) -> Option<KeyOf> {
        let parts: Vec<&str> = place.split('/').collect();
        match parts.as_slice() {
            ["", "keystorage2", "tenant", tenant, "ssh"] => Some(KeyOf::Ssh(SshOwner::Tenant(unquoted(tenant)?))),
            ["", "keystorage", connection, prefix, project, kind] => {
                let owner = KeyOwner::new(*connection, unquoted(project)?);
                if owner.project.split('/').next() != Some(prefix) {
                    return None;
                }
                match *kind {
                    "secrets" => Some(KeyOf::Secrets(owner)),
                    "ssh" => Some(KeyOf::Ssh(SshOwner::Project(owner))),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// A key pair that the site has.
#[derive(Clone, Debug)]
pub struct KnownPair {
    /// Whose.
    pub of: KeyOf,
    /// Whether it is a former one.
    pub former: bool,
    /// Its size in bits.
    pub bits: usize,
    /// What tells it from others; see [`ProjectKey::fingerprint`].
    pub fingerprint: String,
    /// When its file was written, in seconds since 1970.
    pub written: i64,
}

/// What one place of an export comes to.
#[derive(Debug)]
pub struct Place {
    /// As it stands there.
    pub name: String,
    /// Its keys, still under the password, or why there are none.
    pub keys: Result<(KeyOf, Vec<String>), String>,
}

/// Reads an export.
///
/// # Errors
/// It is none, or has more than [`MAX_PLACES`]; what is wrong with one place is told there.
pub fn read_export(text: &str) -> Result<Vec<Place>, KeyringError> {
    let wrong = |why: String| KeyringError::Exchange { why };
    let document: Value = serde_json::from_str(text).map_err(|error| wrong(format!("it is no JSON: {error}")))?;
    let keys = document.get("keys").and_then(Value::as_object);
    let keys = keys.ok_or_else(|| wrong("there is no dictionary `keys` at its top".to_owned()))?;
    if keys.len() > MAX_PLACES {
        return Err(wrong(format!("it has {} keys, above the limit of {MAX_PLACES}", keys.len())));
    }
    Ok(keys.iter().map(|(name, data)| Place { name: name.clone(), keys: place(name, data) }).collect())
}

fn place(name: &str, data: &Value) -> Result<(KeyOf, Vec<String>), String> {
    let of = KeyOf::at(name).ok_or("Zuul keeps no keys of projects or tenants there: it is left out")?;
    if data.get("schema").and_then(Value::as_u64) != Some(1) {
        return Err("its `schema` is not 1: a newer Zuul has written it".to_owned());
    }
    let keys = data.get("keys").and_then(Value::as_array).ok_or("it has no list `keys`")?;
    let most = usize::try_from(MAX_FORMER).unwrap_or(usize::MAX).saturating_add(1);
    if keys.is_empty() || keys.len() > most {
        return Err(format!("it has {} keys; one that is used and up to {MAX_FORMER} former ones may be", keys.len()));
    }
    let text = |key: &Value| key.get("private_key").and_then(Value::as_str).map(str::to_owned);
    let pems: Option<Vec<String>> = keys.iter().map(text).collect();
    pems.map(|pems| (of, pems)).ok_or_else(|| "one of its keys has no text `private_key`".to_owned())
}

/// Keys as text, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The document.
    pub text: String,
    /// How many projects have a key for secrets in it.
    pub secrets: usize,
    /// How many former keys are in it.
    pub former: usize,
    /// How many projects and tenants have an SSH key in it.
    pub ssh: usize,
}

impl Keyring {
    /// All key pairs of projects and tenants, in the order of their owners, former ones behind the one in use.
    ///
    /// # Errors
    /// A file cannot be read or is damaged.
    pub fn key_pairs(&self) -> Result<Vec<KnownPair>, KeyringError> {
        let mut pairs = Vec::new();
        for owner in self.owners()? {
            match &owner {
                KeyOf::Secrets(project) => {
                    let keys = self.project_keys(project)?;
                    let current = keys.current.as_ref().map(|key| key.fingerprint());
                    for key in keys.all() {
                        let (fingerprint, written) = (key.fingerprint(), key.file.written());
                        let former = current.as_ref() != Some(&fingerprint);
                        pairs.push(KnownPair { of: owner.clone(), former, bits: key.bits(), fingerprint, written });
                    }
                }
                KeyOf::Ssh(ssh) => {
                    if let Some(key) = self.known_ssh_key(ssh)? {
                        let (fingerprint, written) = (key.fingerprint(), key.file().written());
                        pairs.push(KnownPair {
                            of: owner.clone(),
                            former: false,
                            bits: key.bits(),
                            fingerprint,
                            written,
                        });
                    }
                }
            }
        }
        Ok(pairs)
    }

    /// Whose key pairs there are, in order.
    fn owners(&self) -> Result<BTreeSet<KeyOf>, KeyringError> {
        let mut owners = BTreeSet::new();
        for path in files::list(self.dir())? {
            let Some((text, ..)) = files::read(&path)? else { continue };
            let mut lines = text.lines();
            let pair = matches!(lines.next(), Some(head) if head == ProjectKey::HEAD || head == SshKey::HEAD);
            let name = lines.next().and_then(|id| id.rsplit_once('@')).map(|(name, _)| name);
            owners.extend(name.filter(|_| pair).and_then(owner_of));
        }
        Ok(owners)
    }

    /// All key pairs of projects and tenants as Zuul imports them, each under this password.
    ///
    /// # Errors
    /// A file cannot be read or is damaged: an export without one key would be taken for whole.
    pub fn export_keys(&self, password: &KeystorePassword) -> Result<Export, KeyringError> {
        let _still = self.still()?;
        let (mut export, mut places) = (Export::default(), Map::new());
        for owner in self.owners()? {
            let keys = match &owner {
                KeyOf::Secrets(project) => {
                    let keys = self.project_keys(project)?;
                    // Zuul takes the first: former ones alone are not for it.
                    let Some(current) = &keys.current else { continue };
                    let current = current.fingerprint();
                    let mut list = Vec::new();
                    for key in keys.all() {
                        if list.is_empty() || key.fingerprint() != current {
                            list.push((under_password::write(&key.private, password)?, key.file.written()));
                        }
                    }
                    export.secrets += 1;
                    export.former += list.len().saturating_sub(1);
                    list
                }
                KeyOf::Ssh(ssh) => {
                    let Some(key) = self.known_ssh_key(ssh)? else { continue };
                    export.ssh += 1;
                    vec![(under_password::write(&key.private, password)?, key.file().written())]
                }
            };
            // The newest has the highest number, as it would have in Zuul.
            let last = keys.len().saturating_sub(1);
            let keys: Vec<Value> = keys
                .into_iter()
                .enumerate()
                .map(|(at, (pem, created))| json!({"version": last - at, "created": created, "private_key": pem}))
                .collect();
            let _ = places.insert(owner.place(), json!({"schema": 1, "keys": keys}));
        }
        export.text = json!({"keys": places}).to_string();
        export.text.push('\n');
        Ok(export)
    }

    /// Takes over what stands at one place of an export. Whoever has a key already keeps it, unless `replace` is set.
    ///
    /// # Errors
    /// The password does not open it, it is no such key, there is another one already, or trouble with a file. Nothing has
    /// changed then, but that former keys may have been taken over.
    pub fn import_place(
        &self,
        of: &KeyOf,
        pems: &[String],
        password: &KeystorePassword,
        replace: bool,
    ) -> Result<TakenOver, KeyringError> {
        let keys: Result<Vec<_>, KeyringError> = pems.iter().map(|pem| under_password::read(pem, password)).collect();
        let keys = keys?;
        let Some((current, former)) = keys.split_first() else {
            return Err(KeyringError::Missing { owner: of.to_string() });
        };
        let _still = self.changing()?;
        match of {
            KeyOf::Secrets(owner) => self.take_over(owner, current, &former.iter().collect::<Vec<_>>(), replace),
            KeyOf::Ssh(owner) => Ok(self.put_pair::<SshKey>(&owner.name()?, &owner.to_string(), current, replace)?.0),
        }
    }
}

/// Whose the key pair is whose file has this name.
fn owner_of(name: &str) -> Option<KeyOf> {
    let (kind, rest) = name.split_once('/')?;
    let project = || rest.split_once('/').map(|(connection, project)| KeyOwner::new(connection, project));
    match kind {
        "project-key" => Some(KeyOf::Secrets(project()?)),
        "project-ssh-key" => Some(KeyOf::Ssh(SshOwner::Project(project()?))),
        "tenant-ssh-key" => Some(KeyOf::Ssh(SshOwner::Tenant(rest.to_owned()))),
        _ if kind.starts_with(FORMER) => Some(KeyOf::Secrets(project()?)),
        _ => None,
    }
}

/// Quoted as in a form of the web: Python's `quote_plus`.
fn quoted(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What [`quoted`] made; `None` where it cannot have made this.
fn unquoted(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let name = String::from_utf8(bytes).ok()?;
    (quoted(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::former::slot;

    #[test]
    fn places_are_those_of_zuul() {
        let project = |name: &str| KeyOwner::new("gerrit", name);
        for (of, place) in [
            (KeyOf::Secrets(project("org/app")), "/keystorage/gerrit/org/org%2Fapp/secrets"),
            (KeyOf::Secrets(project("app")), "/keystorage/gerrit/app/app/secrets"),
            (KeyOf::Ssh(SshOwner::Project(project("a b/ü~c/d"))), "/keystorage/gerrit/a b/a+b%2F%C3%BC~c%2Fd/ssh"),
            (KeyOf::Ssh(SshOwner::Tenant("x/y z".into())), "/keystorage2/tenant/x%2Fy+z/ssh"),
        ] {
            assert_eq!(of.place(), place);
            assert_eq!(KeyOf::at(place), Some(of));
        }
        for place in [
            "",
            "/keystorage",
            "/keystorage/gerrit/org/org%2Fapp/other",
            "/keystorage/gerrit/else/org%2Fapp/secrets",
            "/keystorage/gerrit/org/org%2/secrets",
            "/keystorage/gerrit/org/org%FFapp/secrets",
            "/keystorage2/project/x/ssh",
            "/keystorage-oidc/RS256",
            "keystorage/gerrit/org/org%2Fapp/secrets",
        ] {
            assert_eq!(KeyOf::at(place), None, "{place}");
        }
    }

    #[test]
    fn owners_are_known_by_the_names_of_their_files() {
        let owner = KeyOwner::new("gerrit", "org/app");
        let ssh = [SshOwner::Project(owner.clone()), SshOwner::Tenant("a/b".into())];
        assert_eq!(owner_of(&owner.name().unwrap()), Some(KeyOf::Secrets(owner.clone())));
        assert_eq!(owner_of(&slot(&owner, 3).unwrap()), Some(KeyOf::Secrets(owner)));
        for ssh in ssh {
            assert_eq!(owner_of(&ssh.name().unwrap()), Some(KeyOf::Ssh(ssh)));
        }
        assert_eq!(owner_of("signing-key/site"), None);
    }
}
