//! `gatelog-world [--seeds N] [--seed S] [--trace]`: plays seeds and says how they ended.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to whoever called it")]

use std::process::ExitCode;

use gatelog_world::{Coverage, explain, run};

const USAGE: &str = "usage: gatelog-world [--seeds N] [--seed S] [--trace]

  --seeds N   plays N seeds (100 unless told), from S on (0 unless told)
  --seed S    plays this seed, unless --seeds says how many from it on
  --trace     prints every line of what happened";

struct Wanted {
    first: u64,
    count: u64,
    trace: bool,
}

fn wanted(arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let (mut first, mut count, mut trace) = (None, None, false);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64, String> {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse().map_err(|_| format!("{argument} needs a number, and {text:?} is none"))
        };
        match argument.as_str() {
            "--seeds" => count = Some(number()?),
            "--seed" => first = Some(number()?),
            "--trace" => trace = true,
            other => return Err(format!("nobody understands {other:?}")),
        }
    }
    let count = count.unwrap_or(if first.is_some() { 1 } else { 100 });
    Ok(Wanted { first: first.unwrap_or(0), count, trace })
}

fn main() -> ExitCode {
    let wanted = match wanted(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (mut coverage, mut steps, mut merged) = (Coverage::default(), 0, 0);
    for seed in (wanted.first..).take(usize::try_from(wanted.count).unwrap_or(usize::MAX)) {
        let outcome = run(seed, wanted.trace);
        coverage.add(&outcome.coverage);
        steps += outcome.steps;
        merged += outcome.merged;
        if let Some(text) = explain(&outcome) {
            println!("{text}");
            return ExitCode::FAILURE;
        }
        if wanted.count == 1 {
            println!("seed {seed}: trace {}", outcome.trace);
        }
    }
    println!("{coverage}{} seeds, {steps} steps, {merged} merges: every law held", wanted.count);
    for known in gatelog_world::known::KNOWN {
        println!("SKIPPED {}: {}", known.invariant, known.why);
    }
    let missing = coverage.missing();
    if !missing.is_empty() && wanted.count >= 50 {
        println!("faults that never happened: {missing:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
