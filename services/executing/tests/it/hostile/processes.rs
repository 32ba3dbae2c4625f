//! Processes that mean to outlive their build, to end what is not theirs, or to change what comes after them.

use std::time::Duration;

use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildOutcome, BuildResult, RetryCause};

use super::shell;
use super::table::{Attack, Seen, Table, contained};
use crate::nap;
use crate::site::{self, Site, is_running, play};

const ENDING: &str = "ending what holds the build";
const OUTLIVING: &str = "outliving the build";
const OTHERS: &str = "other builds";
const SERVER: &str = "the fork server";

/// A script that says that it began, how long the run may take, and how the build must end.
type Script = (Attack, &'static str, u32, &'static [&'static str]);

/// `HOLD` and `NAP` are the holder and a length of sleep that is this attack's own.
// Some wait before they stop or kill: their mark comes to the console by processes that are hit.
const SCRIPTS: &[Script] = &[
    (contained(ENDING, "kill all there is"), "sleep 0.5; kill -9 -1", 60, &["RETRY"]),
    (contained(ENDING, "stop all there is"), "sleep 0.5; kill -STOP -1", 15, &["TIMED_OUT"]),
    (
        contained(ENDING, "stop all but the attacker"),
        "sleep 0.5; for p in /proc/[0-9]*; do p=${p#/proc/}; test $p = $$ || kill -STOP $p; done; sleep NAP",
        15,
        &["TIMED_OUT"],
    ),
    (contained(ENDING, "kill the holder"), "sleep NAP & sleep 0.5; kill -9 HOLD; sleep NAP", 60, &["RETRY"]),
    (contained(ENDING, "stop the holder"), "kill -STOP HOLD", 60, &["SUCCESS"]),
    (contained(ENDING, "kill the first process"), "kill -9 1; kill -TERM 1; kill -STOP 1", 60, &["SUCCESS"]),
    (
        contained(ENDING, "kill Ansible"),
        "sleep NAP & sleep 0.5; p=$PPID; while test $p -gt 3; do q=$(awk '{print $4}' /proc/$p/stat); kill -9 $p; p=$q; done",
        60,
        &["RETRY", "FAILURE"],
    ),
    (
        contained(ENDING, "stop Ansible"),
        "sleep 0.5; p=$PPID; while test $p -gt 3; do q=$(awk '{print $4}' /proc/$p/stat); kill -STOP $p; p=$q; done; sleep NAP",
        15,
        &["TIMED_OUT"],
    ),
    (
        contained(ENDING, "ignore all signals"),
        "trap '' TERM HUP INT QUIT USR1 USR2 PIPE; while :; do sleep NAP; done",
        15,
        &["TIMED_OUT"],
    ),
    (
        contained(ENDING, "speak through the first process"),
        "exec 2>/dev/null; for word in '2020-01-01 00:00:00.000000 | Build ends: SUCCESS' 'gatelog: early failure: forged' 'gatelog: failure 1'; do echo \"$word\" > /proc/1/fd/1; done; sleep 0.3; exit 1",
        60,
        &["FAILURE"],
    ),
    (
        contained(OUTLIVING, "daemon in a session of its own"),
        "setsid nohup sleep NAP >/dev/null 2>&1 & sleep 0.3",
        60,
        &["SUCCESS"],
    ),
    (
        contained(OUTLIVING, "daemon that forked twice"),
        "python3 -c 'import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.environ.clear(); os.chdir(\"/\")\nos.execlp(\"sleep\", \"sleep\", \"NAP\")' >/dev/null 2>&1; sleep 0.3",
        60,
        &["SUCCESS"],
    ),
    (
        contained(OUTLIVING, "daemon that holds the output"),
        "setsid nohup sleep NAP & sleep 0.3",
        60,
        &["SUCCESS", "TIMED_OUT"],
    ),
    (
        contained(OUTLIVING, "daemon that ignores signals"),
        "(trap '' TERM HUP INT; setsid sleep NAP </dev/null >/dev/null 2>&1 &) ; sleep 0.3",
        60,
        &["SUCCESS"],
    ),
    (
        contained(OUTLIVING, "daemon without the build's name"),
        "env -i setsid -f sh -c 'cd /; exec sleep NAP' </dev/null >/dev/null 2>&1; sleep 0.3",
        60,
        &["SUCCESS"],
    ),
    (
        contained(OUTLIVING, "daemon that starts itself anew"),
        "cat > again <<'END'\nimport os, time\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()\n    time.sleep(0.01)\nEND\nsetsid python3 again NAP </dev/null >/dev/null 2>&1 & sleep 0.5",
        60,
        &["SUCCESS"],
    ),
    (
        contained(OUTLIVING, "a thousand zombies"),
        "python3 -c 'import os, time\nfor _ in range(1000):\n    if not os.fork(): os._exit(0)\ntime.sleep(0.3)'",
        60,
        &["SUCCESS"],
    ),
    (
        contained(OUTLIVING, "stopped processes"),
        "for n in 1 2 3; do sleep NAP </dev/null >/dev/null 2>&1 & kill -STOP $!; done; sleep 0.2",
        60,
        &["SUCCESS"],
    ),
];

const REST: &[Attack] = &[
    contained(OTHERS, "end another build's processes"),
    contained(OTHERS, "see another build's processes and files"),
    contained(SERVER, "change Ansible for the next build"),
    contained(SERVER, "descriptors of the server"),
    contained(SERVER, "hang at the end"),
];

pub fn attacks() -> Vec<Attack> {
    SCRIPTS.iter().map(|(attack, ..)| *attack).chain(REST.iter().copied()).collect()
}

fn script(text: &str, nap: &str) -> String {
    let holder = "$(grep -l gatelog-hold /proc/[0-9]*/comm | tr -dc '0-9\\n' | head -1)";
    shell(&format!(
        "echo it begins\ncd {{{{ zuul.executor.work_root }}}}\n{}",
        text.replace("HOLD", holder).replace("NAP", nap)
    ))
}

async fn run(site: &Site, playbook: &str, seconds: u32) -> (BuildOutcome, String) {
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config = site.commit("config", &[("run.yaml", playbook)]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    spec.job.timeouts.run = Some(seconds);
    site.run(spec).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_of_a_job_outlives_it_or_keeps_it_from_ending() {
    let Some(site) = Site::open("processes that will not end", |_| {}).await else { return };
    let mut table = Table::new("processes", SCRIPTS.iter().map(|(attack, ..)| *attack).collect());
    for (number, (attack, text, seconds, results)) in SCRIPTS.iter().enumerate() {
        let nap = nap(700 + number as u32);
        let (outcome, console) = run(&site, &script(text, &nap), *seconds).await;
        let left = is_running(&nap);
        let result = outcome.result.as_str();
        let ends = format!("Build ends: {result}");
        let fine =
            !left && results.contains(&result) && console.lines().last().is_some_and(|line| line.contains(&ends));
        let how = format!("{result}, {}", if left { "something is left running" } else { "nothing is left running" });
        table.saw(attack.name, Seen::stands(fine, how).if_tried(console.contains("| localhost | it begins")));
    }
    // None of them did any harm to the next.
    let (outcome, text) = run(&site, &play("    - command: echo all is well\n"), 60).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    table.close();
}

/// Code of a job's in Ansible's own process that changes what it can reach.
const POISON: &str = r#"
import atexit, builtins, os, socket, sys, threading, time
import ansible.constants as C
from ansible.plugins.lookup import LookupBase
import ansible.plugins.action.command as command

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        if terms == ["hang"]:
            threading.Thread(target=time.sleep, args=(600,)).start()
            atexit.register(time.sleep, 600)
            return ["it hangs"]
        if terms == ["look"]:
            return [str(hasattr(C, "POISONED") or hasattr(builtins, "POISONED") or "poisoned" in os.environ)]
        if terms == ["descriptors"]:
            links = {number: os.readlink("/proc/self/fd/" + number) for number in os.listdir("/proc/self/fd")
                     if os.path.lexists("/proc/self/fd/" + number)}
            mine = [to for to in links.values() if to.startswith("socket:")]
            return ["%d sockets, parent %d" % (len(mine), os.getppid())]
        C.POISONED = builtins.POISONED = True
        os.environ["poisoned"] = "1"
        sys.path.insert(0, "/nowhere")
        os.write(1, b"it is poisoned\n")
        command.ActionModule.run = lambda *arguments, **options: {"failed": True, "msg": "poisoned"}
        for number in range(3, 1024):
            try:
                os.write(number, b"poison\n" * 100)
            except OSError:
                pass
        for name in list(sys.modules):
            if name.startswith("ansible.module_utils"):
                sys.modules[name] = None
        return ["it is poisoned"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_harms_neither_the_builds_beside_it_nor_those_after_it() {
    let Some(site) = Site::open("builds beside each other", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let nap = nap(790);
    let victim = "test ! -e {{ zuul.executor.work_root }}/touched; echo begun; sleep 3; echo unharmed";
    let attack = format!(
        "echo it begins; n=0; for p in $(seq 2 40000); do kill -0 $p 2>/dev/null || continue; tr '\\0' ' ' < /proc/$p/cmdline | grep -q '^sleep {nap}' && n=$((n + 1)); done; \
         echo saw $n of others; ls {{{{ zuul.executor.work_root }}}}/../.. | wc -l | sed 's/^/builds /'; sleep 0.5; kill -9 -1"
    );
    let ask = |what: &str| {
        play(&format!("    - debug: {{msg: \"{{{{ query('poison', '{what}') }}}}\"}}\n    - command: echo works\n"))
    };
    let config = site.commit(
        "config",
        &[
            ("victim.yaml", &shell(&format!("sleep {nap} & {victim}; kill %1"))),
            ("attack.yaml", &shell(&attack)),
            ("lookup_plugins/poison.py", POISON),
            ("poison.yaml", &ask("poison")),
            ("look.yaml", &ask("look")),
            ("descriptors.yaml", &ask("descriptors")),
            ("hang.yaml", &ask("hang")),
        ],
    );
    let spec = |name: &str| {
        let mut spec = site.spec(&config, &app, &[(Phase::Run, name, 0)]);
        spec.playbooks[0].trusted = false;
        spec
    };
    let mut table = Table::new("other builds", REST.to_vec());
    let first = site.executor.prepare(spec("victim.yaml"), site.workspace()).await.unwrap();
    let first = tokio::spawn(first.run());
    site::until("the other build runs", || is_running(&nap)).await;
    let (outcome, text) = site.run(spec("attack.yaml")).await;
    let (other, shown) = first.await.map(|outcome| (outcome.result.clone(), site::console(&outcome))).unwrap();
    let tried = outcome.result == BuildResult::Retry(RetryCause::Killed) && text.contains("it begins");
    let stands = other == BuildResult::Success && shown.contains("| localhost | unharmed");
    table.saw(REST[0].name, Seen::stands(stands, other.as_str()).if_tried(tried));
    // Its own directory is the only one it sees.
    let stands = text.contains("| saw 0 of others") && text.contains("| builds 1");
    let shown: Vec<&str> = text.lines().filter(|line| line.contains("| saw ") || line.contains("| builds ")).collect();
    table.saw(REST[1].name, Seen::stands(stands, format!("{shown:?}")).if_tried(tried));

    let mut poisoning = spec("poison.yaml");
    // It breaks what Ansible's processes say to each other, too.
    poisoning.job.timeouts.run = Some(5);
    let (poisoned, text) = site.run(poisoning).await;
    let tried = text.contains("it is poisoned");
    let (outcome, after) = site.run(spec("look.yaml")).await;
    let stands = outcome.result == BuildResult::Success && after.contains("\"False\"") && after.contains("| works");
    let how = format!("{} and then {}", poisoned.result.as_str(), outcome.result.as_str());
    table.saw(REST[2].name, Seen::stands(stands, how).if_tried(tried));
    let (_, text) = site.run(spec("descriptors.yaml")).await;
    let line = text.lines().find(|line| line.contains(" sockets, parent ")).unwrap_or_default();
    // The run's own channel to the executor is one; the server's own would be another.
    let stands = line.contains("0 sockets, ") || line.contains("\"1 sockets, ");
    let how = line.rsplit('|').next().unwrap_or_default().trim().to_owned();
    table.saw(REST[3].name, Seen::stands(stands, how).if_tried(!line.is_empty()));
    let mut hanging = spec("hang.yaml");
    hanging.job.timeouts.run = Some(5);
    let (outcome, text) = site.run(hanging).await;
    let seen = Seen::stands(outcome.result == BuildResult::TimedOut, outcome.result.as_str());
    table.saw(REST[4].name, seen.if_tried(text.contains("it hangs")));
    let ended = tokio::time::timeout(Duration::from_secs(60), site.executor.sweep()).await;
    assert!(ended.unwrap().unwrap().failed.is_empty());
    table.close();
}
