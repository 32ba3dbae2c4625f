//! Reading streams and finding events, over a view.

use std::sync::Arc;

use gatelog_event_log::{LogError, Offset, Place, ReadBatch, ReadLimit, ReadRecord};
use gatelog_record::{ChainLink, Envelope, Partition, Stream};
use parking_lot::Mutex;

use crate::format::records;
use crate::home::{at, system};
use crate::index::{KeptFrame, Located, View};
use crate::scan::{Found, Scanner};

/// Reads a stream: from memory what is newest, the rest from disk.
pub(crate) fn read_stream(
    view: &Mutex<View>,
    stream: Stream,
    from: Offset,
    limit: ReadLimit,
) -> Result<ReadBatch, LogError> {
    let mut taker = Taker::new(from, limit);
    loop {
        let located = {
            let view = view.lock();
            let Some(state) = view.streams.get(&stream).filter(|state| taker.batch.next.0 < state.end) else {
                return Ok(taker.batch);
            };
            if let Some(hot) = state.hot_from(taker.batch.next.0) {
                for bytes in hot {
                    if !taker.take(bytes) {
                        break;
                    }
                }
                return Ok(taker.batch);
            }
            let Some(located) = view.locate(stream, taker.batch.next.0) else {
                let place = view.place(stream, taker.batch.next.0);
                return Err(LogError::Damaged { place, what: "no segment holds this record".to_owned() });
            };
            located
        };
        match read_segment(view, &mut taker, stream, &located)? {
            Stopped::Full => return Ok(taker.batch),
            Stopped::AtEnd => {}
        }
    }
}

/// Where reading in a segment stopped.
enum Stopped {
    /// The batch is full, or holds what stands in front of damage.
    Full,
    /// The segment holds no more of the stream.
    AtEnd,
}

/// Reads a stream's records of one segment from disk.
fn read_segment(view: &Mutex<View>, taker: &mut Taker, stream: Stream, located: &Located) -> Result<Stopped, LogError> {
    let Located { segment, index, until, .. } = located;
    let mut byte = located.byte;
    let kept = view.lock().kept_frame(*index, byte);
    if let Some(kept) = kept
        && let Ok(full) = taker.take_frame(stream, &kept.payload, kept.count)
    {
        if full {
            view.lock().leave_cursor(stream, taker.batch.next.0, *index, byte);
            return Ok(Stopped::Full);
        }
        byte = kept.next;
        if taker.batch.next.0 >= *until {
            view.lock().leave_cursor(stream, taker.batch.next.0, *index, byte);
            return Ok(Stopped::AtEnd);
        }
    }
    let file = segment.file()?;
    let mut scanner = Scanner::new(&file, segment, byte);
    let stopped = loop {
        byte = scanner.at();
        let what = match scanner.next().map_err(|error| system("reading", &segment.path, &error))? {
            Found::Frame(frame) => match taker.take_frame(stream, frame.payload, frame.count) {
                Ok(true) => {
                    let next = byte + frame.bytes.len() as u64;
                    let kept = KeptFrame { byte, count: frame.count, payload: frame.payload.to_vec(), next };
                    view.lock().keep_frame(*index, Arc::new(kept));
                    break Stopped::Full;
                }
                Ok(false) if taker.batch.next.0 >= *until => {
                    byte = scanner.at();
                    break Stopped::AtEnd;
                }
                Ok(false) => continue,
                Err(what) => what,
            },
            Found::End => "the segment ends here",
            Found::Bad(what) => what,
        };
        if !taker.batch.records.is_empty() {
            break Stopped::Full;
        }
        let physical = at(segment.number, byte).physical;
        let place = Place { stream: Some(stream), offset: Some(taker.batch.next), physical };
        return Err(LogError::Damaged { place, what: what.to_owned() });
    };
    let mut view = view.lock();
    view.leave_cursor(stream, taker.batch.next.0, *index, byte);
    if index + 1 < view.segments.len() {
        // Of sealed segments no file is kept open: there may be many.
        segment.close();
    }
    Ok(stopped)
}

/// Fills a batch up to its limits.
pub(crate) struct Taker {
    pub(crate) batch: ReadBatch,
    limit: ReadLimit,
    bytes: usize,
}

impl Taker {
    pub(crate) fn new(from: Offset, limit: ReadLimit) -> Taker {
        Taker { batch: ReadBatch { records: Vec::new(), next: from }, limit, bytes: 0 }
    }

    /// Takes the stream's records of a frame; true when the batch is full.
    fn take_frame(&mut self, stream: Stream, payload: &[u8], count: u32) -> Result<bool, &'static str> {
        for record in records(payload, count) {
            let record = record.ok_or("the frame's records do not fill it")?;
            if record.stream != stream || record.offset < self.batch.next.0 {
                continue;
            }
            if record.offset != self.batch.next.0 {
                return Err("records of the stream are missing before this frame");
            }
            if !self.take(record.bytes) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the record at the batch's `next`; false when the batch is full.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let some = !self.batch.records.is_empty();
        let full = self.batch.records.len() >= self.limit.records || self.bytes + bytes.len() > self.limit.bytes;
        if some && full {
            return false;
        }
        self.bytes += bytes.len();
        self.batch.records.push(ReadRecord { offset: self.batch.next, bytes: bytes.to_vec() });
        self.batch.next.0 += 1;
        true
    }
}

/// The offset of the event with this sequence, or of the first after it that is history.
pub(crate) fn seek_stream(view: &Mutex<View>, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
    let stream = Stream::Events(partition);
    let sequence = sequence.max(1);
    let (mut from, mut term) = {
        let view = view.lock();
        let Some(state) = view.streams.get(&stream) else { return Ok(Offset(0)) };
        if sequence > state.tail.sequence && state.broken.is_none() {
            return Ok(Offset(state.end));
        }
        if state.end == state.tail.sequence {
            // Every record of the stream is history: then sequences and offsets go together.
            return Ok(Offset(sequence - 1));
        }
        view.seek_entry(partition, sequence).map_or((Offset(0), 0), |entry| (Offset(entry.offset), entry.term))
    };
    loop {
        let batch = read_stream(view, stream, from, ReadLimit::default())?;
        for record in &batch.records {
            // What cannot be read is for the history's reader to report: seeking stops in front of it.
            let Ok((envelope, _)) = Envelope::decode(&record.bytes) else { return Ok(record.offset) };
            if envelope.term < term {
                continue;
            }
            term = envelope.term;
            if envelope.sequence >= sequence {
                return Ok(record.offset);
            }
        }
        if batch.records.is_empty() {
            return Ok(batch.next);
        }
        from = batch.next;
    }
}

/// The link of an event that is there, and where it stands.
pub(crate) fn link_of(view: &Mutex<View>, partition: Partition, sequence: u64) -> Result<(Place, ChainLink), LogError> {
    let stream = Stream::Events(partition);
    let offset = seek_stream(view, partition, sequence)?;
    let batch = read_stream(view, stream, offset, ReadLimit { records: 1, bytes: 1 })?;
    let place = view.lock().place(stream, offset.0);
    match batch.records.first().map(|record| Envelope::decode(&record.bytes)) {
        Some(Ok((_, link))) => Ok((place, link)),
        Some(Err(error)) => Err(LogError::Damaged { place, what: error.to_string() }),
        None => Err(LogError::Damaged { place, what: format!("event {sequence} is not there") }),
    }
}
