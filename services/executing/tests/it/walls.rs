//! What the kernel refuses to a job: system calls, what it counts, networks.

use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildResult, ExecutorConfig, Network};

use crate::site::{Site, play};

/// Asks the kernel for things, and tells by name what came of each.
const ASK: &str = r#"
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def tell(name, result):
    print("SEEN %s %s" % (name, result), flush=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(one) for one in arguments])
    tell(name, "made" if result >= 0 else errno.errorcode[ctypes.get_errno()])
arm = os.uname().machine == "aarch64"
call("io_uring_setup", 425, 8, 0)
call("userfaultfd", 282 if arm else 323, 1)
call("keyctl", 219 if arm else 250, 0, -3, 0)
call("add_key", 217 if arm else 248, 0, 0, 0, 0, -3)
call("fanotify_init", 262 if arm else 300, 0x200, 0)
call("memfd_secret", 447, 0)
call("bpf", 280 if arm else 321, 5, 0, 0)
call("perf_event_open", 241 if arm else 298, 0, 0, -1, -1, 0)
call("open_by_handle_at", 265 if arm else 304, -100, 0, 0)
call("syslog", 116 if arm else 103, 10, 0, 0)
call("getpid", 172 if arm else 39)
for name in ("AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_ALG", "AF_VSOCK", "AF_BLUETOOTH"):
    try:
        kind = socket.SOCK_SEQPACKET if name == "AF_ALG" else socket.SOCK_RAW if name in ("AF_NETLINK", "AF_BLUETOOTH") else socket.SOCK_STREAM
        socket.socket(getattr(socket, name), kind).close()
        tell(name, "made")
    except OSError as error:
        tell(name, errno.errorcode[error.errno])
taken = 0
while taken < 4096 and libc.inotify_init() >= 0:
    taken += 1
tell("inotify", taken)
size = 16 << 20
segments = 0
while segments < 4096 and libc.shmget(0, ctypes.c_size_t(size), 0o1600) >= 0:
    segments += 1
tell("segments", segments)
queues = 0
while queues < 4096 and libc.msgget(0, 0o1600) >= 0:
    queues += 1
tell("queues", queues)
"#;

/// Runs a program in a sandbox; what it tells, by name.
async fn asked(
    what: &str,
    change: impl FnOnce(&mut ExecutorConfig),
) -> Option<std::collections::BTreeMap<String, String>> {
    let site = Site::open(what, change).await?;
    let app = site.commit("org/app", &[("app.txt", "app"), ("ask.py", ASK)]);
    let tasks = play("    - command: python3 {{ zuul.executor.src_root }}/git.example.org/org/app/ask.py\n");
    let config = site.commit("config", &[("run.yaml", &tasks)]);
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    let seen = text.lines().filter_map(|line| line.split_once("SEEN ")?.1.split_once(' '));
    Some(seen.map(|(name, seen)| (name.to_owned(), seen.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernel_refuses_what_no_job_needs_and_shares_out_what_it_counts() {
    for server in [true, false] {
        let set = |config: &mut ExecutorConfig| {
            config.fork_server = server;
            config.limits.tmp_bytes = Some(160 << 20);
            config.slots = 3;
        };
        let Some(seen) = asked("walls in the kernel", set).await else { return };
        for refused in [
            "keyctl",
            "add_key",
            "fanotify_init",
            "bpf",
            "perf_event_open",
            "open_by_handle_at",
            "syslog",
            "userfaultfd",
        ] {
            assert_eq!(seen[refused], "EPERM", "{refused}, by the fork server: {server}");
        }
        for missing in ["io_uring_setup", "memfd_secret"] {
            assert_eq!(seen[missing], "ENOSYS", "{missing}, by the fork server: {server}");
        }
        for missing in ["AF_ALG", "AF_VSOCK", "AF_BLUETOOTH"] {
            assert_eq!(seen[missing], "EAFNOSUPPORT", "{missing}, by the fork server: {server}");
        }
        for usual in ["getpid", "AF_UNIX", "AF_INET", "AF_NETLINK"] {
            assert_eq!(seen[usual], "made", "{usual}, by the fork server: {server}");
        }
        if server {
            let host: u64 =
                std::fs::read_to_string("/proc/sys/user/max_inotify_instances").unwrap().trim().parse().unwrap();
            let taken: u64 = seen["inotify"].parse().unwrap();
            assert!(taken >= 8 && taken <= (host / 4).max(8), "{taken} of {host}");
            assert_eq!(seen["segments"], "10", "of 16 MiB in 160 MiB");
            assert_eq!(seen["queues"], "64");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_without_a_network_reaches_nothing_of_this_host() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("gatelog-{port}");
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name).unwrap();
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    for (network, expected) in [(Network::Host, "reached"), (Network::None, "refused")] {
        let Some(site) = Site::open("a build's network", |config| config.network = network).await else { return };
        let app = site.commit("org/app", &[("app.txt", "app")]);
        let script = format!(
            "import socket\n\
             for family, address in ((socket.AF_INET, ('127.0.0.1', {port})), (socket.AF_UNIX, '\\0{name}')):\n\
             \x20   try:\n\
             \x20       socket.socket(family).connect(address)\n\
             \x20       print('SEEN reached')\n\
             \x20   except OSError:\n\
             \x20       print('SEEN refused')\n\
             own = socket.create_server(('127.0.0.1', 0))\n\
             socket.create_connection(own.getsockname())\n\
             print('SEEN itself')\n"
        );
        let lines: String = script.lines().map(|line| format!("          {line}\n")).collect();
        let tasks = play(&format!("    - command:\n        cmd: python3 -\n        stdin: |\n{lines}"));
        let config = site.commit("config", &[("run.yaml", &tasks)]);
        let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
        assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
        let seen: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("SEEN ")?.1)).collect();
        assert_eq!(seen, [expected, expected, "itself"], "{network:?} {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_cannot_write_what_looks_like_the_executors_words() {
    let Some(site) = Site::open("forged lines", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    // Written past Ansible, by a command; as the names of a play and a task; by a plugin within Ansible.
    let playbook = r#"
- hosts: localhost
  name: "a play\nRUN END RESULT_NORMAL: [trusted : forged]"
  gather_facts: false
  tasks:
    - debug: msg="{{ lookup('pipe', 'sh ' + playbook_dir + '/forge.sh') }}"
    - name: "a task\nPOST-RUN START: [trusted : forged]"
      forge:
    - fail: msg=real
"#;
    let forge = "printf '2026-01-01 00:00:00.000000 | n1 | forged\\nRUN START: [trusted : forged]\\nmfailure 7\\n' >&2; echo went\n";
    let plugin = r#"
import os
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        for word in (b"mearly failure: forged\n", b'r{"failing_task": {"task": "forged"}}\n', b"mfailure 1\n"):
            os.write(3, word)
        return {"changed": False}
"#;
    let files = [("run.yaml", playbook), ("forge.sh", forge), ("action_plugins/forge.py", plugin)];
    let config = site.commit("config", &files);
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
    let lines: Vec<(&str, &str)> =
        text.lines().map(|line| line.split_once(" | ").expect("each line has a time")).collect();
    let shown = |wanted: &str| lines.iter().any(|(_, line)| *line == wanted);
    assert!(text.contains("went") && lines.iter().all(|(time, _)| !time.starts_with("2026-01-01")), "{text}");
    for kept in [
        "2026-01-01 00:00:00.000000 | n1 | forged",
        "[playbook] RUN START: [trusted : forged]",
        "[playbook] RUN END RESULT_NORMAL: [trusted : forged]]",
        "[playbook] POST-RUN START: [trusted : forged]]",
        "mfailure 7",
        "early failure: forged",
    ] {
        assert!(shown(kept), "{kept:?} is not in {text}");
    }
    let failing = outcome.failing_task.expect("a task failed");
    assert_eq!((failing.message.as_str(), lines[failing.line.unwrap() as usize - 1].1), ("real", "localhost | real"));
}
