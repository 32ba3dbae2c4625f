//! A job that fails on a real server keeps its node, until somebody lets go of it.

use serde_json::{Value as Json, json};

use super::tokens::ops;
use super::{Api, RULES, hs256, site_of, unix_user};
use crate::harness::{Server, Site, eventually, host};

/// A job that leaves something on its node, and fails.
const BROKEN: &str = r"
- job:
    name: broken
    run: playbooks/broken.yaml
    nodeset: {nodes: [{name: box, label: sandbox}]}

- project:
    check: {jobs: [broken]}
";

const BREAK: &str = r"
- hosts: box
  gather_facts: false
  tasks:
    - shell: echo it was like this > {{ zuul_user_dir }}/evidence; exit 3
";

/// The nodes that are there, by name.
fn nodes(site: &Site) -> Vec<String> {
    let entries = std::fs::read_dir(site.path().join("nodes")).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_node_of_a_job_that_failed_is_kept_until_it_is_let_go_and_the_history_says_by_whom() {
    if !host::can_build("the node of a job that failed") {
        return;
    }
    let site = site_of(&hs256(""), &[("zuul.yaml", BROKEN), ("playbooks/broken.yaml", BREAK)]);
    site.write("tenants.yaml", RULES);
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    let fails = |server: &Server, name: &str| {
        site.push("project", name, name, &[(&format!("{name}.txt"), "x\n")]);
        assert_eq!(server.wait_verdict("check", "project", name), "FAILURE", "{}", server.log());
    };
    // Without anybody's asking for it nothing is kept.
    fails(&server, "before");
    eventually("nothing is kept", || nodes(&site).is_empty().then_some(()));

    // Over HTTP.
    let asked = json!({"job": "broken", "count": 1, "reason": "to look at"});
    let answer = api.post("/api/tenant/test/project/project/autohold", &ops(), &asked);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let request = answer.header("gatelog-request").to_owned();
    let path = format!("/api/tenant/test/autohold/{request}");
    fails(&server, "one");
    let told = eventually("a node is kept", || {
        Some(server.json(&path)).filter(|told| told["nodes"].as_array().is_some_and(|held| !held.is_empty()))
    });
    assert_eq!((&told["current_count"], &told["max_count"]), (&json!(1), &json!(1)), "{told}");
    let held = &told["nodes"][0];
    let builds = server.json("/api/tenant/test/builds?change=master/one");
    assert_eq!((&held["build"], held["nodes"].as_array().unwrap().len()), (&builds[0]["uuid"], 1), "{told}");
    let node = held["nodes"][0].as_str().unwrap().to_owned();
    let evidence = site.path().join("nodes").join(&node).join("home/evidence");
    assert_eq!(std::fs::read_to_string(&evidence).unwrap(), "it was like this\n");
    // It is used up: the next one's node is not kept. Neither a restart nor time lets go of the first.
    fails(&server, "two");
    eventually("the other node is gone", || (nodes(&site) == [node.as_str()]).then_some(()));
    server.stop();
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    fails(&server, "three");
    eventually("the other node is gone", || (nodes(&site) == [node.as_str()]).then_some(()));
    assert_eq!(std::fs::read_to_string(&evidence).unwrap(), "it was like this\n");
    assert_eq!(server.json(&path)["nodes"], told["nodes"]);

    let (code, out, err) = site.gatelog(&["autohold-info", &request, "--tenant", "test"]);
    assert_eq!(code, 0, "{err}");
    let (worker, build) = (held["worker"].as_str().unwrap(), held["build"].as_str().unwrap());
    for words in [
        format!("{request}  broken of git.test/project, refs .*, kept 1 of 1: to look at\n"),
        format!("  keeps node {node} of build {build}: nodes/{node}/home in the directory of {worker}\n"),
    ] {
        assert!(out.contains(&words), "{words}: {out}");
    }
    let page = |path: &str| api.get(path, None).text;
    let status = page("/t/test/status");
    for words in ["Nodes to be kept when a job fails", "to look at", "1 of 1", &node] {
        assert!(status.contains(words), "{words}: {status}");
    }
    let told = page(&format!("/t/test/build/{build}"));
    assert!(told.contains("Its nodes are kept: to look at"), "{told}");
    // A position that an answer carries is one that can be asked for.
    let kept_at = api.get("/api/tenant/test/status", None).header("gatelog-position").to_owned();
    let answer = api.send("DELETE", &format!("{path}?reason=found%20it"), Some(&ops()), None, None);
    assert_eq!(answer.status, 204, "{}", answer.text);
    eventually("the node is gone", || nodes(&site).is_empty().then_some(()));
    // As it was then, the node is kept; before anybody asked nothing was to be kept; now nothing is.
    let then = server.json(&format!("{path}?at={kept_at}"));
    assert_eq!((&then["nodes"][0]["nodes"], &then["current_count"]), (&json!([node]), &json!(1)), "{then}");
    let list = server.json(&format!("/api/tenant/test/autohold?at={kept_at}"));
    assert_eq!(list[0]["nodes"][0]["nodes"], json!([node]), "{list}");
    let set = site.events("gate.events").into_iter().find(|event| event["kind"] == "gate.autohold-set").unwrap();
    let set = set["sequence"].as_u64().unwrap();
    assert_eq!(server.json(&format!("/api/tenant/test/autohold?at={}", set - 1)), json!([]));
    let asked_for = server.json(&format!("{path}?at={set}"));
    assert_eq!((&asked_for["nodes"], &asked_for["current_count"]), (&json!([]), &json!(0)), "{asked_for}");
    let (code, out, err) = site.gatelog(&["autohold-list", "--tenant", "test", "--at", &kept_at]);
    assert!(code == 0 && out.contains("to look at") && out.contains("kept 1 of 1"), "{out}{err}");
    assert_eq!(api.get(&path, None).status, 404);
    // Of a build it is still told that its nodes were kept.
    let held = server.json("/api/tenant/test/builds?held=true");
    let uuids: Vec<_> = held.as_array().unwrap().iter().map(|one| one["uuid"].as_str().unwrap()).collect();
    assert!(uuids == [build] && held[0]["held"] == json!(true), "{held}");
    let others = server.json("/api/tenant/test/builds?held=false");
    assert!(others.as_array().unwrap().iter().all(|one| one["held"] == json!(false) && one["uuid"] != build));
    assert_eq!(others.as_array().unwrap().len(), 3, "{others}");

    // On the command line, for two builds.
    let local = |arguments: &[&str]| {
        let (code, out, err) = site.gatelog(&[arguments, &["--tenant", "test"]].concat());
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    let asked = ["autohold", "--project", "project", "--job", "broken", "--count", "2", "--reason", "once more"];
    let out = local(&asked);
    let request = out.split("request ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    fails(&server, "four");
    fails(&server, "five");
    let out = eventually("two are kept", || {
        Some(local(&["autohold-info", &request])).filter(|out| out.matches("keeps node").count() == 2)
    });
    assert!(out.contains("kept 2 of 2: once more"), "{out}");
    // The node of a build that is just over goes a moment later.
    let kept = eventually("no other node is there", || Some(nodes(&site)).filter(|nodes| nodes.len() == 2));
    for node in kept {
        assert!(out.contains(&format!("nodes/{node}/home")), "{node}: {out}");
    }
    assert!(local(&["autohold-delete", &request, "--reason", "seen"]).contains("is over, and keeps nothing"));
    eventually("the nodes are gone", || nodes(&site).is_empty().then_some(()));
    assert_eq!(local(&["autohold-list"]), "test: no nodes are to be kept\n");
    assert!(!page("/t/test/status").contains("Nodes to be kept"));

    // The page says when nothing gets in.
    for (command, words) in [("pause", "Events from outside wait."), ("discard", "Events from outside are dropped.")] {
        local(&[command, "--reason", "the forge moves house"]);
        let status = page("/t/test/status");
        assert!(status.contains(words) && status.contains("the forge moves house"), "{command}: {status}");
    }
    local(&["resume"]);
    assert!(!page("/t/test/status").contains("Events from outside"));

    // Who asked, and who let go, and why.
    let events = site.events("gate.events");
    let user = unix_user();
    let people = ["olivia (sso)".to_owned(), format!("{user} (local)")];
    for (kind, reasons) in
        [("gate.autohold-set", ["to look at", "once more"]), ("gate.autohold-ended", ["found it", "seen"])]
    {
        let found: Vec<&Json> = events.iter().filter(|event| event["kind"] == kind).collect();
        assert_eq!(found.len(), 2, "{kind}");
        for ((event, reason), who) in found.iter().zip(reasons).zip(&people) {
            let (code, told, err) = site.gatelog(&["explain", &event["sequence"].to_string()]);
            assert_eq!(code, 0, "{err}");
            assert!(told.contains(reason) && told.contains(&format!("by {who}")), "{kind}, {reason}, {who}:\n{told}");
        }
    }
    assert_eq!(events.iter().filter(|event| event["kind"] == "gate.nodes-held").count(), 3);
    server.stop();
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}
