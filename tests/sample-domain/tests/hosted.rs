//! The domain in a real server, through the lists that gatelog's own domains are in: positions, past moments, `explain`,
//! differences, the debugger, deciding again, slices.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gatelog::{Server, ServerOptions};
use gatelog_event_log::Log;
use gatelog_record::domains::sample::{NoteAsked, SampleInput};
use gatelog_record::{Domain, InputId, InputRecord, Partition, Stream, Timestamp};
use serde_json::Value as Json;

/// Nothing that is waited for may take longer.
const PATIENCE: Duration = Duration::from_secs(120);
const OURS: Partition = Partition { domain: Domain::Sample, index: 0 };

/// What this host lacks of what a server needs; says so in the line that is counted.
fn lacks(test: &str) -> bool {
    let ansible = std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").unwrap_or_else(|| "ansible-playbook".into());
    let works = |program: &Path, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let why = match () {
        () if !works(Path::new(&ansible), &["--version"]) => "no working ansible-playbook",
        () if !works(Path::new("bwrap"), &["--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"]) => {
            "bubblewrap does not work on this host"
        }
        () => return false,
    };
    println!("SKIPPED {test}: {why}");
    true
}

fn site() -> tempfile::TempDir {
    let site = tempfile::tempdir().unwrap();
    let settings = "[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = 1\nansible-any-version = true\nmin-avail-hdd = 0\n\
        min-avail-inodes = 0\nmin-avail-mem = 0\nload-multiplier = 0\n[log]\nrung-every = 2\n\
        [connection.forge]\ndriver = \"git\"\nroot = \"forge\"\ncanonical-hostname = \"git.test\"\npoll-ms = 300\n";
    std::fs::write(site.path().join("gatelog.toml"), settings).unwrap();
    std::fs::write(site.path().join("tenants.yaml"), "- tenant:\n    name: test\n    source:\n      forge: {}\n")
        .unwrap();
    site
}

/// Asks that something be noted.
fn ask(log: &dyn Log, number: u64, subject: &str, note: &str) {
    let asked = NoteAsked { subject: subject.to_owned(), note: note.to_owned() };
    let id = InputId::new(format!("test/{number}"));
    let record = InputRecord::new(id, subject, Timestamp(1), SampleInput::NoteAsked(asked));
    let frame = record.close().unwrap().encode();
    log.append_inputs(Stream::Inputs(OURS), vec![frame]).wait().unwrap().unwrap();
}

fn get(server: &Server, path: &str) -> (Json, String) {
    let url = format!("{}{path}", server.url().unwrap());
    let answer = reqwest::blocking::Client::builder().no_proxy().build().unwrap().get(url).send().unwrap();
    let position = answer.headers().get("gatelog-position").map(|text| text.to_str().unwrap().to_owned());
    let text = answer.text().unwrap();
    (serde_json::from_str(&text).unwrap_or(Json::String(text)), position.unwrap_or_default())
}

/// Waits until the server has folded so many of the domain's events.
fn folded(server: &Server, sequence: u64) {
    let began = Instant::now();
    while get(server, "/api/health").0["positions"]["sample/0"].as_u64() < Some(sequence) {
        assert!(began.elapsed() < PATIENCE, "it never came to event {sequence}: {}", get(server, "/api/health").0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program of this crate: gatelog with the domain.
fn run(site: &Path, arguments: &[&str], said: &str) -> Output {
    use std::io::Write;
    let mut program = Command::new(env!("CARGO_BIN_EXE_gatelog-sample-domain"));
    program.args(arguments).arg("--dir").arg(site).env("NO_COLOR", "1");
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = program.spawn().unwrap();
    running.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    running.wait_with_output().unwrap()
}

/// What it says, where it must do well.
fn told(site: &Path, arguments: &[&str]) -> String {
    let output = run(site, arguments, "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn has(text: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted:?} is not in:\n{text}");
    }
}

#[test]
fn a_domain_of_another_program_is_hosted_like_gatelogs_own() {
    if lacks("a domain of another program") {
        return;
    }
    let site = site();
    let options = || ServerOptions { domains: gatelog_sample_domain::parts().domains, ..ServerOptions::default() };
    let server = Server::start(site.path(), options()).unwrap();
    // Event 1 says that its writer started.
    for (number, note) in ["green", "red", "red", "blue"].into_iter().enumerate() {
        ask(&*server.log(), number as u64, "lamp", note);
    }
    folded(&server, 5);
    while_it_runs(&server, site.path());
    server.stop();
    after_it_stopped(site.path());

    // Another start goes on from there.
    let server = Server::start(site.path(), options()).unwrap();
    ask(&*server.log(), 9, "lamp", "white");
    folded(&server, 7);
    server.stop();
    has(&told(site.path(), &["log", "cat", "sample.events"]), &["note 4 of lamp: white"]);
}

/// Positions, health and level of the running server.
fn while_it_runs(server: &Server, site: &Path) {
    let (tenants, position) = get(server, "/api/tenants");
    assert!(tenants.is_array(), "{tenants}");
    let names: Vec<&str> = position.split(',').map(|one| one.split(':').next().unwrap()).collect();
    assert_eq!(names, ["gate/0", "capacity/0", "sample/0"], "{position}");
    assert!(position.ends_with(",sample/0:5"), "{position}");
    let (_, then) = get(server, &format!("/api/tenants?at={}", position.replace("sample/0:5", "sample/0:3")));
    assert!(then.ends_with(",sample/0:3"), "{then}");
    let (refused, _) = get(server, &format!("/api/tenants?at={}", position.replace("sample/0:5", "sample/0:99")));
    has(refused["description"].as_str().unwrap(), &["event 99 of sample/0 has not come yet"]);
    let (health, _) = get(server, "/api/health");
    let parts: Vec<&str> =
        health["parts"].as_array().unwrap().iter().filter_map(|part| part["part"].as_str()).collect();
    assert!(parts.contains(&"fold sample/0") && parts.contains(&"writer sample/0"), "{health}");
    let (level, _) = get(server, "/api/level");
    assert_eq!(level["partitions"][2]["partition"], "sample/0", "{level}");
    has(&told(site, &["log", "level"]), &["sample/0           0   as of sample/0:5"]);
}

/// What the log alone tells of it.
fn after_it_stopped(site: &Path) {
    has(
        &told(site, &["log", "cat", "sample.events"]),
        &["note 1 of lamp: green", "note 2 of lamp: red", "noted-already", "note 3 of lamp: blue"],
    );
    has(&told(site, &["log", "cat", "sample.inputs"]), &["somebody notes of lamp: blue"]);
    has(&told(site, &["explain", "sample/0:5"]), &["note 3 of lamp: blue", "somebody notes of lamp: blue"]);
    has(
        &told(site, &["replay", "diff", "sample/0:2", "sample/0:5"]),
        &["~ notes of lamp", "count: 1 → 3", "note: green → blue"],
    );
    has(&told(site, &["replay", "verify"]), &["sample/0     same  4 decisions with 4 events, up to event 5"]);
    let step = run(site, &["replay", "step", "--at", "sample/0:3"], "made\nstate subjects\nprevious\nwhere\n");
    has(
        &String::from_utf8(step.stdout).unwrap(),
        &["note 2 of lamp: red", "note: green → red", "\"count\": 2", "note 1 of lamp: green"],
    );
    has(&told(site, &["log", "level"]), &["sample/0           0   as of sample/0:5"]);
    slice(site);
}

/// A slice takes the domain along, and gatelog itself, which does not have the domain, says so.
fn slice(site: &Path) {
    let kept = tempfile::tempdir().unwrap();
    let (file, into) = (kept.path().join("all.slice"), kept.path().join("in"));
    told(site, &["log", "export", "--output", file.to_str().unwrap()]);
    told(&into, &["log", "import", file.to_str().unwrap()]);
    has(&told(&into, &["explain", "sample/0:3"]), &["note 2 of lamp: red"]);
}
