//! The inventory: hosts, groups and their variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatelog_record::Value;

use crate::frozen::Frozen;
use crate::identity::node_user;
use crate::spec::{BuildSpec, Connection, HostKeys, NodeSpec, Remote};
use crate::ssh;
use crate::variables::{HostVars, squash};
use crate::yaml::Yaml;

/// What the inventory needs to know of the executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// Python for tasks that run in the sandbox.
    pub(crate) python: &'a Path,
    /// Where Ansible puts its modules for tasks that run in the sandbox.
    pub(crate) local_tmp: &'a Path,
    /// The user for nodes that name none.
    pub(crate) default_username: &'a str,
    /// Where the repositories, logs and temporary files of the job are.
    pub(crate) work: &'a Path,
    /// The known keys of hosts whose fingerprint the job has; no process of the job can write there.
    pub(crate) pinned_hosts: &'a Path,
}

/// Variables as they are written, by name.
type Written = BTreeMap<String, Yaml>;

/// The whole inventory. Variables named in `hidden` are left out everywhere, because a playbook's
/// secret of that name must win. `frozen`: what the job's variables came to takes their place, never a template, and
/// they themselves are below `unsafe_vars`.
pub(crate) fn inventory(
    spec: &BuildSpec,
    around: &Surroundings<'_>,
    zuul: &Yaml,
    hidden: &BTreeSet<&str>,
    frozen: Option<&Frozen>,
) -> Yaml {
    let mut hosts = Vec::new();
    for node in &spec.nodeset.nodes {
        for name in std::iter::once(&node.name).chain(&node.aliases) {
            let mut variables = own_variables(spec, name, hidden, frozen);
            variables.extend(written(connection(node, around)));
            let mut entries: Vec<(String, Yaml)> = variables.into_iter().collect();
            let mut described = description(node);
            let uuid = described.remove("uuid").unwrap_or_default();
            entries.push(("nodepool".into(), Yaml::values(&described)));
            described.extend([("uuid".to_owned(), uuid), ("reuse".to_owned(), Value::Bool(false))]);
            entries.push(("zuul_node".into(), Yaml::values(&described)));
            hosts.push((name.clone(), Yaml::Map(entries)));
        }
    }
    let mut all_variables = own_variables(spec, "localhost", hidden, frozen);
    // Zuul: `work_root`, not the home directory.
    all_variables.insert("zuul_user_dir".into(), Yaml::Value(path(around.work)));
    let mut all_entries: Vec<(String, Yaml)> = all_variables.into_iter().collect();
    all_entries.push(("zuul".into(), zuul.clone()));
    let mut groups: Vec<(String, Yaml)> = spec
        .nodeset
        .groups
        .iter()
        .map(|group| {
            let members = group.nodes.iter().map(|node| (node.clone(), Yaml::Value(Value::Null))).collect();
            (group.name.clone(), Yaml::Map(vec![("hosts".into(), Yaml::Map(members))]))
        })
        .collect();
    groups.push(("zuul_unreachable".into(), Yaml::Map(vec![("hosts".into(), Yaml::Map(Vec::new()))])));
    let all = vec![
        ("hosts".into(), Yaml::Map(hosts)),
        ("vars".into(), Yaml::Map(all_entries)),
        ("children".into(), Yaml::Map(groups)),
    ];
    Yaml::Map(vec![("all".into(), Yaml::Map(all))])
}

fn own_variables(spec: &BuildSpec, host: &str, hidden: &BTreeSet<&str>, frozen: Option<&Frozen>) -> Written {
    let originals = squash(&spec.variables, &spec.nodeset, host);
    let mut variables: Written = match frozen {
        None => written(originals.clone()).collect(),
        Some(frozen) => frozen.of(host).iter().map(|(name, value)| (name.clone(), Yaml::literal(value))).collect(),
    };
    variables.retain(|name, _| !hidden.contains(name.as_str()));
    if frozen.is_some() {
        variables.insert("unsafe_vars".into(), Yaml::values(&originals));
    }
    variables
}

fn written(variables: HostVars) -> impl Iterator<Item = (String, Yaml)> {
    variables.into_iter().map(|(name, value)| (name, Yaml::Value(value)))
}

fn path(path: &Path) -> Value {
    Value::Str(path.to_string_lossy().into_owned())
}

/// Variables of a host whose tasks run in the sandbox.
fn local(around: &Surroundings<'_>) -> HostVars {
    [
        ("ansible_connection".to_owned(), Value::from("local")),
        ("ansible_python_interpreter".to_owned(), path(around.python)),
        ("ansible_remote_tmp".to_owned(), path(around.local_tmp)),
    ]
    .into()
}

fn connection(node: &NodeSpec, around: &Surroundings<'_>) -> HostVars {
    match &node.connection {
        Connection::Local { dir } => {
            let mut variables = local(around);
            variables.extend([
                ("ansible_host".to_owned(), Value::from("127.0.0.1")),
                ("ansible_port".to_owned(), Value::Int(22)),
                ("ansible_user".to_owned(), Value::Str(node_user(&node.name))),
                // Ours, for the connection plugin: tasks of this node run as if they had logged in there.
                ("gatelog_node_home".to_owned(), Value::from(dir.as_str())),
                ("zuul_user_dir".to_owned(), Value::from(dir.as_str())),
            ]);
            variables
        }
        Connection::Remote(remote) => over_network(remote, around),
    }
}

/// Variables of a host that is reached over a network. Zuul: `getHostList`.
fn over_network(remote: &Remote, around: &Surroundings<'_>) -> HostVars {
    let user = remote.user.as_deref().unwrap_or(around.default_username);
    let mut variables: HostVars = [
        ("ansible_connection", Value::from(remote.plugin.as_str())),
        ("ansible_host", Value::from(remote.host.as_str())),
        ("ansible_port", Value::Int(i64::from(remote.port()))),
        ("ansible_user", Value::from(user)),
        ("ansible_python_interpreter", Value::from(remote.python.as_deref().unwrap_or("auto"))),
        // Known to Ansible alone, from the set-up phase on.
        ("zuul_user_dir", Value::from("{{ ansible_user_dir }}")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(shell) = &remote.shell {
        variables.insert("ansible_shell_type".into(), Value::from(shell.as_str()));
    }
    match &remote.host_keys {
        HostKeys::Known(_) => {}
        HostKeys::Any => {
            variables.insert("ansible_ssh_common_args".into(), Value::from("-o StrictHostKeyChecking=false"));
        }
        HostKeys::Fingerprint(_) => {
            // In place of the arguments that let known hosts be read from where the job can write.
            variables.insert("ansible_ssh_args".into(), Value::Str(ssh::pinned_arguments(around.pinned_hosts)));
        }
    }
    variables
}

/// `nodepool` and `zuul_node`: what the node is.
fn description(node: &NodeSpec) -> BTreeMap<String, Value> {
    const KNOWN: [&str; 12] = [
        "az",
        "cloud",
        "provider",
        "region",
        "host_id",
        "external_id",
        "slot",
        "interface_ip",
        "public_ipv4",
        "private_ipv4",
        "public_ipv6",
        "private_ipv6",
    ];
    let mut described: BTreeMap<String, Value> = KNOWN.map(|name| (name.to_owned(), Value::Null)).into();
    described.insert("node_properties".into(), Value::Map(BTreeMap::new()));
    described.extend(node.properties.clone());
    described.insert("label".into(), Value::from(node.label.as_str()));
    described
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobdir::JobDir;
    use crate::playbooks::repositories;
    use crate::spec::Nodeset;
    use crate::test_data::{playbook, spec};
    use crate::zuul_vars::{Executing, zuul};

    #[test]
    fn the_inventory_of_a_build() {
        let spec = spec();
        let job_dir = JobDir::at(Path::new("/x"), spec.build, spec.attempt);
        let playbooks = [playbook(&spec)];
        let around = Surroundings {
            python: Path::new("/venv/bin/python"),
            local_tmp: Path::new("/x/.ansible/tmp"),
            default_username: "zuul",
            work: Path::new("/x/work"),
            pinned_hosts: Path::new("/x/ansible/known_hosts"),
        };
        let places = repositories(&spec, &job_dir);
        let executing = Executing { job_dir: &job_dir, hostname: "worker1", playbooks: &playbooks, places: &places };
        let zuul = zuul(&spec, executing);
        let text = inventory(&spec, &around, &zuul, &BTreeSet::from(["secret"]), None).document();
        let golden = include_str!("goldens/inventory.yaml");
        assert_eq!(text, golden, "the inventory changed; if that is meant, this is the new golden:\n{text}");
        assert!(!text.contains("canary") && !text.contains("plain"), "a secret is in the inventory");
        let mut alone = spec;
        alone.nodeset = Nodeset::default();
        let text = inventory(&alone, &around, &zuul, &BTreeSet::new(), None).document();
        // Zuul: without a node no host is in the inventory, and `hosts: all` is nobody.
        assert!(text.starts_with("all:\n  hosts: {}\n  vars:\n    a: \"{{ b }}\"\n    secret: \"plain\"\n"), "{text}");
        let came_to: HostVars =
            [("a".to_owned(), Value::from("{{ not }} a template")), ("n".to_owned(), Value::Int(1))].into();
        let frozen = Frozen::from_hosts([("localhost".to_owned(), came_to)].into());
        let text = inventory(&alone, &around, &zuul, &BTreeSet::new(), Some(&frozen)).document();
        let variables: Vec<&str> = text.lines().skip_while(|line| *line != "  vars:").take(7).collect();
        assert_eq!(
            variables,
            [
                "  vars:",
                "    a: !unsafe \"{{ not }} a template\"",
                "    \"n\": 1",
                "    unsafe_vars:",
                "      a: \"{{ b }}\"",
                "      secret: \"plain\"",
                "    zuul_user_dir: \"/x/work\"",
            ],
            "frozen, what they came to, and beside it what they were"
        );
    }
}
