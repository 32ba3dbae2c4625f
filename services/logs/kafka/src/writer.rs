//! The writer of one partition's events: a thread that owns the transactional producer.
//!
//! It takes everything that waits into one transaction, commits it, and then reads the partition as any reader of what
//! is committed does until the last record has come by. Only then is anything acknowledged: the brokers answer a commit
//! before readers see it. After the first failure the writer is dead; whoever wants to go on claims again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_event_log::checks::{check_events, check_sizes};
use gatelog_event_log::{Completer, EventWriter, LogError, Offset, Pending, Tail, pending};
use gatelog_record::{Partition, Stream};
use parking_lot::{Condvar, Mutex};
use rdkafka::Message;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::claim::Owner;
use crate::config::Purpose;
use crate::cursor::{Cursor, Reach};
use crate::fault::{Context, code_of, is_fencing, or_system, said, system};
use crate::read::Reader;

/// One transaction takes so many bytes and appends, unless a single append has more.
const GROUP_BYTES: u64 = 4 << 20;
const GROUP_APPENDS: usize = 4_096;
/// How long a failed writer tries to end its transaction: the next claim does it anyway.
const ABORT: Duration = Duration::from_secs(2);

/// What became of the messages of the transaction that is open.
#[derive(Default)]
struct Delivered {
    offsets: Vec<Option<u64>>,
    failed: Option<Code>,
}

/// Notes what becomes of messages.
#[derive(Default)]
pub(crate) struct Notes {
    delivered: Mutex<Delivered>,
}

impl ClientContext for Notes {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Context.error(error, reason);
    }
}

impl ProducerContext for Notes {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, index: usize) {
        let mut delivered = self.delivered.lock();
        match result {
            Ok(message) => {
                let offset = u64::try_from(message.offset()).ok();
                if let Some(slot) = delivered.offsets.get_mut(index) {
                    *slot = offset;
                }
            }
            Err((error, _)) => {
                let code = code_of(error);
                // That somebody else has taken over tells more than that the rest was given up.
                if delivered.failed.is_none() || code.is_some_and(is_fencing) {
                    delivered.failed = code.or(delivered.failed);
                }
            }
        }
    }
}

/// Why a transaction came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The transactional id is no longer this producer's: another claim has taken it, or the brokers gave its
    /// transaction up.
    Fenced,
    /// Anything else; whether it is there is not known.
    Broken(String),
}

/// A partition's events as its one producer writes them.
pub(crate) struct Transactions {
    producer: BaseProducer<Notes>,
    topic: String,
    partition: i32,
    reach: Arc<Reach>,
}

impl Transactions {
    /// Takes the partition's transactional id: from here on nothing more comes from whoever had it, and what that one
    /// had open is ended.
    pub(crate) fn begin(reach: &Arc<Reach>, partition: Partition) -> Result<Transactions, LogError> {
        let config = &reach.config;
        let what = || format!("claiming {partition}");
        let id = reach.names.transactional_id(partition);
        let producer = reach.client(Purpose::Events(&id)).create_with_context(Notes::default());
        let producer: BaseProducer<Notes> = or_system(producer, what(), &config.brokers)?;
        let topic = reach.names.topic(Stream::Events(partition));
        let deadline = reach.deadline();
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
            match producer.init_transactions(left) {
                Ok(()) => break,
                Err(KafkaError::Transaction(error)) if error.is_retriable() && Instant::now() < deadline => {}
                Err(error) => return Err(system(what(), &config.brokers, &error)),
            }
        }
        Ok(Transactions { producer, topic, partition: partition.index as i32, reach: Arc::clone(reach) })
    }

    /// Commits these records in one transaction; gives their offsets on Kafka.
    pub(crate) fn commit<'a>(&self, records: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<Vec<u64>, Failure> {
        let count = records.len();
        {
            let mut delivered = self.producer.context().delivered.lock();
            *delivered = Delivered { offsets: vec![None; count], failed: None };
        }
        let committed = self.try_commit(records);
        let (offsets, failed) = {
            let mut delivered = self.producer.context().delivered.lock();
            (std::mem::take(&mut delivered.offsets), delivered.failed)
        };
        match committed {
            Ok(()) => offsets.into_iter().collect::<Option<Vec<u64>>>().ok_or_else(|| {
                Failure::Broken("a transaction was committed, but not every record's offset is known".to_owned())
            }),
            Err(error) => Err(self.give_up(&error, failed)),
        }
    }

    fn try_commit<'a>(&self, records: impl Iterator<Item = &'a [u8]>) -> Result<(), KafkaError> {
        let timeout = self.reach.config.transaction_timeout;
        let deadline = Instant::now() + timeout;
        self.producer.begin_transaction()?;
        for (index, bytes) in records.enumerate() {
            let mut record: BaseRecord<'_, (), [u8], usize> =
                BaseRecord::with_opaque_to(&self.topic, index).partition(self.partition).payload(bytes);
            loop {
                match self.producer.send(record) {
                    Ok(()) => break,
                    Err((error, again)) if code_of(&error) == Some(Code::QueueFull) && Instant::now() < deadline => {
                        record = again;
                        self.producer.poll(Duration::from_millis(5));
                    }
                    Err((error, _)) => return Err(error),
                }
            }
        }
        // Committing waits for the rest of what is in flight too, but a tenth of a second at a time.
        while self.producer.in_flight_count() > 0 && Instant::now() < deadline {
            self.producer.poll(Duration::from_millis(1));
        }
        loop {
            match self.producer.commit_transaction(deadline.saturating_duration_since(Instant::now())) {
                // The answer is on its way: asking again takes it up.
                Err(KafkaError::Transaction(error)) if error.is_retriable() && Instant::now() < deadline => {}
                other => return other,
            }
        }
    }

    /// Ends what is open after a failure, and finds out whether somebody else has taken over.
    fn give_up(&self, error: &KafkaError, failed: Option<Code>) -> Failure {
        let fencing = |code: Option<Code>| code.is_some_and(is_fencing);
        let fatal = |this: &Self| fencing(this.producer.client().fatal_error().map(|(code, _)| code));
        if fencing(code_of(error)) || fencing(failed) || fatal(self) {
            return Failure::Fenced;
        }
        match self.producer.abort_transaction(ABORT) {
            Err(abort) if fencing(code_of(&abort)) || fatal(self) => Failure::Fenced,
            _ => {
                let cause = failed.map(|code| format!(" ({code})")).unwrap_or_default();
                Failure::Broken(format!(
                    "a transaction on {}/{} failed: {}{cause}",
                    self.topic,
                    self.partition,
                    said(error)
                ))
            }
        }
    }
}

/// One append on its way.
struct Item {
    records: Vec<Vec<u8>>,
    size: u64,
    completer: Completer<Result<Offset, LogError>>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: u64,
    failed: Option<LogError>,
    closing: bool,
    abandoned: bool,
}

/// What writer and thread share.
#[derive(Default)]
pub(crate) struct Line {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Line {
    /// No more is taken; what waits is written, unless it is abandoned.
    pub(crate) fn close(&self, abandon: bool) {
        let mut queue = self.queue.lock();
        queue.closing = true;
        queue.abandoned |= abandon;
        self.changed.notify_all();
    }
}

/// The thread's part.
pub(crate) struct Worker {
    pub(crate) line: Arc<Line>,
    pub(crate) transactions: Transactions,
    /// Stands behind the claim's control record.
    pub(crate) cursor: Cursor,
    pub(crate) owner: Owner,
    pub(crate) partition: Partition,
    pub(crate) term: u64,
    pub(crate) patience: Duration,
}

impl Worker {
    /// Writes until there is no more to come or something fails.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.take() {
            if let Err(error) = self.write(group) {
                let mut queue = self.line.queue.lock();
                queue.failed = Some(error.clone());
                queue.bytes = 0;
                let left = std::mem::take(&mut queue.items);
                drop(queue);
                left.into_iter().for_each(|item| item.completer.complete(Err(error.clone())));
                return;
            }
        }
    }

    /// Everything that waits, up to a limit.
    fn take(&self) -> Option<Vec<Item>> {
        let mut queue = self.line.queue.lock();
        loop {
            if queue.abandoned {
                queue.items.clear();
                return None;
            }
            if !queue.items.is_empty() {
                break;
            }
            if queue.closing {
                return None;
            }
            self.line.changed.wait(&mut queue);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(item) = queue.items.front() {
            bytes += item.size;
            if !group.is_empty() && (bytes > GROUP_BYTES || group.len() >= GROUP_APPENDS) {
                break;
            }
            group.extend(queue.items.pop_front());
        }
        Some(group)
    }

    fn write(&mut self, group: Vec<Item>) -> Result<(), LogError> {
        let records: Vec<&[u8]> = group.iter().flat_map(|item| item.records.iter().map(Vec::as_slice)).collect();
        // What became of these records the next claim finds out: it reads what is committed.
        let failed = |message| LogError::System { what: format!("appending to {}", self.partition), message };
        let written = self.transactions.commit(records.iter().copied()).map_err(|failure| match failure {
            Failure::Fenced if self.owner.was_taken_over() => {
                LogError::Fenced { partition: self.partition, term: self.term }
            }
            Failure::Fenced => failed("the brokers gave up a transaction that took too long".to_owned()),
            Failure::Broken(message) => failed(message),
        });
        let seen = written.and_then(|offsets| {
            let last = offsets.last().copied().unwrap_or_default();
            self.cursor
                .read_to(last + 1, self.patience, |raw| Ok(raw.offset < last))
                .map_err(|error| failed(format!("what was committed did not come back: {error}")))?;
            Ok(offsets)
        });
        if matches!(seen, Err(LogError::System { .. })) {
            self.owner.unsettled();
        }
        self.line.queue.lock().bytes -= group.iter().map(|item| item.size).sum::<u64>();
        match seen {
            Ok(offsets) => {
                let mut at = 0;
                for item in group {
                    at += item.records.len();
                    let last = at.checked_sub(1).and_then(|index| offsets.get(index)).copied().unwrap_or_default();
                    item.completer.complete(Ok(Offset(last)));
                }
                Ok(())
            }
            Err(error) => {
                group.into_iter().for_each(|item| item.completer.complete(Err(error.clone())));
                Err(error)
            }
        }
    }
}

/// The writer of one partition's events, as its claimant holds it.
pub(crate) struct KafkaWriter {
    pub(crate) line: Arc<Line>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) partition: Partition,
    pub(crate) term: u64,
    pub(crate) tail: Tail,
    pub(crate) limits: (u64, u64, u64),
    pub(crate) failed: Option<LogError>,
}

impl KafkaWriter {
    fn try_append(&mut self, records: Vec<Vec<u8>>) -> Result<Pending<Result<Offset, LogError>>, LogError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let (max_record, max_append, max_waiting) = self.limits;
        let size = check_sizes(&records, max_record, max_append)?;
        let tail = check_events(self.partition, &self.tail, self.term, &records)?;
        if records.is_empty() {
            return self.reader.end(Stream::Events(self.partition)).map(|end| Pending::ready(Ok(end)));
        }
        let mut queue = self.line.queue.lock();
        if let Some(failed) = &queue.failed {
            return Err(failed.clone());
        }
        if queue.closing {
            return Err(LogError::Stopped { message: "the log was closed".to_owned() });
        }
        if queue.bytes > 0 && queue.bytes + size > max_waiting {
            return Err(LogError::Busy { waiting: queue.bytes });
        }
        let (completer, result) = pending();
        queue.bytes += size;
        queue.items.push_back(Item { records, size, completer });
        self.line.changed.notify_all();
        drop(queue);
        self.tail = tail;
        Ok(result)
    }
}

impl EventWriter for KafkaWriter {
    fn append(&mut self, records: Vec<Vec<u8>>) -> Pending<Result<Offset, LogError>> {
        match self.try_append(records) {
            Ok(result) => result,
            Err(error) => {
                self.failed = Some(error.clone());
                Pending::ready(Err(error))
            }
        }
    }
}

impl Drop for KafkaWriter {
    fn drop(&mut self) {
        self.line.close(false);
    }
}
