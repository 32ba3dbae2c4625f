//! The binary as scripts and people use it: what it prints, where, and how it ends.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

#[path = "cli/audit.rs"]
mod audit;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use gatelog_event_log::{Blobs, Log};
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, Options};
use gatelog_record::draft::gate::{ItemEnqueued, Subject, TenantConfigured, TenantLoaded, TenantProject};
use gatelog_record::draft::partition::WriterStarted;
use gatelog_record::event::{GateEvent, PartitionEvent};
use gatelog_record::{
    ActorId, BlobHash, Cause, ChainLink, Domain, Event, EventId, EventRecord, ItemId, Partition, SiteId, Timestamp,
};
use serde_json::Value as Json;

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };

/// A site with three events on its log and one blob.
struct Site {
    dir: tempfile::TempDir,
    blob: BlobHash,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("gatelog.toml"), "").unwrap();
        let path = dir.path().join("log");
        let log = EmbeddedLog::open(&path, Options::default()).unwrap();
        let blob = FileBlobs::open(path.join("blobs")).unwrap().put(b"settings of demo").unwrap();
        let (_, mut writer) = log.claim(GATE).unwrap();
        let mut link = ChainLink::GENESIS;
        for (sequence, event) in (1..).zip(events(blob)) {
            let now = Timestamp(1_709_164_800_000_000).plus_seconds(i64::try_from(sequence).unwrap());
            let record = EventRecord {
                sequence,
                term: 1,
                recorded_at: now,
                wall_at: now,
                id: EventId([1; 16]),
                cause: Cause::Start,
                actor: ActorId::SYSTEM,
                key: "demo".into(),
                traceparent: String::new(),
                decision: None,
                event,
            };
            let (bytes, next) = record.close().unwrap().encode(&link);
            writer.append(vec![bytes]).wait().unwrap().unwrap();
            link = next;
        }
        drop(writer);
        log.close();
        Site { dir, blob }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn run(&self, line: &str) -> Ended {
        run_in(self.path(), line)
    }
}

fn events(settings: BlobHash) -> Vec<Event> {
    let started =
        WriterStarted { term: 1, build: "test".into(), registry: [0; 32], site: SiteId([1; 16]), generation: 1 };
    let project = TenantProject {
        connection: "forge".into(),
        project: "git.demo/library".into(),
        trusted: false,
        reads_config: true,
    };
    let tenant =
        TenantLoaded { tenant: "demo".into(), version: 1, settings, projects: vec![project], web_root: String::new() };
    let subject = Subject {
        connection: "forge".into(),
        project: "git.demo/library".into(),
        branch: Some("master".into()),
        git_ref: "refs/for/master/add-miles/1".into(),
        change: Some("master/add-miles".into()),
        patchset: Some("1".into()),
        commit: Some("c0ffee".into()),
        old_commit: None,
        url: "https://git.demo/library/+/master/add-miles".into(),
    };
    let enqueued = ItemEnqueued {
        item: ItemId([0xab; 16]),
        tenant: "demo".into(),
        pipeline: "check".into(),
        queue: "q".into(),
        subjects: vec![subject],
        live: true,
        ahead: None,
        trigger: None,
        reason: "admin".into(),
        window: None,
        parameters: std::collections::BTreeMap::new(),
    };
    vec![
        PartitionEvent::from(started).into(),
        GateEvent::from(TenantConfigured { tenant }).into(),
        GateEvent::from(enqueued).into(),
    ]
}

struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

fn run_in(dir: &Path, line: &str) -> Ended {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_gatelog"))
        .args(line.split_whitespace())
        .current_dir(dir)
        .env_remove("GATELOG_DIR")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

#[test]
fn exit_codes_are_as_documented() {
    let site = Site::new();
    let nowhere = tempfile::tempdir().unwrap();
    for (dir, line, code, said) in [
        (site.path(), "--help", 0, "Exit codes"),
        (site.path(), "--version", 0, "gatelog"),
        (site.path(), "log verify", 0, "gate.events/0"),
        (site.path(), "frobnicate", 2, "unrecognized subcommand"),
        (site.path(), "replay state", 2, "--at"),
        (site.path(), "explain add-miles --url http://127.0.0.1:1", 2, "cannot ask a server yet"),
        (site.path(), "log cat --kind gate.item-enqueud", 2, "did you mean gate.item-enqueued?"),
        (site.path(), "serve --url http://127.0.0.1:1", 2, "does not take --url"),
        (nowhere.path(), "log cat", 2, "which site?"),
        (nowhere.path(), "--dir nothing-here status", 3, "there is no site in nothing-here"),
        (site.path(), "explain add-mlies", 3, "did you mean add-miles?"),
        (site.path(), "explain add-miles --tenant dmeo", 3, "did you mean demo?"),
        (site.path(), "replay state --at 4", 3, "has no event 4 yet"),
        (site.path(), "replay state --at 3 --tenant other", 3, "no tenant"),
        (site.path(), "log cat images.events/7", 3, "there is no stream"),
        (site.path(), "status --url http://127.0.0.1:1", 6, "no gatelog server answers"),
    ] {
        let ended = run_in(dir, line);
        assert_eq!(ended.code, code, "{line}: {}{}", ended.out, ended.err);
        assert!(ended.out.contains(said) || ended.err.contains(said), "{line}: {}{}", ended.out, ended.err);
        // What went wrong is told on stderr, and only there.
        assert!(code == 0 || (ended.out.is_empty() && ended.err.starts_with("error:")), "{line}: {}", ended.out);
    }
}

#[test]
fn log_cat_prints_a_line_a_record_and_picks_what_is_asked_for() {
    let site = Site::new();
    let all = site.run("log cat");
    let lines: Vec<&str> = all.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", all.out);
    assert!(lines[2].starts_with("2024-02-29T00:00:03.000Z      3 gate.item-enqueued"), "{}", lines[2]);
    assert!(
        lines[2].ends_with("git.demo/library master/add-miles,1 entered queue q of check, first in its queue [admin]")
    );
    assert!(!all.out.contains('\u{1b}'), "no colours in a pipe");
    let some = site.run("log cat --from 2 --to 2 --json");
    assert_eq!(some.json()["kind"], "gate.tenant-configured");
    assert_eq!(site.run("log cat --kind gate.item-enqueued --json").json()["body"]["item"], "ab".repeat(16));
    assert_eq!(site.run("log cat --key other").out, "");
    assert_eq!(site.run("log cat intake").out, "");
}

#[test]
fn damage_is_named_with_its_place_and_exit_code_7() {
    let site = Site::new();
    let found = site.run("log verify --json").json();
    assert_eq!((&found["ok"], &found["blobs"]["named"]), (&Json::Bool(true), &Json::from(1)));

    std::fs::remove_file(FileBlobs::open_reader(site.path().join("log/blobs")).path(&site.blob)).unwrap();
    let ended = site.run("log verify");
    assert_eq!(ended.code, 7, "{}", ended.out);
    assert!(ended.err.contains(&format!("gate/0:2: blob {} is missing", site.blob)), "{}", ended.err);

    // One bit of the second event, in the middle of the segment.
    let segment = site.path().join("log/segments/00000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let place = bytes.windows(16).position(|window| window == b"git.demo/library").unwrap();
    bytes[place] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for line in ["log verify", "log cat"] {
        let ended = site.run(line);
        assert_eq!(ended.code, 7, "{line}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains("00000001.log"), "{line}: {}", ended.err);
    }
}

#[test]
fn the_past_and_its_reasons_are_told_from_the_directory_alone() {
    let site = Site::new();
    let before = std::fs::read_dir(site.path()).unwrap().count();
    let text = site.run("explain add-miles").out;
    assert!(text.starts_with("git.demo/library master/add-miles in tenant demo\n"), "{text}");
    assert!(text.contains("enqueued   2024-02-29 00:00:03.000 (event 3) [admin]"), "{text}");
    let json = site.run("explain abab --json").json();
    assert_eq!(json["item"]["pipeline"], "check");
    let then = site.run("replay state --at 2024-02-29T00:00:02Z --json").json();
    assert_eq!(then["tenants"]["demo"]["pipelines"], Json::Array(Vec::new()));
    let now = site.run("replay state --at 3").out;
    assert!(now.contains("* library master/add-miles,1"), "{now}");
    assert!(site.run("status").out.contains("no server runs here"));
    assert_eq!(std::fs::read_dir(site.path()).unwrap().count(), before, "reading leaves nothing behind");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let site = Site::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatelog"))
        .args(["log", "cat", "--json"])
        .current_dir(site.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Every file of a directory with its bytes.
fn files(dir: &Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

/// Whether bubblewrap makes sandboxes here.
fn sandboxes() -> bool {
    let tried = Command::new("bwrap").args(["--unshare-all", "--ro-bind", "/", "/", "true"]).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        println!("SKIPPED what-if sandbox: bubblewrap makes no sandbox here");
    }
    can
}

#[test]
fn another_gatelog_runs_in_a_sandbox_or_not_at_all_unless_it_is_said_to() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let before = files(site.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let program = elsewhere.path().join("gatelog-next");
    let text = format!(
        "#!/bin/sh\nfor place in /site/log/new {0}/new {1}/new; do (echo x > $place) 2>/dev/null && echo wrote $place >&2; \
         done\ncat {0}/gatelog.toml >&2 2>/dev/null && echo saw >&2\nls /site >&2\n",
        site.path().display(),
        elsewhere.path().display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    if sandboxes() {
        let tried = site.run(&format!("replay what-if --binary {}", program.display()));
        assert_eq!(tried.code, 1, "{}", tried.err);
        assert!(tried.err.contains("gives no answer that can be read"), "{}", tried.err);
        assert!(
            tried.err.contains("log") && !tried.err.contains("wrote") && !tried.err.contains("saw"),
            "{}",
            tried.err
        );
        assert_eq!(files(site.path()), before, "every byte is as it was");
        assert!(!elsewhere.path().join("new").exists());
    }
    let without_bubblewrap = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatelog"));
        command.args(["replay", "what-if", "--binary", env!("CARGO_BIN_EXE_gatelog"), "--json"]).args(more);
        let command = command.current_dir(site.path()).env_remove("GATELOG_DIR").env("PATH", "/nowhere");
        command.output().unwrap()
    };
    let refused = without_bubblewrap(&[]);
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{says}");
    assert!(says.contains("there is no sandbox for --binary") && says.contains("--unconfined"), "{says}");
    assert_eq!(without_bubblewrap(&["--unconfined"]).status.code(), Some(0));
    assert_eq!(site.run("replay what-if --unconfined").code, 2, "it is of --binary alone");
}

#[test]
fn the_queues_are_told_as_of_a_moment() {
    let site = Site::new();
    let then = site.run("status --at 2 --json").json();
    assert!(then["as_of"].as_str().unwrap().starts_with("as of gate/0 event 2"), "{then}");
    let state = site.run("replay state --at 2 --json").json();
    assert_eq!(then["tenants"], state["tenants"]);
    assert_ne!(then["tenants"], site.run("status --json").json()["tenants"]);
    assert_eq!(site.run("status --at 99").code, 3);
    assert_eq!(site.run("status --at yesterday").code, 2);
}

#[test]
fn two_moments_are_compared_and_the_past_is_gone_through_and_nothing_is_written() {
    use std::io::Write;
    let site = Site::new();
    let before = files(site.path());
    let text = site.run("replay diff 2 3").out;
    assert!(text.contains("items\n  + git.demo/library master/add-miles,1 in check of demo"), "{text}");
    let json = site.run("replay diff 2 3 --json").json();
    assert_eq!(json["differences"]["items"][0]["kind"], "entered");
    assert!(site.run("replay diff 3 now").out.contains("nothing differs"));
    assert_eq!(site.run("replay diff 2 99").code, 3);

    let mut child = Command::new(env!("CARGO_BIN_EXE_gatelog"))
        .args(["replay", "step", "--at", "2", "--json"])
        .current_dir(site.path())
        .env_remove("GATELOG_DIR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"next\nmade\nnext\nprevious\nquit\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stdout).unwrap();
    let told: Vec<Json> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&told[0]["at"], &told[1]["at"]), (&Json::from("gate/0:2"), &Json::from("gate/0:3")));
    assert!(told[2]["made"].as_array().unwrap().iter().any(|one| one["about"] == "items"), "{told:?}");
    assert!(told[3]["error"].as_str().unwrap().contains("newest event"), "{told:?}");
    assert_eq!(told[4]["at"], "gate/0:2");
    assert_eq!(ended.status.code(), Some(3), "a script is told that a command failed");

    let same = site.run("replay what-if --json");
    assert_eq!((same.code, &same.json()["divergence"]), (0, &Json::Null));
    let binary = env!("CARGO_BIN_EXE_gatelog");
    let mut ways = vec![" --unconfined"];
    if sandboxes() {
        ways.push("");
    }
    for way in ways {
        let other = site.run(&format!("replay what-if --binary {binary} --json{way}"));
        assert_eq!((other.code, &other.err), (0, &String::new()));
        assert_eq!(other.json(), same.json(), "another process answers the same{way}");
    }
    assert_eq!(site.run("replay what-if --without 7").code, 3);
    assert_eq!(site.run("replay what-if --binary /nowhere/gatelog").code, 3);
    assert!(site.run("replay verify").out.contains("0 layouts and 0 job graphs made again"));
    assert_eq!(files(site.path()), before, "every byte is as it was");
}
