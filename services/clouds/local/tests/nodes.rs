//! The local cloud as its user sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatelog_cloud_local::{
    Capacity, Cloud, CloudError, Label, LocalCloud, LocalCloudConfig, NodeConnection, NodeFound, NodeRequest,
};
use gatelog_record::{NodeId, Value};

fn config(root: &Path) -> LocalCloudConfig {
    let large = Label { slots: 2, max_nodes: Some(1), properties: [("fast".to_owned(), Value::Bool(true))].into() };
    let labels: BTreeMap<_, _> = [("small".to_owned(), Label::default()), ("large".to_owned(), large)].into();
    LocalCloudConfig { name: "here".into(), root: root.join("nodes"), slots: 4, labels }
}

fn request(number: u8, label: &str) -> NodeRequest {
    NodeRequest { node: NodeId([number; 16]), label: label.into() }
}

#[test]
fn a_node_is_made_once_survives_a_restart_and_goes_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    let ready = cloud.create_node(&request(1, "large")).unwrap();
    let NodeConnection::Local { dir } = &ready.connection else { panic!("{ready:?}") };
    std::fs::write(Path::new(dir).join("work"), "of a job").unwrap();
    assert_eq!(ready.properties["cloud"], Value::from("here"));
    assert_eq!(ready.properties["node_properties"].as_map().unwrap()["fast"], Value::Bool(true));
    drop(cloud);
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    assert_eq!(cloud.create_node(&request(1, "large")).unwrap(), ready, "asking again finds it");
    assert!(Path::new(dir).join("work").exists());
    assert_eq!(cloud.list_nodes().unwrap(), [NodeFound { node: ready.node, label: Some("large".into()) }]);
    let other = cloud.create_node(&request(1, "small")).unwrap_err();
    assert!(other.to_string().contains("exists already with label \"large\", not \"small\""), "{other}");
    cloud.delete_node(ready.node).unwrap();
    cloud.delete_node(ready.node).unwrap();
    assert!(!Path::new(dir).exists());
    assert_eq!(cloud.list_nodes().unwrap(), []);
}

#[test]
fn there_are_no_more_nodes_than_slots_and_labels_allow() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    cloud.create_node(&request(1, "large")).unwrap();
    let error = cloud.create_node(&request(2, "large")).unwrap_err();
    assert!(error.to_string().contains("1 of 1 nodes of label large are taken"), "{error}");
    cloud.create_node(&request(3, "small")).unwrap();
    cloud.create_node(&request(4, "small")).unwrap();
    assert_eq!(cloud.capacity().unwrap(), Capacity { slots: 4, used: 4 });
    let error = cloud.create_node(&request(5, "small")).unwrap_err();
    assert!(matches!(error, CloudError::Full { used: 4, limit: 4, .. }), "{error}");
    cloud.delete_node(NodeId([3; 16])).unwrap();
    cloud.create_node(&request(5, "small")).unwrap();
    let error = cloud.create_node(&request(6, "huge")).unwrap_err();
    assert!(error.to_string().contains("no label \"huge\": use one of large, small"), "{error}");
}

#[test]
fn leftovers_are_swept_and_strangers_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    for number in 1..=3 {
        cloud.create_node(&request(number, "small")).unwrap();
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
    assert_eq!(cloud.list_nodes().unwrap().len(), 1);
}

#[test]
fn what_a_job_made_hard_to_remove_is_removed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let cloud = LocalCloud::open(config(folder.path())).unwrap();
    let ready = cloud.create_node(&request(1, "small")).unwrap();
    let NodeConnection::Local { dir } = &ready.connection else { panic!("{ready:?}") };
    // Longer than any path may be, and without rights on the way.
    let script = "p=$(printf 'd/%.0s' $(seq 100)); for n in $(seq 30); do mkdir -p $p && cd -P $p || exit 1; done";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::set_permissions(Path::new(dir).join("d/d"), std::fs::Permissions::from_mode(0o000)).unwrap();
    std::os::unix::fs::symlink(folder.path(), Path::new(dir).join("out")).unwrap();
    cloud.delete_node(ready.node).unwrap();
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
