//! Two schedulers, of which the first does not know that it has been replaced.

use super::cluster_of_day;
use super::stage::{Stage, launch, play};
use crate::harness::crash::Victim;
use crate::harness::kafka::SCHEDULER;
use crate::harness::{Server, eventually};

fn signal(server: &Server, signal: &str) {
    let pid = server.pid().to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

/// Whether both writers of a scheduler have claimed what they decide.
fn decides(server: &Server) -> Option<()> {
    let health: serde_json::Value = serde_json::from_str(&server.get("/api/health")?.body).ok()?;
    let parts = health["parts"].as_array()?;
    let runs = |writer: &&str| parts.iter().any(|part| part["part"] == **writer && part["state"] == "running");
    ["writer gate/0", "writer capacity/0"].iter().all(runs).then_some(())
}

/// The scheduler is paused, another takes over and decides; then the first goes on where it was.
fn replace(stage: &mut Stage<'_>) -> &'static str {
    let root = stage.site.site.path();
    let here = stage.scheduler.site().to_path_buf();
    let other = if here == root { root.join("other") } else { root.to_path_buf() };
    if other != root {
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("gatelog.toml"), stage.site.toml("other", "../common", "../forge")).unwrap();
        std::fs::copy(root.join("tenants.yaml"), other.join("tenants.yaml")).unwrap();
    }
    // One that is paused while it starts still has claims to make when it goes on, and then each ends the other.
    eventually("the scheduler holds all of its partitions", || stage.api().and_then(decides));
    signal(&stage.scheduler, "-STOP");
    let second = Server::launch(&other, &["--role", SCHEDULER]);
    let zombie = std::mem::replace(&mut stage.scheduler, second);
    stage.ready = false;
    stage.recovers("the scheduler was paused and another started");
    let said = zombie.log().len();
    signal(&zombie, "-CONT");
    assert_eq!(zombie.ends(), 9);
    let log = std::fs::read_to_string(here.join("server.log")).unwrap();
    assert!(log[said..].contains("another process has taken over"), "{}", &log[said..]);
    stage.recovers("the zombie ended");
    "scheduler"
}

#[test]
fn a_scheduler_that_was_paused_and_replaced_ends_and_says_why() {
    const TEST: &str = "a zombie scheduler";
    let Some(mut cluster) = cluster_of_day(TEST, 3) else { return };
    play(TEST, &mut cluster, replace, 2, launch);
}
