//! Builds as a user sees them, with real Ansible in real bubblewrap.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod agent;
mod content;
mod early;
mod forked;
mod hostile;
mod logs;
mod secrets;
mod site;
mod ssh;
mod streams;
mod versions;
mod walls;

use std::path::Path;
use std::time::Duration;

use gatelog_executing::spec::{Connection, NodeSpec, Phase, WorkspaceProject};
use gatelog_executing::{
    AbortReason, BuildOutcome, BuildResult, ConsoleReader, FailureCause, PlaybookEnding, RetryCause, SweepReport,
};
use gatelog_record::{BuildId, Value};
use site::{Site, checkout, is_running, open_executor, play, play_on_nodes, spec, until};

/// The marks that playbooks leave on the console, in order.
fn marks(console: &str) -> Vec<&str> {
    console.lines().filter_map(|line| line.rsplit_once("\"msg-mark ")?.1.split('"').next()).collect()
}

fn mark(name: &str) -> String {
    // A command's output is on the console; its arguments are not.
    format!("    - command: 'echo \"\\\"msg-mark {name}\\\"\"'\n")
}

fn phases(outcome: &BuildOutcome) -> Vec<(Phase, PlaybookEnding)> {
    outcome.playbooks.iter().map(|run| (run.phase, run.ending)).collect()
}

/// A length of sleep that no other process on this host has.
fn nap(number: u32) -> String {
    format!("{number}{}.5", std::process::id())
}

async fn follow(reader: ConsoleReader, step: usize) -> String {
    let (mut seen, mut offset) = (Vec::new(), 0);
    loop {
        let chunk = reader.wait_from(offset, step, Duration::from_secs(60)).await.unwrap();
        seen.extend_from_slice(&chunk.bytes);
        offset = chunk.next;
        if chunk.ended {
            return String::from_utf8(seen).unwrap();
        }
    }
}

fn files_below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    let entries = match std::fs::read_dir(folder) {
        // Cleared away since it was seen.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        entries => entries.unwrap(),
    };
    for entry in entries {
        let path = entry.unwrap().path();
        // The socket of an agent that ended holds nothing.
        if path.is_dir() {
            files_below(&path, found)
        } else if path.is_file() {
            found.push(path)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_build_runs_nested_sees_the_tested_state_and_returns_data() {
    let Some(site) = Site::open("a good build", |config| config.hostname = "executor1".into()).await else { return };
    let lib_before = site.commit("org/lib", &[("lib.txt", "released")]);
    let lib = site.commit("org/lib", &[("lib.txt", "speculative")]);
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let run = play(&format!(
        "{}{}",
        mark("run"),
        r#"    - shell: |
        cd {{ zuul.executor.work_root }}
        cat {{ zuul.projects['git.example.org/org/lib'].src_dir }}/lib.txt
        git -C src/git.example.org/org/lib diff --stat origin/main..main
        echo "from parent: $FROM; secret has $(printf %s "$SECRET" | wc -c) letters; extra {{ extra }}"
      environment: {FROM: "{{ from_parent }}", SECRET: "{{ parent_secret }}"}
      no_log: false
    - debug: {msg: "{{ zuul.change_message }}"}
    - command: "echo item {{ item }}"
      loop: [one, two]
    - block:
        - command: test rescue = this
      rescue:
        - debug: {msg: rescued}
    - command: test ignore = this
      ignore_errors: true
    - zuul_return:
        data: {colour: red, deep: {one: 1}, zuul: {artifacts: [{name: docs, url: docs/}], log_url: "https://logs.example.org/1"}}
        secret_data: {password: canary-returned}
    - zuul_return:
        data: {deep: {two: 2}, zuul: {artifacts: [{name: image, url: image/}]}}
        secret_data: {token: canary-returned}
    - shell: ls -d /home /var/lib /etc/shadow 2>/dev/null | wc -l; echo x > /usr/gatelog-test || echo read-only; test -e {{ zuul.executor.work_root }}/../owner.json || echo unseen; grep -c 'RUN START' {{ zuul.executor.log_root }}/job-output.txt; echo forged > {{ zuul.executor.log_root }}/job-output.txt
"#
    ));
    let config = site.commit(
        "config",
        &[
            ("base/pre.yaml", &play(&mark("base-pre"))),
            ("job/pre.yaml", &play(&mark("job-pre"))),
            ("job/run.yaml", &run),
            ("job/post.yaml", &play(&mark("job-post"))),
            (
                "base/post.yaml",
                &play(&format!(
                    "{}    - command: 'test \"{{{{ zuul_success | bool }}}}\" = True'\n    - command: test -s {{{{ zuul.executor.log_root }}}}/job-output.json\n    - command: echo {{{{ 'facts' if ansible_facts.python.executable == ansible_python_interpreter }}}} of {{{{ zuul.executor.hostname }}}}\n",
                    mark("base-post")
                )).replace("gather_facts: false", "gather_facts: true"),
            ),
        ],
    );
    let mut spec = site.spec(
        &config,
        &app,
        &[
            (Phase::Pre, "base/pre.yaml", 0),
            (Phase::Pre, "job/pre", 1),
            (Phase::Run, "job/run.yaml", 1),
            (Phase::Post, "job/post.yaml", 1),
            (Phase::Post, "base/post.yaml", 0),
        ],
    );
    let mut tested = checkout("org/lib", &lib);
    tested.previous = Some(lib_before);
    spec.projects.push(WorkspaceProject { checkout: tested, required: true, checkout_description: "main".into() });
    spec.variables.parent_data = [("from_parent".to_owned(), Value::from("parent"))].into();
    spec.variables.parent_secret_data =
        [("parent_secret".to_owned(), Value::from("canary-parent"))].into_iter().collect();
    spec.variables.extra_vars = [("extra".to_owned(), Value::from("{{ from_parent }}-extra"))].into();
    let build = site.executor.prepare(spec.clone(), site.workspace()).await.unwrap();
    let again = site.executor.prepare(spec.clone(), site.workspace()).await;
    assert!(again.is_err_and(|error| error.to_string().contains("running already")));
    let one = tokio::spawn(follow(build.console(), 100));
    let two = tokio::spawn(follow(site.executor.console(spec.build, 1).unwrap(), 1 << 20));
    let outcome = build.run().await;
    let text = site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    assert_eq!(marks(&text), ["base-pre", "job-pre", "run", "job-post", "base-post"], "{text}");
    assert_eq!(one.await.unwrap(), text, "a reader sees the whole console from line 0");
    assert_eq!(two.await.unwrap(), text, "and so does another");
    for expected in [
        "PRE-RUN START: [trusted : git.example.org/config/base/pre.yaml@main]",
        "RUN END RESULT_NORMAL: [trusted : git.example.org/config/job/run.yaml@main]",
        "| localhost | speculative",
        "| localhost | item two\n",
        " | item: two | Runtime: ",
        "| localhost | rescued\n",
        "| localhost | ignored\n",
        "facts of executor1\n",
        "lib.txt | 2 +-",
        "from parent: parent; secret has 13 letters; extra parent-extra",
        "Add {{ lookup('pipe', 'echo injected') }}",
        "| localhost | 0\n",
        "| localhost | read-only",
        "| localhost | unseen",
        // Of the job's own copy of the console: two of pre-run, and this one.
        "| localhost | 3\n",
        "Build ends: SUCCESS",
    ] {
        assert!(text.contains(expected), "{expected:?} is not on the console:\n{text}");
    }
    assert!(!text.contains("forged"), "the job changes its own copy alone:\n{text}");
    let stamped = |line: &str| line.get(..28).is_some_and(|start| start.starts_with("20") && start.ends_with(" |"));
    assert_eq!(text.lines().find(|line| !stamped(line)), None, "every line has its time");
    let expected = serde_json::json!({
        "colour": "red",
        "deep": {"one": 1, "two": 2},
        "zuul": {
            "artifacts": [{"name": "image", "url": "image/"}, {"name": "docs", "url": "docs/"}],
            "log_url": "https://logs.example.org/1",
        }
    });
    assert_eq!(outcome.returned.data, Value::from_json(&expected));
    let secret = serde_json::json!({"password": "canary-returned", "token": "canary-returned"});
    assert_eq!(outcome.returned.secret_data, Value::from_json(&secret));
    let image = serde_json::json!({"name": "image", "url": "https://logs.example.org/1/image/"});
    assert_eq!(outcome.returned.artifacts()[0], Value::from_json(&image));
    assert_eq!((outcome.warnings, outcome.failing_task), (Vec::new(), None));
    let mut kept = Vec::new();
    files_below(&outcome.log_dir, &mut kept);
    assert_eq!(kept.len(), 3, "{kept:?}");
    for file in kept {
        assert!(!std::fs::read_to_string(&file).unwrap().contains("canary"), "a secret is in {}", file.display());
    }
    let json = std::fs::read_to_string(outcome.log_dir.join("job-output.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 5);
    assert_eq!(json[2]["phase"], "run");
    assert_eq!(json[2]["plays"][0]["tasks"][0]["hosts"]["localhost"]["rc"], 0);
    assert_eq!(json[2]["stats"]["localhost"]["failures"], 0);
    let builds = site.folder.path().join("executor/builds");
    until("the build's directory is gone", || std::fs::read_dir(&builds).unwrap().count() == 0).await;
    assert_eq!(site.executor.console(spec.build, 1).unwrap().read_from(0, 1 << 20).unwrap().bytes, text.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_have_the_verdicts_zuul_gives_them() {
    let Some(site) = Site::open("failing builds", |config| config.limits.console_bytes = 60_000).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config = site.commit(
        "config",
        &[
            ("ok.yaml", &play(&mark("ok"))),
            ("fail.yaml", &play("    - name: compile\n      shell: echo 'no such symbol' >&2; exit 3\n")),
            (
                "noisy.yaml",
                &play("    - debug: {msg: \"{{ 'noise ' * 20000 }}\"}\n    - command: sleep NAP\n")
                    .replace("NAP", &nap(47)),
            ),
            (
                "told.yaml",
                &play("    - command: 'echo \"\\\"msg-mark {{ zuul_success }} {{ zuul_will_retry }}\\\"\"'\n"),
            ),
            ("syntax.yaml", "- hosts: all\n  tasks: {"),
        ],
    );

    // Run fails; post-run runs and fails too: that hides the failure, but the task is known.
    let steps = [(Phase::Run, "fail.yaml", 0), (Phase::Post, "told.yaml", 0), (Phase::Post, "syntax.yaml", 0)];
    let (outcome, text) = site.run(site.spec(&config, &app, &steps)).await;
    assert_eq!(outcome.result, BuildResult::PostFailure, "{text}");
    assert_eq!(marks(&text), ["False False"], "{text}");
    let task = outcome.failing_task.unwrap();
    assert_eq!((task.task.as_str(), task.host.as_str()), ("compile", "localhost"));
    assert!(text.contains("| localhost | no such symbol"), "{text}");
    assert!(text.contains("failed | ") && text.contains("rc: 3"), "{text}");
    let detail = outcome.detail.unwrap();
    assert!(detail.contains("ERROR") && text.contains(&detail), "Ansible's own complaint is the detail: {detail}");
    let inventory = std::fs::read_to_string(outcome.log_dir.join("zuul-info/inventory.yaml")).unwrap();
    assert!(inventory.contains("change_message: \"Add {{ lookup"), "the kept inventory is plain YAML: {inventory}");

    // Pre-run fails: another attempt; run and the post-run of a level not reached are left out.
    let steps = [
        (Phase::Pre, "fail.yaml", 0),
        (Phase::Run, "ok.yaml", 1),
        (Phase::Post, "ok.yaml", 1),
        (Phase::Post, "told.yaml", 0),
    ];
    let (outcome, text) = site.run(site.spec(&config, &app, &steps)).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::PreFailed), "{text}");
    assert_eq!(phases(&outcome), [(Phase::Pre, PlaybookEnding::Failed(2)), (Phase::Post, PlaybookEnding::Ok)]);
    assert_eq!(marks(&text), ["False True"], "{text}");

    // The sandbox cannot be made: nothing is known about the change.
    let mut homeless = site.spec(&config, &app, &[(Phase::Run, "ok.yaml", 0)]);
    let connection = Connection::Local { dir: "/nonexistent/node".into() };
    homeless.nodeset.nodes = vec![NodeSpec { name: "lost".into(), connection, ..NodeSpec::default() }];
    let (outcome, text) = site.run(homeless).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::SetupFailed), "{text}");
    assert!(outcome.detail.is_some_and(|detail| detail.contains("/nonexistent/node")), "{text}");

    // Over the limit of the console: stopped at once, with the reason.
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "noisy.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::OutputLimit));
    assert!(outcome.detail.unwrap().contains("limit of 60000 bytes"));
    assert!(text.len() < 70_000 && text.contains("RESULT_OUTPUT_LIMIT"), "{text}");
    assert!(!is_running(&nap(47)), "nothing is left running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_run_says_what_to_mend() {
    let Some(site) = Site::open("impossible builds", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config = site.commit("config", &[("ok.yaml", &play(&mark("ok")))]);
    std::os::unix::fs::symlink("/etc/hostname", site.folder.path().join("git/config/link.yaml")).unwrap();
    let linked = site.commit("config", &[]);
    let mut vanished = site.spec(&config, &app, &[(Phase::Run, "ok.yaml", 0)]);
    vanished.projects[0].checkout.project.name = "org/gone".into();
    let mut outside = vanished.clone();
    outside.build = BuildId([77; 16]);
    outside.projects[0].checkout.project.name = "../../evil".into();
    let mut forbidden = site.spec(&config, &app, &[(Phase::Run, "ok.yaml", 0)]);
    forbidden.variables.vars = [("ansible_connection".to_owned(), Value::from("local"))].into();
    let cases = [
        (
            site.spec(&config, &app, &[(Phase::Run, "playbooks/gone", 0)]),
            "playbook playbooks/gone of project git.example.org/config on branch main does not exist",
        ),
        (site.spec(&config, &app, &[(Phase::Run, "../ok.yaml", 0)]), "leads out of its project"),
        (site.spec(&linked, &app, &[(Phase::Run, "link.yaml", 0)]), "is a link that leads out of its project"),
        (vanished, "repository git.example.org/org/gone at"),
        (outside, "cannot have a place in a workspace"),
        (forbidden, "\"ansible_connection\" in vars"),
    ];
    for (spec, expected) in cases {
        let (outcome, text) = site.run(spec).await;
        let BuildResult::Error(reason) = outcome.result else { panic!("{:?}", outcome.result) };
        assert!(reason.contains(expected) && text.contains(expected), "{reason}");
        assert_eq!(outcome.playbooks, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_must_end_ends_with_all_it_started() {
    let Some(site) = Site::open("stopped builds", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let hang = |word: &str| {
        play(&format!(
            "    - shell: setsid nohup sleep {word} >/dev/null 2>&1 & env -i setsid sleep {word} >/dev/null 2>&1 & trap '' TERM; sleep {word}\n"
        ))
    };
    let config = site.commit(
        "config",
        &[
            ("slow.yaml", &hang(&nap(58))),
            ("hang.yaml", &hang(&nap(69))),
            ("ok.yaml", &play(&mark("ok"))),
            ("cleanup.yaml", &play(&mark("cleanup"))),
        ],
    );
    let mut late = site.spec(&config, &app, &[(Phase::Run, "slow.yaml", 0), (Phase::Post, "ok.yaml", 0)]);
    late.job.timeouts.run = Some(4);
    let (outcome, text) = site.run(late).await;
    assert_eq!(outcome.result, BuildResult::TimedOut, "{text}");
    assert_eq!(phases(&outcome), [(Phase::Run, PlaybookEnding::TimedOut), (Phase::Post, PlaybookEnding::Ok)]);
    assert_eq!(marks(&text), ["ok"], "{text}");
    assert!(!is_running(&nap(58)), "nothing is left running after a timeout");

    let steps = [(Phase::Run, "hang.yaml", 0), (Phase::Post, "ok.yaml", 0), (Phase::Cleanup, "cleanup.yaml", 0)];
    let stopped = site.spec(&config, &app, &steps);
    let build = site.executor.prepare(stopped.clone(), site.workspace()).await.unwrap();
    let running = tokio::spawn(build.run());
    until("the job is in its task", || is_running(&nap(69))).await;
    assert_eq!(site.executor.running(), [(stopped.build, 1)]);
    // Other tests' processes that were killed may have left groups.
    let swept = SweepReport { removed_groups: 0, ..site.executor.sweep().await.unwrap() };
    assert_eq!(swept, SweepReport::default(), "what runs is no leftover");
    assert!(site.executor.abort(stopped.build, 1, AbortReason::Cancelled));
    let outcome = running.await.unwrap();
    assert_eq!(outcome.result, BuildResult::Aborted);
    assert_eq!(marks(&site::console(&outcome)), ["cleanup"], "only cleanup runs after an abort");
    assert!(!is_running(&nap(69)), "nothing is left running after an abort");
    assert!(!site.executor.abort(stopped.build, 1, AbortReason::Cancelled), "it does not run any more");

    // Stopped before it began, and dropped in the middle.
    let never = site.spec(&config, &app, &steps);
    let build = site.executor.prepare(never, site.workspace()).await.unwrap();
    build.control().abort(AbortReason::Shutdown);
    let outcome = build.run().await;
    assert_eq!((outcome.result, outcome.playbooks), (BuildResult::Aborted, vec![]));
    let dropped = site.spec(&config, &app, &steps);
    let build = site.executor.prepare(dropped.clone(), site.workspace()).await.unwrap();
    let running = tokio::spawn(build.run());
    until("the job is in its task", || is_running(&nap(69))).await;
    running.abort();
    until("a dropped build is dead", || !is_running(&nap(69))).await;
    until("it is not among the running", || site.executor.running().is_empty()).await;
    let report = site.executor.sweep().await.unwrap();
    assert_eq!((report.removed, report.failed), (vec![(dropped.build, 1)], vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_sandbox_strays_are_found_and_an_unreachable_node_is_a_reason_to_retry() {
    if std::process::Command::new("ssh").arg("-V").output().is_err() {
        return println!("SKIPPED unsandboxed builds: no ssh found on PATH: install openssh-client");
    }
    let Some(site) = Site::open("unsandboxed builds", site::unsandboxed).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks = "    - shell: setsid nohup sleep NAP >/dev/null 2>&1 &\n    - add_host: {name: far, ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh}\n- hosts: far\n  gather_facts: false\n  tasks:\n    - command: 'true'\n";
    let config = site.commit("config", &[("run.yaml", &play_on_nodes(tasks).replace("NAP", &nap(70)))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    let home = site.folder.path().join("node");
    std::fs::create_dir(&home).unwrap();
    let connection = Connection::Local { dir: home.to_string_lossy().into_owned() };
    spec.nodeset.nodes = vec![NodeSpec { name: "near".into(), connection, ..NodeSpec::default() }];
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::Unreachable), "{text}");
    assert_eq!(outcome.detail.as_deref(), Some("cannot reach far"));
    assert!(text.contains("| near | changed") && text.contains("| far | unreachable"), "{text}");
    assert!(!is_running(&nap(70)), "a process that went into the background is found");
}

/// Not a test of its own: what the next one kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helper_process() {
    let Some(folder) = std::env::var_os("GATELOG_TEST_HELPER") else { return };
    let folder = Path::new(&folder);
    let config = std::env::var("GATELOG_TEST_CONFIG").unwrap();
    let app = std::env::var("GATELOG_TEST_APP").unwrap();
    let executor = open_executor("helper", folder, |_| {}).await.unwrap();
    let spec = spec(200, &config, &app, &[(Phase::Run, "hang.yaml", 0)]);
    executor.prepare(spec, site::workspace(folder)).await.unwrap().run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_executor_leaves_is_swept_away() {
    let Some(site) = Site::open("the sweep", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config = site.commit(
        "config",
        &[(
            "hang.yaml",
            &play(&format!("{}    - shell: setsid nohup sleep {} & sleep {}\n", mark("ran"), nap(81), nap(81))),
        )],
    );
    let mut helper = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_process"])
        .env("GATELOG_TEST_HELPER", site.folder.path())
        .env("GATELOG_TEST_CONFIG", &config)
        .env("GATELOG_TEST_APP", &app)
        .spawn()
        .unwrap();
    until("the job is in its task", || is_running(&nap(81))).await;
    let report = site.executor.sweep().await.unwrap();
    assert_eq!((report.of_others, report.removed), (1, vec![]), "what another process runs is left alone");
    helper.kill().unwrap();
    helper.wait().unwrap();
    until("the job died with its executor", || !is_running(&nap(81))).await;
    let report = site.executor.sweep().await.unwrap();
    assert_eq!((report.removed, report.failed, report.of_others), (vec![(BuildId([200; 16]), 1)], vec![], 0));
    assert_eq!(std::fs::read_dir(site.folder.path().join("executor/builds")).unwrap().count(), 0);
    let console = site.executor.console(BuildId([200; 16]), 1).unwrap().read_from(0, 1 << 20).unwrap();
    let text = String::from_utf8(console.bytes).unwrap();
    assert_eq!(marks(&text), ["ran"]);
    assert!(text.ends_with("Build ends: ABORTED (the executor was stopped)\n"), "{text}");
    assert!(console.ended);
    // The same attempt may run again here.
    let mut again = spec(200, &config, &app, &[]);
    again.playbooks.clear();
    let (outcome, text) = site.run(again).await;
    assert_eq!(outcome.result, BuildResult::Success);
    assert!(!text.contains("ABORTED"), "{text}");
}
