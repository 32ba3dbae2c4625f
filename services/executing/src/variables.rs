//! Variables of hosts: which one wins, and which names a job may not use.

use std::collections::BTreeMap;

use gatelog_record::Value;

use crate::spec::{Nodeset, Variables};

/// The variables of one host, by name.
pub type HostVars = BTreeMap<String, Value>;

/// Names that would let a job choose how and as whom Ansible runs things, with their endings. Trusted playbooks see a
/// job's variables, too: by such a one a file of an untrusted repository would become the program, a part of its command
/// line or the host that is handed their secrets. Ansible knows each under several names (`ansible_become_exe`,
/// `ansible_sudo_exe`, …), and other plugins have more.
const CONNECTION: [&str; 10] = [
    "_args",
    "_connection",
    "_exe",
    "_executable",
    "_flags",
    "_host",
    "_interpreter",
    "_fallback",
    "_proxy_command",
    "_user",
];

fn decides_connection(name: &str) -> bool {
    name.starts_with("ansible_") && CONNECTION.iter().any(|ending| name.ends_with(ending))
}

/// The user as whom a node is to run a task: one of the names above, and harmless as long as it is a user's name. With
/// anything else in it, it would be words for the shell of whoever runs Ansible.
const BECOME_USER: &str = "ansible_become_user";

/// Whether this is the name of a user as Linux has them, and no template.
fn is_user(value: &Value) -> bool {
    value.as_str().is_some_and(|name| {
        name.len() <= 32
            && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    })
}

/// Names that mean something else already.
const TAKEN: [&str; 5] = ["zuul", "nodepool", "zuul_node", "unsafe_vars", "zuul_user_dir"];

/// Why a variable cannot have this name, if it cannot.
pub(crate) fn refused(name: &str) -> Option<&'static str> {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !starts || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Some("is no name for a variable: use letters, digits and underscores, beginning with a letter")
    } else if decides_connection(name) {
        Some("decides how Ansible reaches a node, which a job may not: remove it")
    } else if TAKEN.contains(&name) || name.starts_with("zuul_execution_") {
        Some("is set by gatelog: choose another name")
    } else {
        None
    }
}

/// Looks at all names of a job's own variables.
pub(crate) fn check(variables: &Variables) -> Result<(), String> {
    let own = [("include-vars", &variables.included), ("vars", &variables.vars), ("extra-vars", &variables.extra_vars)];
    let groups = variables.group_vars.values().map(|map| ("group-vars", map));
    let hosts = variables.host_vars.values().map(|map| ("host-vars", map));
    for (place, map) in own.into_iter().chain(groups).chain(hosts) {
        let plain = |(name, value): &(&String, &Value)| name.as_str() == BECOME_USER && is_user(value);
        let mut others = map.iter().filter(|one| !plain(one)).map(|(name, _)| name);
        if let Some((name, why)) = others.find_map(|name| Some((name, refused(name)?))) {
            return Err(format!("variable {name:?} in {place} {why}"));
        }
    }
    Ok(())
}

/// Looks at the names of what one playbook is given in secret: another job's configuration may have named it.
pub(crate) fn check_secrets<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    match names.find_map(|name| Some((name, refused(name)?))) {
        Some((name, why)) => Err(format!("secret {name:?} {why}")),
        None => Ok(()),
    }
}

/// What parent jobs returned, without what cannot be a variable here.
pub(crate) fn usable(parent: &HostVars) -> HostVars {
    parent
        .iter()
        .filter(|(name, _)| refused(name).is_none())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Merges `from` into `into`: maps at every depth, anything else is replaced. Zuul: variables of variants, files and
/// parents.
pub fn deep_merge(into: &mut HostVars, from: &HostVars) {
    for (name, value) in from {
        match (into.get_mut(name), value) {
            (Some(Value::Map(below)), Value::Map(added)) => deep_merge(below, added),
            (Some(slot), _) => *slot = value.clone(),
            (None, _) => {
                into.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The variables of a host, from weak to strong: what parents returned, files and `vars` merged; above them whole values
/// of group `all`, the host's groups by name, `host-vars`, `extra-vars`.
pub(crate) fn squash(variables: &Variables, nodeset: &Nodeset, host: &str) -> HostVars {
    let mut all = usable(&variables.parent_data);
    deep_merge(&mut all, &variables.included);
    deep_merge(&mut all, &variables.vars);
    let mut put = |map: Option<&HostVars>| all.extend(map.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    put(variables.group_vars.get("all"));
    let mut groups: Vec<&str> = nodeset
        .groups
        .iter()
        .filter(|group| group.name != "all" && group.nodes.iter().any(|node| node == host))
        .map(|group| group.name.as_str())
        .collect();
    groups.sort_unstable();
    for group in groups {
        put(variables.group_vars.get(group));
    }
    put(variables.host_vars.get(host));
    put(Some(&variables.extra_vars));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{GroupSpec, NodeSpec};

    fn map(text: &str) -> HostVars {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect()
    }

    #[test]
    fn the_stronger_place_wins_with_its_whole_value() {
        let variables = Variables {
            parent_data: map("a=parent b=parent zuul=parent ansible_user=parent bad-name=parent"),
            vars: map("b=vars c=vars"),
            group_vars: [("all".to_owned(), map("c=all d=all")), ("db".to_owned(), map("d=db e=db f=db"))].into(),
            host_vars: [("one".to_owned(), map("e=one"))].into(),
            extra_vars: map("f=extra"),
            ..Variables::default()
        };
        let nodeset = Nodeset {
            nodes: vec![NodeSpec { name: "one".into(), ..NodeSpec::default() }],
            groups: vec![GroupSpec { name: "db".into(), nodes: vec!["one".into()] }],
        };
        assert_eq!(squash(&variables, &nodeset, "one"), map("a=parent b=vars c=all d=db e=one f=extra"));
        assert_eq!(squash(&variables, &nodeset, "localhost"), map("a=parent b=vars c=all d=all f=extra"));
        assert_eq!(check(&variables), Ok(()));
        // Below the groups, maps are merged at every depth.
        let deep = |name: &str, value: &str| Value::Map(map(&format!("{name}={value} {value}={value}")));
        let variables = Variables {
            parent_data: [("m".to_owned(), deep("k", "parent"))].into(),
            included: [("m".to_owned(), deep("k", "file"))].into(),
            vars: [("m".to_owned(), deep("k", "vars"))].into(),
            ..Variables::default()
        };
        let merged = Value::Map(map("k=vars parent=parent file=file vars=vars"));
        assert_eq!(squash(&variables, &nodeset, "localhost"), [("m".to_owned(), merged)].into());
    }

    #[test]
    fn a_job_may_not_choose_how_nodes_are_reached() {
        for (name, word) in [("ansible_user", "remove it"), ("zuul", "another name"), ("a-b", "underscores")] {
            let variables =
                Variables { extra_vars: [(name.to_owned(), Value::Bool(true))].into(), ..Variables::default() };
            let error = check(&variables).unwrap_err();
            assert!(error.contains(name) && error.contains("extra-vars") && error.contains(word), "{error}");
            let error = check_secrets([name.to_owned()].iter()).unwrap_err();
            assert!(error.contains(name) && error.contains(word), "{error}");
        }
        let user = |text: &str| {
            let vars = [(BECOME_USER.to_owned(), Value::Str(text.to_owned()))].into();
            check(&Variables { vars, ..Variables::default() })
        };
        assert_eq!((user("postgres"), user("_apt-1.x")), (Ok(()), Ok(())));
        for bad in ["root; touch /tmp/x", "{{ name }}", "-i", "", "a b", "$(id)"] {
            assert!(user(bad).is_err_and(|error| error.contains(BECOME_USER)), "{bad:?}");
        }
        for name in ["ansible_become_exe", "ansible_sudo_flags", "ansible_ssh_args", "ansible_perl_interpreter"] {
            assert!(refused(name).is_some(), "{name}");
        }
        for name in ["ansible_become", "ansible_become_password", "ansible_network_os", "my_user", "ansibler"] {
            assert_eq!(refused(name), None, "{name}");
        }
    }
}
