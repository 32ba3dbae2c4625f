//! A build of six playbooks with one command each, as gatelog's executor runs it, beside six bare `ansible-playbook`.
//!
//! Processor time is compared, of everything: bubblewrap, the SSH agent, Ansible, its workers and modules, and gatelog's
//! own process. Each side is measured in a process of its own that waits for all that is left of it, orphans too; the
//! time of a build is the difference between many builds and one, so what a site pays once (loading Ansible in the fork
//! server) is told apart.
//!
//! `GATELOG_ANSIBLE_PLAYBOOK` names the `ansible-playbook`; without it, or without bubblewrap, nothing is measured.
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::{children_cpu, process_cpu};
use gatelog_benches::table::{Table, time};
use gatelog_executing::spec::{
    Checkout, JobSpec, Nodeset, Phase, PipelineSpec, PlaybookSpec, ProjectName, RefSpec, SecretVars, Variables,
};
use gatelog_executing::{
    BuildControl, BuildResult, BuildSpec, Executor, ExecutorConfig, Purpose, Workspace, WorkspaceError,
};
use gatelog_record::{BuildId, BuildsetId, Value};

/// Builds of which the mean is taken; one more is run first.
const BUILDS: u8 = 3;
/// How often each side is measured, one after the other; the least counts: whatever else the machine does only adds.
const ROUNDS: u32 = 3;
/// What a usual job has: two before, two of its own, two after.
const COURSE: [Phase; 6] = [Phase::Pre, Phase::Pre, Phase::Run, Phase::Run, Phase::Post, Phase::Post];
const PLAYBOOK: &str = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - command: /bin/true\n";

/// What one side took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    /// All processors, all processes.
    cpu: Duration,
    /// gatelog's own process.
    own: Duration,
}

/// One repository with one playbook: what a mirror costs is measured elsewhere.
struct OnePlaybook;

impl Workspace for OnePlaybook {
    fn materialize(&self, _: &Checkout, place: &Path, _: Purpose, _: &BuildControl) -> Result<(), WorkspaceError> {
        let failed =
            |error: std::io::Error| WorkspaceError::Failed { project: "demo".into(), reason: error.to_string() };
        std::fs::create_dir_all(place).map_err(failed)?;
        std::fs::write(place.join("playbook.yaml"), PLAYBOOK).map_err(failed)
    }

    fn variables(
        &self,
        _: &Checkout,
        _: &str,
    ) -> Result<Option<std::collections::BTreeMap<String, Value>>, WorkspaceError> {
        Ok(None)
    }
}

fn spec(number: u8) -> BuildSpec {
    let checkout = Checkout {
        project: ProjectName::new("git.example.org", "demo"),
        name: "main".into(),
        commit: "0".repeat(40),
        ..Checkout::default()
    };
    let playbook = |phase: &Phase| PlaybookSpec {
        phase: *phase,
        checkout: checkout.clone(),
        path: "playbook.yaml".into(),
        // Base jobs are trusted, and run first and last.
        trusted: *phase != Phase::Run,
        nesting_level: 0,
        secrets: SecretVars::default(),
        tokens: Default::default(),
        roles: Vec::new(),
        cleanup: false,
    };
    let item = RefSpec {
        project: checkout.project.clone(),
        ref_name: "refs/heads/main".into(),
        branch: Some("main".into()),
        ..RefSpec::default()
    };
    BuildSpec {
        build: BuildId([number; 16]),
        attempt: 1,
        max_attempts: 1,
        buildset: BuildsetId([0; 16]),
        event_id: None,
        tenant: "demo".into(),
        pipeline: PipelineSpec { name: "check".into(), post_review: false },
        job: JobSpec { name: "demo".into(), voting: true, ..JobSpec::default() },
        items: vec![item.clone()],
        build_refs: vec![item.clone()],
        buildset_refs: vec![item.clone()],
        item,
        projects: Vec::new(),
        playbooks: COURSE.iter().map(playbook).collect(),
        nodeset: Nodeset::default(),
        variables: Variables::default(),
        include_vars: Vec::new(),
        artifacts: Vec::new(),
        ssh_keys: Vec::new(),
        sensitive: Default::default(),
    }
}

/// So many builds in an executor of their own.
fn builds(count: u8, ansible: &Path, fork_server: bool) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut config = ExecutorConfig::new(folder.path().join("executor"), folder.path().join("logs"));
    config.ansible_playbook = Some(ansible.to_owned());
    config.ansible_any_version = true;
    config.fork_server = fork_server;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let executor = Executor::open(config).await?;
        for number in 1..=count {
            let build = executor.prepare(spec(number), Arc::new(OnePlaybook)).await?;
            let outcome = build.run().await;
            if outcome.result != BuildResult::Success {
                return Err(format!("a build ended {:?}: {:?}", outcome.result, outcome.detail).into());
            }
        }
        Ok::<(), Failure>(())
    })?;
    Ok(())
}

/// The same playbooks, `count` times, by `ansible-playbook` alone, with the inventory gatelog would give it.
fn bare(count: u8, ansible: &Path) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let python = ansible.with_file_name("python3");
    let inventory = format!(
        "all:\n  hosts:\n    localhost: {{ansible_connection: local, ansible_python_interpreter: {}}}\n",
        python.display()
    );
    std::fs::write(folder.path().join("inventory.yaml"), inventory)?;
    std::fs::write(folder.path().join("playbook.yaml"), PLAYBOOK)?;
    std::fs::write(folder.path().join("ansible.cfg"), "[inventory]\nenable_plugins = yaml\n")?;
    for _ in 0..usize::from(count) * COURSE.len() {
        let mut command = Command::new(ansible);
        command.args(["-i", "inventory.yaml", "playbook.yaml"]).current_dir(folder.path()).stdout(Stdio::null());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8").env("HOME", folder.path());
        if !command.status()?.success() {
            return Err("ansible-playbook failed".into());
        }
    }
    Ok(())
}

/// In the measuring process: does it, waits for all that is left, and prints what it took.
fn measured(side: &str, count: u8, ansible: &Path) -> Result<(), Failure> {
    // What bubblewrap leaves behind comes to this process, and its time with it.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let began = Instant::now();
    match side {
        "bare" => bare(count, ansible)?,
        "fork-server" => builds(count, ansible, true)?,
        "alone" => builds(count, ansible, false)?,
        _ => return Err(format!("no side is called {side}").into()),
    }
    let wall = began.elapsed();
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => break,
        }
    }
    let (all, children) = (process_cpu()?, children_cpu()?);
    println!("COST {} {} {}", wall.as_nanos(), all.as_nanos(), (all.saturating_sub(children)).as_nanos());
    Ok(())
}

/// One side, so many builds, in a process of its own.
fn ask(side: &str, count: u8, ansible: &Path) -> Result<Cost, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .env("GATELOG_BENCH_SIDE", format!("{side} {count}"))
        .env("GATELOG_ANSIBLE_PLAYBOOK", ansible)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("COST ")).ok_or("a side has not said what it took")?;
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [wall, cpu, own] => Ok(Cost {
            wall: Duration::from_nanos(*wall),
            cpu: Duration::from_nanos(*cpu),
            own: Duration::from_nanos(*own),
        }),
        _ => Err("a side has not said what it took".into()),
    }
}

/// What one build of a side takes, and what comes once on top.
#[derive(Clone, Copy)]
struct Side {
    each: Cost,
    once: Duration,
}

/// One side, once.
fn side(side: &str, ansible: &Path) -> Result<Side, Failure> {
    let (one, many) = (ask(side, 1, ansible)?, ask(side, BUILDS + 1, ansible)?);
    let per = |many: Duration, one: Duration| many.saturating_sub(one) / u32::from(BUILDS);
    let each = Cost { wall: per(many.wall, one.wall), cpu: per(many.cpu, one.cpu), own: per(many.own, one.own) };
    Ok(Side { each, once: one.cpu.saturating_sub(each.cpu) })
}

/// All sides in turn, so that what the machine does beside them meets all alike; the least of each.
fn rounds(names: [&str; 3], ansible: &Path) -> Result<[Side; 3], Failure> {
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        let [one, two, three] = names.map(|name| side(name, ansible));
        all.push([one?, two?, three?]);
    }
    let least = |at: usize, of: fn(&Side) -> Duration| all.iter().filter_map(|round| round.get(at).map(of)).min();
    Ok([0, 1, 2].map(|at| Side {
        each: Cost {
            wall: least(at, |side| side.each.wall).unwrap_or_default(),
            cpu: least(at, |side| side.each.cpu).unwrap_or_default(),
            own: least(at, |side| side.each.own).unwrap_or_default(),
        },
        once: least(at, |side| side.once).unwrap_or_default(),
    }))
}

fn main() -> Result<(), Failure> {
    let Some(ansible) = std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").map(PathBuf::from) else {
        println!("SKIPPED executor: GATELOG_ANSIBLE_PLAYBOOK names no ansible-playbook");
        return Ok(());
    };
    if let Some(side) = std::env::var_os("GATELOG_BENCH_SIDE") {
        let side = side.to_string_lossy().into_owned();
        let (side, count) = side.split_once(' ').ok_or("no count")?;
        return measured(side, count.parse()?, &ansible);
    }
    let [bare, forked, alone] = rounds(["bare", "fork-server", "alone"], &ansible)?;
    let loading = forked.once;
    let [bare, forked, alone] = [bare.each, forked.each, alone.each];
    let mut table = Table::new("One build of six playbooks with one command each, beside six bare ansible-playbook");
    let ratio = |one: Duration, other: Duration| format!("{:.2}", one.as_secs_f64() / other.as_secs_f64());
    let mut row = |what: &str, cost: Duration, limit: Duration, aim: &str| {
        table.row(what, time(cost), time(limit), ratio(cost, limit), aim);
    };
    row("processor time, with the fork server", forked.cpu, bare.cpu, "at most 0.5");
    row("processor time, each playbook starts Ansible", alone.cpu, bare.cpu, "");
    row("by the clock, with the fork server", forked.wall, bare.wall, "");
    row("by the clock, each playbook starts Ansible", alone.wall, bare.wall, "");
    row("gatelog's own process", forked.own, Duration::from_millis(50), "at most 50 ms");
    table.note("once for an executor: opening it, and loading Ansible", time(loading));
    table.print();
    Ok(())
}
