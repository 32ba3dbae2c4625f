//! How a log on Kafka is reached, and every setting librdkafka is given: in one place.

use std::collections::BTreeMap;
use std::time::Duration;

use gatelog_event_log::{LogError, MAX_APPEND, MAX_RECORD};
use gatelog_record::{ChainLink, Partition};
use rdkafka::ClientConfig;

use crate::names::Names;
use crate::security::{Security, Wrong};

/// What stands around the records of an append in one Kafka record or request.
const OVERHEAD: u64 = 1 << 20;

/// Something that was derived from this log and says how far a partition's events must at least go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Who knows, for people: `the projection in /var/lib/gatelog/state/gate.0`.
    pub who: String,
    /// The partition.
    pub partition: Partition,
    /// The newest event it knows; 0 knows nothing.
    pub sequence: u64,
    /// That event's link.
    pub link: ChainLink,
}

/// How a log on Kafka is reached and what is wanted of it.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    /// Where brokers listen: `host:port,host:port`. One that answers is enough.
    pub brokers: String,
    /// What every topic's name and transactional id begins with, such as `ci.`; may be empty.
    pub prefix: String,
    /// How many partitions each domain and the intake have. Counts when the log is created; afterwards the log's own
    /// number stands.
    pub partitions: u32,
    /// On how many brokers each record is to be kept.
    pub replication: u32,
    /// On how many brokers a record must be before it is acknowledged.
    pub min_insync: u32,
    /// The largest record taken, in bytes.
    pub max_record: u64,
    /// The most bytes one append may carry.
    pub max_append: u64,
    /// The most bytes that may wait to be written before inputs are refused with `Busy`. Events are refused at four
    /// times that.
    pub queue_bytes: u64,
    /// How long an operation waits for the brokers before it fails.
    pub timeout: Duration,
    /// After this time the brokers give up the open transaction of a writer that has stalled. Until then it keeps
    /// readers of its partition from what comes after; a new claim ends it at once.
    pub transaction_timeout: Duration,
    /// Further settings of librdkafka by their own names, such as `security.protocol` or `sasl.username`. Those on
    /// which the log's promises rest cannot be set here. A secret names the file it is in, `file:PATH`: see
    /// [`crate::relative_to`].
    pub properties: BTreeMap<String, String>,
    /// What is known to have been on this log. A claim reads a partition's events from there on rather than from the
    /// first.
    pub known: Vec<Known>,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        KafkaConfig {
            brokers: "127.0.0.1:9092".to_owned(),
            prefix: String::new(),
            partitions: 1,
            replication: 3,
            min_insync: 2,
            max_record: MAX_RECORD,
            max_append: MAX_APPEND,
            queue_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
            transaction_timeout: Duration::from_secs(20),
            properties: BTreeMap::new(),
            known: Vec::new(),
        }
    }
}

/// Settings that may come from outside. What the promises rest on (acknowledgement, idempotence, isolation, groups,
/// transactions, sizes) is gatelog's own.
const ADMITTED: &[&str] = &[
    "bootstrap.servers",
    "broker.address.family",
    "client.dns.lookup",
    "client.id",
    "compression.codec",
    "compression.level",
    "compression.type",
    "debug",
    "enable.ssl.certificate.verification",
    "log_level",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
];
const ADMITTED_FAMILIES: &[&str] = &["sasl.", "ssl."];

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// Asks and changes topics.
    Admin,
    /// Reads what is committed.
    Read,
    /// Waits for what comes.
    Watch,
    /// Follows presence.
    Presence,
    /// Appends inputs.
    Inputs,
    /// Appends the events of one partition under this transactional id.
    Events(&'a str),
}

impl KafkaConfig {
    /// The names of this log's topics; an error when the configuration cannot be meant.
    pub(crate) fn names(&self) -> Result<Names, LogError> {
        let wrong = |message: String| LogError::System { what: "the configuration of log.kafka".to_owned(), message };
        if self.brokers.trim().is_empty() {
            return Err(wrong("no broker is named: set brokers to host:port".to_owned()));
        }
        if self.partitions == 0 || self.partitions > 10_000 {
            return Err(wrong(format!("{} partitions cannot be: use 1 to 10000", self.partitions)));
        }
        if self.max_record > self.max_append || self.max_append > 512 << 20 {
            return Err(wrong("max_record must not exceed max_append, nor that 512 MiB".to_owned()));
        }
        for name in self.properties.keys() {
            let admitted = ADMITTED.contains(&name.as_str());
            if !admitted && !ADMITTED_FAMILIES.iter().any(|family| name.starts_with(family)) {
                return Err(wrong(format!(
                    "the property {name} cannot be set: what may is {} and those of {}",
                    ADMITTED.join(", "),
                    ADMITTED_FAMILIES.join(", ")
                )));
            }
        }
        Names::new(&self.prefix).map_err(wrong)
    }

    /// How the brokers are spoken to, as these settings say.
    ///
    /// # Errors
    /// `System` when they cannot be meant, or a file they name is not as it must be.
    pub fn security(&self) -> Result<Security, LogError> {
        Security::of(&self.properties).map(|(security, _)| security).map_err(KafkaConfig::wrong)
    }

    /// What is wrong with the configuration, as the log's own error.
    pub(crate) fn wrong(wrong: Wrong) -> LogError {
        LogError::System { what: "the configuration of log.kafka".to_owned(), message: wrong.to_string() }
    }

    /// The largest Kafka record there may be.
    pub(crate) fn max_message(&self) -> u64 {
        self.max_append + OVERHEAD
    }

    /// Every setting a client gets but for secrets: see `Reach::client`.
    pub(crate) fn client(&self, names: &Names, purpose: Purpose<'_>) -> ClientConfig {
        let mut config = ClientConfig::new();
        let timeout = self.timeout.as_millis().to_string();
        let most = self.max_message();
        config.set("client.id", "gatelog").set("log_level", "4");
        // A broker that is there and says nothing is left for the next leader after this time, well before a transaction
        // is over.
        let silent = Duration::from_secs(8).min(self.transaction_timeout);
        config.set("socket.timeout.ms", silent.as_millis().to_string());
        // Who leads is asked again and again: when a leader dies its clients ask at once, before there is another, and
        // then would not for five minutes.
        config.set("topic.metadata.refresh.interval.ms", "3000").set("metadata.max.age.ms", "9000");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("message.max.bytes", most.to_string())
            .set("receive.message.max.bytes", (2 * most + OVERHEAD).to_string())
            .set("socket.nagle.disable", "true")
            .set("reconnect.backoff.max.ms", "1000")
            .set("allow.auto.create.topics", "false");
        match purpose {
            Purpose::Admin => {}
            Purpose::Read | Purpose::Watch | Purpose::Presence => {
                config
                    // Named because librdkafka wants one; nobody joins it and nothing is committed to it.
                    .set("group.id", names.group())
                    .set("enable.auto.commit", "false")
                    .set("enable.auto.offset.store", "false")
                    .set("isolation.level", "read_committed")
                    // librdkafka 2.12 knows no way on from a batch whose checksum fails: it skips to a wrong place and
                    // may end the whole process on an assertion. What is read is checked by checksums of our own:
                    // each event's and its chain, each input frame's, each bundle's.
                    .set("check.crcs", "false")
                    .set("fetch.wait.max.ms", "500")
                    .set("fetch.min.bytes", "1")
                    .set("fetch.message.max.bytes", (1 << 20).to_string())
                    .set("fetch.max.bytes", most.to_string())
                    .set("queued.max.messages.kbytes", (8 << 10).to_string())
                    .set("fetch.queue.backoff.ms", "10")
                    .set("fetch.error.backoff.ms", "100");
                // A reader that stands where nothing is any more must say so; who only waits, waits for what comes; who
                // wants to know who is there reads what is left.
                let lost = match purpose {
                    Purpose::Watch => "latest",
                    Purpose::Presence => "earliest",
                    _ => "error",
                };
                config.set("auto.offset.reset", lost);
            }
            Purpose::Inputs | Purpose::Events(_) => {
                config
                    .set("acks", "all")
                    .set("enable.idempotence", "true")
                    .set("max.in.flight.requests.per.connection", "5")
                    .set("queue.buffering.max.kbytes", ((self.queue_bytes + 2 * most) >> 10).to_string())
                    .set("queue.buffering.max.messages", "1000000")
                    .set("retry.backoff.ms", "20");
                if let Purpose::Events(transactional_id) = purpose {
                    // A message may not outlive the transaction it is part of.
                    let transaction = self.transaction_timeout.as_millis().to_string();
                    config
                        .set("transactional.id", transactional_id)
                        .set("transaction.timeout.ms", &transaction)
                        .set("message.timeout.ms", &transaction)
                        .set("linger.ms", "0");
                } else {
                    config.set("message.timeout.ms", &timeout).set("linger.ms", "0");
                }
            }
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut KafkaConfig)) -> String {
        let mut config = KafkaConfig::default();
        change(&mut config);
        config.names().unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let set = |name: &'static str| {
            refused(move |config| {
                config.properties.insert(name.to_owned(), "1".to_owned());
            })
        };
        assert!(set("acks").contains("the property acks cannot be set"));
        assert!(set("isolation.level").contains("isolation.level"));
        assert!(refused(|config| config.brokers.clear()).contains("host:port"));
        assert!(refused(|config| config.partitions = 0).contains("0 partitions"));
        assert!(refused(|config| config.max_record = config.max_append + 1).contains("max_record"));
        assert!(refused(|config| config.prefix = "a b".to_owned()).contains("prefix"));
    }

    #[test]
    fn what_the_promises_rest_on_is_set() {
        let config = KafkaConfig::default();
        let names = config.names().unwrap();
        let events = config.client(&names, Purpose::Events("x"));
        assert_eq!((events.get("acks"), events.get("enable.idempotence")), (Some("all"), Some("true")));
        assert_eq!(config.client(&names, Purpose::Inputs).get("enable.idempotence"), Some("true"));
        for purpose in [Purpose::Read, Purpose::Watch, Purpose::Presence] {
            let read = config.client(&names, purpose);
            assert_eq!(read.get("isolation.level"), Some("read_committed"));
            assert_eq!(read.get("enable.auto.commit"), Some("false"));
        }
    }
}
