//! What commands write, while they run and however they end: on the console and in job-output.json.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use gatelog_executing::spec::{Connection, HostKeys, NodeSpec, Phase};
use gatelog_executing::{AbortReason, BuildOutcome, BuildResult, BuildSpec, Executor, FailureCause};
use gatelog_record::Value;

use crate::site::{self, Site, play, play_on_nodes, until};
use crate::{follow, nap, ssh};

/// Shell words that go on when this file is there; they write nothing.
const WAIT: &str = "until test -e {{ zuul.executor.work_root }}/go; do sleep 0.1; done";

/// The lines of a host on the console, without time and host.
fn lines<'a>(console: &'a str, host: &str) -> Vec<&'a str> {
    let before = format!(" | {host} | ");
    console.lines().filter_map(|line| line.split_once(before.as_str()).map(|(_, text)| text)).collect()
}

/// Those of the lines that a test's commands wrote.
fn told<'a>(console: &'a str, host: &str) -> Vec<&'a str> {
    lines(console, host).into_iter().filter_map(|line| line.strip_prefix("told ")).collect()
}

fn seen(executor: &Executor, spec: &BuildSpec) -> String {
    let chunk = executor.console(spec.build, 1).unwrap().read_from(0, usize::MAX).unwrap();
    String::from_utf8(chunk.bytes).unwrap()
}

/// Where a build works that runs.
fn work(site: &Site, spec: &BuildSpec) -> PathBuf {
    site.folder.path().join(format!("executor/builds/{}-1/work", spec.build))
}

/// Runs a build whose tasks wait for a file of its work; it is made once these lines are on the console.
async fn run_until_seen(site: &Site, spec: BuildSpec, expected: &[&str]) -> (BuildOutcome, String) {
    let go = work(site, &spec).join("go");
    run_until(site, spec, expected, &go).await
}

/// Runs a build whose tasks wait for this file.
async fn run_until(site: &Site, spec: BuildSpec, expected: &[&str], go: &Path) -> (BuildOutcome, String) {
    let build = site.executor.prepare(spec.clone(), site.workspace()).await.unwrap();
    let running = tokio::spawn(build.run());
    until("the lines are on the console", || {
        let console = seen(&site.executor, &spec);
        running.is_finished() || expected.iter().all(|line| console.contains(line))
    })
    .await;
    assert!(!running.is_finished(), "the build ended before its lines were seen:\n{}", seen(&site.executor, &spec));
    std::fs::write(go, b"").unwrap();
    let outcome = running.await.unwrap();
    let text = site::console(&outcome);
    (outcome, text)
}

fn json(outcome: &BuildOutcome) -> serde_json::Value {
    let text = std::fs::read_to_string(outcome.log_dir.join("job-output.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The result of the first task with this name in an entry of job-output.json.
fn result(entry: &serde_json::Value, name: &str) -> serde_json::Value {
    let plays = entry["plays"].as_array().unwrap().iter();
    let found = plays.flat_map(|play| play["tasks"].as_array().unwrap()).find(|task| task["task"]["name"] == name);
    let hosts = found.unwrap_or_else(|| panic!("no task {name:?} in {entry}"))["hosts"].as_object().unwrap();
    hosts.values().next().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_on_the_console_while_its_command_runs_and_only_once() {
    let Some(site) = Site::open("streams", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks = format!(
        r#"    - name: both
      shell: echo told one; echo told two >&2; echo told three; {WAIT}; echo told four
    - ansible.builtin.shell: printf 'told no end of line'
    - ansible.builtin.command: echo told item {{{{ item }}}}
      loop: [a, b]
    - name: words
      command: {{argv: [echo, "told $HOME"], expand_argument_vars: false}}
    - command: cat
      args: {{stdin: "told line 1\ntold line 2"}}
    - name: creates
      command: echo told never creates=/usr
    - name: removes
      command: echo told never removes=/nonexistent
    - command: echo told never
      check_mode: true
    - shell: echo told canary-secret; exit 1
      no_log: true
      ignore_errors: true
    - shell: echo told canary-secret {{{{ item }}}}
      no_log: true
      loop: [1]
    - command: echo told in the background
      async: 60
      poll: 1
    - shell: echo told try {{{{ tries }}}}
      vars: {{tries: again}}
      register: tried
      until: tried.attempts == 2
      retries: 3
      delay: 0
    - shell: "echo 'told all'; echo '[Zuul] Task exit code: 0'; echo told more"
    - raw: echo told raw
    - command: echo told without
      vars: {{zuul_console_disabled: true}}
    - name: missing
      command: /nonexistent/program
      ignore_errors: true
    - name: nowhere
      command: ls chdir=/nonexistent
      ignore_errors: true
    - name: fails
      shell: echo told last; exit 7
"#
    );
    let config = site.commit("config", &[("run.yaml", &play(&tasks))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.job.timeouts.run = Some(900);
    let (outcome, text) = run_until_seen(&site, spec, &["| localhost | told three\n"]).await;
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::Run), "{text}");
    let expected = [
        "one",
        "two",
        "three",
        "four",
        "no end of line",
        "item a",
        "item b",
        "$HOME",
        "line 1",
        "line 2",
        "in the background",
        "try again",
        "try again",
        "all",
        "more",
        "raw",
        "without",
        "last",
    ];
    assert_eq!(told(&text, "localhost"), expected, "{text}");
    assert!(!text.contains("canary") && !text.contains("gatelog: "), "{text}");
    for expected in [
        "| localhost | [Zuul] Task exit code: 0\n",
        "| localhost | Did not run command since '/usr' exists\n",
        "| localhost | Did not run command since '/nonexistent' does not exist\n",
        "[Errno 2] No such file or directory: b'/nonexistent/program'",
        "Unable to change directory before execution: ",
    ] {
        assert!(text.contains(expected), "{expected:?} is not on the console:\n{text}");
    }
    assert!(lines(&text, "localhost").iter().any(|line| line.starts_with("failed | ") && line.ends_with("rc: 7")));
    let entry = &json(&outcome)[0];
    let both = result(entry, "both");
    assert_eq!(both["stdout"], "told one\ntold two\ntold three\ntold four");
    assert_eq!((&both["stderr"], &both["rc"], &both["changed"]), (&"".into(), &0.into(), &true.into()));
    assert_eq!(result(entry, "words")["cmd"], serde_json::json!(["echo", "told $HOME"]));
    assert_eq!(result(entry, "creates")["stdout"], "skipped, since /usr exists");
    assert_eq!(result(entry, "missing")["rc"], 2);
    assert_eq!(result(entry, "fails")["msg"], "non-zero return code");
    assert_eq!(entry.get("ending"), None);
    assert!(!entry.to_string().contains("canary"), "{entry}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_split_streams_standard_error_is_kept_apart() {
    let Some(site) = Site::open("split streams", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks = "    - name: both\n      shell: echo told out; echo told err >&2\n    - name: item\n      \
                 shell: echo told out {{ item }}; echo told err >&2\n      loop: [1]\n";
    let config = site.commit("config", &[("run.yaml", &play(tasks))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.job.split_streams = true;
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let mut lines = told(&text, "localhost");
    lines.sort_unstable();
    assert_eq!(lines, ["err", "err", "out", "out 1"], "{text}");
    let entry = &json(&outcome)[0];
    let both = result(entry, "both");
    assert_eq!((&both["stdout"], &both["stderr"]), (&"told out".into(), &"told err".into()));
    let item = &result(entry, "item")["results"][0];
    assert_eq!((&item["stdout"], &item["stderr"]), (&"told out 1".into(), &"told err".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_write_at_the_same_time_never_mix_within_a_line() {
    let Some(site) = Site::open("two nodes", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    // Lines longer than what a pipe takes in one piece.
    let tasks = "    - shell: for i in $(seq 40); do printf 'told %s ' {{ inventory_hostname }}; head -c 20000 /dev/zero | tr '\\0' x; \
                 echo; done\n    - command: echo told for another\n      delegate_to: n2\n      when: inventory_hostname == 'n1'\n";
    let config = site.commit("config", &[("run.yaml", &play_on_nodes(tasks))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.nodeset.nodes = ["n1", "n2"].map(|name| local(&site, name)).into();
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text:.20000}");
    for host in ["n1", "n2"] {
        let whole = format!("{host} {}", "x".repeat(20_000));
        assert_eq!(told(&text, host), vec![whole.as_str(); 40]);
    }
    assert_eq!(told(&text, "n1 -> n2"), ["for another"]);
}

fn local(site: &Site, name: &str) -> NodeSpec {
    let home = site.folder.path().join(name);
    std::fs::create_dir_all(&home).unwrap();
    let connection = Connection::Local { dir: home.to_string_lossy().into_owned() };
    NodeSpec { name: name.into(), connection, ..NodeSpec::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_long_output_the_end_is_there_and_what_is_missing_is_counted() {
    let Some(site) = Site::open("long outputs", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks =
        "    - name: long\n      shell: head -c 5000000 /dev/zero | tr '\\0' x; echo; seq 400000; echo THE-END\n";
    let config = site.commit("config", &[("run.yaml", &play(tasks))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.job.timeouts.run = Some(900);
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{:?}", outcome.detail);
    let lines = lines(&text, "localhost");
    let (start, missing) = lines[0].split_once(" [").unwrap();
    assert!(start.len() > 60_000 && start.bytes().all(|byte| byte == b'x'), "{start:.100}");
    assert_eq!(missing, format!("{} bytes more of this line were cut]", 5_000_000 - start.len()));
    assert!(lines[1..=400_000].iter().zip(1..).all(|(line, number)| **line == number.to_string()));
    assert_eq!(lines[400_001], "THE-END");
    let long = result(&json(&outcome)[0], "long");
    let stdout = long["stdout"].as_str().unwrap();
    assert!(stdout.ends_with("400000\nTHE-END") && stdout.contains(" characters were left out here]\n"));
    let last = long["stdout_lines"].as_array().unwrap().last().unwrap();
    assert_eq!(last, "THE-END");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_playbook_that_began_has_an_entry_however_it_ended() {
    let Some(site) = Site::open("entries", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let hang = format!(
        "    - name: done\n      command: echo told done\n    - name: hangs\n      shell: echo told before; sleep {}\n",
        nap(91)
    );
    let config = site.commit(
        "config",
        &[
            ("hang.yaml", &play(&hang)),
            ("ok.yaml", &play("    - command: echo told ok\n")),
            ("syntax.yaml", "- hosts: all\n  tasks: {"),
        ],
    );
    let mut late = site.spec(&config, &app, &[(Phase::Run, "hang.yaml", 0), (Phase::Post, "ok.yaml", 0)]);
    late.job.timeouts.run = Some(30);
    let (outcome, text) = site.run(late).await;
    assert_eq!(outcome.result, BuildResult::TimedOut, "{text}");
    assert_eq!(told(&text, "localhost"), ["done", "before", "ok"], "{text}");
    let json = json(&outcome);
    assert_eq!(json.as_array().unwrap().len(), 2);
    assert_eq!(result(&json[0], "done")["stdout"], "told done");
    assert_eq!(result(&json[0], "hangs"), serde_json::Value::Null);
    assert_eq!((&json[0]["stats"], &json[0]["ending"]["result"]), (&serde_json::json!({}), &"RESULT_TIMED_OUT".into()));
    assert_eq!((&json[1]["phase"], json[1].get("ending")), (&"post".into(), None));

    let spec = site.spec(&config, &app, &[(Phase::Run, "hang.yaml", 0)]);
    let build = site.executor.prepare(spec.clone(), site.workspace()).await.unwrap();
    let console = tokio::spawn(follow(build.console(), 4096));
    let running = tokio::spawn(build.run());
    until("the line is there", || seen(&site.executor, &spec).contains("| localhost | told before\n")).await;
    assert!(site.executor.abort(spec.build, 1, AbortReason::Cancelled));
    let outcome = running.await.unwrap();
    assert_eq!(outcome.result, BuildResult::Aborted);
    assert_eq!(told(&console.await.unwrap(), "localhost"), ["done", "before"]);
    assert_eq!(self::json(&outcome)[0]["ending"]["result"], "RESULT_ABORTED");

    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "syntax.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::Run), "{text}");
    let entry = &self::json(&outcome)[0];
    assert_eq!((&entry["plays"], &entry["stats"]), (&serde_json::json!([]), &serde_json::json!({})));
    assert!(entry["ending"]["detail"].as_str().unwrap().contains("ERROR"), "{entry}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_returns_is_merged_and_checked_as_in_zuul() {
    let Some(site) = Site::open("returned data", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let refused = |data: &str| format!("    - zuul_return: {{data: {{zuul: {data}}}}}\n      ignore_errors: true\n");
    let tasks = [
        r#"    - zuul_return: {data: {list: [1], deep: {a: 1}, zuul: {child_jobs: [a, b], warnings: [old], redactions: [canary-1],
        artifacts: [{name: a, url: a}], file_comments: {f: [{line: 1, message: old}]}}}}
    - copy: {dest: "{{ zuul.executor.work_root }}/more.json", content: '{"from": "file", "deep": {"c": 3}}'}
    - zuul_return: {file: more.json, data: {list: [2], deep: {b: 2}, zuul: {child_jobs: [b], warnings: [new], redactions: [canary-2],
        artifacts: [{name: b, url: b, metadata: {type: t}}], file_comments: {f: [{line: 2, message: new}], g: [{line: 3, message: other}]}}}}
"#
        .to_owned(),
        refused("{artifacts: notalist}"),
        refused("{artifacts: [{name: a}]}"),
        refused("{artifacts: [{name: a, url: u, size: 1}]}"),
        refused("{warnings: [1]}"),
        refused("{log_url: 1}"),
        "    - zuul_return: {file: nowhere.json}\n      ignore_errors: true\n".to_owned(),
    ];
    let config = site.commit("config", &[("run.yaml", &play(&tasks.concat()))]);
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let expected = serde_json::json!({
        "list": [2],
        "deep": {"a": 1, "b": 2, "c": 3},
        "from": "file",
        "zuul": {
            "child_jobs": ["b"],
            "warnings": ["new", "old"],
            "artifacts": [{"name": "b", "url": "b", "metadata": {"type": "t"}}, {"name": "a", "url": "a"}],
            "file_comments": {
                "f": [{"line": 1, "message": "old"}, {"line": 2, "message": "new"}],
                "g": [{"line": 3, "message": "other"}],
            },
        },
    });
    assert_eq!(outcome.returned.data, Value::from_json(&expected), "without what must not be seen");
    assert_eq!(outcome.warnings, ["new", "old"]);
    for expected in [
        "data.zuul.artifacts must be a list of mappings",
        "data.zuul.artifacts[0].url must be there",
        "data.zuul.artifacts[0] must be without size",
        "data.zuul.warnings[0] must be a text",
        "data.zuul.log_url must be a text",
        "cannot read nowhere.json in ",
        "WARNING: new\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not on the console:\n{text}");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_of_a_node_serves_what_its_commands_write() {
    let Some(site) = Site::open("zuul_console", site::unsandboxed).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let port = free_port();
    let tasks = format!(
        "    - zuul_console:\n    - zuul_console: {{port: {port}}}\n    - shell: echo told started; {WAIT}\n    \
         - zuul_console: {{port: {port}, state: absent}}\n    - zuul_console: {{port: {port}, state: absent}}\n"
    );
    let config = site.commit("config", &[("run.yaml", &play(&tasks))]);
    let spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    let build = site.executor.prepare(spec.clone(), site.workspace()).await.unwrap();
    let running = tokio::spawn(build.run());
    until("the console is there", || seen(&site.executor, &spec).contains("told started")).await;
    let id = format!("{:032x}-test", std::process::id());
    let file = PathBuf::from(format!("/tmp/console-{id}.log"));
    let asked = tokio::task::spawn_blocking({
        let file = file.clone();
        move || ask_console(port, &id, &file)
    });
    asked.await.unwrap();
    until("the log is gone that was read", || !file.exists()).await;
    std::fs::write(work(&site, &spec).join("go"), b"").unwrap();
    let outcome = running.await.unwrap();
    let text = site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::Run), "{text}");
    assert!(text.contains(&format!("no zuul_console of this user listens on port {port}")), "{text}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it is gone");
}

/// Speaks to a console as Zuul does.
fn ask_console(port: u16, id: &str, file: &Path) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    connection.write_all(b"v:0\n").unwrap();
    assert_eq!(line(&mut reader), "1\n");
    connection.write_all(format!("s:../tmp/{id}\n").as_bytes()).unwrap();
    assert_eq!(line(&mut reader), "[Zuul] Log not found\n");
    std::fs::write(file, "one\n").unwrap();
    let first = std::iter::repeat_with(|| line(&mut reader)).find(|line| !line.starts_with("[Zuul]"));
    assert_eq!(first.as_deref(), Some("one\n"));
    let mut log = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    log.write_all(b"two\n").unwrap();
    assert_eq!(line(&mut reader), "two\n");
    // Another client, which is done with it; and one that says nothing of sense.
    let mut other = TcpStream::connect(("127.0.0.1", port)).unwrap();
    other.write_all(format!("f:{id}\n").as_bytes()).unwrap();
    let mut long = TcpStream::connect(("127.0.0.1", port)).unwrap();
    long.write_all(&[b'x'; 4096]).unwrap();
    assert!(matches!(long.read(&mut [0; 1]), Ok(0) | Err(_)), "a request without end is not listened to");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_ssh_lines_come_live_by_the_console_and_without_one_at_the_end() {
    let Some((host, key)) = ssh::host("consoles over SSH") else { return };
    let port = free_port();
    let change = |config: &mut gatelog_executing::ExecutorConfig| config.console_port = port;
    let Some(site) = Site::open("consoles over SSH", change).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks = format!(
        r#"    - command: echo told without a console
    - command: echo told again without
    - zuul_console: {{port: {port}}}
    - shell: echo told live; echo told too >&2; {WAIT}; echo told end
    - command: echo told item {{{{ item }}}}
      loop: [a, b]
    - command: echo told never creates=/usr
    - command: "true"
    - shell: echo told canary-secret
      no_log: true
    - command: echo told here
      delegate_to: localhost
    - zuul_console: {{port: {port}, state: absent}}
"#
    );
    let playbook = play_on_nodes(&tasks.replace("{{ zuul.executor.work_root }}/go", "~/go"));
    let config = site.commit("config", &[("run.yaml", &playbook)]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.nodeset.nodes = vec![NodeSpec { name: "far".into(), ..ssh::node(&host, HostKeys::Any) }];
    spec.ssh_keys = vec![key];
    let go = host.home().join("go");
    let (outcome, text) = run_until(&site, spec, &["| far | told live\n", "| far | told too\n"], &go).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let expected = ["without a console", "again without", "live", "too", "end", "item a", "item b"];
    assert_eq!(told(&text, "far"), expected, "{text}");
    assert_eq!(told(&text, "far -> localhost"), ["here"], "{text}");
    assert_eq!(text.matches("[far] Waiting on logger").count(), 1, "{text}");
    assert!(!text.contains("canary"), "{text}");
}
