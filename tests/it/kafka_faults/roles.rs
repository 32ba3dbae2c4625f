//! Each role in a process of its own, and each of them killed in turn.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use super::long;
use crate::harness::crash::{Covered, Victim, Witness, survive};
use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, eventually, host, process};

/// Every role there is, the one with the API last.
const ROLES: [&str; 6] = ["scheduler", "launcher", "connections", "merger", "executor", "web"];
/// How often each is killed.
const EACH: usize = 3;

/// A site that is six processes.
struct Six<'s> {
    site: &'s KafkaSite,
    running: BTreeMap<&'static str, Server>,
    ready: bool,
    turn: usize,
}

/// Where a role's process has its directory: the scheduler's is the site's.
fn directory(site: &KafkaSite, role: &str) -> PathBuf {
    if role == "scheduler" { site.site.path().to_path_buf() } else { site.site.path().join(role) }
}

fn launch(site: &KafkaSite, role: &'static str) -> Server {
    Server::launch(&directory(site, role), &["--role", role])
}

impl Victim for Six<'_> {
    fn kill(&mut self) -> &'static str {
        let role = ROLES[self.turn % ROLES.len()];
        self.turn += 1;
        self.running.get_mut(role).unwrap().kill_now();
        if role == "executor" {
            // No build runs on without its executor.
            eventually("nothing is left running after the kill", || {
                process::running_of(&directory(self.site, role)).is_empty().then_some(())
            });
        }
        self.running.insert(role, launch(self.site, role));
        self.ready = self.ready && role != "web";
        role
    }

    fn api(&mut self) -> Option<&Server> {
        let web = self.running.get_mut("web")?;
        self.ready = self.ready || web.is_ready();
        if self.ready { self.running.get("web") } else { None }
    }

    fn stop(self) {
        self.running.into_values().for_each(Server::stop);
        assert_eq!(process::processes_of(self.site.site.path()), Vec::<String>::new());
    }
}

#[test]
fn each_roles_process_is_killed_and_nothing_is_lost() {
    const TEST: &str = "each role's process killed";
    if !long(TEST) || !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let began = Instant::now();
    let site = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    for role in ROLES {
        let scheduler = role == "scheduler";
        let (shared, forge) = if scheduler { ("common", "forge") } else { ("../common", "../forge") };
        let toml = site.toml(role, shared, forge).replace("[web]\n", "[web]\nroot = \"http://ci.test\"\n");
        let directory = directory(&site, role);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("gatelog.toml"), toml).unwrap();
    }
    let running = ROLES.iter().map(|role| (*role, launch(&site, role))).collect();
    let covered = Covered::default();
    let six = Six { site: &site, running, ready: false, turn: 0 };
    let survived = survive(&site.site, six, Witness::new(Box::new(site.log())), &covered, EACH * ROLES.len(), 23);
    covered.tell(TEST, began.elapsed(), &[survived]);
}
