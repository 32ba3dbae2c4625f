//! Continuous deployment (seed "Zuul v3"): what merges is deployed by a job that runs on a host of the site's own, over a
//! real OpenSSH server, with the project's key or the tenant's.

use gatelog_ssh_host::SshHost;

use crate::harness::projects::{JOBS, PIPELINES, PLAYBOOK};
use crate::harness::{Site, eventually, host};

const DEPLOY_PIPELINE: &str = r"
- pipeline:
    name: deploy
    manager: independent
    post-review: true
    trigger:
      forge:
        - event: ref-updated
          ref: ^refs/heads/master$
    success:
      forge: {}
    failure:
      forge: {}
";

/// Applies what merged.
const APPLY: &str = r#"
- hosts: all
  tasks:
    - name: Apply
      shell: echo "{{ zuul.project.name }} {{ zuul.newrev }}" >> {{ zuul_user_dir }}/applied
"#;

fn hosts(what: &str) -> Option<[SshHost; 3]> {
    let hosts: Result<Vec<SshHost>, String> = (0..3).map(|_| SshHost::start()).collect();
    match hosts {
        Ok(hosts) => hosts.try_into().ok(),
        Err(reason) => {
            println!("SKIPPED {what}: {reason}");
            None
        }
    }
}

fn applied(host: &SshHost) -> Vec<String> {
    let text = std::fs::read_to_string(host.home().join("applied")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_merges_is_deployed_to_hosts_with_the_right_fingerprint_and_to_no_other() {
    let what = "continuous deployment";
    if !host::can_build(what) {
        return;
    }
    let Some([trusts_project, trusts_tenant, other]) = hosts(what) else { return };
    let job = |name: &str, host: &SshHost, fingerprint: &str| {
        format!(
            "- job:\n    name: {name}\n    host: zuul@127.0.0.1:{}\n    fingerprint: {fingerprint}\n    attempts: 1\n    run: playbooks/apply.yaml\n\n",
            host.port()
        )
    };
    let wrong = "4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b";
    // As OpenSSH says it: with and without the name of the digest.
    let md5 = trusts_project.fingerprint("md5").unwrap();
    let jobs = [
        job("apply-by-project", &trusts_project, md5.trim_start_matches("MD5:")),
        job("apply-by-tenant", &trusts_tenant, &trusts_tenant.fingerprint("sha256").unwrap()),
        job("apply-elsewhere", &other, wrong),
        "- job:\n    name: apply-nowhere\n    host: 127.0.0.1\n    run: playbooks/apply.yaml\n\n".to_owned(),
    ]
    .concat();
    let project = format!(
        "{jobs}{JOBS}    deploy:\n      jobs: [apply-by-project, apply-by-tenant, apply-elsewhere, apply-nowhere]\n"
    );
    let pipelines = format!("{PIPELINES}{DEPLOY_PIPELINE}");
    let site = Site::new(&[
        ("config", &[("zuul.yaml", pipelines.as_str())]),
        (
            "project",
            &[
                ("zuul.yaml", project.as_str()),
                ("playbooks/verdict.yaml", PLAYBOOK),
                ("playbooks/apply.yaml", APPLY),
                ("verdict", "good\n"),
            ],
        ),
    ]);
    let key = |arguments: &[&str]| {
        let (code, out, err) = site.gatelog(&[&["keys"], arguments].concat());
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    trusts_project.let_in(&key(&["show", "--ssh", "forge", "project"])).unwrap();
    trusts_tenant.let_in(&key(&["show-tenant", "test"])).unwrap();
    // Whoever got that far would be let in.
    other.let_in(&key(&["show-tenant", "test"])).unwrap();

    let server = site.start();
    server.wait_configured();
    server.wait_idle();
    // The branch itself is new to the site: that it is there is the first thing that is deployed.
    let first = [applied(&trusts_project), applied(&trusts_tenant)];
    let connections = |host: &SshHost| host.log().matches("Connection from").count();
    let before = [&trusts_project, &trusts_tenant, &other].map(connections);
    // Not reviewed, not deployed.
    site.push("project", "change", "Change", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS", "{}", server.log());
    assert_eq!([&trusts_project, &trusts_tenant, &other].map(connections), before, "{}", trusts_project.log());
    site.approve("project", "change");
    assert_eq!(server.wait_verdict("gate", "project", "change"), "SUCCESS", "{}", server.log());
    // The server hears of the merged branch as it hears of everybody's pushes: a moment later.
    eventually("what merged is deployed", || {
        [&trusts_project, &trusts_tenant]
            .iter()
            .zip(&first)
            .all(|(host, first)| applied(host).len() > first.len())
            .then_some(())
    });
    server.wait_idle();
    server.stop();

    let expected = site.git(&site.path().join("forge/project.git"), &["rev-parse", "master"]).trim().to_owned();
    for (host, first) in [&trusts_project, &trusts_tenant].into_iter().zip(first) {
        let after = [first, vec![format!("project {expected}")]].concat();
        assert_eq!(applied(host), after, "{}", host.log());
    }
    assert!(applied(&other).is_empty() && !other.log().contains("userauth"), "{}", other.log());
    let finished: Vec<String> = site
        .events("gate.events")
        .iter()
        .filter(|event| event["kind"] == "gate.build-finished")
        .map(ToString::to_string)
        .collect();
    let told = |word: &str| finished.iter().filter(|event| event.contains(word)).count();
    assert!(told(wrong) >= 1, "{finished:#?}");
    assert!(told("has no fingerprint: add that of the host's SSH key") >= 1, "{finished:#?}");
}
