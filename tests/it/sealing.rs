//! What belongs under seal is nowhere in clear: not in the log, not in blobs, not in projections.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::harness::projects::PIPELINES;
use crate::harness::{Site, eventually, host};

const NAME: &str = "Canaria Zwitscher";
const MAIL: &str = "canary-7f3a@aviary.example";
const TEXT: &str = "canary-commit-text-5d21";
const SECRET: &str = "canary-secret-data-c0ffee";

const JOBS: &str = r"
- job:
    name: keeper
    run: playbooks/keeper.yaml

- job:
    name: visitor
    run: playbooks/visitor.yaml
    dependencies: [keeper]

- project:
    check:
      jobs: [keeper, visitor]
";

/// Returns a secret; nothing of it is on its console.
const KEEPER: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Hand something on under seal
      no_log: true
      zuul_return:
        secret_data:
          password: "{{ ['canary-secret', 'data', 'c0ffee'] | join('-') }}"
"#;

/// Has the secret, and says so without saying it.
const VISITOR: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: The secret arrived
      no_log: true
      assert:
        that: "password == ['canary-secret', 'data', 'c0ffee'] | join('-')"
"#;

fn files(root: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn canaries_are_nowhere_in_clear() {
    if !host::can_build("sealing") {
        return;
    }
    let site = Site::new(&[
        ("config", &[("zuul.yaml", PIPELINES)]),
        ("project", &[("zuul.yaml", JOBS), ("playbooks/keeper.yaml", KEEPER), ("playbooks/visitor.yaml", VISITOR)]),
    ])
    .with_author(NAME, MAIL);
    let server = site.start();
    server.wait_configured();
    site.push("project", "change", &format!("Change\n\n{TEXT}\n"), &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    server.stop();

    let canaries = [NAME, "Canaria", MAIL, "canary-7f3a", TEXT, SECRET];
    nowhere_in_clear(&site, &canaries.map(str::as_bytes), false);
}

/// Looks for canaries in everything that gatelog keeps of a site but keys and consoles; in whatever else is left of it
/// too, if that is asked for.
pub fn nowhere_in_clear(site: &Site, canaries: &[&[u8]], in_all: bool) {
    // The log as it reads: every record of every stream.
    let mut read = String::new();
    for stream in ["intake", "gate.inputs", "gate.events", "capacity.inputs", "capacity.events"] {
        let (code, out, err) = site.gatelog(&["log", "cat", stream, "--json"]);
        assert_eq!(code, 0, "{err}");
        read.push_str(&out);
    }
    assert!(read.contains("Sealed") || read.contains("ciphertext"), "something is under seal");
    let mut haystacks: Vec<(String, Vec<u8>)> = vec![("the log as it reads".into(), read.into_bytes())];
    // Everything on disk that gatelog keeps: the log and its blobs, and the projections; what
    // RocksDB compressed is read through the tables.
    for part in ["log", "projections"] {
        let mut found = Vec::new();
        files(&site.path().join(part), &mut found);
        assert!(!found.is_empty());
        for path in found {
            haystacks.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    haystacks.extend(crate::sealing::tables::dump(site));
    if in_all {
        // Consoles, inventories, mirrors, what a careless job left behind.
        let mut left = Vec::new();
        files(site.path(), &mut left);
        haystacks
            .extend(left.into_iter().filter_map(|path| Some((path.display().to_string(), std::fs::read(&path).ok()?))));
    }
    for (place, bytes) in &haystacks {
        for canary in canaries {
            // By its beginning first: there may be many.
            let mut places = bytes.windows(canary.len()).filter(|window| window[0] == canary[0]);
            let there = places.any(|window| window == *canary);
            assert!(!there, "{:?} stands in clear in {place}", String::from_utf8_lossy(canary));
        }
    }
}

/// The key of the config project; no site's but this test's.
const KEY: &str = include_str!("../../services/secrets/tests/golden/key.pem");
const PUBLIC: &str = include_str!("../../services/secrets/tests/golden/key.pub");
const IN_REPOSITORY: &str = "canary-in-repository-{{ 7 * 7 }}";

/// That as it is, in base64 at each alignment, in hexadecimal.
const FORMS: [&str; 5] = [
    "canary-in-repository",
    "Y2FuYXJ5LWluLXJlcG9zaXRvcn",
    "NhbmFyeS1pbi1yZXBvc2l0b3J5",
    "jYW5hcnktaW4tcmVwb3NpdG9ye",
    "63616e6172792d696e",
];

/// Jobs of the config project; `SECRET` is what `gatelog encrypt` printed.
const PUBLISHER: &str = r"
- job:
    name: publisher
    run: playbooks/publish.yaml
    secrets: [creds]

- job:
    name: careless
    run: playbooks/tell.yaml
    post-run: playbooks/fail.yaml
    secrets: [creds]
    voting: false

- job:
    name: forbidden
    run: playbooks/tell.yaml
    post-run: playbooks/fail.yaml
    secrets: [creds]
    secret-exposure: fail
    voting: false

- job:
    name: bystander
    run: playbooks/look.yaml
";

const PUBLISH: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: The secret is here, and no template
      no_log: true
      assert:
        that: "creds.password == ['canary', 'in', 'repository', '{' ~ '{ 7 * 7 }' ~ '}'] | join('-')"
    - name: Leave it where a careless job leaves things
      no_log: true
      copy: {content: "{{ creds.password }}", dest: "{{ zuul.executor.work_root }}/careless"}
"#;

/// Writes the secret wherever a job can write.
const TELL: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: {msg: "the password is {{ creds.password }}"}
    - shell: printf 'user:%s' '{{ creds.password }}' | base64; printf '%s' '{{ creds.password }}' | od -An -tx1 | tr -d ' '
    - copy: {content: "{{ creds.password }}", dest: "{{ zuul.executor.log_root }}/settings"}
    - zuul_return: {data: {password: "{{ creds.password }}", zuul: {warnings: ["{{ creds.password }} is weak"]}}}
"#;

/// Fails with the secret in its words.
const TELL_AT_LAST: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: "Log in with {{ creds.password }}"
      fail: {msg: "{{ creds.password }} is wrong"}
"#;

const LOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: No secret is here
      assert: {that: creds is not defined}
"#;

#[test]
fn a_secret_in_a_repository_reaches_its_playbook_and_nothing_else() {
    if !host::can_build("secrets in repositories") {
        return;
    }
    let jobs = "- project:\n    check:\n      jobs: [publisher, bystander, careless, forbidden]\n";
    let playbooks = [
        ("playbooks/publish.yaml", PUBLISH),
        ("playbooks/look.yaml", LOOK),
        ("playbooks/tell.yaml", TELL),
        ("playbooks/fail.yaml", TELL_AT_LAST),
    ];
    let site = Site::new(&[("config", &playbooks), ("project", &[("zuul.yaml", jobs)])]);
    // As a site that comes from Zuul: the key is taken over, and secrets are encrypted for it.
    site.write("key.pem", KEY);
    site.write("clear", &format!("  {IN_REPOSITORY}\n"));
    let file = |name: &str| site.path().join(name).display().to_string();
    let (code, out, err) = site.gatelog(&["keys", "import", "forge", "config", &file("key.pem")]);
    assert_eq!((code, out.contains("2048 bits")), (0, true), "{out}{err}");
    let (code, shown, err) = site.gatelog(&["keys", "show", "forge", "config"]);
    assert_eq!((code, shown.as_str()), (0, PUBLIC), "{err}");
    site.write("key.pub", &shown);
    let (public, clear) = (file("key.pub"), file("clear"));
    let encrypt = ["encrypt", "--public-key", &public, "--infile", &clear, "--secret-name", "creds", "--field-name"];
    let (code, secret, err) = site.gatelog(&[&encrypt[..], &["password"]].concat());
    assert_eq!(code, 0, "{err}");
    for name in ["key.pem", "clear"] {
        std::fs::remove_file(site.path().join(name)).unwrap();
    }
    site.push_to_master("config", "Jobs", &[("zuul.yaml", &format!("{PIPELINES}{PUBLISHER}\n{secret}"))]);

    let server = site.start();
    server.wait_configured();
    assert_eq!(server.json("/api/tenant/test/config-errors").to_string(), "[]");
    site.push("project", "change", "Change", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS", "{}", server.log());
    let builds = server.json("/api/tenant/test/builds?change=master/change");
    let build = |name: &str| builds.as_array().unwrap().iter().find(|build| build["job_name"] == name).unwrap().clone();
    let (careless, forbidden) = (build("careless"), build("forbidden"));
    assert_eq!(careless["result"], "POST_FAILURE", "{careless:#}");
    assert_eq!(forbidden["result"], "SECRET_EXPOSURE", "{forbidden:#}");
    assert!(careless["error_detail"].to_string().contains("Log in with [masked]"), "{careless:#}");
    assert!(!careless["error_detail"].to_string().contains("is wrong"), "a task's own words are on the console alone");
    let console =
        |uuid: &Json| server.get(&format!("/api/tenant/test/build/{}/console", uuid.as_str().unwrap())).unwrap().body;
    for told in ["the password is [masked]", "Log in with [masked]", "[masked] is wrong"] {
        assert!(console(&careless["uuid"]).contains(told), "{told:?}: {}", console(&careless["uuid"]));
    }
    assert!(!console(&forbidden["uuid"]).contains("POST-RUN START"), "{}", console(&forbidden["uuid"]));
    let reports = site.reports("project", "change");
    assert!(reports.iter().all(|report| !format!("{report:?}").contains("canary")), "{reports:?}");
    let answer = server.get("/api/tenant/test/key/config.pub").unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, PUBLIC));

    // One that was encrypted for another project is told where it is used, and nothing runs with it.
    let copied = format!(
        "{}\n- job:\n    name: thief\n    run: playbooks/look.yaml\n    secrets: [stolen]\n\
         - project:\n    check:\n      jobs: [thief]\n",
        secret.replace("name: creds", "name: stolen")
    );
    site.push("project", "thief", "Steal", &[("zuul.yaml", &copied), ("playbooks/look.yaml", LOOK)]);
    assert_eq!(server.wait_verdict("check", "project", "thief"), "CONFIG_ERROR", "{}", server.log());
    let report = eventually("the report is delivered", || site.reports("project", "thief").into_iter().next());
    for words in [
        "secret \"stolen\" of job \"thief\"",
        "does not decipher",
        "zuul.yaml",
        "encrypt it again for git.test/project",
    ] {
        assert!(report.text.contains(words), "{words:?} is not in the report:\n{}", report.text);
    }
    server.wait_idle();
    // What the server has said to whoever asked, and what it has told of itself.
    let mut said: Vec<String> = ["builds", "buildsets", "status", "jobs", "config-errors", "events"]
        .map(|list| format!("/api/tenant/test/{list}"))
        .into_iter()
        .chain(
            builds
                .as_array()
                .unwrap()
                .iter()
                .map(|one| format!("/api/tenant/test/build/{}", one["uuid"].as_str().unwrap())),
        )
        .filter_map(|path| Some(server.get(&path)?.body))
        .collect();
    said.push(server.log());
    assert!(said.len() > 8 && said.iter().any(|body| body.contains("careless")), "{} answers", said.len());
    for form in FORMS {
        assert!(!said.iter().any(|body| body.contains(form)), "{form:?} was told");
    }
    server.stop();
    let made =
        site.events("gate.inputs").into_iter().filter(|input| input.to_string().contains("secret-undecipherable"));
    assert_eq!(made.count(), 1, "what the keys say stands on the log");
    let (code, _, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{err}");

    nowhere_in_clear(&site, &FORMS.map(str::as_bytes), true);
    // Which attempt was given it is on the log.
    let given: Vec<String> = site
        .events("gate.events")
        .iter()
        .filter(|event| event["kind"] == "gate.secrets-given")
        .map(ToString::to_string)
        .collect();
    assert_eq!(given.len(), 3, "the bystander is given nothing: {given:?}");
    assert!(given[0].contains("\"creds\"") && given[0].contains("\"config\""), "{}", given[0]);
}

/// Tables and rungs as rows, whatever they are compressed with.
mod tables {
    use std::fmt::Write as _;

    use gatelog_capacity_state::Capacity;
    use gatelog_gate_state::Gate;
    use gatelog_record::Partition;
    use gatelog_store::{Layout, Projection, RocksBacking, RungDir};
    use gatelog_tables::{Backing, DomainState, TableDef, TableError, TableExt, TableSet, TableVisitor};

    use crate::harness::Site;

    struct Rows(String);

    impl<B: Backing> TableVisitor<B> for Rows {
        fn visit<T: TableDef>(&mut self, table: &B::Table<T>) -> Result<(), TableError> {
            for row in table.all()? {
                let (key, row) = row?;
                // As text, and as the bytes that are kept.
                writeln!(self.0, "{} {key:?} {row:?}", T::NAME).unwrap();
                let bytes = gatelog_record::codec::encode(row.as_ref()).unwrap();
                self.0.push_str(&String::from_utf8_lossy(&bytes));
            }
            Ok(())
        }
    }

    fn domain<S: DomainState>(site: &Site) -> Vec<(String, Vec<u8>)> {
        let root = site.path().join("projections");
        let partition = Partition { domain: S::DOMAIN, index: 0 };
        let (projection, _) = Projection::<S>::open(&root, partition).unwrap();
        let mut rows = Rows(String::new());
        TableSet::<RocksBacking>::visit(projection.live(), &mut rows).unwrap();
        TableSet::<RocksBacking>::visit(projection.temporal(), &mut rows).unwrap();
        assert!(rows.0.len() > 1_000, "the tables of {partition} hold something");
        let mut found = vec![(format!("tables of {partition}"), rows.0.into_bytes())];
        let mut warnings = Vec::new();
        let rungs = RungDir::new(Layout::new(&root, partition).rungs());
        if let Some(rung) = rungs.nearest::<S>(partition, u64::MAX, &mut warnings).unwrap() {
            let mut rows = Rows(String::new());
            TableSet::<gatelog_tables::Maps>::visit(&rung.live, &mut rows).unwrap();
            found.push((format!("newest rung of {partition}"), rows.0.into_bytes()));
        }
        assert_eq!(warnings, []);
        found
    }

    pub fn dump(site: &Site) -> Vec<(String, Vec<u8>)> {
        let mut found = domain::<Gate>(site);
        found.extend(domain::<Capacity>(site));
        found
    }
}
