//! Who stands behind an actor's id.

use gatelog_record::ActorId;

use crate::error::KeyringError;
use crate::files;
use crate::keyring::Keyring;

const HEAD: &str = "gatelog person 1";
/// The longest name that is kept, in bytes; the rest of a longer one is left out.
const LONGEST: usize = 512;

fn file_of(actor: ActorId) -> String {
    format!("person-name/{actor}")
}

impl Keyring {
    /// Keeps the name of whoever has this id, in place of another one that was kept. [`Keyring::forget`] of the
    /// person's scope forgets it.
    ///
    /// # Errors
    /// Trouble with the file.
    pub fn introduce(&self, actor: ActorId, name: &str) -> Result<(), KeyringError> {
        let end = name.floor_char_boundary(LONGEST);
        let name = name.get(..end).unwrap_or_default();
        match self.name_of(actor) {
            Ok(Some(known)) if known == name => return Ok(()),
            // One that cannot be read any more is of no use to anybody.
            Ok(Some(_)) | Err(KeyringError::KeyFile { .. }) => drop(files::delete(&self.path(&file_of(actor)))?),
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        let file = file_of(actor);
        files::create(&self.path(&file), &self.seal_file(HEAD, &file, name.as_bytes())?)
    }

    /// The name of whoever has this id, if it is kept.
    ///
    /// # Errors
    /// Trouble with the file.
    pub fn name_of(&self, actor: ActorId) -> Result<Option<String>, KeyringError> {
        let file = file_of(actor);
        let path = self.path(&file);
        let Some((text, _, _)) = files::read(&path)? else { return Ok(None) };
        let (_, name) = self.open_file(HEAD, &file, &path, &text)?;
        Ok(Some(String::from_utf8_lossy(&name).into_owned()))
    }

    /// Forgets the name. Whether there was one.
    pub(crate) fn forget_name(&self, actor: ActorId) -> Result<bool, KeyringError> {
        files::delete(&self.path(&file_of(actor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Scope;

    #[test]
    fn a_name_is_kept_replaced_and_forgotten_with_the_person_and_stands_nowhere_in_clear() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keyring::open_dir(dir.path().join("keys")).unwrap();
        let ann = keys.actor("https://sso.example.org", "ann").unwrap();
        assert_eq!(keys.name_of(ann).unwrap(), None);
        keys.introduce(ann, "ann of sso").unwrap();
        keys.introduce(ann, "ann of sso").unwrap();
        assert_eq!(keys.name_of(ann).unwrap().as_deref(), Some("ann of sso"));
        keys.introduce(ann, &"ü".repeat(400)).unwrap();
        assert_eq!(keys.name_of(ann).unwrap(), Some("ü".repeat(256)));
        keys.introduce(ann, "Ann A.").unwrap();
        for entry in std::fs::read_dir(dir.path().join("keys")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert!(!text.contains("Ann"), "{text}");
        }
        let again = Keyring::open_dir(dir.path().join("keys")).unwrap();
        assert_eq!(again.name_of(ann).unwrap().as_deref(), Some("Ann A."));
        assert!(keys.forget(&Scope::Person(ann)).unwrap());
        assert_eq!(again.name_of(ann).unwrap(), None);
    }
}
