//! Every result of a build (Zuul: `BuildResult`), from the job that causes it to the API, by a real executor.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::harness::projects::PIPELINES;
use crate::harness::{Site, eventually, host};

const PASS: &str = "    - command: 'true'\n";
const FAIL: &str = "    - command: 'false'\n";
const SLEEP: &str = "    - command: sleep 60\n";

/// A job, and what becomes of it.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Further attributes, as YAML of a job.
    attributes: &'static str,
    /// Tasks of its playbooks; without any there is no such playbook.
    pre: &'static str,
    run: &'static str,
    post: &'static str,
    result: &'static str,
    attempts: usize,
    /// Stands in the build's detail or on its console.
    told: &'static str,
}

const CASE: Case = Case {
    name: "",
    attributes: "    attempts: 1\n",
    pre: "",
    run: PASS,
    post: "",
    result: "SUCCESS",
    attempts: 1,
    told: "",
};

const CASES: &[Case] = &[
    Case { name: "passes", ..CASE },
    Case { name: "passes-in-all-phases", pre: PASS, post: PASS, ..CASE },
    Case {
        name: "sends-its-logs-away",
        run: "    - zuul_return: {data: {zuul: {log_url: 'https://logs.example.org/1/'}}}\n",
        ..CASE
    },
    Case { name: "fails-in-run", run: FAIL, result: "FAILURE", told: "failed on localhost (line ", ..CASE },
    Case { name: "fails-in-run-then-tidies-up", run: FAIL, post: PASS, result: "FAILURE", ..CASE },
    Case { name: "fails-in-post", post: FAIL, result: "POST_FAILURE", told: "failed on localhost", ..CASE },
    Case { name: "fails-in-run-and-post", run: FAIL, post: FAIL, result: "POST_FAILURE", ..CASE },
    Case {
        name: "times-out-in-run",
        attributes: "    timeout: 3\n",
        run: SLEEP,
        result: "TIMED_OUT",
        told: "took too long",
        ..CASE
    },
    Case {
        name: "times-out-in-run-and-fails-in-post",
        attributes: "    timeout: 3\n",
        run: SLEEP,
        post: FAIL,
        result: "TIMED_OUT",
        ..CASE
    },
    Case {
        name: "times-out-in-post",
        attributes: "    post-timeout: 3\n",
        post: SLEEP,
        result: "POST_FAILURE",
        told: "took too long",
        ..CASE
    },
    Case {
        name: "fails-in-pre",
        attributes: "    attempts: 2\n",
        pre: FAIL,
        result: "RETRY_LIMIT",
        attempts: 2,
        told: "failed on localhost",
        ..CASE
    },
    Case {
        name: "fails-in-pre-once",
        attributes: "    attempts: 3\n",
        pre: "    - assert: {that: zuul.attempts | int > 1}\n",
        attempts: 2,
        ..CASE
    },
    Case {
        name: "times-out-in-pre",
        attributes: "    attempts: 1\n    timeout: 3\n",
        pre: SLEEP,
        result: "RETRY_LIMIT",
        told: "took too long",
        ..CASE
    },
    Case {
        name: "fails-in-pre-without-retry",
        attributes: "    attempts: 3\n",
        pre: "    - zuul_return: {data: {zuul: {retry: false}}}\n    - command: 'false'\n",
        result: "FAILURE",
        ..CASE
    },
    Case { name: "fails-in-pre-and-post", pre: FAIL, post: FAIL, result: "RETRY_LIMIT", ..CASE },
    Case {
        name: "cannot-reach-its-host",
        run: "    - add_host: {name: far, ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh}\n\
              - hosts: far\n  gather_facts: false\n  tasks:\n    - command: 'true'\n",
        result: "RETRY_LIMIT",
        told: "cannot reach far",
        ..CASE
    },
    Case {
        name: "says-early-that-it-fails",
        attributes: "    failure-output: SEVERE\n",
        run: "    - command: echo SEVERE\n",
        result: "FAILURE",
        told: "failure-output",
        ..CASE
    },
    Case {
        name: "writes-too-much",
        run: "    - command: seq 100000\n",
        result: "FAILURE",
        told: "the console grew over its limit",
        ..CASE
    },
    Case {
        name: "fills-its-disk",
        run: "    - shell: head -c 90000000 /dev/zero > {{ zuul.executor.work_root }}/big; sleep 60\n",
        result: "DISK_FULL",
        told: "on disk",
        ..CASE
    },
    Case {
        name: "has-no-playbook",
        attributes: "    run: playbooks/not-there.yaml\n",
        result: "ERROR",
        told: "not-there.yaml",
        ..CASE
    },
    Case {
        name: "lacks-a-file-of-variables",
        attributes: "    include-vars: [not-there.yaml]\n",
        result: "ERROR",
        told: "not-there.yaml",
        ..CASE
    },
    Case {
        name: "asks-for-what-is-not-executed",
        attributes: "    run: [{name: playbooks/passes-run.yaml, semaphores: [lab]}]\n",
        result: "ERROR",
        told: "has semaphores (lab), which gatelog does not execute",
        ..CASE
    },
    Case {
        name: "needs-one-that-failed",
        attributes: "    dependencies: [fails-in-run]\n",
        result: "SKIPPED",
        attempts: 0,
        ..CASE
    },
    Case {
        name: "leaves-its-children-out",
        run: "    - zuul_return: {data: {zuul: {child_jobs: [other-child]}}}\n",
        ..CASE
    },
    Case {
        name: "left-out-child",
        attributes: "    dependencies: [leaves-its-children-out]\n",
        result: "SKIPPED",
        attempts: 0,
        ..CASE
    },
    Case { name: "other-child", attributes: "    dependencies: [leaves-its-children-out]\n", ..CASE },
    Case { name: "needs-one-softly", attributes: "    dependencies: [{name: left-out-child, soft: true}]\n", ..CASE },
    Case {
        name: "runs-on-nobody",
        run: "- hosts: all\n  tasks:\n    - command: 'false'\n",
        told: "WARNING: no host had a task",
        ..CASE
    },
];

/// Other projects: jobs that end each other.
const FAIL_FAST: &str = "
- job: {name: first, run: playbooks/first.yaml, attempts: 1}
- job: {name: second, run: playbooks/second.yaml, attempts: 1}
- project:
    check:
      fail-fast: true
      jobs: [first, second]
";

fn play(tasks: &str) -> String {
    if tasks.starts_with("- hosts") {
        return tasks.to_owned();
    }
    format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n{tasks}")
}

/// The project's files: all jobs with their playbooks, and `noop`.
fn files() -> Vec<(String, String)> {
    let (mut jobs, mut names, mut files) = ("- semaphore: {name: lab}\n".to_owned(), vec!["noop"], Vec::new());
    for case in CASES {
        names.push(case.name);
        jobs.push_str(&format!("- job:\n    name: {}\n{}", case.name, case.attributes));
        for (phase, tasks) in [("pre-run", case.pre), ("run", case.run), ("post-run", case.post)] {
            let written = case.attributes.starts_with(&format!("    {phase}:"));
            if !tasks.is_empty() && !written {
                let path = format!("playbooks/{}-{phase}.yaml", case.name);
                jobs.push_str(&format!("    {phase}: {path}\n"));
                files.push((path, play(tasks)));
            }
        }
    }
    jobs.push_str(&format!("- project: {{check: {{jobs: [{}]}}}}\n", names.join(", ")));
    files.push(("zuul.yaml".into(), jobs));
    files
}

fn ended(server: &crate::harness::Server, project: &str, count: usize) -> BTreeMap<String, Json> {
    eventually("all builds have ended", || {
        let builds = server.json(&format!("/api/tenant/test/builds?limit=100&project={project}"));
        let all = builds.as_array().unwrap().clone();
        let over = all.len() == count && all.iter().all(|build| !build["result"].is_null());
        over.then(|| all.into_iter().map(|build| (build["job_name"].as_str().unwrap().to_owned(), build)).collect())
    })
}

#[test]
fn every_result_comes_from_the_job_that_causes_it() {
    if !host::can_build("results of builds") {
        return;
    }
    let files = files();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (first, second) = (play(FAIL), play(SLEEP));
    let site = Site::new(&[
        ("config", &[("zuul.yaml", PIPELINES)]),
        ("project", &files),
        (
            "impatient",
            &[("zuul.yaml", FAIL_FAST), ("playbooks/first.yaml", &first), ("playbooks/second.yaml", &second)],
        ),
    ]);
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    let limits = "slots = 4\njob-disk = \"40M\"\njob-output = \"200K\"";
    site.write("gatelog.toml", &known.replace("slots = 2", limits));
    let server = site.start();
    server.wait_configured();
    site.push("project", "one", "All of them", &[("one.txt", "x\n")]);
    let builds = ended(&server, "project", CASES.len() + 1);
    assert_eq!(builds["noop"]["result"], "SUCCESS");
    for case in CASES {
        let uuid = builds[case.name]["uuid"].as_str().unwrap();
        let build = server.json(&format!("/api/tenant/test/build/{uuid}"));
        let console = server.get(&format!("/api/tenant/test/build/{uuid}/console")).map(|answer| answer.body);
        let told = format!("{} {}", build["error_detail"], console.unwrap_or_default());
        assert_eq!(build["result"], case.result, "{}: {build:#}", case.name);
        assert_eq!(build["attempts"].as_array().unwrap().len(), case.attempts, "{}: {build:#}", case.name);
        assert!(told.contains(case.told), "{}: {:?} is not told: {build:#}", case.name, case.told);
    }
    assert_eq!(builds["sends-its-logs-away"]["log_url"], "https://logs.example.org/1/");
    site.push("impatient", "one", "One of two fails", &[("one.txt", "x\n")]);
    let builds = ended(&server, "impatient", 2);
    assert_eq!((&builds["first"]["result"], &builds["second"]["result"]), (&"FAILURE".into(), &"CANCELED".into()));

    // Both add the same file; the change was made before the other was pushed.
    let clone = site.clone_of("impatient");
    site.push("impatient", "two", "Add a file", &[("file", "a\n")]);
    assert_eq!(server.wait_verdict("check", "impatient", "two"), "FAILURE", "{}", server.log());
    site.push_to_master("impatient", "Add another file of its name", &[("file", "b\n")]);
    site.git(&clone, &["checkout", "--quiet", "two"]);
    site.git(&clone, &["commit", "--quiet", "--amend", "--message", "Add a file after all"]);
    site.git(&clone, &["push", "--quiet", "--force", "origin", "HEAD:refs/for/master/two"]);
    eventually("the change conflicts", || {
        server.verdict("check", "impatient", "two").filter(|verdict| verdict == "MERGE_CONFLICT")
    });
    server.stop();
}
