//! Work of a domain that nobody has heard of, done in its lanes: errands to shops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use gatelog_event_log::memory::MemoryOptions;
use gatelog_event_log::{Blobs, Log, MemoryBlobs, MemoryLog};
use gatelog_partition_state::work::{Perform, Sending, Terms};
use gatelog_record::draft::partition::TimerDue;
use gatelog_record::input::PartitionInput;
use gatelog_record::{Domain, Partition, Timestamp};
use serde::{Deserialize, Serialize};

use super::*;
use crate::dispatch::{self, Pending, WorkSource};
use crate::share::{Alone, Share};

/// How long a test waits for what must come.
const PATIENT: Duration = Duration::from_secs(60);
const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Errand {
    shops: Vec<String>,
}

const ERRAND: Terms = Terms {
    kind: "errand",
    duty: Duty::Review,
    deadline_ms: 1_000,
    attempts_max: 1,
    steps: ["errand", "bought", "told"],
};

impl Work for Errand {
    fn terms(&self) -> &'static Terms {
        &ERRAND
    }

    fn connections(&self) -> Vec<&str> {
        self.shops.iter().map(String::as_str).collect()
    }
}

/// Goes to shops. Of those with a queue, until the test opens it.
#[derive(Clone)]
struct Runner {
    queues: Arc<BTreeMap<&'static str, Mutex<Receiver<()>>>>,
    done: SyncSender<u8>,
}

impl Perform<Errand> for Runner {
    type Outcome = PartitionInput;
    type Error = String;

    fn perform(&mut self, of: Sending<'_>, errand: &Errand) -> Result<PartitionInput, String> {
        for queue in errand.shops.iter().filter_map(|shop| self.queues.get(shop.as_str())) {
            queue.lock().unwrap().recv().map_err(|error| error.to_string())?;
        }
        match errand.shops.first().map(String::as_str) {
            Some("nowhere") => panic!("there is no such shop"),
            Some("closed") => Err("it is closed".into()),
            _ => {
                self.done.send(of.work.0[0]).unwrap();
                Ok(TimerDue { timer: of.work.to_string(), due_at: Timestamp::ZERO }.into())
            }
        }
    }
}

impl Performer<Errand> for Runner {
    fn has_connection(&self, name: &str) -> bool {
        name != "nowhere"
    }

    fn blobs(&self) -> Arc<dyn Blobs> {
        Arc::new(MemoryBlobs::new())
    }

    fn with_blobs(&self, _: Arc<dyn Blobs>) -> Runner {
        self.clone()
    }

    fn judge(&self, outcome: PartitionInput) -> Judged {
        Judged::Outcome { told: outcome.into(), trouble: false }
    }
}

/// A table of errands. What is answered stays in it, as if nobody folded.
struct Table(Vec<Due<Errand>>);

impl WorkSource<Errand> for Table {
    fn due(&self, known: &BTreeSet<(WorkId, u32)>) -> Pending<Errand> {
        let key = |due: &Due<Errand>| (due.work, due.attempt);
        Pending {
            position: 1,
            there: self.0.iter().map(key).collect(),
            new: self.0.iter().filter(|due| !known.contains(&key(due))).cloned().collect(),
        }
    }

    fn wait(&self, _: u64, at_most: Duration) {
        std::thread::sleep(at_most.min(Duration::from_millis(20)));
    }
}

fn errand(number: u8, shops: &[&str]) -> Due<Errand> {
    Due {
        work: WorkId([number; 16]),
        attempt: 1,
        key: "home".into(),
        requested_by: u64::from(number),
        request: Errand { shops: shops.iter().map(|shop| (*shop).to_owned()).collect() },
    }
}

struct Street {
    done: Receiver<u8>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Street {
    /// Everything of the table is done, as far as the queues let it.
    fn open(table: Vec<Due<Errand>>, queues: Vec<(&'static str, Receiver<()>)>) -> Street {
        let (sender, done) = sync_channel(64);
        let queues = queues.into_iter().map(|(shop, queue)| (shop, Mutex::new(queue))).collect();
        let runner = Runner { queues: Arc::new(queues), done: sender };
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new(MemoryOptions::default()));
        let outlet = Outlet { log, now: || Timestamp::ZERO, partition: GATE, room: Arc::default() };
        let stop = Arc::new(AtomicBool::new(false));
        let share = Share::new("one", Arc::new(Alone));
        let source = Arc::new(Table(table));
        let threads = dispatch::spawn(outlet, runner, source, &[Duty::Review], share, Arc::clone(&stop)).unwrap();
        Street { done, stop, threads }
    }

    fn next(&self) -> u8 {
        self.done.recv_timeout(PATIENT).unwrap()
    }

    fn close(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(self.done.try_iter().next(), None, "what was taken up is not taken up again");
    }
}

#[test]
fn a_connection_that_does_not_answer_makes_no_work_wait_but_its_own() {
    let (open, queue) = sync_channel(64);
    // More for the slow shop than its threads can do at once.
    let mut table: Vec<_> = (1..=10).map(|number| errand(number, &["slow"])).collect();
    table.extend((11..=20).map(|number| errand(number, &["fast"])));
    table.push(errand(21, &[]));
    let street = Street::open(table, vec![("slow", queue)]);
    let first: BTreeSet<u8> = (11..=21).map(|_| street.next()).collect();
    assert_eq!(first, (11..=21).collect());
    for _ in 1..=10 {
        open.send(()).unwrap();
    }
    let then: BTreeSet<u8> = (1..=10).map(|_| street.next()).collect();
    assert_eq!(then, (1..=10).collect());
    street.close();
}

#[test]
fn work_for_two_connections_makes_the_work_of_neither_wait() {
    let (open, queue) = sync_channel(64);
    let mut table: Vec<_> = (1..=5).map(|number| errand(number, &["fast", "slow"])).collect();
    table.extend((6..=9).map(|number| errand(number, &["fast"])));
    let street = Street::open(table, vec![("slow", queue)]);
    let first: BTreeSet<u8> = (6..=9).map(|_| street.next()).collect();
    assert_eq!(first, (6..=9).collect());
    (1..=5).for_each(|_| open.send(()).unwrap());
    let then: BTreeSet<u8> = (1..=5).map(|_| street.next()).collect();
    assert_eq!(then, (1..=5).collect());
    street.close();
}

#[test]
fn work_that_panics_or_has_no_outcome_costs_nothing_but_itself() {
    let table = vec![errand(1, &["nowhere"]), errand(2, &["closed"]), errand(3, &["nowhere"]), errand(4, &["fast"])];
    let street = Street::open(table, Vec::new());
    assert_eq!(street.next(), 4);
    street.close();
}

#[test]
fn a_lane_rests_for_longer_the_more_trouble_there_was_and_never_for_long() {
    let seconds = |trouble| rest_after(trouble).as_secs_f64();
    assert_eq!([0, 2, 3, 4, 5, 9, 400].map(seconds), [0.0, 0.0, 0.1, 0.2, 0.4, 5.0, 5.0]);
}
