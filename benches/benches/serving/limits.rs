//! What the log alone gives on the same disk or broker, before anything else runs: one durable append after the other.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::rate;
use gatelog_kafka_broker::Broker;
use gatelog_log_kafka::{KafkaConfig, init};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

/// As large as a record is on the average.
const RECORD: [u8; 300] = [7; 300];
const LASTS: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a second something is done, one after the other.
fn often(mut each: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    each()?;
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < LASTS {
        each()?;
        count += 1;
    }
    Ok(rate(count, began.elapsed()))
}

/// Records written to a file and synced, a second.
pub fn synced(dir: &Path) -> Result<f64, Failure> {
    let path = dir.join("raw");
    let mut file = File::create(&path)?;
    let found = often(|| {
        file.write_all(&RECORD)?;
        Ok(file.sync_data()?)
    });
    std::fs::remove_file(&path)?;
    found
}

/// Transactions of one record with plain librdkafka, a second.
pub fn transactions(broker: &Broker) -> Result<f64, Failure> {
    let prefix = "plain.".to_owned();
    init(KafkaConfig { brokers: broker.brokers(), prefix, replication: 1, min_insync: 1, ..KafkaConfig::default() })?;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", broker.brokers())
        .set("transactional.id", "plain-writer")
        .set("linger.ms", "0")
        .create()?;
    producer.init_transactions(PATIENCE)?;
    often(|| {
        producer.begin_transaction()?;
        let record: BaseRecord<'_, (), [u8]> = BaseRecord::to("plain.gate.events").partition(0).payload(&RECORD);
        producer.send(record).map_err(|(error, _)| error)?;
        // The library's own flush looks again only after a tenth of a second.
        while producer.in_flight_count() > 0 {
            producer.poll(Duration::from_millis(1));
        }
        Ok(producer.commit_transaction(PATIENCE)?)
    })
}
