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

#[cfg(test)]
mod tests {
    use super::*;

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
