//! The world's own test: faults planted in the rules are found, made short, and can be played again.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use gatelog_world::shrink::kind_of;
use gatelog_world::{Outcome, Plant, Script, play, run, run_planted, shrink};

/// Within so many seeds each of them must be found.
const SEEDS: u64 = 120;

/// At most so many turns may be left of it.
const SHORT: usize = 40;

/// How many runs making it short may take.
const BUDGET: u32 = 400;

fn found(plant: Plant, says: &str) -> Outcome {
    let failed = (0..SEEDS).map(|seed| run_planted(seed, Some(plant), false)).find(|outcome| outcome.failure.is_some());
    let failed = failed.unwrap_or_else(|| panic!("{} was not found in {SEEDS} seeds", plant.name()));
    let (problem, _) = failed.failure.clone().unwrap();
    assert!(problem.contains(says), "{problem}");
    failed
}

fn is_found_and_made_short(plant: Plant, says: &str) {
    let failed = found(plant, says);
    let script = Script { seed: failed.seed, plant: Some(plant), turns: failed.turns.clone() };
    let shrunk = shrink(&script, &failed, BUDGET).unwrap();
    let (problem, told) = shrunk.outcome.failure.clone().unwrap();
    let (before, after) = (failed.turns.len(), shrunk.script.turns.len());
    println!("{}: seed {}, {before} turns, {after} left after {} runs", plant.name(), failed.seed, shrunk.tries);
    assert_eq!(kind_of(&problem), kind_of(&failed.failure.unwrap().0), "it is the same that goes wrong");
    assert!(after <= SHORT && after < before, "{after} of {before} turns are left");
    assert!(shrunk.tries <= BUDGET);
    // What is written down can be read, by people and by the world.
    let text = shrunk.text();
    assert!(told.iter().all(|line| text.contains(&format!("# {line}"))), "{text}");
    let script = Script::from_text(&text).unwrap();
    let again = play(&script, true);
    assert_eq!((again.trace, again.failure), (shrunk.outcome.trace, shrunk.outcome.failure));
    // It was the plant: without it the same history breaks no law.
    let healthy = play(&Script { plant: None, ..script }, false);
    assert_eq!(healthy.failure.map(|(problem, _)| problem), None);
}

#[test]
fn a_worker_whose_old_start_displaces_the_new_one_is_found_and_made_short() {
    is_found_and_made_short(Plant::AnyStartCounts, "takes the place of the later");
}

#[test]
fn a_lease_that_nobody_ends_is_found() {
    assert!(!found(Plant::QueuedEndsAreLost, "there is left: ").turns.is_empty());
}

#[test]
fn merging_what_was_to_be_run_again_is_found() {
    assert!(!found(Plant::RetriesSucceed, "was merged although no worker ran").turns.is_empty());
}

#[test]
fn what_was_recorded_plays_the_same_again() {
    let first = run(5, false);
    assert_eq!(first.failure, None);
    let again = play(&Script { seed: 5, plant: None, turns: first.turns.clone() }, false);
    assert_eq!((first.trace, first.turns), (again.trace, again.turns));
}
