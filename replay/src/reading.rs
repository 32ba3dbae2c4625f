//! Reading a partition's history off a log.

use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step, Tail};
use gatelog_record::{ChainLink, Envelope, EventRecord, EventRef, InputFrame, InputRecord, Partition, Stream};

use crate::cut::Cut;
use crate::domains::Domains;
use crate::error::ReplayError;
use crate::explain::Names;

/// Reads checked history after a tail (that of no event: from where the log begins), in the log's order, until `each` says stop or the log ends.
/// Gives where the history stands after the last event given.
pub(crate) fn read_history(
    log: &dyn Log,
    partition: Partition,
    tail: Tail,
    mut each: impl FnMut(EventRecord, ChainLink, &[u8]) -> Result<bool, ReplayError>,
) -> Result<Tail, ReplayError> {
    let stream = Stream::Events(partition);
    let tail = if tail == Tail::GENESIS { log.begins(partition) } else { tail };
    let mut reader = HistoryReader::after(partition, tail);
    let mut from =
        if tail.sequence == 0 { Offset::default() } else { log.seek(partition, tail.sequence.saturating_add(1))? };
    loop {
        let batch = log.read(stream, from, ReadLimit::default())?;
        if batch.records.is_empty() {
            return Ok(reader.tail());
        }
        for record in &batch.records {
            if let Step::Event(event, link) = reader.next(record).map_err(|error| error.with_writer(log))?
                && !each(*event, link, &record.bytes)?
            {
                return Ok(reader.tail());
            }
        }
        from = batch.next;
    }
}

/// The envelope and link of the event with this sequence; `None` when it is not there (yet). Its
/// link is not checked: that needs what stands before it.
pub(crate) fn envelope_at(
    log: &dyn Log,
    partition: Partition,
    sequence: u64,
) -> Result<Option<(Envelope, ChainLink)>, ReplayError> {
    let stream = Stream::Events(partition);
    let mut from = log.seek(partition, sequence)?;
    // The log seeks in history: what it gives first is the event, or an error worth telling. An old
    // writer's records may stand between on a log that does not know them apart.
    loop {
        let batch = log.read(stream, from, ReadLimit { records: 4, bytes: 1 << 20 })?;
        if batch.records.is_empty() {
            return Ok(None);
        }
        for record in &batch.records {
            let (envelope, link) = Envelope::decode(&record.bytes).map_err(|why| ReplayError::Frame {
                stream,
                offset: record.offset.0,
                why,
            })?;
            if envelope.sequence == sequence {
                return Ok(Some((envelope, link)));
            }
            if envelope.sequence > sequence {
                return Ok(None);
            }
        }
        from = batch.next;
    }
}

/// The envelopes of the events from one sequence to another, both inside, as far as they are there.
pub(crate) fn envelopes(
    log: &dyn Log,
    partition: Partition,
    first: u64,
    last: u64,
) -> Result<Vec<Envelope>, ReplayError> {
    let stream = Stream::Events(partition);
    let mut from = log.seek(partition, first)?;
    let mut found: Vec<Envelope> = Vec::new();
    loop {
        let batch = log.read(stream, from, ReadLimit::default())?;
        if batch.records.is_empty() {
            return Ok(found);
        }
        for record in &batch.records {
            let (envelope, _) = Envelope::decode(&record.bytes).map_err(|why| ReplayError::Frame {
                stream,
                offset: record.offset.0,
                why,
            })?;
            // An old writer's record has a sequence that is taken or will be: the dense ones count.
            if envelope.sequence != found.last().map_or(first, |last| last.sequence + 1) {
                continue;
            }
            let done = envelope.sequence >= last;
            found.push(envelope);
            if done {
                return Ok(found);
            }
        }
        from = batch.next;
    }
}

/// The event at a place.
pub(crate) fn event_at(log: &dyn Log, event: EventRef) -> Result<EventRecord, ReplayError> {
    let Some((envelope, _)) = envelope_at(log, event.partition, event.sequence)? else {
        return Err(ReplayError::NoEvent(event));
    };
    let stream = Stream::Events(event.partition);
    envelope.open().map_err(|why| ReplayError::Body { stream, offset: event.sequence, why })
}

/// The bytes of the record at exactly this offset.
pub(crate) fn bytes_at(log: &dyn Log, stream: Stream, offset: u64) -> Result<Vec<u8>, ReplayError> {
    let batch = log.read(stream, Offset(offset), ReadLimit { records: 1, bytes: 1 })?;
    match batch.records.into_iter().next() {
        Some(record) if record.offset.0 == offset => Ok(record.bytes),
        _ => Err(ReplayError::NoInput { stream, offset }),
    }
}

/// The input at exactly this offset.
pub(crate) fn input_at(log: &dyn Log, stream: Stream, offset: u64) -> Result<InputRecord, ReplayError> {
    let bytes = bytes_at(log, stream, offset)?;
    InputFrame::decode(&bytes)
        .map_err(|why| ReplayError::Frame { stream, offset, why })?
        .open()
        .map_err(|why| ReplayError::Body { stream, offset, why })
}

/// What ids stand for, learnt from the history of every partition of a cut up to its place there.
pub fn names_until(domains: &Domains, log: &dyn Log, cut: &Cut) -> Result<Names, ReplayError> {
    let mut names = Names::of(domains.clone());
    let mut partitions: Vec<(Partition, u64)> = cut.iter().map(|(partition, last)| (*partition, *last)).collect();
    // The gate first: capacity's events are of its builds.
    partitions.sort_by_key(|(partition, _)| domains.order(*partition));
    for (partition, last) in partitions.into_iter().filter(|(_, last)| *last > 0) {
        read_history(log, partition, Tail::GENESIS, |record, _, _| {
            names.learn(&record.event);
            Ok(record.sequence < last)
        })?;
    }
    Ok(names)
}
