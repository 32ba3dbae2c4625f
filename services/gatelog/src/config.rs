//! `gatelog.toml`: what a site is made of. Unknown keys are errors that name the place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use gatelog_executing::ByteSize;
use serde::Deserialize;

mod audit;
mod auth;
mod connection;
mod executor;
mod governors;
mod job_logs;
mod oidc;
mod scheduler;
mod stop;

pub use audit::AuditSection;
pub use auth::{AuthConfig, AuthDriver};
pub use connection::ConnectionConfig;
pub use executor::ExecutorSection;
pub use job_logs::JobLogsSection;
pub use oidc::OidcSection;
pub use scheduler::SchedulerSection;
pub use stop::{SigtermMethod, StopSection};

/// The file's name in a site's directory.
pub const FILE: &str = "gatelog.toml";

/// A site's configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteConfig {
    /// What this process is called among those of its site; its worker has the same name. The same over restarts,
    /// another for each process. `local` with the embedded log, else made of the host's name and the directory.
    #[serde(default)]
    pub name: Option<String>,
    /// The tenant file (Zuul's language), relative to the site's directory. Read by the process with the role
    /// `scheduler`.
    #[serde(default = "default_tenant_file")]
    pub tenant_file: PathBuf,
    /// Connections to code-review systems, by the name pipelines know them under.
    #[serde(default)]
    pub connection: BTreeMap<String, ConnectionConfig>,
    /// Who can say who somebody is, by name.
    #[serde(default)]
    pub auth: BTreeMap<String, AuthConfig>,
    /// The API.
    #[serde(default)]
    pub web: WebConfig,
    /// What the process decides for all tenants that has the role `scheduler`.
    #[serde(default)]
    pub scheduler: SchedulerSection,
    /// Where builds run.
    #[serde(default)]
    pub executor: ExecutorSection,
    /// What jobs leave in their log directories.
    #[serde(default)]
    pub job_logs: JobLogsSection,
    /// The log.
    #[serde(default)]
    pub log: LogSection,
    /// Tokens of secrets with `oidc`.
    #[serde(default)]
    pub oidc: OidcSection,
    /// What goes outside as a proof of the log.
    #[serde(default)]
    pub audit: AuditSection,
    /// What all processes of the site see.
    #[serde(default)]
    pub shared: Option<SharedSection>,
    /// How this process ends.
    #[serde(default)]
    pub stop: StopSection,
}

fn default_tenant_file() -> PathBuf {
    "tenants.yaml".into()
}

/// The API.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WebConfig {
    /// The address it listens on. Port 0 takes a free one; `server.json` says which.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// How people reach it, for links in reports; the address it listens on if not set. Tokens of secrets with `oidc` are
    /// issued under this name, and only where it is set: in processes with the role `web` or `executor`.
    #[serde(default)]
    pub root: Option<String>,
    /// How many pages, programs and waits may follow what happens at once; more are refused. Each takes a file.
    #[serde(default = "default_streams")]
    pub streams: NonZeroU32,
    /// Where clients reach websockets, if not where they reach the API. Zuul: `[web] websocket_url`.
    #[serde(default)]
    pub websocket_url: Option<String>,
    /// Where consoles are read by finger, `address:port`; nowhere if not set. Zuul: `zuul-fingergw`, port 79.
    #[serde(default)]
    pub finger: Option<SocketAddr>,
}

fn default_streams() -> NonZeroU32 {
    // 5,000 pages that are looked at have one each.
    NonZeroU32::MIN.saturating_add(8_191)
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9000))
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig {
            listen: default_listen(),
            root: None,
            streams: default_streams(),
            websocket_url: None,
            finger: None,
        }
    }
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogSection {
    /// A rung for time travel every so many events; 0 for none.
    #[serde(default = "default_rungs")]
    pub rung_every: u64,
    /// A copy of the projections for a start after damage every so many events; 0 for none.
    #[serde(default = "default_checkpoints")]
    pub checkpoint_every: u64,
    /// A segment of the embedded log that has reached this size is sealed, such as `"64M"`.
    #[serde(default = "default_segment")]
    pub segment_size: ByteSize,
    /// The log is on Apache Kafka, not in this directory.
    #[serde(default)]
    pub kafka: Option<KafkaSection>,
}

/// The log on Apache Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KafkaSection {
    /// Where brokers listen: `host:port,host:port`. One that answers is enough.
    pub brokers: String,
    /// What every topic's name begins with, such as `ci.`.
    #[serde(default)]
    pub prefix: String,
    /// How many partitions each domain has when the log is created.
    #[serde(default = "default_partitions")]
    pub partitions: u32,
    /// On how many brokers each record is kept.
    #[serde(default = "default_replication")]
    pub replication: u32,
    /// On how many brokers a record must be before it is acknowledged.
    #[serde(default = "default_min_insync")]
    pub min_insync: u32,
    /// Further settings of librdkafka by their own names, such as `security.protocol`. Files are relative to the site's
    /// directory; secrets are in files: `"sasl.password" = "file:PATH"`.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

fn default_partitions() -> u32 {
    1
}

fn default_replication() -> u32 {
    3
}

fn default_min_insync() -> u32 {
    2
}

/// What all processes of a site see: its blobs (`blobs/`) and its keys (`keys/`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SharedSection {
    /// The directory, relative to the site's. On every host the same files.
    pub dir: PathBuf,
}

fn default_rungs() -> u64 {
    10_000
}

fn default_checkpoints() -> u64 {
    50_000
}

fn default_segment() -> ByteSize {
    ByteSize(64 << 20)
}

/// A smaller segment would hold little but its own header.
const LEAST_SEGMENT: ByteSize = ByteSize(4 << 10);

impl Default for LogSection {
    fn default() -> Self {
        LogSection {
            rung_every: default_rungs(),
            checkpoint_every: default_checkpoints(),
            segment_size: default_segment(),
            kafka: None,
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "{path}: {why}; a site's directory holds a {FILE}: `gatelog demo --keep --dir DIR` makes one to start from"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// The file is not right.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line, column and snippet.
        message: String,
    },
    /// What it says does not go together.
    #[error("{path}: {message}; {cure}")]
    Meaning {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
        /// What to do about it.
        cure: String,
    },
}

impl SiteConfig {
    /// Reads a site's configuration.
    pub fn read(site: &Path) -> Result<SiteConfig, ConfigError> {
        let path = site.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|why| ConfigError::Read { path: path.clone(), why })?;
        let mut config: SiteConfig = toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.clone(), message: with_nearest(&error.to_string()) })?;
        if let Some(kafka) = &mut config.log.kafka {
            gatelog_log_kafka::relative_to(site, &mut kafka.properties);
        }
        match config.contradiction().or_else(|| config.audit.contradiction(site)) {
            Some((message, cure)) => Err(ConfigError::Meaning { path, message, cure }),
            None => Ok(config),
        }
    }

    /// What does not go together, and the cure.
    fn contradiction(&self) -> Option<(String, String)> {
        if let Some(name) = &self.name
            && (name.is_empty() || name.len() > 100 || name.chars().any(|c| c.is_control() || c.is_whitespace()))
        {
            let cure = "use 1 to 100 characters without spaces".to_owned();
            return Some((format!("name = {name:?} cannot name a process"), cure));
        }
        if let Some(found) = self.scheduler.contradiction().or_else(|| self.executor.contradiction()) {
            return Some(found);
        }
        if let Some(found) = self.job_logs.contradiction() {
            return Some(found);
        }
        if let Some(found) = auth::contradiction(&self.auth) {
            return Some(found);
        }
        if self.log.segment_size.0 < LEAST_SEGMENT.0 {
            return Some((
                format!("segment-size = {} under [log] is too small for a segment", self.log.segment_size),
                format!("set it to {LEAST_SEGMENT} or more"),
            ));
        }
        let kafka = self.log.kafka.as_ref()?;
        if self.shared.is_none() {
            return Some((
                "[log.kafka] without [shared] dir: processes of one site see the same blobs and keys".to_owned(),
                "set dir under [shared] to a directory that all processes of the site see".to_owned(),
            ));
        }
        if kafka.min_insync > kafka.replication || kafka.min_insync == 0 {
            return Some((
                format!(
                    "min-insync = {} and replication = {} under [log.kafka] cannot be",
                    kafka.min_insync, kafka.replication
                ),
                "set min-insync to 1 or more and at most replication".to_owned(),
            ));
        }
        None
    }
}

/// What is wrong with the file; of a key that is none, with the one that may have been meant.
fn with_nearest(message: &str) -> String {
    let said = message.trim_end();
    let nearest = || {
        let (wrong, known) = said.split_once("unknown field `")?.1.split_once('`')?;
        let known: Vec<String> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        crate::settings::nearest(wrong, &known)
    };
    match nearest() {
        Some(hint) => format!("{said}; {hint}"),
        None => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gatelog_executing::{CgroupSetting, Limits};

    use super::*;

    #[test]
    fn a_small_file_is_enough_and_a_misspelt_key_is_named() {
        let config: SiteConfig =
            toml::from_str("[connection.forge]\ndriver = \"git\"\ncanonical-hostname = \"git.demo\"\n").unwrap();
        assert_eq!(config.executor.slots, 2);
        let error = toml::from_str::<SiteConfig>("[executor]\nslot = 3\n").unwrap_err().to_string();
        assert!(error.contains("slot") && error.contains("line 2"), "{error}");
        for (text, hint) in [
            ("[executor]\nslot = 3\n", "did you mean `slots`?"),
            ("slots = 3\n", "`slots` belongs under [executor]"),
            ("[log.kafka]\nbrokers = \"b\"\nreplicaton = 1\n", "did you mean `replication`?"),
            (
                "[connection.forge]\ndriver = \"git\"\ncanonical_hostname = \"h\"\n",
                "did you mean `canonical-hostname`?",
            ),
        ] {
            let error = said(text);
            assert!(error.contains(hint) && error.contains("line "), "{text}: {error}");
        }
    }

    #[test]
    fn there_is_room_for_streams_and_never_for_none() {
        assert_eq!(WebConfig::default().streams.get(), 8_192);
        let site: SiteConfig = toml::from_str("[web]\nstreams = 20\n").unwrap();
        assert_eq!((site.web.streams.get(), site.web.listen), (20, default_listen()));
        let none = said("[web]\nstreams = 0\n");
        assert!(none.contains("streams = 0") && none.contains("nonzero"), "{none}");
    }

    /// A file's settings, or what is wrong with them.
    pub(super) fn said(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        match SiteConfig::read(dir.path()) {
            Ok(config) => format!("{config:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn limits_of_jobs_are_read_with_their_units_and_what_cannot_be_is_named_with_its_cure() {
        let text = "[executor]\nslots = 4\njob-memory = \"6G\"\njob-pids = 500\njob-disk = \"1.5 GiB\"\n\
            job-tmp = \"none\"\njob-output = \"16M\"\njob-output-rate = 1048576\njob-timeout = 600\ncgroup = \"/sys/fs/cgroup/ci\"\n";
        let site: SiteConfig = toml::from_str(text).unwrap();
        let settings = site.executor.settings(Path::new("/srv/ci"));
        let limits = settings.limits;
        assert_eq!((limits.memory_bytes, limits.processes), (Some(6 << 30), Some(500)));
        assert_eq!((limits.disk_bytes, limits.tmp_bytes), (Some(3 << 29), None));
        assert_eq!((limits.console_bytes, limits.console_rate), (16 << 20, 1 << 20));
        assert_eq!(settings.cgroup, CgroupSetting::At("/sys/fs/cgroup/ci".into()));
        assert_eq!(limits.run, Duration::from_secs(600));
        assert_eq!(settings.root, Path::new("/srv/ci/builds"));
        let usual = ExecutorSection::default().settings(Path::new("/srv/ci"));
        assert!(usual.limits.memory_bytes.is_some_and(|bytes| bytes >= 512 << 20), "a share of this host");
        assert_eq!(usual.limits.processes, Limits::default().processes);
        for (line, expected) in [
            ("job-memory = \"lots\"", "\"lots\" is no size: write a number with a unit, such as \"512M\""),
            ("job-memory = 0", "to switch it off write \"none\""),
            (
                "job-memory = \"1M\"",
                "job-memory = 1 MiB under [executor] is less than Ansible itself needs; set it to 64 MiB",
            ),
            ("job-pids = \"many\"", "\"many\" is no number"),
            ("job-pids = 3", "job-pids = 3 under [executor]"),
            ("cgroup = \"yes\"", "set it to \"auto\", \"off\" or an absolute directory"),
        ] {
            let error = said(&format!("[executor]\n{line}\n"));
            assert!(error.contains(expected), "{line}: {error}");
            assert!(error.contains("line 2") || error.contains("under [executor]"), "{line}: {error}");
        }
    }

    #[test]
    fn segments_of_the_log_have_a_size_that_can_be() {
        let usual: SiteConfig = toml::from_str("").unwrap();
        assert_eq!(usual.log, LogSection::default());
        let small: SiteConfig = toml::from_str("[log]\nsegment-size = \"16K\"\ncheckpoint-every = 25\n").unwrap();
        assert_eq!((small.log.segment_size, small.log.checkpoint_every), (ByteSize(16 << 10), 25));
        let error = said("[log]\nsegment-size = \"1K\"\n");
        assert!(error.contains("segment-size = 1 KiB under [log]") && error.contains("4 KiB or more"), "{error}");
    }

    #[test]
    fn a_log_on_kafka_is_read_and_what_cannot_be_is_named_with_its_cure() {
        let kafka = "[log.kafka]\nbrokers = \"a:1,b:2\"\nprefix = \"ci.\"\nreplication = 1\nmin-insync = 1\n";
        let properties = "[log.kafka.properties]\n\"security.protocol\" = \"sasl_ssl\"\n\"ssl.ca.location\" = \"/etc/ca.pem\"\n\
                          \"sasl.password\" = \"file:kafka-password\"\n";
        let shared = "[shared]\ndir = \"/srv/shared\"\n";
        let whole = said(&format!("{kafka}{properties}{shared}"));
        for word in ["a:1,b:2", "\"ci.\"", "security.protocol", "/srv/shared", "partitions: 1", "\"/etc/ca.pem\""] {
            assert!(whole.contains(word), "{word}: {whole}");
        }
        assert!(
            whole.contains("/kafka-password\"") && !whole.contains("\"file:kafka"),
            "in the site's directory: {whole}"
        );
        let without = said(kafka);
        assert!(without.contains("[shared] dir") && without.contains("; set dir under [shared]"), "{without}");
        let misspelt = said("[log.kafka]\nbroker = \"a:1\"\n");
        assert!(misspelt.contains("broker") && misspelt.contains("line 2"), "{misspelt}");
        let nobody = said("[log.kafka]\nprefix = \"x\"\n");
        assert!(nobody.contains("brokers"), "{nobody}");
        let more = said(&format!("[log.kafka]\nbrokers = \"a:1\"\nreplication = 1\n{shared}"));
        assert!(more.contains("min-insync = 2 and replication = 1"), "{more}");
        assert!(said("name = \"two words\"\n").contains("cannot name a process"));
        assert!(said("[shared]\ndirectory = \"x\"\n").contains("directory"));
    }
}
