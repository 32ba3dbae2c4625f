//! SIGKILL at many positions of a log on one real Kafka: the process that decides and the one that
//! merges and runs builds, in turn.

use std::time::Instant;

use gatelog_kafka_broker::Broker;

use crate::harness::crash::{Covered, Survived, Victim, Witness, rounds, survive, tell_all};
use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, eventually, host, process, test_seed};

/// Sites that tell the story beside each other, each under a lot of its own.
const SITES: [u64; 2] = [11, 1_917];

/// A site that is two processes.
struct Pair<'s> {
    site: &'s KafkaSite,
    scheduler: Server,
    executor: Server,
    ready: bool,
    turn: usize,
}

impl Victim for Pair<'_> {
    fn kill(&mut self) -> &'static str {
        self.turn += 1;
        if self.turn % 2 == 1 {
            self.scheduler.kill_now();
            self.scheduler = self.site.launch_scheduler();
            self.ready = false;
            return "scheduler";
        }
        self.executor.kill_now();
        // No build runs on without its executor.
        eventually("nothing is left running after the kill", || {
            process::running_of(&self.site.executor()).is_empty().then_some(())
        });
        self.executor = self.site.launch_executor();
        "executor"
    }

    fn api(&mut self) -> Option<&Server> {
        self.ready = self.ready || self.scheduler.is_ready();
        self.ready.then_some(&self.scheduler)
    }

    fn stop(self) {
        self.executor.stop();
        self.scheduler.stop();
        assert_eq!(process::processes_of(self.site.site.path()), Vec::<String>::new());
    }
}

#[test]
fn either_process_killed_at_many_positions_nothing_is_lost_and_nothing_done_twice() {
    const TEST: &str = "crash on Kafka at many positions";
    if !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let mut all = Vec::new();
    for (round, kills) in rounds().into_iter().enumerate() {
        let began = Instant::now();
        let covered = Covered::default();
        let survived: Vec<Survived> = std::thread::scope(|scope| {
            let covered = &covered;
            let sites = SITES
                .map(|seed| scope.spawn(move || one_site(broker, covered, seed + test_seed() + round as u64, kills)));
            sites.into_iter().map(|site| site.join().unwrap()).collect()
        });
        covered.tell("crash on Kafka", began.elapsed(), &survived);
        for who in ["scheduler", "executor"] {
            let killed: usize = survived.iter().map(|one| one.killed(who)).sum();
            assert!(killed >= kills / 2, "the {who} was killed {killed} times only");
        }
        all.extend(survived);
    }
    tell_all("crash on Kafka", &all);
}

fn one_site(broker: &Broker, covered: &Covered, seed: u64, kills: usize) -> Survived {
    let site = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let (scheduler, executor) = (site.launch_scheduler(), site.launch_executor());
    let witness = Witness::new(Box::new(site.log()));
    let victim = Pair { site: &site, scheduler, executor, ready: false, turn: 0 };
    survive(&site.site, victim, witness, covered, kills.div_ceil(SITES.len()) + 1, seed)
}
