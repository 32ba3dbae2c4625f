//! The processes under load: one with all roles on the embedded log, or one for each role on a Kafka broker.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use gatelog_benches::Failure;
use gatelog_benches::measure::threads_cpu;
use gatelog_benches::server::{Server, cpu_of, memory_of};
use gatelog_kafka_broker::Broker;
use gatelog_log_kafka::{KafkaConfig, KafkaLog, KafkaPresence};
use rustix::process::{Pid, Signal, kill_process};

use crate::forge::{HOST, LASTING, QUICK, lasting, quick};
use crate::null::Null;

/// The roles, each in a process of its own. Whoever is asked comes last.
const ROLES: [&str; 5] = ["scheduler", "launcher", "merger", "connections", "web"];
/// Null workers, and their slots.
const WORKERS: usize = 20;

/// A process of gatelog.
pub struct Part {
    /// What it is called in the figures.
    pub name: String,
    /// It.
    pub server: Server,
}

/// Where builds go.
pub enum Workers {
    /// To null executors in this process.
    Null(Null),
    /// To the server's own executor, which runs a program that only waits.
    Own(#[expect(dead_code, reason = "what is dropped with it ends")] Waiting),
}

/// The programs that wait in place of builds. They outlive the server, which is killed, and a run that left them behind
/// would slow down the next one: whoever looks for the processes of a build looks at all there are.
pub struct Waiting(String);

impl Waiting {
    /// How long they wait at most, in seconds: like that of nobody else on this machine.
    fn new() -> Waiting {
        Waiting(format!("7000.{}", std::process::id()))
    }

    fn processes(&self) -> impl Iterator<Item = Pid> {
        let line = format!("sleep\0{}\0", self.0);
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let waits =
            move |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text == line.as_bytes());
        pids.filter(waits).filter_map(Pid::from_raw)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for pid in self.processes() {
            // One that ended meanwhile need not be killed.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// What is under load.
pub struct Stage {
    /// gatelog's processes; the one with the API is the last.
    pub parts: Vec<Part>,
    /// Where builds go.
    pub workers: Workers,
    /// The broker, if there is one.
    pub broker: Option<(Broker, u32)>,
}

fn tenants() -> String {
    let projects: Vec<String> = (0..LASTING).map(lasting).chain((0..QUICK).map(quick)).collect();
    format!(
        "- tenant:\n    name: load\n    source:\n      forge:\n        config-projects: [config]\n        untrusted-projects: [{}]\n",
        projects.join(", ")
    )
}

fn connection(forge: &Path) -> String {
    format!(
        "[connection.forge]\ndriver = \"git\"\nroot = \"{}\"\ncanonical-hostname = \"{HOST}\"\npoll-ms = 60000\n",
        forge.display()
    )
}

/// The Python that has Ansible: the executor asks whatever stands in Ansible's place about it.
fn python() -> Result<String, String> {
    let playbook =
        std::env::var("GATELOG_ANSIBLE_PLAYBOOK").map_err(|_| "GATELOG_ANSIBLE_PLAYBOOK is not set".to_owned())?;
    let text = std::fs::read_to_string(&playbook).map_err(|error| format!("no Ansible at {playbook}: {error}"))?;
    let first =
        text.lines().next().and_then(|line| line.strip_prefix("#!")).and_then(|line| line.split_whitespace().next());
    first.map(str::to_owned).ok_or_else(|| format!("{playbook} does not say which Python it is for"))
}

/// Where the process that watches the forge looks for word of pushes.
pub fn notify(root: &Path, kafka: bool) -> PathBuf {
    let process = if kafka { root.join("connections") } else { root.join("site") };
    process.join("notify").join("forge")
}

impl Stage {
    /// One process with all roles, on the embedded log.
    ///
    /// # Errors
    /// Why it does not come up. `Err` in the `Ok`: what is missing to try at all.
    pub fn embedded(binary: &Path, root: &Path, slots: usize) -> Result<Result<Stage, String>, Failure> {
        let python = match python() {
            Ok(python) => python,
            Err(missing) => return Ok(Err(missing)),
        };
        let dir = root.join("site");
        std::fs::create_dir_all(&dir)?;
        let (waits, waiting) = (dir.join("ansible-playbook"), Waiting::new());
        std::fs::write(
            &waits,
            format!(
                "#!{python} -ISs\nimport os, sys\nif any('lasting' in word for word in sys.argv):\n    \
                 os.execv('/bin/sleep', ['sleep', '{}'])\nos._exit(0)\n",
                waiting.0
            ),
        )?;
        std::fs::set_permissions(&waits, std::fs::Permissions::from_mode(0o755))?;
        std::fs::write(dir.join("tenants.yaml"), tenants())?;
        std::fs::write(
            dir.join("gatelog.toml"),
            format!(
                "[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = {slots}\nunsandboxed = true\nansible-any-version = true\nmin-avail-hdd = 0\nmin-avail-inodes = 0\nmin-avail-mem = 0\nload-multiplier = 0\ncgroup = \"off\"\n\
                 job-memory = \"none\"\njob-pids = \"none\"\njob-disk = \"none\"\nansible-playbook = \"{}\"\n{}",
                waits.display(),
                connection(&root.join("forge"))
            ),
        )?;
        let server = Server::start(binary, &dir, &[])?;
        let parts = vec![Part { name: "all roles".into(), server }];
        Ok(Ok(Stage { parts, workers: Workers::Own(waiting), broker: None }))
    }

    /// A process for each role, on one Kafka broker.
    ///
    /// # Errors
    /// As [`Stage::embedded`].
    pub fn kafka(binary: &Path, root: &Path, slots: usize, lasting: usize) -> Result<Result<Stage, String>, Failure> {
        let broker = match Broker::start() {
            Ok(broker) => broker,
            Err(missing) => return Ok(Err(missing)),
        };
        let settings = |role: &str| {
            format!(
                "name = \"{role}\"\n[web]\nlisten = \"127.0.0.1:0\"\nroot = \"http://bench.example\"\n\
                 [shared]\ndir = \"{}\"\n[log.kafka]\nbrokers = \"{}\"\nreplication = 1\nmin-insync = 1\n{}",
                root.join("shared").display(),
                broker.brokers(),
                connection(&root.join("forge"))
            )
        };
        std::fs::create_dir_all(root.join("shared"))?;
        for role in ROLES {
            let dir = root.join(role);
            std::fs::create_dir_all(&dir)?;
            std::fs::write(dir.join("gatelog.toml"), settings(role))?;
            std::fs::write(dir.join("tenants.yaml"), tenants())?;
        }
        let done = Command::new(binary).args(["log", "init", "--dir"]).arg(root.join(ROLES[0])).output()?;
        if !done.status.success() {
            return Err(format!("log init: {}", String::from_utf8_lossy(&done.stderr)).into());
        }
        let config = KafkaConfig { brokers: broker.brokers(), replication: 1, min_insync: 1, ..KafkaConfig::default() };
        let presence = Arc::new(KafkaPresence::open(config.clone())?);
        let log = Arc::new(KafkaLog::open(config)?);
        let mut parts = Vec::new();
        for role in ROLES {
            let server = Server::start(binary, &root.join(role), &["--role", role])?;
            parts.push(Part { name: role.to_owned(), server });
        }
        let each = u32::try_from(slots.div_ceil(WORKERS))?;
        let workers = Workers::Null(Null::start(log, presence, WORKERS, each, lasting)?);
        let pid = std::fs::read_to_string(broker.data().with_file_name("pid"))?.trim().parse()?;
        Ok(Ok(Stage { parts, workers, broker: Some((broker, pid)) }))
    }

    /// The process with the API.
    pub fn web(&mut self) -> Result<&mut Server, Failure> {
        Ok(&mut self.parts.last_mut().ok_or("nothing runs")?.server)
    }

    /// What each process has taken of the machine so far; this one, with all who load, is the last.
    pub fn taken(&self) -> Result<Vec<Taken>, Failure> {
        let own = self.parts.iter().map(|part| (part.name.clone(), part.server.pid()));
        let broker = self.broker.iter().map(|(_, pid)| ("the broker".to_owned(), *pid));
        let loading = std::iter::once((LOADING.to_owned(), std::process::id()));
        own.chain(broker).chain(loading).map(|(name, pid)| Taken::of(name, pid)).collect()
    }
}

/// What those who load are called: forge, workers and pages.
pub const LOADING: &str = "this benchmark";

/// What a process has taken of the machine.
pub struct Taken {
    /// What it is called.
    pub name: String,
    /// Of the processors, its children apart.
    pub own: Duration,
    /// Of the processors, its children that ended.
    pub children: Duration,
    /// Memory now.
    pub memory: u64,
    /// Of the processors, its threads of one name together.
    pub threads: BTreeMap<String, Duration>,
}

impl Taken {
    fn of(name: String, pid: u32) -> Result<Taken, Failure> {
        let (own, children) = cpu_of(pid)?;
        Ok(Taken { name, own, children, memory: memory_of(pid)?.0, threads: threads_cpu(pid)? })
    }
}

/// What everybody on this machine has taken of the processors since it was started.
pub fn machine() -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> =
        text.lines().next().unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // Idle and waiting for disks are the fourth and the fifth; guests are in the first already.
    let busy: u64 =
        fields.iter().take(8).enumerate().filter(|(number, _)| !matches!(number, 3 | 4)).map(|(_, t)| t).sum();
    Ok(Duration::from_millis(busy * 10))
}
