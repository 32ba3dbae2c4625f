//! Key pairs of a site: made once, taken over from elsewhere, read again when their files change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rsa::RsaPrivateKey;

use crate::error::KeyringError;
use crate::files::{self, Identity};
use crate::keyring::{KEPT, Keyring};
use crate::project_key::{self, BITS, KeyOwner, ProjectKey};
use crate::signing_key::{SIGNING_BITS, SIGNING_NAME, SigningKey};
use crate::ssh_key::{SSH_BITS, SshKey, SshOwner};

/// What kinds of key pairs have in common.
pub(crate) trait Pair: Sized {
    /// How their files begin.
    const HEAD: &str;
    /// From what stands in a file; `None` when that cannot be one.
    fn of(private: RsaPrivateKey, file: Identity) -> Option<Self>;
    fn private(&self) -> &RsaPrivateKey;
    fn file(&self) -> Identity;
    fn kept(keyring: &Keyring) -> &Mutex<BTreeMap<String, Arc<Self>>>;
}

/// What became of a key pair that was made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenOver {
    /// There was none before.
    New,
    /// It is the one that was there.
    There,
    /// It is in the place of another one.
    Replaced,
}

/// Key pairs of projects, for secrets.
impl Keyring {
    /// A project's key pair, made if there is none: that takes a processor for seconds, so call it where that harms
    /// nobody. However many ask at once, in whatever processes, all get the same.
    ///
    /// # Errors
    /// A name that cannot have a key, or trouble with its file.
    pub fn project_key(&self, owner: &KeyOwner) -> Result<Arc<ProjectKey>, KeyringError> {
        self.pair(&owner.name()?, BITS)
    }

    /// A project's key pair, if there is one: nothing can have been encrypted for a project without.
    ///
    /// # Errors
    /// A name that cannot have a key, or trouble with its file.
    pub fn known_project_key(&self, owner: &KeyOwner) -> Result<Option<Arc<ProjectKey>>, KeyringError> {
        self.known_pair(&owner.name()?)
    }

    /// Takes over a project's key pair that was made elsewhere: a private key in PEM, PKCS#8 or PKCS#1, without a
    /// password. `replace`: in place of the one there is, which makes everything encrypted for that undecipherable.
    /// At every moment, whatever dies, there is the one or the other.
    ///
    /// # Errors
    /// No such key in `pem`, a project that has a key already, a name that cannot have one, trouble with its file.
    pub fn import_project_key(
        &self,
        owner: &KeyOwner,
        pem: &str,
        replace: bool,
    ) -> Result<Arc<ProjectKey>, KeyringError> {
        self.import_pair(&owner.name()?, &owner.to_string(), pem, replace)
    }

    /// The same, for who wants to know what came of it.
    ///
    /// # Errors
    /// As with [`Keyring::import_project_key`].
    pub fn take_project_key(&self, owner: &KeyOwner, pem: &str, replace: bool) -> Result<TakenOver, KeyringError> {
        let private = project_key::read_pem(pem)?;
        let _still = self.changing()?;
        Ok(self.put_pair::<ProjectKey>(&owner.name()?, &owner.to_string(), &private, replace)?.0)
    }
}

/// SSH key pairs of projects and tenants.
impl Keyring {
    /// Somebody's SSH key pair, made if there is none; see [`Keyring::project_key`].
    ///
    /// # Errors
    /// A name that cannot have a key, or trouble with its file.
    pub fn ssh_key(&self, owner: &SshOwner) -> Result<Arc<SshKey>, KeyringError> {
        self.pair(&owner.name()?, SSH_BITS)
    }

    /// Somebody's SSH key pair, if there is one: nobody can have let in one whose public half was never shown.
    ///
    /// # Errors
    /// A name that cannot have a key, or trouble with its file.
    pub fn known_ssh_key(&self, owner: &SshOwner) -> Result<Option<Arc<SshKey>>, KeyringError> {
        self.known_pair(&owner.name()?)
    }

    /// Takes over an SSH key pair that was made elsewhere, such as by Zuul; see [`Keyring::import_project_key`].
    ///
    /// # Errors
    /// No such key in `pem`, somebody who has a key already, a name that cannot have one, trouble with its file.
    pub fn import_ssh_key(&self, owner: &SshOwner, pem: &str, replace: bool) -> Result<Arc<SshKey>, KeyringError> {
        self.import_pair(&owner.name()?, &owner.to_string(), pem, replace)
    }
}

/// The key pair a site signs with.
impl Keyring {
    /// The site's key pair for signing, made if there is none; see [`Keyring::project_key`].
    ///
    /// # Errors
    /// Trouble with its file.
    pub fn signing_key(&self) -> Result<Arc<SigningKey>, KeyringError> {
        self.pair(SIGNING_NAME, SIGNING_BITS)
    }

    /// The site's key pair for signing, if there is one: nothing can have been signed without.
    ///
    /// # Errors
    /// Trouble with its file.
    pub fn known_signing_key(&self) -> Result<Option<Arc<SigningKey>>, KeyringError> {
        self.known_pair(SIGNING_NAME)
    }
}

impl Keyring {
    fn pair<P: Pair>(&self, name: &str, bits: usize) -> Result<Arc<P>, KeyringError> {
        if let Some(key) = self.known_pair(name)? {
            return Ok(key);
        }
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = self.known_pair(name)? {
            return Ok(key);
        }
        let der = project_key::der(&project_key::generate(bits)?)?;
        let path = self.path(name);
        // Where another process was first, its key stays and this one is forgotten.
        files::create(&path, &self.seal_file(P::HEAD, name, &der)?)?;
        self.known_pair(name)?.ok_or(KeyringError::KeyFile { path, what: "it vanished as soon as it was made" })
    }

    pub(crate) fn known_pair<P: Pair>(&self, name: &str) -> Result<Option<Arc<P>>, KeyringError> {
        let path = self.path(name);
        let mut kept = P::kept(self).lock().unwrap_or_else(PoisonError::into_inner);
        // The file decides: another process may have put another key there.
        let Some(identity) = files::identity(&path)? else {
            kept.remove(name);
            return Ok(None);
        };
        if let Some(key) = kept.get(name).filter(|key| key.file() == identity) {
            return Ok(Some(Arc::clone(key)));
        }
        kept.remove(name);
        let Some((text, _, identity)) = files::read(&path)? else { return Ok(None) };
        let (_, der) = self.open_file(P::HEAD, name, &path, &text)?;
        let what = "there is no RSA key in it";
        let read = project_key::read_der(&der).and_then(|private| P::of(private, identity));
        let key = Arc::new(read.ok_or(KeyringError::KeyFile { path, what })?);
        if kept.len() >= KEPT {
            kept.pop_first();
        }
        kept.insert(name.to_owned(), Arc::clone(&key));
        Ok(Some(key))
    }

    fn import_pair<P: Pair>(&self, name: &str, owner: &str, pem: &str, replace: bool) -> Result<Arc<P>, KeyringError> {
        let private = project_key::read_pem(pem)?;
        let _still = self.changing()?;
        let (_, key) = self.put_pair(name, owner, &private, replace)?;
        Ok(key)
    }

    /// Puts a pair in its place. Whoever calls this holds [`Keyring::changing`].
    pub(crate) fn put_pair<P: Pair>(
        &self,
        name: &str,
        owner: &str,
        private: &RsaPrivateKey,
        replace: bool,
    ) -> Result<(TakenOver, Arc<P>), KeyringError> {
        let taken = || KeyringError::Taken { owner: owner.to_owned() };
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Option<Arc<P>> = match self.known_pair(name) {
            // It is about to be replaced.
            Err(KeyringError::KeyFile { .. }) if replace => None,
            known => known?,
        };
        if let Some(known) = known.filter(|known| known.private() == private) {
            return Ok((TakenOver::There, known));
        }
        let path = self.path(name);
        let text = self.seal_file(P::HEAD, name, &project_key::der(private)?)?;
        let done = match (files::identity(&path)?, replace) {
            (Some(_), false) => return Err(taken()),
            (Some(_), true) => files::replace(&path, &text).map(|()| TakenOver::Replaced)?,
            (None, _) => files::create(&path, &text).map(|()| TakenOver::New)?,
        };
        // Another process may have made one in between.
        let key = self.known_pair(name)?.filter(|key: &Arc<P>| key.private() == private).ok_or_else(taken)?;
        Ok((done, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small keys, for it is not their strength that is looked at.
    const SMALL: usize = 1024;

    #[test]
    fn however_many_ask_for_a_new_key_at_once_all_get_the_same() {
        let site = tempfile::tempdir().unwrap();
        let (one, two) = (Keyring::open_dir(site.path()).unwrap(), Keyring::open_dir(site.path()).unwrap());
        let owner = KeyOwner::new("forge", "org/app");
        let mut seen: Vec<String> = std::thread::scope(|scope| {
            // Each keyring stands for a process: they share the directory and nothing else.
            let ask = |keyring| {
                let owner = &owner;
                scope.spawn(move || {
                    Keyring::pair::<ProjectKey>(keyring, &owner.name().unwrap(), SMALL).unwrap().public_pem().to_owned()
                })
            };
            let all: Vec<_> = [&one, &two, &one, &two].into_iter().map(ask).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:?}");
        let again = Keyring::open_dir(site.path()).unwrap().known_project_key(&owner).unwrap().unwrap();
        assert_eq!((again.public_pem(), again.bits()), (seen[0].as_str(), SMALL));
        let lib = one.pair::<ProjectKey>(&KeyOwner::new("forge", "org/lib").name().unwrap(), SMALL).unwrap();
        assert_ne!(lib.public_pem(), seen[0], "each project has its own");
        let here = std::fs::read_dir(site.path()).unwrap().count();
        assert_eq!(here, 3, "the master key, a key for each project, nothing left over");
        assert_eq!((BITS, SSH_BITS), (4096, 2048), "what a site makes is as large as in Zuul");
    }
}
