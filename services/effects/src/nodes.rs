//! The hosts of a build: nodes that were granted to it, or the one host that its job names.

use std::collections::BTreeMap;
use std::time::Duration;

use gatelog_cloud_contract::{Cloud, NodeConnection, NodeReady, NodeState, NodeWanted};
use gatelog_executing::spec::{Connection, HostKeys, NodeSpec, Remote};
use gatelog_record::Value;
use gatelog_record::draft::capacity::NodeGrant;
use gatelog_rules_config::FrozenJob;

/// How long it is waited until a node is asked after again: first, and at most.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Asks a cloud for the node of a grant, and waits until it can be used, or until `given_up` says that nobody wants it any
/// more: then there is no node.
///
/// # Errors
/// Why the node cannot be had.
pub fn ready(cloud: &dyn Cloud, grant: &NodeGrant, given_up: impl Fn() -> bool) -> Result<Option<NodeReady>, String> {
    let wanted = NodeWanted { node: grant.node, attempt: 1, label: grant.wanted.label.clone(), from: BTreeMap::new() };
    let mut state = cloud.start(&wanted).map_err(|trouble| trouble.message)?;
    let mut pause = POLL.0;
    loop {
        match state {
            NodeState::Ready(ready) => return Ok(Some(*ready)),
            NodeState::Starting { .. } => {}
            NodeState::Failed(trouble) => return Err(trouble.message),
            NodeState::Stopping | NodeState::Absent => return Err(format!("node {} was taken down", grant.node)),
        }
        if given_up() {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL.1);
        state = cloud.poll(grant.node).map_err(|trouble| trouble.message)?;
    }
}

/// A node that a cloud made ready.
pub fn granted(grant: &NodeGrant, ready: NodeReady) -> NodeSpec {
    let mut names = grant.wanted.names.iter().cloned();
    let mut properties: BTreeMap<String, Value> = ready.properties;
    let id = Value::Str(grant.node.to_string());
    properties.entry("host_id".to_owned()).or_insert_with(|| id.clone());
    properties.insert("uuid".to_owned(), id);
    NodeSpec {
        name: names.next().unwrap_or_default(),
        aliases: names.collect(),
        label: grant.wanted.label.clone(),
        connection: match ready.connection {
            NodeConnection::Local { dir } => Connection::Local { dir },
            NodeConnection::Remote { plugin, host, port, user, host_keys } => {
                let host_keys = if host_keys.is_empty() { HostKeys::Any } else { HostKeys::Known(host_keys) };
                Connection::Remote(Remote { plugin, host, port, user, host_keys, ..Remote::default() })
            }
        },
        properties,
    }
}

/// The host that a job names in place of nodes: `[user@]host[:port]`, with the fingerprint of its SSH key. `None`: the
/// job names none.
///
/// # Errors
/// A sentence with the cure: without a fingerprint anybody could take the host's place and be given the project's trust.
pub fn named(job: &FrozenJob) -> Result<Option<NodeSpec>, String> {
    let (text, fingerprint) = match (&job.host, &job.fingerprint) {
        (None, _) => return Ok(None),
        (Some(host), Some(fingerprint)) => (host, fingerprint),
        (Some(host), None) => {
            return Err(format!(
                "job {} runs on host {host} and has no fingerprint: add that of the host's SSH key, as `ssh-keygen -l -f` \
                 says it",
                job.name
            ));
        }
    };
    let wrong = || format!("host {text:?} of job {} is none: write [user@]host[:port]", job.name);
    let (user, place) = match text.split_once('@') {
        Some((user, place)) => (Some(user.to_owned()), place),
        None => (None, text.as_str()),
    };
    let (host, port) = host_and_port(place).ok_or_else(wrong)?;
    let is_user = |user: &str| {
        user.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && user.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if user.as_deref().is_some_and(|user| !is_user(user)) {
        return Err(wrong());
    }
    let host_keys = HostKeys::Fingerprint(fingerprint.clone());
    let connection = Connection::Remote(Remote {
        plugin: "ssh".into(),
        host: host.clone(),
        port,
        user,
        host_keys,
        ..Remote::default()
    });
    // What roles read of a node's addresses, as of one of a cloud.
    let mut properties: BTreeMap<String, Value> = [("interface_ip".to_owned(), Value::from(host.as_str()))].into();
    if host.parse::<std::net::Ipv4Addr>().is_ok() {
        let known = ["public_ipv4", "private_ipv4"].map(|name| (name.to_owned(), Value::from(host.as_str())));
        properties.extend(known);
    }
    Ok(Some(NodeSpec { name: host, connection, properties, ..NodeSpec::default() }))
}

/// Host and port of `host`, `host:port`, `[address]` or `[address]:port`; a bare address of IPv6 has no port.
fn host_and_port(place: &str) -> Option<(String, Option<u16>)> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
    if let Some(rest) = place.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(text) => Some((host.to_owned(), Some(port(text)?))),
            None => after.is_empty().then(|| (host.to_owned(), None)),
        };
    }
    match place.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Some((place.to_owned(), None)),
        Some((host, text)) => Some((host.to_owned(), Some(port(text)?))),
        None => (!place.is_empty()).then(|| (place.to_owned(), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(host: &str, fingerprint: Option<&str>) -> FrozenJob {
        FrozenJob {
            name: "apply".into(),
            host: Some(host.into()),
            fingerprint: fingerprint.map(str::to_owned),
            ..FrozenJob::default()
        }
    }

    #[test]
    fn a_job_names_its_host_with_user_and_port_if_it_wants() {
        let cases = [
            ("review.example.org", "review.example.org", None, None),
            ("deploy@review.example.org:2222", "review.example.org", Some("deploy"), Some(2222)),
            ("[2001:db8::1]:2222", "2001:db8::1", None, Some(2222)),
            ("2001:db8::1", "2001:db8::1", None, None),
        ];
        for (text, host, user, port) in cases {
            let node = named(&job(text, Some("SHA256:x"))).ok().flatten().unwrap_or_default();
            assert_eq!(node.name, host);
            let remote = node.connection.remote().cloned().unwrap_or_default();
            assert_eq!((remote.host.as_str(), remote.user.as_deref(), remote.port), (host, user, port), "{text}");
            assert_eq!(remote.host_keys, HostKeys::Fingerprint("SHA256:x".into()));
        }
    }

    #[test]
    fn a_host_without_a_fingerprint_or_with_a_strange_name_is_refused_with_the_cure() {
        let refused = named(&job("review.example.org", None)).unwrap_err();
        assert!(refused.contains("job apply") && refused.contains("fingerprint"), "{refused}");
        for text in ["host:port", "host:0", "-x@host", "[::1", "[::1]x", "@host", "host:"] {
            let refused = named(&job(text, Some("x"))).unwrap_err();
            assert!(refused.contains("[user@]host[:port]"), "{text}: {refused}");
        }
        assert_eq!(named(&FrozenJob::default()), Ok(None));
    }
}
