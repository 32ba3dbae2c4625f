//! Appending inputs: one idempotent producer for the whole log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gatelog_event_log::{Completer, LogError, Offset, Pending, pending};
use gatelog_record::Stream;
use parking_lot::Mutex;
use rdkafka::Message;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};

use crate::config::Purpose;
use crate::cursor::Reach;
use crate::fault::{Context, code_of, or_system, system};
use crate::layout::bundle;
use crate::names::place_of;
use crate::site::still_counts;

/// What an append in flight owes its caller.
pub(crate) struct Owed {
    stream: Stream,
    records: usize,
    size: u64,
    completer: Completer<Result<Vec<Offset>, LogError>>,
}

/// Tells callers what became of their appends.
pub(crate) struct Deliveries {
    waiting: Arc<AtomicU64>,
    refused: Arc<AtomicBool>,
    brokers: String,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Context.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Owed>;

    fn delivery(&self, result: &DeliveryResult<'_>, owed: Box<Owed>) {
        let Owed { stream, records, size, completer } = *owed;
        self.waiting.fetch_sub(size, Ordering::AcqRel);
        match result {
            Ok(message) => {
                let offset = message.offset().max(0) as u64;
                completer.complete(Ok((0..records).map(|index| place_of(stream, offset, index)).collect()));
            }
            // The log was abandoned: the answer never comes.
            Err((error, _)) if matches!(code_of(error), Some(Code::PurgeQueue | Code::PurgeInflight)) => {}
            Err((error, _)) => {
                if code_of(error) == Some(Code::MessageSizeTooLarge) {
                    self.refused.store(true, Ordering::Release);
                }
                completer.complete(Err(system(format!("appending to {stream}"), &self.brokers, error)));
            }
        }
    }
}

/// Appends inputs.
pub(crate) struct Inputs {
    reach: Arc<Reach>,
    producer: Mutex<Option<ThreadedProducer<Deliveries>>>,
    waiting: Arc<AtomicU64>,
    /// Whether the brokers refused an append as too large, as they do in topics that are closed: see
    /// [`crate::closing`].
    refused: Arc<AtomicBool>,
}

impl Inputs {
    pub(crate) fn new(reach: Arc<Reach>) -> Inputs {
        Inputs { reach, producer: Mutex::new(None), waiting: Arc::default(), refused: Arc::default() }
    }

    /// Appends the records of one append, which have been checked and are some.
    pub(crate) fn append(
        &self,
        stream: Stream,
        records: Vec<Vec<u8>>,
        size: u64,
    ) -> Result<Pending<Result<Vec<Offset>, LogError>>, LogError> {
        if self.refused.load(Ordering::Acquire) {
            still_counts(&self.reach)?;
            self.refused.store(false, Ordering::Release);
        }
        let waiting = self.waiting.load(Ordering::Acquire);
        if waiting > 0 && waiting + size > self.reach.config.queue_bytes {
            return Err(LogError::Busy { waiting });
        }
        let brokers = &self.reach.config.brokers;
        let (completer, result) = pending();
        let owed = Box::new(Owed { stream, records: records.len(), size, completer });
        let topic = self.reach.names.topic(stream);
        let bytes = bundle(records);
        let record: BaseRecord<'_, (), [u8], Box<Owed>> =
            BaseRecord::with_opaque_to(&topic, owed).partition(stream.index() as i32).payload(&bytes);
        let mut slot = self.producer.lock();
        // After a fatal error a producer is of no use any more; a new one begins a new sequence.
        if slot.as_ref().is_some_and(|producer| producer.client().fatal_error().is_some()) {
            *slot = None;
        }
        let producer = match &mut *slot {
            Some(producer) => producer,
            empty => {
                let context = Deliveries {
                    waiting: Arc::clone(&self.waiting),
                    refused: Arc::clone(&self.refused),
                    brokers: brokers.clone(),
                };
                let config = self.reach.client(Purpose::Inputs);
                empty.insert(or_system(config.create_with_context(context), "setting up a Kafka producer", brokers)?)
            }
        };
        self.waiting.fetch_add(size, Ordering::AcqRel);
        match producer.send(record) {
            Ok(()) => Ok(result),
            Err((error, _)) => {
                self.waiting.fetch_sub(size, Ordering::AcqRel);
                Err(match code_of(&error) {
                    Some(Code::QueueFull) => LogError::Busy { waiting },
                    _ => system(format!("appending to {stream}"), brokers, &error),
                })
            }
        }
    }

    /// Ends: what is in flight is written first, unless it is abandoned.
    pub(crate) fn end(&self, abandon: bool) {
        let Some(producer) = self.producer.lock().take() else { return };
        if abandon {
            producer.purge(PurgeConfig::default().queue().inflight());
        } else if let Err(error) = producer.flush(self.reach.config.timeout) {
            tracing::warn!(%error, "inputs were still in flight when the log was closed");
        }
    }
}
