//! The stage: a site of two tenants on the cluster, its processes, and what happens to them in the middle of the story.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step, Tail};
use gatelog_log_kafka::KafkaLog;
use gatelog_record::{Domain, Envelope, Partition, Stream};

use crate::harness::cluster::Cluster;
use crate::harness::crash::{Covered, Survived, Victim, Witness, survive, tell_kills};
use crate::harness::kafka::KafkaSite;
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{PATIENCE, Server, process};

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };

/// The project of the tenant that only looks on.
const OTHER: &str = "other-project";

/// One fault, in the middle of the story: who it met. What it breaks it also mends.
pub type Fault = fn(&mut Stage<'_>) -> &'static str;

/// A site on the cluster and what runs of it.
pub struct Stage<'s> {
    pub cluster: &'s mut Cluster,
    pub site: &'s KafkaSite,
    pub scheduler: Server,
    pub executor: Server,
    /// Whether the scheduler answers, as far as is known.
    pub ready: bool,
    /// Lines for people: how long what took.
    pub told: Vec<String>,
    eye: Eye,
    fault: Fault,
    pushed: usize,
}

/// Sees what is decided.
struct Eye {
    log: KafkaLog,
    next: Offset,
}

impl Eye {
    /// Whether something decided after this moment is there to be read.
    fn sees_decision_after(&mut self, since: i64) -> bool {
        let Ok(batch) = self.log.read(Stream::Events(GATE), self.next, ReadLimit::default()) else { return false };
        self.next = batch.next;
        batch.records.iter().any(|record| {
            let record = Envelope::decode(&record.bytes).unwrap().0.open().unwrap();
            record.decision.is_some() && record.wall_at.0 > since
        })
    }
}

/// A site of two tenants, its log on all brokers, acknowledged by two.
pub fn site(cluster: &Cluster) -> KafkaSite {
    let projects = [("config", CONFIG), ("project", PROJECT), ("other-config", CONFIG), (OTHER, PROJECT)];
    let site = KafkaSite::on(cluster.brokers(), (3, 2), &projects);
    site.site.write_tenants(&[("test", "config", &["project"]), ("other", "other-config", &[OTHER])]);
    site
}

/// Tells the story with so many faults in it, and asks all witnesses.
pub fn play(
    what: &str,
    cluster: &mut Cluster,
    fault: Fault,
    faults: usize,
    launch: impl FnOnce(&KafkaSite) -> (Server, Server),
) {
    let began = Instant::now();
    let site = site(cluster);
    let (scheduler, executor) = launch(&site);
    let eye = Eye { log: site.log_within(Duration::from_secs(2)), next: Offset(0) };
    let stage =
        Stage { cluster, site: &site, scheduler, executor, ready: false, told: Vec::new(), eye, fault, pushed: 0 };
    let covered = Covered::default();
    let survived: Survived = survive(&site.site, stage, Witness::new(Box::new(site.log())), &covered, faults, 5);
    decided_once(&site);
    println!("{what}: befallen {}", tell_kills(std::slice::from_ref(&survived)));
    println!("{what}: all told and all there after {:.0} s", began.elapsed().as_secs_f64());
}

/// Starts both processes of a site.
pub fn launch(site: &KafkaSite) -> (Server, Server) {
    (site.launch_scheduler(), site.launch_executor())
}

impl Stage<'_> {
    /// The broker that leads the gate's events.
    pub fn leader(&self) -> usize {
        self.cluster.leader(&format!("{}gate.events", self.site.prefix))
    }

    /// Breaks something, has the other tenant's developer push, and waits until something is decided after that.
    pub fn undergo(&mut self, what: &str, break_it: impl FnOnce(&mut Cluster)) {
        break_it(self.cluster);
        self.recovers(what);
    }

    /// Has the other tenant's developer push, and waits until something is decided after this moment.
    pub fn recovers(&mut self, what: &str) {
        let (began, since) = (Instant::now(), now());
        self.push_other();
        while !self.eye.sees_decision_after(since) {
            if began.elapsed() > PATIENCE {
                panic!("nothing is decided after: {what}\n{}\n{}", self.scheduler.log(), self.executor.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.told.push(format!("{what}: the next decision {:.1} s later", began.elapsed().as_secs_f64()));
    }

    /// The other tenant's developer pushes a change.
    pub fn push_other(&mut self) {
        self.pushed += 1;
        let (name, file) = (format!("other-{}", self.pushed), format!("other-{}.txt", self.pushed));
        self.site.site.push(OTHER, &name, &name, &[(&file, "1")]);
    }

    /// Waits until health says this of the site, while it may not.
    pub fn wait_health(&mut self, words: &str) {
        let mut last = String::new();
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if self.api().is_some() {
                last = self.scheduler.get("/api/health").map(|answer| answer.body).unwrap_or_default();
                if last.contains(words) {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("health never said {words:?}: {last}");
    }
}

impl Victim for Stage<'_> {
    fn kill(&mut self) -> &'static str {
        (self.fault)(self)
    }

    fn api(&mut self) -> Option<&Server> {
        self.ready = self.ready || self.scheduler.is_ready();
        self.ready.then_some(&self.scheduler)
    }

    fn stop(self) {
        let Stage { site, scheduler, executor, told, pushed, .. } = self;
        for number in 1..=pushed {
            assert_eq!(scheduler.verdict_in("other", "check", OTHER, &format!("other-{number}")), "SUCCESS");
        }
        executor.stop();
        scheduler.stop();
        assert_eq!(process::processes_of(site.site.path()), Vec::<String>::new());
        told.iter().for_each(|line| println!("{line}"));
    }
}

/// Microseconds since 1970.
pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// No input was decided on twice, and of no outcome two copies counted.
fn decided_once(site: &KafkaSite) {
    let log = site.log();
    for partition in [GATE, Partition { domain: Domain::Capacity, index: 0 }] {
        let mut reader = HistoryReader::after(partition, Tail::GENESIS);
        let (mut from, mut next, mut decisions, mut stale) = (Offset(0), 0, 0, 0);
        let mut counted: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            let batch = log.read(Stream::Events(partition), from, ReadLimit::default()).unwrap();
            if batch.records.is_empty() {
                break;
            }
            from = batch.next;
            for bytes in &batch.records {
                let Step::Event(record, _) = reader.next(bytes).unwrap() else {
                    stale += 1;
                    continue;
                };
                let Some(decision) = &record.decision else { continue };
                assert!(decision.input_offset >= next, "{partition}: input {} is decided twice", decision.input_offset);
                next = decision.input_offset + 1;
                decisions += 1;
                let id = decision.input_id.as_str();
                // Timers and acknowledgements of messages carry the same names again and again.
                let once = ["work/", "build/", "forge/"].iter().any(|begin| id.starts_with(begin));
                if once && record.event.name() != "input-taken" {
                    let before = counted.insert(id.to_owned(), record.sequence);
                    assert_eq!(before, None, "{partition}: {id} counts again at event {}", record.sequence);
                }
            }
        }
        println!("{partition}: {decisions} inputs, each decided on once; {stale} records of fenced writers");
    }
}
