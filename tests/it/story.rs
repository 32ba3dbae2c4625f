//! The demo's story, headless, as `gatelog demo` tells it.

use std::path::Path;
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

    others_go_on_as_recorded(&|arguments| run(arguments).1);
    another_tenant_file_is_asked_about(&dir, &run);

    let (code, _, err) = run(&["demo", "--headless", "--dir", dir.to_str().unwrap()]);
    assert_ne!(code, Some(0), "a directory that holds a site is not overwritten");
    assert!(err.contains("holds a site already"), "{err}");
}

/// The site's own tenant file changes nothing; without a project there is nothing of that project, and nobody waits for it.
fn another_tenant_file_is_asked_about(dir: &Path, run: &impl Fn(&[&str]) -> (Option<i32>, String, String)) {
    let ask = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        let (code, out, err) = run(&["replay", "what-if", "--json", "--tenants", file.to_str().unwrap()]);
        (code, serde_json::from_str::<Json>(&out).unwrap_or_default(), err)
    };
    let own = std::fs::read_to_string(dir.join("tenants.yaml")).unwrap();
    let (code, answer, err) = ask("same.yaml", &own);
    assert_eq!((code, &answer["divergence"]), (Some(0), &Json::Null), "{err}");
    let without: String =
        own.lines().filter(|line| line.trim() != "- library").map(|line| format!("{line}\n")).collect();
    assert_ne!(own, without);
    let (code, answer, err) = ask("without.yaml", &without);
    assert_eq!((code, &answer["divergence"]["why"]), (Some(8), &Json::from("tenants")), "{err}");
    let ran = |of: &str, project: &str| {
        let items = answer[of]["items"].as_object().unwrap().iter();
        let of_project = items.filter(|(name, _)| name.contains(&format!("/{project} ")));
        of_project.filter(|(_, item)| item["jobs"].as_object().is_some_and(|jobs| !jobs.is_empty())).count()
    };
    assert!(ran("recorded", "library") > 0 && ran("now", "library") == 0, "{:#}", answer["now"]);
    let (code, _, err) = ask("wrong.yaml", "- tenant: {name: demo, source: {elsewhere: {untrusted-projects: [x]}}}");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("the tenant file cannot stand in place") && err.contains("elsewhere"), "{err}");
}

/// Leaving out what was told of one change leaves every other as it was recorded: what it was merged with or not, its
/// jobs, its results. The first change is merged just as it was pushed, which is no echo of the merge.
fn others_go_on_as_recorded(run: &dyn Fn(&[&str]) -> String) {
    let told: Vec<Json> = run(&["log", "cat", "intake", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Json| event["kind"] == "intake.forge-event")
        .collect();
    let of = |event: &str, change: &str| -> String {
        let change = format!("master/{change}");
        let found =
            told.iter().find(|told| told["body"]["event"] == event && told["body"]["change"] == change.as_str());
        format!("intake:{}", found.unwrap_or_else(|| panic!("{event} of {change}: {told:?}"))["offset"])
    };
    // Nothing stands on these: nobody needs them, and what is behind them was tested without them in the end.
    let changes = ["faster-fahrenheit", "patch-release", "show-miles"];
    for change in changes {
        for left_out in [vec!["change-proposed"], vec!["change-approved"], vec!["change-proposed", "change-approved"]] {
            let inputs: Vec<String> = left_out.iter().map(|event| of(event, change)).collect();
            let answer: Json =
                serde_json::from_str(&run(&["replay", "what-if", "--json", "--without", &inputs.join(",")])).unwrap();
            let what = format!("{change} without {left_out:?}: {:#}", answer["difference"]);
            let others = |outcome: &Json| -> Vec<(String, Json)> {
                let items = outcome["items"].as_object().unwrap().iter();
                let items = items.filter(|(name, _)| !name.contains(change)).map(|(name, item)| {
                    let mut item = item.clone();
                    // Nobody fails ahead of them where it was the one that was left out.
                    item.as_object_mut().unwrap().remove("resets");
                    (name.clone(), item)
                });
                items.collect()
            };
            assert_eq!(others(&answer["now"]), others(&answer["recorded"]), "{what}");
            let merges = |outcome: &Json| -> Vec<Json> {
                let all = outcome["merges"].as_array().unwrap().iter();
                all.filter(|name| !name.as_str().unwrap().contains(change)).cloned().collect()
            };
            assert_eq!(merges(&answer["now"]), merges(&answer["recorded"]), "{what}");
            let is_gone = |pipeline: &str| {
                let gone = answer["difference"]["items_gone"].as_array().unwrap();
                gone.iter().any(|name| name.as_str().unwrap().contains(&format!(" {pipeline} ")))
            };
            assert_eq!(is_gone("check"), left_out.contains(&"change-proposed"), "{what}");
            assert_eq!(is_gone("gate"), left_out.contains(&"change-approved"), "{what}");
        }
    }
}
