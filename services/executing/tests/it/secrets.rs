//! What playbooks with secrets see, and what nobody sees, with real Ansible in real bubblewrap.

use gatelog_executing::spec::{Phase, SecretExposure, SecretVars};
use gatelog_executing::{BuildResult, BuildSpec, FailureCause, PlaybookEnding};
use gatelog_log_files::LogStore;
use gatelog_record::Value;

use crate::files_below;
use crate::site::{Site, play};

/// The lines that a probe left on the console, without time and host.
fn told(console: &str) -> Vec<&str> {
    console.lines().filter_map(|line| line.split_once("| told ").map(|(_, told)| told)).collect()
}

fn tell(text: &str) -> String {
    format!("    - debug: {{msg: \"told {text}\"}}\n")
}

fn vars(json: serde_json::Value) -> std::collections::BTreeMap<String, Value> {
    match Value::from_json(&json) {
        Value::Map(map) => map,
        other => panic!("{other:?} is no map"),
    }
}

/// The playbook at this place is untrusted from now on.
fn distrust(spec: &mut BuildSpec, places: &[usize]) {
    for place in places {
        spec.playbooks[*place].trusted = false;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_with_secrets_sees_frozen_variables_whatever_was_set_before_it() {
    let Some(site) = Site::open("frozen variables", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    // A playbook that means harm: facts that are kept, and data that is returned, under names that count.
    let harm = "    - set_fact:\n        who: attacker\n        late_fact: attacker\n        creds: {password: stolen}\n        cacheable: true\n    \
                - zuul_return: {data: {who: attacker, target: attacker}}\n";
    let seen = "target={{ target | default('nothing') }} who={{ who }} late={{ late | default('nothing') }} \
                secret={{ creds.password | default('') | length }} file={{ target_file }}";
    let with_originals = format!("{seen} unsafe={{{{ unsafe_vars.late }}}}");
    let config = site.commit(
        "config",
        &[
            ("harm.yaml", play(harm).as_str()),
            ("look.yaml", play(&tell(&format!("without {seen}"))).as_str()),
            ("guarded.yaml", play(&tell(&format!("with {with_originals}"))).as_str()),
            ("base.yaml", play(&tell(&format!("trusted {with_originals}"))).as_str()),
        ],
    );
    let steps = [
        (Phase::Pre, "harm.yaml", 0),
        (Phase::Run, "look.yaml", 0),
        (Phase::Run, "guarded.yaml", 0),
        (Phase::Post, "base.yaml", 0),
    ];
    let mut spec = site.spec(&config, &app, &steps);
    distrust(&mut spec, &[0, 1, 2]);
    spec.variables.vars = vars(serde_json::json!({
        "who": "frozen",
        "target": "{{ who }}.example.org",
        "late": "{{ late_fact }}",
        "target_file": ["{{ zuul.project.short_name }}", {"deep": "{{ target }}"}],
    }));
    let secret = serde_json::json!({"creds": {"password": "canary-{{ 7 * 7 }}"}});
    spec.playbooks[2].secrets = SecretVars::from(vars(secret));
    let printed = format!("{spec:?}");
    assert!(printed.contains("creds") && !printed.contains("canary"), "a spec that is printed shows names alone");
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    let file = |host: &str| format!("file=['app', {{'deep': '{host}.example.org'}}]");
    assert_eq!(
        told(&text),
        [
            // Without secrets a playbook is led wherever an earlier one wants it.
            format!("without target=attacker.example.org who=attacker late=attacker secret=6 {}", file("attacker")),
            // With secrets it sees what was there before any playbook, and its own secret, which is no template; only
            // what is called unsafe is as the earlier one wants it.
            format!(
                "with target=frozen.example.org who=frozen late=nothing secret=18 {} unsafe=attacker",
                file("frozen")
            ),
            // A trusted one too.
            format!(
                "trusted target=frozen.example.org who=frozen late=nothing secret=0 {} unsafe=attacker",
                file("frozen")
            ),
        ],
        "{text}"
    );
    assert!(text.contains("not known yet, and left out: late"), "{text}");
    let mut kept = Vec::new();
    files_below(site.folder.path(), &mut kept);
    for file in kept {
        let bytes = match std::fs::read(&file) {
            // Of the build's own directory, which is being cleared away.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.unwrap(),
        };
        assert!(!bytes.windows(6).any(|window| window == b"canary"), "the secret is left in {}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_cannot_be_variables_are_left_out_of_data_and_of_secret_data_alike() {
    let Some(site) = Site::open("returned names", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let returns = "    - zuul_return:\n        data: {good: fine, bad-name: one, ansible_ssh_executable: evil, zuul: {log_url: \"https://x\"}}\n        \
                   secret_data: {password: canary-returned, worse-name: canary-bad, ansible_shell_executable: canary-evil}\n";
    let child = tell(
        "good={{ good }} secret={{ password | length }} bad={{ 'bad-name' in vars }} worse={{ 'worse-name' in vars }} \
         ssh={{ ansible_ssh_executable is defined }} shell={{ (ansible_shell_executable | default('')) is match('canary') }}",
    );
    let config =
        site.commit("config", &[("parent.yaml", play(returns).as_str()), ("child.yaml", play(&child).as_str())]);
    let (parent, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "parent.yaml", 0)])).await;
    assert_eq!(parent.result, BuildResult::Success, "{text}");
    assert_eq!(
        parent.warnings,
        [
            "what the job returned cannot all be variables of other jobs: \"ansible_ssh_executable\", \"bad-name\"",
            "of the secret_data that the job returned, 2 cannot be variables of other jobs",
        ]
    );
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "child.yaml", 0)]);
    spec.variables.parent_data = parent.returned.data.as_map().unwrap().clone();
    spec.variables.parent_secret_data = parent.returned.secret_data.as_map().unwrap().clone().into();
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    assert_eq!(told(&text), ["good=fine secret=15 bad=False worse=False ssh=False shell=False"], "{text}");
}

const TOKEN: &str = "canary/T0ken+q\u{e9}/with 'quotes' & \"more\"";

/// Writes a secret in every way in which a playbook may do so by mistake.
const CARELESS: &str = r#"    - debug: {msg: "told {{ creds.token }}"}
    - shell: printf '%s' "$TOKEN"; printf 'user:%s' "$TOKEN" | base64; printf '%s' "$TOKEN" | od -An -tx1 | tr -d ' \n'
      environment: {TOKEN: "{{ creds.token }}"}
    - command: "echo {{ creds.token | urlencode }} {{ creds.token | to_json | to_json }} {{ [creds.token] | to_json(ensure_ascii=false) }}"
    - command: "cat {{ zuul.executor.log_root }}/{{ creds.token | b64encode }}"
      ignore_errors: true
    - shell: printf '%s' "$KEY" | base64
      environment: {KEY: "{{ creds.key }}"}
    - copy:
        content: "{{ 'x' * 100 }}\npassword={{ creds.token }}\n{{ creds.key }}"
        dest: "{{ zuul.executor.log_root }}/settings.ini"
    - zuul_return: {data: {leak: "{{ creds.token }}", zuul: {warnings: ["beware of {{ creds.token }}"]}}, secret_data: {handed: canary-handed-on}}
"#;

const CARELESS_AT_LAST: &str = r#"    - debug: {msg: "and canary-handed-on"}
    - name: "Log in with {{ creds.token }}"
      fail: {msg: "wrong password {{ creds.token }}"}
"#;

/// The least that counts as a secret that was found: so many bytes of it together.
fn traces(secret: &str, bytes: &[u8]) -> bool {
    secret.as_bytes().windows(12).any(|part| bytes.windows(12).any(|other| other == part))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_that_a_playbook_writes_are_hidden_before_anybody_keeps_them() {
    let place = tempfile::tempdir().unwrap();
    let store = LogStore::directory(place.path(), true).unwrap();
    let Some(site) = Site::open("careless builds", move |config| config.log_store = Some(store)).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config =
        site.commit("config", &[("run.yaml", play(CARELESS).as_str()), ("post.yaml", play(CARELESS_AT_LAST).as_str())]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Post, "post.yaml", 0)]);
    let key: String = (0..8).map(|line| format!("canaryKeyLine{line}{}\n", "aZ9/".repeat(12))).collect();
    for playbook in &mut spec.playbooks {
        let secret = serde_json::json!({"creds": {"token": TOKEN, "key": key, "user": "nobody-special"}});
        playbook.secrets = SecretVars::from(vars(secret));
    }
    spec.sensitive = [TOKEN.to_owned(), key.clone()].into_iter().collect();
    spec.job.secret_exposure = SecretExposure::Redact;
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::PostFailure, "{text}");
    assert!(text.contains("told [masked]") && text.contains("| localhost | and [masked]"), "{text}");
    let task = outcome.failing_task.as_ref().unwrap();
    assert_eq!((task.task.as_str(), task.message.as_str()), ("Log in with [masked]", "wrong password [masked]"));
    let line = text.lines().nth(usize::try_from(task.line.unwrap()).unwrap() - 1).unwrap();
    assert!(line.ends_with("| localhost | wrong password [masked]"), "{line}: {text}");
    let leak = outcome.returned.data.as_map().unwrap()["leak"].clone();
    assert_eq!(leak, Value::from("[masked]"));
    for told in ["beware of [masked]", "the build has written a secret", "log directory: settings.ini"] {
        assert!(outcome.warnings.iter().any(|warning| warning.contains(told)), "{told}: {:?}", outcome.warnings);
    }
    let encode = |text: &str| base64(text);
    let searched =
        [TOKEN.to_owned(), encode(TOKEN), encode(&format!("user:{TOKEN}")), key.replace('\n', ""), encode(&key)];
    let mut kept = Vec::new();
    files_below(place.path(), &mut kept);
    files_below(&outcome.log_dir, &mut kept);
    assert!(kept.len() >= 6, "{kept:?}");
    let kept: Vec<(String, Vec<u8>)> =
        kept.iter().map(|file| (file.display().to_string(), std::fs::read(file).unwrap())).collect();
    let printed = ("the outcome".to_owned(), format!("{:?}", (&outcome.detail, task, &outcome.warnings)).into_bytes());
    for (name, bytes) in kept.iter().chain([&printed]) {
        for secret in &searched {
            assert!(!traces(secret, bytes), "{secret} is in {name}: {}", String::from_utf8_lossy(bytes));
        }
        assert!(!bytes.windows(16).any(|part| part == b"canary-handed-on"), "what was returned in secret is in {name}");
    }
}

/// As `base64 -w0` writes it.
fn base64(text: &str) -> String {
    use std::io::Write as _;
    let mut child = std::process::Command::new("base64")
        .arg("-w0")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_may_write_no_secret_is_ended_when_it_does() {
    let Some(site) = Site::open("secret exposure", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let run = "    - command: echo canary-exposed\n    - command: sleep 60\n";
    let (post, tidy) = (tell("post"), tell("tidied up"));
    let config = site.commit(
        "config",
        &[("run.yaml", play(run).as_str()), ("post.yaml", play(&post).as_str()), ("tidy.yaml", play(&tidy).as_str())],
    );
    let steps = [(Phase::Run, "run.yaml", 0), (Phase::Post, "post.yaml", 0), (Phase::Post, "tidy.yaml", 0)];
    let mut spec = site.spec(&config, &app, &steps);
    spec.playbooks[2].cleanup = true;
    spec.sensitive = ["canary-exposed".to_owned()].into_iter().collect();
    spec.job.secret_exposure = SecretExposure::Fail;
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::SecretExposure), "{text}");
    assert_eq!(outcome.result.as_str(), "SECRET_EXPOSURE");
    assert_eq!(outcome.playbooks[0].ending, PlaybookEnding::SecretExposure);
    assert_eq!(told(&text), ["tidied up"], "{text}");
    assert!(outcome.detail.unwrap().contains("`secret-exposure: fail`") && !text.contains("canary"), "{text}");
}
