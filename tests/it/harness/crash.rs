//! Killing a site again and again while it tells a story, and asking witnesses outside of it what
//! came of that: the reflogs of the bare repositories, the notes on each change, the list of
//! processes, and a reader of the log that remembers every record it has seen.
//!
//! Where to kill is taken from the log as it grows: when a kind of input is seen for the first time
//! (its decision is still to come, or just made), when a kind of event is seen for the first time
//! (its effect is still to come), and when the log has grown by a number of records drawn by lot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gatelog_event_log::{Log, Offset, ReadLimit};
use gatelog_record::{Domain, Envelope, InputFrame, Partition, Stream};

use super::projects::JOBS;
use super::{PATIENCE, Server, Site, eventually};

/// How many kills a round has at the most, over all its sites.
const KILLS_OF_A_ROUND: usize = 50;
/// How many kills there are unless `GATELOG_KILLS` says otherwise.
const KILLS: usize = 16;

/// The rounds, and how many kills each of them has. `GATELOG_KILLS` says how many kills there must be over all rounds;
/// each round is told by sites of its own.
pub fn rounds() -> Vec<usize> {
    let wanted = std::env::var("GATELOG_KILLS").ok().map_or(KILLS, |text| text.parse().unwrap());
    vec![wanted.min(KILLS_OF_A_ROUND); wanted.div_ceil(KILLS_OF_A_ROUND)]
}

/// The partitions of a site.
const PARTITIONS: [Partition; 2] =
    [Partition { domain: Domain::Gate, index: 0 }, Partition { domain: Domain::Capacity, index: 0 }];
/// The least and most the log grows before a kill by lot.
const GROWN: (u64, u64) = (3, 50);
/// How many records the second half waits for kinds of its own.
const PATIENT: u64 = 25;

/// What is killed.
pub trait Victim {
    /// Kills one of the site's processes without warning and starts it again at once, without
    /// waiting until it is ready. Says which one, and leaves nothing of what it had started.
    fn kill(&mut self) -> &'static str;
    /// Starts what has died by itself at a step it was told, and says which process it was and the step.
    fn fell(&mut self) -> Option<(&'static str, String)> {
        None
    }
    /// Whether there is nothing more at which it shall die by itself.
    fn has_fallen_enough(&self) -> bool {
        true
    }
    /// From here on none of them dies by itself.
    fn peace(&mut self) {}
    /// The process that answers for the API, once it does.
    fn api(&mut self) -> Option<&Server>;
    /// Stops all of them in peace; `log verify` and `replay verify` come after it.
    fn stop(self);
}

/// Reads the log beside those who write it, as any other process may.
pub struct Witness {
    log: Box<dyn Log>,
    at: BTreeMap<Stream, Offset>,
    counts: BTreeMap<&'static str, usize>,
    newest: BTreeMap<Partition, (u64, &'static str)>,
    /// Up to which offset inputs were decided on.
    decided: BTreeMap<Partition, u64>,
    /// Everything ever seen, by its checksum: it must be there at the end.
    remembered: BTreeMap<(Stream, Offset), u32>,
}

/// A kind of record, as a position to be killed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// An input: the decision on it is to come.
    Input(&'static str),
    /// An event: its effect is to come.
    Event(&'static str),
}

impl Witness {
    /// A witness who has seen nothing.
    pub fn new(log: Box<dyn Log>) -> Witness {
        Witness {
            log,
            at: BTreeMap::new(),
            counts: BTreeMap::new(),
            newest: BTreeMap::new(),
            decided: BTreeMap::new(),
            remembered: BTreeMap::new(),
        }
    }

    /// Takes in what is new: the kinds of it, oldest first.
    fn look(&mut self) -> Vec<Kind> {
        let mut news = Vec::new();
        for partition in PARTITIONS {
            let inputs = Stream::Inputs(partition);
            for bytes in self.read(inputs) {
                let name = InputFrame::decode(&bytes).unwrap().open().unwrap().input.name();
                news.push(Kind::Input(name));
            }
            for bytes in self.read(Stream::Events(partition)) {
                let (envelope, _) = Envelope::decode(&bytes).unwrap();
                let record = envelope.open().unwrap();
                let name = record.event.name();
                *self.counts.entry(name).or_insert(0) += 1;
                self.newest.insert(partition, (record.sequence, name));
                if let Some(decision) = &record.decision {
                    self.decided.insert(partition, decision.input_offset + 1);
                }
                news.push(Kind::Event(name));
            }
        }
        news
    }

    fn read(&mut self, stream: Stream) -> Vec<Vec<u8>> {
        let from = self.at.get(&stream).copied().unwrap_or_default();
        // A log whose owner has just died may say no for a moment.
        let Ok(batch) = self.log.read(stream, from, ReadLimit::default()) else { return Vec::new() };
        self.at.insert(stream, batch.next);
        for record in &batch.records {
            let before = self.remembered.insert((stream, record.offset), crc32(&record.bytes));
            assert_eq!(before, None, "{stream} gave offset {} twice", record.offset.0);
        }
        batch.records.into_iter().map(|record| record.bytes).collect()
    }

    /// How many events of a kind there are.
    pub fn count(&self, kind: &str) -> usize {
        self.counts.get(kind).copied().unwrap_or(0)
    }

    /// Where the log stands: the newest event of each partition, and how many inputs wait for theirs.
    fn place(&self) -> String {
        let mut words = Vec::new();
        for partition in PARTITIONS {
            let end = self.at.get(&Stream::Inputs(partition)).map_or(0, |offset| offset.0);
            let waiting = end.saturating_sub(self.decided.get(&partition).copied().unwrap_or(0));
            let (sequence, kind) = self.newest.get(&partition).copied().unwrap_or((0, "nothing"));
            words.push(format!("{partition} ended at {sequence} {kind}, {waiting} inputs undecided"));
        }
        words.join("; ")
    }

    /// Everything seen is still there, byte for byte.
    pub fn check(&self) {
        let streams: BTreeSet<Stream> = self.remembered.keys().map(|(stream, _)| *stream).collect();
        for stream in streams {
            let mut there = BTreeMap::new();
            let mut from = Offset(0);
            loop {
                let batch = self.log.read(stream, from, ReadLimit::default()).unwrap();
                if batch.records.is_empty() {
                    break;
                }
                from = batch.next;
                there.extend(batch.records.iter().map(|record| (record.offset, crc32(&record.bytes))));
            }
            for ((_, offset), crc) in self.remembered.iter().filter(|((of, _), _)| *of == stream) {
                assert_eq!(there.get(offset), Some(crc), "{stream} lost or changed what stood at offset {}", offset.0);
            }
        }
    }
}

/// CRC-32 as everybody has it; enough to tell records apart.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Which positions were killed at, over all sites of a test.
#[derive(Default)]
pub struct Covered {
    kinds: Mutex<BTreeSet<Kind>>,
}

/// Why a site was killed when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    First(Kind),
    Grown(u64),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::First(Kind::Input(name)) => write!(f, "before the decision on {name}"),
            Why::First(Kind::Event(name)) => write!(f, "after {name}"),
            Why::Grown(records) => write!(f, "{records} records on"),
        }
    }
}

/// Decides when to kill.
struct Hunter<'c> {
    covered: &'c Covered,
    lot: u64,
    grown: u64,
    target: u64,
    by_lot: usize,
    /// The kinds that pass before anything is approved.
    first_half: BTreeSet<Kind>,
}

impl<'c> Hunter<'c> {
    fn new(covered: &'c Covered, seed: u64) -> Hunter<'c> {
        let mut hunter = Hunter { covered, lot: seed, grown: 0, target: 0, by_lot: 0, first_half: BTreeSet::new() };
        hunter.draw();
        hunter
    }

    fn draw(&mut self) {
        // An LCG of Knuth's: the same seed kills after the same numbers of records.
        self.lot = self.lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.target = GROWN.0 + (self.lot >> 33) % (GROWN.1 - GROWN.0);
        self.grown = 0;
    }

    /// Whether this is the moment. Each fourth kill waits for its number of records, whatever kinds pass.
    fn hit(&mut self, news: &[Kind], kills: usize, second_half: bool) -> Option<Why> {
        self.grown += news.len() as u64;
        let why = if kills % 4 == 3 {
            (self.grown >= self.target).then_some(Why::Grown(self.grown))
        } else {
            let mut covered = self.covered.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            // Where nothing new of its own half comes, any kind will do.
            let late = |kind: &Kind| !second_half || self.grown >= PATIENT || !self.first_half.contains(kind);
            let fresh = news.iter().rev().filter(|kind| late(kind)).find(|kind| covered.insert(**kind));
            let grown = (self.grown >= 2 * GROWN.1).then_some(Why::Grown(self.grown));
            fresh.map(|kind| Why::First(*kind)).or(grown)
        }?;
        self.by_lot += usize::from(matches!(why, Why::Grown(_)));
        self.draw();
        Some(why)
    }
}

/// A change of the story.
struct Change {
    name: String,
    /// What is pushed: the content of `verdict`, and whether the configuration changes with it.
    verdict: &'static str,
    configures: bool,
    depends_on: Option<&'static str>,
    /// Pushed a second time before anything came of the first.
    twice: bool,
    gate: &'static str,
}

impl Change {
    fn good(name: impl Into<String>) -> Change {
        let name = name.into();
        Change { name, verdict: "good\n", configures: false, depends_on: None, twice: false, gate: "success" }
    }
}

/// The story: a good change, a bad one, one that depends on another, one that changes the
/// configuration, one that is pushed twice, and as many good ones more as it takes, every second with configuration.
fn story() -> Vec<Change> {
    vec![
        Change::good("one"),
        Change { verdict: "bad\n", gate: "failure", ..Change::good("two") },
        Change::good("three"),
        Change { depends_on: Some("one"), ..Change::good("four") },
        Change { configures: true, ..Change::good("five") },
        Change { twice: true, ..Change::good("six") },
    ]
}

fn push(site: &Site, change: &Change) {
    let Change { name, verdict, .. } = change;
    let message = match change.depends_on {
        Some(other) => format!("{name}\n\nDepends-On: {}\n", site.url_of("project", other)),
        None => name.clone(),
    };
    let file = format!("{name}.txt");
    let configured = format!("{JOBS}\n- job:\n    name: another-{name}\n    run: playbooks/verdict.yaml\n");
    let mut files = vec![("verdict", *verdict), (file.as_str(), name.as_str())];
    if change.configures {
        files.push(("zuul.yaml", &configured));
    }
    if change.twice {
        site.push("project", name, &message, &[(file.as_str(), "not yet")]);
    }
    site.push("project", name, &message, &files);
}

/// One death of a process.
#[derive(Debug)]
pub struct Kill {
    /// Which process.
    pub who: &'static str,
    /// At which position.
    pub at: String,
    /// Where the log stood.
    place: String,
}

/// What a site went through.
#[derive(Default)]
pub struct Survived {
    /// Each kill, in order.
    pub kills: Vec<Kill>,
    /// How many of them came by lot.
    pub by_lot: usize,
    /// How long it took from a start until the API answered, where nothing died before.
    pub ready: Vec<Duration>,
}

impl Survived {
    /// How often a process was killed.
    pub fn killed(&self, who: &str) -> usize {
        self.kills.iter().filter(|kill| kill.who == who).count()
    }
}

/// Tells the story to a site that is killed at least so often meanwhile, and asks the witnesses.
pub fn survive(
    site: &Site,
    mut victim: impl Victim,
    mut witness: Witness,
    covered: &Covered,
    wanted: usize,
    seed: u64,
) -> Survived {
    let mut hunter = Hunter::new(covered, seed);
    let mut survived = Survived::default();
    let mut story = story();
    let (mut pushed, mut approved) = (0, 0);
    let mut peaceful = false;
    let mut killed = Instant::now();
    let mut started = Some(killed);
    loop {
        assert!(killed.elapsed() < PATIENCE * 2, "the story does not end; killed: {:#?}", survived.kills);
        let news = witness.look();
        // Half of the kills are kept for the second half of the story, in which branches move, and in
        // that half for the kinds that the first one did not have.
        let room = if approved == 0 { wanted / 2 } else { wanted };
        if approved == 0 {
            hunter.first_half.extend(&news);
        }
        let mut died = victim.fell();
        if died.is_none()
            && survived.kills.len() < room
            && let Some(why) = hunter.hit(&news, survived.kills.len(), approved > 0)
        {
            died = Some((victim.kill(), why.to_string()));
        }
        if let Some((who, at)) = died {
            // What it had made durable while it was dying counts too.
            witness.look();
            survived.kills.push(Kill { who, at, place: witness.place() });
            killed = Instant::now();
            started = victim.api().is_none().then_some(killed);
            continue;
        }
        if let Some(since) = started
            && victim.api().is_some()
        {
            survived.ready.push(since.elapsed());
            started = None;
        }
        // Steps come one by one as the story goes on; each is done once, whatever dies meanwhile.
        if pushed < story.len() {
            if witness.count("gate.layout-activated") > 0 {
                push(site, &story[pushed]);
                pushed += 1;
            }
        } else if let Some(running) = victim.api() {
            let said = |pipeline: &str, change: &Change| running.verdict(pipeline, "project", &change.name).is_some();
            if approved < story.len() {
                if story[approved..].iter().all(|change| said("check", change)) {
                    story[approved..].iter().for_each(|change| site.approve("project", &change.name));
                    approved = story.len();
                }
            } else if story.iter().all(|change| said("gate", change)) {
                if survived.kills.len() >= wanted && victim.has_fallen_enough() {
                    if !std::mem::replace(&mut peaceful, true) {
                        victim.peace();
                    } else if victim.api().is_some_and(Server::is_idle) {
                        break;
                    }
                    continue;
                }
                // One of them changes the configuration: there are steps that only that brings about.
                let more = (story.len()..story.len() + 2)
                    .map(|number| Change { configures: number % 2 == 1, ..Change::good(format!("more-{number}")) });
                story.extend(more.collect::<Vec<_>>());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    survived.by_lot = hunter.by_lot;
    ask(site, &story);
    witness.look();
    witness.check();
    victim.stop();
    for command in [["log", "verify"], ["replay", "verify"]] {
        let (code, out, err) = site.gatelog(&command);
        assert_eq!(code, 0, "{command:?}: {out}{err}");
    }
    survived
}

/// Asks notes and reflog: nothing lost, nothing twice, in the order in which it was decided.
fn ask(site: &Site, story: &[Change]) {
    // The notes: one verdict of each pipeline for each change, said once.
    for Change { name, gate, .. } in story {
        let check = if *gate == "failure" { "check:failure" } else { "check:success" };
        let expected = [check.to_owned(), format!("gate:{gate}")];
        eventually(&format!("{name} has its reports"), || (site.reports("project", name).len() >= 2).then_some(()));
        assert_eq!(site.verdicts("project", name), expected, "{name}");
    }
    // The reflog: the first commit, then each good change exactly once.
    let reflog = site.reflog("project");
    let good: Vec<&str> =
        story.iter().filter(|change| change.gate == "success").map(|change| change.name.as_str()).collect();
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
}

impl Covered {
    /// One line that says what was covered, after a line for each kill.
    pub fn tell(&self, what: &str, took: Duration, survived: &[Survived]) {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = kinds.iter().filter(|kind| matches!(kind, Kind::Input(_))).count();
        let by_lot: usize = survived.iter().map(|one| one.by_lot).sum();
        let killed = tell_kills(survived);
        println!(
            "{what}: killed {killed} in {:.0} s, before the decision on {inputs} kinds of input, after {} kinds of event, {by_lot} times by lot",
            took.as_secs_f64(),
            kinds.len() - inputs,
        );
    }
}

/// A line for each kill. Gives how many there were, and of whom.
pub fn tell_kills(survived: &[Survived]) -> String {
    let mut victims: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, kill) in survived.iter().flat_map(|one| &one.kills).enumerate() {
        println!("kill {}: the {} {}: {}", number + 1, kill.who, kill.at, kill.place);
        *victims.entry(kill.who).or_insert(0) += 1;
    }
    let count: usize = victims.values().sum();
    let victims: Vec<String> = victims.iter().map(|(who, count)| format!("the {who} {count} times")).collect();
    format!("{count} times ({})", victims.join(", "))
}

/// What all rounds of a test came to: kills by position, and how long it took to be ready.
pub fn tell_all(what: &str, survived: &[Survived]) {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let kills = survived.iter().flat_map(|one| &one.kills);
    for kill in kills {
        // How many records on it was makes no position of its own.
        let at = if kill.at.ends_with(" records on") { "by lot" } else { kill.at.as_str() };
        *positions.entry(at).or_insert(0) += 1;
    }
    for (at, count) in &positions {
        println!("{what}: {count:4} kills {at}");
    }
    let mut ready: Vec<Duration> = survived.iter().flat_map(|one| one.ready.iter().copied()).collect();
    ready.sort();
    let at = |share: usize| ready.get(((ready.len() * share) / 100).min(ready.len().saturating_sub(1)));
    if let (Some(median), Some(late), Some(last)) = (at(50), at(95), ready.last()) {
        println!(
            "{what}: ready again {} times, half of them within {} ms, 95 of 100 within {} ms, all within {} ms",
            ready.len(),
            median.as_millis(),
            late.as_millis(),
            last.as_millis()
        );
    }
}
