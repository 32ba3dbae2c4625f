//! Settings that an operator changes: each counts after a restart.

use serde_json::Value as Json;

use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Site, eventually, host};

fn settings(site: &Site) -> String {
    std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap()
}

/// Starts with other settings, which cannot be: what it says.
fn refused(site: &Site, settings: &str) -> String {
    site.write("gatelog.toml", settings);
    let before = std::fs::read_to_string(site.path().join("server.log")).unwrap_or_default();
    assert_eq!(site.launch().ends(), 2, "settings that cannot be");
    std::fs::read_to_string(site.path().join("server.log")).unwrap()[before.len()..].to_owned()
}

fn check(site: &Site) -> (i32, String) {
    let (code, out, err) = site.gatelog(&["check", "--site"]);
    (code, out + &err)
}

#[test]
fn what_cannot_change_is_refused_and_told_before_a_restart() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let own = settings(&site);
    let server = site.start();
    server.wait_configured();
    // A change that is open stays so.
    site.push("project", "open", "open", &[("open.txt", "x")]);
    let renamed = own.replace("[connection.forge]", "[connection.code]");
    site.write("gatelog.toml", &renamed);
    let (code, said) = check(&site);
    assert!(code != 0 && said.contains("connection.forge: was forge, is code; this cannot change"), "{said}");
    assert!(said.contains("its server runs"), "{said}");
    server.stop();
    let said = refused(&site, &renamed);
    assert!(said.contains("connection.forge: was forge, is code; this cannot change"), "{said}");
    for (settings, expected) in [
        (
            own.replace("git.test", "git.other"),
            "connection.forge.canonical-hostname: was \"git.test\", is \"git.other\"",
        ),
        (own.replace("root = \"forge\"", "root = \"elsewhere\""), "move the repositories from"),
        (
            format!("{own}[shared]\ndir = \"shared\"\n[log.kafka]\nbrokers = \"127.0.0.1:1\"\n"),
            "log.kafka: was in the site's directory, is on Apache Kafka; this cannot change",
        ),
        (format!("{own}[shared]\ndir = \"shared\"\n"), "shared.dir: was not set"),
        (own.replace("slots = 2", "slot = 2"), "did you mean `slots`?"),
    ] {
        let said = refused(&site, &settings);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    site.write("gatelog.toml", &own);
    std::fs::rename(site.path().join("log"), site.path().join("log-away")).unwrap();
    let said = refused(&site, &own);
    assert!(said.contains("put it back there"), "{said}");
    let (code, said) = check(&site);
    assert!(code == 2 && said.contains("put it back there"), "{said}");
    std::fs::rename(site.path().join("log-away"), site.path().join("log")).unwrap();
    site.start().stop();
}

#[test]
fn what_can_change_counts_after_a_restart_and_is_told() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let own = settings(&site);
    let server = site.start();
    server.wait_configured();
    let (code, said) = check(&site);
    assert!(
        code == 0 && said.contains("0 error(s)") && said.contains("settings that a start changes\n  none"),
        "{said}"
    );
    // The tenant file, the repositories and the slots are elsewhere or others from now on; a tenant knows a connection more.
    for (from, to) in [("tenants.yaml", "ours.yaml"), ("forge", "repositories")] {
        std::fs::rename(site.path().join(from), site.path().join(to)).unwrap();
    }
    let more = "[connection.more]\ndriver = \"git\"\nroot = \"more\"\ncanonical-hostname = \"more.test\"\n";
    let new = format!("tenant-file = \"ours.yaml\"\n{}{more}", own.replace("slots = 2", "slots = 5"))
        .replace("root = \"forge\"", "root = \"repositories\"");
    std::fs::create_dir(site.path().join("more")).unwrap();
    site.write("gatelog.toml", &new);
    let (code, said) = check(&site);
    assert!(code == 0 && said.contains("executor.slots: was 2, is 5"), "{said}");
    assert!(said.contains("tenant-file: was not set, is \"ours.yaml\""), "{said}");
    server.stop();
    let loaded =
        |site: &Site| site.events("intake").iter().filter(|record| record["kind"] == "intake.tenant-file").count();
    assert_eq!(loaded(&site), 1);
    let server = site.start();
    assert!(server.log().contains("a setting counts from now on: executor.slots: was 2, is 5"), "{}", server.log());
    eventually("the executor offers its slots", || {
        let components: Json = server.json("/api/components");
        (components["executor"][0]["slots"] == 5).then_some(())
    });
    let names = server.json("/api/connections").as_array().map_or(0, Vec::len);
    assert_eq!(names, 2);
    server.stop();
    assert_eq!(loaded(&site), 2, "what tenants know of connections is new");
}

#[test]
fn a_check_of_the_site_says_what_a_start_would_meet() {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let own = settings(&site);
    let (code, said) = check(&site);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no server runs") && said.contains("forge: 2 in"), "{said}");
    assert!(!site.path().join("log").exists() && !site.path().join("settings.json").exists(), "nothing was begun");
    site.push_to_master("project", "broken", &[("zuul.yaml", "- job:\n    name: x\n    parent: nobody\n")]);
    let (code, said) = check(&site);
    assert!(code == 1 && said.contains("nobody") && said.contains("1 error(s)"), "{said}");
    std::fs::rename(site.forge().path("project").unwrap(), site.path().join("away.git")).unwrap();
    let (code, said) = check(&site);
    assert!(code == 1 && said.contains("git.test/project") && said.contains("bring the repository"), "{said}");
    site.write("gatelog.toml", &format!("{own}[audit]\nintervall = 3\n"));
    let (code, said) = check(&site);
    assert!(code == 2 && said.contains("did you mean `interval`?"), "{said}");
    site.write("gatelog.toml", &own.replace("root = \"forge\"", "root = \"nowhere\""));
    let (code, said) = check(&site);
    assert!(code == 1 && said.contains("nowhere is not there"), "{said}");
    assert!(!site.path().join("nowhere").exists(), "a check makes nothing");
}

#[test]
fn links_in_reports_lead_to_the_address_that_is_set_now() {
    if !host::can_build("a new address of a site") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    let mut loaded = Vec::new();
    for (name, root) in [("a", "http://ci-old.test"), ("b", "http://ci-new.test"), ("c", "http://ci-new.test")] {
        site.write("gatelog.toml", &settings.replace("[web]\n", &format!("[web]\nroot = \"{root}\"\n")));
        let server = site.start();
        server.wait_configured();
        site.push("project", name, name, &[(&format!("{name}.txt"), "x")]);
        assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS", "{}", server.log());
        let report = eventually("the report is delivered", || {
            site.reports("project", name).into_iter().find(|report| report.text.contains("/build/"))
        });
        assert!(report.text.contains(&format!("{root}/t/test/build/")), "{root}: {}", report.text);
        server.wait_idle();
        server.stop();
        loaded.push(site.events("intake").iter().filter(|record| record["kind"] == "intake.tenant-file").count());
    }
    assert_eq!(loaded, [1, 2, 2], "tenants are configured anew once for a new address, and not at each start");
}
