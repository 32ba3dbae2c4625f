//! A running site is backed up; its disk is lost; it goes on from the backup.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;

use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, eventually, host};

fn run(site: &Site, arguments: &[&str]) -> String {
    let (code, out, err) = site.gatelog(arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

/// A change is pushed, tested and merged.
fn merge(site: &Site, server: &Server, name: &str) {
    let file = format!("{name}.txt");
    site.push("project", name, name, &[(&file, "x")]);
    assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS");
    site.approve("project", name);
    assert_eq!(server.wait_verdict("gate", "project", name), "SUCCESS");
}

/// Everything of the site but its configuration, its forge and its developers, taken from the backup.
fn restore(site: &Site, backup: &Path, lost: &[&str]) {
    for name in lost {
        let _ = std::fs::remove_dir_all(site.path().join(name));
    }
    let copied = Command::new("cp").arg("-a").arg(backup.join(".")).arg(site.path()).status().unwrap();
    assert!(copied.success());
}

/// What was told of on the log under this code, once it was told so often.
fn told(site: &Site, what: &str, times: usize) -> Vec<Json> {
    eventually(&format!("{what} is told {times} times"), || {
        let told = site.events("gate.events").into_iter().filter(|event| event["kind"] == "gate.accessed");
        let told = told.map(|event| event["body"]["told"].clone()).filter(|told| told["what"] == what);
        Some(told.collect::<Vec<_>>()).filter(|all| all.len() == times)
    })
}

fn told_one(site: &Site, what: &str) -> Json {
    told(site, what, 1).remove(0)
}

#[test]
fn a_site_is_backed_up_while_it_runs_and_goes_on_from_the_backup_after_its_disk_was_lost() {
    if !host::can_build("backup") {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let backup = outside.path().join("backup");
    let to = backup.to_str().unwrap();
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    merge(&site, &server, "first");

    // Twice: the second time only what is new is copied, while a build runs.
    let out = run(&site, &["backup", "--to", to]);
    assert!(out.contains("gate.events/0"), "{out}");
    site.push("project", "second", "second", &[("second.txt", "x")]);
    eventually("its build runs", || {
        let builds = server.json("/api/tenant/test/builds?pipeline=check");
        builds.as_array().unwrap().iter().any(|build| build["result"].is_null()).then_some(())
    });
    let out = run(&site, &["backup", "--to", to, "--json"]);
    let done: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(done["there"].as_u64().unwrap() > 0 && done["copied"].as_u64().unwrap() > 0, "{out}");
    assert!(run(&site, &["log", "verify", "--dir", to]).contains("gate.events"));
    let private = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert_eq!(private(&backup.join("operator.key")), 0, "a key in it is as private as the site's");
    assert!(!backup.join("projections").exists() && !backup.join("connections").exists());

    let backed_up = told(&site, "site-backed-up", 2);
    let place = backup.canonicalize().unwrap();
    assert!(backed_up.iter().all(|one| one["detail"] == place.to_str().unwrap()), "{backed_up:?}");

    // What is no place for a backup.
    let occupied = outside.path().join("occupied");
    std::fs::create_dir(&occupied).unwrap();
    std::fs::write(occupied.join("thesis.txt"), "precious").unwrap();
    let (code, _, err) = site.gatelog(&["backup", "--to", occupied.to_str().unwrap()]);
    assert!(code == 1 && err.contains("neither empty nor a backup"), "{code} {err}");
    let inside = site.path().join("copy");
    let (code, _, err) = site.gatelog(&["backup", "--to", inside.to_str().unwrap()]);
    assert!(code == 2 && err.contains("one inside the other"), "{code} {err}");

    // The site goes on; then its disk is lost, but for its projections.
    assert_eq!(server.wait_verdict("check", "project", "second"), "SUCCESS");
    merge(&site, &server, "later");
    site.push("project", "open", "open", &[("open.txt", "x")]);
    assert_eq!(server.wait_verdict("check", "project", "open"), "SUCCESS");
    let (code, _, err) = site.gatelog(&["log", "adopt", "--reason", "by mistake"]);
    assert!(code == 5 && err.contains("stop it"), "{code} {err}");
    server.stop();
    let lost = ["log", "keys", "logs", "builds", "mirrors"];
    restore(&site, &backup, &lost);
    let (code, _, err) = site.gatelog(&["serve"]);
    assert!(code == 7 && err.contains("gatelog log adopt"), "{code} {err}");

    let out = run(&site, &["log", "adopt", "--reason", "the disk of Monday"]);
    assert!(out.contains("generation 2") && out.contains("projections"), "{out}");
    let server = site.start();
    server.wait_configured();
    let restored = site.events("gate.events").into_iter().find(|event| event["kind"] == "log-restored").unwrap();
    assert_eq!(restored["body"]["generation"], 2, "{restored}");
    let adopted = told_one(&site, "log-adopted");
    assert!(adopted["detail"] == "the disk of Monday" && adopted["subject"] == "generation 2", "{adopted}");
    // What was under way at the backup ends, and what came in after it is known again without anybody's doing.
    assert_eq!(server.wait_verdict("check", "project", "second"), "SUCCESS");
    assert_eq!(server.wait_verdict("check", "project", "open"), "SUCCESS");
    merge(&site, &server, "after");
    server.wait_idle();
    assert_eq!(site.merged("project"), ["First", "first", "later", "after"], "nothing is merged twice");
    run(&site, &["log", "verify"]);
    // The next backup is of another history, and is not written over the one before.
    let (code, _, err) = site.gatelog(&["backup", "--to", to]);
    assert!(code == 1 && err.contains("generation 1"), "{code} {err}");
    let next = outside.path().join("next");
    run(&site, &["backup", "--to", next.to_str().unwrap()]);
    server.stop();
}

#[test]
fn of_a_site_on_kafka_all_but_its_topics_is_backed_up_and_its_log_is_adopted() {
    if !host::can_build("backup on Kafka") {
        return;
    }
    let Some(broker) = broker("backup on Kafka") else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    // What the hosts share lies outside the directory of any process.
    let outside = tempfile::tempdir().unwrap();
    let shared = outside.path().join("shared");
    let shared = shared.to_str().unwrap();
    site.write("gatelog.toml", &kafka.toml("scheduler", shared, "forge"));
    site.write("executor/gatelog.toml", &kafka.toml("executor", shared, "../forge"));
    let (scheduler, executor) = kafka.start();
    scheduler.wait_configured();
    merge(site, &scheduler, "first");

    let backup = outside.path().join("backup");
    let out = run(site, &["backup", "--to", backup.to_str().unwrap()]);
    assert!(out.contains("copy its topics BEFORE"), "{out}");
    let files = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    assert!(backup.join("shared/keys/master.key").exists() && files(&backup.join("shared/blobs")) > 0);
    assert!(!backup.join("log").exists() && !backup.join("shared/connections").exists());
    told(site, "site-backed-up", 1);
    executor.stop();
    scheduler.stop();

    // The shared disk is lost, and what of the topics was copied elsewhere is put back: here, all of it.
    std::fs::remove_dir_all(shared).unwrap();
    let copied = Command::new("cp").arg("-a").arg(backup.join("shared")).arg(shared).status().unwrap();
    assert!(copied.success());
    let out = run(site, &["log", "adopt", "--reason", "the disk of Monday"]);
    assert!(out.contains("generation 2"), "{out}");
    let (scheduler, executor) = kafka.start();
    scheduler.wait_configured();
    // What is shown until the partition is claimed again is what was there before.
    let restored = eventually("what was restored is told of", || {
        site.events("gate.events").into_iter().find(|event| event["kind"] == "log-restored")
    });
    assert_eq!(restored["body"]["generation"], 2, "{restored}");
    assert_eq!(told_one(site, "log-adopted")["detail"], "the disk of Monday");
    merge(site, &scheduler, "after");
    assert_eq!(site.merged("project"), ["First", "first", "after"], "nothing is merged twice");
    run(site, &["log", "verify"]);
    executor.stop();
    scheduler.stop();
}
