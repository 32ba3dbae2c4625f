//! A host without room, under the parts that prepare and run builds: nothing of it is a verdict on a change.

use std::process::Command;
use std::time::Duration;

use super::contains;
use crate::harness::projects::{CONFIG, PLAYBOOK, PROJECT};
use crate::harness::room::Room;
use crate::harness::{Server, Site, UNGOVERNED, eventually, host};

/// A job on a node of the local cloud.
const ON_A_NODE: &str = r"
- job:
    name: verdict
    run: playbooks/verdict.yaml
    nodeset:
      nodes:
        - name: here
          label: sandbox

- project:
    queue: integrated
    check:
      jobs: [verdict]
    gate:
      jobs: [verdict]
";

const NODE_PROJECT: &[(&str, &str)] =
    &[("zuul.yaml", ON_A_NODE), ("playbooks/verdict.yaml", PLAYBOOK), ("verdict", "good\n")];

fn site() -> Site {
    Site::new(&[("config", CONFIG), ("project", NODE_PROJECT)])
}

/// Waits until health is yellow for this reason, and gives what it says.
fn waits_for(server: &Server, reason: &str) -> String {
    eventually(&format!("health says {reason}"), || {
        let answer = server.get("/api/health")?;
        (answer.json()["state"] != "well" && answer.body.contains(reason)).then_some(answer.body)
    })
}

/// The builds of a change had one attempt each, and nothing that its author reads names a path of the server or the
/// system's own words.
fn nothing_is_said_of_it(site: &Site, server: &Server, name: &str) {
    let path = site.path().display().to_string();
    let builds = server.json(&format!("/api/tenant/test/builds?change=master/{name}"));
    let builds = builds.as_array().unwrap();
    assert!(!builds.is_empty());
    for build in builds {
        assert_eq!(
            (&build["result"], &build["error_detail"]),
            (&"SUCCESS".into(), &serde_json::Value::Null),
            "{build}"
        );
        let uuid = build["uuid"].as_str().unwrap();
        let leases = server.json(&format!("/api/tenant/test/build/{uuid}/leases"));
        assert_eq!(leases.as_array().map(Vec::len), Some(1), "one attempt: {leases}");
        let console = server.get(&format!("/api/tenant/test/build/{uuid}/console")).unwrap().body;
        assert!(!console.contains(&path) && !console.contains("No space left"), "{console}");
    }
    for report in site.reports("project", name) {
        assert!(!report.text.contains(&path) && !report.text.contains("No space left"), "{}", report.text);
    }
}

/// A change that is proposed and approved while the host has no room under a directory: it waits, health says why, and
/// once there is room both pipelines pass it.
fn waits(test: &str, room: &Room<'_>, site: &Site, reason: &str, take: impl Fn(), give: impl Fn()) {
    let server = room.start();
    server.wait_configured();
    site.push("project", "before", "before", &[("before.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "before"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    take();
    site.push("project", "during", "during", &[("during.txt", "a")]);
    site.approve("project", "during");
    println!("{test}: {}", waits_for(&server, reason));
    // For longer than attempts and their pauses took before.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(server.verdict("check", "project", "during"), None, "{}", server.log());
    give();
    for pipeline in ["check", "gate"] {
        assert_eq!(server.wait_verdict(pipeline, "project", "during"), "SUCCESS", "{pipeline}: {}", server.log());
    }
    nothing_is_said_of_it(site, &server, "during");
    eventually("all is well again", || {
        server.get("/api/health").filter(|answer| answer.json()["state"] == "well").map(drop)
    });
    server.stop();
}

/// The same, on a file system of its own under one directory.
fn full(directory: &str, options: &str, reason: &str, take: fn(&Room<'_>)) {
    let test = format!("no room under {directory} ({reason})");
    if !host::can_build(&test) {
        return;
    }
    let site = site();
    let Some(room) = Room::shared(&test, &site, &[directory], options) else { return };
    waits(&test, &room, &site, reason, || take(&room), || room.empty());
}

#[test]
fn a_full_disk_under_mirrors_judges_no_change() {
    full("mirrors", "size=4m", "server-disk-full", |room| room.fill());
}

#[test]
fn a_full_disk_under_nodes_judges_no_change() {
    full("nodes", "size=4m", "server-disk-full", |room| room.fill());
}

#[test]
fn a_full_disk_under_consoles_judges_no_change() {
    full("logs", "size=4m", "server-disk-full", |room| room.fill());
}

#[test]
fn a_full_disk_under_job_directories_judges_no_change() {
    full("builds", "size=16m", "server-disk-full", |room| room.fill());
}

#[test]
fn a_file_system_without_inodes_judges_no_change() {
    full("builds", "size=64m,nr_inodes=4000", "server-inodes-used-up", |room| room.use_up_inodes());
}

#[test]
fn a_read_only_file_system_judges_no_change() {
    let test = "a read-only file system";
    if !host::can_build(test) {
        return;
    }
    let site = site();
    let Some(room) = Room::new(test, &site, "nodes", 4) else { return };
    let nodes = site.path().join("nodes").display().to_string();
    let remount = |how: &str| room.run("mount", &["-o", &format!("remount,{how}"), &nodes]);
    if !remount("ro") || !remount("rw") {
        println!("SKIPPED {test}: this host lets nobody remount it");
        return;
    }
    waits(test, &room, &site, "server-read-only", || assert!(remount("ro")), || assert!(remount("rw")));
}

/// All that a server keeps lies on one small disk, which fills just as a change
/// is proposed and approved.
#[test]
fn a_disk_that_fills_as_a_change_is_approved_costs_the_change_nothing() {
    let test = "a disk that fills as a change is approved";
    if !host::can_build(test) {
        return;
    }
    let site = site();
    let all = ["builds", "nodes", "logs", "mirrors", "log", "projections", "keys"];
    let Some(room) = Room::shared(test, &site, &all, "size=24m") else { return };
    let server = room.start();
    server.wait_configured();
    site.push("project", "before", "before", &[("before.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "before"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    room.fill_but(60);
    site.push("project", "during", "during", &[("during.txt", "a")]);
    site.approve("project", "during");
    std::thread::sleep(Duration::from_millis(500));
    room.fill();
    println!("{test}: {}", waits_for(&server, "server-disk-full"));
    std::thread::sleep(Duration::from_secs(15));
    room.empty();
    for pipeline in ["check", "gate"] {
        assert_eq!(server.wait_verdict(pipeline, "project", "during"), "SUCCESS", "{pipeline}: {}", server.log());
    }
    nothing_is_said_of_it(&site, &server, "during");
    eventually("all is well again", || {
        server.get("/api/health").filter(|answer| answer.json()["state"] == "well").map(drop)
    });
    server.stop();
    for command in [["log", "verify"], ["replay", "verify"]] {
        let (code, out, err) = room.gatelog(&command);
        assert_eq!(code, 0, "{command:?}: {out}{err}");
    }
}

/// A job that itself writes more than the disk has is not begun again for ever: at last that is its own.
#[test]
fn a_job_that_fills_the_disk_of_its_host_whenever_it_runs_ends() {
    let test = "a job that fills its host's disk";
    if !host::can_build(test) {
        return;
    }
    let playbook = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - shell: head -c 64M /dev/zero > \
        {{ zuul.executor.work_root }}/large\n";
    let jobs = "- job:\n    name: greedy\n    attempts: 1\n    run: playbooks/greedy.yaml\n- project:\n    check:\n      \
        jobs: [greedy]\n";
    let files = [("zuul.yaml", jobs), ("playbooks/greedy.yaml", playbook)];
    let site = Site::new(&[("config", CONFIG), ("project", &files)]);
    let Some(room) = Room::new(test, &site, "builds", 16) else { return };
    let server = room.start();
    server.wait_configured();
    site.push("project", "greedy", "greedy", &[("greedy.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "greedy"), "FAILURE", "{}", server.log());
    let builds = server.json("/api/tenant/test/builds?change=master/greedy");
    println!("{test}: {}", builds[0]["error_detail"]);
    contains(builds[0]["error_detail"].as_str().unwrap_or_default(), &["no room"]);
    server.stop();
}

#[test]
fn file_descriptors_that_are_used_up_judge_no_change() {
    let test = "no file descriptors";
    if !host::can_build(test) {
        return;
    }
    let site = site();
    let server = site.start();
    server.wait_configured();
    site.push("project", "before", "before", &[("before.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "before"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    let pid = server.pid().to_string();
    let limit = |most: &str| {
        let limit = format!("--nofile={most}:");
        Command::new("prlimit").args(["--pid", &pid, &limit]).status().is_ok_and(|status| status.success())
    };
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let before = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let before = before.split_whitespace().next().unwrap().to_owned();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    // Enough for whoever asks how it is.
    if !limit(&(open + 4).to_string()) {
        println!("SKIPPED {test}: there is no prlimit here, or it may not set limits of others");
        return;
    }
    site.push("project", "during", "during", &[("during.txt", "a")]);
    site.approve("project", "during");
    println!("{test}: {}", waits_for(&server, "server-file-descriptors-used-up"));
    std::thread::sleep(Duration::from_secs(3));
    assert!(limit(&before));
    for pipeline in ["check", "gate"] {
        assert_eq!(server.wait_verdict(pipeline, "project", "during"), "SUCCESS", "{pipeline}: {}", server.log());
    }
    nothing_is_said_of_it(&site, &server, "during");
    server.stop();
}

#[test]
fn process_numbers_that_are_used_up_judge_no_change() {
    let test = "no process numbers";
    if !host::can_build(test) {
        return;
    }
    let Some(group) = Pids::new(test) else { return };
    let site = site();
    let server = site.start();
    server.wait_configured();
    site.push("project", "before", "before", &[("before.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "before"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    if !group.take(server.pid()) {
        println!("SKIPPED {test}: a process cannot be moved into a control group here");
        return server.stop();
    }
    group.allow("1");
    site.push("project", "during", "during", &[("during.txt", "a")]);
    site.approve("project", "during");
    println!("{test}: {}", waits_for(&server, "server-processes-used-up"));
    std::thread::sleep(Duration::from_secs(3));
    group.allow("max");
    for pipeline in ["check", "gate"] {
        assert_eq!(server.wait_verdict(pipeline, "project", "during"), "SUCCESS", "{pipeline}: {}", server.log());
    }
    nothing_is_said_of_it(&site, &server, "during");
    server.stop();
}

/// A control group that counts processes, gone when dropped.
struct Pids(std::path::PathBuf);

impl Pids {
    fn new(test: &str) -> Option<Pids> {
        let name = format!("gatelog-test-{}", std::process::id());
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let group = std::path::Path::new(root).join(&name);
            if std::fs::create_dir(&group).is_ok() {
                let group = Pids(group);
                if group.0.join("pids.max").exists() {
                    return Some(group);
                }
            }
        }
        println!("SKIPPED {test}: no control group that counts processes can be made here (root, the controller pids)");
        None
    }

    fn take(&self, pid: u32) -> bool {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }

    fn allow(&self, most: &str) {
        std::fs::write(self.0.join("pids.max"), most).unwrap();
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        // Processes that have just ended are in it for a moment yet.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn an_executor_with_a_disk_that_is_nearly_full_takes_no_builds_says_why_and_takes_them_again() {
    let test = "a governor of the disk";
    if !host::can_build(test) {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let text = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    let governed = text.replace(UNGOVERNED, &UNGOVERNED.replace("min-avail-hdd = 0", "min-avail-hdd = 50"));
    assert_ne!(governed, text);
    site.write("gatelog.toml", &governed);
    let Some(room) = Room::shared(test, &site, &["builds", "nodes", "logs"], "size=32m") else { return };
    std::fs::write(room.path().join("ballast"), vec![0; 20 << 20]).unwrap();
    let server = room.start();
    server.wait_configured();
    site.push("project", "change", "change", &[("change.txt", "a")]);
    println!("{test}: {}", waits_for(&server, "executor-disk-low"));
    let (code, out, err) = site.gatelog(&["components"]);
    println!("{out}");
    assert_eq!(code, 0, "{err}");
    contains(&out, &["takes no builds: executor-disk-low", "min-avail-hdd = 50", "make room", "0 slots"]);
    let (_, out, _) = room.gatelog(&["doctor", "--role", "executor"]);
    contains(&out, &["executor-disk-low"]);
    assert_eq!(server.verdict("check", "project", "change"), None);
    std::fs::remove_file(room.path().join("ballast")).unwrap();
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS", "{}", server.log());
    eventually("all is well again", || {
        server.get("/api/health").filter(|answer| answer.json()["state"] == "well").map(drop)
    });
    server.stop();
}
