//! A cluster of three real Kafka brokers, each broker and controller in one, and what may happen to them: killed,
//! stopped, paused, cut off, their disks full.
//!
//! There is one for all tests that want it, started when first asked for; [`cluster`] lends it to one test at a time, all
//! brokers well. As root each broker has a network namespace and a file system in memory of its own: without, cutting
//! off and filling up cannot be had ([`Cluster::has_networks`], [`Cluster::has_disks`]). It ends with the process that
//! started it, however that one ends, and leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use gatelog_kafka_broker::{Observer, Seen, format_storage, jars, java};

use super::eventually;

/// How many brokers there are. They are numbered from 1, as Kafka does.
pub const BROKERS: usize = 3;
/// The room on a broker's disk.
const DISK: &str = "256m";
/// Takes down what is left when its standard input ends.
const GUARDIAN: &str = r#"
dir=$1; net=$2
cat >/dev/null
for pid in $(cat "$dir"/*/pid 2>/dev/null); do
    grep -qs "$dir" "/proc/$pid/cmdline" && kill -9 "$pid"
done
sleep 0.2
for node in "$dir"/*/; do umount "$node/data" 2>/dev/null; done
for one in $(ip netns list 2>/dev/null | cut -d' ' -f1); do
    case "$one" in "$net"-*) ip netns del "$one" ;; esac
done
[ -e "/sys/class/net/$net" ] && ip link del "$net"
rm -rf "$dir"
"#;

/// One broker.
struct Node {
    dir: PathBuf,
    address: String,
    port: u16,
    controller: u16,
    process: Option<Child>,
}

/// The cluster.
pub struct Cluster {
    dir: PathBuf,
    jars: PathBuf,
    nodes: Vec<Node>,
    /// What bridge and namespaces are called, where there are such.
    net: Option<String>,
    disks: bool,
    observer: Observer,
    guardian: Child,
}

/// Lends the cluster, all brokers well; says why there is none in the line that is counted.
pub fn cluster(test: &str) -> Option<MutexGuard<'static, Cluster>> {
    static SHARED: OnceLock<Result<Mutex<Cluster>, String>> = OnceLock::new();
    match SHARED.get_or_init(|| Cluster::start().map(Mutex::new)) {
        Ok(cluster) => {
            // One whose borrower failed is mended like any other.
            let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
            cluster.mend();
            Some(cluster)
        }
        Err(why) => {
            println!("SKIPPED {test}: no cluster of Kafka brokers: {why}");
            None
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("no {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// The number of the network: its addresses are `10.231.<number>.*`.
fn network_number() -> u32 {
    std::process::id() % 250
}

impl Cluster {
    fn start() -> Result<Cluster, String> {
        let began = Instant::now();
        let jars = jars()?;
        let dir = std::env::temp_dir().join(format!("gatelog-cluster-{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        let name = format!("gl{}", std::process::id());
        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(&dir)
            .arg(&name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("no shell: {error}"))?;
        let net = bridge(&name).is_ok().then_some(name);
        let mut disks = true;
        let mut nodes = Vec::new();
        for number in 1..=BROKERS {
            let dir = dir.join(format!("broker-{number}"));
            fs::create_dir_all(dir.join("data")).map_err(|error| error.to_string())?;
            let size = format!("size={DISK}");
            let data = dir.join("data").display().to_string();
            disks = disks && run("mount", &["-t", "tmpfs", "-o", &size, "gatelog-cluster", &data]).is_ok();
            let node = match &net {
                Some(net) => {
                    let address = attach(net, &format!("{number}"), number as u32 + 10)?;
                    Node { dir, address, port: 9092, controller: 9093, process: None }
                }
                None => {
                    let [port, controller] = free_ports()?;
                    Node { dir, address: "127.0.0.1".into(), port, controller, process: None }
                }
            };
            nodes.push(node);
        }
        let observer = Observer::new(&brokers_of(&nodes))?;
        let mut cluster = Cluster { dir, jars, nodes, net, disks, observer, guardian };
        std::thread::scope(|scope| {
            let all: Vec<_> = (1..=BROKERS)
                .map(|number| {
                    scope.spawn({
                        let cluster = &cluster;
                        move || cluster.format(number)
                    })
                })
                .collect();
            all.into_iter().try_for_each(|one| one.join().unwrap())
        })?;
        (1..=BROKERS).for_each(|number| cluster.start_broker(number));
        cluster.wait_well();
        let (how, disks) = (
            if cluster.net.is_some() { "with a network" } else { "on loopback" },
            if cluster.disks { "a disk" } else { "no disk" },
        );
        println!(
            "three brokers were up after {:.1} s, each {how} and {disks} of its own",
            began.elapsed().as_secs_f64()
        );
        Ok(cluster)
    }

    fn format(&self, number: usize) -> Result<(), String> {
        let node = &self.nodes[number - 1];
        let voters: Vec<String> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| format!("{}@{}:{}", index + 1, node.address, node.controller))
            .collect();
        let Node { address, port, controller, .. } = node;
        // Shorter than a site's own would be, so that a test need not wait for what only takes its time: who is silent is
        // fenced after 6 s (9 s by default), who does not follow is out of sync after 5 s (30 s).
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id={number}\n\
             controller.quorum.voters={voters}\n\
             listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller}\n\
             advertised.listeners=PLAINTEXT://{address}:{port}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             log.dirs={data}\n\
             auto.create.topics.enable=false\n\
             default.replication.factor=3\n\
             min.insync.replicas=2\n\
             offsets.topic.replication.factor=3\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=3\n\
             transaction.state.log.min.isr=2\n\
             transaction.state.log.num.partitions=3\n\
             transaction.abort.timed.out.transaction.cleanup.interval.ms=1000\n\
             broker.session.timeout.ms=6000\n\
             broker.heartbeat.interval.ms=1000\n\
             replica.lag.time.max.ms=5000\n\
             controller.quorum.fetch.timeout.ms=4000\n\
             unclean.leader.election.enable=false\n\
             log.index.size.max.bytes=1048576\n\
             log.cleaner.dedupe.buffer.size=4194304\n\
             num.network.threads=2\n\
             num.io.threads=4\n\
             num.replica.fetchers=1\n",
            voters = voters.join(","),
            // A directory in the disk: what a new file system holds of its own is none of Kafka's.
            data = node.dir.join("data/kafka").display()
        );
        let file = node.dir.join("server.properties");
        fs::write(&file, properties).map_err(|error| error.to_string())?;
        format_storage(&self.jars, &file, &[])
    }

    /// Where the brokers listen.
    pub fn brokers(&self) -> String {
        brokers_of(&self.nodes)
    }

    /// Whether brokers can be cut off.
    pub fn has_networks(&self) -> bool {
        self.net.is_some()
    }

    /// Whether disks can be filled up.
    pub fn has_disks(&self) -> bool {
        self.disks
    }

    /// How those brokers see it that answer.
    pub fn look(&self) -> Option<Seen> {
        self.observer.look()
    }

    /// The broker that leads a topic's first partition.
    pub fn leader(&self, topic: &str) -> usize {
        let name = format!("{topic}/0");
        eventually(&format!("{name} has a leader"), || {
            self.look()?.leaders.get(&name).and_then(|leader| usize::try_from(*leader).ok())
        })
    }

    /// Starts a broker that does not run, without waiting for it.
    pub fn start_broker(&mut self, number: usize) {
        let (java, net) = (java(&self.jars, "-Xmx256m"), self.net.clone());
        let node = &mut self.nodes[number - 1];
        let mut command = match &net {
            Some(net) => within(net, &format!("{number}")),
            None => Command::new("env"),
        };
        let log = OpenOptions::new().create(true).append(true).open(node.dir.join("broker.log")).unwrap();
        command.args(java).arg("kafka.Kafka").arg(node.dir.join("server.properties"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        let process = command.spawn().unwrap();
        fs::write(node.dir.join("pid"), process.id().to_string()).unwrap();
        node.process = Some(process);
    }

    fn signal(&self, number: usize, signal: &str) {
        let process = self.nodes[number - 1].process.as_ref().unwrap();
        run("kill", &[signal, &process.id().to_string()]).unwrap();
    }

    /// SIGKILL, and it is gone.
    pub fn kill(&mut self, number: usize) {
        let mut process = self.nodes[number - 1].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// SIGTERM, and it is gone.
    pub fn stop(&mut self, number: usize) {
        self.signal(number, "-TERM");
        let mut process = self.nodes[number - 1].process.take().unwrap();
        eventually(&format!("broker {number} stops"), || process.try_wait().unwrap());
    }

    /// SIGSTOP.
    pub fn pause(&self, number: usize) {
        self.signal(number, "-STOP");
    }

    /// SIGCONT.
    pub fn resume(&self, number: usize) {
        self.signal(number, "-CONT");
    }

    /// Whether a broker's process has ended by itself.
    pub fn has_ended(&mut self, number: usize) -> bool {
        match &mut self.nodes[number - 1].process {
            Some(process) => process.try_wait().unwrap().is_some(),
            None => true,
        }
    }

    fn filler(&self, number: usize) -> PathBuf {
        self.nodes[number - 1].dir.join("data/filler")
    }

    /// Fills a broker's disk up.
    pub fn fill_disk(&self, number: usize) {
        let mut filler = File::create(self.filler(number)).unwrap();
        for block in [1 << 20, 4_096] {
            let zeros = vec![0; block];
            while filler.write_all(&zeros).is_ok() {}
        }
    }

    /// Makes room on a broker's disk.
    pub fn make_room(&self, number: usize) {
        let _ = fs::remove_file(self.filler(number));
    }

    /// Cuts the network of a broker, or of who joined under this name.
    pub fn cut(&self, who: &str) {
        run("ip", &["link", "set", &format!("{}-{who}", self.net.as_ref().unwrap()), "down"]).unwrap();
    }

    /// The opposite.
    pub fn uncut(&self, who: &str) {
        run("ip", &["link", "set", &format!("{}-{who}", self.net.as_ref().unwrap()), "up"]).unwrap();
    }

    /// A network of its own, in the brokers' reach, for somebody else: their address.
    pub fn join(&self, who: &str, number: u32) -> String {
        attach(self.net.as_ref().unwrap(), who, number).unwrap()
    }

    /// A command that runs what follows it in a network joined under this name.
    pub fn within(&self, who: &str) -> Command {
        within(self.net.as_ref().unwrap(), who)
    }

    /// Undoes whatever was done, and waits until all is well.
    pub fn mend(&mut self) {
        for number in 1..=BROKERS {
            self.make_room(number);
            if self.net.is_some() {
                self.uncut(&number.to_string());
            }
            if self.has_ended(number) {
                self.start_broker(number);
            } else {
                self.resume(number);
            }
        }
        self.wait_well();
    }

    /// Waits until every broker is there and every partition has all its replicas in sync.
    pub fn wait_well(&self) {
        let mut last = None;
        let began = Instant::now();
        let all: Vec<i32> = (1..=BROKERS as i32).collect();
        while began.elapsed() < super::PATIENCE {
            last = self.look();
            if let Some(seen) = &mut last {
                seen.brokers.sort_unstable();
                if seen.brokers == all && seen.behind.is_empty() {
                    return;
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("the cluster does not come up: {last:?}\n{}", self.last_words());
    }

    fn last_words(&self) -> String {
        let tail = |node: &Node| {
            let said = fs::read_to_string(node.dir.join("broker.log")).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            format!("{}:\n{}", node.dir.display(), lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        self.nodes.iter().map(tail).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn brokers_of(nodes: &[Node]) -> String {
    nodes.iter().map(|node| format!("{}:{}", node.address, node.port)).collect::<Vec<_>>().join(",")
}

fn free_ports() -> Result<[u16; 2], String> {
    let held = || TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"));
    let (one, other) = (held()?, held()?);
    let port = |held: &TcpListener| held.local_addr().map(|address| address.port()).map_err(|error| error.to_string());
    Ok([port(&one)?, port(&other)?])
}

/// A bridge with an address of this host's; an error where that cannot be had, and then nothing is left of it.
fn bridge(net: &str) -> Result<(), String> {
    run("ip", &["link", "add", net, "type", "bridge"])?;
    let address = format!("10.231.{}.1/24", network_number());
    let made = run("ip", &["addr", "add", &address, "dev", net])
        .and_then(|()| run("ip", &["link", "set", net, "up"]))
        .and_then(|()| run("ip", &["netns", "add", &format!("{net}-try")]))
        .and_then(|()| run("ip", &["netns", "del", &format!("{net}-try")]));
    if made.is_err() {
        let _ = run("ip", &["link", "del", net]);
    }
    made
}

/// A network namespace on the bridge: its address.
fn attach(net: &str, who: &str, number: u32) -> Result<String, String> {
    let (space, outer) = (format!("{net}-{who}"), format!("{net}-{who}"));
    let address = format!("10.231.{}.{number}", network_number());
    let wide = format!("{address}/24");
    run("ip", &["netns", "add", &space])?;
    run("ip", &["link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
    run("ip", &["link", "set", &outer, "master", net])?;
    run("ip", &["link", "set", &outer, "up"])?;
    for inside in
        [&["addr", "add", &wide, "dev", "eth0"][..], &["link", "set", "eth0", "up"], &["link", "set", "lo", "up"]]
    {
        run("ip", &[&["-n", &space], inside].concat())?;
    }
    Ok(address)
}

fn within(net: &str, who: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("{net}-{who}")]);
    command
}
