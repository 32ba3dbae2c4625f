//! What is wrong with a log's topics, each with a cure.

use std::fmt;

use gatelog_event_log::LogError;

use crate::admin::{Cluster, Topic, cluster, cluster_with_settings, topic_settings, wanted_topics};
use crate::closing::CLOSED;
use crate::config::KafkaConfig;
use crate::cursor::Reach;
use crate::layout::SiteRecord;
use crate::names::Names;
use crate::security::Wrong;
use crate::site::site_record;

/// The oldest brokers whose transactions fence as this log needs it (epochs bumped by the brokers, KIP-360).
const OLDEST: (u32, u32) = (2, 5);

/// For how long the topic of presence must at least keep what comes, in milliseconds: brokers look for what is too old
/// every few minutes only, but may then delete it.
const SHORTEST_PRESENCE: i64 = 600_000;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The configuration cannot be meant.
    Configuration,
    /// The brokers and this configuration do not agree on TLS or SASL, or on who is who.
    Security,
    /// No broker answers, or they refuse to.
    Unreachable,
    /// The brokers are too old.
    TooOld,
    /// A topic is not there.
    MissingTopic,
    /// The site record is missing or not readable.
    Site,
    /// A topic has not as many partitions as the log, or the log not as many as configured.
    Partitions,
    /// Records may be compacted away.
    Compaction,
    /// Records may be deleted.
    Retention,
    /// A topic has fewer replicas than wanted.
    Replication,
    /// Too few replicas have a record when it is acknowledged, or more are asked for than there are.
    MinInsync,
    /// Partitions have no leader, or replicas are behind.
    Offline,
    /// A record as large as may be would be refused.
    MessageSize,
    /// A replica that lacks records may become leader.
    UncleanElection,
    /// Transactions cannot work as configured.
    Transactions,
    /// Settings cannot be seen with these rights.
    Hidden,
}

/// One thing that is wrong, and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// What is wrong, with names and values.
    pub what: String,
    /// What to do about it.
    pub cure: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cure)
    }
}

/// Says what is wrong with the log on Kafka that this configuration names; nothing is changed. Empty when all is well.
pub fn check(config: KafkaConfig) -> Vec<Finding> {
    let brokers = config.brokers.clone();
    let mut reach = match config.names().and_then(|_| Reach::new(config)) {
        Ok(reach) => reach,
        Err(error) => {
            let said = error.to_string();
            let (what, cure) = said.rsplit_once("; ").unwrap_or((&said, "correct the settings under log.kafka"));
            let (what, cure) = (what.to_owned(), cure.to_owned());
            return vec![Finding { kind: FindingKind::Configuration, what, cure }];
        }
    };
    let looked = cluster(&reach).and_then(|there| {
        let site = if there.topics.contains_key(&reach.names.site()) { site_record(&reach) } else { Ok(None) };
        if let Ok(Some(site)) = &site {
            reach.names = reach.names.of_topics(site.topics);
        }
        Ok((cluster_with_settings(&reach)?, site))
    });
    let (cluster, site) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            if let Some(Wrong { what, cure }) = reach.refused() {
                return vec![Finding { kind: FindingKind::Security, what, cure }];
            }
            let cure = format!("start the brokers, or correct brokers = \"{brokers}\" and the security settings");
            return vec![Finding { kind: FindingKind::Unreachable, what: error.to_string(), cure }];
        }
    };
    judge(&reach, &cluster, site)
}

/// What is wrong with what the brokers say.
pub(crate) fn judge(reach: &Reach, cluster: &Cluster, site: Result<Option<SiteRecord>, LogError>) -> Vec<Finding> {
    let config = &reach.config;
    let mut judge = Judge { config, names: &reach.names, findings: Vec::new() };
    judge.brokers(cluster);
    let partitions = match site {
        Ok(Some(site)) => {
            if site.partitions != config.partitions {
                judge.add(
                    FindingKind::Partitions,
                    format!(
                        "this log was created with {} partitions, configured are {}",
                        site.partitions, config.partitions
                    ),
                    format!("set partitions = {}, or see `gatelog log repartition`", site.partitions),
                );
            }
            site.partitions
        }
        Ok(None) => {
            let what = format!("topic {} has no record that says which site this is", reach.names.site());
            judge.add(FindingKind::Site, what, "run `gatelog log init`".to_owned());
            config.partitions
        }
        Err(error) => {
            let cure = "restore the topic from a backup: it is written once and never changes".to_owned();
            judge.add(FindingKind::Site, error.to_string(), cure);
            config.partitions
        }
    };
    for (name, partitions) in wanted_topics(&reach.names, partitions) {
        match cluster.topics.get(&name) {
            None => judge.add(
                FindingKind::MissingTopic,
                format!("topic {name} is missing"),
                match reach.security.is_somebody() {
                    false => {
                        "run `gatelog log init`; if it was there before, restore it from a backup first".to_owned()
                    }
                    true => {
                        "run `gatelog log init`, if it was there before, restore it from a backup first, and if it is \
                             there, give gatelog's user the rights that docs/several-processes.md lists"
                            .to_owned()
                    }
                },
            ),
            Some(topic) => judge.topic(&name, topic, partitions),
        }
    }
    judge.findings
}

struct Judge<'a> {
    config: &'a KafkaConfig,
    names: &'a Names,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    fn add(&mut self, kind: FindingKind, what: String, cure: String) {
        self.findings.push(Finding { kind, what, cure });
    }

    fn brokers(&mut self, cluster: &Cluster) {
        if let Some(version) = cluster.settings.get("inter.broker.protocol.version")
            && too_old(version)
        {
            self.add(
                FindingKind::TooOld,
                format!("the brokers speak version {version}"),
                format!("update them to {}.{} or later", OLDEST.0, OLDEST.1),
            );
        }
        let number = |name: &str| cluster.settings.get(name).and_then(|value| value.parse::<u128>().ok());
        let timeout = self.config.transaction_timeout.as_millis();
        if let Some(most) = number("transaction.max.timeout.ms").filter(|most| *most < timeout) {
            self.add(
                FindingKind::Transactions,
                format!("transactions may take {timeout} ms, but the brokers' transaction.max.timeout.ms is {most}"),
                format!("set transaction_timeout to at most {most} ms, or raise the brokers' limit"),
            );
        }
        let (copies, least) = (self.config.replication, self.config.min_insync);
        if copies > 1 && least < 2 {
            self.add(
                FindingKind::MinInsync,
                format!(
                    "of {copies} replicas one is enough to acknowledge: what is only there is lost with its broker"
                ),
                "set min-insync = 2 under log.kafka, and min.insync.replicas=2 on the topics that are there".to_owned(),
            );
        }
        if let Some(state) = cluster.topics.get("__transaction_state").filter(|state| state.replicas < copies) {
            self.add(
                FindingKind::Transactions,
                format!(
                    "topic __transaction_state has {} replicas, the log's topics have {copies}: without the brokers that \
                     hold it nothing is decided",
                    state.replicas
                ),
                "add replicas with kafka-reassign-partitions.sh".to_owned(),
            );
        }
        let there = cluster.brokers.len() as u128;
        let wanted = number("transaction.state.log.replication.factor");
        if let Some(wanted) =
            wanted.filter(|wanted| *wanted > there && !cluster.topics.contains_key("__transaction_state"))
        {
            self.add(
                FindingKind::Transactions,
                format!("transaction.state.log.replication.factor is {wanted}, but there are {there} brokers"),
                "start more brokers, or lower that setting and transaction.state.log.min.isr on them: no partition can \
                 be claimed before"
                    .to_owned(),
            );
        }
    }

    fn topic(&mut self, name: &str, topic: &Topic, partitions: u32) {
        if topic.partitions < partitions {
            self.add(
                FindingKind::Partitions,
                format!("topic {name} has {} partitions, the log has {partitions}", topic.partitions),
                format!(
                    "kafka-topics.sh --bootstrap-server {} --alter --topic {name} --partitions {partitions}",
                    self.config.brokers
                ),
            );
        } else if topic.partitions > partitions {
            self.add(
                FindingKind::Partitions,
                format!("topic {name} has {} partitions, the log has {partitions}", topic.partitions),
                "what stands in the others is never read: if there is nothing, `gatelog log repartition` makes topics \
                 with as many as the log has; else the topic belongs to another log and this one needs another prefix"
                    .to_owned(),
            );
        }
        let (wanted, least) = (self.config.replication, self.config.min_insync);
        if topic.replicas < wanted {
            self.add(
                FindingKind::Replication,
                format!("topic {name} has {} replicas, {wanted} are wanted", topic.replicas),
                format!("add replicas with kafka-reassign-partitions.sh, or set replication = {}", topic.replicas),
            );
        }
        if !topic.leaderless.is_empty() {
            self.add(
                FindingKind::Offline,
                format!("topic {name} has no leader for partitions {:?}", topic.leaderless),
                "bring back the brokers that hold them".to_owned(),
            );
        } else if topic.in_sync < topic.replicas {
            self.add(
                FindingKind::Offline,
                format!("topic {name} has only {} of {} replicas in sync", topic.in_sync, topic.replicas),
                "bring back the brokers that are down or behind".to_owned(),
            );
        }
        if topic.settings.is_empty() {
            self.add(
                FindingKind::Hidden,
                format!("the settings of topic {name} cannot be seen"),
                "give gatelog's user the right DescribeConfigs on it".to_owned(),
            );
            return;
        }
        let is_presence = name == self.names.presence();
        for (setting, wanted) in topic_settings(self.config, self.names, name) {
            let found = topic.settings.get(setting).map_or("", String::as_str);
            let number = |text: &str| text.parse::<i64>().unwrap_or(0);
            let (kind, why) = match setting {
                "cleanup.policy" if is_presence && !found.contains("compact") => {
                    (FindingKind::Compaction, "it keeps every sign there ever was of the last day")
                }
                "retention.ms" if is_presence && number(found) < SHORTEST_PRESENCE => {
                    (FindingKind::Retention, "who is there may be forgotten")
                }
                "cleanup.policy" | "retention.ms" if is_presence => continue,
                "cleanup.policy" if found.contains("compact") => (FindingKind::Compaction, "it compacts history away"),
                "retention.ms" | "retention.bytes" if number(found) >= 0 => {
                    (FindingKind::Retention, "it deletes history")
                }
                "max.message.bytes" if found == CLOSED => (
                    FindingKind::MessageSize,
                    "it takes no inputs: `gatelog log repartition` was broken off, run it again",
                ),
                "max.message.bytes" if number(found) < number(&wanted) => {
                    (FindingKind::MessageSize, "the largest records would be refused")
                }
                "unclean.leader.election.enable" if found == "true" => {
                    (FindingKind::UncleanElection, "what was acknowledged may be lost when a broker fails")
                }
                "min.insync.replicas" if number(found) > i64::from(topic.replicas) => {
                    (FindingKind::MinInsync, "that is more than there are replicas: nothing can be appended")
                }
                "min.insync.replicas" if number(found) < i64::from(least) => {
                    (FindingKind::MinInsync, "what was acknowledged may be on too few brokers")
                }
                _ => continue,
            };
            self.add(
                kind,
                format!("topic {name} has {setting}={found}: {why}"),
                format!(
                    "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {name} \
                     --add-config {setting}={wanted}",
                    self.config.brokers
                ),
            );
        }
    }
}

/// Whether a version such as `2.4-IV1` is older than what is needed.
fn too_old(version: &str) -> bool {
    let number = version.split('-').next().unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (Some(major), minor) = (parts.next(), parts.next().unwrap_or(0)) else { return false };
    major > 0 && (major, minor) < OLDEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_brokers_are_known_by_their_version() {
        assert_eq!(
            ["2.4-IV1", "1.1", "2.5-IV0", "3.9-IV0", "4.0", "nonsense"].map(too_old),
            [true, true, false, false, false, false]
        );
    }

    #[test]
    fn what_cannot_be_made_on_one_broker_is_judged_from_what_the_brokers_would_say() {
        let config = KafkaConfig { replication: 3, min_insync: 2, ..KafkaConfig::default() };
        let names = config.names().unwrap();
        let topic = Topic {
            partitions: 1,
            replicas: 3,
            in_sync: 2,
            leaderless: vec![],
            settings: topic_settings(&config, &names, "gate.events")
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        let judged = |change: &dyn Fn(&mut Topic)| {
            let mut topic = topic.clone();
            topic.in_sync = 3;
            change(&mut topic);
            let mut judge = Judge { config: &config, names: &names, findings: Vec::new() };
            judge.topic("gate.events", &topic, 1);
            judge.findings.into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
        };
        assert_eq!(judged(&|_| {}), []);
        assert_eq!(judged(&|topic| topic.in_sync = 2), [FindingKind::Offline]);
        assert_eq!(judged(&|topic| topic.leaderless = vec![0]), [FindingKind::Offline]);
        assert_eq!(judged(&|topic| topic.settings.clear()), [FindingKind::Hidden]);
        let mut judge = Judge { config: &config, names: &names, findings: Vec::new() };
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let unsafe_config = KafkaConfig { min_insync: 1, ..config.clone() };
        let mut lax = Judge { config: &unsafe_config, names: &names, findings: Vec::new() };
        let state = Topic { partitions: 50, replicas: 1, ..Topic::default() };
        lax.brokers(&Cluster { topics: [("__transaction_state".to_owned(), state)].into(), ..Cluster::default() });
        let kinds: Vec<_> = lax.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [FindingKind::MinInsync, FindingKind::Transactions]);
        judge.brokers(&Cluster {
            brokers: vec![1],
            settings: [
                setting("inter.broker.protocol.version", "2.3-IV1"),
                setting("transaction.max.timeout.ms", "1000"),
                setting("transaction.state.log.replication.factor", "3"),
            ]
            .into(),
            ..Cluster::default()
        });
        let kinds: Vec<_> = judge.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [FindingKind::TooOld, FindingKind::Transactions, FindingKind::Transactions]);
        assert!(judge.findings.iter().all(|finding| !finding.cure.is_empty()));
    }
}
