//! Scenarios in the words of a user, played through the gate's rules in a small simulated world.
//!
//! Each file in `scenarios` is one story. After every input the world checks what must always hold
//! (see `world::laws`).

mod world;

use std::path::Path;

#[test]
fn every_scenario_goes_as_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    let only = std::env::var("SCENARIO").ok();
    let mut failures = Vec::new();
    let mut played = 0;
    for path in files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        played += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(problem) = world::script::play(&text) {
            failures.push(format!("{name}: {problem}"));
        }
    }
    assert!(played > 0, "no scenario was found in {}", folder.display());
    assert!(failures.is_empty(), "{} of {played} scenarios did not go as told:\n{}", failures.len(), failures.join("\n\n"));
}
