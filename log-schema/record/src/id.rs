//! Names for things: typed, 16 bytes, derived from the log and never from chance.
//!
//! An id is the first 16 bytes of SHA-256 over (site, generation, domain, partition, input
//! sequence, input digest, index). Deciding the same input again gives the same ids, so a retry is
//! idempotent and replay needs no generator state. The text form is 32 hex digits, as Zuul's
//! build uuids have without their dashes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::topic::Partition;

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}: expected {digits} hex digits")]
pub struct IdError {
    /// What was looked for, with its article.
    pub what: &'static str,
    /// How many digits it has.
    pub digits: usize,
    /// What was found.
    pub text: String,
}

/// Writes bytes, 32 at most, as hexadecimal text. Ids are written into every input's id and every blob's path.
fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let mut text = [0; 64];
    let text = text.get_mut(..2 * bytes.len()).ok_or(fmt::Error)?;
    hex::encode_to_slice(bytes, text).map_err(|_| fmt::Error)?;
    f.write_str(std::str::from_utf8(text).map_err(|_| fmt::Error)?)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 16]);

        // The same order as that of the bytes, in one comparison: tables are searched by these.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), hex::encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let mut bytes = [0; 16];
                hex::decode_to_slice(text.replace('-', ""), &mut bytes)
                    .map_err(|_| IdError { what: $what, digits: 32, text: text.to_owned() })?;
                Ok($name(bytes))
            }
        }

        impl From<[u8; 16]> for $name {
            fn from(bytes: [u8; 16]) -> Self {
                $name(bytes)
            }
        }
    )*};
}

ids! {
    /// One installation of gatelog; drawn once, when its log is created.
    SiteId, "a site id";
    /// One event.
    EventId, "an event id";
    /// Who asked, opaque: a person's name stands behind it under seal, if anywhere.
    ActorId, "an actor id";
    /// An entry of a pipeline's queue.
    ItemId, "an item id";
    /// One run of all jobs of an item against one state of the world ahead of it.
    BuildsetId, "a buildset id";
    /// One job of a buildset, over all its attempts.
    BuildId, "a build id";
    /// The grant of nodes, semaphores and a worker for one attempt of a build.
    LeaseId, "a lease id";
    /// What a lease is for, in its owner's own counting: only the owner knows what it names.
    SubjectId, "the id of a lease's subject";
    /// A machine or sandbox a job runs on.
    NodeId, "a node id";
    /// A piece of short work: a merge, a freeze, a report.
    WorkId, "a work id";
}

impl ActorId {
    /// gatelog itself.
    pub const SYSTEM: ActorId = ActorId([0; 16]);

    /// The opaque id of a person or account a connection names. One way: the name cannot be read
    /// back from it without the key, which stays outside the log.
    pub fn of_account(key: &[u8; 32], connection: &str, account: &str) -> ActorId {
        let mut hash = Sha256::new();
        hash.update(key);
        hash.update((connection.len() as u64).to_le_bytes());
        hash.update(connection.as_bytes());
        hash.update(account.as_bytes());
        ActorId(first_16(&hash.finalize().into()))
    }
}

/// What makes an input the same input when it is sent again (connection and delivery, build and
/// attempt and kind, an API request id, timer and due time). At most 255 bytes of text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InputId(String);

impl InputId {
    /// The longest text kept as it is, in bytes.
    pub const MAX: usize = 255;

    /// An input id from its text; one that is too long is replaced by a hash of itself, which is
    /// just as stable under a retry.
    pub fn new(text: impl Into<String>) -> InputId {
        let text = text.into();
        if text.len() <= Self::MAX {
            InputId(text)
        } else {
            InputId(format!("sha256:{}", BlobHash::of(text.as_bytes())))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InputId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 of a blob's bytes: its name in the blob store.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobHash(pub [u8; 32]);

impl BlobHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> BlobHash {
        BlobHash(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobHash({})", hex::encode(self.0))
    }
}

impl FromStr for BlobHash {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| IdError {
            what: "a blob hash",
            digits: 64,
            text: text.to_owned(),
        })?;
        Ok(BlobHash(bytes))
    }
}

/// Where ids of one decision come from: everything that names the input, and a running index.
#[derive(Clone, Debug)]
pub struct IdSource {
    base: Sha256,
    next: u32,
}

impl IdSource {
    /// The ids of the decision on one input.
    pub fn new(
        site: SiteId,
        generation: u32,
        partition: Partition,
        input_sequence: u64,
        input_digest: &[u8; 32],
    ) -> Self {
        let mut base = Sha256::new();
        base.update(site.0);
        base.update(generation.to_le_bytes());
        base.update([partition.domain as u8]);
        base.update(partition.index.to_le_bytes());
        base.update(input_sequence.to_le_bytes());
        base.update(input_digest);
        IdSource { base, next: 0 }
    }

    /// The next id of this decision.
    #[expect(clippy::should_implement_trait, reason = "each call may give an id of another type")]
    pub fn next<T: From<[u8; 16]>>(&mut self) -> T {
        let mut hash = self.base.clone();
        hash.update(self.next.to_le_bytes());
        self.next += 1;
        T::from(first_16(&hash.finalize().into()))
    }
}

fn first_16(hash: &[u8; 32]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::Domain;

    #[test]
    fn the_same_input_gives_the_same_ids_and_another_gives_others() {
        let partition = Partition { domain: Domain::Gate, index: 0 };
        let mut one = IdSource::new(SiteId([1; 16]), 1, partition, 7, &[2; 32]);
        let mut again = IdSource::new(SiteId([1; 16]), 1, partition, 7, &[2; 32]);
        let mut other = IdSource::new(SiteId([1; 16]), 2, partition, 7, &[2; 32]);
        let first: ItemId = one.next();
        assert_eq!(first, again.next());
        assert_ne!(first, other.next());
        assert_ne!(first, one.next());
    }

    #[test]
    fn a_text_that_is_no_id_says_what_was_expected() {
        let error = "xyz".parse::<BuildId>().unwrap_err();
        assert_eq!(error.to_string(), "\"xyz\" is not a build id: expected 32 hex digits");
    }

    #[test]
    fn ids_are_in_the_order_of_their_bytes() {
        let ids = [[0; 16], [1; 16], [255; 16], *b"0123456789abcdef", *b"fedcba9876543210"].map(BuildId);
        for one in ids {
            for other in ids {
                assert_eq!(one.cmp(&other), one.0.cmp(&other.0), "{one} {other}");
            }
        }
    }
}
