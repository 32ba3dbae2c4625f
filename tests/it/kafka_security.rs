//! TLS, passwords, certificates and rights on one real Apache Kafka, as a site's configuration says them.

use std::process::Command;

use crate::harness::kafka::KafkaSite;
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::secure::{PASSWORD, Secure, secure, write_secret};
use crate::harness::{host, process};

/// A push goes to its report, the log is sound, and nobody has said the password.
fn from_push_to_report(kafka: &KafkaSite, spoken: &str) {
    let site = &kafka.site;
    let (code, out, err) = site.gatelog(&["log", "check"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains(spoken), "{spoken:?} is missing in {out}");
    let (scheduler, executor) = kafka.start();
    scheduler.wait_configured();
    site.push("project", "good", "Good", &[("new", "1")]);
    assert_eq!(scheduler.wait_verdict("check", "project", "good"), "SUCCESS");
    site.approve("project", "good");
    assert_eq!(scheduler.wait_verdict("gate", "project", "good"), "SUCCESS");
    scheduler.wait_idle();
    assert_eq!(site.reflog("project").len(), 2);
    crate::harness::eventually("the reports are delivered", || {
        (site.verdicts("project", "good").len() == 2).then_some(())
    });
    let said = format!("{}{}", scheduler.log(), executor.log());
    assert!(!said.contains(PASSWORD), "the password was said: {said}");
    executor.stop();
    scheduler.stop();
    for command in [["log", "verify"], ["replay", "verify"], ["log", "check"]] {
        let (code, out, err) = site.gatelog(&command);
        assert_eq!(code, 0, "{command:?}: {out}{err}");
    }
    assert_eq!(process::processes_of(site.path()), Vec::<String>::new());
}

/// What somebody writes who logs in.
fn login(secure: &Secure, mechanism: &str, user: &str, password: &str) -> String {
    format!(
        "\"security.protocol\" = \"SASL_SSL\"\n\"ssl.ca.location\" = {:?}\n\"sasl.mechanisms\" = \"{mechanism}\"\n\
         \"sasl.username\" = \"{user}\"\n\"sasl.password\" = \"{password}\"\n",
        secure.file("ca.pem")
    )
}

#[test]
fn a_site_logs_in_over_tls_with_a_password_and_has_the_rights_of_the_manual() {
    const TEST: &str = "Kafka with TLS and SCRAM";
    if !host::can_build(TEST) {
        return;
    }
    let Some(secure) = secure(TEST) else { return };
    let password = secure.file("password-of-a-site");
    write_secret(&password, &format!("{PASSWORD}\n"));
    let properties = login(secure, "SCRAM-SHA-512", "ci", &format!("file:{}", password.display()));
    let kafka = secure.site("LOGIN", &properties, &[("config", CONFIG), ("project", PROJECT)]);
    from_push_to_report(&kafka, "SASL_SSL, SCRAM-SHA-512 as ci; brokers are known by the CA in ");
}

#[test]
fn a_site_shows_a_certificate_and_needs_no_password() {
    const TEST: &str = "Kafka with mutual TLS";
    if !host::can_build(TEST) {
        return;
    }
    let Some(secure) = secure(TEST) else { return };
    let properties = format!(
        "\"security.protocol\" = \"SSL\"\n\"ssl.ca.location\" = {:?}\n\"ssl.certificate.location\" = {:?}\n\
         \"ssl.key.location\" = {:?}\n",
        secure.file("ca.pem"),
        secure.file("ci.pem"),
        secure.file("ci.key")
    );
    let kafka = secure.site("MUTUAL", &properties, &[("config", CONFIG), ("project", PROJECT)]);
    from_push_to_report(&kafka, "SSL, with the certificate in ");
}

/// A site's directory whose configuration says this, with a password and a wrong one, and what commands say there.
struct Attempt {
    dir: tempfile::TempDir,
}

impl Attempt {
    fn new(brokers: &str, properties: &str) -> Attempt {
        let dir = tempfile::tempdir().unwrap();
        write_secret(&dir.path().join("right"), &format!("{PASSWORD}\n"));
        write_secret(&dir.path().join("wrong"), "not-the-password\n");
        std::fs::write(dir.path().join("open"), PASSWORD).unwrap();
        let toml = format!(
            "[web]\nlisten = \"127.0.0.1:0\"\n[log.kafka]\nbrokers = \"{brokers}\"\nprefix = \"attempt-{}.\"\n\
             replication = 1\nmin-insync = 1\n[log.kafka.properties]\n{properties}[shared]\ndir = \"shared\"\n",
            std::process::id()
        );
        std::fs::write(dir.path().join("gatelog.toml"), toml).unwrap();
        std::fs::write(dir.path().join("tenants.yaml"), "- tenant:\n    name: test\n").unwrap();
        Attempt { dir }
    }

    /// Exit code and all that was said, in which there is no secret.
    fn gatelog(&self, arguments: &[&str]) -> (i32, String) {
        let output = Command::new(host::binary()).args(arguments).arg("--dir").arg(self.dir.path()).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!said.contains(PASSWORD) && !said.contains("not-the-password"), "a secret was said: {said}");
        (output.status.code().unwrap_or(-1), said)
    }
}

#[test]
fn what_keeps_brokers_and_gatelog_apart_is_named_with_its_setting_and_its_cure() {
    const TEST: &str = "Kafka with TLS that goes wrong";
    let Some(secure) = secure(TEST) else { return };
    let ca = |name: &str| format!("\"ssl.ca.location\" = {:?}\n", secure.file(name));
    let ssl = |more: &str| format!("\"security.protocol\" = \"SSL\"\n{more}");
    let pair = |name: &str| {
        format!(
            "\"ssl.certificate.location\" = {:?}\n\"ssl.key.location\" = {:?}\n",
            secure.file(&format!("{name}.pem")),
            secure.file(&format!("{name}.key"))
        )
    };
    let log_in = |mechanism: &str, password: &str| login(secure, mechanism, "ci", password);
    let cases: [(&str, String, i32, &[&str]); 13] = [
        ("TLS", ssl(&ca("other-ca.pem")), 4, &["is not signed by the CA in", "other-ca.pem", "set ssl.ca.location to"]),
        ("TLS", ssl(""), 4, &["is signed by no CA that this system knows", "set ssl.ca.location to"]),
        ("ELSEWHERE", ssl(&ca("ca.pem")), 4, &["does not name the host 127.0.0.1", "hosts in brokers"]),
        (
            "LOGIN",
            log_in("SCRAM-SHA-512", "file:wrong"),
            4,
            &[
                "does not take user \"ci\" with this password (SCRAM-SHA-512)",
                "the password in",
                "/wrong that sasl.password",
            ],
        ),
        ("LOGIN", log_in("PLAIN", "file:wrong"), 4, &["does not take user \"ci\" with this password (PLAIN)"]),
        ("LOGIN", log_in("SCRAM-SHA-256", "file:right"), 4, &["does not take SCRAM-SHA-256", "set sasl.mechanisms"]),
        ("LOGIN", ssl(&ca("ca.pem")), 4, &["who does not log in", "set security.protocol to SASL_SSL"]),
        ("LOGIN", String::new(), 4, &["it speaks TLS", "set security.protocol to SSL, or to SASL_SSL"]),
        ("PLAINTEXT", ssl(&ca("ca.pem")), 4, &["speaks no TLS", "set security.protocol to PLAINTEXT"]),
        ("MUTUAL", ssl(&ca("ca.pem")), 4, &["wants to see a certificate", "set ssl.certificate.location and ssl.key"]),
        (
            "MUTUAL",
            ssl(&format!("{}{}", ca("ca.pem"), pair("forged"))),
            4,
            &["does not take the certificate in", "forged.pem", "signed by a CA the brokers trust"],
        ),
        ("LOGIN", log_in("PLAIN", PASSWORD), 2, &["sasl.password stands in the configuration itself", "file:PATH"]),
        ("LOGIN", log_in("PLAIN", "file:open"), 2, &["has mode 644, so others may read it", "run chmod 600"]),
    ];
    for (listener, properties, code, expected) in cases {
        let brokers = if listener == "PLAINTEXT" { secure.brokers() } else { secure.listener(listener) };
        let attempt = Attempt::new(&brokers, &properties);
        for command in [&["log", "check"][..], &["serve"]] {
            let (found, said) = attempt.gatelog(command);
            for part in expected {
                assert!(said.contains(part), "{listener} {command:?}: {part:?} is missing in {said}");
            }
            assert_eq!(found, code, "{listener} {command:?}: {said}");
        }
    }
}

#[test]
fn who_is_let_in_and_has_no_rights_is_told_so() {
    const TEST: &str = "Kafka without rights";
    let Some(secure) = secure(TEST) else { return };
    let properties = login(secure, "SCRAM-SHA-512", "stranger", "file:right");
    let attempt = Attempt::new(&secure.listener("LOGIN"), &properties);
    let (code, said) = attempt.gatelog(&["log", "init"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("gatelog.site") || said.contains("intake"), "{said}");
    assert!(said.contains("rights"), "{said}");
}
