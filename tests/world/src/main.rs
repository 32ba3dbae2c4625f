//! `gatelog-world [--seeds N] [--seed S] [--trace] [--keep DIR] [--replay FILE] [--again DIR]`: plays seeds and says how
//! they ended.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to whoever called it")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gatelog_world::{Coverage, Outcome, Plant, Script, explain, kept, play, run_kept, run_planted, shrink};

/// Most of what a run does is small texts.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: gatelog-world [--seeds N] [--seed S] [--trace] [--script FILE] [--plant NAME | --keep DIR]
       gatelog-world --replay FILE
       gatelog-world --again DIR

  --seeds N      plays N seeds (100 unless told), from S on (0 unless told)
  --seed S       plays this seed, unless --seeds says how many from it on
  --trace        prints every line of what happened
  --script FILE  where a seed that fails is written, made short (gatelog-world-S.script in the directory for temporary
                 files unless told; - for nowhere)
  --replay FILE  plays what was written there, and prints every line of what happened
  --plant NAME   plants a fault in the rules, to see it found: any-start-counts, queued-ends-are-lost,
                 retries-succeed
  --keep DIR     writes the log of each seed there, and has what is read back decided again
  --again DIR    decides again what is kept there, by this build or by another";

/// How many runs may be spent on making a failed one short.
const BUDGET: u32 = 3_000;

/// The longest script that is read, in bytes.
const MAX_SCRIPT: u64 = 64 << 20;

#[derive(Default)]
struct Wanted {
    first: u64,
    count: u64,
    trace: bool,
    script: Option<PathBuf>,
    replay: Option<PathBuf>,
    plant: Option<Plant>,
    keep: Option<PathBuf>,
    again: Option<PathBuf>,
}

fn wanted(arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let (mut first, mut count) = (None, None);
    let mut wanted = Wanted::default();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut value = |what: &str| arguments.next().ok_or_else(|| format!("{argument} needs {what}"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match argument.as_str() {
            "--seeds" => count = Some(number(value("a number")?)?),
            "--seed" => first = Some(number(value("a number")?)?),
            "--trace" => wanted.trace = true,
            "--script" => wanted.script = Some(value("a file")?.into()),
            "--replay" => wanted.replay = Some(value("a file")?.into()),
            "--keep" => wanted.keep = Some(value("a folder")?.into()),
            "--again" => wanted.again = Some(value("a folder")?.into()),
            "--plant" => {
                let name = value("a name")?;
                wanted.plant = Some(Plant::named(&name).ok_or_else(|| format!("there is no plant {name:?}"))?);
            }
            other => return Err(format!("nobody understands {other:?}")),
        }
    }
    if wanted.plant.is_some() && wanted.keep.is_some() {
        return Err("--keep is for rules without a fault in them: leave --plant out".to_owned());
    }
    wanted.count = count.unwrap_or(if first.is_some() { 1 } else { 100 });
    wanted.first = first.unwrap_or(0);
    Ok(wanted)
}

fn main() -> ExitCode {
    let wanted = match wanted(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match (&wanted.replay, &wanted.again) {
        (Some(file), _) => replay(file),
        (None, Some(folder)) => again(folder),
        (None, None) => seeds(&wanted),
    }
}

/// Decides again what is kept in a folder.
fn again(folder: &Path) -> ExitCode {
    let named = |entry: std::io::Result<std::fs::DirEntry>| entry.ok().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.filter_map(named).collect(),
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::from(2);
        }
    };
    files.retain(|file| file.extension().is_some_and(|ending| ending == kept::ENDING));
    files.sort();
    let mut decisions = 0;
    for file in &files {
        match kept::decide_again(file) {
            Ok(same) => decisions += same,
            Err(problem) => {
                println!("{}: {problem}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} logs decided again: {decisions} decisions, byte for byte the same", files.len());
    if files.is_empty() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn seeds(wanted: &Wanted) -> ExitCode {
    if let Some(Err(error)) = wanted.keep.as_ref().map(std::fs::create_dir_all) {
        eprintln!("the folder to keep logs in cannot be made: {error}");
        return ExitCode::from(2);
    }
    let (mut coverage, mut steps, mut merged) = (Coverage::default(), 0, 0);
    for seed in (wanted.first..).take(usize::try_from(wanted.count).unwrap_or(usize::MAX)) {
        let outcome = match &wanted.keep {
            Some(folder) => run_kept(seed, wanted.trace, &kept::file_of(folder, seed)),
            None => run_planted(seed, wanted.plant, wanted.trace),
        };
        coverage.add(&outcome.coverage);
        steps += outcome.steps;
        merged += outcome.merged;
        if let Some(text) = explain(&outcome) {
            println!("{text}");
            write_down(wanted, &outcome);
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

/// Makes a failed run short and writes it down.
fn write_down(wanted: &Wanted, failed: &Outcome) {
    let file = match &wanted.script {
        Some(file) if file.as_os_str() == "-" => return,
        Some(file) => file.clone(),
        None => std::env::temp_dir().join(format!("gatelog-world-{}.script", failed.seed)),
    };
    let script = Script { seed: failed.seed, plant: wanted.plant, turns: failed.turns.clone() };
    println!("making its {} turns fewer ...", script.turns.len());
    let Some(shrunk) = shrink(&script, failed, BUDGET) else {
        println!("it does not fail again when its own turns are played: see tests/world/src/script.rs");
        return;
    };
    let (count, tries) = (shrunk.script.turns.len(), shrunk.tries);
    match std::fs::write(&file, shrunk.text()) {
        Ok(()) => {
            println!("{count} turns are left after {tries} runs; to see them: ./dev world --replay {}", file.display())
        }
        Err(error) => println!("{count} turns are left, and {} cannot be written: {error}", file.display()),
    }
}

fn replay(file: &Path) -> ExitCode {
    let script = match read(file).and_then(|text| Script::from_text(&text)) {
        Ok(script) => script,
        Err(problem) => {
            eprintln!("{}: {problem}", file.display());
            return ExitCode::from(2);
        }
    };
    let outcome = play(&script, true);
    match &outcome.failure {
        Some((problem, lines)) => {
            println!("{}\n{} turns of seed {}: {problem}", lines.join("\n"), script.turns.len(), script.seed);
            ExitCode::FAILURE
        }
        None => {
            println!("{} turns of seed {}: every law held, trace {}", script.turns.len(), script.seed, outcome.trace);
            ExitCode::SUCCESS
        }
    }
}

fn read(file: &Path) -> Result<String, String> {
    let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > MAX_SCRIPT {
        return Err(format!("{size} bytes are too many for a script: at most {MAX_SCRIPT} are read"));
    }
    std::fs::read_to_string(file).map_err(|error| error.to_string())
}
