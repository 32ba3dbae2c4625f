//! The debugger: forwards, back, to what is about this item.

use gatelog_record::event::GateEvent;
use gatelog_record::{Event, EventRef};
use gatelog_replay::diff::rows_between;
use gatelog_replay::step::standing::{BEHIND, EVERY, MAX_KEPT, Stand, Standing};
use gatelog_replay::step::{Debugger, StepError};
use gatelog_replay::{Moment, Timeline};

use crate::lending::{Lending, PARTITION, Story};
use crate::log_of;
use crate::world::{GATE, at, day};

fn debugger() -> Debugger<'static> {
    let day = day();
    Debugger::open(&gatelog_replay::domains(), &day.log, &day.blobs, &|_| None, |_| None, |_| None).unwrap()
}

fn say(debugger: &mut Debugger<'_>, line: &str) -> String {
    let answer = debugger.command(line).unwrap();
    answer.lines.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
}

#[test]
fn forwards_and_back_give_the_same_states() {
    let day = day();
    let timeline = Timeline::<gatelog_gate_state::Gate>::new(day.log.clone(), GATE, None);
    let mut stand = Standing::<gatelog_gate_state::Gate>::new(day.log.clone(), GATE, None).unwrap();
    let last = day.gate.len() as u64;
    let walk = (0..6).chain([last, last - 1, 66, 65, 64, 63, last / 2, 1, 0, 1]);
    for sequence in walk {
        stand.go_to(sequence).unwrap();
        let there = timeline.state_at(Moment::Sequence(sequence)).unwrap().live;
        let mut told = stand.tables(None).unwrap();
        told.sort_by_key(|(table, _)| *table);
        let mut expected = gatelog_replay::diff::table_rows(&there, None).unwrap();
        expected.sort_by_key(|(table, _)| *table);
        assert_eq!(told, expected, "at {sequence}");
        if sequence > 0 {
            let before = timeline.state_at(Moment::Sequence(sequence - 1)).unwrap().live;
            assert_eq!(stand.made().unwrap(), rows_between(&before, &there).unwrap(), "made by {sequence}");
        }
    }
}

#[test]
fn going_back_costs_little_and_what_is_kept_is_bounded() {
    let story = Story::long(2_600);
    let log = log_of(&story);
    let mut stand = Standing::<Lending>::new(log.clone(), PARTITION, None).unwrap();
    stand.go_to(2_600).unwrap();
    let before = stand.folded();
    for sequence in (2_480..2_600).rev() {
        let folded = stand.folded();
        stand.go_to(sequence).unwrap();
        assert!(stand.folded() - folded < EVERY, "one event back folds {}", stand.folded() - folded);
        assert!(stand.kept().0 <= MAX_KEPT);
    }
    assert!(stand.folded() - before < 120 * EVERY);
    // Far back, and back from there.
    stand.go_to(1_200).unwrap();
    let folded = stand.folded();
    for sequence in (1_170..1_200).rev() {
        stand.go_to(sequence).unwrap();
    }
    assert!(stand.folded() - folded < 30 * EVERY, "{}", stand.folded() - folded);
    assert!(stand.kept().0 <= MAX_KEPT && BEHIND / EVERY <= MAX_KEPT as u64);
    // What does not exist moves nothing.
    assert!(stand.go_to(2_601).is_err());
    stand.go_to(1_171).unwrap();
}

#[test]
fn commands_lead_through_an_items_life_and_back() {
    let day = day();
    let mut debugger = debugger();
    let entered = day.first("gate.item-enqueued", 0);
    let Event::Gate(GateEvent::ItemEnqueued(enqueued)) = &entered.event else { panic!() };
    let told = say(&mut debugger, &format!("goto {}", entered.sequence));
    assert!(told.starts_with(&format!("gate/0:{}", entered.sequence)) && told.contains("gate.item-enqueued"), "{told}");
    assert!(say(&mut debugger, "made").contains("items\n  + "), "{}", say(&mut debugger, "made"));
    // Through its whole life, into capacity and out again: it is there until it leaves.
    let mut kinds = Vec::new();
    let mut left = false;
    while let Ok(answer) = debugger.command(&format!("next item {}", enqueued.item)) {
        let kind = answer.json["kind"].as_str().unwrap().to_owned();
        left |= kind == "gate.item-dequeued";
        if debugger.at().partition == GATE {
            let row = debugger.command(&format!("state items {}", enqueued.item)).unwrap();
            assert_eq!(row.lines.is_empty(), left, "at {:?}", debugger.at());
        }
        kinds.push(kind);
    }
    assert!(left && kinds.iter().any(|kind| kind.starts_with("capacity.")), "{kinds:?}");
    let error = debugger.command(&format!("next item {}", enqueued.item)).unwrap_err();
    assert!(matches!(error, StepError::NoFurther { forward: true, .. }), "{error}");
    let mut back = 0;
    while debugger.command(&format!("previous item {}", enqueued.item)).is_ok() {
        back += 1;
    }
    // One less than there were on the way, and the last is where it entered (or what led to it).
    assert!(back >= kinds.len(), "{back} back, {} on", kinds.len());
    assert!(debugger.at().sequence <= entered.sequence);
}

#[test]
fn kinds_tenants_counts_causes_inputs_and_the_ends() {
    let mut debugger = debugger();
    assert!(say(&mut debugger, "where").contains("before the first event"));
    assert!(matches!(debugger.command("previous").unwrap_err(), StepError::AtTheBeginning(_)));
    assert!(say(&mut debugger, "next").contains("writer-started"));
    say(&mut debugger, "n 4");
    assert_eq!(debugger.at(), at(GATE, 5));
    say(&mut debugger, "p 2");
    assert_eq!(debugger.at(), at(GATE, 3));
    assert!(say(&mut debugger, "next kind gate.build-finished").contains("gate.build-finished"));
    let causes = say(&mut debugger, "causes");
    assert!(causes.contains("gate.in.freeze-done") && causes.contains("capacity.lease-granted"), "{causes}");
    assert!(say(&mut debugger, "input").contains("gate.in.attempt-finished"));
    assert!(say(&mut debugger, "event").contains("\"kind\": \"gate.build-finished\""));
    let build = debugger.at();
    say(&mut debugger, "previous build");
    assert_ne!(debugger.at(), build);
    let tables = say(&mut debugger, "goto gate/0:30");
    assert!(tables.starts_with("gate/0:30"), "{tables}");
    assert!(say(&mut debugger, "state").contains("pending-work"));
    say(&mut debugger, "next tenant");
    say(&mut debugger, "goto end");
    assert!(matches!(debugger.command("next").unwrap_err(), StepError::AtTheEnd(_)));
    say(&mut debugger, "g start");
    assert_eq!(debugger.at().sequence, 0);
    assert!(debugger.command("quit").unwrap().quit);
}

#[test]
fn what_cannot_be_done_says_so_and_moves_nothing() {
    let mut debugger = debugger();
    debugger.go_to(EventRef { partition: GATE, sequence: 9 }).unwrap();
    for line in [
        "nonsense",
        "goto 99999999",
        "goto yesterday",
        "next seven",
        "state nothing",
        "next item zzz",
        "goto images/0:1",
    ] {
        assert!(debugger.command(line).is_err(), "{line}");
        assert_eq!(debugger.at(), at(GATE, 9), "{line}");
    }
    assert!(debugger.command("").unwrap().lines.is_empty());
    assert!(say(&mut debugger, "help").contains("previous [N]"));
}
