//! Reading every byte of a log and saying what is wrong.

use std::collections::BTreeMap;

use gatelog_event_log::LogError;
use gatelog_record::Stream;
use sha2::{Digest, Sha256};

use crate::format::{Footer, FrameKind, SEGMENT_HEADER, TRAILER, records};
use crate::home::{damaged, system};
use crate::index::Segment;
use crate::log::EmbeddedLog;
use crate::recover::{Next, open_segment};
use crate::scan::{Found, Scanner, read_at_most};

/// What a verification of segments found to be in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segments read.
    pub segments: u64,
    /// Of these, sealed ones.
    pub sealed: u64,
    /// Frames read.
    pub frames: u64,
    /// Records read.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl EmbeddedLog {
    /// Reads every durable byte of every segment and checks it: checksums, places, offsets, footers
    /// and their digests. What the records say is for [`gatelog_event_log::history::verify`].
    ///
    /// # Errors
    /// `Damaged` at the first segment and byte that is not as it was written; `System`.
    pub fn verify(&self) -> Result<VerifyReport, LogError> {
        let shared = self.shared();
        shared.refresh()?;
        let hint = shared.home.read_hint();
        let count = shared.view.lock().segments.len();
        let mut report = VerifyReport::default();
        let mut ends = BTreeMap::new();
        let mut next = Next::first();
        for index in 0..count {
            let segment = open_segment(&shared.home, shared.site, &next)?;
            let sealed = verify_segment(&segment, hint, index + 1 == count, &mut ends, &mut report)?;
            report.segments += 1;
            if let Some((length, digest)) = sealed {
                report.sealed += 1;
                next = Next { number: next.number + 1, base: next.base + length, previous_digest: digest };
            }
        }
        Ok(report)
    }
}

/// Gives length and digest of a segment that is sealed.
pub(crate) fn verify_segment(
    segment: &Segment,
    hint: u64,
    last: bool,
    ends: &mut BTreeMap<Stream, u64>,
    report: &mut VerifyReport,
) -> Result<Option<(u64, [u8; 32])>, LogError> {
    let file = segment.file()?;
    let wrong = |error: std::io::Error| system("reading", &segment.path, &error);
    let mut head = vec![0; SEGMENT_HEADER as usize];
    read_at_most(&file, &mut head, 0).map_err(wrong)?;
    let mut hash = Sha256::new();
    hash.update(&head);
    report.bytes += SEGMENT_HEADER;
    let (mut frames, mut record_count) = (0, 0);
    let mut first_and_count: BTreeMap<Stream, (u64, u64)> = BTreeMap::new();
    let mut scanner = Scanner::new(&file, segment, SEGMENT_HEADER);
    loop {
        let byte = scanner.at();
        let bad = |what: &str| damaged(segment.number, byte, what);
        let frame = match scanner.next().map_err(wrong)? {
            Found::Frame(frame) => frame,
            // Behind what is durable stands at most a frame that is being written, and room.
            Found::End | Found::Bad(_) if last && segment.base + byte >= hint => return Ok(None),
            Found::End => return Err(bad("the segment ends here, but more had been written")),
            Found::Bad(what) => return Err(bad(what)),
        };
        report.bytes += frame.bytes.len() as u64;
        if frame.kind == FrameKind::Footer {
            let footer = Footer::decode(frame.payload).ok_or_else(|| bad("the footer cannot be read"))?;
            let end = byte + frame.bytes.len() as u64 + TRAILER as u64;
            let length = file.metadata().map_err(wrong)?.len();
            let summaries: BTreeMap<Stream, (u64, u64)> =
                footer.streams.iter().map(|summary| (summary.stream, (summary.first, summary.count))).collect();
            let digest: [u8; 32] = hash.finalize().into();
            if (footer.frames, footer.records) != (frames, record_count) || summaries != first_and_count {
                return Err(bad("the footer does not count what is in the segment"));
            }
            if footer.digest != digest {
                return Err(bad("the footer's digest is not that of the segment"));
            }
            // What is being sealed has a footer before it has a trailer, and that before its room is given back.
            if last && length != end && segment.base + byte >= hint {
                return Ok(None);
            }
            if length < end || (length > end && !last) {
                return Err(bad("the segment does not end with its footer"));
            }
            report.bytes += TRAILER as u64;
            return Ok(Some((end, digest)));
        }
        hash.update(frame.bytes);
        frames += 1;
        report.frames += 1;
        for record in records(frame.payload, frame.count) {
            let record = record.ok_or_else(|| bad("the frame's records do not fill it"))?;
            let end = ends.entry(record.stream).or_default();
            if record.offset != *end {
                let what = format!("a record of {} has offset {}, {end} was expected", record.stream, record.offset);
                return Err(bad(&what));
            }
            *end += 1;
            first_and_count.entry(record.stream).or_insert((record.offset, 0)).1 += 1;
            record_count += 1;
            report.records += 1;
        }
    }
}
