//! `zuul.pause` with the real executor: a job waits for those that need it, and leaves its only slot to them.

use serde_json::Value as Json;

use crate::harness::projects::PIPELINES;
use crate::harness::{Site, eventually, host};

const JOBS: &str = r"
- job:
    name: registry
    run: playbooks/registry.yaml
    post-run: playbooks/over.yaml

- job:
    name: client
    run: playbooks/client.yaml
    dependencies: [registry]

- project:
    check: {jobs: [registry, client]}
";

const REGISTRY: &str = r"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return:
        data:
          address: here
          zuul: {pause: true}
        secret_data:
          password: swordfish
";

const CLIENT: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - assert: {that: ['address == "here"', 'password == "swordfish"']}
"#;

const OVER: &str = r"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: {msg: the registry is no longer needed}
";

#[test]
fn a_job_that_pauses_leaves_its_slot_to_those_that_need_it() {
    if !host::can_build("a job that pauses") {
        return;
    }
    let files = [("zuul.yaml", PIPELINES)];
    let project = [
        ("zuul.yaml", JOBS),
        ("playbooks/registry.yaml", REGISTRY),
        ("playbooks/client.yaml", CLIENT),
        ("playbooks/over.yaml", OVER),
    ];
    let site = Site::new(&[("config", &files), ("project", &project)]);
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    assert!(known.contains("slots = 2"), "{known}");
    site.write("gatelog.toml", &known.replace("slots = 2", "slots = 1"));
    let server = site.start();
    server.wait_configured();
    site.push("project", "one", "one", &[("one.txt", "x\n")]);
    let builds = eventually("both jobs are done", || {
        let builds = server.json("/api/tenant/test/builds?pipeline=check");
        let all = builds.as_array().unwrap().clone();
        (all.len() == 2 && all.iter().all(|build| !build["result"].is_null())).then_some(all)
    });
    for build in &builds {
        assert_eq!(build["result"], "SUCCESS", "{build}");
    }
    // One slot is enough for both, for what waits has none; and it goes on once the other is done.
    let order = |partition: &str, kinds: &[&str]| -> Vec<String> {
        let events: Vec<Json> = site.events(partition);
        let told = events.iter().filter_map(|event| event["kind"].as_str()).filter(|kind| kinds.contains(kind));
        told.map(str::to_owned).collect()
    };
    let gate = ["gate.build-started", "gate.build-paused", "gate.build-finished", "gate.build-resumed"];
    let (started, finished) = ("gate.build-started", "gate.build-finished");
    assert_eq!(
        order("gate.events", &gate),
        [started, "gate.build-paused", started, finished, "gate.build-resumed", finished]
    );
    let capacity = ["capacity.lease-granted", "capacity.lease-paused", "capacity.lease-resumed"];
    assert_eq!(
        order("capacity.events", &capacity),
        ["capacity.lease-granted", "capacity.lease-paused", "capacity.lease-granted", "capacity.lease-resumed"]
    );
    let sealed = site.events("gate.events").iter().any(|event| event.to_string().contains("swordfish"));
    assert!(!sealed, "what was returned in secret is in the log");
}
