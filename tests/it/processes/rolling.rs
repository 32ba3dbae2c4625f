//! An upgrade without a stop: every process of a site is drained, stopped and started again, one after the other, while
//! changes come in and builds run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value as Json;

use super::{of_kind, well};
use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, eventually, host, process};

/// Each process and its role, in the order in which they are replaced. What there may be more of is there twice.
const PROCESSES: [(&str, &str); 8] = [
    ("merger-1", "merger"),
    ("merger-2", "merger"),
    ("builder-1", "executor"),
    ("builder-2", "executor"),
    ("connections", "connections"),
    ("launcher", "launcher"),
    ("scheduler", "scheduler"),
    ("web", "web"),
];

/// The directory of a process: the scheduler's is the site's.
fn directory(site: &KafkaSite, name: &str) -> PathBuf {
    if name == "scheduler" { site.site.path().to_path_buf() } else { site.site.path().join(name) }
}

fn launch(site: &KafkaSite, (name, role): (&str, &str)) -> Server {
    let directory = directory(site, name);
    let server = Server::launch(&directory, &["--role", role]);
    eventually(&format!("{name} serves: {}", server.log()), || {
        let said = std::fs::read_to_string(directory.join("server.json")).ok()?;
        said.contains(&format!("\"pid\":{}", server.pid())).then_some(())
    });
    server
}

#[test]
fn every_process_is_replaced_one_after_the_other_and_nothing_is_lost_or_done_twice() {
    const TEST: &str = "a rolling restart";
    if !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let kafka = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    let site = &kafka.site;
    for (name, _) in PROCESSES {
        let (shared, forge) = if name == "scheduler" { ("common", "forge") } else { ("../common", "../forge") };
        let toml = kafka.toml(name, shared, forge).replace("[web]\n", "[web]\nroot = \"http://ci.test\"\n");
        std::fs::create_dir_all(directory(&kafka, name)).unwrap();
        std::fs::write(directory(&kafka, name).join("gatelog.toml"), toml).unwrap();
    }
    let mut running: BTreeMap<&str, Server> = PROCESSES.iter().map(|one| (one.0, launch(&kafka, *one))).collect();
    let mut api = running.remove("web").unwrap();
    eventually("the API answers", || api.is_ready().then_some(()));
    api.wait_configured();

    // A change comes in with each process that goes, and builds of the one before still run.
    let mut changes = Vec::new();
    for process in PROCESSES {
        let name = format!("change-{}", process.0);
        site.push("project", &name, &name, &[(&format!("{name}.txt"), "1\n")]);
        changes.push(name);
        let said = well(&directory(&kafka, process.0), &["stop", "--drain"]);
        assert!(said.contains("has ended"), "{said}");
        if process.0 == "web" {
            assert_eq!(api.ends(), 0);
            api = launch(&kafka, process);
            eventually("the API answers again", || api.is_ready().then_some(()));
        } else {
            assert_eq!(running.remove(process.0).unwrap().ends(), 0, "{}", process.0);
            running.insert(process.0, launch(&kafka, process));
        }
    }
    for name in &changes {
        assert_eq!(api.wait_verdict("check", "project", name), "SUCCESS", "{name}");
        eventually("it is reported", || (!site.verdicts("project", name).is_empty()).then_some(()));
    }
    // One goes through the gate, past all that were replaced.
    site.approve("project", &changes[0]);
    assert_eq!(api.wait_verdict("gate", "project", &changes[0]), "SUCCESS");
    api.wait_idle();

    // Nothing twice: each build had one attempt, each change one report, and the branch moved once.
    let again: Vec<Json> = of_kind(site, "gate.events", "gate.lease-wanted")
        .into_iter()
        .filter(|event| event["body"]["ask"]["owner"]["subject"]["attempt"] != 1)
        .collect();
    assert_eq!(again, Vec::<Json>::new(), "builds began again");
    assert_eq!(of_kind(site, "gate.events", "gate.build-finished").len(), changes.len() + 1);
    for name in &changes[1..] {
        assert_eq!(site.verdicts("project", name), ["check:success"], "{name}");
    }
    eventually("the gate's report is there", || (site.verdicts("project", &changes[0]).len() > 1).then_some(()));
    assert_eq!(site.verdicts("project", &changes[0]), ["check:success", "gate:success"]);
    assert_eq!(site.reflog("project").len(), 2);

    api.stop();
    running.into_values().for_each(Server::stop);
    for command in [["log", "verify"], ["replay", "verify"]] {
        well(site.path(), &command);
    }
    assert_eq!(process::processes_of(site.path()), Vec::<String>::new());
}
