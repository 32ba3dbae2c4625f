//! A log that remembers what was read of it, for commands that look at single records here and there: brokers give the
//! next record quickly, but each jump costs a round of questions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatelog_event_log::{
    Claim, Description, EventWriter, Log, LogError, Offset, Pending, ReadBatch, ReadLimit, ReadRecord,
};
use gatelog_record::{Envelope, Partition, Stream};

/// How many bytes of records are remembered.
const MOST: usize = 64 << 20;

/// What one read brought: everything from one place up to another.
struct Page {
    next: Offset,
    records: Vec<ReadRecord>,
}

impl Page {
    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.bytes.len() + 64).sum()
    }
}

#[derive(Default)]
struct Memory {
    pages: BTreeMap<(Stream, Offset), Page>,
    bytes: usize,
    /// Events met: the place of each, the highest term's where several carry a number.
    met: BTreeMap<(Partition, u64), (u64, Offset)>,
}

/// A log and what was read of it.
pub struct Remembering {
    log: Arc<dyn Log>,
    memory: Mutex<Memory>,
}

impl Remembering {
    /// Remembers nothing yet.
    pub fn new(log: Arc<dyn Log>) -> Remembering {
        Remembering { log, memory: Mutex::default() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, stream: Stream, from: Offset, batch: &ReadBatch) {
        if batch.records.is_empty() {
            return;
        }
        let page = Page { next: batch.next, records: batch.records.clone() };
        let mut memory = self.memory();
        if memory.bytes + page.bytes() > MOST {
            *memory = Memory::default();
        }
        if let Stream::Events(partition) = stream {
            for record in &page.records {
                let Ok((envelope, _)) = Envelope::decode(&record.bytes) else { continue };
                let met = memory.met.entry((partition, envelope.sequence)).or_insert((envelope.term, record.offset));
                if envelope.term > met.0 {
                    *met = (envelope.term, record.offset);
                }
            }
        }
        memory.bytes += page.bytes();
        if let Some(before) = memory.pages.insert((stream, from), page) {
            memory.bytes = memory.bytes.saturating_sub(before.bytes());
        }
    }

    /// What is remembered from a place on, within limits; `None` when that place is not.
    fn remembered(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Option<ReadBatch> {
        let memory = self.memory();
        let (_, page) = memory.pages.range((stream, Offset(0))..=(stream, from)).next_back()?;
        if from >= page.next {
            return None;
        }
        let begin = page.records.partition_point(|record| record.offset < from);
        let mut batch = ReadBatch { records: Vec::new(), next: page.next };
        let mut bytes = 0;
        for record in page.records.get(begin..)? {
            bytes += record.bytes.len();
            let full = batch.records.len() >= limit.records || bytes > limit.bytes;
            if full && !batch.records.is_empty() {
                batch.next = record.offset;
                return Some(batch);
            }
            batch.records.push(record.clone());
        }
        // Nothing is left of the page: what follows it is asked for.
        (!batch.records.is_empty()).then_some(batch)
    }
}

impl Log for Remembering {
    fn describe(&self) -> Description {
        self.log.describe()
    }

    fn append_inputs(&self, stream: Stream, records: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>> {
        self.log.append_inputs(stream, records)
    }

    fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        self.log.claim(partition)
    }

    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        if let Some(batch) = self.remembered(stream, from, limit) {
            return Ok(batch);
        }
        let wide = ReadLimit::default();
        let wide = ReadLimit { records: limit.records.max(wide.records), bytes: limit.bytes.max(wide.bytes) };
        let batch = self.log.read(stream, from, wide)?;
        self.remember(stream, from, &batch);
        Ok(self.remembered(stream, from, limit).unwrap_or(batch))
    }

    fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        self.log.end(stream)
    }

    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        // The one before it must be known too, of the same term or an older one: then this is where history goes on.
        let known = {
            let memory = self.memory();
            let met = |sequence: u64| memory.met.get(&(partition, sequence)).copied();
            let before = sequence.checked_sub(1).and_then(met);
            met(sequence).filter(|(term, _)| before.is_some_and(|(older, _)| older <= *term))
        };
        match known {
            Some((_, offset)) => Ok(offset),
            None => self.log.seek(partition, sequence),
        }
    }

    fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()> {
        self.log.changed(stream, beyond)
    }

    fn streams(&self) -> Result<Vec<Stream>, LogError> {
        self.log.streams()
    }
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryLog;
    use gatelog_event_log::memory::MemoryOptions;

    use super::*;

    const INTAKE: Stream = Stream::Intake(0);

    fn bytes(batch: &ReadBatch) -> Vec<u8> {
        batch.records.iter().flat_map(|record| record.bytes.clone()).collect()
    }

    #[test]
    fn what_was_read_comes_again_as_the_log_gives_it_and_what_was_not_is_read() {
        let log = Arc::new(MemoryLog::new(MemoryOptions { offset_gap: 3, ..MemoryOptions::default() }));
        let append = |byte: u8| {
            let offsets = log.append_inputs(INTAKE, vec![vec![byte; 4]]).wait().unwrap().unwrap();
            offsets[0]
        };
        let offsets: Vec<Offset> = (0..10).map(append).collect();
        let remembering = Remembering::new(Arc::clone(&log) as _);
        let one = ReadLimit { records: 1, bytes: 1 };
        for _ in 0..2 {
            for (index, offset) in offsets.iter().enumerate() {
                let batch = remembering.read(INTAKE, *offset, one).unwrap();
                assert_eq!(batch.records[0].offset, *offset);
                assert_eq!(batch.records[0].bytes, [index as u8; 4]);
                assert_eq!(batch.records.len(), 1);
                assert!(batch.next > *offset && offsets.get(index + 1).is_none_or(|next| batch.next <= *next));
            }
        }
        // Read through in one way and the other, with a limit of bytes.
        for limit in [ReadLimit::default(), ReadLimit { records: 100, bytes: 9 }] {
            let (mut from, mut through) = (Offset(0), Vec::new());
            loop {
                let batch = remembering.read(INTAKE, from, limit).unwrap();
                if batch.records.is_empty() {
                    break;
                }
                through.extend(bytes(&batch));
                from = batch.next;
            }
            assert_eq!(through.len(), 40);
        }
        // What came since is not missed.
        let last = append(10);
        let beyond = remembering.read(INTAKE, offsets[9], ReadLimit::default()).unwrap();
        let after = remembering.read(INTAKE, beyond.next, ReadLimit::default()).unwrap();
        assert_eq!(after.records[0].offset, last);
    }
}
