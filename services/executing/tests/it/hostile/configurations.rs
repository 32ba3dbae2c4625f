//! Jobs whose configuration, not whose content, means to break out.

use std::os::unix::fs::symlink;

use gatelog_executing::spec::{Connection, HostKeys, NodeSpec, Phase, Remote, RoleSpec};
use gatelog_executing::{BuildResult, BuildSpec};
use gatelog_record::Value;

use super::host::CANARY;
use super::table::{Attack, Seen, Table, contained};
use crate::site::{Site, play};

const NAMES: &str = "names of projects, nodes and playbooks";
const VARIABLES: &str = "variables that lead Ansible astray";
const CONTENT: &str = "content of repositories";

/// What a configuration must come to.
#[derive(Clone, Copy)]
enum Ends {
    /// It never runs, and the reason has these words.
    Refused(&'static str),
    /// It runs, and all it says is what an honest one says.
    Harmless,
}

use Ends::{Harmless, Refused};

type Change = fn(&mut BuildSpec);
type Configuration = (Attack, Ends, Change);

fn project(spec: &mut BuildSpec, name: &str) {
    spec.projects[0].checkout.project.name = name.into();
}

fn host(spec: &mut BuildSpec, name: &str) {
    spec.projects[0].checkout.project.canonical_hostname = name.into();
}

fn node(spec: &mut BuildSpec, name: &str) {
    let connection = Connection::Local { dir: String::new() };
    spec.nodeset.nodes = vec![NodeSpec { name: name.into(), connection, ..NodeSpec::default() }];
}

fn remote(spec: &mut BuildSpec, address: &str, user: Option<&str>) {
    node(spec, "far");
    spec.nodeset.nodes[0].connection = Connection::Remote(Remote {
        plugin: "ssh".into(),
        host: address.into(),
        user: user.map(Into::into),
        host_keys: HostKeys::Any,
        ..Remote::default()
    });
}

fn vars(spec: &mut BuildSpec, name: &str, value: &str) {
    spec.variables.vars = [(name.to_owned(), Value::from(value))].into();
}

fn extra(spec: &mut BuildSpec, name: &str, value: &str) {
    spec.variables.extra_vars = [(name.to_owned(), Value::from(value))].into();
}

fn secret(spec: &mut BuildSpec, name: &str) {
    spec.playbooks[0].secrets = [(name.to_owned(), Value::from("/evil"))].into_iter().collect();
}

fn path(spec: &mut BuildSpec, path: &str) {
    spec.playbooks[0].path = path.into();
}

const CONFIGURATIONS: &[Configuration] = &[
    (contained(NAMES, "project above the workspace"), Refused("cannot have a place in a workspace"), |s| {
        project(s, "../../evil")
    }),
    (contained(NAMES, "project at the root"), Refused("cannot have a place in a workspace"), |s| project(s, "/etc")),
    (contained(NAMES, "project within .git"), Refused("cannot have a place in a workspace"), |s| {
        project(s, "org/app/.git/hooks")
    }),
    (contained(NAMES, "project with a zero byte"), Refused("cannot have a place in a workspace"), |s| {
        project(s, "org/a\0b")
    }),
    (contained(NAMES, "host above the workspace"), Refused("cannot have a place in a workspace"), |s| host(s, "..")),
    (contained(NAMES, "host with a path"), Refused("cannot have a place in a workspace"), |s| host(s, "a/../../b")),
    (contained(NAMES, "two projects in one place"), Refused(""), |s| {
        let mut other = s.projects[0].clone();
        other.checkout.project.name = "org/app/inner".into();
        s.projects.push(other);
    }),
    (contained(NAMES, "playbook above its project"), Refused("leads out of its project"), |s| {
        path(s, "../../run.yaml")
    }),
    (contained(NAMES, "playbook by an absolute path"), Refused("leads out of its project"), |s| path(s, "/etc/passwd")),
    (contained(NAMES, "playbook that is a link out"), Refused("leads out of its project"), |s| path(s, "out.yaml")),
    (contained(NAMES, "playbook below a link out"), Refused("leads out of its project"), |s| path(s, "etc/passwd")),
    (contained(NAMES, "playbook within .git"), Refused(""), |s| path(s, ".git/config")),
    (contained(NAMES, "playbook with the name of an option"), Refused("does not exist"), |s| path(s, "--version")),
    (contained(NAMES, "playbook with a zero byte"), Refused(""), |s| path(s, "run\0.yaml")),
    (contained(NAMES, "role named out of its place"), Refused(""), |s| {
        let role = |name: &str| RoleSpec {
            checkout: s.playbooks[0].checkout.clone(),
            checkout_description: String::new(),
            target_name: name.into(),
            implicit: false,
        };
        let roles = vec![role("../../../../evil"), role("/evil")];
        s.playbooks[0].roles = roles;
    }),
    (contained(NAMES, "role of a project above"), Refused("cannot have a place"), |s| {
        let mut checkout = s.playbooks[0].checkout.clone();
        checkout.project.name = "../../../evil".into();
        s.playbooks[0].roles =
            vec![RoleSpec { checkout, checkout_description: String::new(), target_name: "x".into(), implicit: false }];
    }),
    (contained(NAMES, "node with a new line"), Refused(""), |s| node(s, "n\nevil ansible_connection=local")),
    (contained(NAMES, "node with a path"), Refused(""), |s| node(s, "../../evil")),
    (contained(NAMES, "node called localhost"), Refused(""), |s| node(s, "localhost")),
    (contained(NAMES, "node called all"), Refused(""), |s| node(s, "all")),
    (contained(NAMES, "address with an option of ssh"), Refused(""), |s| remote(s, "-oProxyCommand=touch /evil", None)),
    (contained(NAMES, "user with an option of ssh"), Refused(""), |s| {
        remote(s, "192.0.2.1", Some("-oProxyCommand=touch /evil"))
    }),
    (contained(VARIABLES, "connection in vars"), Refused("\"ansible_connection\" in vars"), |s| {
        vars(s, "ansible_connection", "local")
    }),
    (contained(VARIABLES, "interpreter in vars"), Refused("ansible_python_interpreter"), |s| {
        vars(s, "ansible_python_interpreter", "/evil")
    }),
    (contained(VARIABLES, "shell in vars"), Refused("ansible_shell_executable"), |s| {
        vars(s, "ansible_shell_executable", "/evil")
    }),
    (contained(VARIABLES, "connection in extra-vars"), Refused("ansible_connection"), |s| {
        extra(s, "ansible_connection", "ssh")
    }),
    (contained(VARIABLES, "program to become another user in vars"), Refused("ansible_become_exe"), |s| {
        let evil = "/bin/sh -c 'echo it runs with evil' #";
        s.variables.vars = [("ansible_become_exe", evil), ("ansible_become", "yes")]
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .into();
    }),
    (contained(VARIABLES, "user to become with a command in host-vars"), Refused("ansible_become_user"), |s| {
        let evil = [("ansible_become_user", "x; echo it runs with evil #"), ("ansible_become", "yes")];
        let evil = evil.map(|(name, value)| (name.to_owned(), Value::from(value))).into();
        s.variables.group_vars = [("all".to_owned(), evil)].into();
    }),
    (contained(VARIABLES, "flags to become another user"), Refused("ansible_sudo_flags"), |s| {
        extra(s, "ansible_sudo_flags", "; echo it runs with evil #")
    }),
    (contained(VARIABLES, "arguments of ssh"), Refused("ansible_ssh_args"), |s| {
        vars(s, "ansible_ssh_args", "-oProxyCommand=/evil")
    }),
    (contained(VARIABLES, "program for files over ssh"), Refused("ansible_sftp_executable"), |s| {
        vars(s, "ansible_sftp_executable", "/evil")
    }),
    (contained(VARIABLES, "another name for an address"), Refused("ansible_ssh_host"), |s| {
        vars(s, "ansible_ssh_host", "192.0.2.1")
    }),
    (contained(VARIABLES, "proxy of Paramiko"), Refused("ansible_paramiko_proxy_command"), |s| {
        vars(s, "ansible_paramiko_proxy_command", "/evil")
    }),
    (contained(VARIABLES, "interpreter of another language"), Refused("ansible_perl_interpreter"), |s| {
        vars(s, "ansible_perl_interpreter", "/evil")
    }),
    (contained(VARIABLES, "secret called as a program"), Refused("ansible_become_exe"), |s| {
        secret(s, "ansible_become_exe")
    }),
    (contained(VARIABLES, "zuul in vars"), Refused("zuul"), |s| vars(s, "zuul", "evil")),
    (contained(VARIABLES, "zuul in extra-vars"), Refused("zuul"), |s| extra(s, "zuul", "evil")),
    (contained(VARIABLES, "nodepool in extra-vars"), Refused("nodepool"), |s| extra(s, "nodepool", "evil")),
    (contained(VARIABLES, "secret called connection"), Refused("ansible_connection"), |s| {
        secret(s, "ansible_connection")
    }),
    (contained(VARIABLES, "secret called interpreter"), Refused("ansible_python_interpreter"), |s| {
        secret(s, "ansible_python_interpreter")
    }),
    (contained(VARIABLES, "secret called zuul"), Refused("zuul"), |s| secret(s, "zuul")),
    (contained(VARIABLES, "name with a new line"), Refused(""), |s| vars(s, "a\nb", "evil")),
    (contained(VARIABLES, "name that is a template"), Refused(""), |s| {
        vars(s, "{{ lookup('pipe', 'touch /evil') }}", "evil")
    }),
    (contained(VARIABLES, "message with a template"), Harmless, |s| {
        s.item.message = Some("{{ lookup('pipe', 'echo evil') }}".into())
    }),
    (contained(VARIABLES, "branch with a template"), Harmless, |s| {
        s.item.branch = Some("{{ lookup('pipe', 'echo evil') }}".into())
    }),
    (contained(VARIABLES, "data of a parent with a connection"), Harmless, |s| {
        s.variables.parent_data = [("ansible_connection".to_owned(), Value::from("ssh"))].into();
        s.variables.parent_secret_data =
            [("ansible_python_interpreter".to_owned(), Value::from("/evil"))].into_iter().collect();
    }),
    (contained(CONTENT, "links to the host in the project"), Harmless, |_| {}),
];

const REPOSITORY: &str = "files that only git looks at";

pub fn attacks() -> Vec<Attack> {
    let mut all: Vec<Attack> = CONFIGURATIONS.iter().map(|(attack, ..)| *attack).collect();
    all.push(contained(CONTENT, REPOSITORY));
    all
}

/// What the honest playbook says, in its words: what was there, and what of the host.
const HONEST: &str = r#"    - shell: |
        cd {{ zuul.executor.work_root }}
        echo it runs as $(id -un) at {{ ansible_connection | default('local') }} with {{ ansible_python_interpreter | basename }}
        cat src/git.example.org/org/app/links/* 2>/dev/null
        cat src/git.example.org/org/app/links/*/keyring 2>/dev/null
        echo "{{ zuul.message | default('') }}" "{{ zuul.branch | default('') }}" | grep -x evil
        echo it ends
    - debug: {msg: "change {{ zuul.change_message | default('') }}"}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_configuration_leads_out_of_its_build() {
    let Some(site) = Site::open("hostile configurations", |_| {}).await else { return };
    let folder = site.folder.path();
    std::fs::write(folder.join("keyring"), CANARY).unwrap();
    site.commit("org/app", &[("app.txt", "app")]);
    let links = folder.join("git/org/app/links");
    std::fs::create_dir_all(&links).unwrap();
    for (name, to) in
        [("file", folder.join("keyring")), ("folder", folder.to_owned()), ("shadow", "/etc/shadow".into())]
    {
        symlink(to, links.join(name)).unwrap();
    }
    // What git takes as its own where it lies in a work tree.
    let hook = format!("#!/bin/sh\ntouch {}/sprung\n", folder.display());
    let app = site.commit(
        "org/app",
        &[
            (
                ".gitmodules",
                "[submodule \"x\"]\n\tpath = sub\n\turl = ext::sh -c touch% /evil\n\tupdate = !touch /evil\n",
            ),
            (".gitattributes", "* filter=evil diff=evil merge=evil\n"),
            (".gitconfig", "[core]\n\tfsmonitor = touch /evil\n"),
            ("hooks/post-checkout", &hook),
        ],
    );
    site.commit("config", &[("run.yaml", &play(HONEST))]);
    symlink("/etc/passwd", folder.join("git/config/out.yaml")).unwrap();
    symlink("/etc", folder.join("git/config/etc")).unwrap();
    let config = site.commit("config", &[]);
    let mut table = Table::new("configurations", attacks());
    let mut first = None;
    for (attack, ends, change) in CONFIGURATIONS {
        let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
        spec.playbooks[0].trusted = false;
        spec.job.timeouts.run = Some(20);
        change(&mut spec);
        let (outcome, text) = site.run(spec).await;
        let evil = ["/evil", "/tmp/evil"].iter().any(|place| std::path::Path::new(place).exists())
            || folder.join("sprung").exists()
            || folder.join("evil").exists()
            || folder.join("executor/evil").exists();
        let leaks = text.contains(CANARY) || text.contains("root:") || text.contains("| evil");
        let ran = text.contains("| it ends");
        let honest = text.contains("it runs as") && !text.contains("with evil") && !text.contains("at ssh");
        let fine = match (ends, &outcome.result) {
            (Refused(words), BuildResult::Error(reason)) => reason.contains(words) && outcome.playbooks.is_empty(),
            (Refused(""), _) => !ran || honest,
            (Harmless, result) => *result == BuildResult::Success && ran && honest,
            _ => false,
        };
        let how: String =
            format!("{:?} {}", outcome.result, outcome.detail.unwrap_or_default()).chars().take(200).collect();
        table.saw(attack.name, Seen::stands(fine && !evil && !leaks, how));
        first = first.or(ran.then_some(text));
    }
    let seen =
        Seen::stands(!folder.join("sprung").exists() && first.is_some(), "no program of the repository's was started");
    table.saw(REPOSITORY, seen);
    table.close();
}
