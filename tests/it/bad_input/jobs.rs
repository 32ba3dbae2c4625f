//! Jobs that do not end, and jobs that want everything.

use super::contains;
use crate::harness::projects::{CONFIG, JOBS, PROJECT};
use crate::harness::{Site, eventually, host, process};

/// A project of which each change may bring its own job's task.
fn change(task: &str, attributes: &str) -> [(&'static str, String); 2] {
    let jobs =
        format!("{JOBS}\n- job:\n    name: hostile\n    run: playbooks/hostile.yaml\n    attempts: 1\n{attributes}")
            .replace("jobs: [verdict]", "jobs: [hostile]");
    let playbook = format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - name: Hostile\n      {task}\n");
    [("zuul.yaml", jobs), ("playbooks/hostile.yaml", playbook)]
}

/// What it is called, its task, its job's attributes, how it may end, and what its detail then says.
type Hostile = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

/// Whether the kernel refuses a build more processes than it may have, by what `gatelog doctor` says: where only a watch
/// looks every so often, a bomb that doubles takes the host with it.
fn wall(site: &Site) -> Result<(), String> {
    let arguments = ["doctor", "--role", "executor", "--json"];
    let output = std::process::Command::new(host::binary()).args(arguments).arg("--dir").arg(site.path()).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("doctor said {text:?}: {error}"))?;
    let findings = said["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    match findings.iter().find(|finding| finding["check"] == "processes") {
        Some(finding) if finding["level"] == "ok" => Ok(()),
        Some(finding) => Err(finding["found"].to_string()),
        None => Err("doctor says nothing of processes".into()),
    }
}

#[test]
fn hostile_jobs_fail_with_a_plain_reason_and_the_queue_goes_on() {
    if !host::can_build("hostile jobs") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let toml = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write(
        "gatelog.toml",
        &toml.replace("slots = 2\n", "slots = 3\njob-memory = \"400M\"\njob-pids = 100\njob-disk = \"50M\"\n"),
    );
    let server = site.start();
    server.wait_configured();
    // A playbook that never ends; a fork bomb that doubles; a memory bomb; a disk bomb.
    let mut hostile: Vec<Hostile> = vec![
        ("endless", "command: sleep infinity", "    timeout: 5\n", &["TIMED_OUT"], &["timed_out"]),
        (
            "forks",
            "shell: 'bomb() { bomb | bomb & }; bomb; sleep 60'",
            "    timeout: 60\n",
            &["FAILURE", "ERROR", "TIMED_OUT"],
            &["limit is 100"],
        ),
        (
            "memory",
            "command: python3 -c 'x = [bytearray(1 << 24) for _ in range(1 << 20)]'",
            "    timeout: 60\n",
            &["FAILURE", "ERROR"],
            &["limit is 400 mib"],
        ),
        (
            "disk",
            "shell: dd if=/dev/zero of={{ zuul.executor.work_root }}/big bs=1M count=100000; sleep 60",
            "    timeout: 60\n",
            &["DISK_FULL"],
            &["limit is 50 mib"],
        ),
    ];
    if let Err(why) = wall(&site) {
        println!("SKIPPED a fork bomb that doubles: {why}");
        hostile.retain(|(name, ..)| *name != "forks");
    }
    for (name, task, attributes, ..) in &hostile {
        let files = change(task, attributes);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (*path, content.as_str())).collect();
        site.push("project", name, name, &files);
    }
    // A good build beside them, and one behind them.
    site.push("project", "good", "good", &[("a.txt", "a")]);
    for (name, _, _, results, words) in &hostile {
        assert_eq!(server.wait_verdict("check", "project", name), "FAILURE", "{name}: {}", server.log());
        let builds = server.json(&format!("/api/tenant/test/builds?change=master/{name}"));
        let result = builds[0]["result"].as_str().unwrap_or_default();
        assert!(results.contains(&result), "{name}: {builds:#}");
        let detail = builds[0]["error_detail"].as_str().unwrap_or_default();
        let detail = format!("{result}: {detail}").to_lowercase();
        println!("{name}: {detail}");
        assert!(words.iter().any(|word| detail.contains(word)), "{name} is told as {detail:?}");
        let report = eventually("the report is delivered", || site.reports("project", name).into_iter().next());
        contains(&report.text, &["hostile", result]);
    }
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS", "{}", server.log());
    // And through the gate.
    site.approve("project", "good");
    assert_eq!(server.wait_verdict("gate", "project", "good"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    server.stop();
    assert_eq!(process::processes_of(site.path()), Vec::<String>::new());
}
