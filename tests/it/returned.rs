//! What jobs return beyond what a record carries, with the real executor: in blobs, until nobody needs it any more.

use serde_json::Value as Json;

use crate::harness::projects::PIPELINES;
use crate::harness::{Server, Site, eventually, host};
use crate::sealing::nowhere_in_clear;

const JOBS: &str = r"
- job:
    name: parent
    run: playbooks/parent.yaml

- job:
    name: modest
    run: playbooks/modest.yaml

- job:
    name: child
    run: playbooks/child.yaml
    dependencies: [parent, modest]

- job:
    name: left-out
    run: playbooks/child.yaml
    dependencies: [parent]

- project:
    check: {jobs: [parent, modest, child, left-out]}
";

/// A MiB of either kind, and what decisions read. What it returned stands nowhere in the sources.
const PARENT: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return:
        data:
          text: "{{ 'plainly' * 149797 }}"
          shared: {parent: "{{ 'p' * 1000 }}", both: parent}
          zuul:
            child_jobs: [child]
            artifacts: [{name: image, url: 'docker://registry/image'}]
        secret_data:
          password: "{{ ('sword' ~ 'fish') * 116509 }}"
"#;

const MODEST: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return: {data: {modest: "{{ 'm' * 60000 }}", shared: {both: modest}}}
"#;

const CHILD: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - assert:
        that:
          - text | length == 1048579
          - text | hash('sha256') == ('plainly' * 149797) | hash('sha256')
          - password | length == 1048581
          - modest | length == 60000
          - shared.parent | length == 1000
          - shared.both == 'modest'
          - zuul.artifacts | map(attribute='name') | list == ['image']
"#;

/// The bytes of all records of the site's log.
fn records(site: &Site) -> u64 {
    let (code, out, err) = site.gatelog(&["audit", "retention", "--json"]);
    assert_eq!(code, 0, "{err}");
    let told: Json = serde_json::from_str(&out).unwrap();
    told["streams"].as_array().unwrap().iter().map(|stream| stream["bytes"].as_u64().unwrap()).sum()
}

/// The builds of the only change, by job.
fn build(server: &Server, job: &str) -> Json {
    let listed = server.json(&format!("/api/tenant/test/builds?job_name={job}"));
    let id = listed[0]["uuid"].as_str().unwrap_or_else(|| panic!("{job}: {listed}"));
    server.json(&format!("/api/tenant/test/build/{id}"))
}

fn verified(site: &Site) -> Json {
    let (code, out, err) = site.gatelog(&["log", "verify", "--json"]);
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str::<Json>(&out).unwrap()["blobs"].clone()
}

#[test]
fn a_mebibyte_that_a_job_returns_reaches_its_child_beside_the_log_and_goes_when_nobody_needs_it() {
    if !host::can_build("returned data") {
        return;
    }
    let project = [
        ("zuul.yaml", JOBS),
        ("playbooks/parent.yaml", PARENT),
        ("playbooks/modest.yaml", MODEST),
        ("playbooks/child.yaml", CHILD),
    ];
    let site = Site::new(&[("config", &[("zuul.yaml", PIPELINES)]), ("project", &project)]);
    let server = site.start();
    server.wait_configured();
    let before = records(&site);
    site.push("project", "one", "one", &[("one.txt", "x\n")]);
    assert_eq!(server.wait_verdict("check", "project", "one"), "SUCCESS", "{}", server.log());
    server.wait_idle();

    // The modest job's 60 kB stand in its outcome and in its event. Of the mebibytes only references do.
    let grown = records(&site) - before;
    eprintln!("the log grew by {grown} bytes, 120000 of them the modest job's");
    assert!(grown < 120_000 + (80 << 10), "the log grew by {grown} bytes");
    let modest = build(&server, "modest");
    assert_eq!((modest["data"]["modest"].as_str().unwrap().len(), &modest["data_kept"]), (60_000, &Json::Null));

    let parent = build(&server, "parent");
    assert_eq!(parent["data"]["text"].as_str().map(str::len), Some(1_048_579));
    let kept = &parent["data_kept"];
    assert!(kept["size"].as_u64().unwrap() > 1 << 20 && kept["gone_since"].is_null(), "{kept}");
    assert!(parent["secret_data_kept"]["size"].as_u64().unwrap() > 1 << 20, "{parent}");
    assert_eq!(build(&server, "left-out")["result"], "SKIPPED", "child_jobs count, too");
    server.stop();
    nowhere_in_clear(&site, &[b"swordfishswordfish", b"fishswordfishsword"], false);
    assert_eq!((&verified(&site)["wrong"], &verified(&site)["ended"]), (&0.into(), &0.into()));

    // Its item has left; a site that keeps such things no longer removes them.
    let toml = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{toml}\n[job-logs]\nkeep-returned-days = 0\n"));
    let server = site.start();
    let changes = eventually("what the build returned is removed", || {
        let events: Vec<Json> = site.events("gate.events");
        let changed: Vec<String> = events
            .iter()
            .filter(|event| event["kind"] == "gate.returned-changed")
            .map(|event| event.to_string())
            .collect();
        changed.last().is_some_and(|last| last.contains("Removed")).then_some(changed)
    });
    assert!(changes.len() == 2 && changes[0].contains("Dropped"), "{changes:?}");

    let gone = build(&server, "parent");
    assert_eq!(gone["data"], serde_json::json!({"zuul": {"child_jobs": ["child"]}}), "what decisions read is there");
    assert_eq!((&gone["data_kept"]["size"], &gone["artifacts"]), (&kept["size"], &parent["artifacts"]));
    assert!(
        gone["data_kept"]["gone_since"].is_string() && gone["secret_data_kept"]["gone_since"].is_string(),
        "{gone}"
    );
    // Of the past as well the blob cannot be had any more; that it was there then does not change.
    let events: Vec<Json> = site.events("gate.events");
    let first = events.iter().find(|event| event["kind"] == "gate.returned-changed").unwrap();
    let then = first["sequence"].as_u64().unwrap() - 1;
    let uuid = parent["uuid"].as_str().unwrap();
    let past = server.json(&format!("/api/tenant/test/build/{uuid}?at={then}"));
    assert_eq!((&past["result"], &past["data_kept"]), (&"SUCCESS".into(), &gone["data_kept"]), "{past}");
    server.wait_idle();
    server.stop();
    let blobs = verified(&site);
    assert_eq!((&blobs["wrong"], &blobs["ended"]), (&0.into(), &2.into()), "{blobs}");
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = site.gatelog(&["explain", uuid]);
    assert!(code == 0 && out.contains("is gone from here on"), "{out}{err}");
}

const LATER: &str = r"
- job: {name: parent, run: playbooks/parent.yaml}
- job: {name: slow, run: playbooks/slow.yaml}
- job: {name: child, run: playbooks/child.yaml, dependencies: [parent, slow], attempts: 2}
- project: {check: {jobs: [parent, slow, child]}}
";

/// Long enough that its parent is over by then.
const SLOW: &str = r"
- hosts: localhost
  gather_facts: false
  tasks:
    - command: sleep 20
";

#[test]
fn a_child_whose_parent_s_data_is_missing_is_tried_again_and_says_whose_it_is_and_what_to_do() {
    if !host::can_build("returned data that is missing") {
        return;
    }
    let project = [
        ("zuul.yaml", LATER),
        ("playbooks/parent.yaml", PARENT),
        ("playbooks/slow.yaml", SLOW),
        ("playbooks/child.yaml", CHILD),
    ];
    let site = Site::new(&[("config", &[("zuul.yaml", PIPELINES)]), ("project", &project)]);
    let server = site.start();
    server.wait_configured();
    site.push("project", "one", "one", &[("one.txt", "x\n")]);
    let parent = eventually("the parent is done", || {
        let listed = server.json("/api/tenant/test/builds?job_name=parent");
        (listed[0]["result"] == "SUCCESS").then(|| build(&server, "parent"))
    });
    let blob = parent["data_kept"]["blob"].as_str().unwrap();
    assert!(remove(&site.path().join("log/blobs"), blob), "there is no blob {blob}");
    assert!(build(&server, "slow")["result"].is_null(), "the child is not set up yet");
    assert_eq!(server.wait_verdict("check", "project", "one"), "FAILURE", "{}", server.log());
    let child = build(&server, "child");
    assert_eq!((&child["result"], child["attempts"].as_array().unwrap().len()), (&"RETRY_LIMIT".into(), 2), "{child}");
    let detail = child["error_detail"].as_str().unwrap();
    for word in [blob, parent["uuid"].as_str().unwrap(), "(job parent)", "is missing: restore it from a backup"] {
        assert!(detail.contains(word), "{detail}");
    }
    // Without the blob the build is shown as its record has it.
    let parent = build(&server, "parent");
    assert_eq!((&parent["data_kept"]["gone_since"], &parent["data"]["text"]), (&Json::Null, &Json::Null));
    assert!(parent["data_kept"]["problem"].as_str().unwrap().contains("is missing"), "{parent}");
    server.stop();
    let (code, out, _) = site.gatelog(&["log", "verify"]);
    assert!(code == 7 && out.contains("1 missing or damaged"), "{out}");
}

/// Removes a blob's file, wherever it lies below a directory; whether there was one.
fn remove(below: &std::path::Path, blob: &str) -> bool {
    std::fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return remove(&path, blob);
        }
        let name = path.display().to_string().replace('/', "");
        name.ends_with(blob) && std::fs::remove_file(&path).is_ok()
    })
}
