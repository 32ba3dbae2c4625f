//! What is deployed: nodes with roles, and the settings that conditions and tasks ask for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The name of the machine that deploys, where tasks may run, too.
pub const MASTER: &str = "master";

/// A machine with roles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its id.
    pub uid: String,
    /// The roles it has.
    pub roles: Vec<String>,
    /// The roles it is to get.
    pub pending_roles: Vec<String>,
    /// Of its roles, those in which it is the first of its cluster: shown as `primary-X` instead of `X`.
    pub primary_roles: Vec<String>,
    /// How it is: `provisioned`, `ready`, `error`, …
    pub status: String,
    /// Whether it is to be removed.
    pub pending_deletion: bool,
    /// Virtual machines it is to carry.
    pub vms: Vec<Value>,
}

impl Node {
    /// A provisioned node.
    pub fn new(uid: &str, roles: &[&str]) -> Node {
        Node {
            uid: uid.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            status: "provisioned".to_owned(),
            ..Node::default()
        }
    }

    /// All roles, present and pending, sorted; `primary-X` in place of `X` where the node is the first.
    pub fn all_roles(&self) -> Vec<String> {
        let mut roles: BTreeSet<String> = self.roles.iter().chain(&self.pending_roles).cloned().collect();
        for primary in &self.primary_roles {
            roles.remove(primary);
        }
        roles.extend(self.primary_roles.iter().map(|role| format!("primary-{role}")));
        roles.into_iter().collect()
    }

    /// Whether it has a role by its plain name.
    pub fn has_plain(&self, role: &str) -> bool {
        self.roles.iter().chain(&self.pending_roles).any(|one| one == role)
    }
}

/// One role of one node: what is numbered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The node.
    pub uid: String,
    /// One of its roles.
    pub role: String,
}

/// A tool of hooks from outside the graph, in the old form: tasks with a `stage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plugin {
    /// Its name, by which plugins are sorted.
    pub name: String,
    /// Its name with a version.
    pub full_name: Option<String>,
    /// Its hooks.
    pub tasks: Vec<Map<String, Value>>,
    /// Its part of the graph.
    pub deployment_tasks: Vec<Map<String, Value>>,
    /// Whether it brings packages.
    pub has_repo: bool,
}

impl Plugin {
    /// Its name with a version.
    pub fn full_name(&self) -> String {
        self.full_name.clone().unwrap_or_else(|| format!("{}-1.0", self.name))
    }
}

/// An environment: what conditions and tasks may ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Its id.
    pub id: Value,
    /// `ha_compact`, `multinode`.
    pub mode: String,
    /// `new`, `operational`, …
    pub status: String,
    /// Its name.
    pub name: String,
    /// Who makes its network.
    pub net_provider: String,
    /// What its nodes run.
    pub operating_system: String,
    /// The release it was made from.
    pub release_version: String,
    /// The editable settings, as they are written: a value stands under `value`.
    pub settings: Value,
    /// Where packages come from.
    pub repos: Vec<Map<String, Value>>,
    /// Hooks from outside the graph.
    pub plugins: Vec<Plugin>,
    /// All its nodes, in order.
    #[serde(skip)]
    pub nodes: Vec<Node>,
    /// The nodes that are deployed now, by uid; all if `None`.
    #[serde(skip)]
    pub deploy: Option<Vec<String>>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            id: json!(1),
            mode: "ha_compact".to_owned(),
            status: "new".to_owned(),
            name: "env".to_owned(),
            net_provider: "neutron".to_owned(),
            operating_system: "CentOS".to_owned(),
            release_version: "2014.2-6.1".to_owned(),
            settings: json!({}),
            repos: Vec::new(),
            plugins: Vec::new(),
            nodes: Vec::new(),
            deploy: None,
        }
    }
}

impl Cluster {
    /// A cluster of these nodes, all of them deployed.
    pub fn of(nodes: Vec<Node>) -> Cluster {
        Cluster { nodes, ..Cluster::default() }
    }

    /// The nodes that are deployed now.
    pub fn deployed(&self) -> Vec<&Node> {
        let wanted = |node: &&Node| self.deploy.as_ref().is_none_or(|deploy| deploy.contains(&node.uid));
        self.nodes.iter().filter(wanted).collect()
    }

    /// One entry for each deployed node and role: nodes in order, the roles of each sorted.
    pub fn entries(&self) -> Vec<Entry> {
        let of = |node: &&Node| {
            let uid = node.uid.clone();
            node.all_roles().into_iter().map(move |role| Entry { uid: uid.clone(), role }).collect::<Vec<_>>()
        };
        self.deployed().iter().flat_map(of).collect()
    }

    /// The deployed nodes and all others that are ready and stay.
    pub fn deployed_and_ready(&self) -> Vec<&Node> {
        let deployed = self.deployed();
        let stays = |node: &&Node| {
            (node.status == "ready" && !node.pending_deletion) || deployed.iter().any(|one| one.uid == node.uid)
        };
        self.nodes.iter().filter(stays).collect()
    }

    /// The cluster as conditions see it.
    pub fn model(&self) -> Value {
        json!({
            "id": self.id, "mode": self.mode, "status": self.status, "name": self.name,
            "net_provider": self.net_provider,
            "release": {"version": self.release_version, "operating_system": self.operating_system},
            "attributes": {"editable": self.settings},
        })
    }
}
