//! The bytes of a segment. Little endian throughout.
//!
//! A segment is a header, frames, and once it is sealed a footer, which is a frame too, and a trailer.
//!
//! | segment header | bytes | |
//! |---|---|---|
//! | magic | 8 | `GLSEG\0\0\1`, the last byte is the format's version |
//! | site | 16 | |
//! | number | 8 | from 1; the file's name |
//! | base | 8 | the log position of byte 0: positions count bytes over all segments |
//! | salt | 8 | random; goes into every frame's checksum, so that no content can look like a frame |
//! | digest | 32 | of the segment before; zero for the first |
//! | CRC32C | 4 | |
//!
//! | frame | bytes | |
//! |---|---|---|
//! | magic | 4 | `GLF1` |
//! | kind | 4 | 1 records, 2 footer |
//! | count | 4 | of records |
//! | length | 4 | of the payload |
//! | durable | 8 | up to this log position everything was on disk when the frame was written: its own |
//! | CRC32C | 4 | of the header |
//! | payload | n | records: stream 8, offset 8, length 4, bytes |
//! | CRC32C | 4 | of the payload |
//!
//! | trailer | bytes | |
//! |---|---|---|
//! | footer | 8 | the byte where the footer's frame begins |
//! | CRC32C | 4 | of that |
//! | magic | 4 | `GLSD` |

use gatelog_event_log::Tail;
use gatelog_record::{ChainLink, SiteId, Stream};

pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"GLSEG\0\0\x01";
pub(crate) const SEGMENT_HEADER: u64 = 84;
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"GLF1";
pub(crate) const FRAME_HEADER: usize = 28;
pub(crate) const FRAME_TAIL: usize = 4;
pub(crate) const RECORD_HEADER: usize = 20;
pub(crate) const TRAILER: usize = 16;
const TRAILER_MAGIC: [u8; 4] = *b"GLSD";
/// The largest payload of a frame that is believed: the largest append, the headers of as many
/// records as fit into a group, and room.
pub(crate) const MAX_PAYLOAD: u32 = 1 << 30;
/// No stream has more records.
const MAX_OFFSET: u64 = 1 << 62;

/// What a segment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) site: SiteId,
    pub(crate) number: u64,
    pub(crate) base: u64,
    pub(crate) salt: u64,
    pub(crate) previous_digest: [u8; 32],
}

/// A cursor over bytes from disk; `None` where they end too early.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER as usize);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&self.site.0);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.previous_digest);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header, or what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, String> {
        let short = || "the segment's header is incomplete".to_owned();
        let content = bytes.get(..SEGMENT_HEADER as usize - 4).ok_or_else(short)?;
        let mut cursor = Cursor(bytes);
        let magic: [u8; 8] = cursor.array().ok_or_else(short)?;
        if magic[..7] != SEGMENT_MAGIC[..7] {
            return Err("this is no segment of a gatelog log".to_owned());
        }
        if magic[7] != SEGMENT_MAGIC[7] {
            return Err(format!("the segment has format {}, this gatelog reads 1: read it with a newer one", magic[7]));
        }
        let header = SegmentHeader {
            site: SiteId(cursor.array().ok_or_else(short)?),
            number: cursor.u64().ok_or_else(short)?,
            base: cursor.u64().ok_or_else(short)?,
            salt: cursor.u64().ok_or_else(short)?,
            previous_digest: cursor.array().ok_or_else(short)?,
        };
        if cursor.u32().ok_or_else(short)? != crc32c::crc32c(content) {
            return Err("the segment's header does not fit its checksum".to_owned());
        }
        Ok(header)
    }
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Records = 1,
    Footer = 2,
}

/// A frame's header, its checksum verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) count: u32,
    pub(crate) length: u32,
    pub(crate) durable: u64,
}

pub(crate) fn salted(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

impl FrameHeader {
    /// Bytes of the whole frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        FRAME_HEADER as u64 + u64::from(self.length) + FRAME_TAIL as u64
    }

    pub(crate) fn decode(bytes: &[u8], salt: u64) -> Option<FrameHeader> {
        let content = bytes.get(..FRAME_HEADER - 4)?;
        let mut cursor = Cursor(bytes);
        if cursor.array::<4>()? != FRAME_MAGIC {
            return None;
        }
        let kind = match cursor.u32()? {
            1 => FrameKind::Records,
            2 => FrameKind::Footer,
            _ => return None,
        };
        let header = FrameHeader { kind, count: cursor.u32()?, length: cursor.u32()?, durable: cursor.u64()? };
        let whole = header.length <= MAX_PAYLOAD && (header.kind == FrameKind::Records || header.count == 0);
        (cursor.u32()? == salted(salt, content) && whole).then_some(header)
    }
}

/// Builds a frame in place.
pub(crate) struct FrameBuilder {
    bytes: Vec<u8>,
    count: u32,
}

impl FrameBuilder {
    pub(crate) fn new() -> FrameBuilder {
        FrameBuilder { bytes: vec![0; FRAME_HEADER], count: 0 }
    }

    pub(crate) fn record(&mut self, stream: Stream, offset: u64, record: &[u8]) {
        self.bytes.extend_from_slice(&stream.to_number().to_le_bytes());
        self.bytes.extend_from_slice(&offset.to_le_bytes());
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(record);
        self.count += 1;
    }

    pub(crate) fn finish(self, kind: FrameKind, durable: u64, salt: u64) -> Vec<u8> {
        let FrameBuilder { mut bytes, count } = self;
        let length = (bytes.len() - FRAME_HEADER) as u32;
        let mut header = Vec::with_capacity(FRAME_HEADER);
        header.extend_from_slice(&FRAME_MAGIC);
        header.extend_from_slice(&(kind as u32).to_le_bytes());
        header.extend_from_slice(&count.to_le_bytes());
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&durable.to_le_bytes());
        let crc = salted(salt, &header);
        header.extend_from_slice(&crc.to_le_bytes());
        bytes[..FRAME_HEADER].copy_from_slice(&header);
        let crc = salted(salt, &bytes[FRAME_HEADER..]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// A footer's frame and the trailer after it.
    pub(crate) fn footer(footer: &Footer, at: u64, durable: u64, salt: u64) -> Vec<u8> {
        let mut builder = FrameBuilder::new();
        footer.encode(&mut builder.bytes);
        let mut bytes = builder.finish(FrameKind::Footer, durable, salt);
        bytes.extend_from_slice(&at.to_le_bytes());
        bytes.extend_from_slice(&salted(salt, &at.to_le_bytes()).to_le_bytes());
        bytes.extend_from_slice(&TRAILER_MAGIC);
        bytes
    }
}

/// Where the footer's frame begins, if these bytes are a segment's trailer.
pub(crate) fn footer_start(trailer: &[u8], salt: u64) -> Option<u64> {
    let mut cursor = Cursor(trailer);
    let start = cursor.array::<8>()?;
    let fits = cursor.u32()? == salted(salt, &start) && cursor.array::<4>()? == TRAILER_MAGIC;
    fits.then(|| u64::from_le_bytes(start))
}

/// The payload of a whole frame, if its checksum fits.
pub(crate) fn checked_payload<'a>(frame: &'a [u8], header: &FrameHeader, salt: u64) -> Option<&'a [u8]> {
    let mut cursor = Cursor(frame.get(FRAME_HEADER..)?);
    let payload = cursor.take(header.length as usize)?;
    (cursor.u32()? == salted(salt, payload)).then_some(payload)
}

/// One record within a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<'a> {
    pub(crate) stream: Stream,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
}

/// The records of a checked payload; `None` where it is not what a writer of this format wrote.
pub(crate) fn records<'a>(payload: &'a [u8], count: u32) -> impl Iterator<Item = Option<RawRecord<'a>>> {
    let mut cursor = Cursor(payload);
    let mut left = count;
    std::iter::from_fn(move || {
        if left == 0 {
            return if cursor.0.is_empty() {
                None
            } else {
                cursor.0 = &[];
                Some(None)
            };
        }
        left -= 1;
        let record = (|| {
            let stream = Stream::from_number(cursor.u64()?)?;
            let offset = cursor.u64()?;
            let length = cursor.u32()? as usize;
            Some(RawRecord { stream, offset, bytes: cursor.take(length)? })
        })();
        if record.is_none() {
            left = 0;
            cursor.0 = &[];
        }
        Some(record)
    })
}

/// A place in the index: the frame at `byte` holds `offset` as its first record of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) byte: u64,
    /// Of events: the history's sequence and term before this frame.
    pub(crate) sequence: u64,
    pub(crate) term: u64,
}

/// What a footer says of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) stream: Stream,
    /// The first offset in this segment, and how many records.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Of events: where the history stands after this segment, and at which offset its newest event
    /// is (one more than; 0 for none).
    pub(crate) tail: Tail,
    pub(crate) newest: u64,
    /// Of events: the offset where the history is broken, one more; 0 if it is not.
    pub(crate) broken: u64,
    pub(crate) entries: Vec<Entry>,
}

/// The end of a sealed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) frames: u64,
    pub(crate) records: u64,
    /// SHA-256 over every byte of the segment before the footer.
    pub(crate) digest: [u8; 32],
    pub(crate) streams: Vec<Summary>,
}

impl Footer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.frames.to_le_bytes());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.digest);
        out.extend_from_slice(&(self.streams.len() as u32).to_le_bytes());
        for stream in &self.streams {
            for number in [
                stream.stream.to_number(),
                stream.first,
                stream.count,
                stream.tail.sequence,
                stream.tail.term,
                stream.newest,
                stream.broken,
            ] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&stream.tail.link.0);
            out.extend_from_slice(&(stream.entries.len() as u32).to_le_bytes());
            for entry in &stream.entries {
                for number in [entry.offset, entry.byte, entry.sequence, entry.term] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Footer> {
        let mut cursor = Cursor(payload);
        let mut footer =
            Footer { frames: cursor.u64()?, records: cursor.u64()?, digest: cursor.array()?, streams: Vec::new() };
        for _ in 0..cursor.u32()? {
            let stream = Stream::from_number(cursor.u64()?)?;
            let (first, count) = (cursor.u64()?, cursor.u64()?);
            let (sequence, term) = (cursor.u64()?, cursor.u64()?);
            let (newest, broken) = (cursor.u64()?, cursor.u64()?);
            let tail = Tail { sequence, term, link: ChainLink(cursor.array()?) };
            let mut summary = Summary { stream, first, count, tail, newest, broken, entries: Vec::new() };
            for _ in 0..cursor.u32()? {
                let (offset, byte) = (cursor.u64()?, cursor.u64()?);
                summary.entries.push(Entry { offset, byte, sequence: cursor.u64()?, term: cursor.u64()? });
            }
            footer.streams.push(summary);
        }
        cursor.0.is_empty().then_some(footer)
    }

    /// Whether such a footer can begin at this byte: no stream has more records than there can be, and every place it
    /// names lies before it, in order.
    pub(crate) fn fits(&self, start: u64) -> bool {
        self.streams.iter().all(|Summary { first, count, entries, .. }| {
            let ends = first.checked_add(*count).filter(|end| *end <= MAX_OFFSET);
            let begins = entries.first().map_or(*count == 0, |entry| entry.offset == *first);
            let within = |entry: &Entry| entry.byte >= SEGMENT_HEADER && entry.byte < start;
            let rises = entries
                .windows(2)
                .all(|two| matches!(two, [one, next] if one.offset < next.offset && one.byte < next.byte));
            begins && rises && ends.is_some() && entries.iter().all(within)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_reads_back() {
        let header = SegmentHeader { site: SiteId([1; 16]), number: 2, base: 3, salt: 4, previous_digest: [5; 32] };
        assert_eq!(header.encode().len() as u64, SEGMENT_HEADER);
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        let summary = Summary {
            stream: Stream::Intake(0),
            first: 1,
            count: 2,
            tail: Tail { sequence: 3, term: 4, link: ChainLink([5; 32]) },
            newest: 6,
            broken: 7,
            entries: vec![Entry { offset: 8, byte: 9, sequence: 10, term: 11 }],
        };
        let footer = Footer { frames: 1, records: 2, digest: [3; 32], streams: vec![summary] };
        let bytes = FrameBuilder::footer(&footer, 77, 99, 5);
        let header = FrameHeader::decode(&bytes, 5).unwrap();
        assert_eq!((header.kind, header.durable), (FrameKind::Footer, 99));
        let payload = checked_payload(&bytes, &header, 5).unwrap();
        assert_eq!(Footer::decode(payload), Some(footer));
        assert_eq!(FrameHeader::decode(&bytes, 6), None, "another segment's frame is none of this one's");
    }

    proptest! {
        #[test]
        fn a_changed_byte_of_a_frame_is_noticed(record in proptest::collection::vec(any::<u8>(), 0..60), at in 0_usize..200, bit in 0_u8..8) {
            let mut builder = FrameBuilder::new();
            builder.record(Stream::Intake(1), 9, &record);
            let mut bytes = builder.finish(FrameKind::Records, 1, 7);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let payload = FrameHeader::decode(&bytes, 7).and_then(|header| checked_payload(&bytes, &header, 7).map(<[u8]>::to_vec));
            prop_assert_eq!(payload, None);
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), count in any::<u32>()) {
            prop_assert_eq!(FrameHeader::decode(&bytes, 7), None);
            prop_assert!(SegmentHeader::decode(&bytes).is_err());
            Footer::decode(&bytes);
            prop_assert!(records(&bytes, count).take(1_000).count() < 1_000);
        }
    }
}
