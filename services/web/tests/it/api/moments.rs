//! Every path that is read is answered as of any moment, or says why it cannot be.

use std::collections::BTreeSet;

use gatelog_web::Moment;

use super::*;

/// A path with something of the story in its segments.
fn filled(path: &str) -> String {
    let uuid = match () {
        () if path.contains("/buildset/") => SET_A.to_string(),
        () if path.contains("/item/") => A.to_string(),
        () => UNIT_A.to_string(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let mut filled = path.to_owned();
    for (name, value) in [
        ("{tenant}", "demo"),
        ("{uuid}", uuid.as_str()),
        ("{job}", "unit"),
        ("{*change}", "master/add-miles"),
        ("{attempt}", "1"),
        ("{*path}", "job-output.json"),
        ("{*project}", "app"),
        ("{request_id}", "0000000001"),
        ("/what-if/{id}", "/what-if/0000000000000000"),
        ("{version}", version),
        ("{name}", "gatelog.css"),
    ] {
        filled = filled.replace(name, value);
    }
    assert!(!filled.contains('{'), "say here what stands for the segments of {path}");
    if filled.ends_with("/find") || filled.ends_with("/found") {
        filled.push_str("?text=said");
    }
    filled
}

/// An answer without what tells of the newest event.
fn lasting(answer: &Answer) -> String {
    let text = &answer.text;
    match (text.find("<section class=\"time"), text.find("<main")) {
        (Some(from), Some(to)) => format!("{}{}", &text[..from], &text[to..]),
        _ => text.clone(),
    }
}

fn answered() -> Vec<String> {
    gatelog_web::table().iter().filter(|route| route.moment == Moment::Any).map(|route| filled(route.path)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_is_answered_as_of_a_moment_and_that_answer_never_changes() {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
    let mut story = trace::explained(story::events(layout, problems), &blobs).into_iter();
    let mut last = 1;
    served.worker_gets_a_lease(&keeper, UNIT_A).await;
    while last < 45 {
        last = keeper.say(story.next().unwrap());
    }
    served.reached(last).await;
    served.consoles.write(UNIT_A, 1, "said\n", true);
    let moments = [3, 32, 45];
    let mut kept = Vec::new();
    let mut told = BTreeSet::new();
    for path in answered() {
        for moment in moments {
            let answer = served.get(&at(&path, moment)).await;
            // Some things were not there yet; then that is what is told.
            assert!([200, 404].contains(&answer.status), "{path} at {moment}: {} {}", answer.status, answer.text);
            if answer.status == 200 {
                let position = answer.position.clone().unwrap_or_default();
                let then = position.split(',').next() == Some(format!("gate/0:{moment}").as_str());
                assert!(
                    then || path.contains("/lines") || path.contains("/find") || path.contains("/found"),
                    "{path}: {position}"
                );
                told.insert(path.clone());
            }
            kept.push((path.clone(), moment, answer));
        }
    }
    let never: Vec<String> = answered().into_iter().filter(|path| !told.contains(path)).collect();
    // Without authenticators there are no paths of operators, and nobody asked for nodes to be kept.
    assert_eq!(never, ["/api/tenant/demo/project/app/autohold", "/api/tenant/demo/autohold/0000000001"]);
    for event in story {
        last = keeper.say(event);
    }
    served.reached(last).await;
    for (path, moment, then) in &kept {
        let now = served.get(&at(path, *moment)).await;
        assert_eq!((now.status, &now.position), (then.status, &then.position), "{path} at {moment}");
        // Of a build that ran then, the page of its console says that it goes on.
        assert_eq!(lasting(&now), lasting(then), "{path} at {moment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_now_alone_refuses_a_moment_and_says_why() {
    let site = told(40).await;
    let mut refused = 0;
    for route in gatelog_web::table().iter().filter(|route| route.method == "GET") {
        let Moment::Now(why) = route.moment else { continue };
        let path = route.path;
        for query in ["at=5", "at", "x=1&at=2026-01-01T00:00:05Z"] {
            let answer = site.served.get(&format!("{}?{query}", filled(path))).await;
            assert_eq!(answer.status, 400, "{path}?{query}: {}", answer.text);
            let says = answer.json()["description"].as_str().unwrap().to_owned();
            assert!(says.contains("`at`") && says.contains(why), "{path}: {says}");
        }
        refused += 1;
    }
    assert!(refused >= 10, "{refused} paths");
}

#[test]
fn no_path_is_added_past_the_list_of_paths() {
    fn look(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                look(&path, found);
            } else if std::fs::read_to_string(&path).unwrap().contains(".route(") {
                found.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let mut found = Vec::new();
    look(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, ["paths.rs"], "a route is a row of a table, which says what it makes of `at` and who may ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_capacity_knew_is_told_as_of_a_moment_of_the_gate() {
    let site = told(40).await;
    let lease = site.served.worker_gets_a_lease(&site.keeper, UNIT_A).await;
    let path = format!("/api/tenant/demo/build/{UNIT_A}/leases");
    // Capacity's events come a second apart, as the gate's do.
    let phases = [(1, None), (38, Some("granted"))];
    for (moment, phase) in phases {
        let answer = site.served.get(&at(&path, moment)).await;
        match phase {
            Some(phase) => {
                assert_eq!(answer.json()[0]["phase"], phase, "at {moment}");
                assert_eq!(answer.json()[0]["lease"], lease.to_string());
                assert_eq!(answer.position.as_deref(), Some("gate/0:38,capacity/0:5"));
            }
            // The build itself was not there.
            None => assert_eq!(answer.status, 404),
        }
    }
    for (moment, position, workers) in [(1, 1, 0), (3, 3, 0), (4, 4, 1), (40, 5, 1)] {
        let answer = site.served.get(&at("/api/components", moment)).await;
        assert_eq!(answer.position, Some(format!("gate/0:{moment},capacity/0:{position}")));
        assert_eq!(answer.json()["executor"].as_array().unwrap().len(), workers, "at {moment}");
    }
    let before = site.served.json("/api/components?at=4").await;
    assert_eq!((&before["executor"][0]["hostname"], &before["executor"][0]["used"]), (&json!("worker-1"), &json!(0)));
    assert_eq!(site.served.json("/api/components?at=5").await["executor"][0]["used"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_up_to_a_moment_are_streamed_and_end_there() {
    let site = told(40).await;
    let answer = site.served.get("/api/events?at=12").await;
    assert_eq!(answer.position.as_deref(), Some("gate/0:12"));
    let ids: Vec<&str> = answer.text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, (1..=12).map(|id| id.to_string()).collect::<Vec<_>>());
    let rest = site.served.get("/api/events?from=10&at=12").await;
    assert_eq!(rest.text.matches("id: ").count(), 2);
    assert_eq!(site.served.get("/api/events?from=12&at=12").await.status, 204);
}
