//! Damage to what a site keeps: segments of the log, stored projections, rungs, blobs.
//!
//! The log and its blobs are the truth: damage there is a named error and nothing is written over it.
//! All else is derived: it is made again, and the answers are as before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gatelog_event_log::{Blobs, Log, Offset, ReadLimit};
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, Options};
use gatelog_record::Stream;

use super::contains;
use crate::harness::projects::{CONFIG, JOBS, PIPELINES, PLAYBOOK, PROJECT};
use crate::harness::{HOST, Server, Site, eventually, host};

/// What is asked before and after.
const PATHS: [&str; 4] = [
    "/api/tenant/test/status",
    "/api/tenant/test/builds?limit=100",
    "/api/tenant/test/buildsets?limit=100",
    "/api/tenant/test/config-errors",
];

/// A site that has merged a change and refused another, and is stopped.
fn told() -> (Site, BTreeMap<String, String>) {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    server.wait_configured();
    site.push("project", "good", "good", &[("a.txt", "a")]);
    site.push("project", "bad", "bad", &[("verdict", "bad\n")]);
    assert_eq!(server.wait_verdict("check", "project", "good"), "SUCCESS", "{}", server.log());
    assert_eq!(server.wait_verdict("check", "project", "bad"), "FAILURE");
    site.approve("project", "good");
    assert_eq!(server.wait_verdict("gate", "project", "good"), "SUCCESS");
    server.wait_idle();
    let position = server.get(PATHS[0]).unwrap().position;
    let answers = PATHS.map(|path| at(path, position));
    let answers = answers.iter().map(|path| (path.clone(), server.get(path).unwrap().body)).collect();
    server.stop();
    (site, answers)
}

fn at(path: &str, position: u64) -> String {
    format!("{path}{}at={position}", if path.contains('?') { '&' } else { '?' })
}

/// Every answer is what it was, and a change is tested and merged.
fn as_before(site: &Site, server: &Server, answers: &BTreeMap<String, String>, round: &str) {
    for (path, body) in answers {
        let answer = server.get(path).unwrap();
        assert_eq!(&answer.body, body, "{round}: {path}\n{}", server.log());
    }
    let document = server.get("/api/tenant/test/builds").unwrap();
    assert_eq!(document.status, 200, "{round}: {}", document.body);
    site.write("server.log", "");
}

fn goes_on(site: &Site, server: &Server, round: &str) {
    site.push("project", round, round, &[(&format!("{round}.txt"), "a")]);
    assert_eq!(server.wait_verdict("check", "project", round), "SUCCESS", "{round}: {}", server.log());
}

/// Files below a directory, with their content.
fn content(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            } else {
                found.insert(entry.path(), std::fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

fn write(path: &Path, bytes: &[u8]) {
    // Sealed segments and blobs may be read-only.
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).unwrap();
}

fn flipped(bytes: &[u8], place: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[place] ^= 0x40;
    bytes
}

/// Seals the log's only segment by appending, as another process would, what was appended before: a
/// repeat, which is taken as such.
fn seal(site: &Site) {
    let mut options = Options::default();
    options.segment_bytes = 1;
    let log = EmbeddedLog::open(site.path().join("log"), options).unwrap();
    let batch = log.read(Stream::Intake(0), Offset(0), ReadLimit::default()).unwrap();
    let last = batch.records.last().unwrap().bytes.clone();
    log.append_inputs(Stream::Intake(0), vec![last]).wait().unwrap().unwrap();
    log.close();
}

#[test]
fn a_damaged_segment_is_named_with_its_place_and_never_written_over() {
    if !host::can_build("a damaged segment") {
        return;
    }
    let (site, answers) = told();
    seal(&site);
    let segments = site.path().join("log/segments");
    let sound = content(&segments);
    let (sealed, last) = (segments.join("00000001.log"), segments.join("00000002.log"));
    assert_eq!(sound.keys().collect::<Vec<_>>(), [&sealed, &last], "one is sealed, one is open");
    let (old, new) = (&sound[&sealed], &sound[&last]);
    // What is done to which segment, whether a start must find it, and what is said.
    let middle = old.len() / 2;
    let damages: [(&str, &Path, Vec<u8>, bool, &str); 7] = [
        ("a flipped byte in the middle of a sealed segment", &sealed, flipped(old, middle), false, "00000001.log byte"),
        (
            "a flipped byte in a sealed segment's footer",
            &sealed,
            flipped(old, old.len() - 60),
            true,
            "00000001.log byte",
        ),
        ("a sealed segment that was cut short", &sealed, old[..middle].to_vec(), true, "00000001.log byte"),
        ("an empty sealed segment", &sealed, Vec::new(), true, "00000001.log byte 0"),
        ("a flipped byte in the header of the last segment", &last, flipped(new, 20), true, "00000002.log byte 0"),
        (
            "a flipped byte in the last segment's only frame",
            &last,
            flipped(new, new.len() - 9),
            true,
            "00000002.log byte",
        ),
        ("a last segment that was cut short", &last, new[..new.len() - 5].to_vec(), true, "00000002.log byte"),
    ];
    for (what, path, bytes, found_at_start, words) in damages {
        write(path, &bytes);
        let before = content(&segments);
        let (code, out, err) = site.gatelog(&["log", "verify"]);
        assert_eq!(code, 7, "{what}: log verify said {out}{err}");
        contains(&err, &[words]);
        if found_at_start {
            let (code, out, err) =
                site.gatelog(&["serve", "--dir", site.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
            assert_eq!(code, 7, "{what}: {out}{err}");
            contains(&err, &[words, "gatelog log verify"]);
            assert_eq!(content(&segments), before, "{what}: a segment was written to");
        }
        println!("{what}: {}", err.lines().next().unwrap_or_default());
        write(path, &sound[path]);
    }
    // A segment that is gone.
    std::fs::rename(&sealed, site.path().join("away")).unwrap();
    let (code, _, err) = site.gatelog(&["serve", "--dir", site.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 7, "{err}");
    contains(&err, &["00000001.log is missing"]);
    std::fs::rename(site.path().join("away"), &sealed).unwrap();

    // Damage in the past, which no start reads: what stands on it is told when it is asked for, the
    // rest goes on.
    write(&sealed, &flipped(old, middle));
    for rung in rungs(&site) {
        std::fs::remove_file(rung).unwrap();
    }
    std::fs::remove_dir_all(site.path().join("projections")).unwrap();
    let (code, _, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 7, "{err}");
    contains(&err, &["00000001.log byte"]);
    write(&sealed, old);

    let server = site.start();
    as_before(&site, &server, &answers, "mended");
    goes_on(&site, &server, "mended");
    server.stop();
    let (code, out, err) = site.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}

fn rungs(site: &Site) -> Vec<PathBuf> {
    content(&site.path().join("projections")).into_keys().filter(|path| has_end(path, "rung")).collect()
}

fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|extension| extension == end)
}

fn named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

#[test]
fn a_damaged_projection_is_rebuilt_from_the_log_with_a_warning() {
    if !host::can_build("a damaged projection") {
        return;
    }
    let (site, answers) = told();
    // A start moves what was written last into table files.
    let server = site.start();
    as_before(&site, &server, &answers, "undamaged");
    server.stop();
    let projections = site.path().join("projections");
    type Damage = (&'static str, fn(&Path) -> bool, fn(&Path), bool);
    let flip: fn(&Path) = |path| {
        let bytes = std::fs::read(path).unwrap();
        if !bytes.is_empty() {
            write(path, &flipped(&bytes, bytes.len() / 3));
        }
    };
    let remove: fn(&Path) = |path| std::fs::remove_file(path).unwrap();
    let empty: fn(&Path) = |path| write(path, b"");
    let damages: [Damage; 8] = [
        ("a flipped byte in each table file", |path| has_end(path, "sst"), flip, true),
        ("no table files", |path| has_end(path, "sst"), remove, true),
        ("a flipped byte in each MANIFEST", |path| named(path, "MANIFEST"), flip, true),
        ("no MANIFEST", |path| named(path, "MANIFEST"), remove, true),
        ("a flipped byte in CURRENT", |path| named(path, "CURRENT"), flip, true),
        ("no CURRENT", |path| named(path, "CURRENT"), remove, true),
        // What was written last is lost with it, and folded again: not worth a word.
        ("an empty write-ahead log", |path| has_end(path, "log"), empty, false),
        ("a flipped byte in each rung", |path| has_end(path, "rung"), flip, true),
    ];
    for (what, which, how, told) in damages {
        let hit: Vec<PathBuf> = content(&projections).into_keys().filter(|path| which(path)).collect();
        assert!(!hit.is_empty(), "{what}: there is nothing to damage in {:#?}", content(&projections).keys());
        hit.iter().for_each(|path| how(path));
        site.write("server.log", "");
        let mut server = site.start();
        // A start does not read what only grows: damage there is told by the first answer that needs
        // it, with the cure.
        let wrong = answers.keys().filter_map(|path| server.get(path)).find(|answer| answer.status != 200);
        if let Some(answer) = wrong {
            println!("{what}: {}", answer.body);
            contains(&answer.body, &["restart gatelog", "rebuilt from the log"]);
            server.stop();
            server = site.start();
        }
        let log = server.log();
        as_before(&site, &server, &answers, what);
        println!("{what}: {}", log.lines().find(|line| line.contains("WARN")).unwrap_or("no warning"));
        if told {
            assert!(log.contains("WARN") && log.contains("passed over") || log.contains("rebuilt"), "{what}: {log}");
        }
        let (code, out, err) = site.gatelog(&["replay", "verify"]);
        assert_eq!(code, 0, "{what}: {out}{err}");
        server.stop();
    }
    let server = site.start();
    goes_on(&site, &server, "rebuilt");
    server.stop();
}

#[test]
fn damage_to_a_projection_that_is_found_while_serving_is_mended() {
    if !host::can_build("a projection damaged while serving") {
        return;
    }
    let (site, answers) = told();
    let server = site.start();
    // Behind the back of the server that has them open.
    for path in content(&site.path().join("projections")).into_keys().filter(|path| has_end(path, "sst")) {
        let bytes = std::fs::read(&path).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0x55; bytes.len()], 0).unwrap();
    }
    site.push("project", "damaged-while-serving", "damaged-while-serving", &[("while.txt", "a")]);
    // What is needed may be in memory; else it is said what is wrong, and the cure.
    let told = eventually("the damage is told, or is in nobody's way", || {
        // An answer that cannot be given is no verdict yet.
        let pages = server.get("/api/tenant/test/builds?change=master/damaged-while-serving");
        let said = pages.is_some_and(|page| page.body.contains("restart gatelog"));
        let told = said || server.log().contains("restart gatelog");
        let served = !told && server.verdict("check", "project", "damaged-while-serving").is_some();
        (told || served).then_some(told)
    });
    println!("damaged while serving: told {told}");
    server.stop();
    // At the latest the next start finds it.
    let server = site.start();
    as_before(&site, &server, &answers, "after the next start");
    goes_on(&site, &server, "after-the-next-start");
    server.stop();
}

/// The hashes of blobs that events of the gate name, by kind of event and path to the hash.
fn named_blobs(site: &Site, tenant: &str, kind: &str, path: &[&str]) -> Vec<String> {
    let events = site.events("gate.events");
    let of_kind = events.iter().filter(|event| event["kind"] == kind && event["key"] == tenant);
    of_kind
        .filter_map(|event| {
            let found = path.iter().fold(&event["body"], |json, key| match key.parse::<usize>() {
                Ok(index) => &json[index],
                Err(_) => &json[key],
            });
            found.as_str().map(str::to_owned)
        })
        .collect()
}

/// A site with two tenants, each with projects of its own: `test` has `config` and `project`, `second` has `config2` and
/// `project2`.
fn two_tenants() -> Site {
    let (config, jobs) = (format!("# of the second tenant\n{PIPELINES}"), format!("# of the second tenant\n{JOBS}"));
    let site = Site::new(&[
        ("config", CONFIG),
        ("project", PROJECT),
        ("config2", &[("zuul.yaml", config.as_str())]),
        ("project2", &[("zuul.yaml", jobs.as_str()), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n")]),
    ]);
    site.write_tenants(&[("test", "config", &["project"]), ("second", "config2", &["project2"])]);
    site
}

/// What is done to a blob, and what is then said of it.
fn losses(sound: &[u8]) -> [(&'static str, Option<Vec<u8>>, &'static str); 3] {
    [
        ("missing", None, "missing"),
        ("flipped", Some(flipped(sound, sound.len() / 2)), "damaged"),
        ("empty", Some(Vec::new()), "damaged"),
    ]
}

fn lose(path: &Path, bytes: Option<Vec<u8>>) {
    match bytes {
        None => std::fs::remove_file(path).unwrap(),
        Some(bytes) => write(path, &bytes),
    }
}

#[test]
fn a_missing_or_damaged_blob_is_an_error_of_its_tenant_alone() {
    if !host::can_build("a missing blob") {
        return;
    }
    let site = two_tenants();
    let server = site.start();
    server.wait_configured();
    site.push("project", "first", "first", &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "first"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    server.stop();

    let layouts = named_blobs(&site, "test", "gate.layout-activated", &["made", "outcome", "Made", "layout"]);
    let layout = layouts.last().unwrap_or_else(|| panic!("{:#?}", site.events("gate.events")));
    let path = blob_path(&site, layout);
    let sound = std::fs::read(&path).unwrap();
    for (what, bytes, said) in losses(&sound) {
        lose(&path, bytes);
        let server = site.start();
        site.push("project", &format!("{what}-1"), what, &[(&format!("{what}.txt"), "a")]);
        // The other tenant goes on.
        site.push("project2", &format!("{what}-2"), what, &[(&format!("{what}.txt"), "a")]);
        assert_eq!(server.verdict_in("second", "check", "project2", &format!("{what}-2")), "SUCCESS");
        // This one says what is wrong, by name.
        let health = eventually("health names the blob", || {
            let health = server.get("/api/health")?.body;
            health.contains(layout.as_str()).then_some(health)
        });
        println!("{what} layout: {health}");
        contains(&health, &[said, "restore"]);
        assert!(server.verdict("check", "project", &format!("{what}-1")).is_none());
        // Restored, it goes on without a restart.
        write(&path, &sound);
        goes_on(&site, &server, &format!("{what}-restored"));
        server.stop();
    }

    // A frozen graph: the log is not whole without it. What the gate needs of it stands in the event, so all is
    // decided the same.
    let graph = named_blobs(&site, "test", "gate.frozen", &["done", "outcome", "Frozen", "graph"]).pop();
    let graph = graph.unwrap_or_else(|| panic!("{:#?}", site.events("gate.events")));
    // A layout: the gate reads it at each decision, so nothing can be decided again without it.
    for (what, hash, without) in [("graph", graph.as_str(), 0), ("layout", layout.as_str(), 7)] {
        let path = blob_path(&site, hash);
        let sound = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (command, expected) in [(["log", "verify"], 7), (["replay", "verify"], without)] {
            let (code, out, err) = site.gatelog(&command);
            println!("{command:?} without a {what}: {code} {}", err.lines().next().unwrap_or_default());
            assert_eq!(code, expected, "{out}{err}");
            if code != 0 {
                contains(&format!("{out}{err}"), &[hash]);
            }
        }
        write(&path, &sound);
    }
    for command in [["log", "verify"], ["replay", "verify"]] {
        let (code, out, err) = site.gatelog(&command);
        assert_eq!(code, 0, "{out}{err}");
    }
}

/// The file of a blob, for itself: taken out of its bundle if it was put together with others.
fn blob_path(site: &Site, hash: &str) -> PathBuf {
    let directory = site.path().join("log/blobs");
    let blobs = FileBlobs::open_shared(&directory).unwrap();
    let name = hash.parse().unwrap();
    let bytes = blobs.get(&name).unwrap();
    blobs.remove(&name).unwrap();
    blobs.put(&bytes).unwrap();
    directory.join(&hash[..2]).join(&hash[2..])
}

/// What is kept of a blob, wherever it lies.
fn kept(site: &Site, hash: &str) -> Option<Vec<u8>> {
    FileBlobs::open_reader(site.path().join("log/blobs")).get(&hash.parse().unwrap()).ok()
}

/// Changes a byte of a blob where it lies in a bundle.
fn flip_in_bundle(site: &Site, sound: &[u8]) {
    let within = |bytes: &[u8]| bytes.windows(sound.len()).position(|window| window == sound);
    let bundles = content(&site.path().join("log/blobs/bundles"));
    let mut found = bundles.into_iter().filter_map(|(path, bytes)| within(&bytes).map(|at| (path, bytes, at)));
    let (path, bytes, at) = found.next().unwrap();
    write(&path, &flipped(&bytes, at + sound.len() / 2));
}

/// The blob of a project's `zuul.yaml` on master, as it was read last.
fn config_file(site: &Site, tenant: &str, project: &str) -> String {
    let events = site.events("gate.events");
    let read = events.iter().filter(|event| event["kind"] == "gate.config-read" && event["key"] == tenant);
    let sets = read.flat_map(|event| event["body"]["found"]["sets"].as_array().unwrap());
    let set = sets.rev().find(|set| set["at"]["project"] == project).unwrap();
    assert_eq!(set["files"][0]["path"], "zuul.yaml", "{set:#}");
    set["files"][0]["blob"].as_str().unwrap().to_owned()
}

#[test]
fn a_lost_configuration_file_is_put_back_from_its_repository_or_is_an_error_of_its_tenant_alone() {
    if !host::can_build("a lost configuration file") {
        return;
    }
    let site = two_tenants();
    let server = site.start();
    server.wait_configured();
    let file = config_file(&site, "test", &format!("{HOST}/config"));
    let sound = kept(&site, &file).expect("it is there");
    // A change to the configuration is tested with a layout made of all files of the tenant: its own, and this one.
    let configures = |name: &str| {
        let jobs = format!("{JOBS}\n- job:\n    name: {name}\n");
        site.push("project", name, name, &[("zuul.yaml", &jobs)]);
    };
    let heals = |what: &str| {
        configures(what);
        assert_eq!(server.wait_verdict("check", "project", what), "SUCCESS", "{what}: {}", server.log());
        assert_eq!(kept(&site, &file).as_ref(), Some(&sound), "{what}: it is back, byte for byte");
        contains(&server.log(), &["put back from the repository", &file]);
        site.write("server.log", "");
    };
    flip_in_bundle(&site, &sound);
    heals("flipped-in-its-bundle");
    for (what, bytes, _) in losses(&sound) {
        lose(&blob_path(&site, &file), bytes);
        heals(what);
    }
    server.wait_idle();
    server.stop();

    // Where the repository is gone too, from the forge and from the mirror.
    let path = blob_path(&site, &file);
    std::fs::remove_dir_all(site.path().join("mirrors/forge/config.git")).unwrap();
    std::fs::rename(site.path().join("forge/config.git"), site.path().join("gone")).unwrap();
    for (what, bytes, said) in losses(&sound) {
        lose(&path, bytes);
        let server = site.start();
        let name = format!("{what}-and-gone");
        configures(&name);
        site.push("project2", &name, what, &[(&format!("{what}.txt"), "a")]);
        assert_eq!(server.wait_verdict("check", "project", &name), "ERROR", "{}", server.log());
        let report = eventually("the report is delivered", || site.reports("project", &name).into_iter().next());
        println!("{what} and the repository gone: {}", report.text);
        contains(&report.text, &["could not be loaded", said, &file, "restore"]);
        assert_eq!(server.verdict_in("second", "check", "project2", &name), "SUCCESS", "{}", server.log());
        // What needs no new layout goes on in this tenant too.
        goes_on(&site, &server, &format!("{what}-else"));
        // The blob restored, the next change of the configuration is tested.
        write(&path, &sound);
        let name = format!("{what}-restored");
        configures(&name);
        assert_eq!(server.wait_verdict("check", "project", &name), "SUCCESS", "{}", server.log());
        server.stop();
    }
    // With the repository back, it heals by itself again.
    std::fs::rename(site.path().join("gone"), site.path().join("forge/config.git")).unwrap();
    std::fs::remove_file(&path).unwrap();
    let server = site.start();
    configures("healed");
    assert_eq!(server.wait_verdict("check", "project", "healed"), "SUCCESS", "{}", server.log());
    assert_eq!(kept(&site, &file), Some(sound));
    server.stop();
    let (code, out, err) = site.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_lost_job_specification_is_an_error_of_its_build_alone() {
    if !host::can_build("a lost job specification") {
        return;
    }
    let site = two_tenants();
    // While nobody offers slots, what builds are to run lies in the blob store, and nothing runs.
    let toml = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &toml.replace("slots = 2", "slots = 0"));
    let server = site.start();
    server.wait_configured();
    let mut lost = Vec::new();
    for (what, _, said) in losses(&[0]) {
        let known = named_blobs(&site, "test", "gate.lease-wanted", &["ask", "spec"]);
        site.push("project", what, what, &[(&format!("{what}.txt"), "a")]);
        let spec = eventually("a build is wanted", || {
            let all = named_blobs(&site, "test", "gate.lease-wanted", &["ask", "spec"]);
            all.into_iter().find(|spec| !known.contains(spec))
        });
        lost.push((what, spec, said));
    }
    site.push("project", "sound", "sound", &[("sound.txt", "a")]);
    site.push("project2", "sound", "sound", &[("sound.txt", "a")]);
    server.stop();
    let mut kept: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for (what, spec, _) in &lost {
        let path = blob_path(&site, spec);
        let sound = std::fs::read(&path).unwrap();
        let bytes = losses(&sound).into_iter().find(|(name, ..)| name == what).unwrap().1;
        lose(&path, bytes);
        kept.push((path, sound));
    }
    site.write("gatelog.toml", &toml);
    let server = site.start();
    for (what, spec, said) in &lost {
        assert_eq!(server.wait_verdict("check", "project", what), "FAILURE", "{what}: {}", server.log());
        let builds = server.json(&format!("/api/tenant/test/builds?change=master/{what}"));
        println!("a job specification, {what}: {}", builds[0]["error_detail"]);
        assert_eq!(builds[0]["result"], "ERROR", "{builds:#}");
        contains(builds[0]["error_detail"].as_str().unwrap_or_default(), &[said, spec, "restore"]);
    }
    // Others of this tenant and of another are not touched.
    assert_eq!(server.wait_verdict("check", "project", "sound"), "SUCCESS", "{}", server.log());
    assert_eq!(server.verdict_in("second", "check", "project2", "sound"), "SUCCESS", "{}", server.log());
    for (path, sound) in kept {
        write(&path, &sound);
    }
    goes_on(&site, &server, "specs-restored");
    server.stop();
    let (code, out, err) = site.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}
