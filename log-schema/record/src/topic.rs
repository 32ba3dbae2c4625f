//! Where records live: domains, partitions, streams.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use crate::domains::Domain;

/// One unit of order and ownership: exactly one writer decides for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Partition {
    /// The domain.
    pub domain: Domain,
    /// Its index, from 0.
    pub index: u32,
}

impl Partition {
    /// Which of `count` partitions of a domain a key belongs to. Our own stable hash, so that the
    /// embedded log and Kafka agree: the first 8 bytes of SHA-256 of the key, big endian, modulo.
    pub fn of_key(domain: Domain, key: &str, count: u32) -> Partition {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        let index = u64::from_be_bytes(first) % u64::from(count.max(1));
        Partition { domain, index: index as u32 }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.index)
    }
}

/// One ordered sequence of records: a partition of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// What code-review systems sent (topic `intake`).
    Intake(u32),
    /// What a domain's partition is asked (topic `<domain>.inputs`).
    Inputs(Partition),
    /// What a domain's partition decided (topic `<domain>.events`).
    Events(Partition),
}

impl Stream {
    /// The stream's number on the embedded log: kind, domain, partition index.
    pub fn to_number(self) -> u64 {
        let (kind, domain, index) = match self {
            Stream::Intake(index) => (1_u64, 0, index),
            Stream::Inputs(partition) => (2, partition.domain as u64, partition.index),
            Stream::Events(partition) => (3, partition.domain as u64, partition.index),
        };
        kind << 48 | domain << 32 | u64::from(index)
    }

    /// The stream with this number, if there is one.
    pub fn from_number(number: u64) -> Option<Stream> {
        let index = number as u32;
        let domain = (number >> 32) as u16;
        match number >> 48 {
            1 if domain == 0 => Some(Stream::Intake(index)),
            2 => Some(Stream::Inputs(Partition { domain: Domain::from_number(u8::try_from(domain).ok()?)?, index })),
            3 => Some(Stream::Events(Partition { domain: Domain::from_number(u8::try_from(domain).ok()?)?, index })),
            _ => None,
        }
    }

    /// The topic's name, as Kafka would have it.
    pub fn topic(self) -> String {
        match self {
            Stream::Intake(_) => "intake".to_owned(),
            Stream::Inputs(partition) => format!("{}.inputs", partition.domain),
            Stream::Events(partition) => format!("{}.events", partition.domain),
        }
    }

    /// The partition's index within its topic.
    pub fn index(self) -> u32 {
        match self {
            Stream::Intake(index) => index,
            Stream::Inputs(partition) | Stream::Events(partition) => partition.index,
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic(), self.index())
    }
}

/// Why a text names no stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no stream: expected intake, <domain>.inputs or <domain>.events, with /<partition> if it is not 0")]
pub struct StreamNameError(String);

impl FromStr for Stream {
    type Err = StreamNameError;
    fn from_str(text: &str) -> Result<Self, StreamNameError> {
        let wrong = || StreamNameError(text.to_owned());
        let (topic, index) = match text.split_once('/') {
            Some((topic, index)) => (topic, index.parse().map_err(|_| wrong())?),
            None => (text, 0),
        };
        if topic == "intake" {
            return Ok(Stream::Intake(index));
        }
        let (domain, kind) = topic.split_once('.').ok_or_else(wrong)?;
        let domain = Domain::from_name(domain).ok_or_else(wrong)?;
        match kind {
            "inputs" => Ok(Stream::Inputs(Partition { domain, index })),
            "events" => Ok(Stream::Events(Partition { domain, index })),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for stream in [
            Stream::Intake(3),
            Stream::Inputs(Partition { domain: Domain::Gate, index: 0 }),
            Stream::Events(Partition { domain: Domain::Deployments, index: 9 }),
        ] {
            assert_eq!(stream.to_string().parse(), Ok(stream));
            assert_eq!(Stream::from_number(stream.to_number()), Some(stream));
        }
        assert!("gate.evenst".parse::<Stream>().is_err());
    }

    #[test]
    fn the_partition_of_a_key_never_moves() {
        // Pinned: changing the hash would move every tenant's history.
        let found: Vec<u32> =
            ["", "demo", "openstack", "main"].map(|key| Partition::of_key(Domain::Gate, key, 16).index).into();
        assert_eq!(found, [4, 4, 0, 11]);
    }
}
