//! A site whose log is on one real Apache Kafka, in two processes: `scheduler` (gate, capacity, forge, API) serves the
//! site's own directory, `executor` (merger, executor) one below it. Either can be stopped, killed and started again
//! alone: [`KafkaSite::launch_scheduler`] and [`KafkaSite::launch_executor`] give a [`Server`] each, which is a process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gatelog_kafka_broker::{Broker, shared};
use gatelog_log_kafka::{KafkaConfig, KafkaLog};

use super::{Files, HOST, Server, Site, UNGOVERNED, eventually};

/// The roles of the process that serves the site's own directory.
pub const SCHEDULER: &str = "connections,scheduler,launcher,web";
/// The roles of the other one.
pub const EXECUTOR: &str = "merger,executor";

static SITES: AtomicU32 = AtomicU32::new(0);

/// The broker of this test binary; says why there is none in the line that is counted.
pub fn broker(test: &str) -> Option<&'static Broker> {
    match shared() {
        Ok(broker) => Some(broker),
        Err(why) => {
            println!("SKIPPED {test}: no Kafka: {why}");
            None
        }
    }
}

/// A site on Kafka. Its topics are there; no process of it runs.
pub struct KafkaSite {
    /// The site; its directory is that of the scheduler's process, and all else is below it.
    pub site: Site,
    /// What its topics begin with.
    pub prefix: String,
    brokers: String,
    /// Replicas of each record, and how many of them acknowledge it.
    copies: (u32, u32),
    /// What stands under `[log.kafka.properties]`.
    properties: String,
}

impl KafkaSite {
    /// A site with these projects on a broker.
    pub fn new(broker: &Broker, projects: &[(&str, Files<'_>)]) -> KafkaSite {
        KafkaSite::on(broker.brokers(), (1, 1), projects)
    }

    /// A site with these projects on these brokers: how many keep each record, and how many acknowledge it.
    pub fn on(brokers: String, copies: (u32, u32), projects: &[(&str, Files<'_>)]) -> KafkaSite {
        let made = KafkaSite::drafted(brokers, copies, String::new(), projects);
        made.init();
        made
    }

    /// The same without its topics, and with these lines under `[log.kafka.properties]`.
    pub fn drafted(
        brokers: String,
        copies: (u32, u32),
        properties: String,
        projects: &[(&str, Files<'_>)],
    ) -> KafkaSite {
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("it-{}-{number}.", std::process::id());
        let made = KafkaSite { site: Site::new(projects), prefix, brokers, copies, properties };
        made.site.write("gatelog.toml", &made.toml("scheduler", "common", "forge"));
        std::fs::create_dir_all(made.executor()).unwrap();
        made.site.write("executor/gatelog.toml", &made.toml("executor", "../common", "../forge"));
        made
    }

    /// Makes its topics.
    pub fn init(&self) {
        let (code, out, err) = self.site.gatelog(&["log", "init"]);
        assert_eq!(code, 0, "{out}{err}");
    }

    /// The configuration of a process of this name; its paths are seen from its own directory.
    pub fn toml(&self, name: &str, shared: &str, forge: &str) -> String {
        let KafkaSite { brokers, prefix, copies: (replication, min_insync), properties, .. } = self;
        format!(
            "name = \"{name}\"\n[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = 2\nansible-any-version = true\n{UNGOVERNED}[log]\nrung-every = 25\n\
             [log.kafka]\nbrokers = \"{brokers}\"\nprefix = \"{prefix}\"\nreplication = {replication}\n\
             min-insync = {min_insync}\n[log.kafka.properties]\n{properties}[shared]\ndir = \"{shared}\"\n\
             [connection.forge]\ndriver = \"git\"\nroot = \"{forge}\"\ncanonical-hostname = \"{HOST}\"\npoll-ms = 300\n"
        )
    }

    /// The directory of the process that merges and runs builds.
    pub fn executor(&self) -> PathBuf {
        self.site.path().join("executor")
    }

    /// Starts the process with the API, without waiting for it.
    pub fn launch_scheduler(&self) -> Server {
        Server::launch(self.site.path(), &["--role", SCHEDULER])
    }

    /// Starts the process that merges and runs builds, without waiting for it.
    pub fn launch_executor(&self) -> Server {
        Server::launch(&self.executor(), &["--role", EXECUTOR])
    }

    /// Starts the process with the API with this in its environment, without waiting for it.
    pub fn launch_scheduler_with(&self, variable: (&str, &str)) -> Server {
        Server::launch_with(self.site.path(), &["--role", SCHEDULER], variable)
    }

    /// The same of the process that merges and runs builds.
    pub fn launch_executor_with(&self, variable: (&str, &str)) -> Server {
        Server::launch_with(&self.executor(), &["--role", EXECUTOR], variable)
    }

    /// Starts both and waits until both serve.
    pub fn start(&self) -> (Server, Server) {
        let (mut scheduler, executor) = (self.launch_scheduler(), self.launch_executor());
        eventually("the API answers", || scheduler.is_ready().then_some(()));
        self.wait_executor(&executor);
        (scheduler, executor)
    }

    /// Waits until the process that merges and runs builds serves.
    pub fn wait_executor(&self, executor: &Server) {
        eventually(&format!("the executor serves: {}", executor.log()), || {
            std::fs::read_to_string(self.executor().join("server.json"))
                .is_ok_and(|said| said.contains(&format!("\"pid\":{}", executor.pid())))
                .then_some(())
        });
    }

    /// A reader of the log beside those who write it.
    pub fn log(&self) -> KafkaLog {
        self.log_within(KafkaConfig::default().timeout)
    }

    /// The same, whose reads wait for so long.
    pub fn log_within(&self, timeout: Duration) -> KafkaLog {
        let config = KafkaConfig {
            brokers: self.brokers.clone(),
            prefix: self.prefix.clone(),
            replication: self.copies.0,
            min_insync: self.copies.1,
            timeout,
            ..KafkaConfig::default()
        };
        KafkaLog::open_reader(config).unwrap()
    }
}
