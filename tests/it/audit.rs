//! A served site signs where its log stands, and the log is told what left the site; on either log, as a user does it.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use gatelog_kafka_broker::Broker;

use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PIPELINES, PROJECT};
use crate::harness::{Site, eventually, host};

/// The checkpoints of the gate that were published, oldest first.
fn checkpoints(witness: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(sites) = std::fs::read_dir(witness) else { return found };
    for site in sites.flatten() {
        if let Ok(entries) = std::fs::read_dir(site.path().join("gate-0")) {
            found.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "checkpoint"));
    found.sort();
    found
}

/// Publishes checkpoints there, every second.
fn publish_to(site: &Site, witness: &Path) {
    let toml = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{toml}\n[audit]\ncheckpoint-directory = {witness:?}\ninterval = 1\n"));
}

/// Runs the command line and wants it to succeed.
fn run(site: &Site, arguments: &[&str]) -> String {
    let (code, out, err) = site.gatelog(arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

/// The event that tells of this having left the site.
fn told(site: &Site, what: &str) -> Json {
    let told = eventually(&format!("{what} is on the log"), || {
        site.events("gate.events")
            .into_iter()
            .find(|event| event["kind"] == "gate.accessed" && event["body"]["told"]["what"] == what)
    });
    assert!(told["actor"].is_string(), "it says who: {told}");
    told
}

/// Checks an export against all of these.
fn agrees(site: &Site, export: &Path, with: &[PathBuf]) {
    let mut line = vec!["audit", "verify", export.to_str().unwrap()];
    for path in with {
        line.extend(["--checkpoint", path.to_str().unwrap()]);
    }
    let out = run(site, &line);
    assert!(out.contains(&format!("in agreement with {} outside", with.len())), "{out}");
}

/// The event up to which the newest of these signs.
fn signed(checkpoints: &[PathBuf]) -> u64 {
    let newest = std::fs::read_to_string(checkpoints.last().unwrap()).unwrap();
    newest.lines().find_map(|line| line.strip_prefix("sequence ")).unwrap().parse().unwrap()
}

/// The bytes of a log's only segment without its last frame.
fn without_last_frame(bytes: &[u8]) -> &[u8] {
    let last = bytes.windows(4).rposition(|window| window == b"GLF1").unwrap();
    &bytes[..last]
}

#[test]
fn a_served_site_publishes_where_it_stands_and_what_leaves_it_is_on_the_log() {
    if !host::can_build("audit") {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let (witness, desk) = (outside.path().join("witness"), |name: &str| outside.path().join(name));
    let site = Site::new(&[("config", &[("zuul.yaml", PIPELINES)]), ("project", &[("a.txt", "a")])]);
    publish_to(&site, &witness);
    let server = site.start();
    server.wait_configured();
    let first = eventually("a checkpoint is published", || checkpoints(&witness).pop());

    // Somebody makes an export beside the running server.
    let file = desk("all.audit");
    run(&site, &["audit", "export", "--output", file.to_str().unwrap()]);
    let sequence = told(&site, "audit-exported")["sequence"].as_u64().unwrap();
    agrees(&site, &file, &[first]);

    // Somebody takes a slice of it to report a bug, and looks at it elsewhere, without the site.
    let (slice, there) = (desk("bug.slice"), desk("there"));
    run(&site, &["log", "export", "--output", slice.to_str().unwrap(), "--from", "6"]);
    let exported = told(&site, "log-exported")["sequence"].as_u64().unwrap();
    assert!(exported > sequence);
    let notes = std::fs::read_dir(site.path().join("keys/told")).map_or(0, Iterator::count);
    assert_eq!(notes, 0, "what is on the log is not told again");
    let there = there.to_str().unwrap();
    let out = run(&site, &["log", "import", slice.to_str().unwrap(), "--dir", there]);
    assert!(out.contains("gate/0 begins after event "), "{out}");
    assert!(run(&site, &["log", "verify", "--dir", there]).contains("slice"));
    let state = run(&site, &["replay", "state", "--at", "7", "--dir", there]);
    assert_eq!(state, run(&site, &["replay", "state", "--at", "7"]), "the same state from the slice");
    let (code, _, err) = site.gatelog(&["replay", "state", "--at", "1", "--dir", there]);
    assert!(code == 3 && err.contains("slice"), "{code} {err}");
    assert!(!Path::new(there).join("keys").exists(), "no keys go with it");

    // What happened since is signed later on, at the latest when the server stops; all of it is one history.
    server.stop();
    let published = checkpoints(&witness);
    assert!(signed(&published) >= exported);
    let again = desk("again.audit");
    run(&site, &["audit", "export", "--output", again.to_str().unwrap()]);
    agrees(&site, &again, &published);

    // Somebody rolls the log back, and with it all of the site that would know better: what is outside does.
    let segment = site.path().join("log/segments/00000001.log");
    let whole = std::fs::read(&segment).unwrap();
    let mut cut = whole.clone();
    std::fs::remove_file(site.path().join("log/durable")).unwrap();
    std::fs::rename(site.path().join("projections"), desk("projections")).unwrap();
    // What the server did last of all may have come after its last signature. Without the hint a reader does not see the
    // last frame: it goes in the end.
    let seen = || site.events("gate.events").last().unwrap()["sequence"].as_u64().unwrap();
    let mut shorter = || {
        cut.truncate(without_last_frame(&cut).len());
        std::fs::write(&segment, &cut).unwrap();
    };
    while seen() >= signed(&published) {
        shorter();
    }
    shorter();
    assert_eq!(site.gatelog(&["log", "verify"]).0, 0, "by itself it is sound");
    let (code, _, err) = site.gatelog(&["serve", "--dir", site.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("the signed checkpoint") && err.contains("knows event"), "{err}");
    assert_eq!(std::fs::read(&segment).unwrap(), cut, "nothing was written to it");

    // As it was, the site starts from there.
    std::fs::write(&segment, whole).unwrap();
    let server = site.start();
    server.wait_configured();
    server.stop();
}

#[test]
fn a_log_on_kafka_is_signed_exported_and_verified_like_any_other() {
    const TEST: &str = "audit on Kafka";
    if !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let outside = tempfile::tempdir().unwrap();
    let (witness, desk) = (outside.path().join("witness"), |name: &str| outside.path().join(name));
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    publish_to(site, &witness);
    let (scheduler, executor) = kafka.start();
    scheduler.wait_configured();
    site.push("project", "good", "Good", &[("new", "1")]);
    assert_eq!(scheduler.wait_verdict("check", "project", "good"), "SUCCESS", "{}", scheduler.log());
    let first = eventually("a checkpoint is published", || checkpoints(&witness).pop());

    // Beside both processes.
    let file = desk("all.audit");
    let out = run(site, &["audit", "export", "--output", file.to_str().unwrap()]);
    assert!(out.contains("gate/0: ") && out.contains("capacity/0: "), "{out}");
    told(site, "audit-exported");
    agrees(site, &file, &[first]);
    let part = desk("part.audit");
    run(site, &["audit", "export", "--output", part.to_str().unwrap(), "--tenant", "test"]);
    let out = run(site, &["audit", "verify", part.to_str().unwrap()]);
    assert!(out.contains("nothing that was asked for is missing"), "{out}");
    executor.stop();
    scheduler.stop();

    // All that was published is of one history, and without the processes it can be signed by hand.
    let published = checkpoints(&witness);
    assert!(published.len() > 1);
    let out = run(site, &["audit", "checkpoint"]);
    assert!(out.contains("nothing has happened since"), "the process signed when it stopped: {out}");
    let again = desk("again.audit");
    run(site, &["audit", "export", "--output", again.to_str().unwrap()]);
    agrees(site, &again, &published);

    // A byte of it changed is named with its place.
    let text = std::fs::read_to_string(&again).unwrap();
    let at = text.rfind("\nevent ").unwrap() + 300;
    let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
    std::fs::write(desk("changed.audit"), format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
    let (code, _, err) = site.gatelog(&["audit", "verify", desk("changed.audit").to_str().unwrap()]);
    assert!(code == 7 && err.contains(" event "), "{code} {err}");

    // And the site starts from there: what was published is held against the topics.
    let (scheduler, executor) = kafka.start();
    scheduler.wait_configured();
    executor.stop();
    scheduler.stop();
}

/// Puts all files of a directory in the place of those of another.
fn replace_directory(with: &Path, what: &Path) {
    let _ = std::fs::remove_dir_all(what);
    std::fs::create_dir_all(what).unwrap();
    for entry in std::fs::read_dir(with).unwrap().flatten() {
        std::fs::copy(entry.path(), what.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_topic_that_was_put_back_to_an_older_copy_is_found_by_what_was_signed() {
    const TEST: &str = "a cut tail on Kafka";
    if !host::can_build(TEST) || self::broker(TEST).is_none() {
        return;
    }
    // One of its own: it is stopped, and its disk is changed.
    let mut broker = Broker::start().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (witness, desk) = (outside.path().join("witness"), |name: &str| outside.path().join(name));
    let kafka = KafkaSite::new(&broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    publish_to(site, &witness);
    let work = |name: &str| {
        let (scheduler, executor) = kafka.start();
        scheduler.wait_configured();
        site.push("project", name, name, &[("new", name)]);
        assert_eq!(scheduler.wait_verdict("check", "project", name), "SUCCESS", "{}", scheduler.log());
        scheduler.wait_idle();
        executor.stop();
        scheduler.stop();
    };
    work("one");
    let early = checkpoints(&witness).pop().unwrap();
    let topic = broker.data().join(format!("{}gate.events-0", kafka.prefix));
    broker.kill().unwrap();
    replace_directory(&topic, &desk("older"));
    broker.start_again().unwrap();
    work("two");
    let published = checkpoints(&witness);
    let late = published.last().unwrap().clone();
    assert!(signed(&published) > signed(std::slice::from_ref(&early)));
    let verify = |checkpoint: &Path| site.gatelog(&["log", "verify", "--checkpoint", checkpoint.to_str().unwrap()]);
    let (code, out, err) = verify(&late);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("checkpoint") && out.contains(&format!("gate/0 event {}", signed(&published))), "{out}");

    // Somebody puts the topic back to what it was, and with it all of the site that would know better.
    broker.kill().unwrap();
    replace_directory(&desk("older"), &topic);
    broker.start_again().unwrap();
    for process in [site.path().to_path_buf(), kafka.executor()] {
        let _ = std::fs::remove_dir_all(process.join("projections"));
    }
    assert_eq!(site.gatelog(&["log", "verify"]).0, 0, "by itself it is sound");
    assert_eq!(verify(&early).0, 0, "and goes on from what was signed before");

    let (code, out, err) = verify(&late);
    assert_eq!(code, 7, "{out}{err}");
    let knows = format!("event {}", signed(&published));
    assert!(err.contains("the checkpoint of gate/0") && err.contains(&knows), "{err}");
    let file = desk("whole.audit");
    let (code, _, err) = site.gatelog(&["audit", "export", "--output", file.to_str().unwrap()]);
    assert!(code == 7 && err.contains("its tail was cut off"), "{code} {err}");
    let (code, _, err) = site.gatelog(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("the signed checkpoint") && err.contains("knows event"), "{err}");

    // A site that hides what it published gives an auditor an export; the auditor has the checkpoint.
    let toml = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", toml.split("\n[audit]").next().unwrap());
    run(site, &["audit", "export", "--output", file.to_str().unwrap()]);
    run(site, &["audit", "verify", file.to_str().unwrap()]);
    let checkpoint = ["--checkpoint", late.to_str().unwrap()];
    let (code, out, err) = site.gatelog(&[&["audit", "verify", file.to_str().unwrap()][..], &checkpoint].concat());
    assert!(code == 7 && err.contains("tail was cut off"), "{code} {out}{err}");
}
