//! Who may write, and what becomes of those who no longer may.

use gatelog_event_log::history::{self, Broken, VerifyError};
use gatelog_event_log::{LogError, Tail};
use gatelog_record::ChainLink;

use super::*;
use crate::Known;
use crate::layout::{control, token_of};

#[test]
fn a_claim_by_another_process_fences_the_first() {
    let Some(broker) = broker() else { return };
    let (config, first) = fresh(broker);
    let second = KafkaLog::open(config).unwrap();
    let (mut old, mut old_writer) = claim(&first);
    arrived(old_writer.append(old.several(3))).unwrap();
    let (mut new, mut new_writer) = claim(&second);
    assert_eq!((new.tail, new.term), (old.tail, 2));
    let refused = arrived(old_writer.append(vec![old.next("too late")]));
    assert_eq!(refused, Err(LogError::Fenced { partition: GATE, term: 1 }));
    arrived(new_writer.append(new.several(3))).unwrap();
    // The one that was fenced may come back, by claiming.
    let (mut again, mut writer) = claim(&first);
    assert_eq!((again.tail, again.term), (new.tail, 3));
    arrived(writer.append(again.several(1))).unwrap();
    assert_eq!(arrived(new_writer.append(new.several(1))), Err(LogError::Fenced { partition: GATE, term: 2 }));
    for log in [&first, &second] {
        let report = history::verify(log, GATE);
        assert_eq!((report.error, report.tail, report.terms, report.stale), (None, again.tail, 3, 0));
    }
}

#[test]
fn control_records_are_no_part_of_history() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    for _ in 0..3 {
        claim(&log);
    }
    let raw = raw_contents(&config, EVENTS);
    assert_eq!(raw.iter().filter(|bytes| token_of(bytes).is_some()).count(), 3);
    assert_eq!((contents(&log, EVENTS), log.end(EVENTS), log.seek(GATE, 1)), (vec![], Ok(Offset(0)), Ok(Offset(0))));
    assert_eq!(log.streams(), Ok(vec![]));
    let (mut scribe, mut writer) = claim(&log);
    let wanted = scribe.several(4);
    arrived(writer.append(wanted.clone())).unwrap();
    let end = log.end(EVENTS).unwrap();
    insert(&config, EVENTS, &control(&[1; 16]));
    assert_eq!((contents(&log, EVENTS), log.end(EVENTS)), (wanted, Ok(end)));
    // What only looks like one is not passed over.
    let mut broken = control(&[2; 16]);
    broken[5] ^= 1;
    insert(&config, EVENTS, &broken);
    let report = history::verify(&log, GATE);
    assert!(matches!(report.error, Some(VerifyError::History(history::HistoryError { what: Broken::Frame(_), .. }))));
    assert!(matches!(log.claim(GATE), Err(LogError::Damaged { .. })));
}

#[test]
fn what_a_stopped_writer_left_open_neither_blocks_the_next_claim_nor_is_ever_seen() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let (mut scribe, mut writer) = claim(&log);
    let kept = scribe.several(3);
    arrived(writer.append(kept.clone())).unwrap();
    drop(writer);
    // A process that claims, writes what would fit and stops in the middle: its transaction stays open.
    let stopped = raw_producer(&config, Some(&config.names().unwrap().transactional_id(GATE)));
    stopped.init_transactions(PATIENCE).unwrap();
    stopped.begin_transaction().unwrap();
    let mut lost = Scribe { term: 2, ..scribe.clone() };
    lost.several(2).iter().for_each(|record| send(&stopped, &config, EVENTS, record));
    stopped.flush(PATIENCE).unwrap();
    assert_eq!(contents(&log, EVENTS), kept, "what is not committed is not seen");
    put(&log, b"inputs are not held up");
    drop(stopped);
    // The brokers would wait a minute for it; the claim does not.
    let other = KafkaLog::open(KafkaConfig { timeout: Duration::from_secs(20), ..config.clone() }).unwrap();
    let (mut next, mut writer) = claim(&other);
    assert_eq!((next.tail, next.term), (scribe.tail, 2));
    let more = next.several(2);
    arrived(writer.append(more.clone())).unwrap();
    let wanted = [kept, more].concat();
    assert_eq!(contents(&log, EVENTS), wanted);
    let raw = raw_contents(&config, EVENTS);
    assert_eq!(raw.into_iter().filter(|bytes| token_of(bytes).is_none()).collect::<Vec<_>>(), wanted);
}

#[test]
fn a_stalled_owner_that_was_not_fenced_in_time_does_no_harm() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let (mut old, mut old_writer) = claim(&log);
    arrived(old_writer.append(old.several(3))).unwrap();
    let (mut new, mut new_writer) = claim(&log);
    arrived(new_writer.append(new.several(2))).unwrap();
    // As if the brokers let it: safety must not rest on the transaction alone.
    insert(&config, EVENTS, &old.next("late"));
    arrived(new_writer.append(new.several(2))).unwrap();
    let report = history::verify(&log, GATE);
    assert_eq!((report.error, report.stale, report.tail), (None, 1, new.tail));
    let (third, _) = claim(&KafkaLog::open(config).unwrap());
    assert_eq!((third.tail, third.term), (new.tail, 3));
}

#[test]
fn a_claim_reads_on_from_what_is_known_and_notices_another_log() {
    let Some(broker) = broker() else { return };
    let (config, log) = fresh(broker);
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(5))).unwrap();
    let middle = scribe.tail;
    arrived(writer.append(scribe.several(5))).unwrap();
    let known = |tail: Tail, link| {
        let known = Known { who: "a projection".to_owned(), partition: GATE, sequence: tail.sequence, link };
        KafkaLog::open(KafkaConfig { known: vec![known], ..config.clone() })
    };
    let opened = known(middle, middle.link).unwrap();
    let (tail, next) = opened.claims().followed(GATE);
    assert_eq!(tail, middle);
    assert!(next > 5, "it does not begin at the first");
    let (claimed, _) = claim(&opened);
    assert_eq!(claimed.tail, scribe.tail);
    let damaged = known(middle, ChainLink([7; 32])).err().unwrap();
    assert!(matches!(&damaged, LogError::Damaged { what, .. } if what.contains("a projection")), "{damaged}");
    let ahead = Tail { sequence: 50, ..middle };
    let behind = known(ahead, middle.link).err().unwrap();
    assert!(matches!(&behind, LogError::Behind { knows, .. } if knows.contains("event 50")), "{behind}");
}

#[test]
fn a_writer_that_only_the_brokers_gave_up_claims_again_and_one_that_was_taken_over_does_not() {
    let Some(broker) = broker() else { return };
    let (config, first) = fresh(broker);
    // What brokers do with a transaction that takes too long: the id is another's, and nobody has claimed.
    let give_up =
        || raw_producer(&config, Some(&config.names().unwrap().transactional_id(GATE))).init_transactions(PATIENCE);
    let (mut scribe, mut writer) = claim(&first);
    arrived(writer.append(scribe.several(3))).unwrap();
    let kept = scribe.tail;
    give_up().unwrap();
    let refused = arrived(writer.append(vec![scribe.next("given up")])).unwrap_err();
    assert!(matches!(&refused, LogError::System { message, .. } if message.contains("took too long")), "{refused}");
    let (mut again, mut writer) = claim(&first);
    assert_eq!((again.tail, again.term), (kept, 2));
    arrived(writer.append(again.several(1))).unwrap();

    // The same, but before it claims again somebody else does: it must not take the partition back.
    give_up().unwrap();
    let second = KafkaLog::open(config.clone()).unwrap();
    let failed = arrived(writer.append(vec![again.clone().next("given up")])).unwrap_err();
    assert!(matches!(failed, LogError::System { .. }), "{failed}");
    let (mut owner, mut owners) = claim(&second);
    assert_eq!(first.claim(GATE).err(), Some(LogError::Fenced { partition: GATE, term: 2 }));
    arrived(owners.append(owner.several(2))).unwrap();
    // Asked once more, it is meant.
    let (third, _) = claim(&first);
    assert_eq!((third.tail, third.term), (owner.tail, 4));
}
