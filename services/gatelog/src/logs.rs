//! Which log a site has, where its blobs and keys are, and how they are opened: the one place that knows logs by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log, LogError, MemoryPresence, Presence};
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, Options as EmbeddedOptions};
use gatelog_log_kafka::{Finding, FindingKind, KafkaConfig, KafkaLog, KafkaPresence};
use gatelog_record::{ChainLink, Partition};

use crate::config::{KafkaSection, SiteConfig};
use crate::remembering::Remembering;

/// How many partitions of the gate this gatelog serves.
pub const PARTITIONS: u32 = 1;

/// How long looking for the reason of a failure may take.
const EXPLAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Where things are in a site's directory.
#[derive(Clone, Debug)]
pub struct SitePaths {
    /// The site's directory.
    pub root: PathBuf,
    /// What all processes of the site see, where that is a directory of its own.
    shared: Option<PathBuf>,
}

impl SitePaths {
    /// The places of a site with this configuration.
    pub fn new(root: impl Into<PathBuf>, config: &SiteConfig) -> SitePaths {
        let root = root.into();
        let shared = config.shared.as_ref().map(|shared| root.join(&shared.dir));
        SitePaths { root, shared }
    }

    /// The places of a site of which there is nothing but its directory.
    pub fn bare(root: impl Into<PathBuf>) -> SitePaths {
        SitePaths { root: root.into(), shared: None }
    }

    /// The embedded log.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Whether the directory holds a slice of another site's log, which can be read alone.
    pub fn is_slice(&self) -> bool {
        self.root.join(crate::commands::log_slice::FILE).exists()
    }

    /// The blobs.
    pub fn blobs(&self) -> PathBuf {
        match &self.shared {
            Some(shared) => shared.join("blobs"),
            None => self.log().join("blobs"),
        }
    }

    /// The keys.
    pub fn keys(&self) -> PathBuf {
        match &self.shared {
            Some(shared) => shared.join("keys"),
            None => self.root.join("keys"),
        }
    }

    /// What is known of code-review systems. Whoever takes a connection over goes on from there; without it, what is
    /// open now would come in once more.
    pub fn connections(&self) -> PathBuf {
        self.shared.as_ref().unwrap_or(&self.root).join("connections")
    }

    /// How far the intake is routed.
    pub fn routing(&self) -> PathBuf {
        self.shared.as_ref().unwrap_or(&self.root).join("routing.json")
    }

    /// Projections, checkpoints and rungs: of this process alone.
    pub fn projections(&self) -> PathBuf {
        self.root.join("projections")
    }
}

/// What was derived from the log and says how far it must at least go.
#[derive(Clone, Debug)]
pub struct Known {
    /// Who knows.
    pub who: String,
    /// The partition.
    pub partition: Partition,
    /// The newest event.
    pub sequence: u64,
    /// Its link.
    pub link: ChainLink,
}

/// Why a log cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log says so.
    #[error(transparent)]
    Log(#[from] LogError),
    /// No broker answers.
    #[error("{what}; {cure}")]
    Unreachable {
        /// What is wrong.
        what: String,
        /// The cure.
        cure: String,
    },
    /// What is configured cannot be meant.
    #[error("{what}; {cure}")]
    Configuration {
        /// What is wrong.
        what: String,
        /// The cure.
        cure: String,
    },
    /// The brokers and this configuration do not agree on TLS or SASL, or on who is who.
    #[error("{what}; {cure}")]
    Security {
        /// What is wrong.
        what: String,
        /// The cure.
        cure: String,
    },
    /// Topics are not as they must be.
    #[error("{what}; {cure}")]
    Topics {
        /// What is wrong.
        what: String,
        /// The cure.
        cure: String,
    },
    /// The log has more partitions than this gatelog serves.
    #[error(
        "the {name} has {found} partitions, this gatelog serves {PARTITIONS}; set partitions = {PARTITIONS} under \
         [log.kafka], then run `gatelog log repartition`"
    )]
    Partitions {
        /// The log.
        name: String,
        /// How many it has.
        found: u32,
    },
    /// It is a slice of another site's log.
    #[error(
        "{directory} holds a slice of a log, which can be read but not served; name the directory of a site with --dir"
    )]
    Slice {
        /// The site's directory.
        directory: String,
    },
    /// Its blobs cannot be opened.
    #[error("blob store: {0}")]
    Blobs(String),
}

/// Says why a log refuses appends for now, with the cure; `None` while it takes them.
pub type Refusing = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A log to be served: read, written, and who else is there.
pub struct Opened {
    /// Whether the log has room.
    pub refusing: Refusing,
    /// The log.
    pub log: Arc<dyn Log>,
    /// Its blobs.
    pub blobs: Arc<dyn Blobs>,
    /// Who is there.
    pub presence: Arc<dyn Presence>,
}

/// What a site's configuration means to the log on Kafka.
pub fn kafka(section: &KafkaSection, known: Vec<Known>) -> KafkaConfig {
    let known = known.into_iter().map(|known| gatelog_log_kafka::Known {
        who: known.who,
        partition: known.partition,
        sequence: known.sequence,
        link: known.link,
    });
    KafkaConfig {
        brokers: section.brokers.clone(),
        prefix: section.prefix.clone(),
        partitions: section.partitions,
        replication: section.replication,
        min_insync: section.min_insync,
        properties: section.properties.clone(),
        known: known.collect(),
        ..KafkaConfig::default()
    }
}

/// Opens a site's log for serving it.
///
/// # Errors
/// [`OpenError`].
pub fn open(paths: &SitePaths, config: &SiteConfig, known: Vec<Known>) -> Result<Opened, OpenError> {
    let Some(section) = &config.log.kafka else {
        if paths.is_slice() {
            return Err(OpenError::Slice { directory: paths.root.display().to_string() });
        }
        let mut options = EmbeddedOptions::default();
        options.segment_bytes = config.log.segment_size.0;
        options.known = known
            .into_iter()
            .map(|known| gatelog_log_embedded::Known {
                who: known.who,
                partition: known.partition,
                sequence: known.sequence,
                link: known.link,
            })
            .collect();
        let log = Arc::new(EmbeddedLog::open(paths.log(), options)?);
        let blobs = FileBlobs::open(paths.blobs()).map_err(|error| OpenError::Blobs(error.to_string()))?;
        let epoch = std::time::Instant::now();
        let asked = Arc::downgrade(&log);
        return Ok(Opened {
            refusing: Arc::new(move || asked.upgrade()?.refusing()),
            log,
            blobs: Arc::new(blobs),
            presence: Arc::new(MemoryPresence::new(move || epoch.elapsed())),
        });
    };
    let kafka = kafka(section, known);
    let log = KafkaLog::open(kafka.clone()).map_err(|error| explained(&kafka, error))?;
    one_partition(&log)?;
    let presence = KafkaPresence::open(kafka.clone()).map_err(|error| explained(&kafka, error))?;
    // Whoever appends to brokers waits for them; that they are out of reach, signs of life notice.
    let refusing: Refusing = Arc::new(|| None);
    Ok(Opened { refusing, log: Arc::new(log), blobs: shared_blobs(&paths.blobs())?, presence: Arc::new(presence) })
}

/// Opens a log on Kafka for reading only, beside those who serve it.
///
/// # Errors
/// [`OpenError`].
pub fn open_kafka_reader(section: &KafkaSection) -> Result<Arc<dyn Log>, OpenError> {
    let kafka = kafka(section, Vec::new());
    let log = KafkaLog::open_reader(kafka.clone()).map_err(|error| explained(&kafka, error))?;
    Ok(Arc::new(Remembering::new(Arc::new(log))))
}

/// Blobs that several processes put.
fn shared_blobs(dir: &Path) -> Result<Arc<dyn Blobs>, OpenError> {
    let blobs = FileBlobs::open_shared(dir)
        .map_err(|error| OpenError::Blobs(format!("{error}; [shared] dir must be a directory that can be written")))?;
    Ok(Arc::new(blobs))
}

fn one_partition(log: &dyn Log) -> Result<(), OpenError> {
    let description = log.describe();
    match description.partitions {
        PARTITIONS => Ok(()),
        found => Err(OpenError::Partitions { name: description.name, found }),
    }
}

/// Says with its cure what keeps a log on Kafka from being opened, where looking at the topics shows it.
pub fn explained(kafka: &KafkaConfig, error: LogError) -> OpenError {
    if !matches!(error, LogError::System { .. }) {
        return error.into();
    }
    // Whoever waits has waited long enough already.
    let mut findings = gatelog_log_kafka::check(KafkaConfig { timeout: EXPLAIN, ..kafka.clone() });
    findings.sort_by_key(|finding| finding.kind);
    let Some(Finding { kind, what, cure }) = findings.into_iter().next() else { return error.into() };
    match kind {
        FindingKind::Configuration => OpenError::Configuration { what, cure },
        FindingKind::Security => OpenError::Security { what, cure },
        FindingKind::Unreachable => OpenError::Unreachable { what, cure },
        // Of what is not there, or not to be seen, whoever failed knows more.
        FindingKind::MissingTopic | FindingKind::Site => error.into(),
        _ => OpenError::Topics { what, cure },
    }
}
