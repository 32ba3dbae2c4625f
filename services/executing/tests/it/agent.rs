//! A build's SSH agent, with the real ssh-agent and ssh-add: what jobs may do with it, and what they may not.

use std::path::PathBuf;
use std::process::Command;

use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildResult, ExecutorConfig};

use crate::site::{Site, play, unsandboxed};

/// Speaks with the agent as no program of OpenSSH's would. Prints a line for each attempt.
const HOSTILE: &str = r#"
import os, socket, struct, subprocess

def connect():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(os.environ["SSH_AUTH_SOCK"])
    return stream

def string(data):
    return struct.pack(">I", len(data)) + data

def exactly(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise EOFError("closed")
        data += part
    return data

def ask(message, stream=None):
    stream = stream or connect()
    stream.sendall(string(message))
    return exactly(stream, struct.unpack(">I", exactly(stream, 4))[0])

def key(number, comment=b"of a job"):
    public = struct.pack(">Q", number) * 4
    return string(b"ssh-ed25519") + string(public) + string(bytes(32) + public) + string(comment)

def tell(what, attempt):
    try:
        print(what + ":", attempt(), flush=True)
    except OSError as error:
        print(what + ": closed", flush=True)
    except EOFError:
        print(what + ": closed", flush=True)

def kind(message):
    return lambda: ask(message)[0]

def many(comment):
    stream = connect()
    return sum(ask(b"\x11" + key(number, comment), stream)[0] == 6 for number in range(1000))

def crowd():
    streams = []
    for _ in range(200):
        stream = socket.socket(socket.AF_UNIX)
        stream.setblocking(False)
        try:
            stream.connect(os.environ["SSH_AUTH_SOCK"])
            stream.send(b"\0\0")
            streams.append(stream)
        except BlockingIOError:
            pass
    return len(streams) > 0

def long():
    stream = connect()
    stream.sendall(struct.pack(">I", 10_000_000))
    try:
        stream.sendall(bytes(10_000_000))
    except BrokenPipeError:
        pass
    return exactly(stream, 1)

given = ask(b"\x0b")
count, length = struct.unpack(">II", given[1:9])
public = given[9:9 + length]
tell("keys at first", lambda: count)
tell("lock", kind(b"\x16" + string(b"password")))
tell("unlock", kind(b"\x17" + string(b"password")))
tell("smartcard", kind(b"\x14" + string(b"/tmp/evil.so") + string(b"")))
tell("extension", kind(b"\x1b" + string(b"session-bind@openssh.com")))
tell("remove the executor's", kind(b"\x12" + string(public)))
tell("replace the executor's", kind(b"\x11" + public + string(bytes(64)) + string(b"")))
tell("let it expire", kind(b"\x19" + public + string(bytes(64)) + string(b"") + b"\x01\0\0\0\x01"))
tell("confirm", kind(b"\x19" + key(5000) + b"\x02"))
tell("remove what it added", kind(b"\x12" + string(public)))
tell("a large key", kind(b"\x11" + key(6000, bytes(100000))))
tell("a thousand keys", lambda: many(b"small"))
tell("remove all", kind(b"\x13"))
tell("a thousand long comments", lambda: many(bytes(8000)) < 20)
tell("keys of the job and the executor's", lambda: struct.unpack(">I", ask(b"\x0b")[1:5])[0] < 20)
tell("remove all again", kind(b"\x13"))
tell("a long message", long)
tell("an empty message", kind(b""))
tell("200 connections", crowd)
tell("keys in the end", lambda: struct.unpack(">I", ask(b"\x0b")[1:5])[0])
"#;

/// What each attempt comes to. 5 is the agent's no, 6 its yes.
const EXPECTED: [&str; 20] = [
    "keys at first: 1",
    "lock: 5",
    "unlock: 5",
    "smartcard: 5",
    "extension: 5",
    "remove the executor's: 5",
    // Beside it, not in its place.
    "replace the executor's: 6",
    "let it expire: 6",
    "confirm: 5",
    "remove what it added: 6",
    "a large key: 5",
    "a thousand keys: 64",
    // The executor's is left.
    "remove all: 5",
    "a thousand long comments: True",
    "keys of the job and the executor's: True",
    "remove all again: 5",
    "a long message: closed",
    "an empty message: closed",
    "200 connections: True",
    "keys in the end: 1",
];

fn own_key(site: &mut ExecutorConfig, folder: &tempfile::TempDir) -> Option<PathBuf> {
    let file = folder.path().join("key");
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-C", "the executor's own", "-N", "", "-f"]).arg(&file);
    command.status().is_ok_and(|status| status.success()).then_some(())?;
    site.private_key_file = Some(file.clone());
    Some(file)
}

fn tasks(lines: &[&str]) -> String {
    let script: String = lines.iter().map(|line| format!("        {line}\n")).collect();
    play(&format!("    - shell: |\n{script}      args: {{executable: /bin/bash}}\n"))
}

async fn an_agent_is_kept_from_harm(what: &str, change: impl FnOnce(&mut ExecutorConfig)) {
    let folder = tempfile::tempdir().unwrap();
    let mut made = None;
    let with_key = |config: &mut ExecutorConfig| {
        change(config);
        made = own_key(config, &folder);
    };
    let Some(site) = Site::open(what, with_key).await else { return };
    if made.is_none() {
        return println!("SKIPPED {what}: there is no ssh-keygen on PATH");
    }
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let hostile = "    - command: python3 {{ playbook_dir }}/hostile.py\n";
    let honest = tasks(&[
        "ssh-keygen -q -t ed25519 -C of-the-job -N '' -f ~/of-the-job && ssh-add -q -t 600 ~/of-the-job",
        "ssh-add -L | grep executor > ~/executors.pub; ssh-add -T ~/executors.pub && echo honest-usable",
        "ssh-add -l | grep -c ED25519; ssh-add -d ~/executors.pub || echo honest-kept",
        "ssh-add -d ~/of-the-job && echo honest-removed",
    ]);
    // What `add-build-sshkey` of zuul-jobs does.
    let trusted = tasks(&[
        "ssh-add -L | grep executor > ~/executors.pub; ssh-add -T ~/executors.pub && echo trusted-usable",
        "ssh-keygen -q -t ed25519 -C of-the-build -N '' -f ~/of-the-build",
        "ssh-add -d ~/executors.pub && ssh-add -q ~/of-the-build && echo trusted-exchanged; ssh-add -l",
        "for n in $(seq 70); do ssh-add -q ~/of-the-build || exit 9; done",
    ]);
    let after = tasks(&[
        "ssh-add -l | grep of-the-build; ssh-add -l | grep executor || echo after-gone",
        "ssh-add -T ~/of-the-build.pub && echo after-usable; ssh-add -d ~/of-the-build.pub || echo after-kept",
        "ssh-add -D || echo after-not-empty",
    ]);
    let last = tasks(&["ssh-add -D; ssh-add -l || echo last-empty"]);
    let config = site.commit(
        "config",
        &[
            ("hostile.py", HOSTILE),
            ("hostile.yaml", &play(hostile)),
            ("honest.yaml", &honest),
            ("trusted.yaml", &trusted),
            ("after.yaml", &after),
            ("last.yaml", &last),
        ],
    );
    let steps = ["hostile.yaml", "honest.yaml", "trusted.yaml", "after.yaml", "last.yaml"];
    let mut spec = site.spec(&config, &app, &steps.map(|path| (Phase::Run, path, 0)));
    for (playbook, trusted) in spec.playbooks.iter_mut().zip([false, false, true, false, true]) {
        playbook.trusted = trusted;
    }
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let words = ["honest-usable", "honest-kept", "honest-removed", "trusted-usable", "trusted-exchanged", "after-gone"];
    let words = words.into_iter().chain(["after-usable", "after-kept", "after-not-empty", "last-empty"]);
    for expected in EXPECTED.into_iter().chain(words) {
        assert!(text.lines().any(|line| line.ends_with(&format!("| {expected}"))), "{expected}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_cannot_lock_empty_replace_or_flood_the_agent_and_a_trusted_playbook_has_it_whole() {
    an_agent_is_kept_from_harm("an agent in a sandbox", |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_sandbox_jobs_are_given_the_same_agent() {
    an_agent_is_kept_from_harm("an agent without a sandbox", unsandboxed).await;
}
