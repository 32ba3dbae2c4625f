//! The same site with its log on one real Apache Kafka, in two processes.

use std::process::Command;

use serde_json::Value as Json;

use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, eventually, host, process};

#[test]
fn the_story_goes_as_told_on_kafka_and_leaves_nothing_behind() {
    if !host::can_build("the story on Kafka") {
        return;
    }
    let Some(broker) = broker("the story on Kafka") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(host::binary())
        .args(["demo", "--headless", "--json", "--kafka", &broker.brokers()])
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome: Json = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(outcome["problems"], serde_json::json!([]), "{outcome:#}");
    assert_eq!(outcome["ok"], true);
    assert_eq!(outcome["merge_order"], serde_json::json!(["add-miles", "show-miles"]));
    assert!(output.status.success());
    let show_miles =
        outcome["changes"].as_array().unwrap().iter().find(|change| change["name"] == "show-miles").unwrap();
    assert_eq!(show_miles["gate"], "SUCCESS");
    let attempts: Vec<_> = outcome["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap().to_owned(), one["attempts"].as_u64().unwrap()))
        .collect();
    assert_eq!(attempts[0], ("scheduler".to_owned(), 0));
    assert!(attempts[1].0 == "executor" && attempts[1].1 >= 6, "{attempts:?}");
    println!(
        "on Kafka: the first job ran after {} ms, the story took {} ms, {} events",
        outcome["first_job_ms"], outcome["story_ms"], outcome["events"]
    );
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert_eq!(process::processes_of(scratch.path()), Vec::<String>::new());
    let topics: Vec<_> = std::fs::read_dir(broker.data())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        // A broker deletes what it was told to delete a little later.
        .filter(|name| name.starts_with("gatelog-demo-") && !name.ends_with("-delete"))
        .collect();
    assert!(topics.is_empty(), "topics left behind: {topics:?}");
}

fn builds(scheduler: &Server) -> Vec<Json> {
    scheduler.json("/api/tenant/test/builds?limit=1000").as_array().unwrap().clone()
}

/// `log verify`, `replay verify` and `log check` find nothing.
fn clean(kafka: &KafkaSite) {
    for command in [["log", "verify"], ["replay", "verify"], ["log", "check"]] {
        let (code, out, err) = kafka.site.gatelog(&command);
        assert_eq!(code, 0, "{command:?}: {out}{err}");
    }
}

#[test]
fn one_process_decides_and_another_builds_and_either_may_die() {
    if !host::can_build("two processes on Kafka") {
        return;
    }
    let Some(broker) = broker("two processes on Kafka") else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    let (code, out, err) = site.gatelog(&["log", "init"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("found") && !out.contains("created"), "a second time makes nothing: {out}");

    let (mut scheduler, mut executor) = kafka.start();
    scheduler.wait_configured();
    site.push("project", "good", "Good", &[("new", "1")]);
    site.push("project", "bad", "Bad", &[("verdict", "bad\n")]);
    assert_eq!(scheduler.wait_verdict("check", "project", "good"), "SUCCESS");
    assert_eq!(scheduler.wait_verdict("check", "project", "bad"), "FAILURE");
    site.approve("project", "good");
    assert_eq!(scheduler.wait_verdict("gate", "project", "good"), "SUCCESS");
    scheduler.wait_idle();

    // Outside: the branch has it, once, and both changes have their reports.
    assert_eq!(site.reflog("project").len(), 2);
    eventually("the reports are delivered", || (site.verdicts("project", "good").len() == 2).then_some(()));
    assert_eq!(site.verdicts("project", "good"), ["check:success", "gate:success"]);
    assert_eq!(site.verdicts("project", "bad"), ["check:failure"]);

    // The other process ran the builds; their consoles come through the API, and links lead to its page.
    let ran = builds(&scheduler);
    assert_eq!(ran.len(), 3);
    for build in &ran {
        let uuid = build["uuid"].as_str().unwrap();
        assert_eq!(build["attempts"][0]["worker"], "executor", "{build:#}");
        assert!(kafka.executor().join("logs").join(uuid).exists() && !site.path().join("logs").exists());
        let console = scheduler.get(&format!("/api/tenant/test/build/{uuid}/console")).unwrap();
        assert_eq!(console.status, 200, "{}", console.body);
        assert!(console.body.contains("The file says good"), "{}", console.body);
        let page = build["log_url"].as_str().unwrap().to_owned();
        assert!(page.ends_with(&format!("/t/test/build/{uuid}")), "{page}");
        assert!(scheduler.get(&page[page.find("/t/").unwrap()..]).is_some_and(|answer| answer.status == 200));
    }
    let health = scheduler.get("/api/health").map(|answer| answer.body).unwrap_or_default();
    assert!(health.contains("role executor") && health.contains("present"), "{health}");

    // Who is asked for a console and is gone is named; nobody waits for ever.
    let uuid = ran[0]["uuid"].as_str().unwrap().to_owned();
    executor.kill_now();
    let console = scheduler.get(&format!("/api/tenant/test/build/{uuid}/console"));
    assert!(console.is_none_or(|answer| !answer.body.contains("The file says good")));

    // Either dies and comes back; nothing is lost, nothing done twice.
    site.push("project", "second", "Second", &[("second", "1")]);
    scheduler.kill_now();
    let (again, working) = kafka.start();
    assert_eq!(again.wait_verdict("check", "project", "second"), "SUCCESS");
    site.approve("project", "second");
    scheduler = again;
    executor = working;
    assert_eq!(scheduler.wait_verdict("gate", "project", "second"), "SUCCESS");
    scheduler.wait_idle();
    eventually("the reports are delivered", || (site.verdicts("project", "second").len() == 2).then_some(()));
    assert_eq!(site.reflog("project").len(), 3);

    // Beside both and without them, commands read the log.
    let (code, out, err) = site.gatelog(&["explain", "second"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("SUCCESS"), "{out}");
    clean(&kafka);
    executor.stop();
    scheduler.stop();
    let (code, out, err) = site.gatelog(&["status"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("no server runs here"), "{out}");
    clean(&kafka);
    assert_eq!(process::processes_of(site.path()), Vec::<String>::new());
}

#[test]
fn of_two_schedulers_the_later_goes_on_and_the_earlier_ends() {
    if !host::can_build("two schedulers on Kafka") {
        return;
    }
    let Some(broker) = broker("two schedulers on Kafka") else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    let (first, executor) = kafka.start();
    first.wait_configured();
    site.push("project", "one", "One", &[("one", "1")]);
    assert_eq!(first.wait_verdict("check", "project", "one"), "SUCCESS");
    first.wait_idle();

    // It has nothing to do when the second one comes, and must notice all the same.
    let other = site.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("gatelog.toml"), kafka.toml("other", "../common", "../forge")).unwrap();
    std::fs::copy(site.path().join("tenants.yaml"), other.join("tenants.yaml")).unwrap();
    let mut second = Server::launch(&other, &["--role", crate::harness::kafka::SCHEDULER]);
    let said = site.path().join("server.log");
    assert_eq!(first.ends(), 9);
    let said = std::fs::read_to_string(said).unwrap();
    assert!(said.contains("another process has taken over"), "{said}");

    eventually("the second scheduler answers", || second.is_ready().then_some(()));
    second.wait_configured();
    site.approve("project", "one");
    assert_eq!(second.wait_verdict("gate", "project", "one"), "SUCCESS");
    assert_eq!(site.reflog("project").len(), 2);
    executor.stop();
    second.stop();
    clean(&kafka);
}

/// What `gatelog serve` says of a configuration, with these arguments: exit code and standard error.
fn refused(toml: &str, arguments: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("gatelog.toml"), toml).unwrap();
    std::fs::write(dir.path().join("tenants.yaml"), "- tenant:\n    name: test\n").unwrap();
    let output =
        Command::new(host::binary()).args(["serve", "--dir"]).arg(dir.path()).args(arguments).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_configuration_that_cannot_be_is_refused_with_its_cure() {
    let kafka = "[log.kafka]\nbrokers = \"127.0.0.1:9\"\n";
    let shared = "[shared]\ndir = \"shared\"\n";
    let cases = [
        (kafka.to_owned(), vec![], 2, "set dir under [shared]"),
        ("[log.kafka]\nbroker = \"x\"\n".to_owned(), vec![], 2, "unknown field `broker`"),
        (format!("{kafka}replication = 1\n{shared}"), vec![], 2, "min-insync"),
        (String::new(), vec!["--role", "web"], 2, "leave out --role, or move the log to Kafka"),
        (String::new(), vec!["--role", "webb"], 2, "possible values"),
        (
            format!("{kafka}[log.kafka.properties]\nacks = \"0\"\n{shared}"),
            vec![],
            2,
            "the property acks cannot be set",
        ),
    ];
    for (toml, arguments, code, cure) in cases {
        let toml = format!("{toml}[executor]\nslots = 1\n");
        let (found, said) = refused(&toml, &arguments);
        assert_eq!(found, code, "{toml}\n{said}");
        assert!(said.contains(cure), "{cure:?} is missing in:\n{said}");
    }
}

#[test]
fn a_log_that_is_not_there_or_too_wide_is_refused_with_its_cure() {
    let Some(broker) = broker("logs that are refused") else { return };
    let toml = |prefix: &str| {
        format!(
            "[web]\nlisten = \"127.0.0.1:0\"\n[log.kafka]\nbrokers = \"{}\"\nprefix = \"{prefix}-{}.\"\n\
             replication = 1\nmin-insync = 1\npartitions = 3\n[shared]\ndir = \"shared\"\n",
            broker.brokers(),
            std::process::id()
        )
    };
    let (code, said) = refused(&toml("missing"), &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("gatelog log init"), "{said}");

    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("gatelog.toml"), toml("wide")).unwrap();
    let check = |arguments: &[&str]| {
        let output = Command::new(host::binary()).args(arguments).arg("--dir").arg(dir.path()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), format!("{out}{err}"))
    };
    let (code, said) = check(&["log", "check", "--json"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("\"missing-topic\"") && said.contains("gatelog log init"), "{said}");
    let (code, said) = check(&["log", "init"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = refused(&toml("wide"), &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("has 3 partitions, this gatelog serves 1"), "{said}");
}

#[test]
fn brokers_that_do_not_answer_are_named() {
    let toml = "[web]\nlisten = \"127.0.0.1:0\"\n[log.kafka]\nbrokers = \"127.0.0.1:9\"\nreplication = 1\n\
                min-insync = 1\n[shared]\ndir = \"shared\"\n";
    let (code, said) = refused(toml, &[]);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("127.0.0.1:9"), "{said}");
}
