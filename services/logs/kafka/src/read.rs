//! Reading streams, their ends, and finding events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_event_log::{LogError, Offset, ReadBatch, ReadLimit, ReadRecord};
use gatelog_record::{Envelope, Partition, Stream};
use parking_lot::Mutex;

use crate::cursor::{Cursor, Patience, Raw, Reach};
use crate::layout::{token_of, unbundle};
use crate::names::{kafka_offset, place_of};

/// How many cursors are kept where readers left them, so that the next read goes on without a new consumer.
const PARKED: usize = 24;
/// So many are kept of one stream before one of them goes elsewhere.
const SPARE: usize = 4;
/// Around so many records a search looks for one that is history.
const BLOCK: u64 = 64;
/// A search goes record by record once so few remain.
const NEAR: u64 = 512;
/// A cursor between two reads.
struct Parked {
    stream: Stream,
    /// Where its reader will go on.
    next: Offset,
    cursor: Cursor,
    /// What was taken from Kafka and not yet given.
    waiting: VecDeque<ReadRecord>,
}

/// What is known of where a stream ends.
#[derive(Default)]
struct End {
    /// Up to here every Kafka record has been looked at.
    scanned: u64,
    /// The place after the last record among them.
    end: Offset,
    cursor: Option<Cursor>,
}

/// An event's place, met while reading.
#[derive(Clone, Copy)]
struct Met {
    offset: u64,
    term: u64,
}

/// Reads a log's streams.
pub(crate) struct Reader {
    reach: Arc<Reach>,
    parked: Mutex<VecDeque<Parked>>,
    ends: Mutex<BTreeMap<Stream, Arc<Mutex<End>>>>,
    /// By partition and sequence: a sparse index of events that are history.
    met: Mutex<BTreeMap<Partition, BTreeMap<u64, Met>>>,
}

/// The records that a Kafka record of this stream holds: none, if it is a control record.
pub(crate) fn records_in(reach: &Reach, stream: Stream, raw: Raw) -> Result<Vec<ReadRecord>, LogError> {
    let Raw { offset, bytes } = raw;
    if let Stream::Events(_) = stream {
        let visible = token_of(&bytes).is_none().then(|| ReadRecord { offset: place_of(stream, offset, 0), bytes });
        return Ok(visible.into_iter().collect());
    }
    let records = unbundle(bytes)
        .map_err(|what| LogError::Damaged { place: reach.place(stream, offset, 0), what: what.to_owned() })?;
    let record = |(index, bytes)| ReadRecord { offset: place_of(stream, offset, index), bytes };
    Ok(records.into_iter().enumerate().map(record).collect())
}

impl Reader {
    pub(crate) fn new(reach: Arc<Reach>) -> Reader {
        let (parked, ends, met) = Default::default();
        Reader { reach, parked, ends, met }
    }

    /// Reads on from a place. See [`gatelog_event_log::Log::read`].
    pub(crate) fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        let found = {
            let mut parked = self.parked.lock();
            let at = parked.iter().position(|parked| parked.stream == stream && parked.next == from);
            at.and_then(|at| parked.remove(at))
        };
        let mut parked = match found {
            Some(parked) => parked,
            None => {
                // Beyond the end nothing can be read from, and nothing is there.
                let begin = kafka_offset(stream, from);
                if begin > 0 && begin >= self.reach.stable_of(stream)? {
                    return Ok(ReadBatch { records: Vec::new(), next: from });
                }
                let cursor = self.cursor(stream, begin)?;
                Parked { stream, next: from, cursor, waiting: VecDeque::new() }
            }
        };
        let (batch, error) = self.fill(&mut parked, limit);
        match error {
            None => {
                parked.next = batch.next;
                self.park(parked);
                Ok(batch)
            }
            // What stands in front of the damage is given first; the next read meets it again.
            Some(_) if !batch.records.is_empty() => Ok(batch),
            Some(error) => Err(error),
        }
    }

    /// Fills a batch up to its limits or to the stream's end.
    fn fill(&self, parked: &mut Parked, limit: ReadLimit) -> (ReadBatch, Option<LogError>) {
        let mut batch = ReadBatch { records: Vec::new(), next: parked.next };
        let mut bytes = 0;
        let mut end = None;
        let mut deadline = self.reach.deadline();
        let mut patience = Patience::default();
        loop {
            while let Some(record) = parked.waiting.front() {
                let full = batch.records.len() >= limit.records.max(1) || bytes + record.bytes.len() > limit.bytes;
                if full && !batch.records.is_empty() {
                    return (batch, None);
                }
                let Some(record) = parked.waiting.pop_front() else { break };
                bytes += record.bytes.len();
                batch.next = Offset(record.offset.0 + 1);
                batch.records.push(record);
            }
            let polled = parked.cursor.poll(patience.wait()).and_then(|raw| match raw {
                Some(raw) => records_in(&self.reach, parked.stream, raw).map(Some),
                None => Ok(None),
            });
            match polled {
                Ok(Some(records)) => {
                    parked.waiting.extend(records.into_iter().filter(|record| record.offset >= batch.next));
                    deadline = self.reach.deadline();
                    patience = Patience::default();
                    continue;
                }
                Ok(None) => {}
                Err(error) => return (batch, Some(error)),
            }
            // Nothing waits here. That this is the end only the partition's leader can say.
            let known = match end {
                Some(end) => end,
                None => match self.reach.stable_of(parked.stream) {
                    Ok(stable) => *end.insert(stable),
                    Err(error) => return (batch, Some(error)),
                },
            };
            if parked.cursor.position() >= known {
                return (batch, None);
            }
            if Instant::now() >= deadline {
                return (batch, Some(parked.cursor.too_late()));
            }
            patience.grow();
        }
    }

    /// The place after the last acknowledged record: of control records and transaction markers behind it nothing is
    /// said. Never taken from a watermark: what stands below the last stable offset is read.
    pub(crate) fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        let state = Arc::clone(self.ends.lock().entry(stream).or_default());
        let mut state = state.lock();
        let stable = self.reach.stable_of(stream)?;
        if stable <= state.scanned {
            return Ok(state.end);
        }
        let mut cursor = state.cursor.take();
        let mut span = BLOCK;
        loop {
            let from = state.scanned.max(stable.saturating_sub(span));
            let mut reading = self.moved(cursor.take(), stream, from)?;
            let mut last = None;
            reading.read_to(stable, self.reach.config.timeout, |raw| {
                let records = records_in(&self.reach, stream, raw)?;
                last = records.last().map(|record| record.offset).or(last);
                Ok(true)
            })?;
            if last.is_some() || from == state.scanned {
                if let Some(last) = last {
                    state.end = Offset(last.0 + 1);
                }
                state.scanned = reading.position().max(stable);
                state.cursor = Some(reading);
                return Ok(state.end);
            }
            cursor = Some(reading);
            span = span.saturating_mul(16);
        }
    }

    /// Remembers where an event of the history stands.
    pub(crate) fn remember(&self, partition: Partition, sequence: u64, offset: u64, term: u64) {
        self.met.lock().entry(partition).or_default().insert(sequence, Met { offset, term });
    }

    /// The place of the event with this sequence or of the first after it. See [`gatelog_event_log::Log::seek`].
    ///
    /// From what was met before, then by halving: each probe looks at a block of records and takes that of the
    /// highest term. A record of a stale term in between misleads only if whole blocks hold nothing else, and then
    /// the history's reader names the gap.
    pub(crate) fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        let stream = Stream::Events(partition);
        let sequence = sequence.max(1);
        let stable = self.reach.stable_of(stream)?;
        let (mut low, mut high) = {
            let met = self.met.lock();
            let met = met.get(&partition);
            let before = met.and_then(|met| met.range(..sequence).next_back()).map(|(_, met)| *met);
            let after = met.and_then(|met| met.range(sequence..).next()).map(|(_, met)| met.offset + 1);
            (before.unwrap_or(Met { offset: 0, term: 0 }), after.unwrap_or(stable))
        };
        let mut cursor = None;
        while high.saturating_sub(low.offset) > NEAR {
            let middle = low.offset + (high - low.offset) / 2;
            let mut probing = self.moved(cursor.take(), stream, middle)?;
            let probed = probe(&mut probing, high, self.reach.config.timeout)?;
            cursor = Some(probing);
            match probed {
                Some((found, met)) if found < sequence && met.offset > low.offset => {
                    self.remember(partition, found, met.offset, met.term);
                    low = met;
                }
                _ => high = middle,
            }
        }
        let mut term = low.term;
        let mut found = None;
        let mut cursor = self.moved(cursor, stream, low.offset)?;
        if low.offset < stable {
            cursor.read_to(stable, self.reach.config.timeout, |raw| {
                for record in records_in(&self.reach, stream, raw)? {
                    match Envelope::decode(&record.bytes) {
                        Ok((envelope, _)) if envelope.term < term => {}
                        Ok((envelope, _)) if envelope.sequence < sequence => term = envelope.term,
                        // What cannot be read is for the history's reader to report: seeking stops in front of it.
                        Ok(_) | Err(_) => {
                            found = Some(record.offset);
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            })?;
        }
        match found {
            // Whoever seeks reads on from there.
            Some(found) => {
                let cursor = self.moved(Some(cursor), stream, found.0)?;
                self.park(Parked { stream, next: found, cursor, waiting: VecDeque::new() });
                Ok(found)
            }
            None => self.end(stream),
        }
    }

    /// A cursor at this place: one that was left somewhere in the stream, if there are several, or a new one.
    fn cursor(&self, stream: Stream, from: u64) -> Result<Cursor, LogError> {
        let spare = {
            let mut parked = self.parked.lock();
            let many = parked.iter().filter(|parked| parked.stream == stream).count() >= SPARE;
            let oldest = parked.iter().position(|parked| parked.stream == stream);
            oldest.filter(|_| many).and_then(|oldest| parked.remove(oldest))
        };
        if let Some(Parked { mut cursor, .. }) = spare
            && cursor.jump(from)
        {
            return Ok(cursor);
        }
        Cursor::open(&self.reach, stream, from)
    }

    /// This cursor, or another one, at this place.
    fn moved(&self, cursor: Option<Cursor>, stream: Stream, from: u64) -> Result<Cursor, LogError> {
        if let Some(mut cursor) = cursor
            && (cursor.position() == from || cursor.jump(from))
        {
            return Ok(cursor);
        }
        self.cursor(stream, from)
    }

    /// Leaves a cursor where its reader will go on.
    fn park(&self, parked: Parked) {
        let too_many = {
            let mut all = self.parked.lock();
            all.push_back(parked);
            if all.len() > PARKED { all.pop_front() } else { None }
        };
        drop(too_many);
    }
}

/// Of the block of records that begins where the cursor stands the one with the highest term, if there is any before
/// `until`.
fn probe(cursor: &mut Cursor, until: u64, patience: Duration) -> Result<Option<(u64, Met)>, LogError> {
    let mut best: Option<(u64, Met)> = None;
    let mut seen = 0;
    cursor.read_to(until, patience, |raw| {
        let offset = raw.offset;
        if offset >= until {
            return Ok(false);
        }
        if let Ok((envelope, _)) = Envelope::decode(&raw.bytes)
            && best.is_none_or(|(_, met)| envelope.term > met.term)
        {
            best = Some((envelope.sequence, Met { offset, term: envelope.term }));
        }
        seen += 1;
        Ok(seen < BLOCK)
    })?;
    Ok(best)
}
