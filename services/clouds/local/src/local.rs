//! Nodes as directories.
//!
//! ```text
//! <root>/<node id>/node.json   which label
//! <root>/<node id>/home/       the node's own; all that a build sees of it
//! <root>/.new-<node id>/       in the making
//! <root>/.old-<node id>/       being deleted
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use gatelog_cloud_contract::{
    Capabilities, Cloud, NodeConnection, NodeFound, NodeReady, NodeState, NodeWanted, Quota, Trouble, Usage,
};
use gatelog_record::{NodeId, Value};
use serde::{Deserialize, Serialize};

use crate::error::LocalError;

const MAKING: &str = ".new-";
const DELETING: &str = ".old-";
/// More bytes than this no `node.json` has.
const LARGEST_RECORD: u64 = 64 << 10;

/// How the cloud is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCloudConfig {
    /// Its name.
    pub name: String,
    /// Where nodes live; made if it does not exist.
    pub root: PathBuf,
    /// How many slots this host has.
    pub slots: u32,
    /// What kinds of nodes there are.
    pub labels: BTreeMap<String, Label>,
}

/// A kind of node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// How many slots a node takes; at least one.
    pub slots: u32,
    /// How many nodes of this kind there may be.
    pub max_nodes: Option<u32>,
    /// What jobs are told in `nodepool.node_properties`.
    pub properties: BTreeMap<String, Value>,
}

impl Default for Label {
    fn default() -> Self {
        Label { slots: 1, max_nodes: None, properties: BTreeMap::new() }
    }
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Nodes that nobody wants any more; they are gone.
    pub deleted: Vec<NodeId>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    label: String,
}

/// The local cloud.
#[derive(Debug)]
pub struct LocalCloud {
    config: LocalCloudConfig,
    /// Held while nodes are counted and made, so that two do not take the last slot.
    making: Mutex<()>,
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LocalError {
    let path = path.to_owned();
    move |source| LocalError::Io { action, path, source }
}

fn make_dir(path: &Path) -> Result<(), LocalError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_error("make", path))
}

impl LocalCloud {
    /// Opens the cloud: what it had before, it has again.
    pub fn open(mut config: LocalCloudConfig) -> Result<LocalCloud, LocalError> {
        let settings = |reason: String| LocalError::Settings { cloud: config.name.clone(), reason };
        if config.slots == 0 {
            return Err(settings("it has no slot; give it at least one".into()));
        }
        if let Some((name, label)) =
            config.labels.iter().find(|(_, label)| label.slots == 0 || label.slots > config.slots)
        {
            return Err(settings(format!(
                "label {name:?} takes {} slots; it must be 1 to {}",
                label.slots, config.slots
            )));
        }
        make_dir(&config.root)?;
        config.root = fs::canonicalize(&config.root).map_err(io_error("find", &config.root))?;
        Ok(LocalCloud { config, making: Mutex::default() })
    }

    /// Deletes every node that is not wanted, and what was cut short in the making or deleting.
    pub fn sweep(&self, wanted: &BTreeSet<NodeId>) -> Result<SweepReport, LocalError> {
        let mut report = SweepReport::default();
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        for (prefix, node, path) in self.entries()? {
            if prefix.is_empty() && wanted.contains(&node) {
                continue;
            }
            let result = if prefix.is_empty() { self.remove(node) } else { remove_tree(&path) };
            match result {
                Ok(()) if prefix.is_empty() => report.deleted.push(node),
                Ok(()) => {}
                Err(error) => report.failed.push(Trouble::from(error).message),
            }
        }
        report.deleted.sort_unstable();
        Ok(report)
    }

    fn path(&self, prefix: &str, node: NodeId) -> PathBuf {
        self.config.root.join(format!("{prefix}{node}"))
    }

    /// What lies in the root: prefix, node and path. Anything else there is not ours.
    fn entries(&self) -> Result<Vec<(&'static str, NodeId, PathBuf)>, LocalError> {
        let root = &self.config.root;
        let mut found = Vec::new();
        for entry in fs::read_dir(root).map_err(io_error("read", root))? {
            let path = entry.map_err(io_error("read", root))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let (prefix, id) = [MAKING, DELETING]
                .into_iter()
                .find_map(|prefix| Some((prefix, name.strip_prefix(prefix)?)))
                .unwrap_or(("", name));
            if let Ok(node) = id.parse() {
                found.push((prefix, node, path));
            }
        }
        Ok(found)
    }

    /// The label of a node; `None`: there is no such node.
    fn label_of(&self, node: NodeId) -> Result<Option<String>, LocalError> {
        use io::Read;
        let path = self.path("", node).join("node.json");
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(io_error("read", &path))?,
        };
        let mut text = Vec::new();
        file.take(LARGEST_RECORD).read_to_end(&mut text).map_err(io_error("read", &path))?;
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| io_error("understand", &path)(io::Error::other(error)))?;
        Ok(Some(record.label))
    }

    fn label(&self, name: &str) -> Result<&Label, LocalError> {
        self.config.labels.get(name).ok_or_else(|| LocalError::UnknownLabel {
            cloud: self.config.name.clone(),
            label: name.to_owned(),
            known: self.config.labels.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    fn ready(&self, node: NodeId, name: &str, label: &Label) -> NodeReady {
        let text = |text: &str| Value::from(text);
        let mut node_properties = label.properties.clone();
        node_properties.insert("sandbox".into(), Value::Bool(true));
        let properties = [
            ("cloud".to_owned(), text(&self.config.name)),
            ("provider".to_owned(), text(&self.config.name)),
            ("region".to_owned(), text("local")),
            ("external_id".to_owned(), Value::Str(node.to_string())),
            ("interface_ip".to_owned(), text("127.0.0.1")),
            ("node_properties".to_owned(), Value::Map(node_properties)),
        ];
        let dir = self.path("", node).join("home").to_string_lossy().into_owned();
        NodeReady {
            node,
            label: name.to_owned(),
            connection: NodeConnection::Local { dir },
            properties: properties.into(),
        }
    }

    fn full(&self, what: String, used: u32, limit: u32) -> LocalError {
        LocalError::Full { cloud: self.config.name.clone(), what, used, limit }
    }

    /// Slots that a node takes; one whose label is no longer known takes one.
    fn cost(&self, label: Option<&String>) -> u32 {
        label.and_then(|label| self.config.labels.get(label)).map_or(1, |label| label.slots)
    }
}

impl LocalCloud {
    /// Makes a node, or finds it made.
    fn make(&self, wanted: &NodeWanted) -> Result<NodeReady, LocalError> {
        let label = self.label(&wanted.label)?;
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        match self.label_of(wanted.node)? {
            Some(existing) if existing == wanted.label => {
                return Ok(self.ready(wanted.node, &wanted.label, label));
            }
            Some(existing) => {
                return Err(LocalError::Mismatch { node: wanted.node, existing, wanted: wanted.label.clone() });
            }
            None => {}
        }
        let nodes = self.nodes()?;
        let used = self.used(&nodes);
        if used.saturating_add(label.slots) > self.config.slots {
            return Err(self.full("slots".into(), used, self.config.slots));
        }
        let same = nodes.iter().filter(|node| node.label.as_ref() == Some(&wanted.label)).count();
        let same = u32::try_from(same).unwrap_or(u32::MAX);
        if let Some(limit) = label.max_nodes.filter(|limit| same >= *limit) {
            return Err(self.full(format!("nodes of label {}", wanted.label), same, limit));
        }
        // Complete before it has its name: a node that exists can be used.
        let making = self.path(MAKING, wanted.node);
        remove_tree(&making)?;
        make_dir(&making.join("home"))?;
        let record = serde_json::json!(Record { label: wanted.label.clone() }).to_string();
        let file = making.join("node.json");
        fs::write(&file, record).map_err(io_error("write", &file))?;
        let path = self.path("", wanted.node);
        fs::rename(&making, &path).map_err(io_error("make", &path))?;
        tracing::debug!(cloud = %self.config.name, node = %wanted.node, label = %wanted.label, "node made");
        Ok(self.ready(wanted.node, &wanted.label, label))
    }

    fn remove(&self, node: NodeId) -> Result<(), LocalError> {
        let (path, deleting) = (self.path("", node), self.path(DELETING, node));
        remove_tree(&deleting)?;
        match fs::rename(&path, &deleting) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_error("delete", &path)(error)),
            // From here on the node does not exist; a rest is removed by the next sweep.
            Ok(()) => remove_tree(&deleting),
        }
    }

    pub(crate) fn nodes(&self) -> Result<Vec<NodeFound>, LocalError> {
        let mut nodes = Vec::new();
        for (prefix, node, path) in self.entries()? {
            if prefix.is_empty() {
                let label = self.label_of(node).unwrap_or_else(|error| {
                    tracing::warn!(node = %path.display(), %error, "a node does not say what it is");
                    None
                });
                nodes.push(NodeFound { node, machine: node.to_string(), attempt: None, label });
            }
        }
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// Slots that nodes take.
    fn used(&self, nodes: &[NodeFound]) -> u32 {
        nodes.iter().fold(0_u32, |sum, node| sum.saturating_add(self.cost(node.label.as_ref())))
    }
}

impl Cloud for LocalCloud {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            labels: self.config.labels.keys().cloned().collect(),
            keeps_nodes: true,
            starts_at_once: true,
            tells_quota: true,
            image_formats: BTreeSet::new(),
        }
    }

    fn start(&self, wanted: &NodeWanted) -> Result<NodeState, Trouble> {
        Ok(NodeState::Ready(Box::new(self.make(wanted)?)))
    }

    fn poll(&self, node: NodeId) -> Result<NodeState, Trouble> {
        let Some(name) = self.label_of(node)? else { return Ok(NodeState::Absent) };
        // One whose label went from the settings is there all the same.
        let usual = Label::default();
        let label = self.config.labels.get(&name).unwrap_or(&usual);
        Ok(NodeState::Ready(Box::new(self.ready(node, &name, label))))
    }

    fn stop(&self, node: NodeId) -> Result<(), Trouble> {
        Ok(self.remove(node)?)
    }

    fn list(&self) -> Result<Vec<NodeFound>, Trouble> {
        Ok(self.nodes()?)
    }

    fn quota(&self) -> Result<Quota, Trouble> {
        let used = u64::from(self.used(&self.nodes()?));
        let slots = Usage { limit: Some(u64::from(self.config.slots)), used };
        Ok([("slots".to_owned(), slots)].into())
    }
}

/// Removes a directory tree, also where a job has taken its own rights away or has put directories
/// into each other without end. Nothing there is fine.
fn remove_tree(path: &Path) -> Result<(), LocalError> {
    let is_there = || fs::symlink_metadata(path).is_ok();
    if !is_there() {
        return Ok(());
    }
    // The program, because it needs neither a file nor room on the stack for every level.
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(path).stdin(Stdio::null()).output();
        let output = output.map_err(io_error("remove", path))?;
        Ok(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it is still there").to_owned())
    };
    let mut said: String = run("rm", &["-rf", "--"])?;
    if is_there() {
        run("chmod", &["-R", "u+rwx", "--"])?;
        said = run("rm", &["-rf", "--"])?;
    }
    if is_there() { Err(io_error("remove", path)(io::Error::other(said))) } else { Ok(()) }
}
