//! What any command of a job may try: one build, one attack after another, and the same on the host as a control.

use std::collections::BTreeMap;
use std::process::Command;

use gatelog_executing::BuildResult;
use gatelog_executing::config::Network;
use gatelog_executing::spec::Phase;
use gatelog_record::Value;
use serde_json::{Value as Json, json};

use super::host::{CANARY, Host, SECRET, python};
use super::table::{Attack, Seen, Table, contained, open};
use crate::site::{Site, play};

/// Who gets it on the host, so that it is the sandbox that keeps it from a job.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    Anyone,
    Root,
    /// It would do harm, or is nothing that a host has.
    Nobody,
}

use Control::{Anyone, Nobody, Root};

/// An attack, how it is refused, and the control.
type Probe = (Attack, &'static [&'static str], Control);

const NOT_THERE: &[&str] = &["ENOENT", "nothing"];
const NOT_ALLOWED: &[&str] = &["EPERM", "EACCES"];
const NO_PROCESS: &[&str] = &["ESRCH", "ENOENT", "nothing"];
const READ_ONLY: &[&str] = &["EROFS", "EACCES", "EPERM"];
const OTHER_MOUNT: &[&str] = &["EXDEV", "EPERM"];
/// By a user who is not mapped, or by one who may not.
const NO_USER: &[&str] = &["EPERM", "EINVAL"];

/// By the filter of system calls, or by the kernel itself.
const FILTER: &[&str] = &["ENOSYS", "EPERM", "EACCES", "EAFNOSUPPORT"];
const NO_KEY: &[&str] = &["EPERM", "ENOKEY", "EACCES", "ENOSYS"];

const NETWORK: &str = "services on loopback and abstract sockets are reached";

const FILES: &str = "reading the host's files";
const PROCESSES: &str = "processes of the host";
const SECRETS: &str = "the process that holds secrets";
const HOLDERS: &str = "the processes that hold the sandbox";
const WRITING: &str = "writing outside";
const RIGHTS: &str = "gaining rights";
const SPACES: &str = "name spaces and mounts";
const DEVICES: &str = "devices";
const KERNEL: &str = "the kernel's settings";
const KEYS: &str = "keyrings";
const IPC: &str = "System V IPC and queues";
const NET: &str = "the network";
const CALLS: &str = "system calls";

const READING: &[Probe] = &[
    (contained(FILES, "read-shadow"), NOT_THERE, Root),
    (contained(FILES, "read-keyring"), NOT_THERE, Anyone),
    (contained(FILES, "read-keyring-through-a-link"), NOT_THERE, Anyone),
    (contained(FILES, "read-keyring-through-init"), &["EACCES", "ENOENT"], Nobody),
    (contained(FILES, "read-keyring-by-climbing"), NOT_THERE, Anyone),
    (contained(FILES, "read-home-of-the-user"), NOT_THERE, Nobody),
    (contained(FILES, "read-executor-state"), NOT_THERE, Nobody),
    (contained(FILES, "read-another-build"), NOT_THERE, Anyone),
    (contained(FILES, "read-kept-consoles"), NOT_THERE, Anyone),
    (contained(FILES, "read-own-owner-file"), NOT_THERE, Nobody),
    (contained(FILES, "read-run"), NOT_THERE, Anyone),
    (contained(FILES, "read-by-file-handle"), NOT_ALLOWED, Nobody),
    (contained(FILES, "read-kernel-log"), NOT_ALLOWED, Root),
    (contained(FILES, "read-kernel-log-device"), NOT_ALLOWED, Nobody),
    (contained(FILES, "read-kernel-memory"), &["EPERM", "EACCES", "ENOENT"], Nobody),
    (contained(FILES, "read-sys"), NOT_THERE, Anyone),
    (contained(PROCESSES, "see-host-processes"), NO_PROCESS, Anyone),
    (contained(PROCESSES, "read-host-environ"), NO_PROCESS, Anyone),
    (contained(PROCESSES, "read-host-memory"), NO_PROCESS, Anyone),
    (contained(PROCESSES, "trace-host-process"), NO_PROCESS, Anyone),
    (contained(PROCESSES, "stop-host-process"), NO_PROCESS, Anyone),
    (contained(PROCESSES, "open-host-process"), NO_PROCESS, Anyone),
    (contained(PROCESSES, "kill-host-process"), NO_PROCESS, Nobody),
    (contained(PROCESSES, "kill-the-executor"), NO_PROCESS, Anyone),
];

const HOLDING: &[Probe] = &[
    (contained(SECRETS, "ansible-memory"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "ansible-memory-by-call"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "ansible-trace"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "ansible-steal-descriptor"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "ansible-descriptors"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "ansible-console"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "ansible-environ"), NOT_ALLOWED, Nobody),
    (contained(SECRETS, "secrets-in-arguments-and-environments"), NOT_THERE, Nobody),
    (contained(SECRETS, "secrets-in-files"), NOT_THERE, Nobody),
    (contained(SECRETS, "inherited-descriptors"), NOT_THERE, Nobody),
    (contained(HOLDERS, "rights-of-init"), NOT_THERE, Nobody),
    (contained(HOLDERS, "files-of-init"), NOT_THERE, Nobody),
    (contained(HOLDERS, "init-end"), &["EPERM", "nothing"], Nobody),
];

const CHANGING: &[Probe] = &[
    (contained(WRITING, "write-keyring"), NOT_THERE, Anyone),
    (contained(WRITING, "write-keyring-through-a-link"), NOT_THERE, Anyone),
    (contained(WRITING, "make-a-file-outside"), &["nothing", "EROFS", "EACCES"], Nobody),
    (contained(WRITING, "hard-link-from-outside"), NOT_THERE, Anyone),
    (contained(WRITING, "hard-link-a-program"), OTHER_MOUNT, Nobody),
    (contained(WRITING, "hard-link-the-playbook"), OTHER_MOUNT, Anyone),
    (contained(WRITING, "write-a-program"), READ_ONLY, Nobody),
    (contained(WRITING, "write-users"), READ_ONLY, Root),
    (contained(WRITING, "write-the-playbook"), READ_ONLY, Anyone),
    (contained(WRITING, "write-ansible"), READ_ONLY, Nobody),
    (contained(WRITING, "write-plugins"), READ_ONLY, Anyone),
    (contained(WRITING, "write-inventory"), READ_ONLY, Nobody),
    (contained(WRITING, "write-root"), READ_ONLY, Nobody),
    (contained(WRITING, "make-immutable"), &["EPERM", "EOPNOTSUPP", "ENOTTY"], Root),
    (contained(RIGHTS, "give-a-program-capabilities"), &["EPERM", "EOPNOTSUPP"], Root),
    (contained(RIGHTS, "give-a-file-away"), NO_USER, Root),
    (contained(RIGHTS, "become-another-user"), NO_USER, Root),
    (contained(RIGHTS, "change-groups"), NOT_ALLOWED, Root),
    (contained(RIGHTS, "gain-by-setuid"), NOT_ALLOWED, Anyone),
    (contained(RIGHTS, "have-capabilities"), NOT_THERE, Root),
    (contained(RIGHTS, "go-first"), NOT_ALLOWED, Root),
    (contained(RIGHTS, "real-time"), NOT_ALLOWED, Root),
    (contained(RIGHTS, "survive-the-lack-of-memory"), NOT_ALLOWED, Nobody),
    (contained(RIGHTS, "raise-own-limits"), NOT_ALLOWED, Nobody),
];

const NAME_SPACES: &[Probe] = &[
    (contained(SPACES, "new-user-namespace"), &["ENOSPC", "EPERM"], Anyone),
    (contained(SPACES, "new-user-namespace-by-clone"), &["ENOSPC", "EPERM"], Anyone),
    (contained(SPACES, "new-mount-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "new-network-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "new-pid-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "new-ipc-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "new-host-name-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "new-cgroup-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "new-time-namespace"), NOT_ALLOWED, Root),
    (contained(SPACES, "enter-namespaces-of-init"), NOT_ALLOWED, Nobody),
    (contained(SPACES, "mount-memory"), NOT_ALLOWED, Root),
    (contained(SPACES, "mount-bind"), NOT_ALLOWED, Root),
    (contained(SPACES, "mount-root-writable"), NOT_ALLOWED, Root),
    (contained(SPACES, "mount-proc"), NOT_ALLOWED, Root),
    (contained(SPACES, "mount-control-groups"), NOT_ALLOWED, Root),
    (contained(SPACES, "mount-by-file-system-calls"), NOT_ALLOWED, Root),
    (contained(SPACES, "clone-a-mount"), NOT_ALLOWED, Root),
    (contained(SPACES, "unmount"), NOT_ALLOWED, Nobody),
    (contained(SPACES, "change-root"), NOT_ALLOWED, Root),
    (contained(SPACES, "pivot-root"), NOT_ALLOWED, Nobody),
    (contained(SPACES, "nested-bubblewrap"), NOT_THERE, Anyone),
];

const MACHINE: &[Probe] = &[
    (contained(DEVICES, "other-devices"), NOT_THERE, Nobody),
    (contained(DEVICES, "make-a-disk"), NOT_ALLOWED, Root),
    (contained(DEVICES, "make-a-memory-device"), NOT_ALLOWED, Root),
    (contained(DEVICES, "type-into-a-terminal"), &["ENXIO", "ENOTTY", "ENOENT", "EIO"], Nobody),
    (contained(KERNEL, "write-kernel-settings"), READ_ONLY, Root),
    (contained(KERNEL, "write-anywhere-in-proc"), NOT_THERE, Root),
    (contained(KERNEL, "press-sysrq"), &["EROFS", "EACCES", "EPERM", "ENOENT"], Nobody),
    (contained(KERNEL, "load-a-module"), &["EPERM", "ENOSYS"], Nobody),
    (contained(KERNEL, "unload-a-module"), &["EPERM", "ENOSYS"], Nobody),
    (contained(KERNEL, "load-another-kernel"), &["EPERM", "ENOSYS"], Nobody),
    (contained(KERNEL, "reboot"), NOT_ALLOWED, Nobody),
    (contained(KERNEL, "swap"), NOT_ALLOWED, Nobody),
    (contained(KERNEL, "account"), &["EPERM", "ENOSYS"], Nobody),
    (contained(KERNEL, "hang-up"), NOT_ALLOWED, Nobody),
    (contained(KERNEL, "set-the-clock"), NOT_ALLOWED, Nobody),
    (contained(KERNEL, "set-the-host-name"), NOT_ALLOWED, Nobody),
    (contained(KERNEL, "use-io-ports"), &["EPERM", "ENOSYS"], Nobody),
];

const SHARED: &[Probe] = &[
    (contained(KEYS, "read-session-keyring"), NO_KEY, Nobody),
    (contained(KEYS, "read-user-keyring"), NO_KEY, Anyone),
    (contained(KEYS, "read-user-session-keyring"), NO_KEY, Anyone),
    (contained(KEYS, "read-list-of-keys"), &["EACCES", "ENOENT", "nothing"], Anyone),
    (contained(KEYS, "read-key-by-number"), NO_KEY, Anyone),
    (contained(KEYS, "read-key-by-way-of-the-user-keyring"), NO_KEY, Anyone),
    (contained(IPC, "shared-memory-of-the-host"), NOT_THERE, Anyone),
    (contained(IPC, "semaphores-of-the-host"), NOT_THERE, Anyone),
    (contained(IPC, "messages-of-the-host"), NOT_THERE, Anyone),
    (contained(IPC, "message-queue-of-the-host"), NOT_THERE, Anyone),
    (contained(IPC, "shared-memory-file-of-the-host"), NOT_THERE, Anyone),
    (contained(NET, "socket-file-of-the-host"), NOT_THERE, Anyone),
    (open(NET, "abstract-socket-of-the-host", NETWORK), &[], Anyone),
    (open(NET, "loopback-of-the-host", NETWORK), &[], Anyone),
    (contained(NET, "raw-packets"), FILTER, Root),
    (contained(NET, "raw-addresses"), NOT_ALLOWED, Root),
    (contained(NET, "change-an-interface"), NOT_ALLOWED, Root),
    (contained(NET, "mark-packets"), NOT_ALLOWED, Root),
];

const FILTERED: &[Probe] = &[
    (contained(CALLS, "io-uring"), FILTER, Nobody),
    (contained(CALLS, "userfaultfd"), FILTER, Nobody),
    (contained(CALLS, "add-a-key"), FILTER, Nobody),
    (contained(CALLS, "fanotify"), FILTER, Nobody),
    (contained(CALLS, "secret-memory"), FILTER, Nobody),
    (contained(CALLS, "load-bpf"), FILTER, Nobody),
    (contained(CALLS, "count-events"), FILTER, Nobody),
    (contained(CALLS, "virtual-sockets"), FILTER, Nobody),
    (contained(CALLS, "kernel-ciphers"), FILTER, Nobody),
];

fn probes() -> impl Iterator<Item = &'static Probe> {
    [READING, HOLDING, CHANGING, NAME_SPACES, MACHINE, SHARED, FILTERED].into_iter().flatten()
}

/// The same as above, where the site's sandboxes have no network; and the probe of each.
const ALONE: [(Attack, &str); 2] = [
    (contained(NET, "abstract socket, without a network"), "abstract-socket-of-the-host"),
    (contained(NET, "loopback, without a network"), "loopback-of-the-host"),
];

pub fn attacks() -> Vec<Attack> {
    probes().map(|(attack, ..)| *attack).chain(ALONE.map(|(attack, _)| attack)).collect()
}

/// Tells the program where all is, and starts it.
const TASKS: &str = "    - copy:\n        content: \"{{ targets | combine({'job': zuul.executor.work_root | dirname, 'place': zuul.executor.work_root, 'playbook': playbook_dir ~ '/run.yaml', 'ansible': ansible_playbook_python | dirname ~ '/ansible-playbook'}) | to_json }}\"\n        dest: \"{{ zuul.executor.work_root }}/targets.json\"\n    - command: python3 {{ playbook_dir }}/probe.py targets.json NAMES\n      args: {chdir: \"{{ zuul.executor.work_root }}\"}\n";

/// What the program said, by the names of attacks.
fn heard(text: &str) -> BTreeMap<String, Json> {
    let lines = text.lines().filter_map(|line| line.split_once("probe {").map(|(_, rest)| format!("{{{rest}")));
    let said = lines.filter_map(|line| serde_json::from_str::<Json>(line.trim()).ok());
    said.filter_map(|one| Some((one["name"].as_str()?.to_owned(), one))).collect()
}

fn judged(said: Option<&Json>, refusals: &[&str]) -> Seen {
    let Some(said) = said else { return Seen::Broken("the program said nothing of it".into()) };
    match (said["got"].as_str(), said["refused"].as_str(), said["skipped"].as_str()) {
        (Some(got), ..) => Seen::Through(got.to_owned()),
        (_, Some(how), _) if refusals.is_empty() || refusals.contains(&how) => Seen::Held(how.to_owned()),
        (_, Some(how), _) => Seen::Broken(format!("refused for another reason than {refusals:?}: {how}")),
        (.., Some(why)) => Seen::Skipped(why.to_owned()),
        _ => Seen::Broken(said.to_string()),
    }
}

/// The same on the host, where it must succeed: as many as this user may.
fn controls(host: &Host, place: &std::path::Path) -> BTreeMap<String, Json> {
    let root = rustix::process::geteuid().is_root();
    let wanted = |control: Control| control == Anyone || (control == Root && root);
    let names = probes().filter(|(.., control)| wanted(*control)).map(|(attack, ..)| attack.name);
    let mut targets = host.targets.clone();
    targets["place"] = json!(place);
    targets["control"] = json!(true);
    std::fs::write(place.join("targets.json"), targets.to_string()).unwrap();
    let mut command = Command::new(python());
    command.args(["-c", include_str!("probe.py")]).arg("targets.json").args(names);
    let output = command.current_dir(place).output().unwrap();
    heard(&String::from_utf8_lossy(&output.stdout))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_a_job_reach_nothing_of_the_host() {
    let Some(site) = Site::open("attacks by commands", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks = TASKS.replace("NAMES", "");
    let config = site.commit("config", &[("probe.py", include_str!("probe.py")), ("run.yaml", &play(&tasks))]);
    let playbook = site.folder.path().join("git/config/run.yaml");
    let mut host = Host::new(&site, &playbook.to_string_lossy());
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    spec.playbooks[0].secrets = [("password".to_owned(), Value::from(SECRET))].into_iter().collect();
    spec.variables.vars = [("targets".to_owned(), Value::from_json(&host.targets))].into();
    let name = rustix::system::uname().nodename().to_owned();
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let mut table = Table::new("attacks by commands", probes().map(|(attack, ..)| *attack).collect());
    let said = heard(&text);
    let reached = host.reached();
    let harm = host.harm();
    for (attack, refusals, _) in probes() {
        let mut seen = judged(said.get(attack.name), refusals);
        if matches!(seen, Seen::Held(_)) {
            // Whatever the program says, this is how the host stands.
            seen = match (attack.name, &harm) {
                (_, Some(harm)) if attack.kind == WRITING || attack.kind == PROCESSES => Seen::Through(harm.clone()),
                ("socket-file-of-the-host", _) if reached["file"] > 0 => Seen::Through("it was reached".into()),
                ("set-the-host-name", _) if rustix::system::uname().nodename() != name.as_c_str() => {
                    Seen::Through("it is another".into())
                }
                _ => seen,
            };
        }
        table.saw(attack.name, seen);
    }
    let leaks = |line: &&str| line.contains(CANARY) && !line.contains(r#""got""#);
    assert_eq!(text.lines().find(leaks), None, "the canary is on the console");
    let place = site.folder.path().join("control");
    std::fs::create_dir(&place).unwrap();
    let controls = controls(&host, &place);
    let failed: Vec<_> = controls.values().filter(|said| said["got"].is_null()).map(Json::to_string).collect();
    assert!(controls.len() > 20, "{controls:?}");
    println!("on the host {} of {} such attacks succeed", controls.len() - failed.len(), controls.len());
    failed.iter().for_each(|said| println!("not on the host: {said}"));
    table.close();
    assert!(failed.is_empty(), "what does not succeed on the host proves nothing:\n{}", failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_network_not_even_the_sockets_of_the_host_are_reached() {
    let alone = |config: &mut gatelog_executing::ExecutorConfig| config.network = Network::None;
    let Some(site) = Site::open("attacks without a network", alone).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let names = ALONE.map(|(_, probe)| probe).join(" ");
    let tasks = TASKS.replace("NAMES", &names);
    let config = site.commit("config", &[("probe.py", include_str!("probe.py")), ("run.yaml", &play(&tasks))]);
    let mut host = Host::new(&site, "/nowhere");
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    spec.variables.vars = [("targets".to_owned(), Value::from_json(&host.targets))].into();
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let (said, reached) = (heard(&text), host.reached());
    assert_eq!((reached["abstract"], reached["loopback"]), (0, 0), "somebody was there");
    let mut table = Table::new("attacks without a network", ALONE.map(|(attack, _)| attack).to_vec());
    for (attack, probe) in ALONE {
        table.saw(attack.name, judged(said.get(probe), &["ECONNREFUSED", "ENETUNREACH", "ENOENT"]));
    }
    table.close();
}
