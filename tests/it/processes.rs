//! The processes of a site: up to which level they write, who of them takes nothing new, and how they end and are
//! replaced one after the other.

mod rolling;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gatelog_event_log::Presence;
use gatelog_log_kafka::{KafkaConfig, KafkaPresence};
use serde_json::{Value as Json, json};

use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PIPELINES, PROJECT};
use crate::harness::{Server, Site, eventually, host};

/// A job that takes a while, and less than it takes to be impatient.
const SLOW: &str = r"
- job:
    name: slow
    run: playbooks/slow.yaml

- project:
    check: {jobs: [slow]}
";

const SLEEPS: &str = r"
- hosts: localhost
  gather_facts: false
  tasks:
    - command: sleep 6
";

/// Runs gatelog on the directory of a process: exit code, standard output and standard error together.
fn gatelog(directory: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(host::binary()).args(arguments).env("GATELOG_DIR", directory).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap_or(-1), format!("{out}{err}"))
}

/// The same, where all is well.
fn well(directory: &Path, arguments: &[&str]) -> String {
    let (code, said) = gatelog(directory, arguments);
    assert_eq!(code, 0, "{arguments:?}: {said}");
    said
}

/// The events of a kind.
fn of_kind(site: &Site, stream: &str, kind: &str) -> Vec<Json> {
    site.events(stream).into_iter().filter(|event| event["kind"] == kind).collect()
}

#[test]
fn the_level_of_a_site_is_shown_and_raised_once_with_who_asked_and_why() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let shown = well(site.path(), &["log", "level"]);
    for part in
        ["gate/0             0", "capacity/0         0", "knows records up to level 1", "local      connections"]
    {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    let (code, said) = gatelog(site.path(), &["log", "level", "--raise", "--to", "9", "--reason", "too early"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("cannot be raised to 9: its writer") && said.contains("upgrade it first"), "{said}");

    let said = well(site.path(), &["log", "level", "--raise", "--reason", "all have the new release"]);
    assert!(said.contains("gate/0: records up to level 1 may be written from event"), "{said}");
    assert!(said.contains("capacity/0: records up to level 1 may be written from event"), "{said}");
    for domain in ["gate", "capacity"] {
        let raised = of_kind(&site, &format!("{domain}.events"), "level-raised");
        assert_eq!(raised.len(), 1, "{domain}: {raised:?}");
        assert_eq!(raised[0]["body"]["level"], 1);
        assert_eq!(raised[0]["body"]["present"][0]["component"], "local");
        let asked = of_kind(&site, &format!("{domain}.inputs"), "in.level-raise-asked");
        assert_eq!(asked.last().unwrap()["body"]["reason"], "all have the new release");
        assert!(asked[0]["actor"].is_string(), "{asked:?}");
    }
    let said = well(site.path(), &["log", "level", "--raise"]);
    assert!(said.contains("gate/0: that is so already") && said.contains("capacity/0: that is so already"), "{said}");
    server.stop();
    let shown = well(site.path(), &["log", "level"]);
    assert!(shown.contains("gate/0             1") && shown.contains("no server runs here"), "{shown}");
    let (code, said) = gatelog(site.path(), &["log", "level", "--raise"]);
    assert_eq!(code, 6, "{said}");
    well(site.path(), &["replay", "verify"]);
}

#[test]
fn more_pages_follow_than_the_shell_lets_a_program_have_files() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let mut few = Command::new("sh");
    few.args(["-c", r#"ulimit -Sn 200 && exec "$0" "$@""#]).arg(host::binary());
    let mut server = Server::launch_by(few, site.path(), &[]);
    eventually("the server answers", || server.is_ready().then_some(()));
    server.wait_configured();
    let mut followers: Vec<BufReader<TcpStream>> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let path = "/api/tenant/test/status/stream?brief=1";
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address()).unwrap();
            BufReader::new(stream)
        })
        .collect();
    for (number, follower) in followers.iter_mut().enumerate() {
        let mut line = String::new();
        follower.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "HTTP/1.1 200 OK", "follower {number}: {}", server.log());
    }
    server.stop();
}

#[test]
fn an_older_process_keeps_the_level_from_rising_and_is_named() {
    let Some(broker) = broker("levels of several processes") else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    let mut scheduler = kafka.launch_scheduler();
    eventually("the API answers", || scheduler.is_ready().then_some(()));
    // What a process of the release before this one says of itself: nothing of levels.
    let old = json!({ "name": "old-builder", "incarnation": "i", "roles": ["merger"], "state": "running",
        "address": null, "web": null, "version": "0.0.9", "slots": 0, "started_at": 7 });
    let config = KafkaConfig {
        brokers: broker.brokers(),
        prefix: kafka.prefix.clone(),
        replication: 1,
        min_insync: 1,
        ..KafkaConfig::default()
    };
    let presence = KafkaPresence::open(config).unwrap();
    let sign = || presence.sign("old-builder", old.to_string().into_bytes()).unwrap();
    let refused = eventually("the old process is seen", || {
        sign();
        let shown = well(site.path(), &["log", "level"]);
        shown.contains("old-builder").then(|| {
            assert!(shown.contains("0.0.9") && shown.contains("does not know level 1: upgrade it"), "{shown}");
            gatelog(site.path(), &["log", "level", "--raise", "--reason", "too early"])
        })
    });
    assert_eq!(refused.0, 1, "{}", refused.1);
    let told = "the log's level cannot be raised to 1 while old-builder (gatelog 0.0.9, level 0) runs: upgrade or stop it, \
                then ask again";
    assert!(refused.1.contains("gate/0: ") && refused.1.contains(told), "{}", refused.1);
    assert_eq!(of_kind(site, "gate.events", "level-raised"), Vec::<Json>::new());

    // It is upgraded: it says goodbye and comes back as another.
    presence.withdraw("old-builder").unwrap();
    let said = eventually("nobody is there any more who does not know it", || {
        let (code, said) = gatelog(site.path(), &["log", "level", "--raise", "--reason", "the last one is upgraded"]);
        (code == 0).then_some(said)
    });
    assert!(said.contains("capacity/0: records up to level 1 may be written from event"), "{said}");
    let known: Vec<Json> =
        of_kind(site, "capacity.events", "level-raised")[0]["body"]["present"].as_array().unwrap().clone();
    assert_eq!(known.iter().map(|one| &one["component"]).collect::<Vec<_>>(), ["scheduler"]);
    presence.close();
    scheduler.stop();
}

#[test]
fn an_executor_that_is_paused_takes_nothing_new_until_it_is_resumed() {
    if !host::can_build("a paused executor") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let (code, said) = gatelog(site.path(), &["executor", "pause", "nobody", "--reason", "a slip"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("there is no executor \"nobody\"") && said.contains("there are: local"), "{said}");
    let said = well(site.path(), &["executor", "pause", "local", "--reason", "its disk is full"]);
    assert!(said.contains("executor local: takes no new builds from now on (capacity/0:"), "{said}");
    well(site.path(), &["executor", "pause", "local", "--reason", "again"]);

    site.push("project", "one", "One", &[("one.txt", "1\n")]);
    let waits = eventually("it is said what the build waits for", || {
        of_kind(&site, "capacity.events", "capacity.wait-changed").pop()
    });
    assert_eq!(waits["body"]["code"], "paused", "{waits}");
    let told = "every executor that would do is paused: local (its disk is full)";
    assert!(waits["body"]["detail"].as_str().unwrap().starts_with(told), "{waits}");
    let explained = well(site.path(), &["explain", "one"]);
    assert!(explained.contains(told), "{explained}");
    let shown = eventually("it is shown as paused", || {
        Some(well(site.path(), &["components"])).filter(|shown| shown.contains("paused by"))
    });
    let line = shown.lines().find(|line| line.starts_with("executor")).unwrap();
    assert!(line.contains("local  paused") && line.contains(": its disk is full"), "{shown}");
    let health = server.json("/api/health");
    let part = health["parts"].as_array().unwrap().iter().find(|part| part["part"] == "role executor").cloned();
    assert_eq!(part.unwrap()["state"], "paused", "{health}");

    // It outlasts a restart of whoever owns capacity, and of the executor.
    server.stop();
    let server = site.start();
    let events = well(site.path(), &["explain", "local"]);
    assert!(events.contains("executor local takes nothing new: its disk is full"), "{events}");
    assert_eq!(of_kind(&site, "capacity.events", "capacity.lease-granted"), Vec::<Json>::new());
    let said = well(site.path(), &["executor", "resume", "local", "--reason", "there is room"]);
    assert!(said.contains("takes new builds again"), "{said}");
    assert_eq!(server.wait_verdict("check", "project", "one"), "SUCCESS");

    // A merger that is paused leaves merging; where there is no other, that waits.
    well(site.path(), &["merger", "pause", "local", "--reason", "its mirrors are copied"]);
    eventually("the merger says so", || {
        let health = server.json("/api/health");
        let parts = health["parts"].as_array().unwrap().clone();
        parts.iter().any(|part| part["part"] == "role merger" && part["state"] == "paused").then_some(())
    });
    let prepared = of_kind(&site, "gate.events", "gate.prepared").len();
    site.push("project", "two", "Two", &[("two.txt", "2\n")]);
    eventually("it is to be prepared", || {
        (of_kind(&site, "gate.events", "gate.prepare-requested").len() > prepared).then_some(())
    });
    assert_eq!(of_kind(&site, "gate.events", "gate.prepared").len(), prepared);
    well(site.path(), &["merger", "resume", "local"]);
    assert_eq!(server.wait_verdict("check", "project", "two"), "SUCCESS");
    server.stop();
    well(site.path(), &["replay", "verify"]);
}

/// Waits until a job of a change runs.
fn wait_running(server: &Server, name: &str) {
    eventually("its job runs", || {
        let status = server.get("/api/tenant/test/status")?.json().to_string();
        let running = server.get("/api/components")?.json()["executor"][0]["used"] == 1;
        (running && status.contains(name)).then_some(())
    });
}

#[test]
fn a_process_that_drains_ends_its_builds_and_takes_no_new_ones() {
    if !host::can_build("draining") {
        return;
    }
    let project = [("zuul.yaml", SLOW), ("playbooks/slow.yaml", SLEEPS)];
    let site = Site::new(&[("config", &[("zuul.yaml", PIPELINES)]), ("project", &project)]);
    let server = site.start();
    server.wait_configured();
    site.push("project", "one", "One", &[("one.txt", "1\n")]);
    wait_running(&server, "one");
    // While it drains it says so, and a change that comes waits.
    let stopping = std::thread::spawn({
        let directory = site.path().to_path_buf();
        move || gatelog(&directory, &["stop", "--drain"])
    });
    eventually("it says that it drains", || {
        well(site.path(), &["components"]).contains("local  draining").then_some(())
    });
    let ready = server.get("/api/health/ready").unwrap();
    assert_eq!(ready.status, 503, "{}", ready.json());
    assert!(ready.json()["reason"].as_str().unwrap().contains("it drains"), "{}", ready.json());
    site.push("project", "two", "Two", &[("two.txt", "2\n")]);
    let (code, said) = stopping.join().unwrap();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("has ended"), "{said}");
    assert_eq!(server.ends(), 0);
    let finished = of_kind(&site, "gate.events", "gate.build-finished");
    assert_eq!(finished.len(), 1, "{finished:?}");
    assert_eq!(finished[0]["body"]["finished"]["result"], "Success", "{finished:?}");
    assert_eq!(of_kind(&site, "capacity.events", "capacity.lease-granted").len(), 1);
    let (code, said) = gatelog(site.path(), &["stop"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("no server runs in"), "{said}");

    // The other one runs with the next start; whoever has no patience gets it back after a while.
    let server = site.start();
    wait_running(&server, "two");
    let (code, said) = gatelog(site.path(), &["stop", "--drain", "--within", "1"]);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("was stopped at once"), "{said}");
    assert_eq!(server.ends(), 0);

    // SIGTERM drains where that is said; the build it was stopped in begins again.
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{known}[stop]\nsigterm-method = \"graceful\"\n"));
    let server = site.start();
    wait_running(&server, "two");
    server.stop();
    let finished = of_kind(&site, "gate.events", "gate.build-finished");
    let results: Vec<(u64, String)> = finished
        .iter()
        .map(|event| &event["body"]["finished"])
        .map(|of| (of["attempt"].as_u64().unwrap(), of["result"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(results.last().unwrap(), &(2, "Success".to_owned()), "{results:?}");
    let server = site.start();
    assert_eq!(server.wait_verdict("check", "project", "two"), "SUCCESS");
    eventually("it is reported", || (!site.verdicts("project", "two").is_empty()).then_some(()));
    assert_eq!(site.verdicts("project", "one"), ["check:success"]);
    assert_eq!(site.verdicts("project", "two"), ["check:success"]);
    server.stop();

    // With nothing to end it still answers for a while, that load balancers see it go.
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{known}drain-at-least = 3\n"));
    let server = site.start();
    let is_ready = |server: &Server| server.get("/api/health/ready").is_some_and(|answer| answer.status == 200);
    eventually("it is ready", || is_ready(&server).then_some(()));
    let stopping = std::thread::spawn({
        let directory = site.path().to_path_buf();
        move || gatelog(&directory, &["stop", "--drain"])
    });
    eventually("it is not ready any more", || {
        server.get("/api/health/ready").and_then(|answer| (answer.status == 503).then_some(()))
    });
    assert_eq!(stopping.join().unwrap().0, 0);
    assert_eq!(server.ends(), 0);
    well(site.path(), &["log", "verify"]);
}
