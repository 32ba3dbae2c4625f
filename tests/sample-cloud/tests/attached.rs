//! A cloud that no file of the house names, opened by the list of clouds.

use std::collections::BTreeMap;
use std::path::Path;

use gatelog_cloud_contract::{NodeState, NodeWanted, Opening, Refusal, Usage};
use gatelog_record::{NodeId, Timestamp};

#[test]
fn a_node_of_an_unknown_cloud_is_started_watched_and_stopped() {
    gatelog::clouds::add(vec![gatelog_sample_cloud::DRIVER]).unwrap();
    let opening = Opening { name: "there", site: Path::new("/srv/ci"), site_id: Some("site"), now: || Timestamp(0) };
    let open = |name: &str, text: &str| gatelog::clouds::open(name, toml::from_str(text).unwrap(), &opening);
    let known = open("nowhere", "").err().unwrap();
    assert!(known.message.contains("this gatelog has local, sample"), "{known}");
    let wrong = open("sample", "machine = 1\n").err().unwrap();
    assert!(wrong.message.contains("cloud there") && wrong.message.contains("`machine`"), "{wrong}");

    let cloud = open("sample", "machines = 1\nlabel = \"small\"\n").unwrap().nodes;
    let wanted = |number: u8, label: &str| NodeWanted {
        node: NodeId([number; 16]),
        attempt: 1,
        label: label.into(),
        from: BTreeMap::new(),
    };
    let node = wanted(1, "small").node;
    assert_eq!(cloud.poll(node).unwrap(), NodeState::Absent);
    assert!(matches!(cloud.start(&wanted(1, "small")).unwrap(), NodeState::Starting { .. }), "nothing waits");
    assert!(
        matches!(cloud.start(&wanted(1, "small")).unwrap(), NodeState::Starting { .. }),
        "once, though asked twice"
    );
    assert_eq!(cloud.start(&wanted(2, "small")).unwrap_err().refusal, Refusal::Quota);
    assert_eq!(cloud.start(&wanted(2, "huge")).unwrap_err().refusal, Refusal::Permanent);
    let mut state = cloud.poll(node).unwrap();
    while let NodeState::Starting { .. } = state {
        state = cloud.poll(node).unwrap();
    }
    let NodeState::Ready(ready) = state else { panic!("{state:?}") };
    assert_eq!((ready.node, ready.label.as_str()), (node, "small"));
    assert_eq!(cloud.list().unwrap().iter().map(|found| found.node).collect::<Vec<_>>(), [node]);
    assert_eq!(cloud.quota().unwrap()["machines"], Usage { limit: Some(1), used: 1 });
    cloud.stop(node).unwrap();
    while cloud.poll(node).unwrap() == NodeState::Stopping {}
    assert_eq!(cloud.poll(node).unwrap(), NodeState::Absent);
    cloud.stop(node).unwrap();
    assert_eq!(cloud.list().unwrap(), []);
}
