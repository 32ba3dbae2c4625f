//! How Ansible's ssh knows that a host is the host that is meant.

use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use md5::Md5;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::spec::{BuildSpec, HostKeys, Remote};

/// The port of SSH.
const PORT: u16 = 22;
/// The port of WinRM over TLS.
const WINRM_PORT: u16 = 5986;
/// How long a host may take to show its keys: for each connection, in seconds, and for all.
const SCAN_SECONDS: u32 = 15;
const SCAN: Duration = Duration::from_secs(60);
/// The most bytes of keys that are read from a host.
const MOST_KEYS: u64 = 64 << 10;

impl Remote {
    /// The port, where none is said that of the plugin.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(if self.plugin == "winrm" { WINRM_PORT } else { PORT })
    }

    /// The host as a file of known hosts names it.
    fn known_as(&self) -> String {
        match self.port() {
            PORT => self.host.clone(),
            port => format!("[{}]:{port}", self.host),
        }
    }
}

/// What Ansible's ssh is called with for hosts of which nothing more is said. Zuul: `ssh_args`.
pub(crate) fn arguments(known_hosts: &Path) -> String {
    format!(
        "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=60 -o UserKnownHostsFile={}",
        known_hosts.display()
    )
}

/// What it is called with for a host whose fingerprint the job has: only the key that was found to have it counts,
/// whatever a playbook writes into its own file of known hosts.
pub(crate) fn pinned_arguments(pinned_hosts: &Path) -> String {
    format!("{} -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes", arguments(pinned_hosts))
}

/// The nodes that are reached over a network.
pub(crate) fn remotes(spec: &BuildSpec) -> impl Iterator<Item = &Remote> {
    spec.nodeset.nodes.iter().filter_map(|node| node.connection.remote())
}

/// The file of known hosts with the keys that the spec has.
pub(crate) fn known_hosts(spec: &BuildSpec) -> String {
    remotes(spec)
        .filter_map(|remote| match &remote.host_keys {
            HostKeys::Known(keys) => Some(keys.iter().map(|key| format!("{} {key}\n", remote.known_as()))),
            HostKeys::Fingerprint(_) | HostKeys::Any => None,
        })
        .flatten()
        .collect()
}

/// The digest of a host's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fingerprint {
    Md5([u8; 16]),
    Sha256([u8; 32]),
}

impl Fingerprint {
    /// A fingerprint as OpenSSH writes it: 16 pairs of hex digits with or without `MD5:` before them, or `SHA256:` and
    /// base64.
    pub(crate) fn parse(text: &str) -> Option<Fingerprint> {
        if let Some(encoded) = text.strip_prefix("SHA256:") {
            let bytes = STANDARD_NO_PAD.decode(encoded.trim_end_matches('=')).ok()?;
            return Some(Fingerprint::Sha256(bytes.try_into().ok()?));
        }
        let pairs: Vec<&str> = text.strip_prefix("MD5:").unwrap_or(text).split(':').collect();
        let byte = |pair: &&str| (pair.len() == 2).then(|| u8::from_str_radix(pair, 16).ok())?;
        let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
        Some(Fingerprint::Md5(bytes.try_into().ok()?))
    }

    /// Whether this is the fingerprint of a key, given as bytes.
    fn is_of(&self, key: &[u8]) -> bool {
        match self {
            Fingerprint::Md5(digest) => Md5::digest(key)[..] == digest[..],
            Fingerprint::Sha256(digest) => Sha256::digest(key)[..] == digest[..],
        }
    }
}

/// Why a host is not the one that is meant, or cannot be asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// It does not answer.
    Unreachable(String),
    /// It shows other keys.
    Other(String),
    /// It cannot be asked.
    Impossible(String),
}

/// A line for a file of known hosts: the key of this host that has the fingerprint. The host is asked for its keys, and
/// nothing is sent to it but that question.
///
/// # Errors
/// When it has no such key, or cannot be asked.
pub(crate) async fn prove(remote: &Remote, fingerprint: &str, scanner: &Path) -> Result<String, Unproven> {
    let Some(wanted) = Fingerprint::parse(fingerprint) else {
        return Err(Unproven::Impossible(format!(
            "fingerprint {fingerprint:?} of host {} is none: give what `ssh-keygen -l` says of its key, such as \
             SHA256:… or 16 pairs of hex digits",
            remote.host
        )));
    };
    let keys = scan(remote, scanner).await?;
    let mut shown = Vec::new();
    for line in keys.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace().skip(1);
        let (Some(kind), Some(encoded)) = (words.next(), words.next()) else { continue };
        let Ok(key) = STANDARD.decode(encoded) else { continue };
        if wanted.is_of(&key) {
            return Ok(format!("{} {kind} {encoded}\n", remote.known_as()));
        }
        shown.push(format!("{kind} SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&key))));
    }
    if shown.is_empty() {
        return Err(Unproven::Unreachable(format!("cannot reach {}: it shows no SSH host key", remote.known_as())));
    }
    Err(Unproven::Other(format!(
        "host {} has no key with fingerprint {fingerprint}: nothing was sent to it. It shows {}; if that is right, \
         correct the job's fingerprint",
        remote.known_as(),
        shown.join(", ")
    )))
}

/// What the host shows, as lines of a file of known hosts.
async fn scan(remote: &Remote, scanner: &Path) -> Result<String, Unproven> {
    let failed = |error: std::io::Error| Unproven::Impossible(format!("{}: {error}", scanner.display()));
    let mut command = Command::new(scanner);
    command.args(["-T", &SCAN_SECONDS.to_string(), "-p", &remote.port().to_string(), "--", &remote.host]);
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let mut text = String::new();
    let read = async {
        if let Some(output) = child.stdout.take() {
            output.take(MOST_KEYS).read_to_string(&mut text).await?;
        }
        Ok(())
    };
    match tokio::time::timeout(SCAN, read).await {
        Ok(read) => read.map_err(failed)?,
        Err(_) => return Err(Unproven::Unreachable(format!("cannot reach {}: no answer", remote.known_as()))),
    }
    Ok(text)
}

/// Whether a name can be given to ssh: an address, or letters, digits, dots, dashes and underscores.
pub(crate) fn is_host(name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.parse::<IpAddr>().is_ok()
        || !name.is_empty() && name.len() <= 253 && !name.starts_with(['-', '.']) && name.chars().all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_openssh_writes_them() {
        let key = b"not a key, but bytes";
        let pairs: Vec<String> = Md5::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        let (md5, sha256) = (pairs.join(":"), format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key))));
        for text in [md5.clone(), format!("MD5:{md5}"), md5.to_uppercase(), sha256.clone(), format!("{sha256}=")] {
            let parsed = Fingerprint::parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert!(parsed.is_of(key) && !parsed.is_of(b"other"), "{text}");
        }
        for text in ["", "SHA256:", "SHA256:AAAA", "4a:28", "4a:2:cb", &md5[3..], "zz:zz", "SHA1:abc"] {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_cannot_be_an_option_or_a_command() {
        for good in ["review.example.org", "192.0.2.1", "2001:db8::1", "build_1"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "-oProxyCommand=x", "a b", "a;b", "a,b", "a/b", "[::1]", ".example.org"] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
