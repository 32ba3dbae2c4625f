//! A broker that goes away and comes back.

use gatelog_event_log::{LogError, ReadLimit, history};

use super::*;
use crate::{FindingKind, check};

#[test]
fn while_the_broker_is_away_errors_name_it_and_afterwards_all_is_there() {
    if broker().is_none() {
        return;
    }
    let mut broker = Broker::start().unwrap();
    let patient = KafkaConfig { timeout: PATIENCE, transaction_timeout: Duration::from_secs(5), ..config(&broker) };
    let config = KafkaConfig { timeout: Duration::from_secs(2), ..patient.clone() };
    init(patient.clone()).unwrap();
    let log = KafkaLog::open(patient.clone()).unwrap();
    let (mut scribe, mut writer) = claim(&log);
    let events = scribe.several(5);
    arrived(writer.append(events.clone())).unwrap();
    put(&log, b"before");
    log.close();
    broker.kill().unwrap();

    let address = broker.brokers();
    let named = |error: LogError| {
        let said = error.to_string();
        assert!(matches!(error, LogError::System { .. }) && said.contains(&address), "{said}");
    };
    named(KafkaLog::open(config.clone()).err().unwrap());
    named(init(config.clone()).unwrap_err());
    let kinds: Vec<FindingKind> = check(config.clone()).into_iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Unreachable]);

    broker.start_again().unwrap();
    let log = KafkaLog::open(patient.clone()).unwrap();
    assert_eq!((contents(&log, EVENTS), contents(&log, INPUTS)), (events, vec![b"before".to_vec()]));
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(2))).unwrap();
    let impatient = KafkaLog::open(config).unwrap();
    let waiting = log.changed(INPUTS, log.end(INPUTS).unwrap());

    // And now with everything open.
    broker.kill().unwrap();
    named(impatient.read(INPUTS, Offset(1 << 16), ReadLimit::default()).unwrap_err());
    named(impatient.end(EVENTS).unwrap_err());
    named(impatient.claim(Partition { domain: Domain::Capacity, index: 0 }).err().unwrap());
    named(arrived(impatient.append_inputs(INPUTS, vec![b"lost".to_vec()])).unwrap_err());
    broker.start_again().unwrap();
    arrived(waiting);
    let appended = arrived(writer.append(scribe.several(2)));
    let (next, mut next_writer) = claim(&log);
    match appended {
        Ok(_) => assert_eq!(next.tail, scribe.tail),
        Err(error) => assert!(matches!(error, LogError::System { .. }), "{error}"),
    }
    let mut next = next;
    arrived(next_writer.append(next.several(1))).unwrap();
    put(&log, b"after");
    let inputs = contents(&log, INPUTS);
    assert_eq!((inputs.first(), inputs.last()), (Some(&b"before".to_vec()), Some(&b"after".to_vec())));
    let report = history::verify(&log, GATE);
    assert_eq!((report.error, report.tail), (None, next.tail));
}
