//! SIGKILL at twenty positions of the log, spread over the kinds of events of the story.
//!
//! The witnesses are outside gatelog: the reflogs of the bare repositories, the notes on each
//! change, the list of processes.

use std::collections::BTreeMap;

use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_log_embedded::{EmbeddedLog, ReaderOptions};
use gatelog_record::{Domain, Envelope, Partition, Stream};

use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{PATIENCE, Site, eventually, host, process};

/// Kinds of events at which the process is killed: as soon as one more of the kind is on the log.
const KILL_AT: [&str; 30] = [
    "gate.tenant-configured",
    "gate.config-read",
    "gate.layout-activated",
    "gate.branch-moved",
    "gate.submitted",
    "gate.submit-requested",
    "gate.item-reset",
    "gate.item-failing",
    "gate.window-changed",
    "gate.report-delivered",
    "gate.report-requested",
    "gate.item-dequeued",
    "gate.build-finished",
    "gate.build-started",
    "capacity.lease-granted",
    "capacity.lease-queued",
    "capacity.lease-revoked",
    "capacity.lease-ended",
    "capacity.worker-lost",
    "gate.lease-wanted",
    "gate.lease-end-wanted",
    "gate.frozen",
    "gate.freeze-wanted",
    "gate.prepared",
    "gate.prepare-requested",
    "gate.buildset-opened",
    "gate.item-enqueued",
    "gate.changes-observed",
    "gate.changes-wanted",
    "gate.trigger-settled",
];
/// How many kills there must be.
const KILLS: usize = 20;

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

/// What a change of the story is: name, what its file says, what it depends on, gate's verdict.
type Chapter = (String, &'static str, Option<&'static str>, &'static str);

/// The story, and as many good changes more as it takes to be killed often enough.
fn chapters(more: usize) -> Vec<Chapter> {
    let mut story: Vec<Chapter> = vec![
        ("one".into(), "good\n", None, "success"),
        ("two".into(), "bad\n", None, "failure"),
        ("three".into(), "good\n", None, "success"),
        ("four".into(), "good\n", Some("one"), "success"),
    ];
    story.extend((0..more).map(|number| (format!("more-{number}"), "good\n", None, "success")));
    story
}

fn push(site: &Site, (name, verdict, depends_on, _): &Chapter) {
    let message = match depends_on {
        Some(other) => format!("{name}\n\nDepends-On: {}\n", site.url_of("project", other)),
        None => name.clone(),
    };
    site.push("project", name, &message, &[("verdict", verdict), (&format!("{name}.txt"), name)]);
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
    let mut left: Vec<&str> = KILL_AT.to_vec();
    let mut more = 0;
    let (mut pushed, mut approved) = (0, 0);
    let began = std::time::Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE * 4, "the story does not end; killed at {killed_at:?}, to come {left:?}");
        let before = witness.seen.clone();
        witness.look();
        let hit = left.iter().position(|kind| witness.count(kind) > before.get(kind).copied().unwrap_or(0));
        if let Some(index) = hit.filter(|_| killed_at.len() < KILLS + 4) {
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
        let story = chapters(more);
        // Steps come one by one as the story goes on; each is done once, whatever dies meanwhile.
        if pushed < story.len() {
            if witness.count("gate.layout-activated") > 0 {
                push(&site, &story[pushed]);
                pushed += 1;
            }
        } else if approved < story.len() {
            if story[approved..].iter().all(|(name, ..)| running.verdict("check", "project", name).is_some()) {
                for (name, ..) in &story[approved..] {
                    site.approve("project", name);
                }
                approved = story.len();
            }
        } else if story.iter().all(|(name, ..)| running.verdict("gate", "project", name).is_some()) {
            if killed_at.len() >= KILLS {
                running.wait_idle();
                break;
            }
            more += 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    println!("killed {} times: {killed_at:?}", killed_at.len());

    // The notes: one verdict of each pipeline for each change, said once.
    let story = chapters(more);
    for (name, _, _, gate) in &story {
        let check = if gate == &"failure" { "check:failure" } else { "check:success" };
        let expected = [check.to_owned(), format!("gate:{gate}")];
        eventually(&format!("{name} has its reports"), || (site.reports("project", name).len() >= 2).then_some(()));
        assert_eq!(site.verdicts("project", name), expected, "{name}");
    }

    // The reflog: the first commit, then each good change exactly once.
    let reflog = site.reflog("project");
    let good: Vec<&str> =
        story.iter().filter(|(.., gate)| *gate == "success").map(|(name, ..)| name.as_str()).collect();
    let merges = reflog.iter().filter(|line| line.contains("gatelog: merge")).count();
    assert_eq!(merges, good.len(), "{reflog:#?}");
    assert_eq!(reflog.len(), good.len() + 1, "nobody else moved the branch: {reflog:#?}");
    // They merged in the order in which the gate took them in, whatever died meanwhile: what each
    // move of the branch brought, as the repository has it. (Approvals found together after a
    // restart are taken by name: refs keep no order of their own.)
    let taken: Vec<String> = site
        .events("gate.events")
        .iter()
        .filter(|event| event["kind"] == "gate.item-enqueued" && event["body"]["pipeline"] == "gate")
        .filter_map(|event| event["body"]["subjects"][0]["change"].as_str()?.strip_prefix("master/").map(str::to_owned))
        .filter(|name| good.contains(&name.as_str()))
        .collect();
    assert_eq!(site.brought("project"), taken);
    assert_eq!(taken.len(), good.len(), "each was taken in once: {taken:?}");
    let place = |name: &str| taken.iter().position(|taken| taken == name);
    assert!(place("one") < place("four"), "four depends on one: {taken:?}");

    server.unwrap().stop();
    assert_eq!(process::processes_of(site.path()), Vec::<String>::new());
    let (code, out, err) = site.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}
