//! What differs between two moments.

use std::sync::Arc;

use gatelog_record::event::GateEvent;
use gatelog_record::{Event, Timestamp};
use gatelog_replay::diff::{About, ChangeKind, Comparison, Place, compare, cut_of, names_until, words};
use gatelog_replay::domains;

use crate::world::{CAPACITY, GATE, at, day};

fn between(from: Place, to: Place) -> Comparison {
    compare(&domains(), &day().log, &|_| None, from, to).unwrap()
}

fn gate(sequence: u64) -> Place {
    Place::Event(at(GATE, sequence))
}

#[test]
fn an_item_that_enters_and_leaves_is_told_by_what_it_holds() {
    let day = day();
    let entered = day.first("gate.item-enqueued", 0);
    let Event::Gate(GateEvent::ItemEnqueued(enqueued)) = &entered.event else { panic!() };
    let found = between(gate(entered.sequence - 1), gate(entered.sequence));
    let items = &found.differences[&About::Items];
    assert_eq!((items.len(), items[0].change.kind), (1, ChangeKind::Entered));
    let change = enqueued.subjects[0].change.as_deref().unwrap();
    assert!(items[0].subject.contains(change), "{}", items[0].subject);
    assert!(found.differences.contains_key(&About::Queues), "its queue has it");
    // The same the other way round.
    let back = between(gate(entered.sequence), gate(entered.sequence - 1));
    assert_eq!(back.differences[&About::Items][0].change.kind, ChangeKind::Left);
    assert_eq!(back.differences[&About::Items][0].change.before, items[0].change.after);
}

#[test]
fn over_any_span_what_differs_is_what_came_and_went() {
    let day = day();
    let last = day.gate.len() as u64;
    for (from, to) in [(1, last / 3), (last / 3, last / 2), (last / 2, last), (1, last)] {
        let found = between(gate(from), gate(to));
        let mut there: i64 = 0;
        for record in day.gate.iter().filter(|record| record.sequence > from && record.sequence <= to) {
            match &record.event {
                Event::Gate(GateEvent::ItemEnqueued(_)) => there += 1,
                Event::Gate(GateEvent::ItemDequeued(_)) => there -= 1,
                _ => {}
            }
        }
        let items = found.differences.get(&About::Items).map(Vec::as_slice).unwrap_or_default();
        let count = |kind| items.iter().filter(|entry| entry.change.kind == kind).count() as i64;
        assert_eq!(count(ChangeKind::Entered) - count(ChangeKind::Left), there, "from {from} to {to}");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["from"]["events"]["gate/0"], from);
    }
}

#[test]
fn jobs_builds_leases_and_nodes_are_told_across_domains() {
    let day = day();
    let granted = day.capacity.iter().find(|record| record.event.name() == "capacity.lease-granted").unwrap();
    let found = between(Place::Event(at(CAPACITY, granted.sequence - 1)), Place::Event(at(CAPACITY, granted.sequence)));
    assert_eq!(found.differences[&About::Leases].len(), 1);
    assert!(found.differences[&About::Nodes].iter().all(|entry| entry.change.kind == ChangeKind::Entered));
    assert!(found.differences.contains_key(&About::Workers), "a slot is taken");

    let frozen = day.first("gate.frozen", 0);
    let found = between(gate(frozen.sequence - 1), gate(frozen.sequence));
    let Event::Gate(GateEvent::Frozen(jobs)) = &frozen.event else { panic!() };
    assert_eq!(found.differences[&About::Jobs].len(), jobs.builds.len());
    assert_eq!(found.differences[&About::Builds].len(), jobs.builds.len());
    assert!(found.differences[&About::Jobs][0].subject.contains(" of "), "{found:?}");

    let layout = day.first("gate.layout-activated", 0);
    let found = between(gate(layout.sequence - 1), gate(layout.sequence));
    assert_eq!(found.differences[&About::Layouts][0].change.kind, ChangeKind::Entered);
}

#[test]
fn a_moment_and_itself_do_not_differ_and_people_are_told_so() {
    let day = day();
    for place in [gate(40), Place::Newest, Place::Time(day.gate[60].recorded_at)] {
        let found = between(place, place);
        assert!(found.is_same() && found.differences.is_empty(), "{found:?}");
        let names = names_until(&domains(), &*day.log, &cut_of(&*day.log, place).unwrap()).unwrap();
        assert_eq!(words(&found, &names, false).last().unwrap().1, "nothing differs");
    }
    let none = between(Place::Time(Timestamp::ZERO), gate(0));
    assert!(none.is_same());
}

#[test]
fn a_difference_in_words_names_what_it_is_about() {
    let day = day();
    let entered = day.first("gate.item-enqueued", 0).sequence;
    let found = between(gate(entered - 1), gate(entered));
    let names = names_until(&domains(), &*day.log, &cut_of(&*day.log, Place::Newest).unwrap()).unwrap();
    let told: Vec<String> = words(&found, &names, false).into_iter().map(|(_, text)| text).collect();
    let text = told.join("\n");
    assert!(told.iter().any(|line| line == "items"), "{text}");
    assert!(told.iter().any(|line| line.starts_with("  + ")), "{text}");
    assert!(told.iter().any(|line| line.starts_with("bookkeeping: ")), "{text}");
    let all: Vec<String> = words(&found, &names, true).into_iter().map(|(_, text)| text).collect();
    assert!(all.iter().any(|line| line == "bookkeeping"), "{all:?}");
}

#[test]
fn a_position_that_is_not_there_yet_says_so() {
    let error = compare(&domains(), &day().log, &|_| None, gate(1), gate(1_000_000)).unwrap_err();
    assert!(error.to_string().contains("gate/0 has no event 1000000 yet"), "{error}");
    let log: Arc<dyn gatelog_event_log::Log> = Arc::new(gatelog_event_log::MemoryLog::default());
    assert!(compare(&domains(), &log, &|_| None, Place::Newest, Place::Newest).unwrap().is_same());
}
