//! The log and the blob store in memory: for tests and for the simulated world.
//!
//! They keep the whole contract, and everything that can go wrong with a log can be made to go wrong
//! here, on purpose and at a chosen moment: see [`MemoryLog::fail_next`], [`MemoryLog::lose_next_ack`],
//! [`MemoryLog::duplicate_next_input`], [`MemoryLog::insert`], [`MemoryLog::damage`],
//! [`MemoryLog::tamper`], [`MemoryLog::hold`] and [`MemoryLog::crash`]. Offsets can be made sparse, as
//! Kafka's are, so that nobody comes to rely on dense ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatelog_record::{BlobHash, Partition, SiteId, Stream};

use crate::blobs::{BlobError, Blobs, MAX_BLOB};
use crate::checks::{check_events, check_sizes};
use crate::contract::{
    Claim, Description, EventWriter, Log, LogError, MAX_APPEND, MAX_RECORD, Offset, Place, ReadBatch, ReadLimit,
    ReadRecord, Survives,
};
use crate::history::{Broken, Followed, Tail};
use crate::pending::{Completer, Pending, pending};

/// How a memory log is set up.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The site.
    pub site: SiteId,
    /// The generation.
    pub generation: u32,
    /// How many partitions each domain has.
    pub partitions: u32,
    /// How many offsets stay unused after each append; 0 gives dense offsets.
    pub offset_gap: u64,
    /// The largest record taken, in bytes.
    pub max_record: u64,
    /// The most bytes one append may carry.
    pub max_append: u64,
    /// The most bytes that may be held back (see [`MemoryLog::hold`]) before inputs get `Busy`.
    pub max_waiting: u64,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions {
            site: SiteId([0x67; 16]),
            generation: 1,
            partitions: 1,
            offset_gap: 0,
            max_record: MAX_RECORD,
            max_append: MAX_APPEND,
            max_waiting: MAX_APPEND,
        }
    }
}

/// A log in memory. Clones are the same log.
#[derive(Clone)]
pub struct MemoryLog {
    shared: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct MemoryStream {
    records: Vec<ReadRecord>,
    next: u64,
    waiters: Vec<(Offset, Completer<()>)>,
    /// Offsets of records that the log itself notices to be damaged.
    damaged: BTreeSet<u64>,
    /// Of events: where the history stands, and which record that is.
    tail: Tail,
    newest: Option<usize>,
    broken: Option<(Offset, Broken)>,
}

/// What a finished append tells whoever asked for it.
enum Owed {
    Inputs(Completer<Result<Vec<Offset>, LogError>>),
    Events(Completer<Result<Offset, LogError>>),
}

struct Append {
    stream: Stream,
    records: Vec<Vec<u8>>,
    bytes: u64,
    owed: Owed,
}

#[derive(Default)]
struct Faults {
    fail: VecDeque<LogError>,
    lose_acks: u32,
    duplicate_inputs: u32,
    full: bool,
}

impl Faults {
    /// Why the next append fails, if it does.
    fn fails(&mut self) -> Option<LogError> {
        let full = || LogError::System { what: "writing".to_owned(), message: "No space left on device".to_owned() };
        self.fail.pop_front().or_else(|| self.full.then(full))
    }
}

struct Inner {
    options: MemoryOptions,
    streams: BTreeMap<Stream, MemoryStream>,
    claims: BTreeMap<Partition, u64>,
    faults: Faults,
    holding: bool,
    held: VecDeque<Append>,
    held_bytes: u64,
    /// Writers that wait for inputs, held or not.
    attending: Vec<(Partition, Offset, Completer<()>)>,
    closed: bool,
    /// Raised by a crash: writers from before it are dead.
    life: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryLog {
    fn default() -> Self {
        MemoryLog::new(MemoryOptions::default())
    }
}

impl MemoryLog {
    /// An empty log.
    pub fn new(options: MemoryOptions) -> MemoryLog {
        MemoryLog {
            shared: Arc::new(Mutex::new(Inner {
                options,
                streams: BTreeMap::new(),
                claims: BTreeMap::new(),
                faults: Faults::default(),
                holding: false,
                held: VecDeque::new(),
                held_bytes: 0,
                attending: Vec::new(),
                closed: false,
                life: 0,
            })),
        }
    }

    /// The next append fails with this error and writes nothing. May be called for several.
    pub fn fail_next(&self, error: LogError) {
        lock(&self.shared).faults.fail.push_back(error);
    }

    /// From now on every append fails as on a disk without room, or none does any more.
    pub fn fill(&self, full: bool) {
        lock(&self.shared).faults.full = full;
    }

    /// The next append is written, but its acknowledgement never comes (`None`).
    pub fn lose_next_ack(&self) {
        lock(&self.shared).faults.lose_acks += 1;
    }

    /// The next append of inputs is written twice, as by a producer that lost its acknowledgement.
    pub fn duplicate_next_input(&self) {
        lock(&self.shared).faults.duplicate_inputs += 1;
    }

    /// From now on appends wait: they are neither visible nor acknowledged before
    /// [`MemoryLog::release`] or [`MemoryLog::flow`].
    pub fn hold(&self) {
        lock(&self.shared).holding = true;
    }

    /// How many appends wait.
    pub fn held(&self) -> usize {
        lock(&self.shared).held.len()
    }

    /// Lets the oldest `count` waiting appends through; gives how many there were.
    pub fn release(&self, count: usize) -> usize {
        let mut done = Vec::new();
        let released = lock(&self.shared).release(count, &mut done);
        drop(done);
        released
    }

    /// Lets everything through again, that which waits first.
    pub fn flow(&self) {
        let mut done = Vec::new();
        let mut inner = lock(&self.shared);
        inner.release(usize::MAX, &mut done);
        inner.holding = false;
        drop(inner);
    }

    /// The process dies: of the appends that wait, the oldest `written` had reached the disk, the
    /// others are gone, and none is acknowledged. Writers from before are dead; waits end with
    /// `None`. Then the log is as if opened again.
    pub fn crash(&self, written: usize) {
        let mut inner = lock(&self.shared);
        let mut dead = Vec::new();
        for _ in 0..written {
            let Some(append) = inner.held.pop_front() else { break };
            inner.write(append.stream, &append.records);
            dead.push(append);
        }
        dead.extend(std::mem::take(&mut inner.held));
        inner.held_bytes = 0;
        inner.holding = false;
        inner.closed = false;
        inner.life += 1;
        inner.faults = Faults::default();
        let waiters: Vec<_> = inner.streams.values_mut().map(|stream| std::mem::take(&mut stream.waiters)).collect();
        let attending = std::mem::take(&mut inner.attending);
        drop(inner);
        drop((dead, waiters, attending));
    }

    /// Closes the log: what waits is written, waits for change end with `None`, appends are refused.
    /// [`MemoryLog::crash`] opens it again.
    pub fn close(&self) {
        let mut done = Vec::new();
        let mut inner = lock(&self.shared);
        inner.release(usize::MAX, &mut done);
        inner.closed = true;
        let waiters: Vec<_> = inner.streams.values_mut().map(|stream| std::mem::take(&mut stream.waiters)).collect();
        let attending = std::mem::take(&mut inner.attending);
        drop(inner);
        drop((waiters, attending));
    }

    /// Puts a record at the end of a stream, whatever it is, past every check: one of a stale term, a
    /// repeat, bytes that are no record.
    pub fn insert(&self, stream: Stream, record: Vec<u8>) -> Offset {
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        let mut inner = lock(&self.shared);
        let offsets = inner.write(stream, &[record]);
        inner.wake(stream, &mut woken);
        inner.wake_attending(stream, &mut done);
        drop(inner);
        drop(done);
        woken.into_iter().for_each(|waiter: Completer<()>| waiter.complete(()));
        offsets.first().copied().unwrap_or_default()
    }

    /// Damages a record so that the log notices: reading it is [`LogError::Damaged`].
    pub fn damage(&self, stream: Stream, offset: Offset) {
        lock(&self.shared).streams.entry(stream).or_default().damaged.insert(offset.0);
    }

    /// Flips a byte of a record behind the log's back: reading gives it, and whoever opens the record
    /// must notice. Gives whether there was such a byte.
    pub fn tamper(&self, stream: Stream, offset: Offset, byte: usize) -> bool {
        let mut inner = lock(&self.shared);
        let Some(kept) = inner.streams.get_mut(&stream) else { return false };
        let index = kept.records.partition_point(|record| record.offset < offset);
        match kept.records.get_mut(index).filter(|record| record.offset == offset) {
            Some(record) => match record.bytes.get_mut(byte) {
                Some(byte) => {
                    *byte ^= 0x40;
                    true
                }
                None => false,
            },
            None => false,
        }
    }

    /// Cuts a stream back to its first `keep` records, as when an older log is put in place.
    pub fn truncate(&self, stream: Stream, keep: usize) {
        let mut inner = lock(&self.shared);
        let Some(kept) = inner.streams.get_mut(&stream) else { return };
        let records = std::mem::take(kept);
        let next = records.records.get(keep).map_or(records.next, |record| record.offset.0);
        let mut fresh = MemoryStream { waiters: records.waiters, next, ..MemoryStream::default() };
        for record in records.records.into_iter().take(keep) {
            fresh.push(stream, record);
        }
        *kept = fresh;
    }

    /// Every record of a stream, for looking at in tests.
    pub fn records(&self, stream: Stream) -> Vec<ReadRecord> {
        lock(&self.shared).streams.get(&stream).map(|kept| kept.records.clone()).unwrap_or_default()
    }

    /// An append; completed here or held. The lock is let go before anybody is woken.
    fn append(&self, mut inner: MutexGuard<'_, Inner>, append: Append) {
        let mut done = Vec::new();
        if inner.holding {
            let stream = append.stream;
            inner.held_bytes += append.bytes;
            inner.held.push_back(append);
            inner.wake_attending(stream, &mut done);
            drop(inner);
            drop(done);
            return;
        }
        inner.commit(append, &mut done);
        drop(inner);
        drop(done);
    }
}

/// Something to be told once the lock is let go; telling happens on drop, in order.
enum Told {
    Inputs(Completer<Result<Vec<Offset>, LogError>>, Result<Vec<Offset>, LogError>),
    Events(Completer<Result<Offset, LogError>>, Result<Offset, LogError>),
    Changed(Completer<()>),
    Lost(#[expect(dead_code, reason = "held so that dropping it ends the wait")] Owed),
}

struct Tell(Option<Told>);

impl Drop for Tell {
    fn drop(&mut self) {
        match self.0.take() {
            Some(Told::Inputs(completer, result)) => completer.complete(result),
            Some(Told::Events(completer, result)) => completer.complete(result),
            Some(Told::Changed(completer)) => completer.complete(()),
            Some(Told::Lost(_)) | None => {}
        }
    }
}

impl MemoryStream {
    fn push(&mut self, stream: Stream, record: ReadRecord) {
        if let Stream::Events(_) = stream
            && self.broken.is_none()
        {
            match self.tail.follow(&record.bytes) {
                Ok(Followed::Event { tail, .. }) => {
                    self.tail = tail;
                    self.newest = Some(self.records.len());
                }
                Ok(Followed::Stale { .. }) => {}
                Err(broken) => self.broken = Some((record.offset, broken)),
            }
        }
        self.next = self.next.max(record.offset.0 + 1);
        self.records.push(record);
    }

    fn end(&self) -> Offset {
        self.records.last().map_or(Offset::default(), |record| Offset(record.offset.0 + 1))
    }
}

impl Inner {
    fn write(&mut self, stream: Stream, records: &[Vec<u8>]) -> Vec<Offset> {
        let gap = self.options.offset_gap;
        let kept = self.streams.entry(stream).or_default();
        let mut offsets = Vec::with_capacity(records.len());
        for bytes in records {
            let offset = Offset(kept.next);
            offsets.push(offset);
            kept.push(stream, ReadRecord { offset, bytes: bytes.clone() });
        }
        kept.next += gap;
        offsets
    }

    fn wake(&mut self, stream: Stream, woken: &mut Vec<Completer<()>>) {
        if let Some(kept) = self.streams.get_mut(&stream) {
            let end = kept.end();
            let (due, rest) = std::mem::take(&mut kept.waiters).into_iter().partition(|(beyond, _)| end > *beyond);
            kept.waiters = rest;
            woken.extend(due.into_iter().map(|(_, waiter): (Offset, Completer<()>)| waiter));
        }
    }

    fn commit(&mut self, append: Append, done: &mut Vec<Tell>) {
        let Append { stream, records, owed, .. } = append;
        let mut offsets = self.write(stream, &records);
        if matches!(owed, Owed::Inputs(_)) && self.faults.duplicate_inputs > 0 {
            self.faults.duplicate_inputs -= 1;
            self.write(stream, &records);
        }
        let told = if self.faults.lose_acks > 0 {
            self.faults.lose_acks -= 1;
            Told::Lost(owed)
        } else {
            match owed {
                Owed::Inputs(completer) => Told::Inputs(completer, Ok(offsets)),
                Owed::Events(completer) => Told::Events(completer, Ok(offsets.pop().unwrap_or_default())),
            }
        };
        done.push(Tell(Some(told)));
        let mut woken = Vec::new();
        self.wake(stream, &mut woken);
        done.extend(woken.into_iter().map(|waiter| Tell(Some(Told::Changed(waiter)))));
        self.wake_attending(stream, done);
    }

    /// The partition's inputs that are held, each with the offset it will have, and the end they make.
    fn accepted(&self, partition: Partition) -> (Vec<(Offset, &[u8])>, Offset) {
        let stream = Stream::Inputs(partition);
        let kept = self.streams.get(&stream);
        let mut next = kept.map_or(0, |kept| kept.next);
        let mut end = kept.map_or(Offset::default(), MemoryStream::end);
        let mut records: Vec<(Offset, &[u8])> = Vec::new();
        // Where one will be written twice, it is not known yet where those behind it will stand.
        for append in self.held.iter().filter(|append| append.stream == stream && self.faults.duplicate_inputs == 0) {
            for bytes in &append.records {
                records.push((Offset(next), bytes));
                next += 1;
            }
            end = Offset(next);
            next += self.options.offset_gap;
        }
        (records, end)
    }

    fn wake_attending(&mut self, stream: Stream, done: &mut Vec<Tell>) {
        let Stream::Inputs(partition) = stream else { return };
        let end = self.accepted(partition).1;
        let due = self.attending.extract_if(.., |(of, beyond, _)| *of == partition && end > *beyond);
        done.extend(due.map(|(_, _, waiter)| Tell(Some(Told::Changed(waiter)))));
    }

    fn release(&mut self, count: usize, done: &mut Vec<Tell>) -> usize {
        let mut released = 0;
        while released < count {
            let Some(append) = self.held.pop_front() else { break };
            self.held_bytes = self.held_bytes.saturating_sub(append.bytes);
            self.commit(append, done);
            released += 1;
        }
        released
    }

    fn check_sizes(&self, records: &[Vec<u8>]) -> Result<u64, LogError> {
        check_sizes(records, self.options.max_record, self.options.max_append)
    }
}

struct MemoryWriter {
    log: MemoryLog,
    partition: Partition,
    claim: u64,
    life: u64,
    term: u64,
    tail: Tail,
    failed: Option<LogError>,
}

impl MemoryWriter {
    /// Whether it may still act.
    fn check(&self, inner: &Inner) -> Result<(), LogError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if inner.life != self.life || inner.claims.get(&self.partition) != Some(&self.claim) => {
                Err(LogError::Fenced { partition: self.partition, term: self.term })
            }
            None if inner.closed => Err(LogError::Stopped { message: "the log was closed".to_owned() }),
            None => Ok(()),
        }
    }
}

impl EventWriter for MemoryWriter {
    fn append(&mut self, records: Vec<Vec<u8>>) -> Pending<Result<Offset, LogError>> {
        let mut inner = lock(&self.log.shared);
        let checked = self.check(&inner).and_then(|()| match inner.faults.fails() {
            Some(error) => Err(error),
            None => inner
                .check_sizes(&records)
                .and_then(|bytes| Ok((bytes, check_events(self.partition, &self.tail, self.term, &records)?))),
        });
        let (bytes, tail) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                self.failed = Some(error.clone());
                return Pending::ready(Err(error));
            }
        };
        let stream = Stream::Events(self.partition);
        if records.is_empty() {
            let end = inner.streams.get(&stream).map_or(Offset::default(), MemoryStream::end);
            return Pending::ready(Ok(end));
        }
        self.tail = tail;
        let (completer, result) = pending();
        self.log.append(inner, Append { stream, records, bytes, owed: Owed::Events(completer) });
        result
    }

    fn accepted(&mut self, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        let inner = lock(&self.log.shared);
        self.check(&inner)?;
        let mut batch = ReadBatch { records: Vec::new(), next: from };
        let mut bytes = 0;
        let (records, _) = inner.accepted(self.partition);
        for (offset, record) in records.into_iter().filter(|(offset, _)| *offset >= from) {
            bytes += record.len();
            let full = batch.records.len() >= limit.records.max(1) || bytes > limit.bytes;
            if full && !batch.records.is_empty() {
                break;
            }
            batch.next = Offset(offset.0 + 1);
            batch.records.push(ReadRecord { offset, bytes: record.to_vec() });
        }
        Ok(batch)
    }

    fn awaits(&mut self, beyond: Offset) -> Result<Option<Pending<()>>, LogError> {
        let mut inner = lock(&self.log.shared);
        self.check(&inner)?;
        if inner.accepted(self.partition).1 > beyond {
            return Ok(Some(Pending::ready(())));
        }
        let (completer, result) = pending();
        inner.attending.retain(|(_, _, waiter)| waiter.is_wanted());
        inner.attending.push((self.partition, beyond, completer));
        Ok(Some(result))
    }
}

impl Log for MemoryLog {
    fn describe(&self) -> Description {
        let inner = lock(&self.shared);
        Description {
            site: inner.options.site,
            generation: inner.options.generation,
            survives: Survives::Nothing,
            name: "log in memory".to_owned(),
            partitions: inner.options.partitions,
        }
    }

    fn append_inputs(&self, stream: Stream, records: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>> {
        let mut inner = lock(&self.shared);
        let checked = if let Stream::Events(_) = stream {
            Err(LogError::System {
                what: format!("appending to {stream}"),
                message: "events are appended by the partition's writer only: use `claim`".to_owned(),
            })
        } else if inner.closed {
            Err(LogError::Stopped { message: "the log was closed".to_owned() })
        } else if let Some(error) = inner.faults.fails() {
            Err(error)
        } else {
            inner.check_sizes(&records).and_then(|bytes| {
                let waiting = inner.held_bytes;
                if waiting > 0 && waiting + bytes > inner.options.max_waiting {
                    return Err(LogError::Busy { waiting });
                }
                Ok(bytes)
            })
        };
        match checked {
            Ok(_) if records.is_empty() => Pending::ready(Ok(Vec::new())),
            Ok(bytes) => {
                let (completer, result) = pending();
                self.append(inner, Append { stream, records, bytes, owed: Owed::Inputs(completer) });
                result
            }
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        let mut done = Vec::new();
        let mut inner = lock(&self.shared);
        if inner.closed {
            return Err(LogError::Stopped { message: "the log was closed".to_owned() });
        }
        // What the writer before had in flight is there before the claim counts.
        inner.release(usize::MAX, &mut done);
        let stream = Stream::Events(partition);
        let kept = inner.streams.entry(stream).or_default();
        if let Some((offset, broken)) = &kept.broken {
            return Err(LogError::Damaged { place: place(stream, *offset), what: broken.to_string() });
        }
        let tail = kept.tail;
        let newest = kept.newest.and_then(|index| kept.records.get(index));
        let claim = Claim {
            partition,
            last_sequence: tail.sequence,
            last_term: tail.term,
            last_link: tail.link,
            last_record: newest.map(|record| record.bytes.clone()),
        };
        let number = inner.claims.entry(partition).or_default();
        *number += 1;
        let writer = MemoryWriter {
            log: self.clone(),
            partition,
            claim: *number,
            life: inner.life,
            term: tail.term + 1,
            tail,
            failed: None,
        };
        drop(inner);
        Ok((claim, Box::new(writer)))
    }

    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        let inner = lock(&self.shared);
        let mut batch = ReadBatch { records: Vec::new(), next: from };
        let Some(kept) = inner.streams.get(&stream) else { return Ok(batch) };
        let start = kept.records.partition_point(|record| record.offset < from);
        let mut bytes = 0;
        for record in kept.records.iter().skip(start) {
            bytes += record.bytes.len();
            let full = batch.records.len() >= limit.records.max(1) || bytes > limit.bytes;
            if full && !batch.records.is_empty() {
                break;
            }
            if kept.damaged.contains(&record.offset.0) {
                if batch.records.is_empty() {
                    let what = "the record is not what was written".to_owned();
                    return Err(LogError::Damaged { place: place(stream, record.offset), what });
                }
                break;
            }
            batch.next = Offset(record.offset.0 + 1);
            batch.records.push(record.clone());
        }
        Ok(batch)
    }

    fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        Ok(lock(&self.shared).streams.get(&stream).map_or(Offset::default(), MemoryStream::end))
    }

    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        let inner = lock(&self.shared);
        let Some(kept) = inner.streams.get(&Stream::Events(partition)) else { return Ok(Offset::default()) };
        let mut newest_term = 0;
        for record in &kept.records {
            // What cannot be read is for `read` to report: seeking stops in front of it.
            let Ok((envelope, _)) = gatelog_record::Envelope::decode(&record.bytes) else { return Ok(record.offset) };
            if kept.damaged.contains(&record.offset.0) {
                return Ok(record.offset);
            }
            if envelope.term < newest_term {
                continue;
            }
            newest_term = envelope.term;
            if envelope.sequence >= sequence {
                return Ok(record.offset);
            }
        }
        Ok(kept.end())
    }

    fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()> {
        let mut inner = lock(&self.shared);
        if inner.closed {
            return Pending::lost();
        }
        let kept = inner.streams.entry(stream).or_default();
        if kept.end() > beyond {
            return Pending::ready(());
        }
        kept.waiters.retain(|(_, waiter)| waiter.is_wanted());
        let (completer, result) = pending();
        kept.waiters.push((beyond, completer));
        result
    }

    fn streams(&self) -> Result<Vec<Stream>, LogError> {
        let inner = lock(&self.shared);
        Ok(inner.streams.iter().filter(|(_, kept)| !kept.records.is_empty()).map(|(stream, _)| *stream).collect())
    }
}

fn place(stream: Stream, offset: Offset) -> Place {
    Place { stream: Some(stream), offset: Some(offset), physical: "in memory".to_owned() }
}

/// A blob store in memory. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryBlobs {
    shared: Arc<Mutex<BlobsInner>>,
}

#[derive(Default)]
struct BlobsInner {
    blobs: BTreeMap<BlobHash, Vec<u8>>,
    fail: VecDeque<BlobError>,
}

impl MemoryBlobs {
    /// An empty store.
    pub fn new() -> MemoryBlobs {
        MemoryBlobs::default()
    }

    /// The next `put` fails with this error and keeps nothing. May be called for several.
    pub fn fail_next(&self, error: BlobError) {
        lock(&self.shared).fail.push_back(error);
    }

    /// Changes a blob's bytes behind its name. Gives whether there was one.
    pub fn damage(&self, hash: &BlobHash) -> bool {
        match lock(&self.shared).blobs.get_mut(hash) {
            Some(bytes) => {
                match bytes.first_mut() {
                    Some(byte) => *byte ^= 0x40,
                    None => bytes.push(0),
                }
                true
            }
            None => false,
        }
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        let mut inner = lock(&self.shared);
        if let Some(error) = inner.fail.pop_front() {
            return Err(error);
        }
        let size = bytes.len() as u64;
        if size > MAX_BLOB {
            return Err(BlobError::TooLarge { size, limit: MAX_BLOB });
        }
        let hash = BlobHash::of(bytes);
        inner.blobs.insert(hash, bytes.to_vec());
        Ok(hash)
    }

    fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        let inner = lock(&self.shared);
        let bytes = inner.blobs.get(hash).ok_or(BlobError::Missing(*hash))?;
        if BlobHash::of(bytes) != *hash {
            return Err(BlobError::Damaged { hash: *hash, place: "in memory".to_owned() });
        }
        Ok(bytes.clone())
    }

    fn has(&self, hash: &BlobHash) -> Result<bool, BlobError> {
        Ok(lock(&self.shared).blobs.contains_key(hash))
    }

    fn list(&self) -> Result<Vec<BlobHash>, BlobError> {
        Ok(lock(&self.shared).blobs.keys().copied().collect())
    }

    fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        lock(&self.shared).blobs.remove(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
