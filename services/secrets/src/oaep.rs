//! Secrets as they stand in repositories: RSA-OAEP with SHA-1 (hash and MGF1, no label), base64, in chunks.
//!
//! A chunk holds what one RSA operation can, 470 bytes with 4096 bits. A longer text is several chunks, each encrypted
//! by itself. Each must be UTF-8 by itself, as in Zuul: a character that is cut between two chunks makes the secret
//! undecipherable there, and so here. [`encipher`] cuts between characters.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use rsa::Oaep;
use rsa::traits::PublicKeyParts;
use sha1::Sha1;

use crate::cipher::Plaintext;
use crate::error::{EncipherError, Undecipherable};
use crate::project_key::{ProjectKey, chance, read_public_pem};

/// The most chunks of one text; with 4096 bits that is room for 120,320 bytes.
pub const MAX_CHUNKS: usize = 256;

/// What OAEP with SHA-1 takes of each operation, in bytes.
const OVERHEAD: usize = 42;

/// As Python's decoder, which Zuul uses: bits behind the last byte are passed over.
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

impl ProjectKey {
    /// The clear text of one encrypted part of a secret.
    ///
    /// # Errors
    /// One for all reasons: who sees it must not learn which it was.
    pub fn decipher(&self, chunks: &[String]) -> Result<Plaintext, Undecipherable> {
        if chunks.is_empty() || chunks.len() > MAX_CHUNKS {
            return Err(Undecipherable);
        }
        let mut clear = Plaintext(Vec::with_capacity(chunks.len().saturating_mul(self.private.size())));
        for chunk in chunks {
            let bytes = decode(chunk, self.private.size()).ok_or(Undecipherable)?;
            let part = self.private.decrypt(Oaep::<Sha1>::new(), &bytes).map_err(|_| Undecipherable)?;
            let part = Plaintext(part);
            if part.as_str().is_none() {
                return Err(Undecipherable);
            }
            clear.0.extend_from_slice(&part);
        }
        Ok(clear)
    }
}

/// Base64 of exactly so many bytes. Zuul: whatever is no digit of base64 is passed over.
fn decode(text: &str, size: usize) -> Option<Vec<u8>> {
    let digits = text.bytes().take_while(|byte| *byte != b'=');
    let digits = digits.filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    // One more than fits shows that it does not.
    let digits: Vec<u8> = digits.take(size.saturating_mul(2)).collect();
    BASE64.decode(digits).ok().filter(|bytes| bytes.len() == size)
}

/// Encrypts a text with the public half of a project's key (PEM, as the API gives it): base64 chunks.
///
/// # Errors
/// No RSA public key of 1024 bits or more, a text of more than [`MAX_CHUNKS`] chunks, or no random numbers.
pub fn encipher(public_pem: &str, text: &str) -> Result<Vec<String>, EncipherError> {
    let key = read_public_pem(public_pem).ok_or(EncipherError::NoKey)?;
    let room = key.size().checked_sub(OVERHEAD).filter(|room| *room >= 4).ok_or(EncipherError::NoKey)?;
    let mut chance = chance()?;
    let mut chunks = Vec::new();
    for part in parts(text, room) {
        if chunks.len() == MAX_CHUNKS {
            return Err(EncipherError::TooLong { bytes: text.len(), most: MAX_CHUNKS.saturating_mul(room) });
        }
        let bytes = key
            .encrypt(&mut chance, Oaep::<Sha1>::new(), part.as_bytes())
            .map_err(|error| EncipherError::Failed(error.to_string()))?;
        chunks.push(base64::engine::general_purpose::STANDARD.encode(bytes));
    }
    Ok(chunks)
}

/// Cuts a text into parts of at most `room` bytes, never within a character; an empty one is one part.
fn parts(text: &str, room: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let (part, more) = text.split_at(text.floor_char_boundary(room));
        rest = Some(more).filter(|more| !more.is_empty());
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let cut = |text, room| parts(text, room).collect::<Vec<_>>();
        assert_eq!(cut("", 4), [""]);
        assert_eq!(cut("abcd", 4), ["abcd"]);
        assert_eq!(cut("abcde", 4), ["abcd", "e"]);
        assert_eq!(cut("abcé", 4), ["abc", "é"]);
        assert_eq!(cut("😀😀a", 4), ["😀", "😀", "a"]);
    }

    #[test]
    fn base64_is_read_as_python_reads_it_and_has_one_length() {
        assert_eq!(decode("aGVs\n  bG8=", 5).as_deref(), Some(&b"hello"[..]));
        assert_eq!(decode("aG*Vs-bG8", 5).as_deref(), Some(&b"hello"[..]), "other characters are passed over");
        assert_eq!(decode("aGVsbG9=", 5).as_deref(), Some(&b"hello"[..]), "bits too many are passed over");
        for (text, size) in [("aGVsbG8=", 4), ("aGVsbG8=", 6), ("", 5), ("a", 1)] {
            assert_eq!(decode(text, size), None, "{text:?} of {size}");
        }
    }
}
