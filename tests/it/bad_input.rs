//! Bad input costs its sender an answer and nobody else anything.

mod damage;
mod disk;
mod git;
mod jobs;
mod room;
mod terminal;
mod yaml;

use crate::harness::projects::{CONFIG, JOBS, PIPELINES, PLAYBOOK, PROJECT};
use crate::harness::{Site, eventually, host};

/// Proposes broken configuration and gives the report that comes back. The tenant works on: a good
/// change gets its verdict afterwards.
fn refused(name: &str, files: &[(&str, &str)]) -> String {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    site.push("project", name, name, files);
    let verdict = server.wait_verdict("check", "project", name);
    assert_eq!(verdict, "CONFIG_ERROR");
    let reports = eventually("the report is delivered", || {
        Some(site.reports("project", name)).filter(|reports| !reports.is_empty())
    });
    assert_eq!(reports.len(), 1, "{reports:?}");
    server.stop();
    reports[0].text.clone()
}

fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in:\n{text}");
    }
}

#[test]
fn malformed_yaml_is_reported_with_its_place() {
    let text = refused("malformed", &[("zuul.yaml", "- job:\n    name: [unclosed\n- project:\n")]);
    contains(&text, &["zuul.yaml", "project"]);
}

#[test]
fn an_unknown_job_is_named() {
    let jobs = JOBS.replace("jobs: [verdict]", "jobs: [verdcit]");
    let text = refused("unknown-job", &[("zuul.yaml", &jobs)]);
    contains(&text, &["verdcit", "verdict"]);
}

#[test]
fn a_cycle_of_parents_ends_by_itself_as_in_zuul() {
    if !host::can_build("a cycle of parents") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let run = "    run: playbooks/verdict.yaml\n";
    let jobs =
        format!("{JOBS}\n- job:\n    name: hen\n    parent: egg\n{run}- job:\n    name: egg\n    parent: hen\n{run}");
    let jobs = jobs.replace("jobs: [verdict]", "jobs: [hen]");
    site.push("project", "cycle", "cycle", &[("zuul.yaml", &jobs)]);
    assert_eq!(server.wait_verdict("check", "project", "cycle"), "SUCCESS");
    server.stop();
}

#[test]
fn a_duplicate_key_is_reported_with_its_line() {
    let jobs =
        JOBS.replace("    run: playbooks/verdict.yaml\n", "    run: playbooks/verdict.yaml\n    run: twice.yaml\n");
    let text = refused("duplicate", &[("zuul.yaml", &jobs)]);
    contains(&text, &["run", "zuul.yaml"]);
}

#[test]
fn a_deprecated_spelling_is_told_in_the_note_and_stops_nothing() {
    let site = Site::new(&[("config", CONFIG), ("project", &[("zuul.yaml", "- project: {check: {jobs: [noop]}}\n")])]);
    let server = site.start();
    server.wait_configured();
    let spelling = "- job:\n    name: docs\n    run: playbooks/docs.yaml\n    files: '^(?!src/)'\n";
    let jobs = format!("{spelling}- project: {{check: {{jobs: [noop]}}}}\n");
    site.push("project", "docs", "docs", &[("zuul.yaml", &jobs)]);
    assert_eq!(server.wait_verdict("check", "project", "docs"), "SUCCESS", "{}", server.log());
    let report = eventually("the report is delivered", || site.reports("project", "docs").into_iter().next());
    contains(
        &report.text,
        &["Build succeeded", "Warnings about the configuration", "regex-deprecation", "zuul.yaml:4"],
    );
    // A change of other files hears nothing of it.
    site.push("project", "other", "other", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "other"), "SUCCESS", "{}", server.log());
    let report = eventually("the report is delivered", || site.reports("project", "other").into_iter().next());
    assert!(!report.text.contains("Warnings"), "{}", report.text);
    server.stop();
}

#[test]
fn a_missing_playbook_is_an_error_of_its_build_alone() {
    if !host::can_build("a missing playbook") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let jobs = JOBS.replace("playbooks/verdict.yaml", "playbooks/vanished.yaml");
    site.push("project", "missing", "missing", &[("zuul.yaml", &jobs)]);
    site.push("project", "good", "good", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "missing"), "FAILURE");
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS");
    let builds = server.json("/api/tenant/test/builds?change=master/missing");
    assert_eq!(builds[0]["result"], "ERROR", "{builds:#}");
    contains(builds[0]["error_detail"].as_str().unwrap_or_default(), &["playbooks/vanished.yaml"]);
    server.stop();
}

#[test]
fn a_repository_that_vanishes_harms_no_other() {
    if !host::can_build("a vanished repository") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT), ("other", PROJECT_OTHER)]);
    let server = site.start();
    server.wait_configured();
    site.push("other", "change", "change", &[("a.txt", "a")]);
    site.push("project", "good", "good", &[("a.txt", "a")]);
    std::fs::rename(site.path().join("forge/other.git"), site.path().join("gone")).unwrap();
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS");
    // It comes back, and so does its work: a new patchset is tested.
    std::fs::rename(site.path().join("gone"), site.path().join("forge/other.git")).unwrap();
    site.push("other", "later", "later", &[("b.txt", "b")]);
    assert_eq!(server.wait_verdict("check", "other", "later"), "SUCCESS", "{}", server.log());
    server.stop();
}

/// A second project beside the first, with a job of its own.
const PROJECT_OTHER: &[(&str, &str)] = &[
    (
        "zuul.yaml",
        "- job:\n    name: other\n    run: playbooks/verdict.yaml\n- project:\n    check:\n      jobs: [other]\n",
    ),
    ("playbooks/verdict.yaml", PLAYBOOK),
    ("verdict", "good\n"),
];

#[test]
fn a_push_behind_the_gates_back_is_never_merged_over() {
    if !host::can_build("a push behind the gate's back") {
        return;
    }
    // The job waits until it is told to go on, so that the push falls between test and merge.
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    site.push("project", "change", "change", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS");
    site.approve("project", "change");
    eventually("the gate has prepared the change", || {
        let kinds = site.event_kinds();
        (kinds.get("gate.lease-wanted").copied().unwrap_or(0) >= 2).then_some(())
    });
    site.push_to_master("project", "behind the gate's back", &[("b.txt", "b")]);
    assert_eq!(server.wait_verdict("gate", "project", "change"), "SUCCESS", "{}", server.log());
    assert_eq!(site.merged("project").len(), 3, "{:?}", site.merged("project"));
    // The branch moved by the push first, then by the gate: nothing was overwritten.
    let reflog = site.reflog("project");
    assert!(reflog[1].ends_with("push") && reflog[2].contains("gatelog: merge"), "{reflog:#?}");
    // What is merged is what was tested: on top of the push.
    let bare = site.forge().path("project").unwrap();
    let files = site.git(&bare, &["ls-tree", "--name-only", "master"]);
    assert!(files.contains("a.txt") && files.contains("b.txt"), "{files}");
    let resets = site.events("gate.events").into_iter().filter(|event| event["kind"] == "gate.item-reset").count();
    assert!(resets >= 1, "the item was prepared again");
    server.stop();
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let site = Site::new(&[("config", &[("zuul.yaml", PIPELINES)]), ("project", PROJECT)]);
    let server = site.start();
    let (code, _, err) = site.gatelog(&["serve", "--dir", site.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 5, "{err}");
    contains(&err, &["in use", &server.pid().to_string()]);
    // The first one goes on, and is the only one there.
    server.wait_configured();
    let there = eventually("it runs", || {
        let there = server.json("/api/components");
        (there["scheduler"][0]["state"] == "running").then_some(there)
    });
    for kind in ["connections", "executor", "launcher", "merger", "scheduler", "web"] {
        assert_eq!(there[kind].as_array().map(Vec::len), Some(1), "{kind}: {there:#}");
        assert_eq!(there[kind][0]["hostname"], "local", "{there:#}");
        assert_eq!(there[kind][0]["state"], "running", "{there:#}");
        assert_eq!(there[kind][0]["version"], env!("CARGO_PKG_VERSION"), "{there:#}");
    }
    server.stop();
}

#[test]
fn hostile_refs_and_names_do_not_stop_the_forge() {
    if !host::can_build("hostile refs") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let clone = site.clone_of("project");
    for target in ["refs/for/nowhere/x", "refs/for/x", "refs/approved/master/never-proposed"] {
        let said = site.try_git(&clone, &["push", "--quiet", "origin", &format!("HEAD:{target}")]).unwrap_err();
        contains(&said, &["gatelog: refused"]);
    }
    site.push(
        "project",
        "good",
        "good\n\nDepends-On: https://elsewhere.example/1\nDepends-On: \u{1b}[2J\n",
        &[("a.txt", "a")],
    );
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS", "{}", server.log());
    server.stop();
}
