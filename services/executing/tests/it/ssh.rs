//! Hosts that are reached over SSH: a real OpenSSH server, and what a build knows of it before it sends anything.

use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gatelog_executing::spec::{Connection, HostKeys, NodeSpec, Phase, Remote, SshIdentity};
use gatelog_executing::{BuildResult, BuildSpec, RetryCause};
use gatelog_ssh_host::SshHost;

use crate::site::{Site, play_on_nodes};

/// A host, and a build's key that it lets in; `None`, and a word about it, where there is no server.
pub fn host(what: &str) -> Option<(SshHost, SshIdentity)> {
    let host = match SshHost::start() {
        Ok(host) => host,
        Err(reason) => {
            println!("SKIPPED {what}: {reason}");
            return None;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file).status().unwrap();
    assert!(made.success());
    host.let_in(&std::fs::read_to_string(file.with_extension("pub")).unwrap()).unwrap();
    Some((host, identity(&file)))
}

/// A private key as OpenSSH keeps it without a password, as the message that brings it to an agent: the file's private
/// section holds the same fields in the same order, behind two check numbers and before its padding.
fn identity(file: &Path) -> SshIdentity {
    let text = std::fs::read_to_string(file).unwrap();
    let encoded: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    let bytes = STANDARD.decode(encoded).unwrap();
    let mut rest = &bytes[b"openssh-key-v1\0".len()..];
    let mut next = |is_number: bool| {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let size = if is_number { 0 } else { length };
        let field = rest[4..4 + size].to_vec();
        rest = &rest[4 + size..];
        field
    };
    // Cipher, key derivation and its options, how many keys, the public key; then the private section.
    for is_number in [false, false, false, true, false] {
        next(is_number);
    }
    let private = next(false);
    let mut end = 8;
    for _ in 0..4 {
        end += 4 + u32::from_be_bytes(private[end..end + 4].try_into().unwrap()) as usize;
    }
    const ADD_IDENTITY: u8 = 17;
    SshIdentity::new(&[&[ADD_IDENTITY], &private[8..end]].concat())
}

/// A node at this host.
pub fn node(host: &SshHost, host_keys: HostKeys) -> NodeSpec {
    let connection = Connection::Remote(Remote {
        plugin: "ssh".into(),
        host: "127.0.0.1".into(),
        port: Some(host.port()),
        host_keys,
        ..Remote::default()
    });
    NodeSpec { name: "server".into(), connection, ..NodeSpec::default() }
}

const DEPLOY: &str = r#"    - command: pwd
      register: where
    - copy: {content: "deployed {{ zuul.change }}\n", dest: "{{ zuul_user_dir }}/deployed"}
    - template: {src: app.conf.j2, dest: app.conf}
    - command: cat {{ ansible_user_dir }}/deployed app.conf
      register: there
    - debug: {msg: "{{ where.stdout }} as {{ ansible_user }} on {{ ansible_host }}:{{ ansible_port }}: {{ there.stdout_lines | join(' ') }}"}
    - command: cat {{ ansible_user_dir }}/deployed
      delegate_to: localhost
      register: here
      failed_when: here.rc == 0
"#;

fn spec(site: &Site, node: NodeSpec, key: SshIdentity) -> BuildSpec {
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config =
        site.commit("config", &[("deploy.yaml", &play_on_nodes(DEPLOY)), ("app.conf.j2", "job={{ zuul.job }}\n")]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "deploy.yaml", 0)]);
    spec.nodeset.nodes = vec![node];
    spec.ssh_keys = vec![key];
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_the_right_fingerprint_is_deployed_to() {
    let Some(site) = Site::open("deploying to a host", |_| {}).await else { return };
    let Some((host, key)) = host("deploying to a host") else { return };
    for digest in ["md5", "sha256"] {
        let fingerprint = host.fingerprint(digest).unwrap();
        let spec = spec(&site, node(&host, HostKeys::Fingerprint(fingerprint.clone())), key.clone());
        let (outcome, text) = site.run(spec).await;
        assert_eq!(outcome.result, BuildResult::Success, "{fingerprint}: {text}\n{}", host.log());
        let port = host.port();
        assert!(text.contains(&format!("/home/zuul as zuul on 127.0.0.1:{port}: deployed 1 job=unit-tests")), "{text}");
    }
    assert_eq!(std::fs::read_to_string(host.home().join("deployed")).unwrap(), "deployed 1\n");
    // As a cloud tells it: the key itself; and where nothing is known, any.
    for keys in [HostKeys::Known(vec![host.host_key().unwrap()]), HostKeys::Any] {
        let (outcome, text) = site.run(spec(&site, node(&host, keys), key.clone())).await;
        assert_eq!(outcome.result, BuildResult::Success, "{text}\n{}", host.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_to_a_host_with_another_key() {
    let Some(site) = Site::open("a host with another key", |_| {}).await else { return };
    let Some((host, key)) = host("a host with another key") else { return };
    let wrong = "4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b";
    let (outcome, text) = site.run(spec(&site, node(&host, HostKeys::Fingerprint(wrong.into())), key.clone())).await;
    assert!(matches!(outcome.result, BuildResult::Error(_)), "{:?}: {text}", outcome.result);
    let detail = outcome.detail.unwrap();
    assert!(detail.contains(wrong) && detail.contains(&host.fingerprint("sha256").unwrap()), "{detail}");
    assert!(!host.home().join("deployed").exists());
    // Not even a user's name.
    let log = host.log();
    assert!(log.contains("Connection from") && !log.contains("userauth") && !log.contains("zuul"), "{log}");

    // What a playbook writes into its own file of known hosts does not count: the host's key has changed since.
    let other = HostKeys::Known(vec![
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl".into(),
    ]);
    let (outcome, text) = site.run(spec(&site, node(&host, other), key.clone())).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::Unreachable), "{text}");
    assert!(!host.home().join("deployed").exists() && !host.log().contains("Accepted"), "{}", host.log());

    for (text, word) in [("4a:28", "is none"), ("SHA256:short", "is none")] {
        let (outcome, _) = site.run(spec(&site, node(&host, HostKeys::Fingerprint(text.into())), key.clone())).await;
        assert!(outcome.detail.as_ref().is_some_and(|detail| detail.contains(word)), "{:?}", outcome.detail);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_does_not_answer_or_let_us_in_is_a_reason_to_try_again() {
    let Some(site) = Site::open("an unreachable host", |_| {}).await else { return };
    let Some((host, key)) = host("an unreachable host") else { return };
    let fingerprint = host.fingerprint("sha256").unwrap();
    let mut gone = node(&host, HostKeys::Fingerprint(fingerprint));
    if let Connection::Remote(remote) = &mut gone.connection {
        remote.port = Some(1);
    }
    let (outcome, text) = site.run(spec(&site, gone, key)).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::Unreachable), "{text}");
    assert!(outcome.playbooks.is_empty(), "no playbook has begun");

    // Found before any playbook of the job has begun, too.
    let mut stranger = spec(&site, node(&host, HostKeys::Any), SshIdentity::new(b""));
    stranger.ssh_keys.clear();
    let (outcome, text) = site.run(stranger).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::Unreachable), "{text}");
    assert!(outcome.playbooks.is_empty() && outcome.detail.unwrap().contains("cannot reach server"), "{text}");
}

/// Where tasks run, whose home they see, and that each finds its files: on two local nodes and on the executor.
const AT_HOME: &str = r#"- hosts: all
  tasks:
    - command: pwd
      register: where
    - shell: echo $HOME; echo ~; python3 -c 'import os, pwd, getpass; print(pwd.getpwnam(getpass.getuser()).pw_dir)'
      register: homes
    - assert:
        that:
          - where.stdout == zuul_user_dir
          - homes.stdout_lines | unique == [zuul_user_dir]
          - ansible_user_dir == zuul_user_dir
          - ansible_user_id == ansible_user
          - ansible_host == '127.0.0.1' and ansible_port == 22
    - copy: {content: "here", dest: relative.txt}
    - copy: {content: "here", dest: ~/of-home.txt}
    - command: cat relative.txt of-home.txt {{ zuul_user_dir }}/relative.txt
    - copy: {content: "{{ inventory_hostname }}", dest: "/tmp/of-{{ inventory_hostname }}"}
      delegate_to: localhost
    - script: hello.sh
      delegate_to: localhost
- hosts: localhost
  tasks:
    - shell: test $HOME = ~ && test ! -e ~/of-home.txt && id -un
    - assert:
        that: [zuul_user_dir == zuul.executor.work_root]
    - unarchive: {src: files.tar, dest: "{{ zuul.executor.work_root }}"}
    - command: cat {{ zuul.executor.work_root }}/packed.txt
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_local_node_are_at_home_there_and_those_of_the_executor_in_the_builds_home() {
    let Some(site) = Site::open("homes of local nodes", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    site.commit("config", &[("packed.txt", "packed"), ("hello.sh", "#!/bin/sh\necho hello\n")]);
    let place = site.folder.path().join("git/config");
    assert!(
        Command::new("tar").args(["cf", "files.tar", "packed.txt"]).current_dir(&place).status().unwrap().success()
    );
    let config = site.commit("config", &[("home.yaml", AT_HOME)]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "home.yaml", 0)]);
    for name in ["controller", "compute"] {
        let dir = site.folder.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let connection = Connection::Local { dir: dir.to_string_lossy().into_owned() };
        spec.nodeset.nodes.push(NodeSpec { name: name.into(), connection, ..NodeSpec::default() });
    }
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    for name in ["controller", "compute"] {
        assert_eq!(std::fs::read_to_string(site.folder.path().join(name).join("of-home.txt")).unwrap(), "here");
    }
}
