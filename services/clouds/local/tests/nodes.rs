//! The local cloud as its user sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatelog_cloud_contract::{
    Cloud, NodeConnection, NodeFound, NodeReady, NodeState, NodeWanted, Opening, Refusal, Trouble, Usage,
};
use gatelog_cloud_local::{DRIVER, Label, LocalCloud, LocalCloudConfig};
use gatelog_record::{NodeId, Value};

fn config(root: &Path) -> LocalCloudConfig {
    let large = Label { slots: 2, max_nodes: Some(1), properties: [("fast".to_owned(), Value::Bool(true))].into() };
    let labels: BTreeMap<_, _> = [("small".to_owned(), Label::default()), ("large".to_owned(), large)].into();
    LocalCloudConfig { name: "here".into(), root: root.join("nodes"), slots: 4, labels }
}

fn request(number: u8, label: &str) -> NodeWanted {
    NodeWanted { node: NodeId([number; 16]), attempt: 1, label: label.into(), from: BTreeMap::new() }
}

/// The node, which is there at once.
fn ready(state: Result<NodeState, Trouble>) -> Result<NodeReady, Trouble> {
    match state? {
        NodeState::Ready(ready) => Ok(*ready),
        other => panic!("{other:?}"),
    }
}

fn found(number: u8, label: &str) -> NodeFound {
    let node = NodeId([number; 16]);
    NodeFound { node, machine: node.to_string(), attempt: None, label: Some(label.into()) }
}

#[test]
fn a_node_is_made_once_survives_a_restart_and_goes_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    let node = ready(cloud.start(&request(1, "large"))).unwrap();
    let NodeConnection::Local { dir } = &node.connection else { panic!("{node:?}") };
    std::fs::write(Path::new(dir).join("work"), "of a job").unwrap();
    assert_eq!(node.properties["cloud"], Value::from("here"));
    assert_eq!(node.properties["node_properties"].as_map().unwrap()["fast"], Value::Bool(true));
    drop(cloud);
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    assert_eq!(ready(cloud.start(&request(1, "large"))).unwrap(), node, "asking again finds it");
    assert!(Path::new(dir).join("work").exists());
    assert_eq!(cloud.list().unwrap(), [found(1, "large")]);
    let other = ready(cloud.start(&request(1, "small"))).unwrap_err();
    assert!(other.to_string().contains("exists already with label \"large\", not \"small\""), "{other}");
    assert_eq!(ready(cloud.poll(node.node)).unwrap(), node);
    cloud.stop(node.node).unwrap();
    cloud.stop(node.node).unwrap();
    assert_eq!(cloud.poll(node.node).unwrap(), NodeState::Absent);
    assert!(!Path::new(dir).exists());
    assert_eq!(cloud.list().unwrap(), []);
}

#[test]
fn there_are_no_more_nodes_than_slots_and_labels_allow() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    ready(cloud.start(&request(1, "large"))).unwrap();
    let error = ready(cloud.start(&request(2, "large"))).unwrap_err();
    assert!(error.to_string().contains("1 of 1 nodes of label large are taken"), "{error}");
    ready(cloud.start(&request(3, "small"))).unwrap();
    ready(cloud.start(&request(4, "small"))).unwrap();
    assert_eq!(cloud.quota().unwrap()["slots"], Usage { limit: Some(4), used: 4 });
    let error = ready(cloud.start(&request(5, "small"))).unwrap_err();
    assert!(error.refusal == Refusal::Quota && error.message.contains("4 of 4 slots"), "{error:?}");
    cloud.stop(NodeId([3; 16])).unwrap();
    ready(cloud.start(&request(5, "small"))).unwrap();
    let error = ready(cloud.start(&request(6, "huge"))).unwrap_err();
    assert!(error.to_string().contains("no label \"huge\": use one of large, small"), "{error}");
    assert_eq!(error.refusal, Refusal::Permanent);
}

#[test]
fn leftovers_are_swept_and_strangers_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    for number in 1..=3 {
        ready(cloud.start(&request(number, "small"))).unwrap();
    }
    let root = folder.path().join("nodes");
    // Cut short in the making, cut short in the deleting, and something that is no node.
    let half = root.join(format!(".new-{}", NodeId([8; 16])));
    let rest = root.join(format!(".old-{}", NodeId([9; 16])));
    let stranger = root.join("lost+found");
    for path in [&half, &rest, &stranger] {
        std::fs::create_dir(path).unwrap();
    }
    let wanted = BTreeSet::from([NodeId([2; 16])]);
    let report = cloud.sweep(&wanted).unwrap();
    assert_eq!(report.deleted, [NodeId([1; 16]), NodeId([3; 16])]);
    assert_eq!(report.failed, Vec::<String>::new());
    assert!(!half.exists() && !rest.exists() && stranger.exists());
    assert_eq!(cloud.list().unwrap().len(), 1);
}

#[test]
fn what_a_job_made_hard_to_remove_is_removed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    let node = ready(cloud.start(&request(1, "small"))).unwrap();
    let NodeConnection::Local { dir } = &node.connection else { panic!("{node:?}") };
    // Longer than any path may be, and without rights on the way.
    let script = "p=$(printf 'd/%.0s' $(seq 100)); for n in $(seq 30); do mkdir -p $p && cd -P $p || exit 1; done";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::set_permissions(Path::new(dir).join("d/d"), std::fs::Permissions::from_mode(0o000)).unwrap();
    std::os::unix::fs::symlink(folder.path(), Path::new(dir).join("out")).unwrap();
    cloud.stop(node.node).unwrap();
    assert!(!Path::new(dir).exists());
    assert_eq!(std::fs::read_dir(folder.path().join("nodes")).unwrap().count(), 0);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut none = config(folder.path());
    none.slots = 0;
    assert!(LocalCloud::open(none).unwrap_err().to_string().contains("at least one"));
    let mut wide = config(folder.path());
    wide.slots = 1;
    let error = LocalCloud::open(wide).unwrap_err().to_string();
    assert!(error.contains("label \"large\" takes 2 slots; it must be 1 to 1"), "{error}");
}

#[test]
fn it_is_opened_by_its_settings_and_removes_what_was_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let open = |text: &str| {
        let settings = (DRIVER.read)(toml::from_str(text).unwrap()).map_err(|error| error.to_string())?;
        let now = || gatelog_record::Timestamp(0);
        let opening = Opening { name: "local", site: folder.path(), site_id: None, now };
        settings.open(&opening).map(|opened| opened.nodes).map_err(|trouble| trouble.to_string())
    };
    let half = folder.path().join("nodes").join(format!(".new-{}", NodeId([8; 16])));
    std::fs::create_dir_all(&half).unwrap();
    let cloud = open("slots = 2\nlabels = [\"small\"]\n").unwrap();
    assert!(!half.exists());
    assert_eq!(ready(cloud.start(&request(1, "small"))).unwrap().properties["cloud"], Value::from("local"));
    assert!(cloud.capabilities().labels.contains("small"));
    let wrong = open("slots = 2\nlabel = []\n").err().unwrap();
    assert!(wrong.contains("unknown field `label`") && wrong.contains("`labels`"), "{wrong}");
    assert!(open("slots = 0\n").err().unwrap().contains("at least one"));
}
