//! YAML made to blow up its reader.

use super::contains;
use crate::harness::projects::{CONFIG, JOBS, PLAYBOOK, PROJECT};
use crate::harness::{Server, Site, eventually, host};

/// Nine levels of ten aliases each: a thousand million values once they are expanded.
fn billion_laughs() -> String {
    let mut text = "- job:\n    name: laughs\n    vars:\n      l0: &l0 [lol, lol]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*l{}", level - 1); 10].join(", ");
        text.push_str(&format!("      l{level}: &l{level} [{aliases}]\n"));
    }
    text
}

fn deep(levels: usize) -> String {
    format!("- job:\n    name: deep\n    vars:\n      v: {}{}\n", "[".repeat(levels), "]".repeat(levels))
}

fn long_scalar() -> String {
    format!("- job:\n    name: long\n    description: {}\n", "x".repeat(5 << 20))
}

/// A hundred thousand keys where a job's attributes belong: each of them unknown.
fn unknown_keys() -> String {
    let keys: String = (0..100_000).map(|key| format!("    key-{key}: 1\n")).collect();
    format!("- job:\n    name: keys\n{keys}")
}

/// A hundred thousand variables: unusual, but nothing is wrong with them.
fn variables() -> String {
    let keys: String = (0..100_000).map(|key| format!("      key_{key}: 1\n")).collect();
    format!("{JOBS}\n- job:\n    name: variables\n    vars:\n{keys}")
}

/// What a bomb may cost beside what a server needs anyway, in bytes.
const ROOM: u64 = 600 << 20;

fn check_memory(server: &Server, before: u64) {
    let most = server.most_memory();
    println!("a YAML bomb: at most {} MiB were used, {} MiB before it", most >> 20, before >> 20);
    assert!(most < before + ROOM, "{most} bytes were used, {before} before");
}

#[test]
fn yaml_bombs_in_changes_are_told_with_their_place_and_harm_nobody() {
    if !host::can_build("YAML bombs in changes") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    let before = server.most_memory();
    let bombs: [(&str, String, &str, &[&str]); 5] = [
        ("laughs", billion_laughs(), "CONFIG_ERROR", &["aliases expanded", "500000", "zuul.yaml", "split the file"]),
        ("nested", deep(100), "CONFIG_ERROR", &["levels of nesting", "zuul.yaml", ":4:"]),
        ("deep", deep(100_000), "CONFIG_ERROR", &["levels of nesting", "zuul.yaml", ":4:"]),
        ("long", long_scalar(), "ERROR", &["zuul.yaml", "the limit is 4194304", "split it"]),
        ("keys", unknown_keys(), "CONFIG_ERROR", &["zuul.yaml", "key-0"]),
    ];
    for (name, bomb, ..) in &bombs {
        site.push("project", name, name, &[("zuul.yaml", bomb)]);
    }
    site.push("project", "good", "good", &[("a.txt", "a")]);
    site.push("project", "variables", "many variables", &[("zuul.yaml", &variables())]);
    for (name, _, verdict, words) in &bombs {
        assert_eq!(&server.wait_verdict("check", "project", name), verdict, "{name}");
        let report = eventually("the report is delivered", || site.reports("project", name).into_iter().next());
        contains(&report.text, words);
        assert!(report.text.len() < 64 << 10, "{name}: a report of {} bytes", report.text.len());
    }
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS", "{}", server.log());
    assert_eq!(server.wait_verdict("check", "project", "variables"), "SUCCESS", "{}", server.log());
    check_memory(&server, before);
    server.stop();
}

#[test]
fn a_yaml_bomb_on_a_branch_is_an_error_of_its_project_and_the_others_go_on() {
    if !host::can_build("a YAML bomb on a branch") {
        return;
    }
    let bomb = billion_laughs();
    let other =
        "- job:\n    name: other\n    run: playbooks/verdict.yaml\n- project:\n    check:\n      jobs: [other]\n";
    let site = Site::new(&[
        ("config", CONFIG),
        ("bomb", &[("zuul.yaml", bomb.as_str()), ("verdict", "good\n")]),
        ("project", &[("zuul.yaml", other), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n")]),
    ]);
    let server = site.start();
    server.wait_configured();
    let errors = server.json("/api/tenant/test/config-errors").to_string();
    contains(&errors, &["bomb", "zuul.yaml", "aliases expanded"]);
    site.push("project", "good", "good", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS", "{}", server.log());
    // Mended by a push, the project is like any other.
    site.push_to_master("bomb", "defused", &[("zuul.yaml", "- project:\n    check:\n      jobs: [other]\n")]);
    eventually("nothing is wrong with the configuration any more", || {
        let errors = server.json("/api/tenant/test/config-errors");
        errors.as_array().is_some_and(Vec::is_empty).then_some(())
    });
    site.push("bomb", "good", "good", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "bomb", "good"), "SUCCESS", "{}", server.log());
    server.stop();
}

#[test]
fn a_yaml_bomb_in_the_tenant_file_is_refused_at_the_start() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let good = std::fs::read_to_string(site.path().join("tenants.yaml")).unwrap();
    let laughs = billion_laughs().replace("- job:", "- tenant:");
    let bombs: [(&str, &str); 3] =
        [(&laughs, "aliases expanded"), (&deep(100_000), "levels of nesting"), (&long_scalar(), "too large")];
    for (bomb, words) in bombs {
        site.write("tenants.yaml", &format!("{good}{bomb}"));
        let (code, _, err) =
            site.gatelog(&["serve", "--dir", site.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        assert_eq!(code, 2, "{err}");
        contains(&err, &["tenants.yaml", words, "help"]);
        assert!(err.len() < 4096, "{} bytes of errors", err.len());
    }
    site.write("tenants.yaml", &good);
    let server = site.start();
    server.wait_configured();
    server.stop();
}
