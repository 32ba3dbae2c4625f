//! An answer stands at a position of every partition, and is asked for by one.

use gatelog_record::draft::capacity::{LeaseHoldAsked, NodeGrant, NodeWanted};
use gatelog_record::draft::gate::{AutoholdAsked, AutoholdSet, NodesHeld, build_owner};
use gatelog_record::{LeaseId, NodeId};

use super::*;

const HOLDS: &str = "/api/tenant/demo/autohold";

/// A site whose gate keeps the nodes of a build, and whose capacity has yet to say which those are.
async fn holding() -> Told {
    let mut site = told(32).await;
    let asked = AutoholdAsked {
        tenant: "demo".into(),
        project: "forge.example/app".into(),
        job: "unit".into(),
        ref_filter: ".*".into(),
        count: 1,
        node_expiration: 0,
        reason: "to look".into(),
    };
    site.keeper.say(GateEvent::AutoholdSet(AutoholdSet { request: 1, asked }));
    let owner = build_owner("demo", UNIT_A, 1);
    let hold = LeaseHoldAsked { owner, until: None, request: 1, reason: "to look".into() };
    let (build, attempt) = (UNIT_A, 1);
    let held =
        NodesHeld { tenant: "demo".into(), request: 1, item: A, buildset: SET_A, build, attempt, hold, count: 1 };
    site.last = site.keeper.say(GateEvent::NodesHeld(held));
    site.served.reached(site.last).await;
    site
}

/// Capacity says which nodes the build's lease has.
async fn nodes_are_told(site: &Told) -> String {
    let node = NodeId([0xab; 16]);
    let wanted = NodeWanted { names: vec!["one".into()], label: "debian".into() };
    site.served.worker_gets(&site.keeper, UNIT_A, LeaseId([1; 16]), vec![NodeGrant { node, wanted }]).await;
    node.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_kept_are_told_anew_once_capacity_has_moved_though_the_gate_has_not() {
    let site = holding().await;
    let before = site.served.get(HOLDS).await;
    assert_eq!(before.json()[0]["nodes"][0]["nodes"], json!([]), "{before:?}");
    let tag = before.etag.clone().unwrap();
    assert_eq!(site.served.ask(HOLDS, &[("If-None-Match", &tag)]).await.status, 304);
    let node = nodes_are_told(&site).await;
    let after = site.served.ask(HOLDS, &[("If-None-Match", &tag)]).await;
    assert_eq!((after.status, after.json()[0]["nodes"][0]["nodes"].clone()), (200, json!([node])));
    let (gate, tag) = (site.last, after.etag.unwrap());
    assert_eq!(after.position, Some(format!("gate/0:{gate},capacity/0:5")));
    assert_eq!(site.served.ask(HOLDS, &[("If-None-Match", &tag)]).await.status, 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_may_say_where_each_partition_stood() {
    let site = holding().await;
    let node = nodes_are_told(&site).await;
    let gate = site.last;
    for (capacity, nodes) in [(1, json!([])), (4, json!([])), (5, json!([node]))] {
        let cut = format!("gate/0:{gate},capacity/0:{capacity}");
        let answer = site.served.get(&format!("{HOLDS}?at={cut}")).await;
        assert_eq!((answer.status, answer.position.as_deref()), (200, Some(cut.as_str())));
        assert_eq!(answer.json()[0]["nodes"][0]["nodes"], nodes, "{cut}");
        // What was answered is asked for again just so.
        let again = site.served.get(&format!("{HOLDS}?at={}", answer.position.unwrap())).await;
        assert_eq!((again.text, again.etag), (answer.text, answer.etag));
    }
    let workers = site.served.get(&format!("/api/components?at=gate/0:{gate},capacity/0:3")).await;
    assert_eq!(workers.json()["executor"], json!([]));
    // A number is the gate's; the others stand beside it.
    let beside = site.served.get(&format!("{HOLDS}?at={gate}")).await;
    assert_eq!(beside.position, Some(format!("gate/0:{gate},capacity/0:5")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_waited_for_in_every_partition_that_is_named() {
    let site = holding().await;
    let path = format!("{HOLDS}?after=gate/0:{},capacity/0:5", site.last);
    let (answer, node) = tokio::join!(site.served.get(&path), nodes_are_told(&site));
    assert_eq!((answer.status, answer.json()[0]["nodes"][0]["nodes"].clone()), (200, json!([node])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_has_not_come_or_makes_no_sense_is_refused_by_name() {
    let site = holding().await;
    let (gate, now) = (site.last, format!("gate/0:{},capacity/0:0", site.last));
    for (at, status, says) in [
        (format!("gate/0:{},capacity/0:0", gate + 1), 416, "has not come yet"),
        (format!("gate/0:{gate},capacity/0:9"), 416, "event 9 of capacity/0 has not come yet"),
        (
            format!("gate/0:{gate},images/0:0"),
            400,
            "there is no partition images/0 here; there are: gate/0, capacity/0",
        ),
        ("capacity/0:0".to_owned(), 400, "says nothing of gate/0"),
        (format!("gate/0:{gate},gate/0:{gate}"), 400, "twice"),
        ("gate/0".to_owned(), 400, "neither a position"),
    ] {
        let answer = site.served.get(&format!("{HOLDS}?at={at}")).await;
        assert_eq!(answer.status, status, "{at}: {}", answer.text);
        assert!(answer.text.contains(says), "{at}: {}", answer.text);
        if status == 416 {
            assert_eq!(answer.position.as_deref(), Some(now.as_str()), "{at}");
        }
    }
    for (after, says) in [("yesterday", "neither the sequence"), ("images/0:1", "there is no partition images/0")] {
        let answer = site.served.get(&format!("{HOLDS}?after={after}")).await;
        assert_eq!((answer.status, answer.text.contains(says)), (400, true), "{after}: {}", answer.text);
    }
}
