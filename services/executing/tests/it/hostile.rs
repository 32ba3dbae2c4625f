//! Jobs that mean harm, with real Ansible in real bubblewrap.
//!
//! `GATELOG_TEST_CONSOLE_BYTES=1073741824` lets the loud job write a whole gigabyte.
//! `GATELOG_TEST_CGROUP=/sys/fs/cgroup/…` names a delegated directory where this process does not live in one alone.

mod bombs;
mod configurations;
mod console;
mod handed;
mod host;
mod probes;
mod processes;
mod settings;
mod table;
mod traps;

use std::path::Path;
use std::time::Duration;

use gatelog_executing::spec::Phase;
use gatelog_executing::{
    BuildOutcome, BuildResult, CgroupSetting, Delegated, ExecutorConfig, FailureCause, Keeper, PlaybookEnding,
    RetryCause, Wall,
};
use gatelog_record::Value;

use crate::site::{Site, is_running, play, unsandboxed, until};
use crate::{mark, marks, nap};

/// Kibibytes of memory this process ever had at once.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn shell(script: &str) -> String {
    let lines: String = script.lines().map(|line| format!("        {}\n", line.trim_end())).collect();
    play(&format!("    - shell: |\n{lines}      args: {{executable: /bin/bash}}\n"))
}

/// Jobs that take without end: memory, processes, disk.
const BOMBS: [(&str, &str, FailureCause, PlaybookEnding); 7] = [
    (
        "python3 -c 'import time; hog = [bytearray(8 << 20) for _ in range(60)]; time.sleep(NAP)' &\n\
         python3 -c 'import time; hog = [bytearray(8 << 20) for _ in range(60)]; time.sleep(NAP)' & wait; sleep NAP",
        "its limit is 600 MiB (629145600 bytes)",
        FailureCause::MemoryLimit,
        PlaybookEnding::MemoryLimit,
    ),
    (
        "trap '' TERM; bomb() { bomb | bomb & }; bomb; sleep NAP",
        "its limit is 150: let it start fewer",
        FailureCause::ProcessLimit,
        PlaybookEnding::ProcessLimit,
    ),
    (
        "cd {{ zuul.executor.work_root }}; n=0; \
         while head -c 4000000 /dev/zero > junk$n; do n=$((n + 1)); sleep 0.05; done; sleep NAP",
        "its limit is 40 MiB (41943040 bytes)",
        FailureCause::DiskLimit,
        PlaybookEnding::DiskLimit,
    ),
    // A file that nobody finds any more.
    (
        "cd {{ zuul.executor.work_root }}; exec 7>junk; rm junk; \
         while head -c 4000000 /dev/zero >&7; do sleep 0.05; done; sleep NAP",
        "its limit is 40 MiB (41943040 bytes)",
        FailureCause::DiskLimit,
        PlaybookEnding::DiskLimit,
    ),
    // Memory that is no process's own: files without a name, files in /tmp, segments.
    (
        "python3 -c 'import os, time\n\
         for _ in range(20):\n\
         \x20   hog = os.memfd_create(\"hog\"); os.set_inheritable(hog, True)\n\
         \x20   for _ in range(10): os.write(hog, bytes(4 << 20)); time.sleep(0.02)\n\
         time.sleep(NAP)'",
        "its limit is 600 MiB (629145600 bytes)",
        FailureCause::MemoryLimit,
        PlaybookEnding::MemoryLimit,
    ),
    (
        "for n in $(seq 100); do head -c 8000000 /dev/zero > /tmp/hog$n; sleep 0.02; done; sleep NAP",
        "its limit is 600 MiB (629145600 bytes)",
        FailureCause::MemoryLimit,
        PlaybookEnding::MemoryLimit,
    ),
    (SEGMENTS, "its limit is 600 MiB (629145600 bytes)", FailureCause::MemoryLimit, PlaybookEnding::MemoryLimit),
];

/// System V segments that nobody has attached any more.
const SEGMENTS: &str = "python3 -c 'import ctypes, time\n\
     libc = ctypes.CDLL(None)\n\
     libc.shmat.restype = ctypes.c_void_p\n\
     for _ in range(100):\n\
     \x20   one = libc.shmget(0, ctypes.c_size_t(8 << 20), 0o1600)\n\
     \x20   place = libc.shmat(one, None, 0)\n\
     \x20   ctypes.memset(place, 1, 8 << 20); libc.shmdt(ctypes.c_void_p(place)); time.sleep(0.02)\n\
     time.sleep(NAP)'";

fn tight(config: &mut ExecutorConfig) {
    config.limits.memory_bytes = Some(600 << 20);
    config.limits.processes = Some(150);
    config.limits.disk_bytes = Some(40 << 20);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Lets the bombs off, and checks that each ends with its reason and leaves nothing behind.
async fn bombs(site: &Site, number: u32) {
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let nap = nap(number);
    for (script, reason, cause, ending) in BOMBS {
        // It doubles: where nobody but a watch stands in its way it takes this host with it.
        if let (FailureCause::ProcessLimit, Err(reason)) = (&cause, site.executor.wall()) {
            println!("SKIPPED a fork bomb that doubles: {reason}");
            continue;
        }
        if script == SEGMENTS && matches!(site.executor.keeper(), Keeper::Watch(_)) && !is_root() {
            println!("SKIPPED segments without a control group: nobody but root can look for them");
            continue;
        }
        let files = [
            ("bomb.yaml", &*shell(&script.replace("NAP", &nap))),
            ("post.yaml", &*play(&mark("post"))),
            ("cleanup.yaml", &*play(&mark("cleanup"))),
        ];
        let config = site.commit("config", &files);
        let steps = [(Phase::Run, "bomb.yaml", 0), (Phase::Post, "post.yaml", 0), (Phase::Cleanup, "cleanup.yaml", 0)];
        let (outcome, text) = site.run(site.spec(&config, &app, &steps)).await;
        assert_eq!(outcome.result, BuildResult::Failure(cause), "{:?} {text}", outcome.detail);
        assert_eq!(outcome.playbooks[0].ending, ending, "{text}");
        let detail = outcome.detail.unwrap();
        assert!(detail.contains(reason) && text.contains(&detail), "{detail}\n{text}");
        let after: &[&str] = if cause == FailureCause::DiskLimit { &["cleanup"] } else { &["post", "cleanup"] };
        assert_eq!(marks(&text), after, "{text}");
        assert!(!is_running(&nap), "nothing is left running");
        println!("{cause:?}: {detail}");
    }
    let builds = site.folder.path().join("executor/builds");
    until("the builds' directories are gone", || std::fs::read_dir(&builds).unwrap().count() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_are_ended_by_the_watch_where_the_kernel_has_no_groups_for_us() {
    let off = |config: &mut ExecutorConfig| {
        tight(config);
        config.cgroup = CgroupSetting::Off;
    };
    let Some(site) = Site::open("bombs under the watch", off).await else { return };
    assert!(matches!(site.executor.keeper(), Keeper::Watch(reason) if reason.to_string().contains("switched off")));
    println!("the wall: {:?}", site.executor.wall());
    bombs(&site, 96).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_wants_every_process_number_meets_a_wall_it_cannot_take_down() {
    let off = |config: &mut ExecutorConfig| {
        config.cgroup = CgroupSetting::Off;
        // The watch must not come first.
        config.limits.processes = Some(1_000);
    };
    let Some(site) = Site::open("a wall of process numbers", off).await else { return };
    if site.executor.wall() != Ok(Wall::Namespace) {
        return println!("SKIPPED a wall of process numbers: here it is {:?}", site.executor.wall());
    }
    let host = || std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let before = host();
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let script = "import os, time\n\
        def tell(word, attempt):\n\
        \x20   try: print(word, attempt())\n\
        \x20   except OSError as error: print(word, error.strerror)\n\
        tell('it-may', lambda: open('/proc/sys/kernel/pid_max').read().strip())\n\
        tell('it-writes', lambda: open('/proc/sys/kernel/pid_max', 'w').write('9999999'))\n\
        tell('it-mounts', lambda: os.system('mount -t proc proc /tmp') and 'no')\n\
        tell('namespaces', lambda: os.system('unshare --user --pid --fork --mount-proc true') and 'no')\n";
    let config = site.commit(
        "config",
        &[
            ("try.py", script),
            (
                "run.yaml",
                &play(
                    "    - command: python3 {{ playbook_dir }}/try.py\n      register: found\n    - debug: {var: found.stdout_lines}\n",
                ),
            ),
        ],
    );
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    // Room for twice 1000 and 32 beyond the 300 that are given out only once.
    for expected in ["it-may 2332", "it-writes Read-only file system", "it-mounts no", "namespaces no"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert_eq!(host(), before, "the host's own limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_are_ended_by_the_kernel_where_it_lets_us() {
    let setting =
        std::env::var_os("GATELOG_TEST_CGROUP").map_or(CgroupSetting::Auto, |path| CgroupSetting::At(path.into()));
    bombs_in_groups(setting, 94).await;
}

/// Directories that an operator has made for gatelog, in the trees of version 1; removed when it is dropped.
struct MadeTrees(Vec<std::path::PathBuf>);

impl Drop for MadeTrees {
    fn drop(&mut self) {
        self.0.iter().for_each(|place| drop(std::fs::remove_dir(place)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_are_ended_by_the_kernel_in_directories_of_version_1_that_the_settings_name() {
    let name = format!("gatelog-test-{}", std::process::id());
    let places = ["memory", "pids"].map(|tree| Path::new("/sys/fs/cgroup").join(tree).join(&name));
    let mut made = MadeTrees(Vec::new());
    for place in places {
        if let Err(error) = std::fs::create_dir(&place) {
            return println!("SKIPPED bombs in named groups of version 1: {}: {error}", place.display());
        }
        made.0.push(place);
    }
    bombs_in_groups(CgroupSetting::At(made.0[1].clone()), 95).await;
    for place in &made.0 {
        until("no group is left", || std::fs::remove_dir(place).is_ok()).await;
    }
}

async fn bombs_in_groups(setting: CgroupSetting, number: u32) {
    let directory = match Delegated::look(&setting) {
        Ok(found) => found.directory,
        Err(reason) => return println!("SKIPPED bombs in control groups: {reason}"),
    };
    let on = |config: &mut ExecutorConfig| {
        tight(config);
        config.cgroup = setting;
    };
    let Some(site) = Site::open("bombs in control groups", on).await else { return };
    let Keeper::Kernel(delegated) = site.executor.keeper() else { panic!("{:?}", site.executor.keeper()) };
    println!("control groups of version {} in {}", delegated.version(), directory.display());
    assert!(delegated.memory && delegated.processes, "{delegated:?}");
    assert_eq!(site.executor.wall(), Ok(Wall::Group));
    bombs(&site, number).await;
    let logs = std::fs::read_dir(site.folder.path().join("logs")).unwrap();
    let own: Vec<String> = logs.map(|build| build.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert!(!own.is_empty());
    let groups = || {
        let entries = std::fs::read_dir(&directory).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // Other tests have builds there, too.
        names.filter(|name| name.starts_with("gatelog-build-") && own.iter().any(|build| name.contains(build))).count()
    };
    until("the builds' groups are gone", || groups() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_sandbox_the_watch_still_ends_bombs() {
    let off = |config: &mut ExecutorConfig| {
        unsandboxed(config);
        config.cgroup = CgroupSetting::Off;
        config.limits.processes = Some(60);
    };
    let Some(site) = Site::open("bombs without a sandbox", off).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let nap = nap(92);
    let script = format!("for n in $(seq 80); do sleep {nap} & done; sleep {nap}");
    let config = site.commit("config", &[("run.yaml", &shell(&script))]);
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::ProcessLimit), "{text}");
    until("all of it is gone", || !is_running(&nap)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_that_never_ends_is_ended() {
    let Some(site) = Site::open("an endless playbook", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let nap = nap(93);
    // A daemon of the old school that ignores what can be ignored and holds on to its output.
    let daemon = format!(
        "python3 - 2>&1 <<'END'\n\
         import os, signal, sys, time\n\
         for number in range(1, 65):\n\
         \x20   try: signal.signal(number, signal.SIG_IGN)\n\
         \x20   except (OSError, ValueError): pass\n\
         if os.fork(): os._exit(0)\n\
         os.setsid()\n\
         if os.fork(): os._exit(0)\n\
         os.environ.clear()\n\
         os.execlp('/bin/sleep', 'sleep', '{nap}')\n\
         END\n\
         trap '' TERM HUP INT; while true; do sleep 1; done"
    );
    let config = site.commit("config", &[("run.yaml", &shell(&daemon)), ("post.yaml", &play(&mark("post")))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Post, "post.yaml", 0)]);
    spec.job.timeouts.run = Some(5);
    let running = tokio::spawn(site.executor.prepare(spec, site.workspace()).await.unwrap().run());
    until("the daemon runs", || is_running(&format!("sleep\0{nap}"))).await;
    let outcome = running.await.unwrap();
    let text = crate::site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::TimedOut, "{text}");
    assert_eq!(marks(&text), ["post"], "{text}");
    assert!(!is_running(&nap), "nothing is left running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_may_be_loud_but_not_without_end() {
    const LINE: usize = 100_000_000;
    let bytes: u64 = std::env::var("GATELOG_TEST_CONSOLE_BYTES").map_or(48 << 20, |text| text.parse().unwrap());
    let loud = |config: &mut ExecutorConfig| config.limits.console_bytes = bytes;
    let Some(site) = Site::open("a loud console", loud).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    // Code of the job's in Ansible's own process writes to the console past all plugins.
    let lookup = format!(
        "import os, time\n\
         from ansible.plugins.lookup import LookupBase\n\
         def write(text):\n\
         \x20   while text: text = text[os.write(1, text):]\n\
         class LookupModule(LookupBase):\n\
         \x20   def run(self, terms, variables=None, **options):\n\
         \x20       if terms == ['line']:\n\
         \x20           for _ in range({LINE} // 100000): write(b'x' * 100000)\n\
         \x20           write(b'\\n' + b'bell\\a \\033]0;title\\033\\\\ \\377\\376 end\\n')\n\
         \x20           return []\n\
         \x20       while True: write(b'and another thing that nobody wanted to know\\n' * 1000)\n"
    );
    let loud = |what: &str| play(&format!("    - debug: {{msg: \"{{{{ query('loud', '{what}') }}}}\"}}\n"));
    let config = site.commit(
        "config",
        &[
            ("lookup_plugins/loud.py", &lookup),
            ("line.yaml", &loud("line")),
            ("text.yaml", &loud("text")),
            ("post.yaml", &play(&mark("post"))),
        ],
    );
    let steps = [(Phase::Pre, "line.yaml", 0), (Phase::Run, "text.yaml", 0), (Phase::Post, "post.yaml", 0)];
    let began = std::time::Instant::now();
    let mut spec = site.spec(&config, &app, &steps);
    spec.job.timeouts.run = Some(900);
    let build = site.executor.prepare(spec, site.workspace()).await.unwrap();
    let reader = build.console();
    let outcome = build.run().await;
    println!("a console of {bytes} bytes took {:?}; {} KiB of memory at most", began.elapsed(), peak_kib());
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::OutputLimit), "{:?}", outcome.detail);
    let detail = outcome.detail.clone().unwrap();
    assert!(detail.contains(&format!("limit of {bytes} bytes")), "{detail}");
    let size = std::fs::metadata(outcome.log_dir.join("job-output.txt")).unwrap().len();
    assert!(size > bytes - (1 << 20) && size < bytes + bytes / 4 + (1 << 20), "{size}");
    // Neither the line nor the console was ever in memory as a whole.
    assert!(peak_kib() < 200 << 10, "{} KiB", peak_kib());
    let start = String::from_utf8(reader.read_from(0, 200 << 10).unwrap().bytes).unwrap();
    let cut = LINE - (64 << 10);
    assert!(start.contains(&format!("xxx [{cut} bytes more of this line were cut]\n")));
    assert!(start.contains("bell\u{7} \u{1b}]0;title\u{1b}\\ \u{fffd}\u{fffd} end\n"));
    let end = reader.read_from(size - 3000, 3000).unwrap();
    let text = String::from_utf8(end.bytes).unwrap();
    assert!(end.ended && text.ends_with("Build ends: FAILURE\n") && text.contains(&detail), "{text}");
    assert_eq!(marks(&text), ["post"], "there is room for what comes after: {text}");
}

/// What a probe said.
fn said<'a>(text: &'a str, probe: &str) -> Vec<&'a str> {
    let before = format!("| localhost | {probe}: ");
    text.lines().filter_map(|line| Some(line.split_once(&before)?.1.trim())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_reaches_nothing_of_this_host() {
    let small = |config: &mut ExecutorConfig| config.limits.tmp_bytes = Some(1 << 20);
    let Some(site) = Site::open("an inquisitive job", small).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let secret = site.folder.path().join("keyring");
    std::fs::write(&secret, "canary").unwrap();
    let (folder, own) = (site.folder.path().display().to_string(), std::process::id());
    // Each probe prints what it got; what is refused prints nothing.
    let script = format!(
        r#"exec 2>/dev/null
        probe() {{ name=$1; shift; got=$("$@" | tr -d '\0' | head -c 200); echo "$name: $got"; }}
        probe shadow cat /etc/shadow
        probe keyring cat {folder}/keyring
        probe logs ls {folder}/logs
        probe builds sh -c 'ls {folder}/executor/builds | grep -v ^$(basename $(dirname {{{{ zuul.executor.work_root }}}}))'
        probe executor sh -c 'ls -A {folder}/executor | grep -v ^builds$ | grep -v ^plugins-'
        probe owner cat {{{{ zuul.executor.work_root }}}}/../owner.json
        probe host-process sh -c 'grep -lE "^(Tgid|Pid|PPid|NSpid):.*[[:space:]]{own}$" /proc/[0-9]*/status; test -e /proc/{own}/exe && readlink /proc/{own}/exe'
        probe kill sh -c 'kill -9 {own} && echo killed'
        probe init-root cat /proc/1/root/{folder}/keyring
        probe sysctl sh -c 'for f in kernel/core_pattern kernel/hostname vm/drop_caches kernel/panic; do cat /proc/sys/$f > /tmp/v && cat /tmp/v > /proc/sys/$f && echo wrote $f; done'
        probe sysrq sh -c 'echo h > /proc/sysrq-trigger && echo wrote'
        probe namespace unshare -Ur true
        probe userns sh -c 'unshare -U true && echo made'
        probe mount sh -c 'mount -t tmpfs none /tmp && echo mounted'
        probe raw-disk sh -c 'ls /dev/vd* /dev/sd* /dev/mem /dev/kmsg'
        probe root sh -c 'touch /here /dev/here && echo wrote'
        probe tmp sh -c 'head -c 2000000 /dev/zero > /tmp/f; stat -c %s /tmp/f'
        probe shm sh -c 'head -c 2000000 /dev/zero > /dev/shm/f; stat -c %s /dev/shm/f'
        probe core sh -c 'ulimit -c'
        probe caps sh -c 'grep CapEff /proc/self/status'
        probe config sh -c 'for f in $ANSIBLE_CONFIG {folder}/executor/plugins-*/*/*.py; do echo x >> $f && echo wrote; done'"#
    );
    let config = site.commit("config", &[("run.yaml", &shell(&script))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let nothing = [
        "shadow",
        "keyring",
        "logs",
        "builds",
        "executor",
        "owner",
        "host-process",
        "kill",
        "init-root",
        "sysctl",
        "sysrq",
        "namespace",
        "mount",
        "raw-disk",
        "root",
        "config",
    ];
    for probe in nothing {
        assert_eq!(said(&text, probe), [""], "{probe}\n{text}");
    }
    for probe in ["tmp", "shm"] {
        // A part of it may be taken by others.
        let size: u64 = said(&text, probe)[0].parse().unwrap();
        assert!((500_000..=1 << 20).contains(&size), "{probe}\n{text}");
    }
    assert_eq!((said(&text, "core"), said(&text, "caps")), (vec!["0"], vec!["CapEff:\t0000000000000000"]), "{text}");
}

/// What the hostile run leaves for the trusted post-run playbook and for the executor.
const TRAPS: &str = r#"set -e
root=$(dirname {{ zuul.executor.work_root }})
for kind in vars lookup filter callback connection; do
  mkdir -p $root/.ansible/plugins/$kind
  cat > $root/.ansible/plugins/$kind/trap.py <<'END'
import os
open(os.environ['ZUUL_JOBDIR'] + '/work/sprung', 'a').write(__file__ + chr(10))
END
done
mkdir -p $root/.ansible/collections/ansible_collections/trap
site=$root/home/.local/lib/python$({{ ansible_python_interpreter }} -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages
mkdir -p $site $root/home/.ssh
echo "import os; open(os.environ['ZUUL_JOBDIR'] + '/work/sprung', 'a').write('pth ' + str(os.getppid()) + chr(10))" > $site/trap.pth
echo 'ProxyCommand touch {{ zuul.executor.work_root }}/sprung' > $root/home/.ssh/config
ln -s VICTIM $root/home/.kube
cd {{ zuul.executor.work_root }}
mv logs moved
ln -s VICTIM logs
ln -s /etc/shadow src/shadow
ln -s VICTIM/precious $root/.ansible/playbook.json.new
rm -rf $root/.ansible/cp && ln -s VICTIM $root/.ansible/cp
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traps_for_those_who_come_later_do_not_spring() {
    let Some(site) = Site::open("a job that sets traps", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let victim = site.folder.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    for name in ["precious", "config", "job-output.json", "job-output.txt"] {
        std::fs::write(victim.join(name), "precious").unwrap();
    }
    let run = shell(&TRAPS.replace("VICTIM", &victim.to_string_lossy()));
    let post = play(&format!(
        "{}    - command: test -s {{{{ zuul.executor.log_root }}}}/job-output.json\n    - shell: cat {{{{ zuul.executor.work_root }}}}/sprung || echo no trap sprung\n",
        mark("post")
    ));
    let config = site.commit("config", &[("run.yaml", &run), ("post.yaml", &post)]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Post, "post.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    spec.playbooks[1].secrets = [("password".to_owned(), Value::from("canary"))].into_iter().collect();
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    assert_eq!(marks(&text), ["post"], "{text}");
    assert!(text.contains("| localhost | no trap sprung"), "{text}");
    for entry in std::fs::read_dir(&victim).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious", "{}", path.display());
    }
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 4);
    let console = site.executor.console(outcome.playbooks.first().map(|_| site_build(&outcome)).unwrap(), 1).unwrap();
    assert_eq!(console.read_from(0, 1 << 20).unwrap().bytes, text.as_bytes());
}

fn site_build(outcome: &BuildOutcome) -> gatelog_record::BuildId {
    outcome.log_dir.parent().unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_hands_over_is_taken_with_care() {
    let Some(site) = Site::open("a job that returns too much", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let cases = [
        ("print('{\"data\": {\"a\": \"' + 'x' * 5000000 + '\"}}')", "larger than 4194304 bytes"),
        ("print('{\"data\": ' + '[' * 100000 + ']' * 100000 + '}')", "values"),
        ("print('{\"data\": ' + '[' * 500 + ']' * 500 + '}')", "no valid JSON"),
        ("print('{\"data\": [' + '0,' * 200000 + '0]}')", "more than 100000 values"),
        ("print('not JSON')", "no valid JSON"),
    ];
    for (program, reason) in cases {
        let task = shell(&format!("python3 - > {{{{ zuul.executor.result_data_file }}}} <<'END'\n{program}\nEND"));
        let config = site.commit("config", &[("run.yaml", &task)]);
        let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
        assert_eq!(outcome.result, BuildResult::Success, "{text}");
        assert!(outcome.warnings.iter().any(|warning| warning.contains(reason)), "{reason}: {:?}", outcome.warnings);
        assert_eq!(outcome.returned.data, Value::Null);
        assert!(text.contains("WARNING: what the job returned is lost"), "{text}");
    }
    // A way to a file of the host, and results of the playbook where they once lay, which nobody could hold.
    let traps = shell(
        "ln -sf /etc/shadow {{ zuul.executor.result_data_file }}\n\
         root=$(dirname {{ zuul.executor.work_root }})\n\
         python3 -c 'print(\"{\\\"plays\\\": \" + \"[\" * 100000 + \"]\" * 100000 + \"}\")' > $root/.ansible/playbook.json\n\
         kill -9 -1",
    );
    let config = site.commit("config", &[("run.yaml", &traps)]);
    let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::Killed), "{text}");
    let warnings = outcome.warnings.join("\n");
    assert!(warnings.contains("what the job returned is lost") && !warnings.contains("nested more than"), "{warnings}");
    assert!(peak_kib() < 200 << 10, "{} KiB", peak_kib());
    assert!(!text.contains("root:"), "{text}");
    tokio::time::timeout(Duration::from_secs(60), site.executor.sweep()).await.unwrap().unwrap();
    assert!(Path::new("/etc/passwd").exists());
}
