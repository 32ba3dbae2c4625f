//! Pipelines that start by the calendar.

use std::time::Duration;

use serde_json::Value as Json;

use crate::harness::projects::{CONFIG, JOBS, PIPELINES, PLAYBOOK};
use crate::harness::{Site, eventually, host};

/// A pipeline that looks every second whether anything is to be done.
const CLOCKWORK: &str = r#"
- pipeline:
    name: clockwork
    manager: independent
    trigger:
      timer:
        - time: "* * * * * *"
    success:
      forge: {}
"#;

fn site() -> Site {
    let config = format!("{PIPELINES}{CLOCKWORK}");
    let jobs = JOBS.replace("    gate:\n", "    clockwork:\n      jobs: [verdict]\n    gate:\n");
    let project = [("zuul.yaml", jobs.as_str()), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n")];
    Site::new(&[("config", &[("zuul.yaml", config.as_str())]), ("project", &project)])
}

/// The ticks that the gate took, in their order.
fn ticks(site: &Site) -> Vec<Json> {
    let events = site.events("gate.events");
    let causes =
        events.iter().filter(|event| event["kind"] == "gate.trigger-waiting").map(|event| &event["body"]["cause"]);
    causes.filter(|cause| cause["Timer"].is_object()).map(|cause| cause["Timer"].clone()).collect()
}

#[test]
fn a_branch_enters_by_the_calendar_and_its_jobs_run() {
    if !host::can_build("a pipeline with a timer") {
        return;
    }
    let site = site();
    let server = site.start();
    server.wait_configured();
    let build = eventually("a build that nobody asked for", || {
        let builds = server.json("/api/tenant/test/builds?pipeline=clockwork&result=SUCCESS");
        builds.as_array().and_then(|builds| builds.first().cloned())
    });
    let of = &build["ref"];
    assert_eq!((&of["ref"], &of["branch"]), (&"refs/heads/master".into(), &"master".into()), "{of}");
    assert!(of["change"].is_null() && of["newrev"].is_null(), "it names no commit without dereference: {of}");
    // Who looks sees when it is due next, as the page, the API and the command line have it.
    let timers = server.json("/api/tenant/test/timers");
    assert_eq!((&timers[0]["pipeline"], &timers[0]["branches"][0]["branch"]), (&"clockwork".into(), &"master".into()));
    assert!(timers[0]["next_ms"].as_i64() > timers[0]["last_ms"].as_i64(), "{timers}");
    let (code, said, problem) = site.gatelog(&["timers", "--branches"]);
    assert_eq!((code, said.contains("clockwork  `* * * * * *`")), (0, true), "{said}{problem}");
    server.stop();
    let item = build["queue_item_uuid"].as_str().unwrap_or_default();
    let (_, why, problem) = site.gatelog(&["explain", item]);
    assert!(why.contains("the timer `* * * * * *` of clockwork was due at"), "{item}: {why}{problem}");
}

#[test]
fn after_an_outage_one_tick_stands_for_all_that_were_missed() {
    let site = site();
    let server = site.start();
    server.wait_configured();
    eventually("it ticks", || (ticks(&site).len() > 1).then_some(()));
    server.stop();
    let before = ticks(&site);
    std::thread::sleep(Duration::from_secs(5));
    let server = site.start();
    eventually("it ticks again", || (ticks(&site).len() > before.len() + 1).then_some(()));
    server.stop();
    let after = ticks(&site).split_off(before.len());
    let missed = |tick: &Json| tick["missed"].as_u64().unwrap_or_default();
    assert!(missed(&after[0]) >= 4, "one for the seconds without a server: {after:?}");
    // No tick is told twice, and what was missed is told by one.
    let mut counts: Vec<u64> = before.iter().chain(&after).filter_map(|tick| tick["count"].as_u64()).collect();
    assert!(counts.iter().enumerate().all(|(at, count)| *count == at as u64), "{counts:?}");
    counts.dedup();
    assert_eq!(counts.len(), before.len() + after.len());
}

#[test]
fn a_time_zone_that_nobody_knows_is_refused_before_anything_starts() {
    let site = Site::new(&[("config", CONFIG)]);
    let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{settings}\n[scheduler]\ntime-zone = \"Europe/Atlantis\"\n"));
    let (code, _, said) = site.gatelog(&["serve"]);
    assert_ne!(code, 0);
    assert!(said.contains("time-zone under [scheduler]: `Europe/Atlantis` is no time zone"), "{said}");
}
