//! The log on Kafka against its promises, on one real Apache Kafka.

mod contract;
mod fencing;
mod outage;
mod presence;
mod reading;
mod setups;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gatelog_event_log::conformance::{Scribe, arrived, read_all};
use gatelog_event_log::{EventWriter, Log, Offset};
use gatelog_record::{Domain, Partition, Stream};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

use crate::{KafkaConfig, KafkaLog, init};
use gatelog_kafka_broker::Broker;

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const INPUTS: Stream = Stream::Inputs(GATE);
const EVENTS: Stream = Stream::Events(GATE);
const PATIENCE: Duration = Duration::from_secs(60);

/// The shared broker, or a line that says why there is none.
fn broker() -> Option<&'static Broker> {
    gatelog_kafka_broker::shared().inspect_err(|why| println!("SKIPPED kafka: {why}")).ok()
}

/// A configuration with topics of its own.
fn config(broker: &Broker) -> KafkaConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    KafkaConfig {
        brokers: broker.brokers(),
        prefix: format!("t{number}."),
        replication: 1,
        min_insync: 1,
        max_record: 10_000,
        max_append: 40_000,
        timeout: Duration::from_secs(30),
        ..KafkaConfig::default()
    }
}

/// A log with topics of its own, just created.
fn fresh(broker: &Broker) -> (KafkaConfig, KafkaLog) {
    let config = config(broker);
    let report = init(config.clone()).unwrap();
    assert_eq!(report.findings, []);
    let log = KafkaLog::open(config.clone()).unwrap();
    (config, log)
}

fn claim(log: &dyn Log) -> (Scribe, Box<dyn EventWriter>) {
    let (claim, writer) = log.claim(GATE).unwrap();
    (Scribe::of(&claim), writer)
}

fn put(log: &dyn Log, record: &[u8]) -> Offset {
    arrived(log.append_inputs(INPUTS, vec![record.to_vec()])).unwrap()[0]
}

fn contents(log: &dyn Log, stream: Stream) -> Vec<Vec<u8>> {
    read_all(log, stream).unwrap().into_iter().map(|record| record.bytes).collect()
}

/// A producer with which to do what gatelog would not.
fn raw_producer(config: &KafkaConfig, transactional_id: Option<&str>) -> BaseProducer {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers);
    if let Some(id) = transactional_id {
        client.set("transactional.id", id).set("transaction.timeout.ms", "60000");
    }
    client.create_with_context(DefaultProducerContext).unwrap()
}

/// Puts a record at the end of a stream, past every check.
fn insert(config: &KafkaConfig, stream: Stream, record: &[u8]) {
    let producer = raw_producer(config, None);
    send(&producer, config, stream, record);
    producer.flush(PATIENCE).unwrap();
}

fn send(producer: &BaseProducer, config: &KafkaConfig, stream: Stream, record: &[u8]) {
    let topic = config.names().unwrap().topic(stream);
    let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&topic).partition(stream.index() as i32).payload(record);
    producer.send(record).map_err(|(error, _)| error).unwrap();
}

/// Every Kafka record of a stream, control records too.
fn raw_contents(config: &KafkaConfig, stream: Stream) -> Vec<Vec<u8>> {
    let reach = crate::cursor::Reach::new(config.clone()).unwrap();
    let stable = reach.stable_of(stream).unwrap();
    let mut cursor = crate::cursor::Cursor::open(&reach, stream, 0).unwrap();
    let mut found = Vec::new();
    cursor
        .read_to(stable, PATIENCE, |raw| {
            found.push(raw.bytes);
            Ok(true)
        })
        .unwrap();
    found
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn threads(work: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = work.into_iter().map(std::thread::spawn).collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn arc(log: KafkaLog) -> Arc<dyn Log> {
    Arc::new(log)
}
