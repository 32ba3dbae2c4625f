//! Closing a generation of topics, so that nothing is acknowledged there any more, whoever slept meanwhile.
//!
//! A process that was paused before its site was stopped, and goes on after its log has moved, knows the old topics and
//! means to be alone. It must not be told that something is safe there:
//!
//! - **events**: the partitions' transactional ids are taken and held while the records are copied. That a record can be
//!   committed under them after the switch proves that nobody else claimed a partition meanwhile; whoever claims later
//!   looks which generation counts and gives up ([`crate::claim`]);
//! - **inputs** have many producers and no such id. So the brokers refuse them: the old topics take no record of more
//!   than [`CLOSED`] bytes, and no batch is as small. Each leader is asked until it does refuse; what came in before
//!   that is copied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use gatelog_event_log::LogError;
use gatelog_record::{Domain, Partition, Stream};
use parking_lot::Mutex;
use rdkafka::admin::{AlterConfig, ConfigSource, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::admin;
use crate::config::Purpose;
use crate::cursor::Reach;
use crate::fault::{code_of, or_system, system};
use crate::layout::{Token, bundle, control};
use crate::names::Names;
use crate::writer::{Failure, Transactions};

/// The largest batch a closed topic takes, in bytes: a batch's head alone is larger.
pub(crate) const CLOSED: &str = "1";
const SETTING: &str = "max.message.bytes";
/// How long a leader is given before it is asked again whether it refuses.
const AGAIN: Duration = Duration::from_millis(50);

/// The partitions' transactional ids, held.
pub(crate) struct Held(Vec<(Partition, Transactions)>);

impl Held {
    /// Takes them: who had a partition cannot write to it any more, and finds that somebody has taken over.
    pub(crate) fn take(reach: &Arc<Reach>, partitions: u32) -> Result<Held, LogError> {
        let mut held = Vec::new();
        for domain in Domain::all() {
            for index in 0..partitions {
                let partition = Partition { domain, index };
                held.push((partition, Transactions::begin(reach, partition)?));
            }
        }
        let held = Held(held);
        held.prove()?;
        Ok(held)
    }

    /// Commits a control record in each partition: nobody has claimed one since they were taken.
    pub(crate) fn prove(&self) -> Result<(), LogError> {
        let record = control(&Token::default());
        for (partition, transactions) in &self.0 {
            transactions.commit(std::iter::once(record.as_slice())).map_err(|failure| {
                let message = match failure {
                    Failure::Fenced => format!("somebody else has claimed {partition}; stop every process of the site"),
                    Failure::Broken(message) => message,
                };
                LogError::System { what: "holding the log's partitions".to_owned(), message }
            })?;
        }
        Ok(())
    }
}

/// The topics of inputs.
fn topics(names: &Names) -> Vec<(Stream, String)> {
    let streams = Names::partitioned().into_iter().filter(|stream| !matches!(stream, Stream::Events(_)));
    streams.map(|stream| (stream, names.topic(stream))).collect()
}

/// Has the brokers refuse inputs in the topics that count now, and waits until every leader does.
pub(crate) fn close_inputs(reach: &Reach, partitions: u32) -> Result<(), LogError> {
    set(reach, CLOSED)?;
    let what = |topic: &str| format!("closing topic {topic}");
    let brokers = &reach.config.brokers;
    let producer = reach.client(Purpose::Inputs).create_with_context(Answers::default());
    let producer: BaseProducer<Answers> = or_system(producer, "closing the log's topics", brokers)?;
    // An append of no inputs: where one still gets in, it says nothing.
    let nothing = bundle(Vec::new());
    for (_, topic) in topics(&reach.names) {
        for index in 0..partitions {
            let deadline = reach.deadline();
            loop {
                let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&topic).partition(index as i32).payload(&nothing);
                or_system(producer.send(record).map_err(|(error, _)| error), what(&topic), brokers)?;
                or_system(producer.flush(reach.config.timeout), what(&topic), brokers)?;
                match producer.context().0.lock().take() {
                    Some(Err(error)) if code_of(&error) == Some(Code::MessageSizeTooLarge) => break,
                    Some(Err(error)) => return Err(system(what(&topic), brokers, &error)),
                    Some(Ok(())) | None if Instant::now() < deadline => std::thread::sleep(AGAIN),
                    Some(Ok(())) | None => {
                        let message = format!("its brokers were told so and take records all the same ({SETTING})");
                        return Err(LogError::System { what: what(&topic), message });
                    }
                }
            }
        }
    }
    Ok(())
}

/// Has the topics that count now take inputs again, if they were closed.
pub(crate) fn open_inputs(reach: &Reach) -> Result<(), LogError> {
    set(reach, &reach.config.max_message().to_string())
}

/// Gives the topics of inputs this largest batch; every other setting of theirs stays as it is. One that is open is not
/// opened.
fn set(reach: &Reach, largest: &str) -> Result<(), LogError> {
    let what = "changing the settings of the log's topics";
    let brokers = &reach.config.brokers;
    let admin = admin::admin(reach)?;
    let names: Vec<String> = topics(&reach.names).into_iter().map(|(_, topic)| topic).collect();
    let asked: Vec<ResourceSpecifier<'_>> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let options = admin::options(reach);
    let known = or_system(block_on(admin.describe_configs(&asked, &options)), what, brokers)?;
    for (topic, known) in names.iter().zip(known) {
        let known = or_system(known.map_err(KafkaError::AdminOp), what, brokers)?;
        // What is not named goes back to what the broker thinks.
        let own = known.entries.iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
        let own: Vec<(&str, &str)> =
            own.filter_map(|entry| Some((entry.name.as_str(), entry.value.as_deref()?))).collect();
        let closed = own.contains(&(SETTING, CLOSED));
        if closed == (largest == CLOSED) {
            continue;
        }
        let others = own.into_iter().filter(|(name, _)| *name != SETTING);
        let wanted =
            others.fold(AlterConfig::new(ResourceSpecifier::Topic(topic)), |all, (name, value)| all.set(name, value));
        let wanted = wanted.set(SETTING, largest);
        let done = or_system(block_on(admin.alter_configs([&wanted], &options)), what, brokers)?;
        for result in done {
            or_system(result.map_err(|(_, code)| KafkaError::AdminOp(code)), what, brokers)?;
        }
    }
    Ok(())
}

/// What became of the last record.
#[derive(Default)]
struct Answers(Mutex<Option<Result<(), KafkaError>>>);

impl ClientContext for Answers {}

impl ProducerContext for Answers {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        *self.0.lock() = Some(match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.clone()),
        });
    }
}
