//! SIGKILL at twenty positions of the log, spread over the kinds of events of the story.
//!
//! The witnesses are outside gatelog: the reflogs of the bare repositories, the notes on each
//! change, the list of processes.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_log_embedded::{EmbeddedLog, ReaderOptions};
use gatelog_record::{Domain, Envelope, Partition, Stream};

use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{PATIENCE, Server, Site, eventually, host, process};

/// Kinds of events at which the process is killed: as soon as one more of the kind is on the log.
const KILL_AT: [&str; 20] = [
    "gate.tenant-configured",
    "gate.config-read",
    "gate.layout-activated",
    "gate.changes-wanted",
    "gate.changes-observed",
    "gate.item-enqueued",
    "gate.buildset-opened",
    "gate.prepared",
    "gate.frozen",
    "gate.lease-wanted",
    "capacity.lease-granted",
    "gate.build-started",
    "gate.build-finished",
    "gate.report-requested",
    "gate.report-delivered",
    "gate.item-reset",
    "gate.submit-requested",
    "gate.submitted",
    "gate.item-dequeued",
    "gate.branch-moved",
];

/// Reads the log beside the server, as any other process may.
struct Witness {
    log: EmbeddedLog,
    at: BTreeMap<Stream, Offset>,
    seen: BTreeMap<&'static str, usize>,
}

impl Witness {
    fn open(site: &Site) -> Option<Witness> {
        let log = EmbeddedLog::open_reader(site.path().join("log"), ReaderOptions::default()).ok()?;
        Some(Witness { log, at: BTreeMap::new(), seen: BTreeMap::new() })
    }

    /// Takes in what is new.
    fn look(&mut self) {
        for domain in [Domain::Gate, Domain::Capacity] {
            let stream = Stream::Events(Partition { domain, index: 0 });
            let from = self.at.get(&stream).copied().unwrap_or_default();
            let batch = self.log.read(stream, from, ReadLimit::default()).unwrap();
            for record in &batch.records {
                let (envelope, _) = Envelope::decode(&record.bytes).unwrap();
                *self.seen.entry(envelope.open().unwrap().event.name()).or_insert(0) += 1;
            }
            self.at.insert(stream, batch.next);
        }
    }

    fn count(&self, kind: &str) -> usize {
        self.seen.get(kind).copied().unwrap_or(0)
    }
}

/// Pushes, approves and waits, whatever becomes of the server: as developers do.
fn tell_the_story(site: &Site, step: &mut usize) {
    // Each step is done once; a restart goes on with the next one.
    let change = |name: &str, value: &str| -> Vec<(String, String)> {
        vec![("verdict".into(), value.to_owned()), (format!("{name}.txt"), name.to_owned())]
    };
    let push = |name: &str, files: Vec<(String, String)>, message: &str| {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        site.push("project", name, message, &files);
    };
    match *step {
        0 => push("one", change("one", "good\n"), "one"),
        1 => push("two", change("two", "bad\n"), "two"),
        2 => push("three", change("three", "good\n"), "three"),
        3 => push("four", change("four", "good\n"), &format!("four\n\nDepends-On: {}\n", site.url_of("project", "one"))),
        _ => return,
    }
    *step += 1;
}

#[test]
fn killed_at_twenty_positions_nothing_is_lost_and_nothing_done_twice() {
    if !host::can_build("crash at twenty positions") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let mut server = Some(site.start());
    let mut witness = eventually("the log can be read beside the server", || Witness::open(&site));
    let mut killed_at: Vec<(&str, usize)> = Vec::new();
    let mut step = 0;
    let mut approved = false;
    let mut left: Vec<&str> = KILL_AT.to_vec();
    let began = std::time::Instant::now();
    let done = |server: &Server| {
        ["one", "two", "three", "four"].iter().all(|name| server.verdict("gate", "project", name).is_some())
    };
    loop {
        assert!(began.elapsed() < PATIENCE * 5, "the story does not end; killed at {killed_at:?}, still to come {left:?}");
        let before = witness.seen.clone();
        witness.look();
        let hit = left.iter().position(|kind| witness.count(kind) > before.get(kind).copied().unwrap_or(0));
        if let Some(index) = hit {
            let kind = left.remove(index);
            server.take().unwrap().kill();
            killed_at.push((kind, witness.seen.values().sum()));
            // Nothing runs on without its server.
            eventually(&format!("nothing is left running after the kill at {kind}"), || {
                process::processes_of(site.path()).is_empty().then_some(())
            });
            server = Some(site.start());
            continue;
        }
        let running = server.as_ref().unwrap();
        // Steps in between come as the story goes on, not all at once.
        if step < 4 && witness.count("gate.layout-activated") > 0 {
            tell_the_story(&site, &mut step);
        }
        let checked = step == 4
            && ["one", "two", "three", "four"].iter().all(|name| running.verdict("check", "project", name).is_some());
        if checked && !approved {
            for name in ["one", "two", "three", "four"] {
                site.approve("project", name);
            }
            approved = true;
        }
        if approved && done(running) && running.verdict("gate", "project", "four").is_some() {
            running.wait_idle();
            witness.look();
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    println!("killed {} times: {killed_at:?}", killed_at.len());
    assert!(killed_at.len() >= 20, "not killed at {left:?}");
    let kinds: BTreeSet<&str> = killed_at.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), killed_at.len());

    // The reflog: the first commit, then each good change exactly once, in the order of approval.
    let reflog = site.reflog("project");
    let merges: Vec<&String> = reflog.iter().filter(|line| line.contains("gatelog: merge")).collect();
    assert_eq!(merges.len(), 3, "{reflog:#?}");
    assert_eq!(reflog.len(), 4, "nobody else moved the branch: {reflog:#?}");
    assert_eq!(site.merged("project"), ["First", "one", "three", "four"]);

    // The notes: one verdict of each pipeline for each change, said once.
    for (name, gate) in [("one", "success"), ("two", "failure"), ("three", "success"), ("four", "success")] {
        let verdicts = site.verdicts("project", name);
        let count = |wanted: &str| verdicts.iter().filter(|verdict| verdict.as_str() == wanted).count();
        let check = if name == "two" { "check:failure" } else { "check:success" };
        assert_eq!(count(check), 1, "{name}: {verdicts:?}");
        assert_eq!(count(&format!("gate:{gate}")), 1, "{name}: {verdicts:?}");
        assert_eq!(verdicts.len(), 2, "{name}: {verdicts:?}");
    }

    server.unwrap().stop();
    assert_eq!(process::processes_of(site.path()), Vec::<String>::new());
    let (code, out, err) = site.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}
