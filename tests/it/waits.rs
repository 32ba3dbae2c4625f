//! Nothing waits in silence: why, since when, what ends it and what helps is at the API, on the page and on the command
//! line.

use serde_json::Value as Json;

use crate::harness::process::Server;
use crate::harness::projects::{CONFIG, PIPELINES, PLAYBOOK, PROJECT};
use crate::harness::{Site, eventually, host};

/// Jobs: one that needs nodes nobody makes, for changes that touch `big`; two that take turns.
const JOBS: &str = r"
- semaphore:
    name: licence
    max: 1

- job:
    name: verdict
    run: playbooks/verdict.yaml

- job:
    name: needs-big
    run: playbooks/verdict.yaml
    files: [^big]
    nodeset: {nodes: [{name: node, label: big}]}
    semaphores: [licence]

- project:
    queue: integrated
    check: {jobs: [noop]}
    gate: {jobs: [verdict, needs-big]}
";

fn waits(server: &Server, path: &str) -> Vec<Json> {
    server.json(path)["waits"].as_array().cloned().unwrap_or_default()
}

/// The wait with a reason, once there is one: it says since when, what ends it, and how what is held up is cured.
fn wait_for(server: &Server, reason: &str) -> Json {
    let found = eventually(&format!("something waits for {reason}"), || {
        waits(server, "/api/waits?all=true").into_iter().find(|wait| wait["reason"] == reason)
    });
    assert!(found["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{found}");
    assert!(found["since_ms"].as_i64().is_some_and(|ms| ms > 1_700_000_000_000), "{found}");
    assert!(found["ends_when"].as_str().is_some_and(|ends| !ends.is_empty()), "{found}");
    assert!(found["standing"] != "held-up" || !found["cure"].is_null(), "{found}");
    found
}

/// What `gatelog doctor --site` says of what is held up, whatever it is that long.
fn doctor(site: &Site) -> (i32, String) {
    let (code, out, err) = site.gatelog(&["doctor", "--site", "--all"]);
    (code, out + &err)
}

#[test]
fn a_build_without_a_worker_and_those_behind_it_say_what_they_wait_for() {
    if !host::can_build("a build that waits for a worker") {
        return;
    }
    let project = [("zuul.yaml", JOBS), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n")];
    let site = Site::new(&[("config", &[("zuul.yaml", PIPELINES)]), ("project", &project)]);
    let server = site.start();
    server.wait_configured();
    assert_eq!(doctor(&site).0, 0, "{}", doctor(&site).1);
    for (name, file) in [("first", "big"), ("second", "small")] {
        site.push("project", name, name, &[(file, "x")]);
        assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS", "{}", server.log());
        site.approve("project", name);
    }
    let build = wait_for(&server, "no-worker");
    assert_eq!((build["subject"]["kind"].as_str(), build["tenant"].as_str()), (Some("build"), Some("test")));
    assert_eq!(build["subject"]["name"], "needs-big of project master/first in gate");
    assert!(build["detail"].as_str().is_some_and(|detail| detail.contains("label big")), "{build}");
    // The second has done all its jobs.
    let behind = wait_for(&server, "item-ahead");
    assert_eq!((behind["subject"]["kind"].as_str(), behind["standing"].as_str()), (Some("item"), Some("waiting")));
    assert!(behind["detail"].as_str().is_some_and(|detail| detail.contains("master/first")), "{behind}");
    // What is not yet a minute old is told to who asks for all.
    assert!(waits(&server, "/api/tenant/test/waits?all=true").len() >= 3);
    let page = server.get("/t/test/waits?all=true").unwrap().body;
    assert!(page.contains("needs-big of project master/first") && page.contains("no-worker"), "{page}");

    let (code, said) = doctor(&site);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("no-worker needs-big of project master/first in gate (tenant test)"), "{said}");
    assert!(said.contains("why:       no worker offers slots with label big"), "{said}");
    assert!(said.contains("cure:      start an executor with these `labels`"), "{said}");
    let (_, json, _) = site.gatelog(&["doctor", "--site", "--all", "--json"]);
    let json: Json = serde_json::from_str(&json).unwrap();
    // With `--all`, what came about this very moment is among it.
    let reasons: Vec<_> =
        json["held_up"].as_array().unwrap().iter().filter_map(|wait| wait["reason"].as_str()).collect();
    assert!(json["ok"] == Json::Bool(false) && reasons.contains(&"no-worker"), "{json}");
    // After a minute, everybody is told.
    let (code, said) = eventually("the wait is more than a minute old", || {
        let (code, out, _) = site.gatelog(&["doctor", "--site"]);
        (code != 0).then_some((code, out))
    });
    assert!(code == 1 && said.contains("no-worker"), "{said}");
    let (_, status, _) = site.gatelog(&["status"]);
    assert!(status.contains("waits for more than a minute") && status.contains("no-worker needs-big"), "{status}");
    assert!(server.get("/t/test/status").unwrap().body.contains("1 held up"));

    let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    server.stop();
    let (code, said) = doctor(&site);
    assert!(code == 1 && said.contains("none runs") && said.contains("gatelog serve --dir"), "{said}");
    assert!(said.contains("reads well from the newest rung") && said.contains("free on"), "{said}");
    // The cure is one.
    site.write("gatelog.toml", &settings.replace("[executor]\n", "[executor]\nlabels = [\"sandbox\", \"big\"]\n"));
    let server = site.start();
    for name in ["first", "second"] {
        assert_eq!(server.wait_verdict("gate", "project", name), "SUCCESS", "{}", server.log());
    }
    assert_eq!(doctor(&site).0, 0, "{}", doctor(&site).1);
}

#[test]
fn a_paused_executor_holds_builds_up_until_it_is_resumed() {
    if !host::can_build("a build that waits for a paused executor") {
        return;
    }
    let jobs = JOBS.replace("check: {jobs: [noop]}", "check: {jobs: [verdict, second]}").replace(
        "- project:",
        "- job:\n    name: second\n    run: playbooks/verdict.yaml\n    semaphores: [licence]\n\n- project:",
    );
    let jobs =
        jobs.replacen("run: playbooks/verdict.yaml", "run: playbooks/verdict.yaml\n    semaphores: [licence]", 1);
    let project = [("zuul.yaml", jobs.as_str()), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n")];
    let site = Site::new(&[("config", CONFIG), ("project", &project)]);
    let server = site.start();
    server.wait_configured();
    let (code, _, err) = site.gatelog(&["executor", "pause", "local", "--reason", "a new disk"]);
    assert_eq!(code, 0, "{err}");
    site.push("project", "a", "a", &[("a", "x")]);
    let held = wait_for(&server, "executor-paused");
    assert!(held["detail"].as_str().is_some_and(|detail| detail.contains("local (a new disk)")), "{held}");
    let taken = wait_for(&server, "semaphore");
    assert!(taken["detail"].as_str().is_some_and(|detail| detail.contains("licence")), "{taken}");
    assert_eq!((taken["standing"].as_str(), taken["subject"]["kind"].as_str()), (Some("waiting"), Some("build")));
    let (code, said) = doctor(&site);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("executor-paused") && said.contains("role-paused"), "{said}");
    assert!(said.contains("`gatelog executor resume NAME`"), "{said}");
    assert_eq!(site.gatelog(&["executor", "resume", "local"]).0, 0);
    assert_eq!(server.wait_verdict("check", "project", "a"), "SUCCESS", "{}", server.log());
    eventually("nothing is held up any more", || (doctor(&site).0 == 0).then_some(()));
}

#[test]
fn a_repository_out_of_reach_is_named_until_it_is_back() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let repository = site.forge().path("project").unwrap();
    let away = site.path().join("away.git");
    std::fs::rename(&repository, &away).unwrap();
    let wait = wait_for(&server, "connection-fails");
    assert_eq!(
        (wait["subject"]["kind"].as_str(), wait["subject"]["name"].as_str()),
        (Some("part"), Some("connection forge"))
    );
    assert!(
        wait["detail"].as_str().is_some_and(|detail| detail.contains("project: there is no such repository")),
        "{wait}"
    );
    // A part that is not well is told at once.
    let (code, out, _) = site.gatelog(&["doctor", "--site"]);
    assert!(code == 1 && out.contains("connection-fails connection forge"), "{out}");
    let since = wait["since"].clone();
    assert_eq!(wait_for(&server, "connection-fails")["since"], since, "since it was first seen");
    std::fs::rename(&away, &repository).unwrap();
    eventually("the repository is seen again", || (site.gatelog(&["doctor", "--site"]).0 == 0).then_some(()));
    server.stop();
}
