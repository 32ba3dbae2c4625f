//! Presence: the suite, and what a real broker does to it.

use gatelog_event_log::conformance::PresenceHarness;
use gatelog_event_log::presence::MAX_BODY;
use gatelog_event_log::{LogError, Presence};

use super::*;
use crate::KafkaPresence;

struct OnKafka {
    config: KafkaConfig,
    presence: Arc<KafkaPresence>,
}

impl PresenceHarness for OnKafka {
    fn presence(&self) -> Arc<dyn Presence> {
        self.presence.clone()
    }
    fn another(&mut self) -> Arc<dyn Presence> {
        Arc::new(KafkaPresence::open(self.config.clone()).unwrap())
    }
    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

fn make() -> Option<OnKafka> {
    let (config, _) = fresh(broker()?);
    let presence = Arc::new(KafkaPresence::open(config.clone()).unwrap());
    Some(OnKafka { config, presence })
}

gatelog_event_log::presence_conformance!(make);

fn raw(config: &KafkaConfig, key: Option<&[u8]>, value: &[u8], age: Duration) {
    let producer = raw_producer(config, None);
    let topic = config.names().unwrap().presence();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).partition(0).payload(value);
    record = record.timestamp((now - age).as_millis() as i64);
    if let Some(key) = key {
        record = record.key(key);
    }
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(PATIENCE).unwrap();
}

fn components(presence: &KafkaPresence) -> Vec<String> {
    presence.signs().unwrap().into_iter().map(|sign| sign.component).collect()
}

#[test]
fn who_died_before_this_process_started_is_seen_old_but_a_live_one_never_by_its_clock() {
    let Some(broker) = broker() else { return };
    let (config, _) = fresh(broker);
    let hour = Duration::from_secs(3_600);
    raw(&config, Some(b"dead"), b"", hour);
    let presence = KafkaPresence::open(config.clone()).unwrap();
    let age = presence.signs().unwrap()[0].age;
    assert!(age >= hour && age < 2 * hour, "{age:?}");
    // Its clock is an hour late, but this process has just seen it sign.
    raw(&config, Some(b"late clock"), b"", hour);
    eventually("both are seen", || presence.signs().unwrap().len() == 2);
    let age = presence.signs().unwrap()[1].age;
    assert!(age < hour / 2, "{age:?}");
}

#[test]
fn what_is_no_sign_is_passed_over() {
    let Some(broker) = broker() else { return };
    let (config, _) = fresh(broker);
    let presence = KafkaPresence::open(config.clone()).unwrap();
    raw(&config, None, b"nobody", Duration::ZERO);
    raw(&config, Some(b"\xff\xfe"), b"no text", Duration::ZERO);
    raw(&config, Some(b"a\nb"), b"no name", Duration::ZERO);
    raw(&config, Some(b"large"), &vec![0; MAX_BODY + 1], Duration::ZERO);
    raw(&config, Some(b"right"), b"a sign", Duration::ZERO);
    eventually("the sign is seen", || !presence.signs().unwrap().is_empty());
    assert_eq!(components(&presence), ["right"]);
    assert_eq!(components(&KafkaPresence::open(config).unwrap()), ["right"]);
}

#[test]
fn without_a_topic_there_is_no_presence() {
    let Some(broker) = broker() else { return };
    let refused = KafkaPresence::open(config(broker)).err().unwrap();
    assert!(refused.to_string().contains("gatelog log init"), "{refused}");
    let nobody = KafkaConfig { brokers: "127.0.0.1:9".to_owned(), timeout: Duration::from_secs(1), ..config(broker) };
    let refused = KafkaPresence::open(nobody).err().unwrap();
    assert!(matches!(&refused, LogError::System { .. }), "{refused}");
}

#[test]
fn after_closing_nothing_is_written_or_seen() {
    let Some(broker) = broker() else { return };
    let (config, _) = fresh(broker);
    let presence = KafkaPresence::open(config.clone()).unwrap();
    presence.sign("a", vec![]).unwrap();
    presence.close();
    presence.close();
    assert!(matches!(presence.sign("b", vec![]), Err(LogError::Stopped { .. })));
    assert!(matches!(presence.signs(), Err(LogError::Stopped { .. })));
    // Closing withdraws nothing: a killed process does not withdraw either.
    assert_eq!(components(&KafkaPresence::open(config).unwrap()), ["a"]);
}

#[test]
fn while_the_broker_is_away_there_are_errors_and_afterwards_nobody_is_older() {
    if broker().is_none() {
        return;
    }
    let mut broker = Broker::start().unwrap();
    let config = config(&broker);
    init(config.clone()).unwrap();
    let presence = KafkaPresence::open(config.clone()).unwrap();
    presence.sign("a", b"before".to_vec()).unwrap();
    eventually("it is seen", || presence.signs().unwrap().len() == 1);
    let signed = Instant::now();
    broker.kill().unwrap();
    let address = broker.brokers();
    let refused = presence.sign("a", b"meanwhile".to_vec()).unwrap_err();
    assert!(matches!(&refused, LogError::System { message, .. } if message.contains(&address)), "{refused}");
    eventually("what is known is no longer what is there", || presence.signs().is_err());
    let refused = presence.signs().unwrap_err();
    assert!(matches!(&refused, LogError::System { message, .. } if message.contains(&address)), "{refused}");
    let away = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    broker.start_again().unwrap();
    eventually("it is known again", || presence.signs().is_ok());
    let age = presence.signs().unwrap()[0].age;
    // It was blind from before `away` on, until now.
    assert!(age + away.elapsed() <= signed.elapsed() + Duration::from_secs(1), "{age:?}");
    eventually("it can be written again", || presence.sign("a", b"after".to_vec()).is_ok());
    eventually("and is seen", || presence.signs().is_ok_and(|signs| signs[0].body == b"after"));
}
