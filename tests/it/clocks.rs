//! The machine's clock is set, back and far ahead, while a site works and while it is down: nothing waits for that, what
//! builds took is told truly, nothing that is kept is removed, and operators are told.

use serde_json::Value as Json;

use crate::harness::clock::Clock;
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, eventually, host};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Longer than any build of this test may take, in seconds.
const LONG: f64 = 250.0;

const SLOW_JOBS: &str = r"
- job: {name: slow, run: playbooks/slow.yaml}
- project: {check: {jobs: [slow]}}
";

const SLOW: &str = "
- hosts: localhost
  gather_facts: false
  tasks:
    - command: sleep 15
";

fn site() -> Site {
    let slow = [("zuul.yaml", SLOW_JOBS), ("playbooks/slow.yaml", SLOW)];
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT), ("slow", &slow)]);
    let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{settings}[job-logs]\nkeep-days = 30\n"));
    site
}

/// A change is proposed and approved, and merged.
fn change(site: &Site, server: &Server, name: &str) {
    let began = std::time::Instant::now();
    site.push("project", name, name, &[(&format!("{name}.txt"), "x")]);
    assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS", "{name}: {}", server.log());
    site.approve("project", name);
    assert_eq!(server.wait_verdict("gate", "project", name), "SUCCESS", "{name}: {}", server.log());
    eventually("the change is merged", || site.merged("project").iter().any(|merged| merged == name).then_some(()));
    server.wait_idle();
    println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
}

/// What health says of the clock.
fn told_of_clock(server: &Server) -> Option<String> {
    let health = server.json("/api/health");
    let parts = health["parts"].as_array().unwrap();
    let clock = parts.iter().find(|part| part["part"] == "clock")?;
    assert_eq!((&clock["well"], &clock["state"]), (&Json::Bool(false), &Json::from("yellow")), "{clock}");
    Some(clock["detail"].as_str().unwrap().to_owned())
}

/// All builds so far, each with a duration that can be true.
fn builds(server: &Server) -> Vec<Json> {
    let builds = server.json("/api/tenant/test/builds?limit=100").as_array().unwrap().clone();
    for build in &builds {
        let took = build["duration"].as_f64().unwrap_or_else(|| panic!("no duration: {build}"));
        assert!((0.0..LONG).contains(&took), "it took {took} s: {build}");
    }
    builds
}

/// The logs of all builds are there.
fn all_kept(server: &Server, builds: &[Json]) {
    for build in builds {
        let uuid = build["uuid"].as_str().unwrap();
        let answer = server.get(&format!("/api/tenant/test/build/{uuid}/logs")).unwrap();
        assert_eq!(answer.status, 200, "{}\n{}", answer.body, server.log());
    }
}

#[test]
fn a_clock_that_is_set_while_a_site_works_delays_nothing_and_removes_nothing() {
    if !host::can_build("a clock that is set while a site works") {
        return;
    }
    let site = site();
    let Some(clock) = Clock::new("a clock that is set while a site works", &site) else { return };
    let server = clock.start(&site);
    server.wait_configured();
    change(&site, &server, "right");
    assert_eq!(told_of_clock(&server), None);
    for (name, shift, told) in [
        ("a-little-back", -30, "30 s back"),
        ("back", -330 - 30, "5 min 30 s back"),
        ("hours-back", -3 * HOUR - 360, "3 h 0 min back"),
        ("years-back", -800 * DAY, "back"),
        ("years-ahead", 800 * DAY, "1600 days 0 h ahead"),
        ("right-again", 0, "800 days 0 h back"),
        ("ahead-once-more", 330, "5 min 30 s ahead"),
    ] {
        clock.set(shift);
        eventually("health tells of the jump", || told_of_clock(&server).filter(|text| text.contains(told)));
        change(&site, &server, name);
    }
    let all = builds(&server);
    assert!(all.len() >= 16, "{}", all.len());
    all_kept(&server, &all);
    server.stop();
    let kinds = site.event_kinds();
    assert!(kinds.get("clock-stepped").is_some_and(|count| *count >= 6), "{kinds:?}");
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_clock_that_is_set_while_a_site_is_down_delays_nothing_and_removes_nothing() {
    if !host::can_build("a clock that is set while a site is down") {
        return;
    }
    let site = site();
    let Some(clock) = Clock::new("a clock that is set while a site is down", &site) else { return };
    let mut server = clock.start(&site);
    server.wait_configured();
    change(&site, &server, "right");
    let steps = [
        ("back", -3 * HOUR, "back while this process was down"),
        ("years-ahead", 800 * DAY, "ahead while this process was down"),
        ("years-back", -800 * DAY, "back while this process was down"),
    ];
    for (name, shift, told) in steps {
        // It is killed: a start that says goodbye leaves nothing to be taken for a later one.
        server.kill_now();
        drop(server);
        clock.set(shift);
        server = clock.start(&site);
        let text = told_of_clock(&server).unwrap_or_else(|| panic!("{name}: nothing is told: {}", server.log()));
        assert!(text.contains(told), "{name}: {text}");
        let held = "no logs of jobs are removed for now";
        eventually("logs were to be removed, and are not", || server.log().contains(held).then_some(()));
        change(&site, &server, name);
        all_kept(&server, &builds(&server));
    }
    server.stop();
}

/// How long the only job that runs is said to run by now, in seconds; `None`: it does not run.
fn runs_for(server: &Server) -> Option<f64> {
    let status = server.json("/api/tenant/test/status").to_string();
    let number = |told: &str| told.split([',', '}']).next()?.parse::<f64>().ok();
    status.split(r#""elapsed_time":"#).skip(1).find_map(number).map(|millis| millis / 1_000.0)
}

#[test]
fn a_build_that_runs_while_the_clock_is_set_took_what_it_took() {
    if !host::can_build("a build while the clock is set") {
        return;
    }
    let site = site();
    let Some(clock) = Clock::new("a build while the clock is set", &site) else { return };
    let server = clock.start(&site);
    server.wait_configured();
    for (name, first, then) in [("ahead", 800 * DAY, 0), ("back", -800 * DAY, 3 * HOUR)] {
        site.push("slow", name, name, &[("notes", name)]);
        eventually("the build runs", || runs_for(&server));
        clock.set(first);
        eventually("the jump is seen", || told_of_clock(&server));
        // Something happens, so that the log knows of the clock.
        site.push("project", name, name, &[("notes", name)]);
        assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS", "{}", server.log());
        if let Some(seconds) = runs_for(&server) {
            assert!((0.0..LONG).contains(&seconds), "{name}: it is said to run for {seconds} s");
        }
        clock.set(then);
        assert_eq!(server.wait_verdict("check", "slow", name), "SUCCESS", "{}", server.log());
    }
    let all = builds(&server);
    let slow: Vec<f64> =
        all.iter().filter(|one| one["job_name"] == "slow").filter_map(|one| one["duration"].as_f64()).collect();
    assert!(slow.len() == 2 && slow.iter().all(|took| *took >= 15.0), "{slow:?}");
    server.stop();
}
