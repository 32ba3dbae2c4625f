//! From a push to the start of `ansible-playbook`, in a real server on the embedded log, and what a build costs
//! gatelog itself.
//!
//! Where the time goes is told by the log: each step is an event with its moment. Beside it: a bare `git push`, a bare
//! start of the same program, and a bare `ansible-playbook` of the same playbook.
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use gatelog_benches::Failure;
use gatelog_benches::measure::{Spread, scratch};
use gatelog_benches::server::{binary, cpu_of};
use gatelog_benches::table::{Table, time, times};
use gatelog_driver_git::{Forge, ForgeConfig};
use serde_json::Value as Json;

const HOST: &str = "git.bench.example";
const PROJECT: &str = "service";
const ROUNDS: usize = 15;
const BUILDS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

const PIPELINES: &str = "
- pipeline:
    name: check
    manager: independent
    trigger: {forge: [{event: change-proposed}]}
    success: {forge: {}}
    failure: {forge: {}}
- job: {name: base, parent: null, timeout: 120}
";
const JOBS: &str = "
- job: {name: bench, run: playbooks/bench.yaml}
- project: {check: {jobs: [bench]}}
";
const PLAYBOOK: &str = "
- hosts: localhost
  gather_facts: false
  tasks:
    - command: 'true'
";

type Nanos = i128;

fn clock() -> Nanos {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as Nanos)
}

fn git(directory: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "safe.directory=*", "-c", "gc.auto=0"]).args(arguments);
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "Dana Developer").env(format!("GIT_{who}_EMAIL"), "dana@example.org");
    }
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// A site's directory with a forge of two projects and a developer's clone of one.
struct Site {
    dir: tempfile::TempDir,
    pushed: usize,
}

impl Site {
    fn new() -> Result<Site, Failure> {
        let site = Site { dir: tempfile::tempdir_in(scratch(env!("CARGO_TARGET_TMPDIR")))?, pushed: 0 };
        let root = site.dir.path();
        std::fs::write(
            root.join("tenants.yaml"),
            format!(
                "- tenant:\n    name: bench\n    source:\n      forge:\n        config-projects: [config]\n        untrusted-projects: [{PROJECT}]\n"
            ),
        )?;
        std::fs::write(
            root.join("gatelog.toml"),
            format!(
                "[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = 2\nansible-any-version = true\nmin-avail-hdd = 0\nmin-avail-inodes = 0\nmin-avail-mem = 0\nload-multiplier = 0\nansible-playbook = \"{}\"\n\
                 [connection.forge]\ndriver = \"git\"\nroot = \"forge\"\ncanonical-hostname = \"{HOST}\"\n",
                site.wrapper().display()
            ),
        )?;
        let mut config = ForgeConfig::new(root.join("forge"), HOST);
        config.notify = Some(root.join("notify").join("forge"));
        let forge = Forge::open(config)?;
        let own = [("zuul.yaml", JOBS), ("playbooks/bench.yaml", PLAYBOOK), ("readme", "one\n")];
        for (name, files) in [("config", &[("zuul.yaml", PIPELINES)][..]), (PROJECT, &own[..])] {
            forge.create(name, "master")?;
            let clone = site.clone_of(name);
            for (path, content) in files {
                let path = clone.join(path);
                std::fs::create_dir_all(path.parent().ok_or("a file without a directory")?)?;
                std::fs::write(path, content)?;
            }
            let remote = forge.path(name)?;
            git(&clone, &["init", "--quiet", "--initial-branch=master"])?;
            git(&clone, &["remote", "add", "origin", &remote.to_string_lossy()])?;
            git(&clone, &["add", "--all"])?;
            git(&clone, &["commit", "--quiet", "--message", "First"])?;
            git(&clone, &["push", "--quiet", "origin", "master"])?;
        }
        Ok(site)
    }

    fn clone_of(&self, project: &str) -> PathBuf {
        self.dir.path().join("developer").join(project)
    }

    fn wrapper(&self) -> PathBuf {
        self.dir.path().join("ansible-playbook")
    }

    /// A program in `ansible-playbook`'s place that says when it starts; it then ends, or becomes the real one.
    fn write_wrapper(&self, ansible: &Ansible, real: bool) -> Result<(), Failure> {
        let go_on = match real {
            true => format!("os.execv({0:?}, [{0:?}, {1:?}] + sys.argv[1:])\n", ansible.python, ansible.playbook),
            false => "os._exit(0)\n".to_owned(),
        };
        let text = format!(
            "#!{} -ISs\nimport os, sys, time\nos.write(1, b'exec-at %d\\n' % time.time_ns())\n{go_on}",
            ansible.python
        );
        std::fs::write(self.wrapper(), text)?;
        std::fs::set_permissions(self.wrapper(), std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Commits a change; pushing is apart, so that it can be timed.
    fn commit(&mut self) -> Result<String, Failure> {
        self.pushed += 1;
        let name = format!("change-{}", self.pushed);
        let clone = self.clone_of(PROJECT);
        git(&clone, &["checkout", "--quiet", "-B", &name, "origin/master"])?;
        std::fs::write(clone.join("readme"), format!("{name}\n"))?;
        git(&clone, &["commit", "--quiet", "--all", "--message", &name])?;
        Ok(name)
    }

    fn records(&self, binary: &Path, stream: &str) -> Result<Vec<Json>, Failure> {
        let output =
            Command::new(binary).args(["log", "cat", stream, "--json"]).env("GATELOG_DIR", self.dir.path()).output()?;
        let text = String::from_utf8(output.stdout)?;
        if !output.status.success() {
            return Err(format!("log cat: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }
}

/// The Ansible there is.
struct Ansible {
    playbook: String,
    python: String,
}

impl Ansible {
    fn find() -> Result<Ansible, String> {
        let playbook = std::env::var("GATELOG_ANSIBLE_PLAYBOOK").unwrap_or_else(|_| "ansible-playbook".into());
        let text = std::fs::read_to_string(&playbook)
            .map_err(|_| format!("no Ansible at {playbook}: set GATELOG_ANSIBLE_PLAYBOOK, as ./dev does"))?;
        let python = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("#!"))
            .and_then(|line| line.split_whitespace().next())
            .ok_or_else(|| format!("{playbook} does not say which Python it is for"))?;
        Ok(Ansible { python: python.to_owned(), playbook: playbook.clone() })
    }
}

/// A server under way; killed when dropped.
struct Server {
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("waited in vain: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(site: &Site, binary: &Path) -> Result<Server, Failure> {
    let log = std::fs::File::create(site.dir.path().join("server.log"))?;
    let child = Command::new(binary)
        .args(["serve", "--dir"])
        .arg(site.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    let mut server = Server { child };
    eventually("the server is up", || {
        std::fs::read_to_string(site.dir.path().join("server.json")).ok().filter(|text| text.contains("url"))
    })
    .map_err(|error| match server.child.try_wait() {
        Ok(Some(status)) => {
            let said = std::fs::read_to_string(site.dir.path().join("server.log")).unwrap_or_default();
            format!("the server ended with {status}: {said}").into()
        }
        _ => error,
    })?;
    eventually("the configuration is in force", || {
        site.records(binary, "gate.events").ok()?.iter().any(|event| named(event, "layout-activated")).then_some(())
    })?;
    Ok(server)
}

fn named(event: &Json, kind: &str) -> bool {
    event["kind"].as_str().is_some_and(|found| found.rsplit('.').next() == Some(kind))
}

/// Consoles below the site's logs that were not there before.
fn consoles(site: &Site) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![site.dir.path().join("logs")];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => pending.push(path),
                path if path.ends_with("job-output.txt") => found.push(path),
                _ => {}
            }
        }
    }
    found
}

/// When the program in this console began, once the build is over.
fn exec_at(console: &Path) -> Option<Nanos> {
    let text = std::fs::read_to_string(console).ok()?;
    text.contains("Build ends").then_some(())?;
    text.lines().find_map(|line| line.split_once("exec-at ")?.1.trim().parse().ok())
}

/// One change: pushes it and waits until its build is over. Gives the moments of push, of its end and of the exec.
fn one(site: &mut Site) -> Result<(Nanos, Nanos, Nanos), Failure> {
    let name = site.commit()?;
    let before = consoles(site);
    let began = clock();
    git(&site.clone_of(PROJECT), &["push", "--quiet", "origin", &format!("HEAD:refs/for/master/{name}")])?;
    let pushed = clock();
    let exec = eventually("the build runs", || {
        consoles(site).iter().filter(|path| !before.contains(path)).find_map(|path| exec_at(path))
    })?;
    // The rest of the build must not stand in the way of the next.
    std::thread::sleep(Duration::from_millis(400));
    Ok((began, pushed, exec))
}

fn moment(record: &Json, field: &str) -> Option<Nanos> {
    let text = record[field].as_str()?;
    // 2026-11-21T14:03:00.123456Z: only times within one day are compared.
    let clock = text.split_once('T')?.1.trim_end_matches('Z');
    let mut parts = clock.split(':');
    let (hours, minutes): (i128, i128) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds: f64 = parts.next()?.parse().ok()?;
    Some((hours * 3_600 + minutes * 60) * 1_000_000_000 + (seconds * 1e9) as i128)
}

fn of_day(nanos: Nanos) -> Nanos {
    nanos % (24 * 3_600 * 1_000_000_000)
}

fn spread(all: impl Iterator<Item = Nanos>) -> Spread {
    Spread::new(all.map(|nanos| Duration::from_nanos(nanos.max(0) as u64)).collect())
}

fn triggers(site: &mut Site, binary: &Path, table: &mut Table, ansible: &Ansible) -> Result<(), Failure> {
    site.write_wrapper(ansible, false)?;
    let server = start(site, binary)?;
    one(site)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(one(site)?);
    }
    // Bare: a push to a repository nobody watches, and a start of the same program in the same kind of sandbox.
    let bare = site.dir.path().join("bare.git");
    git(site.dir.path(), &["init", "--quiet", "--bare", &bare.to_string_lossy()])?;
    let (mut pushes, mut starts, mut sandboxed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let name = site.commit()?;
        let began = clock();
        git(
            &site.clone_of(PROJECT),
            &["push", "--quiet", &bare.to_string_lossy(), &format!("HEAD:refs/for/master/{name}")],
        )?;
        pushes.push(clock() - began);
        let began = clock();
        starts.push(said_at(&mut Command::new(site.wrapper()))? - began);
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--unshare-all", "--share-net", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
        bwrap.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--"]).arg(site.wrapper());
        let began = clock();
        sandboxed.push(said_at(&mut bwrap)? - began);
    }
    let intake = site.records(binary, "intake")?;
    let gate = site.records(binary, "gate.events")?;
    let capacity = site.records(binary, "capacity.events")?;
    drop(server);

    // The steps of each round, by the moments at which they were decided.
    let steps: [(&str, &str, &[Json], &str); 8] = [
        ("the push is on the intake", "forge-event", &intake, "observed_at"),
        ("facts asked for", "changes-wanted", &gate, "recorded_at"),
        ("facts there: enqueued", "item-enqueued", &gate, "recorded_at"),
        ("merged in memory: prepared", "prepared", &gate, "recorded_at"),
        ("job graph frozen", "frozen", &gate, "recorded_at"),
        ("lease wanted", "lease-wanted", &gate, "recorded_at"),
        ("lease granted", "lease-granted", &capacity, "recorded_at"),
        ("start told", "build-started", &gate, "recorded_at"),
    ];
    let mut took: BTreeMap<usize, Vec<Nanos>> = BTreeMap::new();
    let (mut pushed_took, mut noticed, mut trigger_to_exec, mut push_to_exec) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (began, pushed, exec) in &rounds {
        let (began, pushed, exec) = (of_day(*began), of_day(*pushed), of_day(*exec));
        let mut at = began;
        for (index, (_, kind, records, field)) in steps.iter().enumerate() {
            let found = records
                .iter()
                .filter(|record| named(record, kind))
                .filter_map(|record| moment(record, field))
                .find(|found| *found >= at.min(exec) - 1_000_000 && *found <= exec + 2_000_000_000);
            let Some(found) = found else { return Err(format!("no {kind} in a round").into()) };
            took.entry(index).or_default().push(found - at);
            if index == 0 {
                trigger_to_exec.push(exec - found);
                noticed.push(found - pushed);
            }
            at = found;
        }
        took.entry(steps.len()).or_default().push(exec - at);
        pushed_took.push(pushed - began);
        push_to_exec.push(exec - began);
    }
    let whole = spread(trigger_to_exec.into_iter());
    let (bare_push, bare_start) = (spread(pushes.into_iter()).median(), spread(sandboxed.into_iter()).median());
    let both = |spread: &Spread| (time(spread.median()), time(spread.at(0.95)));
    let ratio = |one: Duration, other: Duration| times(one.as_secs_f64() / other.as_secs_f64().max(1e-9));
    let (middle, high) = both(&whole);
    table.row(
        "trigger on the intake to exec, median",
        middle,
        time(bare_start),
        ratio(whole.median(), bare_start),
        "100 ms",
    );
    table.row("the same, 95 of 100", high, String::new(), String::new(), "500 ms");
    table.row("the same, shortest", time(whole.at(0.0)), String::new(), String::new(), "");
    let push = spread(pushed_took.into_iter());
    table.row("git push with its hook", time(push.median()), time(bare_push), ratio(push.median(), bare_push), "");
    let all = spread(push_to_exec.into_iter());
    table.row(
        "begin of the push to exec",
        time(all.median()),
        time(bare_push + bare_start),
        ratio(all.median(), bare_push + bare_start),
        "",
    );
    table.note("bare start of the program without a sandbox", time(spread(starts.into_iter()).median()));
    table.note("end of the push to the intake (negative counts as 0)", time(spread(noticed.into_iter()).median()));
    for (index, moments) in took {
        let name = steps.get(index).map_or("… to exec", |(name, ..)| *name);
        let spread = spread(moments.into_iter());
        table.note(&format!("… {name}"), format!("{} (95 of 100: {})", time(spread.median()), time(spread.at(0.95))));
    }
    Ok(())
}

/// Runs a program that says when it started.
fn said_at(command: &mut Command) -> Result<Nanos, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let said = text.lines().find_map(|line| line.strip_prefix("exec-at "));
    Ok(said.ok_or_else(|| format!("it said {text:?} {}", String::from_utf8_lossy(&output.stderr)))?.trim().parse()?)
}

fn costs(site: &mut Site, binary: &Path, table: &mut Table, ansible: &Ansible) -> Result<(), Failure> {
    site.write_wrapper(ansible, true)?;
    let server = start(site, binary)?;
    one(site)?;
    std::thread::sleep(Duration::from_secs(1));
    let pid = server.child.id();
    let own = cpu_of(pid)?.0;
    let began = Instant::now();
    for _ in 0..BUILDS {
        one(site)?;
    }
    let busy = began.elapsed();
    let own_after = cpu_of(pid)?.0;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(4));
    let idle = (cpu_of(pid)?.0 - own_after).as_secs_f64() / began.elapsed().as_secs_f64();
    drop(server);

    let place = site.dir.path().join("bare-playbook.yaml");
    std::fs::File::create(&place)?.write_all(PLAYBOOK.as_bytes())?;
    let mine = std::process::id();
    let before = cpu_of(mine)?.1;
    for _ in 0..BUILDS {
        let status = Command::new(&ansible.playbook)
            .args(["-i", "localhost,", "-c", "local"])
            .args(["-e", &format!("ansible_python_interpreter={}", ansible.python)])
            .arg(&place)
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err("the bare playbook failed".into());
        }
    }
    let bare = (cpu_of(mine)?.1 - before) / BUILDS as u32;
    let own = (own_after - own) / BUILDS as u32;
    let share = |part: Duration| format!("{:.1} %", part.as_secs_f64() / bare.as_secs_f64() * 100.0);
    // What its children take is not told: bubblewrap ends before the system has counted what ran inside.
    table.row("processor time a build: gatelog itself", time(own), time(bare), share(own), "");
    table.note("processor of an idle server", format!("{:.1} %", idle * 100.0));
    table.note("wall time a build, push to next push", time(busy / BUILDS as u32));
    Ok(())
}

fn main() -> Result<(), Failure> {
    let ansible = match Ansible::find() {
        Ok(ansible) => ansible,
        Err(why) => {
            println!("SKIPPED trigger: {why}");
            return Ok(());
        }
    };
    if !Command::new("bwrap").args(["--ro-bind", "/", "/", "--unshare-pid", "true"]).status().is_ok_and(|s| s.success())
    {
        println!("SKIPPED trigger: bubblewrap makes no sandbox here");
        return Ok(());
    }
    let binary = binary()?;
    let mut site = Site::new()?;
    let mut table = Table::new(
        "From a push to the start of ansible-playbook, one server on the embedded log (limit: bare git push; bare start in a sandbox)",
    );
    triggers(&mut site, &binary, &mut table, &ansible)?;
    table.print();
    let mut table = Table::new("What a build costs (limit: bare ansible-playbook of the same playbook)");
    costs(&mut site, &binary, &mut table, &ansible)?;
    table.print();
    Ok(())
}
