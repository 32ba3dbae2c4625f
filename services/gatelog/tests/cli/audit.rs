//! Checkpoints, exports, slices and forgetting, as an operator and an auditor do them.

use std::path::Path;

use gatelog_record::ActorId;
use gatelog_secrets::{Keyring, Scope, Unsealed};

use super::*;

/// The notes of what left the site that no server has taken yet.
fn told(site: &Site) -> Vec<Json> {
    let Ok(entries) = std::fs::read_dir(site.path().join("keys/told")) else { return Vec::new() };
    let mut told: Vec<Json> =
        entries.map(|entry| serde_json::from_slice(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap()).collect();
    told.sort_by_key(|note| note["at"].to_string());
    told
}

fn only_file(folder: &Path) -> std::path::PathBuf {
    std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn an_auditor_checks_an_export_with_nothing_but_the_file_and_what_was_published() {
    let (site, outside, desk) = (Site::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let audit = format!("[audit]\ncheckpoint-directory = {:?}\n", outside.path().join("witness"));
    std::fs::write(site.path().join("gatelog.toml"), audit).unwrap();

    // The site publishes where it stands.
    let made = site.run("audit checkpoint");
    assert!(made.code == 0 && made.out.starts_with("gate/0 event 3: "), "{}{}", made.out, made.err);
    assert!(site.run("audit checkpoint").out.contains("nothing has happened since"));
    let of_site = only_file(&outside.path().join("witness"));
    let published = only_file(&of_site.join("gate-0"));
    let text = std::fs::read_to_string(&published).unwrap();
    assert!(text.contains("\npartition gate/0\nsequence 3\nlink ") && text.contains("\nkey "), "{text}");
    let pem = std::fs::read_dir(&of_site).unwrap().map(|entry| entry.unwrap().path());
    let pem = pem.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "pem")).unwrap();

    // It answers an auditor.
    let file = desk.path().join("all.audit");
    let exported = site.run(&format!("audit export --output {}", file.display()));
    assert!(exported.code == 0 && exported.out.contains("gate/0: 3 of 3 events"), "{}{}", exported.out, exported.err);
    assert_eq!(told(&site).len(), 1, "that it left is told");
    assert_eq!(told(&site)[0]["what"]["what"], "audit-exported");
    let again = site.run(&format!("audit export --output {}", file.display()));
    assert!(again.code == 1 && again.err.contains("is there already"), "{}", again.err);

    // The auditor has no site.
    let run = |line: &str| run_in(desk.path(), line);
    let plain = run("audit verify all.audit");
    assert_eq!(plain.code, 0, "{}", plain.err);
    assert!(
        plain.out.contains("nothing that was asked for is missing") && plain.out.contains("--key"),
        "{}",
        plain.out
    );
    let line = format!("audit verify all.audit --checkpoint {} --key {}", published.display(), pem.display());
    let whole = run(&line);
    assert!(whole.out.contains("in agreement with 1 outside checkpoints"), "{}{}", whole.out, whole.err);
    let json = run(&format!("{line} --json")).json();
    assert_eq!((&json["ok"], &json["complete"]), (&Json::Bool(true), &Json::Bool(true)));
    assert_eq!(json["partitions"][0]["events"], 3);
    let events = run("audit verify all.audit --events").out;
    assert_eq!(events.lines().count(), 3);
    let last: Json = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["partition"], &last["kind"]), (&"gate/0".into(), &"gate.item-enqueued".into()));

    // What was changed is named with its place.
    let text = std::fs::read_to_string(&file).unwrap();
    let at = text.rfind("\nevent ").unwrap() + 300;
    let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
    std::fs::write(desk.path().join("changed.audit"), format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
    let changed = run("audit verify changed.audit");
    assert_eq!(changed.code, 7);
    assert!(
        changed.err.contains("is not what a gatelog site signed") && changed.err.contains("gate/0 event 3"),
        "{}",
        changed.err
    );
    assert_eq!(run("audit verify nothing.audit").code, 3);
    assert_eq!(run("audit verify all.audit --key ffffffffffffffffffffffffffffffff").code, 7);
    assert_eq!(run("audit verify all.audit --key nobody").code, 2);
    std::fs::write(desk.path().join("no.checkpoint"), "gatelog checkpoint 2\n").unwrap();
    assert_eq!(run("audit verify all.audit --checkpoint no.checkpoint").code, 7);

    // Parts of it.
    for (line, events) in [
        ("--tenant demo --from 2", 2),
        ("--project library", 2),
        ("--to 2024-02-29T00:00:02Z", 2),
        ("--actor 00000000000000000000000000000000", 3),
        ("--actor 11111111111111111111111111111111", 0),
    ] {
        let part = desk.path().join("part.audit");
        let exported = site.run(&format!("audit export {line} --json --output {}", part.display()));
        assert_eq!(exported.json()["partitions"][0]["events"], events, "{line}: {}", exported.err);
        let verified = run(&format!("audit verify part.audit --json --checkpoint {}", published.display()));
        assert_eq!(verified.json()["complete"], !line.contains("project"), "{line}: {}", verified.err);
        std::fs::remove_file(part).unwrap();
    }
    let unknown = site.run("audit export --project nothing --output x.audit");
    assert!(unknown.code == 3 && !site.path().join("x.audit.part").exists(), "{}", unknown.err);

    // The log's tail is cut off where nothing of the site knows better: what was published does.
    let segment = site.path().join("log/segments/00000001.log");
    let bytes = std::fs::read(&segment).unwrap();
    let last = bytes.windows(4).rposition(|window| window == b"GLF1").unwrap();
    std::fs::write(&segment, &bytes[..last]).unwrap();
    std::fs::remove_file(site.path().join("log/durable")).unwrap();
    assert_eq!(site.run("log verify").code, 0, "by itself it is sound");
    let served = site.run("serve --listen 127.0.0.1:0");
    assert_eq!(served.code, 7, "{}", served.err);
    assert!(served.err.contains("the signed checkpoint") && served.err.contains("knows event 3"), "{}", served.err);
    let refused = site.run("audit checkpoint");
    assert_eq!(refused.code, 7, "{}", refused.err);
    let refused = site.run("audit export --output cut.audit");
    assert!(refused.code == 7 && refused.err.contains("tail was cut off"), "{}", refused.err);
}

#[test]
fn what_is_forgotten_cannot_be_read_any_more_and_the_log_stays_whole() {
    let site = Site::new();
    let keys = Keyring::open_dir(site.path().join("keys")).unwrap();
    let project = Scope::Project("git.demo/library".into());
    let sealed = keys.seal(&project, b"a commit's text", b"").unwrap();
    let _ = keys.seal(&Scope::Person(ActorId([7; 16])), b"Ann", b"").unwrap();
    let kept = site.run("audit retention");
    for word in
        ["gate.events/0: 3 records", "project/git.demo/library", "texts of commits", "1 blobs", "no signed checkpoints"]
    {
        assert!(kept.out.contains(word), "{word}: {}{}", kept.out, kept.err);
    }
    let json = site.run("audit retention --json").json();
    assert_eq!(json["sealed"][0]["scopes"][0], format!("person/{}", "07".repeat(16)));
    assert_eq!(json["streams"][0]["kept"], "for ever");

    let forgotten = site.run("audit forget project/git.demo/library --reason asked");
    assert!(forgotten.code == 0 && forgotten.out.contains("nobody can read any more"), "{}", forgotten.err);
    assert_eq!(keys.open(&sealed, b"").unwrap(), Unsealed::KeyGone);
    assert_eq!(told(&site)[0]["what"]["subject"], "project/git.demo/library");
    assert_eq!(site.run("log verify").code, 0);
    assert_eq!(site.run("audit forget project/git.demo/library").code, 3);
    assert_eq!(site.run("audit forget everything").code, 2);
}

#[test]
fn a_slice_tells_what_happened_in_it_and_that_it_is_one() {
    let (site, desk) = (Site::new(), tempfile::tempdir().unwrap());
    let file = desk.path().join("bug.slice");
    let exported = site.run(&format!("log export --from 3 --output {}", file.display()));
    assert!(exported.code == 0 && exported.out.contains("1 blobs, no keys"), "{}{}", exported.out, exported.err);
    assert_eq!(told(&site)[0]["what"]["what"], "log-exported");
    let run = |line: &str| run_in(desk.path(), line);
    let imported = run("log import bug.slice --dir there");
    assert!(
        imported.code == 0 && imported.out.contains("gate/0 begins after event 1"),
        "{}{}",
        imported.out,
        imported.err
    );
    assert!(!desk.path().join("there/keys").exists());

    let verified = run("log verify --dir there");
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(
        verified.out.contains("this is a slice of a log") && verified.out.contains("begins after event 1"),
        "{}",
        verified.out
    );
    let json = run("log verify --dir there --json").json();
    assert_eq!((&json["slice"]["gate/0"], &json["blobs"]["named"]), (&1.into(), &1.into()));
    assert!(run("status --dir there").out.contains("library master/add-miles,1"));
    let state = run("replay state --at 3 --dir there");
    assert_eq!(state.out, site.run("replay state --at 3").out, "{}", state.err);
    assert!(run("explain add-miles --dir there").out.contains("enqueued   2024-02-29 00:00:03.000 (event 3)"));
    assert_eq!(run("log cat --dir there --from 3").out, site.run("log cat --from 3").out);
    let before = run("replay state --at 1 --dir there");
    assert!(before.code == 3 && before.err.contains("this is a slice of a log"), "{}{}", before.out, before.err);
    for (line, code, said) in [
        ("replay verify --dir there", 3, "this is a slice of a log"),
        ("audit export --output x --dir there", 2, "nobody can sign"),
        ("log import bug.slice --dir there", 1, "is not empty"),
        ("log import bug.slice", 2, "into which directory"),
    ] {
        let ended = run(line);
        assert!(ended.code == code && ended.err.contains(said), "{line}: {} {}", ended.code, ended.err);
    }
    std::fs::write(desk.path().join("there/gatelog.toml"), "").unwrap();
    let served = run("serve --dir there --listen 127.0.0.1:0");
    assert!(served.code == 2 && served.err.contains("holds a slice of a log"), "{}", served.err);

    // Cut or changed, nothing is made of it.
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(desk.path().join("cut.slice"), &bytes[..bytes.len() - 9]).unwrap();
    let cut = run("log import cut.slice --dir elsewhere");
    assert!(cut.code == 7 && !desk.path().join("elsewhere").exists(), "{} {}", cut.code, cut.err);

    // A whole log is a slice, too.
    assert_eq!(site.run(&format!("log export --output {}", desk.path().join("all.slice").display())).code, 0);
    assert_eq!(run("log import all.slice --dir whole").code, 0);
    assert!(run("log verify --dir whole").out.contains("from the first event on"));
    assert_eq!(run("replay state --at 1 --dir whole").code, 0);
}
