//! One real Apache Kafka for tests and demonstrations: its jars, and one broker on loopback.
//!
//! The jars are had once by their Maven coordinates, with Maven's own settings, into
//! `${GATELOG_CACHE:-~/.cache/gatelog}/kafka-<version>`. The broker is broker and controller in one (KRaft), listens on
//! ports of its own, keeps its data in a temporary directory and ends with whoever started it, however that one ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};

/// Which Kafka, unless `GATELOG_KAFKA_VERSION` names another.
pub const KAFKA_VERSION: &str = "4.1.1";

/// How long a broker may take to come up.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long brokers may take to answer a metadata request.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// Of what Kafka has to say only what went wrong.
const QUIET: &str = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";

/// Runs the broker until its standard input ends, which it does when whoever started it ends, by whatever cause; then
/// removes what it leaves behind, unless it is to be started again.
const KEEPER: &str = r#"
dir=$1; shift
"$@" </dev/null >>"$dir/broker.log" 2>&1 &
broker=$!
echo $broker >"$dir/pid"
cat >/dev/null
kill -9 $broker 2>/dev/null
wait $broker 2>/dev/null
[ -e "$dir/keep" ] || rm -rf "$dir"
"#;

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    dir: PathBuf,
    jars: PathBuf,
    port: u16,
    /// The ports of further listeners, by their names.
    further: BTreeMap<String, u16>,
    keeper: Option<Child>,
    /// Whether this process started the broker, and removes its directory.
    own: bool,
}

/// What a broker has beyond what every one of them has.
#[derive(Clone, Debug, Default)]
pub struct Further {
    /// Listeners, by name with their protocols: `("LOGIN", "SASL_SSL")`.
    pub listeners: Vec<(String, String)>,
    /// Lines for `server.properties`.
    pub properties: String,
    /// Users who log in with SCRAM-SHA-512, and their passwords.
    pub users: Vec<(String, String)>,
}

/// Names the broker that `./dev test` started for all test binaries, as the program `gatelog-kafka-broker` prints it:
/// `<host>:<port> <directory>`.
pub const SHARED_BROKER: &str = "GATELOG_TEST_BROKER";

/// The broker that tests share: the one that [`SHARED_BROKER`] names, else one that is started at the first call and
/// ends with this process. Each caller gives its topics a prefix of its own.
///
/// # Errors
/// Why there is none: no Java, no Maven, no jars, or it did not start.
pub fn shared() -> Result<&'static Broker, &'static str> {
    static SHARED: OnceLock<Result<Broker, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| match std::env::var(SHARED_BROKER) {
        Ok(named) => Broker::named(&named),
        Err(_) => Broker::start(),
    });
    shared.as_ref().map_err(String::as_str)
}

impl Broker {
    /// Starts a broker with an empty disk. Dropping it ends it and removes its disk.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start() -> Result<Broker, String> {
        Broker::start_with(|_| Ok(Further::default()))
    }

    /// A broker that another process started and will end.
    fn named(named: &str) -> Result<Broker, String> {
        let parsed = named.split_once(' ').and_then(|(address, dir)| {
            let port = address.strip_prefix("127.0.0.1:")?.parse().ok()?;
            Some((port, PathBuf::from(dir)))
        });
        let (port, dir) = parsed.ok_or_else(|| {
            format!("{SHARED_BROKER} is {named:?}, not \"127.0.0.1:<port> <directory>\": unset it to start a broker")
        })?;
        Ok(Broker { dir, jars: PathBuf::new(), port, further: BTreeMap::new(), keeper: None, own: false })
    }

    /// Starts one that has more, as somebody says who is told its directory. That goes when it ends.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start_with(further: impl FnOnce(&Path) -> Result<Further, String>) -> Result<Broker, String> {
        let jars = jars()?;
        let dir = std::env::temp_dir().join(format!("gatelog-kafka-{}-{}", std::process::id(), token()?));
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let further = further(&dir)?;
        let mut ports = free_ports(2 + further.listeners.len())?.into_iter();
        let (Some(port), Some(controller)) = (ports.next(), ports.next()) else { return Err("no ports".to_owned()) };
        let names = further.listeners.iter().map(|(name, _)| name.clone());
        let mut broker = Broker { dir, jars, port, further: names.zip(ports).collect(), keeper: None, own: true };
        broker.format(controller, &further)?;
        broker.run()?;
        Ok(broker)
    }

    /// Where it listens: `127.0.0.1:<port>`.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where one of its further listeners listens; `None` when it has none of this name.
    pub fn listener(&self, name: &str) -> Option<String> {
        self.further.get(name).map(|port| format!("127.0.0.1:{port}"))
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where it keeps its topics' partitions, each in a directory `<topic>-<partition>`.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Kills it at once. What it holds on disk stays.
    ///
    /// # Errors
    /// What the system says.
    pub fn kill(&mut self) -> Result<(), String> {
        File::create(self.dir.join("keep")).map_err(|error| error.to_string())?;
        self.end();
        Ok(())
    }

    /// Starts it again on the same disk and port.
    ///
    /// # Errors
    /// Why it does not come up.
    pub fn start_again(&mut self) -> Result<(), String> {
        self.end();
        fs::remove_file(self.dir.join("keep")).map_err(|error| error.to_string())?;
        self.run()
    }

    fn end(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            if let Err(error) = keeper.wait() {
                tracing::warn!(%error, "waiting for a broker to end");
            }
        }
    }

    fn format(&self, controller: u16, further: &Further) -> Result<(), String> {
        let (port, data) = (self.port, self.data());
        let mut listeners = String::new();
        let mut protocols = String::new();
        for (name, protocol) in &further.listeners {
            let port = self.further.get(name).copied().unwrap_or_default();
            listeners.push_str(&format!(",{name}://127.0.0.1:{port}"));
            protocols.push_str(&format!(",{name}:{protocol}"));
        }
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listeners}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}{listeners}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}\n\
             log.dirs={}\n\
             auto.create.topics.enable=false\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=4\n\
             transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n\
             log.index.size.max.bytes=1048576\n\
             log.cleaner.dedupe.buffer.size=4194304\n\
             num.network.threads=2\n\
             num.io.threads=4\n{}",
            data.display(),
            further.properties
        );
        let file = self.dir.join("server.properties");
        fs::write(&file, properties).map_err(|error| format!("{}: {error}", file.display()))?;
        format_storage(&self.jars, &file, &further.users)
    }

    fn run(&mut self) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&self.dir);
        command.args(java(&self.jars, "-Xmx512m")).arg("kafka.Kafka").arg(self.dir.join("server.properties"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own: what a terminal sends to all (Ctrl-C) must not end who is to clean up.
        command.process_group(0);
        self.keeper = Some(command.spawn().map_err(|error| format!("no shell: {error}"))?);
        let deadline = Instant::now() + PATIENCE;
        let client = metadata_client(&self.brokers())?;
        loop {
            match client.fetch_metadata(None, Duration::from_secs(1)) {
                Ok(metadata) if !metadata.brokers().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) if Instant::now() >= deadline => {
                    return Err(format!("the broker did not come up: {error}; it says: {}", self.last_words()));
                }
                Err(_) => {}
            }
            if !self.alive() {
                return Err(format!("the broker ended at once; it says: {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether the broker's process is there. The keeper lives on without it.
    fn alive(&self) -> bool {
        let Ok(pid) = fs::read_to_string(self.dir.join("pid")) else { return true };
        Path::new("/proc").join(pid.trim()).join("exe").exists()
    }

    fn last_words(&self) -> String {
        let said = fs::read_to_string(self.dir.join("broker.log")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.end();
        if self.own
            && self.dir.exists()
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            tracing::warn!(%error, dir = %self.dir.display(), "a broker's disk is left behind");
        }
    }
}

/// The command that runs one of Kafka's classes, up to the class: quiet, and small.
pub fn java(jars: &Path, heap: &str) -> Vec<String> {
    let jars = jars.join("*");
    ["java", heap, "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", QUIET, "-cp"]
        .into_iter()
        .map(str::to_owned)
        .chain([jars.display().to_string()])
        .collect()
}

/// Makes the storage of a broker with these properties, unless it is there, and users for SCRAM-SHA-512 with their
/// passwords.
///
/// # Errors
/// What Kafka says.
pub fn format_storage(jars: &Path, properties: &Path, users: &[(String, String)]) -> Result<(), String> {
    let java = java(jars, "-Xmx128m");
    let (program, arguments) = java.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command.args(arguments).args(["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t"]);
    command.arg("Z2F0ZWxvZy1nYXRlbG9nMQ").arg("-c").arg(properties);
    for (name, password) in users {
        command.arg("--add-scram").arg(format!("SCRAM-SHA-512=[name={name},password={password}]"));
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("no java: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("Kafka's storage could not be made: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// How a cluster is, asked of whoever of these brokers answers.
pub struct Observer {
    client: BaseConsumer,
}

/// A cluster as one of its brokers knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The brokers that are there.
    pub brokers: Vec<i32>,
    /// The leader of each partition of each topic, as `topic/partition`; without those that have none.
    pub leaders: BTreeMap<String, i32>,
    /// The partitions that lack a replica in sync, or a leader.
    pub behind: Vec<String>,
}

impl Observer {
    /// Of the cluster to which these belong.
    ///
    /// # Errors
    /// What librdkafka says.
    pub fn new(brokers: &str) -> Result<Observer, String> {
        Ok(Observer { client: metadata_client(brokers)? })
    }

    /// How it is now; `None` when nobody answers.
    pub fn look(&self) -> Option<Seen> {
        let metadata = self.client.fetch_metadata(None, METADATA_TIMEOUT).ok()?;
        let mut seen = Seen { brokers: metadata.brokers().iter().map(|one| one.id()).collect(), ..Seen::default() };
        for topic in metadata.topics() {
            for partition in topic.partitions() {
                let name = format!("{}/{}", topic.name(), partition.id());
                if partition.leader() < 0 || partition.isr().len() < partition.replicas().len() {
                    seen.behind.push(name.clone());
                }
                if partition.leader() >= 0 {
                    seen.leaders.insert(name, partition.leader());
                }
            }
        }
        Some(seen)
    }
}

/// The settings of a client that prints nothing about brokers that are down: these tests take them down.
fn quiet_client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set_log_level(RDKafkaLogLevel::Emerg);
    config
}

/// A client for metadata requests. It subscribes to no topic.
fn metadata_client(brokers: &str) -> Result<BaseConsumer, String> {
    let mut config = quiet_client(brokers);
    config.set("socket.timeout.ms", METADATA_TIMEOUT.as_millis().to_string());
    config.create().map_err(|error| error.to_string())
}

/// Gives a topic more partitions, as somebody may do who does not know better.
///
/// # Errors
/// What the brokers say.
pub fn widen(brokers: &str, topic: &str, partitions: usize) -> Result<(), String> {
    let admin: AdminClient<DefaultClientContext> = quiet_client(brokers).create().map_err(|error| error.to_string())?;
    let wanted = NewPartitions::new(topic, partitions);
    let done = block_on(admin.create_partitions(&[wanted], &AdminOptions::new())).map_err(|error| error.to_string())?;
    done.into_iter().try_for_each(|one| one.map(|_| ()).map_err(|(topic, code)| format!("{topic}: {code}")))
}

fn token() -> Result<String, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

/// Ports nobody listens on. All are held until all are known: else the second may be the first again.
fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let held = |_| TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"));
    let held: Vec<TcpListener> = (0..count).map(held).collect::<Result<_, _>>()?;
    let port = |held: &TcpListener| held.local_addr().map(|address| address.port()).map_err(|error| error.to_string());
    held.iter().map(port).collect()
}

/// The directory with Kafka's jars; had by Maven the first time.
///
/// # Errors
/// Why they cannot be had.
pub fn jars() -> Result<PathBuf, String> {
    let version = std::env::var("GATELOG_KAFKA_VERSION").unwrap_or_else(|_| KAFKA_VERSION.to_owned());
    let cache = match std::env::var_os("GATELOG_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").ok_or("neither GATELOG_CACHE nor HOME is set")?)
            .join(".cache/gatelog"),
    };
    let jars = cache.join(format!("kafka-{version}"));
    if jars.join("complete").exists() {
        return Ok(jars);
    }
    let failed = |error: std::io::Error| format!("{}: {error}", jars.display());
    fs::create_dir_all(&cache).map_err(failed)?;
    // Into a place of its own first: two processes may do this at once, and one may be interrupted.
    let partial = cache.join(format!("kafka-{version}.{}", token()?));
    fs::create_dir_all(&partial).map_err(failed)?;
    let outcome = download(&version, &partial).and_then(|()| {
        File::create(partial.join("complete")).map_err(failed)?;
        match fs::rename(&partial, &jars) {
            Err(_) if jars.join("complete").exists() => Ok(()),
            other => other.map_err(failed),
        }
    });
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(failed)?;
    }
    outcome.map(|()| jars)
}

fn download(version: &str, into: &Path) -> Result<(), String> {
    let pom = into.join("pom.xml");
    let text = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>gatelog</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies><dependency><groupId>org.apache.kafka</groupId>\
         <artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>\
         <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>\
         </dependency></dependencies></project>\n"
    );
    File::create(&pom).and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| error.to_string())?;
    let output = Command::new("mvn")
        .args(["-B", "-q", "-f"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", into.display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("no mvn to get Kafka's jars with: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let why = said.lines().find(|line| line.contains("ERROR")).unwrap_or("mvn failed");
    Err(format!("Kafka {version}'s jars could not be had: {}", why.trim()))
}
