//! The blobs with what an attempt returned, where a record does not carry it.
//!
//! Each begins with a line that names its kind, and says whose it is: no two builds have one in common, so that it can
//! be removed with its build, and nothing else on the log is such a blob.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codec::{self, CodecError};
use crate::draft::gate::Artifact;
use crate::id::BuildId;
use crate::sealed::Sealed;
use crate::value::Value;

/// What a record carries at most of either kind of returned data, in bytes as they are on the log. More is a blob.
pub const MOST_INLINE: usize = 64 << 10;

const DATA: &[u8] = b"gatelog returned data 1\n\0";
const SECRET: &[u8] = b"gatelog returned secret data 1\n\0";

/// `data` of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnedData {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// What it returned.
    pub data: Value,
    /// What it left behind.
    pub artifacts: Vec<Artifact>,
}

/// `secret_data` of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnedSecret {
    /// The build.
    pub build: BuildId,
    /// Which attempt.
    pub attempt: u32,
    /// What it returned, under seal.
    pub sealed: Sealed,
}

/// Why a blob is not what a record says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReturned {
    /// It holds something else.
    Other,
    /// It is of another attempt.
    OfAnother(BuildId, u32),
    /// It cannot be read.
    Unreadable(CodecError),
}

impl fmt::Display for NotReturned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReturned::Other => f.write_str("it holds no returned data"),
            NotReturned::OfAnother(build, attempt) => {
                write!(f, "it holds what attempt {attempt} of build {build} returned")
            }
            NotReturned::Unreadable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotReturned {}

impl ReturnedData {
    /// The blob's bytes.
    ///
    /// # Errors
    /// There is more than one blob may hold.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        write(DATA, self)
    }

    /// What a blob holds that a record of this attempt names.
    ///
    /// # Errors
    /// It holds something else.
    pub fn decode(bytes: &[u8], build: BuildId, attempt: u32) -> Result<ReturnedData, NotReturned> {
        let read: ReturnedData = read(DATA, bytes)?;
        owned((build, attempt), (read.build, read.attempt)).map(|()| read)
    }
}

impl ReturnedSecret {
    /// The blob's bytes.
    ///
    /// # Errors
    /// There is more than one blob may hold.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        write(SECRET, self)
    }

    /// What a blob holds that a record of this attempt names.
    ///
    /// # Errors
    /// It holds something else.
    pub fn decode(bytes: &[u8], build: BuildId, attempt: u32) -> Result<ReturnedSecret, NotReturned> {
        let read: ReturnedSecret = read(SECRET, bytes)?;
        owned((build, attempt), (read.build, read.attempt)).map(|()| read)
    }
}

/// Whether a blob holds what some attempt of this build returned, of either kind. Whoever removes one asks before.
pub fn is_of(bytes: &[u8], build: BuildId) -> bool {
    let rest = bytes.strip_prefix(DATA).or_else(|| bytes.strip_prefix(SECRET));
    rest.is_some_and(|rest| rest.starts_with(&build.0))
}

fn write(kind: &[u8], what: &impl Serialize) -> Result<Vec<u8>, CodecError> {
    Ok([kind, &codec::encode(what)?].concat())
}

fn read<T: serde::de::DeserializeOwned>(kind: &[u8], bytes: &[u8]) -> Result<T, NotReturned> {
    let body = bytes.strip_prefix(kind).ok_or(NotReturned::Other)?;
    codec::decode(body).map_err(NotReturned::Unreadable)
}

fn owned(wanted: (BuildId, u32), found: (BuildId, u32)) -> Result<(), NotReturned> {
    if wanted == found { Ok(()) } else { Err(NotReturned::OfAnother(found.0, found.1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: BuildId = BuildId([7; 16]);

    #[test]
    fn what_was_returned_is_read_as_its_own_build_s_alone() {
        let artifacts = vec![Artifact { name: "image".into(), url: "docker://i".into(), metadata: Value::Null }];
        let data = ReturnedData { build: BUILD, attempt: 2, data: Value::from("x"), artifacts };
        let bytes = data.encode().unwrap();
        assert_eq!(ReturnedData::decode(&bytes, BUILD, 2), Ok(data));
        assert_eq!(ReturnedData::decode(&bytes, BUILD, 1), Err(NotReturned::OfAnother(BUILD, 2)));
        assert_eq!(ReturnedSecret::decode(&bytes, BUILD, 2), Err(NotReturned::Other));
        assert!(is_of(&bytes, BUILD) && !is_of(&bytes, BuildId([8; 16])));
        assert!(matches!(ReturnedData::decode(&bytes[..bytes.len() - 1], BUILD, 2), Err(NotReturned::Unreadable(_))));

        let sealed = Sealed { key_id: "buildset/1".into(), nonce: vec![1; 24], ciphertext: vec![2; 9] };
        let secret = ReturnedSecret { build: BUILD, attempt: 1, sealed };
        let bytes = secret.encode().unwrap();
        assert_eq!(ReturnedSecret::decode(&bytes, BUILD, 1), Ok(secret));
        assert!(is_of(&bytes, BUILD) && !is_of(b"a layout", BUILD));
    }
}
