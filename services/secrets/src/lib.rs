//! Keys outside the log, and what they seal.
//!
//! What may have to disappear (names and addresses of persons, commit and review texts, `secret_data`, raw intake
//! bodies) enters the log as a [`gatelog_record::Sealed`]. The keys lie in the site's `keys/` directory, one for each
//! [`Scope`], and only they are ever deleted: [`Keyring::forget`] makes everything sealed for that scope unreadable,
//! and the log stays whole.
//!
//! # Files
//!
//! Every file is readable by its owner alone (mode 0600, directory 0700).
//!
//! - `master.key`: 32 bytes from the system's random source, as hex; made on first use. It seals the other files.
//!   Whoever has a copy of the directory without it has nothing; a backup of the site must carry it, and one that is
//!   to be given away must not.
//! - `<hash of the scope>.key`: one scope's key, sealed under the master key.
//! - `<hash of connection and project>.key`: a project's RSA key pair, sealed under the master key. Nothing but the
//!   loss of this file makes the secrets in that project's repository unreadable; only
//!   [`Keyring::delete_project_keys`] deletes it.
//! - `<hash of connection, project and a number>.key`: a key pair that the project had before, which still deciphers;
//!   sealed likewise, and deleted by [`Keyring::retire_project_key`].
//! - `<hash of the owner>.key`: the SSH key pair of a project or tenant, sealed likewise.
//! - `<hash of "signing-key/site">.key`: the key pair the site signs checkpoints and exports of its log with, sealed
//!   likewise.
//! - `<hash of "token-keys/RS256">.key`: the key pairs that tokens of jobs are signed with, sealed likewise.
//! - `imported/`: what `gatelog keys import` asks of the process that owns the gate; nothing secret.
//!
//! A file whose name ends in `.new` was left by a process that died while it made a key. It is sealed like the others,
//! nobody reads it, and it can be deleted.
//!
//! Deleting a key deletes a file: until the file system has overwritten the blocks, somebody who has the disk *and*
//! the master key might get it back.
//!
//! # Secrets in repositories
//!
//! People encrypt them with the public half of a project's key ([`Keyring::project_key`], made when it is first asked
//! for) as Zuul has it: RSA-OAEP in chunks. [`ProjectKeys::decipher`] is for the one who hands them to a playbook, and
//! for the one who says beforehand whether that will do; what goes wrong is told in the same words, whatever it was.
//!
//! # People
//!
//! What stands behind an [`gatelog_record::ActorId`] is kept beside the keys ([`Keyring::introduce`]), sealed under the
//! master key, and can be forgotten like a key; the log has the id alone.
//!
//! Sealing is XChaCha20-Poly1305 with a random nonce of 24 bytes; the key's id is bound into every ciphertext.

mod cipher;
mod error;
mod exchange;
mod files;
mod former;
mod keyring;
mod oaep;
mod pairs;
mod people;
mod project_key;
mod scope;
mod signing;
mod signing_key;
mod ssh_key;
mod token_keys;
mod under_password;

pub use cipher::Plaintext;
pub use error::{EncipherError, KeyringError, Undecipherable};
pub use exchange::{Export, KeyOf, KnownPair, MAX_PLACES, Place, read_export};
pub use former::{Copied, MAX_FORMER, ProjectKeys, Rotated};
pub use keyring::{Keyring, MAX_PLAINTEXT, Still, Unsealed};
pub use oaep::{MAX_CHUNKS, encipher};
pub use pairs::TakenOver;
pub use project_key::{KeyOwner, ProjectKey};
pub use scope::Scope;
pub use signing::{Hs256, NoPublicKey, Rs256};
pub use signing_key::SigningKey;
pub use ssh_key::{SshKey, SshOwner};
pub use token_keys::{TOKEN_ALGORITHM, TokenClock};
pub use under_password::KeystorePassword;
