//! What can go wrong with keys.

use std::path::PathBuf;

/// Why a keyring cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// A file or the directory could not be read or written.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried, such as `read`.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
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
}
