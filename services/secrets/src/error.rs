//! What can go wrong with keys.

use std::path::PathBuf;

/// Why a keyring cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// A file or the directory could not be read or written.
    #[error("cannot {doing} {path}: {why}")]
    Io {
        /// What was tried, such as `read`.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// Others than the owner may read the master key.
    #[error(
        "{path} has mode {mode:o}: others may read the master key; run chmod 600 on it, and think about who has read it"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key file is not one, or was altered, or belongs to another master key.
    #[error("{path} is damaged ({what}): restore the keys directory, with its master.key, from a backup")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// More was to be sealed than a record may hold.
    #[error("{bytes} bytes are too many to be sealed into a record (at most {most}): put them into a blob")]
    TooLarge {
        /// How many.
        bytes: usize,
        /// How many may be.
        most: usize,
    },
    /// A scope's name holds what would make key ids ambiguous.
    #[error(
        "{scope:?} cannot name a key: the name is empty, longer than {most} bytes, or holds '@' or a control character"
    )]
    Scope {
        /// The scope.
        scope: String,
        /// The longest name in bytes.
        most: usize,
    },
    /// A project's name holds what would make key files ambiguous.
    #[error(
        "{owner:?} cannot have a key: connection and project need names without control characters, of at most {most} \
         bytes together, and the connection's holds no '/'"
    )]
    Owner {
        /// The connection and the project.
        owner: String,
        /// The longest name in bytes.
        most: usize,
    },
    /// A tenant's name holds what would make key files ambiguous.
    #[error(
        "tenant {tenant:?} cannot have a key: its name is empty, longer than {most} bytes, or holds a control character"
    )]
    Tenant {
        /// The tenant.
        tenant: String,
        /// The longest name in bytes.
        most: usize,
    },
    /// A key pair could not be made.
    #[error("a key pair could not be made: {0}")]
    Make(String),
    /// A message could not be signed.
    #[error("the site's key does not sign: {0}")]
    Sign(String),
    /// What was to be taken over is no key that can be.
    #[error("the key cannot be taken over: {why}")]
    Import {
        /// What is wrong with it, and the cure.
        why: &'static str,
    },
    /// There is nothing to copy, rotate or retire.
    #[error("{owner} has no such key")]
    Missing {
        /// Whose.
        owner: String,
    },
    /// There are as many former keys as there may be.
    #[error("{owner} has {most} former keys, and may have no more: retire one that no secret needs any longer")]
    Former {
        /// Whose.
        owner: String,
        /// How many there may be.
        most: u32,
    },
    /// A file of keys is none.
    #[error("these are no keys as Zuul exports them: {why}")]
    Exchange {
        /// What is wrong, and where.
        why: String,
    },
    /// There is a key already.
    #[error("{owner} has a key already, and others may count on it: replace it only if nobody does")]
    Taken {
        /// Whose.
        owner: String,
    },
}

/// A text cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum EncipherError {
    /// That is no public key.
    #[error("this is no public RSA key in PEM: take what the API gives under key/PROJECT.pub")]
    NoKey,
    /// The text is too long.
    #[error("{bytes} bytes are too many for a secret (at most {most}): encrypt a key, and keep the rest elsewhere")]
    TooLong {
        /// How many.
        bytes: usize,
        /// How many may be.
        most: usize,
    },
    /// Something else.
    #[error("the text could not be encrypted: {0}")]
    Failed(String),
    /// No random numbers.
    #[error(transparent)]
    Random(#[from] KeyringError),
}

/// Something encrypted cannot be deciphered. The same words for every reason: they would help to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was not encrypted for this project, or is damaged")]
pub struct Undecipherable;
