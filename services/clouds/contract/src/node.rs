//! Nodes: wanted, ready, found.

use std::collections::BTreeMap;

use gatelog_record::{NodeId, Value};

/// A node that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWanted {
    /// The name it will have for ever.
    pub node: NodeId,
    /// Which attempt at it this is, from 1. Kept in what is made: an answer to an attempt that was given up is known.
    pub attempt: u32,
    /// What kind of node, by the label's name in the cloud.
    pub label: String,
    /// What it is made from and how large it is (image, flavor, zone, volume, tags, …), in the words of the provider's
    /// schema; empty where the label says all.
    pub from: BTreeMap<String, Value>,
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
        /// Its host keys, as lines of `known_hosts` without the name, where the cloud knows them; else whoever reaches it
        /// scans them.
        host_keys: Vec<String>,
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

/// How far a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// The cloud has nothing that bears its id: never made, or stopped and gone.
    Absent,
    /// It is being made.
    Starting {
        /// How far, in the other side's words, for people.
        detail: String,
    },
    /// It can be used.
    Ready(Box<NodeReady>),
    /// It was made, and will never be ready; what is left of it is stopped by [`crate::Cloud::stop`].
    Failed(crate::Trouble),
    /// It is on its way out.
    Stopping,
}

/// Something a cloud holds that bears this site's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeFound {
    /// Which node.
    pub node: NodeId,
    /// What the other side calls it: two of one node are told apart by it.
    pub machine: String,
    /// Which attempt it was made by, where that is known.
    pub attempt: Option<u32>,
    /// Its label, if the cloud still knows it; a node whose making was cut short has none.
    pub label: Option<String>,
}
