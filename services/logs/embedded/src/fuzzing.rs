//! What must hold of any bytes that are read as a segment or a slice. For the fuzzer and for tests of its corpus.
#![allow(clippy::unwrap_used, reason = "this is a test, wherever it is compiled")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gatelog_event_log::{LogError, Offset, ReadLimit};
use gatelog_record::{BlobHash, Stream};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::format::{
    FRAME_HEADER, FRAME_MAGIC, FRAME_TAIL, Footer, FrameBuilder, FrameKind, SEGMENT_HEADER, SEGMENT_MAGIC,
    SegmentHeader, TRAILER, records, salted,
};
use crate::index::{Segment, View};
use crate::read::read_stream;
use crate::recover::{admit_frame, read_footer};
use crate::scan::{Found, Scanner};
use crate::slice::{Piece, SliceLog, SliceWriter, read_slice};
use crate::verify::{VerifyReport, verify_segment};

/// Does something while at most so many bytes of memory more than now may be taken.
pub type Within<'a> = &'a dyn Fn(usize, &mut dyn FnMut());

fn within<T>(room: Within<'_>, most: usize, read: impl FnOnce() -> T) -> T {
    let (mut read, mut given) = (Some(read), None);
    room(most, &mut || given = read.take().map(|read| read()));
    given.unwrap()
}

/// What a segment's readers take: two buffers, of 64 KiB and of a megabyte, and what is there a few times.
fn room(length: usize) -> usize {
    (2 << 20) + 64 * length
}

/// The first byte: bit 0, checksums, digest and trailer are set right; bit 1, so are the places that frames name; bit 2,
/// the last frame is as long as there are bytes; bit 3, the segment is not the last one.
///
/// # Panics
/// Where something does not hold.
pub fn segment(data: &[u8], file: &Path, room_for: Within<'_>) {
    let Some((choice, rest)) = data.split_first() else { return };
    let mut bytes = rest.to_vec();
    if choice & 1 == 1 {
        mend(&mut bytes, *choice);
    }
    let header = match SegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(what) => return assert!(!what.is_empty()),
    };
    assert_eq!(header.encode(), bytes[..SEGMENT_HEADER as usize], "a header has one form");
    // A segment is opened only where its base is what the ones before it add up to.
    let SegmentHeader { number, base, salt, .. } = header;
    if base > 1 << 62 {
        return;
    }
    fs::write(file, &bytes).unwrap();
    let segment = std::sync::Arc::new(Segment::new(number, base, salt, file.to_owned()));
    let most = room(bytes.len());

    let (scanned, sound) = within(room_for, most, || scan(&segment, bytes.len()));
    let hint = base + bytes.len() as u64;
    let last = choice & 8 == 0;
    let (mut ends, mut report) = (BTreeMap::new(), VerifyReport::default());
    let verified = within(room_for, most, || verify_segment(&segment, hint, last, &mut ends, &mut report));
    assert!(report.bytes <= bytes.len() as u64 && report.records <= bytes.len() as u64);
    if let Err(error) = &verified {
        placed(error, number, bytes.len());
    }
    let footer = within(room_for, most, || read_footer(&segment));
    if let Err(error) = &footer {
        placed(error, number, bytes.len());
    }
    if let (Ok(Some((end, digest))), Ok(Some((footer, length)))) = (&verified, &footer)
        && end == length
    {
        assert_eq!(footer.digest, *digest);
    }
    let Ok(Some((footer, length))) = footer else { return };
    assert_eq!(length, bytes.len() as u64);
    let at = length - TRAILER as u64 - footer_bytes(&footer);
    let same = FrameBuilder::footer(&footer, at, base + at, salt);
    assert_eq!(same, bytes[at as usize..], "a footer has one form");

    // The segment at its footer's word: each record is the one that is there, or the error names a place.
    let mut view = View::default();
    view.segments.push(std::sync::Arc::clone(&segment));
    if let Err(error) = view.admit_footer(0, number, footer) {
        return placed(&error, number, bytes.len());
    }
    let streams: Vec<Stream> = view.streams.keys().copied().collect();
    let view = Mutex::new(view);
    for stream in streams {
        let read = within(room_for, most, || read_stream(&view, stream, Offset(0), ReadLimit::default()));
        match read {
            Ok(batch) => {
                // Behind damage the index leads to records that no scan comes to.
                for record in batch.records.into_iter().filter(|_| sound) {
                    let there = scanned.get(&(stream, record.offset.0));
                    assert_eq!(there, Some(&record.bytes), "{stream} {}", record.offset.0);
                }
            }
            Err(error) => placed(&error, number, bytes.len()),
        }
    }
}

fn footer_bytes(footer: &Footer) -> u64 {
    let length = FrameBuilder::footer(footer, 0, 0, 0).len() - TRAILER;
    length as u64
}

/// The records of a segment, by stream and offset.
type Scanned = BTreeMap<(Stream, u64), Vec<u8>>;

/// Reads frame by frame, as an open log is, and writes each frame again. Gives the records, and whether they are all.
fn scan(segment: &std::sync::Arc<Segment>, length: usize) -> (Scanned, bool) {
    let file = segment.file().unwrap();
    let mut view = View::default();
    view.segments.push(std::sync::Arc::clone(segment));
    let mut scanner = Scanner::new(&file, segment, SEGMENT_HEADER);
    let mut found = BTreeMap::new();
    let mut admitted = true;
    loop {
        let at = scanner.at();
        let frame = match scanner.next().unwrap() {
            Found::Frame(frame) if frame.kind == FrameKind::Records => frame,
            Found::Frame(_) => return (found, admitted),
            Found::End => {
                assert_eq!(at, length as u64);
                return (found, admitted);
            }
            Found::Bad(what) => {
                assert!(!what.is_empty() && at < length as u64);
                scanner.rest().unwrap();
                return (found, false);
            }
        };
        assert_eq!(frame.byte, at);
        let mut builder = FrameBuilder::new();
        let mut whole = 0;
        for record in records(frame.payload, frame.count).map_while(|record| record) {
            builder.record(record.stream, record.offset, record.bytes);
            found.entry((record.stream, record.offset)).or_insert_with(|| record.bytes.to_vec());
            whole += 1;
        }
        let fills = builder.finish(FrameKind::Records, segment.base + at, segment.salt) == frame.bytes;
        assert!(fills || whole < frame.count || frame.payload.len() > whole as usize * 20, "a frame has one form");
        if admitted {
            match admit_frame(&mut view, 0, segment.number, &frame) {
                Ok(count) => assert!(fills && count == u64::from(frame.count)),
                Err(error) => {
                    placed(&error, segment.number, length);
                    admitted = false;
                }
            }
        }
    }
}

/// An error names a byte that is in the segment, or where it ends.
fn placed(error: &LogError, number: u64, length: usize) {
    let LogError::Damaged { place, what } = error else { panic!("a segment in memory cannot be read: {error}") };
    let (_, byte) = place.physical.split_once(" byte ").unwrap_or_else(|| panic!("{error}"));
    let byte: usize = byte.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{error}"));
    assert!(place.physical.starts_with(&format!("segment {number:08}")) && byte <= length, "{error}");
    assert!(!what.is_empty());
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

/// Sets right what only a fault of a disk would have wrong.
fn mend(bytes: &mut Vec<u8>, choice: u8) {
    let header = SEGMENT_HEADER as usize;
    if bytes.len() < header {
        return;
    }
    put(bytes, 0, &SEGMENT_MAGIC);
    let crc = crc32c::crc32c(&bytes[..header - 4]);
    put(bytes, header - 4, &crc.to_le_bytes());
    let (base, salt) = (u64::from_le_bytes(number(bytes, 32)), u64::from_le_bytes(number(bytes, 40)));
    let mut at = header;
    while at + FRAME_HEADER + FRAME_TAIL <= bytes.len() {
        put(bytes, at, &FRAME_MAGIC);
        let mut length = u32::from_le_bytes(number(bytes, at + 12)) as usize;
        let left = bytes.len() - at - FRAME_HEADER - FRAME_TAIL;
        let footer = bytes[at + 4] == FrameKind::Footer as u8;
        if length > left && choice & 4 == 4 {
            length = if footer { left.saturating_sub(TRAILER) } else { left };
            put(bytes, at + 12, &(length as u32).to_le_bytes());
        }
        if choice & 2 == 2 {
            put(bytes, at + 16, &base.wrapping_add(at as u64).to_le_bytes());
        }
        let crc = salted(salt, &bytes[at..at + FRAME_HEADER - 4]);
        put(bytes, at + FRAME_HEADER - 4, &crc.to_le_bytes());
        if length > left {
            return;
        }
        let payload = at + FRAME_HEADER;
        if footer && length >= 48 {
            let digest: [u8; 32] = Sha256::digest(&bytes[..at]).into();
            put(bytes, payload + 16, &digest);
        }
        let crc = salted(salt, &bytes[payload..payload + length]);
        put(bytes, payload + length, &crc.to_le_bytes());
        let end = payload + length + FRAME_TAIL;
        if footer && end + TRAILER <= bytes.len() {
            bytes.truncate(end);
            let start = (at as u64).to_le_bytes();
            bytes.extend_from_slice(&start);
            bytes.extend_from_slice(&salted(salt, &start).to_le_bytes());
            bytes.extend_from_slice(b"GLSD");
            return;
        }
        at = end;
    }
}

/// The first byte: bit 0, checksums and digests are set right.
///
/// # Panics
/// Where something does not hold.
pub fn slice(data: &[u8], file: &Path, room_for: Within<'_>) {
    let Some((choice, rest)) = data.split_first() else { return };
    let bytes = if choice & 1 == 1 { right(rest) } else { rest.to_vec() };
    fs::write(file, &bytes).unwrap();
    let mut pieces = Vec::new();
    // The bytes of a piece grow as they are read, and the path is in every place.
    let most = (64 << 10) + 64 * bytes.len();
    let read = within(room_for, most, || {
        read_slice(file, |_, piece, begins, content| {
            assert_eq!(bytes[begins as usize..][..content.len()], content);
            pieces.push((piece, content));
            Ok::<(), LogError>(())
        })
    });
    let head = match read {
        Ok(head) => head,
        Err(LogError::Damaged { place, what }) => {
            let (named, byte) = place.physical.rsplit_once(" byte ").unwrap();
            assert!(named == file.display().to_string() && byte.parse::<usize>().unwrap() <= bytes.len());
            return assert!(!what.is_empty());
        }
        Err(error) => panic!("a slice in memory cannot be read: {error}"),
    };
    let log = within(room_for, most, || SliceLog::open(file)).unwrap();
    let mut writer = SliceWriter::new(Vec::new(), &head).unwrap();
    for (piece, content) in &pieces {
        match piece {
            Piece::Record { stream, offset } => {
                use gatelog_event_log::Log as _;
                let read = log.read(*stream, *offset, ReadLimit { records: 1, bytes: 1 }).unwrap();
                assert_eq!((read.records[0].offset, &read.records[0].bytes), (*offset, content));
                writer.record(*stream, &read.records[0]).unwrap();
            }
            Piece::Blob(hash) => writer.blob(hash, content).unwrap(),
            Piece::File(name) => writer.file(name, content).unwrap(),
        }
    }
    fs::write(file, writer.finish().unwrap()).unwrap();
    let mut again = Vec::new();
    let same = read_slice(file, |_, piece, _, content| {
        again.push((piece, content));
        Ok::<(), LogError>(())
    });
    assert_eq!((same, again), (Ok(head), pieces));
}

/// The slice with the checksums of its pieces and its digest as they must be.
fn right(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let text = String::from_utf8_lossy(line);
        let words: Vec<&str> = text.split(' ').collect();
        let length = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).filter(|n| *n < after.len());
        let piece = match words[0] {
            "end" => break,
            "record" => length(3).map(|length| {
                (length, format!("record {} {} {length} {:08x}", words[1], words[2], crc32c::crc32c(&after[..length])))
            }),
            "file" => length(2)
                .map(|length| (length, format!("file {} {length} {:08x}", words[1], crc32c::crc32c(&after[..length])))),
            "blob" => length(2).map(|length| (length, format!("blob {} {length}", BlobHash::of(&after[..length])))),
            _ => None,
        };
        match piece {
            Some((length, line)) => {
                out.extend_from_slice(line.as_bytes());
                out.push(b'\n');
                out.extend_from_slice(&after[..length]);
                out.push(b'\n');
                rest = &after[length + 1..];
            }
            None => {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
    }
    let digest: [u8; 32] = Sha256::digest(&out).into();
    out.extend_from_slice(format!("end {}\n", BlobHash(digest)).as_bytes());
    out
}

/// A footer's frame reads back as the header says.
#[cfg(test)]
#[test]
fn mended_bytes_are_a_sealed_segment() {
    let header =
        SegmentHeader { site: gatelog_record::SiteId([1; 16]), number: 1, base: 0, salt: 7, previous_digest: [0; 32] };
    let mut bytes = header.encode();
    let mut builder = FrameBuilder::new();
    builder.record(Stream::Intake(0), 0, b"a record");
    bytes.extend_from_slice(&builder.finish(FrameKind::Records, 0, 0));
    let footer = Footer { frames: 1, records: 1, digest: [0; 32], streams: Vec::new() };
    bytes.extend_from_slice(&FrameBuilder::footer(&footer, 3, 4, 5));
    mend(&mut bytes, 7);
    let at = SEGMENT_HEADER as usize;
    let read = crate::format::FrameHeader::decode(&bytes[at..], 7).unwrap();
    assert_eq!((read.kind, read.count, read.durable), (FrameKind::Records, 1, at as u64));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("segment");
    fs::write(&file, &bytes).unwrap();
    let (footer, length) = read_footer(&Segment::new(1, 0, 7, file)).unwrap().unwrap();
    assert_eq!((footer.records, length), (1, bytes.len() as u64));
}
