//! The API over HTTP, against a gate that says what the tests have it say.

mod cuts;
mod moments;
mod newest;
mod table;
mod tokens;
mod what_if;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::Timestamp;
use gatelog_record::draft::gate::{WaitChanged, WaitCode, WaitSubject};
use gatelog_record::event::GateEvent;
use gatelog_web::{Component, ComponentState, PartHealth};
use serde_json::{Value as Json, json};

use crate::site::{Answer, BEGAN, Gatekeeper, Messages, Served};
use crate::story::{A, B, C, EVIL, LINT_A, SET_A, SET_C, SET_C2, UNIT_A, UNIT_B, UNIT_C};
use crate::{site, story, trace};

struct Told {
    keeper: Gatekeeper,
    blobs: MemoryBlobs,
    served: Served,
    last: u64,
    dir: tempfile::TempDir,
}

/// A site where the story was told up to an event (`u64::MAX`: to its end).
async fn told(up_to: u64) -> Told {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
    let mut last = 1;
    for event in story::events(layout, problems) {
        if last >= up_to {
            break;
        }
        last = keeper.say(event);
    }
    served.reached(last).await;
    Told { keeper, blobs, served, last, dir }
}

fn texts<'j>(list: &'j Json, field: &str) -> Vec<&'j str> {
    list.as_array().unwrap().iter().map(|one| one[field].as_str().unwrap_or("-")).collect()
}

const ASKED: &[&str] = &[
    "/api/tenants",
    "/api/tenant/demo/status",
    "/api/tenant/demo/status/change/master/add-miles",
    "/api/tenant/demo/builds",
    "/api/tenant/demo/builds?job_name=unit&result=SUCCESS",
    "/api/tenant/demo/build/a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4",
    "/api/tenant/demo/buildsets",
    "/api/tenant/demo/buildsets?complete=false",
    "/api/tenant/demo/buildset/c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1",
    "/api/tenant/demo/projects",
    "/api/tenant/demo/pipelines",
    "/api/tenant/demo/jobs",
    "/api/tenant/demo/semaphores",
    "/api/tenant/demo/config-errors",
    "/api/tenant/demo/tenant-status",
];

fn at(path: &str, sequence: u64) -> String {
    format!("{path}{}at={sequence}", if path.contains('?') { '&' } else { '?' })
}

fn same(one: &Answer, other: &Answer, what: &str) {
    assert_eq!((one.status, &one.position, &one.etag), (other.status, &other.position, &other.etag), "{what}");
    assert_eq!(one.text, other.text, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_live_is_answered_for_at_that_position_with_and_without_rungs_and_anew() {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
    served.reached(1).await;
    let mut kept: Vec<(u64, &str, Answer)> = Vec::new();
    for event in story::events(layout, problems) {
        let sequence = keeper.say(event);
        served.reached(sequence).await;
        for path in ASKED {
            kept.push((sequence, path, served.get(path).await));
        }
    }
    let fresh_dir = tempfile::tempdir().unwrap();
    let fresh = Served::start(&keeper, &blobs, fresh_dir.path(), 0).await;
    fresh.reached(kept.last().unwrap().0).await;
    for (sequence, path, live) in &kept {
        let then = at(path, *sequence);
        same(live, &served.get(&then).await, &then);
        same(live, &fresh.get(&then).await, &format!("{then} afresh"));
        assert!(live.status == 200 || live.status == 404, "{then}: {}", live.text);
        assert_eq!(live.position, Some(format!("gate/0:{sequence},capacity/0:0")), "{then}");
    }
    assert!(kept.iter().filter(|(_, _, answer)| answer.status == 200).count() > 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_shows_queues_items_jobs_and_why_they_wait() {
    // Up to where A's unit runs its first attempt.
    let site = told(32).await;
    let status = site.served.json("/api/tenant/demo/status").await;
    assert_eq!(status["position"], format!("gate/0:{}", site.last));
    assert_eq!(status["trigger_event_queue"]["length"], 0);
    assert_eq!(texts(&status["pipelines"], "name"), ["check", "gate"]);
    assert_eq!(status["pipelines"][0]["manager"], "independent");
    assert_eq!(status["pipelines"][0]["description"], "Every proposed change, by itself.");
    assert_eq!(status["pipelines"][0]["triggers"], json!([{ "driver": "plain-git" }]));
    assert_eq!(status["pipelines"][0]["change_queues"], json!([]));
    let queue = &status["pipelines"][1]["change_queues"][0];
    assert_eq!((&queue["name"], &queue["window"]), (&json!("main"), &json!(20)));
    let items = &queue["heads"][0];
    assert_eq!(texts(items, "id"), [A.to_string(), B.to_string(), C.to_string()]);
    let item = &items[0];
    assert_eq!(item["refs"][0]["id"], "master/add-miles,1");
    assert_eq!(item["refs"][0]["change"], "master/add-miles");
    assert_eq!(item["refs"][0]["project"], "library");
    assert_eq!(item["refs"][0]["project_canonical"], "forge.example/library");
    assert_eq!(item["item_ahead"], Json::Null);
    assert_eq!(item["items_behind"], json!([B.to_string()]));
    assert_eq!((&item["live"], &item["active"], &item["failing_reasons"]), (&json!(true), &json!(true), &json!([])));
    assert_eq!(item["enqueue_time"], (BEGAN + 9) * 1_000);
    assert_eq!(
        item["wait"],
        json!({ "code": "jobs", "detail": "2 jobs", "since_ms": (BEGAN + 16) * 1_000, "unblocks": "the end of jobs" })
    );
    assert_eq!(items[1]["item_ahead"], A.to_string());
    let job = &item["jobs"][0];
    assert_eq!((&job["name"], &job["result"], &job["tries"]), (&json!("unit"), &Json::Null, &json!(1)));
    assert_eq!(job["start_time"], json!((BEGAN + 30) as f64));
    assert_eq!(job["wait"]["detail"], EVIL);
    assert_eq!(job["waiting_status"], EVIL);
    assert_eq!(job["url"], format!("/api/tenant/demo/build/{UNIT_A}/console"));
    assert_eq!(item["jobs"][1]["voting"], false);
    assert_eq!(item["jobs"][1]["dependencies"], json!(["unit"]));
    assert_eq!(item["jobs"][1]["queued"], true);

    let one = site.served.json("/api/tenant/demo/status/change/master/show-miles").await;
    assert_eq!(texts(&one, "uuid"), [B.to_string()]);
    assert_eq!(site.served.json("/api/tenant/demo/status/change/nothing").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_item_is_stepped_around_and_times_are_estimated_from_history() {
    let site = told(u64::MAX).await;
    // After C was opened anew on A alone.
    let opened = site.served.json("/api/tenant/demo/buildset/c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2").await["_id"].as_u64();
    let status = site.served.json(&at("/api/tenant/demo/status", opened.unwrap())).await;
    let items = &status["pipelines"][1]["change_queues"][0]["heads"][0];
    assert_eq!(items[1]["failing_reasons"], json!(["unit failed"]));
    assert_eq!(items[2]["item_ahead"], A.to_string());
    assert_eq!(items[0]["items_behind"], json!([B.to_string(), C.to_string()]));
    assert_eq!(items[2]["resets"], 1);
    // A's unit took ten seconds; that is what a unit job is thought to take from then on.
    assert_eq!(items[1]["jobs"][0]["estimated_time"], 10);
    assert_eq!(items[1]["jobs"][0]["result"], "FAILURE");
    assert_eq!(items[1]["jobs"][0]["elapsed_time"], 5_000);
    let conflict = site.served.json(&at("/api/tenant/demo/status", opened.unwrap() + 2)).await;
    assert_eq!(conflict["pipelines"][1]["change_queues"][0]["heads"][0][2]["result"], "MERGE_CONFLICT");
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_are_listed_newest_first_and_filtered() {
    let site = told(u64::MAX).await;
    let uuids = async |query: &str| {
        let list = site.served.json(&format!("/api/tenant/demo/builds{query}")).await;
        texts(&list, "uuid").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let ids = |ids: &[gatelog_record::BuildId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(uuids("").await, ids(&[UNIT_C, UNIT_B, LINT_A, UNIT_A]));
    assert_eq!(uuids("?job_name=unit").await, ids(&[UNIT_C, UNIT_B, UNIT_A]));
    assert_eq!(uuids("?job_name=u*t&result=FAILURE&result=SUCCESS").await, ids(&[UNIT_B, UNIT_A]));
    assert_eq!(uuids("?project=library").await, ids(&[UNIT_C, LINT_A, UNIT_A]));
    assert_eq!(uuids("?project=forge.example/app").await, ids(&[UNIT_B]));
    assert_eq!(uuids("?change=master/add-miles&voting=1").await, ids(&[UNIT_A]));
    assert_eq!(uuids("?exclude_result=CANCELED&exclude_result=SKIPPED").await, ids(&[UNIT_B, UNIT_A]));
    assert_eq!(uuids("?limit=1&skip=1").await, ids(&[UNIT_B]));
    assert_eq!(uuids(&format!("?uuid={LINT_A}")).await, ids(&[LINT_A]));
    assert_eq!(uuids("?nodeset=debian&pipeline=g*&branch=master&ref=refs/for/master/again").await, ids(&[UNIT_C]));
    assert_eq!(uuids("?complete=false").await, Vec::<String>::new());
    assert_eq!(uuids(&format!("?queue_item_uuid={B}")).await, ids(&[UNIT_B]));
    let list = site.served.json("/api/tenant/demo/builds").await;
    let index = list[1]["_id"].as_u64().unwrap();
    assert_eq!(uuids(&format!("?idx_max={index}")).await, ids(&[UNIT_B, LINT_A, UNIT_A]));
    assert_eq!(uuids(&format!("?idx_min={index}")).await, ids(&[UNIT_C, UNIT_B]));

    let build = site.served.json(&format!("/api/tenant/demo/build/{UNIT_A}")).await;
    assert_eq!(build["job_name"], "unit");
    assert_eq!(build["result"], "SUCCESS");
    assert_eq!(build["start_time"], "2026-01-01T00:00:35");
    assert_eq!(build["end_time"], "2026-01-01T00:00:45");
    assert_eq!(build["duration"], 10.0);
    assert_eq!(build["started_ms"], (BEGAN + 35) * 1_000);
    assert_eq!(build["finished_ms"], (BEGAN + 45) * 1_000);
    assert_eq!(build["log_url"], format!("logs/{UNIT_A}/2"));
    assert_eq!(build["nodeset"], "debian");
    assert_eq!(build["buildset"]["uuid"], SET_A.to_string());
    assert_eq!(build["buildset"]["refs"][0]["change"], "master/add-miles");
    assert_eq!(build["ref"]["project"], "library");
    assert_eq!(build["event_id"], "7");
    let attempts = build["attempts"].as_array().unwrap();
    assert_eq!(attempts.iter().map(|one| &one["result"]).collect::<Vec<_>>(), ["RETRY", "SUCCESS"]);
    assert_eq!(attempts[0]["detail"], EVIL);
    assert_eq!(build["waits"][0]["code"], "lease");
    assert!(build["waits"][0]["until_ms"].as_i64().unwrap() > build["waits"][0]["since_ms"].as_i64().unwrap());
    // Before it had its result, it had none.
    let then = site.served.json(&at(&format!("/api/tenant/demo/build/{UNIT_A}"), 31)).await;
    assert_eq!((&then["result"], &then["end_time"]), (&Json::Null, &Json::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn buildsets_carry_their_items_verdict_and_given_up_ones_are_listed_on_demand() {
    let site = told(u64::MAX).await;
    let list = site.served.json("/api/tenant/demo/buildsets").await;
    assert_eq!(texts(&list, "result"), ["MERGE_CONFLICT", "FAILURE", "SUCCESS"]);
    assert_eq!(list[0]["uuid"], SET_C2.to_string());
    assert_eq!(list[2]["message"], "Build succeeded.");
    assert_eq!(list[2]["end"]["merged"], true);
    assert_eq!(list[2]["first_build_start_time"], "2026-01-01T00:00:30");
    assert_eq!(list[2]["last_build_end_time"], "2026-01-01T00:00:45");
    assert!(list[2]["finished_ms"].as_i64() > list[2]["started_ms"].as_i64());
    let asked = async |query: &str| {
        let list = site.served.json(&format!("/api/tenant/demo/buildsets{query}")).await;
        texts(&list, "uuid").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(asked("?complete=false").await, [SET_C.to_string()]);
    assert_eq!(asked("?pipeline=gate&project=library&change=master/add-miles&limit=1").await, [SET_A.to_string()]);
    assert_eq!(asked("?result=MERGE_CONFLICT").await, [SET_C2.to_string()]);
    assert_eq!(asked(&format!("?queue_item_uuid={C}")).await, [SET_C2.to_string()]);
    assert_eq!(asked("?pipeline=check").await, Vec::<String>::new());

    let one = site.served.json(&format!("/api/tenant/demo/buildset/{SET_A}")).await;
    assert_eq!(texts(&one["builds"], "job_name"), ["unit", "lint"]);
    assert!(one["builds"][0].get("buildset").is_none());
    assert_eq!(one["prepared"]["branches"][0]["commit"], "c0");
    assert_eq!(
        texts(&one["events"], "event_type"),
        ["item-enqueued", "buildset-opened", "submit-requested", "item-dequeued"]
    );
    let given_up = site.served.json(&format!("/api/tenant/demo/buildset/{SET_C}")).await;
    assert_eq!(given_up["reset"]["code"], "ahead-failing");
    assert_eq!(given_up["result"], Json::Null);
    // While the change was in the gate there was no verdict.
    let then = site.served.json(&at("/api/tenant/demo/buildsets?project=library&change=master/add-miles", 31)).await;
    assert_eq!(then[0]["result"], Json::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_in_force_and_its_errors_are_told() {
    let site = told(u64::MAX).await;
    let tenants = site.served.json("/api/tenants").await;
    assert_eq!(texts(&tenants, "name"), ["demo", "we/ird \"tenant\" ü"]);
    let projects = site.served.json("/api/tenant/demo/projects").await;
    assert_eq!(texts(&projects, "name"), ["app", "config", "library"]);
    assert_eq!(projects[1]["type"], "config");
    let pipelines = site.served.json("/api/tenant/demo/pipelines").await;
    assert_eq!(pipelines[1], json!({ "name": "gate", "triggers": [{ "name": "forge", "driver": "plain-git" }] }));
    let jobs = site.served.json("/api/tenant/demo/jobs").await;
    let base = jobs.as_array().unwrap().iter().find(|job| job["name"] == "base").unwrap();
    assert_eq!(base["description"], "What every job is built on.");
    let errors = site.served.json("/api/tenant/demo/config-errors?severity=error&project=config").await;
    assert_eq!(
        errors[0]["source_context"],
        json!({ "project": "forge.example/config", "branch": "master", "path": "zuul.yaml" })
    );
    assert!(errors.to_string().contains("nowhere-to-be-found"), "{errors:#}");
    assert_eq!(site.served.json("/api/tenant/demo/config-errors?branch=other").await, json!([]));
    let count = site.served.json("/api/tenant/demo/tenant-status").await;
    assert!(count["config_error_count"].as_u64().unwrap() >= 1);
    let weird = site.served.json("/api/tenant/we%2Fird%20%22tenant%22%20%C3%BC/status").await;
    assert_eq!(weird["pipelines"], json!([]));
    let info = site.served.json("/api/tenant/demo/info").await;
    assert_eq!(info["info"]["tenant"], "demo");
    assert_eq!(site.served.json("/api/connections").await, json!([{ "name": "forge", "driver": "plain-git" }]));
    let map = site.served.json("/api").await;
    for (name, path) in map.as_object().unwrap() {
        let path = path.as_str().unwrap().replace("{tenant}", "demo").replace("{change}", "x");
        let path = path.replace("{project}", "app");
        if !path.contains("{uuid}") && !path.contains("{id}") && !name.contains("stream") && name != "events" {
            assert_eq!(site.served.get(&path).await.status, 200, "{path}");
        }
    }
    let health = site.served.json("/api/health").await;
    assert_eq!((&health["state"], &health["positions"]["gate/0"]), (&json!("well"), &json!(site.last)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_key_of_a_project_is_given_as_pem_and_of_no_other() {
    let site = told(40).await;
    for name in ["app", "forge.example/app"] {
        let path = format!("/api/tenant/demo/key/{name}.pub");
        let answer = site.served.get(&path).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, "the key of app on forge\n"), "{path}");
        assert_eq!(answer.position, Some(format!("gate/0:{}", site.last)));
        let response = site.served.http.get(format!("{}{path}", site.served.base)).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    }
    for (path, key) in [
        ("project-ssh-key/app.pub", "ssh-rsa app on forge\n"),
        ("project-ssh-key/forge.example/app.pub", "ssh-rsa app on forge\n"),
        ("tenant-ssh-key/ssh.pub", "ssh-rsa demo\n"),
    ] {
        let answer = site.served.get(&format!("/api/tenant/demo/{path}")).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, key), "{path}");
    }
    for (path, says) in [
        ("/api/tenant/demo/project-ssh-key/nobody.pub", "there is no project \"nobody\" in tenant \"demo\""),
        ("/api/tenant/nobody/project-ssh-key/app.pub", "nobody"),
        ("/api/tenant/nobody/tenant-ssh-key/ssh.pub", "nobody"),
        ("/api/tenant/demo/key/nobody.pub", "there is no project \"nobody\" in tenant \"demo\""),
        ("/api/tenant/demo/key/org/nobody.pub", "org/nobody"),
        ("/api/tenant/demo/key/app", "PROJECT.pub"),
        ("/api/tenant/demo/key/..%2fapp.pub", "no project"),
        ("/api/tenant/nobody/key/app.pub", "nobody"),
    ] {
        let answer = site.served.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        let json = answer.json();
        assert_eq!(json["error"], "not-found", "{path}");
        assert!(json["description"].as_str().unwrap().contains(says), "{path}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_leases_are_told_with_capacitys_position() {
    let site = told(40).await;
    let lease = site.served.worker_gets_a_lease(&site.keeper, UNIT_A).await;
    let components = site.served.get("/api/components").await;
    assert_eq!(components.position.as_deref(), Some("gate/0:40,capacity/0:5"));
    let executor = &components.json()["executor"][0];
    assert_eq!(
        (&executor["hostname"], &executor["slots"], &executor["used"]),
        (&json!("worker-1"), &json!(2), &json!(1))
    );
    assert_eq!(executor["state"], "stopped", "it never gave a sign");
    let leases = site.served.json(&format!("/api/tenant/demo/build/{UNIT_A}/leases")).await;
    assert_eq!((&leases[0]["lease"], &leases[0]["phase"]), (&json!(lease.to_string()), &json!("granted")));
    assert_eq!(leases[0]["worker"], "worker-1");
    assert!(leases[0]["granted_ms"].as_i64() > leases[0]["asked_ms"].as_i64());
    assert_eq!(site.served.get(&format!("/api/tenant/nobody/build/{UNIT_A}/leases")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_there_is_told_by_zuuls_kinds_with_state_and_version() {
    let site = told(40).await;
    assert_eq!(site.served.json("/api/components").await, json!({}));
    let component = |name: &str, roles: &[&str], state, seconds| Component {
        name: name.into(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        state,
        paused: Vec::new(),
        level: 0,
        version: format!("0.1.{seconds}"),
        started_at: Timestamp(7_000_000),
        zone: None,
        held: Vec::new(),
        last_sign: Duration::from_secs(seconds),
        silent: state == ComponentState::Stopped,
    };
    *site.served.present.lock().unwrap() = vec![
        component("worker-1", &["executor", "merger"], ComponentState::Running, 1),
        component("deciding", &["scheduler", "launcher", "connections", "merger"], ComponentState::Initializing, 2),
        component("<gone>", &["web"], ComponentState::Stopped, 40),
    ];
    site.served.worker_gets_a_lease(&site.keeper, UNIT_A).await;
    let told = site.served.json("/api/components").await;
    let kinds: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["connections", "executor", "launcher", "merger", "scheduler", "web"]);
    // What Zuul says of each.
    let of = |kind: &str| -> Vec<(String, String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let each = told[kind].as_array().unwrap().iter();
        each.map(|one| (text(&one["hostname"]), text(&one["state"]), text(&one["version"]))).collect()
    };
    let row = |name: &str, state: &str, version: &str| (name.to_owned(), state.to_owned(), version.to_owned());
    assert_eq!(of("merger"), [row("deciding", "initializing", "0.1.2"), row("worker-1", "running", "0.1.1")]);
    assert_eq!(of("scheduler"), [row("deciding", "initializing", "0.1.2")]);
    assert_eq!(of("web"), [row("<gone>", "stopped", "0.1.40")]);
    assert_eq!(of("executor"), [row("worker-1", "running", "0.1.1")]);
    // And more.
    assert_eq!((&told["executor"][0]["slots"], &told["executor"][0]["used"]), (&json!(2), &json!(1)));
    assert_eq!((&told["merger"][1]["slots"], &told["merger"][1]["started_ms"]), (&json!(null), &json!(7_000)));
    assert_eq!(told["web"][0]["last_sign_ms"], 40_000);
    assert_eq!(told["scheduler"][0]["roles"], json!(["scheduler", "launcher", "connections", "merger"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_the_client_has_is_not_sent_again() {
    let site = told(40).await;
    let first = site.served.get("/api/tenant/demo/status").await;
    let etag = first.etag.unwrap();
    assert_eq!(first.position.as_deref(), Some("gate/0:40,capacity/0:0"));
    let again = site.served.ask("/api/tenant/demo/status", &[("If-None-Match", &etag)]).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    assert_eq!(again.etag.as_ref(), Some(&etag));
    let weak = site.served.ask("/api/tenant/demo/status", &[("If-None-Match", &format!("\"x\", W/{etag}"))]).await;
    assert_eq!(weak.status, 304);
    let other = site.served.ask("/api/tenant/demo/status?at=39", &[("If-None-Match", &etag)]).await;
    assert_eq!((other.status, other.position.as_deref()), (200, Some("gate/0:39,capacity/0:0")));
}

#[tokio::test(flavor = "multi_thread")]
async fn moments_are_named_by_sequence_or_time_and_only_those_that_have_come() {
    let site = told(40).await;
    let by_time = site.served.get("/api/tenant/demo/status?at=2026-01-01T00:00:31Z").await;
    same(&by_time, &site.served.get("/api/tenant/demo/status?at=31").await, "by time");
    let between = site.served.get("/api/tenant/demo/builds?at=2026-01-01T01:00:31.7%2B01:00").await;
    assert_eq!(between.position.as_deref(), Some("gate/0:31,capacity/0:0"));
    let before = site.served.get("/api/tenant/demo/builds?at=1999-01-01T00:00:00Z").await;
    assert_eq!(
        (before.status, before.text.as_str(), before.position.as_deref()),
        (200, "[]", Some("gate/0:0,capacity/0:0"))
    );
    assert_eq!(site.served.json("/api/tenant/demo/status?at=0").await["pipelines"], json!([]));
    assert_eq!(site.served.json("/api/tenants?at=0").await, json!([]));
    for beyond in ["41", "99999999999999999999999999"] {
        let answer = site.served.get(&format!("/api/tenant/demo/status?at={beyond}")).await;
        assert_eq!((answer.status, &answer.json()["error"]), (416, &json!("position-beyond-the-end")), "{beyond}");
        assert_eq!(answer.position.as_deref(), Some("gate/0:40,capacity/0:0"));
    }
    let nonsense = site.served.get("/api/tenant/demo/status?at=yesterday").await;
    assert_eq!(nonsense.status, 400);
    assert!(nonsense.text.contains("yesterday"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_an_event_waits_for_it() {
    let site = told(40).await;
    let (_, layout, problems) = story::blobs();
    let event = story::events(layout, problems).into_iter().nth(39).unwrap();
    let (answer, sequence) = tokio::join!(site.served.get("/api/tenant/demo/status?after=41"), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        site.keeper.say(event)
    });
    assert_eq!(sequence, 41);
    assert_eq!((answer.status, answer.position.as_deref()), (200, Some("gate/0:41,capacity/0:0")));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_by_name() {
    let site = told(40).await;
    for (path, status, says) in [
        ("/api/tenant/demo/builds?colour=blue", 400, "colour"),
        ("/api/tenant/demo/status?project=library", 400, "project"),
        ("/api/tenant/demo/builds?limit=many", 400, "limit"),
        ("/api/tenant/demo/builds?limit=100000", 400, "limit"),
        ("/api/tenant/demo/builds?limit=-1", 400, "limit"),
        ("/api/tenant/demo/builds?skip=99999999", 400, "skip"),
        ("/api/tenant/demo/builds?limit=1&limit=2", 400, "limit"),
        ("/api/tenant/demo/builds?voting=perhaps", 400, "perhaps"),
        ("/api/tenant/nobody/status", 404, "nobody"),
        ("/api/tenant/nobody/builds", 404, "nobody"),
        ("/api/tenant/nobody/status/stream", 404, "nobody"),
        ("/api/tenant/demo/build/xyz", 404, "xyz"),
        ("/api/tenant/demo/build/00000000000000000000000000000000", 404, "0000"),
        ("/api/tenant/demo/buildset/%00%ff", 400, ""),
        ("/api/tenant/demo/nothing", 404, "/api"),
        ("/nothing", 404, "/api"),
        ("/api/events?from=1000", 416, "1000"),
        ("/api/events?at=1000", 416, "1000"),
        ("/api/health?verbose=1", 400, "verbose"),
        ("/api/connections?at=1", 400, "at"),
    ] {
        let answer = site.served.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        let json = answer.json();
        assert!(json["error"].is_string(), "{path}");
        assert!(json["description"].as_str().unwrap().contains(says), "{path}: {}", answer.text);
    }
    let long = format!("/api/tenant/demo/builds?change={}", "x".repeat(9_000));
    assert_eq!(site.served.get(&long).await.status, 400);
    let posted = site.served.http.post(format!("{}/api/tenants", site.served.base)).send().await.unwrap();
    assert_eq!(posted.status(), 405);
    let options = site.served.http.request(reqwest::Method::OPTIONS, format!("{}/api/tenants", site.served.base));
    let options = options.send().await.unwrap();
    assert_eq!(options.status(), 204);
    assert!(options.headers()["access-control-allow-methods"].to_str().unwrap().contains("GET"));
    let foreign = format!("/api/tenant/{}/build/{UNIT_A}", "we%2Fird%20%22tenant%22%20%C3%BC");
    assert_eq!(site.served.get(&foreign).await.status, 404, "a build is seen by its own tenant alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_streamed_and_resumed_without_gap_or_double() {
    let site = told(20).await;
    let (_, layout, problems) = story::blobs();
    let rest: Vec<_> = story::events(layout, problems).into_iter().skip(19).collect();
    let mut all = Messages::open(&site.served, "/api/events?from=0", None).await;
    let mut seen = Vec::new();
    for expected in 1..=15 {
        let (id, data) = all.next().await;
        assert_eq!((id, &data["position"]), (expected, &json!(format!("gate/0:{expected}"))));
        seen.push(data);
    }
    assert_eq!(seen[8]["kind"], "gate.item-enqueued");
    assert_eq!(seen[8]["item"], A.to_string());
    assert_eq!(seen[8]["tenant"], "demo");
    drop(all);
    // The client was away; meanwhile the gate went on.
    let last = rest.into_iter().map(|event| site.keeper.say(event)).last().unwrap();
    let mut resumed = Messages::open(&site.served, "/api/events", Some(15)).await;
    for expected in 16..=last {
        assert_eq!(resumed.next().await.0, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_streamed_as_it_changes() {
    let site = told(9).await;
    let (_, layout, problems) = story::blobs();
    let mut stream = Messages::open(&site.served, "/api/tenant/demo/status/stream", None).await;
    let (first, status) = stream.next().await;
    assert_eq!((first, &status["position"]), (9, &json!("gate/0:9")));
    let last = story::events(layout, problems).into_iter().skip(8).map(|event| site.keeper.say(event)).last().unwrap();
    let mut newest = (first, status);
    while newest.1["pipelines"][1]["change_queues"][0]["heads"] != json!([]) {
        let next = stream.next().await;
        assert!(next.0 > newest.0);
        newest = next;
    }
    assert_eq!(newest.0, last);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_the_status_are_resumed_brief_and_never_queue_for_the_slow() {
    let site = told(9).await;
    let (_, layout, problems) = story::blobs();
    let path = "/api/tenant/demo/status/stream";
    let mut slow = Messages::open(&site.served, path, None).await;
    let mut brief = Messages::open(&site.served, &format!("{path}?brief=1"), None).await;
    assert_eq!(brief.next().await, (9, json!({ "position": "gate/0:9" })));
    // The slow client takes nothing while all of it happens.
    let mut last = 9;
    for event in story::events(layout, problems).into_iter().skip(8) {
        last = site.keeper.say(event);
    }
    site.served.reached(last).await;
    let mut messages = 0;
    loop {
        let (id, status) = slow.next().await;
        messages += 1;
        if status["pipelines"][1]["change_queues"][0]["heads"] == json!([]) {
            assert_eq!(id, last);
            break;
        }
    }
    assert!(messages < 10, "{messages} documents for {last} events: changes are told together");
    // One who has the newest hears nothing until something changes; one who is behind hears at once.
    let mut behind = Messages::open(&site.served, path, Some(20)).await;
    assert_eq!(behind.next().await.0, last);
    let mut newest = Messages::open(&site.served, &format!("{path}?brief=1"), Some(last)).await;
    let (_, layout, problems) = story::blobs();
    let tenant = story::events(layout, problems).remove(0);
    let again = site.keeper.say(tenant);
    let wait = GateEvent::WaitChanged(WaitChanged {
        subject: WaitSubject::Tenant("demo".into()),
        code: Some(WaitCode::Layout),
        detail: "anew".into(),
        since: Timestamp(0),
        unblocks: String::new(),
    });
    let changed = site.keeper.say(wait);
    let (id, _) = newest.next().await;
    assert!(id > last && id >= again && id <= changed, "{id}");
    // What cannot be resumed is said.
    for (header, status) in [("soon", 400), ("100000", 416)] {
        assert_eq!(site.served.ask(path, &[("Last-Event-ID", header)]).await.status, status, "{header}");
    }
    assert_eq!(site.served.get(&format!("{path}?brief=perhaps")).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_made_anew_no_more_often_the_more_follow_it() {
    let site = told(9).await;
    let (_, layout, problems) = story::blobs();
    let mut followers = Vec::new();
    for _ in 0..20 {
        followers.push(Messages::open(&site.served, "/api/tenant/demo/status/stream?brief=1", None).await);
        // Left to themselves, they would all look at another time.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut last, began) = (9, Instant::now());
    for event in story::events(layout, problems).into_iter().skip(8) {
        last = site.keeper.say(event);
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    let mut made = BTreeSet::new();
    for follower in &mut followers {
        let mut id = 0;
        while id < last {
            id = follower.next().await.0;
            made.insert(id);
        }
    }
    // The first, the last, and one for each time it has rested.
    let most = 2 + began.elapsed().as_millis() / 200;
    assert!(made.len() as u128 <= most, "{made:?} for {last} events, {most} at most");
    // Nobody follows any more, and somebody comes again.
    drop(followers);
    let mut again = Messages::open(&site.served, "/api/tenant/demo/status/stream", None).await;
    assert_eq!(again.next().await.0, last);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_503_only_for_what_needs_somebody() {
    let site = told(9).await;
    let part = |well: bool, state: &str| PartHealth {
        part: "writer gate/0".into(),
        well,
        state: state.into(),
        detail: "it says why".into(),
    };
    for (parts, status, state) in [
        (vec![], 200, "well"),
        (vec![part(true, "running")], 200, "well"),
        (vec![part(true, "running"), part(false, "yellow")], 200, "yellow"),
        (vec![part(false, "yellow"), part(false, "stopped")], 503, "stopped"),
    ] {
        *site.served.parts.lock().unwrap() = parts.clone();
        let health = site.served.get("/api/health").await;
        assert_eq!((health.status, &health.json()["state"]), (status, &json!(state)), "{parts:?}");
        assert_eq!(health.json()["parts"].as_array().unwrap().len(), 2 + parts.len());
        // A stopped writer is no reason to send readers away, nor to kill the process.
        let (ready, live) = (site.served.get("/api/health/ready").await, site.served.get("/api/health/live").await);
        assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
        assert_eq!((live.status, &live.json()["live"]), (200, &json!(true)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_about_to_end_is_not_ready_and_says_why_but_answers() {
    let site = told(9).await;
    let ready = site.served.json("/api/health/ready").await;
    assert_eq!((&ready["ready"], &ready["reason"]), (&json!(true), &json!(null)));
    *site.served.leaving.lock().unwrap() = Some("it drains".into());
    let ready = site.served.get("/api/health/ready").await;
    assert_eq!(
        (ready.status, &ready.json()["ready"], &ready.json()["reason"]),
        (503, &json!(false), &json!("it drains"))
    );
    // A load balancer sends nobody any more; who is there is answered, and nothing is wrong with it.
    for path in ["/api/tenants", "/api/health", "/api/health/live"] {
        assert_eq!(site.served.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_an_item_is_the_longest_way_through_its_jobs() {
    let site = told(u64::MAX).await;
    // A's unit took ten seconds: a unit that waits is thought to take as long.
    let then = site.served.json("/api/tenant/demo/status?at=41").await;
    let items = then["pipelines"][1]["change_queues"][0]["heads"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|head| head.as_array().unwrap());
    let waiting: Vec<_> = items.filter(|item| item["jobs"][0]["queued"] == true).collect();
    assert!(!waiting.is_empty(), "{then}");
    for item in waiting {
        assert_eq!(
            item["jobs"][0]["estimate"],
            json!({ "mean_ms": 10_000, "least_ms": 10_000, "most_ms": 10_000, "runs": 1 })
        );
        assert_eq!(item["remaining_time"], 10_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_is_read_from_its_first_byte_and_followed_to_its_end() {
    let site = told(31).await;
    let path = format!("/api/tenant/demo/build/{UNIT_A}/console");
    let missing = site.served.get(&path).await;
    assert_eq!(missing.status, 404);
    site.served.consoles.write(UNIT_A, 1, "line 0\nline 1\n", false);
    let so_far = site.served.get(&path).await;
    assert_eq!((so_far.status, so_far.text.as_str()), (200, "line 0\nline 1\n"));
    assert_eq!(so_far.position.as_deref(), Some("gate/0:31"));
    assert_eq!(site.served.get(&format!("{path}?offset=7")).await.text, "line 1\n");
    assert_eq!(site.served.get(&format!("{path}?offset=700")).await.text, "");
    let followed = format!("{path}?follow=1&attempt=1");
    let (followed, ()) = tokio::join!(site.served.get(&followed), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        site.served.consoles.write(UNIT_A, 1, EVIL, false);
        tokio::time::sleep(Duration::from_millis(30)).await;
        site.served.consoles.write(UNIT_A, 1, "the end", true);
    });
    assert_eq!(followed.text, format!("line 0\nline 1\n{EVIL}the end"));
    assert_eq!(site.served.get(&format!("{path}?attempt=2")).await.status, 404);
    let waiting = site.served.get(&format!("/api/tenant/demo/build/{UNIT_B}/console")).await;
    assert!(waiting.text.contains("has not begun"), "{}", waiting.text);
    // What has not begun is waited for by those who follow.
    let (_, layout, problems) = story::blobs();
    let rest: Vec<_> = story::events(layout, problems).into_iter().skip(30).collect();
    let follow = format!("/api/tenant/demo/build/{UNIT_B}/console?follow=1");
    let (followed, ()) = tokio::join!(site.served.get(&follow), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        site.served.consoles.write(UNIT_B, 1, "begun and done", true);
        for event in rest {
            site.keeper.say(event);
        }
    });
    assert_eq!(followed.text, "begun and done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_layout_is_an_error_that_names_it() {
    let site = told(u64::MAX).await;
    let fresh = tempfile::tempdir().unwrap();
    let blobs = MemoryBlobs::new();
    // Who may look is known, the layout is not.
    blobs.put(&site::open_settings(&["demo", story::WEIRD])).unwrap();
    let served = Served::start(&site.keeper, &blobs, fresh.path(), 0).await;
    served.reached(site.last).await;
    let answer = served.get("/api/tenant/demo/status").await;
    assert_eq!(answer.status, 500);
    assert!(answer.text.contains("missing"), "{}", answer.text);
    assert_eq!(served.get("/api/tenant/demo/builds").await.status, 200, "what needs no layout is answered");
    drop((site.blobs, site.dir));
}
