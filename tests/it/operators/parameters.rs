//! Parameters of an enqueue: from the command line and over HTTP to the variables of jobs.

use serde_json::{Value as Json, json};

use super::{Api, RULES, hs256, ops};
use crate::harness::projects::PIPELINES;
use crate::harness::{Site, eventually, host};

const RELEASE: &str = r"
- pipeline:
    name: release
    manager: independent
    allow-parameters: true
    trigger:
      forge:
        - event: ref-updated
          ref: ^refs/heads/nowhere$
";

const JOBS: &str = r"
- job:
    name: publish
    run: playbooks/publish.yaml
    vars: {channel: stable}

- project:
    vars: {version: none, channel: none}
    release:
      jobs: [publish]
      parameters:
        - {name: version, type: string, description: what it is called, required: true}
        - {name: channel, type: selection, values: [stable, beta]}
        - {name: targets, type: multiple-selection, values: [docs, pypi]}
        - {name: dry, type: bool, default: true}
";

/// It succeeds only with what the test gives.
const PLAYBOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - assert:
        that:
          - version == "1.0"
          - targets == ["docs", "pypi"]
          - dry is true
          - channel == "stable"
"#;

#[test]
fn what_is_given_for_parameters_is_a_variable_of_every_job() {
    if !host::can_build("parameters of an enqueue") {
        return;
    }
    let config = format!("{PIPELINES}{RELEASE}");
    let files = [("zuul.yaml", config.as_str())];
    let project = [("zuul.yaml", JOBS), ("playbooks/publish.yaml", PLAYBOOK), ("notes", "1\n")];
    let site = Site::new(&[("config", &files), ("project", &project)]);
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{known}{}", hs256("allow-authz-override = true\n")));
    site.write("tenants.yaml", RULES);
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);

    // What cannot be taken is refused with a sentence, and where a body is wrong as a whole, at once.
    let path = "/api/tenant/test/project/project/enqueue";
    let asked = |reference: &str, pipeline: &str, parameters: Json| {
        api.post(path, &ops(), &json!({"pipeline": pipeline, "ref": reference, "parameters": parameters}))
    };
    let master = "refs/heads/master";
    for (status, reference, pipeline, parameters, words) in [
        (422, master, "release", json!({"colour": "red"}), "there are: channel, dry, targets, version"),
        (422, master, "release", json!({"channel": "rare"}), r#"parameter channel must be one of "stable", "beta""#),
        (422, master, "release", json!({"dry": 1}), "parameter dry must be true or false, not 1"),
        (422, master, "check", json!({"version": "1.0"}), "declares no parameters for check"),
        (400, "refs/changes/1", "release", json!({"version": "1.0"}), "`parameters` are for branches and tags"),
        (400, master, "release", json!("version"), "`parameters` must be an object"),
    ] {
        let answer = asked(reference, pipeline, parameters.clone());
        assert_eq!(answer.status, status, "{parameters}: {}", answer.text);
        let told = answer.json()["description"].as_str().unwrap().to_owned();
        assert!(told.contains(words), "{parameters}: {told}");
    }
    let (code, _, err) =
        site.gatelog(&["enqueue", "--pipeline", "x", "--project", "project", "--ref", "r", "--parameter", "version"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("NAME=VALUE"), "{err}");

    // Texts of a command line become values of the types declared, and variables of the job, below its own.
    let words = "enqueue --tenant test --pipeline release --project project --ref refs/heads/master --reason ship-it \
        --parameter version=1.0 --parameter targets=docs --parameter targets=pypi --parameter dry=true \
        --parameter channel=beta";
    let (code, out, err) = site.gatelog(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(code, 0, "{out}{err}");
    let given = json!({"channel": "beta", "dry": true, "targets": ["docs", "pypi"], "version": "1.0"});
    let build = eventually("the job is done", || {
        let builds = server.json("/api/tenant/test/builds?pipeline=release");
        builds.as_array().unwrap().iter().find(|build| !build["result"].is_null()).cloned()
    });
    assert_eq!((&build["job_name"], &build["result"]), (&json!("publish"), &json!("SUCCESS")), "{build}");
    let buildsets = server.json("/api/tenant/test/buildsets?pipeline=release");
    assert_eq!(buildsets[0]["parameters"], given, "{buildsets}");
    let enqueued = |event: &&Json| event["kind"] == "gate.item-enqueued" && event.to_string().contains("beta");
    let events = site.events("gate.events");
    let event = events.iter().find(enqueued).expect("the item's event has what was given");
    let (code, told, err) = site.gatelog(&["explain", &event["sequence"].to_string()]);
    assert_eq!(code, 0, "{err}");
    assert!(told.contains(r#"with channel="beta", dry=true, targets=["docs","pypi"], version="1.0""#), "{told}");

    // A tag gets the jobs of the branches that hold it, and the same variables.
    let clone = site.clone_of("project");
    site.git(&clone, &["push", "--quiet", "origin", "origin/master:refs/tags/1.0"]);
    let commit = site.git(&clone, &["rev-parse", "origin/master"]);
    let tag = words.replace("refs/heads/master", &format!("refs/tags/1.0 --newrev {}", commit.trim()));
    let (code, out, err) = site.gatelog(&tag.split_whitespace().collect::<Vec<_>>());
    assert_eq!(code, 0, "{out}{err}");
    eventually("the tag's job is done", || {
        let builds = server.json("/api/tenant/test/builds?pipeline=release&result=SUCCESS");
        let refs: Vec<Json> = builds.as_array().unwrap().iter().map(|build| build["ref"]["ref"].clone()).collect();
        (refs.len() == 2 && refs.contains(&json!("refs/tags/1.0"))).then_some(())
    });
    server.stop();

    // What was given, and which branches hold the tag, is asked again when jobs are frozen again.
    let (code, out, err) = site.gatelog(&["replay", "verify", "--json"]);
    assert_eq!(code, 0, "{out}{err}");
    let graphs = find(&serde_json::from_str(&out).unwrap());
    assert!(graphs >= 2, "{graphs} graphs came out the same: {out}");
}

/// How many graphs were made again, wherever it is said.
fn find(said: &Json) -> u64 {
    match said {
        Json::Object(fields) => fields
            .iter()
            .map(|(name, value)| if name == "graphs" { value.as_u64().unwrap_or(0) } else { find(value) })
            .sum(),
        Json::Array(values) => values.iter().map(find).sum(),
        _ => 0,
    }
}
