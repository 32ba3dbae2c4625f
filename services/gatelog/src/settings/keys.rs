//! Every key of `gatelog.toml`, and what a new value comes to at the next start.

/// What a new value comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It counts from the next start on.
    Counts,
    /// It counts, and something else follows from it, or has to be done by hand: told as a warning.
    CountsWith(&'static str),
    /// It cannot change: `gatelog serve` refuses, and says what can be done instead.
    Fixed(&'static str),
}

use Class::{Counts, CountsWith, Fixed};

/// A key; `*` stands for any name.
pub type Key = (&'static str, Class);

/// All of them, in the order of the file.
pub const KEYS: &[Key] = &[
    (
        "name",
        CountsWith(
            "builds that the worker of the old name had begin again, and a pause of the old name is not one of the new",
        ),
    ),
    ("tenant-file", Counts),
    (
        "connection.*.driver",
        Fixed(
            "what is on the log of its projects is of that driver; make another connection beside it, and move projects there in \
         the tenant file",
        ),
    ),
    (
        "connection.*.root",
        CountsWith("the repositories must be there as they were in the old directory: what differs comes in as pushes"),
    ),
    (
        "connection.*.canonical-hostname",
        Fixed(
            "names of projects on the log, queues and keys of projects go by it; make another connection with the new host name \
         beside it, and move projects there in the tenant file",
        ),
    ),
    ("connection.*.poll-ms", Counts),
    ("auth.*.driver", Counts),
    ("auth.*.realm", Counts),
    ("auth.*.default", Counts),
    ("auth.*.issuer-id", Counts),
    ("auth.*.client-id", Counts),
    ("auth.*.audience", Counts),
    ("auth.*.uid-claim", Counts),
    ("auth.*.max-validity-time", Counts),
    ("auth.*.skew", Counts),
    ("auth.*.allow-authz-override", Counts),
    ("auth.*.secret", Counts),
    ("auth.*.secret-file", Counts),
    ("auth.*.public-key", Counts),
    ("auth.*.keys-url", Counts),
    ("auth.*.scope", Counts),
    ("auth.*.authority", Counts),
    ("auth.*.load-user-info", Counts),
    ("web.listen", Counts),
    (
        "web.root",
        CountsWith("tenants are configured anew, and tokens of secrets with `oidc` are issued under the new name"),
    ),
    ("web.streams", Counts),
    ("web.websocket-url", Counts),
    ("web.finger", Counts),
    ("scheduler.default-ansible-version", Counts),
    ("scheduler.time-zone", Counts),
    ("executor.slots", Counts),
    ("executor.ansible-playbook", Counts),
    ("executor.ansible-any-version", Counts),
    ("executor.ansible-root", Counts),
    ("executor.default-username", Counts),
    ("executor.variables", Counts),
    ("executor.private-key-file", Counts),
    ("executor.trusted-ro-paths", Counts),
    ("executor.trusted-rw-paths", Counts),
    ("executor.untrusted-ro-paths", Counts),
    ("executor.untrusted-rw-paths", Counts),
    ("executor.zone", Counts),
    ("executor.allow-unzoned", Counts),
    ("executor.labels", Counts),
    ("executor.unsandboxed", Counts),
    ("executor.network", Counts),
    ("executor.foreign-abi", Counts),
    ("executor.job-memory", Counts),
    ("executor.job-pids", Counts),
    ("executor.job-disk", Counts),
    ("executor.job-tmp", Counts),
    ("executor.job-output", Counts),
    ("executor.job-output-rate", Counts),
    ("executor.job-timeout", Counts),
    ("executor.cgroup", Counts),
    ("executor.listen", Counts),
    ("executor.address", Counts),
    ("executor.min-avail-hdd", Counts),
    ("executor.min-avail-inodes", Counts),
    ("executor.min-avail-mem", Counts),
    ("executor.load-multiplier", Counts),
    ("executor.max-starting-builds", Counts),
    ("job-logs.dir", CountsWith(MOVE_LOGS)),
    ("job-logs.s3.bucket", CountsWith(MOVE_LOGS)),
    ("job-logs.s3.endpoint", CountsWith(MOVE_LOGS)),
    ("job-logs.s3.region", Counts),
    ("job-logs.s3.prefix", CountsWith(MOVE_LOGS)),
    ("job-logs.s3.access-key-id", Counts),
    ("job-logs.s3.secret-access-key-file", Counts),
    ("job-logs.keep-days", CountsWith("what is older is removed, also of builds before")),
    ("job-logs.keep-bytes", CountsWith("what is more is removed, also of builds before")),
    ("job-logs.keep-returned-days", Counts),
    ("job-logs.job-files", Counts),
    ("job-logs.job-size", Counts),
    ("log.rung-every", Counts),
    ("log.checkpoint-every", Counts),
    ("log.segment-size", Counts),
    ("log.kafka.brokers", Counts),
    (
        "log.kafka.prefix",
        Fixed(
            "the log stays in the topics it is in; a new site in a directory of its own can have topics of other names",
        ),
    ),
    ("log.kafka.partitions", CountsWith("topics that are there keep their partitions until `gatelog log repartition`")),
    ("log.kafka.replication", CountsWith("topics that are there keep theirs; the tools of Apache Kafka change it")),
    ("log.kafka.min-insync", CountsWith("topics that are there keep theirs; the tools of Apache Kafka change it")),
    ("log.kafka.properties.*", Counts),
    ("shared.dir", CountsWith("blobs, keys and what is known of connections must have been moved there")),
    ("oidc.signing-key-rotation-interval", Counts),
    (
        "audit.checkpoint-directory",
        CountsWith("checkpoints that were published stay where they are; those from now on name the ones before"),
    ),
    ("audit.interval", Counts),
    ("stop.sigterm-method", Counts),
    ("stop.drain-limit", Counts),
    ("stop.drain-at-least", Counts),
];

const MOVE_LOGS: &str = "consoles and logs that were kept before are not found from the new place: move them there";

/// What a change of this key comes to; `None` of one that is none.
pub fn class(path: &str) -> Option<Class> {
    KEYS.iter().find(|(key, _)| fits(key, path)).map(|(_, class)| *class)
}

/// Whether a path is one of a key. The last `*` stands for all the rest, dots and all: keys of librdkafka have some.
fn fits(key: &str, path: &str) -> bool {
    let mut key = key.split('.');
    let mut rest = path;
    loop {
        match (key.next(), rest.split_once('.')) {
            (Some("*"), _) if key.clone().next().is_none() => return !rest.is_empty(),
            (Some(part), Some((first, more))) if part == "*" || part == first => rest = more,
            (Some(part), None) => return (part == "*" || part == rest) && key.next().is_none(),
            _ => return false,
        }
    }
}

/// The key that is spelled most like this one, with its section: `("slots", "executor")`.
pub fn nearest(wrong: &str, known: &[String]) -> Option<String> {
    let most = (wrong.chars().count() / 3).max(1) + 1;
    let here = known.iter().map(|name| (distance(wrong, name), name.clone())).min();
    if let Some((far, name)) = here.filter(|(far, _)| *far <= most) {
        let _ = far;
        return Some(format!("did you mean `{name}`?"));
    }
    // It may belong elsewhere.
    KEYS.iter().find_map(|(key, _)| {
        let (section, name) = key.rsplit_once('.')?;
        (name == wrong).then(|| format!("`{name}` belongs under [{}]", section.replace('*', "NAME")))
    })
}

/// How many letters must be put in, taken out or replaced.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, left) in a.chars().enumerate() {
        let mut above = row.clone();
        std::mem::swap(&mut row, &mut above);
        row[0] = at + 1;
        for (place, right) in b.iter().enumerate() {
            let swap = above[place] + usize::from(left != *right && !(left == '_' && *right == '-'));
            row[place + 1] = swap.min(above[place + 1] + 1).min(row[place] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_names_of_the_sites_own_are_found_by_their_shape() {
        assert_eq!(class("executor.slots"), Some(Counts));
        assert!(matches!(class("connection.forge.canonical-hostname"), Some(Fixed(_))));
        assert_eq!(class("log.kafka.properties.security.protocol"), Some(Counts));
        assert!(matches!(class("log.kafka.prefix"), Some(Fixed(_))));
        for none in ["executor", "executor.slot", "connection.forge", "log.kafka", "slots"] {
            assert_eq!(class(none), None, "{none}");
        }
    }

    #[test]
    fn a_wrong_key_leads_to_the_nearest_or_to_where_it_belongs() {
        let known = ["slots".to_owned(), "labels".to_owned(), "job-memory".to_owned()];
        assert_eq!(nearest("slot", &known).as_deref(), Some("did you mean `slots`?"));
        assert_eq!(nearest("job_memory", &known).as_deref(), Some("did you mean `job-memory`?"));
        assert_eq!(nearest("keep-days", &known).as_deref(), Some("`keep-days` belongs under [job-logs]"));
        assert_eq!(nearest("quite-something-else", &known), None);
    }
}
