//! The outbox: messages reach the other partition in order, once, whatever dies on the way.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{CAPACITY, GATE, Site, asks, asks_with, eventually, quick};
use gatelog_record::draft::capacity::SemaphoreWanted;
use gatelog_record::{Event, EventRecord, Source, Stream};
use gatelog_writer::{Directory, Followed, Host, Receiver};

fn start(site: &Site, directory: &Arc<Directory>, partition: gatelog_record::Partition) -> Host {
    Host::start(site.setup(partition, quick()), directory).unwrap()
}

/// An ask that is refused at once, which the owner is told by the outbox.
fn impossible(site: &Site, name: &str) {
    site.say(&asks_with("a", name, |ask| {
        ask.semaphores.push(SemaphoreWanted { name: "shut".to_owned(), max: 0 });
    }));
}

fn sources(site: &Site) -> Vec<Source> {
    let of = |record: EventRecord| record.decision.and_then(|decision| decision.source);
    site.history(GATE).into_iter().filter_map(of).collect()
}

fn outbox(site: &Site) -> usize {
    site.fold(CAPACITY).partition.outbox.rows.len()
}

#[test]
fn messages_arrive_in_order_and_are_cleared_together() {
    let site = Site::new();
    let directory = Arc::new(Directory::default());
    let gate = start(&site, &directory, GATE);
    let capacity = start(&site, &directory, CAPACITY);
    for index in 0..700 {
        impossible(&site, &format!("b{index}"));
    }
    eventually("all are taken", || sources(&site).len() == 700);
    // The last few are told a second later.
    eventually("all are cleared", || {
        site.clock.advance(Duration::from_millis(200));
        std::thread::sleep(Duration::from_millis(5));
        outbox(&site) == 0
    });
    let found = sources(&site);
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(found, sorted, "in order");
    assert!(found.iter().all(|source| source.partition == CAPACITY));
    let history = site.history(CAPACITY);
    let cleared = history.iter().filter(|record| record.event.name() == "outbox-cleared").count();
    assert!((1..30).contains(&cleared), "not one for every message: {cleared}");
    // What arrives names the event that sent it, and carries its key.
    let taken = &site.history(GATE)[1];
    let decision = taken.decision.as_ref().unwrap();
    let source = decision.source.unwrap();
    assert_eq!(taken.key, "a");
    assert_eq!(decision.caused_by.unwrap().sequence, source.sequence);
    assert!(decision.input_id.as_str().ends_with(&format!("/capacity/0/{}.0", source.sequence)));
    let sent = history.iter().find(|record| record.sequence == source.sequence).unwrap();
    assert!(matches!(&sent.event, Event::Capacity(event) if event.name() == "capacity.lease-refused"));
    capacity.stop();
    gate.stop();
}

#[test]
fn a_receiver_that_is_away_gets_its_messages_when_it_comes() {
    let site = Site::new();
    let directory = Arc::new(Directory::default());
    let capacity = start(&site, &directory, CAPACITY);
    for index in 0..3 {
        impossible(&site, &format!("b{index}"));
    }
    // Others are not held up.
    let other = site.say(&asks("a", "fine"));
    capacity.published().waits().for_offset(other).unwrap().wait().unwrap();
    assert_eq!(capacity.published().receivers(), [GATE]);
    assert!(site.log.records(Stream::Inputs(GATE)).is_empty(), "nothing is sent before the mark is known");
    let gate = start(&site, &directory, GATE);
    eventually("all are taken", || sources(&site).len() == 3);
    gate.stop();
    capacity.stop();
}

#[test]
fn after_a_restart_sending_begins_at_the_mark() {
    let site = Site::new();
    let directory = Arc::new(Directory::default());
    let gate = start(&site, &directory, GATE);
    let capacity = start(&site, &directory, CAPACITY);
    for index in 0..5 {
        impossible(&site, &format!("b{index}"));
    }
    eventually("all are taken", || sources(&site).len() == 5);
    capacity.stop();
    // The sender is back, its rows may still be there; nothing is sent again.
    let capacity = start(&site, &directory, CAPACITY);
    impossible(&site, "b5");
    eventually("the sixth is taken", || sources(&site).len() == 6);
    assert_eq!(site.log.records(Stream::Inputs(GATE)).len(), 6);
    // Both are back; the receiver still knows.
    gate.stop();
    capacity.stop();
    let directory = Arc::new(Directory::default());
    let capacity = start(&site, &directory, CAPACITY);
    let gate = start(&site, &directory, GATE);
    impossible(&site, "b6");
    eventually("the seventh is taken", || sources(&site).len() == 7);
    assert_eq!(site.log.records(Stream::Inputs(GATE)).len(), 7);
    eventually("all are cleared", || {
        site.clock.advance(Duration::from_millis(500));
        std::thread::sleep(Duration::from_millis(5));
        outbox(&site) == 0
    });
    gate.stop();
    capacity.stop();
}

#[test]
fn a_message_sent_twice_is_taken_once() {
    let site = Site::new();
    let directory = Arc::new(Directory::default());
    let gate = start(&site, &directory, GATE);
    let capacity = start(&site, &directory, CAPACITY);
    impossible(&site, "b0");
    eventually("it is taken", || sources(&site).len() == 1);
    eventually("it is cleared", || {
        site.clock.advance(Duration::from_millis(500));
        std::thread::sleep(Duration::from_millis(5));
        outbox(&site) == 0
    });
    let again = site.log.records(Stream::Inputs(GATE))[0].bytes.clone();
    site.log.insert(Stream::Inputs(GATE), again);
    eventually("the repeat is recorded", || {
        site.history(GATE).iter().filter(|record| record.event.name() == "input-taken").count() == 2
    });
    let (first, again) = (sources(&site)[0], sources(&site)[1]);
    assert_eq!((first, sources(&site).len()), (again, 2));
    assert_eq!(gate.published().mark(CAPACITY), Some((first.sequence, first.ordinal)), "the mark is where it was");
    let repeat = site.history(GATE).pop().unwrap().event;
    assert!(format!("{repeat:?}").contains("duplicate"), "{repeat:?}");
    gate.stop();
    capacity.stop();
}

#[test]
fn a_receiver_in_another_process_is_known_by_what_is_folded_of_its_events() {
    let site = Site::new();
    // Two processes: neither sees the other's writers.
    let (here, there) = (Arc::new(Directory::default()), Arc::new(Directory::default()));
    let followed = Followed::new(GATE);
    let receiver: Arc<dyn Receiver> = Arc::clone(&followed) as _;
    here.insert(receiver);
    let capacity = start(&site, &here, CAPACITY);
    let gate = start(&site, &there, GATE);
    for index in 0..20 {
        impossible(&site, &format!("b{index}"));
    }
    eventually("all wait", || outbox(&site) == 20);
    assert_eq!(sources(&site), [], "nothing is sent while it is not known what was taken");

    followed.advance([]);
    eventually("all are taken", || sources(&site).len() == 20);
    assert_eq!(outbox(&site), 20, "and nothing is cleared that is not known to be taken");

    let marks = site.fold(GATE).partition.marks.rows.clone();
    followed.advance(marks);
    eventually("all are cleared", || {
        site.clock.advance(Duration::from_millis(200));
        std::thread::sleep(Duration::from_millis(5));
        outbox(&site) == 0
    });
    assert_eq!(sources(&site).len(), 20, "none was sent twice");
    capacity.stop();
    gate.stop();
}
