//! The demo's story, headless, as `gatelog demo` tells it.

use std::process::Command;

use serde_json::Value as Json;

use crate::harness::{host, process};

#[test]
fn the_story_goes_as_told_and_leaves_nothing_behind() {
    if !host::can_build("the story") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(host::binary())
        .args(["demo", "--headless", "--json"])
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome: Json = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(outcome["problems"], serde_json::json!([]), "{outcome:#}");
    assert_eq!(outcome["ok"], true);
    assert_eq!(outcome["merge_order"], serde_json::json!(["add-miles", "show-miles"]));
    assert!(output.status.success());
    // What stood behind the failing change was tested again without it.
    let show_miles =
        outcome["changes"].as_array().unwrap().iter().find(|change| change["name"] == "show-miles").unwrap();
    assert_eq!(show_miles["gate"], "SUCCESS");
    println!(
        "the first job ran after {} ms, the story took {} ms, {} events",
        outcome["first_job_ms"], outcome["story_ms"], outcome["events"]
    );
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert_eq!(process::processes_of(scratch.path()), Vec::<String>::new());
}

#[test]
fn a_kept_site_can_be_looked_at_and_served_again() {
    if !host::can_build("a kept site") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("site");
    let run = |arguments: &[&str]| {
        let output = Command::new(host::binary()).args(arguments).env("GATELOG_DIR", &dir).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), out, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, out, err) = run(&["demo", "--headless", "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{out}\n{err}");
    assert!(out.contains("merged"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours in a pipe");

    let (code, out, err) = run(&["explain", "show-miles"]);
    assert_eq!(code, Some(0), "{err}");
    for word in ["show-miles", "gate", "application-integration", "SUCCESS", "intake"] {
        assert!(out.contains(word), "{word} is missing in:\n{out}");
    }
    let (code, out, err) = run(&["explain", "show-miles", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    serde_json::from_str::<Json>(&out).unwrap();

    let (code, _, err) = run(&["explain", "no-such-change"]);
    assert_eq!(code, Some(3), "{err}");

    let (code, out, err) = run(&["log", "verify"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let (code, out, err) = run(&["replay", "state", "--at", "60"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("check"), "{out}");
    let (code, out, err) = run(&["replay", "verify"]);
    assert_eq!(code, Some(0), "{out}{err}");

    let (code, _, err) = run(&["demo", "--headless", "--dir", dir.to_str().unwrap()]);
    assert_ne!(code, Some(0), "a directory that holds a site is not overwritten");
    assert!(err.contains("holds a site already"), "{err}");
}
