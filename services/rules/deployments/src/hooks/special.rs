//! Tasks that are known by their id.

use serde_json::{Map, Value};

use super::templates::{self, Uids, fill};
use super::{Places, Sent, Workshop};
use crate::cluster::Node;
use crate::fault::Fault;
use crate::task::Task;
use crate::values;
use crate::version::Version;

/// What Fuel does with a task of this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// Sources of packages on all nodes.
    Repositories,
    /// A tree for all nodes, from an address with names in it.
    Tree,
    /// Files with names in their paths.
    Files,
    /// The same, only if there is a node for bare metal.
    BareMetalKey,
    /// A command with names in it.
    Keys,
    /// The same, with the public name of the cluster.
    PublicKeys,
    /// The same, only if it has somewhere to run.
    Images,
    /// Only if a node stores blocks.
    Gateway,
    /// The list of nodes, for all nodes that are ready or deployed.
    NodeList,
    /// A manifest for all nodes that are ready or deployed.
    Hosts,
    /// Changed settings of services; nobody has any here.
    Changed,
}

fn special(id: &str, version: Version) -> Option<Special> {
    let always = match id {
        "upload_core_repos" => Special::Repositories,
        "rsync_core_puppet" => Special::Tree,
        "copy_keys" | "copy_haproxy_keys" | "copy_keys_ceph" => Special::Files,
        "generate_keys" | "generate_keys_ceph" => Special::Keys,
        "generate_haproxy_keys" => Special::PublicKeys,
        "restart_radosgw" => Special::Gateway,
        "upload_nodes_info" => Special::NodeList,
        "update_hosts" => Special::Hosts,
        _ => {
            let later = match id {
                "ironic_upload_images" => Special::Images,
                "ironic_copy_bootstrap_key" => Special::BareMetalKey,
                "upload_configuration" => Special::Changed,
                _ => return None,
            };
            return (version >= Version::Eight).then_some(later);
        }
    };
    Some(always)
}

/// Whether a task is known by its id, and so fills in its own parameters.
pub(crate) fn is_special(id: &str) -> bool {
    id == "generate_vms" || special(id, Version::Nine).is_some()
}

impl Workshop<'_> {
    /// Whether a task is wanted: its condition, but where its id says otherwise.
    pub(crate) fn wants(&self, task: &Task, places: &dyn Places) -> Result<bool, Fault> {
        match task.id().and_then(|id| special(id, self.version)) {
            Some(Special::Gateway) => Ok(self.cluster.deployed().iter().any(|node| node.has_plain("ceph-osd"))),
            Some(Special::BareMetalKey) => Ok(!places.of(Some(&serde_json::json!(["ironic"])))?.is_empty()),
            _ => self.condition(task),
        }
    }

    /// Whether a task of a graph of tasks on nodes is wanted.
    pub(crate) fn wants_on_nodes(&self, task: &Task, places: &dyn Places) -> Result<bool, Fault> {
        if task.id() == Some("generate_vms") { Ok(!self.with_machines().is_empty()) } else { self.wants(task, places) }
    }

    /// What is sent for a task in a graph of tasks on nodes.
    pub(crate) fn make_on_nodes(&self, task: &Task, places: &dyn Places) -> Result<Vec<Sent>, Fault> {
        if task.id() == Some("generate_vms") {
            return Ok(vec![self.named(self.puppet(self.with_machines(), task)?, task)]);
        }
        self.make(task, places)
    }

    /// What is sent for a task.
    pub(crate) fn make(&self, task: &Task, places: &dyn Places) -> Result<Vec<Sent>, Fault> {
        let made = match task.id().and_then(|id| special(id, self.version)) {
            None | Some(Special::Gateway) => {
                let uids = self.places(task, places)?;
                if uids.is_empty() { Vec::new() } else { vec![self.generic(uids, task, task.parameters()?)?] }
            }
            Some(Special::Repositories) => self.repositories(&places.of(Some(&Value::from("*")))?)?,
            Some(Special::Tree) => {
                let known = [
                    ("MASTER_IP", self.settings.master_ip.clone()),
                    ("OPENSTACK_VERSION", self.cluster.release_version.clone()),
                ];
                let src = fill(&self.text(task, "src")?, &known)?;
                let dst = task.parameter("dst").ok_or_else(|| Fault::Missing("dst".to_owned()))?;
                vec![templates::sync(places.of(Some(&Value::from("*")))?, &src, dst)]
            }
            Some(Special::Files | Special::BareMetalKey) => {
                vec![self.generic(self.places(task, places)?, task, &self.filled_files(task)?)?]
            }
            Some(Special::Keys) => vec![self.filled_command(task, self.places(task, places)?, false)?],
            Some(Special::PublicKeys) => vec![self.filled_command(task, self.places(task, places)?, true)?],
            Some(Special::Images) => {
                let uids = self.places(task, places)?;
                if uids.is_empty() { Vec::new() } else { vec![self.filled_command(task, uids, false)?] }
            }
            Some(Special::NodeList) => {
                let nodes = self.cluster.deployed_and_ready();
                vec![templates::upload(uids_of(&nodes), &self.text(task, "path")?, &node_list(&nodes))]
            }
            Some(Special::Hosts) => vec![self.puppet(uids_of(&self.cluster.deployed_and_ready()), task)?],
            Some(Special::Changed) => Vec::new(),
        };
        Ok(made.into_iter().map(|one| self.named(one, task)).collect())
    }

    fn named(&self, sent: Sent, task: &Task) -> Sent {
        Sent { origin: task.id().map(str::to_owned), ..sent }
    }

    /// Where a task runs. Fuel 7.0 wants a `role`; 8.0 takes `groups` for it.
    fn places(&self, task: &Task, places: &dyn Places) -> Result<Uids, Fault> {
        let role = if self.version >= Version::Eight {
            task.get("role").or_else(|| task.get("groups"))
        } else {
            Some(task.need("role")?)
        };
        places.of(role)
    }

    fn text(&self, task: &Task, name: &str) -> Result<String, Fault> {
        task.parameters()?.get(name).ok_or_else(|| Fault::Missing(name.to_owned())).and_then(values::name)
    }

    fn cluster_id(&self) -> Result<(&'static str, String), Fault> {
        Ok(("CLUSTER_ID", values::name(&self.cluster.id)?))
    }

    fn filled_command(&self, task: &Task, uids: Uids, public: bool) -> Result<Sent, Fault> {
        let mut known = vec![self.cluster_id()?];
        if public {
            let pointer = self.cluster.settings.pointer("/public_ssl/hostname/value");
            let name = pointer.ok_or_else(|| Fault::Missing("public_ssl".to_owned())).and_then(values::name)?;
            known.push(("CN_HOSTNAME", name));
        }
        let cmd = fill(&self.text(task, "cmd")?, &known)?;
        let mut parameters = task.parameters()?.clone();
        parameters.insert("cmd".to_owned(), Value::from(cmd));
        self.shell(uids, task.id(), &parameters)
    }

    fn filled_files(&self, task: &Task) -> Result<Map<String, Value>, Fault> {
        let known = [self.cluster_id()?];
        let mut parameters = task.parameters()?.clone();
        let files = parameters.get_mut("files").ok_or_else(|| Fault::Missing("files".to_owned()))?;
        for file in files.as_array_mut().into_iter().flatten() {
            let src = file.get("src").ok_or_else(|| Fault::Missing("src".to_owned())).and_then(values::name)?;
            let src = fill(&src, &known)?;
            if let Some(fields) = file.as_object_mut() {
                fields.insert("src".to_owned(), Value::from(src));
            }
        }
        Ok(parameters)
    }

    /// Sources of packages. Priorities of packages would be read from the source itself; nothing here reads it.
    fn repositories(&self, uids: &Uids) -> Result<Vec<Sent>, Fault> {
        let mut sent = Vec::new();
        match self.cluster.operating_system.as_str() {
            "CentOS" => {
                for repo in &self.cluster.repos {
                    sent.push(templates::centos_source(uids.clone(), repo)?);
                }
                sent.push(self.command(uids.clone(), "yum clean all", 180)?);
            }
            "Ubuntu" => {
                let patience = if self.version >= Version::Eight { 60 } else { 10 };
                sent.push(self.command(uids.clone(), "> /etc/apt/sources.list", patience)?);
                let (old, new) = ("Acquire::ForceIPv4 \"true\";\n", "APT::Get::AllowUnauthenticated 1;\n");
                sent.push(templates::upload(uids.clone(), "/etc/apt/apt.conf.d/05disable-ipv6", old));
                sent.push(templates::upload(uids.clone(), "/etc/apt/apt.conf.d/02mirantis-allow-unsigned", new));
                for repo in &self.cluster.repos {
                    sent.push(templates::ubuntu_source(uids.clone(), repo)?);
                }
                sent.push(self.command(uids.clone(), "apt-get update", 1800)?);
            }
            _ => {}
        }
        Ok(sent)
    }
}

fn uids_of(nodes: &[&Node]) -> Uids {
    nodes.iter().map(|node| Some(node.uid.clone())).collect()
}

/// The list of nodes and roles as YAML.
fn node_list(nodes: &[&Node]) -> String {
    let mut text = "nodes:\n".to_owned();
    let mut any = false;
    for node in nodes {
        for role in node.all_roles() {
            any = true;
            text.push_str(&format!("- {{role: {role}, uid: {}}}\n", quoted_uid(&node.uid)));
        }
    }
    if any { text } else { "nodes: []\n".to_owned() }
}

/// Digits alone would be a number.
fn quoted_uid(uid: &str) -> String {
    if uid.bytes().all(|byte| byte.is_ascii_digit()) { format!("'{uid}'") } else { uid.to_owned() }
}
