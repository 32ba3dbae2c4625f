//! Taking a partition over: fence, put up a barrier, read until it comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_event_log::history::{Broken, Followed};
use gatelog_event_log::{Claim, EventWriter, LogError, ReadLimit, Tail};
use gatelog_record::{Envelope, Partition, Stream};
use parking_lot::Mutex;

use crate::config::Known;
use crate::cursor::{Cursor, Raw, Reach};
use crate::layout::{Token, control, token_of};
use crate::read::Reader;
use crate::site::still_counts;
use crate::writer::{Failure, KafkaWriter, Line, Transactions, Worker};

/// An event's place is remembered when so many others lie between it and the last one.
const REMEMBER_EVERY: u64 = 1_024;

/// A partition's history as far as this process has followed it.
#[derive(Default)]
struct History {
    tail: Tail,
    /// The Kafka offset to go on from.
    next: u64,
    newest: Option<Vec<u8>>,
    broken: Option<(u64, Broken)>,
    /// A writer or a claim of this process failed without its being known whether for another claim: one from this
    /// Kafka offset on would be the cause.
    unsettled: Option<u64>,
}

/// Where a writer that has failed leaves word for the next claim of its process.
pub(crate) struct Owner {
    history: Arc<Mutex<History>>,
    reach: Arc<Reach>,
    stream: Stream,
    /// Control records from here on are other claims'.
    behind: u64,
}

/// How long a writer that was fenced looks for the claim that did it. Whoever claims commits its control record at once.
const SETTLE: Duration = Duration::from_secs(3);

impl Owner {
    /// Whether another claim fenced the writer. Brokers also fence one whose transaction they gave up because it took
    /// too long: then nobody else is there, and it may claim again.
    pub(crate) fn was_taken_over(&self) -> bool {
        let began = Instant::now();
        loop {
            match claimed_since(&self.reach, self.stream, self.behind) {
                Ok(true) => return true,
                Ok(false) if began.elapsed() < SETTLE => std::thread::sleep(SETTLE / 30),
                // The next claim looks again.
                Ok(false) | Err(_) => return false,
            }
        }
    }

    /// The next claim of this process must first see whether somebody else has taken over meanwhile.
    pub(crate) fn unsettled(&self) {
        let mut history = self.history.lock();
        let from = history.next;
        history.unsettled.get_or_insert(from);
    }
}

/// Whether a control record stands at this Kafka offset or behind it.
fn claimed_since(reach: &Reach, stream: Stream, from: u64) -> Result<bool, LogError> {
    let stable = reach.stable_of(stream)?;
    if from >= stable {
        return Ok(false);
    }
    let mut found = false;
    Cursor::open(reach, stream, from)?.read_to(stable, reach.config.timeout, |raw| {
        found = token_of(&raw.bytes).is_some();
        Ok(!found)
    })?;
    Ok(found)
}

/// The histories this process has followed, and the writers it has started.
pub(crate) struct Claims {
    reach: Arc<Reach>,
    reader: Arc<Reader>,
    histories: Mutex<BTreeMap<Partition, Arc<Mutex<History>>>>,
    writers: Mutex<Vec<(Arc<Line>, JoinHandle<()>)>>,
}

impl Claims {
    pub(crate) fn new(reach: Arc<Reach>, reader: Arc<Reader>) -> Claims {
        Claims { reach, reader, histories: Mutex::default(), writers: Mutex::default() }
    }

    /// Takes a history up where it is known to have been: the log must hold that very event.
    ///
    /// # Errors
    /// `Behind` when the log ends before it, `Damaged` when another event stands in its place.
    pub(crate) fn take_up(&self, known: &Known) -> Result<(), LogError> {
        let Known { who, partition, sequence, link } = known;
        if *sequence == 0 {
            return Ok(());
        }
        let stream = Stream::Events(*partition);
        let mut from = self.reader.seek(*partition, *sequence)?;
        // Records of a stale term may carry the same number: the link tells.
        let mut other = None;
        loop {
            let batch = self.reader.read(stream, from, ReadLimit::default())?;
            for record in &batch.records {
                let Ok((envelope, found)) = Envelope::decode(&record.bytes) else { continue };
                if envelope.sequence > *sequence {
                    break;
                }
                if envelope.sequence < *sequence {
                    continue;
                }
                if found != *link {
                    other.get_or_insert((record.offset, found));
                    continue;
                }
                let tail = Tail { sequence: *sequence, term: envelope.term, link: found };
                let slot = Arc::clone(self.histories.lock().entry(*partition).or_default());
                let mut history = slot.lock();
                if tail.sequence > history.tail.sequence {
                    *history = History {
                        tail,
                        next: record.offset.0 + 1,
                        newest: Some(record.bytes.clone()),
                        ..History::default()
                    };
                    self.reader.remember(*partition, tail.sequence, record.offset.0, tail.term);
                }
                return Ok(());
            }
            if batch.records.is_empty() || other.is_some() {
                break;
            }
            from = batch.next;
        }
        Err(match other {
            Some((offset, found)) => LogError::Damaged {
                place: self.reach.place(stream, offset.0, 0),
                what: format!("event {sequence} has the link {found}, but {who} knows it with {link}"),
            },
            None => LogError::Behind {
                place: self.reach.place(stream, from.0, 0),
                knows: format!("{who} knows event {sequence}"),
            },
        })
    }

    /// Takes a partition over. See [`gatelog_event_log::Log::claim`].
    pub(crate) fn claim(&self, partition: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        let slot = Arc::clone(self.histories.lock().entry(partition).or_default());
        let mut history = slot.lock();
        let stream = Stream::Events(partition);
        // Who lost the partition to somebody else must not take it back by trying again.
        if let Some(from) = history.unsettled
            && claimed_since(&self.reach, stream, from)?
        {
            history.unsettled = None;
            return Err(LogError::Fenced { partition, term: history.tail.term.saturating_add(1) });
        }
        // Where the log has moved on, nobody is fenced there.
        still_counts(&self.reach)?;
        // Fence first, then read: in the other order something might be written in between.
        let transactions = Transactions::begin(&self.reach, partition)?;
        let begun = self.reach.stable_of(stream)?;
        let mut token = Token::default();
        getrandom::fill(&mut token).map_err(|error| LogError::System {
            what: format!("claiming {partition}"),
            message: format!("no random token: {error}"),
        })?;
        let barrier = control(&token);
        let offsets = transactions.commit(std::iter::once(barrier.as_slice())).map_err(|failure| {
            let message = match failure {
                Failure::Fenced => {
                    history.unsettled.get_or_insert(begun);
                    "the brokers gave the claim up, or somebody else claims it too".to_owned()
                }
                Failure::Broken(message) => message,
            };
            LogError::System { what: format!("claiming {partition}"), message }
        })?;
        let cursor = self.follow(partition, &mut history, &token, offsets.last().copied().unwrap_or_default())?;
        if let Some((offset, broken)) = &history.broken {
            let place = self.reach.place(Stream::Events(partition), *offset, 0);
            return Err(LogError::Damaged { place, what: broken.to_string() });
        }
        // Whoever moves the log while this is done finds that it was claimed, or was done before it is looked here.
        still_counts(&self.reach)?;
        let tail = history.tail;
        let claim = Claim {
            partition,
            last_sequence: tail.sequence,
            last_term: tail.term,
            last_link: tail.link,
            last_record: history.newest.clone(),
        };
        history.unsettled = None;
        let owner = Owner { history: Arc::clone(&slot), reach: Arc::clone(&self.reach), stream, behind: history.next };
        drop(history);
        self.start(partition, tail, transactions, cursor, owner).map(|writer| (claim, writer))
    }

    /// Reads until the control record with this token has come; gives the cursor that stands behind it.
    fn follow(
        &self,
        partition: Partition,
        history: &mut History,
        token: &Token,
        barrier: u64,
    ) -> Result<Cursor, LogError> {
        let mut cursor = Cursor::open(&self.reach, Stream::Events(partition), history.next)?;
        let mut came = false;
        let mut remembered = history.tail.sequence;
        cursor.read_to(barrier + 1, self.reach.config.timeout, |Raw { offset, bytes }| {
            history.next = offset + 1;
            if let Some(found) = token_of(&bytes) {
                came = found == *token;
                return Ok(!came);
            }
            if history.broken.is_none() {
                match history.tail.follow(&bytes) {
                    Ok(Followed::Event { tail, .. }) => {
                        history.tail = tail;
                        history.newest = Some(bytes);
                        if tail.sequence >= remembered + REMEMBER_EVERY {
                            remembered = tail.sequence;
                            self.reader.remember(partition, tail.sequence, offset, tail.term);
                        }
                    }
                    Ok(Followed::Stale { .. }) => {}
                    Err(broken) => history.broken = Some((offset, broken)),
                }
            }
            Ok(true)
        })?;
        if came {
            return Ok(cursor);
        }
        Err(LogError::Damaged {
            place: self.reach.place(Stream::Events(partition), barrier, 0),
            what: "the control record of this claim was committed and is not there".to_owned(),
        })
    }

    fn start(
        &self,
        partition: Partition,
        tail: Tail,
        transactions: Transactions,
        cursor: Cursor,
        owner: Owner,
    ) -> Result<Box<dyn EventWriter>, LogError> {
        let config = &self.reach.config;
        let line = Arc::new(Line::default());
        let term = tail.term.saturating_add(1);
        let patience = config.timeout;
        let worker = Worker { line: Arc::clone(&line), transactions, cursor, owner, partition, term, patience };
        let thread = std::thread::Builder::new().name(format!("log-{partition}")).spawn(move || worker.run()).map_err(
            |error| LogError::System {
                what: format!("starting the writer of {partition}"),
                message: error.to_string(),
            },
        )?;
        let mut writers = self.writers.lock();
        writers.retain(|(_, thread)| !thread.is_finished());
        writers.push((Arc::clone(&line), thread));
        let limits = (config.max_record, config.max_append, config.queue_bytes.saturating_mul(4));
        let reader = Arc::clone(&self.reader);
        Ok(Box::new(KafkaWriter { line, reader, partition, term, tail, limits, failed: None }))
    }

    /// Ends every writer; what waits is written first, unless it is abandoned.
    pub(crate) fn end(&self, abandon: bool) {
        let writers = std::mem::take(&mut *self.writers.lock());
        writers.iter().for_each(|(line, _)| line.close(abandon));
        for (_, thread) in writers {
            if thread.join().is_err() {
                tracing::error!("a writer's thread panicked");
            }
        }
    }

    /// How far this process has followed a history, and the Kafka offset to go on from.
    #[cfg(test)]
    pub(crate) fn followed(&self, partition: Partition) -> (Tail, u64) {
        let slot = Arc::clone(self.histories.lock().entry(partition).or_default());
        let history = slot.lock();
        (history.tail, history.next)
    }
}
