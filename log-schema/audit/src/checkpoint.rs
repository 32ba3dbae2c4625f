//! Checkpoints: a few lines of text, signed, to be kept where the site cannot reach.
//!
//! ```text
//! gatelog checkpoint 1
//! site 0f0e…
//! generation 1
//! partition gate/0
//! sequence 120
//! link 3c4d…
//! tree 11aa… 22bb… 33cc… 44dd…
//! time 1763719200000000 2025-11-21T10:00:00.000000Z
//! key 5e6f…
//! signature 7a8b…
//! ```
//!
//! The signature is over all lines before it, each with its line end. `tree` are the nodes of [`Frontier`] over events
//! 1 to `sequence`.

use std::fmt;
use std::str::FromStr;

use gatelog_record::{ChainLink, Domain, Partition, SiteId, Timestamp};
use sha2::{Digest, Sha256};

use crate::tree::{Frontier, Hash};

const HEAD: &str = "gatelog checkpoint 1";
/// No checkpoint is longer, in bytes.
pub const LONGEST: usize = 16 << 10;

/// The public half of the key that a site signs with: SubjectPublicKeyInfo (DER) of an RSA key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(pub Vec<u8>);

impl PublicKey {
    /// The key's id.
    pub fn id(&self) -> KeyId {
        let digest: [u8; 32] = Sha256::digest(&self.0).into();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        KeyId(id)
    }
}

/// Says whether a signature is the key's under a message: RSA PKCS#1 v1.5 with SHA-256.
pub type Check<'a> = &'a dyn Fn(&PublicKey, &[u8], &[u8]) -> bool;

/// Signs a message likewise, or says why not.
pub type Sign<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<u8>, String>;

/// What a key is called: the first 16 bytes of the SHA-256 of its public half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 16]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Where a partition stood at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The site.
    pub site: SiteId,
    /// The log's generation: raised when a restored or forked log is adopted.
    pub generation: u32,
    /// The partition.
    pub partition: Partition,
    /// The newest event's link.
    pub link: ChainLink,
    /// The tree over all its events: their number is the newest event's sequence.
    pub tree: Frontier,
    /// When it was made; in an export, when its newest event was recorded.
    pub time: Timestamp,
    /// The key it is signed with.
    pub key: KeyId,
}

/// A checkpoint and its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// What is signed.
    pub checkpoint: Checkpoint,
    /// RSA PKCS#1 v1.5 with SHA-256 over [`Checkpoint::signed_bytes`].
    pub signature: Vec<u8>,
}

/// A text is no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// A line is not as it must be.
    #[error("line {line} of the checkpoint is not its {expected}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What should have stood there.
        expected: &'static str,
    },
    /// It reads like a checkpoint but is not written as gatelog writes it.
    #[error("the checkpoint is not written as gatelog writes it: something was changed, added or left out")]
    Form,
    /// It is too long.
    #[error("a checkpoint has at most {LONGEST} bytes")]
    Long,
}

impl Checkpoint {
    /// The newest event's sequence.
    pub fn sequence(&self) -> u64 {
        self.tree.count()
    }

    /// What is signed.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let tree: Vec<String> = self.tree.nodes().map(hex::encode).collect();
        format!(
            "{HEAD}\nsite {}\ngeneration {}\npartition {}\nsequence {}\nlink {}\ntree {}\ntime {} {}\nkey {}\n",
            self.site,
            self.generation,
            self.partition,
            self.sequence(),
            self.link,
            tree.join(" "),
            self.time.0,
            self.time,
            self.key
        )
        .into_bytes()
    }
}

impl SignedCheckpoint {
    /// The text.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = self.checkpoint.signed_bytes();
        text.extend_from_slice(format!("signature {}\n", hex::encode(&self.signature)).as_bytes());
        text
    }

    /// Reads the text. The signature is not checked: that needs the key.
    ///
    /// # Errors
    /// [`NoteError`]
    pub fn decode(bytes: &[u8]) -> Result<SignedCheckpoint, NoteError> {
        if bytes.len() > LONGEST {
            return Err(NoteError::Long);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| NoteError::Form)?;
        let mut lines = Lines { lines: text.split('\n'), line: 0 };
        lines.next(HEAD, |rest| rest.is_empty().then_some(()))?;
        let site = lines.next("site", |rest| rest.parse().ok())?;
        let generation = lines.next("generation", number)?;
        let partition = lines.next("partition", partition)?;
        let sequence = lines.next("sequence", number)?;
        let link = lines.next("link", |rest| hash(rest).map(ChainLink))?;
        let tree = lines.next("tree", |rest| {
            let nodes: Option<Vec<Hash>> = rest.split(' ').map(hash).collect();
            Frontier::of(sequence, nodes?).filter(|tree| tree.count() > 0)
        })?;
        let time = lines.next("time", |rest| number(rest.split_once(' ')?.0).map(Timestamp))?;
        let key = lines.next("key", |rest| {
            let mut id = [0; 16];
            hex::decode_to_slice(rest, &mut id).ok().map(|()| KeyId(id))
        })?;
        let signature = lines.next("signature", |rest| hex::decode(rest).ok())?;
        let checkpoint = Checkpoint { site, generation, partition, link, tree, time, key };
        let signed = SignedCheckpoint { checkpoint, signature };
        if signed.encode() == bytes { Ok(signed) } else { Err(NoteError::Form) }
    }

    /// Whether this is the key's signature. `check` says so of key, message and signature.
    pub fn is_signed_by(&self, key: &PublicKey, check: Check<'_>) -> bool {
        self.checkpoint.key == key.id() && check(key, &self.checkpoint.signed_bytes(), &self.signature)
    }
}

struct Lines<'a> {
    lines: std::str::Split<'a, char>,
    line: usize,
}

impl<'a> Lines<'a> {
    fn next<T>(&mut self, expected: &'static str, read: impl FnOnce(&'a str) -> Option<T>) -> Result<T, NoteError> {
        self.line += 1;
        let rest = self.lines.next().and_then(|line| line.strip_prefix(expected));
        let rest = rest.map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
        rest.and_then(read).ok_or(NoteError::Line { line: self.line, expected })
    }
}

/// A number as gatelog writes it.
pub(crate) fn number<T: FromStr + fmt::Display>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

/// A hash in hex.
pub(crate) fn hash(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    hex::decode_to_slice(text, &mut hash).ok().map(|()| hash)
}

/// A partition such as `gate/0`.
pub(crate) fn partition(text: &str) -> Option<Partition> {
    let (name, index) = text.split_once('/')?;
    let domain = Domain::from_name(name)?;
    Some(Partition { domain, index: number(index)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> SignedCheckpoint {
        let mut tree = Frontier::default();
        (0..11).for_each(|number| tree.push(0, [number; 32]).unwrap());
        let checkpoint = Checkpoint {
            site: SiteId([7; 16]),
            generation: 2,
            partition: Partition { domain: Domain::Capacity, index: 3 },
            link: ChainLink([9; 32]),
            tree,
            time: Timestamp(1_709_164_800_000_001),
            key: PublicKey(b"key".to_vec()).id(),
        };
        SignedCheckpoint { checkpoint, signature: vec![1, 2, 3] }
    }

    #[test]
    fn it_reads_back_and_names_all_that_it_is_about() {
        let bytes = checkpoint().encode();
        assert_eq!(SignedCheckpoint::decode(&bytes), Ok(checkpoint()));
        let text = String::from_utf8(bytes).unwrap();
        for line in [
            "generation 2\n",
            "partition capacity/3\n",
            "sequence 11\n",
            "time 1709164800000001 2024-02-29T00:00:00.000001Z\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn every_byte_of_it_counts() {
        let bytes = checkpoint().encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                // What still reads as a checkpoint says something else, and so its signature is another's.
                if let Ok(read) = SignedCheckpoint::decode(&other) {
                    assert_ne!(read, checkpoint(), "byte {at} bit {bit}");
                }
            }
            assert!(SignedCheckpoint::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(SignedCheckpoint::decode(&[&bytes[..], b"\n"].concat()).is_err());
        assert!(SignedCheckpoint::decode(&vec![b'a'; LONGEST + 1]).is_err());
    }

    #[test]
    fn a_signature_is_of_the_key_it_names() {
        let (key, other) = (PublicKey(b"key".to_vec()), PublicKey(b"other".to_vec()));
        assert!(checkpoint().is_signed_by(&key, &|_, _, signature| signature == [1, 2, 3]));
        assert!(!checkpoint().is_signed_by(&key, &|_, _, _| false));
        assert!(!checkpoint().is_signed_by(&other, &|_, _, _| true));
    }
}
