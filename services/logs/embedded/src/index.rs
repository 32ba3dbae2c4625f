//! What is in memory of a log: its segments, where each stream's records are, its newest records.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use gatelog_event_log::history::Followed;
use gatelog_event_log::{Completer, LogError, Offset, Place, ReadBatch, ReadLimit, Tail};
use gatelog_record::{Partition, Stream};
use parking_lot::Mutex;

use crate::format::{Entry, Footer, Summary};
use crate::home::{at, damaged, system};
use crate::read::Taker;

/// An index entry is kept for a stream's frame when the last one lies so many bytes back.
pub(crate) const INDEX_EVERY: u64 = 64 << 10;
/// Frames that readers left half read are kept up to so many bytes.
const KEPT_FRAMES: usize = 16 << 20;
/// Where readers last stood, so that the next read need not search.
const CURSORS: usize = 32;

/// One segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) base: u64,
    pub(crate) salt: u64,
    pub(crate) path: PathBuf,
    file: Mutex<Option<Arc<File>>>,
}

impl Segment {
    pub(crate) fn new(number: u64, base: u64, salt: u64, path: PathBuf) -> Segment {
        Segment { number, base, salt, path, file: Mutex::new(None) }
    }

    /// The file, open for reading.
    pub(crate) fn file(&self) -> Result<Arc<File>, LogError> {
        let mut slot = self.file.lock();
        if let Some(file) = &*slot {
            return Ok(Arc::clone(file));
        }
        let file = File::open(&self.path).map_err(|error| system("opening", &self.path, &error))?;
        let file = Arc::new(file);
        *slot = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Closes the file; the next read opens it again.
    pub(crate) fn close(&self) {
        *self.file.lock() = None;
    }
}

/// The records of one stream in one segment.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) segment: usize,
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) entries: Vec<Entry>,
}

/// One stream.
#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) parts: Vec<Part>,
    pub(crate) end: u64,
    /// Of events: where the history stands, the offset of its newest event, where it is broken.
    pub(crate) tail: Tail,
    pub(crate) newest: Option<u64>,
    pub(crate) broken: Option<(u64, String)>,
    hot: VecDeque<Arc<[u8]>>,
    pub(crate) waiters: Vec<(Offset, Completer<()>)>,
    waiters_swept: usize,
    /// Of inputs: those that wait to be written, and the partition's writer, if it reads them.
    accepted: VecDeque<Arc<[u8]>>,
    attending: Option<Attending>,
}

/// A partition's writer that reads inputs before they are written.
struct Attending {
    /// Its claim.
    claim: u64,
    /// The offset after the last that it was shown.
    shown: u64,
    /// Told when there is more; `None` while it decides.
    waits: Option<(Offset, Completer<()>)>,
}

/// A reader's last place: the frame at `byte` of the segment has no record of the stream before `offset`.
#[derive(Clone, Copy)]
struct Cursor {
    stream: Stream,
    offset: u64,
    segment: usize,
    byte: u64,
}

/// A frame that was read and checked.
pub(crate) struct KeptFrame {
    pub(crate) byte: u64,
    pub(crate) count: u32,
    pub(crate) payload: Vec<u8>,
    /// Where the next frame begins.
    pub(crate) next: u64,
}

/// Everything known of a log.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) streams: BTreeMap<Stream, StreamState>,
    pub(crate) closed: bool,
    /// A group is being written: what comes meanwhile goes with the next one, and is decided as one, too.
    pub(crate) committing: bool,
    hot_order: VecDeque<Stream>,
    hot_bytes: u64,
    cursors: VecDeque<Cursor>,
    kept: VecDeque<(usize, Arc<KeptFrame>)>,
}

/// The history of a partition after a frame: given by whoever has checked it already.
pub(crate) type Tails = BTreeMap<Partition, (Tail, u64)>;

/// Where to begin reading a stream's records in one segment.
pub(crate) struct Located {
    pub(crate) segment: Arc<Segment>,
    pub(crate) index: usize,
    pub(crate) byte: u64,
    /// The offset after the stream's last record in this segment.
    pub(crate) until: u64,
}

impl StreamState {
    fn part(&mut self, segment: usize) -> &mut Part {
        if self.parts.last().is_none_or(|part| part.segment != segment) {
            self.parts.push(Part { segment, first: self.end, count: 0, entries: Vec::new() });
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    /// The records from `from` on, if the newest in memory reach back so far.
    pub(crate) fn hot_from(&self, from: u64) -> Option<impl Iterator<Item = &Arc<[u8]>>> {
        let first = self.end - self.hot.len() as u64;
        let skip = from.checked_sub(first)?;
        Some(self.hot.iter().skip(usize::try_from(skip).ok()?))
    }

    fn accepted_end(&self) -> u64 {
        self.end + self.accepted.len() as u64
    }

    /// The writer with this claim, which takes the place of whoever attended before.
    fn attend(&mut self, claim: u64, woken: &mut Vec<Completer<()>>) -> &mut Attending {
        let before = self.attending.take();
        let attending = match before {
            Some(same) if same.claim == claim => same,
            other => {
                woken.extend(other.and_then(|other| other.waits).map(|(_, waiter)| waiter));
                Attending { claim, shown: 0, waits: None }
            }
        };
        self.attending.insert(attending)
    }

    /// Adds somebody who waits; now and then forgets those who went away.
    pub(crate) fn wait(&mut self, beyond: Offset, waiter: Completer<()>) {
        if self.waiters.len() >= 2 * self.waiters_swept.max(32) {
            self.waiters.retain(|(_, waiter)| waiter.is_wanted());
            self.waiters_swept = self.waiters.len();
        }
        self.waiters.push((beyond, waiter));
    }

    /// The writer that waits for what is there by now.
    fn take_attending(&mut self) -> Option<Completer<()>> {
        let end = Offset(self.accepted_end());
        let due = self.attending.as_mut()?.waits.take_if(|(beyond, _)| end > *beyond);
        due.map(|(_, waiter)| waiter)
    }

    fn take_due(&mut self, woken: &mut Vec<Completer<()>>) {
        let end = Offset(self.end);
        if self.waiters.iter().any(|(beyond, _)| end > *beyond) {
            let (due, rest) = std::mem::take(&mut self.waiters).into_iter().partition(|(beyond, _)| end > *beyond);
            self.waiters = rest;
            woken.extend(due.into_iter().map(|(_, waiter): (Offset, Completer<()>)| waiter));
        }
        woken.extend(self.take_attending());
    }
}

impl View {
    /// Takes a sealed segment at its footer's word.
    pub(crate) fn admit_footer(&mut self, segment: usize, number: u64, footer: Footer) -> Result<(), LogError> {
        for Summary { stream, first, count, tail, newest, broken, entries } in footer.streams {
            let state = self.streams.entry(stream).or_default();
            if first != state.end {
                let what = format!("{stream} goes on at offset {first} in this segment, {} was expected", state.end);
                return Err(damaged(number, 0, what));
            }
            state.end = first.saturating_add(count);
            state.tail = tail;
            state.newest = newest.checked_sub(1);
            if let (Some(offset), None) = (broken.checked_sub(1), &state.broken) {
                state.broken = Some((offset, "the history is broken here: see `gatelog log verify`".to_owned()));
            }
            state.parts.push(Part { segment, first, count, entries });
        }
        Ok(())
    }

    /// Takes one record of the frame at `byte`; an error says why it cannot stand here.
    fn admit(&mut self, segment: usize, byte: u64, stream: Stream, offset: u64) -> Result<&mut StreamState, String> {
        let state = self.streams.entry(stream).or_default();
        if offset != state.end {
            return Err(format!("a record of {stream} has offset {offset}, {} was expected", state.end));
        }
        let (sequence, term) = (state.tail.sequence, state.tail.term);
        let part = state.part(segment);
        part.count += 1;
        let far = part.entries.last().is_none_or(|last| byte >= last.byte + INDEX_EVERY);
        if far {
            part.entries.push(Entry { offset, byte, sequence, term });
        }
        state.end += 1;
        Ok(state)
    }

    /// Takes a record read from disk: history is followed here.
    pub(crate) fn admit_read(
        &mut self,
        segment: usize,
        byte: u64,
        (stream, offset, bytes): (Stream, u64, &[u8]),
    ) -> Result<(), String> {
        let state = self.admit(segment, byte, stream, offset)?;
        state.hot.clear();
        if let Stream::Events(_) = stream
            && state.broken.is_none()
        {
            match state.tail.follow(bytes) {
                Ok(Followed::Event { tail, .. }) => {
                    state.tail = tail;
                    state.newest = Some(offset);
                }
                Ok(Followed::Stale { .. }) => {}
                Err(broken) => state.broken = Some((offset, broken.to_string())),
            }
        }
        Ok(())
    }

    /// Takes a frame that was just made durable; its histories have been followed before.
    pub(crate) fn admit_written(
        &mut self,
        segment: usize,
        byte: u64,
        records: Vec<(Stream, u64, Arc<[u8]>)>,
        tails: &Tails,
        hot_bytes: u64,
    ) {
        for (stream, offset, bytes) in records {
            if let Ok(state) = self.admit(segment, byte, stream, offset) {
                let size = bytes.len() as u64;
                state.accepted.pop_front();
                state.hot.push_back(bytes);
                self.hot_order.push_back(stream);
                self.hot_bytes += size;
            }
        }
        for (partition, (tail, newest)) in tails {
            let state = self.streams.entry(Stream::Events(*partition)).or_default();
            state.tail = *tail;
            state.newest = Some(*newest);
        }
        while self.hot_bytes > hot_bytes {
            let Some(oldest) = self.hot_order.pop_front() else { break };
            let dropped = self.streams.get_mut(&oldest).and_then(|state| state.hot.pop_front());
            self.hot_bytes = self.hot_bytes.saturating_sub(dropped.map_or(0, |bytes| bytes.len() as u64));
        }
    }

    /// Takes inputs that wait to be written now; gives the writer that waits for them, unless it is better woken for
    /// all that come until the group that is being written is.
    pub(crate) fn accept(&mut self, stream: Stream, records: &[Arc<[u8]>]) -> Option<Completer<()>> {
        let committing = self.committing;
        let state = self.streams.entry(stream).or_default();
        state.accepted.extend(records.iter().map(Arc::clone));
        if committing { None } else { state.take_attending() }
    }

    /// Forgets what waits to be written, for it is refused; gives the partitions whose writers were shown some of it,
    /// and those writers, if they wait.
    pub(crate) fn refuse_accepted(&mut self) -> (Vec<Partition>, Vec<Completer<()>>) {
        let (mut misled, mut woken) = (Vec::new(), Vec::new());
        self.committing = false;
        for (stream, state) in &mut self.streams {
            state.accepted.clear();
            if let Stream::Inputs(partition) = stream
                && let Some(attending) = state.attending.take_if(|attending| attending.shown > state.end)
            {
                misled.push(*partition);
                woken.extend(attending.waits.map(|(_, waiter)| waiter));
            }
        }
        (misled, woken)
    }

    /// Inputs that wait to be written, from `from` on, for the writer with this claim.
    pub(crate) fn show_accepted(
        &mut self,
        partition: Partition,
        claim: u64,
        from: Offset,
        limit: ReadLimit,
    ) -> (ReadBatch, Vec<Completer<()>>) {
        let mut woken = Vec::new();
        let mut taker = Taker::new(from, limit);
        let state = self.streams.entry(Stream::Inputs(partition)).or_default();
        if let Some(skip) = from.0.checked_sub(state.end) {
            for bytes in state.accepted.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
                if !taker.take(bytes) {
                    break;
                }
            }
        }
        let attending = state.attend(claim, &mut woken);
        attending.waits = None;
        attending.shown = attending.shown.max(taker.batch.next.0);
        (taker.batch, woken)
    }

    /// The writer with this claim waits for inputs beyond `beyond`, written or not.
    pub(crate) fn await_accepted(
        &mut self,
        partition: Partition,
        claim: u64,
        beyond: Offset,
        waiter: Completer<()>,
    ) -> Vec<Completer<()>> {
        let mut woken = Vec::new();
        let state = self.streams.entry(Stream::Inputs(partition)).or_default();
        let there = Offset(state.accepted_end()) > beyond;
        let attending = state.attend(claim, &mut woken);
        if there {
            woken.push(waiter);
        } else {
            attending.waits = Some((beyond, waiter));
        }
        woken
    }

    /// The writer with this claim is gone.
    pub(crate) fn leave(&mut self, partition: Partition, claim: u64) {
        if let Some(state) = self.streams.get_mut(&Stream::Inputs(partition)) {
            state.attending.take_if(|attending| attending.claim == claim);
        }
    }

    /// Whether a writer is deciding on inputs that it was shown, or is about to be.
    pub(crate) fn is_being_decided(&self) -> bool {
        self.streams.values().any(|state| state.attending.as_ref().is_some_and(|one| one.waits.is_none()))
    }

    /// Everybody whose wait is over.
    pub(crate) fn due(&mut self) -> Vec<Completer<()>> {
        let mut woken = Vec::new();
        self.streams.values_mut().for_each(|state| state.take_due(&mut woken));
        woken
    }

    /// Whether anybody waits.
    pub(crate) fn awaited(&self) -> bool {
        self.streams.values().any(|state| state.waiters.iter().any(|(_, waiter)| waiter.is_wanted()))
    }

    /// Ends every wait: there will be no more.
    pub(crate) fn close(&mut self) -> Vec<(Offset, Completer<()>)> {
        self.closed = true;
        let waits = |state: &mut StreamState| {
            let early = state.attending.take().and_then(|attending| attending.waits);
            std::mem::take(&mut state.waiters).into_iter().chain(early)
        };
        self.streams.values_mut().flat_map(waits).collect()
    }

    /// Where a stream's record with this offset can be found on disk.
    pub(crate) fn locate(&self, stream: Stream, offset: u64) -> Option<Located> {
        let state = self.streams.get(&stream).filter(|state| offset < state.end)?;
        let after = state.parts.partition_point(|part| part.first <= offset);
        let part = state.parts.get(after.checked_sub(1)?)?;
        let after = part.entries.partition_point(|entry| entry.offset <= offset);
        let entry = part.entries.get(after.checked_sub(1)?)?;
        let nearer = self
            .cursors
            .iter()
            .filter(|cursor| cursor.stream == stream && cursor.segment == part.segment && cursor.offset <= offset)
            .map(|cursor| cursor.byte)
            .max();
        Some(Located {
            segment: Arc::clone(self.segments.get(part.segment)?),
            index: part.segment,
            byte: entry.byte.max(nearer.unwrap_or(0)),
            until: part.first + part.count,
        })
    }

    /// The frame at this place, if a reader left it half read a short while ago.
    pub(crate) fn kept_frame(&self, segment: usize, byte: u64) -> Option<Arc<KeptFrame>> {
        let same = |(of, frame): &&(usize, Arc<KeptFrame>)| *of == segment && frame.byte == byte;
        self.kept.iter().find(same).map(|(_, frame)| Arc::clone(frame))
    }

    /// Keeps a frame that a reader left half read.
    pub(crate) fn keep_frame(&mut self, segment: usize, frame: Arc<KeptFrame>) {
        if frame.payload.len() > KEPT_FRAMES {
            return;
        }
        self.kept.retain(|(of, kept)| !(*of == segment && kept.byte == frame.byte));
        self.kept.push_back((segment, frame));
        while self.kept.iter().map(|(_, kept)| kept.payload.len()).sum::<usize>() > KEPT_FRAMES
            || self.kept.len() > CURSORS
        {
            self.kept.pop_front();
        }
    }

    /// Remembers where a reader stands.
    pub(crate) fn leave_cursor(&mut self, stream: Stream, offset: u64, segment: usize, byte: u64) {
        self.cursors.retain(|cursor| !(cursor.stream == stream && cursor.offset == offset));
        if self.cursors.len() >= CURSORS {
            self.cursors.pop_front();
        }
        self.cursors.push_back(Cursor { stream, offset, segment, byte });
    }

    /// The entry from which to look for the event with this sequence.
    pub(crate) fn seek_entry(&self, partition: Partition, sequence: u64) -> Option<Entry> {
        let parts = &self.streams.get(&Stream::Events(partition))?.parts;
        let before = |entry: &Entry| entry.sequence < sequence;
        let after = parts.partition_point(|part| part.entries.first().is_some_and(before));
        let part = parts.get(after.checked_sub(1)?)?;
        let after = part.entries.partition_point(before);
        part.entries.get(after.checked_sub(1)?).copied()
    }

    /// What a footer says of the streams in this segment.
    pub(crate) fn summaries(&self, segment: usize) -> Vec<Summary> {
        let summary = |(stream, state): (&Stream, &StreamState)| {
            let part = state.parts.last().filter(|part| part.segment == segment)?;
            Some(Summary {
                stream: *stream,
                first: part.first,
                count: part.count,
                tail: state.tail,
                newest: state.newest.map_or(0, |offset| offset + 1),
                broken: state.broken.as_ref().map_or(0, |(offset, _)| offset + 1),
                entries: part.entries.clone(),
            })
        };
        self.streams.iter().filter_map(summary).collect()
    }

    /// A place in a stream, as exactly as the index knows it.
    pub(crate) fn place(&self, stream: Stream, offset: u64) -> Place {
        let physical = self.locate(stream, offset).map_or_else(
            || "not on disk".to_owned(),
            |located| format!("{} or after", at(located.segment.number, located.byte).physical),
        );
        Place { stream: Some(stream), offset: Some(Offset(offset)), physical }
    }
}
