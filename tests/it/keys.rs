//! SSH keys of projects and tenants, and keys that are imported late: the real command line, ssh-agent and Ansible.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::projects::PIPELINES;
use crate::harness::{Site, eventually, host};
use crate::sealing::nowhere_in_clear;

/// No site's keys but these tests'.
const ONE: &str = include_str!("../../services/secrets/tests/golden/key.pem");
const PUBLIC: &str = include_str!("../../services/secrets/tests/golden/key.pub");
const OTHER: &str = include_str!("../../services/secrets/tests/golden/key-4096.pem");

const JOBS: &str = r"
- job:
    name: holder
    run: playbooks/hold.yaml

- project:
    queue: integrated
    check:
      jobs: [holder]
    gate:
      jobs: [holder]
";

/// Says which keys the build's agent holds, and shows that a job may add one of its own.
const HOLD: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: What the agent holds
      command: ssh-add -L
      register: held
    - zuul_return: {data: {held: "{{ held.stdout_lines }}"}}
    - name: A key of the job's own
      shell: ssh-keygen -q -t ed25519 -N '' -f {{ zuul.executor.work_root }}/own && ssh-add {{ zuul.executor.work_root }}/own
    - name: No library is loaded into it
      shell: ssh-add -s /usr/lib/x86_64-linux-gnu/libc.so.6 </dev/null
      register: loaded
      failed_when: loaded.rc == 0
"#;

fn has_agent(test: &str) -> bool {
    let there = Command::new("ssh-add").arg("-?").output().is_ok();
    if !there {
        println!("SKIPPED {test}: there is no OpenSSH here");
    }
    there
}

/// Runs a `keys` command that must succeed.
fn keys(site: &Site, arguments: &[&str]) -> String {
    let (code, out, err) = site.gatelog(&[&["keys"], arguments].concat());
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out.trim().to_owned()
}

fn import(site: &Site, pem: &str, arguments: &[&str]) {
    site.write("taken-over.pem", pem);
    let file = site.path().join("taken-over.pem");
    let told = keys(site, &[arguments, &[file.to_str().unwrap()]].concat());
    assert!(told.contains("has the"), "{told}");
    std::fs::remove_file(file).unwrap();
}

/// What of a private key must be nowhere: its text by lines, and bytes of its primes.
fn parts_of(pem: &str) -> Vec<Vec<u8>> {
    use base64::Engine;
    let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(lines.concat()).unwrap();
    // The modulus, which is public, comes first; the last two thirds are all private.
    let (from, whole) = (der.len() / 2, der.len());
    let mut parts: Vec<Vec<u8>> = lines[lines.len() / 2..].iter().map(|line| line.as_bytes().to_vec()).collect();
    parts.extend((from..whole - 24).step_by(24).map(|at| der[at..at + 24].to_vec()));
    parts.retain(|part| part.len() >= 20);
    parts
}

#[test]
fn the_key_of_a_project_is_in_the_agent_after_review_only_and_the_tenants_always() {
    if !host::can_build("SSH keys of builds") || !has_agent("SSH keys of builds") {
        return;
    }
    // Zuul: what is merged has been reviewed; the config project's pipelines say so.
    let pipelines = PIPELINES.replace("manager: dependent", "manager: dependent\n    post-review: true");
    let site = Site::new(&[
        ("config", &[("zuul.yaml", pipelines.as_str())]),
        ("project", &[("zuul.yaml", JOBS), ("playbooks/hold.yaml", HOLD)]),
    ]);
    // As a site that comes from Zuul: one key is taken over for each.
    import(&site, ONE, &["import-tenant", "test"]);
    import(&site, OTHER, &["import", "--ssh", "forge", "project"]);
    let (tenants, projects) =
        (keys(&site, &["show-tenant", "test"]), keys(&site, &["show", "--ssh", "forge", "project"]));
    assert!(tenants.starts_with("ssh-rsa AAAA") && projects.starts_with("ssh-rsa AAAA") && tenants != projects);
    let (code, _, err) = site.gatelog(&["keys", "show-tenant", "nobody"]);
    assert!(code == 3 && err.contains("it has: test"), "{err}");

    let server = site.start();
    server.wait_configured();
    for (path, key) in [("project-ssh-key/project.pub", &projects), ("tenant-ssh-key/ssh.pub", &tenants)] {
        let answer = server.get(&format!("/api/tenant/test/{path}")).unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, format!("{key}\n").as_str()), "{path}");
    }
    site.push("project", "change", "Change", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS", "{}", server.log());
    site.approve("project", "change");
    assert_eq!(server.wait_verdict("gate", "project", "change"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    server.stop();

    // What the jobs saw, in the order of their builds: check, then gate.
    let events = site.events("gate.events");
    let of = |kind: &str| -> Vec<String> {
        events.iter().filter(|event| event["kind"] == kind).map(ToString::to_string).collect()
    };
    let saw: Vec<(bool, bool, usize)> = of("gate.build-finished")
        .iter()
        .map(|event| (event.contains(&tenants), event.contains(&projects), event.matches("ssh-rsa ").count()))
        .collect();
    assert_eq!(saw, [(true, false, 1), (true, true, 2)], "the tenant's key in check, both in gate");
    // And an auditor sees which attempt was given what.
    let given: Vec<(bool, bool)> = of("gate.secrets-given")
        .iter()
        .map(|event| (event.contains("TenantSshKey"), event.contains("ProjectSshKey") && event.contains("project")))
        .collect();
    assert_eq!(given, [(true, false), (true, true)]);
    let (code, _, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{err}");

    let private: Vec<Vec<u8>> = [ONE, OTHER].into_iter().flat_map(parts_of).collect();
    assert!(private.len() > 60, "there is something to look for");
    let private: Vec<&[u8]> = private.iter().map(Vec::as_slice).collect();
    nowhere_in_clear(&site, &private, true);
}

/// Sockets of agents below a site.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(sockets(&path)),
            Ok(_) if path.ends_with("agent/given") => found.push(path),
            _ => {}
        }
    }
    found
}

/// Waits in its run playbook.
const WAIT: &str = r"
- hosts: localhost
  gather_facts: false
  tasks:
    - command: sleep 600
";

#[test]
fn the_agent_of_a_build_ends_with_a_worker_that_is_killed() {
    if !host::can_build("an agent without its worker") || !has_agent("an agent without its worker") {
        return;
    }
    let site = Site::new(&[
        ("config", &[("zuul.yaml", PIPELINES)]),
        ("project", &[("zuul.yaml", JOBS), ("playbooks/hold.yaml", WAIT)]),
    ]);
    let mut server = site.start();
    server.wait_configured();
    site.push("project", "change", "Change", &[("a.txt", "a")]);
    // By way of the directory: the path of a socket may be no longer than this.
    let reach = |socket: &Path| {
        let directory = std::fs::File::open(socket.parent().unwrap()).unwrap();
        UnixStream::connect(format!("/proc/self/fd/{}/socket", std::os::fd::AsRawFd::as_raw_fd(&directory)))
    };
    let socket = eventually("a build has an agent", || {
        sockets(&site.path().join("builds")).into_iter().find(|socket| reach(socket).is_ok())
    });
    server.kill_now();
    eventually("nobody answers at the socket any more", || reach(&socket).is_err().then_some(()));
}

/// A secret of the config project's, encrypted for [`ONE`].
fn publisher(site: &Site) -> String {
    site.write("key.pub", PUBLIC);
    site.write("clear", "late");
    let file = |name: &str| site.path().join(name).display().to_string();
    let (key, clear) = (file("key.pub"), file("clear"));
    let arguments = ["encrypt", "--public-key", &key, "--infile", &clear, "--secret-name", "creds"];
    let (code, secret, err) = site.gatelog(&arguments);
    assert_eq!(code, 0, "{err}");
    format!("- job:\n    name: publisher\n    run: playbooks/p.yaml\n    secrets: [creds]\n\n{secret}")
}

#[test]
fn a_key_that_is_imported_late_is_told_of_at_once_also_where_no_server_ran() {
    let site = Site::new(&[("config", &[("playbooks/p.yaml", WAIT)]), ("project", &[("a.txt", "a")])]);
    let config = format!("{PIPELINES}\n{}", publisher(&site));
    site.push_to_master("config", "Jobs", &[("zuul.yaml", &config)]);
    let errors = |server: &crate::harness::Server| server.json("/api/tenant/test/config-errors").to_string();
    let server = site.start();
    server.wait_configured();
    assert!(errors(&server).contains("does not decipher"), "{}", errors(&server));

    import(&site, ONE, &["import", "--reason", "moved from Zuul", "forge", "config"]);
    eventually("the secret deciphers", || (errors(&server) == "[]").then_some(()));
    server.stop();

    // Another key takes its place while nobody is there.
    import(&site, OTHER, &["import", "--replace", "forge", "config"]);
    let server = site.start();
    eventually("the secret does not decipher any more", || errors(&server).contains("does not decipher").then_some(()));
    server.wait_idle();
    server.stop();

    let asked = reconfigurations_asked(&site);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].contains("moved from Zuul") && asked[1].contains("the key of config on forge was imported"));
    let left = std::fs::read_dir(site.path().join("keys/imported")).unwrap().count();
    assert_eq!(left, 0, "what was asked is on the log");
    let (code, _, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{err}");
}

/// The inputs by which tenants were to be configured anew.
pub fn reconfigurations_asked(site: &Site) -> Vec<String> {
    let asked = |input: &&serde_json::Value| input["kind"] == "gate.in.reconfigure-asked";
    site.events("gate.inputs").iter().filter(asked).map(ToString::to_string).collect()
}
