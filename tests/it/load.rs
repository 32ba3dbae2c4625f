//! Many builds at once, each with many followers of its console, and the executor killed in the middle of them. Eight
//! builds with eighty followers; `GATELOG_FAULTS=long` has fifty with five hundred.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::harness::process::{processes_of, running_of};
use crate::harness::projects::PIPELINES;
use crate::harness::{Server, Site, eventually, host};

/// Followers of each console.
const FOLLOWERS: usize = 10;

/// The first attempt talks until it is ended, the second for some seconds.
const TALK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: for i in $(seq {{ 4000 if zuul.attempts | int == 1 else 20 }}); do echo "line $i of {{ zuul.job }}"; sleep 0.25; done
"#;

fn builds_at_once() -> usize {
    if std::env::var("GATELOG_FAULTS").is_ok_and(|wanted| wanted == "long") { 50 } else { 8 }
}

/// Reads a console to its end, from its first byte on, as soon as there is one.
fn follow(address: &str, build: &str, attempt: usize) -> String {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(600) {
        let path = format!("/api/tenant/test/build/{build}/console?follow=true&attempt={attempt}");
        let mut answer = Vec::new();
        if let Ok(mut stream) = TcpStream::connect(address) {
            let asked = write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
            // A server that is killed ends the answer; what came before it counts.
            let _ = asked.and_then(|()| stream.read_to_end(&mut answer));
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        if head.split(' ').nth(1) == Some("200") {
            return body.to_owned();
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    String::new()
}

type Followed = Vec<(String, JoinHandle<String>)>;

/// Followers of an attempt of every build.
fn follow_all(server: &Server, builds: &BTreeMap<String, Json>, attempt: usize) -> Followed {
    let mut followed = Vec::new();
    for build in builds.values() {
        for _ in 0..FOLLOWERS {
            let (address, uuid) = (server.address().to_owned(), build["uuid"].as_str().unwrap().to_owned());
            let name = uuid.clone();
            let thread = Builder::new().stack_size(256 << 10).spawn(move || follow(&address, &uuid, attempt));
            followed.push((name, thread.unwrap()));
        }
    }
    followed
}

/// The builds by job, once so many are as wanted.
fn builds(server: &Server, count: usize, what: &str, wanted: impl Fn(&Json) -> bool) -> BTreeMap<String, Json> {
    eventually(what, || {
        let builds = server.json("/api/tenant/test/builds?limit=100");
        let all = builds.as_array().unwrap().clone();
        let found: BTreeMap<String, Json> = all
            .into_iter()
            .filter(&wanted)
            .map(|build| (build["job_name"].as_str().unwrap().to_owned(), build))
            .collect();
        (found.len() == count).then_some(found)
    })
}

/// The console of an attempt, and whether it has such a line.
fn console(server: &Server, build: &str, attempt: usize) -> String {
    let answer = server.get(&format!("/api/tenant/test/build/{build}/console?attempt={attempt}"));
    answer.filter(|answer| answer.status == 200).map(|answer| answer.body).unwrap_or_default()
}

#[test]
fn many_builds_with_many_followers_survive_the_death_of_their_executor() {
    if !host::can_build("many builds at once") {
        return;
    }
    let count = builds_at_once();
    let jobs: Vec<String> = (0..count).map(|number| format!("talk-{number}")).collect();
    let mut yaml: String =
        jobs.iter().map(|job| format!("- job: {{name: {job}, run: playbooks/talk.yaml, timeout: 900}}\n")).collect();
    yaml.push_str(&format!("- project: {{check: {{jobs: [{}]}}}}\n", jobs.join(", ")));
    let site = Site::new(&[
        ("config", &[("zuul.yaml", PIPELINES)]),
        ("project", &[("zuul.yaml", &yaml), ("playbooks/talk.yaml", TALK)]),
    ]);
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    let streams = format!("[web]\nstreams = {}\n", count * FOLLOWERS + 20);
    site.write("gatelog.toml", &known.replace("[web]\n", &streams).replace("slots = 2", &format!("slots = {count}")));

    let mut server = site.start();
    server.wait_configured();
    let began = Instant::now();
    site.push("project", "one", "All at once", &[("one.txt", "x\n")]);
    let started = builds(&server, count, "all builds have begun", |build| !build["start_time"].is_null());
    let followed = follow_all(&server, &started, 1);
    for build in started.values() {
        let uuid = build["uuid"].as_str().unwrap();
        let line = format!("line 3 of {}", build["job_name"].as_str().unwrap());
        eventually("each of them talks", || console(&server, uuid, 1).contains(&line).then_some(()));
    }
    println!("{count} builds talk at once after {} s", began.elapsed().as_secs());
    // What had been said by now is read by everybody.
    let said: BTreeMap<String, String> = started
        .values()
        .map(|build| build["uuid"].as_str().unwrap().to_owned())
        .map(|uuid| (uuid.clone(), console(&server, &uuid, 1)))
        .collect();
    let memory = server.most_memory() >> 20;
    server.kill_now();

    let first: Vec<(String, String)> =
        followed.into_iter().map(|(uuid, thread)| (uuid, thread.join().unwrap())).collect();
    let server = site.start();
    let second = follow_all(&server, &started, 2);
    let done = builds(&server, count, "all builds have ended", |build| !build["result"].is_null());
    for build in done.values() {
        let uuid = build["uuid"].as_str().unwrap();
        let entry = server.json(&format!("/api/tenant/test/build/{uuid}"));
        let results: Vec<&str> =
            entry["attempts"].as_array().unwrap().iter().filter_map(|attempt| attempt["result"].as_str()).collect();
        assert_eq!((build["result"].as_str(), results), (Some("SUCCESS"), vec!["ABORTED", "SUCCESS"]), "{entry:#}");
    }
    for (uuid, text) in &first {
        let kept = console(&server, uuid, 1);
        assert!(kept.starts_with(&said[uuid]), "what was shown of {uuid} is kept");
        // A follower may lack what came in the last moment, and nothing before it.
        assert!(kept.starts_with(text.as_str()) && text.len() + 4096 >= said[uuid].len(), "{uuid}: {text}");
    }
    for (uuid, thread) in second {
        let text = thread.join().unwrap();
        assert!(text.contains("line 20 of") && text == console(&server, &uuid, 2), "{uuid}: {text}");
    }
    println!(
        "{count} builds, {} followers: all ended after {} s, the server's memory at most {memory} MiB",
        count * FOLLOWERS,
        began.elapsed().as_secs()
    );
    server.wait_idle();
    let left: Vec<_> = std::fs::read_dir(site.path().join("builds/builds")).unwrap().flatten().collect();
    assert!(left.is_empty(), "directories of builds are left: {left:?}");
    let pid = server.pid();
    // The fork server holds nothing of a build, and ends with its gatelog.
    let is_of_server = |one: &String| one.starts_with(&format!("{pid} ")) || one.contains("gatelog_playbook.py serve");
    let running: Vec<String> = running_of(site.path()).into_iter().filter(|one| !is_of_server(one)).collect();
    assert!(running.is_empty(), "processes of builds are left: {running:#?}");
    server.stop();
    eventually("nothing of the site runs", || processes_of(site.path()).is_empty().then_some(()));
}
