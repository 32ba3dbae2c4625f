//! What gatelog asks of a cloud.
//!
//! Every operation is addressed by node id, so that doing it twice is doing it once: whoever dies
//! between asking and recording the answer asks again. A cloud keeps the node id in whatever it
//! makes, and [`Cloud::list_nodes`] finds it there: that is how leftovers are found.

use std::collections::BTreeMap;

use gatelog_record::{NodeId, Value};

/// A node that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequest {
    /// The name it will have for ever.
    pub node: NodeId,
    /// What kind of node.
    pub label: String,
}

/// How a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeConnection {
    /// On this host, inside a build's sandbox; the directory is the node's home.
    Local {
        /// Absolute path.
        dir: String,
    },
    /// Over a network.
    Remote {
        /// Ansible's connection plugin, such as `ssh`.
        plugin: String,
        /// Address.
        host: String,
        /// Port, if not the plugin's own.
        port: Option<u16>,
        /// User, if the image says one.
        user: Option<String>,
    },
}

/// A node that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReady {
    /// Which.
    pub node: NodeId,
    /// Its label.
    pub label: String,
    /// How it is reached.
    pub connection: NodeConnection,
    /// What the inventory says about it (`cloud`, `region`, `az`, `host_id`, `interface_ip`,
    /// `node_properties`, …).
    pub properties: BTreeMap<String, Value>,
}

/// A node that a cloud has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeFound {
    /// Which.
    pub node: NodeId,
    /// Its label, if the cloud still knows it; a node whose making was cut short has none.
    pub label: Option<String>,
}

/// How much a cloud can hold and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Slots there are.
    pub slots: u32,
    /// Slots that nodes take.
    pub used: u32,
}

/// Why a cloud did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// There is no such label.
    #[error("cloud {cloud} has no label {label:?}: use one of {known}, or add it to the cloud's settings")]
    UnknownLabel {
        /// The cloud.
        cloud: String,
        /// What was asked for.
        label: String,
        /// What there is.
        known: String,
    },
    /// The cloud is full; it works once another node is deleted.
    #[error("cloud {cloud} is full: {used} of {limit} {what} are taken; wait for a node to be deleted")]
    Full {
        /// The cloud.
        cloud: String,
        /// What is short.
        what: String,
        /// How many are taken.
        used: u32,
        /// How many there are.
        limit: u32,
    },
    /// The node exists and is something else.
    #[error("node {node} exists already with label {existing:?}, not {wanted:?}: delete it first")]
    Mismatch {
        /// Which.
        node: NodeId,
        /// The label it has.
        existing: String,
        /// The label asked for.
        wanted: String,
    },
    /// Settings that cannot work.
    #[error("settings of cloud {cloud} cannot work: {reason}")]
    Settings {
        /// The cloud.
        cloud: String,
        /// What is wrong, and the cure.
        reason: String,
    },
    /// A file or directory.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: std::path::PathBuf,
        /// Why it did not work.
        source: std::io::Error,
    },
}

/// A place that has nodes. Calls may block; make them where blocking is allowed.
pub trait Cloud: Send + Sync {
    /// The cloud's name.
    fn name(&self) -> &str;

    /// Makes the node, or finds it made, and waits until it can be used.
    fn create_node(&self, request: &NodeRequest) -> Result<NodeReady, CloudError>;

    /// Deletes the node; one that does not exist is deleted already.
    fn delete_node(&self, node: NodeId) -> Result<(), CloudError>;

    /// All nodes that gatelog ever asked this cloud for and that still exist, in order.
    fn list_nodes(&self) -> Result<Vec<NodeFound>, CloudError>;

    /// How much there is and how much is taken.
    fn capacity(&self) -> Result<Capacity, CloudError>;
}
