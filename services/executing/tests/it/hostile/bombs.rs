//! Jobs that take what all builds share, under each keeper of limits that this host has.

use std::path::Path;
use std::process::Command;

use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildResult, CgroupSetting, Delegated, ExecutorConfig};

use super::host::python;
use super::table::{Attack, Seen, Table, contained};
use super::{MadeTrees, shell};
use crate::nap;
use crate::site::{self, Site, is_running};

const DISK: &str = "taking the disk";
const MEMORY: &str = "taking the memory";
const NUMBERS: &str = "taking all processes";
const OBJECTS: &str = "taking what the kernel counts by user";

/// A script that says `it begins`, and how the build must end: with one of these results. A script that gets what it
/// must not have says `got it`.
type Bomb = (Attack, &'static str, &'static [&'static str]);

const BOMBS: &[Bomb] = &[
    (
        contained(DISK, "many files"),
        "i=0; while :; do mkdir -p d$i; (cd d$i; seq 500 | xargs touch); i=$((i+1)); done",
        &["DISK_FULL"],
    ),
    (
        contained(DISK, "one large file"),
        "head -c 300000000 /dev/zero > large && echo got it; sleep 3",
        &["SUCCESS", "DISK_FULL"],
    ),
    (
        contained(DISK, "file that is allocated"),
        "fallocate -l 300M large && echo got it; sleep 3",
        &["SUCCESS", "DISK_FULL"],
    ),
    (
        contained(DISK, "many files of some size"),
        "i=0; while :; do head -c 3000000 /dev/zero > f$i; i=$((i+1)); sleep 0.02; done",
        &["DISK_FULL"],
    ),
    (
        contained(DISK, "home and state instead of the work tree"),
        "cd ../home; i=0; while :; do head -c 3000000 /dev/zero > f$i; i=$((i+1)); sleep 0.02; done",
        &["DISK_FULL"],
    ),
    (
        contained(MEMORY, "files in memory"),
        "for d in /tmp /var/tmp /run /dev/shm; do head -c 20000000 /dev/zero > $d/f && echo got it; done; true",
        &["SUCCESS"],
    ),
    (
        contained(MEMORY, "files in memory without content"),
        "for d in /tmp /dev/shm; do n=$(seq 20000 | (cd $d; xargs touch 2>&1) | grep -c space); echo refused $n; done",
        &["SUCCESS"],
    ),
    (
        contained(MEMORY, "one process"),
        "python3 -c 'x = [bytearray(8 << 20) for _ in range(200)]; print(\"got it\")'; sleep 3",
        &["FAILURE"],
    ),
    (
        contained(MEMORY, "many processes"),
        "for n in $(seq 20); do python3 -c 'import time; x = bytearray(60 << 20); time.sleep(20)' & done; wait",
        &["FAILURE"],
    ),
    (contained(NUMBERS, "many sleepers"), "for n in $(seq 400); do sleep NAP & done; sleep NAP", &["FAILURE"]),
    (
        contained(NUMBERS, "many threads"),
        "python3 -c 'import threading, time\nfor _ in range(400): threading.Thread(target=time.sleep, args=(30,)).start()'",
        &["FAILURE"],
    ),
    (
        contained(NUMBERS, "many open files"),
        "python3 -c 'import os, sys\nn = 0\ntry:\n    while True: os.dup(1); n += 1\nexcept OSError: print(\"got it\" if n > 70000 else \"refused at %d\" % n)'",
        &["SUCCESS"],
    ),
    (
        contained(DISK, "files that are open and deleted"),
        "python3 -c 'import os, time\nheld = []\nfor n in range(15):\n    held.append(open(\"u\", \"wb\")); os.unlink(\"u\"); held[-1].write(bytes(20 << 20)); held[-1].flush()\ntime.sleep(3); print(\"got it\")'",
        &["DISK_FULL"],
    ),
    (
        contained(MEMORY, "memory without a name"),
        "python3 -c 'import os, time\nheld = []\nfor n in range(20):\n    held.append(os.memfd_create(\"x\")); os.write(held[-1], bytes(40 << 20))\ntime.sleep(2); print(\"got it\")'",
        &["FAILURE"],
    ),
    (
        contained(MEMORY, "System V segments"),
        "python3 -c 'import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nfor n in range(20):\n    i = libc.shmget(0, 40 << 20, 0o1600); a = libc.shmat(i, None, 0); ctypes.memset(a, 1, 40 << 20); libc.shmdt(ctypes.c_void_p(a))\ntime.sleep(2); print(\"got it\")'",
        &["FAILURE"],
    ),
];

const WATCHES: Attack = contained(OBJECTS, "inotify instances");

pub fn attacks() -> Vec<Attack> {
    BOMBS.iter().map(|(attack, ..)| *attack).chain([WATCHES]).collect()
}

fn tight(config: &mut ExecutorConfig) {
    config.limits.memory_bytes = Some(500 << 20);
    config.limits.processes = Some(150);
    config.limits.disk_bytes = Some(60 << 20);
    config.limits.tmp_bytes = Some(4 << 20);
}

async fn explode(site: &Site, what: &'static str) {
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let mut table = Table::new(what, BOMBS.iter().map(|(attack, ..)| *attack).collect());
    for (number, (attack, script, results)) in BOMBS.iter().enumerate() {
        let nap = nap(800 + number as u32);
        let script =
            format!("exec 2>&1; cd {{{{ zuul.executor.work_root }}}}; echo it begins\n{}", script.replace("NAP", &nap));
        let config = site.commit("config", &[("run.yaml", &shell(&script))]);
        let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
        spec.playbooks[0].trusted = false;
        spec.job.timeouts.run = Some(60);
        let (outcome, text) = site.run(spec).await;
        let got = text.contains("| got it");
        let fine = results.contains(&outcome.result.as_str()) && !got && !is_running(&nap);
        let how: String =
            format!("{what}: {:?} {}", outcome.result, outcome.detail.unwrap_or_default()).chars().take(220).collect();
        table.saw(attack.name, Seen::stands(fine, how).if_tried(text.contains("it begins")));
    }
    let builds = site.folder.path().join("executor/builds");
    site::until("the builds' directories are gone", || std::fs::read_dir(&builds).unwrap().count() == 0).await;
    table.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_more_than_his_share_where_the_watch_keeps_limits() {
    let off = |config: &mut ExecutorConfig| {
        tight(config);
        config.cgroup = CgroupSetting::Off;
    };
    let Some(site) = Site::open("bombs under the watch", off).await else { return };
    explode(&site, "no control groups").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_more_than_his_share_where_the_kernel_keeps_limits() {
    let setting =
        std::env::var_os("GATELOG_TEST_CGROUP").map_or(CgroupSetting::Auto, |path| CgroupSetting::At(path.into()));
    in_groups(setting, "control groups").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_more_than_his_share_in_control_groups_of_version_1() {
    let name = format!("gatelog-attacks-{}", std::process::id());
    let mut made = MadeTrees(Vec::new());
    for place in ["memory", "pids"].map(|tree| Path::new("/sys/fs/cgroup").join(tree).join(&name)) {
        if let Err(error) = std::fs::create_dir(&place) {
            return println!("SKIPPED attacks in control groups of version 1: {}: {error}", place.display());
        }
        made.0.push(place);
    }
    in_groups(CgroupSetting::At(made.0[1].clone()), "control groups of version 1").await;
    for place in &made.0 {
        site::until("no group is left", || std::fs::remove_dir(place).is_ok()).await;
    }
}

async fn in_groups(setting: CgroupSetting, what: &'static str) {
    if let Err(reason) = Delegated::look(&setting) {
        return println!("SKIPPED attacks in {what}: {reason}");
    }
    let on = |config: &mut ExecutorConfig| {
        tight(config);
        config.cgroup = setting;
    };
    let Some(site) = Site::open(what, on).await else { return };
    explode(&site, what).await;
}

/// Whether this user can still have an inotify instance, outside of any build.
fn can_watch() -> bool {
    let program = "import ctypes, sys; sys.exit(ctypes.CDLL(None).inotify_init() < 0)";
    Command::new(python()).args(["-c", program]).status().unwrap().success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_takes_all_its_instances_of_inotify_leaves_some_to_others() {
    let Some(site) = Site::open("inotify", tight).await else { return };
    if gatelog_executing::kernel::inotify_instances(1).is_none() {
        return println!("SKIPPED inotify instances: this kernel does not count them for each namespace");
    }
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let script = "python3 -c 'import ctypes, time\nlibc = ctypes.CDLL(None)\nn = 0\nwhile libc.inotify_init() >= 0: n += 1\nprint(\"it has\", n, flush=True)\nopen(\"taken\", \"w\").close()\ntime.sleep(5)'";
    let config =
        site.commit("config", &[("run.yaml", &shell(&format!("cd {{{{ zuul.executor.work_root }}}}\n{script}")))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    assert!(can_watch());
    let running = tokio::spawn(site.executor.prepare(spec, site.workspace()).await.unwrap().run());
    let builds = site.folder.path().join("executor/builds");
    let taken = || std::fs::read_dir(&builds).unwrap().flatten().any(|build| build.path().join("work/taken").exists());
    site::until("it has taken all", taken).await;
    let can = can_watch();
    let outcome = running.await.unwrap();
    assert_eq!(outcome.result, BuildResult::Success);
    let mut table = Table::new("inotify", vec![WATCHES]);
    table.saw(WATCHES.name, Seen::stands(can, "whether another process of this user gets one"));
    assert!(can_watch(), "they are free again");
    table.close();
}
