//! Plays scenarios and compares with what was stored: our own ones always, and those of the real Zuul where
//! they are to be had.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gatelog_scenario::print::{canonical, difference};
use gatelog_scenario::{Scenario, play};

/// Scenarios in which we want something else than Zuul, and why.
const WANTED: &str = include_str!("../differences.txt");

fn scenarios(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .filter(|path| path.with_extension("expected.json").exists())
        .collect();
    paths.sort();
    paths
}

/// The differences; none when it is as it was stored.
fn compare(path: &Path) -> Result<Vec<String>, String> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let seen = play(&Scenario::parse(&name, &read(path)?)?)?;
    let expected: serde_json::Value =
        serde_json::from_str(&read(&path.with_extension("expected.json"))?).map_err(|error| error.to_string())?;
    if seen == expected {
        return Ok(Vec::new());
    }
    Ok(difference(&canonical(&expected), &canonical(&seen)))
}

/// Plays all scenarios of a folder on all processors; gives those that differ, with how.
fn play_all(paths: &[PathBuf]) -> Vec<(String, Vec<String>)> {
    let next = AtomicUsize::new(0);
    let differing = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                    let lines = compare(path).unwrap_or_else(|problem| vec![problem]);
                    if !lines.is_empty() {
                        differing.lock().unwrap_or_else(PoisonError::into_inner).push((name, lines));
                    }
                }
            });
        }
    });
    let mut differing = differing.into_inner().unwrap_or_else(PoisonError::into_inner);
    differing.sort();
    differing
}

fn wanted() -> Vec<&'static str> {
    let lines = WANTED.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split(':').next()).collect()
}

#[test]
fn our_own_scenarios_go_as_they_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let paths = scenarios(&folder);
    assert!(paths.len() >= 3, "our own scenarios are missing from {}", folder.display());
    let differing = play_all(&paths);
    for (name, lines) in &differing {
        eprintln!("{name} differs\n{}", lines.join("\n"));
    }
    assert!(differing.is_empty(), "{} of {} differ", differing.len(), paths.len());
}

#[test]
fn a_difference_of_our_own_scenarios_is_still_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
    };
    let wanted = wanted();
    let mut shown = 0;
    for path in scenarios(&folder) {
        let zuul = path.with_extension("zuul.json");
        if !zuul.exists() {
            continue;
        }
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        assert!(wanted.contains(&name.as_str()), "{name} differs from Zuul and is not in differences.txt");
        let (ours, theirs) = (read(&path.with_extension("expected.json")), read(&zuul));
        assert_eq!(theirs["scenario"], name.as_str(), "{} is about something else", zuul.display());
        assert_ne!(ours, theirs, "{name} is said to differ and does not: take it out of differences.txt");
        shown += 1;
    }
    assert!(shown > 0, "no scenario shows what Zuul does otherwise");
}

#[test]
fn what_the_real_zuul_did_is_what_we_do() {
    let peer = std::env::var_os("GATELOG_PEER")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer"), PathBuf::from);
    let paths = scenarios(&peer.join("scenarios/open"));
    if paths.is_empty() {
        println!("SKIPPED scenarios of the real Zuul: there are none here (GATELOG_PEER names their folder)");
        return;
    }
    let differing = play_all(&paths);
    println!("{} of {} scenarios equal", paths.len() - differing.len(), paths.len());
    let wanted = wanted();
    let mut unwanted = 0;
    for (name, lines) in &differing {
        if wanted.contains(&name.as_str()) {
            println!("{name} differs, as we want it to");
        } else {
            unwanted += 1;
            eprintln!("{name} differs\n{}", lines.join("\n"));
        }
    }
    for name in &wanted {
        let there = paths.iter().any(|path| path.file_stem().is_some_and(|stem| stem.to_string_lossy() == *name));
        let differs = differing.iter().any(|(other, _)| other == name);
        assert!(!there || differs, "{name} is said to differ and does not: take it out of differences.txt");
    }
    assert!(wanted.len() <= 5, "more than five differences are wanted");
    assert_eq!(unwanted, 0, "{unwanted} of {} scenarios differ", paths.len());
}
