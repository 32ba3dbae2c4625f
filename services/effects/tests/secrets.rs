//! What the keys say of a layout's secrets, and what a worker is given.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use gatelog_effects::secrets::{self, FrozenSecret};
use gatelog_record::Value;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeSubject, FrozenJob, Layout, LoadInput, TenantProject, TenantSettings, freeze,
    load, verdicts,
};
use gatelog_secrets::{KeyOwner, Keyring, Undecipherable, encipher};

const KEY: &str = include_str!("../../secrets/tests/golden/key.pem");
const PUBLIC: &str = include_str!("../../secrets/tests/golden/key.pub");
const OTHER: &str = include_str!("../../secrets/tests/golden/key-4096.pem");

/// Pipelines and a base job.
const BASE: &str = "
- pipeline: {name: gate, manager: dependent, post-review: true, trigger: {}}
- job: {name: base, parent: null}
";

/// A site whose project `app` has a key.
struct Site {
    keyring: Keyring,
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_dir(dir.path()).unwrap();
        keyring.import_project_key(&KeyOwner::new("forge", "app"), KEY, false).unwrap();
        Site { keyring, dir }
    }
}

/// A text, encrypted for `app`, as it stands in a file.
fn encrypted(text: &str) -> String {
    format!("!encrypted/pkcs1-oaep [{}]", encipher(PUBLIC, text).unwrap().join(", "))
}

fn files(app: &str, lib: &str) -> Vec<ConfigFile> {
    let file = |project: &str, text: &str| ConfigFile {
        project: format!("example.com/{project}"),
        branch: "master".into(),
        path: ".zuul.yaml".into(),
        text: text.into(),
    };
    vec![file("conf", BASE), file("app", app), file("lib", lib)]
}

fn layout(files: &[ConfigFile]) -> Layout {
    let project = |name: &str, trusted| TenantProject {
        canonical_name: format!("example.com/{name}"),
        branches: vec!["master".into()],
        ..TenantProject::new("forge", name, trusted)
    };
    let tenant = TenantSettings {
        name: "example".into(),
        connections: vec!["forge".into()],
        projects: vec![project("conf", true), project("app", false), project("lib", false)],
        ..TenantSettings::default()
    };
    let (layout, problems) = load(&LoadInput { tenant, files: files.to_vec() });
    assert!(problems.iter().all(|problem| !problem.is_error()), "{problems:?}");
    layout
}

/// The verdicts and the problems, a line each.
fn told(site: &Site, app: &str, lib: &str) -> Vec<String> {
    let files = files(app, lib);
    let layout = layout(&files);
    let said = secrets::verdicts(&site.keyring, &layout);
    let problems = verdicts::problems(&layout, &said, &files);
    let verdict =
        |one: &gatelog_record::draft::gate::SecretVerdict| format!("{} of {}: {}", one.secret, one.project, one.code);
    let problem = |one: &gatelog_rules_config::Problem| {
        assert!(one.is_error() && !one.cure.is_empty() && one.snippet.contains("secrets"), "{one}");
        let same = one.code != verdicts::UNDECIPHERABLE || one.message.ends_with(&Undecipherable.to_string());
        assert!(same, "rules and keys say it in the same words: {one}");
        format!("{} at {}:{}", one.code, one.place.context.project, one.place.line)
    };
    said.iter().map(verdict).chain(problems.iter().map(problem)).collect()
}

#[test]
fn a_secret_that_does_not_decipher_is_an_error_of_each_job_that_uses_it() {
    let site = Site::new();
    let secret = |name: &str, value: &str| format!("- secret: {{name: {name}, data: {{user: me, key: {value}}}}}\n");
    let job = |name: &str, uses: &str| format!("- job:\n    name: {name}\n    run: r.yaml\n    secrets: {uses}\n");
    let good = secret("good", &encrypted("canary"));
    assert!(told(&site, &(good.clone() + &job("a", "good")), "").is_empty());
    // Not that nobody uses it, and not what is not encrypted.
    let unused = secret("unused", "!encrypted/pkcs1-oaep YWJj");
    let plain = secret("plain", "clear");
    assert!(told(&site, &(unused + &plain + &job("a", "plain")), "").is_empty());
    // Of several parts one is damaged; a second job uses it, and one only passes it on.
    let value = format!("[{}, {{deep: !encrypted/pkcs1-oaep YWJj}}]", encrypted("canary"));
    let passes = "- job:\n    name: c\n    parent: a\n    secrets: [{name: x, secret: broken, pass-to-parent: true}]\n";
    let app = secret("broken", &value) + &job("a", "broken") + &job("b", "{name: y, secret: broken}") + passes;
    assert_eq!(
        told(&site, &app, ""),
        [
            "broken of example.com/app: secret-undecipherable",
            "secret-undecipherable at example.com/app:5",
            "secret-undecipherable at example.com/app:9",
            "secret-undecipherable at example.com/app:13",
        ]
    );
    // Copied into another project, which has no key yet, and then one of its own.
    let copied = good.replace("good", "copied") + &job("thief", "copied");
    let expected = ["copied of example.com/lib: secret-undecipherable", "secret-undecipherable at example.com/lib:5"];
    assert_eq!(told(&site, "", &copied), expected);
    assert!(site.keyring.known_project_key(&KeyOwner::new("forge", "lib")).unwrap().is_none(), "none is made");
    site.keyring.import_project_key(&KeyOwner::new("forge", "lib"), OTHER, false).unwrap();
    assert_eq!(told(&site, "", &copied), expected);
    // A key that cannot be read is another matter, and not the project's.
    for entry in std::fs::read_dir(site.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("master.key") {
            std::fs::write(path, "damaged").unwrap();
        }
    }
    assert_eq!(
        told(&site, "", &copied),
        ["copied of example.com/lib: secret-key-unreadable", "secret-key-unreadable at example.com/lib:5"]
    );
}

fn frozen(layout: &Layout, job: &str) -> FrozenJob {
    let subject = FreezeSubject {
        project: "example.com/app".into(),
        branch: Some("master".into()),
        reference: "refs/changes/1".into(),
        ..FreezeSubject::default()
    };
    let outcome = freeze(layout, &subject, "gate", FreezeOptions::default());
    outcome.graph().unwrap().job(job).unwrap().clone()
}

#[test]
fn a_worker_opens_what_the_jobs_playbooks_name_and_its_spec_holds_nothing_in_clear() {
    let site = Site::new();
    let app = format!(
        "- secret: {{name: creds, data: {{user: me, list: [{}, 7], deep: {{key: {}}}}}}}\n\
         - secret: {{name: token, oidc: {{}}}}\n\
         - job: {{name: a, run: r.yaml, secrets: [{{name: c, secret: creds}}]}}\n\
         - job: {{name: b, run: r.yaml, secrets: [token]}}\n\
         - project: {{gate: {{jobs: [a, b]}}}}\n",
        encrypted("canary-1"),
        encrypted(&"canary-2".repeat(60)),
    );
    let layout = layout(&files(&app, ""));
    let job = frozen(&layout, "a");
    assert_eq!(
        (job.playbooks[0].secrets[0].name.as_str(), job.playbooks[0].secrets[0].secret.as_str()),
        ("c", "creds")
    );
    let secrets = secrets::frozen(&layout, &job);
    assert_eq!(secrets.keys().collect::<Vec<_>>(), ["creds"], "only what the job uses");
    let blob = gatelog_record::codec::encode(&secrets).unwrap();
    assert!(!blob.windows(6).any(|window| window == b"canary"), "what is kept is as it stands in the repository");
    let opened = secrets::open(&site.keyring, "creds", &secrets["creds"]).unwrap();
    let expected = serde_json::json!({"user": "me", "list": ["canary-1", 7], "deep": {"key": "canary-2".repeat(60)}});
    assert_eq!(opened.value, Value::from_json(&expected));
    assert_eq!(opened.texts, ["canary-2".repeat(60), "canary-1".to_owned()], "what was encrypted is told apart");
    assert!(!format!("{opened:?}").contains("canary"));

    let moved = FrozenSecret { project: "lib".into(), ..secrets["creds"].clone() };
    let refused = secrets::open(&site.keyring, "creds", &moved).unwrap_err();
    assert_eq!(
        (refused.to_string().as_str(), refused.again()),
        (
            "secret \"creds\" of project forge/lib cannot be had: it was not encrypted for this project, or is damaged",
            false
        )
    );
    let token = secrets::frozen(&layout, &frozen(&layout, "b"));
    let refused = secrets::open(&site.keyring, "token", &token["token"]).unwrap_err();
    assert!(refused.to_string().contains("OpenID Connect") && !refused.again(), "{refused}");
}

#[test]
fn there_is_a_limit_to_what_is_deciphered_for_a_project() {
    use gatelog_rules_config::verdicts::MAX_CHUNKS;
    let site = Site::new();
    let one = encipher(PUBLIC, "canary").unwrap().remove(0);
    let value = |chunks: usize| format!("!encrypted/pkcs1-oaep [{}]", vec![one.as_str(); chunks].join(", "));
    let parts = |parts: usize, chunks: usize| format!("[{}]", vec![value(chunks); parts].join(", "));
    let secret = |name: &str, value: &str| format!("- secret: {{name: {name}, data: {{key: {value}}}}}\n");
    let job = |uses: &str| format!("- job:\n    name: job-{uses}\n    run: r.yaml\n    secrets: {uses}\n");
    // As much as may be, and a chunk more: in the order of names, what still fits is looked at.
    let full = secret("a", &parts(MAX_CHUNKS / 256, 256));
    let app = full.clone() + &secret("b", &value(1)) + &secret("c", "clear") + &job("a") + &job("b") + &job("c");
    assert_eq!(
        told(&site, &app, &(secret("d", &value(1)) + &job("d"))),
        [
            "b of example.com/app: secrets-too-many",
            "d of example.com/lib: secret-undecipherable",
            "secrets-too-many at example.com/app:11",
            "secret-undecipherable at example.com/lib:5",
        ]
    );
    assert!(told(&site, &(full.clone() + &job("a")), "").is_empty());
    // A worker is asked for no more than that either.
    let of = |data: &str| {
        let app = data.to_owned() + &job("a") + "- project: {gate: {jobs: [job-a]}}\n";
        let layout = layout(&files(&app, ""));
        secrets::bounded(&secrets::frozen(&layout, &frozen(&layout, "job-a")))
    };
    of(&full).unwrap();
    let refused = of(&secret("a", &parts(1, MAX_CHUNKS + 1))).unwrap_err();
    assert!(refused.to_string().contains("1025 encrypted chunks, above the limit of 1024"), "{refused}");
}

#[test]
fn a_job_that_was_frozen_before_it_named_its_project_is_read_and_gets_no_projects_key() {
    use gatelog_effects::spec::{JobProject, JobSpec, VERSION};
    let layout = layout(&files("- job: {name: a, run: r.yaml}\n- project: {gate: {jobs: [a]}}\n", ""));
    let spec = |version| JobSpec {
        version,
        tenant: "example".into(),
        pipeline: "gate".into(),
        post_review: true,
        job: frozen(&layout, "a"),
        child_jobs: Vec::new(),
        steps: Vec::new(),
        workspace: Vec::new(),
        playbooks: Vec::new(),
        secrets: Default::default(),
        project: None,
        refs: Default::default(),
        role_repositories: Vec::new(),
        roles: Vec::new(),
        include_vars: Vec::new(),
        changes: Vec::new(),
    };
    let encode = |spec: &JobSpec| gatelog_record::codec::encode(spec).unwrap();
    // Version 2 had all but the last six fields, which are a byte each where there is nothing.
    let older = encode(&spec(2));
    assert_eq!(JobSpec::read(&older[..older.len() - 6]).unwrap(), spec(2));
    // Version 4 had all but the last four: roles, files of variables and changes were not told.
    let older = encode(&spec(4));
    assert_eq!(JobSpec::read(&older[..older.len() - 4]).unwrap(), spec(4));
    // Version 3 had one less: such a job sees the branches and tags of its own time.
    let known = JobSpec { project: Some(JobProject { connection: "forge".into(), name: "app".into() }), ..spec(3) };
    let older = encode(&known);
    assert_eq!(JobSpec::read(&older[..older.len() - 5]).unwrap(), known);
    let project = Some(JobProject { connection: "forge".into(), name: "app".into() });
    let newest = JobSpec { project, ..spec(VERSION) };
    assert_eq!(JobSpec::read(&encode(&newest)).unwrap(), newest);
    let mut cut = encode(&spec(VERSION));
    cut.pop();
    assert!(JobSpec::read(&cut).is_err(), "only what is older may lack it");
}
