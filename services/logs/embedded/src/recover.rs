//! Opening: what is on disk becomes a [`View`], or a named error at a place.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

use gatelog_event_log::{LogError, Place, failpoint};
use gatelog_record::{SiteId, Stream};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::format::{
    Footer, FrameHeader, FrameKind, SEGMENT_HEADER, SegmentHeader, TRAILER, checked_payload, footer_start, records,
};
use crate::home::{Home, at, damaged, segment_name, sync_dir, system};
use crate::index::{Segment, View};
use crate::medium::Medium;
use crate::options::{Known, Options};
use crate::read::link_of;
use crate::scan::{Found, Frame, Scanner, read_at_most};

/// What the next segment must say of what stands before it.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    pub(crate) number: u64,
    pub(crate) base: u64,
    pub(crate) previous_digest: [u8; 32],
}

impl Next {
    pub(crate) fn first() -> Next {
        Next { number: 1, base: 0, previous_digest: [0; 32] }
    }
}

/// The segment that is being written, and what its footer will need.
pub(crate) struct Tip {
    /// Its index in the view.
    pub(crate) index: usize,
    pub(crate) segment: Arc<Segment>,
    /// How many bytes it has.
    pub(crate) bytes: u64,
    pub(crate) hash: Sha256,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    pub(crate) medium: Box<dyn Medium>,
}

/// A log that was opened for writing.
pub(crate) struct Recovered {
    pub(crate) view: Mutex<View>,
    /// The last segment, unless it is sealed or there is none.
    pub(crate) tip: Option<Tip>,
    pub(crate) next: Next,
    /// Bytes of an unfinished frame that were cut off, without zeros at their end.
    pub(crate) cut_off: u64,
}

/// Opens a segment and checks that it follows what stands before it.
pub(crate) fn open_segment(home: &Home, site: SiteId, next: &Next) -> Result<Arc<Segment>, LogError> {
    let path = home.segment(next.number);
    let mut bytes = [0; SEGMENT_HEADER as usize];
    let segment = Segment::new(next.number, next.base, 0, path.clone());
    let file = segment.file()?;
    let read = read_at_most(&file, &mut bytes, 0).map_err(|error| system("reading", &path, &error))?;
    let header =
        SegmentHeader::decode(bytes.get(..read).unwrap_or_default()).map_err(|what| damaged(next.number, 0, what))?;
    let expected = SegmentHeader {
        site,
        number: next.number,
        base: next.base,
        salt: header.salt,
        previous_digest: next.previous_digest,
    };
    if header != expected {
        let what = if header.site != site {
            format!("the segment belongs to the log of site {}, not to this one ({site})", header.site)
        } else if header.number != next.number {
            format!("this is segment {} under another's name", segment_name(header.number))
        } else {
            "the segment does not follow the one before it".to_owned()
        };
        return Err(damaged(next.number, 0, what));
    }
    let segment = Segment::new(next.number, next.base, header.salt, path);
    Ok(Arc::new(segment))
}

/// The footer of a segment and the segment's length, or `None` when it has no trailer.
pub(crate) fn read_footer(segment: &Segment) -> Result<Option<(Footer, u64)>, LogError> {
    let file = segment.file()?;
    let wrong = |error: std::io::Error| system("reading", &segment.path, &error);
    let length = file.metadata().map_err(wrong)?.len();
    let Some(trailer_at) = length.checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER];
    read_at_most(&file, &mut trailer, trailer_at).map_err(wrong)?;
    let Some(start) = footer_start(&trailer, segment.salt) else { return Ok(None) };
    let bad = |what: &str| damaged(segment.number, trailer_at, format!("the end of the sealed segment {what}"));
    let size = trailer_at.checked_sub(start).filter(|_| start >= SEGMENT_HEADER);
    let size = size.ok_or_else(|| bad("names a footer outside of it"))?;
    let mut frame = vec![0; usize::try_from(size).map_err(|_| bad("names a footer outside of it"))?];
    read_at_most(&file, &mut frame, start).map_err(wrong)?;
    let footer = FrameHeader::decode(&frame, segment.salt)
        .filter(|header| header.kind == FrameKind::Footer && header.durable == segment.base + start)
        .filter(|header| header.frame_bytes() == size)
        .and_then(|header| Footer::decode(checked_payload(&frame, &header, segment.salt)?))
        .filter(|footer| footer.fits(start));
    match footer {
        Some(footer) => Ok(Some((footer, length))),
        None => Err(damaged(segment.number, start, "the footer of the sealed segment is damaged")),
    }
}

/// All segments but the last unsealed one, at their footers' word.
///
/// Gives what must come next and, if the last segment is not sealed, that segment: it is the last of
/// the view's, its frames not yet read.
pub(crate) fn load_sealed(home: &Home, site: SiteId, view: &mut View) -> Result<(Next, bool), LogError> {
    let numbers = home.segment_numbers()?;
    let mut next = Next::first();
    for (index, number) in numbers.iter().enumerate() {
        if *number != next.number {
            let what = format!("segment {} is missing", segment_name(next.number));
            return Err(damaged(next.number, 0, what));
        }
        let segment = open_segment(home, site, &next)?;
        view.segments.push(Arc::clone(&segment));
        match read_footer(&segment)? {
            Some((footer, length)) => {
                let digest = footer.digest;
                view.admit_footer(index, *number, footer)?;
                next = Next { number: number + 1, base: next.base + length, previous_digest: digest };
                segment.close();
            }
            None if index + 1 == numbers.len() => return Ok((next, true)),
            None => {
                let length = std::fs::metadata(&segment.path).map_or(0, |metadata| metadata.len());
                let what = "the segment does not end in a footer, but another one follows it";
                return Err(damaged(*number, length.saturating_sub(TRAILER as u64), what));
            }
        }
    }
    Ok((next, false))
}

/// Takes the records of a frame into the view.
pub(crate) fn admit_frame(view: &mut View, index: usize, number: u64, frame: &Frame<'_>) -> Result<u64, LogError> {
    let mut count = 0;
    for record in records(frame.payload, frame.count) {
        let Some(record) = record else {
            return Err(damaged(number, frame.byte, "the frame's records do not fill it"));
        };
        let admitted = view.admit_read(index, frame.byte, (record.stream, record.offset, record.bytes));
        admitted.map_err(|what| damaged(number, frame.byte, what))?;
        count += 1;
    }
    Ok(count)
}

/// Opens the log for writing. Only the last frame may be cut off, and only if nobody knows of it.
pub(crate) fn recover(home: &Home, site: SiteId, options: &Options) -> Result<Recovered, LogError> {
    let known = &options.known;
    let mut view = View::default();
    let (mut next, unsealed) = load_sealed(home, site, &mut view)?;
    let hint = home.read_hint();
    if !unsealed {
        let view = Mutex::new(view);
        check_known(&view, &next, next.base, hint, known, None)?;
        return Ok(Recovered { view, tip: None, next, cut_off: 0 });
    }
    let index = view.segments.len() - 1;
    let segment = Arc::clone(&view.segments[index]);
    let file = segment.file()?;
    let wrong = |error: std::io::Error| system("reading", &segment.path, &error);
    let mut hash = Sha256::new();
    let mut head = vec![0; SEGMENT_HEADER as usize];
    read_at_most(&file, &mut head, 0).map_err(wrong)?;
    hash.update(&head);
    let (mut frames, mut record_count) = (0, 0);
    let mut scanner = Scanner::new(&file, &segment, SEGMENT_HEADER);
    let torn = loop {
        match scanner.next().map_err(wrong)? {
            Found::Frame(frame) if frame.kind == FrameKind::Records => {
                record_count += admit_frame(&mut view, index, segment.number, &frame)?;
                frames += 1;
                hash.update(frame.bytes);
            }
            // Sealing was cut short: it will be done again.
            Found::Frame(footer) => break Some((footer.byte, "sealing was cut short")),
            Found::End => break None,
            Found::Bad(what) => {
                let rest = scanner.rest().map_err(wrong)?;
                if rest.begun_after {
                    return Err(damaged(segment.number, scanner.at(), format!("{what}, and other frames follow it")));
                }
                // Nothing but room was left.
                break (rest.written > 0).then_some((scanner.at(), what));
            }
        }
    };
    let bytes = torn.map_or(scanner.at(), |(byte, _)| byte);
    let view = Mutex::new(view);
    check_known(&view, &next, next.base + bytes, hint, known, torn)?;

    let cut_off = Scanner::new(&file, &segment, bytes).rest().map_err(wrong)?.written;
    next = Next { number: next.number + 1, ..next };
    let medium = open_tip(&segment, bytes, options)?;
    let tip = Tip { index, segment, bytes, hash, frames, records: record_count, medium };
    Ok(Recovered { view, tip: Some(tip), next, cut_off })
}

/// Opens the last segment for writing, without what stands behind its last whole frame. What stays
/// is made durable before anybody sees it: the process that wrote it may have died before it was.
fn open_tip(segment: &Segment, bytes: u64, options: &Options) -> Result<Box<dyn Medium>, LogError> {
    let wrong = |what, error: std::io::Error| system(what, &segment.path, &error);
    let mut permissions = std::fs::metadata(&segment.path).map_err(|error| wrong("reading", error))?.permissions();
    if permissions.readonly() {
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
        std::fs::set_permissions(&segment.path, permissions).map_err(|error| wrong("making writable", error))?;
    }
    let file = OpenOptions::new().write(true).open(&segment.path).map_err(|error| wrong("opening", error))?;
    if file.metadata().map_err(|error| wrong("reading", error))?.len() > bytes {
        file.set_len(bytes).map_err(|error| wrong("cutting off", error))?;
    }
    file.sync_all().map_err(|error| wrong("syncing", error))?;
    Ok(options.segment_file(file, bytes))
}

/// A segment that was just made: where it goes, and the bytes of its header.
type Made = (Arc<Segment>, Box<dyn Medium>, Vec<u8>);

/// Makes a segment: whole with its header, or not there at all.
pub(crate) fn create_segment(home: &Home, site: SiteId, next: &Next, options: &Options) -> std::io::Result<Made> {
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(std::io::Error::other)?;
    let salt = u64::from_le_bytes(salt);
    let header =
        SegmentHeader { site, number: next.number, base: next.base, salt, previous_digest: next.previous_digest };
    let bytes = header.encode();
    let path = home.segment(next.number);
    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    failpoint::pass("log/segment-written");
    std::fs::rename(&new, &path)?;
    sync_dir(&home.segments())?;
    failpoint::pass("log/segment-made");
    let segment = Segment::new(next.number, next.base, salt, path);
    let medium = options.segment_file(file, bytes.len() as u64);
    Ok((Arc::new(segment), medium, bytes))
}

/// Refuses a log that is shorter than what somebody knows of it. `torn` is the frame that would be
/// cut off, and what is wrong with it.
fn check_known(
    view: &Mutex<View>,
    next: &Next,
    end: u64,
    hint: u64,
    known: &[Known],
    torn: Option<(u64, &'static str)>,
) -> Result<(), LogError> {
    let behind = |place: Place, knows: String| match torn {
        Some((byte, what)) => damaged(next.number, byte, format!("{what}; it cannot be cut off, because {knows}")),
        None => LogError::Behind { place, knows },
    };
    if hint > end {
        let place = at(next.number, end.saturating_sub(next.base));
        return Err(behind(place, format!("{} bytes more had been acknowledged", hint - end)));
    }
    for known in known.iter().filter(|known| known.sequence > 0) {
        let stream = Stream::Events(known.partition);
        let Known { who, partition, sequence, link } = known;
        let (last, newest) = {
            let view = view.lock();
            let state = view.streams.get(&stream);
            let newest = state.and_then(|state| state.newest).unwrap_or(0);
            (state.map_or(0, |state| state.tail.sequence), view.place(stream, newest))
        };
        if last < *sequence {
            let place = if last == 0 { at(next.number, end.saturating_sub(next.base)) } else { newest };
            return Err(behind(
                place,
                format!("{who} knows event {sequence} of {partition}, here {last} is the newest"),
            ));
        }
        let (place, found) = link_of(view, *partition, *sequence)?;
        if found != *link {
            let what = format!(
                "{who} knows event {sequence} of {partition} with link {link}, here it has {found}: this is another history"
            );
            return Err(LogError::Damaged { place, what });
        }
    }
    Ok(())
}
