//! Former key pairs of projects: they are given to nobody any more, and still open what was encrypted for them.
//!
//! At every moment, whatever dies, there is for each secret the key that it was encrypted for:
//!
//! - a key becomes a former one before another takes its place, so that for a moment it is both;
//! - who deciphers looks for the key in use first and for former ones after that;
//! - whoever changes key pairs holds off others who would, and copies of the directory ([`Keyring::still`]).

use std::sync::Arc;

use rsa::RsaPrivateKey;

use crate::cipher::Plaintext;
use crate::error::{KeyringError, Undecipherable};
use crate::files;
use crate::keyring::Keyring;
use crate::pairs::TakenOver;
use crate::project_key::{self, BITS, KeyOwner, ProjectKey};
use crate::ssh_key::{SshKey, SshOwner};

/// How many former keys a project may have. Each is tried on whatever does not decipher.
pub const MAX_FORMER: u32 = 4;

/// All key pairs of a project that decipher.
#[derive(Clone, Debug, Default)]
pub struct ProjectKeys {
    /// The one that is given out and encrypted for.
    pub current: Option<Arc<ProjectKey>>,
    /// Former ones, in no particular order.
    pub former: Vec<Arc<ProjectKey>>,
}

impl ProjectKeys {
    /// All of them, the current one first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ProjectKey>> {
        self.current.iter().chain(&self.former)
    }

    /// The clear text of one encrypted part of a secret, by whichever key it was encrypted for.
    ///
    /// # Errors
    /// One for all reasons, as with [`ProjectKey::decipher`].
    pub fn decipher(&self, chunks: &[String]) -> Result<Plaintext, Undecipherable> {
        self.all().find_map(|key| key.decipher(chunks).ok()).ok_or(Undecipherable)
    }
}

/// What a rotation came to.
#[derive(Clone, Debug)]
pub struct Rotated {
    /// The new pair.
    pub current: Arc<ProjectKey>,
    /// The one it took the place of.
    pub former: Arc<ProjectKey>,
}

/// What a project's keys were copied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The pair for secrets; `None` where the source has none.
    pub secrets: Option<TakenOver>,
    /// How many former pairs came with it.
    pub former: usize,
    /// The SSH key; `None` where the source has none.
    pub ssh: Option<TakenOver>,
}

/// The name under which the file of a project's former key is found.
pub(crate) fn slot(owner: &KeyOwner, number: u32) -> Result<String, KeyringError> {
    owner.name_of(&format!("{FORMER}{number}"))
}

/// How the names of former keys begin; a number from 1 on follows.
pub(crate) const FORMER: &str = "former-project-key-";

impl Keyring {
    /// All key pairs of a project that decipher; none is made.
    ///
    /// # Errors
    /// A name that cannot have a key, or trouble with a file.
    pub fn project_keys(&self, owner: &KeyOwner) -> Result<ProjectKeys, KeyringError> {
        // In this order: one that is replaced meanwhile is among the former ones by then.
        let current = self.known_project_key(owner)?;
        let former = self.former(owner)?.into_iter().map(|(_, key)| key).collect();
        Ok(ProjectKeys { current, former })
    }

    /// A new key pair for a project that has one, which becomes a former one. Takes a processor for seconds.
    ///
    /// # Errors
    /// The project has no key, or as many former ones as it may; a name that cannot have one; trouble with a file.
    pub fn rotate_project_key(&self, owner: &KeyOwner) -> Result<Rotated, KeyringError> {
        self.rotate(owner, BITS)
    }

    fn rotate(&self, owner: &KeyOwner, bits: usize) -> Result<Rotated, KeyringError> {
        let name = owner.name()?;
        // Said before seconds are spent.
        let missing = || KeyringError::Missing { owner: owner.to_string() };
        let _ = self.known_project_key(owner)?.ok_or_else(missing)?;
        let new = project_key::generate(bits)?;
        let _still = self.changing()?;
        let former = self.known_project_key(owner)?.ok_or_else(missing)?;
        self.keep_former(owner, &former.private)?;
        let (_, current) = self.put_pair(&name, &owner.to_string(), &new, true)?;
        Ok(Rotated { current, former })
    }

    /// Deletes a former key of a project, by its fingerprint, or all of them (`None`): what was encrypted for it is
    /// undecipherable from then on. The fingerprints of those that were deleted.
    ///
    /// # Errors
    /// There is no such former key; trouble with a file.
    pub fn retire_project_key(&self, owner: &KeyOwner, which: Option<&str>) -> Result<Vec<String>, KeyringError> {
        let _still = self.changing()?;
        let mut retired = Vec::new();
        for (number, key) in self.former(owner)? {
            let fingerprint = key.fingerprint();
            if which.is_none_or(|which| which == fingerprint) {
                let _ = files::delete(&self.path(&slot(owner, number)?))?;
                retired.push(fingerprint);
            }
        }
        if retired.is_empty() {
            let what = which.map(|which| format!(" {which}")).unwrap_or_default();
            return Err(KeyringError::Missing { owner: format!("{owner} (former keys{what})") });
        }
        Ok(retired)
    }

    /// Deletes a project's key pairs: those for secrets, with former ones, and the SSH key. How many there were.
    ///
    /// # Errors
    /// The project has none; trouble with a file.
    pub fn delete_project_keys(&self, owner: &KeyOwner) -> Result<usize, KeyringError> {
        let _still = self.changing()?;
        let ssh = SshOwner::Project(owner.clone()).name()?;
        // Files that are damaged go, too. The key in use goes last of those for secrets: with it the project would pass
        // for one that never had a key.
        let former: Result<Vec<String>, KeyringError> = (1..=MAX_FORMER).map(|number| slot(owner, number)).collect();
        let mut deleted = 0;
        for name in former?.into_iter().chain([owner.name()?, ssh]) {
            deleted += usize::from(files::delete(&self.path(&name))?);
        }
        if deleted == 0 { Err(KeyringError::Missing { owner: owner.to_string() }) } else { Ok(deleted) }
    }

    /// Gives a project the key pairs of another, such as one that was renamed: those for secrets, with former ones, and the
    /// SSH key. The other keeps its own. `replace`: in place of those there are, as with
    /// [`Keyring::import_project_key`]. Nothing is changed where one of them may not be replaced.
    ///
    /// # Errors
    /// The source has no key; the other has one already; too many former keys; trouble with a file.
    pub fn copy_project_keys(&self, from: &KeyOwner, to: &KeyOwner, replace: bool) -> Result<Copied, KeyringError> {
        let _still = self.changing()?;
        let keys = self.project_keys(from)?;
        let ssh_of = |owner: &KeyOwner| SshOwner::Project(owner.clone());
        let ssh: Option<Arc<SshKey>> = self.known_ssh_key(&ssh_of(from))?;
        if keys.current.is_none() && ssh.is_none() {
            return Err(KeyringError::Missing { owner: from.to_string() });
        }
        if !replace {
            let (own, own_ssh) = (self.known_project_key(to)?, self.known_ssh_key(&ssh_of(to))?);
            let other =
                |own: Option<&RsaPrivateKey>, new: Option<&RsaPrivateKey>| own.is_some() && new.is_some() && own != new;
            let secrets = other(own.as_ref().map(|key| &key.private), keys.current.as_ref().map(|key| &key.private));
            if secrets || other(own_ssh.as_ref().map(|key| &key.private), ssh.as_ref().map(|key| &key.private)) {
                return Err(KeyringError::Taken { owner: to.to_string() });
            }
        }
        let mut copied = Copied::default();
        if let Some(current) = &keys.current {
            let former: Vec<&RsaPrivateKey> = keys.former.iter().map(|key| &key.private).collect();
            copied.former = former.len();
            copied.secrets = Some(self.take_over(to, &current.private, &former, replace)?);
        }
        if let Some(ssh) = ssh {
            let owner = ssh_of(to);
            copied.ssh = Some(self.put_pair::<SshKey>(&owner.name()?, &owner.to_string(), &ssh.private, replace)?.0);
        }
        Ok(copied)
    }

    /// Puts a project's key with its former ones into their places. Whoever calls this holds [`Keyring::changing`].
    pub(crate) fn take_over(
        &self,
        owner: &KeyOwner,
        current: &RsaPrivateKey,
        former: &[&RsaPrivateKey],
        replace: bool,
    ) -> Result<TakenOver, KeyringError> {
        let name = owner.name()?;
        // A former key of another's would only hide that nothing else was taken over.
        if !replace && self.known_project_key(owner)?.is_some_and(|known| known.private != *current) {
            return Err(KeyringError::Taken { owner: owner.to_string() });
        }
        for former in former.iter().filter(|former| **former != current) {
            self.keep_former(owner, former)?;
        }
        Ok(self.put_pair::<ProjectKey>(&name, &owner.to_string(), current, replace)?.0)
    }

    /// A project's former keys and where they are.
    fn former(&self, owner: &KeyOwner) -> Result<Vec<(u32, Arc<ProjectKey>)>, KeyringError> {
        let mut former = Vec::new();
        for number in 1..=MAX_FORMER {
            // An owner whose name leaves no room for the number has none.
            let Ok(name) = slot(owner, number) else { break };
            former.extend(self.known_pair::<ProjectKey>(&name)?.map(|key| (number, key)));
        }
        Ok(former)
    }

    /// Makes a key one of a project's former ones, durably.
    fn keep_former(&self, owner: &KeyOwner, private: &RsaPrivateKey) -> Result<(), KeyringError> {
        let known = self.former(owner)?;
        // One that died between this and the key's being replaced has left it there.
        if known.iter().any(|(_, key)| key.private == *private) {
            return Ok(());
        }
        let free = (1..=MAX_FORMER).find(|number| known.iter().all(|(taken, _)| taken != number));
        let full = || KeyringError::Former { owner: owner.to_string(), most: MAX_FORMER };
        let name = slot(owner, free.ok_or_else(full)?)?;
        let _ = self.put_pair::<ProjectKey>(&name, &owner.to_string(), private, false)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encipher;

    /// Small keys, for it is not their strength that is looked at.
    const SMALL: usize = 1024;

    fn site() -> (tempfile::TempDir, Keyring, KeyOwner) {
        let site = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_dir(site.path()).unwrap();
        let owner = KeyOwner::new("forge", "org/app");
        let key = project_key::generate(SMALL).unwrap();
        let _ = keyring.put_pair::<ProjectKey>(&owner.name().unwrap(), "", &key, false).unwrap();
        (site, keyring, owner)
    }

    fn secret(keyring: &Keyring, owner: &KeyOwner, text: &str) -> Vec<String> {
        encipher(keyring.known_project_key(owner).unwrap().unwrap().public_pem(), text).unwrap()
    }

    fn opens(keyring: &Keyring, owner: &KeyOwner, chunks: &[String]) -> Option<String> {
        let clear = keyring.project_keys(owner).unwrap().decipher(chunks).ok()?;
        clear.as_str().map(str::to_owned)
    }

    #[test]
    fn a_former_key_deciphers_until_it_is_retired_and_nothing_is_encrypted_for_it() {
        let (site, keyring, owner) = site();
        let old = secret(&keyring, &owner, "old");
        // Another process sees it as well.
        let other = Keyring::open_dir(site.path()).unwrap();
        let first = keyring.rotate(&owner, SMALL).unwrap();
        assert_ne!(first.current.public_pem(), first.former.public_pem());
        assert_eq!(other.project_key(&owner).unwrap().public_pem(), first.current.public_pem(), "it is given out");
        let new = secret(&other, &owner, "new");
        for keyring in [&keyring, &other] {
            assert_eq!(opens(keyring, &owner, &old).as_deref(), Some("old"));
            assert_eq!(opens(keyring, &owner, &new).as_deref(), Some("new"));
        }
        assert!(opens(&keyring, &KeyOwner::new("forge", "org/lib"), &old).is_none(), "not another project's");
        assert!(keyring.retire_project_key(&owner, Some(&first.current.fingerprint())).is_err(), "it is in use");
        let retired = other.retire_project_key(&owner, Some(&first.former.fingerprint())).unwrap();
        assert_eq!(retired, [first.former.fingerprint()]);
        assert_eq!((opens(&keyring, &owner, &old), opens(&keyring, &owner, &new).as_deref()), (None, Some("new")));
        assert!(matches!(keyring.retire_project_key(&owner, None), Err(KeyringError::Missing { .. })));
    }

    #[test]
    fn there_is_a_limit_to_former_keys_and_nothing_is_lost_at_it() {
        let (_site, keyring, owner) = site();
        let mut secrets = vec![secret(&keyring, &owner, "0")];
        for number in 1..=MAX_FORMER {
            let _ = keyring.rotate(&owner, SMALL).unwrap();
            secrets.push(secret(&keyring, &owner, &number.to_string()));
        }
        let refused = keyring.rotate(&owner, SMALL).unwrap_err();
        assert!(refused.to_string().contains("has 4 former keys, and may have no more: retire one"), "{refused}");
        for (number, secret) in secrets.iter().enumerate() {
            assert_eq!(opens(&keyring, &owner, secret), Some(number.to_string()));
        }
        assert_eq!(keyring.retire_project_key(&owner, None).unwrap().len(), 4);
        let _ = keyring.rotate(&owner, SMALL).unwrap();
        let nobody = keyring.rotate(&KeyOwner::new("forge", "nobody"), SMALL).unwrap_err();
        assert!(matches!(nobody, KeyringError::Missing { .. }), "{nobody}");
    }

    #[test]
    fn who_rotates_may_die_anywhere_and_every_secret_still_deciphers() {
        let (site, keyring, owner) = site();
        let old = secret(&keyring, &owner, "old");
        // It died after the key had become a former one, and before another took its place.
        let key = keyring.known_project_key(&owner).unwrap().unwrap();
        keyring.keep_former(&owner, &key.private).unwrap();
        assert_eq!(opens(&keyring, &owner, &old).as_deref(), Some("old"));
        // It died while it wrote the new key.
        let file = keyring.path(&owner.name().unwrap());
        std::fs::write(file.with_extension("1-0.new"), "gatelog project key 1\nhalf").unwrap();
        assert_eq!(opens(&keyring, &owner, &old).as_deref(), Some("old"));
        // The next one goes on from there, and the old key is kept once.
        let _ = keyring.rotate(&owner, SMALL).unwrap();
        assert_eq!(keyring.project_keys(&owner).unwrap().former.len(), 1);
        assert_eq!(opens(&keyring, &owner, &old).as_deref(), Some("old"));
        drop(site);
    }

    #[test]
    fn while_several_rotate_everything_that_was_ever_encrypted_deciphers_at_every_moment() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (site, keyring, owner) = site();
        let done = AtomicBool::new(false);
        let looked = std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let reader = Keyring::open_dir(site.path()).unwrap();
                let mut secrets = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    secrets.push(secret(&reader, &owner, "canary"));
                    // A backup holds off the others meanwhile.
                    let still = (secrets.len() % 5 == 0).then(|| reader.still().unwrap());
                    for secret in secrets.iter().rev().take(20) {
                        assert_eq!(opens(&reader, &owner, secret).as_deref(), Some("canary"));
                    }
                    assert!(opens(&reader, &owner, &secrets[0]).is_some(), "the first one, too");
                    drop(still);
                }
                secrets.len()
            });
            let rotating: Vec<_> = (0..2)
                .map(|_| {
                    let (site, owner) = (&site, &owner);
                    scope.spawn(move || {
                        let keyring = Keyring::open_dir(site.path()).unwrap();
                        (0..2).map(|_| keyring.rotate(owner, SMALL).unwrap().former.fingerprint()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let former: Vec<String> = rotating.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            let different: std::collections::BTreeSet<&String> = former.iter().collect();
            assert_eq!(different.len(), 4, "each took the place of another key: {former:?}");
            done.store(true, Ordering::Relaxed);
            looking.join().unwrap()
        });
        assert!(looked > 0);
        assert_eq!(keyring.project_keys(&owner).unwrap().former.len(), 4);
    }

    #[test]
    fn keys_are_copied_with_former_ones_and_deleted_with_them() {
        let (site, keyring, owner) = site();
        let renamed = KeyOwner::new("forge", "org/renamed");
        let old = secret(&keyring, &owner, "old");
        let _ = keyring.rotate(&owner, SMALL).unwrap();
        let new = secret(&keyring, &owner, "new");
        let copied = keyring.copy_project_keys(&owner, &renamed, false).unwrap();
        assert_eq!(copied, Copied { secrets: Some(TakenOver::New), former: 1, ssh: None });
        for secret in [&old, &new] {
            assert!(opens(&keyring, &owner, secret).is_some() && opens(&keyring, &renamed, secret).is_some());
        }
        let again = keyring.copy_project_keys(&owner, &renamed, false).unwrap();
        assert_eq!(again.secrets, Some(TakenOver::There), "the same once more changes nothing");
        // One that has another key keeps it, and nothing is half done.
        let third = KeyOwner::new("forge", "org/third");
        let own = project_key::generate(SMALL).unwrap();
        let _ = keyring.put_pair::<ProjectKey>(&third.name().unwrap(), "", &own, false).unwrap();
        let taken = keyring.copy_project_keys(&owner, &third, false).unwrap_err();
        assert!(matches!(taken, KeyringError::Taken { .. }), "{taken}");
        assert!(opens(&keyring, &third, &new).is_none() && opens(&keyring, &third, &old).is_none());
        assert_eq!(keyring.copy_project_keys(&owner, &third, true).unwrap().secrets, Some(TakenOver::Replaced));
        assert!(opens(&keyring, &third, &new).is_some());
        for owner in [&owner, &third] {
            assert_eq!(keyring.delete_project_keys(owner).unwrap(), 2);
            assert!(matches!(keyring.delete_project_keys(owner), Err(KeyringError::Missing { .. })));
            assert!(opens(&keyring, owner, &new).is_none());
        }
        assert!(opens(&keyring, &renamed, &old).is_some(), "a copy stands for itself");
        let left = std::fs::read_dir(site.path()).unwrap().count();
        assert_eq!(left, 3, "the master key, and what the renamed project has");
    }
}
