//! Creating a log's topics, and which log they are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use gatelog_event_log::LogError;
use gatelog_record::SiteId;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::check::{self, Finding};
use crate::config::{KafkaConfig, Purpose};
use crate::cursor::Reach;
use crate::fault::{Context, code_of, is_passing, or_system, said, system};
use crate::layout::SiteRecord;
use crate::names::Names;
use crate::presence;
use crate::site::site_record;

/// What the brokers say of one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topic {
    pub(crate) partitions: u32,
    /// The fewest replicas any of its partitions has.
    pub(crate) replicas: u32,
    /// The fewest of them that are in sync.
    pub(crate) in_sync: u32,
    /// Partitions that have no leader now.
    pub(crate) leaderless: Vec<i32>,
    /// Its settings, where they may be seen.
    pub(crate) settings: BTreeMap<String, String>,
}

/// What the brokers say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) brokers: Vec<i32>,
    /// Every topic there is, of this log or not.
    pub(crate) topics: BTreeMap<String, Topic>,
    /// The settings of one broker, where they may be seen.
    pub(crate) settings: BTreeMap<String, String>,
}

/// Which log this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) site: SiteId,
    pub(crate) generation: u32,
    pub(crate) partitions: u32,
    /// On how many brokers a record is before it is acknowledged.
    pub(crate) survives: u32,
}

/// What [`init`] did and found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The site.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
    /// How many partitions each domain has.
    pub partitions: u32,
    /// The topics that were made.
    pub created: Vec<String>,
    /// The topics that were there before. They were not changed.
    pub found: Vec<String>,
    /// What is still wrong: see [`crate::check`].
    pub findings: Vec<Finding>,
}

/// Creates what is missing of a log: topics and site record. What is there is left as it is, so it may be run again.
///
/// # Errors
/// `System` when no broker answers, or they refuse; `Damaged` when there is a site record that cannot be read.
pub fn init(config: KafkaConfig) -> Result<Report, LogError> {
    let mut reach = Reach::new(config)?;
    let before = cluster(&reach)?;
    let site_topic = reach.names.site();
    let known = if before.topics.contains_key(&site_topic) { site_record(&reach)? } else { None };
    reach.names = reach.names.of_topics(known.map_or(1, |known| known.topics));
    let config = &reach.config;
    let partitions = known.map_or(config.partitions, |known| known.partitions);
    let wanted: Vec<(String, u32)> = wanted_topics(&reach.names, partitions);
    let (found, missing): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(topic, _)| before.topics.contains_key(topic));
    if !missing.is_empty() {
        let there = before.brokers.len();
        if config.replication as usize > there {
            return Err(LogError::System {
                what: "creating the log's topics".to_owned(),
                message: format!(
                    "{} replicas are wanted of each, but there are {there} brokers: start more, or set replication \
                     and min_insync lower",
                    config.replication
                ),
            });
        }
        create(&reach, &missing)?;
    }
    let record = match known {
        Some(known) => known,
        None => write_site(&reach, partitions)?,
    };
    let findings = check::judge(&reach, &cluster_with_settings(&reach)?, Ok(Some(record)));
    let names = |topics: Vec<(String, u32)>| topics.into_iter().map(|(name, _)| name).collect();
    Ok(Report {
        site: record.site,
        generation: record.generation,
        partitions: record.partitions,
        created: names(missing),
        found: names(found),
        findings,
    })
}

/// Deletes topics of a log that was made for a while only, such as a demonstration's.
///
/// # Errors
/// `System` when no broker answers, or they refuse.
pub fn remove(config: KafkaConfig, topics: &[String]) -> Result<(), LogError> {
    let reach = Reach::new(config)?;
    let brokers = &reach.config.brokers;
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let admin = admin(&reach)?;
    let results = or_system(block_on(admin.delete_topics(&names, &options(&reach))), "deleting topics", brokers)?;
    for result in results {
        if let Err((topic, code)) = result {
            return Err(system(format!("deleting topic {topic}"), brokers, &KafkaError::AdminOp(code)));
        }
    }
    Ok(())
}

/// Every topic of a log and how many partitions it has.
pub(crate) fn wanted_topics(names: &Names, partitions: u32) -> Vec<(String, u32)> {
    let mut topics: Vec<_> = Names::partitioned().into_iter().map(|stream| (names.topic(stream), partitions)).collect();
    topics.extend([(names.site(), 1), (names.presence(), 1)]);
    topics
}

/// The settings of a topic of a log. Of all but presence nothing is ever deleted or compacted away; nothing that was
/// acknowledged is given up for a leader that has not got it.
pub(crate) fn topic_settings(config: &KafkaConfig, names: &Names, topic: &str) -> Vec<(&'static str, String)> {
    if topic == names.presence() {
        return presence::topic_settings(config);
    }
    vec![
        ("cleanup.policy", "delete".to_owned()),
        ("retention.ms", "-1".to_owned()),
        ("retention.bytes", "-1".to_owned()),
        ("max.message.bytes", config.max_message().to_string()),
        ("min.insync.replicas", config.min_insync.to_string()),
        ("unclean.leader.election.enable", "false".to_owned()),
    ]
}

pub(crate) fn admin(reach: &Reach) -> Result<AdminClient<Context>, LogError> {
    let admin = reach.client(Purpose::Admin).create_with_context(Context);
    or_system(admin, "setting up a Kafka client", &reach.config.brokers)
}

pub(crate) fn options(reach: &Reach) -> AdminOptions {
    let timeout = Some(reach.config.timeout);
    AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
}

pub(crate) fn create(reach: &Reach, missing: &[(String, u32)]) -> Result<(), LogError> {
    let config = &reach.config;
    let settings: Vec<_> = missing.iter().map(|(name, _)| topic_settings(config, &reach.names, name)).collect();
    let replication = config.replication.min(i32::MAX as u32) as i32;
    let topics: Vec<NewTopic<'_>> = missing
        .iter()
        .zip(&settings)
        .map(|((name, partitions), settings)| {
            let topic = NewTopic::new(name, *partitions as i32, TopicReplication::Fixed(replication));
            settings.iter().fold(topic, |topic, (name, value)| topic.set(name, value))
        })
        .collect();
    let what = "creating the log's topics";
    let admin = admin(reach)?;
    let results = or_system(block_on(admin.create_topics(&topics, &options(reach))), what, &config.brokers)?;
    for result in results {
        match result {
            // Somebody else creates the same log at this moment.
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
            Err((topic, code)) => {
                return Err(system(format!("creating topic {topic}"), &config.brokers, &KafkaError::AdminOp(code)));
            }
        }
    }
    let deadline = reach.deadline();
    loop {
        let cluster = cluster(reach)?;
        let ready = |(topic, partitions): &(String, u32)| {
            cluster
                .topics
                .get(topic)
                .is_some_and(|topic| topic.partitions >= *partitions && topic.leaderless.is_empty())
        };
        match missing.iter().find(|topic| !ready(topic)) {
            None => return Ok(()),
            Some((topic, _)) if Instant::now() >= deadline => {
                let message = "it was created, but has no leader yet; try again".to_owned();
                return Err(LogError::System { what: format!("creating topic {topic}"), message });
            }
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Adopts a restored or forked log that nobody serves: its generation is raised by another site record. The caller then
/// records `LogRestored` in each partition. Gives the new generation.
///
/// # Errors
/// `System` when no broker answers, or there is no log; `Damaged` when there is a site record that cannot be read.
pub fn adopt(config: KafkaConfig) -> Result<u32, LogError> {
    let mut reach = Reach::new(config)?;
    let _ = read_site(&mut reach)?;
    let known = known_site(&mut reach)?;
    let next = SiteRecord { generation: known.generation.saturating_add(1), ..known };
    send_site(&reach, &next).map(|counts| counts.generation)
}

/// Writes a new site's record and reads back which one counts: the first.
fn write_site(reach: &Reach, partitions: u32) -> Result<SiteRecord, LogError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| LogError::System {
        what: "writing the log's site record".to_owned(),
        message: format!("no random id: {error}"),
    })?;
    send_site(reach, &SiteRecord { site: SiteId(id), generation: 1, partitions, topics: 1 })
}

/// Writes a site record and reads back what counts.
pub(crate) fn send_site(reach: &Reach, record: &SiteRecord) -> Result<SiteRecord, LogError> {
    let brokers = &reach.config.brokers;
    let what = "writing the log's site record";
    let bytes = record.encode();
    let topic = reach.names.site();
    let producer = reach.client(Purpose::Inputs).create_with_context(Context);
    let producer: BaseProducer<Context> = or_system(producer, what, brokers)?;
    let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&topic).partition(0).payload(&bytes);
    or_system(producer.send(record).map_err(|(error, _)| error), what, brokers)?;
    or_system(producer.flush(reach.config.timeout), what, brokers)?;
    site_record(reach)?.ok_or_else(|| LogError::System {
        what: what.to_owned(),
        message: "it was sent and is not there; see the brokers' own logs".to_owned(),
    })
}

fn missing(reach: &Reach, what: &str) -> LogError {
    LogError::System {
        what: format!("opening the log on Kafka at {}", reach.config.brokers),
        message: match reach.security.is_somebody() {
            false => format!("{what}; create what is missing with `gatelog log init`"),
            true => format!(
                "{what} that gatelog's user may see; create what is missing with `gatelog log init`, or give that user \
                 the rights that docs/several-processes.md lists"
            ),
        },
    }
}

/// The site record that counts; from here on topics have the names of its generation.
pub(crate) fn known_site(reach: &mut Reach) -> Result<SiteRecord, LogError> {
    let site_topic = reach.names.site();
    if !cluster(reach)?.topics.contains_key(&site_topic) {
        return Err(missing(reach, &format!("there is no topic {site_topic}")));
    }
    let record = site_record(reach)?.ok_or_else(|| missing(reach, &format!("topic {site_topic} is empty")))?;
    reach.names = reach.names.of_topics(record.topics);
    Ok(record)
}

/// Which log this is, if all of it is there; from here on topics have the names of its generation.
pub(crate) fn read_site(reach: &mut Reach) -> Result<Site, LogError> {
    let record = known_site(reach)?;
    let cluster = cluster_with_settings(reach)?;
    let mut survives = u32::MAX;
    for (name, partitions) in wanted_topics(&reach.names, record.partitions) {
        let topic = cluster.topics.get(&name).ok_or_else(|| missing(reach, &format!("there is no topic {name}")))?;
        if topic.partitions < partitions {
            return Err(LogError::System {
                what: format!("opening the log on Kafka at {}", reach.config.brokers),
                message: format!(
                    "topic {name} has {} partitions and this log {partitions}; see `gatelog log check`",
                    topic.partitions
                ),
            });
        }
        if name == reach.names.presence() {
            continue;
        }
        let min_insync = topic.settings.get("min.insync.replicas").and_then(|value| value.parse().ok()).unwrap_or(1);
        survives = survives.min(topic.replicas.min(min_insync)).max(1);
    }
    Ok(Site { site: record.site, generation: record.generation, partitions: record.partitions, survives })
}

/// What the brokers say of themselves and of all topics.
pub(crate) fn cluster(reach: &Reach) -> Result<Cluster, LogError> {
    const WHAT: &str = "asking Kafka for its topics";
    let deadline = reach.deadline();
    // Whoever does not let us in says so soon, and waiting does not help; an answer may take its time.
    let mut turn = Duration::from_secs(1);
    let metadata = loop {
        let left = deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(10), turn);
        let error = match reach.asker().fetch_metadata(None, left) {
            Ok(metadata) => break metadata,
            Err(error) => error,
        };
        if let Some(refused) = reach.refused() {
            return Err(LogError::System { what: WHAT.to_owned(), message: refused.to_string() });
        }
        if !code_of(&error).is_some_and(is_passing) || Instant::now() >= deadline {
            return Err(system(WHAT, &reach.config.brokers, &error));
        }
        turn *= 2;
        std::thread::sleep(Duration::from_millis(50));
    };
    let topic = |topic: &rdkafka::metadata::MetadataTopic| {
        let partitions = topic.partitions();
        let fewest = |count: fn(&rdkafka::metadata::MetadataPartition) -> usize| {
            partitions.iter().map(count).min().unwrap_or_default() as u32
        };
        let about = Topic {
            partitions: partitions.len() as u32,
            replicas: fewest(|partition| partition.replicas().len()),
            in_sync: fewest(|partition| partition.isr().len()),
            leaderless: partitions.iter().filter(|one| one.leader() < 0).map(|one| one.id()).collect(),
            settings: BTreeMap::new(),
        };
        (topic.name().to_owned(), about)
    };
    Ok(Cluster {
        brokers: metadata.brokers().iter().map(|broker| broker.id()).collect(),
        topics: metadata.topics().iter().filter(|topic| topic.error().is_none()).map(topic).collect(),
        settings: BTreeMap::new(),
    })
}

/// The same with the settings of this log's topics and of a broker, as far as they may be seen.
pub(crate) fn cluster_with_settings(reach: &Reach) -> Result<Cluster, LogError> {
    let mut cluster = cluster(reach)?;
    let admin = admin(reach)?;
    let names: Vec<String> = wanted_topics(&reach.names, 1)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| cluster.topics.contains_key(name))
        .collect();
    let describe = |what: &[ResourceSpecifier<'_>]| match block_on(admin.describe_configs(what, &options(reach))) {
        Ok(results) => results.into_iter().map(Result::ok).collect(),
        Err(error) => {
            tracing::warn!("the settings of topics or brokers cannot be seen: {}", said(&error));
            Vec::<Option<ConfigResource>>::new()
        }
    };
    let settings = |resource: ConfigResource| {
        let entries = resource.entries.into_iter();
        entries.filter_map(|entry| Some((entry.name, entry.value?))).collect::<BTreeMap<String, String>>()
    };
    if !names.is_empty() {
        let wanted: Vec<ResourceSpecifier<'_>> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        for (name, resource) in names.iter().zip(describe(&wanted)) {
            if let (Some(topic), Some(resource)) = (cluster.topics.get_mut(name), resource) {
                topic.settings = settings(resource);
            }
        }
    }
    if let Some(broker) = cluster.brokers.first() {
        let resource = describe(&[ResourceSpecifier::Broker(*broker)]).into_iter().next().flatten();
        cluster.settings = resource.map(settings).unwrap_or_default();
    }
    Ok(cluster)
}
