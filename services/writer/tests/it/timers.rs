//! Timers: they come due by the monotonic clock, once, and only while they are set.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{CAPACITY, START, Site, asks, asks_with, eventually, quick};
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::PartitionInput;
use gatelog_record::{Event, InputId, InputRecord};
use gatelog_writer::{Directory, Host, Outcome, WriterState};

fn host(site: &Site) -> Host {
    Host::start(site.setup(CAPACITY, quick()), &Arc::new(Directory::default())).unwrap()
}

/// Sets a timer so many seconds ahead and waits until that is acknowledged.
fn set(site: &Site, host: &Host, timer: &str, seconds: u32) {
    let mut input = asks_with("timed", timer, |ask| ask.owner.subject.attempt = seconds);
    input.input_id = InputId::new(format!("set {timer} {seconds} {}", host.published().sequence()));
    let offset = site.say(&input);
    host.published().waits().for_offset(offset).unwrap().wait().unwrap();
}

fn fired(site: &Site, timer: &str) -> usize {
    let is = |event: &Event| matches!(event, Event::Partition(PartitionEvent::TimerCleared(cleared)) if cleared.timer == timer && cleared.fired);
    site.history(CAPACITY).iter().filter(|record| is(&record.event)).count()
}

#[test]
fn a_timer_comes_due_when_its_time_has_passed_and_not_when_the_clock_is_set() {
    let site = Site::new();
    let host = host(&site);
    set(&site, &host, "t", 60);
    // Somebody sets the machine's clock two hours ahead: nothing has passed.
    site.clock.jump_to(START.plus_seconds(7_200));
    let after = site.say(&asks("a", "b1"));
    host.published().waits().for_offset(after).unwrap().wait().unwrap();
    site.clock.advance(Duration::from_secs(59));
    let after = site.say(&asks("a", "b2"));
    host.published().waits().for_offset(after).unwrap().wait().unwrap();
    assert_eq!(fired(&site, "t"), 0);
    site.clock.advance(Duration::from_secs(1));
    eventually("it comes due", || fired(&site, "t") == 1);
    let history = site.history(CAPACITY);
    let due = history.iter().find(|record| record.event.name() == "timer-cleared").unwrap();
    assert!(due.decision.is_some(), "clearing is the first event of the decision");
    assert_eq!(due.key, "main", "with the key it was set with");
    assert!(site.fold(CAPACITY).partition.timers.rows.is_empty());
}

#[test]
fn what_came_due_during_an_outage_comes_once() {
    let site = Site::new();
    let running = host(&site);
    set(&site, &running, "periodic", 60);
    running.stop();
    site.clock.advance(Duration::from_secs(600));
    let running = host(&site);
    eventually("it comes due", || fired(&site, "periodic") == 1);
    // Ten minutes were missed; the next tick lies a minute ahead.
    let next = site.fold(CAPACITY).partition.timers.rows["periodic"].due_at;
    assert_eq!(next, START.plus_seconds(660));
    site.clock.advance(Duration::from_secs(60));
    eventually("it comes due again", || fired(&site, "periodic") == 2);
    running.stop();
    assert_eq!(fired(&site, "periodic"), 2);
}

#[test]
fn a_timer_that_is_gone_or_was_moved_is_recorded_as_that() {
    let site = Site::new();
    let host = host(&site);
    set(&site, &host, "moved", 60);
    set(&site, &host, "moved", 120);
    let due = |timer: &str, seconds: i64| {
        let due_at = START.plus_seconds(seconds);
        let input = PartitionInput::TimerDue(TimerDue { timer: timer.to_owned(), due_at });
        let id = InputId::new(format!("timer:{timer}@{}", due_at.0));
        site.say(&InputRecord::new(id, "main", START, input))
    };
    for offset in [due("moved", 60), due("never", 1)] {
        let decided = host.published().waits().for_offset(offset).unwrap().wait().unwrap();
        assert_eq!(decided.outcome, Outcome::NothingToDo { reason: "timer-gone".to_owned() });
    }
    site.clock.advance(Duration::from_secs(60));
    site.clock.advance(Duration::from_secs(60));
    eventually("it comes due where it was moved to", || fired(&site, "moved") == 1);
}

#[test]
fn a_timer_set_again_to_the_moment_at_which_it_came_due_comes_due_again() {
    let site = Site::new();
    let host = host(&site);
    for times in 1..=2 {
        set(&site, &host, "same", 0);
        eventually("it comes due", || fired(&site, "same") == times);
    }
}

#[test]
fn a_rule_that_panics_on_a_timer_loses_that_timer_only() {
    let site = Site::new();
    let host = host(&site);
    set(&site, &host, "cursed timer", 10);
    set(&site, &host, "good", 10);
    site.clock.advance(Duration::from_secs(10));
    eventually("both come due", || fired(&site, "cursed timer") == 1 && fired(&site, "good") == 1);
    let history = site.history(CAPACITY);
    let refused = history.iter().position(|record| record.event.name() == "input-refused").unwrap();
    assert_eq!(history[refused - 1].event.name(), "timer-cleared", "cleared and refused in one decision");
    assert_eq!(history[refused].cause, history[refused - 1].cause);
    assert!(history[refused].decision.is_none() && history[refused - 1].decision.is_some());
    assert!(matches!(host.published().health().state, WriterState::Yellow { .. }));
    assert!(site.fold(CAPACITY).partition.timers.rows.is_empty());
}
