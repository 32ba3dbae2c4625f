//! What this log itself writes beside records: the control record, the bundle, the site.
//!
//! ```text
//! control  "GC" 1 token[16] crc32c   in events; a claim's barrier, no part of history
//! bundle   "GB" 1 count:u32 (length:u32 bytes)* crc32c   in inputs; the records of one append
//! site     "GS" 1 site[16] generation:u32 partitions:u32 crc32c
//!          "GS" 2 site[16] generation:u32 partitions:u32 topics:u32 crc32c   of a later generation of topics
//! ```
//! Numbers are big endian. An input that is alone in its append stands there as it is, unless it begins
//! like a bundle.

use gatelog_record::SiteId;

const CONTROL: [u8; 3] = *b"GC\x01";
const BUNDLE: [u8; 3] = *b"GB\x01";
const SITE: [u8; 3] = *b"GS\x01";
const SITE_LATER: [u8; 3] = *b"GS\x02";

/// What tells one claim's control record from all others.
pub(crate) type Token = [u8; 16];

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes
}

fn unsealed(bytes: &[u8], magic: [u8; 3]) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(body) == u32::from_be_bytes(*sum)).then_some(())?;
    body.strip_prefix(&magic)
}

/// A control record.
pub(crate) fn control(token: &Token) -> Vec<u8> {
    sealed([&CONTROL[..], token].concat())
}

/// The token, if this is a control record.
pub(crate) fn token_of(bytes: &[u8]) -> Option<Token> {
    unsealed(bytes, CONTROL)?.try_into().ok()
}

/// The one Kafka record for an append of inputs.
pub(crate) fn bundle(records: Vec<Vec<u8>>) -> Vec<u8> {
    let records = match <[Vec<u8>; 1]>::try_from(records) {
        Ok([only]) if !only.starts_with(&BUNDLE[..2]) => return only,
        Ok(only) => only.into(),
        Err(records) => records,
    };
    let bytes: usize = records.iter().map(|record| 4 + record.len()).sum();
    let mut out = Vec::with_capacity(BUNDLE.len() + 8 + bytes);
    out.extend_from_slice(&BUNDLE);
    out.extend_from_slice(&(records.len() as u32).to_be_bytes());
    for record in records {
        out.extend_from_slice(&(record.len() as u32).to_be_bytes());
        out.extend_from_slice(&record);
    }
    sealed(out)
}

/// The records of one append, from its Kafka record; an error says why these bytes are none.
pub(crate) fn unbundle(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, &'static str> {
    if !bytes.starts_with(&BUNDLE[..2]) {
        return Ok(vec![bytes]);
    }
    if !bytes.starts_with(&BUNDLE) {
        return Err("a bundle of inputs of a version that this gatelog cannot read");
    }
    let cut = "a bundle of inputs that is cut off";
    let rest = unsealed(&bytes, BUNDLE).ok_or("a bundle of inputs whose checksum does not fit")?;
    let (count, mut rest) = rest.split_first_chunk::<4>().ok_or(cut)?;
    let count = u32::from_be_bytes(*count);
    let mut records = Vec::new();
    for _ in 0..count {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(cut)?;
        let (record, tail) = tail.split_at_checked(u32::from_be_bytes(*head) as usize).ok_or(cut)?;
        records.push(record.to_vec());
        rest = tail;
    }
    if rest.is_empty() { Ok(records) } else { Err("a bundle of inputs with something behind it") }
}

/// Which log this is: written once, again with the next generation when a log is adopted, and with the next generation
/// of topics when their number of partitions changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteRecord {
    pub(crate) site: SiteId,
    pub(crate) generation: u32,
    pub(crate) partitions: u32,
    /// The generation of topics; 1 is the first.
    pub(crate) topics: u32,
}

impl SiteRecord {
    /// Of the first generation of topics as it always was. A gatelog that does not know of later ones refuses theirs,
    /// and so does not go on in topics that no longer count.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = [self.generation.to_be_bytes(), self.partitions.to_be_bytes()].concat();
        if self.topics <= 1 {
            return sealed([&SITE[..], &self.site.0, &numbers].concat());
        }
        sealed([&SITE_LATER[..], &self.site.0, &numbers, &self.topics.to_be_bytes()].concat())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<SiteRecord> {
        let (later, rest) = match unsealed(bytes, SITE) {
            Some(rest) => (false, rest),
            None => (true, unsealed(bytes, SITE_LATER)?),
        };
        let (site, rest) = rest.split_first_chunk::<16>()?;
        let (generation, rest) = rest.split_first_chunk::<4>()?;
        let (partitions, rest) = rest.split_first_chunk::<4>()?;
        let topics = if later { u32::from_be_bytes(rest.try_into().ok()?) } else { 1 };
        (later || rest.is_empty()).then_some(SiteRecord {
            site: SiteId(*site),
            generation: u32::from_be_bytes(*generation),
            partitions: u32::from_be_bytes(*partitions),
            topics,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_gives_back_what_was_put_in() {
        for records in [vec![], vec![b"one".to_vec()], vec![b"GB".to_vec()], vec![b"a".to_vec(), vec![], vec![7; 300]]]
        {
            assert_eq!(unbundle(bundle(records.clone())), Ok(records));
        }
        assert_eq!(bundle(vec![b"one".to_vec()]), b"one", "what is alone stands there as it is");
    }

    #[test]
    fn a_bundle_that_is_not_whole_is_refused_at_every_length() {
        let whole = bundle(vec![b"one".to_vec(), b"another".to_vec()]);
        for length in 2..whole.len() {
            assert!(unbundle(whole[..length].to_vec()).is_err(), "{length}");
        }
        for byte in 3..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 4;
            assert!(unbundle(flipped).is_err(), "{byte}");
        }
        assert!(unbundle([&whole[..], b"x"].concat()).is_err());
        assert!(unbundle(sealed(b"GB\x01\xff\xff\xff\xff\xff\xff\xff\xff".to_vec())).is_err());
    }

    #[test]
    fn control_and_site_survive_and_a_flipped_bit_does_not() {
        let token = [9; 16];
        assert_eq!(token_of(&control(&token)), Some(token));
        for topics in [1, 4] {
            let site = SiteRecord { site: SiteId([3; 16]), generation: 2, partitions: 7, topics };
            assert_eq!(SiteRecord::decode(&site.encode()), Some(site));
            for byte in 0..site.encode().len() {
                let mut bytes = site.encode();
                bytes[byte] ^= 1;
                assert_eq!(SiteRecord::decode(&bytes), None, "{byte}");
            }
        }
        assert_eq!(token_of(b"GC"), None);
    }
}
