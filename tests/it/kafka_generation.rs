//! Another number of partitions: the next generation of a log's topics, on one real Apache Kafka, as a user does it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use gatelog_kafka_broker::widen;

use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, eventually, host};

/// The command, killed at this step.
fn killed_at(site: &Site, step: &str) {
    let output = Command::new(host::binary())
        .args(["log", "repartition"])
        .env("GATELOG_DIR", site.path())
        .env("GATELOG_FAILPOINTS", step)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{step}: {said}{}", String::from_utf8_lossy(&output.stdout));
}

fn fine(site: &Site, command: &[&str]) -> String {
    let (code, out, err) = site.gatelog(command);
    assert_eq!(code, 0, "{command:?}: {out}{err}");
    out
}

/// A change goes through check and gate, and the site ends.
fn work(kafka: &KafkaSite, change: &str) {
    let (scheduler, executor) = kafka.start();
    scheduler.wait_configured();
    kafka.site.push("project", change, change, &[(change, "1")]);
    assert_eq!(scheduler.wait_verdict("check", "project", change), "SUCCESS", "{}", scheduler.log());
    kafka.site.approve("project", change);
    assert_eq!(scheduler.wait_verdict("gate", "project", change), "SUCCESS", "{}", scheduler.log());
    scheduler.wait_idle();
    let (code, _, err) = kafka.site.gatelog(&["log", "repartition"]);
    assert!(code == 5 && err.contains("stop every process"), "{code} {err}");
    eventually("the reports are delivered", || (kafka.site.verdicts("project", change).len() == 2).then_some(()));
    executor.stop();
    scheduler.stop();
}

#[test]
fn a_log_goes_on_in_new_topics_whatever_dies_while_they_are_made() {
    const TEST: &str = "a generation of topics";
    if !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    work(&kafka, "first");
    // Somebody widens a topic. Kafka has no way back.
    widen(&broker.brokers(), &format!("{}gate.events", kafka.prefix), 3).unwrap();
    let (code, _, err) = site.gatelog(&["log", "check"]);
    assert!(
        code == 1 && err.contains("gate.events has 3 partitions") && err.contains("log repartition"),
        "{code} {err}"
    );

    let before = site.events("gate.events");
    for step in ["repartition/made", "repartition/copying=2", "repartition/copying=4"] {
        killed_at(site, step);
        fine(site, &["log", "verify"]);
        assert_eq!(site.events("gate.events"), before, "{step}: the topics before still count");
    }
    // What was begun hinders nobody: the site goes on, and what it does meanwhile is copied too.
    work(&kafka, "second");
    killed_at(site, "repartition/copied");
    let whole = site.events("gate.events");
    assert!(whole.len() > before.len());

    let out = fine(site, &["log", "repartition"]);
    assert!(out.contains("generation 2 of its topics, with 1 partition each"), "{out}");
    assert!(out.contains(&format!("  {}gate.events\n", kafka.prefix)), "what is left is named: {out}");
    assert_eq!(site.events("gate.events"), whole, "every event, at the place it had");
    for command in [&["log", "verify"][..], &["replay", "verify"], &["log", "check"]] {
        fine(site, command);
    }
    assert!(broker.data().join(format!("{}gate.events.g2-0", kafka.prefix)).exists());
    assert!(broker.data().join(format!("{}gate.events-0", kafka.prefix)).exists(), "nothing was taken away");

    // The site goes on there, with what its processes had folded before, and tells what was done.
    work(&kafka, "third");
    let after = site.events("gate.events");
    assert_eq!(after[..whole.len()], whole[..]);
    let told = after.iter().find(|event| event["body"]["told"]["what"] == "log-repartitioned").unwrap();
    assert_eq!(told["body"]["told"]["detail"], "1 partition", "{told}");
    for command in [&["log", "verify"][..], &["replay", "verify"], &["log", "check"], &["explain", "first"]] {
        fine(site, command);
    }
    let out = fine(site, &["log", "repartition"]);
    assert!(out.contains("every topic has 1 partition already"), "{out}");
}

#[test]
fn a_log_that_was_made_too_wide_is_made_narrow_and_what_stands_in_the_way_is_named() {
    const TEST: &str = "a log that is too wide";
    let Some(broker) = broker(TEST) else { return };
    let kafka =
        KafkaSite::drafted(broker.brokers(), (1, 1), String::new(), &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    let toml = kafka.toml("scheduler", "common", "forge");
    let wide = toml.replace("[log.kafka]\n", "[log.kafka]\npartitions = 3\n");
    site.write("gatelog.toml", &wide);
    kafka.init();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let (code, _, err) = site.gatelog(&serve);
    assert!(code == 2 && err.contains("partitions = 1 under [log.kafka]") && err.contains("log repartition"), "{err}");
    let (code, _, err) = site.gatelog(&["log", "repartition"]);
    assert!(code == 2 && err.contains("this gatelog serves 1"), "{code} {err}");

    site.write("gatelog.toml", &toml);
    let (code, _, err) = site.gatelog(&["log", "check"]);
    assert!(code == 1 && err.contains("was created with 3 partitions, configured are 1"), "{code} {err}");
    killed_at(site, "repartition/switched");
    // It was done; only nobody was told.
    let out = fine(site, &["log", "repartition"]);
    assert!(out.contains("every topic has 1 partition already"), "{out}");
    fine(site, &["log", "check"]);
    let server = site.start();
    server.wait_configured();
    server.stop();
    fine(site, &["log", "verify"]);
}

/// A process of these roles in a directory of its own.
fn beside(kafka: &KafkaSite, name: &str, roles: &str) -> Server {
    let root = kafka.site.path();
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("gatelog.toml"), kafka.toml(name, "../common", "../forge")).unwrap();
    std::fs::copy(root.join("tenants.yaml"), dir.join("tenants.yaml")).unwrap();
    Server::launch(&dir, &["--role", roles])
}

fn signal(server: &Server, signal: &str) {
    assert!(Command::new("kill").args([signal, &server.pid().to_string()]).status().unwrap().success());
}

#[test]
fn who_slept_while_the_log_moved_writes_nothing_where_it_was() {
    const TEST: &str = "zombies of a generation of topics";
    if !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    // One decides, one only listens to the forge.
    let mut decides = beside(&kafka, "decides", "scheduler,launcher,web");
    let listens = beside(&kafka, "listens", "connections");
    eventually("the API answers", || decides.is_ready().then_some(()));
    let executor = kafka.launch_executor();
    kafka.wait_executor(&executor);
    decides.wait_configured();
    site.push("project", "first", "first", &[("first", "1")]);
    assert_eq!(decides.wait_verdict("check", "project", "first"), "SUCCESS", "{}", decides.log());
    executor.stop();

    for server in [&decides, &listens] {
        signal(server, "-STOP");
    }
    site.push("project", "late", "late", &[("late", "1")]);
    widen(&broker.brokers(), &format!("{}gate.events", kafka.prefix), 3).unwrap();
    let before = site.events("gate.events");
    let said = eventually("nobody gives a sign of life any more", || {
        let (code, out, err) = site.gatelog(&["log", "repartition"]);
        assert!(code == 0 || err.contains("gave a sign of life") && err.contains("stop every process"), "{code} {err}");
        (code == 0).then_some(out)
    });
    assert!(said.contains("generation 2 of its topics"), "{said}");

    // They go on where they were: nobody takes what they have.
    let ends = |of: &str| std::fs::metadata(broker.data().join(format!("{}{of}-0", kafka.prefix))).is_ok();
    assert!(ends("intake") && ends("intake.g2"), "both generations are there");
    for server in [&decides, &listens] {
        signal(server, "-CONT");
    }
    eventually("the listener is told where the log is", || {
        listens.log().contains("the log is in generation 2 of its topics").then_some(())
    });
    decides.stop();
    listens.stop();
    // Nothing of it is on the log.
    let told = site.events("gate.events");
    assert_eq!(told, before);
    for command in [&["log", "verify"][..], &["replay", "verify"], &["log", "check"]] {
        fine(site, command);
    }
}

#[test]
fn a_move_that_died_with_the_topics_closed_is_done_again() {
    const TEST: &str = "closed topics";
    let Some(broker) = broker(TEST) else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    widen(&broker.brokers(), &format!("{}gate.events", kafka.prefix), 2).unwrap();
    killed_at(site, "repartition/closed");
    let (code, _, err) = site.gatelog(&["log", "check"]);
    assert!(code == 1 && err.contains("it takes no inputs") && err.contains("log repartition"), "{code} {err}");
    let out = fine(site, &["log", "repartition"]);
    assert!(out.contains("generation 2 of its topics"), "{out}");
    fine(site, &["log", "check"]);
    let server = kafka.launch_scheduler();
    eventually("the new topics take inputs", || {
        site.events("gate.events").iter().any(|event| event["kind"] == "gate.tenant-configured").then_some(())
    });
    server.stop();
}
