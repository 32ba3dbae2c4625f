//! The simulated world: the real rules of gate and capacity behind the real shell, over the log in
//! memory, and everything around them made up: forge, effects, workers, clocks, couriers. One seed
//! decides all that happens, so that a run that failed can be looked at again, step by step.
//!
//! [`run`] plays one seed: a while in which people do things and everything goes wrong, then rest. Laws
//! are checked after every step and at the end ([`laws`]); what really happened (what was merged, what
//! jobs saw) is known to a witness that asks nobody. A run that failed is made short ([`shrink()`]) and written down
//! ([`Script`]), so that [`play`] shows it again. That faults are found at all is shown with some that are planted in
//! the rules ([`Plant`]).

mod calendar;
pub mod carrying;
pub mod content;
mod disturb;
pub mod effects;
pub mod ending;
pub mod faults;
pub mod forge;
pub mod host;
pub mod kept;
pub mod known;
pub mod laws;
pub mod marked;
mod people;
pub mod random;
pub mod script;
pub mod shrink;
pub mod site;
pub mod stories;
pub mod workers;
pub mod world;

pub use ending::Noise;
pub use faults::{Coverage, Fault};
pub use marked::Plant;
pub use script::{Script, Turn};
pub use shrink::{Shrunk, shrink};
pub use world::World;

use std::path::Path;

use random::Random;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How many things happened.
    pub steps: u64,
    /// A name for all that happened, in its order, and for both histories.
    pub trace: String,
    /// What was met.
    pub coverage: Coverage,
    /// How many changes were merged.
    pub merged: usize,
    /// The longest that an item was there, in seconds of the monotonic clock.
    pub longest: i64,
    /// What went wrong, if anything did, with the newest lines of the trace.
    pub failure: Option<(String, Vec<String>)>,
    /// What was drawn while things went wrong.
    pub turns: Vec<Turn>,
}

/// Plays a seed; `all_lines` keeps every line of the trace for a failure.
pub fn run(seed: u64, all_lines: bool) -> Outcome {
    run_planted(seed, None, all_lines)
}

/// Plays a seed, writes its log to a file, and has what is read back from there decided again.
pub fn run_kept(seed: u64, all_lines: bool, file: &Path) -> Outcome {
    live(seed, None, Noise::Turns(length_of(seed)), all_lines, Some(file))
}

fn length_of(seed: u64) -> usize {
    400 + Random::new(seed, "length").below(1_600) as usize
}

/// Plays a seed with a fault planted in the rules.
pub fn run_planted(seed: u64, plant: Option<Plant>, all_lines: bool) -> Outcome {
    live(seed, plant, Noise::Turns(length_of(seed)), all_lines, None)
}

/// Plays a script.
pub fn play(script: &Script, all_lines: bool) -> Outcome {
    live(script.seed, script.plant, Noise::Recorded(&script.turns), all_lines, None)
}

fn live(seed: u64, plant: Option<Plant>, noise: Noise<'_>, all_lines: bool, file: Option<&Path>) -> Outcome {
    let mut world = match World::planted(seed, plant) {
        Ok(world) => world,
        Err(problem) => {
            return Outcome {
                seed,
                steps: 0,
                trace: String::new(),
                coverage: Coverage::default(),
                merged: 0,
                longest: 0,
                failure: Some((problem, Vec::new())),
                turns: Vec::new(),
            };
        }
    };
    world.trace.keep_all = all_lines;
    let ended = world.be_noisy(&noise).and_then(|()| world.come_to_rest(60_000)).and_then(|()| world.judge());
    let ended = match file {
        Some(file) if ended.is_ok() => {
            kept::keep(&world, file).and_then(|()| kept::decide_again(file).map(drop)).map_err(|problem| {
                format!("{problem} (what is read back from disk; ./dev world --seed {seed} --keep DIR)")
            })
        }
        _ => ended,
    };
    let links = (world.gate.tail().link, world.capacity.tail().link);
    Outcome {
        seed,
        steps: world.trace.count,
        trace: content::short(&format!("{} {links:?}", world.trace.digest())),
        merged: world.witness.merges.len(),
        longest: world.laws.longest / 1_000_000,
        failure: ended.err().map(|problem| {
            let lines = world.trace.lines().map(str::to_owned).chain(world.details());
            (problem, lines.collect())
        }),
        turns: world.turns,
        coverage: world.coverage,
    }
}

/// What is shown of a run that failed: what went wrong, the newest lines, and how to see it again.
pub fn explain(outcome: &Outcome) -> Option<String> {
    let (problem, lines) = outcome.failure.as_ref()?;
    let seed = outcome.seed;
    Some(format!("{}\nseed {seed}: {problem}\nto see it again: ./dev world --seed {seed}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_of_what_no_worker_was_seen_to_test_is_noticed() {
        let noticed = (0..40).find_map(|seed| {
            let mut world = World::new(seed).unwrap();
            world.noisy = true;
            (0..1_500).find_map(|_| {
                world.witness.succeeded.clear();
                let problem = world.step().map(|happened| happened || world.pass()).err();
                problem.filter(|problem| problem.contains("no worker ran"))
            })
        });
        assert!(noticed.is_some(), "forty worlds merged nothing, or nobody looked");
    }
}
