//! The one place that names bincode.
//!
//! Bodies, table rows and canonical blobs are bincode 2.0.1, standard configuration, through serde.
//! bincode is not self-describing: kind and version come from the envelope and select the struct.
//! The codec's number stands in every envelope, so another codec can follow without rewriting
//! history.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The number of this codec in envelopes: bincode 2, standard configuration, little endian, variable integers.
pub const BINCODE_2: u8 = 1;

/// The largest body decoded, in bytes. Larger things are blobs.
pub const MAX_BODY: usize = 16 << 20;

/// Why bytes could not be turned into a value or back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The value cannot be written with this codec.
    #[error("cannot encode: {0}")]
    Encode(String),
    /// The bytes are not such a value.
    #[error("cannot decode: {0}")]
    Decode(String),
    /// Bytes are left over after the value.
    #[error("{0} bytes are left over after the value")]
    Trailing(usize),
    /// An unknown codec number.
    #[error("codec {0} is not known to this gatelog: read it with a newer one")]
    Codec(u8),
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_BODY>()
}

/// The bytes of a value.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, config()).map_err(|error| CodecError::Encode(error.to_string()))
}

/// The value of bytes; all of them must be used.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) =
        bincode::serde::decode_from_slice(bytes, config()).map_err(|error| CodecError::Decode(error.to_string()))?;
    if used == bytes.len() { Ok(value) } else { Err(CodecError::Trailing(bytes.len() - used)) }
}

/// The value of bytes, also of those that were written before the shape had its last fields: `missing` is the bytes of
/// what these count as then, and `bring_up` makes of what came out what it is today, or says that it is not of that age.
/// For blobs alone: bodies of records have their version in the envelope.
///
/// # Errors
/// They are neither; told is what is wrong with them as they are.
pub fn decode_older<T: DeserializeOwned>(
    bytes: &[u8],
    missing: &[u8],
    bring_up: impl FnOnce(T) -> Option<T>,
) -> Result<T, CodecError> {
    decode(bytes).or_else(|error| decode(&[bytes, missing].concat()).ok().and_then(bring_up).ok_or(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_the_last_fields_were_there_is_read() {
        let missing = encode(&Some(7_u8)).unwrap();
        let read = |bytes: &[u8], of_age: bool| {
            decode_older(bytes, &missing, |found: (u32, String, Option<u8>)| of_age.then_some(found))
        };
        let newer = encode(&(1_u32, "x", None::<u8>)).unwrap();
        assert_eq!(read(&newer, false), Ok((1, "x".to_owned(), None)));
        let older = encode(&(1_u32, "x")).unwrap();
        assert_eq!(read(&older, true), Ok((1, "x".to_owned(), Some(7))));
        // What is only cut off is not taken for older, nor is what has too much.
        assert!(matches!(read(&older, false), Err(CodecError::Decode(_))));
        assert!(matches!(read(&older[..2], true), Err(CodecError::Decode(_))));
        assert_eq!(read(&[&newer[..], &[0]].concat(), true), Err(CodecError::Trailing(1)));
    }

    #[test]
    fn left_over_bytes_are_an_error() {
        let mut bytes = encode(&(1_u32, "x")).unwrap();
        assert_eq!(decode::<(u32, String)>(&bytes), Ok((1, "x".to_owned())));
        bytes.push(0);
        assert_eq!(decode::<(u32, String)>(&bytes), Err(CodecError::Trailing(1)));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_taken() {
        // A string that claims to be 2^62 bytes long.
        let bytes = [253, 0, 0, 0, 0, 0, 0, 0, 64];
        assert!(matches!(decode::<String>(&bytes), Err(CodecError::Decode(_))));
    }
}
