//! Why, of builds, leases, nodes and workers.

use gatelog_record::Event;
use gatelog_record::event::CapacityEvent;
use gatelog_replay::Moment;
use gatelog_replay::explain::{ExplainError, Explainer};

use crate::world::day;

fn told(explainer: &Explainer<'_>, what: &str) -> String {
    let explanation = explainer.explain(&explainer.find(what, None).unwrap(), None).unwrap();
    explanation.render().into_iter().map(|line| format!("{}\n", line.text)).collect()
}

#[test]
fn a_lease_a_node_its_build_and_its_worker_are_explained_across_domains() {
    let day = day();
    let explainer = Explainer::read(&gatelog_replay::domains(), &*day.log, &day.blobs, Moment::Newest).unwrap();
    let granted = day
        .capacity
        .iter()
        .find_map(|record| match &record.event {
            Event::Capacity(CapacityEvent::LeaseGranted(granted)) if !granted.nodes.is_empty() => Some(granted),
            _ => None,
        })
        .unwrap();
    let lease = told(&explainer, &granted.lease.to_string());
    assert!(lease.starts_with(&format!("lease {}\n", granted.lease)), "{lease}");
    for part in ["worker", "node", "asked for", "over", "gate.lease-wanted", "capacity.in.lease-asked"] {
        assert!(lease.contains(part), "{part}: {lease}");
    }
    let node = told(&explainer, &granted.nodes[0].node.to_string());
    assert!(node.starts_with("node ") && node.contains(&granted.lease.to_string()), "{node}");
    let worker = told(&explainer, &granted.worker);
    assert!(worker.contains("slots") && worker.contains("capacity event"), "{worker}");
    // A build's way goes through both domains, from its freezing to its end.
    let build = told(&explainer, &granted.owner.subject.id.to_string());
    let places: Vec<usize> = ["gate.frozen", "capacity.lease-granted", "gate.build-finished", "capacity.lease-ended"]
        .iter()
        .map(|kind| build.find(kind).unwrap_or_else(|| panic!("{kind}: {build}")))
        .collect();
    assert!(places.is_sorted(), "{build}");
    let error = explainer.find("nobody-knows-this", None).unwrap_err();
    assert!(matches!(error, ExplainError::Unknown { .. }) && error.to_string().contains("no worker"), "{error}");
}
