//! A disk that is full, under each of the things a site keeps.

use std::time::{Duration, Instant};

use super::contains;
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::room::Room;
use crate::harness::{Server, Site, eventually, host};

fn health(server: &Server) -> Option<(bool, String)> {
    let answer = server.get("/api/health")?;
    let well = answer.json()["state"] == "well";
    Some((well, answer.body))
}

/// Waits until health says what a full disk leads to, in these words, and gives it.
fn turns_yellow(site: &Site, server: &Server, words: &[&str]) -> String {
    // The last block of a file may have room for a little more: for a start, or for one change, but not for many.
    let (mut pushed, mut more) = (Instant::now(), 0);
    eventually("health turns yellow", || {
        if pushed.elapsed() > Duration::from_secs(3) {
            more += 1;
            let name = format!("more-{more}");
            site.push("project", &name, &name, &[(&format!("{name}.txt"), "a")]);
            pushed = Instant::now();
        }
        health(server).filter(|(well, body)| !well && words.iter().all(|word| body.contains(word)))
    })
    .1
}

/// What a full disk under a directory must lead to: health says so with these words; once there is
/// room the site goes on by itself, with everything that was pushed meanwhile. Of so many megabytes, some are taken by
/// something else from the beginning.
fn full(directory: &str, megabytes: u32, taken: u32, words: &[&str]) {
    let test = format!("a full disk under {directory}");
    if !host::can_build(&test) {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    // What a segment has room for already is not missed: small ones have little.
    let text = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    let small = text.replace("[log]\n", "[log]\nsegment-size = \"32K\"\n");
    assert_ne!(small, text);
    site.write("gatelog.toml", &small);
    let Some(room) = Room::new(&test, &site, directory, megabytes) else { return };
    let ballast = room.path().join("ballast");
    if taken > 0 {
        std::fs::write(&ballast, vec![0; (taken as usize) << 20]).unwrap();
    }
    let server = room.start();
    server.wait_configured();
    site.push("project", "before", "before", &[("before.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "before"), "SUCCESS", "{}", server.log());
    let position = server.get("/api/tenant/test/status").unwrap().position;

    room.fill();
    site.push("project", "during", "during", &[("during.txt", "a")]);
    if !words.is_empty() {
        println!("{test}: {}", turns_yellow(&site, &server, words));
    } else {
        eventually("it is said that there is no room", || {
            let told = room.records("gate.inputs").contains("No space left");
            (told || server.log().contains("No space left")).then_some(())
        });
    }
    // Reading goes on.
    let answer = server.get("/api/tenant/test/builds").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    contains(&answer.body, &["before"]);

    room.empty();
    let _ = std::fs::remove_file(&ballast);
    let began = Instant::now();
    let verdict = server.wait_verdict("check", "project", "during");
    let told = || server.get("/api/tenant/test/buildsets").map(|answer| answer.body);
    assert_eq!(verdict, "SUCCESS", "{:?} {}", told(), server.log());
    site.push("project", "after", "after", &[("after.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "after"), "SUCCESS", "{}", server.log());
    site.approve("project", "before");
    assert_eq!(server.wait_verdict("gate", "project", "before"), "SUCCESS", "{}", server.log());
    eventually("all is well again", || health(&server).filter(|(well, _)| *well));
    println!("{test}: went on by itself, {:.1} s after there was room", began.elapsed().as_secs_f64());
    server.wait_idle();
    assert!(server.get("/api/tenant/test/status").unwrap().position > position);
    server.stop();
    for command in [["log", "verify"], ["replay", "verify"]] {
        let (code, out, err) = room.gatelog(&command);
        assert_eq!(code, 0, "{command:?}: {out}{err}");
    }
}

#[test]
fn a_full_disk_under_the_log_and_its_blobs() {
    full("log", 16, 0, &["server-disk-full", "No space left on device", "make room"]);
}

#[test]
fn a_full_disk_under_the_blobs_alone() {
    full("log/blobs", 4, 0, &["server-disk-full", "No space left on device", "make room"]);
}

#[test]
fn a_full_disk_under_the_projections() {
    // At its start RocksDB finds too little to set aside for what it writes next, as it does on a disk that is nearly
    // full; with that, it would not notice so soon.
    full("projections", 64, 52, &["server-disk-full", "No space left on device", "make room"]);
}

#[test]
fn a_start_on_a_full_disk_says_so_and_works_once_there_is_room() {
    let test = "a start on a full disk";
    if !host::can_build(test) {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let Some(room) = Room::new(test, &site, "log", 8) else { return };
    let server = room.start();
    server.wait_configured();
    server.stop();
    room.fill();
    // It serves what it knows, and says what it cannot do.
    let server = room.start();
    println!("{test}: {}", turns_yellow(&site, &server, &["No space left on device", "make room"]));
    room.empty();
    site.push("project", "after", "after", &[("after.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "after"), "SUCCESS", "{}", server.log());
    eventually("all is well again", || health(&server).filter(|(well, _)| *well));
    server.stop();
    let (code, out, err) = room.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}
