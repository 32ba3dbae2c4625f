//! The next generation of a log's topics: how the number of partitions changes, which never does in place.
//!
//! Kafka lets a topic's partitions grow, never shrink, and moves nothing. So another number is another generation of
//! topics (`<topic>.g2`) into which every record is copied, **each to the offset it had**: events carry the places of
//! inputs, so those must not move. Where an offset of events holds no record (the marker of a transaction, or what was
//! rolled back) the copy has a control record, over which reading passes as well. Bytes are not touched, so chain,
//! links and checksums hold as before.
//!
//! # Order
//! The writers of all partitions are fenced; topics are made; records are copied; then **one** site record says which
//! generation counts. Whatever dies before it has changed nothing: the same again goes on where the copy ends, once that
//! has been compared with what it is a copy of. The topics before stay until somebody deletes them.
//!
//! # What it cannot do
//! Split a partition's history. A tenant's decisions stand in one order in one partition, under one chain: no copy takes
//! them apart. So there may be fewer partitions than before if those that go are empty, and not more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gatelog_event_log::presence::Presence;
use gatelog_event_log::{LogError, failpoint};
use gatelog_record::{Domain, Partition, SiteId, Stream};
use parking_lot::Mutex;
use rdkafka::Message;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::admin;
use crate::config::{KafkaConfig, Purpose};
use crate::cursor::{Cursor, Reach};
use crate::fault::{Context, code_of, or_system, system};
use crate::layout::{SiteRecord, Token, control, token_of};
use crate::names::{Names, with_index};
use crate::presence::KafkaPresence;
use crate::writer::Transactions;

/// After so many records, or bytes, it is waited until all are there.
const GROUP_RECORDS: u64 = 100;
const GROUP_BYTES: usize = 4 << 20;

/// Who gave a sign of life so recently may still write.
const ALIVE: Duration = Duration::from_secs(30);

/// So often what has come in meanwhile is copied too before it is said that somebody still writes.
const ROUNDS: u32 = 3;

/// What was copied.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The site.
    pub site: SiteId,
    /// The generation of topics that counts now.
    pub topics: u32,
    /// How many partitions each of them has.
    pub partitions: u32,
    /// The topics, and how many Kafka records each has.
    pub copied: Vec<(String, u64)>,
    /// The topics that counted before. They are left as they were.
    pub left: Vec<String>,
}

/// What a copy changes: the generations of topics, and how far it has come.
struct Move {
    reach: Arc<Reach>,
    old: Names,
    new: Names,
}

/// Makes the next generation of topics, with so many partitions, of a log that nobody serves; `None` when the topics
/// already have as many. `told` hears of each topic once it is copied.
///
/// # Errors
/// `System` when somebody serves the log, when partitions that would go are not empty, when no broker answers or they
/// refuse; `Damaged` when something stands in a new topic that is no copy, or the old ones have a gap. Whatever the
/// error, the generation that counted before still counts.
pub fn repartition(
    config: KafkaConfig,
    partitions: u32,
    told: &mut dyn FnMut(&str, u64),
) -> Result<Option<Copied>, LogError> {
    let refused = |message: String| LogError::System { what: "changing the number of partitions".to_owned(), message };
    let mut reach = Reach::new(config.clone())?;
    let known = admin::known_site(&mut reach)?;
    let reach = Arc::new(reach);
    let cluster = admin::cluster(&reach)?;
    let actual =
        |names: &Names, stream: Stream| cluster.topics.get(&names.topic(stream)).map_or(0, |topic| topic.partitions);
    let streams = Names::partitioned();
    let widest = streams.iter().map(|stream| actual(&reach.names, *stream)).max().unwrap_or_default();
    if known.partitions == partitions && widest <= partitions {
        return Ok(None);
    }
    if partitions > known.partitions {
        return Err(refused(format!(
            "this log has {} and its history cannot be split into {partitions}: a tenant's decisions have one order; ask \
             for {} or fewer",
            known.partitions, known.partitions
        )));
    }
    nobody_is_there(&config)?;
    let next = SiteRecord { partitions, topics: known.topics.saturating_add(1), ..known };
    let new = reach.names.of_topics(next.topics);
    for stream in &streams {
        for index in partitions..actual(&reach.names, *stream) {
            let topic = reach.names.topic(*stream);
            // Asked of whoever leads it; what was deleted from it does not count.
            let _ = reach.stable(&topic, index)?;
            let ends = reach.asker().fetch_watermarks(&topic, index as i32, reach.config.timeout);
            let (first, end) =
                or_system(ends, format!("asking Kafka what is in {topic}/{index}"), &reach.config.brokers)?;
            if first < end {
                return Err(refused(format!(
                    "there are records in {topic}/{index}, which would go, and history is never left behind; if they are none (a \
                     gatelog that serves {partitions} writes none there), delete them with kafka-delete-records.sh, then \
                     try again"
                )));
            }
        }
    }
    let wanted: Vec<(String, u32)> = streams.iter().map(|stream| (new.topic(*stream), partitions)).collect();
    for (topic, wanted) in &wanted {
        if let Some(there) = cluster.topics.get(topic).filter(|there| there.partitions != *wanted) {
            return Err(refused(format!(
                "there is a topic {topic} already, with {} partitions and not {wanted}; if it is left of an earlier \
                 attempt, delete it",
                there.partitions
            )));
        }
    }
    // Who had a partition cannot write to it any more, and what it had open is over.
    for domain in Domain::ALL {
        for index in 0..known.partitions {
            drop(Transactions::begin(&reach, Partition { domain, index })?);
        }
    }
    let missing: Vec<_> = wanted.into_iter().filter(|(topic, _)| !cluster.topics.contains_key(topic)).collect();
    if !missing.is_empty() {
        admin::create(&reach, &missing)?;
    }
    failpoint::pass("repartition/made");
    let moved = Move { old: reach.names.clone(), new, reach };
    let copied = moved.all(partitions, told)?;
    // A process that came meanwhile would write into topics that no longer count.
    nobody_is_there(&config)?;
    failpoint::pass("repartition/copied");
    let counts = admin::send_site(&moved.reach, &next)?;
    failpoint::pass("repartition/switched");
    if counts != next {
        return Err(refused("somebody else did the same at this moment; look with `gatelog log check`".to_owned()));
    }
    let left = streams.iter().map(|stream| moved.old.topic(*stream)).collect();
    Ok(Some(Copied { site: next.site, topics: next.topics, partitions, copied, left }))
}

/// An error that names who serves the log.
fn nobody_is_there(config: &KafkaConfig) -> Result<(), LogError> {
    let presence = KafkaPresence::open(config.clone())?;
    let signs = presence.signs()?;
    presence.close();
    let Some(sign) = signs.into_iter().find(|sign| sign.age < ALIVE) else { return Ok(()) };
    Err(LogError::System {
        what: "changing the number of partitions".to_owned(),
        message: format!(
            "{} gave a sign of life {} s ago; stop every process of the site first (one that was killed counts for {} s)",
            sign.component,
            sign.age.as_secs(),
            ALIVE.as_secs()
        ),
    })
}

impl Move {
    /// Every partition of every topic; again, as long as something comes in.
    fn all(&self, partitions: u32, told: &mut dyn FnMut(&str, u64)) -> Result<Vec<(String, u64)>, LogError> {
        let mut ends: Vec<(Stream, u64)> = Vec::new();
        for round in 0..=ROUNDS {
            let mut now = Vec::new();
            for topic in Names::partitioned() {
                for index in 0..partitions {
                    let stream = with_index(topic, index);
                    now.push((stream, self.reach.stable(&self.old.topic(stream), index)?));
                }
            }
            if now == ends {
                break;
            }
            if round == ROUNDS {
                return Err(LogError::System {
                    what: "copying the log's topics".to_owned(),
                    message: "somebody still writes to it; stop every process of the site".to_owned(),
                });
            }
            for (stream, end) in &now {
                if !ends.contains(&(*stream, *end)) {
                    self.one(*stream, *end)?;
                    told(&self.new.topic(*stream), *end);
                }
            }
            ends = now;
        }
        Ok(ends.into_iter().map(|(stream, end)| (self.new.topic(stream), end)).collect())
    }

    /// One partition up to this offset: what is there is compared, what is missing is copied.
    fn one(&self, stream: Stream, end: u64) -> Result<(), LogError> {
        let (from, to) = (self.old.topic(stream), self.new.topic(stream));
        let there = self.reach.stable(&to, stream.index())?;
        if there > end || (there > 0 && self.digest(&from, stream, there)? != self.digest(&to, stream, there)?) {
            return Err(LogError::Damaged {
                place: self.reach.place_in(&to, stream, 0),
                what: format!(
                    "what stands in this topic is no copy of {from}; if nothing else needs it, delete it, then try \
                               again"
                ),
            });
        }
        let mut producer = Copier::new(&self.reach, &to, stream, there)?;
        let mut cursor = Cursor::at(&self.reach, from.clone(), stream.index(), Some(stream), there)?;
        let mut next = there;
        let fill = |producer: &mut Copier, next: &mut u64, until: u64| -> Result<(), LogError> {
            while *next < until {
                let Stream::Events(_) = stream else {
                    let what = format!("there is no record at offset {next}: this topic is not as gatelog writes it");
                    return Err(LogError::Damaged { place: self.reach.place_in(&from, stream, *next), what });
                };
                // Not known to anybody, as the token of a claim that is over.
                producer.send(control(&Token::default()))?;
                *next += 1;
            }
            Ok(())
        };
        if there < end {
            cursor.read_to(end, self.reach.config.timeout, |raw| {
                if raw.offset >= end {
                    return Ok(false);
                }
                fill(&mut producer, &mut next, raw.offset)?;
                producer.send(raw.bytes)?;
                next += 1;
                Ok(next < end)
            })?;
            fill(&mut producer, &mut next, end)?;
        }
        producer.settle()
    }

    /// Of all records before this offset that say something.
    fn digest(&self, topic: &str, stream: Stream, end: u64) -> Result<(u64, u32), LogError> {
        let mut digest = (0, 0);
        let mut cursor = Cursor::at(&self.reach, topic.to_owned(), stream.index(), Some(stream), 0)?;
        let events = matches!(stream, Stream::Events(_));
        cursor.read_to(end, self.reach.config.timeout, |raw| {
            if raw.offset >= end {
                return Ok(false);
            }
            if !events || token_of(&raw.bytes).is_none() {
                let (count, sum) = digest;
                let sum = crc32c::crc32c_append(sum, &raw.offset.to_be_bytes());
                digest = (count + 1, crc32c::crc32c_append(sum, &raw.bytes));
            }
            Ok(raw.offset + 1 < end)
        })?;
        Ok(digest)
    }
}

/// What became of the records that were sent: each must be at the offset it had.
#[derive(Default)]
struct Arrivals(Mutex<Arrived>);

#[derive(Default)]
struct Arrived {
    expected: VecDeque<u64>,
    wrong: Option<String>,
    failed: Option<KafkaError>,
}

impl ClientContext for Arrivals {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Context.error(error, reason);
    }
}

impl ProducerContext for Arrivals {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut arrived = self.0.lock();
        let expected = arrived.expected.pop_front().unwrap_or_default();
        match result {
            Ok(message) if u64::try_from(message.offset()) == Ok(expected) => {}
            Ok(message) => {
                let offset = message.offset();
                let _ =
                    arrived.wrong.get_or_insert_with(|| format!("the record of offset {expected} came to {offset}"));
            }
            Err((error, _)) => {
                let _ = arrived.failed.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// Writes one partition's copy.
struct Copier {
    reach: Arc<Reach>,
    producer: BaseProducer<Arrivals>,
    topic: String,
    stream: Stream,
    next: u64,
    waiting: (u64, usize),
}

impl Copier {
    fn new(reach: &Arc<Reach>, topic: &str, stream: Stream, next: u64) -> Result<Copier, LogError> {
        let producer = reach.client(Purpose::Inputs).create_with_context(Arrivals::default());
        let producer: BaseProducer<Arrivals> =
            or_system(producer, format!("copying to {topic}"), &reach.config.brokers)?;
        Ok(Copier { reach: Arc::clone(reach), producer, topic: topic.to_owned(), stream, next, waiting: (0, 0) })
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<(), LogError> {
        self.producer.context().0.lock().expected.push_back(self.next);
        self.next += 1;
        let record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(&self.topic).partition(self.stream.index() as i32).payload(&bytes);
        let failed = |error| system(format!("copying to {}", self.topic), &self.reach.config.brokers, &error);
        match self.producer.send(record) {
            Ok(()) => {}
            Err((error, record)) if code_of(&error) == Some(Code::QueueFull) => {
                self.producer.flush(self.reach.config.timeout).map_err(failed)?;
                self.producer.send(record).map_err(|(error, _)| failed(error))?;
            }
            Err((error, _)) => return Err(failed(error)),
        }
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + bytes.len());
        if self.waiting.0 >= GROUP_RECORDS || self.waiting.1 >= GROUP_BYTES { self.settle() } else { Ok(()) }
    }

    /// Waits until all is there, each where it must be.
    fn settle(&mut self) -> Result<(), LogError> {
        let what = || format!("copying to {}", self.topic);
        let flushed = self.producer.flush(self.reach.config.timeout);
        let (wrong, failed, left) = {
            let mut arrived = self.producer.context().0.lock();
            (arrived.wrong.take(), arrived.failed.take(), arrived.expected.len())
        };
        if let Some(wrong) = wrong {
            let what = format!("{wrong}: somebody else wrote into this topic; delete it, then try again");
            return Err(LogError::Damaged { place: self.reach.place_in(&self.topic, self.stream, self.next), what });
        }
        if let Some(error) = failed {
            return Err(system(what(), &self.reach.config.brokers, &error));
        }
        or_system(flushed, what(), &self.reach.config.brokers)?;
        if left > 0 {
            let message = format!("of {left} records nothing was heard; try again");
            return Err(LogError::System { what: what(), message });
        }
        if self.waiting.0 > 0 {
            failpoint::pass("repartition/copying");
        }
        self.waiting = (0, 0);
        Ok(())
    }
}
