//! SIGKILL at many positions of the log: kinds of inputs and events, and moments drawn by lot.

use std::time::Instant;

use gatelog_log_embedded::{EmbeddedLog, ReaderOptions};

use crate::harness::crash::{Covered, Survived, Victim, Witness, rounds, survive, tell_all};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, eventually, host, process, test_seed};

/// Sites that tell the story beside each other, each under a lot of its own.
const SITES: [u64; 2] = [7, 1_789];

/// A site that is one process.
struct Alone<'s> {
    site: &'s Site,
    server: Server,
    ready: bool,
}

impl Victim for Alone<'_> {
    fn kill(&mut self) -> &'static str {
        self.server.kill_now();
        // Nothing runs on without its server.
        eventually("nothing is left running after the kill", || {
            process::running_of(self.site.path()).is_empty().then_some(())
        });
        self.server = self.site.launch();
        self.ready = false;
        "server"
    }

    fn api(&mut self) -> Option<&Server> {
        self.ready = self.ready || self.server.is_ready();
        self.ready.then_some(&self.server)
    }

    fn stop(self) {
        self.server.stop();
        assert_eq!(process::processes_of(self.site.path()), Vec::<String>::new());
    }
}

/// Reads the log of a site whose server was just started.
pub fn witness_of(site: &Site) -> Witness {
    eventually("the log can be read beside the server", || {
        let log = EmbeddedLog::open_reader(site.path().join("log"), ReaderOptions::default()).ok()?;
        Some(Witness::new(Box::new(log)))
    })
}

fn one_site(covered: &Covered, seed: u64, kills: usize) -> Survived {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.launch();
    let witness = witness_of(&site);
    let victim = Alone { site: &site, server, ready: false };
    survive(&site, victim, witness, covered, kills.div_ceil(SITES.len()) + 3, seed)
}

#[test]
fn killed_at_many_positions_nothing_is_lost_and_nothing_done_twice() {
    if !host::can_build("crash at many positions") {
        return;
    }
    let mut all = Vec::new();
    for (round, kills) in rounds().into_iter().enumerate() {
        let began = Instant::now();
        let covered = Covered::default();
        let survived: Vec<Survived> = std::thread::scope(|scope| {
            let covered = &covered;
            let sites =
                SITES.map(|seed| scope.spawn(move || one_site(covered, seed + test_seed() + round as u64, kills)));
            sites.into_iter().map(|site| site.join().unwrap()).collect()
        });
        covered.tell("crash", began.elapsed(), &survived);
        assert!(survived.iter().map(|one| one.kills.len()).sum::<usize>() >= kills);
        all.extend(survived);
    }
    tell_all("crash", &all);
}
