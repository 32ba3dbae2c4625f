//! [`KafkaPresence`]: who is there, in a compacted topic of one partition.
//!
//! The key of a record is the component, its value the sign; a record without a value withdraws. One producer writes, one
//! thread reads the topic from its beginning and follows it.
//!
//! # Age
//! A sign's age is counted from when this process read it, on its monotonic clock. What it reads late (at its start, or
//! after it could not read for a while) was older by then: by what the record's timestamp says, the clock of whoever
//! signed compared with this one's, but never by more than the time in which this process could not see it. So who is
//! dead when a process starts is seen old at once; where clocks disagree, a dead one may be taken for fresh at that
//! start, until it has aged by this process's own clock, and a living one for old, until its next sign.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gatelog_event_log::presence::{MAX_BODY, MAX_COMPONENT, Presence, Sign, Signs, check_sign};
use gatelog_event_log::{Completer, LogError, pending};
use parking_lot::{Condvar, Mutex};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use rdkafka::{Message, TopicPartitionList};

use crate::admin;
use crate::config::{KafkaConfig, Purpose};
use crate::cursor::Reach;
use crate::fault::{Context, or_system, said, system};

/// How long the consumer is waited for before the thread looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// How often the brokers are asked where the topic ends, which also shows that they are there.
const ASK: Duration = Duration::from_secs(1);

/// After this time without an answer it is not known who is there.
const BLIND: Duration = Duration::from_secs(5);

/// The settings of the topic: small and soon compacted, since a sign comes from everybody every few seconds, and gone
/// after a day.
pub(crate) fn topic_settings(config: &KafkaConfig) -> Vec<(&'static str, String)> {
    vec![
        ("cleanup.policy", "compact,delete".to_owned()),
        ("retention.ms", "86400000".to_owned()),
        ("segment.ms", "600000".to_owned()),
        ("segment.bytes", (16 << 20).to_string()),
        ("min.cleanable.dirty.ratio", "0.1".to_owned()),
        ("delete.retention.ms", "86400000".to_owned()),
        ("max.message.bytes", (2 * (MAX_BODY + MAX_COMPONENT)).to_string()),
        ("min.insync.replicas", config.min_insync.to_string()),
        ("unclean.leader.election.enable", "false".to_owned()),
    ]
}

/// Presence on Kafka.
pub struct KafkaPresence {
    reach: Arc<Reach>,
    producer: Mutex<Option<ThreadedProducer<Acknowledgements>>>,
    shared: Arc<Shared>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// The zero of this process's clock.
    epoch: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    signs: Signs,
    /// When everything there was had been read last.
    abreast: Option<Duration>,
    /// What went wrong last since then.
    trouble: Option<String>,
    closed: bool,
}

impl Shared {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

impl KafkaPresence {
    /// Opens the presence of the log that [`crate::init`] created, and reads who is there.
    ///
    /// # Errors
    /// `System` when no broker answers or there is no such topic.
    pub fn open(config: KafkaConfig) -> Result<KafkaPresence, LogError> {
        let reach = Arc::new(Reach::new(config)?);
        let topic = reach.names.presence();
        if !admin::cluster(&reach)?.topics.contains_key(&topic) {
            return Err(LogError::System {
                what: format!("opening presence on Kafka at {}", reach.config.brokers),
                message: format!("there is no topic {topic}; create what is missing with `gatelog log init`"),
            });
        }
        let what = format!("reading {topic}/0");
        let brokers = &reach.config.brokers;
        let consumer = reach.client(Purpose::Presence).create_with_context(Context);
        let consumer: BaseConsumer<Context> = or_system(consumer, what.clone(), brokers)?;
        let mut list = TopicPartitionList::new();
        or_system(list.add_partition_offset(&topic, 0, rdkafka::Offset::Beginning), what.clone(), brokers)?;
        or_system(consumer.assign(&list), what.clone(), brokers)?;
        let shared = Arc::new(Shared { epoch: Instant::now(), state: Mutex::default(), changed: Condvar::new() });
        let follower =
            Follower { consumer, topic, shared: Arc::clone(&shared), position: 0, end: None, contact: Duration::ZERO };
        let reader = std::thread::Builder::new().name("log-presence".to_owned()).spawn(move || follower.follow());
        let reader = reader.map_err(|error| LogError::System { what, message: format!("no thread: {error}") })?;
        let reader = Mutex::new(Some(reader));
        let presence = KafkaPresence { reach, producer: Mutex::default(), shared, reader };
        presence.first_look()?;
        Ok(presence)
    }

    /// Waits until everything that stood there has been read.
    fn first_look(&self) -> Result<(), LogError> {
        let deadline = self.reach.deadline();
        let mut state = self.shared.state.lock();
        while state.abreast.is_none() {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(self.unseen(&state));
            }
        }
        Ok(())
    }

    fn unseen(&self, state: &State) -> LogError {
        let brokers = &self.reach.config.brokers;
        let trouble = state.trouble.as_deref().unwrap_or("no answer");
        LogError::System {
            what: format!("reading {}", self.reach.names.presence()),
            message: format!("{trouble}; see that a broker answers at {brokers}"),
        }
    }

    /// How long a sign may take: one that would come later says nothing any more.
    fn patience(&self) -> Duration {
        self.reach.config.timeout.min(BLIND)
    }

    fn write(&self, component: &str, body: Option<&[u8]>) -> Result<(), LogError> {
        check_sign(component, body.unwrap_or_default())?;
        let brokers = &self.reach.config.brokers;
        let what = || format!("writing the presence of {component}");
        let topic = self.reach.names.presence();
        let (completer, result) = pending();
        let mut record: BaseRecord<'_, str, [u8], Box<Completer<_>>> =
            BaseRecord::with_opaque_to(&topic, Box::new(completer)).partition(0).key(component);
        if let Some(body) = body {
            record = record.payload(body);
        }
        {
            let mut slot = self.producer.lock();
            if self.shared.state.lock().closed {
                return Err(LogError::Stopped { message: "presence was closed".to_owned() });
            }
            if slot.as_ref().is_some_and(|producer| producer.client().fatal_error().is_some()) {
                *slot = None;
            }
            let producer = match &mut *slot {
                Some(producer) => producer,
                empty => {
                    let mut config = self.reach.client(Purpose::Inputs);
                    config.set("message.timeout.ms", self.patience().as_millis().to_string());
                    empty.insert(or_system(config.create_with_context(Acknowledgements), what(), brokers)?)
                }
            };
            producer.send(record).map_err(|(error, _)| system(what(), brokers, &error))?;
        }
        // The producer gives up first; this is for one that does not even do that.
        match result.wait_for(self.patience() + Duration::from_secs(2)) {
            Ok(Some(written)) => or_system(written, what(), brokers),
            Ok(None) | Err(_) => Err(LogError::System {
                what: what(),
                message: format!("it was not acknowledged; see that a broker answers at {brokers}"),
            }),
        }
    }

    /// Ends the thread and the producer. Nothing is withdrawn by this. Dropping does the same.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        if let Some(producer) = self.producer.lock().take() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
        let reader = self.reader.lock().take();
        if reader.is_some_and(|reader| reader.join().is_err()) {
            tracing::error!("the thread that reads presence panicked");
        }
    }
}

impl Drop for KafkaPresence {
    fn drop(&mut self) {
        self.close();
    }
}

impl Presence for KafkaPresence {
    fn sign(&self, component: &str, body: Vec<u8>) -> Result<(), LogError> {
        self.write(component, Some(&body))
    }

    fn withdraw(&self, component: &str) -> Result<(), LogError> {
        self.write(component, None)
    }

    fn signs(&self) -> Result<Vec<Sign>, LogError> {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(LogError::Stopped { message: "presence was closed".to_owned() });
        }
        match state.abreast {
            Some(abreast) if now.saturating_sub(abreast) <= BLIND => Ok(state.signs.list(now)),
            _ => Err(self.unseen(&state)),
        }
    }
}

/// Tells those who sign what became of it.
struct Acknowledgements;

impl ClientContext for Acknowledgements {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Context.error(error, reason);
    }
}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = Box<Completer<Result<(), KafkaError>>>;

    fn delivery(&self, result: &DeliveryResult<'_>, owed: Self::DeliveryOpaque) {
        owed.complete(result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone()));
    }
}

/// The thread that reads.
struct Follower {
    consumer: BaseConsumer<Context>,
    topic: String,
    shared: Arc<Shared>,
    /// Everything before this offset has been read.
    position: u64,
    /// When the brokers were last asked where the topic ends, and what they said.
    end: Option<(Duration, u64)>,
    /// When something was last read, or known to have been read to its end.
    contact: Duration,
}

impl Follower {
    fn follow(mut self) {
        let mut asked: Option<Duration> = None;
        while !self.shared.state.lock().closed {
            match self.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    let offset = message.offset().max(0) as u64;
                    let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
                    let written = message.timestamp().to_millis();
                    let (key, body) = (key.map(str::to_owned), message.payload().map(<[u8]>::to_vec));
                    drop(message);
                    self.take(offset, key.as_deref(), body, written);
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "reading presence");
                    self.shared.state.lock().trouble = Some(said(&error));
                }
                None => {}
            }
            let now = self.shared.now();
            if asked.is_none_or(|asked| now.saturating_sub(asked) >= ASK) {
                asked = Some(now);
                self.ask(now);
            }
            self.look_whether_abreast();
        }
    }

    /// One record. Its writer's clock said `written`, in milliseconds since 1970.
    fn take(&mut self, offset: u64, component: Option<&str>, body: Option<Vec<u8>>, written: Option<i64>) {
        // Not the greater of both: a topic made anew begins again.
        self.position = offset + 1;
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        in_contact(&mut self.contact, &mut state, now);
        let Some(component) = component.filter(|component| check_sign(component, &[]).is_ok()) else {
            tracing::debug!(offset, "a sign without the name of a component");
            return;
        };
        match body {
            None => state.signs.forget(component),
            Some(body) if body.len() > MAX_BODY => tracing::debug!(offset, "a sign that is too large"),
            Some(body) => {
                let unseen = state.abreast.map_or(Duration::MAX, |abreast| now.saturating_sub(abreast));
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let written =
                    Duration::from_millis(written.and_then(|written| u64::try_from(written).ok()).unwrap_or(u64::MAX));
                state.signs.note(component, body, wall.saturating_sub(written).min(unseen), now);
            }
        }
    }

    fn ask(&mut self, now: Duration) {
        match self.consumer.fetch_watermarks(&self.topic, 0, ASK) {
            // Whatever stood there is gone, by age.
            Ok((low, high)) if low == high => self.end = Some((now, 0)),
            Ok((_, high)) => self.end = Some((now, high.max(0) as u64)),
            Err(error) => self.shared.state.lock().trouble = Some(said(&error)),
        }
    }

    fn look_whether_abreast(&mut self) {
        let Some((asked, end)) = self.end else { return };
        if self.position < end {
            return;
        }
        self.end = None;
        let mut state = self.shared.state.lock();
        in_contact(&mut self.contact, &mut state, asked);
        state.abreast = Some(asked);
        state.trouble = None;
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Something was read, at this moment. If that was long not so, nobody grew older meanwhile.
fn in_contact(contact: &mut Duration, state: &mut State, now: Duration) {
    if now.saturating_sub(*contact) > BLIND {
        state.signs.was_blind(*contact, now);
    }
    *contact = now.max(*contact);
}
