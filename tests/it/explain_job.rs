//! `gatelog explain job`: why a job would run, with the configuration a site has in force, or had.

use crate::harness::projects::{CONFIG, JOBS, PLAYBOOK};
use crate::harness::{Site, eventually};

/// What is asked, in the words of whoever asks; the exit code says whether the job runs.
fn ask(site: &Site, words: &str) -> (i32, String, String) {
    let dir = site.path().to_str().unwrap();
    let mut arguments = vec!["explain", "job"];
    arguments.extend(words.split_whitespace());
    arguments.extend(["--dir", dir]);
    site.gatelog(&arguments)
}

fn told(site: &Site, words: &str, code: i32, expected: &[&str]) -> String {
    let (found, out, err) = ask(site, words);
    assert_eq!(found, code, "explain job {words}:\n{out}{err}");
    for text in expected {
        assert!(out.contains(text) || err.contains(text), "explain job {words}: {text:?} is missing in:\n{out}{err}");
    }
    out
}

/// The position of the newest event of a kind.
fn newest(site: &Site, kind: &str) -> u64 {
    let events = site.events("gate.events");
    let newest = events.iter().rev().find(|event| event["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    newest["sequence"].as_u64().unwrap()
}

fn layouts(site: &Site) -> usize {
    site.event_kinds().get("gate.layout-activated").copied().unwrap_or(0)
}

#[test]
fn a_job_is_explained_with_the_configuration_in_force_and_with_that_of_then() {
    let docs = "- job:\n    name: docs\n    run: playbooks/verdict.yaml\n    files: ^doc/\n";
    let site = Site::new(&[
        ("config", CONFIG),
        ("project", &[("zuul.yaml", &format!("{JOBS}{docs}")), ("playbooks/verdict.yaml", PLAYBOOK)]),
    ]);
    let server = site.start();
    server.wait_configured();
    let before = newest(&site, "gate.layout-activated");
    let out = told(
        &site,
        "project check verdict",
        0,
        &["verdict runs for git.test/project master in check", "job verdict (git.test/project@master zuul.yaml:2:3)"],
    );
    assert!(out.contains("timeout: 120"), "what it inherits, and from where: {out}");
    assert!(out.contains("git.test/config@master"), "{out}");
    // Nobody asks for it; and what was meant.
    told(&site, "project check docs", 1, &["docs does not run", "[not-asked-for]", "it is defined at"]);
    told(&site, "project check verdcit", 1, &["no job of that name is defined; did you mean verdict?"]);
    told(&site, "projct check verdict", 3, &["no tenant has a project projct", "did you mean project?"]);

    // The project changes its mind: the list of jobs is another from now on.
    let seen = layouts(&site);
    let later = format!("{JOBS}{docs}").replace("check:\n      jobs: [verdict]", "check:\n      jobs: [docs]");
    site.push_to_master("project", "docs alone", &[("zuul.yaml", &later)]);
    eventually("the new configuration is in force", || (layouts(&site) > seen).then_some(()));
    told(&site, "project check verdict", 1, &["verdict does not run", "[not-asked-for]", "pipeline gate lists it"]);
    told(&site, "project check docs", 0, &["docs runs for git.test/project master in check"]);
    told(&site, "project check docs --files src/a,b", 1, &["no changed file matches `files` [files-differ]"]);
    told(&site, "project check docs --files src/a,doc/b", 0, &["docs runs"]);

    // As it was then.
    let at = format!("--at {before}");
    let out = told(&site, &format!("project check verdict {at}"), 0, &["verdict runs"]);
    assert!(out.lines().next().unwrap_or_default().contains(&before.to_string()), "as of when: {out}");
    told(&site, &format!("project check docs {at}"), 1, &["docs does not run"]);
    told(&site, "project check docs --at 1", 3, &["no tenant had a configuration"]);

    // The same for programs.
    let (code, out, err) = ask(&site, &format!("project check verdict --json {at}"));
    assert_eq!(code, 0, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    let one = &document[0];
    assert_eq!((one["tenant"].as_str(), one["runs"].as_bool()), (Some("test"), Some(true)), "{document:#}");
    assert_eq!(one["name"], "verdict");
    assert!(one["as_of"].as_str().unwrap_or_default().contains(&before.to_string()), "{document:#}");
    server.stop();
    // Without a server, the log alone.
    told(&site, "project check docs", 0, &["docs runs"]);
}
