//! What readers see, whatever else is going on.

use futures::executor::block_on;
use gatelog_event_log::{LogError, ReadLimit};
use gatelog_record::Envelope;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};

use super::*;
use crate::config::Purpose;
use crate::fault::Context;

fn admin(config: &KafkaConfig) -> AdminClient<Context> {
    config.client(&config.names().unwrap(), Purpose::Admin).create_with_context(Context).unwrap()
}

#[test]
fn group_offsets_committed_expired_or_absent_do_not_matter() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let wanted: Vec<Vec<u8>> = (0..5).map(|index| vec![b'x', index]).collect();
    wanted.iter().for_each(|record| {
        put(&log, record);
    });
    let names = config.names().unwrap();
    let somebody: BaseConsumer<Context> = config.client(&names, Purpose::Read).create_with_context(Context).unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&names.topic(INPUTS), 0, rdkafka::Offset::Offset(4)).unwrap();
    somebody.commit(&list, CommitMode::Sync).unwrap();
    let committed = || contents(&KafkaLog::open(config.clone()).unwrap(), INPUTS);
    assert_eq!(committed(), wanted);
    drop(somebody);
    let admin = admin(&config);
    let group = names.group();
    let gone = block_on(admin.delete_groups(&[group.as_str()], &AdminOptions::new())).unwrap();
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
    assert_eq!(committed(), wanted);
}

#[test]
fn records_that_retention_took_are_named_and_not_passed_over() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let offsets: Vec<Offset> = (0..5).map(|index| put(&log, &[index])).collect();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&config.names().unwrap().topic(INPUTS), 0, rdkafka::Offset::Offset(3)).unwrap();
    block_on(admin(&config).delete_records(&list, &AdminOptions::new())).unwrap();
    let log = KafkaLog::open(config).unwrap();
    let error = log.read(INPUTS, Offset(0), ReadLimit::default()).unwrap_err();
    let LogError::Damaged { place, what } = error else { panic!("{error}") };
    assert_eq!((place.stream, place.offset), (Some(INPUTS), Some(Offset(0))));
    assert!(what.contains("retention"), "{what}");
    let rest = log.read(INPUTS, offsets[3], ReadLimit::default()).unwrap();
    assert_eq!(rest.records.len(), 2, "what is there can be read");
}

#[test]
fn an_append_of_inputs_is_one_record_on_kafka() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let several: Vec<Vec<u8>> = (0..300_u16).map(|index| index.to_be_bytes().to_vec()).collect();
    let offsets = arrived(log.append_inputs(INPUTS, several.clone())).unwrap();
    put(&log, b"GB begins like a bundle");
    assert_eq!(raw_contents(&config, INPUTS).len(), 2);
    let batch = log.read(INPUTS, offsets[299], ReadLimit::default()).unwrap();
    assert_eq!(
        batch.records.iter().map(|record| record.bytes.as_slice()).collect::<Vec<_>>(),
        [&[1, 43][..], b"GB begins like a bundle"]
    );
    assert_eq!(contents(&log, INPUTS).len(), 301);
    // Half a bundle, written by nobody who knows how.
    insert(&config, INPUTS, b"GB\x01\x00\x00\x00\x05\x00\x00\x00\x01x");
    let (before, error) = read_all(&log, INPUTS).unwrap_err();
    assert_eq!(before.len(), 301, "what stands before it is given");
    let LogError::Damaged { place, .. } = error else { panic!("{error}") };
    assert!(place.physical.ends_with("gate.inputs partition 0 offset 2"), "{place}");
}

#[test]
fn seeking_in_a_long_log_finds_every_event() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let mut last = 0;
    for _ in 0..3 {
        let (mut scribe, mut writer) = claim(&log);
        let results: Vec<_> = (0..60).map(|_| writer.append(scribe.several(10))).collect();
        results.into_iter().for_each(|result| {
            arrived(result).unwrap();
        });
        last = scribe.tail.sequence;
    }
    let log = KafkaLog::open(config).unwrap();
    for sequence in [1, 2, 599, 600, 601, 900, 1_201, 1_799, 1_800, 3, 1_234] {
        let offset = log.seek(GATE, sequence).unwrap();
        let batch = log.read(EVENTS, offset, ReadLimit { records: 1, bytes: 1 }).unwrap();
        assert_eq!(Envelope::decode(&batch.records[0].bytes).unwrap().0.sequence, sequence);
    }
    assert_eq!(last, 1_800);
    assert_eq!(log.seek(GATE, last + 1), log.end(EVENTS));
}

#[test]
fn the_largest_record_there_may_be_is_taken() {
    let Some(broker) = broker() else { return };
    let standard = KafkaConfig::default();
    let config = KafkaConfig { max_record: standard.max_record, max_append: standard.max_append, ..config(broker) };
    init(config.clone()).unwrap();
    let log = KafkaLog::open(config).unwrap();
    let largest = vec![7; standard.max_record as usize];
    put(&log, &largest);
    put(&log, b"small");
    assert!(contents(&log, INPUTS) == [largest, b"small".to_vec()]);
}

#[test]
fn waiting_from_far_back_or_far_ahead_is_told_what_it_asked_for() {
    let Some(broker) = broker() else { return };
    let (_, log) = fresh(broker);
    let first = put(&log, b"one");
    let ahead = log.changed(INPUTS, Offset(first.0 + 1));
    let far_ahead = log.changed(INPUTS, Offset((2 << 16) + 1));
    arrived(log.changed(INPUTS, Offset(0)));
    assert!(ahead.wait_for(Duration::from_millis(1)).is_err(), "nothing has come yet");
    let ahead = log.changed(INPUTS, Offset(first.0 + 1));
    put(&log, b"two");
    arrived(ahead);
    let far_ahead = far_ahead.wait_for(Duration::from_millis(1)).err().unwrap();
    put(&log, b"three");
    put(&log, b"four");
    arrived(far_ahead);
    eventually("the end is known", || log.end(INPUTS) == Ok(Offset((3 << 16) + 1)));
}
