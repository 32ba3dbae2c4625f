//! Raw reading: one consumer that stands at one place of one partition of a topic, and only moves forward.

use std::time::{Duration, Instant};

use gatelog_event_log::{LogError, Place};
use gatelog_record::Stream;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Message, TopicPartitionList};

use crate::config::{KafkaConfig, Purpose};
use crate::fault::{Context, code_of, is_passing, or_system, said, system};
use crate::names::{Names, place_of};
use crate::security::{Secrets, Security};
use crate::trouble::{Listening, Troubles};

/// How long the leader of a partition is waited for before somebody else is asked who leads.
const LEADER_ANSWERS: Duration = Duration::from_secs(3);

/// One Kafka record.
#[derive(Debug)]
pub(crate) struct Raw {
    /// Its offset on Kafka.
    pub(crate) offset: u64,
    /// Its value.
    pub(crate) bytes: Vec<u8>,
}

/// How long a poll waits for what is known to come: not at all at first, for the end may be reached by passing over a
/// marker, of which no poll tells.
#[derive(Default)]
pub(crate) struct Patience(Duration);

impl Patience {
    /// The longest wait.
    const MOST: Duration = Duration::from_millis(20);

    pub(crate) fn wait(&self) -> Duration {
        self.0
    }

    /// Nothing came, and there is more to come.
    pub(crate) fn grow(&mut self) {
        self.0 = (self.0 * 2).clamp(Duration::from_millis(1), Patience::MOST);
    }
}

/// What all readers of a log share: how to reach it.
pub(crate) struct Reach {
    pub(crate) config: KafkaConfig,
    pub(crate) names: Names,
    pub(crate) security: Security,
    secrets: Secrets,
    /// Asks for ends of streams and for metadata; reads nothing.
    asker: BaseConsumer<Listening>,
    pub(crate) troubles: Mutex<Troubles>,
}

impl Reach {
    pub(crate) fn new(config: KafkaConfig) -> Result<Reach, LogError> {
        let names = config.names()?;
        let (security, secrets) = Security::of(&config.properties).map_err(KafkaConfig::wrong)?;
        let mut asker = with_secrets(config.client(&names, Purpose::Read), &secrets);
        asker.set("log_level", "6").set_log_level(Listening::LEVEL);
        let asker = asker.create_with_context(Listening::default());
        let asker = or_system(asker, "setting up a Kafka client", &config.brokers)?;
        Ok(Reach { config, names, security, secrets, asker, troubles: Mutex::default() })
    }

    /// Every setting a client gets.
    pub(crate) fn client(&self, purpose: Purpose<'_>) -> ClientConfig {
        with_secrets(self.config.client(&self.names, purpose), &self.secrets)
    }

    /// When an operation that begins now has failed.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.timeout
    }

    pub(crate) fn asker(&self) -> &BaseConsumer<Listening> {
        &self.asker
    }

    /// The last stable offset of a topic's partition, as its leader tells it now to a reader of what is committed.
    /// Every record acknowledged before this call stands below it: acknowledgement waits for that.
    pub(crate) fn stable(&self, topic: &str, partition: u32) -> Result<u64, LogError> {
        let deadline = self.deadline();
        loop {
            let left =
                deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(10), LEADER_ANSWERS);
            let error = match self.asker.fetch_watermarks(topic, partition as i32, left) {
                Ok((_, stable)) => return Ok(stable.max(0) as u64),
                Err(error) => error,
            };
            let passing = code_of(&error).is_some_and(is_passing);
            if !passing || Instant::now() >= deadline {
                let what = format!("asking Kafka where {topic}/{partition} ends");
                return Err(system(what, &self.config.brokers, &error));
            }
            // Somebody else may lead by now, and only asking for it tells.
            if let Err(error) = self.asker.fetch_metadata(Some(topic), left) {
                tracing::debug!(%error, topic, "who leads cannot be asked");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// [`Reach::stable`] of a stream.
    pub(crate) fn stable_of(&self, stream: Stream) -> Result<u64, LogError> {
        self.stable(&self.names.topic(stream), stream.index())
    }

    /// A place in a stream, for people.
    pub(crate) fn place(&self, stream: Stream, kafka_offset: u64, index: usize) -> Place {
        let offset = Some(place_of(stream, kafka_offset, index));
        Place { offset, ..self.place_in(&self.names.topic(stream), stream, kafka_offset) }
    }

    /// The same in a topic of any generation.
    pub(crate) fn place_in(&self, topic: &str, stream: Stream, kafka_offset: u64) -> Place {
        let physical = format!("topic {topic} partition {} offset {kafka_offset}", stream.index());
        Place { stream: Some(stream), offset: Some(place_of(stream, kafka_offset, 0)), physical }
    }
}

fn with_secrets(mut config: ClientConfig, secrets: &Secrets) -> ClientConfig {
    for (name, secret) in secrets.iter() {
        config.set(name, secret);
    }
    config
}

/// One consumer at one place.
pub(crate) struct Cursor {
    consumer: BaseConsumer<Context>,
    topic: String,
    partition: i32,
    stream: Option<Stream>,
    brokers: String,
    /// Every record before this offset has been given or is none: of an aborted transaction, or a marker.
    position: u64,
    /// The newest passing error, for when time runs out.
    trouble: Option<KafkaError>,
}

impl Cursor {
    /// A cursor on a stream, at this Kafka offset.
    pub(crate) fn open(reach: &Reach, stream: Stream, from: u64) -> Result<Cursor, LogError> {
        Cursor::at(reach, reach.names.topic(stream), stream.index(), Some(stream), from)
    }

    /// A cursor on any topic.
    pub(crate) fn at(
        reach: &Reach,
        topic: String,
        partition: u32,
        stream: Option<Stream>,
        from: u64,
    ) -> Result<Cursor, LogError> {
        let brokers = reach.config.brokers.clone();
        let what = || format!("reading {topic}/{partition}");
        let consumer = reach.client(Purpose::Read).create_with_context(Context);
        let consumer: BaseConsumer<Context> = or_system(consumer, what(), &brokers)?;
        let partition = partition as i32;
        let mut list = TopicPartitionList::new();
        let begin = rdkafka::Offset::Offset(from as i64);
        or_system(list.add_partition_offset(&topic, partition, begin), what(), &brokers)?;
        or_system(consumer.assign(&list), what(), &brokers)?;
        Ok(Cursor { consumer, topic, partition, stream, brokers, position: from, trouble: None })
    }

    /// Goes to another place of the same partition, if it can; else a new cursor is needed.
    pub(crate) fn jump(&mut self, from: u64) -> bool {
        // Waits until it is done: from then on nothing from before is given, and the position is not that from before.
        let to = rdkafka::Offset::Offset(from as i64);
        let done = self.consumer.seek(&self.topic, self.partition, to, Duration::from_secs(5)).is_ok();
        if done {
            self.position = from;
            self.trouble = None;
        }
        done
    }

    /// Every record before this Kafka offset has been given, or is none.
    pub(crate) fn position(&mut self) -> u64 {
        if let Ok(list) = self.consumer.position()
            && let Some(element) = list.find_partition(&self.topic, self.partition)
            && let Some(offset) = element.offset().to_raw().and_then(|offset| u64::try_from(offset).ok())
        {
            self.position = self.position.max(offset);
        }
        self.position
    }

    /// The next record, if one comes within this time.
    ///
    /// # Errors
    /// `Damaged` when the next record is not what was written or is no longer there; `System`. The cursor must not
    /// be used again after an error: it may have passed over something.
    pub(crate) fn poll(&mut self, wait: Duration) -> Result<Option<Raw>, LogError> {
        let error = match self.consumer.poll(wait) {
            None => return Ok(None),
            Some(Ok(message)) => {
                let offset = message.offset().max(0) as u64;
                let raw = Raw { offset, bytes: message.payload().unwrap_or_default().to_vec() };
                self.position = self.position.max(offset + 1);
                self.trouble = None;
                return Ok(Some(raw));
            }
            Some(Err(error)) => error,
        };
        let damaged = |what: String| {
            let physical = format!("topic {} partition {} offset {}", self.topic, self.partition, self.position);
            let offset = self.stream.map(|stream| place_of(stream, self.position, 0));
            Err(LogError::Damaged { place: Place { stream: self.stream, offset, physical }, what })
        };
        match code_of(&error) {
            Some(Code::OffsetOutOfRange | Code::AutoOffsetReset | Code::NoOffset) => damaged(
                "Kafka has no record here any more: it was deleted by retention, or the topic was made anew".to_owned(),
            ),
            Some(
                Code::BadMessage | Code::InvalidMessage | Code::BadCompression | Code::LogTruncation | Code::Underflow,
            ) => damaged(format!("the records are not what was written ({})", said(&error))),
            Some(code) if is_passing(code) => {
                self.trouble = Some(error);
                Ok(None)
            }
            _ => {
                let what = format!("reading {}/{}", self.topic, self.partition);
                Err(system(what, &self.brokers, &error))
            }
        }
    }

    /// Time is over and nothing came.
    pub(crate) fn too_late(&self) -> LogError {
        let what = format!("reading {}/{} at offset {}", self.topic, self.partition, self.position);
        let timeout = KafkaError::MessageConsumption(Code::OperationTimedOut);
        system(what, &self.brokers, self.trouble.as_ref().unwrap_or(&timeout))
    }

    /// Gives every record up to a stable offset; what stands behind may be given too. Stops early when told so.
    pub(crate) fn read_to(
        &mut self,
        stable: u64,
        patience: Duration,
        mut each: impl FnMut(Raw) -> Result<bool, LogError>,
    ) -> Result<(), LogError> {
        let mut deadline = Instant::now() + patience;
        let mut waiting = Patience::default();
        loop {
            match self.poll(waiting.wait())? {
                Some(raw) => {
                    if !each(raw)? {
                        return Ok(());
                    }
                    deadline = Instant::now() + patience;
                    waiting = Patience::default();
                }
                None if self.position() >= stable => return Ok(()),
                None if Instant::now() >= deadline => return Err(self.too_late()),
                None => waiting.grow(),
            }
        }
    }
}
