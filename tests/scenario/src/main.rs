//! `gatelog-scenario FILE`: plays a scenario on gatelog's own rules and prints the observation.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to whoever called it")]

use std::path::Path;
use std::process::ExitCode;

use gatelog_scenario::print::{canonical, difference};
use gatelog_scenario::{Scenario, play};

const USAGE: &str = "usage: gatelog-scenario [--check] FILE...

  FILE      a scenario; its observation is printed
  --check   compares with FILE's .expected.json instead, prints differences and how many are equal";

fn observe(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(canonical(&play(&Scenario::parse(&name, &text)?)?))
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.first().is_some_and(|first| first == "--check");
    if check {
        arguments.remove(0);
    }
    if arguments.is_empty() || arguments.iter().any(|one| one.starts_with("--")) {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let (mut equal, total) = (0, arguments.len());
    for file in &arguments {
        let path = Path::new(file);
        match observe(path) {
            Ok(found) if check => {
                let expected = std::fs::read_to_string(path.with_extension("expected.json")).unwrap_or_default();
                let differs = difference(&expected, &found);
                if differs.is_empty() {
                    equal += 1;
                } else {
                    println!("DIFFERS {file}\n{}", differs.join("\n"));
                }
            }
            Ok(found) => {
                equal += 1;
                print!("{found}");
            }
            Err(problem) => println!("FAILS {file}\n{problem}"),
        }
    }
    if check {
        println!("{equal} of {total} equal");
    }
    if equal == total { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
