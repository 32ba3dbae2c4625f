//! Creating a log, and set-ups that are wrong.

use futures::executor::block_on;
use gatelog_event_log::{LogError, Survives};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};

use super::*;
use crate::FindingKind::{self, *};
use crate::admin::topic_settings;
use crate::check;
use crate::config::Purpose;
use crate::fault::Context;

const TOPIC: &str = "gate.events";
const PRESENCE: &str = "presence";

/// Makes the events topic of `gate` by hand, with these settings beside the right ones.
fn make(config: &KafkaConfig, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<Context> =
        config.client(&config.names().unwrap(), Purpose::Admin).create_with_context(Context).unwrap();
    let name = format!("{}{topic}", config.prefix);
    let right = topic_settings(config, &config.names().unwrap(), &name);
    let mut new = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
    for (name, value) in &right {
        new = new.set(name, value);
    }
    for (name, value) in settings {
        new.config.retain(|(other, _)| other != name);
        new = new.set(name, value);
    }
    let made = block_on(admin.create_topics([&new], &AdminOptions::new())).unwrap();
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

fn kinds(config: &KafkaConfig) -> Vec<FindingKind> {
    let findings = check(config.clone());
    for finding in &findings {
        assert!(!finding.what.is_empty() && !finding.cure.is_empty(), "each names a fault and a cure: {finding}");
    }
    findings.into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_log_is_created_once() {
    let Some(broker) = broker() else { return };
    let config = KafkaConfig { partitions: 2, ..config(broker) };
    let no_log = KafkaLog::open(config.clone()).err().unwrap();
    assert!(matches!(&no_log, LogError::System { message, .. } if message.contains("gatelog log init")), "{no_log}");
    let missing = kinds(&config);
    assert_eq!(missing.iter().filter(|kind| **kind == MissingTopic).count(), 11);
    assert!(missing.contains(&Site));
    let report = init(config.clone()).unwrap();
    assert_eq!((report.created.len(), report.found.len(), report.partitions), (11, 0, 2));
    assert_eq!(report.findings, []);
    // Again, and by somebody who thinks of another number: the log's own stands.
    let again = init(KafkaConfig { partitions: 5, ..config.clone() }).unwrap();
    assert_eq!((again.created.len(), again.found.len(), again.partitions), (0, 11, 2));
    assert_eq!((again.site, again.generation), (report.site, 1));
    assert_eq!(again.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [Partitions]);
    let log = KafkaLog::open(config).unwrap();
    let described = log.describe();
    assert_eq!((described.site, described.partitions), (report.site, 2));
    assert_eq!(described.survives, Survives::ReplicaLoss(1));
    let beyond = Stream::Inputs(Partition { domain: Domain::Gate, index: 2 });
    let refused = arrived(log.append_inputs(beyond, vec![b"x".to_vec()])).unwrap_err();
    assert!(refused.to_string().contains("2 partitions"), "{refused}");
    let last = Partition { domain: Domain::Deployments, index: 1 };
    let (claim, mut writer) = log.claim(last).unwrap();
    arrived(writer.append(Scribe::of(&claim).several(1))).unwrap();
    assert_eq!(log.streams(), Ok(vec![Stream::Events(last)]));
}

#[test]
fn every_wrong_set_up_is_found_with_a_cure() {
    let Some(broker) = broker() else { return };
    // What a topic made by hand may have wrong.
    type Settings = &'static [(&'static str, &'static str)];
    let wrong: [(&str, Settings, FindingKind); 10] = [
        (TOPIC, &[("cleanup.policy", "compact")], Compaction),
        (TOPIC, &[("cleanup.policy", "compact,delete")], Compaction),
        (TOPIC, &[("retention.ms", "604800000")], Retention),
        (TOPIC, &[("retention.bytes", "1073741824")], Retention),
        (TOPIC, &[("max.message.bytes", "1000012")], MessageSize),
        (TOPIC, &[("unclean.leader.election.enable", "true")], UncleanElection),
        (TOPIC, &[("min.insync.replicas", "2")], MinInsync),
        (PRESENCE, &[("cleanup.policy", "delete")], Compaction),
        (PRESENCE, &[("retention.ms", "30000")], Retention),
        (PRESENCE, &[("max.message.bytes", "65536")], MessageSize),
    ];
    for (topic, settings, kind) in wrong {
        let config = config(broker);
        make(&config, topic, 1, settings);
        let report = init(config.clone()).unwrap();
        assert_eq!(report.found, [format!("{}{topic}", config.prefix)]);
        assert_eq!(report.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [kind], "{settings:?}");
        let findings = check(config);
        assert_eq!(findings, report.findings);
        assert!(findings[0].what.contains(topic) && findings[0].cure.contains(settings[0].0), "{}", findings[0]);
    }
    // Too few partitions, too many.
    let few = KafkaConfig { partitions: 2, ..config(broker) };
    make(&few, TOPIC, 1, &[]);
    init(few.clone()).unwrap();
    assert_eq!(kinds(&few), [Partitions]);
    assert!(KafkaLog::open(few).err().unwrap().to_string().contains("gatelog log check"));
    let many = config(broker);
    make(&many, TOPIC, 3, &[]);
    init(many.clone()).unwrap();
    assert_eq!(kinds(&many), [Partitions]);
    // A right log, but not what this configuration wants.
    let (right, _) = fresh(broker);
    assert_eq!(kinds(&right), []);
    let wanted = KafkaConfig { replication: 2, min_insync: 2, ..right.clone() };
    let mut found = kinds(&wanted);
    // Of the brokers' own topic too, once somebody has claimed something.
    found.retain(|kind| *kind != Transactions);
    assert_eq!(found, [Replication, MinInsync].repeat(11));
    assert_eq!(kinds(&KafkaConfig { partitions: 4, ..right.clone() }), [Partitions]);
    assert_eq!(
        kinds(&KafkaConfig { transaction_timeout: Duration::from_secs(3_600), ..right.clone() }),
        [Transactions]
    );
    assert!(init(KafkaConfig { replication: 3, ..config(broker) }).unwrap_err().to_string().contains("1 brokers"));
    // No broker there, no such security, a setting that may not be set.
    let short = KafkaConfig { timeout: Duration::from_secs(1), ..right.clone() };
    assert_eq!(kinds(&KafkaConfig { brokers: "127.0.0.1:9".to_owned(), ..short.clone() }), [Unreachable]);
    let property = |name: &str, value: &str| KafkaConfig {
        properties: [(name.to_owned(), value.to_owned())].into(),
        ..short.clone()
    };
    assert_eq!(kinds(&property("acks", "1")), [Configuration]);
    assert_eq!(kinds(&property("security.protocol", "nonsense")), [Configuration]);
}

#[test]
fn a_site_record_that_is_none_is_named() {
    let Some(broker) = broker() else { return };
    let config = config(broker);
    make(&config, "gatelog.site", 1, &[]);
    let producer = raw_producer(&config, None);
    let topic = config.names().unwrap().site();
    let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&topic).partition(0).payload(b"not a site");
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(PATIENCE).unwrap();
    let damaged = init(config.clone()).unwrap_err();
    assert!(matches!(&damaged, LogError::Damaged { place, .. } if place.physical.contains("offset 0")), "{damaged}");
    assert!(kinds(&config).contains(&Site));
}
