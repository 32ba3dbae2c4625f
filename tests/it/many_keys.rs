//! Keys that come and go by the command line: all of a Zuul's at once, a directory of them, and rotation under a server
//! that runs.

use std::os::unix::fs::PermissionsExt;

use crate::harness::projects::PIPELINES;
use crate::harness::{Server, Site, eventually};

/// No site's keys but these tests'.
const ONE: &str = include_str!("../../services/secrets/tests/golden/key.pem");
const PUBLIC: &str = include_str!("../../services/secrets/tests/golden/key.pub");
const OTHER: &str = include_str!("../../services/secrets/tests/golden/key-4096.pem");
/// What a Zuul exported of its connection `gerrit`, and the password it is under.
const EXPORT: &str = include_str!("../../services/secrets/tests/golden/zuul-export.json");
const PASSWORD: &str = "the fixtures' own ü\n";

/// Runs a `keys` command: exit code, and what it said.
fn keys(site: &Site, arguments: &[&str]) -> (i32, String) {
    let (code, out, err) = site.gatelog(&[&["keys"], arguments].concat());
    (code, out + &err)
}

/// One that must succeed.
fn done(site: &Site, arguments: &[&str]) -> String {
    let (code, said) = keys(site, arguments);
    assert_eq!(code, 0, "{arguments:?}: {said}");
    said
}

/// A file beside the site: its path.
fn beside(site: &Site, name: &str, text: &str) -> String {
    site.write(name, text);
    site.path().join(name).display().to_string()
}

/// A stanza with a secret, encrypted for a public key.
fn secret(site: &Site, name: &str, public: &str) -> String {
    let (key, clear) = (beside(site, "key.pub", public), beside(site, "clear", "canary"));
    let arguments = ["encrypt", "--public-key", &key, "--infile", &clear, "--secret-name", name];
    let (code, stanza, err) = site.gatelog(&arguments);
    assert_eq!(code, 0, "{err}");
    stanza
}

/// A job that uses secrets.
fn publisher(names: &str, secrets: &[String]) -> String {
    let job = format!("- job:\n    name: publisher\n    run: playbooks/p.yaml\n    secrets: [{names}]\n\n");
    job + &secrets.join("\n")
}

fn site(config: &str) -> Site {
    let config = format!("{PIPELINES}\n{config}");
    Site::new(&[
        ("config", &[("zuul.yaml", config.as_str()), ("playbooks/p.yaml", "[]\n")]),
        ("project", &[("a.txt", "a")]),
    ])
}

fn errors(server: &Server) -> String {
    server.json("/api/tenant/test/config-errors").to_string()
}

fn wait_well(server: &Server, what: &str) {
    eventually(what, || (errors(server) == "[]").then_some(()));
}

#[test]
fn all_keys_are_handed_from_one_site_to_another_by_two_commands() {
    let old = site("");
    let (one, other) = (beside(&old, "one.pem", ONE), beside(&old, "other.pem", OTHER));
    done(&old, &["import", "forge", "config", &one]);
    done(&old, &["import", "--ssh", "forge", "project", &other]);
    done(&old, &["import-tenant", "test", &one]);
    let (password, file) = (beside(&old, "password", "canary\n"), old.path().join("keys.json").display().to_string());
    let said = done(&old, &["export", &file, "--password-file", &password]);
    assert!(said.contains("keys for secrets of 1 projects, 0 former ones, 2 SSH keys"), "{said}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, said) = keys(&old, &["export", &file, "--password-file", &password]);
    assert!(code == 1 && said.contains("is there already"), "an export is never written over another: {said}");

    let new = site(&publisher("creds", &[secret(&old, "creds", PUBLIC)]));
    let server = new.start();
    server.wait_configured();
    assert!(errors(&server).contains("does not decipher"), "{}", errors(&server));
    let wrong = beside(&new, "wrong", "another\n");
    let (code, said) = keys(&new, &["import-all", &file, "--password-file", &wrong]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("project forge/config, secrets: NOT taken over: the key cannot be taken over: the password"),
        "{said}"
    );
    assert!(said.contains("0 taken over, 0 there already, 3 not taken over"), "{said}");
    let said = done(&new, &["import-all", &file, "--password-file", &password]);
    assert!(said.contains("3 taken over, 0 there already, 0 not taken over"), "{said}");
    wait_well(&server, "the secret deciphers");
    server.stop();
    assert_eq!(done(&new, &["list"]), done(&old, &["list"]));
    let told = old.start();
    told.wait_configured();
    eventually("the log is told of the export", || {
        old.events("gate.inputs").iter().any(|input| input.to_string().contains("keys-exported")).then_some(())
    });
    told.stop();
}

#[test]
fn what_a_zuul_has_of_other_connections_is_told_with_the_cure() {
    let site = site("");
    let (file, password) = (beside(&site, "zuul.json", EXPORT), beside(&site, "password", PASSWORD));
    let (code, said) = keys(&site, &["import-all", &file, "--password-file", &password]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains(
            "project gerrit/lib, SSH: NOT taken over: the site has no connection \"gerrit\" (it has: forge): add it"
        ),
        "{said}"
    );
    assert!(
        said.contains("tenant x/y z, SSH: NOT taken over: the site has no tenant \"x/y z\" (it has: test): add it"),
        "{said}"
    );
    let (code, said) = keys(&site, &["import-all", &password, "--password-file", &password]);
    assert!(code == 2 && said.contains("no keys as Zuul exports them") && said.contains("export-keys"), "{said}");
    // A password is never an argument.
    let (code, said) = keys(&site, &["import-all", &file]);
    assert!(code == 2 && said.contains("--password-file"), "{said}");
}

#[test]
fn a_directory_of_keys_is_taken_over_and_bad_files_harm_nobody() {
    let site = site("");
    let config = format!("{PIPELINES}\n{}", publisher("creds", &[secret(&site, "creds", PUBLIC)]));
    site.push_to_master("config", "Jobs", &[("zuul.yaml", &config)]);
    let server = site.start();
    server.wait_configured();
    assert!(errors(&server).contains("does not decipher"), "{}", errors(&server));
    let directory = tempfile::tempdir().unwrap();
    let under_password = ONE.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    crate::harness::write_files(
        directory.path(),
        &[
            ("forge/config.pem", ONE),
            ("forge/deep/er/project.pem", OTHER),
            ("forge/sealed.pem", &under_password),
            ("forge/none.pem", PUBLIC),
            ("forge/README", "keys"),
            ("elsewhere/org/app.pem", ONE),
            ("top.pem", ONE),
        ],
    );
    std::fs::write(directory.path().join("forge/binary.pem"), [0xff; 40]).unwrap();
    let path = directory.path().display().to_string();
    let (code, said) = keys(&site, &["import-dir", &path]);
    assert_eq!(code, 1, "{said}");
    for line in [
        "forge/config.pem: taken over",
        "forge/deep/er/project.pem: taken over",
        "forge/sealed.pem: NOT taken over: the key cannot be taken over: it is under a password",
        "forge/none.pem: NOT taken over: the key cannot be taken over: it is no RSA private key in PEM",
        "forge/README: NOT taken over: its name does not end in .pem",
        "forge/binary.pem: NOT taken over: it cannot be read",
        "elsewhere/org/app.pem: NOT taken over: the site has no connection \"elsewhere\"",
        "top.pem: NOT taken over: it lies beside the directories of connections: move it to CONNECTION/PROJECT.pem",
        "2 taken over, 0 there already, 6 not taken over",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    wait_well(&server, "the secret deciphers");
    server.stop();
    let listed = done(&site, &["list"]);
    assert!(listed.contains("project forge/deep/er/project, secrets (4096 bits)"), "{listed}");
    // Once more, with another key for one: that is told, and nothing is replaced.
    std::fs::write(directory.path().join("forge/config.pem"), OTHER).unwrap();
    let (_, said) = keys(&site, &["import-dir", &path]);
    assert!(
        said.contains("forge/config.pem: NOT taken over: forge/config has a key already") && said.contains("--replace"),
        "{said}"
    );
    assert!(said.contains("forge/deep/er/project.pem: there already"), "{said}");
    assert_eq!(done(&site, &["list"]), listed);
}

#[test]
fn a_rotated_key_still_deciphers_until_it_is_retired_also_in_a_backup() {
    let site = site("");
    let one = beside(&site, "one.pem", ONE);
    done(&site, &["import", "forge", "config", &one]);
    let config = format!("{PIPELINES}\n{}", publisher("creds", &[secret(&site, "creds", PUBLIC)]));
    site.push_to_master("config", "Jobs", &[("zuul.yaml", &config)]);
    let server = site.start();
    server.wait_configured();
    wait_well(&server, "the secret deciphers");

    let said = done(&site, &["rotate", "forge", "config"]);
    assert!(said.contains("has a new key of 4096 bits") && said.contains("deciphers until it is retired"), "{said}");
    let public = server.get("/api/tenant/test/key/config.pub").unwrap().body;
    assert!(public.starts_with("-----BEGIN PUBLIC KEY") && public != PUBLIC, "the new one is given out: {public}");
    let secrets = [secret(&site, "creds", PUBLIC), secret(&site, "fresh", &public)];
    let config = format!("{PIPELINES}\n{}", publisher("creds, fresh", &secrets));
    site.push_to_master("config", "Another secret", &[("zuul.yaml", &config)]);
    let count = || {
        let layouts = site.events("gate.inputs");
        layouts.iter().filter(|input| input["kind"] == "gate.in.layout-made").count()
    };
    eventually("a layout with both secrets", || (count() >= 3).then_some(()));
    assert_eq!(errors(&server), "[]", "both decipher");

    let to = tempfile::tempdir().unwrap();
    let copy = to.path().join("copy");
    let (code, _, err) = site.gatelog(&["backup", "--to", copy.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    let (code, said) = keys(&site, &["retire", "forge", "config"]);
    assert!(code == 2 && said.contains("FINGERPRINT"), "which one has to be said: {said}");
    let (code, said) = keys(&site, &["retire", "forge", "config", "0000000000000000"]);
    assert!(code == 3 && said.contains("keys list"), "{said}");
    let listed = done(&site, &["list"]);
    assert!(listed.contains("project forge/config, secrets, former (2048 bits)"), "{listed}");
    let said = done(&site, &["retire", "forge", "config", "--all"]);
    assert!(said.contains("retired"), "{said}");
    eventually("one secret does not decipher any more", || errors(&server).contains("creds").then_some(()));
    let left = server.json("/api/tenant/test/config-errors");
    assert_eq!(left.as_array().unwrap().len(), 1, "the other one does: {left}");
    server.stop();
    let asked = crate::keys::reconfigurations_asked(&site);
    assert!(asked.iter().any(|input| input.contains("the key of config on forge was rotated")), "{asked:?}");
    assert!(asked.iter().any(|input| input.contains("former keys of config on forge were retired")), "{asked:?}");
    // The backup has both.
    let output = std::process::Command::new(crate::harness::host::binary())
        .args(["keys", "list", "--dir", copy.to_str().unwrap()])
        .output()
        .unwrap();
    let in_copy = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(in_copy.contains("former (2048 bits)") && in_copy.contains("secrets (4096 bits)"), "{in_copy}");
}

#[test]
fn a_project_that_is_renamed_takes_its_keys_along_and_the_old_ones_are_deleted() {
    let site = site("");
    let one = beside(&site, "one.pem", ONE);
    done(&site, &["import", "forge", "old/name", &one]);
    done(&site, &["import", "--ssh", "forge", "old/name", &one]);
    let said = done(&site, &["copy", "forge", "old/name", "forge", "new/name"]);
    assert!(said.contains("forge/new/name has of forge/old/name: its key for secrets, its SSH key"), "{said}");
    let other = beside(&site, "other.pem", OTHER);
    done(&site, &["import", "forge", "taken", &other]);
    let (code, said) = keys(&site, &["copy", "forge", "old/name", "forge", "taken"]);
    assert!(code == 4 && said.contains("has a key already") && said.contains("--replace"), "{said}");
    let (code, said) = keys(&site, &["copy", "forge", "nobody", "forge", "taken"]);
    assert!(code == 3 && said.contains("forge/nobody has no such key"), "{said}");
    let (code, said) = keys(&site, &["delete", "forge", "old/name"]);
    assert!(code == 2 && said.contains("--yes"), "{said}");
    let said = done(&site, &["delete", "forge", "old/name", "--yes"]);
    assert!(said.contains("2 key pairs deleted"), "{said}");
    let listed = done(&site, &["list"]);
    assert!(!listed.contains("old/name") && listed.contains("project forge/new/name, secrets (2048 bits)"), "{listed}");
    let (code, said) = keys(&site, &["delete", "forge", "old/name", "--yes"]);
    assert!(code == 3, "{said}");
}
